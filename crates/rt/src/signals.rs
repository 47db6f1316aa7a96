//! Signals: which of them ends the process, and at what pace.
//!
//! SIGTERM leaves in peace: the health page says `draining` for the notice, connections are still
//! taken; then running responses have until the deadline. SIGINT, a person's Ctrl-C, gives them
//! seconds. Either of them a second time, or once the process is draining, cuts. SIGUSR1 ends nothing:
//! files that logs are written to are opened anew.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::notify;
use crate::shutdown::{Phase, Shutdown};

/// How long running responses have where nobody configured it.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(30);

/// How a process leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How long it says so before it takes no more connections.
    pub notice: Duration,
    /// How long running responses have from then on.
    pub deadline: Duration,
}

impl Default for Pace {
    /// That of a host that nobody steers clients to.
    fn default() -> Self {
        Self { notice: Duration::ZERO, deadline: DEADLINE_DEFAULT }
    }
}

/// How often it was asked that log files be opened anew.
#[derive(Clone, Debug, Default)]
pub struct Reopen(Arc<AtomicU64>);

impl Reopen {
    /// Whoever finds another number than before opens its files.
    pub fn asked(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Asks for it.
    pub fn ask(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// Asks for it at each SIGUSR1 from now on. Needs a tokio runtime.
    ///
    /// # Errors
    /// When the system does not let it.
    pub fn on_signal(&self) -> io::Result<()> {
        let mut asked = signal(SignalKind::user_defined1())?;
        let reopen = self.clone();
        tokio::spawn(async move {
            while asked.recv().await.is_some() {
                tracing::info!(signal = "SIGUSR1", "log files are opened anew");
                reopen.ask();
            }
        });
        Ok(())
    }
}

/// The signals, taken from the moment this is made.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Takes them. Needs a tokio runtime.
    ///
    /// # Errors
    /// When the system does not let it.
    pub fn take() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Leads `shutdown` through its phases, as signals say and at `pace`, to [`Phase::Cut`].
    pub async fn conduct(mut self, shutdown: Shutdown, pace: Pace) {
        let hurry = async {
            self.first(&shutdown, pace).await;
            let name = self.next().await;
            tracing::warn!(signal = name, "once more: everything is cut");
        };
        tokio::select! {
            () = hurry => {}
            () = patience_is_over(&shutdown) => {
                tracing::warn!("what still runs has had its time: it is cut");
            }
        }
        shutdown.cut();
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// Waits for the first signal, does what it says, and returns at once. None that comes while
    /// the process drains already is a first one.
    async fn first(&mut self, shutdown: &Shutdown, pace: Pace) {
        let name = tokio::select! {
            () = shutdown.reached(Phase::Draining) => return,
            name = self.next() => name,
        };
        tracing::info!(signal = name, "leaving");
        notify::stopping();
        if name == "SIGINT" {
            shutdown.end_soon();
            return;
        }
        shutdown.leave();
        let shutdown = shutdown.clone();
        tokio::spawn(async move {
            tokio::time::sleep(pace.notice).await;
            let at_most_s = pace.deadline.as_secs();
            tracing::info!(at_most_s, "no connections are taken any more: what runs is finished");
            shutdown.drain(pace.deadline);
        });
    }
}

/// Returns when running responses have had their time.
async fn patience_is_over(shutdown: &Shutdown) {
    shutdown.reached(Phase::Draining).await;
    loop {
        let patience = shutdown.patience();
        tokio::select! {
            () = tokio::time::sleep(patience) => return,
            () = shutdown.less_patience(patience) => {}
        }
    }
}
