//! What an upstream's status means for what is held and for who waits (invariant E4 of the
//! architecture): an error never replaces or evicts what is good, and is not believed at once.

use std::collections::BTreeMap;

use http::StatusCode;
use model::{Name, Now};

use crate::freshness::Policy;

const SECOND_NS: u64 = 1_000_000_000;
/// How long two equal 404 or 410 are answered without asking, if the project does not say.
const NEGATIVE_GONE_S: u64 = 30;
/// How long two equal other errors are; doubled with each further one up to the longest.
const NEGATIVE_FIRST_NS: u64 = SECOND_NS;
const NEGATIVE_LONGEST_NS: u64 = 30 * SECOND_NS;
/// An error this long ago says nothing any more.
const FORGOTTEN_NS: u64 = 60 * SECOND_NS;
/// How far apart two sightings of a removal by one master must be.
const REMOVAL_APART_NS: u64 = 30 * SECOND_NS;

/// What a final upstream status means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Meaning {
    /// Content or a redirect: what was asked for.
    Good,
    /// 304: what is held is still right.
    NotModified,
    /// 412 or 416: the representation we asked ranges of is not there any more.
    Changed,
    /// 404 or 410: gone, once it is confirmed.
    Gone,
    /// 408, 421, 425, 429, 5xx, or no final status: says nothing of the object.
    Transient,
    /// Any other 4xx: this request is refused; what is held stays.
    Refused,
}

/// The meaning of a status.
pub fn meaning(status: StatusCode) -> Meaning {
    match status.as_u16() {
        304 => Meaning::NotModified,
        200..=399 => Meaning::Good,
        404 | 410 => Meaning::Gone,
        412 | 416 => Meaning::Changed,
        408 | 421 | 425 | 429 => Meaning::Transient,
        400..=499 => Meaning::Refused,
        _ => Meaning::Transient,
    }
}

impl Meaning {
    /// Whether another master may do better: one may lag behind, be overloaded or broken.
    pub fn try_another_master(self) -> bool {
        matches!(self, Self::Transient | Self::Gone | Self::Changed)
    }

    /// Whether a stale representation that is held is served instead, if its directives allow. A
    /// removal that is not confirmed yet counts as an error here.
    pub fn prefers_stale(self) -> bool {
        matches!(self, Self::Transient | Self::Gone)
    }
}

/// Whether a new head may take the place of a held one: an error never replaces content.
pub fn may_replace(held: StatusCode, new: StatusCode) -> bool {
    let is_error = |s: StatusCode| s.as_u16() >= 400;
    is_error(held) || !is_error(new)
}

/// The errors lately seen for one key, by replies without explicit freshness. Two equal ones in a
/// row start a negative entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorRun {
    /// 0 when nothing was seen.
    status: u16,
    count: u32,
    last_ns: u64,
    negative_until_ns: u64,
}

impl ErrorRun {
    /// An error reply came. A status that is no error is a good reply. The project's policy says how
    /// long a 404 or 410 is remembered.
    pub fn handle_error(&mut self, now: Now, status: StatusCode, policy: &Policy) {
        if status.as_u16() < 400 {
            return self.handle_good();
        }
        if self.status != status.as_u16() || self.is_forgotten(now) {
            *self = Self { status: status.as_u16(), ..Self::default() };
        }
        self.count = self.count.saturating_add(1);
        self.last_ns = now.mono_ns;
        if let Some(doublings) = self.count.checked_sub(2) {
            let length_ns = match meaning(status) {
                Meaning::Gone => {
                    policy.negative_ttl_s.unwrap_or(NEGATIVE_GONE_S).saturating_mul(SECOND_NS)
                }
                _ => NEGATIVE_FIRST_NS
                    .saturating_mul(1u64.checked_shl(doublings).unwrap_or(u64::MAX))
                    .min(NEGATIVE_LONGEST_NS),
            };
            self.negative_until_ns = now.mono_ns.saturating_add(length_ns);
        }
    }

    /// A good reply came: all is forgotten.
    pub fn handle_good(&mut self) {
        *self = Self::default();
    }

    /// The status to answer at once, without asking; `None` when upstream is to be asked.
    pub fn negative(&self, now: Now) -> Option<StatusCode> {
        let holds = now.mono_ns < self.negative_until_ns;
        holds.then(|| StatusCode::from_u16(self.status).ok()).flatten()
    }

    /// Whether it says nothing any more and may be thrown away.
    pub fn is_forgotten(&self, now: Now) -> bool {
        self.status == 0 || now.mono_ns.saturating_sub(self.last_ns) >= FORGOTTEN_NS
    }
}

/// What masters said of an object that is held and that one of them does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    seen: BTreeMap<Name, Sighting>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sighting {
    first_ns: u64,
    last_ns: u64,
}

impl Removal {
    /// A master said 404 or 410.
    pub fn handle_gone(&mut self, now: Now, master: &Name) {
        self.seen
            .entry(master.clone())
            .and_modify(|s| s.last_ns = now.mono_ns)
            .or_insert(Sighting { first_ns: now.mono_ns, last_ns: now.mono_ns });
    }

    /// A master has it: all is forgotten.
    pub fn handle_present(&mut self) {
        self.seen.clear();
    }

    /// Whether the object counts as removed: every healthy master said so at least twice, 30 s
    /// apart. Without a healthy master nothing is removed.
    pub fn is_confirmed<'a>(&self, healthy: impl IntoIterator<Item = &'a Name>) -> bool {
        let mut healthy = healthy.into_iter().peekable();
        healthy.peek().is_some()
            && healthy.all(|master| {
                self.seen
                    .get(master)
                    .is_some_and(|s| s.last_ns.saturating_sub(s.first_ns) >= REMOVAL_APART_NS)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::START;

    fn status(n: u16) -> StatusCode {
        StatusCode::from_u16(n).unwrap()
    }

    #[test]
    fn meanings() {
        use Meaning::*;
        // (status, meaning, another master, stale instead)
        for (n, want, another, stale) in [
            (200, Good, false, false),
            (206, Good, false, false),
            (301, Good, false, false),
            (304, NotModified, false, false),
            (400, Refused, false, false),
            (401, Refused, false, false),
            (403, Refused, false, false),
            (404, Gone, true, true),
            (408, Transient, true, true),
            (410, Gone, true, true),
            (412, Changed, true, false),
            (416, Changed, true, false),
            (421, Transient, true, true),
            (429, Transient, true, true),
            (451, Refused, false, false),
            (500, Transient, true, true),
            (503, Transient, true, true),
            (599, Transient, true, true),
            (100, Transient, true, true),
            (999, Transient, true, true),
        ] {
            let got = meaning(status(n));
            assert_eq!(got, want, "{n}");
            assert_eq!((got.try_another_master(), got.prefers_stale()), (another, stale), "{n}");
        }
    }

    #[test]
    fn errors_never_replace_content() {
        for (held, new, want) in [
            (200, 200, true),
            (200, 301, true),
            (200, 404, false),
            (301, 500, false),
            (404, 200, true),
            (404, 404, true),
            (503, 404, true),
        ] {
            assert_eq!(may_replace(status(held), status(new)), want, "{held} by {new}");
        }
    }

    /// Plays `(seconds, status)` and returns how long after the last the negative entry holds.
    fn negative_s(policy: &Policy, played: &[(u64, u16)]) -> u64 {
        let mut run = ErrorRun::default();
        let mut last = START;
        for (at_s, n) in played {
            last = START.plus_ms(at_s * 1000);
            run.handle_error(last, status(*n), policy);
        }
        (0..100).find(|s| run.negative(last.plus_ms(s * 1000)).is_none()).unwrap()
    }

    #[test]
    fn two_equal_errors_in_a_row_start_a_negative_entry() {
        for (played, want_s) in [
            (&[(0, 404)][..], 0),
            (&[(0, 404), (1, 404)], 30),
            (&[(0, 410), (1, 410), (40, 410)], 30),
            (&[(0, 404), (1, 410)], 0),
            (&[(0, 404), (1, 500), (2, 404)], 0),
            (&[(0, 500), (1, 500)], 1),
            (&[(0, 503), (1, 503), (2, 503)], 2),
            (&[(0, 503), (1, 503), (2, 503), (4, 503)], 4),
            (&[(0, 503), (1, 503), (2, 503), (4, 503), (8, 503), (16, 503), (32, 503)], 30),
            (&[(0, 403), (1, 403)], 1),
            // A minute of silence: the first is no longer "in a row".
            (&[(0, 404), (60, 404)], 0),
            (&[(0, 404), (59, 404)], 30),
            (&[(0, 404), (1, 200), (2, 404)], 0),
        ] {
            assert_eq!(negative_s(&Policy::default(), played), want_s, "{played:?}");
        }
        for negative_ttl_s in [0, 5, 90] {
            let policy = Policy { negative_ttl_s: Some(negative_ttl_s), ..Policy::default() };
            assert_eq!(negative_s(&policy, &[(0, 404), (1, 404)]), negative_ttl_s);
            assert_eq!(negative_s(&policy, &[(0, 503), (1, 503)]), 1);
        }
    }

    #[test]
    fn the_backoff_never_overflows() {
        let mut run = ErrorRun::default();
        for s in 0..200 {
            run.handle_error(START.plus_ms(s * 1000), status(500), &Policy::default());
        }
        let last = START.plus_ms(199_000);
        assert_eq!(run.negative(last.plus_ms(29_999)), Some(status(500)));
        assert_eq!(run.negative(last.plus_ms(30_000)), None);
        assert!(run.is_forgotten(last.plus_ms(60_000)));
        run.handle_good();
        assert_eq!(run, ErrorRun::default());
    }

    #[test]
    fn removal_needs_all_healthy_masters_twice() {
        let (m1, m2): (Name, Name) = ("m1".parse().unwrap(), "m2".parse().unwrap());
        let at = |s: u64| START.plus_ms(s * 1000);
        let mut removal = Removal::default();
        removal.handle_gone(at(0), &m1);
        removal.handle_gone(at(29), &m1);
        assert!(!removal.is_confirmed([&m1]));
        removal.handle_gone(at(30), &m1);
        assert!(removal.is_confirmed([&m1]));
        assert!(!removal.is_confirmed([&m1, &m2]));
        assert!(!removal.is_confirmed([]));
        removal.handle_gone(at(30), &m2);
        removal.handle_gone(at(60), &m2);
        assert!(removal.is_confirmed([&m1, &m2]));
        removal.handle_present();
        assert!(!removal.is_confirmed([&m1]));
    }
}
