//! What is known of a node in one address family.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The state of a node and family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Probes pass.
    Up,
    /// Probes fail: gets no clients.
    Down,
    /// Not probed yet, or not lately: treated as up, since a checker's ignorance must not
    /// take a node away.
    Unknown,
    /// Taken out by a person: gets no new clients.
    Drained,
}

impl State {
    /// Whether clients may be sent there.
    pub fn serves(self) -> bool {
        matches!(self, Self::Up | Self::Unknown)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Unknown => "unknown",
            Self::Drained => "drained",
        })
    }
}

/// A state with its reason and its beginning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// The state.
    pub state: State,
    /// Why, in words for people: the evidence that decided.
    pub reason: String,
    /// Unix time in milliseconds since when.
    pub since_ms: u64,
    /// How much of its weight the node has now, in thousandths from 0 to [`PERMILLE`]: less while it
    /// is near its capacity, warms up, or has not been heard of for long. 0: gets nobody while others
    /// of the client's pools serve.
    #[serde(default = "all", skip_serializing_if = "is_all")]
    pub permille: u32,
}

/// The whole, in thousandths.
pub const PERMILLE: u32 = 1000;

fn all() -> u32 {
    PERMILLE
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_all(permille: &u32) -> bool {
    *permille == PERMILLE
}

impl NodeState {
    /// A state with the whole weight.
    pub fn new(state: State, reason: impl Into<String>, since_ms: u64) -> Self {
        Self { state, reason: reason.into(), since_ms, permille: PERMILLE }
    }

    /// The state of a node nobody has probed yet.
    pub fn unprobed(since_ms: u64) -> Self {
        Self::new(State::Unknown, "not probed yet", since_ms)
    }
}
