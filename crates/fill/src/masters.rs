//! Passive health of a project's masters: who is asked next.
//!
//! A master that failed is skipped for a while that doubles with each failure in a row, so that a
//! dead one costs few clients a timeout. It is never refused altogether: when there is nobody else,
//! it is asked, because ignorance must not become an outage. When its while is over, one request finds
//! out whether it is good again; the others go on skipping it until that one knows.

use model::Now;

use crate::failure::Failure;

/// Index of a master in the project's order.
pub type MasterId = usize;

/// Skipped this long after the first failure, milliseconds.
const SKIP_MS: u64 = 1000;
/// Never skipped longer than `SKIP_MS << DOUBLINGS_MAX` (32 s).
const DOUBLINGS_MAX: u32 = 5;
/// A request that finds out about a bad master may take so long, milliseconds: then another may.
const PROBE_MS: u64 = 30_000;

#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    failures: u32,
    skip_until_ns: u64,
    /// One request is finding out whether it is good again.
    probed_until_ns: u64,
}

impl Standing {
    /// How long others are asked first.
    fn wait_ns(&self, now: Now) -> u64 {
        self.skip_until_ns.max(self.probed_until_ns).saturating_sub(now.mono_ns)
    }
}

/// Whom to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Which.
    pub master: MasterId,
    /// It is bad, as far as is known, and somebody else need not wait for it: there is nobody
    /// better.
    pub skipped: bool,
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
    /// are no masters. Who is told a master whose skip is over asks it for all.
    pub fn choose(&mut self, now: Now, tried: &[MasterId]) -> Option<Choice> {
        let rank = |(id, standing): &(MasterId, &mut Standing)| {
            (tried.contains(id), standing.wait_ns(now), *id)
        };
        let (master, standing) = self.0.iter_mut().enumerate().min_by_key(rank)?;
        let skipped = standing.wait_ns(now) > 0;
        if standing.failures > 0 && !skipped {
            standing.probed_until_ns = now.plus_ms(PROBE_MS).mono_ns;
        }
        Some(Choice { master, skipped })
    }

    /// The master answered well.
    pub fn handle_ok(&mut self, id: MasterId) {
        if let Some(standing) = self.0.get_mut(id) {
            *standing = Standing::default();
        }
    }

    /// The master failed; whether it is skipped depends on what for.
    pub fn handle_failed(&mut self, id: MasterId, why: Failure, now: Now) {
        let Some(standing) = self.0.get_mut(id) else { return };
        standing.probed_until_ns = 0;
        if why.blames_master() {
            let skip_ms = SKIP_MS << standing.failures.min(DOUBLINGS_MAX);
            standing.failures = standing.failures.saturating_add(1);
            standing.skip_until_ns = now.plus_ms(skip_ms).mono_ns;
        }
    }

    /// Whether the master is being skipped at `now`.
    pub fn is_skipped(&self, id: MasterId, now: Now) -> bool {
        self.0.get(id).is_some_and(|s| s.skip_until_ns > now.mono_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(masters: &mut Masters, now: Now, tried: &[MasterId]) -> Option<MasterId> {
        masters.choose(now, tried).map(|choice| choice.master)
    }

    #[test]
    fn a_failed_master_is_skipped_ever_longer_but_never_refused() {
        let t0 = Now::default();
        let mut masters = Masters::new(2);
        assert_eq!(chosen(&mut masters, t0, &[]), Some(0));
        assert_eq!(chosen(&mut masters, t0, &[0]), Some(1));
        assert_eq!(chosen(&mut masters, t0, &[0, 1]), Some(0), "all tried: by order again");

        masters.handle_failed(0, Failure::Connect, t0);
        assert_eq!(masters.choose(t0, &[]), Some(Choice { master: 1, skipped: false }));
        let choice = masters.choose(t0, &[1]);
        assert_eq!(choice, Some(Choice { master: 0, skipped: true }), "better than one just tried");
        assert_eq!(chosen(&mut masters, t0.plus_ms(1000), &[]), Some(0), "its time is over");

        let mut t = t0;
        for skip_ms in [2000, 4000, 8000, 16_000, 32_000, 32_000] {
            t = t.plus_ms(100_000);
            masters.handle_failed(0, Failure::Status(503), t);
            assert!(masters.is_skipped(0, t.plus_ms(skip_ms - 1)), "{skip_ms}");
            assert!(!masters.is_skipped(0, t.plus_ms(skip_ms)), "{skip_ms}");
        }
        masters.handle_ok(0);
        assert_eq!(chosen(&mut masters, t, &[]), Some(0));

        let mut only = Masters::new(1);
        only.handle_failed(0, Failure::Connect, t0);
        assert_eq!(chosen(&mut only, t0, &[0]), Some(0));
        assert_eq!(Masters::new(0).choose(t0, &[]), None);
    }

    #[test]
    fn one_request_finds_out_whether_a_bad_master_is_good_again() {
        let t0 = Now::default();
        let over = t0.plus_ms(1000);
        let bad = || {
            let mut masters = Masters::new(2);
            masters.handle_failed(0, Failure::FirstByteTimeout, t0);
            assert_eq!(chosen(&mut masters, over, &[]), Some(0), "the one");
            assert_eq!(chosen(&mut masters, over, &[]), Some(1), "another");
            assert_eq!(
                masters.choose(over, &[1]),
                Some(Choice { master: 0, skipped: true }),
                "nobody else is left"
            );
            masters
        };
        for (what, at_ms, want) in [
            ("hangs", 16_000, 1),
            ("hangs", 30_999, 1),
            ("was given up", 31_000, 0),
            ("ok", 1001, 0),
            ("fails", 1001, 1),
            ("fails", 3000, 1),
            ("fails", 3001, 0),
            ("says 404", 1001, 0),
        ] {
            let mut masters = bad();
            let t1 = t0.plus_ms(1001);
            match what {
                "ok" => masters.handle_ok(0),
                "fails" => masters.handle_failed(0, Failure::FirstByteTimeout, t1),
                "says 404" => masters.handle_failed(0, Failure::Status(404), t1),
                _ => {}
            }
            let got = chosen(&mut masters, t0.plus_ms(at_ms), &[]);
            assert_eq!(got, Some(want), "{what} {at_ms}");
            if what == "was given up" {
                let next = chosen(&mut masters, t0.plus_ms(at_ms), &[]);
                assert_eq!(next, Some(1), "again one alone");
            }
        }
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
