//! Following the routing table of a `bgp` role: the last good one from disk at once, then the publisher
//! by long poll, over HTTP or in the same process, and what becomes of routes whose sessions have gone
//! (`routes/hold.rs`).
//!
//! # Invariants
//! - Whatever happens to the publisher, the routes of before stay in use.
//! - B2: routes whose view has no session any more stay for a while, then the view has none.
//! - A document is taken over whole or not at all; memory is bounded by its size.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bgp_proto::feed::{BYTES_MAX, Feed, FeedError, Followed, Gap};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri};
use model::Name;
use model::route::RouteTable;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::{JoinError, spawn_blocking};

use crate::background::giving_way;
use crate::client::{self, Get, GetError};
use crate::metrics::host;
use crate::{Context, Metrics, Phase, clock, file};

mod hold;
#[cfg(test)]
mod tests;

use hold::Hold;

/// How long the publisher may hold a poll.
const WAIT_S: u64 = 30;
/// How long a poll may take: a full table on a slow line.
const POLL_MAX: Duration = Duration::from_secs(120);
/// Wait after a poll that failed, and shortest time from one poll to the next.
const REST: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 1000 });
/// How often routes are written to disk at most.
const KEEP: Duration = Duration::from_millis(if cfg!(test) { 0 } else { 10_000 });

/// How long the routes of a view stay after its last session, unless `routes_hold_s` says so.
pub const HOLD_S: u64 = 120;
/// How many percent of clients a change of routes moves at once, unless `routes_move_percent` says so.
pub const MOVE_PERCENT: u32 = 5;

/// `routes` of `[location]`, and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutesParams {
    /// Whose table it is.
    pub source: RouteSource,
    /// How long the routes of a view stay after its last session has gone, seconds.
    pub hold_s: u64,
    /// How many percent of known addresses a change of routes moves at once: 1 to 100.
    pub move_percent: u32,
}

/// Where a table of routes is to be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteSource {
    /// A `bgp` role publishes it there.
    Http(Uri),
    /// The `bgp` role of this process has it.
    Local,
}

impl fmt::Display for RouteSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(uri) => uri.fmt(f),
            Self::Local => f.write_str("local"),
        }
    }
}

type Polled = Pin<Box<dyn Future<Output = Option<Bytes>> + Send>>;
type Poll = Arc<dyn Fn(String) -> Polled + Send + Sync>;

/// The `bgp` role of this process, for those in it who follow its table.
#[derive(Clone, Default)]
pub struct LocalRoutes(watch::Sender<Option<Poll>>);

impl LocalRoutes {
    /// `poll` gets a follower's cursor and gives what that follower does not have, as soon as there is
    /// something; `None` when there was nothing for a while.
    pub fn publish<F>(&self, poll: impl Fn(String) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Option<Bytes>> + Send + 'static,
    {
        self.0.send_replace(Some(Arc::new(move |have| Box::pin(poll(have)))));
    }

    /// Waits for the role to serve, and asks it.
    async fn poll(&self, have: String) -> Option<Bytes> {
        let mut poll = self.0.subscribe();
        // The sender is here, so the channel is not closed.
        let poll = poll.wait_for(Option::is_some).await.ok()?.clone()?;
        poll(have).await
    }
}

impl fmt::Debug for LocalRoutes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalRoutes")
    }
}

/// The table of each view.
pub type Tables = BTreeMap<Name, Arc<RouteTable>>;

/// The tables as they change.
pub type FollowingRoutes = watch::Receiver<Arc<Tables>>;

/// The file that holds the routes taken over last.
pub fn last_good_path(state_dir: &Path) -> PathBuf {
    state_dir.join("routes.last-good")
}

/// The tables in the file of the last good routes; none where it is not there or unreadable.
pub fn last_good(state_dir: &Path) -> Tables {
    load(&last_good_path(state_dir)).map(|followed| tables_of(&followed)).unwrap_or_default()
}

/// Starts to follow; what is on disk is there when this returns. The tasks end with the context's
/// shutdown. Needs a tokio runtime.
///
/// # Errors
/// Only by a defect while the file is read.
pub async fn start(params: &RoutesParams, context: &Context) -> Result<FollowingRoutes, JoinError> {
    let path = last_good_path(&context.state_dir);
    let from_disk = path.clone();
    let followed = spawn_blocking(move || load(&from_disk).unwrap_or_default()).await?;
    let (sender, receiver) = watch::channel(Arc::new(followed.clone()));
    let may_write = Arc::new(Mutex::new(true));
    let pen = Arc::clone(&may_write);
    context.on_yield("last good routes", async move {
        // Waits for a write under way, on a thread that may.
        let _ = spawn_blocking(move || *pen.lock().unwrap_or_else(PoisonError::into_inner) = false)
            .await;
    });
    let shown = receiver.clone();
    context.status.set("routes", move || status(&shown.borrow()));
    let follower = Follower {
        source: params.source.clone(),
        local: context.local_routes.clone(),
        metrics: context.metrics.clone(),
        followed,
        sender,
        error_shown: String::new(),
    };
    follower.show();
    let hold = Hold::new(params.hold_s);
    let (tables, watched) = watch::channel(Arc::default());
    let shutdown = context.shutdown.clone();
    let keeper = Keeper { path, may_write, kept: None };
    let mut holder = Holder { hold, followed: receiver, tables, keeper, unkept: false };
    holder.look();
    tokio::spawn(async move {
        tokio::select! {
            () = follower.run() => {}
            () = holder.run() => {}
            () = shutdown.reached(Phase::Draining) => {}
        }
    });
    Ok(watched)
}

fn load(path: &Path) -> Option<Followed> {
    let bytes = file::read_bounded(path, BYTES_MAX as u64).ok()?;
    let mut followed = Followed::default();
    let read = Feed::read(&bytes).map_err(PollError::Invalid);
    match read.and_then(|feed| followed.apply(feed).map_err(PollError::Gap)) {
        Ok(()) => Some(followed),
        Err(error) => {
            let error = chain(&error);
            tracing::warn!(path = %path.display(), error, "the last good routes are unreadable");
            None
        }
    }
}

fn tables_of(followed: &Followed) -> Tables {
    followed.views().iter().map(|(view, of)| (view.clone(), Arc::clone(&of.table))).collect()
}

fn status(followed: &Followed) -> Value {
    let view = |(view, of): (&Name, &bgp_proto::feed::FollowedView)| {
        let (v4, v6) = of.table.len();
        (view.to_string(), json!({ "up": of.up, "version": of.version, "v4": v4, "v6": v6 }))
    };
    followed.views().iter().map(view).collect()
}

/// Why a poll brought nothing usable. The first word is the metric's label.
#[derive(Debug, thiserror::Error)]
enum PollError {
    #[error("fetch")]
    Fetch(#[source] GetError),
    #[error("status")]
    Status(#[source] StatusError),
    #[error("invalid")]
    Invalid(#[source] FeedError),
    #[error("gap")]
    Gap(#[source] Gap),
    #[error("defect")]
    Defect(#[source] JoinError),
}

#[derive(Debug, thiserror::Error)]
#[error("the publisher answered {0}")]
struct StatusError(StatusCode);

/// Asks a publisher for what a follower with this cursor does not have.
async fn fetch(source: &Uri, has: &str) -> Result<Option<Bytes>, PollError> {
    let separator = if source.query().is_some() { '&' } else { '?' };
    let url = format!("{source}{separator}have={has}&wait={WAIT_S}");
    let url = url.parse().unwrap_or_else(|_| source.clone());
    let headers = HeaderMap::new();
    let ask = Get { url, connect_to: None, headers, timeout: POLL_MAX, body_bytes_max: BYTES_MAX };
    let reply = client::get(ask).await.map_err(PollError::Fetch)?;
    match reply.status {
        StatusCode::OK => Ok(Some(reply.body)),
        StatusCode::NOT_MODIFIED => Ok(None),
        other => Err(PollError::Status(StatusError(other))),
    }
}

/// Asks the publisher.
struct Follower {
    source: RouteSource,
    local: LocalRoutes,
    metrics: Metrics,
    followed: Followed,
    sender: watch::Sender<Arc<Followed>>,
    /// The last error logged: the same one again and again is counted, not logged.
    error_shown: String,
}

impl Follower {
    async fn run(mut self) {
        loop {
            if let Err(error) = self.poll().await {
                self.note(&error);
            }
            tokio::time::sleep(REST).await;
        }
    }

    /// One poll.
    async fn poll(&mut self) -> Result<(), PollError> {
        let has = self.followed.cursor();
        let document = match &self.source {
            RouteSource::Http(source) => fetch(source, &has).await?,
            RouteSource::Local => self.local.poll(has).await,
        };
        if let Some(document) = document {
            self.take(document).await?;
        }
        self.error_shown.clear();
        let confirmed = self.metrics.gauge(&host::ROUTES_CONFIRMED, &[]);
        confirmed.set(i64::try_from(clock::now().wall_s()).unwrap_or(i64::MAX));
        Ok(())
    }

    /// Takes a document over. Reading a full table is work: not for the runtime's threads.
    async fn take(&mut self, document: Bytes) -> Result<(), PollError> {
        let mut followed = self.followed.clone();
        let work = spawn_blocking(move || {
            giving_way(|| {
                let feed = Feed::read(&document).map_err(PollError::Invalid)?;
                followed.apply(feed).map_err(PollError::Gap)?;
                Ok(followed)
            })
        });
        match work.await.map_err(PollError::Defect)? {
            Ok(followed) => self.followed = followed,
            Err(error) => {
                // What is here and what was offered do not fit: the next poll asks for the whole.
                if matches!(error, PollError::Gap(_)) {
                    self.followed = Followed::default();
                }
                return Err(error);
            }
        }
        self.sender.send_replace(Arc::new(self.followed.clone()));
        self.show();
        Ok(())
    }

    fn show(&self) {
        for (view, of) in self.followed.views() {
            let (v4, v6) = of.table.len();
            for (family, routes) in [("v4", v4), ("v6", v6)] {
                let gauge = self.metrics.gauge(&host::ROUTES, &[view.as_str(), family]);
                gauge.set(i64::try_from(routes).unwrap_or(i64::MAX));
            }
            self.metrics.gauge(&host::ROUTES_UP, &[view.as_str()]).set(i64::from(of.up));
        }
    }

    fn note(&mut self, error: &PollError) {
        let reason = error.to_string();
        self.metrics.counter(&host::ROUTES_ERRORS, &[&reason]).inc();
        let error = chain(error);
        if self.error_shown != error {
            tracing::warn!(source = %self.source, error, "no news of routes: those of before stay");
            self.error_shown = error;
        }
    }
}

/// What an error is, and why.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Makes tables of what is followed, when that changes and when a hold ends.
struct Holder {
    hold: Hold,
    followed: watch::Receiver<Arc<Followed>>,
    tables: watch::Sender<Arc<Tables>>,
    keeper: Keeper,
    /// Whether the newest tables are not on disk yet.
    unkept: bool,
}

impl Holder {
    async fn run(mut self) {
        loop {
            let hold = self.look();
            let keep = self.unkept.then(|| self.keeper.due());
            tokio::select! {
                changed = self.followed.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                () = passed(hold) => {}
                () = passed(keep) => {
                    self.unkept = false;
                    let up = self.followed.borrow().clone();
                    let tables = Arc::clone(&self.tables.borrow());
                    self.keeper.keep(&up, &tables).await;
                }
            }
        }
    }

    /// Publishes the tables of this moment; tells how long until a hold ends.
    fn look(&mut self) -> Option<Duration> {
        let followed = Arc::clone(&self.followed.borrow_and_update());
        let (tables, until_ns) = self.hold.tables(followed.views(), clock::now());
        self.unkept |= self.tables.send_if_modified(|old| {
            let same = old.len() == tables.len()
                && old.iter().zip(&tables).all(|(a, b)| a.0 == b.0 && Arc::ptr_eq(a.1, b.1));
            if !same {
                *old = Arc::new(tables);
            }
            !same
        });
        until_ns.map(|until| Duration::from_nanos(until.saturating_sub(clock::now().mono_ns)))
    }
}

/// Waits so long; without a time, for ever.
async fn passed(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// Writes the tables in use for the next start, and for the commands that look at this host.
struct Keeper {
    path: PathBuf,
    /// False once the file is a successor's.
    may_write: Arc<Mutex<bool>>,
    /// When it was written last, by the monotonic clock.
    kept: Option<u64>,
}

impl Keeper {
    /// How long until it may write.
    fn due(&self) -> Duration {
        let since = self.kept.map(|kept| clock::now().mono_ns.saturating_sub(kept));
        since.map_or(Duration::ZERO, |since| KEEP.saturating_sub(Duration::from_nanos(since)))
    }

    async fn keep(&mut self, followed: &Followed, tables: &Arc<Tables>) {
        self.kept = Some(clock::now().mono_ns);
        let (tables, path) = (Arc::clone(tables), self.path.clone());
        let (may_write, followed) = (Arc::clone(&self.may_write), followed.clone());
        let work = spawn_blocking(move || {
            let up = |view: &Name| followed.views().get(view).is_some_and(|of| of.up);
            let views =
                tables.iter().map(|(view, table)| (view.clone(), up(view), Arc::clone(table)));
            let document = giving_way(|| Followed::kept(views).document());
            let may_write = may_write.lock().unwrap_or_else(PoisonError::into_inner);
            if *may_write && let Err(error) = file::write_atomic(&path, &document) {
                tracing::warn!(path = %path.display(), %error,
                    "cannot keep the routes for the next start");
            }
        });
        let _ = work.await;
    }
}
