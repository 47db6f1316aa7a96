//! The index log: every change of the index, in order, in one file that is only appended to.
//!
//! Changes wait in memory until somebody writes them: each flush, and whoever must not be undone by a
//! kill. When more than half of the records say nothing any more, the log is written anew: what is
//! in the index now, beside the old file, synced, renamed. Changes go on waiting meanwhile and follow
//! in the new file.
//!
//! Room for a few records is always reserved ahead, so that what frees room can be written down when
//! there is none.

use std::fs::File;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::entry::{self, Change, ENTRY_BYTES};
use crate::index::Spot;
use crate::meta::UNIT_BYTES;
use crate::names::{LOG, LOG_TEMP};
use crate::segments::Purse;
use crate::shared::{Shared, WriteError, lock, units};

/// Ids that are promised not to be given again at a time.
pub(crate) const IDS_AHEAD: u64 = 1 << 20;
/// Entries looked at under one lock of the index.
const WALK: u32 = 1 << 12;
/// Changes that wait for a disk at most: beyond that the log is written anew when the disk allows.
const WAITING_MAX: usize = 1 << 20;
/// Dead records that are no reason to write the log anew, whatever is live.
const DEAD_MIN: u64 = 40;
const DEAD_MAX: u64 = 1 << 16;

pub(crate) struct Log {
    waiting: Mutex<Vec<Change>>,
    file: Mutex<LogFile>,
    /// Held by the one thread that writes the log anew.
    rewriting: Mutex<()>,
    /// Ids below this one are not given after a restart.
    ids_end: AtomicU64,
}

/// The file and where the next record goes.
#[derive(Debug, Default)]
pub(crate) struct LogFile {
    pub(crate) file: Option<File>,
    /// Bytes of good records.
    pub(crate) len: u64,
    /// Bytes counted for it.
    pub(crate) reserved: u64,
    /// The checksum that the next record goes on from.
    pub(crate) crc: u32,
    /// Bytes counted for a temporary one that could not be removed.
    pub(crate) temp_reserved: u64,
    /// It does not say what is: to be written anew.
    pub(crate) is_bad: bool,
}

impl LogFile {
    fn records(&self) -> u64 {
        self.len.div_euclid(ENTRY_LEN)
    }
}

const ENTRY_LEN: u64 = ENTRY_BYTES as u64;

impl Log {
    pub(crate) fn new(file: LogFile, ids_end: u64) -> Self {
        Self {
            waiting: Mutex::default(),
            file: Mutex::new(file),
            rewriting: Mutex::new(()),
            ids_end: AtomicU64::new(ids_end),
        }
    }

    pub(crate) fn push(&self, change: Change) {
        lock(&self.waiting).push(change);
    }

    /// An id was given: promises more of them in time.
    pub(crate) fn note_id(&self, id: u64) {
        let end = self.ids_end.load(Relaxed);
        if id.saturating_add(IDS_AHEAD.div_euclid(2)) >= end {
            let next = id.saturating_add(IDS_AHEAD);
            if self.ids_end.fetch_max(next, Relaxed) < next {
                self.push(Change::Ids(next));
            }
        }
    }

    /// What is written may be lost: the next flush writes everything anew.
    pub(crate) fn doubt(&self) {
        lock(&self.file).is_bad = true;
    }
}

/// Dead records that a store of this size has at least before its log is written anew.
fn dead_allowed(capacity: u64) -> u64 {
    // A sixty-fourth of the store at most.
    capacity.div_euclid(64 * ENTRY_LEN).clamp(DEAD_MIN, DEAD_MAX)
}

/// Bytes of a store that its log may take besides what live objects need: full of dead records,
/// what is reserved ahead, and the next one beside it.
pub(crate) fn log_bytes_max(capacity: u64) -> u64 {
    let dead = dead_allowed(capacity).saturating_mul(2).saturating_add(16);
    units(dead.saturating_mul(ENTRY_LEN)).saturating_add(4 * UNIT_BYTES)
}

impl Shared {
    /// Makes sure that what is about to be added to the index can be written down. Blocks.
    pub(crate) fn make_log_room(&self) -> Result<(), WriteError> {
        let live = u64::try_from(self.index().len()).unwrap_or(u64::MAX);
        let allowed = dead_allowed(self.capacity);
        if lock(&self.log.file).records() > live.saturating_add(allowed).saturating_mul(2) {
            // Flushes are late: they would have done it.
            let _ = self.rewrite_log();
        }
        let waiting = u64::try_from(lock(&self.log.waiting).len()).unwrap_or(u64::MAX);
        let more = {
            let log = lock(&self.log.file);
            let bytes = waiting.saturating_add(2).saturating_mul(ENTRY_LEN);
            let wanted = units(log.len.saturating_add(bytes)).saturating_add(UNIT_BYTES);
            wanted.saturating_sub(log.reserved)
        };
        if more > 0 {
            self.reserve(more)?;
            let mut log = lock(&self.log.file);
            log.reserved = log.reserved.saturating_add(more);
        }
        Ok(())
    }

    /// Writes the changes that wait, as far as there is room for them. What the disk refuses waits
    /// on. Blocks.
    /// `Ok(true)`: nothing of it waits any more.
    pub(crate) fn write_log(&self) -> Result<bool, WriteError> {
        self.write_log_from(Purse::Common)
    }

    /// The same with what is kept for making room.
    pub(crate) fn write_whole_log(&self) -> Result<bool, WriteError> {
        self.write_log_from(Purse::Spare)
    }

    fn write_log_from(&self, purse: Purse) -> Result<bool, WriteError> {
        let mut log = lock(&self.log.file);
        let mut changes = std::mem::take(&mut *lock(&self.log.waiting));
        if changes.is_empty() {
            return Ok(!log.is_bad);
        }
        if log.is_bad || changes.len() > WAITING_MAX {
            // The next log has them all.
            log.is_bad = true;
            return Ok(false);
        }
        let count = u64::try_from(changes.len()).unwrap_or(u64::MAX);
        let wanted = units(log.len.saturating_add(count.saturating_mul(ENTRY_LEN)));
        let more = wanted.saturating_sub(log.reserved);
        let has_room = more > 0
            && match purse {
                Purse::Spare => self.reserve_spare(more),
                Purse::Common | Purse::Flush => self.try_reserve(more),
            };
        if has_room {
            log.reserved = wanted;
        }
        let fit = log.reserved.saturating_sub(log.len).div_euclid(ENTRY_LEN);
        let rest = changes.split_off(changes.len().min(usize::try_from(fit).unwrap_or(usize::MAX)));
        let mut bytes = Vec::with_capacity(changes.len().saturating_mul(ENTRY_BYTES));
        let crc = encode(&mut bytes, log.crc, &changes);
        let written = match &log.file {
            Some(file) => self.disk.write_all_at(file, &bytes, log.len),
            None => Err(std::io::ErrorKind::NotFound.into()),
        };
        let is_whole = rest.is_empty();
        let unwritten = match &written {
            Ok(()) => {
                log.crc = crc;
                log.len = log.len.saturating_add(u64::try_from(bytes.len()).unwrap_or(0));
                self.note_changed();
                rest
            }
            Err(_) => {
                changes.extend(rest);
                changes
            }
        };
        lock(&self.log.waiting).splice(0..0, unwritten);
        written.map_err(|error| self.refused("write the index", error))?;
        Ok(is_whole)
    }

    /// Writes the log anew if most of it is dead, or if it is wrong. Blocks.
    pub(crate) fn tend_log(&self) {
        let live = u64::try_from(self.index().len()).unwrap_or(u64::MAX);
        let limit = live.saturating_mul(2).saturating_add(dead_allowed(self.capacity));
        let is_due = {
            let log = lock(&self.log.file);
            log.is_bad || log.records() > limit
        };
        if is_due {
            // Counted where it was refused; tried again at the next flush.
            let _ = self.rewrite_log();
        }
    }

    fn rewrite_log(&self) -> Result<(), WriteError> {
        let _rewriting = lock(&self.log.rewriting);
        let live = u64::try_from(self.index().len()).unwrap_or(u64::MAX);
        // What is added meanwhile needs room too.
        let most = live.saturating_add(live.div_euclid(8)).saturating_add(16);
        let wanted = units(most.saturating_mul(ENTRY_LEN)).saturating_add(UNIT_BYTES);
        let left = lock(&self.log.file).temp_reserved;
        self.reserve(wanted.saturating_sub(left))?;
        let reserved = wanted.max(left);
        let mut log = lock(&self.log.file);
        log.temp_reserved = reserved;
        match self.write_new_log(most) {
            Ok(mut new) => {
                new.reserved = units(new.len).saturating_add(UNIT_BYTES).min(reserved);
                self.release(reserved.saturating_sub(new.reserved));
                let old = std::mem::replace(&mut *log, new);
                drop(old.file);
                self.release(old.reserved);
                self.note_changed();
                Ok(())
            }
            Err(error) => {
                let removed = self.disk.remove(Path::new(LOG_TEMP));
                let is_gone = match removed {
                    Ok(()) => true,
                    Err(error) => error.kind() == std::io::ErrorKind::NotFound,
                };
                if is_gone {
                    self.release(std::mem::take(&mut log.temp_reserved));
                }
                Err(self.refused("write the index anew", error))
            }
        }
    }

    /// Writes what is in the index now, at most `most` records; whoever locks the log's file does.
    fn write_new_log(&self, most: u64) -> std::io::Result<LogFile> {
        let temp = Path::new(LOG_TEMP);
        let file = self.with_file_to_spare(|| self.disk.create(temp))?;
        let (mut bytes, mut crc) = begin(&[Change::Ids(self.log.ids_end.load(Relaxed))]);
        let mut len = 0u64;
        let mut slot = 0u32;
        loop {
            let end = {
                let index = self.index();
                let end = index.slots().min(slot.saturating_add(WALK));
                let found = (slot..end).filter_map(|slot| index.at(slot));
                let there = found.filter(|(_, spot)| *spot != Spot::Filling);
                let durable = |(place, spot)| Change::At(place, self.moves.durable(place, spot));
                let changes: Vec<Change> = there.map(durable).collect();
                drop(index);
                crc = encode(&mut bytes, crc, &changes);
                end
            };
            self.disk.write_all_at(&file, &bytes, len)?;
            len = len.saturating_add(u64::try_from(bytes.len()).unwrap_or(0));
            if len > most.saturating_mul(ENTRY_LEN) {
                return Err(std::io::Error::other("too much was added to the index meanwhile"));
            }
            bytes.clear();
            if end == slot {
                break;
            }
            slot = end;
        }
        self.disk.sync(&file)?;
        self.disk.rename(temp, Path::new(LOG))?;
        Ok(LogFile { file: Some(file), len, crc, ..LogFile::default() })
    }
}

/// The bytes of a log that begins with these changes, and the checksum to go on from.
pub(crate) fn begin(changes: &[Change]) -> (Vec<u8>, u32) {
    let (mut first, before) = entry::header();
    let crc = entry::seal(&mut first, before);
    let mut bytes = first.to_vec();
    let crc = encode(&mut bytes, crc, changes);
    (bytes, crc)
}

fn encode(out: &mut Vec<u8>, mut crc: u32, changes: &[Change]) -> u32 {
    for change in changes {
        let mut record = change.encode();
        crc = entry::seal(&mut record, crc);
        out.extend_from_slice(&record);
    }
    crc
}
