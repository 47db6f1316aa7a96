//! From what changes to a new view.
//!
//! Two sources change: the node map (followed by `rt`) and the files of the location databases
//! (looked at each second). A new node map takes milliseconds; a new database, or new steering
//! rules, take a compile of the class table. A database is read and compiled in the background
//! while node maps go on being applied.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use locate::Locator;
use nodemap::NodeMap;
use steer::{ClassTable, Steering};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::MissedTickBehavior;

use super::shared::{Publisher, Source};
use super::{LocationParams, SteeringError, View};
use crate::follow::Following;
use crate::{Phase, Shutdown};

/// How often the database files are looked at.
const FILE_POLL: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 1000 });

/// Databases ready for use, with the class table of the node map at that time.
struct Loaded {
    locator: Arc<Locator>,
    table: Option<Arc<ClassTable>>,
}

/// Keeps the view up to date.
pub(super) struct Updater {
    location: LocationParams,
    following: Following,
    publisher: Publisher,
    loaded: Loaded,
    /// Of the next view.
    number: u64,
    /// The files as they were when they were last read, well or not.
    stamps: Stamps,
    loading: Option<JoinHandle<Result<Loaded, SteeringError>>>,
}

impl Updater {
    /// Reads the databases and, when a node map is known, publishes the first view.
    ///
    /// # Errors
    /// When a database cannot be used. A node map that cannot is no reason not to start: its
    /// publisher may have a better one by now.
    pub(super) async fn start(
        location: LocationParams,
        following: Following,
        publisher: Publisher,
    ) -> Result<Self, SteeringError> {
        let stamps = Stamps::of(&location);
        let paths = location.clone();
        let loaded = spawn_blocking(move || load(&paths, None)).await??;
        publisher.set_databases(loaded.locator.describe());
        let mut updater =
            Self { location, following, publisher, loaded, number: 1, stamps, loading: None };
        updater.apply().await;
        Ok(updater)
    }

    /// Follows the changes until shutdown.
    pub(super) async fn run(mut self, shutdown: Shutdown) {
        let mut look = tokio::time::interval(FILE_POLL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.reached(Phase::Draining) => return,
                // The sender lives as long as the process; without it only files can change.
                Ok(()) = self.following.changed() => self.apply().await,
                loaded = finished(&mut self.loading) => self.take(loaded).await,
                _ = look.tick() => self.look_at_files(),
            }
        }
    }

    /// Takes the newest node map into use.
    async fn apply(&mut self) {
        let Some(map) = self.following.borrow_and_update().clone() else { return };
        if let Err(error) = self.build(map).await {
            self.publisher.failed(Source::NodeMap, &error);
        }
    }

    async fn build(&mut self, map: Arc<NodeMap>) -> Result<(), SteeringError> {
        let (locator, table) = (Arc::clone(&self.loaded.locator), self.loaded.table.clone());
        let built = spawn_blocking(move || {
            let table = match table {
                Some(table) if table.is_of(&map.map.maps) => table,
                _ => Arc::new(ClassTable::compile(&locator, &map.map.maps)?),
            };
            Ok::<_, SteeringError>((Arc::clone(&table), Steering::new(table, map)?))
        });
        let (table, steering) = built.await??;
        let (generation, classes) = (steering.map().generation, table.classes());
        tracing::info!(generation, classes, "steering by a new node map");
        self.loaded.table = Some(table);
        let locator = Arc::clone(&self.loaded.locator);
        let (number, steering) = (self.number, Arc::new(steering));
        self.publisher.publish(View { number, locator, steering });
        self.number = number.saturating_add(1);
        Ok(())
    }

    /// Begins to read databases whose files have changed.
    fn look_at_files(&mut self) {
        if self.loading.is_some() {
            return;
        }
        let stamps = Stamps::of(&self.location);
        if stamps != self.stamps {
            self.stamps = stamps;
            let (paths, map) = (self.location.clone(), self.following.borrow().clone());
            self.loading = Some(spawn_blocking(move || load(&paths, map.as_deref())));
        }
    }

    /// Takes databases into use that were read in the background.
    async fn take(&mut self, loaded: Result<Loaded, SteeringError>) {
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(error) => return self.publisher.failed(Source::Location, &error),
        };
        for database in loaded.locator.describe() {
            tracing::info!(file = %database.file.display(), networks = database.networks,
                build_s = database.build_s, "location database read anew");
        }
        self.publisher.set_databases(loaded.locator.describe());
        let old = std::mem::replace(&mut self.loaded, loaded);
        // Its table may be the last: freeing it is work.
        drop(spawn_blocking(move || drop(old)));
        self.apply().await;
    }
}

/// The databases, and the class table for the rules of `map`.
fn load(location: &LocationParams, map: Option<&NodeMap>) -> Result<Loaded, SteeringError> {
    let locator = location.open()?;
    for database in locator.describe().iter().filter(|d| d.description.starts_with("DEMO DATA")) {
        tracing::warn!(
            file = %database.file.display(),
            "steering by demo data with known errors: set [location] to a database of your own before \
             real clients come"
        );
    }
    let table = map.map(|map| ClassTable::compile(&locator, &map.map.maps)).transpose()?;
    Ok(Loaded { locator: Arc::new(locator), table: table.map(Arc::new) })
}

/// Waits for the work to end and takes it out; without work, for ever.
async fn finished(
    loading: &mut Option<JoinHandle<Result<Loaded, SteeringError>>>,
) -> Result<Loaded, SteeringError> {
    let Some(work) = loading else { return std::future::pending().await };
    let result = work.await;
    *loading = None;
    result?
}

/// What tells a changed file from an unchanged one.
#[derive(Debug, PartialEq, Eq)]
struct Stamps([Option<(SystemTime, u64)>; 2]);

impl Stamps {
    fn of(location: &LocationParams) -> Self {
        let stamp = |path: &Path| {
            let metadata = fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        Self([&location.country, &location.asn].map(|path| stamp(path.as_deref()?)))
    }
}
