//! One word that ends a process: every task holds a [`Shutdown`] and may wait for it.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// A clone for each task; triggered once, for all.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Sender<bool>);

impl Default for Shutdown {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Shutdown {
    /// A shutdown that SIGTERM or SIGINT triggers. Needs a tokio runtime.
    pub fn on_signals() -> io::Result<Self> {
        let shutdown = Self::default();
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        let handle = shutdown.clone();
        tokio::spawn(async move {
            let name = tokio::select! {
                _ = term.recv() => "SIGTERM",
                _ = int.recv() => "SIGINT",
            };
            tracing::info!(signal = name, "stopping");
            handle.trigger();
        });
        Ok(shutdown)
    }

    /// Ends the wait of everyone, now and later.
    pub fn trigger(&self) {
        self.0.send_replace(true);
    }

    /// Whether it was triggered.
    pub fn is_triggered(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns when it is triggered; at once when it was.
    pub async fn wait(&self) {
        // The sender lives in `self`, so the channel cannot close under the wait.
        let _ = self.0.subscribe().wait_for(|stop| *stop).await;
    }
}
