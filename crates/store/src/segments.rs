//! The files of packed objects: records are appended to the current one, whole segments go.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use crate::meta::UNIT_BYTES;
use crate::names::segment_path;
use crate::shared::{CREATE, Shared, WriteError, lock, units};

/// How many names that are taken are passed over in one go.
const TAKEN_MAX: u32 = 64;

/// How often the hand of eviction passes a segment by. By `examples/traces`: with 0, hit ratios are those
/// of LRU).
const PASSES: u32 = 1;

/// One file of packed objects.
pub(crate) struct Segment {
    pub(crate) number: u32,
    /// Opened at its first use.
    file: OnceLock<Arc<File>>,
    /// Bytes counted for it.
    reserved: AtomicU64,
    /// Objects that have left it while the log still points here.
    leaving: AtomicI64,
    /// How often the hand of eviction has passed it by.
    passes: AtomicU32,
}

/// All segments.
#[derive(Default)]
pub(crate) struct Segments {
    all: RwLock<HashMap<u32, Arc<Segment>>>,
    appending: Mutex<Appending>,
}

#[derive(Default)]
struct Appending {
    current: Option<Arc<Segment>>,
    /// Where the next record goes.
    len: u64,
    next: u32,
}

/// Which part of the budget something may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purse {
    /// What there is for everybody; room is made if need be.
    Common,
    /// The same for a flush, which holds `referring`.
    Flush,
    /// What is kept for making room.
    Spare,
}

impl Segment {
    pub(crate) fn new(number: u32, reserved: u64) -> Self {
        Self {
            number,
            file: OnceLock::new(),
            reserved: AtomicU64::new(reserved),
            leaving: AtomicI64::new(0),
            passes: AtomicU32::new(0),
        }
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Relaxed)
    }

    /// Whether extents of it are about.
    pub(crate) fn is_read(&self) -> bool {
        self.file.get().is_some_and(|file| Arc::strong_count(file) > 1)
    }

    /// The file, open. Blocks at the first use.
    pub(crate) fn file(&self, shared: &Shared) -> io::Result<&Arc<File>> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let path = segment_path(self.number);
        let file = shared.with_file_to_spare(|| shared.disk.open_read(&path))?;
        Ok(self.file.get_or_init(|| Arc::new(file)))
    }

    /// The hand of eviction has come by; whether it is to pass once more. Small objects bring many
    /// hits for few bytes: they stay for longer than large ones do.
    pub(crate) fn is_passed_by(&self) -> bool {
        self.passes.fetch_add(1, Relaxed) < PASSES
    }

    /// So many more objects have left it, or fewer are on their way.
    pub(crate) fn note_left(&self, more: i64) {
        self.leaving.fetch_add(more, Relaxed);
    }

    /// Whether the log may still point to it for objects that are elsewhere.
    pub(crate) fn is_being_left(&self) -> bool {
        self.leaving.load(Relaxed) > 0
    }
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Segment({:08x})", self.number)
    }
}

impl Segments {
    /// What was found at the start; numbers below `next` are not used again.
    pub(crate) fn restore(&self, found: Vec<Segment>, next: u32) {
        let found = found.into_iter().map(|segment| (segment.number, Arc::new(segment)));
        self.all.write().unwrap_or_else(PoisonError::into_inner).extend(found);
        lock(&self.appending).next = next;
    }

    pub(crate) fn get(&self, number: u32) -> Option<Arc<Segment>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }

    pub(crate) fn remove(&self, number: u32) -> Option<Arc<Segment>> {
        self.all.write().unwrap_or_else(PoisonError::into_inner).remove(&number)
    }

    pub(crate) fn current(&self) -> Option<u32> {
        lock(&self.appending).current.as_ref().map(|segment| segment.number)
    }

    /// Nothing is appended to the current one any more; whether there was one.
    pub(crate) fn close(&self) -> bool {
        lock(&self.appending).current.take().is_some()
    }
}

impl Shared {
    /// Appends a record; gives where it is. Blocks.
    pub(crate) fn append(
        &self,
        record: &[u8],
        purse: Purse,
    ) -> Result<(Arc<Segment>, u32), WriteError> {
        let len = u64::try_from(record.len()).unwrap_or(u64::MAX);
        // It may begin in the middle of a unit; what is too much is given back.
        let most = units(len).saturating_add(UNIT_BYTES);
        match purse {
            Purse::Common => self.reserve(most)?,
            Purse::Flush => self.reserve_referring(most)?,
            Purse::Spare if self.reserve_spare(most) => {}
            Purse::Spare => return Err(WriteError::NoRoom),
        }
        let mut appending = lock(&self.segments.appending);
        let result = self.append_to(&mut appending, record, len);
        let grown = match &result {
            Ok((_, _, grown)) | Err((_, grown)) => *grown,
        };
        self.release(most.saturating_sub(grown));
        result.map(|(segment, offset, _)| (segment, offset)).map_err(|(error, _)| error)
    }

    /// The same with room reserved; also gives how much of that it took, success or not.
    fn append_to(
        &self,
        appending: &mut Appending,
        record: &[u8],
        len: u64,
    ) -> Result<(Arc<Segment>, u32, u64), (WriteError, u64)> {
        let end = appending.len.saturating_add(len);
        if end > self.segment_bytes && appending.len > 0 {
            appending.current = None;
        }
        let segment = match &appending.current {
            Some(segment) => Arc::clone(segment),
            None => self.begin_segment(appending).map_err(|error| (error, 0))?,
        };
        let at = appending.len;
        let grown = units(at.saturating_add(len)).saturating_sub(segment.reserved());
        segment.reserved.fetch_add(grown, Relaxed);
        let written = segment.file(self).and_then(|file| self.disk.write_all_at(file, record, at));
        written.map_err(|error| (self.refused("write a packed object", error), grown))?;
        self.note_changed();
        appending.len = at.saturating_add(len);
        Ok((segment, u32::try_from(at).unwrap_or(u32::MAX), grown))
    }

    fn begin_segment(&self, appending: &mut Appending) -> Result<Arc<Segment>, WriteError> {
        let mut taken = 0;
        let (number, file) = loop {
            let number = appending.next;
            appending.next = number.saturating_add(1);
            let path = segment_path(number);
            match self.with_file_to_spare(|| self.disk.create_new(&path)) {
                Ok(file) => break (number, file),
                // A power loss can bring files back whose numbers were forgotten.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && taken < TAKEN_MAX => {
                    taken += 1;
                }
                Err(error) => return Err(self.refused(CREATE, error)),
            }
        };
        let segment = Arc::new(Segment::new(number, 0));
        let _ = segment.file.set(Arc::new(file));
        let mut all = self.segments.all.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(number, Arc::clone(&segment));
        drop(all);
        self.index_mut().add_segment(number);
        appending.current = Some(Arc::clone(&segment));
        appending.len = 0;
        Ok(segment)
    }
}
