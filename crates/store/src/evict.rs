//! Making room: by the hand of `sieve`, one thing after the other.
//!
//! - The file of an object nobody asked for since the hand last came goes.
//! - A giant of which some blocks were used lately and others not loses the others: holes take
//!   their place.
//! - A segment goes as a whole. What was used lately of it is appended to the current segment first,
//!   and made durable before the old one is unlinked; when that is most of it, it stays where it is.
//!
//! What somebody refers to stays. A disk that refuses makes nothing forgotten.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::entry::Change;
use crate::index::{Candidate, Index, Spot, Thing};
use crate::live::Taken;
use crate::meta::UNIT_BYTES;
use crate::names::{Part, Place, segment_path};
use crate::packed::read_record;
use crate::representation::{Body, Representation};
use crate::segments::{Purse, Segment};
use crate::shared::{Remains, Shared, WriteError};
use crate::sieve::Fate;

/// Members of a segment looked at under one lock of the index.
const BATCH: usize = 256;

/// What one step has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Something has gone, though its room may come back only when nobody reads it any more.
    Gone,
    /// What the hand stopped at stays.
    Spared,
    /// Everything is in use.
    Stuck,
}

/// What the hand has stopped at.
enum Victim {
    /// It came into use this very moment.
    Busy,
    File(Place, Spot, Option<Arc<Representation>>),
    Giant(Arc<Representation>),
    Segment(Arc<Segment>),
}

impl Shared {
    /// Makes some room, or comes nearer to it. When the disk refuses to let go, what was to go is
    /// kept: it is still good to read. Whoever calls holds `room`.
    pub(crate) fn evict_one(&self) -> Result<Step, WriteError> {
        let victim = match self.next_victim() {
            Some(victim) => victim,
            None if self.segments.close() => return Ok(Step::Gone),
            None => return Ok(Step::Stuck),
        };
        match victim {
            Victim::Segment(segment) => return self.evict_segment(&segment),
            Victim::Giant(rep) => self.trim_giant(rep),
            Victim::File(place, spot, rep) => self.evict_file(place, spot, rep)?,
            Victim::Busy => return Ok(Step::Spared),
        }
        Ok(Step::Gone)
    }

    fn next_victim(&self) -> Option<Victim> {
        let current = self.segments.current();
        let may_go = |segment: &Segment| Some(segment.number) != current && !segment.is_read();
        let mut index = self.index_mut();
        let dead = index.dead_segment(|number| {
            self.segments.get(number).is_some_and(|segment| may_go(&segment))
        });
        if let Some(segment) = dead.and_then(|number| self.segments.get(number)) {
            return Some(Victim::Segment(segment));
        }
        let mut giant = None;
        let thing = index.victim(|candidate| match candidate {
            Candidate::Segment(number) => match self.segments.get(number) {
                Some(segment) if !may_go(&segment) || segment.is_passed_by() => Fate::Pinned,
                Some(_) => Fate::Evict,
                None => Fate::Pinned,
            },
            Candidate::File { place, used } => {
                let fate = self.live.inspect(place, |rep, in_use| self.judge(rep, in_use));
                match fate {
                    None if used => Fate::Spare,
                    None => Fate::Evict,
                    Some(Verdict::Trim) => {
                        giant = self.live.of(place);
                        Fate::Evict
                    }
                    Some(Verdict::Is(Fate::Evict)) if used => Fate::Spare,
                    Some(Verdict::Is(fate)) => fate,
                }
            }
        })?;
        match (thing, giant) {
            (_, Some(giant)) => Some(Victim::Giant(giant)),
            (Thing::Segment(number), None) => self.segments.get(number).map(Victim::Segment),
            (Thing::File(slot), None) => self.take_file(&mut index, slot),
        }
    }

    fn judge(&self, rep: &Representation, in_use: bool) -> Verdict {
        if in_use {
            return Verdict::Is(Fate::Pinned);
        }
        let body = rep.file_body().filter(|_| !self.cannot_punch.load(Relaxed));
        if body.is_some_and(|body| body.can_be_trimmed()) {
            return Verdict::Trim;
        }
        let is_used = rep.is_used();
        rep.clear_used();
        Verdict::Is(if is_used { Fate::Spare } else { Fate::Evict })
    }

    /// Takes an object with its own file out of the index and out of memory.
    fn take_file(&self, index: &mut Index, slot: u32) -> Option<Victim> {
        let (place, spot) = index.at(slot)?;
        let rep = match self.live.take_idle(place) {
            Taken::InUse => return Some(Victim::Busy),
            Taken::Idle(rep) => Some(rep),
            Taken::Absent => None,
        };
        index.remove(place);
        self.note_gone(place, spot);
        Some(Victim::File(place, spot, rep))
    }

    fn evict_file(
        &self,
        place: Place,
        spot: Spot,
        rep: Option<Arc<Representation>>,
    ) -> Result<(), WriteError> {
        let retired = match &rep {
            Some(rep) => rep.retire(),
            None => self.remove_file(place, Part::Meta),
        };
        if let Err(error) = retired {
            let mut index = self.index_mut();
            if index.get(&place.key).is_none() {
                index.put(place, spot);
                self.note(Change::At(place, spot));
                if let Some(rep) = rep {
                    if let Some(body) = rep.file_body() {
                        body.revive();
                    }
                    self.live.insert(&rep);
                }
            }
            return Err(self.refused("remove a file", error));
        }
        if rep.is_none() {
            self.leave_file(place, spot);
        }
        self.counts.evictions.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Leaves the files of an object that is not in memory to be unlinked.
    pub(crate) fn leave_file(&self, place: Place, spot: Spot) {
        if let Spot::File { units } = spot {
            let body_bytes = u64::from(units).saturating_mul(UNIT_BYTES);
            // The metadata is counted with the body here: it is removed whatever its bytes are.
            let (meta_bytes, temp_bytes) = (0, 0);
            self.leave_remains(Remains { place, meta_bytes, temp_bytes, body_bytes });
        }
    }

    /// Gives back the blocks of a giant that were not used lately, unless it has come into use.
    fn trim_giant(&self, rep: Arc<Representation>) {
        let Some(body) = rep.file_body() else { return };
        // One reference is ours, one is that of the live ones.
        let forgotten = self.live.inspect(rep.place(), |_, _| {
            let is_idle = Arc::strong_count(&rep) <= 2 && body.can_be_trimmed();
            is_idle.then(|| (body.crcs_of_used(), body.trim()))
        });
        let Some(Some((crcs, blocks))) = forgotten else { return };
        if body.is_published() && !self.write_meta_now(&rep, body, crcs) {
            // Without that a kill would leave metadata with blocks that are holes. Their checksums
            // would tell: all that is lost is the exact count.
            rep.mark_dirty();
        }
        match rep.punch(body, &blocks) {
            Ok(bytes) => {
                self.counts.trimmed_bytes.fetch_add(bytes, Relaxed);
                rep.mark_dirty();
            }
            Err(_) => {
                self.cannot_punch.store(true, Relaxed);
                let place = rep.place();
                drop(rep);
                self.drop_idle(place);
                self.counts.evictions.fetch_add(1, Relaxed);
            }
        }
    }

    fn evict_segment(&self, segment: &Arc<Segment>) -> Result<Step, WriteError> {
        let number = segment.number;
        let refused = |error| self.refused("remove a segment", error);
        // Who still reads it reads on when its name is gone.
        if let Err(error) = segment.file(self)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(refused(error));
        }
        let used = self.used_members(number);
        let used_bytes = used.iter().fold(0u64, |sum, (_, len)| sum.saturating_add((*len).into()));
        if used_bytes > segment.reserved().div_euclid(2) {
            // To move that would cost more than it gives.
            return Ok(Step::Spared);
        }
        for (place, _) in used {
            self.move_packed(place, segment);
        }
        if segment.is_being_left() && !self.settle_moves() {
            return Err(WriteError::NoRoom);
        }
        match self.disk.remove(&segment_path(number)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(refused(error));
            }
            _ => self.note_changed(),
        }
        let lost = self.index_mut().remove_segment(number);
        for place in &lost {
            // Whoever refers to it reads on, and nobody else finds it.
            drop(self.live.remove(*place));
        }
        self.segments.remove(number);
        self.leave_segment(Arc::clone(segment));
        let count = u64::try_from(lost.len()).unwrap_or(u64::MAX);
        self.counts.evictions.fetch_add(count, Relaxed);
        Ok(Step::Gone)
    }

    /// The objects of a segment that were used since it was last looked at, with the bytes of their
    /// records; that is forgotten now.
    fn used_members(&self, number: u32) -> Vec<(Place, u32)> {
        let slots = self.index().members(number);
        let mut used = Vec::new();
        for batch in slots.chunks(BATCH) {
            let mut index = self.index_mut();
            for slot in batch {
                let Some((place, Spot::Packed { segment, len, .. })) = index.at(*slot) else {
                    continue;
                };
                if segment != number {
                    continue;
                }
                let live = self.live.inspect(place, |rep, in_use| {
                    let is_used = rep.is_used();
                    rep.clear_used();
                    is_used || in_use
                });
                if index.is_used(place) || live == Some(true) {
                    index.clear_used(place);
                    used.push((place, len));
                }
            }
        }
        used
    }

    /// Appends a record of a segment to the current one as it is. When there is no room, or it cannot
    /// be read, it goes with its segment.
    fn move_packed(&self, place: Place, from: &Arc<Segment>) {
        let here = |spot: Option<Spot>| match spot {
            Some(Spot::Packed { segment, offset, len }) if segment == from.number => {
                Some((offset, len))
            }
            _ => None,
        };
        let Some((offset, len)) = here(self.index().spot(place)) else { return };
        let Ok(record) = read_record(self, from, offset, len) else { return };
        let Ok((to, at)) = self.append(&record, Purse::Spare) else { return };
        let mut index = self.index_mut();
        if here(index.spot(place)) != Some((offset, len)) || !index.has_segment(to.number) {
            return;
        }
        let spot = Spot::Packed { segment: to.number, offset: at, len };
        index.move_to(place, spot);
        self.note_moved(place, Spot::Packed { segment: from.number, offset, len });
        self.live.inspect(place, |rep, _| {
            if let Body::Packed(body) = &rep.body {
                body.move_to(from.number, &to, at);
            }
        });
        self.note_unsynced(place);
    }

    /// Makes one that cannot be loaded again a miss, unless somebody uses it by now.
    pub(crate) fn drop_idle(&self, place: Place) {
        let mut index = self.index_mut();
        if let Taken::Idle(rep) = self.live.take_idle(place) {
            if let Some(spot) = index.remove(place) {
                self.note_gone(place, spot);
            }
            drop(index);
            if let Err(error) = rep.retire() {
                self.refused("remove a file", error);
            }
        }
    }
}

/// What is to become of an object with its own file.
enum Verdict {
    Is(Fate),
    Trim,
}
