//! One table of all names, made once and then only read.
//!
//! Names and records lie one behind the other in one piece of memory; entries and sets are places
//! in it. So a table of 100,000 names is a handful of allocations, is made and freed in
//! milliseconds, and a look-up touches few cache lines.
//!
//! Collisions cannot be forced: names come from the maps and zone files of the operator, and a
//! question that is not there ends at the first free slot, of which at least half are.

use crate::reply::Records;
use crate::wire::rtype;

/// What one name holds.
#[derive(Debug)]
pub(crate) struct Entry {
    name: Span,
    /// Index into the zones.
    pub(crate) zone: u32,
    /// Index into the steered names.
    pub(crate) steered: Option<u32>,
    sets: Span,
    pub(crate) kind: Kind,
    /// `*` stands below it (RFC 4592).
    pub(crate) wild: bool,
    /// It has a CNAME record, and nothing else.
    pub(crate) alias: bool,
}

/// What a name is to its zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The zone is authoritative for it.
    #[default]
    Own,
    /// Here another zone begins, which other servers have.
    Cut,
    /// It lies below a cut: glue.
    Below,
}

/// All records of one name and type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Set {
    pub(crate) rtype: u16,
    count: u16,
    bytes: Span,
}

/// A part of the bytes, or of the sets.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u32,
    length: u32,
}

impl Span {
    fn of<'a, T>(&self, all: &'a [T]) -> &'a [T] {
        let (start, length) = (self.start as usize, self.length as usize);
        all.get(start..start.saturating_add(length)).unwrap_or_default()
    }
}

/// A name while the table is being made.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) zone: u32,
    pub(crate) steered: Option<u32>,
    pub(crate) kind: Kind,
    pub(crate) wild: bool,
    /// Type and records as they stand in an answer to a question for this name.
    pub(crate) sets: Vec<(u16, u16, Vec<u8>)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Table {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    sets: Vec<Set>,
    /// A power of two of them, at least twice as many as entries.
    slots: Vec<Slot>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The lower half of the hash.
    tag: u32,
    entry: u32,
}

const FREE: Slot = Slot { tag: 0, entry: u32::MAX };

impl Table {
    /// `None` when there is more than 4 GiB of it.
    pub(crate) fn build<'a>(
        drafts: impl ExactSizeIterator<Item = (&'a [u8], Draft)>,
    ) -> Option<Self> {
        let size = drafts.len().saturating_mul(2).next_power_of_two();
        let mut table = Self { slots: vec![FREE; size], ..Self::default() };
        for (name, draft) in drafts {
            table.add(name, draft)?;
        }
        table.bytes.shrink_to_fit();
        table.sets.shrink_to_fit();
        table.entries.shrink_to_fit();
        Some(table)
    }

    fn add(&mut self, name: &[u8], draft: Draft) -> Option<()> {
        let alias = draft.sets.iter().any(|(rtype, ..)| *rtype == rtype::CNAME);
        let sets = Span {
            start: u32::try_from(self.sets.len()).ok()?,
            length: u32::try_from(draft.sets.len()).ok()?,
        };
        let name = self.append(name)?;
        for (rtype, count, records) in draft.sets {
            let bytes = self.append(&records)?;
            self.sets.push(Set { rtype, count, bytes });
        }
        let index = u32::try_from(self.entries.len()).ok()?;
        let hash = hash(name.of(&self.bytes));
        let Draft { zone, steered, kind, wild, .. } = draft;
        self.entries.push(Entry { name, zone, steered, sets, kind, wild, alias });
        let free = self.probe(hash).find(|at| self.slots.get(*at).is_some_and(Slot::is_free))?;
        *self.slots.get_mut(free)? = Slot { tag: tag(hash), entry: index };
        Some(())
    }

    fn append(&mut self, bytes: &[u8]) -> Option<Span> {
        let start = u32::try_from(self.bytes.len()).ok()?;
        self.bytes.extend_from_slice(bytes);
        Some(Span { start, length: u32::try_from(bytes.len()).ok()? })
    }

    /// The slots that a name with this hash may have, the first choice first.
    fn probe(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let mask = self.slots.len().wrapping_sub(1);
        let first = (hash >> 32) as usize;
        (0..=mask).map(move |step| first.wrapping_add(step) & mask)
    }

    /// The entry of `name` (wire form, lower case).
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Entry> {
        let hash = hash(name);
        for at in self.probe(hash) {
            let slot = self.slots.get(at)?;
            if slot.is_free() {
                return None;
            }
            if slot.tag == tag(hash)
                && let Some(entry) = self.entries.get(slot.entry as usize)
                && entry.name.of(&self.bytes) == name
            {
                return Some(entry);
            }
        }
        None
    }

    /// The sets of a name.
    pub(crate) fn sets(&self, entry: &Entry) -> &[Set] {
        entry.sets.of(&self.sets)
    }

    /// The records of a set, as they stand in an answer to a question for its name.
    pub(crate) fn records(&self, set: &Set) -> Records<'_> {
        Records { bytes: set.bytes.of(&self.bytes), count: set.count }
    }

    /// Number of names.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let entries = self.entries.capacity().saturating_mul(size_of::<Entry>());
        let sets = self.sets.capacity().saturating_mul(size_of::<Set>());
        let slots = self.slots.capacity().saturating_mul(size_of::<Slot>());
        self.bytes.capacity().saturating_add(entries).saturating_add(sets).saturating_add(slots)
    }
}

impl Slot {
    fn is_free(&self) -> bool {
        self.entry == FREE.entry
    }
}

fn tag(hash: u64) -> u32 {
    hash as u32
}

/// Eight bytes at a time, each time multiplied by the golden ratio; the last step spreads what the
/// upper bits know over all.
fn hash(name: &[u8]) -> u64 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = name.len() as u64;
    let mut mix = |word: u64| hash = (hash.rotate_left(25) ^ word).wrapping_mul(GOLDEN);
    let (words, rest) = name.as_chunks::<8>();
    words.iter().for_each(|word| mix(u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    mix(u64::from_le_bytes(last));
    hash ^= hash >> 29;
    hash = hash.wrapping_mul(GOLDEN);
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_and_nothing_else() {
        let names: Vec<Vec<u8>> = (0..20_000u32)
            .map(|i| [&[5u8][..], format!("{i:05}").as_bytes(), b"\x03cdn\x07example\0"].concat())
            .collect();
        let drafts = names.iter().zip(0u32..).map(|(name, i)| {
            let sets = vec![(1u16, 1u16, i.to_be_bytes().to_vec())];
            (name.as_slice(), Draft { zone: i % 7, sets, ..Draft::default() })
        });
        let table = Table::build(drafts.collect::<Vec<_>>().into_iter()).unwrap();
        assert_eq!(table.len(), names.len());
        for (name, i) in names.iter().zip(0u32..) {
            let entry = table.get(name).unwrap();
            assert_eq!(entry.zone, i % 7);
            let [set] = table.sets(entry) else { panic!("one set") };
            let records = table.records(set);
            assert_eq!((records.bytes, records.count), (&i.to_be_bytes()[..], 1));
            let mut other = name.clone();
            other[3] = b'x';
            assert!(table.get(&other).is_none());
        }
        // The longest way to a free slot: with half of them free, short.
        let longest = names.iter().map(|name| {
            let probe = table.probe(hash(name));
            probe.take_while(|at| !table.slots[*at].is_free()).count()
        });
        assert!(longest.max().unwrap() < 64);
        assert!(Table::build(std::iter::empty()).unwrap().get(b"\0").is_none());
    }
}
