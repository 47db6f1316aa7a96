//! Passive health of a project's masters: who is asked next.
//!
//! A master that failed is skipped for a while that doubles with each failure in a row, so that a
//! dead one costs few clients a timeout. It is never refused altogether: when there is nobody else,
//! it is asked, because ignorance must not become an outage.

use model::Now;

use crate::failure::Failure;

/// Index of a master in the project's order.
pub type MasterId = usize;

/// Skipped this long after the first failure, milliseconds.
const SKIP_MS: u64 = 1000;
/// Never skipped longer than `SKIP_MS << DOUBLINGS_MAX` (32 s).
const DOUBLINGS_MAX: u32 = 5;

#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    failures: u32,
    skip_until_ns: u64,
}

/// What is known of each master of one project.
#[derive(Clone, Debug)]
pub struct Masters(Vec<Standing>);

impl Masters {
    /// `count` masters nothing is known of.
    pub fn new(count: usize) -> Self {
        Self(vec![Standing::default(); count])
    }

    /// Number of masters.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whom to ask now: the first by order that was not tried and is not being skipped, else the
    /// untried one whose skip ends soonest, else the same among those tried. `None` only when there
    /// are no masters.
    pub fn choose(&self, now: Now, tried: &[MasterId]) -> Option<MasterId> {
        let rank = |(id, standing): &(MasterId, &Standing)| {
            let skip = standing.skip_until_ns.saturating_sub(now.mono_ns);
            (tried.contains(id), skip, *id)
        };
        self.0.iter().enumerate().min_by_key(rank).map(|(id, _)| id)
    }

    /// The master answered well.
    pub fn handle_ok(&mut self, id: MasterId) {
        if let Some(standing) = self.0.get_mut(id) {
            *standing = Standing::default();
        }
    }

    /// The master failed; whether it is skipped depends on what for.
    pub fn handle_failed(&mut self, id: MasterId, why: Failure, now: Now) {
        let Some(standing) = self.0.get_mut(id).filter(|_| why.blames_master()) else { return };
        let skip_ms = SKIP_MS << standing.failures.min(DOUBLINGS_MAX);
        standing.failures = standing.failures.saturating_add(1);
        standing.skip_until_ns = now.plus_ms(skip_ms).mono_ns;
    }

    /// Whether the master is being skipped at `now`.
    pub fn is_skipped(&self, id: MasterId, now: Now) -> bool {
        self.0.get(id).is_some_and(|s| s.skip_until_ns > now.mono_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_master_is_skipped_ever_longer_but_never_refused() {
        let t0 = Now::default();
        let mut masters = Masters::new(2);
        assert_eq!(masters.choose(t0, &[]), Some(0));
        assert_eq!(masters.choose(t0, &[0]), Some(1));
        assert_eq!(masters.choose(t0, &[0, 1]), Some(0), "all tried: by order again");

        masters.handle_failed(0, Failure::Connect, t0);
        assert_eq!(masters.choose(t0, &[]), Some(1));
        assert_eq!(masters.choose(t0, &[1]), Some(0), "better than one just tried");
        assert_eq!(masters.choose(t0.plus_ms(1000), &[]), Some(0), "its time is over");

        let mut t = t0;
        for skip_ms in [2000, 4000, 8000, 16_000, 32_000, 32_000] {
            t = t.plus_ms(100_000);
            masters.handle_failed(0, Failure::Status(503), t);
            assert!(masters.is_skipped(0, t.plus_ms(skip_ms - 1)), "{skip_ms}");
            assert!(!masters.is_skipped(0, t.plus_ms(skip_ms)), "{skip_ms}");
        }
        masters.handle_ok(0);
        assert_eq!(masters.choose(t, &[]), Some(0));

        let mut only = Masters::new(1);
        only.handle_failed(0, Failure::Connect, t0);
        assert_eq!(only.choose(t0, &[0]), Some(0));
        assert_eq!(Masters::new(0).choose(t0, &[]), None);
    }

    #[test]
    fn trouble_with_one_object_is_no_trouble_with_the_master() {
        let mut masters = Masters::new(1);
        for why in [Failure::Status(500), Failure::Status(404), Failure::Changed, Failure::Disk] {
            masters.handle_failed(0, why, Now::default());
            assert!(!masters.is_skipped(0, Now::default()), "{why}");
        }
    }
}
