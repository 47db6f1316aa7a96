//! SIEVE: which of many things to throw out first.
//!
//! A queue in order of arrival and a hand that walks it from the oldest to the newest. What was
//! used since the hand last passed keeps its place and loses its mark; the first unmarked thing
//! goes. Unlike LRU a hit moves nothing, and one scan of new things cannot push out what is used:
//! newcomers that nobody asks for again are the first to go.
//!
//! (Zhang et al., "SIEVE is Simpler than LRU", NSDI 2024.)

/// What the judge of [`Sieve::victim`] says of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Not used since the hand last passed: it may go.
    Evict,
    /// Was used; the judge has just cleared its mark.
    Spare,
    /// In use now: leave it as it is.
    Pinned,
}

/// The queue. Things are named by the slot that [`Sieve::insert`] gives.
#[derive(Debug)]
pub(crate) struct Sieve<T> {
    nodes: Vec<Node<T>>,
    /// Slots to be used again.
    free: Vec<u32>,
    newest: Link,
    oldest: Link,
    /// Where the hand looks next; nowhere: at the oldest.
    hand: Link,
}

#[derive(Debug)]
struct Node<T> {
    value: Option<T>,
    newer: Link,
    older: Link,
}

/// A slot or nowhere, in four bytes: there is one pair for each object that has its own file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link(u32);

impl Link {
    const NOWHERE: Self = Self(u32::MAX);

    fn slot(self) -> Option<u32> {
        (self != Self::NOWHERE).then_some(self.0)
    }
}

impl<T> Default for Sieve<T> {
    fn default() -> Self {
        let nowhere = Link::NOWHERE;
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            newest: nowhere,
            oldest: nowhere,
            hand: nowhere,
        }
    }
}

impl<T> Sieve<T> {
    /// Adds a newest thing. `None` when four thousand million are in already.
    pub(crate) fn insert(&mut self, value: T) -> Option<u32> {
        let node = Node { value: Some(value), newer: Link::NOWHERE, older: self.newest };
        let slot = match self.free.pop() {
            Some(slot) => {
                *self.nodes.get_mut(index(slot))? = node;
                slot
            }
            None => {
                let slot = u32::try_from(self.nodes.len()).ok().filter(|slot| *slot < u32::MAX)?;
                self.nodes.push(node);
                slot
            }
        };
        match std::mem::replace(&mut self.newest, Link(slot)).slot() {
            Some(before) => self.link(before, |node| node.newer = Link(slot)),
            None => self.oldest = Link(slot),
        }
        Some(slot)
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        self.nodes.get(index(slot))?.value.as_ref()
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<T> {
        let node = self.nodes.get_mut(index(slot))?;
        let value = node.value.take()?;
        let (newer, older) = (node.newer, node.older);
        match newer.slot() {
            Some(newer) => self.link(newer, |node| node.older = older),
            None => self.newest = older,
        }
        match older.slot() {
            Some(older) => self.link(older, |node| node.newer = newer),
            None => self.oldest = newer,
        }
        if self.hand == Link(slot) {
            self.hand = newer;
        }
        self.free.push(slot);
        Some(value)
    }

    /// Moves the hand to the first thing that `judge` lets go, and stays behind it. `None` when
    /// two rounds find nothing: the first takes the marks, the second all but the pinned.
    pub(crate) fn victim(&mut self, mut judge: impl FnMut(&T) -> Fate) -> Option<u32> {
        let steps = self.nodes.len().saturating_mul(2);
        for _ in 0..steps {
            let slot = self.hand.slot().or(self.oldest.slot())?;
            let node = self.nodes.get(index(slot))?;
            self.hand = node.newer;
            if judge(node.value.as_ref()?) == Fate::Evict {
                return Some(slot);
            }
        }
        None
    }

    /// Bytes of memory, by capacity.
    pub(crate) fn bytes(&self) -> usize {
        let nodes = self.nodes.capacity().saturating_mul(size_of::<Node<T>>());
        nodes.saturating_add(self.free.capacity().saturating_mul(size_of::<u32>()))
    }

    fn link(&mut self, slot: u32, change: impl FnOnce(&mut Node<T>)) {
        if let Some(node) = self.nodes.get_mut(index(slot)) {
            change(node);
        }
    }
}

fn index(slot: u32) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use std::cell::Cell;
    use std::collections::HashMap;

    use model::Dice;
    use proptest::prelude::*;

    use super::*;

    fn evict(sieve: &mut Sieve<(char, Cell<bool>)>) -> Option<char> {
        let slot = sieve.victim(|(_, visited)| match visited.replace(false) {
            true => Fate::Spare,
            false => Fate::Evict,
        })?;
        sieve.remove(slot).map(|(name, _)| name)
    }

    /// The example of the paper: A, D and G were used; the hand goes from the tail.
    #[test]
    fn the_hand_spares_what_was_used_and_stays_where_it_is() {
        let mut sieve = Sieve::default();
        for name in "ABCDEFG".chars() {
            sieve.insert((name, Cell::new("ADG".contains(name)))).unwrap();
        }
        assert_eq!(evict(&mut sieve), Some('B'));
        sieve.insert(('H', Cell::new(false))).unwrap();
        assert_eq!(evict(&mut sieve), Some('C'));
        sieve.insert(('I', Cell::new(false))).unwrap();
        assert_eq!(evict(&mut sieve), Some('E'));
        assert_eq!(evict(&mut sieve), Some('F'));
        assert_eq!(evict(&mut sieve), Some('H'));
        assert_eq!(evict(&mut sieve), Some('I'));
        assert_eq!(evict(&mut sieve), Some('A'));
        assert_eq!(evict(&mut sieve), Some('D'));
        assert_eq!(evict(&mut sieve), Some('G'));
        assert_eq!(evict(&mut sieve), None);
    }

    #[test]
    fn pinned_things_stay_and_nothing_else_means_none() {
        let mut sieve = Sieve::default();
        let a = sieve.insert('a').unwrap();
        let b = sieve.insert('b').unwrap();
        assert_eq!(sieve.victim(|_| Fate::Pinned), None);
        assert_eq!(sieve.victim(|c| if *c == 'a' { Fate::Pinned } else { Fate::Evict }), Some(b));
        assert_eq!(sieve.remove(b), Some('b'));
        assert_eq!(sieve.remove(b), None);
        assert_eq!(sieve.victim(|_| Fate::Evict), Some(a));
    }

    /// A working set that fits survives a scan of ten times the room; LRU would lose all of it.
    #[test]
    fn a_scan_does_not_push_out_what_is_used() {
        let room = 100;
        let mut sieve: Sieve<(u64, Cell<bool>)> = Sieve::default();
        let mut slots: HashMap<u64, u32> = HashMap::new();
        let mut dice = Dice::seeded(1);
        let mut misses_of_used = 0;
        for step in 0..100_000u64 {
            let used = step % 2 == 0;
            let name = if used { dice.below(50) } else { 1_000 + step };
            if let Some((_, visited)) = slots.get(&name).and_then(|slot| sieve.get(*slot)) {
                visited.set(true);
                continue;
            }
            misses_of_used += u64::from(used);
            if slots.len() == room {
                let slot =
                    sieve.victim(
                        |(_, visited)| {
                            if visited.replace(false) { Fate::Spare } else { Fate::Evict }
                        },
                    );
                let (gone, _) = sieve.remove(slot.unwrap()).unwrap();
                slots.remove(&gone);
            }
            slots.insert(name, sieve.insert((name, Cell::new(false))).unwrap());
        }
        assert!(
            misses_of_used <= 150,
            "{misses_of_used} misses of 50 things asked for 50,000 times"
        );
    }

    proptest! {
        /// Against a plain list: any order of inserts, uses, removals and evictions.
        #[test]
        fn agrees_with_a_plain_list(steps in prop::collection::vec((0u8..4, any::<u8>()), 1..200)) {
            let mut sieve: Sieve<(u32, Cell<bool>)> = Sieve::default();
            let mut list: Vec<(u32, bool, u32)> = Vec::new();
            let mut hand = 0;
            let mut next = 0;
            for (step, dice) in steps {
                let at = usize::from(dice) % list.len().max(1);
                match step {
                    0 => {
                        let slot = sieve.insert((next, Cell::new(false))).unwrap();
                        list.push((next, false, slot));
                        next += 1;
                    }
                    1 if !list.is_empty() => {
                        list[at].1 = true;
                        sieve.get(list[at].2).unwrap().1.set(true);
                    }
                    2 if !list.is_empty() => {
                        let (name, _, slot) = list.remove(at);
                        hand -= usize::from(at < hand);
                        prop_assert_eq!(sieve.remove(slot).unwrap().0, name);
                    }
                    _ => {
                        let slot = sieve.victim(|(_, visited)| match visited.replace(false) {
                            true => Fate::Spare,
                            false => Fate::Evict,
                        });
                        if list.is_empty() {
                            prop_assert_eq!(slot, None);
                            continue;
                        }
                        loop {
                            hand %= list.len();
                            if !std::mem::replace(&mut list[hand].1, false) { break; }
                            hand += 1;
                        }
                        let (name, _, expected) = list.remove(hand);
                        prop_assert_eq!(slot, Some(expected));
                        prop_assert_eq!(sieve.remove(expected).unwrap().0, name);
                    }
                }
                // A hand past the end means "the oldest" as soon as it is used, and so does 0,
                // but a thing that arrives meanwhile is in front of a hand past the end.
                if hand >= list.len() { hand = 0; }
            }
            let mut order = Vec::new();
            while let Some((name, _)) = sieve.oldest.slot().and_then(|slot| sieve.remove(slot)) {
                order.push(name);
            }
            prop_assert_eq!(order, list.into_iter().map(|(name, _, _)| name).collect::<Vec<_>>());
        }
    }
}
