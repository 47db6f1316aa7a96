//! The state of a subject as it is published: what the council says, damped.
//!
//! A fall holds at once. A recovery waits until the dwell is over, which doubles with each fall within
//! the flap window. Of what nobody has heard for long, `up` decays to `unknown`; `down` stays, since
//! silence is no recovery.

use std::collections::VecDeque;

use model::{NodeState, Now, State};

use crate::council::Decision;
use crate::observe::Verdict;
use crate::probe::Evidence;
use crate::setup::Setup;
use crate::watch::UNCONFIRMED;

const NS_PER_MS: u64 = 1_000_000;
/// Falls remembered: more do not lengthen the dwell, because its bound is reached.
const FALLS_MAX: usize = 32;

/// What a step changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    Nothing,
    Words,
    State,
}

/// See the module's page.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) state: NodeState,
    pub(crate) evidence: Option<Evidence>,
    /// Whether what is bad is an answer that differs (masters only).
    pub(crate) differs: bool,
    /// When anybody had a vote last.
    news_ns: u64,
    dwell_until_ns: u64,
    /// When it fell, lately.
    falls_ns: VecDeque<u64>,
    /// When it came back.
    pub(crate) back_ns: Option<u64>,
    /// It was up, and nobody has heard of it for long.
    pub(crate) decayed: bool,
}

impl Standing {
    pub(crate) fn new(state: NodeState, now: Now) -> Self {
        Self {
            state,
            evidence: None,
            differs: false,
            news_ns: now.mono_ns,
            dwell_until_ns: 0,
            falls_ns: VecDeque::new(),
            back_ns: None,
            decayed: false,
        }
    }

    /// Falls within the flap window.
    pub(crate) fn falls(&self, now: Now, setup: &Setup) -> u32 {
        let window_ns = intervals_ns(setup, setup.damping.flap_window_intervals);
        let recent = |at: &&u64| at.saturating_add(window_ns) >= now.mono_ns;
        u32::try_from(self.falls_ns.iter().filter(recent).count()).unwrap_or(u32::MAX)
    }

    /// Follows the council. `reworded`: the evidence for the same verdict is another now.
    pub(crate) fn step(
        &mut self,
        now: Now,
        decision: Decision,
        setup: &Setup,
        reworded: bool,
    ) -> Change {
        if decision.verdict == Verdict::Unknown {
            return self.decay(now, setup);
        }
        self.news_ns = now.mono_ns;
        let differs = decision.verdict == Verdict::Differs;
        let next = match decision.verdict {
            Verdict::Fail | Verdict::Differs => State::Down,
            Verdict::Pass | Verdict::Unknown if self.is_dwelling(now) => State::Down,
            Verdict::Pass | Verdict::Unknown => State::Up,
        };
        if next == self.state.state && differs == self.differs {
            let confirmed = self.state.reason.starts_with(UNCONFIRMED);
            // While it dwells the reason of the fall stays.
            let agrees = (decision.verdict == Verdict::Pass) == (next == State::Up);
            if agrees && (confirmed || reworded) && self.state.reason != decision.reason {
                self.state.reason = decision.reason;
                self.evidence = decision.evidence;
                return Change::Words;
            }
            return Change::Nothing;
        }
        if self.is_dwelling(now) && decision.verdict == Verdict::Pass {
            return Change::Nothing;
        }
        match (self.state.state, next) {
            (State::Down, State::Up) => self.back_ns = Some(now.mono_ns),
            (State::Up | State::Unknown, State::Down) => self.fall(now, setup),
            _ => {}
        }
        (self.differs, self.decayed) = (differs, false);
        self.state = NodeState::new(next, decision.reason, now.wall_ms);
        self.evidence = decision.evidence;
        Change::State
    }

    fn is_dwelling(&self, now: Now) -> bool {
        self.state.state == State::Down && now.mono_ns < self.dwell_until_ns
    }

    fn fall(&mut self, now: Now, setup: &Setup) {
        let before = self.falls(now, setup);
        let damping = &setup.damping;
        let doubled = 1u32.checked_shl(before).unwrap_or(u32::MAX);
        let dwell = damping.dwell_intervals.saturating_mul(doubled);
        let dwell = dwell.min(damping.dwell_intervals_max.max(damping.dwell_intervals));
        self.dwell_until_ns = now.mono_ns.saturating_add(intervals_ns(setup, dwell));
        self.back_ns = None;
        self.falls_ns.push_back(now.mono_ns);
        if self.falls_ns.len() > FALLS_MAX {
            self.falls_ns.pop_front();
        }
    }

    fn decay(&mut self, now: Now, setup: &Setup) -> Change {
        let after_ns = intervals_ns(setup, setup.damping.unknown_after_intervals);
        let silent = now.mono_ns > self.news_ns.saturating_add(after_ns);
        if !silent || self.state.state != State::Up {
            return Change::Nothing;
        }
        let silent_s = now.mono_ns.saturating_sub(self.news_ns) / 1_000_000_000;
        let reason = format!("nothing heard for {silent_s} s; before: {}", self.state.reason);
        self.state = NodeState::new(State::Unknown, reason, now.wall_ms);
        self.decayed = true;
        Change::State
    }
}

/// So many intervals, nanoseconds.
pub(crate) fn intervals_ns(setup: &Setup, count: u32) -> u64 {
    let interval_ns = setup.params.interval_ms.saturating_mul(NS_PER_MS);
    interval_ns.saturating_mul(u64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::{Damping, Params};
    use crate::tests::START;

    fn decision(verdict: Verdict) -> Decision {
        Decision { verdict, reason: verdict.to_string(), evidence: None }
    }

    fn setup() -> Setup {
        let damping = Damping {
            dwell_intervals: 2,
            flap_window_intervals: 100,
            dwell_intervals_max: 7,
            unknown_after_intervals: 5,
        };
        let params = Params { interval_ms: 1000, ..Params::default() };
        Setup { damping, ..Setup::of(params) }
    }

    #[test]
    fn each_fall_within_the_window_doubles_the_dwell_up_to_its_bound() {
        let setup = setup();
        let mut standing = Standing::new(NodeState::unprobed(0), START);
        let mut at_ms = 0;
        let mut dwells = Vec::new();
        for _ in 0..4 {
            let fell = START.plus_ms(at_ms);
            assert_eq!(standing.step(fell, decision(Verdict::Fail), &setup, false), Change::State);
            loop {
                at_ms += 100;
                let now = START.plus_ms(at_ms);
                if standing.step(now, decision(Verdict::Pass), &setup, false) == Change::State {
                    dwells.push((now.mono_ns - fell.mono_ns) / 1_000_000);
                    break;
                }
                assert_eq!((standing.state.state, &*standing.state.reason), (State::Down, "fail"));
            }
        }
        assert_eq!(dwells, [2000, 4000, 7000, 7000]);
        // Long after, it is as if nothing had been.
        let later = START.plus_ms(at_ms + 100_001);
        assert_eq!(standing.falls(later, &setup), 0);
        standing.step(later, decision(Verdict::Fail), &setup, false);
        let after = later.plus_ms(2000);
        assert_eq!(standing.step(after, decision(Verdict::Pass), &setup, false), Change::State);
    }

    #[test]
    fn what_nobody_hears_of_decays_from_up_but_never_from_down() {
        let setup = setup();
        for (verdict, state) in [(Verdict::Pass, State::Unknown), (Verdict::Fail, State::Down)] {
            let mut standing = Standing::new(NodeState::unprobed(0), START);
            standing.step(START, decision(verdict), &setup, false);
            let silence = || decision(Verdict::Unknown);
            let held = standing.step(START.plus_ms(5000), silence(), &setup, false);
            assert_eq!(held, Change::Nothing);
            standing.step(START.plus_ms(6000), silence(), &setup, false);
            assert_eq!(standing.state.state, state);
            assert_eq!(standing.decayed, state == State::Unknown);
        }
    }
}
