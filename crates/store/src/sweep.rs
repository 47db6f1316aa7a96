//! Taking away what a killed process left: files that the index does not know, folder by folder, a
//! few with each flush, so that a start waits for none of it. A store of few files is done with the
//! first flush; a larger one begins where the sweep of the last start would have gone on, so that
//! being killed again and again does not fill the disk.
//!
//! A file belongs to the past when its id is below the first of this process, and it is an orphan
//! when neither the index nor anybody who holds a removed representation knows it.

use std::collections::BTreeSet;

use crate::log::IDS_AHEAD;
use crate::names::{Part, Place, folder_path};
use crate::shared::{Shared, lock};

/// Folders looked at with each flush, and more while they hold few files.
const FOLDERS_EACH: u16 = 16;
/// Files from which on a flush has looked at enough.
const FILES_EACH: usize = 1 << 14;
const FOLDERS: u16 = 256;

/// How far the sweep has come.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// The folder that came first.
    first: u8,
    /// Folders looked at so far.
    done: u16,
    /// Ids below this one are of the past.
    first_id: u64,
}

impl Shared {
    /// Ids from this one on are given by this process.
    pub(crate) fn begin_sweep(&self, first_id: u64) {
        // Each start promises ids anew, and its first flush comes as far as this.
        let starts = first_id.div_euclid(IDS_AHEAD);
        let [first, ..] = starts.wrapping_mul(FOLDERS_EACH.into()).to_le_bytes();
        *lock(&self.sweep) = Sweep { first, done: 0, first_id };
    }

    /// Sweeps all folders at once: when the past cannot be told from its log.
    pub(crate) fn sweep_all(&self) {
        while lock(&self.sweep).done < FOLDERS {
            self.sweep_some();
        }
    }

    /// Sweeps the next folders. For a flush, or before anybody else uses the store. Blocks.
    pub(crate) fn sweep_some(&self) {
        self.sweep_folders(FILES_EACH);
    }

    /// The same until so many files were seen.
    pub(crate) fn sweep_folders(&self, files_max: usize) {
        let mut sweep = lock(&self.sweep);
        if sweep.done >= FOLDERS {
            return;
        }
        let (mut folders, mut files) = (0u16, 0usize);
        while sweep.done < FOLDERS && (folders < FOLDERS_EACH || files < files_max) {
            let [nth, _] = sweep.done.to_le_bytes();
            let found = self.sweep_folder(sweep.first.wrapping_add(nth), sweep.first_id);
            files = files.saturating_add(found);
            folders = folders.saturating_add(1);
            sweep.done = sweep.done.saturating_add(1);
        }
        if sweep.done >= FOLDERS {
            self.index_mut().swept();
        }
    }

    /// Gives how many files were in it.
    fn sweep_folder(&self, folder: u8, first_id: u64) -> usize {
        // A folder that cannot be read is left to the next start.
        let Ok(entries) = self.disk.list(&folder_path(folder)) else { return 0 };
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
        entries.len()
    }
}
