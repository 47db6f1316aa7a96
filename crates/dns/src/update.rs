//! From a new view for steering, or new zone files, to a new snapshot, beside the query path.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dns_proto::Snapshot;
use dns_proto::zonefile::ZoneFile;
use nodemap::Finding;
use rt::steering::Watched;
use rt::{Phase, Shutdown};
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval};

use crate::shared::{Shared, ZonesShown};
use crate::zones::ZoneFolder;

/// How often the zone files are looked at.
const FILE_POLL: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 250 });

/// Keeps the snapshot up to date.
pub(crate) struct Updater {
    watched: Watched,
    shared: Arc<Shared>,
    /// `None` without `zone_files`; taken out while it is looked at.
    zones: Option<ZoneFolder>,
    files: Arc<[Arc<ZoneFile>]>,
}

impl Updater {
    /// Reads the zone files, and publishes the first snapshot if a node map is known.
    ///
    /// # Errors
    /// What is wrong with the zone files, or that the work broke off, by a defect.
    pub(crate) async fn start(
        watched: Watched,
        shared: Arc<Shared>,
        folder: Option<&Path>,
    ) -> Result<Self, StartError> {
        let zones = match folder.map(Path::to_owned) {
            Some(folder) => Some(spawn_blocking(move || ZoneFolder::open(&folder)).await??),
            None => None,
        };
        let files = zones.as_ref().map(ZoneFolder::files).unwrap_or_default();
        let mut updater = Self { watched, shared, zones, files };
        updater.show();
        updater.apply().await?;
        Ok(updater)
    }

    /// Follows views and files until shutdown, or a defect.
    pub(crate) async fn run(mut self, shutdown: Shutdown) {
        let mut look = interval(FILE_POLL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let done = tokio::select! {
                () = shutdown.reached(Phase::Draining) => return,
                changed = self.watched.changed() => match changed {
                    Ok(()) => self.apply().await,
                    Err(_) => return,
                },
                _ = look.tick(), if self.zones.is_some() => self.look().await,
            };
            if done.is_err() {
                return;
            }
        }
    }

    /// Takes zone files into use that have changed.
    async fn look(&mut self) -> Result<(), JoinError> {
        let Some(mut zones) = self.zones.take() else { return Ok(()) };
        let (zones, new) = spawn_blocking(move || {
            let new = zones.look();
            (zones, new)
        })
        .await?;
        let files = new.then(|| zones.files());
        self.zones = Some(zones);
        let Some(files) = files else { return Ok(()) };
        self.show();
        if files.len() == self.files.len()
            && files.iter().zip(self.files.iter()).all(|(new, old)| Arc::ptr_eq(new, old))
        {
            return Ok(());
        }
        self.files = files;
        self.apply().await
    }

    /// Says what became of the zone files.
    fn show(&self) {
        let Some(zones) = &self.zones else { return };
        for finding in zones.findings() {
            tracing::error!("a zone file is not taken into use: {finding}");
        }
        self.shared.show_zones(ZonesShown {
            files: self.files.len(),
            findings: zones.findings().to_vec(),
        });
    }

    /// Publishes the snapshot of what there is now, if there is a node map.
    async fn apply(&mut self) -> Result<(), JoinError> {
        let Some(view) = self.watched.view() else { return Ok(()) };
        let (steering, locator) = (Arc::clone(&view.steering), Arc::clone(&view.locator));
        drop(view);
        let (files, shared) = (Arc::clone(&self.files), Arc::clone(&self.shared));
        let snapshot = spawn_blocking(move || {
            let last = shared.published();
            Snapshot::build(steering, files, shared.keyring(), Some(&last.snapshot))
        })
        .await?;
        let (generation, names) = (snapshot.generation(), snapshot.names());
        let before = self.shared.published();
        let before = (before.snapshot.generation(), before.snapshot.names());
        // Where clients are may change each second.
        if before == (generation, names) {
            tracing::debug!(generation, names, "answering from a new snapshot");
        } else {
            tracing::info!(generation, names, "answering from a new snapshot");
        }
        self.shared.publish(snapshot, locator);
        Ok(())
    }
}

/// Why there is no first snapshot.
pub(crate) enum StartError {
    Zones(Vec<Finding>),
    Defect,
}

impl From<Vec<Finding>> for StartError {
    fn from(findings: Vec<Finding>) -> Self {
        Self::Zones(findings)
    }
}

impl From<JoinError> for StartError {
    fn from(_: JoinError) -> Self {
        Self::Defect
    }
}
