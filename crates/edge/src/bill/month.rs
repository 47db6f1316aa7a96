//! What a month's traffic costs: the core of the bill. Pure: time is an argument.
//!
//! A month (UTC) is a row of samples of 5 minutes, each with the bytes received and sent in it. What
//! may be sent now follows from them and from the terms of the node:
//!
//! - `p95`: of all samples of the month, by the larger of the two directions, the highest twentieth is
//!   free and the next one is billed. So as many samples may be above the commit as a twentieth has,
//!   less one in case. While some of them are left there is no limit. Then the rest of a sample gets
//!   what is left of its commit. A sample that is above it anyhow is limited no more.
//! - `monthly`: both directions together. What may be used by now grows evenly over the month, and is a
//!   day ahead. While less was used there is no limit; then what is left is spread evenly over the
//!   rest of the month, and between the directions as the month has had them.
//!
//! Both aim at [`MARGIN_PERCENT`] less than the commit: heads, packets and the second until a limit
//! holds come on top of content.
//!
//! Of what was before the first sample it knows, a month assumes that its share was used, and no more.

use model::{ByteCount, Rate};
use nodemap::Bill;

/// Length of a sample, seconds.
pub(crate) const SAMPLE_S: u64 = 300;
/// Samples of the longest month.
pub(crate) const SAMPLES_MAX: usize = 31 * 288;
/// So much of a commit is left alone.
const MARGIN_PERCENT: u64 = 1;
/// So far ahead of the even line a month of bytes may be, seconds.
const AHEAD_S: u64 = 86_400;
/// What may be sent of what is left of a month of bytes, at least and at most, per mille: the rest is for
/// what is received.
const SENT_PER_MILLE: (u64, u64) = (500, 950);
/// Of so many samples one is free.
const FREE_OF: u64 = 20;
/// Of the free ones so many are left alone.
const RESERVE: u64 = 1;

/// Bytes of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

impl Sample {
    fn larger(self) -> u64 {
        self.received.max(self.sent)
    }

    fn both(self) -> u64 {
        self.received.saturating_add(self.sent)
    }
}

/// One month.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Month {
    /// Its first second and the first after it, unix time.
    pub(super) start_s: u64,
    pub(super) end_s: u64,
    /// The first sample that is known.
    pub(super) since: usize,
    pub(super) samples: Vec<Sample>,
}

/// What may be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Bytes and samples are used as billing counts them.
    pub(crate) used: Used,
    /// `None`: no limit.
    pub(crate) allowed: Option<Allowed>,
}

/// What may be sent and received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowed {
    pub(crate) sent: Rate,
    pub(crate) received: Rate,
}

/// What of a month was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Used {
    /// Nothing is counted.
    Flat,
    /// Samples above the commit, and how many may be.
    Samples { spent: u64, free: u64 },
    /// Bytes of both directions.
    Bytes(u64),
}

impl Month {
    /// The month of a moment, of which nothing is known before it.
    pub(crate) fn beginning(now_s: u64) -> Self {
        let (start_s, end_s) = model::time::month_of(now_s);
        let mut month = Self { start_s, end_s, since: 0, samples: Vec::new() };
        month.samples = vec![Sample::default(); month.count()];
        month.since = month.slot(now_s);
        month
    }

    /// Samples that it has.
    pub(super) fn count(&self) -> usize {
        let count = self.end_s.saturating_sub(self.start_s).div_ceil(SAMPLE_S);
        usize::try_from(count).unwrap_or(SAMPLES_MAX).min(SAMPLES_MAX)
    }

    /// Number of the sample that a moment lies in.
    pub(crate) fn slot(&self, now_s: u64) -> usize {
        let slot = now_s.saturating_sub(self.start_s).checked_div(SAMPLE_S).unwrap_or(0);
        usize::try_from(slot).unwrap_or(usize::MAX).min(self.count().saturating_sub(1))
    }

    /// Goes on to the month of a moment. A later month is known from its beginning on: what was not
    /// counted was not sent. A clock that has gone back into an earlier one is believed.
    pub(crate) fn turn(&mut self, now_s: u64) {
        if now_s >= self.end_s {
            *self = Self { since: 0, ..Self::beginning(now_s) };
        } else if now_s < self.start_s {
            *self = Self::beginning(now_s);
        }
    }

    /// Since when it knows what was used, unix time.
    pub(crate) fn known_from_s(&self) -> u64 {
        self.start_of(self.since)
    }

    /// Counts bytes.
    pub(crate) fn add(&mut self, more: Sample, now_s: u64) {
        self.turn(now_s);
        let slot = self.slot(now_s);
        self.since = self.since.min(slot);
        if let Some(sample) = self.samples.get_mut(slot) {
            sample.received = sample.received.saturating_add(more.received);
            sample.sent = sample.sent.saturating_add(more.sent);
        }
    }

    /// What the terms allow at a moment of this month.
    pub(crate) fn standing(&self, bill: Bill, now_s: u64) -> Standing {
        match bill {
            Bill::P95(commit) => self.by_samples(commit, now_s),
            Bill::Monthly(commit) => self.by_bytes(commit, now_s),
            Bill::Flat => Standing { used: Used::Flat, allowed: None },
        }
    }

    fn by_samples(&self, commit: Rate, now_s: u64) -> Standing {
        let slot = self.slot(now_s);
        let commit_bytes = bytes_in(commit, SAMPLE_S);
        let above = |sample: &&Sample| sample.larger() > commit_bytes;
        let spent = u64::try_from(self.known(slot).iter().filter(above).count());
        let spent = spent.unwrap_or(u64::MAX);
        let all = u64::try_from(self.count().saturating_sub(self.since)).unwrap_or(0);
        let free = all.checked_div(FREE_OF).unwrap_or(0).saturating_sub(RESERVE);
        let so_far = self.samples.get(slot).copied().unwrap_or_default().larger();
        let is_free = spent < free || so_far > commit_bytes;
        let end_s = self.start_of(slot.saturating_add(1));
        let left = less_margin(commit_bytes).saturating_sub(so_far);
        let allowed = (!is_free).then(|| {
            let rate = rate_of(left, end_s.saturating_sub(now_s));
            Allowed { sent: rate, received: rate }
        });
        Standing { used: Used::Samples { spent, free }, allowed }
    }

    fn by_bytes(&self, commit: ByteCount, now_s: u64) -> Standing {
        let used = self.samples.iter().fold(0u64, |sum, one| sum.saturating_add(one.both()));
        let known_s = self.start_of(self.since);
        let known_for_s = self.end_s.saturating_sub(known_s);
        let month_s = self.end_s.saturating_sub(self.start_s);
        let ours = share(less_margin(commit.0), known_for_s, month_s);
        let gone_s = now_s.saturating_sub(known_s).saturating_add(AHEAD_S);
        let line = share(ours, gone_s, known_for_s.saturating_add(AHEAD_S));
        let left = ours.saturating_sub(used);
        let allowed = (used >= line).then(|| {
            let sent = self.samples.iter().fold(0u64, |sum, one| sum.saturating_add(one.sent));
            let (least, most) = SENT_PER_MILLE;
            let per_mille = share(1000, sent, used).clamp(least, most);
            let rate = rate_of(left, self.end_s.saturating_sub(now_s));
            let sent = Rate(share(rate.0, per_mille, 1000));
            Allowed { sent, received: Rate(rate.0.saturating_sub(sent.0)) }
        });
        Standing { used: Used::Bytes(used), allowed }
    }

    /// The samples from the first one known to before `slot`.
    fn known(&self, slot: usize) -> &[Sample] {
        self.samples.get(self.since..slot).unwrap_or_default()
    }

    /// The rate that would be billed by 95th percentile if the month ended before the sample of this
    /// moment.
    pub(crate) fn p95(&self, now_s: u64) -> Rate {
        let mut known: Vec<u64> = self.known(self.slot(now_s)).iter().map(|s| s.larger()).collect();
        known.sort_unstable_by(|a, b| b.cmp(a));
        let free = known.len().checked_div(20).unwrap_or(0);
        rate_of(known.get(free).copied().unwrap_or(0), SAMPLE_S)
    }

    fn start_of(&self, slot: usize) -> u64 {
        let slot = u64::try_from(slot).unwrap_or(u64::MAX);
        self.start_s.saturating_add(slot.saturating_mul(SAMPLE_S)).min(self.end_s)
    }
}

fn less_margin(bytes: u64) -> u64 {
    share(bytes, 100u64.saturating_sub(MARGIN_PERCENT), 100)
}

/// `bytes * part / whole`, at most `bytes`.
fn share(bytes: u64, part: u64, whole: u64) -> u64 {
    let product = u128::from(bytes).saturating_mul(part.into());
    let shared = product.checked_div(whole.into()).unwrap_or(0);
    u64::try_from(shared).unwrap_or(u64::MAX).min(bytes)
}

/// What a rate makes in so many seconds.
fn bytes_in(rate: Rate, seconds: u64) -> u64 {
    let bits = u128::from(rate.0).saturating_mul(seconds.into());
    u64::try_from(bits.checked_div(8).unwrap_or(0)).unwrap_or(u64::MAX)
}

/// The rate that takes so many seconds, at least one, for these bytes.
fn rate_of(bytes: u64, seconds: u64) -> Rate {
    let bits = u128::from(bytes).saturating_mul(8);
    let rate = bits.checked_div(seconds.max(1).into()).unwrap_or(0);
    Rate(u64::try_from(rate).unwrap_or(u64::MAX))
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "these are tests")]
mod tests {
    use model::Dice;

    use super::*;

    /// 2026-11-01 00:00:00 and 2026-12-01.
    const NOVEMBER: u64 = 1_793_491_200;
    const DECEMBER: u64 = NOVEMBER + 30 * 86_400;
    const MBIT: u64 = 1_000_000;
    const COMMIT: Rate = Rate(80 * MBIT);
    /// Bytes in a second and in a sample at the commit.
    const SECOND: u64 = 10_000_000;
    const SAMPLE: u64 = SECOND * SAMPLE_S;

    /// A whole month at `step_s` a step. `demand` gives the bytes wanted in the second of a moment; a
    /// wish that was not granted is gone. Gives the month and the steps in which a wish was not granted.
    fn play(
        bill: Bill,
        since_s: u64,
        step_s: u64,
        mut demand: impl FnMut(u64) -> u64,
    ) -> (Month, u64) {
        let mut month = Month::beginning(since_s);
        let (mut now_s, mut held_back) = (since_s, 0);
        while now_s < DECEMBER {
            let wanted = demand(now_s) * step_s;
            let allowed = month.standing(bill, now_s).allowed;
            let bytes = |rate| bytes_in(rate, step_s);
            let sent = wanted.min(allowed.map_or(u64::MAX, |allowed| bytes(allowed.sent)));
            let received = allowed.map_or(u64::MAX, |allowed| bytes(allowed.received));
            held_back += u64::from(sent < wanted);
            month.add(Sample { received: received.min(sent / 3), sent }, now_s);
            now_s += step_s;
        }
        (month, held_back)
    }

    /// As providers count.
    fn billed(samples: &[Sample]) -> u64 {
        let mut all: Vec<u64> = samples.iter().map(|s| s.received.max(s.sent)).collect();
        all.sort_unstable();
        all[all.len() - 1 - all.len() / 20]
    }

    #[test]
    fn months_end_and_begin_by_the_calendar() {
        let month = Month::beginning(DECEMBER - 1);
        assert_eq!((month.start_s, month.end_s), (NOVEMBER, DECEMBER));
        assert_eq!((month.count(), month.since), (8640, 8639));
        let mut next = month.clone();
        next.add(Sample { received: 1, sent: 2 }, DECEMBER);
        assert_eq!((next.start_s, next.since, next.count()), (DECEMBER, 0, 8928));
        next.add(Sample { received: 1, sent: 2 }, DECEMBER + 299);
        assert_eq!(next.samples[0], Sample { received: 2, sent: 4 });
        next.turn(DECEMBER - 1);
        assert_eq!(next, month, "the clock has gone back");
        let february = Month::beginning(NOVEMBER - 260 * 86_400);
        assert_eq!(february.count(), 28 * 288);
    }

    #[test]
    fn no_demand_makes_the_p95_exceed_the_commit() {
        for seed in 0..4 {
            let mut dice = Dice::seeded(seed);
            let mut level = 0;
            let demand = |now_s: u64| {
                if now_s.is_multiple_of(600) {
                    level = match (seed, dice.below(4)) {
                        (0, _) => 100 * SECOND,
                        (_, 0) => 0,
                        (_, 1) => SECOND * 9 / 10,
                        (_, 2) => SECOND + dice.below(SECOND),
                        _ => dice.below(50 * SECOND),
                    };
                }
                level
            };
            let since_s = if seed < 2 { NOVEMBER } else { NOVEMBER + 11 * 86_400 };
            let (month, held_back) = play(Bill::P95(COMMIT), since_s, 100, demand);
            assert!(held_back > 0, "seed {seed}: it had to");
            assert!(billed(&month.samples[month.since..]) <= SAMPLE, "seed {seed}");
            assert!(billed(&month.samples) <= SAMPLE, "seed {seed}: nothing before");
            let above = month.samples.iter().filter(|s| s.sent > SAMPLE).count();
            assert_eq!(above, (month.count() - month.since) / 20 - 1, "seed {seed}: all of them");
            assert!(month.p95(DECEMBER - 1) <= COMMIT);
        }
    }

    #[test]
    fn a_demand_below_the_commit_is_never_held_back() {
        for (seed, commit) in [(1, COMMIT), (2, Rate(MBIT)), (3, Rate(10_000 * MBIT))] {
            let (mut dice, second) = (Dice::seeded(seed), commit.0 / 8 * 99 / 100);
            let demand = |_| dice.below(second + 1);
            let (month, held_back) = play(Bill::P95(commit), NOVEMBER, 100, demand);
            assert_eq!(held_back, 0, "{commit}");
            assert!(month.p95(DECEMBER - 1) <= commit);
        }
    }

    #[test]
    fn bursts_take_the_free_samples_and_then_the_commit_holds() {
        let mut month = Month::beginning(NOVEMBER);
        let bill = Bill::P95(COMMIT);
        for slot in 0..431u64 {
            let now_s = NOVEMBER + slot * SAMPLE_S;
            let used = Used::Samples { spent: slot, free: 431 };
            assert_eq!(month.standing(bill, now_s), Standing { used, allowed: None });
            month.add(Sample { received: SAMPLE + 1, sent: 0 }, now_s);
        }
        let now_s = NOVEMBER + 431 * SAMPLE_S;
        let rate = |month: &Month, now_s| month.standing(bill, now_s).allowed.map(|a| a.sent);
        assert_eq!(rate(&month, now_s), Some(Rate(COMMIT.0 * 99 / 100)));
        // Half a sample without demand: what is left of it may be used.
        assert_eq!(rate(&month, now_s + 150), Some(Rate(COMMIT.0 * 2 * 99 / 100)));
        month.add(Sample { received: 0, sent: SAMPLE * 99 / 100 }, now_s);
        assert_eq!(rate(&month, now_s + 150), Some(Rate(0)));
        month.add(Sample { received: 0, sent: SAMPLE }, now_s);
        assert_eq!(rate(&month, now_s + 150), None, "it counts as above already");
        assert!(rate(&month, DECEMBER - 1).is_some());
        let less = month.standing(Bill::P95(Rate(COMMIT.0 * 3)), now_s).allowed;
        assert_eq!(less, None, "with a higher commit nothing was spent");
    }

    #[test]
    fn no_demand_makes_a_month_of_bytes_exceed_the_commit_and_its_end_is_not_starved() {
        let commit = ByteCount(20_000_000_000_000);
        let even = commit.0 / (30 * 86_400);
        let total = |samples: &[Sample]| samples.iter().map(|s| s.received + s.sent).sum::<u64>();
        for (what, factor) in [("all it can", 100), ("a little more", 1)] {
            let (month, held_back) = play(Bill::Monthly(commit), NOVEMBER, 100, |_| even * factor);
            let used = total(&month.samples);
            assert!(used <= commit.0, "{what}: {used}");
            assert!(used > commit.0 / 100 * 98, "{what}: {used}, it is there to be used");
            assert!(held_back > 0, "{what}");
            let last_day = total(&month.samples[29 * 288..]);
            assert!(last_day > even * 86_400 * 9 / 10, "{what}: {last_day}");
        }
        let (month, held_back) = play(Bill::Monthly(commit), NOVEMBER, 100, |_| even * 7 / 10);
        assert_eq!((held_back, total(&month.samples) < commit.0), (0, true), "below the commit");
        let (month, _) = play(Bill::Monthly(commit), NOVEMBER + 15 * 86_400, 100, |_| even * 100);
        assert!(total(&month.samples) <= commit.0 / 2, "of half a month half is known to be left");
    }

    /// A quiet week lets a release leave at once.
    #[test]
    fn what_was_not_used_of_a_month_of_bytes_may_be_used_at_once() {
        let (commit, week_s) = (ByteCount(30_000_000_000_000), 7 * 86_400);
        let mut month = Month::beginning(NOVEMBER);
        let allowed =
            |month: &Month| month.standing(Bill::Monthly(commit), NOVEMBER + week_s).allowed;
        assert_eq!(allowed(&month), None);
        // 29.7 TB in 31 days of the line, 8 of which are over.
        let line = 29_700_000_000_000u64 * 8 / 31;
        month.add(Sample { received: 0, sent: line - 1 }, NOVEMBER);
        assert_eq!(allowed(&month), None);
        month.add(Sample { received: 1, sent: 0 }, NOVEMBER);
        let left = (29_700_000_000_000 - line) * 8 / (23 * 86_400);
        let sent = left * 950 / 1000;
        let parts = Allowed { sent: Rate(sent), received: Rate(left - sent) };
        assert_eq!(allowed(&month), Some(parts));
    }

    #[test]
    fn flat_is_never_limited() {
        let (_, held_back) = play(Bill::Flat, NOVEMBER, 300, |_| 1 << 40);
        assert_eq!(held_back, 0);
    }
}
