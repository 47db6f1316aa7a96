//! The number of a published map, and the readers that have a say in it (invariant H2).

use std::collections::BTreeMap;

use model::{Name, Now};

/// How far ahead of our clock a reader's generation may be and still count, milliseconds. Readers
/// refuse maps that are further ahead, so a generation beyond it can be nobody's honest map.
pub const AHEAD_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// Readers remembered. Above it the one that has been silent longest is forgotten.
pub const READERS_MAX: usize = 1024;

/// A follower of the node map, as its last poll told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader {
    /// The generation it runs.
    pub generation: u64,
    /// When it polled last.
    pub polled: Now,
    /// Its generation is more than a day ahead of our clock: it will refuse what we publish.
    pub ahead: bool,
}

/// The generation of this publisher.
///
/// Invariant: [`Generation::next`] grows, whatever the clock does, and exceeds what every believable
/// reader has.
#[derive(Debug, Default)]
pub(crate) struct Generation {
    last: u64,
    readers_highest: u64,
    readers: BTreeMap<Name, Reader>,
}

impl Generation {
    /// Goes on after `last`, the highest this publisher remembers.
    pub(crate) fn after(last: u64) -> Self {
        Self { last, ..Self::default() }
    }

    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    pub(crate) fn readers(&self) -> &BTreeMap<Name, Reader> {
        &self.readers
    }

    /// The generation of the map published now.
    pub(crate) fn next(&mut self, now: Now) -> u64 {
        let floor = self.last.max(self.readers_highest).saturating_add(1);
        self.last = floor.max(now.wall_ms);
        self.last
    }

    /// Notes a poll. Says whether the reader has a newer map than we published, so that it would
    /// refuse ours until we publish again.
    pub(crate) fn note_reader(&mut self, now: Now, name: Name, generation: u64) -> bool {
        let ahead = generation > now.wall_ms.saturating_add(AHEAD_MS_MAX);
        if self.readers.len() >= READERS_MAX && !self.readers.contains_key(&name) {
            let silent = self.readers.iter().min_by_key(|(_, r)| r.polled.mono_ns);
            if let Some(silent) = silent.map(|(name, _)| name.clone()) {
                self.readers.remove(&silent);
            }
        }
        self.readers.insert(name, Reader { generation, polled: now, ahead });
        if ahead {
            return false;
        }
        self.readers_highest = self.readers_highest.max(generation);
        self.readers_highest > self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const T: Now = Now { mono_ns: 0, wall_ms: 5_000 };

    #[test]
    fn the_rule_in_cases() {
        // (last, highest reader, clock) -> next
        for (last, reader, wall_ms, next) in [
            (0, 0, 5_000, 5_000),
            (4_999, 0, 5_000, 5_000),
            (5_000, 0, 5_000, 5_001),
            (9_000, 0, 5_000, 9_001),
            (0, 7_000, 5_000, 7_001),
            (0, 5_000 + AHEAD_MS_MAX, 5_000, 5_001 + AHEAD_MS_MAX),
            (0, 5_001 + AHEAD_MS_MAX, 5_000, 5_000),
        ] {
            let mut generation = Generation::after(last);
            generation.note_reader(T, "r".parse().unwrap(), reader);
            assert_eq!(generation.next(Now { wall_ms, ..T }), next, "{last} {reader} {wall_ms}");
        }
    }

    #[test]
    fn a_reader_that_is_newer_asks_for_a_new_map_once() {
        let mut generation = Generation::after(6_000);
        let name: Name = "r".parse().unwrap();
        assert!(!generation.note_reader(T, name.clone(), 6_000));
        assert!(generation.note_reader(T, name.clone(), 6_001));
        assert_eq!(generation.next(T), 6_002);
        assert!(!generation.note_reader(T, name.clone(), 6_001));
        assert!(!generation.note_reader(T, name.clone(), u64::MAX));
        assert!(generation.readers()[&name].ahead);
    }

    #[test]
    fn the_table_of_readers_is_bounded_and_forgets_the_silent() {
        let mut generation = Generation::default();
        for i in 0..=READERS_MAX as u64 {
            generation.note_reader(T.plus_ms(i), format!("r{i}").parse().unwrap(), 1);
        }
        assert_eq!(generation.readers().len(), READERS_MAX);
        assert!(!generation.readers().contains_key("r0"));
        assert!(generation.readers().contains_key("r1"));
        // A known reader takes nobody's place.
        generation.note_reader(T.plus_ms(9_999), "r1".parse().unwrap(), 2);
        assert!(generation.readers().contains_key("r2"));
    }

    proptest! {
        #[test]
        fn generations_grow_whatever_clock_and_readers_say(
            last: u64,
            steps in prop::collection::vec((any::<u64>(), any::<u64>()), 1..20),
        ) {
            let mut generation = Generation::after(last / 2);
            let mut before = generation.last();
            for (wall_ms, reader) in steps {
                let now = Now { mono_ns: 0, wall_ms: wall_ms / 4 };
                generation.note_reader(now, "r".parse().unwrap(), reader);
                let next = generation.next(now);
                prop_assert!(next > before);
                prop_assert!(next >= now.wall_ms);
                before = next;
            }
        }
    }
}
