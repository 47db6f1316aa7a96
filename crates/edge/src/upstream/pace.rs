//! How fast one source is read, or all of them together: a budget of bytes.
//!
//! Who has read bytes books them and waits until the budget has them; TCP then holds the source
//! back. All requests share one budget.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use model::{Now, Rate};

/// What may be read at once after a pause, in time.
const BURST_NS: u64 = 100_000_000;

/// No limit, as bytes per second.
const FREE: u64 = u64::MAX;

/// A budget.
#[derive(Debug)]
pub(crate) struct Pace {
    bytes_per_s: AtomicU64,
    booked: AtomicU64,
    /// When all that was booked will have been paid for.
    paid_ns: Mutex<u64>,
}

impl Pace {
    /// At most `rate`; none is no limit.
    pub(crate) fn new(rate: Option<Rate>) -> Self {
        let pace = Self { bytes_per_s: FREE.into(), booked: 0.into(), paid_ns: Mutex::default() };
        pace.set_rate(rate);
        pace
    }

    /// From now on at most `rate`; none is no limit.
    pub(crate) fn set_rate(&self, rate: Option<Rate>) {
        self.bytes_per_s.store(rate.map_or(FREE, |rate| rate.0.div_ceil(8).max(1)), Relaxed);
    }

    /// Bytes read so far.
    pub(crate) fn booked(&self) -> u64 {
        self.booked.load(Relaxed)
    }

    /// These bytes were read. Gives how long nothing more is to be read.
    pub(crate) fn book(&self, bytes: usize, now: Now) -> Duration {
        self.booked.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Relaxed);
        let rate = self.bytes_per_s.load(Relaxed);
        if rate == FREE {
            return Duration::ZERO;
        }
        let bytes = u128::try_from(bytes).unwrap_or(u128::MAX);
        let cost_ns = bytes.saturating_mul(1_000_000_000).checked_div(rate.into()).unwrap_or(0);
        let cost_ns = u64::try_from(cost_ns).unwrap_or(u64::MAX);
        let mut paid_ns = self.paid_ns.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest_ns = now.mono_ns.saturating_sub(BURST_NS);
        *paid_ns = (*paid_ns).max(earliest_ns).saturating_add(cost_ns);
        Duration::from_nanos(paid_ns.saturating_sub(now.mono_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_too_early_is_waited_for() {
        let t = Now::default().plus_ms(10_000);
        let ms = Duration::from_millis;
        assert_eq!(Pace::new(None).book(usize::MAX, t), Duration::ZERO);
        // 1000 bytes a second.
        let pace = Pace::new(Some(Rate(8000)));
        assert_eq!(pace.book(100, t), Duration::ZERO, "the burst");
        assert_eq!(pace.book(100, t), ms(100));
        assert_eq!(pace.book(100, t.plus_ms(50)), ms(150), "all share it");
        assert_eq!(pace.book(0, t.plus_ms(200)), Duration::ZERO);
        assert_eq!(
            pace.book(200, t.plus_ms(10_000)),
            ms(100),
            "a pause gives no more than a burst"
        );
        pace.set_rate(None);
        assert_eq!(pace.book(1 << 40, t.plus_ms(10_000)), Duration::ZERO);
        assert_eq!(pace.booked(), 500 + (1 << 40));
    }
}
