//! A count that many threads raise all the time: each on a cache line of its own, as far as there are
//! enough, so that none waits for another's.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use prometheus::core::Atomic;

/// Lines of one count. With more threads some share one.
const STRIPES: usize = 8;

/// Alone on what processors fetch at once: a line and its neighbour.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

/// The count: what its stripes add up to, modulo 2^64.
#[derive(Debug, Default)]
pub struct Striped([Stripe; STRIPES]);

thread_local! {
    static STRIPE: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Relaxed) % STRIPES)
    };
}

impl Striped {
    /// Adds to it.
    pub fn add(&self, more: u64) {
        // At the end of a thread its own stripe may be forgotten already.
        let nth = STRIPE.try_with(Cell::get).unwrap_or(0);
        if let Some(Stripe(count)) = self.0.get(nth) {
            count.fetch_add(more, Relaxed);
        }
    }

    /// What was added up to now.
    pub fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, Stripe(count)| sum.wrapping_add(count.load(Relaxed)))
    }
}

impl Atomic for Striped {
    type T = u64;

    fn new(value: u64) -> Self {
        let striped = Self::default();
        striped.add(value);
        striped
    }

    fn set(&self, value: u64) {
        self.add(value.wrapping_sub(self.sum()));
    }

    fn get(&self) -> u64 {
        self.sum()
    }

    fn inc_by(&self, delta: u64) {
        self.add(delta);
    }

    fn dec_by(&self, delta: u64) {
        self.add(delta.wrapping_neg());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_add_is_summed_up() {
        let count = Striped::new(5);
        std::thread::scope(|scope| {
            for _ in 0..STRIPES.saturating_mul(2) {
                scope.spawn(|| (0..100).for_each(|_| count.add(3)));
            }
        });
        assert_eq!(count.sum(), 5 + 16 * 300);
        count.dec_by(4805);
        assert_eq!(count.get(), 0);
        count.set(7);
        assert_eq!(count.get(), 7);
    }
}
