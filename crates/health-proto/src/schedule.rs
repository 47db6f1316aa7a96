//! When each target is asked, and how many at a time.
//!
//! A target is asked again at most its interval after it was asked last; the dice take some of that
//! off. Where all together want more than the budget, every interval is stretched by the same factor,
//! and within any second never more probes are sent than the budget has.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::{Dice, NodeState, Now};

use crate::count::Tracked;
use crate::probe::{Probe, ProbeResult, Question, Target};
use crate::setup::Setup;
use crate::targets::Ask;

/// First probes are spread over at most this long, milliseconds.
const FIRST_SPREAD_MS: u64 = 500;
const NS_PER_MS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// Intervals are stretched to leave one part in so many of the budget, so that no queue builds up.
const SPARE_PART: u64 = 20;

/// The targets with their counts.
#[derive(Debug)]
pub(crate) struct Schedule {
    targets: BTreeMap<Target, Entry>,
    /// When each that is not under way is due.
    queue: BTreeSet<(u64, Target)>,
    in_flight: BTreeMap<u64, Target>,
    in_flight_max: usize,
    next_probe: u64,
    /// When probes were sent within the last second.
    sent_ns: VecDeque<u64>,
    budget_per_s: usize,
    /// By how much intervals are longer than declared, thousandths.
    stretch_permille: u64,
}

#[derive(Debug)]
struct Entry {
    tracked: Tracked,
    ask: Ask,
}

impl Schedule {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self {
            targets: BTreeMap::new(),
            queue: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            in_flight_max: setup.params.in_flight_max,
            next_probe: 0,
            sent_ns: VecDeque::new(),
            budget_per_s: usize::try_from(setup.budget_per_s).unwrap_or(usize::MAX),
            stretch_permille: 1000,
        }
    }

    /// Takes over who is asked from now on: the counts of those that stay go on.
    pub(crate) fn set(&mut self, targets: BTreeMap<Target, Ask>, now: Now, dice: &mut Dice) {
        let mut before = std::mem::take(&mut self.targets);
        self.queue.clear();
        for (target, ask) in targets {
            let spread_ms = FIRST_SPREAD_MS.min(ask.timing.interval_ms);
            let due_ns =
                now.mono_ns.saturating_add(dice.below(spread_ms.saturating_mul(NS_PER_MS)));
            let fresh = || {
                let unprobed = NodeState::unprobed(now.wall_ms);
                Tracked::new(unprobed.state, unprobed.reason, due_ns)
            };
            let tracked = before.remove(&target).map_or_else(fresh, |entry| entry.tracked);
            if tracked.asked.is_none() {
                self.queue.insert((tracked.due_ns, target.clone()));
            }
            self.targets.insert(target, Entry { tracked, ask });
        }
        self.stretch_permille = self.stretch();
    }

    /// How much the intervals must be longer so that the budget is kept.
    fn stretch(&self) -> u64 {
        // Probes in a million seconds.
        let wanted = self.targets.values().map(|Entry { ask, .. }| {
            let jitter = u64::from(ask.timing.jitter_percent.min(100));
            let interval_us = ask
                .timing
                .interval_ms
                .saturating_mul(200u64.saturating_sub(jitter))
                .saturating_mul(5);
            1_000_000_000_000u64.checked_div(interval_us).unwrap_or(u64::MAX)
        });
        let wanted = wanted.fold(0, u64::saturating_add);
        let spare = |all: u64| all.saturating_sub(all / SPARE_PART).max(1);
        let budget = spare((self.budget_per_s as u64).saturating_mul(1_000_000));
        let stretch = u128::from(wanted).saturating_mul(1000).div_ceil(u128::from(budget));
        u64::try_from(stretch).unwrap_or(u64::MAX).max(1000)
    }

    pub(crate) fn stretch_permille(&self) -> u64 {
        self.stretch_permille
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    pub(crate) fn get(&self, target: &Target) -> Option<&Tracked> {
        self.targets.get(target).map(|entry| &entry.tracked)
    }

    pub(crate) fn get_mut(&mut self, target: &Target) -> Option<&mut Tracked> {
        self.targets.get_mut(target).map(|entry| &mut entry.tracked)
    }

    pub(crate) fn question(&self, target: &Target) -> Option<&Question> {
        self.targets.get(target).map(|entry| &entry.ask.question)
    }

    /// Longest time from one probe of a target to the next, as it is now, nanoseconds.
    pub(crate) fn interval_ns(&self, target: &Target) -> u64 {
        let declared_ms = self.targets.get(target).map_or(0, |entry| entry.ask.timing.interval_ms);
        declared_ms.saturating_mul(NS_PER_MS).saturating_mul(self.stretch_permille) / 1000
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Target, &Tracked)> {
        self.targets.iter().map(|(target, entry)| (target, &entry.tracked))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&Target, &mut Tracked)> {
        self.targets.iter_mut().map(|(target, entry)| (target, &mut entry.tracked))
    }

    /// Makes a target due now, unless it is being asked.
    pub(crate) fn hasten(&mut self, target: &Target, now: Now) {
        let Some(entry) = self.targets.get_mut(target) else { return };
        let was = (entry.tracked.due_ns, target.clone());
        if entry.tracked.due_ns > now.mono_ns && self.queue.remove(&was) {
            entry.tracked.due_ns = now.mono_ns;
            self.queue.insert((now.mono_ns, was.1));
        }
    }

    /// Takes the result of the probe `id`; gives the target that it was counted for. One whose target
    /// has left counts for nobody.
    pub(crate) fn take(&mut self, now: Now, id: u64, result: ProbeResult) -> Option<Target> {
        let target = self.in_flight.remove(&id)?;
        let tracked = &mut self.targets.get_mut(&target)?.tracked;
        let (_, sent_ns) = tracked.asked.filter(|(asked, _)| *asked == id)?;
        tracked.count(result, sent_ns, now);
        self.queue.insert((tracked.due_ns, target.clone()));
        Some(target)
    }

    /// The probes to send now, those due longest first.
    pub(crate) fn poll_due(&mut self, now: Now, dice: &mut Dice) -> Vec<Probe> {
        let mut probes = Vec::new();
        while self.sent_ns.front().is_some_and(|at| at.saturating_add(SECOND_NS) <= now.mono_ns) {
            self.sent_ns.pop_front();
        }
        while self.in_flight.len() < self.in_flight_max && self.sent_ns.len() < self.budget_per_s {
            if self.queue.first().is_none_or(|(due_ns, _)| *due_ns > now.mono_ns) {
                break;
            }
            let Some((_, target)) = self.queue.pop_first() else { break };
            probes.extend(self.send(now, target, dice));
        }
        probes
    }

    fn send(&mut self, now: Now, target: Target, dice: &mut Dice) -> Option<Probe> {
        let Entry { tracked, ask } = self.targets.get_mut(&target)?;
        let id = self.next_probe;
        self.next_probe = id.wrapping_add(1);
        let declared_ns = ask.timing.interval_ms.saturating_mul(NS_PER_MS);
        let interval_ns = declared_ns.saturating_mul(self.stretch_permille) / 1000;
        let jitter = u64::from(ask.timing.jitter_percent.min(100));
        let early = dice.below((interval_ns / 100).saturating_mul(jitter).saturating_add(1));
        tracked.asked = Some((id, now.mono_ns));
        tracked.due_ns = now.mono_ns.saturating_add(interval_ns.saturating_sub(early));
        self.in_flight.insert(id, target.clone());
        self.sent_ns.push_back(now.mono_ns);
        let (place, question) = (ask.place.clone(), ask.question.clone());
        Some(Probe { id, target, place, question, timeout_ms: ask.timing.timeout_ms })
    }

    /// When to ask again, monotonic nanoseconds.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        if self.in_flight.len() >= self.in_flight_max {
            return None;
        }
        let (due_ns, _) = self.queue.first()?;
        let spent = self.sent_ns.len() >= self.budget_per_s;
        let room_ns = self.sent_ns.front().filter(|_| spent).map(|at| at.saturating_add(SECOND_NS));
        Some((*due_ns).max(room_ns.unwrap_or(0)))
    }
}
