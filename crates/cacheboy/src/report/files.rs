//! Logs from disk, pipes and gzip, in parts that are read at once.
//!
//! A plain file is cut every [`PART_BYTES`]; a part has the lines that begin in it. What is compressed,
//! or no file, is one part. What cannot be read to its end is said, and the rest goes on. A log is opened
//! when the first of its parts is due, once: however many logs there are and however long they are, few
//! are open at a time.

use std::fs::{File, Metadata};
use std::io::{self, BufReader, Cursor, IsTerminal, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Result, anyhow};
use flate2::bufread::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressStyle};
use usage::read::{Fault, Line, Lines, line};

/// How much of a plain file is one part.
const PART_BYTES: u64 = 64 << 20;
/// How much is read at a time.
const PIECE_BYTES: usize = 1 << 20;
/// How a gzip file begins (RFC 1952 section 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Stands for standard input.
const STDIN: &str = "-";

/// A part of a log.
struct Part<'a> {
    path: &'a Path,
    source: Source,
}

enum Source {
    /// The lines that begin there.
    File(Arc<File>, Range<u64>),
    /// All of it, to its end.
    Stream(Box<dyn Read + Send>),
    /// It cannot be opened.
    Nowhere(io::Error),
}

/// What became of a part.
#[derive(Debug)]
struct Done {
    path: PathBuf,
    lines: u64,
    malformed: u64,
    /// The first of them, by its number in this part.
    first: Option<(u64, Fault)>,
    error: Option<io::Error>,
}

/// Who is told of every line that was understood.
pub(crate) trait Count: Send {
    /// Counts a line.
    fn count(&mut self, line: &Line<'_>);
}

/// How the reading of all logs went.
#[derive(Debug)]
pub(crate) struct Reading {
    /// In the order of the files and of what is in them.
    parts: Vec<Done>,
}

impl Reading {
    /// Lines that were not understood.
    pub(crate) fn malformed(&self) -> u64 {
        self.parts.iter().map(|part| part.malformed).fold(0, u64::saturating_add)
    }

    /// How many they are, and where the first is.
    pub(crate) fn first_malformed(&self) -> Option<String> {
        let (part, (number, fault)) =
            self.parts.iter().find_map(|part| part.first.map(|first| (part, first)))?;
        let before = self.parts.iter().take_while(|other| !std::ptr::eq(*other, part));
        let before = before.filter(|other| other.path == part.path).map(|other| other.lines);
        let number = before.fold(number, u64::saturating_add);
        let lines = self.parts.iter().map(|part| part.lines).fold(0, u64::saturating_add);
        let (path, malformed) = (part.path.display(), self.malformed());
        Some(format!(
            "{malformed} of {lines} lines were not understood and are left out; the first is \
             {path}:{number}: {fault}"
        ))
    }

    /// What could not be read to its end, why, and whether anything of it counts.
    pub(crate) fn failures(&self) -> impl Iterator<Item = String> {
        let failed = |part: &Done| {
            let (path, error) = (part.path.display(), part.error.as_ref()?);
            let mut of_file = self.parts.iter().filter(|other| other.path == part.path);
            Some(match of_file.all(|part| part.lines == 0) {
                true => format!("cannot read {path}: {error}: nothing of it is in the report"),
                false => format!(
                    "cannot read {path} to its end: {error}: what was read before is in the report"
                ),
            })
        };
        self.parts.iter().filter_map(failed)
    }
}

/// Reads all logs, with a bar on a terminal. Each thread counts with a counter of its own that `make`
/// gives.
pub(crate) fn read<C: Count>(
    paths: &[PathBuf],
    make: impl Fn() -> C + Sync,
) -> Result<(Vec<C>, Reading)> {
    let bar = bar();
    paths.iter().for_each(|path| bar.inc_length(length(path)));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let queue = Mutex::new(paths.iter().flat_map(|path| parts(path)).enumerate());
    let next = || queue.lock().ok()?.next();
    let work = || {
        let mut counter = make();
        let mut done = Vec::new();
        let mut buffer = vec![0; PIECE_BYTES];
        while let Some((number, part)) = next() {
            done.push((number, part.read(&mut counter, &mut buffer, &bar)));
        }
        (counter, done)
    };
    let mut counters = Vec::new();
    let mut all = Vec::new();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            let (counter, done) =
                thread.join().map_err(|_| anyhow!("a thread that read broke off"))?;
            counters.push(counter);
            all.extend(done);
        }
        Ok::<_, anyhow::Error>(())
    })?;
    bar.finish_and_clear();
    all.sort_by_key(|(number, _)| *number);
    Ok((counters, Reading { parts: all.into_iter().map(|(_, done)| done).collect() }))
}

fn bar() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    let template = "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} to go";
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// How much there is to read, as far as that is known.
fn length(path: &Path) -> u64 {
    std::fs::metadata(path).ok().filter(Metadata::is_file).map_or(0, |about| about.len())
}

/// The parts of a log.
fn parts(path: &Path) -> Vec<Part<'_>> {
    let sources = sources(path).unwrap_or_else(|error| vec![Source::Nowhere(error)]);
    sources.into_iter().map(|source| Part { path, source }).collect()
}

fn sources(path: &Path) -> io::Result<Vec<Source>> {
    if path.as_os_str() == STDIN {
        return Ok(vec![Source::Stream(Box::new(io::stdin()))]);
    }
    let file = File::open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Ok(vec![Source::Stream(Box::new(file))]);
    }
    let mut magic = [0; GZIP.len()];
    if file.read_at(&mut magic, 0)? == GZIP.len() && magic == GZIP {
        return Ok(vec![Source::Stream(Box::new(file))]);
    }
    let starts = (0..about.len()).step_by(usize::try_from(PART_BYTES).unwrap_or(usize::MAX));
    let range = |start: u64| start..start.saturating_add(PART_BYTES).min(about.len());
    let file = Arc::new(file);
    Ok(starts.map(|start| Source::File(Arc::clone(&file), range(start))).collect())
}

impl Part<'_> {
    fn read(self, counter: &mut impl Count, buffer: &mut [u8], bar: &ProgressBar) -> Done {
        let path = self.path.to_owned();
        let mut done = Done { path, lines: 0, malformed: 0, first: None, error: None };
        let each = |text: Result<&[u8], Fault>| {
            done.lines = done.lines.saturating_add(1);
            if matches!(text, Ok([])) {
                return;
            }
            match text.and_then(line) {
                Ok(line) => counter.count(&line),
                Err(fault) => {
                    done.malformed = done.malformed.saturating_add(1);
                    done.first = done.first.or(Some((done.lines, fault)));
                }
            }
        };
        let read = match self.source {
            Source::File(file, range) => read_range(&file, range, buffer, bar, each),
            Source::Stream(stream) => read_stream(stream, buffer, bar, each),
            Source::Nowhere(error) => Err(error),
        };
        done.error = read.err();
        done
    }
}

/// Reads the lines that begin in `range`.
fn read_range(
    file: &File,
    range: Range<u64>,
    buffer: &mut [u8],
    bar: &ProgressBar,
    mut each: impl FnMut(Result<&[u8], Fault>),
) -> io::Result<()> {
    let mut at = range.start;
    if let Some(before) = range.start.checked_sub(1) {
        match after_line(file, before..range.end, buffer)? {
            Some(start) => at = start,
            None => return Ok(()),
        }
    }
    let mut lines = Lines::default();
    while at < range.end || !lines.is_at_end_of_line() {
        let length = file.read_at(buffer, at)?;
        if length == 0 {
            break;
        }
        let piece = buffer.get(..length).unwrap_or_default();
        let own = usize::try_from(range.end.saturating_sub(at)).unwrap_or(usize::MAX);
        let (own, beyond) = piece.split_at(own.min(length));
        lines.push(own, &mut each);
        bar.inc(own.len() as u64);
        if !lines.is_at_end_of_line() {
            // The last line ends in the next part.
            lines.push(first_line(beyond), &mut each);
        }
        at = at.saturating_add(length as u64);
    }
    lines.end(each);
    Ok(())
}

/// Where a line begins after the end of another in `range`.
fn after_line(file: &File, range: Range<u64>, buffer: &mut [u8]) -> io::Result<Option<u64>> {
    let mut at = range.start;
    while at < range.end {
        let length = file.read_at(buffer, at)?;
        let first = first_line(buffer.get(..length).unwrap_or_default());
        at = at.saturating_add(first.len() as u64);
        if first.ends_with(b"\n") {
            return Ok(Some(at));
        }
        if length == 0 {
            break;
        }
    }
    Ok(None)
}

/// Up to the end of the first line, and with it.
fn first_line(piece: &[u8]) -> &[u8] {
    piece.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default()
}

/// Reads all lines. When the stream breaks, the line in which it does is no line.
fn read_stream(
    stream: Box<dyn Read + Send>,
    buffer: &mut [u8],
    bar: &ProgressBar,
    mut each: impl FnMut(Result<&[u8], Fault>),
) -> io::Result<()> {
    let mut stream = bar.wrap_read(stream);
    let mut magic = Vec::new();
    (&mut stream).take(GZIP.len() as u64).read_to_end(&mut magic)?;
    let is_gzip = magic == GZIP;
    let whole = BufReader::with_capacity(PIECE_BYTES, Cursor::new(magic).chain(stream));
    let mut stream: Box<dyn Read> =
        if is_gzip { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) };
    let mut lines = Lines::default();
    loop {
        match stream.read(buffer) {
            Ok(0) => break,
            Ok(length) => lines.push(buffer.get(..length).unwrap_or_default(), &mut each),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    lines.end(each);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn every_line_is_in_one_part() {
        let text = b"a\n\nbc\r\nlonger than a piece\n\nlast";
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text).unwrap();
        let read = |range: Range<u64>, size: usize, found: &mut Vec<String>| {
            let each = |line: Result<&[u8], Fault>| {
                found.push(String::from_utf8(line.unwrap().to_vec()).unwrap());
            };
            read_range(&file, range, &mut vec![0; size], &ProgressBar::hidden(), each).unwrap();
        };
        let length = text.len() as u64;
        for cut in 0..=length {
            for size in [1, 3, 100] {
                let mut found = Vec::new();
                read(0..cut, size, &mut found);
                read(cut..length, size, &mut found);
                assert_eq!(
                    found,
                    ["a", "", "bc", "longer than a piece", "", "last"],
                    "{cut} {size}"
                );
            }
        }
    }

    #[derive(Default)]
    struct Requests(u64);

    impl Count for Requests {
        fn count(&mut self, line: &Line<'_>) {
            self.0 += u64::from(matches!(line, Line::Access(_)));
        }
    }

    /// More than a process may have open: 2,000 logs, and one of 2,000 parts.
    #[test]
    fn few_logs_are_open_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("long");
        File::create(&long).unwrap().set_len(2_000 * PART_BYTES).unwrap();
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = open();
        let parts = parts(&long);
        assert_eq!((parts.len(), open().saturating_sub(before) < 10), (2_000, true));
        drop(parts);

        let text = "1244332800.123 1 192.0.2.0 TCP_HIT/200 7 GET http://a/b - NONE/- c/d\n";
        let short = dir.path().join("short");
        std::fs::write(&short, text).unwrap();
        let paths = vec![short; 2_000];
        let (counted, reading) = read(&paths, Requests::default).unwrap();
        let requests: u64 = counted.iter().map(|counter| counter.0).sum();
        assert_eq!((reading.failures().next(), requests), (None, 2_000));
    }
}
