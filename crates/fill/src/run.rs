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

/// For whom a run brings its next block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// A client waits for it or is near.
    Wanted,
    /// Nobody; the whole object is to be had. Bring it when there is room to spare.
    Spare,
    /// A client that is too far behind: nothing is brought before it comes nearer.
    Paused,
}

/// Why a block was brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// A client waited for it.
    Demand,
    /// A client will come to it.
    Ahead,
    /// No client wants it; the whole object is to be had, or it lay on the way.
    Completion,
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
    pub(crate) pace: Pace,
    /// Begun for completion: it takes no place from what clients want, whoever wants it later.
    pub(crate) completion: bool,
    /// Why the block at `pos` is brought.
    pub(crate) reason: Reason,
    /// Whether the pace was not looked at yet: the first block is brought whoever wants it.
    pub(crate) fresh: bool,
    /// The present answer was not read for a while: its master may have closed it.
    pub(crate) rested: bool,
    /// Who is asked.
    pub(crate) master: Option<MasterId>,
    /// Who was asked besides, because `master` lets a client wait.
    pub(crate) rival: Option<MasterId>,
    /// When a client that is blocked on it has waited long enough to ask a rival; `None`: nobody
    /// is asked.
    pub(crate) hedge_at_ns: Option<u64>,
    /// Masters that failed since the last block was stored.
    pub(crate) tried: Vec<MasterId>,
    /// Of these, the ones that have another representation.
    pub(crate) changed: Vec<MasterId>,
    /// Whether the present request brought a block: failures before it count no more.
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
            pace: Pace::Wanted,
            completion: false,
            reason: Reason::Completion,
            fresh: true,
            rested: false,
            master: None,
            rival: None,
            hedge_at_ns: None,
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

    /// Whether it has brought nothing of its next block yet.
    pub(crate) fn is_at_border(&self, geometry: Geometry) -> bool {
        self.pos == geometry.start_of(self.blocks.start)
    }

    /// Whether it is paused and nothing of it is being brought.
    pub(crate) fn rests(&self, geometry: Geometry) -> bool {
        self.pace == Pace::Paused && self.may_go(geometry)
    }

    /// Whether no client needs it now, and nothing of it is being brought.
    pub(crate) fn may_go(&self, geometry: Geometry) -> bool {
        let storing = self.phase == Phase::Storing;
        self.pace != Pace::Wanted && !storing && self.is_at_border(geometry)
    }

    /// Whether it belongs to what clients want, not to completion.
    pub(crate) fn is_active(&self) -> bool {
        self.pace == Pace::Wanted
    }

    /// Whether an answer of this master is waited for or coming in.
    pub(crate) fn takes(&self, master: MasterId) -> bool {
        self.phase != Phase::Unasked && (self.master == Some(master) || self.rival == Some(master))
    }

    /// Books that `master`, which is being asked, failed. Whether nobody else is being asked.
    pub(crate) fn note_failure(&mut self, master: MasterId, why: Failure) -> bool {
        if std::mem::take(&mut self.progressed) {
            self.tried.clear();
            self.changed.clear();
        }
        self.tried.push(master);
        if why == Failure::Changed {
            self.changed.push(master);
        }
        self.hedge_at_ns = None;
        let both = [self.master.take(), self.rival.take()];
        let other = both.into_iter().flatten().find(|asked| *asked != master);
        self.master = other.filter(|_| self.phase == Phase::Asked);
        if self.master.is_none() {
            self.rest();
        }
        self.master.is_none()
    }

    /// Back to nobody being asked.
    pub(crate) fn rest(&mut self) {
        self.phase = Phase::Unasked;
        self.master = None;
        self.rival = None;
        self.hedge_at_ns = None;
        self.rested = false;
    }

    /// Lets it begin at an earlier block; whether what it had of its first one is void.
    pub(crate) fn rewind(&mut self, start: u32, geometry: Geometry) -> bool {
        let void = !self.is_at_border(geometry);
        self.blocks.start = start;
        self.pos = geometry.start_of(start);
        void
    }
}
