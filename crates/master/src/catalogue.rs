//! The digests of the tree's files: computed once, remembered, written down.
//!
//! A digest is needed before the first byte of a file is served, because the `ETag` is made from
//! it. Order of use: [`Catalogue::load`]; [`Catalogue::digest`] for each request and by the scan;
//! [`Catalogue::keep`] in the background; [`Catalogue::flush`] at the end.
//!
//! Hashing runs on the blocking pool, a few files at once, never twice at once for one path, and it
//! goes on when the client that caused it has gone.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mirror::{ContentDigest, ContentHasher, Index, Stamp, TreePath};
use rt::metrics::{Counter, Gauge, master as metric};
use rt::{Metrics, Phase, Shutdown};
use tokio::sync::Semaphore;

use crate::tree::stamp_of;

/// Files hashed at the same time: enough to use a disk's queue, few enough to leave cores for
/// serving.
const HASHES_MAX: usize = 4;
/// Bytes read at a time while hashing.
const HASH_CHUNK_BYTES: usize = 1024 * 1024;
/// Tries to find a file at rest before its client is sent away.
const SETTLE_TRIES: u32 = 5;
/// Shortest time between two writes of the index.
const WRITE_PAUSE: Duration = Duration::from_secs(1);
/// Pause after a failed write.
const RETRY_PAUSE: Duration = Duration::from_secs(30);
/// Writing the index takes at most one part in this many of the time.
const WRITE_SHARE: u32 = 20;
/// Largest index read back: about ten million files.
const INDEX_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;

/// Why a file has no digest now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DigestError {
    /// It kept changing while it was looked at.
    #[error("the file is being written")]
    Busy,
    /// It cannot be read.
    #[error("cannot read the file")]
    Read(#[from] io::Error),
    /// The process is stopping.
    #[error("the process is stopping")]
    Stopping,
}

/// See the module's page.
#[derive(Debug)]
pub(crate) struct Catalogue {
    /// Where the index is written.
    file: PathBuf,
    state: Mutex<State>,
    slots: Semaphore,
    shutdown: Shutdown,
    counts: Counts,
}

#[derive(Debug, Default)]
struct State {
    index: Index,
    /// Whether the index differs from what was last written.
    changed: bool,
    /// A lock for each path that is being hashed or waited for.
    at_work: HashMap<TreePath, Arc<tokio::sync::Mutex<()>>>,
}

#[derive(Debug)]
struct Counts {
    files: Gauge,
    hashed_files: Counter,
    hashed_bytes: Counter,
    write_errors: Counter,
}

impl Catalogue {
    /// Reads the index written earlier to `file`. One that cannot be read is left out with a
    /// warning: every file is then hashed again.
    pub(crate) fn load(file: PathBuf, metrics: &Metrics, shutdown: Shutdown) -> Self {
        let index = match rt::file::read_bounded(&file, INDEX_BYTES_MAX) {
            Ok(text) => read_index(&text).unwrap_or_else(|why| {
                tracing::warn!(file = %file.display(), %why, "content index left out, hashing all files again");
                Index::default()
            }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Index::default(),
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "cannot read the content index, hashing all files again");
                Index::default()
            }
        };
        let counts = Counts {
            files: metrics.gauge(&metric::INDEX_FILES, &[]),
            hashed_files: metrics.counter(&metric::HASHED_FILES, &[]),
            hashed_bytes: metrics.counter(&metric::HASHED_BYTES, &[]),
            write_errors: metrics.counter(&metric::INDEX_WRITE_ERRORS, &[]),
        };
        counts.files.set(as_gauge(index.len()));
        let state = Mutex::new(State { index, ..State::default() });
        Self { file, state, slots: Semaphore::new(HASHES_MAX), shutdown, counts }
    }

    /// Number of files known, and of files hashed since the start.
    pub(crate) fn figures(&self) -> (usize, u64) {
        (self.state().index.len(), self.counts.hashed_files.get())
    }

    /// Every path known.
    pub(crate) fn paths(&self) -> Vec<TreePath> {
        self.state().index.paths().cloned().collect()
    }

    /// The digest of the file at `path` if it is known under this stamp.
    pub(crate) fn known(&self, path: &TreePath, stamp: &Stamp) -> Option<ContentDigest> {
        self.state().index.get(path, stamp)
    }

    /// Forgets a file that is no longer in the tree.
    pub(crate) fn forget(&self, path: &TreePath) {
        let mut state = self.state();
        if state.index.remove(path) {
            state.changed = true;
            self.counts.files.set(as_gauge(state.index.len()));
        }
    }

    /// The digest of the open file at `path`, hashed now if need be, and the stamp under which it
    /// holds (a later one than `stamp` if the file was still being written).
    pub(crate) async fn digest(
        self: &Arc<Self>,
        path: &TreePath,
        file: &Arc<File>,
        stamp: Stamp,
    ) -> Result<(ContentDigest, Stamp), DigestError> {
        if let Some(digest) = self.known(path, &stamp) {
            return Ok((digest, stamp));
        }
        // A task of its own: the work is not lost when this client goes away.
        let work = Arc::clone(self).hash_in_turn(path.clone(), Arc::clone(file));
        tokio::spawn(work).await.unwrap_or(Err(DigestError::Stopping))
    }

    /// Hashes a file when nobody else is at the same path, unless that one's work will do.
    async fn hash_in_turn(
        self: Arc<Self>,
        path: TreePath,
        file: Arc<File>,
    ) -> Result<(ContentDigest, Stamp), DigestError> {
        let turn = Arc::clone(self.state().at_work.entry(path.clone()).or_default());
        let held = turn.lock().await;
        let result = self.hash_or_look_up(&path, file).await;
        drop(held);
        let mut state = self.state();
        // Two holders left, the map and us: nobody waits.
        if Arc::strong_count(&turn) == 2 {
            state.at_work.remove(&path);
        }
        result
    }

    async fn hash_or_look_up(
        self: &Arc<Self>,
        path: &TreePath,
        file: Arc<File>,
    ) -> Result<(ContentDigest, Stamp), DigestError> {
        let _slot = self.slots.acquire().await.map_err(|_| DigestError::Stopping)?;
        let (catalogue, at) = (Arc::clone(self), path.clone());
        let work = move || {
            let stamp = stamp_of(&file)?;
            if let Some(digest) = catalogue.known(&at, &stamp) {
                return Ok((digest, stamp));
            }
            let (digest, stamp) = catalogue.hash_at_rest(&file)?;
            let mut state = catalogue.state();
            state.index.insert(at, stamp, digest);
            state.changed = true;
            catalogue.counts.files.set(as_gauge(state.index.len()));
            Ok((digest, stamp))
        };
        tokio::task::spawn_blocking(work).await.unwrap_or(Err(DigestError::Stopping))
    }

    /// Hashes a file that nobody writes to meanwhile.
    fn hash_at_rest(&self, file: &File) -> Result<(ContentDigest, Stamp), DigestError> {
        for _ in 0..SETTLE_TRIES {
            let before = stamp_of(file)?;
            let wait_ms = before.settles_in_ms(rt::clock::now().wall_ms);
            if wait_ms > 0 {
                std::thread::sleep(Duration::from_millis(wait_ms));
                if stamp_of(file)? != before {
                    continue;
                }
            }
            let (digest, bytes) = self.hash(file)?;
            if bytes == before.size && stamp_of(file)? == before {
                return Ok((digest, before));
            }
        }
        Err(DigestError::Busy)
    }

    fn hash(&self, file: &File) -> Result<(ContentDigest, u64), DigestError> {
        self.counts.hashed_files.inc();
        let mut hasher = ContentHasher::default();
        let mut chunk = vec![0; HASH_CHUNK_BYTES];
        let mut offset = 0u64;
        loop {
            if self.shutdown.has_reached(Phase::Draining) {
                return Err(DigestError::Stopping);
            }
            let read = match file.read_at(&mut chunk, offset) {
                Ok(0) => return Ok(hasher.finish()),
                Ok(read) => read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e.into()),
            };
            hasher.update(chunk.get(..read).unwrap_or_default());
            offset = offset.saturating_add(read as u64);
            self.counts.hashed_bytes.inc_by(read as u64);
        }
    }

    /// Writes the index down after changes, until it is a successor's or the process ends.
    pub(crate) async fn keep(self: Arc<Self>) {
        let mut pause = WRITE_PAUSE;
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.shutdown.reached(Phase::Yielded) => return,
            }
            let began_ns = rt::clock::now().mono_ns;
            let catalogue = Arc::clone(&self);
            let written = tokio::task::spawn_blocking(move || catalogue.flush()).await;
            let took_ns = rt::clock::now().mono_ns.saturating_sub(began_ns);
            pause = match written {
                Ok(true) => Duration::from_nanos(took_ns).saturating_mul(WRITE_SHARE),
                _ => RETRY_PAUSE,
            };
            pause = pause.max(WRITE_PAUSE);
        }
    }

    /// Writes the index down if it changed; whether it is on disk now. Blocking.
    pub(crate) fn flush(&self) -> bool {
        let index = {
            let mut state = self.state();
            if !state.changed {
                return true;
            }
            state.changed = false;
            state.index.clone()
        };
        let written = rt::file::write_atomic(&self.file, index.to_text().as_bytes());
        if let Err(error) = &written {
            self.state().changed = true;
            self.counts.write_errors.inc();
            tracing::warn!(
                file = %self.file.display(), %error,
                "cannot write the content index: files will be hashed again after a restart"
            );
        }
        written.is_ok()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read_index(text: &[u8]) -> Result<Index, String> {
    let text = std::str::from_utf8(text).map_err(|e| e.to_string())?;
    Index::from_text(text).map_err(|e| e.to_string())
}

fn as_gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
