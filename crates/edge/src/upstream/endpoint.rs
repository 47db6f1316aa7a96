//! One source of a project's content: a master or a parent, with all that is shared by the requests
//! to it.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use http_cache::Target;
use model::{Name, Now, Rate};
use rt::Metrics;
use rt::metrics::{Counter, Gauge, edge};

use super::destination::Destination;
use super::pace::Pace;
use super::pool::Pool;
use super::turns::Turns;

/// Requests at once of a master whose definition does not say.
pub(crate) const REQUESTS_MAX_DEFAULT: u32 = 64;

/// What a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It has all content.
    Master,
    /// An edge that fills from masters.
    Parent,
    /// The process that took the stores over from this one.
    Successor,
}

/// What is said of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) name: Name,
    pub(crate) kind: Kind,
    /// `None`: its URL is of no use.
    pub(crate) destination: Option<Destination>,
    /// At once.
    pub(crate) requests_max: u32,
    /// Of bytes read.
    pub(crate) rate: Option<Rate>,
}

/// One source.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) definition: Definition,
    pub(crate) pool: Pool,
    pub(crate) turns: Arc<Turns>,
    pub(crate) pace: Pace,
    pub(crate) requests: Counter,
    pub(crate) bytes: Counter,
    pub(crate) opened: Counter,
    pub(crate) queued: Counter,
    pub(crate) queued_ms: Counter,
    /// Answers with another name for something held than its own source has.
    pub(crate) disagreements: Counter,
    /// It was found to name content in a way of its own.
    pub(crate) names_otherwise: AtomicBool,
    idle: Gauge,
    /// What it was last asked for: its probes ask for that.
    last: Mutex<Option<Target>>,
    /// What the last attempt at a connection met, for people; none after one that succeeded.
    trouble: Mutex<Option<String>>,
}

impl Endpoint {
    /// A source of a project.
    pub(crate) fn new(project: &Name, definition: Definition, metrics: &Metrics) -> Arc<Self> {
        let labels = [project.as_str(), definition.name.as_str()];
        let requests_max = usize::try_from(definition.requests_max).unwrap_or(usize::MAX);
        Arc::new(Self {
            pool: Pool::default(),
            turns: Turns::new(requests_max),
            pace: Pace::new(definition.rate),
            requests: metrics.counter(&edge::UPSTREAM_REQUESTS, &labels),
            bytes: metrics.counter(&edge::UPSTREAM_BYTES, &labels),
            opened: metrics.counter(&edge::UPSTREAM_OPENED, &labels),
            queued: metrics.counter(&edge::UPSTREAM_QUEUED, &labels),
            queued_ms: metrics.counter(&edge::UPSTREAM_QUEUED_MS, &labels),
            disagreements: metrics.counter(&edge::MASTERS_DISAGREE, &labels),
            names_otherwise: AtomicBool::new(false),
            idle: metrics.gauge(&edge::UPSTREAM_IDLE, &labels),
            last: Mutex::default(),
            trouble: Mutex::default(),
            definition,
        })
    }

    /// An attempt at a connection ended: what went wrong, if anything did.
    pub(crate) fn handle_attempt(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// What the last attempt at a connection met, in the words of the system or of TLS.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its name.
    pub(crate) fn name(&self) -> &Name {
        &self.definition.name
    }

    /// Whether it is an edge.
    pub(crate) fn is_parent(&self) -> bool {
        self.definition.kind == Kind::Parent
    }

    /// Whether it is the process that took the stores over.
    pub(crate) fn is_successor(&self) -> bool {
        self.definition.kind == Kind::Successor
    }

    /// Its URL, for people.
    pub(crate) fn url(&self) -> &str {
        self.definition.destination.as_ref().map_or("-", |d| d.url.as_str())
    }

    /// It is being asked for a target.
    pub(crate) fn note_asked(&self, target: &Target) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(target.clone());
    }

    /// What it was last asked for.
    pub(crate) fn last_asked(&self) -> Option<Target> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Closes connections that nobody needs; gives how many are kept.
    pub(crate) fn sweep(&self, now: Now) -> usize {
        let kept = self.pool.sweep(now);
        self.idle.set(i64::try_from(kept).unwrap_or(i64::MAX));
        kept
    }
}
