//! Active: no connection yet; the peer may open one.

use model::Now;

use super::State;
use super::idle::begin;
use super::shared::Shared;

#[derive(Debug)]
pub(super) struct Active {
    /// When we open one ourselves (monotonic nanoseconds); never where we are to wait.
    pub(super) retry_ns: Option<u64>,
}

impl Active {
    pub(super) fn handle_timeout(self, shared: &mut Shared, now: Now) -> State {
        begin(shared, now)
    }
}
