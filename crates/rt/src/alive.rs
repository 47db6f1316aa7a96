//! Signs of life of the parts of a process that must never stand still.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock;

/// The parts that give signs; a clone for each who watches or begins one.
#[derive(Clone, Debug, Default)]
pub struct Alive(Arc<Mutex<Vec<Part>>>);

/// Its name, and when it last gave a sign, monotonic nanoseconds.
type Part = (&'static str, Arc<AtomicU64>);

/// One part's sign.
#[derive(Clone, Debug)]
pub struct Sign(Arc<AtomicU64>);

impl Alive {
    /// `what` gives signs from now on.
    pub fn begin(&self, what: &'static str) -> Sign {
        let sign = Sign(Arc::default());
        sign.give();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((what, Arc::clone(&sign.0)));
        sign
    }

    /// A part that gave none for so long. One whose task has ended by itself is none any more.
    pub fn stuck(&self, patience: Duration) -> Option<&'static str> {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parts.retain(|(_, sign)| Arc::strong_count(sign) > 1);
        let now = clock::now().mono_ns;
        let is_stuck = |sign: &AtomicU64| {
            u128::from(now.saturating_sub(sign.load(Relaxed))) > patience.as_nanos()
        };
        parts.iter().find(|(_, sign)| is_stuck(sign)).map(|(what, _)| *what)
    }
}

impl Sign {
    /// It turns.
    pub fn give(&self) {
        self.0.store(clock::now().mono_ns, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gives_no_sign_is_named_until_it_ends() {
        let alive = Alive::default();
        assert_eq!(alive.stuck(Duration::ZERO), None);
        let sign = alive.begin("accepting");
        sign.give();
        assert_eq!(alive.stuck(Duration::from_secs(3600)), None);
        sign.0.store(0, Relaxed);
        assert_eq!(alive.stuck(Duration::ZERO), Some("accepting"));
        drop(sign);
        assert_eq!(alive.stuck(Duration::ZERO), None);
    }
}
