//! The clock and the dice: the one place that asks the system for time or entropy.

use std::hash::{BuildHasher, Hasher};
use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use model::{Dice, Now};
use ring::rand::{SecureRandom, SystemRandom};

/// Reads both clocks.
#[allow(clippy::disallowed_methods, reason = "this is the one place")]
pub fn now() -> Now {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let mono_ns = u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { mono_ns, wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX) }
}

/// Random bytes that nobody can guess, for keys; `None` when the system has none to give.
pub fn secret<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(bytes)
}

/// The system's random numbers, for those who sign.
pub fn random() -> SystemRandom {
    SystemRandom::new()
}

/// Dice seeded by the system.
pub fn dice() -> Dice {
    // The standard library seeds its hash maps from the kernel's random source.
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u64(now().mono_ns);
    Dice::seeded(hasher.finish())
}
