//! The wall-clock grid of a group: the same instants on every node whose clock is right.
//!
//! Ticks are the multiples of the grid's step since 1970; between them lie the beats, at which the
//! passes of a round begin. Both need nothing but the time, so that nodes that never heard of each
//! other ask their masters at the same moments.

use model::Now;

/// Beats are this far apart, milliseconds; half of it for the finest grid.
const BEAT_MS: u64 = 500;

/// The grid of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    step_ms: u64,
    beat_ms: u64,
}

impl Grid {
    /// A grid with a tick every `step_s` seconds, at least one.
    pub(crate) fn new(step_s: u32) -> Self {
        let step_ms = u64::from(step_s.max(1)).saturating_mul(1000);
        Self { step_ms, beat_ms: BEAT_MS.min(step_ms / 4) }
    }

    /// Between two ticks, milliseconds.
    pub(crate) fn step_ms(self) -> u64 {
        self.step_ms
    }

    /// The number of the last tick.
    pub(crate) fn epoch(self, now: Now) -> u64 {
        now.wall_ms.checked_div(self.step_ms).unwrap_or(0)
    }

    /// When the tick of an epoch is, unix milliseconds.
    pub(crate) fn tick_ms(self, epoch: u64) -> u64 {
        epoch.saturating_mul(self.step_ms)
    }

    /// The next beat that leaves masters at least half of the time between two beats to finish what
    /// they are changing. Unix milliseconds.
    pub(crate) fn next_beat_ms(self, now: Now) -> u64 {
        let earliest_ms = now.wall_ms.saturating_add(self.beat_ms / 2);
        earliest_ms.div_ceil(self.beat_ms.max(1)).saturating_mul(self.beat_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(wall_ms: u64) -> Now {
        Now { mono_ns: 7, wall_ms }
    }

    #[test]
    fn ticks_and_beats_depend_on_the_wall_clock_alone() {
        for (step_s, wall_ms, epoch, tick_ms, beat_ms) in [
            (60, 0, 0, 0, 500),
            (60, 59_999, 0, 0, 60_500),
            (60, 60_000, 1, 60_000, 60_500),
            (60, 60_250, 1, 60_000, 60_500),
            (60, 60_251, 1, 60_000, 61_000),
            (2, 3_900, 1, 2_000, 4_500),
            (1, 1_000, 1, 1_000, 1_250),
            (1, 1_126, 1, 1_000, 1_500),
            (0, 1_126, 1, 1_000, 1_500),
        ] {
            let (grid, now) = (Grid::new(step_s), at(wall_ms));
            assert_eq!(grid.epoch(now), epoch, "{step_s} {wall_ms}");
            assert_eq!(grid.tick_ms(epoch), tick_ms, "{step_s} {wall_ms}");
            assert_eq!(grid.next_beat_ms(now), beat_ms, "{step_s} {wall_ms}");
        }
    }
}
