//! The last good node map on disk, and its signature beside it.
//!
//! The two files cannot be replaced at one instant. So the one with signatures goes first and holds those
//! of the new map and of the one before: whenever the machine stops, the map that is there has its
//! signature there.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nodemap::NodeMap;
use nodemap::signature::{self, Signature, TrustedKeys, VerifyError};
use tokio::task::spawn_blocking;

use super::{NODE_MAP_BYTES_MAX, is_ahead};
use crate::{Context, file};

/// The file that holds the last map taken over.
pub fn last_good_path(state_dir: &Path) -> PathBuf {
    state_dir.join("node-map.last-good.json")
}

/// Lines of base64, the newest first.
fn signatures_path(map: &Path) -> PathBuf {
    map.with_extension("signatures")
}

/// Reads the last good map of `state_dir`, as a start of the host does.
pub fn verified_last_good(state_dir: &Path, keys: &TrustedKeys) -> Option<NodeMap> {
    load(&last_good_path(state_dir), keys)
}

/// Where the last good map is kept.
#[derive(Debug)]
pub(super) struct LastGood {
    path: PathBuf,
    /// False once the files are a successor's.
    may_write: Arc<Mutex<bool>>,
}

impl LastGood {
    /// Keeps it at `path` until the context yields.
    pub(super) fn new(path: PathBuf, context: &Context) -> Self {
        let may_write = Arc::new(Mutex::new(true));
        let pen = Arc::clone(&may_write);
        context.on_yield("last good node map", async move {
            // Waits for a write under way, on a thread that may.
            let taken = spawn_blocking(move || *lock(&pen) = false);
            let _ = taken.await;
        });
        Self { path, may_write }
    }

    pub(super) fn load(&self, keys: &TrustedKeys) -> Option<Arc<NodeMap>> {
        let map = load(&self.path, keys)?;
        tracing::info!(generation = map.generation, "node map from the last run");
        Some(Arc::new(map))
    }

    pub(super) fn keep(&self, document: &[u8], signature: Option<&Signature>) {
        let may_write = lock(&self.may_write);
        if !*may_write {
            return;
        }
        let lines = signature
            .into_iter()
            .chain(&signatures(&self.path))
            .take(2)
            .fold(String::new(), |lines, signature| format!("{lines}{signature}\n"));
        let written = file::write_atomic(&signatures_path(&self.path), lines.as_bytes())
            .and_then(|()| file::write_atomic(&self.path, document));
        if let Err(error) = written {
            tracing::warn!(path = %self.path.display(), %error,
                "cannot keep the node map for the next start");
        }
    }
}

fn lock(flag: &Mutex<bool>) -> MutexGuard<'_, bool> {
    flag.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The signatures beside the map at `path`; those that are none are left out.
fn signatures(path: &Path) -> Vec<Signature> {
    let bytes = file::read_bounded(&signatures_path(path), signature::FILE_BYTES_MAX);
    let text = bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

fn load(path: &Path, keys: &TrustedKeys) -> Option<NodeMap> {
    let bytes = file::read_bounded(path, NODE_MAP_BYTES_MAX as u64).ok()?;
    if let Err(error) = verify(path, &bytes, keys) {
        tracing::warn!(path = %path.display(), %error, "the last good node map is not used");
        return None;
    }
    match NodeMap::parse(&bytes) {
        Ok(map) if is_ahead(map.generation) => {
            tracing::warn!(
                generation = map.generation,
                "the last good node map is more than a day \
                ahead of this host's clock and is not used: check the clock"
            );
            None
        }
        Ok(map) => Some(map),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the last good node map is unreadable");
            None
        }
    }
}

fn verify(path: &Path, document: &[u8], keys: &TrustedKeys) -> Result<(), VerifyError> {
    let signatures = signatures(path);
    let mut verdict = keys.verify(document, signatures.first());
    for signature in signatures.iter().skip(1) {
        verdict = verdict.or_else(|_| keys.verify(document, Some(signature)));
    }
    verdict
}
