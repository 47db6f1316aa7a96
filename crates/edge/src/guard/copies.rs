//! How often one network has had one object today: a table of fixed size, counted in full copies.
//!
//! A network is a /24 of IPv4 or a /48 of IPv6, a day one of UTC. What a response will bring counts from
//! its beginning, and what it did not bring is given back at its end: a hundred downloads at once
//! count as a hundred.
//!
//! Each pair of object and network has two places, by a keyed hash. When both are taken by others, the
//! one of a former day makes room, else the one with fewer copies: what is forgotten under pressure is
//! whoever had least. Time is an argument.

use std::hash::{DefaultHasher, Hasher};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::Now;
use store::Key;

/// Pairs of places, in parts that are locked apart: 4 MiB.
const PARTS: usize = 64;
const PLACES_OF_PART: usize = 1024;
/// Smaller objects are not counted: index files that whole networks ask for all day, pages, pictures.
pub(crate) const COUNTED_BYTES_MIN: u64 = 10 << 20;
const DAY_S: u64 = 24 * 60 * 60;

/// Who asks for what, as the table knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair(u64);

/// What a network has had of an object today.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Had {
    /// Of whom: 0 of nobody.
    pair: u64,
    /// Which day, since 1970.
    day: u64,
    bytes: u64,
    /// Of the object.
    length: u64,
}

impl Had {
    fn copies(&self) -> u64 {
        self.bytes.checked_div(self.length).unwrap_or(0)
    }

    /// In the order in which places make room: free ones first, those of former days, then of whoever had fewer copies.
    fn is_less_than(&self, other: &Self) -> bool {
        let share = |one: &Self, by: &Self| u128::from(one.bytes).saturating_mul(by.length.into());
        let has_less = self.day == other.day && share(self, other) < share(other, self);
        self.pair == 0 || self.day < other.day || has_less
    }
}

/// Places that are locked together.
type Part = Box<[[Had; 2]]>;

/// The table.
#[derive(Debug)]
pub(crate) struct Copies {
    parts: Box<[Mutex<Part>]>,
    seed: u64,
}

/// What an entry of the table came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Full copies before.
    pub(crate) copies: u64,
    /// Somebody else of today was forgotten for it.
    pub(crate) displaced: bool,
}

impl Copies {
    /// `seed`: nobody outside knows it, so that nobody can choose who is forgotten.
    pub(crate) fn new(seed: u64) -> Self {
        let part = || Mutex::new(vec![[Had::default(); 2]; PLACES_OF_PART].into());
        Self { parts: (0..PARTS).map(|_| part()).collect(), seed }
    }

    /// The network of `client`, for this object.
    pub(crate) fn pair(&self, object: &Key, client: IpAddr) -> Pair {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.seed);
        hasher.write(&object.0);
        hasher.write_u64(network(client));
        Pair(hasher.finish() | 1)
    }

    fn part(&self, Pair(pair): Pair) -> Option<(MutexGuard<'_, Part>, usize)> {
        let place = usize::try_from(pair >> 1).unwrap_or(usize::MAX);
        let part = self.parts.get(place.rem_euclid(PARTS))?;
        let place = place.div_euclid(PARTS).rem_euclid(PLACES_OF_PART);
        Some((part.lock().unwrap_or_else(PoisonError::into_inner), place))
    }

    /// Full copies that the network had of the object today.
    pub(crate) fn had(&self, pair: Pair, now: Now) -> u64 {
        let Some((part, place)) = self.part(pair) else { return 0 };
        let mut places = part.get(place).into_iter().flatten();
        let found = places.find(|had| had.pair == pair.0 && had.day == day(now));
        found.map_or(0, Had::copies)
    }

    /// A response will bring `bytes` of an object of `length`.
    pub(crate) fn add(&self, pair: Pair, length: u64, bytes: u64, now: Now) -> Counted {
        let mut counted = Counted { copies: 0, displaced: false };
        let Some((mut part, place)) = self.part(pair) else { return counted };
        let Some([one, other]) = part.get_mut(place) else { return counted };
        let today = day(now);
        let is_of = |had: &Had| had.pair == pair.0;
        let had = match (is_of(one), is_of(other)) {
            (true, _) => one,
            (_, true) => other,
            _ if other.is_less_than(one) => other,
            _ => one,
        };
        // Another length is another content under the same name.
        if had.pair != pair.0 || had.day != today || had.length != length {
            counted.displaced = had.pair != pair.0 && had.day == today;
            *had = Had { pair: pair.0, day: today, bytes: 0, length };
        }
        counted.copies = had.copies();
        had.bytes = had.bytes.saturating_add(bytes);
        counted
    }

    /// Of what was [added](Self::add) at `then`, so many bytes did not leave.
    pub(crate) fn give_back(&self, pair: Pair, length: u64, bytes: u64, then: Now) {
        let Some((mut part, place)) = self.part(pair) else { return };
        let mut places = part.get_mut(place).into_iter().flatten();
        let is_it =
            |had: &&mut Had| had.pair == pair.0 && had.day == day(then) && had.length == length;
        if let Some(had) = places.find(is_it) {
            had.bytes = had.bytes.saturating_sub(bytes);
        }
    }
}

/// The /24 or /48 of an address.
pub(crate) fn network(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(v4) => u64::from(u32::from(v4) >> 8),
        // A bit that no other prefix has.
        IpAddr::V6(v6) => u64::try_from(u128::from(v6) >> 80).unwrap_or(u64::MAX) | 1 << 63,
    }
}

fn day(now: Now) -> u64 {
    now.wall_s().div_euclid(DAY_S)
}

/// Seconds until tomorrow, UTC; at least one.
pub(crate) fn until_tomorrow_s(now: Now) -> u64 {
    DAY_S.saturating_sub(now.wall_s().rem_euclid(DAY_S)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: u64 = 100;
    const OBJECT: Key = Key([7; 16]);

    fn at(s: u64) -> Now {
        Now { mono_ns: 0, wall_ms: s * 1000 }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_is_a_24_or_a_48_and_mapped_addresses_are_of_ipv4() {
        for (a, b, same) in [
            ("192.0.2.1", "192.0.2.254", true),
            ("192.0.2.1", "192.0.3.1", false),
            ("192.0.2.1", "::ffff:192.0.2.9", true),
            ("2001:db8:1::1", "2001:db8:1:ffff::9", true),
            ("2001:db8:1::1", "2001:db8:2::1", false),
            ("0.0.0.1", "::1", false),
        ] {
            assert_eq!(network(ip(a)) == network(ip(b)), same, "{a} {b}");
        }
    }

    #[test]
    fn full_copies_are_counted_in_bytes_until_the_day_is_over() {
        let copies = Copies::new(1);
        let pair = copies.pair(&OBJECT, ip("192.0.2.1"));
        let add = |bytes, s| copies.add(pair, LENGTH, bytes, at(s)).copies;
        assert_eq!(add(99, 5), 0);
        assert_eq!(add(1, 6), 0);
        assert_eq!(add(250, 7), 1);
        assert_eq!(copies.had(pair, at(DAY_S - 1)), 3);
        assert_eq!(copies.had(copies.pair(&OBJECT, ip("192.0.3.1")), at(7)), 0);
        assert_eq!(copies.had(copies.pair(&Key([8; 16]), ip("192.0.2.1")), at(7)), 0);
        assert_eq!(copies.had(pair, at(DAY_S)), 0);
        assert_eq!(add(200, DAY_S), 0);
        assert_eq!(add(0, DAY_S), 2);
    }

    #[test]
    fn what_did_not_leave_is_given_back_to_its_own_day_and_content() {
        let copies = Copies::new(1);
        let pair = copies.pair(&OBJECT, ip("192.0.2.1"));
        copies.add(pair, LENGTH, 300, at(5));
        copies.give_back(pair, LENGTH, 150, at(5));
        assert_eq!(copies.had(pair, at(6)), 1);
        copies.give_back(pair, LENGTH + 1, 100, at(5));
        assert_eq!(copies.had(pair, at(6)), 1, "of another content");
        copies.add(pair, LENGTH, 100, at(DAY_S));
        copies.give_back(pair, LENGTH, 100, at(5));
        assert_eq!(copies.had(pair, at(DAY_S)), 1, "of another day");
        copies.add(pair, LENGTH + 1, 0, at(DAY_S));
        assert_eq!(copies.had(pair, at(DAY_S)), 0, "the object is another");
    }

    #[test]
    fn seconds_until_tomorrow() {
        for (s, left) in [(0, DAY_S), (1, DAY_S - 1), (DAY_S - 1, 1), (DAY_S, DAY_S)] {
            assert_eq!(until_tomorrow_s(at(s)), left, "{s}");
        }
    }

    /// A million networks displace each other, and not one that had much today; its size is fixed.
    #[test]
    fn under_pressure_the_least_is_forgotten() {
        let copies = Copies::new(1);
        let greedy = copies.pair(&OBJECT, ip("192.0.2.1"));
        copies.add(greedy, LENGTH, 10 * LENGTH, at(5));
        let mut displaced = 0u64;
        for n in 0..1_000_000u32 {
            let pair = copies.pair(&OBJECT, IpAddr::V6((u128::from(n) << 80 | 1 << 127).into()));
            displaced += u64::from(copies.add(pair, LENGTH, LENGTH, at(6)).displaced);
        }
        assert_eq!(copies.had(greedy, at(7)), 10);
        let places = (PARTS * PLACES_OF_PART * 2) as u64;
        assert!(displaced >= 1_000_000 - places, "{displaced}");
        // Of yesterday, however much it was, it makes room.
        assert_eq!(copies.had(greedy, at(DAY_S)), 0);
    }
}
