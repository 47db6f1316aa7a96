//! Groups of index files: a client never sees an index and its signature from different times.
//!
//! Members of a group (`group` in `[[project.NAME.path]]`) are looked at together on a wall-clock grid
//! that is the same on every node ([`grid`]), and clients are served from snapshots that were true at
//! one instant ([`machine`], [`snapshots`]). A client keeps the snapshot it began with ([`bindings`]). Looking goes
//! the way of every question to masters ([`look`]).
//!
//! Each group has one task, for as long as the edge runs; it sleeps when nobody asks. What the group
//! cannot serve (what may not be kept, what is too much) goes the usual way of all objects.

mod bindings;
mod grid;
mod look;
mod machine;
#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, reason = "tests may panic")]
mod simulation;
mod snapshots;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_cache::hygiene::CDN_LOOP;
use http_cache::{CacheStatus, Forward, Request, StoredHead, Target};
use model::{Name, Now};
use rt::metrics::{Counter, Gauge, edge as metric};
use rt::{Metrics, Phase, clock};
use serve::Body;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use usage::Outcome as Served;

use self::grid::Grid;
use self::look::{Version, look};
use self::machine::{Found, Next, Outcome, Reply, Serving};
use self::snapshots::Held;
use crate::access::Answered;
use crate::answers;
use crate::deliver::{Wanted, deliver};
use crate::project::Project;
use crate::purge::Verdict;
use crate::rules::PathRules;
use crate::state::{Edge, Object};

/// Questions of one group to masters at a time.
const LOOKS_AT_ONCE: usize = 8;

/// The part of the disks that the contents of one group may keep from eviction: one in so many bytes.
const DISK_PART: u64 = 4;

/// All groups of the edge, by project and name.
#[derive(Debug)]
pub(crate) struct Groups {
    /// Bytes that the contents of one group may have.
    bytes_max: u64,
    running: Mutex<HashMap<(Name, Name), Arc<Running>>>,
    metrics: Metrics,
}

/// A group with its task.
#[derive(Debug)]
struct Running {
    name: Name,
    /// The newest of its project's definitions.
    project: ArcSwap<Project>,
    machine: Mutex<machine::Group<Version>>,
    step_s: u32,
    /// The last purge before it began.
    born: u64,
    /// A request has to wait, or it is over.
    wake: Notify,
    /// Another has taken its place.
    is_over: AtomicBool,
    /// Passes made. Closed when the edge stops.
    passes: watch::Receiver<u64>,
    figures: Figures,
}

#[derive(Debug)]
struct Figures {
    members: Gauge,
    looks: Counter,
    switches: Counter,
    mixed: Counter,
}

impl Groups {
    /// None yet. `disk_bytes`: of all disks.
    pub(crate) fn new(metrics: &Metrics, disk_bytes: u64) -> Self {
        let bytes_max = disk_bytes / DISK_PART;
        Self { bytes_max, running: Mutex::default(), metrics: metrics.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(Name, Name), Arc<Running>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the group of a project, if it runs; who waits for it goes the usual way.
    fn end(&self, project: &Project, name: &Name) {
        if let Some(former) = self.lock().remove(&(project.name.clone(), name.clone())) {
            former.is_over.store(true, Relaxed);
            former.wake.notify_one();
        }
    }

    /// Ends all groups: another process looks at their members.
    pub(crate) fn end_all(&self) {
        for (_, former) in self.lock().drain() {
            former.is_over.store(true, Relaxed);
            former.wake.notify_one();
        }
    }

    /// A request may have changed a member: what snapshots have of it is void (RFC 9111 section 4.4).
    pub(crate) fn handle_changed(&self, project: &Project, target: &Target) {
        if let Some((name, _)) = project.rules(target).group() {
            self.end(project, name);
        }
    }

    /// For `/status`.
    pub(crate) fn status(&self) -> serde_json::Value {
        let groups = self.lock();
        let one = |((project, name), running): (&(Name, Name), &Arc<Running>)| {
            let figures = running.lock().figures();
            serde_json::json!({
                "project": project, "group": name, "grid_s": running.step_s,
                "members": figures.members, "missing": figures.missing,
                "snapshot_of": (figures.tick_ms > 0).then(|| model::time::utc(figures.tick_ms)),
                "snapshots_kept": figures.snapshots_kept, "switches": figures.switches,
                "why_kept": figures.kept.map(|kept| kept.as_str()),
            })
        };
        groups.iter().map(one).collect()
    }
}

/// The running group of a project; made, or made anew when its grid has changed.
fn running(edge: &Arc<Edge>, project: &Arc<Project>, name: &Name, step_s: u32) -> Arc<Running> {
    let mut groups = edge.groups.lock();
    let of = (project.name.clone(), name.clone());
    if let Some(running) = groups.get(&of).filter(|running| running.step_s == step_s) {
        if !Arc::ptr_eq(&running.project.load(), project) {
            running.project.store(Arc::clone(project));
        }
        return Arc::clone(running);
    }
    let (made, passes) = watch::channel(0);
    let labels = [project.name.as_str(), name.as_str()];
    let metrics = &edge.groups.metrics;
    let running = Arc::new(Running {
        name: name.clone(),
        project: ArcSwap::new(Arc::clone(project)),
        machine: Mutex::new(machine::Group::new(clock::now(), Grid::new(step_s))),
        step_s,
        born: edge.memos.last_purge(),
        wake: Notify::new(),
        is_over: AtomicBool::new(false),
        passes,
        figures: Figures {
            members: metrics.gauge(&metric::GROUP_MEMBERS, &labels),
            looks: metrics.counter(&metric::GROUP_LOOKS, &labels),
            switches: metrics.counter(&metric::GROUP_SWITCHES, &labels),
            mixed: metrics.counter(&metric::GROUP_MIXED, &labels),
        },
    });
    if let Some(former) = groups.insert(of, Arc::clone(&running)) {
        former.is_over.store(true, Relaxed);
        former.wake.notify_one();
    }
    drop(groups);
    let (edge, driven) = (Arc::clone(edge), Arc::clone(&running));
    tokio::spawn(async move {
        tokio::select! {
            () = driven.drive(&edge, made) => {}
            () = edge.shutdown.reached(Phase::Yielded) => {}
        }
    });
    running
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, machine::Group<Version>> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what the machine wants, until another group has taken its place.
    async fn drive(&self, edge: &Arc<Edge>, made: watch::Sender<u64>) {
        while !self.is_over.load(Relaxed) {
            let next = self.lock().poll(clock::now());
            match next {
                Next::Pass { targets, whole } => {
                    let found = self.pass(edge, targets, whole).await;
                    let outcome = self.lock().handle_pass(clock::now(), found);
                    self.note(edge, outcome);
                    made.send_modify(|passes| *passes = passes.wrapping_add(1));
                }
                Next::Sleep(ms) => tokio::select! {
                    () = tokio::time::sleep(Duration::from_millis(ms)) => {}
                    () = self.wake.notified() => {}
                },
                Next::Idle => self.wake.notified().await,
            }
        }
    }

    /// Looks at all targets, some at a time.
    async fn pass(
        &self,
        edge: &Arc<Edge>,
        targets: Vec<Target>,
        whole: bool,
    ) -> Vec<(Target, Found<Version>)> {
        self.figures.looks.inc_by(u64::try_from(targets.len()).unwrap_or(u64::MAX));
        let mut found = Vec::with_capacity(targets.len());
        let mut looks = JoinSet::new();
        for target in targets {
            if looks.len() >= LOOKS_AT_ONCE
                && let Some(Ok(one)) = looks.join_next().await
            {
                found.push(one);
            }
            let (edge, project) = (Arc::clone(edge), self.project.load_full());
            looks.spawn(async move {
                let what = look(&edge, &project, &target, whole).await;
                (target, what)
            });
        }
        while let Some(one) = looks.join_next().await {
            found.extend(one.ok());
        }
        found
    }

    /// Whether a purge came after what the snapshot has of a target. Content is confirmed at the next
    /// tick, which is soon enough for a soft one.
    fn is_purged(&self, edge: &Edge, target: &Target, serving: &Serving<Version>) -> bool {
        match &serving.held {
            Held::Content(Version(object)) => edge.verdict(object) == Verdict::Gone,
            Held::Missing(_) => {
                edge.purges.voids_note(&self.project.load().name, target.as_str(), self.born)
            }
            Held::Apart(_) => false,
        }
    }

    /// Counts what became of the snapshot, and tells operators when it could not be replaced.
    fn note(&self, edge: &Edge, outcome: Outcome) {
        let figures = {
            let mut group = self.lock();
            let bytes = group.contents().map(|version| version.0.rep.length());
            let bytes = bytes.fold(0, u64::saturating_add);
            group.set_full(bytes >= edge.groups.bytes_max);
            group.figures()
        };
        self.figures.members.set(i64::try_from(figures.members).unwrap_or(i64::MAX));
        let project = &self.project.load().name;
        match outcome {
            Outcome::GoesOn | Outcome::Confirmed => {}
            Outcome::Switched => self.figures.switches.inc(),
            Outcome::Kept(why) => {
                let (why, group) = (why.as_str(), self.name.as_str());
                let labels = [project.as_str(), group, why];
                edge.groups.metrics.counter(&metric::GROUP_KEPT, &labels).inc();
                if let Some(more) = edge.complaints.due(project, why, clock::now()) {
                    let project = project.as_str();
                    tracing::warn!(project, group, why, more, "a group keeps its old snapshot");
                }
            }
        }
    }
}

/// Answers from the group that the rules of the target name. `None`: they name none, or it is
/// nothing that the group can serve.
pub(crate) async fn answer(
    edge: &Arc<Edge>,
    project: &Arc<Project>,
    rules: &PathRules,
    request: &Request,
    headers: &HeaderMap,
    peer: SocketAddr,
) -> Option<Answered> {
    let (name, step_s) = rules.group()?;
    // Another edge gets the newest always: it binds its own clients.
    let client = (!headers.contains_key(CDN_LOOP)).then_some(peer);
    let running = running(edge, project, name, step_s);
    let mut passes = running.passes.clone();
    passes.mark_unchanged();
    let target = &request.target;
    let mut reply = running.lock().handle_ask(clock::now(), client, target);
    let mut waited = false;
    while reply == Reply::Wait {
        if request.directives.only_if_cached {
            return None;
        }
        waited = true;
        running.wake.notify_one();
        passes.changed().await.ok()?;
        reply = running.lock().resume(clock::now(), client, target);
    }
    match reply {
        Reply::Serve(serving) if running.is_purged(edge, target, &serving) => {
            // What the snapshots hold is void: the next request begins the group anew.
            edge.groups.end(project, name);
            None
        }
        Reply::Serve(serving) => {
            if serving.mixed {
                running.figures.mixed.inc();
            }
            let wanted = Wanted { request, rules, client: None };
            serve(edge, wanted, serving, step_s, waited).await
        }
        Reply::Wait => None,
        Reply::Apart(why) => {
            let labels = [project.name.as_str(), name.as_str(), why];
            edge.groups.metrics.counter(&metric::GROUP_APART, &labels).inc();
            None
        }
    }
}

/// Answers with one version. `waited`: masters were asked for it.
async fn serve(
    edge: &Arc<Edge>,
    wanted: Wanted<'_>,
    serving: Serving<Version>,
    step_s: u32,
    waited: bool,
) -> Option<Answered> {
    let word = if serving.stale { "stale-on-error" } else { "group" };
    let status = CacheStatus {
        ttl_s: Some(ttl_s(clock::now(), serving.tick_ms, step_s)),
        ..if waited { CacheStatus::forwarded(Forward::UriMiss) } else { CacheStatus::hit() }
    }
    .with_detail(word);
    match serving.held {
        Held::Content(Version(object)) => {
            let served = match (serving.stale, waited) {
                (true, _) => Served::Stale,
                (false, true) => Served::Miss,
                (false, false) => Served::Hit,
            };
            let object = Arc::new(presented(&object, serving.tick_ms, step_s));
            let delivered = deliver(edge, object, wanted, clock::now(), status, None).await.ok()?;
            let by = delivered.told.map(|told| told.by);
            Some(Answered::new(delivered.response, served).from(by))
        }
        Held::Missing(code) => Some(Answered::new(missing(edge, code, &status), Served::Negative)),
        Held::Apart(_) => None,
    }
}

/// Until the next tick after that of the snapshot, seconds; negative when it is over.
fn ttl_s(now: Now, tick_ms: u64, step_s: u32) -> i64 {
    let age_s = i64::try_from(now.wall_ms.saturating_sub(tick_ms) / 1000).unwrap_or(i64::MAX);
    i64::from(step_s).saturating_sub(age_s)
}

/// With an age and a lifetime that end for all members at the same tick, so that no cache behind this
/// one takes the group apart.
fn presented(object: &Object, tick_ms: u64, step_s: u32) -> Object {
    let mut head = StoredHead::clone(&object.head);
    let headers = &mut head.headers;
    for name in [header::AGE, header::EXPIRES, header::PRAGMA] {
        headers.remove(name);
    }
    headers.remove("cdn-cache-control");
    if let Ok(lifetime) = HeaderValue::try_from(format!("max-age={step_s}")) {
        headers.insert(header::CACHE_CONTROL, lifetime);
    }
    (head.request_ms, head.response_ms) = (tick_ms, tick_ms);
    object.with_head(head)
}

/// What the masters did not have when they were asked for the snapshot.
fn missing(edge: &Edge, code: StatusCode, cache_status: &CacheStatus) -> Response<Body> {
    let mut response = answers::text(code, "the masters of this content do not have this");
    cache_status.add(response.headers_mut(), &edge.me);
    response
}
