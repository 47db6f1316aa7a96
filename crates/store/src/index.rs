//! Every object the store has, in few bytes each, and the order of eviction: both in one structure,
//! so that they cannot disagree.
//!
//! Entries lie in one array, in chunks that never move; tables of slots find them by key. What is
//! evicted are things: the file of one object, or a segment with many (`sieve`). An entry knows no
//! more than where its object is; heads and block maps are on the disk until somebody asks.

use std::collections::{HashMap, HashSet};

use crate::names::{Key, Place};
use crate::sieve::{Fate, Sieve};
use crate::table::Tables;

/// Entries in a chunk.
const CHUNK: usize = 1 << 14;
const NONE: u32 = u32::MAX;

/// Where an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// In memory alone: a small one whose block has not come yet.
    Filling,
    /// In a file of its own, with the units counted for that and its metadata.
    File { units: u32 },
    /// A record in a segment.
    Packed { segment: u32, offset: u32, len: u32 },
}

/// What is evicted as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thing {
    /// The object of an entry, which has its own file.
    File(u32),
    /// A segment by its number.
    Segment(u32),
}

/// A thing that the hand has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Candidate {
    /// An object with its own file; whether it was used since the hand last came.
    File { place: Place, used: bool },
    /// A segment.
    Segment(u32),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: [u8; 16],
    id: [u32; 2],
    /// Units of a file; segment of a record; next free entry.
    a: u32,
    /// Thing of a file; offset of a record.
    b: u32,
    /// Bytes of a record.
    c: u32,
    kind: Kind,
    /// Used since the hand or the last move to another segment.
    used: bool,
    /// Every block held was verified in this process.
    verified: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Free,
    Filling,
    File,
    Packed,
}

/// The objects of one segment.
#[derive(Debug)]
struct Members {
    /// Entries that are or were in it.
    slots: Vec<u32>,
    live: u32,
    /// Where the last record ends.
    end: u64,
    thing: Option<u32>,
}

/// The index. While it is being read from its log it is not settled: then it has no order.
#[derive(Debug)]
pub(crate) struct Index {
    chunks: Vec<Vec<Entry>>,
    /// Slots that were ever used.
    slots: u32,
    free: u32,
    len: usize,
    tables: Tables,
    sieve: Sieve<Thing>,
    segments: HashMap<u32, Members>,
    is_settled: bool,
    /// Removed objects whose files the sweep must leave to those who hold them.
    spared: Option<HashSet<Place>>,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            slots: 0,
            free: NONE,
            len: 0,
            tables: Tables::default(),
            sieve: Sieve::default(),
            segments: HashMap::new(),
            is_settled: false,
            spared: Some(HashSet::new()),
        }
    }
}

impl Index {
    /// Objects, those being filled included.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Slots are numbers below this; some are free.
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// Bytes of memory, by capacity.
    pub(crate) fn bytes(&self) -> usize {
        let members = self.segments.values().map(|m| m.slots.capacity().saturating_mul(4));
        self.chunks
            .len()
            .saturating_mul(CHUNK.saturating_mul(size_of::<Entry>()))
            .saturating_add(self.tables.bytes())
            .saturating_add(self.sieve.bytes())
            .saturating_add(members.fold(0, usize::saturating_add))
    }

    pub(crate) fn get(&self, key: &Key) -> Option<(Place, Spot)> {
        self.at(self.slot_of(key)?)
    }

    /// Where exactly this one is; `None` when it is not the one of its key.
    pub(crate) fn spot(&self, place: Place) -> Option<Spot> {
        self.get(&place.key).filter(|(found, _)| *found == place).map(|(_, spot)| spot)
    }

    /// What is in a slot.
    pub(crate) fn at(&self, slot: u32) -> Option<(Place, Spot)> {
        let entry = self.entry(slot)?;
        Some((entry.place(), entry.spot()?))
    }

    /// Makes this the one of its key, the newest of all; the former one is returned.
    pub(crate) fn put(&mut self, place: Place, spot: Spot) -> Option<(Place, Spot)> {
        let former = self.get(&place.key);
        if let Some((former, _)) = former {
            self.remove(former);
        }
        let entry = Entry::new(place);
        let Some(slot) = self.claim(entry) else { return former };
        self.tables.insert(hash(&place.key), slot);
        self.len = self.len.saturating_add(1);
        self.enter(slot, spot);
        former
    }

    /// What the log says of a key, before the index is settled.
    pub(crate) fn restore(&mut self, place: Place, spot: Spot) {
        match self.slot_of(&place.key) {
            Some(slot) => {
                if let Some(entry) = self.entry_mut(slot) {
                    *entry = Entry::new(place);
                }
                self.enter(slot, spot);
            }
            None => {
                self.put(place, spot);
            }
        }
    }

    /// Says that this one is somewhere else now; `false`: it is not the one of its key any more.
    pub(crate) fn move_to(&mut self, place: Place, spot: Spot) -> bool {
        let Some(slot) = self.exact(place) else { return false };
        if let (Some(Spot::File { .. }), Spot::File { units }) =
            (self.entry(slot).and_then(Entry::spot), spot)
        {
            if let Some(entry) = self.entry_mut(slot) {
                entry.a = units;
            }
            return true;
        }
        self.leave(slot);
        self.enter(slot, spot);
        true
    }

    /// Removes exactly this one; `None` when it is not the one of its key.
    pub(crate) fn remove(&mut self, place: Place) -> Option<Spot> {
        let slot = self.exact(place)?;
        let spot = self.entry(slot)?.spot()?;
        self.leave(slot);
        self.tables.remove(hash(&place.key), slot);
        let free = std::mem::replace(&mut self.free, slot);
        if let Some(entry) = self.entry_mut(slot) {
            entry.kind = Kind::Free;
            entry.a = free;
        }
        self.len = self.len.saturating_sub(1);
        if let (Spot::File { .. }, Some(spared)) = (spot, &mut self.spared) {
            spared.insert(place);
        }
        Some(spot)
    }

    /// Takes over what a representation that leaves memory knows.
    pub(crate) fn note(&mut self, place: Place, used: bool, verified: bool) {
        if let Some(slot) = self.exact(place)
            && let Some(entry) = self.entry_mut(slot)
        {
            entry.used |= used;
            entry.verified = verified;
        }
    }

    /// Whether it was used, forgetting that; and whether all its blocks were verified.
    pub(crate) fn is_used(&self, place: Place) -> bool {
        self.exact(place).and_then(|slot| self.entry(slot)).is_some_and(|entry| entry.used)
    }

    pub(crate) fn is_verified(&self, place: Place) -> bool {
        self.exact(place).and_then(|slot| self.entry(slot)).is_some_and(|entry| entry.verified)
    }

    pub(crate) fn clear_used(&mut self, place: Place) {
        if let Some(slot) = self.exact(place)
            && let Some(entry) = self.entry_mut(slot)
        {
            entry.used = false;
        }
    }

    /// The next thing to evict, by the hand's walk. Nothing is removed yet.
    pub(crate) fn victim(&mut self, mut judge: impl FnMut(Candidate) -> Fate) -> Option<Thing> {
        let Self { sieve, chunks, .. } = self;
        let slot = sieve.victim(|thing| match *thing {
            Thing::Segment(number) => judge(Candidate::Segment(number)),
            Thing::File(slot) => {
                let Some(entry) = entry_mut(chunks, slot) else { return Fate::Pinned };
                let fate = judge(Candidate::File { place: entry.place(), used: entry.used });
                if fate == Fate::Spare {
                    entry.used = false;
                }
                fate
            }
        })?;
        self.sieve.get(slot).copied()
    }

    /// Entries that are or were in a segment.
    pub(crate) fn members(&self, segment: u32) -> Vec<u32> {
        self.segments.get(&segment).map(|m| m.slots.clone()).unwrap_or_default()
    }

    /// Where the last record in use of a segment ends.
    pub(crate) fn end_of(&self, segment: u32) -> u64 {
        self.segments.get(&segment).map_or(0, |m| m.end)
    }

    /// A segment in which nothing is in use and that `may` go.
    pub(crate) fn dead_segment(&self, may: impl Fn(u32) -> bool) -> Option<u32> {
        let dead = self.segments.iter().find(|(number, m)| m.live == 0 && may(**number));
        dead.map(|(number, _)| *number)
    }

    /// Adds a segment, the newest of all things.
    pub(crate) fn add_segment(&mut self, number: u32) {
        let thing = self.sieve.insert(Thing::Segment(number));
        let members = Members { slots: Vec::new(), live: 0, end: 0, thing };
        self.segments.insert(number, members);
    }

    /// Number of segments.
    pub(crate) fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Whether the segment is one of them.
    pub(crate) fn has_segment(&self, number: u32) -> bool {
        self.segments.contains_key(&number)
    }

    /// Forgets a segment and whatever is still in it.
    pub(crate) fn remove_segment(&mut self, number: u32) -> Vec<Place> {
        let members = self.members(number);
        let lost: Vec<Place> =
            members.into_iter().filter_map(|slot| self.member(slot, number)).collect();
        for place in &lost {
            self.remove(*place);
        }
        if let Some(thing) = self.segments.remove(&number).and_then(|m| m.thing) {
            self.sieve.remove(thing);
        }
        lost
    }

    /// The object of a slot if it is in this segment.
    pub(crate) fn member(&self, slot: u32, segment: u32) -> Option<Place> {
        match self.at(slot)? {
            (place, Spot::Packed { segment: found, .. }) if found == segment => Some(place),
            _ => None,
        }
    }

    /// Orders what was read from the log by age, and knows the members of each segment from now on.
    /// What is in none of the segments in `present` is dropped.
    pub(crate) fn settle(&mut self, present: &[u32]) {
        let mut ages: HashMap<u32, u64> = present.iter().map(|number| (*number, 0)).collect();
        let mut things = Vec::new();
        let mut lost = Vec::new();
        for slot in 0..self.slots {
            match self.at(slot) {
                Some((place, Spot::File { .. })) => things.push((place.id, Thing::File(slot))),
                Some((place, Spot::Packed { segment, .. })) => match ages.get_mut(&segment) {
                    Some(age) => *age = place.id.max(*age),
                    None => lost.push(place),
                },
                _ => {}
            }
        }
        for place in lost {
            self.remove(place);
        }
        things.extend(ages.into_iter().map(|(number, age)| (age, Thing::Segment(number))));
        things.sort_unstable_by_key(|(age, thing)| (*age, matches!(thing, Thing::File(_))));
        self.is_settled = true;
        for (_, thing) in things {
            match thing {
                Thing::Segment(number) => self.add_segment(number),
                Thing::File(slot) => {
                    let node = self.sieve.insert(thing).unwrap_or(NONE);
                    if let Some(entry) = self.entry_mut(slot) {
                        entry.b = node;
                    }
                }
            }
        }
        for slot in 0..self.slots {
            if let Some((_, Spot::Packed { segment, offset, len })) = self.at(slot) {
                self.join(slot, segment, offset, len);
            }
        }
    }

    /// Whether the files of a place may be removed by the sweep.
    pub(crate) fn is_orphan(&self, place: Place) -> bool {
        let is_spared = self.spared.as_ref().is_none_or(|spared| spared.contains(&place));
        !is_spared && self.spot(place).is_none()
    }

    /// What was removed so far is nobody's: it was only read.
    pub(crate) fn forget_spared(&mut self) {
        self.spared = Some(HashSet::new());
    }

    /// The sweep is over.
    pub(crate) fn swept(&mut self) {
        self.spared = None;
    }

    fn enter(&mut self, slot: u32, spot: Spot) {
        let node = match spot {
            Spot::File { .. } if self.is_settled => {
                self.sieve.insert(Thing::File(slot)).unwrap_or(NONE)
            }
            _ => NONE,
        };
        if let Some(entry) = self.entry_mut(slot) {
            (entry.kind, entry.a, entry.b, entry.c) = match spot {
                Spot::Filling => (Kind::Filling, 0, 0, 0),
                Spot::File { units } => (Kind::File, units, node, 0),
                Spot::Packed { segment, offset, len } => (Kind::Packed, segment, offset, len),
            };
        }
        if let (Spot::Packed { segment, offset, len }, true) = (spot, self.is_settled) {
            self.join(slot, segment, offset, len);
        }
    }

    fn join(&mut self, slot: u32, segment: u32, offset: u32, len: u32) {
        if let Some(members) = self.segments.get_mut(&segment) {
            members.slots.push(slot);
            members.live = members.live.saturating_add(1);
            members.end = members.end.max(u64::from(offset).saturating_add(len.into()));
        }
    }

    fn leave(&mut self, slot: u32) {
        let Some(entry) = self.entry(slot).copied() else { return };
        match entry.spot() {
            Some(Spot::File { .. }) => drop(self.sieve.remove(entry.b)),
            Some(Spot::Packed { segment, .. }) => {
                if let Some(members) = self.segments.get_mut(&segment) {
                    members.live = members.live.saturating_sub(1);
                }
            }
            _ => {}
        }
    }

    fn claim(&mut self, entry: Entry) -> Option<u32> {
        if self.free != NONE {
            let slot = self.free;
            let free = self.entry_mut(slot)?;
            let next = free.a;
            *free = entry;
            self.free = next;
            return Some(slot);
        }
        let slot = self.slots;
        self.slots = slot.checked_add(1).filter(|slots| *slots < NONE)?;
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        self.chunks.last_mut()?.push(entry);
        Some(slot)
    }

    fn slot_of(&self, key: &Key) -> Option<u32> {
        let is_it = |slot| self.entry(slot).is_some_and(|entry| entry.key == key.0);
        self.tables.find(hash(key), is_it)
    }

    fn exact(&self, place: Place) -> Option<u32> {
        let slot = self.slot_of(&place.key)?;
        self.entry(slot).is_some_and(|entry| entry.place() == place).then_some(slot)
    }

    fn entry(&self, slot: u32) -> Option<&Entry> {
        let slot = usize::try_from(slot).ok()?;
        self.chunks.get(slot.div_euclid(CHUNK))?.get(slot.rem_euclid(CHUNK))
    }

    fn entry_mut(&mut self, slot: u32) -> Option<&mut Entry> {
        entry_mut(&mut self.chunks, slot)
    }
}

impl Entry {
    fn new(place: Place) -> Self {
        let (low, high) = (place.id & u64::from(u32::MAX), place.id >> 32);
        let half = |bits: u64| u32::try_from(bits).unwrap_or(0);
        Self {
            key: place.key.0,
            id: [half(low), half(high)],
            a: 0,
            b: 0,
            c: 0,
            kind: Kind::Filling,
            used: false,
            verified: false,
        }
    }

    fn place(&self) -> Place {
        let [low, high] = self.id;
        Place { key: Key(self.key), id: u64::from(high) << 32 | u64::from(low) }
    }

    fn spot(&self) -> Option<Spot> {
        match self.kind {
            Kind::Free => None,
            Kind::Filling => Some(Spot::Filling),
            Kind::File => Some(Spot::File { units: self.a }),
            Kind::Packed => Some(Spot::Packed { segment: self.a, offset: self.b, len: self.c }),
        }
    }
}

fn entry_mut(chunks: &mut [Vec<Entry>], slot: u32) -> Option<&mut Entry> {
    let slot = usize::try_from(slot).ok()?;
    chunks.get_mut(slot.div_euclid(CHUNK))?.get_mut(slot.rem_euclid(CHUNK))
}

/// A key is a hash already: its first half is as good as any.
fn hash(key: &Key) -> u64 {
    let Key([a, b, c, d, e, f, g, h, ..]) = *key;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(n: u64) -> Place {
        let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let key = [mixed.rotate_left(29).to_le_bytes(), n.to_le_bytes()].concat();
        Place { key: Key(key.try_into().unwrap()), id: n }
    }

    /// By capacity, at any number that is not tiny: the goal at ten million.
    #[test]
    fn an_object_costs_less_than_a_hundred_bytes() {
        for is_packed in [true, false] {
            let mut index = Index::default();
            index.settle(&[]);
            (0..10).for_each(|segment| index.add_segment(segment));
            for n in 0..200_000u64 {
                let (segment, offset) = ((n % 10) as u32, n as u32);
                let spot = match is_packed {
                    true => Spot::Packed { segment, offset, len: 1 },
                    false => Spot::File { units: 1 },
                };
                index.put(place(n), spot);
                if n > 60_000 && n % 999 == 0 {
                    let each = index.bytes() as f64 / n as f64;
                    assert!(each <= 100.0, "{each} bytes for each of {n}, packed: {is_packed}");
                }
            }
            assert_eq!(index.len(), 200_000);
            assert!((0..200_000).all(|n| index.spot(place(n)).is_some()));
            assert!((0..200_000).all(|n| index.remove(place(n)).is_some()));
            assert_eq!(index.len(), 0);
        }
    }

    #[test]
    fn an_entry_has_forty_bytes() {
        assert_eq!(size_of::<Entry>(), 40);
    }
}
