//! One run: contiguous blocks brought by one upstream request at a time.

use std::ops::Range;

use crate::failure::Failure;
use crate::geometry::Geometry;
use crate::masters::MasterId;

/// Where the next bytes of a run belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The block being filled.
    pub block: u32,
    /// Bytes of it that are already there.
    pub filled: u32,
    /// Bytes still missing to its end, at least 1.
    pub missing: u32,
}

/// What a run is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// To be asked of a master at the next poll.
    Unasked,
    /// For the head of the answer.
    Asked,
    /// For bytes; the head was right.
    Streaming,
    /// For the store to take the full block before `pos`.
    Storing,
}

/// Invariant: `pos` lies in the block `blocks.start`, or at its end while it is being stored.
#[derive(Debug)]
pub(crate) struct Run {
    /// Not yet stored; shrinks from the front.
    pub(crate) blocks: Range<u32>,
    /// The next byte wanted.
    pub(crate) pos: u64,
    /// End of what the present answer brings; `blocks` may end before, where another run was split
    /// off.
    pub(crate) asked_end: u32,
    pub(crate) phase: Phase,
    pub(crate) master: Option<MasterId>,
    /// Masters that failed since the last block was stored.
    pub(crate) tried: Vec<MasterId>,
    /// Of these, the ones that have another representation: asking them again is no use.
    pub(crate) changed: Vec<MasterId>,
    /// Whether a block was stored since the last request.
    pub(crate) progressed: bool,
}

impl Run {
    pub(crate) fn new(blocks: Range<u32>, geometry: Geometry) -> Self {
        let pos = geometry.start_of(blocks.start);
        Self {
            blocks,
            pos,
            asked_end: 0,
            phase: Phase::Unasked,
            master: None,
            tried: Vec::new(),
            changed: Vec::new(),
            progressed: false,
        }
    }

    pub(crate) fn room(&self, geometry: Geometry) -> Option<Room> {
        let block = self.blocks.start;
        let bytes = geometry.bytes_of(block..block.saturating_add(1));
        let missing = u32::try_from(bytes.end.checked_sub(self.pos)?).ok()?;
        let filled = u32::try_from(self.pos.checked_sub(bytes.start)?).ok()?;
        (!self.blocks.is_empty() && missing > 0).then_some(Room { block, filled, missing })
    }

    /// Books the failure of the present request.
    pub(crate) fn note_failure(&mut self, why: Failure) {
        if std::mem::take(&mut self.progressed) {
            self.tried.clear();
            self.changed.clear();
        }
        if let Some(master) = self.master.take() {
            self.tried.push(master);
            if why == Failure::Changed {
                self.changed.push(master);
            }
        }
        self.phase = Phase::Unasked;
    }
}
