//! What everybody who steers shares: the view, and what `/status` shows of its data.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use locate::DatabaseInfo;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{SteeringError, View};
use crate::metrics::{Counter, host as metric};
use crate::{Context, Metrics};

/// How often what was replaced is looked at for readers.
const RETIRE_POLL: Duration = Duration::from_millis(20);

#[derive(Default)]
pub(super) struct Shared {
    pub(super) view: ArcSwapOption<View>,
    facts: Mutex<Facts>,
}

/// Where data comes from that can fail to reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    NodeMap,
    Location,
    Routes,
}

/// For people only.
#[derive(Default)]
struct Facts {
    databases: Vec<DatabaseInfo>,
    /// Why the newest node map is not in use; `None` when it is.
    node_map_error: Option<String>,
    /// Why the newest databases are not in use; `None` when they are.
    location_error: Option<String>,
    /// What the databases that are held would move, percent.
    held: Option<u32>,
    /// Why the newest routes are not in use; `None` when they are, or wait for their step.
    routes_error: Option<String>,
    /// Of IPv4 and IPv6 clients the share that waits for a step.
    waiting: [f64; 2],
}

/// Who has the view to give.
pub(super) struct Publisher {
    shared: Arc<Shared>,
    changes: watch::Sender<()>,
    metrics: Metrics,
    node_map_errors: Counter,
    location_errors: Counter,
    routes_errors: Counter,
}

impl Shared {
    pub(super) fn databases(&self) -> Value {
        json!(self.facts().databases)
    }

    pub(super) fn errors(&self) -> Value {
        let facts = self.facts();
        json!({
            "node_map": facts.node_map_error,
            "location": facts.location_error,
            "routes": facts.routes_error,
        })
    }

    /// What databases that wait for a person's word would move, percent; `None` where none do.
    pub(super) fn held(&self) -> Option<u32> {
        self.facts().held
    }

    pub(super) fn waiting(&self) -> Value {
        let [v4, v6] = self.facts().waiting;
        json!({ "v4": v4, "v6": v6 })
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_error(&self, source: Source, error: Option<String>) {
        let mut facts = self.facts();
        match source {
            Source::NodeMap => facts.node_map_error = error,
            Source::Location => facts.location_error = error,
            Source::Routes => facts.routes_error = error,
        }
    }
}

impl Publisher {
    pub(super) fn new(shared: Arc<Shared>, context: &Context) -> (Self, watch::Receiver<()>) {
        let (changes, changed) = watch::channel(());
        let errors = |source| context.metrics.counter(&metric::STEERING_ERRORS, &[source]);
        let (node_map_errors, location_errors) = (errors("node-map"), errors("location"));
        let routes_errors = errors("routes");
        let metrics = context.metrics.clone();
        let publisher =
            Self { shared, changes, metrics, node_map_errors, location_errors, routes_errors };
        (publisher, changed)
    }

    /// The view in use.
    pub(super) fn view(&self) -> Option<Arc<View>> {
        self.shared.view.load_full()
    }

    /// Counts what the guards did since they were asked last.
    pub(super) fn count_guarded(&self) {
        let Some(view) = self.view() else { return };
        for (project, guard) in view.steering.guards() {
            let done = guard.take_done();
            for (how, count) in [("spilled", done.spilled), ("overruled", done.overruled)] {
                let counter =
                    self.metrics.counter(&metric::STEERING_GUARDED, &[project.as_str(), how]);
                counter.inc_by(count);
            }
        }
    }

    /// Everybody steers by `view` from here on. Needs a tokio runtime.
    pub(super) fn publish(&self, view: View) {
        let old = self.shared.view.swap(Some(Arc::new(view)));
        self.shared.set_error(Source::NodeMap, None);
        self.changes.send_replace(());
        if let Some(old) = old {
            retire(old);
        }
    }

    pub(super) fn set_databases(&self, databases: &[DatabaseInfo]) {
        self.shared.facts().databases = databases.to_vec();
        self.set_held(None);
        self.shared.set_error(Source::Location, None);
    }

    fn set_held(&self, percent: Option<u32>) {
        self.shared.facts().held = percent;
        self.metrics.gauge(&metric::DATABASES_HELD, &[]).set(percent.unwrap_or(0).into());
    }

    /// Routes are in use; of IPv4 and IPv6 clients this share waits for the next steps.
    pub(super) fn set_waiting(&self, waiting: [f64; 2]) {
        self.shared.facts().waiting = waiting;
        self.shared.set_error(Source::Routes, None);
        for (family, share) in ["v4", "v6"].iter().zip(waiting) {
            let percent = (share * 100.0).ceil();
            self.metrics.gauge(&metric::ROUTES_WAITING, &[family]).set(percent as i64);
        }
    }

    /// The newest data of `source` is not used; `error` says why.
    pub(super) fn failed(&self, source: Source, error: &SteeringError) {
        let text = chain(error);
        if source == Source::Location {
            self.set_held(match error {
                SteeringError::Moves { percent, .. } => Some(*percent),
                _ => None,
            });
        }
        match source {
            Source::NodeMap => {
                self.node_map_errors.inc();
                tracing::error!(error = text, "node map refused, the old one stays in use");
            }
            Source::Routes => {
                self.routes_errors.inc();
                tracing::error!(error = text, "routes refused, the old ones stay in use");
            }
            Source::Location => {
                self.location_errors.inc();
                tracing::error!(
                    error = text,
                    "location databases refused, the old ones stay in use"
                );
            }
        }
        self.shared.set_error(source, Some(text));
    }
}

/// Frees what was replaced once nobody reads it any more. Freeing a large table takes milliseconds,
/// which no query and no request shall wait for: the last reference is let go by a thread that may
/// block. Needs a tokio runtime.
pub fn retire<T: Send + Sync + 'static>(old: Arc<T>) {
    tokio::spawn(async move {
        while Arc::strong_count(&old) > 1 {
            tokio::time::sleep(RETIRE_POLL).await;
        }
        let _ = tokio::task::spawn_blocking(move || drop(old)).await;
    });
}

/// An error with its causes: `what: why: why`.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
