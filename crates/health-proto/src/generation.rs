//! The number of a published map, and the readers that have a say in it (invariant H2).

use std::collections::BTreeMap;

use model::{Name, Now};

/// A generation that is this far ahead of our clock, milliseconds, is not believed, whoever says it.
/// Readers refuse maps that are further ahead, so nobody can have it from an honest publisher.
pub const AHEAD_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// Readers remembered. Above it the one that has been silent longest makes room, if that was for
/// [`SILENT_MS_MIN`]; else the newcomer is not remembered.
pub const READERS_MAX: usize = 1024;

/// A reader that polled within this time, milliseconds, keeps its place: readers poll at least once
/// a minute, and whoever makes up names must not push them out.
pub const SILENT_MS_MIN: u64 = 10 * 60 * 1000;

/// A follower of the node map, as its last poll told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader {
    /// The generation it runs.
    pub generation: u64,
    /// When it polled last.
    pub polled: Now,
    /// Its generation is a day or more ahead of our clock: it will refuse what we publish.
    pub ahead: bool,
}

/// The generation of this publisher.
///
/// Invariants: [`Generation::next`] is never more than a day ahead of the clock, because no reader
/// would take that. Short of it, it grows whatever the clock does, and exceeds what every believable
/// reader has.
#[derive(Debug, Default)]
pub(crate) struct Generation {
    last: u64,
    readers_highest: u64,
    readers: BTreeMap<Name, Reader>,
    left_out: u64,
    disbelieved: Option<Disbelieved>,
}

/// That a map of this publisher was numbered so far ahead of the clock that no reader took it, and
/// that the clock counts from now on. One of the two times is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disbelieved {
    /// The generation of that map, Unix time in milliseconds.
    pub generation: u64,
    /// What the clock said, Unix time in milliseconds.
    pub clock_ms: u64,
}

/// Whether `generation` is so far ahead of the clock that it is not believed.
fn is_ahead(generation: u64, now: Now) -> bool {
    generation >= now.wall_ms.saturating_add(AHEAD_MS_MAX)
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

    /// Polls of readers that were not remembered, because the table was full of others.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// What [`Generation::next`] did not believe since this was last asked.
    pub(crate) fn take_disbelieved(&mut self) -> Option<Disbelieved> {
        self.disbelieved.take()
    }

    /// The generation of the map published now.
    pub(crate) fn next(&mut self, now: Now) -> u64 {
        if is_ahead(self.last, now) {
            self.disbelieved = Some(Disbelieved { generation: self.last, clock_ms: now.wall_ms });
            self.last = 0;
        }
        // It was believed by a clock that said something else.
        if is_ahead(self.readers_highest, now) {
            self.readers_highest = 0;
        }
        let floor = self.last.max(self.readers_highest).saturating_add(1);
        self.last = floor.max(now.wall_ms);
        self.last
    }

    /// Notes a poll. Says whether the reader has a newer map than we published, so that it would
    /// refuse ours until we publish again.
    pub(crate) fn note_reader(&mut self, now: Now, name: Name, generation: u64) -> bool {
        let ahead = is_ahead(generation, now);
        if self.readers.contains_key(&name) || self.make_room(now) {
            self.readers.insert(name, Reader { generation, polled: now, ahead });
        } else {
            self.left_out = self.left_out.saturating_add(1);
        }
        if ahead {
            return false;
        }
        self.readers_highest = self.readers_highest.max(generation);
        self.readers_highest > self.last
    }

    /// Notes what another checker published: what we publish next is above it.
    pub(crate) fn note_peer(&mut self, now: Now, generation: u64) {
        if !is_ahead(generation, now) {
            self.readers_highest = self.readers_highest.max(generation);
        }
    }

    /// Makes room for one more reader; tells whether there is.
    fn make_room(&mut self, now: Now) -> bool {
        if self.readers.len() < READERS_MAX {
            return true;
        }
        let silent = self.readers.iter().min_by_key(|(_, r)| r.polled.mono_ns);
        let Some((silent, reader)) = silent.map(|(name, reader)| (name.clone(), *reader)) else {
            return false;
        };
        let silent_ms = now.mono_ns.saturating_sub(reader.polled.mono_ns) / 1_000_000;
        let gone = silent_ms >= SILENT_MS_MIN;
        if gone {
            self.readers.remove(&silent);
        }
        gone
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
            // A day ahead is too much, from readers as from ourselves.
            (0, 4_999 + AHEAD_MS_MAX, 5_000, 5_000 + AHEAD_MS_MAX),
            (0, 5_000 + AHEAD_MS_MAX, 5_000, 5_000),
            (4_999 + AHEAD_MS_MAX, 0, 5_000, 5_000 + AHEAD_MS_MAX),
            (5_000 + AHEAD_MS_MAX, 0, 5_000, 5_000),
            (u64::MAX, 0, 5_000, 5_000),
            (u64::MAX, u64::MAX, 5_000, 5_000),
            (u64::MAX, 7_000, 5_000, 7_001),
            // What a reader has was believed by another clock.
            (0, 9_000, 1_000, 9_001),
            (0, 5_000 + AHEAD_MS_MAX / 2, 1, 5_001 + AHEAD_MS_MAX / 2),
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
    fn the_table_of_readers_is_bounded_and_forgets_only_the_silent() {
        let mut generation = Generation::default();
        let name = |i: u64| format!("r{i}").parse::<Name>().unwrap();
        let all = READERS_MAX as u64;
        for i in 0..all {
            generation.note_reader(T.plus_ms(i), name(i), 1);
        }
        // All polled lately: whoever comes now is heard, but nobody makes room.
        for stranger in all..2 * all {
            assert!(generation.note_reader(T.plus_ms(SILENT_MS_MIN - 1), name(stranger), stranger));
        }
        assert_eq!((generation.readers().len(), generation.left_out()), (READERS_MAX, all));
        assert!((0..all).all(|i| generation.readers().contains_key(name(i).as_str())));
        assert_eq!(generation.next(T), T.wall_ms);
        // A known reader takes nobody's place, and what it has is seen.
        generation.note_reader(T.plus_ms(SILENT_MS_MIN), name(0), 2);
        assert_eq!(generation.readers()["r0"].generation, 2);
        // The one that is silent longest makes room when that is long enough.
        generation.note_reader(T.plus_ms(SILENT_MS_MIN + 1), name(all), 1);
        let has = |i: u64| generation.readers().contains_key(name(i).as_str());
        assert_eq!([0, 1, 2, all].map(has), [true, false, true, true]);
        assert_eq!((generation.readers().len(), generation.left_out()), (READERS_MAX, all));
    }

    #[test]
    fn a_clock_that_was_far_ahead_is_given_up_once_it_is_right() {
        let mut generation = Generation::after(T.wall_ms);
        let wrong = Now { wall_ms: T.wall_ms + 2 * AHEAD_MS_MAX, ..T };
        assert_eq!(generation.next(wrong), wrong.wall_ms);
        generation.note_reader(wrong, "r".parse().unwrap(), wrong.wall_ms + 7);
        assert_eq!(generation.take_disbelieved(), None);
        let right = T.plus_ms(10);
        assert_eq!(generation.next(right), right.wall_ms);
        let disbelieved = Disbelieved { generation: wrong.wall_ms, clock_ms: right.wall_ms };
        assert_eq!(generation.take_disbelieved(), Some(disbelieved));
        assert_eq!(generation.next(right), right.wall_ms + 1);
        assert_eq!(generation.take_disbelieved(), None);
    }

    /// Times within some days of each other, and any.
    fn near() -> impl Strategy<Value = u64> {
        prop_oneof![4 => 0..20 * AHEAD_MS_MAX, 1 => any::<u64>()]
    }

    proptest! {
        #[test]
        fn generations_grow_and_are_never_more_than_a_day_ahead(
            last in near(),
            steps in prop::collection::vec((near(), near()), 1..20),
        ) {
            let mut generation = Generation::after(last);
            let mut before = last;
            for (wall_ms, reader) in steps {
                let now = Now { mono_ns: 0, wall_ms: wall_ms / 4 };
                generation.note_reader(now, "r".parse().unwrap(), reader);
                let next = generation.next(now);
                let given_up = generation.take_disbelieved();
                prop_assert_eq!(given_up.is_some(), before >= now.wall_ms + AHEAD_MS_MAX);
                prop_assert!(next > before || given_up.is_some());
                prop_assert!((now.wall_ms..=now.wall_ms + AHEAD_MS_MAX).contains(&next));
                before = next;
            }
        }
    }
}
