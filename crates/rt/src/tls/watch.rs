//! When the files of certificates have changed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::PoisonError;
use std::time::Duration;

use super::{CertificateFiles, Shared};
use crate::{Phase, Shutdown};

/// How often they are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What tells one state of the files from another: inode, length and time of change of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamps(Vec<Option<(u64, u64, i64, i64)>>);

impl Stamps {
    pub(super) fn of(files: &[CertificateFiles]) -> Self {
        let paths = files.iter().flat_map(|files| [&files.chain, &files.key]);
        let stamp = |path| {
            let found = fs::metadata(path).ok()?;
            Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
        };
        Self(paths.map(stamp).collect())
    }
}

/// Remembers the last look.
#[derive(Debug, Default)]
pub(super) struct Watch {
    last: Stamps,
}

impl Watch {
    /// Until the next look; `false` when there is none any more: what is on disk is then a successor's.
    pub(super) async fn pause(&self, shutdown: &Shutdown) -> bool {
        tokio::time::timeout(LOOK_EVERY, shutdown.reached(Phase::Yielded)).await.is_err()
    }

    /// Re-reads files that have changed and now stand still: chain and key are two files, and come
    /// one after the other.
    pub(super) fn look(&mut self, shared: &Shared) {
        let stamps = Stamps::of(&shared.files);
        let stand_still = stamps == self.last;
        self.last = stamps.clone();
        let is_tried = stamps == *shared.tried.lock().unwrap_or_else(PoisonError::into_inner);
        if is_tried || !stand_still {
            return;
        }
        match shared.reload(stamps) {
            Ok(()) => tracing::info!("certificates were read again: their files have changed"),
            Err(error) => tracing::warn!(%error, "certificates stay as they were"),
        }
    }
}
