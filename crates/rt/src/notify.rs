//! What systemd is told: ready, reloading, stopping, alive. Silent where nobody asked
//! (`NOTIFY_SOCKET`).

use std::time::Duration;

use sd_notify::NotifyState;

use crate::alive::Alive;
use crate::{Phase, Shutdown};

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd could not be told");
    }
}

/// This process serves, and is the main one from now on.
pub fn ready(status: &str) {
    let pid = std::process::id();
    tell(&[NotifyState::MainPid(pid), NotifyState::Ready, NotifyState::Status(status)]);
}

/// A successor is being started.
pub fn reloading() {
    let now = NotifyState::monotonic_usec_now();
    tell(&[NotifyState::Reloading, now.unwrap_or(NotifyState::MonotonicUsec(0))]);
}

/// The process was told to leave.
pub fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("finishing what runs")]);
}

/// Says that the process is alive as often as systemd wants to hear it, as long as it is and until a
/// successor is the main process. Ends at once where nobody asked.
pub async fn watchdog(alive: Alive, shutdown: Shutdown) {
    let Some(patience) = sd_notify::watchdog_enabled() else { return };
    while !(shutdown.has_yielded() && shutdown.has_reached(Phase::Draining)) {
        match alive.stuck(patience) {
            None => tell(&[NotifyState::Watchdog]),
            Some(what) => tracing::error!(what, "a part of this process does nothing any more"),
        }
        tokio::time::sleep(patience.checked_div(3).unwrap_or(Duration::from_secs(1))).await;
    }
}
