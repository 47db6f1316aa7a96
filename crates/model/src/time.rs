//! Time and dice as arguments: nothing below the shells reads a clock or rolls dice by itself.

/// One reading of both clocks, taken by a shell and handed down.
///
/// Invariant: `mono_ns` never goes back between two readings of one process; `wall_ms` may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Monotonic nanoseconds since an arbitrary start: for durations and deadlines.
    pub mono_ns: u64,
    /// Unix time in milliseconds, UTC: for what is written down or compared with other machines.
    pub wall_ms: u64,
}

impl Now {
    /// This reading moved `ms` milliseconds on, both clocks alike. For tests and virtual clocks.
    pub fn plus_ms(self, ms: u64) -> Self {
        Self {
            mono_ns: self.mono_ns.saturating_add(ms.saturating_mul(1_000_000)),
            wall_ms: self.wall_ms.saturating_add(ms),
        }
    }

    /// Unix time in whole seconds.
    pub fn wall_s(self) -> u64 {
        self.wall_ms / 1000
    }
}

/// A seeded source of randomness: the same seed gives the same throws.
#[derive(Clone, Debug)]
pub struct Dice(fastrand::Rng);

impl Dice {
    /// Dice that throw the sequence of `seed`.
    pub fn seeded(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// A number below `n`; 0 when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.0.u64(0..n) }
    }

    /// An index chosen with chances proportional to `weights`; `None` when they sum to zero.
    pub fn pick(&mut self, weights: impl Iterator<Item = u32> + Clone) -> Option<usize> {
        let total: u64 = weights.clone().map(u64::from).sum();
        let mut left = self.below(total);
        for (i, w) in weights.enumerate() {
            let w = u64::from(w);
            if left < w {
                return Some(i);
            }
            left -= w;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pick_never_takes_weight_zero_and_follows_the_shares() {
        let mut dice = Dice::seeded(7);
        let weights = [0, 30, 0, 10];
        let mut hits = [0u32; 4];
        for _ in 0..40_000 {
            hits[dice.pick(weights.iter().copied()).unwrap()] += 1;
        }
        assert_eq!((hits[0], hits[2]), (0, 0));
        // Three standard deviations of a binomial with p = 0.75 and n = 40,000 are about 260.
        assert!(hits[1].abs_diff(30_000) < 260, "{hits:?}");
        assert_eq!(dice.pick([0u32, 0].iter().copied()), None);
        assert_eq!(dice.pick([].iter().copied()), None);
    }
}
