//! How long a master takes to begin its answers: a histogram of bounded size that forgets.

/// Classes: four to each doubling, from 1 ms to beyond a minute.
const CLASSES: usize = 68;
/// With so many samples all counts are halved, so that the figures follow the master of today.
const SAMPLES_MAX: u32 = 1024;
/// With fewer samples nothing is said: one slow answer would be the whole truth.
const SAMPLES_MIN: u32 = 16;

/// Times to the first byte of one master.
#[derive(Clone, Debug)]
pub(crate) struct Latency {
    counts: [u32; CLASSES],
    samples: u32,
}

impl Default for Latency {
    fn default() -> Self {
        Self { counts: [0; CLASSES], samples: 0 }
    }
}

impl Latency {
    /// One more answer began after so many milliseconds.
    pub(crate) fn handle_sample(&mut self, ms: u64) {
        if self.samples >= SAMPLES_MAX {
            for count in &mut self.counts {
                *count /= 2;
            }
            self.samples = self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count));
        }
        if let Some(count) = self.counts.get_mut(class_of(ms)) {
            *count = count.saturating_add(1);
            self.samples = self.samples.saturating_add(1);
        }
    }

    /// Milliseconds within which `percent` of the answers began, at most 20 % too much; `None` while
    /// too little is known.
    pub(crate) fn percentile_ms(&self, percent: u32) -> Option<u64> {
        if self.samples < SAMPLES_MIN {
            return None;
        }
        let needed = self.samples.saturating_mul(percent).div_ceil(100).max(1);
        let mut seen: u32 = 0;
        let class = self.counts.iter().position(|count| {
            seen = seen.saturating_add(*count);
            seen >= needed
        })?;
        Some(end_of(class))
    }
}

/// The class of a time: its binary logarithm in quarters, the steps within a doubling being equal.
fn class_of(ms: u64) -> usize {
    let quarters = ms.saturating_mul(4).max(4);
    let doubling = quarters.ilog2().saturating_sub(2);
    let step = (quarters >> doubling) & 3;
    let class = u64::from(doubling).saturating_mul(4).saturating_add(step);
    usize::try_from(class).unwrap_or(CLASSES).min(CLASSES.saturating_sub(1))
}

/// The end of a class, milliseconds.
fn end_of(class: usize) -> u64 {
    let (doubling, step) = (class / 4, class % 4);
    let steps = u64::try_from(step).unwrap_or(0).saturating_add(5);
    (steps << doubling.min(32)).div_ceil(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_ends_where_the_next_begins() {
        for class in 0..CLASSES - 1 {
            let end = end_of(class);
            assert!(class_of(end) > class, "{class}: {end}");
            let before = end.saturating_sub(1).max(1);
            assert!(class_of(before) <= class.max(class_of(1)), "{class}: {before}");
        }
        assert_eq!(
            (class_of(0), class_of(1), class_of(2), class_of(3), class_of(4)),
            (0, 0, 4, 6, 8)
        );
        assert_eq!(class_of(u64::MAX), CLASSES - 1);
        assert!(end_of(CLASSES - 1) > 60_000);
    }

    #[test]
    fn percentiles_are_near_and_follow_the_master() {
        let mut latency = Latency::default();
        for _ in 0..15 {
            latency.handle_sample(10);
        }
        assert_eq!(latency.percentile_ms(99), None, "too little is known");
        for _ in 0..85 {
            latency.handle_sample(10);
        }
        latency.handle_sample(1000);
        assert_eq!((latency.percentile_ms(50), latency.percentile_ms(99)), (Some(12), Some(12)));
        assert_eq!(latency.percentile_ms(100), Some(1024));
        for _ in 0..10_000 {
            latency.handle_sample(100);
        }
        assert_eq!((latency.percentile_ms(1), latency.percentile_ms(99)), (Some(112), Some(112)));
    }
}
