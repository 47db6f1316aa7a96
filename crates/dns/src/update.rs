//! From a new view for steering to a new snapshot, beside the query path.

use std::sync::Arc;

use dns_proto::Snapshot;
use rt::steering::{View, Watched};
use rt::{Phase, Shutdown};
use tokio::task::{JoinError, spawn_blocking};

use crate::shared::Shared;

/// Publishes the snapshot of the view there is, if there is one.
///
/// # Errors
/// When the work broke off, by a defect.
pub(crate) async fn apply(view: Option<Arc<View>>, shared: &Shared) -> Result<(), JoinError> {
    let Some(view) = view else { return Ok(()) };
    let steering = Arc::clone(&view.steering);
    drop(view);
    let snapshot = spawn_blocking(move || Snapshot::build(steering)).await?;
    let (generation, names) = (snapshot.generation(), snapshot.names());
    tracing::info!(generation, names, "answering from a new snapshot");
    shared.publish(snapshot);
    Ok(())
}

/// Follows the views until shutdown, or a defect.
pub(crate) async fn run(mut watched: Watched, shared: Arc<Shared>, shutdown: Shutdown) {
    loop {
        tokio::select! {
            () = shutdown.reached(Phase::Draining) => return,
            changed = watched.changed() => if changed.is_err() { return },
        }
        if apply(watched.view(), &shared).await.is_err() {
            return;
        }
    }
}
