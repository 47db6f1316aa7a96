//! One log on disk (of access, of queries): whole lines, at the end of whatever file has the path now.
//!
//! The file is opened anew when it is asked for (SIGUSR1), and when the path is not that file any
//! more (it was renamed or removed), which is looked at once a second. Two processes may write to the
//! same file, as they do while one hands over to the other: each write is at the end, and of whole
//! lines. After a write that was cut short (no space, a killed process) the next begins with a line
//! feed, so that no line continues another.
//!
//! What cannot be written is dropped and counted. Nobody waits for it: a pipe that nobody reads is not
//! opened, and one that is full is tried for a moment only.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use model::Now;
use model::time::utc;
use serde_json::{Value, json};

use crate::file::without_waiting;
use crate::metrics::Counter;

/// How often the path is looked at, and an error is logged at most, milliseconds.
const LOOK_EVERY_MS: u64 = 1_000;
const COMPLAIN_EVERY_MS: u64 = 60_000;
/// How often a pipe that is full is tried again, and after how long each time.
const TRIES: u32 = 20;
const TRY_AFTER: Duration = Duration::from_millis(1);
/// Its owner writes, its group reads.
const MODE: u32 = 0o640;
/// A buffer of lines that was larger is given back.
const LINES_BYTES_KEPT: usize = 256 << 10;

/// Lines of one log that are to be written, each with its end.
#[derive(Debug, Default)]
pub struct Lines {
    /// The lines.
    pub bytes: Vec<u8>,
    /// How many there are in `bytes`.
    pub count: u64,
    /// Those for which there was no room.
    pub lost: u64,
}

impl Lines {
    /// Begins anew, with the memory that it has unless that is much.
    pub fn clear(&mut self) {
        (self.count, self.lost) = (0, 0);
        self.bytes.clear();
        if self.bytes.capacity() > LINES_BYTES_KEPT {
            self.bytes = Vec::new();
        }
    }
}

/// What is known of a log beside its file.
#[derive(Debug)]
pub struct Figures {
    path: PathBuf,
    lines: Counter,
    lost: Counter,
    /// The newest error, and when it was, milliseconds since 1970.
    error: Mutex<Option<(String, u64)>>,
}

impl Figures {
    /// Of the log at `path`; `lines` and `lost` are what its lines are counted by.
    pub fn new(path: PathBuf, lines: Counter, lost: Counter) -> Self {
        Self { path, lines, lost, error: Mutex::default() }
    }

    /// In `/status`.
    pub fn status(&self) -> Value {
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        json!({
            "path": self.path,
            "lines": self.lines.get(),
            "lost_lines": self.lost.get(),
            "last_error": error.map(|(why, at_ms)| json!({ "why": why, "at": utc(at_ms) })),
        })
    }
}

/// A log.
#[derive(Debug)]
pub struct LogFile {
    file: Option<File>,
    figures: Arc<Figures>,
    /// The last write ended within a line.
    is_torn: bool,
    /// How often it was asked to open it anew, when it last was.
    reopened: u64,
    look_at_ns: u64,
    complain_at_ns: u64,
}

impl LogFile {
    /// The log that `figures` are of; opened by the first [`LogFile::look`].
    pub fn new(figures: Arc<Figures>) -> Self {
        let (file, is_torn) = (None, false);
        Self { file, figures, is_torn, reopened: 0, look_at_ns: 0, complain_at_ns: 0 }
    }

    /// Opens the file anew when that is due; `reopened`: how often it was asked for.
    pub fn look(&mut self, now: Now, reopened: u64) {
        let is_asked = std::mem::replace(&mut self.reopened, reopened) != reopened;
        if !is_asked && now.mono_ns < self.look_at_ns {
            return;
        }
        self.look_at_ns = now.plus_ms(LOOK_EVERY_MS).mono_ns;
        if is_asked || !self.is_at_path() {
            match open(&self.figures.path) {
                Ok((file, is_torn)) => {
                    self.file = Some(file);
                    self.is_torn = is_torn;
                }
                // What was open, if anything, is still better than nothing.
                Err(error) => self.complain(now, &error),
            }
        }
    }

    fn is_at_path(&self) -> bool {
        let identity = |data: std::fs::Metadata| (data.dev(), data.ino());
        let held = self.file.as_ref().and_then(|file| file.metadata().ok()).map(identity);
        held.is_some() && held == std::fs::metadata(&self.figures.path).ok().map(identity)
    }

    /// Writes lines, each with its end.
    pub fn write(&mut self, now: Now, lines: &Lines) {
        self.figures.lost.inc_by(lines.lost);
        let (written, error) = match &mut self.file {
            _ if lines.bytes.is_empty() => return,
            Some(file) => put(file, &mut self.is_torn, &lines.bytes),
            None => (0, None), // which was said when it was to be opened
        };
        let rest = lines.bytes.get(written..).map_or(0, count).min(lines.count);
        self.figures.lines.inc_by(lines.count.saturating_sub(rest));
        self.figures.lost.inc_by(rest);
        if let Some(error) = error {
            self.complain(now, &error);
        }
    }

    fn complain(&mut self, now: Now, error: &io::Error) {
        let mut last = self.figures.error.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((error.to_string(), now.wall_ms));
        drop(last);
        if now.mono_ns >= self.complain_at_ns {
            self.complain_at_ns = now.plus_ms(COMPLAIN_EVERY_MS).mono_ns;
            let (path, lost) = (self.figures.path.display(), self.figures.lost.get());
            tracing::error!(%path, %error, lost, "the log cannot be written: lines are lost");
        }
    }
}

/// The file, and whether it ends within a line.
fn open(path: &Path) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    let file = without_waiting(&mut options).append(true).create(true).mode(MODE).open(path)?;
    let about = file.metadata()?;
    let Some(last) = about.len().checked_sub(1).filter(|_| about.is_file()) else {
        return Ok((file, false));
    };
    let mut end = [0];
    let read = without_waiting(OpenOptions::new().read(true)).open(path);
    let read = read.and_then(|file| file.read_exact_at(&mut end, last));
    // Of one that we may not read nobody knows: an empty line too many does no harm.
    Ok((file, read.is_err() || end != *b"\n"))
}

/// Writes all of `bytes`, or as much as can be, after a line feed if what was written last is torn.
/// How many of them were written.
fn put(file: &mut File, is_torn: &mut bool, bytes: &[u8]) -> (usize, Option<io::Error>) {
    if *is_torn && let Err(error) = file.write_all(b"\n") {
        return (0, Some(error));
    }
    *is_torn = false;
    let (mut written, mut tries) = (0usize, 0u32);
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        let error = match file.write(rest) {
            Ok(0) => io::ErrorKind::WriteZero.into(),
            Ok(more) => {
                written = written.saturating_add(more);
                *is_torn = bytes.get(..written).is_some_and(|done| !done.ends_with(b"\n"));
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && tries < TRIES => {
                tries = tries.saturating_add(1);
                std::thread::sleep(TRY_AFTER);
                continue;
            }
            Err(error) => error,
        };
        return (written, Some(error));
    }
    (written, None)
}

/// Lines that end in `bytes`.
fn count(bytes: &[u8]) -> u64 {
    let ends = bytes.iter().filter(|byte| **byte == b'\n').count();
    u64::try_from(ends).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::Metrics;
    use crate::metrics::edge;

    fn log(path: PathBuf) -> (LogFile, Arc<Figures>) {
        let metrics = Metrics::new();
        let [lines, lost] = [&edge::LOG_LINES, &edge::LOG_LOST].map(|m| metrics.counter(m, &["a"]));
        let figures = Arc::new(Figures::new(path, lines, lost));
        (LogFile::new(Arc::clone(&figures)), figures)
    }

    fn lines(text: &str) -> Lines {
        Lines { bytes: text.into(), count: count(text.as_bytes()), lost: 0 }
    }

    fn counts(figures: &Figures) -> (u64, u64) {
        (figures.lines.get(), figures.lost.get())
    }

    #[test]
    fn a_log_follows_its_path_and_loses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("a.log"), dir.path().join("a.log.1"));
        let (mut log, figures) = log(path.clone());
        let t = Now { mono_ns: 1, wall_ms: 1 };
        log.look(t, 0);
        log.write(t, &lines("one\n"));
        fs::rename(&path, &moved).unwrap();
        log.look(t.plus_ms(1), 0);
        log.write(t, &lines("two\n"));
        log.look(t.plus_ms(LOOK_EVERY_MS), 0);
        log.write(t, &lines("three\nfour\n"));
        assert_eq!(fs::read_to_string(&moved).unwrap(), "one\ntwo\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\nfour\n");
        // Asked for: at once.
        fs::rename(&path, &moved).unwrap();
        log.look(t.plus_ms(LOOK_EVERY_MS + 1), 1);
        log.write(t, &lines("five\n"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "five\n");
        assert_eq!(counts(&figures), (5, 0));
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_said() {
        let (mut log, figures) = log("/dev/full".into());
        let t = Now { mono_ns: 1, wall_ms: 1_000 };
        log.look(t, 0);
        log.write(t, &Lines { lost: 3, ..lines("one\ntwo\n") });
        assert_eq!(counts(&figures), (0, 5));
        let status = figures.status();
        assert!(status["last_error"]["why"].as_str().unwrap().contains("space"), "{status}");

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("later/a.log");
        let (mut log, figures) = self::log(path.clone());
        log.look(t, 0);
        log.write(t, &lines("one\n"));
        fs::create_dir(dir.path().join("later")).unwrap();
        log.look(t.plus_ms(LOOK_EVERY_MS), 0);
        log.write(t, &lines("two\n"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(counts(&figures), (1, 1));
    }

    #[test]
    fn a_torn_line_is_not_continued() {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, figures) = log(dir.path().join("a.log"));
        let t = Now { mono_ns: 1, wall_ms: 1 };
        log.look(t, 0);
        log.write(t, &lines("one\n"));
        log.file.as_mut().unwrap().write_all(b"tw").unwrap();
        log.is_torn = true;
        log.write(t, &lines("three\n"));
        log.write(t, &lines("four\n"));
        assert_eq!(fs::read_to_string(&figures.path).unwrap(), "one\ntw\nthree\nfour\n");
        assert_eq!(counts(&figures), (3, 0));
        // Nor one of a process that was killed.
        log.file.as_mut().unwrap().write_all(b"fi").unwrap();
        let (mut log, _) = self::log(figures.path.clone());
        log.look(t, 0);
        log.write(t, &lines("six\n"));
        let text = fs::read_to_string(&figures.path).unwrap();
        assert_eq!(text, "one\ntw\nthree\nfour\nfi\nsix\n");
    }

    #[test]
    fn nobody_waits_for_whoever_should_read_a_pipe() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let (mut log, figures) = log(path.clone());
        let t = Now { mono_ns: 1, wall_ms: 1 };
        log.look(t, 0);
        log.write(t, &lines("one\n"));
        assert_eq!(counts(&figures), (0, 1), "nobody reads");
        let mut reader = without_waiting(OpenOptions::new().read(true)).open(&path).unwrap();
        log.look(t.plus_ms(LOOK_EVERY_MS), 0);
        log.write(t, &lines("two\n"));
        // More than a pipe holds.
        log.write(t, &lines(&"x\n".repeat(1 << 20)));
        let (written, lost) = counts(&figures);
        assert!(written > 1 && lost > 1, "{written} {lost}");
        assert_eq!(written + lost, (1 << 20) + 2);
        let mut found = vec![0; 4];
        std::io::Read::read_exact(&mut reader, &mut found).unwrap();
        assert_eq!(found, b"two\n");
    }
}
