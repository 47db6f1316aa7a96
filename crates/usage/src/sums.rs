//! What was sent, by key: bytes and requests, and what was measured of the ways there.
//!
//! Memory is bounded by [`KEYS_MAX`] and [`KEY_BYTES_MAX`]; what comes for further keys, and for longer
//! ones, is counted together as others.

use std::collections::{BTreeMap, HashMap};

use crate::Way;

/// Most keys that are told apart: more than there are AS numbers in use.
pub const KEYS_MAX: usize = 100_000;
/// Longest key and longest word of a limit, bytes: names and hosts have fewer, but a line of a log may
/// say anything.
pub const KEY_BYTES_MAX: usize = 512;
/// Most words of limits that are told apart: there are fewer.
const LIMITS_MAX: usize = 16;

/// How much was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count {
    /// Bytes of content.
    pub bytes: u64,
    /// Requests.
    pub requests: u64,
}

impl Count {
    /// More of it.
    pub fn add(&mut self, more: Self) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.requests = self.requests.saturating_add(more.requests);
    }
}

/// What belongs to one key.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    /// What was sent.
    pub count: Count,
    /// What was measured; nothing when no line of a connection told.
    pub ways: Option<Box<Ways>>,
}

impl Sum {
    fn add(&mut self, more: Self) {
        self.count.add(more.count);
        match (&mut self.ways, more.ways) {
            (Some(ways), Some(more)) => ways.add(&more),
            (ways @ None, more) => *ways = more,
            (Some(_), None) => {}
        }
    }
}

/// What was sent, by key, and in all.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    by_key: HashMap<Box<[u8]>, Sum>,
    /// For keys beyond [`KEYS_MAX`] or longer than [`KEY_BYTES_MAX`].
    pub others: Sum,
    /// All of it, whether under a key or not.
    pub all: Count,
    /// Of it, what could not be counted under any key.
    pub unknown: Count,
    limits: BTreeMap<Box<[u8]>, Count>,
    /// When the first and the last of it ended, milliseconds since 1970 UTC.
    pub period_ms: Option<(u64, u64)>,
}

/// What an answer is counted under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// Under this key; an empty one is that of what nobody knows.
    Key(&'a [u8]),
    /// In the sum of all alone.
    Nowhere,
    /// As unknown: the log does not say.
    Unknown,
}

impl Sums {
    /// Counts an answer; `limit` is the word of what held it back, or empty.
    pub fn add(&mut self, place: Place<'_>, bytes: u64, limit: &[u8], ended_ms: u64) {
        let one = Count { bytes, requests: 1 };
        match place {
            Place::Key(key) => self.sum(key).count.add(one),
            Place::Nowhere => {}
            Place::Unknown => self.unknown.add(one),
        }
        self.all.add(one);
        if !limit.is_empty() {
            self.limit(limit).add(one);
        }
        let (first, last) = self.period_ms.unwrap_or((ended_ms, ended_ms));
        self.period_ms = Some((first.min(ended_ms), last.max(ended_ms)));
    }

    /// Counts a connection.
    pub fn add_way(&mut self, key: &[u8], way: &Way) {
        self.sum(key).ways.get_or_insert_default().count(way);
    }

    /// Adds what was counted elsewhere.
    pub fn merge(&mut self, more: Self) {
        for (key, sum) in more.by_key {
            self.sum(&key).add(sum);
        }
        self.others.add(more.others);
        self.all.add(more.all);
        self.unknown.add(more.unknown);
        for (word, count) in more.limits {
            self.limit(&word).add(count);
        }
        self.period_ms = match (self.period_ms, more.period_ms) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (one, other) => one.or(other),
        };
    }

    /// Every key with its sum, in no order.
    pub fn by_key(&self) -> impl ExactSizeIterator<Item = (&[u8], &Sum)> {
        self.by_key.iter().map(|(key, sum)| (&**key, sum))
    }

    /// What limits held back, by their words, in order.
    pub fn limits(&self) -> impl Iterator<Item = (&[u8], Count)> {
        self.limits.iter().map(|(word, count)| (&**word, *count))
    }

    fn sum(&mut self, key: &[u8]) -> &mut Sum {
        if !self.by_key.contains_key(key) {
            if self.by_key.len() >= KEYS_MAX || key.len() > KEY_BYTES_MAX {
                return &mut self.others;
            }
            self.by_key.insert(key.into(), Sum::default());
        }
        self.by_key.get_mut(key).unwrap_or(&mut self.others)
    }

    fn limit(&mut self, word: &[u8]) -> &mut Count {
        let has_room = self.limits.len() < LIMITS_MAX && word.len() <= KEY_BYTES_MAX;
        let is_known = has_room || self.limits.contains_key(word);
        let word = if is_known { word } else { b"others" };
        self.limits.entry(word.into()).or_default()
    }
}

/// Quarters of octaves, up to an hour and more.
const BUCKETS: usize = 128;

/// What was measured of many connections.
#[derive(Clone, Debug)]
pub struct Ways {
    /// How many.
    pub connections: u64,
    /// Segments or packets sent.
    pub sent_segments: u64,
    /// Of these, those sent again.
    pub retransmitted_segments: u64,
    /// Shortest round trips, in buckets a quarter of an octave wide.
    round_trips: [u32; BUCKETS],
    /// Connections for which a rate was measured, and the sum of the rates, bytes per second.
    rates: (u64, u64),
}

impl Default for Ways {
    fn default() -> Self {
        Self {
            connections: 0,
            sent_segments: 0,
            retransmitted_segments: 0,
            round_trips: [0; BUCKETS],
            rates: (0, 0),
        }
    }
}

impl Ways {
    /// Counts a connection.
    pub fn count(&mut self, way: &Way) {
        self.connections = self.connections.saturating_add(1);
        self.sent_segments = self.sent_segments.saturating_add(way.sent_segments);
        let again = self.retransmitted_segments.saturating_add(way.retransmitted_segments);
        self.retransmitted_segments = again;
        if way.min_rtt_us > 0
            && let Some(bucket) = self.round_trips.get_mut(bucket_of(way.min_rtt_us))
        {
            *bucket = bucket.saturating_add(1);
        }
        if way.delivery_rate > 0 {
            let (number, sum) = self.rates;
            self.rates = (number.saturating_add(1), sum.saturating_add(way.delivery_rate));
        }
    }

    fn add(&mut self, more: &Self) {
        self.connections = self.connections.saturating_add(more.connections);
        self.sent_segments = self.sent_segments.saturating_add(more.sent_segments);
        let again = self.retransmitted_segments.saturating_add(more.retransmitted_segments);
        self.retransmitted_segments = again;
        for (bucket, more) in self.round_trips.iter_mut().zip(more.round_trips) {
            *bucket = bucket.saturating_add(more);
        }
        let ((number, sum), (more, rates)) = (self.rates, more.rates);
        self.rates = (number.saturating_add(more), sum.saturating_add(rates));
    }

    /// Median of the shortest round trips, microseconds, within an eighth; nothing when none was
    /// measured.
    pub fn median_rtt_us(&self) -> Option<u64> {
        let all: u64 = self.round_trips.iter().map(|n| u64::from(*n)).sum();
        let mut left = all.div_ceil(2).checked_sub(1)?;
        for (at, number) in self.round_trips.iter().enumerate() {
            match left.checked_sub(u64::from(*number)) {
                Some(rest) => left = rest,
                None => return Some(middle_of(at)),
            }
        }
        None
    }

    /// Mean of the rates at which bytes arrived, bytes per second; nothing when none was measured.
    pub fn mean_rate(&self) -> Option<u64> {
        self.rates.1.checked_div(self.rates.0)
    }
}

/// Below 4 each value has its own bucket; above, each octave has four.
fn bucket_of(us: u64) -> usize {
    let Some(octave) = us.checked_ilog2().and_then(|log| log.checked_sub(2)) else {
        return us as usize;
    };
    let quarter = us >> octave & 3;
    let bucket = u64::from(octave).saturating_add(1).saturating_mul(4).saturating_add(quarter);
    usize::try_from(bucket).unwrap_or(BUCKETS).min(BUCKETS.saturating_sub(1))
}

/// The value in the middle of a bucket.
fn middle_of(bucket: usize) -> u64 {
    let Some(octave) = (bucket / 4).checked_sub(1) else { return bucket as u64 };
    let least = (bucket as u64 % 4).saturating_add(4) << octave;
    least.saturating_add((1 << octave) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(min_rtt_us: u64, delivery_rate: u64) -> Way {
        Way {
            acked_bytes: 0,
            sent_segments: 10,
            retransmitted_segments: 1,
            min_rtt_us,
            delivery_rate,
        }
    }

    #[test]
    fn what_is_counted_in_parts_is_counted_as_a_whole() {
        let parts = [("a", 5, "paced"), ("b", 7, ""), ("a", 11, ""), ("", 1, "paced")];
        let mut whole = Sums::default();
        let mut merged = Sums::default();
        for (i, (key, bytes, limit)) in parts.into_iter().enumerate() {
            let mut part = Sums::default();
            for sums in [&mut whole, &mut part] {
                sums.add(Place::Key(key.as_bytes()), bytes, limit.as_bytes(), 100 - i as u64);
                sums.add_way(key.as_bytes(), &way(bytes, bytes));
            }
            merged.merge(part);
        }
        for sums in [whole, merged] {
            let a = sums.by_key().find(|(key, _)| *key == b"a").unwrap().1;
            assert_eq!(a.count, Count { bytes: 16, requests: 2 });
            let ways = a.ways.as_ref().unwrap();
            assert_eq!(
                (ways.connections, ways.sent_segments, ways.retransmitted_segments),
                (2, 20, 2)
            );
            assert_eq!(ways.mean_rate(), Some(8));
            assert_eq!(sums.all, Count { bytes: 24, requests: 4 });
            assert_eq!(sums.by_key().len(), 3);
            let limits: Vec<_> = sums.limits().collect();
            assert_eq!(limits, [(&b"paced"[..], Count { bytes: 6, requests: 2 })]);
            assert_eq!(sums.period_ms, Some((97, 100)));
        }
    }

    #[test]
    fn keys_and_words_without_end_take_no_more_memory() {
        let mut sums = Sums::default();
        for i in 0..KEYS_MAX + 10 {
            let text = i.to_string();
            sums.add(Place::Key(text.as_bytes()), 1, text.as_bytes(), 0);
        }
        sums.add(Place::Key(b"0"), 1, b"", 0);
        assert_eq!(sums.by_key().len(), KEYS_MAX);
        assert_eq!(sums.others.count, Count { bytes: 10, requests: 10 });
        assert_eq!(sums.limits().count(), LIMITS_MAX + 1);
        sums.merge(sums.clone());
        assert_eq!((sums.by_key().len(), sums.others.count.requests), (KEYS_MAX, 20));
    }

    /// A megabyte of a key for each line would be gigabytes.
    #[test]
    fn keys_and_words_that_are_too_long_are_counted_together() {
        let (longest, longer) = (vec![b'a'; KEY_BYTES_MAX], vec![b'a'; KEY_BYTES_MAX + 1]);
        let mut sums = Sums::default();
        for key in [&longest, &longer, &longer] {
            sums.add(Place::Key(key), 1, key, 0);
        }
        sums.merge(sums.clone());
        let keys: Vec<_> = sums.by_key().map(|(key, sum)| (key, sum.count.requests)).collect();
        assert_eq!(keys, [(&longest[..], 2)]);
        assert_eq!((sums.others.count.requests, sums.all.requests), (4, 6));
        let limits: Vec<_> = sums.limits().map(|(word, count)| (word, count.requests)).collect();
        assert_eq!(limits, [(&longest[..], 2), (&b"others"[..], 4)]);
    }

    #[test]
    fn a_median_is_right_within_an_eighth() {
        for us in (0..100_000).chain((17..32).map(|log| (1 << log) + 12_345)) {
            let (bucket, next) = (bucket_of(us), bucket_of(us + 1));
            assert!(next == bucket || next == bucket + 1, "{us}");
            assert!(middle_of(bucket).abs_diff(us) <= us / 8, "{us} {}", middle_of(bucket));
        }
        assert!(bucket_of(u64::MAX) < BUCKETS);
        let mut ways = Ways::default();
        assert_eq!((ways.median_rtt_us(), ways.mean_rate()), (None, None));
        for us in [0, 3, 2, 100_000, 1] {
            ways.count(&way(us, 0));
        }
        assert_eq!(ways.median_rtt_us(), Some(2), "0 was not measured");
    }
}
