//! A GET or HEAD, from its key to its answer.
//!
//! The loop of [`get`]: look up -> decide by the rules ([`http_cache::next_step`]) -> serve, or join
//! the question that is in flight for the key, or begin it -> serve what came. A request goes round
//! again when what it joined was for another client alone, or when the object changed before its
//! answer began.

use std::net::IpAddr;
use std::sync::Arc;

use fill::{Failure, MasterId};
use http::{HeaderMap, Method, StatusCode};
use http_cache::errors::{Meaning, meaning};
use http_cache::{
    CacheStatus, Forward, Freshness, NoCache, Selecting, Served as Why, Step, next_step,
};
use model::Now;
use rt::clock;
use store::Key;
use usage::Outcome as Served;

use crate::access::Answered;
use crate::answers;
use crate::coming::Coming;
use crate::deliver::{Delivered, Wanted, deliver, deliver_whole};
use crate::fetch::Ask;
use crate::flight::{self, How, Outcome, Payload, Seat};
use crate::memo::Memo;
use crate::pass::pass;
use crate::project::Project;
use crate::purge::Verdict;
use crate::refusal::Refusal;
use crate::rules::PathRules;
use crate::state::{Edge, Found, Object, OnDisk};

/// Rounds of one request in all.
const ROUNDS_MAX: u32 = 100;
/// After so many answers that were for other clients alone a request asks for itself: nobody waits
/// in a line.
const ALONE_MAX: u32 = 5;
/// After so many changes of the object before its answer began a request gives up: each of them was
/// a question to a master.
const CHANGES_MAX: u32 = 5;

/// A GET or HEAD, understood.
pub(crate) struct Asked<'a> {
    pub(crate) edge: &'a Arc<Edge>,
    pub(crate) project: Arc<Project>,
    /// The key of the target.
    pub(crate) base: Key,
    /// Where the answer stands, or would, when last looked at.
    pub(crate) key: Key,
    /// Those of its fields that masters are told.
    pub(crate) selecting: Selecting,
    pub(crate) request: http_cache::Request,
    /// What the project says of the target.
    pub(crate) rules: Arc<PathRules>,
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) client: IpAddr,
}

impl Asked<'_> {
    fn wanted(&self) -> Wanted<'_> {
        Wanted { request: &self.request, rules: &self.rules, client: Some(self.client) }
    }

    /// How fresh an object is for it.
    fn freshness(&self, object: &Object, now: Now) -> Freshness {
        object.head.freshness(now, &self.rules.policy)
    }

    /// Looks up what is held.
    async fn look(&mut self) -> Judged {
        let (target, headers) = (&self.request.target, &self.headers);
        let found = self.edge.find(&self.project, target, self.base, headers).await;
        self.judge(found, clock::now())
    }

    /// The same as far as it is in memory.
    fn look_now(&mut self, now: Now) -> Result<Judged, OnDisk> {
        let (target, headers) = (&self.request.target, &self.headers);
        let found = self.edge.find_now(&self.project, target, self.base, headers)?;
        Ok(self.judge(found, now))
    }

    /// What is to be done with what was found.
    fn judge(&mut self, found: Found, now: Now) -> Judged {
        (self.key, self.selecting) = (found.key, found.selecting);
        let edge = self.edge;
        let held = found.object;
        let fresh = held.as_ref().map(|held| self.freshness(held, now)).unwrap_or_default();
        let memo = edge.memo(&self.project, &self.request.target, &self.key);
        let known = held.as_ref().map(|held| (&**held.head, &fresh));
        let step = next_step(&self.request, known, &self.rules.policy);
        let verdict = || held.as_ref().map_or(Verdict::Keep, |held| edge.verdict(held));
        let step = suspicious(step, memo.suspect || verdict() != Verdict::Keep);
        Judged { now, held, fresh, memo, step }
    }

    /// The answer when content cannot be had: who failed last, where one did; `forward`: why it was
    /// asked for.
    pub(crate) fn failed(
        &self,
        why: Failure,
        master: Option<MasterId>,
        forward: Forward,
    ) -> Answered {
        let sources = &self.project.sources;
        let name = master.map_or("-", |master| sources.name_of(master));
        let response = answers::gateway_error(self.edge, why, name, forward);
        self.note_failed(&why.to_string(), response.status(), name);
        let upstream = master.and_then(|master| sources.get(master)).cloned();
        Answered::new(response, Served::Error).from(upstream)
    }

    /// Tells operators that content could not be had.
    pub(crate) fn note_failed(&self, why: &str, status: StatusCode, master: &str) {
        if let Some(more) = self.edge.complaints.due(&self.project.name, why, clock::now()) {
            let (project, target) = (self.project.name.as_str(), self.request.target.as_str());
            let status = status.as_u16();
            tracing::warn!(project, target, status, why, master, more, "content could not be had");
        }
    }
}

/// Why a request goes round again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    /// What is held was not what was looked at a moment before.
    Moved,
    /// What came was for another client alone.
    Alone,
    /// The object changed before its answer began.
    Changed,
}

/// What one round came to.
type Round = Result<Answered, Again>;

/// What is held of what was asked for, and what the rules make of that.
struct Judged {
    now: Now,
    held: Option<Object>,
    fresh: Freshness,
    memo: Memo,
    step: Step,
}

/// The first round, as far as nothing has to be waited for: a hit goes straight through.
pub(crate) fn begin(mut asked: Asked<'_>, now: Now) -> Coming<'_, Answered> {
    if asked.edge.is_handed_over() {
        return Coming::later(get(asked, None));
    }
    match asked.look_now(now) {
        Ok(Judged { now, held: Some(held), fresh, step: Step::Serve(why), .. })
            if held.rep.is_complete() =>
        {
            let status = hit_for(why, &fresh);
            let response = deliver_whole(asked.edge, held, asked.wanted(), now, &fresh, &status);
            Coming::now(Answered::new(response, Served::Hit))
        }
        judged => Coming::later(get(asked, judged.ok())),
    }
}

/// `judged`: what the first round has found already.
async fn get(mut asked: Asked<'_>, mut judged: Option<Judged>) -> Answered {
    let (mut alone, mut changes) = (0u32, 0u32);
    for _ in 0..ROUNDS_MAX {
        match round(&mut asked, judged.take()).await {
            Ok(answered) => return answered,
            Err(Again::Moved) => {}
            Err(Again::Alone) => alone = alone.saturating_add(1),
            Err(Again::Changed) => changes = changes.saturating_add(1),
        }
        if changes >= CHANGES_MAX {
            return asked.failed(Failure::Changed, None, Forward::UriMiss);
        }
        if alone >= ALONE_MAX {
            break;
        }
    }
    pass(&asked, NoCache::Error).await
}

async fn round(asked: &mut Asked<'_>, judged: Option<Judged>) -> Round {
    if asked.edge.is_handed_over() {
        return Ok(pass(asked, NoCache::HandedOver).await);
    }
    let judged = match judged {
        Some(judged) => judged,
        None => asked.look().await,
    };
    let Judged { now, held, fresh, memo, step } = judged;
    let edge = asked.edge;
    match (step, held.map(Arc::new)) {
        (Step::Pass(why), _) => Ok(pass(asked, why).await),
        (Step::Refuse(_), _) => {
            let response = Refusal::OnlyIfCached.answer(edge, &asked.method);
            Ok(Answered::new(response, Served::Refused))
        }
        (Step::Serve(why), Some(held)) => {
            serve(asked, held, now, hit_for(why, &fresh), Served::Hit).await
        }
        (Step::ServeAndRevalidate, Some(held)) => {
            behind(asked, &memo, &held, true);
            let status = hit(&fresh, Some("stale-while-revalidate"));
            serve(asked, held, now, status, Served::Stale).await
        }
        (Step::Revalidate { stale_on_error: true, .. }, Some(held)) if memo.troubled() => {
            // The masters were away a moment ago: nobody waits for them to be away again.
            behind(asked, &memo, &held, true);
            let status = hit(&fresh, Some("stale-on-error"));
            serve(asked, held, now, status, Served::Stale).await
        }
        (Step::Revalidate { why, stale_on_error }, Some(held)) => {
            if let Some(word) = memo.pass_held(now) {
                return Ok(pass(asked, word).await);
            }
            fly(asked, Some(held), why, stale_on_error).await
        }
        (_, None) => fetch(asked, &memo).await,
        (Step::Fetch, Some(held)) => fly(asked, Some(held), Forward::Stale, false).await,
    }
}

/// What a master contradicted, or a purge has doubted, is confirmed before it is used again.
fn suspicious(step: Step, doubted: bool) -> Step {
    match step {
        Step::Serve(_) | Step::ServeAndRevalidate if doubted => {
            Step::Revalidate { why: Forward::Stale, stale_on_error: true }
        }
        step => step,
    }
}

/// Nothing is held.
async fn fetch(asked: &Asked<'_>, memo: &Memo) -> Round {
    let now = clock::now();
    if let Some(status) = memo.errors.negative(now) {
        if status.is_server_error() {
            asked.note_failed("status", status, "-");
        }
        return Ok(Answered::new(answers::negative(asked.edge, status), Served::Negative));
    }
    if let Some(why) = memo.pass(now) {
        return Ok(pass(asked, why).await);
    }
    fly(asked, None, Forward::UriMiss, false).await
}

fn ask(asked: &Asked<'_>, held: Option<Arc<Object>>, stale_on_error: bool) -> Ask {
    Ask {
        project: Arc::clone(&asked.project),
        target: asked.request.target.clone(),
        base: asked.base,
        key: asked.key,
        selecting: asked.selecting.clone(),
        request: asked.request.clone(),
        policy: asked.rules.policy,
        headers: asked.headers.clone(),
        held,
        stale_on_error,
        is_doubtful: Arc::default(),
    }
}

/// Revalidates behind, if nobody does and it may be tried.
fn behind(asked: &Asked<'_>, memo: &Memo, held: &Arc<Object>, stale_on_error: bool) {
    if memo.may_ask(clock::now()) {
        flight::join(asked.edge, ask(asked, Some(Arc::clone(held)), stale_on_error));
    }
}

/// Joins the question about the key or begins it, and serves what comes of it.
async fn fly(
    asked: &Asked<'_>,
    held: Option<Arc<Object>>,
    why: Forward,
    stale_on_error: bool,
) -> Round {
    let edge = asked.edge;
    let purged = held.as_ref().is_some_and(|o| edge.verdict(o) == Verdict::Stale);
    let spare = held.clone().filter(|_| stale_on_error);
    let (flight, early, first) = match flight::join(edge, ask(asked, held, stale_on_error)) {
        Seat::First(flight) => {
            if purged {
                edge.purges.note_confirming();
            }
            (flight, None, true)
        }
        Seat::Joined(flight, early) => (flight, early, false),
        Seat::Stale => return Err(Again::Moved),
    };
    let waiting = async { if first { flight.beginning().await } else { flight.outcome().await } };
    let outcome = match spare {
        None => waiting.await,
        Some(held) => {
            let wait = tokio::time::timeout(edge.upstream.stale_wait(), waiting);
            wait.await.unwrap_or_else(|_| {
                // The question goes on behind; until it ends nobody else waits for it.
                edge.memos.update(&asked.key, |memo| memo.set_troubled(clock::now(), 0));
                Outcome::Ready(held, How::StaleOnError, None)
            })
        }
    };
    let payload = if first { flight.payload() } else { None };
    match outcome {
        // It depends on the request, and this one joined before that was known.
        Outcome::Ready(object, ..) if !first && object.key != asked.key => Err(Again::Moved),
        Outcome::Ready(object, how, _) if is_purged(edge, &object, how) => Err(Again::Moved),
        Outcome::Ready(object, how, told) => {
            let now = clock::now();
            let fwd_status = told.as_ref().and_then(|told| told.status);
            // A 304 is not stored: it says that what is stored is right.
            let confirmed = fwd_status == Some(StatusCode::NOT_MODIFIED);
            let forwarded = CacheStatus {
                fwd_status,
                stored: how != How::StaleOnError && !confirmed,
                collapsed: !first,
                ..CacheStatus::forwarded(why)
            };
            let (status, served) = match how {
                How::Fetched => (forwarded, Served::Miss),
                How::Revalidated => (forwarded, Served::Revalidated),
                How::StaleOnError => {
                    let fresh = asked.freshness(&object, now);
                    let CacheStatus { ttl_s, detail, .. } = hit(&fresh, Some("stale-on-error"));
                    (CacheStatus { ttl_s, detail, ..forwarded }, Served::Stale)
                }
            };
            let reader = match payload {
                Some(Payload::Reader(reader)) => Some(reader),
                _ => early.and_then(|mut reader| reader.try_recv().ok()),
            };
            let delivered = deliver(edge, object, asked.wanted(), now, status, reader).await;
            // Who was asked first, rather than who brought a part of it.
            let delivered = delivered.map(|d| Delivered { told: told.or(d.told), ..d });
            finish(asked, delivered, served).await
        }
        Outcome::Alone | Outcome::Streaming if first => Ok(alone(asked, payload, why).await),
        Outcome::Alone | Outcome::Again | Outcome::Streaming => Err(Again::Alone),
    }
}

/// Whether a purge came after the question was asked: what it brought may be what was purged.
fn is_purged(edge: &Edge, object: &Object, how: How) -> bool {
    match edge.verdict(object) {
        Verdict::Keep => false,
        // Nobody could be asked: a soft purge lets it be served all the same.
        Verdict::Stale => how != How::StaleOnError,
        Verdict::Gone => true,
    }
}

/// What a question brought for the one who began it.
async fn alone(asked: &Asked<'_>, payload: Option<Payload>, why: Forward) -> Answered {
    let edge = asked.edge;
    match payload {
        Some(Payload::Reply(answer, word)) => {
            let served = match answer.parts.status {
                code if meaning(code) == Meaning::Good => Served::Pass,
                code if code.is_client_error() => Served::Absent,
                _ => Served::Error,
            };
            let status = CacheStatus::forwarded(why).with_detail(word);
            if answer.parts.status.is_server_error() {
                let master = asked.project.sources.name_of(answer.master);
                asked.note_failed("status", answer.parts.status, master);
            }
            let upstream = asked.project.sources.get(answer.master).cloned();
            let response = answers::passed(edge, *answer, &asked.method, status);
            Answered::new(response, served).from(upstream)
        }
        Some(Payload::Stream(master, parts, tail)) => {
            let status = CacheStatus::forwarded(why);
            let response = answers::streamed(edge, *parts, tail, &asked.method, status);
            let upstream = asked.project.sources.get(master).cloned();
            Answered::new(response, Served::Miss).from(upstream)
        }
        Some(Payload::Pass(word)) => pass(asked, word).await,
        Some(Payload::Failed(failure, master)) => asked.failed(failure, master, why),
        Some(Payload::Reader(_)) | None => asked.failed(Failure::Connect, None, why),
    }
}

/// Serves what is held.
async fn serve(
    asked: &Asked<'_>,
    held: Arc<Object>,
    now: Now,
    status: CacheStatus,
    served: Served,
) -> Round {
    let result = deliver(asked.edge, held, asked.wanted(), now, status, None).await;
    let filled = served == Served::Hit && result.as_ref().is_ok_and(|d| d.filled);
    finish(asked, result, if filled { Served::Partial } else { served }).await
}

/// An answer, another round, or an error.
async fn finish(asked: &Asked<'_>, result: Result<Delivered, Failure>, served: Served) -> Round {
    match result {
        Ok(Delivered { response, told, .. }) => {
            Ok(Answered::new(response, served).from(told.map(|told| told.by)))
        }
        // Nothing of the old representation was sent: the client gets the new one.
        Err(Failure::Changed) => Err(Again::Changed),
        // Not to be stored now: served past the store.
        Err(Failure::Disk) => Ok(pass(asked, NoCache::Disk).await),
        Err(why) => Ok(asked.failed(why, None, Forward::Partial)),
    }
}

/// `Cache-Status` of a hit.
fn hit_for(why: Why, fresh: &Freshness) -> CacheStatus {
    hit(fresh, if why == Why::MaxStale { Some("max-stale") } else { None })
}

/// `Cache-Status` of what is served without asking.
fn hit(fresh: &Freshness, detail: Option<&'static str>) -> CacheStatus {
    let left = |a: u64, b: u64| i64::try_from(a.saturating_sub(b)).unwrap_or(i64::MAX);
    let ttl_s = if fresh.fresh {
        left(fresh.lifetime_s, fresh.age_s)
    } else {
        left(fresh.stale_for_s, 0).saturating_neg()
    };
    CacheStatus { ttl_s: Some(ttl_s), detail, ..CacheStatus::hit() }
}
