//! What is known of a project's masters: who is asked next, and how soon they answer.
//!
//! A master that failed is bad: the others are asked first, so that a dead one costs few clients a
//! timeout. It is never refused altogether: when there is nobody else, it is asked, because ignorance
//! must not become an outage. Whether it is good again is found out without clients: after a while
//! that doubles with each failure in a row it is probed ([`Masters::probe_due`]), or the answer to
//! a request that had nobody else to go to tells.

use model::Now;

use crate::failure::Failure;
use crate::latency::Latency;

/// Index of a master in the project's order.
pub type MasterId = usize;

/// Not probed for so long after the first failure, milliseconds.
const SKIP_MS: u64 = 1000;
/// Never longer than `SKIP_MS << DOUBLINGS_MAX` (32 s).
const DOUBLINGS_MAX: u32 = 5;
/// A probe may take so long, milliseconds: then another may.
const PROBE_MS: u64 = 30_000;

#[derive(Clone, Debug, Default)]
struct Standing {
    /// In a row, those of one while counted once; 0: good.
    failures: u32,
    skip_until_ns: u64,
    probed_until_ns: u64,
    latency: Latency,
}

impl Standing {
    /// How much others are to be asked first: 0 for a good one, else how far its next probe is.
    fn badness(&self, now: Now) -> u64 {
        match self.failures {
            0 => 0,
            _ => self.skip_until_ns.saturating_sub(now.mono_ns).max(1),
        }
    }
}

/// Whom to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Which.
    pub master: MasterId,
    /// It is bad, as far as is known: there is nobody better.
    pub skipped: bool,
}

/// What is shown of a master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Failures in a row; 0 when it is good.
    pub failures: u32,
    /// Until it is probed, milliseconds; 0 when it is good or due.
    pub skipped_ms: u64,
    /// Half of its answers began within so many milliseconds; `None` while too little is known.
    pub p50_first_byte_ms: Option<u64>,
    /// The same for 99 of 100.
    pub p99_first_byte_ms: Option<u64>,
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

    /// Whom of `order` to ask now: the first that was not tried, is good and is not `full`; else a
    /// good one that is full; else the untried bad one whose probe is next; else the same among
    /// those tried. `None` only when nobody is given.
    pub fn choose(
        &self,
        now: Now,
        order: &[MasterId],
        tried: &[MasterId],
        full: impl Fn(MasterId) -> bool,
    ) -> Option<Choice> {
        let known = order.iter().filter_map(|id| Some((*id, self.0.get(*id)?)));
        let rank = |(id, standing): &(MasterId, &Standing)| {
            (tried.contains(id), standing.badness(now), full(*id))
        };
        let (master, standing) = known.min_by_key(rank)?;
        Some(Choice { master, skipped: standing.failures > 0 })
    }

    /// The master answered well.
    pub fn handle_ok(&mut self, id: MasterId) {
        if let Some(standing) = self.0.get_mut(id) {
            standing.failures = 0;
            standing.skip_until_ns = 0;
            standing.probed_until_ns = 0;
        }
    }

    /// The master failed; whether it is bad for that depends on what for. Failures of requests that
    /// were under way together count once.
    pub fn handle_failed(&mut self, id: MasterId, why: Failure, now: Now) {
        let Some(standing) = self.0.get_mut(id) else { return };
        if why.blames_master() && standing.skip_until_ns <= now.mono_ns {
            standing.probed_until_ns = 0;
            let skip_ms = SKIP_MS << standing.failures.min(DOUBLINGS_MAX);
            standing.failures = standing.failures.saturating_add(1);
            standing.skip_until_ns = now.plus_ms(skip_ms).mono_ns;
        }
    }

    /// An answer of the master began after so many milliseconds.
    pub fn handle_first_byte(&mut self, id: MasterId, ms: u64) {
        if let Some(standing) = self.0.get_mut(id) {
            standing.latency.handle_sample(ms);
        }
    }

    /// Within how many milliseconds 99 of 100 of its answers began; `None` while too little is
    /// known.
    pub fn p99_first_byte_ms(&self, id: MasterId) -> Option<u64> {
        self.0.get(id)?.latency.percentile_ms(99)
    }

    /// Whether the others are asked first.
    pub fn is_bad(&self, id: MasterId) -> bool {
        self.0.get(id).is_some_and(|s| s.failures > 0)
    }

    /// A bad master that is to be probed now; its result is [`Masters::handle_ok`] or
    /// [`Masters::handle_failed`].
    pub fn probe_due(&mut self, now: Now) -> Option<MasterId> {
        let is_due =
            |s: &Standing| s.failures > 0 && s.skip_until_ns.max(s.probed_until_ns) <= now.mono_ns;
        let (id, standing) = self.0.iter_mut().enumerate().find(|(_, s)| is_due(s))?;
        standing.probed_until_ns = now.plus_ms(PROBE_MS).mono_ns;
        Some(id)
    }

    /// What is shown of a master.
    pub fn show(&self, id: MasterId, now: Now) -> Shown {
        let Some(standing) = self.0.get(id) else { return Shown::default() };
        let left_ns = standing.skip_until_ns.saturating_sub(now.mono_ns);
        Shown {
            failures: standing.failures,
            skipped_ms: left_ns.div_ceil(1_000_000),
            p50_first_byte_ms: standing.latency.percentile_ms(50),
            p99_first_byte_ms: standing.latency.percentile_ms(99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(masters: &Masters, now: Now, tried: &[MasterId]) -> Option<MasterId> {
        let order: Vec<_> = (0..masters.count()).collect();
        masters.choose(now, &order, tried, |_| false).map(|choice| choice.master)
    }

    #[test]
    fn a_failed_master_is_asked_last_but_never_refused() {
        let t0 = Now::default();
        let mut masters = Masters::new(2);
        assert_eq!(chosen(&masters, t0, &[]), Some(0));
        assert_eq!(chosen(&masters, t0, &[0]), Some(1));
        assert_eq!(chosen(&masters, t0, &[0, 1]), Some(0), "all tried: by order again");

        masters.handle_failed(0, Failure::Connect, t0);
        let choose = |tried: &[MasterId]| masters.choose(t0, &[0, 1], tried, |_| false);
        assert_eq!(choose(&[]), Some(Choice { master: 1, skipped: false }));
        assert_eq!(choose(&[1]), Some(Choice { master: 0, skipped: true }), "not one just tried");
        assert_eq!(chosen(&masters, t0.plus_ms(100_000), &[]), Some(1), "nobody found it good");
        masters.handle_failed(1, Failure::Connect, t0.plus_ms(100));
        assert_eq!(chosen(&masters, t0.plus_ms(100), &[]), Some(0), "its probe is next");
        masters.handle_ok(1);
        assert_eq!(chosen(&masters, t0.plus_ms(100), &[]), Some(1));

        let mut only = Masters::new(1);
        only.handle_failed(0, Failure::Connect, t0);
        assert_eq!(chosen(&only, t0, &[0]), Some(0));
        assert_eq!(chosen(&Masters::new(0), t0, &[]), None);
    }

    #[test]
    fn the_order_is_the_callers_and_a_full_one_is_behind_good_ones() {
        let t0 = Now::default();
        let mut masters = Masters::new(3);
        let choose = |masters: &Masters, order: &[MasterId], full: &[MasterId]| {
            masters.choose(t0, order, &[], |id| full.contains(&id)).map(|c| c.master)
        };
        assert_eq!(choose(&masters, &[2, 0, 1], &[]), Some(2));
        assert_eq!(choose(&masters, &[2, 0, 1], &[2]), Some(0));
        assert_eq!(choose(&masters, &[2, 0], &[2, 0]), Some(2));
        masters.handle_failed(0, Failure::Connect, t0);
        assert_eq!(choose(&masters, &[2, 0], &[2]), Some(2), "full is better than bad");
        assert_eq!(choose(&masters, &[7], &[]), None, "unknown ones are nobody");
    }

    #[test]
    fn a_bad_master_is_probed_ever_later_until_it_is_good() {
        let t0 = Now::default();
        let mut masters = Masters::new(2);
        assert_eq!(masters.probe_due(t0), None);
        let mut t = t0;
        for skip_ms in [1000, 2000, 4000, 8000, 16_000, 32_000, 32_000] {
            masters.handle_failed(1, Failure::Status(503), t);
            masters.handle_failed(1, Failure::Connect, t.plus_ms(1));
            assert_eq!(masters.show(1, t).skipped_ms, skip_ms, "those of a while count once");
            assert_eq!(masters.probe_due(t.plus_ms(skip_ms - 1)), None, "{skip_ms}");
            t = t.plus_ms(skip_ms);
            assert_eq!(masters.probe_due(t), Some(1), "{skip_ms}");
            assert_eq!(masters.probe_due(t), None, "one alone");
        }
        assert_eq!(masters.probe_due(t.plus_ms(29_999)), None);
        assert_eq!(masters.probe_due(t.plus_ms(30_000)), Some(1), "the other one hangs");
        assert!(masters.is_bad(1));
        masters.handle_ok(1);
        assert!(!masters.is_bad(1));
        assert_eq!(masters.probe_due(t.plus_ms(100_000)), None);
        masters.handle_failed(1, Failure::Connect, t);
        assert_eq!(masters.show(1, t).skipped_ms, 1000, "from the beginning");
    }

    #[test]
    fn trouble_with_one_object_is_no_trouble_with_the_master() {
        let mut masters = Masters::new(1);
        for why in [Failure::Status(500), Failure::Status(404), Failure::Changed, Failure::Disk] {
            masters.handle_failed(0, why, Now::default());
            assert!(!masters.is_bad(0), "{why}");
        }
    }

    #[test]
    fn what_is_known_of_its_pace_outlives_its_failures() {
        let (mut masters, now) = (Masters::new(1), Now::default());
        assert_eq!(masters.p99_first_byte_ms(0), None);
        for _ in 0..20 {
            masters.handle_first_byte(0, 40);
        }
        masters.handle_failed(0, Failure::Connect, now);
        masters.handle_ok(0);
        assert_eq!(masters.p99_first_byte_ms(0), Some(48));
        assert_eq!(masters.show(0, now).p50_first_byte_ms, Some(48));
        assert_eq!(masters.p99_first_byte_ms(1), None);
    }
}
