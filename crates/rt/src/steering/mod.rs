//! Where clients belong: location databases and node map as one view that is swapped whole.
//!
//! [`start`] once per process; what it gives is handed to every role that steers, so that they share
//! one copy of databases and class table. Then: `update` (what changes a view), `shared` (who reads
//! it, and how an old one is freed).
//!
//! # Invariants
//! - S4: who reads the view takes no lock, and waits neither for the making of a new one nor for
//!   the freeing of an old one.
//! - What cannot be used (a node map that does not compile, a database that is damaged or gone)
//!   changes nothing but the log, a metric and `/status`. Only a bad database at start is an error.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use locate::{Locator, OpenError};
use serde_json::{Value, json};
use steer::{CompileError, OutdatedTable, Steering};
use tokio::sync::watch;
use tokio::task::JoinError;

use crate::Context;
use crate::follow::Following;

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
}

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
    #[error("cannot use the location database")]
    Open(#[from] OpenError),
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
    /// Reads the databases. Blocks.
    ///
    /// # Errors
    /// When a file is not there, cannot be read or is no such database.
    pub fn open(&self) -> Result<Locator, OpenError> {
        Locator::open(self.country.as_deref(), self.asn.as_deref())
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
    let updater = Updater::start(location, following, publisher).await?;
    // The first view is there: nobody need be told of it.
    changes.mark_unchanged();
    tokio::spawn(updater.run(context.shutdown.clone()));
    let watched = Watched { shared, changes };
    let shown = watched.clone();
    context.status.set("steering", move || shown.status());
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
            "databases": self.databases(),
            "errors": self.errors(),
        })
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").finish_non_exhaustive()
    }
}
