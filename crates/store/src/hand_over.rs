//! The store changes hands: what was stored is made durable, the folder is unlocked for the next
//! store, and from then on this one only remembers.
//!
//! Phases: `Ours` -> ([`Store::hand_over`] begins) `Leaving`: nothing new is taken, what was taken is
//! made durable -> `Gone`: the gate of the disk is closed and the folder unlocked. What was held
//! goes on being read, from memory and from files that are open or that the next store left where
//! they are. But that one may evict, make holes and write over: no extent is given any more, and
//! bytes count only after their checksum was compared ([`Representation::read_checked`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;

use crate::representation::{Body, Representation};
use crate::shared::{Shared, lock};
use crate::store::Store;

/// Whose the disk is.
#[derive(Debug, Default)]
pub(crate) struct Tenure(AtomicU8);

const LEAVING: u8 = 1;
const GONE: u8 = 2;

impl Tenure {
    /// Whether something new may be stored.
    pub(crate) fn is_ours(&self) -> bool {
        self.0.load(Ordering::Acquire) < LEAVING
    }

    /// Whether another store may have the disk.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.load(Ordering::Acquire) == GONE
    }

    fn set(&self, phase: u8) {
        self.0.fetch_max(phase, Ordering::AcqRel);
    }
}

impl Store {
    /// Makes everything durable and unlocks the folder for another store. Afterwards this one writes
    /// nothing: what would change something does nothing, or is refused with
    /// [`crate::WriteError::HandedOver`]; it finds what it has in memory and nothing else. Waits for
    /// writes and flushes that are under way. Blocks.
    pub fn hand_over(&self) {
        let shared = &self.shared;
        // Most of what there is to do, while all goes on as before.
        self.flush();
        shared.tenure.set(LEAVING);
        let _flushing = lock(&shared.flushing);
        shared.flush();
        // Before the next one can change anything: who looks after reading knows whether to trust it.
        shared.gate.close(|| shared.tenure.set(GONE));
    }

    /// Whether [`Self::hand_over`] has been called.
    pub fn is_handed_over(&self) -> bool {
        !self.shared.tenure.is_ours()
    }
}

impl Representation {
    /// Whether its store was handed over: then [`Self::extent`] gives nothing any more, and
    /// [`Self::read_checked`] is the way to its blocks.
    pub fn is_handed_over(&self) -> bool {
        self.shared.tenure.is_gone()
    }

    /// The whole of a block that is held, read and compared with its checksum; `None`: a miss, and it
    /// is one from now on. Blocks.
    pub fn read_checked(self: &Arc<Self>, block: u32) -> Option<Bytes> {
        match &self.body {
            Body::File(body) => self.read_checked_in_file(body, block),
            Body::Packed(body) if block == 0 => self.read_checked_packed(body),
            Body::Packed(_) => None,
        }
    }

    /// Does something with held bytes during which no other store can get at them: `None` when one
    /// of them is not held any more, or in doubt, or the store was handed over. For who sends them
    /// without reading them first; `work` must not take long.
    pub fn while_held<T>(&self, at: u64, len: u64, work: impl FnOnce() -> T) -> Option<T> {
        self.shared.gate.unless_closed(|| self.still_holds(at, len).then(work)).flatten()
    }
}

impl Shared {
    /// Whether what changes is still to be written down.
    pub(crate) fn is_writing(&self) -> bool {
        !self.tenure.is_gone()
    }
}
