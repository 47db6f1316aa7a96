//! Taking away what a killed process left: files that the index does not know, folder by folder, a
//! few with each flush, so that a start waits for none of it.
//!
//! A file belongs to the past when its id is below the first of this process, and it is an orphan
//! when neither the index nor anybody who holds a removed representation knows it.

use std::collections::BTreeSet;

use crate::names::{Part, Place, folder_path};
use crate::shared::{Shared, lock};

/// Folders looked at with each flush.
const FOLDERS_EACH: u16 = 16;
const FOLDERS: u16 = 256;

/// How far the sweep has come.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// The next folder; all are done when it is none.
    next: u16,
    /// Ids below this one are of the past.
    first_id: u64,
}

impl Shared {
    /// Ids from this one on are given by this process.
    pub(crate) fn begin_sweep(&self, first_id: u64) {
        *lock(&self.sweep) = Sweep { next: 0, first_id };
    }

    /// Sweeps all folders at once: when the past cannot be told from its log.
    pub(crate) fn sweep_all(&self) {
        while lock(&self.sweep).next < FOLDERS {
            self.sweep_some();
        }
    }

    /// Sweeps the next folders. For a flush, or before anybody else uses the store. Blocks.
    pub(crate) fn sweep_some(&self) {
        let mut sweep = lock(&self.sweep);
        if sweep.next >= FOLDERS {
            return;
        }
        for _ in 0..FOLDERS_EACH {
            if let Ok(folder) = u8::try_from(sweep.next) {
                self.sweep_folder(folder, sweep.first_id);
            }
            sweep.next = sweep.next.saturating_add(1);
        }
        if sweep.next >= FOLDERS {
            self.index_mut().swept();
        }
    }

    fn sweep_folder(&self, folder: u8, first_id: u64) {
        // A folder that cannot be read is left to the next start.
        let Ok(entries) = self.disk.list(&folder_path(folder)) else { return };
        let places: BTreeSet<(Place, Part)> =
            entries.iter().filter_map(|entry| Place::parse(folder, &entry.name)).collect();
        for (place, part) in places.into_iter().filter(|(place, _)| place.id < first_id) {
            // A temporary file of what is in memory may be one of a flush that was refused.
            let is_rubbish = self.index().is_orphan(place)
                || (part == Part::MetaTemp && self.live.of(place).is_none());
            if is_rubbish && let Err(error) = self.remove_file(place, part) {
                self.refused("remove a file", error);
            }
        }
    }
}
