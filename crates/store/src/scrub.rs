//! Looking at what is held before anybody asks for it, a little at a time: what the disk has lost
//! is fetched again while there is still time.
//!
//! In the order of the index, from the first entry to the last and again. Bytes that are in the page
//! cache are compared there.

use std::sync::Arc;

use crate::index::Spot;
use crate::names::Place;
use crate::packed::read_record;
use crate::record::Record;
use crate::representation::Body;
use crate::shared::{Shared, lock};
use crate::store::Store;

/// Entries of the index passed over at most in one call, whatever there is to read.
const ENTRIES_MAX: u32 = 1 << 16;

/// Where the scrub is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scrubbing {
    /// The entry that is next.
    slot: u32,
    /// The block of it that is next.
    block: u32,
    rounds: u64,
    bytes: u64,
}

/// How far the scrub has come since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Times that everything was looked at.
    pub rounds: u64,
    /// Of the round under way, thousandths that are done.
    pub permille: u32,
    /// Bytes read.
    pub bytes: u64,
}

impl Store {
    /// Reads about so many bytes of what is held and compares checksums; what is bad becomes a miss
    /// and is counted. To be called now and then. Blocks.
    pub fn scrub(&self, budget_bytes: u64) {
        let shared = &self.shared;
        if !shared.is_writing() {
            return;
        }
        let mut scrubbing = lock(&shared.scrubbing);
        let (mut left, mut entries) = (budget_bytes, ENTRIES_MAX);
        while left > 0 && entries > 0 {
            entries -= 1;
            if scrubbing.slot >= shared.index().slots() {
                let Scrubbing { rounds, bytes, .. } = *scrubbing;
                let rounds = rounds.saturating_add(1);
                *scrubbing = Scrubbing { rounds, bytes, ..Scrubbing::default() };
                return;
            }
            let read = shared.scrub_next(&mut scrubbing, left);
            scrubbing.bytes = scrubbing.bytes.saturating_add(read);
            left = left.saturating_sub(read);
        }
    }

    /// How far [`Self::scrub`] has come.
    pub fn scrubbed(&self) -> Scrubbed {
        let Scrubbing { slot, rounds, bytes, .. } = *lock(&self.shared.scrubbing);
        let slots = u64::from(self.shared.index().slots());
        let permille = u64::from(slot).saturating_mul(1000).checked_div(slots).unwrap_or(0);
        Scrubbed { rounds, permille: u32::try_from(permille).unwrap_or(1000), bytes }
    }
}

impl Shared {
    /// Looks at the entry that is next, or at blocks of it; gives the bytes read.
    fn scrub_next(self: &Arc<Self>, at: &mut Scrubbing, budget: u64) -> u64 {
        let found = self.index().at(at.slot);
        let read = match found {
            Some((place, Spot::Packed { segment, offset, len })) => {
                self.scrub_record(place, segment, offset, len);
                u64::from(len)
            }
            Some((place, Spot::File { .. })) => {
                let (read, next) = self.scrub_file(place, at.block, budget);
                if let Some(block) = next {
                    at.block = block;
                    return read;
                }
                read
            }
            _ => 0,
        };
        at.slot = at.slot.saturating_add(1);
        at.block = 0;
        read
    }

    fn scrub_record(&self, place: Place, segment: u32, offset: u32, len: u32) {
        let Some(held) = self.segments.get(segment) else { return };
        let Ok(bytes) = read_record(self, &held, offset, len) else { return };
        if Record::decode(place, &bytes).is_ok() {
            return;
        }
        match self.live.of(place) {
            Some(rep) => {
                if let Body::Packed(body) = &rep.body {
                    body.doubt();
                }
                rep.verify(0);
            }
            None => {
                self.forget_lost(place, Spot::Packed { segment, offset, len }, true);
            }
        }
    }

    /// Looks at blocks from `block` on; gives the bytes read, and where to go on if there are more.
    fn scrub_file(self: &Arc<Self>, place: Place, block: u32, budget: u64) -> (u64, Option<u32>) {
        let was_live = self.live.of(place).is_some();
        let (mut read, mut next) = (0u64, block);
        let blocks = loop {
            // One by one, so that who needs room can wait for it.
            let _referring = lock(&self.referring);
            let Some(rep) = self.load(&place.key).filter(|rep| rep.place() == place) else {
                return (read, None);
            };
            let Some(body) = rep.file_body() else { return (read, None) };
            if next >= rep.blocks() || read >= budget {
                break rep.blocks();
            }
            if rep.recheck(body, next).is_some() {
                read = read.saturating_add(rep.block_len(next).into());
            }
            next = next.saturating_add(1);
        };
        if !was_live {
            self.leave_memory(place);
        }
        (read, (next < blocks).then_some(next))
    }
}
