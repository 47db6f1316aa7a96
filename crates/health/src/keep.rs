//! The published node map on disk, so that a start goes on with the states and above the generation
//! of the last run, and those before it (`history.rs`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rt::metrics::health as metric;
use rt::{Context, Phase, Shutdown, file};
use tokio::sync::watch;

use crate::aside::aside;
use crate::desk::{Desk, Published};
use crate::history;

/// How long a publication waits for the disk.
const DISK_WAIT: Duration = Duration::from_millis(500);
/// Pause before a failed write is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Hands node maps to the task that writes them.
#[derive(Debug)]
pub(crate) struct Keeper {
    latest: watch::Sender<Published>,
    /// Generation that was last dealt with: written, or failed and logged.
    done: watch::Receiver<u64>,
}

impl Keeper {
    /// Starts the writing task. What `desk` has published already is its first work.
    pub(crate) fn start(path: PathBuf, desk: &Arc<Desk>, context: &Context) -> Self {
        let latest = watch::Sender::new(desk.subscribe().borrow().clone());
        let (dealt_with, done) = watch::channel(0);
        let work = latest.subscribe();
        let errors = context.metrics.counter(&metric::STATE_WRITE_ERRORS, &[]);
        let shutdown = context.shutdown.clone();
        let writing = tokio::spawn(write_all(path, work, dealt_with, errors, shutdown));
        context.on_yield("node map", async move {
            // It ends by itself; a panic was reported already.
            let _ = writing.await;
        });
        Self { latest, done }
    }

    /// Has `published` written, and waits as [`Keeper::wait_for`] does.
    pub(crate) async fn keep(&mut self, published: Published) {
        let generation = published.generation;
        self.latest.send_replace(published);
        self.wait_for(generation).await;
    }

    /// Returns when `generation` is safely on disk; or failed to get there, or takes too long: then
    /// the task goes on trying, with this map or a later one.
    pub(crate) async fn wait_for(&mut self, generation: u64) {
        // Not `>=`: a generation may be lower than one before that nobody took.
        let written = self.done.wait_for(|done| *done == generation);
        if tokio::time::timeout(DISK_WAIT, written).await.is_err() {
            tracing::warn!(generation, "the state directory is slow: publishing before the write");
        }
    }
}

async fn write_all(
    path: PathBuf,
    mut work: watch::Receiver<Published>,
    dealt_with: watch::Sender<u64>,
    errors: rt::metrics::Counter,
    shutdown: Shutdown,
) {
    loop {
        let published = work.borrow_and_update().clone();
        if published.generation == 0 {
            // A checker that stands by: what its last run published stays.
            tokio::select! {
                changed = work.changed() => if changed.is_err() { return },
                () = shutdown.reached(Phase::Yielded) => return,
            }
            continue;
        }
        let (generation, target) = (published.generation, path.clone());
        let write = aside(move || {
            file::write_atomic(&target, &published.document)?;
            history::keep(target.parent().unwrap_or(Path::new(".")), &published)
        });
        let written = write.await.and_then(|written| written);
        dealt_with.send_replace(generation);
        let mut retry = Duration::MAX;
        if let Err(error) = written {
            errors.inc();
            tracing::error!(path = %path.display(), %error,
                "cannot keep the node map for the next start: check space and permissions");
            retry = RETRY;
        }
        tokio::select! {
            changed = work.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(retry) => {}
            () = shutdown.reached(Phase::Yielded) => return,
        }
    }
}
