//! How one target is counted up and down.

use model::{Now, State};

use crate::probe::{Evidence, ProbeResult};
use crate::setup::Params;

/// Where the count of one target stands.
#[derive(Debug)]
pub(crate) struct Tracked {
    pub(crate) state: State,
    pub(crate) reason: String,
    /// Of the failure that decided; none while it is up.
    pub(crate) evidence: Option<Evidence>,
    /// Whether a probe of this run has spoken for `state`.
    pub(crate) confirmed: bool,
    /// Passes in a row; 0 after a failure.
    pub(crate) passes: u32,
    /// Failures in a row; 0 after a pass.
    pub(crate) fails: u32,
    /// When the first failed probe of the row was sent.
    pub(crate) failing_since_ns: u64,
    /// The probe under way, and when it was sent.
    pub(crate) asked: Option<(u64, u64)>,
    /// When the last probe that has ended was sent.
    pub(crate) sent_ns: u64,
    /// When the next probe is due.
    pub(crate) due_ns: u64,
    /// What the last probe brought, and when.
    pub(crate) last: Option<(ProbeResult, Now)>,
}

impl Tracked {
    pub(crate) fn new(state: State, reason: String, due_ns: u64) -> Self {
        Self {
            state,
            reason,
            evidence: None,
            confirmed: false,
            passes: 0,
            fails: 0,
            failing_since_ns: 0,
            asked: None,
            sent_ns: 0,
            due_ns,
            last: None,
        }
    }

    /// Counts `result` of the probe that was sent at `sent_ns`.
    pub(crate) fn count(&mut self, result: ProbeResult, sent_ns: u64, now: Now) {
        (self.asked, self.sent_ns) = (None, sent_ns);
        if result.is_ok() {
            self.passes = self.passes.saturating_add(1);
            self.fails = 0;
        } else {
            if self.fails == 0 {
                self.failing_since_ns = sent_ns;
            }
            self.fails = self.fails.saturating_add(1);
            self.passes = 0;
        }
        self.last = Some((result, now));
    }

    /// Whether the failures in a row are enough to be down.
    pub(crate) fn has_fallen(&self, params: &Params) -> bool {
        self.fails >= params.fall
    }

    /// Draws the conclusion from the counters. `hold` keeps a fallen target where it is.
    pub(crate) fn settle(&mut self, params: &Params, hold: bool) {
        let Some((result, _)) = &self.last else { return };
        let next = match (self.state, result) {
            // Unknown serves as up does, so there is nothing that `rise` would protect.
            (State::Unknown, Ok(_)) => State::Up,
            (State::Down, Ok(_)) if self.passes >= params.rise => State::Up,
            (State::Up | State::Unknown, Err(_)) if self.has_fallen(params) && !hold => State::Down,
            (same, _) => same,
        };
        // A restored state is confirmed by the first result that agrees with it.
        let agrees = result.is_ok() == (self.state == State::Up);
        if next != self.state || (!self.confirmed && agrees && self.state != State::Unknown) {
            self.state = next;
            self.confirmed = true;
            (self.reason, self.evidence) = match result {
                Ok(passed) => (passed.to_string(), None),
                Err(failed) => (failed.to_string(), Some(failed.evidence.clone())),
            };
        }
    }
}
