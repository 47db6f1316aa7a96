//! The core of a shaper: a bucket of credit that fills at a rate, and a queue of those who wait for
//! some of it. Pure: time is an argument, whoever waits is a value of the caller's.
//!
//! - Credit grows with time up to a burst, so that a pause is not made up for.
//! - Who asks while nobody waits gets a quantum at once, if there is credit for it. Else he waits, and
//!   is served in the order of asking; who wants more asks again and stands at the end. So all who
//!   keep asking get the same, whatever they ask for.
//! - A quantum is small when many wait, so that each has his turn soon.
//! - What was granted and not used is given back; what was sent without a grant is a debt.
//!
//! In any time `t` no more is granted than `rate * t` and a burst, and what was given back in it.

use std::collections::BTreeMap;

use model::{Now, Rate};

/// What may leave at once after a pause, in time.
const BURST_NS: u64 = 20_000_000;
/// In this time everybody who waits has one quantum, if it can be as small as that.
const ROUND_NS: u64 = 5_000_000;
/// Bytes of a grant at least: what fits into a packet on any path.
const QUANTUM_BYTES_MIN: u64 = 1400;
/// Bytes of a grant at most.
const QUANTUM_BYTES_MAX: u64 = 64 * 1024;
/// The same while there is no limit: so much is under way when there is one again.
const FREE_BYTES_MAX: u64 = 1024 * 1024;

/// Credit is counted in bits times nanoseconds per second: a rate times a time is exact.
const CREDIT_PER_BYTE: i128 = 8 * 1_000_000_000;

/// Says who waits.
pub(crate) type Ticket = u64;

/// What came of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// So many bytes.
    Granted(u64),
    /// They come later, under this ticket.
    Waits(Ticket),
}

/// Getters: [`Self::due_ns`], [`Self::waiting`], [`Self::rate`]. What callers do: [`Self::ask`],
/// [`Self::take`], [`Self::leave`], [`Self::give_back`], [`Self::owe`], [`Self::set_rate`]. What time
/// does: [`Self::serve`].
#[derive(Debug)]
pub(crate) struct Bucket<W> {
    /// `None`: no limit.
    rate: Option<Rate>,
    credit: i128,
    at_ns: u64,
    next: Ticket,
    waiting: BTreeMap<Ticket, Waiting<W>>,
    /// Granted, and not taken yet.
    granted: BTreeMap<Ticket, u64>,
    /// Bytes granted in all, less those given back.
    granted_bytes: u64,
}

#[derive(Debug)]
struct Waiting<W> {
    bytes: u64,
    who: W,
}

impl<W> Bucket<W> {
    /// With a full burst.
    pub(crate) fn new(rate: Rate, now: Now) -> Self {
        let mut bucket = Self {
            rate: Some(rate),
            credit: 0,
            at_ns: now.mono_ns,
            next: 0,
            waiting: BTreeMap::new(),
            granted: BTreeMap::new(),
            granted_bytes: 0,
        };
        bucket.credit = bucket.burst();
        bucket
    }

    pub(crate) fn rate(&self) -> Option<Rate> {
        self.rate
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn granted_bytes(&self) -> u64 {
        self.granted_bytes
    }

    /// From now on this rate; `None`: no limit.
    pub(crate) fn set_rate(&mut self, rate: Option<Rate>, now: Now) {
        self.fill(now);
        if self.rate.is_none() {
            self.credit = 0; // what left without a limit was no pause
        }
        self.rate = rate;
        self.credit = self.credit.min(self.burst());
    }

    /// Asks for up to `bytes`, at least one.
    pub(crate) fn ask(&mut self, bytes: u64, who: W, now: Now) -> Asked {
        self.fill(now);
        let bytes = bytes.max(1);
        let grant = bytes.min(self.quantum(1));
        if self.waiting.is_empty() && self.covers(grant) {
            self.pay(grant);
            return Asked::Granted(grant);
        }
        let ticket = self.next;
        self.next = self.next.saturating_add(1);
        self.waiting.insert(ticket, Waiting { bytes, who });
        Asked::Waits(ticket)
    }

    /// Grants what there is credit for; gives those whose turn it was.
    pub(crate) fn serve(&mut self, now: Now) -> Vec<W> {
        self.fill(now);
        let (quantum, is_free) = (self.quantum(self.waiting.len()), self.rate.is_none());
        let mut served = Vec::new();
        while let Some(first) = self.waiting.first_entry() {
            let grant = first.get().bytes.min(quantum);
            if !is_free && self.credit < cost(grant) {
                break;
            }
            let (ticket, Waiting { who, .. }) = first.remove_entry();
            self.pay(grant);
            self.granted.insert(ticket, grant);
            served.push(who);
        }
        served
    }

    /// What a ticket was granted; while it is nothing, `who` waits on.
    pub(crate) fn take(&mut self, ticket: Ticket, who: W) -> Option<u64> {
        if let Some(waiting) = self.waiting.get_mut(&ticket) {
            waiting.who = who;
        }
        self.granted.remove(&ticket)
    }

    /// Who has this ticket does not want anything any more.
    pub(crate) fn leave(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
        if let Some(bytes) = self.granted.remove(&ticket) {
            self.give_back(bytes);
        }
    }

    /// So many granted bytes are not going to be sent.
    pub(crate) fn give_back(&mut self, bytes: u64) {
        self.granted_bytes = self.granted_bytes.saturating_sub(bytes);
        self.credit = self.credit.saturating_add(cost(bytes)).min(self.burst());
    }

    /// So many bytes left without a grant.
    pub(crate) fn owe(&mut self, bytes: u64) {
        self.pay(bytes);
    }

    /// When the next one can be served, monotonic nanoseconds: `None` while nobody waits, or at a
    /// rate of 0.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let first = self.waiting.values().next()?;
        let grant = first.bytes.min(self.quantum(self.waiting.len()));
        let short = cost(grant).saturating_sub(self.credit).max(0);
        let Some(Rate(rate)) = self.rate else { return Some(self.at_ns) };
        let wait_ns = short.checked_add(i128::from(rate))?.checked_sub(1)?;
        let wait_ns = wait_ns.checked_div(i128::from(rate))?;
        Some(self.at_ns.saturating_add(u64::try_from(wait_ns).unwrap_or(u64::MAX)))
    }

    fn fill(&mut self, now: Now) {
        let passed_ns = now.mono_ns.saturating_sub(self.at_ns);
        self.at_ns = self.at_ns.max(now.mono_ns);
        let rate = self.rate.unwrap_or_default();
        let grown = i128::from(passed_ns).saturating_mul(i128::from(rate.0));
        self.credit = self.credit.saturating_add(grown).min(self.burst());
    }

    fn pay(&mut self, bytes: u64) {
        self.granted_bytes = self.granted_bytes.saturating_add(bytes);
        self.credit = self.credit.saturating_sub(cost(bytes));
    }

    fn covers(&self, bytes: u64) -> bool {
        self.rate.is_none() || self.credit >= cost(bytes)
    }

    /// Never less than one quantum, or nobody would ever be served.
    fn burst(&self) -> i128 {
        let rate = self.rate.unwrap_or_default();
        let burst = i128::from(rate.0).saturating_mul(i128::from(BURST_NS));
        burst.max(cost(self.quantum(1)))
    }

    fn quantum(&self, waiting: usize) -> u64 {
        let Some(rate) = self.rate else { return FREE_BYTES_MAX };
        let bits = u128::from(rate.0).saturating_mul(u128::from(ROUND_NS));
        let waiting = u128::try_from(waiting).unwrap_or(u128::MAX).max(1);
        let bytes = bits.checked_div(waiting.saturating_mul(8_000_000_000)).unwrap_or(0);
        u64::try_from(bytes).unwrap_or(u64::MAX).clamp(QUANTUM_BYTES_MIN, QUANTUM_BYTES_MAX)
    }
}

fn cost(bytes: u64) -> i128 {
    i128::from(bytes).saturating_mul(CREDIT_PER_BYTE)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use model::Dice;

    use super::*;

    const MBIT: u64 = 1_000_000;

    fn at_us(us: u64) -> Now {
        Now { mono_ns: us * 1000, wall_ms: 0 }
    }

    /// Lets `clients` ask again as soon as they were served, until `end_us`, with a timer that is up
    /// to `late_us` late. Gives what each had.
    fn play(rate: Rate, clients: usize, end_us: u64, late_us: u64, dice: &mut Dice) -> Vec<u64> {
        let mut bucket = Bucket::new(rate, at_us(0));
        bucket.credit = 0; // whoever came first would have had the burst for himself
        let mut had = vec![0; clients];
        let mut tickets: Vec<Option<Ticket>> = vec![None; clients];
        let mut ready: Vec<usize> = (0..clients).collect();
        let mut now_us = 0;
        while now_us < end_us {
            while let Some(client) = ready.pop() {
                if let Some(ticket) = tickets[client].take() {
                    had[client] += bucket.take(ticket, client).unwrap();
                }
                match bucket.ask(1 << 20, client, at_us(now_us)) {
                    Asked::Granted(bytes) => {
                        had[client] += bytes;
                        ready.push(client);
                    }
                    Asked::Waits(ticket) => tickets[client] = Some(ticket),
                }
            }
            let due_us = bucket.due_ns().unwrap().div_ceil(1000);
            now_us = due_us.max(now_us) + dice.below(late_us + 1);
            ready = bucket.serve(at_us(now_us));
        }
        had
    }

    #[test]
    fn the_rate_holds_and_is_shared_whatever_the_number_of_clients() {
        let mut dice = Dice::seeded(1);
        for (rate, clients, end_s) in [
            (100 * MBIT, 1, 10),
            (100 * MBIT, 7, 10),
            (100 * MBIT, 1000, 10),
            (10_000 * MBIT, 3, 1),
            (MBIT, 2, 10),
            (64_000, 1, 100),
        ] {
            let had = play(Rate(rate), clients, end_s * 1_000_000, 2000, &mut dice);
            let total: u64 = had.iter().sum();
            let want = rate / 8 * end_s;
            let burst = (rate / 8 / 50).max(QUANTUM_BYTES_MIN);
            assert!(total <= want + burst, "{rate} {clients}: {total} of {want}");
            assert!(total >= want - want / 100, "{rate} {clients}: {total} of {want}");
            let (least, most) = (had.iter().min().unwrap(), had.iter().max().unwrap());
            assert!(most - least <= most / 10, "{rate} {clients}: {least} to {most}");
        }
    }

    #[test]
    fn after_a_pause_no_more_than_a_burst_leaves_at_once() {
        let mut bucket = Bucket::new(Rate(100 * MBIT), at_us(0));
        let mut at_once = 0;
        while let Asked::Granted(bytes) = bucket.ask(u64::MAX, (), at_us(60_000_000)) {
            assert_eq!(bytes, 62_500, "100 Mbit/s for 5 ms");
            at_once += bytes;
        }
        assert_eq!(at_once, 250_000, "100 Mbit/s for 20 ms");
        assert_eq!(bucket.due_ns(), Some(60_005_000_000));
        assert!(bucket.serve(at_us(60_004_999)).is_empty());
        assert_eq!(bucket.serve(at_us(60_005_000)).len(), 1);
    }

    #[test]
    fn who_leaves_gives_back_and_is_not_waited_for() {
        let mut bucket = Bucket::new(Rate(8000), at_us(0));
        assert_eq!(bucket.ask(9000, 1, at_us(0)), Asked::Granted(1400));
        let Asked::Waits(first) = bucket.ask(9000, 1, at_us(0)) else { panic!() };
        let Asked::Waits(second) = bucket.ask(9000, 2, at_us(0)) else { panic!() };
        let Asked::Waits(third) = bucket.ask(100, 3, at_us(0)) else { panic!() };
        bucket.leave(first);
        assert_eq!(bucket.serve(at_us(1_400_000)), [2]);
        assert_eq!((bucket.waiting(), bucket.granted_bytes()), (1, 2800));
        bucket.leave(second);
        assert_eq!(bucket.granted_bytes(), 1400, "it was not taken");
        assert_eq!(bucket.take(third, 4), None);
        assert_eq!(bucket.serve(at_us(1_400_000)), [4], "by what was given back");
        assert_eq!(bucket.take(third, 4), Some(100));
        assert_eq!((bucket.waiting(), bucket.due_ns()), (0, None));
        assert!(bucket.granted.is_empty() && bucket.waiting.is_empty());
    }

    #[test]
    fn a_debt_is_paid_first_and_a_new_rate_holds_at_once() {
        let mut bucket = Bucket::new(Rate(80_000), at_us(0));
        bucket.owe(10_000 + 1400);
        let Asked::Waits(_) = bucket.ask(1400, (), at_us(0)) else { panic!() };
        assert_eq!(bucket.due_ns(), Some(1_140_000_000), "(11400 + 1400 - 1400) B at 10 kB/s");
        bucket.set_rate(Some(Rate(800_000)), at_us(140_000));
        assert_eq!(bucket.due_ns(), Some(240_000_000), "10 kB were left, at 100 kB/s");
        bucket.set_rate(Some(Rate(0)), at_us(140_000));
        assert_eq!(bucket.due_ns(), None, "never");
        assert!(bucket.serve(at_us(999_000_000)).is_empty());
        bucket.set_rate(Some(Rate(800_000)), at_us(999_000_000));
        assert_eq!(bucket.serve(at_us(999_100_000)).len(), 1);
    }

    #[test]
    fn without_a_limit_all_is_granted_and_a_limit_begins_without_a_burst() {
        let mut bucket = Bucket::new(Rate(0), at_us(0));
        assert_eq!(bucket.ask(1400, (), at_us(0)), Asked::Granted(1400));
        let Asked::Waits(ticket) = bucket.ask(5 << 20, (), at_us(0)) else { panic!() };
        bucket.set_rate(None, at_us(10));
        assert_eq!((bucket.due_ns(), bucket.serve(at_us(10)).len()), (Some(10_000), 1));
        assert_eq!(bucket.take(ticket, ()), Some(1 << 20));
        assert_eq!(bucket.ask(5 << 20, (), at_us(10)), Asked::Granted(1 << 20));
        bucket.set_rate(Some(Rate(80_000)), at_us(20));
        let Asked::Waits(_) = bucket.ask(1400, (), at_us(20)) else { panic!() };
        assert_eq!(bucket.due_ns(), Some(140_020_000));
    }

    /// Whatever is asked, left, given back and changed: never more than the highest rate and a burst,
    /// and nobody is forgotten.
    #[test]
    fn no_story_gets_more_than_the_rate() {
        for seed in 0..200 {
            let mut dice = Dice::seeded(seed);
            let rates = [64_000, MBIT, 30 * MBIT];
            let mut rate = 30 * MBIT;
            let mut bucket = Bucket::new(Rate(rate), at_us(0));
            let (mut now_us, mut tickets, mut sent) = (0, Vec::new(), 0);
            let mut allowed = u128::from(30 * MBIT / 8 / 50);
            for _ in 0..2000 {
                let step_us = dice.below(2000);
                now_us += step_us;
                allowed += u128::from(rate) * u128::from(step_us);
                match dice.below(10) {
                    0..=4 => match bucket.ask(dice.below(200_000), (), at_us(now_us)) {
                        Asked::Granted(bytes) => sent += u128::from(bytes),
                        Asked::Waits(ticket) => tickets.push(ticket),
                    },
                    5..=7 => {
                        bucket.serve(at_us(now_us));
                        tickets.retain(|ticket| match bucket.take(*ticket, ()) {
                            Some(bytes) => {
                                let back = dice.below(bytes + 1);
                                bucket.give_back(back);
                                sent += u128::from(bytes - back);
                                false
                            }
                            None => true,
                        });
                    }
                    8 if !tickets.is_empty() => {
                        let which = usize::try_from(dice.below(tickets.len() as u64)).unwrap();
                        bucket.leave(tickets.swap_remove(which));
                    }
                    _ => {
                        rate = rates[usize::try_from(dice.below(3)).unwrap()];
                        bucket.set_rate(Some(Rate(rate)), at_us(now_us));
                    }
                }
                assert_eq!(bucket.waiting() + bucket.granted.len(), tickets.len());
                let limit = 30 * u128::from(MBIT) / 50 / 8 + allowed / 8_000_000;
                assert!(sent <= limit, "seed {seed}: {sent} of {limit}");
            }
        }
    }
}
