//! What all parts of the role share: the snapshot, and what `/status` shows beside it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use dns_proto::Snapshot;
use locate::DatabaseInfo;
use rt::Context;
use rt::metrics::{Counter, Gauge, dns as metric};
use serde_json::{Value, json};

/// How often a replaced snapshot is looked at for readers.
const RETIRE_POLL: Duration = Duration::from_millis(20);

pub(crate) struct Shared {
    snapshot: ArcSwap<Snapshot>,
    facts: Mutex<Facts>,
    generation: Gauge,
    classes: Gauge,
    node_map_errors: Counter,
    location_errors: Counter,
}

/// Where data comes from that can fail to reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    NodeMap,
    Location,
}

/// For people only.
#[derive(Default)]
struct Facts {
    databases: Vec<DatabaseInfo>,
    /// Why the newest node map is not in use; `None` when it is.
    node_map_error: Option<String>,
    /// Why the newest databases are not in use; `None` when they are.
    location_error: Option<String>,
}

impl Shared {
    pub(crate) fn new(context: &Context) -> Self {
        let metrics = &context.metrics;
        Self {
            snapshot: ArcSwap::from_pointee(Snapshot::not_ready()),
            facts: Mutex::default(),
            generation: metrics.gauge(&metric::SNAPSHOT_GENERATION, &[]),
            classes: metrics.gauge(&metric::CLASSES, &[]),
            node_map_errors: metrics.counter(&metric::RELOAD_ERRORS, &["node-map"]),
            location_errors: metrics.counter(&metric::RELOAD_ERRORS, &["location"]),
        }
    }

    /// What to answer from. Let go of it after each batch: it keeps a replaced snapshot alive.
    pub(crate) fn snapshot(&self) -> arc_swap::Guard<Arc<Snapshot>> {
        self.snapshot.load()
    }

    /// Answers come from `snapshot` from here on. Needs a tokio runtime.
    pub(crate) fn publish(&self, snapshot: Snapshot) {
        self.generation.set(i64::try_from(snapshot.generation()).unwrap_or(i64::MAX));
        let classes = snapshot.steering().map_or(0, |steering| steering.table().classes());
        self.classes.set(i64::try_from(classes).unwrap_or(i64::MAX));
        let old = self.snapshot.swap(Arc::new(snapshot));
        self.succeeded(Source::NodeMap);
        // Freeing a large table takes milliseconds, which no query shall wait for: the last
        // reference is let go here, not by a query's thread.
        tokio::spawn(async move {
            while Arc::strong_count(&old) > 1 {
                tokio::time::sleep(RETIRE_POLL).await;
            }
            let _ = tokio::task::spawn_blocking(move || drop(old)).await;
        });
    }

    pub(crate) fn set_databases(&self, databases: &[DatabaseInfo]) {
        self.facts().databases = databases.to_vec();
        self.succeeded(Source::Location);
    }

    pub(crate) fn succeeded(&self, source: Source) {
        *self.facts().error_of(source) = None;
    }

    /// The newest data of `source` is not used; `error` says why.
    pub(crate) fn failed(&self, source: Source, error: &dyn std::error::Error) {
        let text = chain(error);
        match source {
            Source::NodeMap => {
                self.node_map_errors.inc();
                tracing::error!(error = text, "node map refused, the old one stays in use");
            }
            Source::Location => {
                self.location_errors.inc();
                tracing::error!(
                    error = text,
                    "location databases refused, the old ones stay in use"
                );
            }
        }
        *self.facts().error_of(source) = Some(text);
    }

    /// For `/status`.
    pub(crate) fn status(&self, listen: &[SocketAddr], udp_threads: usize) -> Value {
        let snapshot = self.snapshot.load_full();
        let table = snapshot.steering().map(|steering| steering.table());
        let (ranges_v4, ranges_v6) = table.map_or((0, 0), |table| table.ranges());
        let facts = self.facts();
        json!({
            "ready": table.is_some(),
            "generation": snapshot.generation(),
            "zones": snapshot.zones(),
            "names": snapshot.names(),
            "classes": table.map_or(0, |table| table.classes()),
            "ranges": { "v4": ranges_v4, "v6": ranges_v6 },
            "table_bytes": table.map_or(0, |table| table.memory_bytes()),
            "databases": facts.databases,
            "errors": { "node_map": facts.node_map_error, "location": facts.location_error },
            "listen": listen,
            "udp_threads": udp_threads,
        })
    }

    fn facts(&self) -> std::sync::MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Facts {
    fn error_of(&mut self, source: Source) -> &mut Option<String> {
        match source {
            Source::NodeMap => &mut self.node_map_error,
            Source::Location => &mut self.location_error,
        }
    }
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
