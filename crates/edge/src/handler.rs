//! One request of a client: host to project, target to key, what is held to an answer.
//!
//! The loop of [`get`]: look up -> decide by the rules ([`http_cache::next_step`]) -> serve, or join
//! the question that is in flight for the key, or begin it -> serve what came. A request goes round
//! again when what it joined was for another client alone, or when the object changed before its
//! answer began.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use fill::{Failure, MasterId};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_cache::errors::{Meaning, meaning};
use http_cache::{
    CacheStatus, Forward, Freshness, NoCache, Selecting, Served as Why, Step, Target, elements,
    key, next_step,
};
use model::Now;
use rt::clock;
use serve::pace::Pace;
use serve::{Body, Client, Handler, RequestBody, Way};
use store::Key;
use usage::{ConnectionRecord, Outcome as Served};

use crate::access::{Access, Answered};
use crate::answers;
use crate::coming::Coming;
use crate::deliver::{Delivered, Wanted, deliver, deliver_whole};
use crate::fetch::Ask;
use crate::flight::{self, How, Outcome, Payload, Seat};
use crate::group;
use crate::host::host_of;
use crate::memo::Memo;
use crate::offer;
use crate::pass::{may_pass, pass, pass_method};
use crate::project::Project;
use crate::purge::Verdict;
use crate::redirect;
use crate::refusal::Refusal;
use crate::rules::PathRules;
use crate::state::{Edge, Found, Object, OnDisk};
use crate::visitor::Visitor;

/// Health of this edge, on any host.
pub(crate) const HEALTH_PATH: &str = "/.well-known/cacheboy/health";
/// Rounds of one request in all.
const ROUNDS_MAX: u32 = 100;
/// After so many answers that were for other clients alone a request asks for itself: nobody waits
/// in a line.
const ALONE_MAX: u32 = 5;
/// After so many changes of the object before its answer began a request gives up: each of them was
/// a question to a master.
const CHANGES_MAX: u32 = 5;

/// Answers clients.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) edge: Arc<Edge>,
    /// They are clients of the process that had the stores before, which bears the same name.
    pub(crate) is_for_former: bool,
}

impl Handler for Front {
    type Visitor = Visitor;

    fn greet(&self, client: Client) -> Visitor {
        Visitor::of(client, &self.edge)
    }

    fn handle(
        &self,
        request: Request<RequestBody>,
        visitor: &Visitor,
    ) -> impl Future<Output = Response<Body>> + Send {
        let edge = &self.edge;
        let pace = edge.pace_of(&request, visitor);
        let offer = offer::to(edge, &request, visitor.client);
        let mut access = Access::begin(edge, *visitor, &request, self.is_for_former);
        let visitor = *visitor;
        if edge.guard.has_turns() && !self.is_for_former && request.uri().path() != HEALTH_PATH {
            return Coming::later(async move {
                let answered = match edge.guard.turn(visitor.client.address.ip()).await {
                    Ok(turn) => {
                        access.turn = turn;
                        answer(edge, request, visitor, false, &mut access.project).await
                    }
                    Err(refusal) => Answered::refused(edge, refusal, request.method()),
                };
                let mut response = access.end(paced(answered, pace));
                offer::add(offer, &mut response);
                response
            });
        }
        let coming = answer(edge, request, visitor, self.is_for_former, &mut access.project);
        coming.map(move |answered| {
            let mut response = access.end(paced(answered, pace));
            offer::add(offer, &mut response);
            response
        })
    }

    fn leave(&self, visitor: &Visitor, way: Option<Way>) {
        let edge = &self.edge;
        // Whoever was sent nothing has no way to speak of.
        let way = way.filter(|way| way.sent_segments > 0 && !self.is_for_former);
        let Some(way) = way else { return };
        let Visitor { client, asn, country, .. } = *visitor;
        edge.account.note_connection(&ConnectionRecord {
            ended_ms: clock::now().wall_ms,
            client: client.address.ip(),
            asn,
            country,
            node: edge.name.as_str(),
            way,
        });
    }
}

/// Held back by the caps of the node and its bill.
fn paced(mut answered: Answered, (pace, limit): (Pace, &'static str)) -> Answered {
    if !pace.is_empty() {
        answered.response = answered.response.map(|body| body.paced(pace));
        answered.limit = if answered.limit.is_empty() { limit } else { answered.limit };
    }
    answered
}

/// Notes in `of_project` whose content is asked for, as soon as that is known.
fn answer<'a>(
    edge: &'a Arc<Edge>,
    request: Request<RequestBody>,
    visitor: Visitor,
    is_for_former: bool,
    of_project: &mut Option<Arc<Project>>,
) -> Coming<'a, Answered> {
    if request.uri().path() == HEALTH_PATH {
        return Coming::now(Answered::new(health(edge, request.method()), Served::Health));
    }
    let method = request.method().clone();
    admit(edge, request, visitor, is_for_former, of_project)
        .unwrap_or_else(|refusal| Coming::now(Answered::refused(edge, refusal, &method)))
}

/// Host to project.
fn admit<'a>(
    edge: &'a Arc<Edge>,
    request: Request<RequestBody>,
    visitor: Visitor,
    is_for_former: bool,
    of_project: &mut Option<Arc<Project>>,
) -> Result<Coming<'a, Answered>, Refusal> {
    let (parts, body) = request.into_parts();
    let host = host_of(parts.version, &parts.uri, &parts.headers).ok_or(Refusal::BadHost)?;
    let projects = edge.projects.load();
    if projects.generation == 0 {
        return Err(Refusal::NoNodeMap);
    }
    let project = projects.of_host(host).cloned().ok_or(Refusal::UnknownHost)?;
    drop(projects);
    *of_project = Some(Arc::clone(&project));
    if !is_for_former && edge.me.in_loop(&parts.headers) {
        return Err(Refusal::Loop);
    }
    if project.knows_others() && !is_for_former {
        return Ok(Coming::later(here_or_elsewhere(edge, project, visitor, parts, body)));
    }
    here(edge, project, visitor.client, is_for_former, parts, body)
}

/// Of a project for whose clients other nodes count: sent on to one of these, or answered.
async fn here_or_elsewhere(
    edge: &Arc<Edge>,
    project: Arc<Project>,
    visitor: Visitor,
    mut parts: Parts,
    body: RequestBody,
) -> Answered {
    let beside = match redirect::look(edge, &project, visitor, &mut parts).await {
        Ok(beside) => beside,
        Err(response) => return Answered::new(response, Served::Redirected),
    };
    let method = parts.method.clone();
    let mut answered = match here(edge, project, visitor.client, false, parts, body) {
        Ok(coming) => coming.await,
        Err(refusal) => Answered::refused(edge, refusal, &method),
    };
    beside.add(&mut answered.response);
    answered
}

/// Target to key.
fn here(
    edge: &Arc<Edge>,
    project: Arc<Project>,
    client: Client,
    is_for_former: bool,
    parts: Parts,
    body: RequestBody,
) -> Result<Coming<'_, Answered>, Refusal> {
    let Parts { method, uri, version, headers, .. } = &parts;
    if *method != Method::GET && *method != Method::HEAD {
        if !project.passes_methods() {
            let is_known = is_known(method);
            return Err(if is_known { Refusal::MethodNotAllowed } else { Refusal::UnknownMethod });
        }
        if !may_pass(method) {
            return Err(Refusal::MethodNeverPassed);
        }
        if elements(headers, header::TRANSFER_ENCODING).any(|c| !c.eq_ignore_ascii_case(b"chunked"))
        {
            return Err(Refusal::UnknownCoding);
        }
        let target = project.reduce(Target::of(uri).map_err(Refusal::BadTarget)?);
        let host = host_of(*version, uri, headers).ok_or(Refusal::BadHost)?.to_owned();
        let request = Request::from_parts(parts, body);
        return Ok(Coming::later(async move {
            pass_method(edge, &project, &host, &target, request).await
        }));
    }
    let mut parsed = http_cache::Request::parse(method, uri, headers)?;
    parsed.target = project.reduce(parsed.target);
    let rules = Arc::clone(project.rules(&parsed.target));
    let base = Key(key(&project.name, &parsed.target));
    let asked = Asked {
        edge,
        base,
        key: base,
        selecting: Selecting::default(),
        rules,
        project,
        request: parsed,
        method: parts.method,
        headers: parts.headers,
        client: client.address.ip(),
    };
    // What another process of this edge passes on is counted there.
    let counts = edge.guard.counts_copies() && !is_for_former;
    if counts {
        edge.guard.may_have(&base, client.address.ip())?;
    }
    let coming = if asked.rules.group().is_some() && !edge.is_handed_over() {
        Coming::later(of_group(asked, client.address))
    } else {
        begin(asked)
    };
    Ok(match counts {
        true => coming.map(move |answered| edge.guard.count(&base, client.address.ip(), answered)),
        false => coming,
    })
}

/// From the group of the target, else as everything is.
async fn of_group(asked: Asked<'_>, client: SocketAddr) -> Answered {
    let Asked { edge, project, rules, request, headers, .. } = &asked;
    match group::answer(edge, project, rules, request, headers, client).await {
        Some(answered) => answered,
        None => begin(asked).await,
    }
}

fn health(edge: &Edge, method: &Method) -> Response<Body> {
    let (status, words) = if edge.is_draining() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else if edge.projects.load().generation == 0 {
        (StatusCode::SERVICE_UNAVAILABLE, "no node map yet")
    } else {
        (StatusCode::OK, "up")
    };
    let mut response = answers::text(status, words);
    if *method == Method::HEAD {
        *response.body_mut() = Body::empty();
    }
    response
}

fn is_known(method: &Method) -> bool {
    [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::OPTIONS,
        Method::TRACE,
        Method::CONNECT,
        Method::PATCH,
    ]
    .contains(method)
}

/// A GET or HEAD, understood.
pub(crate) struct Asked<'a> {
    pub(crate) edge: &'a Arc<Edge>,
    pub(crate) project: Arc<Project>,
    /// The key of the target.
    base: Key,
    /// Where the answer stands, or would, when last looked at.
    pub(crate) key: Key,
    /// Those of its fields that masters are told.
    selecting: Selecting,
    pub(crate) request: http_cache::Request,
    /// What the project says of the target.
    rules: Arc<PathRules>,
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    client: IpAddr,
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
        self.judge(found)
    }

    /// The same as far as it is in memory.
    fn look_now(&mut self) -> Result<Judged, OnDisk> {
        let (target, headers) = (&self.request.target, &self.headers);
        let found = self.edge.find_now(&self.project, target, self.base, headers)?;
        Ok(self.judge(found))
    }

    /// What is to be done with what was found.
    fn judge(&mut self, found: Found) -> Judged {
        (self.key, self.selecting) = (found.key, found.selecting);
        let (edge, now) = (self.edge, clock::now());
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
fn begin(mut asked: Asked<'_>) -> Coming<'_, Answered> {
    if asked.edge.is_handed_over() {
        return Coming::later(get(asked, None));
    }
    match asked.look_now() {
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
