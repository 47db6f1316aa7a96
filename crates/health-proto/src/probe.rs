//! What is probed, what may come back, and how one address is counted up and down.

use std::fmt;
use std::net::IpAddr;

use model::{Family, Name, Now, State};

use crate::checker::Params;

/// An address of a node. Addresses are counted apart, because clients are given all of them: a
/// node is up in a family when every address of the family is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The node.
    pub node: Name,
    /// One of its addresses.
    pub address: IpAddr,
}

impl Target {
    /// The family of the address.
    pub fn family(&self) -> Family {
        Family::of(self.address)
    }
}

/// A probe to be made now. Exactly one result must be handed back for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Tells this probe from every other of the same checker.
    pub id: u64,
    /// Whom to ask.
    pub target: Target,
}

/// What a probe brought.
pub type ProbeResult = Result<Passed, Failure>;

/// The node answered as it should: status 200, whole body, in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// How long the whole probe took, milliseconds.
    pub took_ms: u64,
}

impl fmt::Display for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "status 200 in {} ms", self.took_ms)
    }
}

/// Why a probe failed: the evidence that people see as the reason of a node's state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Nobody listens there.
    #[error("connect refused")]
    Refused,
    /// The network cannot reach the address, or this host may not; the text says which.
    #[error("cannot connect: {0}")]
    Unreachable(String),
    /// Not everything came in time.
    #[error("no answer in {timeout_ms} ms")]
    NoAnswer {
        /// How long the probe waited, milliseconds.
        timeout_ms: u64,
    },
    /// The connection ended before the answer was whole.
    #[error("connection closed before the whole answer")]
    Closed,
    /// What came was not HTTP.
    #[error("answer is not HTTP")]
    NotHttp,
    /// A status other than 200.
    #[error("status {0}")]
    Status(u16),
    /// The body went on beyond what a health page may have.
    #[error("body over {bytes_max} bytes")]
    TooLarge {
        /// The limit, bytes.
        bytes_max: usize,
    },
}

impl Failure {
    /// One stable word, for metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Unreachable(_) => "unreachable",
            Self::NoAnswer { .. } => "no-answer",
            Self::Closed => "closed",
            Self::NotHttp => "not-http",
            Self::Status(_) => "status",
            Self::TooLarge { .. } => "too-large",
        }
    }
}

/// Where the count of one address stands.
#[derive(Debug)]
pub(crate) struct Tracked {
    pub(crate) state: State,
    pub(crate) reason: String,
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
            confirmed: false,
            passes: 0,
            fails: 0,
            failing_since_ns: 0,
            asked: None,
            due_ns,
            last: None,
        }
    }

    /// Counts `result` of the probe that was sent at `sent_ns`.
    pub(crate) fn count(&mut self, result: ProbeResult, sent_ns: u64, now: Now) {
        self.asked = None;
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

    /// Draws the conclusion from the counters. `hold` keeps a fallen address where it is.
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
            self.reason = match result {
                Ok(passed) => passed.to_string(),
                Err(failure) => failure.to_string(),
            };
        }
    }
}
