//! From what changes to a new view.
//!
//! Three sources change: the node map (followed by `rt`), the files of the location databases (looked at
//! each second), and routes; and overrides of the steering maps expire, by the wall clock. A new node map
//! takes milliseconds; a new database, new routes or new steering rules take a compile of the class
//! table. Databases and routes (`routed.rs`) are read and compiled in the background, one after the other,
//! while node maps go on being applied.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use locate::{Locator, Routes};
use nodemap::NodeMap;
use steer::{ClassTable, Steering, Step};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::MissedTickBehavior;

use super::routed::{self, Routed, due, tables_of};
use super::shared::{Publisher, Source};
use super::{DATABASES_MOVE_PERCENT, LocationParams, SteeringError, View};
use crate::background::giving_way;
use crate::follow::Following;
use crate::routes::{FollowingRoutes, MOVE_PERCENT, Tables};
use crate::{Phase, Shutdown, clock};

/// How often the database files are looked at.
const FILE_POLL: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 1000 });

/// Databases ready for use, with the class table of the node map at that time.
pub(super) struct Loaded {
    pub(super) locator: Arc<Locator>,
    pub(super) table: Option<Arc<ClassTable>>,
}

/// What was made in the background.
struct Made {
    source: Source,
    loaded: Result<(Loaded, [f64; 2]), SteeringError>,
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
    /// The routes that are followed, and how.
    routes: Option<Routed>,
    making: Option<JoinHandle<Made>>,
    /// A person has let the databases in that are held.
    confirmed: Arc<Notify>,
    /// The end of an override that was last acted on, well or not; unix milliseconds.
    ended_ms: u64,
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
        routes: Option<FollowingRoutes>,
        publisher: Publisher,
        confirmed: Arc<Notify>,
    ) -> Result<Self, SteeringError> {
        let stamps = Stamps::of(&location);
        let paths = location.clone();
        let percent = location.routes.as_ref().map_or(MOVE_PERCENT, |routes| routes.move_percent);
        let mut routes = routes.map(|routes| Routed::new(routes, percent));
        // Those of the last run are in use from the start on.
        let tables = routes.as_mut().map(Routed::newest);
        let work = move || load(&paths, tables, None, None);
        let loaded = spawn_blocking(work).await??;
        publisher.set_databases(loaded.locator.describe());
        let mut updater = Self {
            location,
            following,
            publisher,
            loaded,
            number: 1,
            stamps,
            routes,
            making: None,
            confirmed,
            ended_ms: 0,
        };
        updater.apply().await;
        Ok(updater)
    }

    /// Follows the changes until shutdown.
    pub(super) async fn run(mut self, shutdown: Shutdown) {
        let mut look = tokio::time::interval(FILE_POLL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let table = self.loaded.table.as_ref();
            let end_ms = table.and_then(|t| t.holds_until_ms()).filter(|end| *end > self.ended_ms);
            let is_idle = self.making.is_none();
            tokio::select! {
                () = shutdown.reached(Phase::Draining) => return,
                // The sender lives as long as the process; without it only files can change.
                Ok(()) = self.following.changed() => self.apply().await,
                made = finished(&mut self.making) => self.take(made).await,
                () = self.confirmed.notified(), if is_idle => self.look_at_files(true),
                () = due(&mut self.routes, is_idle) => self.look_at_routes(),
                // Counted anew at each look: the wall clock may have been set.
                end_ms = reached(end_ms) => {
                    self.ended_ms = end_ms;
                    self.apply().await;
                }
                _ = look.tick() => {
                    self.publisher.count_guarded();
                    self.look_at_files(false);
                }
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
        let old = self.publisher.view();
        let before = old.as_deref().map(|view| view.steering.map().generation);
        let built = spawn_blocking(move || {
            let old = old.as_deref().map(|view| &*view.steering);
            let table = match table {
                Some(table) if holds(&table, &map) => table,
                _ => {
                    let _at_once = sys::memory::AtOnce::begin();
                    Arc::new(ClassTable::compile(&locator, &map.map, clock::now().wall_ms)?)
                }
            };
            Ok::<_, SteeringError>((Arc::clone(&table), Steering::after(old, table, map)?))
        });
        let (table, steering) = built.await??;
        let (generation, classes) = (steering.map().generation, table.classes());
        // Routes may change each second.
        if before == Some(generation) {
            tracing::debug!(generation, classes, "steering by what else has changed");
        } else {
            tracing::info!(generation, classes, "steering by a new node map");
        }
        self.loaded.table = Some(table);
        let locator = Arc::clone(&self.loaded.locator);
        let (number, steering) = (self.number, Arc::new(steering));
        self.publisher.publish(View { number, locator, steering });
        self.number = number.saturating_add(1);
        Ok(())
    }

    /// Begins to read databases whose files have changed, or those that were held and are `confirmed`; files
    /// that have changed since are judged anew.
    fn look_at_files(&mut self, confirmed: bool) {
        if self.making.is_some() {
            return;
        }
        let stamps = Stamps::of(&self.location);
        let is_changed = stamps != self.stamps;
        if is_changed || confirmed {
            self.stamps = stamps;
            let (paths, map) = (self.location.clone(), self.following.borrow().clone());
            let before = self.loaded.table.clone().filter(|_| is_changed);
            // A new database under the routes that are in use.
            let tables = self.routes.as_ref().map(|_| tables_of(self.loaded.locator.routes()));
            self.making = Some(spawn_blocking(move || {
                let loaded = giving_way(|| load(&paths, tables, map.as_deref(), before.as_deref()));
                Made { source: Source::Location, loaded: loaded.map(|loaded| (loaded, [0.0; 2])) }
            }));
        }
    }

    /// Begins to take new routes into use, as far as they may go at once.
    fn look_at_routes(&mut self) {
        let Some(routes) = &mut self.routes else { return };
        let (tables, limit) = (routes.newest(), routes.limit());
        let (locator, table) = (Arc::clone(&self.loaded.locator), self.loaded.table.clone());
        let map = self.following.borrow().clone();
        self.making = Some(spawn_blocking(move || {
            let loaded = giving_way(|| {
                let _at_once = sys::memory::AtOnce::begin();
                routed::step(&locator, table.as_deref(), &tables, map.as_deref(), limit)
            });
            Made { source: Source::Routes, loaded }
        }));
    }

    /// Takes into use what was made in the background.
    async fn take(&mut self, made: Result<Made, SteeringError>) {
        let (source, loaded) = match made {
            Ok(Made { source, loaded }) => (source, loaded),
            Err(error) => (Source::Location, Err(error)),
        };
        let (loaded, waiting) = match loaded {
            Ok(loaded) => loaded,
            Err(error) => return self.publisher.failed(source, &error),
        };
        match source {
            Source::Routes => self.note_routes(waiting),
            _ => self.note_databases(&loaded),
        }
        let old = std::mem::replace(&mut self.loaded, loaded);
        // Its table may be the last: freeing it is work.
        drop(spawn_blocking(move || drop(old)));
        self.apply().await;
    }

    fn note_routes(&mut self, waiting: [f64; 2]) {
        let [v4, v6] = waiting;
        if v4 > 0.0 || v6 > 0.0 {
            let percent = |share: f64| (share * 1000.0).ceil() / 10.0;
            tracing::warn!(
                v4_percent = percent(v4),
                v6_percent = percent(v6),
                "a change of routes moves many clients: it goes in steps, these wait"
            );
        }
        self.publisher.set_waiting(waiting);
        if let Some(routes) = &mut self.routes {
            routes.stepped(v4 > 0.0 || v6 > 0.0);
        }
    }

    fn note_databases(&self, loaded: &Loaded) {
        for database in loaded.locator.describe() {
            tracing::info!(file = %database.file.display(), networks = database.networks,
                build_s = database.build_s, "location database read anew");
        }
        self.publisher.set_databases(loaded.locator.describe());
    }
}

/// Whether a table is that of `map` at this moment.
fn holds(table: &ClassTable, map: &NodeMap) -> bool {
    table.is_of(&map.map) && table.holds_until_ms().is_none_or(|until| clock::now().wall_ms < until)
}

/// The databases with these routes over them, and the class table for the rules of `map`, unless it moves
/// too many from the one `before`.
fn load(
    location: &LocationParams,
    tables: Option<Arc<Tables>>,
    map: Option<&NodeMap>,
    before: Option<&ClassTable>,
) -> Result<Loaded, SteeringError> {
    // What is needed to read and compile them is several times what is kept.
    let _at_once = sys::memory::AtOnce::begin();
    let mut locator = location.open()?;
    if let Some(tables) = tables {
        locator = locator.with_routes(Arc::new(Routes::new((*tables).clone())));
    }
    for database in locator.describe().iter().filter(|d| d.description.starts_with("DEMO DATA")) {
        tracing::warn!(
            file = %database.file.display(),
            "steering by demo data with known errors: set [location] to a database of your own before \
             real clients come"
        );
    }
    let table = map.map(|map| ClassTable::compile(&locator, &map.map, clock::now().wall_ms));
    let table = table.transpose()?;
    // Other rules move clients too: what is of them is not held against the databases.
    let before = before.filter(|before| map.is_some_and(|map| before.is_of(&map.map)));
    if let (Some(before), Some(table)) = (before, &table) {
        let percent_max = location.move_percent.unwrap_or(DATABASES_MOVE_PERCENT);
        let moved = Step::between(before, table, 1.0).moved.into_iter().fold(0.0, f64::max);
        let percent = (moved * 100.0).ceil() as u32;
        if percent > percent_max {
            return Err(SteeringError::Moves { percent, percent_max });
        }
    }
    Ok(Loaded { locator: Arc::new(locator), table: table.map(Arc::new) })
}

/// Waits for the wall clock to reach `moment_ms`; without one, for ever.
async fn reached(moment_ms: Option<u64>) -> u64 {
    let Some(moment_ms) = moment_ms else { return std::future::pending().await };
    let left_ms = moment_ms.saturating_sub(clock::now().wall_ms);
    tokio::time::sleep(Duration::from_millis(left_ms)).await;
    moment_ms
}

/// Waits for the work to end and takes it out; without work, for ever.
async fn finished(making: &mut Option<JoinHandle<Made>>) -> Result<Made, SteeringError> {
    let Some(work) = making else { return std::future::pending().await };
    let result = work.await;
    *making = None;
    Ok(result?)
}

/// What tells a changed file from an unchanged one: time, length and inode. The clock of a file system may
/// stand still for milliseconds; a file that is put in place of another is never the same inode.
#[derive(Debug, PartialEq, Eq)]
struct Stamps([Option<(SystemTime, u64, u64)>; 2]);

impl Stamps {
    fn of(location: &LocationParams) -> Self {
        let stamp = |path: &Path| {
            let metadata = fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
        };
        Self([&location.country, &location.asn].map(|path| stamp(path.as_deref()?)))
    }
}
