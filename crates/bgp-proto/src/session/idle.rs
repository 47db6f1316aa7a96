//! Idle: no connection, and none is taken.

use model::Now;

use super::active::Active;
use super::connect::Connect;
use super::shared::Shared;
use super::{Action, State};

#[derive(Debug)]
pub(super) struct Idle {
    /// When it begins anew (monotonic nanoseconds); never by itself where it was stopped.
    pub(super) until_ns: Option<u64>,
}

impl Idle {
    pub(super) fn stopped() -> Self {
        Self { until_ns: None }
    }

    pub(super) fn handle_timeout(self, shared: &mut Shared, now: Now) -> State {
        begin(shared, now)
    }
}

/// The state that a session begins with.
pub(super) fn begin(shared: &mut Shared, now: Now) -> State {
    if shared.params.passive {
        return State::Active(Active { retry_ns: None });
    }
    shared.act(Action::Connect);
    State::Connect(Connect::begin(now))
}
