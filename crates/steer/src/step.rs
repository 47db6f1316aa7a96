//! How far a change of routes may go at once (S3).
//!
//! Holds two class tables of the same maps against each other from border to border: how many of the
//! addresses of whom anything is known some map would treat otherwise. Where that is more than may move
//! at once, the change is let in from the lowest address up to a frontier, and the rest waits for the
//! next step.

use std::collections::HashMap;

use locate::runs::Bits;

use crate::table::{ClassId, ClassTable};

/// What a change would move, and how much of it may go at once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Step {
    /// Of the known IPv4 and IPv6 addresses the share that would be treated otherwise, from 0 to 1.
    pub moved: [f64; 2],
    /// The IPv4 address from which on everything stays as it was; `None`: all may go.
    pub frontier_v4: Option<u32>,
    /// The same of IPv6.
    pub frontier_v6: Option<u128>,
}

impl Step {
    /// From `old` to `new`, which are of the same maps, when at most `limit` (above 0, up to 1) of the
    /// addresses of a family may move at once.
    pub fn between(old: &ClassTable, new: &ClassTable, limit: f64) -> Self {
        let mut same = Same { old, new, known: HashMap::new() };
        let [known_v4, known_v6] = new.known();
        let v4 = Family::of(old.ranges_v4(), new.ranges_v4(), &mut same);
        let v6 = Family::of(old.ranges_v6(), new.ranges_v6(), &mut same);
        Self {
            moved: [v4.share(known_v4), v6.share(known_v6)],
            frontier_v4: v4.frontier(known_v4, limit),
            frontier_v6: v6.frontier(known_v6, limit),
        }
    }

    /// Whether the whole change may go at once.
    pub fn is_whole(&self) -> bool {
        self.frontier_v4.is_none() && self.frontier_v6.is_none()
    }
}

/// Whether every map treats two classes alike.
struct Same<'a> {
    old: &'a ClassTable,
    new: &'a ClassTable,
    known: HashMap<(ClassId, ClassId), bool>,
}

impl Same<'_> {
    fn is_same(&mut self, old: ClassId, new: ClassId) -> bool {
        let (before, after) = (self.old, self.new);
        *self.known.entry((old, new)).or_insert_with(|| {
            before.maps().all(|map| before.audience(map, old) == after.audience(map, new))
        })
    }
}

/// What moves in one family: ascending ranges.
struct Family<K> {
    moved: Vec<(K, K)>,
}

impl<K: Bits> Family<K> {
    fn of(
        old: impl Iterator<Item = (K, ClassId)>,
        new: impl Iterator<Item = (K, ClassId)>,
        same: &mut Same<'_>,
    ) -> Self {
        let (mut old, mut new) = (old.peekable(), new.peekable());
        let (mut before, mut after) = (ClassId::default(), ClassId::default());
        let mut moved: Vec<(K, K)> = Vec::new();
        let mut next = Some(K::ZERO);
        while let Some(first) = next {
            while let Some((_, class)) = old.next_if(|(start, _)| *start <= first) {
                before = class;
            }
            while let Some((_, class)) = new.next_if(|(start, _)| *start <= first) {
                after = class;
            }
            let borders = [old.peek().map(|(at, _)| *at), new.peek().map(|(at, _)| *at)];
            next = borders.into_iter().flatten().min();
            if !same.is_same(before, after) {
                moved.push((first, next.and_then(Bits::before).unwrap_or(K::MAX)));
            }
        }
        Self { moved }
    }

    fn addresses(&self) -> f64 {
        self.moved.iter().map(|(first, last)| span(*first, *last)).sum()
    }

    fn share(&self, known: f64) -> f64 {
        let moved = self.addresses();
        // What moves was known before, if not now.
        if moved > 0.0 { moved / known.max(moved) } else { 0.0 }
    }

    /// The address at which the budget is used up.
    fn frontier(&self, known: f64, limit: f64) -> Option<K> {
        let moved = self.addresses();
        let budget = (known.max(moved) * limit).max(1.0);
        if moved <= budget {
            return None;
        }
        let mut left = budget;
        for (first, last) in &self.moved {
            let all = span(*first, *last);
            if all > left {
                // Within the range: no rounding leads beyond it.
                return Some(first.plus(left).min(*last));
            }
            left -= all;
        }
        None
    }
}

fn span<K: Bits>(first: K, last: K) -> f64 {
    last.float() - first.float() + 1.0
}
