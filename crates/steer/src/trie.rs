//! Address -> class and scope in a few memory accesses: the searchable form of a class table.
//!
//! A table of entries for the leading bits, then tables of 256 entries for 8 bits more each. An entry
//! says the class of its whole block, or leads to a list of the few runs in it, or to the next table.
//! Blocks with few runs get a list, so that neither memory nor depth grows with what is sparse.
//!
//! Scopes need no other look-up. Where a whole block has one class, the shortest prefix around any
//! address of it is the same, and stands in the entry. Where it has not, the shortest prefix is longer
//! than the block's, so that it ends at a border inside the block, which the list has.

use locate::runs::{Bits, Run, prefix_len};

use crate::table::{ClassId, Hit};

/// Bits of a table behind the first.
const STRIDE: u8 = 8;
/// Most runs in a list: two or three cache lines are searched.
const LIST_MAX: usize = 24;

/// What the two highest bits of an entry say. Then: class and scope, or the place of a table, or the
/// place of a list and its length.
const KIND: u32 = 0b11 << 30;
const LEAF: u32 = 0;
const TABLE: u32 = 0b01 << 30;
const LIST: u32 = 0b10 << 30;
/// Bits of the length of a list, above its place.
const LENGTH_SHIFT: u32 = 25;
const PLACE: u32 = (1 << LENGTH_SHIFT) - 1;
const LENGTH: u32 = !KIND >> LENGTH_SHIFT;

/// The classes of an address space.
#[derive(Clone, Debug)]
pub(crate) struct Trie<K> {
    /// Bits of the first table.
    first_bits: u8,
    entries: Vec<u32>,
    /// Of all lists: where each run begins inside its block, and its class.
    starts: Vec<K>,
    classes: Vec<ClassId>,
    /// Number of runs.
    len: usize,
}

/// There are more runs than entries can lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl<K: Bits> Trie<K> {
    /// Of runs that are ascending, without gaps, and begin at address zero; equal neighbours become
    /// one. The first table is for the leading `first_bits` bits.
    pub(crate) fn build(first_bits: u8, mut runs: Vec<(K, ClassId)>) -> Result<Self, TooLarge> {
        runs.dedup_by_key(|(_, class)| *class);
        // Room that is not needed costs nothing, and growing step by step would hold all of it twice.
        let room = runs.len().saturating_mul(2);
        let mut trie = Self {
            first_bits,
            entries: Vec::with_capacity(room.saturating_add(1 << first_bits)),
            starts: Vec::with_capacity(room),
            classes: Vec::with_capacity(room),
            len: runs.len(),
        };
        trie.table(&runs, K::ZERO, 0, first_bits)?;
        drop(runs);
        trie.entries.shrink_to_fit();
        trie.starts.shrink_to_fit();
        trie.classes.shrink_to_fit();
        Ok(trie)
    }

    /// Appends a table for the `bits` bits behind the `depth` leading ones of `base`, and all that it
    /// leads to. `runs` begins with the run that holds `base`.
    fn table(
        &mut self,
        runs: &[(K, ClassId)],
        base: K,
        depth: u8,
        bits: u8,
    ) -> Result<(), TooLarge> {
        let size = 1usize << bits;
        let begin = self.entries.len();
        self.entries.resize(begin.saturating_add(size), LEAF);
        let length = depth.saturating_add(bits);
        let (mut runs, mut at) = (runs, 0);
        while at < size
            && let Some(first) = base.after_blocks(at, length)
        {
            runs = from(runs, first);
            let Some(run) = run_at(runs, 0) else { break };
            let next = first.after_blocks(1, length);
            let last = next.and_then(Bits::before).unwrap_or(K::MAX);
            let (entry, blocks) = if run.last >= last {
                // As many blocks as the scope spans: it begins here, or it would have begun before.
                let scope = prefix_len(first, run.first, run.last);
                let blocks = 1usize << length.saturating_sub(scope).min(bits);
                (leaf(run.value, scope), blocks)
            } else {
                let inside = runs.partition_point(|(start, _)| *start <= last);
                let (inside, _) = runs.split_at_checked(inside).unwrap_or_default();
                (self.inner(inside, first, length)?, 1)
            };
            let place = begin.saturating_add(at);
            let places = self.entries.get_mut(place..place.saturating_add(blocks));
            places.into_iter().for_each(|places| places.fill(entry));
            at = at.saturating_add(blocks);
        }
        Ok(())
    }

    /// The entry for a block of several runs, and what it leads to.
    fn inner(&mut self, runs: &[(K, ClassId)], first: K, length: u8) -> Result<u32, TooLarge> {
        let place = |at: usize| u32::try_from(at).ok().filter(|at| *at <= PLACE).ok_or(TooLarge);
        if runs.len() > LIST_MAX && length.saturating_add(STRIDE) <= K::BITS {
            let place = place(self.entries.len())?;
            self.table(runs, first, length, STRIDE)?;
            return Ok(TABLE | place);
        }
        let place = place(self.starts.len())?;
        let count = u32::try_from(runs.len()).ok().filter(|count| *count <= LENGTH);
        let count = count.ok_or(TooLarge)?;
        self.starts.extend(runs.iter().map(|(start, _)| (*start).max(first)));
        self.classes.extend(runs.iter().map(|(_, class)| *class));
        Ok(LIST | count << LENGTH_SHIFT | place)
    }

    /// The class of an address, and the shortest prefix of that class around it.
    pub(crate) fn find(&self, address: K) -> Hit {
        let mut entry = self.entry(address.bits(0, self.first_bits));
        let mut depth = self.first_bits;
        while entry & KIND == TABLE {
            let table = (entry & PLACE) as usize;
            entry = self.entry(table.saturating_add(address.bits(depth, STRIDE)));
            depth = depth.saturating_add(STRIDE);
        }
        if entry & KIND == LEAF {
            return Hit { class: ClassId::of(entry as u16), scope: (entry >> 16) as u8 };
        }
        let place = (entry & PLACE) as usize;
        let length = ((entry & !KIND) >> LENGTH_SHIFT) as usize;
        let end = place.saturating_add(length);
        let starts = self.starts.get(place..end).unwrap_or_default();
        // The first run of a list begins with the block.
        let above = starts.partition_point(|start| *start <= address);
        let at = above.saturating_sub(1);
        let class = self.classes.get(place.saturating_add(at));
        // Beyond the ends of the block nothing is nearer than the border inside it.
        let before = starts.get(at).filter(|_| at > 0).and_then(|start| start.before());
        let beyond = |outside: K| address.shared_bits(outside).saturating_add(1);
        let scope = before.map_or(0, beyond).max(starts.get(above).map_or(0, |next| beyond(*next)));
        Hit { class: class.copied().unwrap_or_default(), scope }
    }

    fn entry(&self, at: usize) -> u32 {
        self.entries.get(at).copied().unwrap_or_default()
    }

    /// All runs, ascending: first address and class.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (K, ClassId)> + '_ {
        let mut next = Some(K::ZERO);
        let mut last_class = None;
        std::iter::from_fn(move || {
            loop {
                let at = next?;
                let hit = self.find(at);
                // The scope of an address at its border begins there.
                next = at.after_blocks(1, hit.scope);
                if last_class != Some(hit.class) {
                    last_class = Some(hit.class);
                    return Some((at, hit.class));
                }
            }
        })
    }

    /// Number of runs.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        let starts = self.starts.capacity().saturating_mul(size_of::<K>());
        let classes = self.classes.capacity().saturating_mul(size_of::<ClassId>());
        let entries = self.entries.capacity().saturating_mul(size_of::<u32>());
        entries.saturating_add(starts).saturating_add(classes)
    }
}

fn leaf(class: ClassId, scope: u8) -> u32 {
    LEAF | u32::from(scope) << 16 | u32::from(class.get())
}

/// The runs from the one that holds `address` on. It is near the front: whoever builds goes upwards.
fn from<K: Bits>(runs: &[(K, ClassId)], address: K) -> &[(K, ClassId)] {
    let mut left = runs;
    while let [_, rest @ ..] = left
        && rest.first().is_some_and(|(start, _)| *start <= address)
    {
        left = rest;
    }
    left
}

/// The run at an index. The slice may end before the space does: its last run then seems to reach the
/// end, which is beyond every block that is looked at.
fn run_at<K: Bits>(runs: &[(K, ClassId)], at: usize) -> Option<Run<K, ClassId>> {
    let (first, value) = *runs.get(at)?;
    let next = runs.get(at.saturating_add(1)).and_then(|(next, _)| next.before());
    Some(Run { first, last: next.unwrap_or(K::MAX), value })
}

#[cfg(test)]
mod tests {
    use locate::runs::Runs;
    use proptest::prelude::*;

    use super::*;

    /// Holds a trie against sorted runs, at each border and beside it.
    fn assert_agrees<K: Bits>(first_bits: u8, mut borders: Vec<(K, u16)>, more: Vec<K>) {
        borders.push((K::ZERO, 0));
        borders.sort_unstable();
        borders.dedup_by_key(|(first, _)| *first);
        let all = || borders.iter().map(|(first, class)| (*first, ClassId::of(*class)));
        let runs = Runs::from_ascending(all());
        let trie = Trie::build(first_bits, all().collect()).unwrap();
        let near = borders.iter().flat_map(|(at, _)| [Some(*at), at.before(), at.after()]);
        for at in near.flatten().chain(more).chain([K::MAX]) {
            let run = runs.find(at).unwrap();
            let scope = prefix_len(at, run.first, run.last);
            assert_eq!(trie.find(at), Hit { class: run.value, scope }, "{at:x?}");
        }
        let found: Vec<_> = trie.runs().collect();
        let expected: Vec<_> = runs.iter().map(|run| (run.first, run.value)).collect();
        assert_eq!((trie.len(), found), (expected.len(), expected));
    }

    #[test]
    fn every_address_of_its_own_is_found_in_the_deepest_tables() {
        let borders = |base: u32| (0..600u32).map(move |n| (base + n, (n % 7) as u16)).collect();
        assert_agrees(20, borders(0xc000_0200), vec![]);
        assert_agrees(16, borders(u32::MAX - 599), vec![]);
        let borders = |base: u128| (0..600u128).map(move |n| (base + n, (n % 7) as u16)).collect();
        assert_agrees(16, borders(0x2001_0db8 << 96), vec![]);
        assert_agrees(16, borders(u128::MAX - 599), vec![]);
    }

    #[test]
    fn one_class_is_one_run() {
        assert_agrees::<u32>(20, vec![(7, 0), (1 << 31, 0)], vec![]);
        assert_agrees::<u128>(16, vec![(7, 0)], vec![1 << 127]);
    }

    proptest! {
        #[test]
        fn agrees_with_sorted_runs_in_both_families(
            base in any::<u128>(),
            borders in prop::collection::vec((any::<u128>(), 0u32..128, 0u16..4), 0..300),
            more in prop::collection::vec(any::<u128>(), 20),
        ) {
            // Crowded around one place, and anywhere; at round addresses too.
            let place = |(bits, shift): (u128, u32)| base ^ (bits >> shift);
            let round = |bits: u128, shift: u32| bits & !(u128::MAX >> (shift % 64));
            let v6 = borders.iter().flat_map(|(bits, shift, class)| {
                [(place((*bits, *shift)), *class), (round(*bits, *shift), class ^ 1)]
            });
            let v6: Vec<_> = v6.collect();
            let v4: Vec<_> = v6.iter().map(|(bits, class)| ((bits >> 96) as u32, *class)).collect();
            assert_agrees(20, v4, more.iter().map(|bits| *bits as u32).collect());
            assert_agrees(16, v6, more);
        }
    }
}
