//! One place of the table: 20 bits of fingerprint, 4 bits of count, 40 bits of time.

use model::Now;

/// Units of the clock are 256 ns: it wraps after 78 hours.
const UNIT_SHIFT: u32 = 8;
const UNITS_PER_S: u64 = 1_000_000_000 >> UNIT_SHIFT;
const TIME_BITS: u32 = 40;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
const COUNT_BITS: u32 = 4;
/// Most that a count may reach.
pub(super) const COUNT_MAX: u8 = (1 << COUNT_BITS) - 1;
const FINGERPRINT_SHIFT: u32 = TIME_BITS + COUNT_BITS;
/// Seconds' worth of tokens that a network may have.
const BURST_S: u64 = 2;

/// What is known of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(pub(super) u64);

impl Place {
    /// With all tokens.
    pub(super) fn new(hash: u64, now: Now) -> Self {
        Self(hash >> FINGERPRINT_SHIFT << FINGERPRINT_SHIFT | units(now))
    }

    pub(super) fn is_of(self, hash: u64) -> bool {
        self.0 >> FINGERPRINT_SHIFT == hash >> FINGERPRINT_SHIFT
    }

    fn count(self) -> u8 {
        u8::try_from(self.0 >> TIME_BITS & u64::from(COUNT_MAX)).unwrap_or(0)
    }

    /// How far ahead of `now` the moment is at which all tokens are there, units.
    pub(super) fn ahead(self, now: Now) -> u64 {
        let ahead = (self.0 & TIME_MASK).wrapping_sub(units(now)) & TIME_MASK;
        // It is never set further ahead than this: what is further was long ago.
        if ahead > (BURST_S + 1).saturating_mul(UNITS_PER_S) { 0 } else { ahead }
    }

    /// Takes a token, of which there are `rate` a second. Without one, the count of limited answers
    /// goes on, and is given: from 0 to `slip - 1` and round again.
    pub(super) fn spend(self, rate: u32, slip: u8, now: Now) -> (Self, Option<u8>) {
        let interval = UNITS_PER_S.checked_div(rate.into()).unwrap_or(UNITS_PER_S).max(1);
        let ahead = self.ahead(now);
        let name = self.0 >> FINGERPRINT_SHIFT << FINGERPRINT_SHIFT;
        if ahead > (BURST_S * UNITS_PER_S).saturating_sub(interval) {
            let count = self.count();
            let next = count.saturating_add(1);
            let next = if next >= slip { 0 } else { next };
            let time = self.0 & TIME_MASK;
            return (Self(name | u64::from(next) << TIME_BITS | time), Some(count));
        }
        let time = units(now).wrapping_add(ahead).wrapping_add(interval) & TIME_MASK;
        (Self(name | u64::from(self.count()) << TIME_BITS | time), None)
    }
}

fn units(now: Now) -> u64 {
    (now.mono_ns >> UNIT_SHIFT) & TIME_MASK
}
