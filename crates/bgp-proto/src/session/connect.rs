//! Connect: a connection is being opened.

use model::Now;

use super::shared::{Shared, after_s};
use super::{Action, State};

/// How long opening one may take.
const PATIENCE_S: u64 = 20;

#[derive(Debug)]
pub(super) struct Connect {
    /// When it is given up (monotonic nanoseconds).
    pub(super) until_ns: u64,
}

impl Connect {
    pub(super) fn begin(now: Now) -> Self {
        Self { until_ns: after_s(now, PATIENCE_S) }
    }

    pub(super) fn handle_timeout(self, shared: &mut Shared, now: Now) -> State {
        shared.act(Action::CancelConnect);
        shared.retry(now)
    }
}
