//! How many signatures a second are made of names that clients think up.
//!
//! The proof that a name is not there, and the answer of a wildcard, are signed for that name alone:
//! whoever asks for random names makes the server sign each time. What else is signed are few sets,
//! made once a turn, and is not counted here.

use std::sync::atomic::{AtomicU64, Ordering};

const SECOND_NS: u64 = 1_000_000_000;

/// A rate with a burst of one second of it, shared by all threads (the generic cell rate algorithm
/// of ITU-T I.371).
#[derive(Debug)]
pub(crate) struct Budget {
    gap_ns: u64,
    /// When the next one is due if all went evenly.
    due_ns: AtomicU64,
}

impl Budget {
    pub(crate) fn per_second(rate: u32) -> Self {
        let gap_ns = SECOND_NS.checked_div(rate.into()).unwrap_or(SECOND_NS);
        Self { gap_ns, due_ns: AtomicU64::new(0) }
    }

    /// Whether one more may be made at `now_ns`.
    pub(crate) fn take(&self, now_ns: u64) -> bool {
        let latest = now_ns.saturating_add(SECOND_NS);
        let next = |due: u64| {
            let due = due.max(now_ns).saturating_add(self.gap_ns);
            (due <= latest).then_some(due)
        };
        self.due_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_of_it_at_once_then_evenly() {
        let budget = Budget::per_second(100);
        let taken = |now_ns: u64| (0..1000).filter(|_| budget.take(now_ns)).count();
        assert_eq!(taken(5 * SECOND_NS), 100);
        assert_eq!(taken(5 * SECOND_NS), 0);
        assert_eq!(taken(5 * SECOND_NS + SECOND_NS / 10), 10);
        assert_eq!(taken(50 * SECOND_NS), 100);
    }
}
