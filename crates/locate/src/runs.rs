//! Sorted runs of addresses with an index: the searchable form of a partition of an address space.
//!
//! Used for locations here and for steering classes in `steer`.
//!
//! Invariants of [`Runs`]: the first run starts at address zero, each run ends where the next
//! begins, the last ends at the highest address, and neighbours hold different values. So the run
//! of an address is the widest range around it with one value, and [`prefix_len`] of that run is
//! the shortest true prefix.

/// An IP address as an unsigned number: `u32` or `u128`.
pub trait Bits: Copy + Ord + std::fmt::Debug {
    /// The lowest address.
    const ZERO: Self;
    /// The highest address.
    const MAX: Self;
    /// Length in bits.
    const BITS: u8;
    /// The address before, if any.
    fn before(self) -> Option<Self>;
    /// The address after, if any.
    fn after(self) -> Option<Self>;
    /// How many leading bits this address shares with another one; all of them when equal.
    fn shared_bits(self, other: Self) -> u8;
    /// The leading 16 bits.
    fn top(self) -> u16;
    /// `count` bits, at most 32, behind the leading `from`.
    fn bits(self, from: u8, count: u8) -> usize;
    /// About the same number.
    fn float(self) -> f64;
    /// The address about so many further on; at most the highest.
    fn plus(self, addresses: f64) -> Self;
    /// The address `blocks` blocks of prefix length `length` further on; `None` past the end.
    fn after_blocks(self, blocks: usize, length: u8) -> Option<Self>;
}

macro_rules! bits {
    ($t:ty) => {
        impl Bits for $t {
            const ZERO: Self = 0;
            const MAX: Self = <$t>::MAX;
            const BITS: u8 = <$t>::BITS as u8;
            fn before(self) -> Option<Self> {
                self.checked_sub(1)
            }
            fn after(self) -> Option<Self> {
                self.checked_add(1)
            }
            fn shared_bits(self, other: Self) -> u8 {
                // At most 128.
                (self ^ other).leading_zeros() as u8
            }
            fn top(self) -> u16 {
                (self >> (<$t>::BITS - 16)) as u16
            }
            fn bits(self, from: u8, count: u8) -> usize {
                let left = self.checked_shl(u32::from(from)).unwrap_or(0);
                let bits = left.checked_shr(<$t>::BITS.saturating_sub(u32::from(count)));
                bits.unwrap_or(0) as usize
            }
            fn float(self) -> f64 {
                self as f64
            }
            fn plus(self, addresses: f64) -> Self {
                // A cast of what is too large or negative ends at the ends of the type.
                self.saturating_add(addresses as $t)
            }
            fn after_blocks(self, blocks: usize, length: u8) -> Option<Self> {
                let shift = <$t>::BITS.checked_sub(u32::from(length))?;
                // A block of length 0 is the whole space.
                let size = (1 as $t).checked_shl(shift)?;
                self.checked_add(size.checked_mul(<$t>::try_from(blocks).ok()?)?)
            }
        }
    };
}
bits!(u32);
bits!(u128);

/// Length of the shortest prefix that contains `address` and lies inside `first..=last`, which
/// contains `address`: one bit more than is shared with the nearest addresses outside.
pub fn prefix_len<K: Bits>(address: K, first: K, last: K) -> u8 {
    let beyond = |outside: Option<K>| {
        outside.map_or(0, |outside| address.shared_bits(outside).saturating_add(1))
    };
    beyond(first.before()).max(beyond(last.after()))
}

/// Of ranges `(first, last, value)` that lie inside each other or apart, the innermost at each address:
/// ascending from address zero where each piece begins, `None` where there is no range. They come by
/// their first address, and the outer one first where two begin together.
pub fn innermost<K: Bits>(ranges: impl Iterator<Item = (K, K, u32)>) -> Vec<(K, Option<u32>)> {
    let mut out = vec![(K::ZERO, None)];
    let mut push = |first: K, value: Option<u32>| match out.last_mut() {
        Some((at, last)) if *at == first => *last = value,
        _ => out.push((first, value)),
    };
    // Those that hold the address reached, outermost first.
    let mut open: Vec<(K, u32)> = Vec::new();
    for (first, last, value) in ranges {
        while let Some((end, _)) = open.last().filter(|(end, _)| *end < first).copied() {
            open.pop();
            if let Some(after) = end.after() {
                push(after, open.last().map(|(_, value)| *value));
            }
        }
        push(first, Some(value));
        open.push((last, value));
    }
    while let Some((end, _)) = open.pop() {
        if let Some(after) = end.after() {
            push(after, open.last().map(|(_, value)| *value));
        }
    }
    out
}

/// A walk upwards through runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walker<'a, K, V> {
    runs: &'a Runs<K, V>,
    at: usize,
}

impl<'a, K: Bits, V: Copy + PartialEq> Walker<'a, K, V> {
    pub(crate) fn new(runs: &'a Runs<K, V>) -> Self {
        Self { runs, at: 0 }
    }

    /// Number of runs.
    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    /// The run that holds `address`, which is never below the one asked before.
    pub(crate) fn at(&mut self, address: K) -> Option<Run<K, V>> {
        let mut run = self.runs.get(self.at)?;
        while run.last < address {
            self.at = self.at.saturating_add(1);
            run = self.runs.get(self.at)?;
        }
        Some(run)
    }
}

/// One run of a [`Runs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run<K, V> {
    /// Lowest address.
    pub first: K,
    /// Highest address.
    pub last: K,
    /// What holds from `first` to `last`.
    pub value: V,
}

/// A partition of an address space; see the module for its invariants.
#[derive(Clone, Debug)]
pub struct Runs<K, V> {
    starts: Vec<K>,
    values: Vec<V>,
    /// For each value of the leading 16 bits the run that holds its lowest address.
    index: Vec<u32>,
}

impl<K: Bits, V: Copy + PartialEq> Runs<K, V> {
    /// Joins `runs`, which must be ascending, without gaps, and begin at address zero; equal
    /// neighbours become one. Only `first` and `value` are looked at.
    pub fn from_ascending(runs: impl Iterator<Item = (K, V)>) -> Self {
        let (mut starts, mut values) = (Vec::new(), Vec::new());
        for (first, value) in runs {
            if values.last() != Some(&value) {
                starts.push(first);
                values.push(value);
            }
        }
        starts.shrink_to_fit();
        values.shrink_to_fit();
        let mut index = Vec::with_capacity(1 << 16);
        let mut run: u32 = 0;
        for top in 0..=u16::MAX {
            // The run of the lowest address of `top` is the last that starts there or before.
            while next_starts_at_or_below(&starts, run, top) {
                run = run.saturating_add(1);
            }
            index.push(run);
        }
        Self { starts, values, index }
    }

    /// The run that holds `address`.
    pub fn find(&self, address: K) -> Option<Run<K, V>> {
        let top = usize::from(address.top());
        let low = *self.index.get(top)? as usize;
        let high = match self.index.get(top.saturating_add(1)) {
            Some(run) => (*run as usize).saturating_add(1),
            None => self.starts.len(),
        };
        let above = self.starts.get(low..high)?.partition_point(|start| *start <= address);
        self.get(low.saturating_add(above).checked_sub(1)?)
    }

    /// All runs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Run<K, V>> + '_ {
        (0..self.starts.len()).filter_map(|i| self.get(i))
    }

    /// Number of runs.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there is no run at all: only when nothing was joined.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        self.starts
            .capacity()
            .saturating_mul(size_of::<K>())
            .saturating_add(self.values.capacity().saturating_mul(size_of::<V>()))
            .saturating_add(self.index.capacity().saturating_mul(size_of::<u32>()))
    }

    fn get(&self, i: usize) -> Option<Run<K, V>> {
        let next = self.starts.get(i.saturating_add(1));
        Some(Run {
            first: *self.starts.get(i)?,
            last: next.and_then(|next| next.before()).unwrap_or(K::MAX),
            value: *self.values.get(i)?,
        })
    }
}

/// Whether the run after `run` starts at or below the lowest address whose leading bits are `top`.
fn next_starts_at_or_below<K: Bits>(starts: &[K], run: u32, top: u16) -> bool {
    let Some(next) = starts.get((run as usize).saturating_add(1)) else { return false };
    // Not above `top`'s lowest address: either in an earlier block of leading bits, or that address
    // itself, which is the only one in the block whose predecessor is in another block.
    next.top() < top
        || (next.top() == top && next.before().is_none_or(|before| before.top() != top))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prefix_len_is_the_shortest_inside_the_run() {
        for (address, first, last, length) in [
            (0, 0, u32::MAX, 0),
            (0x0a00_0001, 0x0a00_0000, 0x0aff_ffff, 8),
            (0x0a00_0001, 0x0a00_0001, 0x0a00_0001, 32),
            // Aligned blocks around the address grow only as far as both ends allow.
            (0x0a00_0001, 0x0a00_0000, 0x0a00_0002, 31),
            (0x0a00_0002, 0x0a00_0000, 0x0a00_0002, 32),
            (0, 0, 0x7fff_ffff, 1),
            (u32::MAX, 0x8000_0001, u32::MAX, 2),
        ] {
            assert_eq!(prefix_len(address, first, last), length, "{address:x} {first:x}-{last:x}");
        }
        assert_eq!(prefix_len(1u128 << 127, 1u128 << 127, u128::MAX), 1);
    }

    #[test]
    fn equal_neighbours_are_joined_and_the_ends_belong_to_runs() {
        let runs = Runs::from_ascending(
            [(0u32, 'a'), (5, 'a'), (0x1_0000, 'b'), (0x1_0001, 'c'), (u32::MAX, 'd')].into_iter(),
        );
        let all: Vec<_> = runs.iter().map(|r| (r.first, r.last, r.value)).collect();
        assert_eq!(
            all,
            [
                (0, 0xffff, 'a'),
                (0x1_0000, 0x1_0000, 'b'),
                (0x1_0001, u32::MAX - 1, 'c'),
                (u32::MAX, u32::MAX, 'd')
            ]
        );
        assert_eq!(runs.find(u32::MAX).unwrap().value, 'd');
        assert_eq!(runs.find(0).unwrap().value, 'a');
        let one = Runs::from_ascending([(0u128, 1)].into_iter());
        assert_eq!(one.find(77), Some(Run { first: 0, last: u128::MAX, value: 1 }));
    }

    proptest! {
        #[test]
        fn find_agrees_with_a_linear_scan(
            mut borders in prop::collection::vec((any::<u32>(), 0u8..=32, 0u8..3), 0..40),
            probes in prop::collection::vec(any::<u32>(), 20),
        ) {
            // Borders at round places as well, where blocks of the index begin.
            for (first, shift, _) in &mut borders {
                *first = first.checked_shr((*shift).into()).unwrap_or(0)
                    .checked_shl((*shift).into()).unwrap_or(0);
            }
            borders.push((0, 0, 0));
            borders.sort_unstable();
            borders.dedup_by_key(|(first, ..)| *first);
            let runs = Runs::from_ascending(borders.iter().map(|(first, _, v)| (*first, *v)));
            let edges = borders.iter().flat_map(|(f, ..)| [*f, f.wrapping_sub(1), f.wrapping_add(1)]);
            for at in edges.chain(probes) {
                let slow = borders.iter().rfind(|(first, ..)| *first <= at).unwrap().2;
                let run = runs.find(at).unwrap();
                prop_assert_eq!(run.value, slow);
                prop_assert!(run.first <= at && at <= run.last);
            }
            let all: Vec<_> = runs.iter().collect();
            prop_assert_eq!((all[0].first, all[all.len() - 1].last), (0, u32::MAX));
            for pair in all.windows(2) {
                prop_assert_eq!(pair[0].last + 1, pair[1].first);
                prop_assert_ne!(pair[0].value, pair[1].value);
            }
        }
    }
}
