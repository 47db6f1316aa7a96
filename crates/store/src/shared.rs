//! What a store and all its representations share: the disk, the budget, the index, the remains.
//!
//! Budget: `used` counts the bytes of all files, rounded up to allocation units. Room is reserved
//! before it is used. A removed representation's bytes stay counted until its last reference is
//! gone and its files are unlinked; until then its [`Remains`] wait. Unlinking is done by whoever
//! needs room or flushes, never by the thread that happens to drop the last reference. The last
//! part of the budget is kept for those who make room (`evict`): what they move or write down first.
//!
//! A flush refers to the representations it writes down, but that is no use of theirs: it does so one
//! by one, under `referring`, so that who needs room can wait for it to let go.
//!
//! Lock order: `flushing`, `referring`, `room`, the log's file, the segment being appended to, the
//! index, what is live, a representation's own, then the short leaf locks.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};

use crate::disk::{Disk, Lock};
use crate::entry::Change;
use crate::evict::Step;
use crate::gate::Gate;
use crate::hand_over::Tenure;
use crate::index::{Index, Spot};
use crate::live::Live;
use crate::log::Log;
use crate::meta::UNIT_BYTES;
use crate::moves::Moves;
use crate::names::{Part, Place};
use crate::representation::Representation;
use crate::scrub::Scrubbing;
use crate::segments::{Segment, Segments};
use crate::store::Params;
use crate::sweep::Sweep;

/// Parts of the capacity that a segment is, at most [`SEGMENT_BYTES_MAX`].
const SEGMENTS_WANTED: u64 = 64;
const SEGMENT_BYTES_MAX: u64 = 256 << 20;

/// What is refused when a folder is gone.
pub(crate) const CREATE: &str = "create a file";

/// Why something was not stored. The content can still be passed on to the client.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Everything that could make room is in use.
    #[error("the store is full and all it holds is in use")]
    NoRoom,
    /// The object is larger than the whole store.
    #[error("{length} bytes do not fit into a store of {capacity}")]
    TooLarge {
        /// Bytes of the object.
        length: u64,
        /// Bytes of the store.
        capacity: u64,
    },
    /// The head is larger than the format allows.
    #[error("a head of {bytes} bytes is too large to be stored")]
    HeadTooLarge {
        /// Bytes of the head.
        bytes: usize,
    },
    /// Not the number of bytes that this block has, or no such block.
    #[error("block {block} has {expected} bytes, not {given}")]
    WrongLength {
        /// The block.
        block: u32,
        /// What it has; 0 when there is no such block.
        expected: u32,
        /// What was given.
        given: usize,
    },
    /// The block is held with other bytes: these are not of the same representation.
    #[error(
        "block {block} is held with other bytes: upstream sent two versions under one validator"
    )]
    Differs {
        /// The block.
        block: u32,
    },
    /// The store was handed over to another process.
    #[error("the store was handed over to another process")]
    HandedOver,
    /// The disk refused.
    #[error("cannot {action} on the disk of the store")]
    Disk {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Files of a removed representation that nobody references any more.
#[derive(Debug)]
pub(crate) struct Remains {
    pub(crate) place: Place,
    /// Reserved bytes that come free with the metadata file; 0: it is gone already.
    pub(crate) meta_bytes: u64,
    /// The same for a temporary metadata file.
    pub(crate) temp_bytes: u64,
    /// Reserved bytes that come free with the body file.
    pub(crate) body_bytes: u64,
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) evictions: AtomicU64,
    pub(crate) trimmed_bytes: AtomicU64,
    pub(crate) corrupt_blocks: AtomicU64,
    pub(crate) write_errors: AtomicU64,
    pub(crate) device_errors: AtomicU64,
    pub(crate) folder_errors: AtomicU64,
}

pub(crate) struct Shared {
    /// The disk, behind the gate.
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) gate: Arc<Gate>,
    /// Whose the disk is.
    pub(crate) tenure: Tenure,
    pub(crate) capacity: u64,
    /// Bytes of a segment at most, unless one record is larger.
    pub(crate) segment_bytes: u64,
    pub(crate) counts: Counts,
    index: RwLock<Index>,
    pub(crate) live: Live,
    pub(crate) log: Log,
    pub(crate) segments: Segments,
    pub(crate) moves: Moves,
    used: AtomicU64,
    /// Held by the one thread that flushes.
    pub(crate) flushing: Mutex<()>,
    /// Held by a flush while it refers to a representation.
    pub(crate) referring: Mutex<()>,
    /// Held by the one thread that is making room.
    room: Mutex<()>,
    remains: Mutex<Vec<Remains>>,
    /// Evicted segments that somebody may still read.
    dying: Mutex<Vec<Arc<Segment>>>,
    /// Held, by key, by who brings a representation into memory.
    pub(crate) loading: [Mutex<()>; 64],
    dirty: Mutex<Vec<Place>>,
    /// Packed since the last sync began.
    unsynced: Mutex<Vec<Place>>,
    /// Packed ones that came into memory and were not asked for twice so far.
    newcomers: Mutex<Vec<Place>>,
    /// Whether anything has changed since the last sync.
    changed: AtomicBool,
    /// A sync outside a flush has failed: the next flush has to treat its own as failed.
    pub(crate) sync_failed: AtomicBool,
    /// This file system cannot give back parts of files.
    pub(crate) cannot_punch: AtomicBool,
    pub(crate) scrubbing: Mutex<Scrubbing>,
    pub(crate) sweep: Mutex<Sweep>,
    /// Body files kept open for the next use; beyond `open_files_max` the one opened first is closed.
    open_files: Mutex<VecDeque<Weak<Representation>>>,
    open_files_max: usize,
}

impl Shared {
    pub(crate) fn new(disk: Arc<dyn Disk>, lock: Lock, params: Params, log: Log) -> Self {
        let capacity = params.capacity.0;
        let gate = Arc::new(Gate::new(disk, lock));
        Self {
            disk: Arc::clone(&gate) as Arc<dyn Disk>,
            gate,
            tenure: Tenure::default(),
            capacity,
            segment_bytes: segment_bytes(capacity),
            counts: Counts::default(),
            index: RwLock::default(),
            live: Live::new(params.memory.0),
            log,
            segments: Segments::default(),
            moves: Moves::default(),
            used: AtomicU64::new(0),
            flushing: Mutex::new(()),
            referring: Mutex::new(()),
            room: Mutex::new(()),
            remains: Mutex::default(),
            dying: Mutex::default(),
            loading: std::array::from_fn(|_| Mutex::new(())),
            dirty: Mutex::default(),
            unsynced: Mutex::default(),
            newcomers: Mutex::default(),
            changed: AtomicBool::new(false),
            sync_failed: AtomicBool::new(false),
            cannot_punch: AtomicBool::new(false),
            scrubbing: Mutex::default(),
            sweep: Mutex::default(),
            open_files: Mutex::default(),
            open_files_max: params.open_files,
        }
    }

    pub(crate) fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Counts bytes that are on the disk already, ceiling or not.
    pub(crate) fn charge(&self, bytes: u64) {
        self.used.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Relaxed);
    }

    /// Counts bytes that are about to be used, after making room for them. Blocks.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<(), WriteError> {
        match self.reserve_referring(bytes) {
            Err(WriteError::NoRoom) => {
                // Perhaps only because a flush had its hand on what could go.
                let _nothing_referred = lock(&self.referring);
                self.reserve_referring(bytes)
            }
            result => result,
        }
    }

    /// The same for a flush, which holds `referring` itself.
    pub(crate) fn reserve_referring(&self, bytes: u64) -> Result<(), WriteError> {
        if self.try_reserve(bytes) {
            return Ok(());
        }
        let _room = lock(&self.room);
        // A round in which everything was spared takes the marks of use; after a second one in which
        // nothing goes, nothing will.
        let mut patience = 2usize.saturating_mul(self.index().segments().saturating_add(1));
        loop {
            self.unlink_remains()?;
            if self.try_reserve(bytes) {
                return Ok(());
            }
            match self.evict_one()? {
                Step::Gone => {}
                Step::Spared if patience > 0 => patience -= 1,
                Step::Spared | Step::Stuck => return Err(WriteError::NoRoom),
            }
        }
    }

    /// Evicts until the ceiling holds: for what was found at the start.
    pub(crate) fn shrink(&self) -> Result<(), WriteError> {
        self.reserve(0)
    }

    pub(crate) fn try_reserve(&self, bytes: u64) -> bool {
        self.reserve_below(self.capacity.saturating_sub(self.segment_bytes), bytes)
    }

    /// Counts bytes with which room is about to be made.
    pub(crate) fn reserve_spare(&self, bytes: u64) -> bool {
        self.reserve_below(self.capacity, bytes)
    }

    fn reserve_below(&self, limit: u64, bytes: u64) -> bool {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= limit);
        self.used.fetch_update(Relaxed, Relaxed, fits).is_ok()
    }

    /// Writes a change of the index down, sooner or later; to be called while the index is locked, so
    /// that the order is the same.
    pub(crate) fn note(&self, change: Change) {
        if self.is_writing() {
            self.log.push(change);
        }
    }

    /// The same for what was where it is no more.
    pub(crate) fn note_gone(&self, place: Place, spot: Spot) {
        if spot != Spot::Filling {
            self.note(Change::Gone(place));
        }
    }

    pub(crate) fn leave_remains(&self, remains: Remains) {
        lock(&self.remains).push(remains);
    }

    pub(crate) fn leave_segment(&self, segment: Arc<Segment>) {
        lock(&self.dying).push(segment);
    }

    /// Unlinks what nobody references any more and gives its bytes back. Who needs room meanwhile
    /// waits: these bytes are about to be free.
    pub(crate) fn clear_remains(&self) -> Result<(), WriteError> {
        let _room = lock(&self.room);
        self.unlink_remains()
    }

    fn unlink_remains(&self) -> Result<(), WriteError> {
        lock(&self.dying).retain(|segment| {
            let in_use = Arc::strong_count(segment) > 1 || segment.is_read();
            if !in_use {
                self.release(segment.reserved());
            }
            in_use
        });
        let mut waiting = std::mem::take(&mut *lock(&self.remains));
        while let Some(mut remains) = waiting.pop() {
            if let Err(error) = self.unlink(&mut remains) {
                waiting.push(remains);
                lock(&self.remains).append(&mut waiting);
                return Err(self.refused("remove a file", error));
            }
        }
        Ok(())
    }

    fn unlink(&self, remains: &mut Remains) -> io::Result<()> {
        for (bytes, part) in
            [(&mut remains.meta_bytes, Part::Meta), (&mut remains.temp_bytes, Part::MetaTemp)]
        {
            if *bytes > 0 {
                self.remove_file(remains.place, part)?;
                self.release(std::mem::take(bytes));
            }
        }
        self.remove_file(remains.place, Part::Body)?;
        self.release(std::mem::take(&mut remains.body_bytes));
        Ok(())
    }

    /// Removes a file if it is there.
    pub(crate) fn remove_file(&self, place: Place, part: Part) -> io::Result<()> {
        match self.disk.remove(&place.path(part)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => self.note_changed(),
        }
        Ok(())
    }

    /// Counts a refusal of the disk and makes it an error. When it was the gate's, nobody is to blame.
    pub(crate) fn refused(&self, action: &'static str, source: io::Error) -> WriteError {
        if self.tenure.is_gone() {
            return WriteError::HandedOver;
        }
        self.counts.write_errors.fetch_add(1, Relaxed);
        self.note_device(&source);
        if source.kind() == io::ErrorKind::NotFound && action == CREATE {
            self.counts.folder_errors.fetch_add(1, Relaxed);
        }
        WriteError::Disk { action, source }
    }

    /// Counts an error if it says that the device is broken or read-only.
    pub(crate) fn note_device(&self, error: &io::Error) {
        const EIO: i32 = 5;
        const ENXIO: i32 = 6;
        const ENODEV: i32 = 19;
        const EROFS: i32 = 30;
        if matches!(error.raw_os_error(), Some(EIO | ENXIO | ENODEV | EROFS)) {
            self.counts.device_errors.fetch_add(1, Relaxed);
        }
    }

    /// Counts blocks that are not what was stored.
    pub(crate) fn count_corrupt(&self) {
        // What the next process has taken away is none.
        if self.is_writing() {
            self.counts.corrupt_blocks.fetch_add(1, Relaxed);
        }
    }

    /// Something was written or named: the next flush has to make that durable.
    pub(crate) fn note_changed(&self) {
        self.changed.store(true, Relaxed);
    }

    pub(crate) fn take_changed(&self) -> bool {
        self.changed.swap(false, Relaxed)
    }

    pub(crate) fn note_dirty(&self, place: Place) {
        if self.is_writing() {
            lock(&self.dirty).push(place);
        }
    }

    pub(crate) fn take_dirty(&self) -> Vec<Place> {
        std::mem::take(&mut *lock(&self.dirty))
    }

    pub(crate) fn note_unsynced(&self, place: Place) {
        lock(&self.unsynced).push(place);
    }

    pub(crate) fn take_unsynced(&self) -> Vec<Place> {
        std::mem::take(&mut *lock(&self.unsynced))
    }

    /// It has come into memory: if it is packed, it leaves with the next flush unless it is asked for
    /// again.
    pub(crate) fn note_newcomer(&self, rep: &Representation) {
        if rep.file_body().is_none() {
            lock(&self.newcomers).push(rep.place());
        }
    }

    pub(crate) fn take_newcomers(&self) -> Vec<Place> {
        std::mem::take(&mut *lock(&self.newcomers))
    }

    pub(crate) fn keep_newcomers(&self, places: Vec<Place>) {
        lock(&self.newcomers).extend(places);
    }

    /// Remembers that `rep` keeps its file open, and closes the one that was opened first when
    /// there are too many.
    pub(crate) fn note_open(&self, rep: &Arc<Representation>) {
        let first = {
            let mut open = lock(&self.open_files);
            open.push_back(Arc::downgrade(rep));
            if open.len() > self.open_files_max { open.pop_front() } else { None }
        };
        if let Some(rep) = first.and_then(|rep| rep.upgrade()) {
            rep.close_file();
        }
    }

    /// Runs `open`; when this process has too many files open, closes what is kept open for
    /// convenience and tries once more.
    pub(crate) fn with_file_to_spare<T>(
        &self,
        mut open: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        const ENFILE: i32 = 23;
        const EMFILE: i32 = 24;
        match open() {
            Err(error) if matches!(error.raw_os_error(), Some(EMFILE | ENFILE)) => {
                let kept = std::mem::take(&mut *lock(&self.open_files));
                kept.iter().filter_map(Weak::upgrade).for_each(|rep| rep.close_file());
                open()
            }
            result => result,
        }
    }

    /// Reads exactly `len` bytes.
    pub(crate) fn read_exact(&self, file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let mut done = 0;
        while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(u64::try_from(done).unwrap_or(u64::MAX));
            match self.disk.read_at(file, rest, at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(got) => done = done.saturating_add(got),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }
}

/// Bytes of a segment, which is also what is kept free for making room.
pub(crate) fn segment_bytes(capacity: u64) -> u64 {
    let wanted = capacity.div_euclid(SEGMENTS_WANTED).min(SEGMENT_BYTES_MAX);
    units(wanted.max(1))
}

/// Bytes as the file system allocates them.
pub(crate) fn units(bytes: u64) -> u64 {
    bytes.div_ceil(UNIT_BYTES).saturating_mul(UNIT_BYTES)
}

/// A lock whose holder panicked is taken all the same: every critical section here leaves its
/// data whole at each step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
