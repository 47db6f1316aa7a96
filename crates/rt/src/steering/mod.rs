//! Where clients belong: location databases, live routes and node map as one view that is swapped whole.
//!
//! [`start`] once per process; what it gives is handed to every role that steers, so that they share
//! one copy of databases and class table. Then: `update` (what changes a view), `routed` (how far
//! new routes go at once), `shared` (who reads
//! it, and how an old one is freed).
//!
//! # Invariants
//! - S4: who reads the view takes no lock, and waits neither for the making of a new one nor for
//!   the freeing of an old one.
//! - S3: what a change of routes moves goes in steps of `move_percent` of all known addresses; databases
//!   that move more than theirs wait for a person's word.
//! - What cannot be used (a node map that does not compile, a database that is damaged or gone)
//!   changes nothing but the log, a metric and `/status`. Only a bad database at start is an error.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::StatusCode;
use locate::{Locator, OpenError, Routes};
use model::Name;
use serde_json::{Value, json};
use steer::{CompileError, Guard, Lookup, OutdatedTable, Steering};
use tokio::sync::{Notify, watch};
use tokio::task::JoinError;

use crate::follow::Following;
use crate::routes::{self, RoutesParams};
use crate::{Context, clock};

mod routed;
mod shared;
#[cfg(test)]
mod tests;
mod update;

pub use shared::retire;
use shared::{Publisher, Shared};
use update::Updater;

/// `[location]`: databases in MaxMind format. Without one of them, maps by what it tells have no
/// effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocationParams {
    /// Country and continent.
    pub country: Option<PathBuf>,
    /// AS number; may be the same file.
    pub asn: Option<PathBuf>,
    /// How many percent of known addresses other databases may treat otherwise without a person's word: 1
    /// to 100; [`DATABASES_MOVE_PERCENT`] where it is none.
    pub move_percent: Option<u32>,
    /// The live routing table.
    pub routes: Option<RoutesParams>,
}

/// How many percent of known addresses other databases may treat otherwise, unless
/// `databases_move_percent` says so.
pub const DATABASES_MOVE_PERCENT: u32 = 20;

/// What steering goes by at one instant.
#[derive(Debug)]
pub struct View {
    /// Tells the views of a process apart; grows.
    pub number: u64,
    /// Client address -> location; knows nothing of anybody without databases.
    pub locator: Arc<Locator>,
    /// Class table, made with this locator, and node map -> plans.
    pub steering: Arc<Steering>,
}

/// Why steering cannot start, or a node map or database was not taken into use.
#[derive(Debug, thiserror::Error)]
pub enum SteeringError {
    /// The steering rules cannot be compiled.
    #[error("cannot compile the steering maps")]
    Compile(#[from] CompileError),
    /// The table and the node map do not belong together.
    #[error("cannot plan answers")]
    Plan(#[from] OutdatedTable),
    /// A database cannot be used.
    #[error("cannot use a database of [location] in the config file")]
    Open(#[from] OpenError),
    /// Other databases move too many clients at once (S3).
    #[error(
        "they would have {percent} % of all known addresses answered otherwise, and {percent_max} % may go at \
         once: look with `cacheboy map diff`, and if it is meant, `cacheboy geoip confirm`"
    )]
    Moves {
        /// What they move, rounded up.
        percent: u32,
        /// What may.
        percent_max: u32,
    },
    /// The work broke off.
    #[error("making a view for steering broke down: please report it with the log")]
    Defect(#[from] JoinError),
}

/// The newest view, from whoever started to watch. Cheap to clone.
#[derive(Clone)]
pub struct Watched {
    shared: Arc<Shared>,
    changes: watch::Receiver<()>,
}

impl LocationParams {
    /// Reads the databases, without the names of ASes and without routes. Blocks.
    ///
    /// # Errors
    /// When a file is not there, cannot be read or is no such database.
    pub fn open(&self) -> Result<Locator, OpenError> {
        Locator::without_names(self.country.as_deref(), self.asn.as_deref())
    }

    /// Reads the databases, and the routes that this host followed last, if it follows any; with the names
    /// of ASes, for commands. Blocks.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with_routes(&self, state_dir: &Path) -> Result<Locator, OpenError> {
        let locator = Locator::open(self.country.as_deref(), self.asn.as_deref())?;
        if self.routes.is_none() {
            return Ok(locator);
        }
        Ok(locator.with_routes(Arc::new(Routes::new(routes::last_good(state_dir)))))
    }
}

/// Reads the databases, makes the first view if a node map is known, and goes on making new ones
/// until shutdown. Needs a tokio runtime.
///
/// # Errors
/// When a database cannot be used.
pub async fn start(
    location: LocationParams,
    following: Following,
    context: &Context,
) -> Result<Watched, SteeringError> {
    let shared = Arc::new(Shared::default());
    let (publisher, mut changes) = Publisher::new(Arc::clone(&shared), context);
    let routes = match &location.routes {
        Some(params) => Some(routes::start(params, context).await?),
        None => None,
    };
    let confirmed = Arc::new(Notify::new());
    let heard = Arc::clone(&confirmed);
    let updater = Updater::start(location, following, routes, publisher, confirmed).await?;
    // The first view is there: nobody need be told of it.
    changes.mark_unchanged();
    tokio::spawn(updater.run(context.shutdown.clone()));
    let watched = Watched { shared, changes };
    let shown = watched.clone();
    context.status.set("steering", move || shown.status());
    let asked = watched.clone();
    context.status.on_get("/lookup", move |query| asked.look_up(query));
    let asked = watched.clone();
    context
        .status
        .on_post("/location/confirm", move |_| std::future::ready(asked.confirm_databases(&heard)));
    Ok(watched)
}

impl Watched {
    /// The newest view; `None` before there is a node map. Takes no lock.
    pub fn view(&self) -> Option<Arc<View>> {
        self.shared.view.load_full()
    }

    /// Waits for a view that this watcher, or the one it was cloned from, has not been told of.
    ///
    /// # Errors
    /// When nobody makes new ones any more: the end has come, or by a defect.
    pub async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        self.changes.changed().await
    }

    /// The databases in use, for `/status`.
    pub fn databases(&self) -> Value {
        self.shared.databases()
    }

    /// Why newer data is not in use, by its source, for `/status`; null where it is.
    pub fn errors(&self) -> Value {
        self.shared.errors()
    }

    /// Lets the databases in that are held since they move many clients.
    fn confirm_databases(&self, heard: &Notify) -> (StatusCode, Value) {
        let Some(percent) = self.shared.held() else {
            let error = "no database waits for a word: /status says what is in use";
            return (StatusCode::CONFLICT, json!({ "format": 1, "error": error }));
        };
        heard.notify_one();
        (StatusCode::OK, json!({ "format": 1, "percent": percent }))
    }

    /// What is known of `address=IP`, by the view in use.
    fn look_up(&self, query: &str) -> (StatusCode, Value) {
        let refuse = |code, words: &str| (code, json!({ "format": 1, "error": words }));
        let address = query.split('&').find_map(|part| part.strip_prefix("address="));
        // A client may write the colons of IPv6 as it writes all that is special.
        let address = address.map(|text| text.replace("%3A", ":").replace("%3a", ":"));
        let Some(address) = address.and_then(|text| text.parse::<IpAddr>().ok()) else {
            return refuse(StatusCode::BAD_REQUEST, "ask for /lookup?address=192.0.2.1");
        };
        let Some(view) = self.view() else {
            return refuse(StatusCode::SERVICE_UNAVAILABLE, "there is no node map yet");
        };
        let map = &view.steering.map().map;
        let known = Lookup::new(&view.locator, Some(map), address, clock::now().wall_ms);
        match serde_json::to_value(known) {
            Ok(known) => (StatusCode::OK, known),
            Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        }
    }

    fn status(&self) -> Value {
        let view = self.view();
        let steering = view.as_deref().map(|view| &view.steering);
        let table = steering.map(|steering| steering.table());
        let (ranges_v4, ranges_v6) = table.map_or((0, 0), |table| table.ranges());
        json!({
            "generation": steering.map_or(0, |steering| steering.map().generation),
            "classes": table.map_or(0, |table| table.classes()),
            "ranges": { "v4": ranges_v4, "v6": ranges_v6 },
            "table_bytes": table.map_or(0, |table| table.memory_bytes()),
            "guards": steering.map_or(Value::Null, |steering| guards(steering)),
            "databases": self.databases(),
            "databases_held_percent": self.shared.held(),
            "routes_waiting": self.shared.waiting(),
            "errors": self.errors(),
        })
    }
}

/// What each project's guard has counted within its window: shares by node and site, from 0 to 1.
fn guards(steering: &Steering) -> Value {
    let of = |shares: Vec<(&Name, f64)>| -> Value {
        shares.into_iter().map(|(name, share)| (name.to_string(), json!(share))).collect()
    };
    let guard = |(project, guard): (&Name, &Guard)| {
        let (nodes, sites) = guard.shares(clock::now());
        let shown = json!({ "max_share": guard.limit(), "nodes": of(nodes), "sites": of(sites) });
        (project.to_string(), shown)
    };
    steering.guards().map(guard).collect()
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").finish_non_exhaustive()
    }
}
