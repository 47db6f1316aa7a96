//! The body of a small representation: nothing until its one block comes, then a record in a
//! segment, and in memory too when it is asked for often.
//!
//! A change of the head writes a new record; the old one is dead and goes with its segment.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU8, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;

use crate::entry::Change;
use crate::index::{Index, Spot};
use crate::names::Place;
use crate::record::{self, FIXED_BYTES, Record};
use crate::representation::{Body, Extent, Representation};
use crate::segments::{Purse, Segment};
use crate::shared::{Shared, WriteError, lock};

/// It is held.
const HELD: u8 = 1;
/// It is held only after another look.
const IN_DOUBT: u8 = 2;

pub(crate) struct PackedBody {
    state: Mutex<State>,
    /// What of the state every hit asks: [`HELD`] and [`IN_DOUBT`].
    marks: AtomicU8,
    /// Held while a record of it is written.
    writing: Mutex<()>,
}

#[derive(Default)]
struct State {
    at: Option<Seat>,
    crc: u32,
    /// Held only after another look.
    in_doubt: bool,
    memory: Option<Bytes>,
}

impl State {
    fn marks(&self) -> u8 {
        let held = if self.at.is_some() { HELD } else { 0 };
        held | if self.in_doubt { IN_DOUBT } else { 0 }
    }
}

/// The state while it is changed; in the end the marks are as it is.
struct Editing<'a> {
    state: MutexGuard<'a, State>,
    marks: &'a AtomicU8,
}

impl Deref for Editing<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Editing<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Editing<'_> {
    fn drop(&mut self) {
        self.marks.store(self.state.marks(), Release);
    }
}

/// Where a record is.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) segment: Arc<Segment>,
    pub(crate) offset: u32,
    /// Bytes of the record.
    pub(crate) len: u32,
    /// Bytes of it before the body.
    pub(crate) body_at: u32,
}

impl Seat {
    pub(crate) fn spot(&self) -> Spot {
        let Self { segment, offset, len, .. } = self;
        Spot::Packed { segment: segment.number, offset: *offset, len: *len }
    }

    fn body_offset(&self) -> u64 {
        u64::from(self.offset).saturating_add(u64::from(self.body_at))
    }

    /// Reads the record and compares its checksums. Blocks.
    pub(crate) fn read(&self, shared: &Shared, place: Place) -> io::Result<Record> {
        let bytes = read_record(shared, &self.segment, self.offset, self.len)?;
        Record::decode(place, &bytes).map_err(io::Error::other)
    }
}

/// The bytes of a record as they are. Blocks.
pub(crate) fn read_record(
    shared: &Shared,
    segment: &Segment,
    offset: u32,
    len: u32,
) -> io::Result<Bytes> {
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let bytes = shared.read_exact(segment.file(shared)?, offset.into(), len)?;
    Ok(Bytes::from(bytes))
}

impl PackedBody {
    /// Without its block.
    pub(crate) fn empty() -> Self {
        Self::of(State::default())
    }

    /// As it was found, its checksum just compared.
    pub(crate) fn found(seat: Seat, crc: u32, memory: Option<Bytes>) -> Self {
        Self::of(State { at: Some(seat), crc, in_doubt: false, memory })
    }

    fn of(state: State) -> Self {
        let marks = AtomicU8::new(state.marks());
        Self { state: Mutex::new(state), marks, writing: Mutex::new(()) }
    }

    fn edit(&self) -> Editing<'_> {
        Editing { state: lock(&self.state), marks: &self.marks }
    }

    pub(crate) fn has(&self) -> bool {
        self.marks.load(Acquire) & HELD != 0
    }

    pub(crate) fn verify_pending(&self) -> bool {
        self.marks.load(Acquire) == HELD | IN_DOUBT
    }

    pub(crate) fn still_holds(&self) -> bool {
        self.marks.load(Acquire) == HELD
    }

    pub(crate) fn doubt(&self) {
        self.edit().in_doubt = true;
    }

    /// Nothing is held any more; how many blocks that lost.
    pub(crate) fn lose(&self) -> usize {
        let mut state = self.edit();
        state.memory = None;
        usize::from(state.at.take().is_some())
    }

    pub(crate) fn memory(&self) -> Option<Bytes> {
        lock(&self.state).memory.clone()
    }

    pub(crate) fn sound_memory(&self) -> Option<Bytes> {
        let state = lock(&self.state);
        if state.in_doubt { None } else { state.memory.clone() }
    }

    pub(crate) fn wants_memory(&self) -> bool {
        let state = lock(&self.state);
        state.memory.is_none() && state.at.is_some()
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        let state = lock(&self.state);
        state.memory.as_ref().map_or(0, |bytes| u64::try_from(bytes.len()).unwrap_or(u64::MAX))
    }

    pub(crate) fn seat(&self) -> Option<Seat> {
        lock(&self.state).at.clone()
    }

    /// Its record was moved as it was. To be called while the index is locked.
    pub(crate) fn move_to(&self, from: u32, segment: &Arc<Segment>, offset: u32) {
        if let Some(seat) = &mut lock(&self.state).at
            && seat.segment.number == from
        {
            seat.segment = Arc::clone(segment);
            seat.offset = offset;
        }
    }
}

impl Representation {
    pub(crate) fn verify_packed(&self, body: &PackedBody) -> bool {
        let Some(seat) = body.seat() else { return false };
        if !body.verify_pending() {
            return true;
        }
        let good = seat.read(&self.shared, self.place).is_ok();
        let mut state = body.edit();
        // Somebody may have moved or written it meanwhile.
        let is_same = state.at.as_ref().is_some_and(|now| now.spot() == seat.spot());
        if !is_same {
            return state.at.is_some() && !state.in_doubt;
        }
        state.in_doubt = false;
        if !good {
            state.at = None;
            state.memory = None;
            self.shared.count_corrupt();
        }
        good
    }

    pub(crate) fn write_packed(&self, body: &PackedBody, bytes: &[u8]) -> Result<(), WriteError> {
        let crc = crc32c::crc32c(bytes);
        let _writing = lock(&body.writing);
        {
            let state = lock(&body.state);
            if state.at.is_some() && state.crc != crc {
                return Err(WriteError::Differs { block: 0 });
            }
            if state.at.is_some() && !state.in_doubt {
                return Ok(());
            }
        }
        self.pack(body, bytes, crc, Purse::Common)
    }

    /// Writes a record with the head of now. For a flush, which holds `referring`. Blocks.
    pub(crate) fn repack(&self, body: &PackedBody) -> Result<(), WriteError> {
        let _writing = lock(&body.writing);
        let content = match (body.memory(), body.seat()) {
            (Some(memory), Some(_)) => memory,
            (_, Some(seat)) => match seat.read(&self.shared, self.place) {
                Ok(record) => record.body,
                Err(error) => return Err(self.shared.refused("read a packed object", error)),
            },
            (_, None) if self.length == 0 => Bytes::new(),
            // Its block has not come, or was lost.
            (_, None) => return Ok(()),
        };
        self.pack(body, &content, crc32c::crc32c(&content), Purse::Flush)
    }

    fn pack(
        &self,
        body: &PackedBody,
        bytes: &[u8],
        crc: u32,
        purse: Purse,
    ) -> Result<(), WriteError> {
        let (shared, head) = (&self.shared, self.head());
        let record = record::encode(self.place, self.block_bytes, &head, bytes, crc);
        let (segment, offset) = shared.append(&record, purse)?;
        let fits = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let body_at = fits(FIXED_BYTES.saturating_add(head.len()));
        let seat = Seat { segment, offset, len: fits(record.len()), body_at };
        let mut index = shared.index_mut();
        if !index.has_segment(seat.segment.number) {
            // Evicted under our hands, in a store that is much too small.
            return Err(WriteError::NoRoom);
        }
        let former = index.spot(self.place);
        if index.move_to(self.place, seat.spot()) {
            match former {
                Some(former @ Spot::Packed { .. }) => shared.note_moved(self.place, former),
                _ => shared.note(Change::At(self.place, seat.spot())),
            }
            shared.note_unsynced(self.place);
        }
        let mut state = body.edit();
        state.at = Some(seat);
        state.crc = crc;
        state.in_doubt = false;
        Ok(())
    }

    /// Its body, from memory or read from its record; one that is not as written becomes a miss.
    pub(crate) fn read_checked_packed(&self, body: &PackedBody) -> Option<Bytes> {
        if let Some(memory) = body.memory() {
            return Some(memory);
        }
        let seat = body.seat()?;
        let found = seat.read(&self.shared, self.place).ok().map(|record| record.body);
        if found.is_none() {
            body.doubt();
            self.verify_packed(body);
        }
        found
    }

    /// Where its record is, if it has one. To be called while the index is locked.
    pub(crate) fn seated(&self, index: &Index) -> Option<Spot> {
        let Body::Packed(body) = &self.body else { return None };
        let seat = body.seat()?;
        if index.has_segment(seat.segment.number) {
            return Some(seat.spot());
        }
        // Evicted under our hands: nothing was known to be in it.
        body.lose();
        None
    }

    pub(crate) fn extent_of_segment(
        self: &Arc<Self>,
        body: &PackedBody,
        offset: u64,
        len_max: u64,
    ) -> Option<Extent> {
        let len = self.length.checked_sub(offset)?.min(len_max);
        if len == 0 {
            return None;
        }
        let state = lock(&body.state);
        let seat = state.at.as_ref().filter(|_| !state.in_doubt)?;
        Some(Extent {
            file: Arc::clone(seat.segment.file(&self.shared).ok()?),
            offset: seat.body_offset().saturating_add(offset),
            at: offset,
            len,
            representation: Arc::clone(self),
        })
    }

    pub(crate) fn keep_in_memory(&self, body: &PackedBody) {
        let Some(seat) = body.seat().filter(|_| body.wants_memory()) else { return };
        let Ok(record) = seat.read(&self.shared, self.place) else {
            body.doubt();
            return;
        };
        // The body alone: the head is in memory already.
        let bytes = Bytes::copy_from_slice(&record.body);
        let mut state = lock(&body.state);
        if state.memory.is_none() && self.shared.live.grow(self, self.length) {
            state.memory = Some(bytes);
        }
    }
}
