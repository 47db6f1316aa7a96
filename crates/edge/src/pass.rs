//! Requests that are passed on to a master for their client alone, and what they make doubtful.
//!
//! A GET or HEAD asks masters in turn until one has an answer. A request of another method may change
//! something: it goes to one master, once, with its content as it comes in, and is never repeated,
//! whatever becomes of it. When it succeeds, what is held of its target, and of what `Location` and
//! `Content-Location` name on the same host, is not used any more (RFC 9111 section 4.4).

use std::sync::Arc;

use fill::{Failure, MasterId};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use http_cache::errors::meaning;
use http_cache::hygiene::pass_request;
use http_cache::{
    CacheStatus, Forward, NoCache, Selecting, Target, answers_get, invalidated, key, storable,
    varying,
};
use rt::clock;
use serve::{Body, RequestBody};
use store::Key;
use usage::Outcome;

use crate::access::Answered;
use crate::answers;
use crate::asked::Asked;
use crate::project::Project;
use crate::refusal::Refusal;
use crate::spool::{self, Draft};
use crate::state::{BufferPermit, Edge};
use crate::upstream::{Answer, Call};

/// Passes a GET or HEAD on.
pub(crate) async fn pass(asked: &Asked<'_>, word: NoCache) -> Answered {
    let Asked { edge, project, request, method, .. } = asked;
    let cache_status = CacheStatus::forwarded(Forward::Bypass).with_detail(word.as_str());
    let mut tried = Vec::new();
    let mut worst = (Failure::Connect, None);
    loop {
        let successor = edge.successor(project).filter(|s| !tried.contains(s));
        let chosen = || project.sources.choose(clock::now(), &asked.key, None, &tried);
        let next = successor.or_else(|| chosen().map(|choice| choice.master));
        let Some(master) = next.filter(|m| !tried.contains(m)) else { break };
        tried.push(master);
        let headers = pass_request(&asked.headers, &edge.me);
        let call = Call::new(project, master, method, &request.target, headers);
        let answer = edge.upstream.ask(call).await;
        if successor.is_some() {
            edge.note_successor(&answer);
        }
        match answer {
            Ok(answer) => {
                let status = answer.parts.status;
                // The successor has asked others already.
                let is_last = successor.is_some() || tried.len() >= project.sources.attempts_max();
                note(project, &answer);
                if is_last || !meaning(status).try_another_master() {
                    if status.is_server_error() {
                        asked.note_failed("status", status, project.sources.name_of(master));
                    }
                    // What it says of others decides whether it is for them too.
                    let draft = (word == NoCache::Authorization && *method == Method::GET)
                        .then(|| draft(edge, project, &request.target, request, &answer))
                        .flatten();
                    let response = keep(edge, draft, answer, method, cache_status);
                    let upstream = project.sources.get(master).cloned();
                    return Answered::new(response, Outcome::Pass).from(upstream);
                }
            }
            Err(why) => {
                project.sources.handle_failed(master, why, clock::now());
                worst = (why, Some(master));
            }
        }
    }
    let (why, master) = worst;
    asked.failed(why, master, Forward::Bypass)
}

/// Passes a request of another method on to one master. `host`: what it named.
pub(crate) async fn pass_method(
    edge: &Arc<Edge>,
    project: &Arc<Project>,
    host: &str,
    target: &Target,
    request: Request<RequestBody>,
) -> Answered {
    let (parts, body) = request.into_parts();
    let headers = pass_request(&parts.headers, &edge.me);
    let object = Key(key(&project.name, target));
    let chosen = || project.sources.choose(clock::now(), &object, None, &[]);
    let successor = edge.successor(project);
    let master = successor.or_else(|| chosen().map(|choice| choice.master));
    let master = master.unwrap_or(MasterId::MAX);
    let upstream = project.sources.get(master).cloned();
    let call = Call::new(project, master, &parts.method, target, headers);
    let body = Some(body.boxed());
    let answer = edge.upstream.ask(Call { body, ..call }).await;
    if successor.is_some() {
        edge.note_successor(&answer);
    }
    match answer {
        Ok(answer) => {
            note(project, &answer);
            let (status, fields) = (answer.parts.status, &answer.parts.headers);
            for target in invalidated(&parts.method, target, host, status, fields) {
                edge.invalidate(&Key(key(&project.name, &target))).await;
                edge.groups.handle_changed(project, &target);
            }
            let draft = answers_get(&parts.method, target, host, &answer.reply())
                .then(|| {
                    let uri = target.as_str().parse().ok()?;
                    let get =
                        http_cache::Request::parse(&Method::GET, &uri, &parts.headers).ok()?;
                    draft(edge, project, target, &get, &answer)
                })
                .flatten();
            let cache_status = CacheStatus::forwarded(Forward::Method);
            let response = keep(edge, draft, answer, &parts.method, cache_status);
            Answered::new(response, Outcome::Pass).from(upstream)
        }
        Err(Failure::Client) => {
            let response = Refusal::BrokenContent.answer(edge, &parts.method);
            Answered::new(response, Outcome::Refused).from(upstream)
        }
        Err(why) => {
            project.sources.handle_failed(master, why, clock::now());
            let name = project.sources.name_of(master);
            let response = answers::gateway_error(edge, why, name, Forward::Method);
            if let Some(more) = edge.complaints.due(&project.name, "not-passed", clock::now()) {
                let (project, target, method) =
                    (project.name.as_str(), target.as_str(), parts.method);
                let why = why.to_string();
                tracing::warn!(project, %method, target, why, master = name, more, "not passed on");
            }
            Answered::new(response, Outcome::Error).from(upstream)
        }
    }
}

/// How an answer is to be kept; `None` when it is for its client alone. A longer one than a block is:
/// what is missing of it could not be asked for without the client's own fields.
fn draft(
    edge: &Arc<Edge>,
    project: &Arc<Project>,
    target: &Target,
    request: &http_cache::Request,
    answer: &Answer,
) -> Option<(BufferPermit, Draft)> {
    let reply = answer.reply();
    let block = u64::from(edge.block_bytes);
    let fits = reply.complete_length().is_none_or(|length| length <= block);
    let is_plain = reply.status == StatusCode::OK
        && varying(reply.headers).is_ok_and(|names| names.is_empty());
    if !fits || !is_plain {
        return None;
    }
    let head = storable(request, &reply, &project.rules(target).policy).ok()?;
    let draft = Draft {
        project: Arc::clone(project),
        target: target.clone(),
        key: Key(key(&project.name, target)),
        selecting: Selecting::default(),
        head,
    };
    Some((edge.try_buffer(project)?, draft))
}

/// Hands an answer on, and keeps it beside that when there is a draft.
fn keep(
    edge: &Arc<Edge>,
    draft: Option<(BufferPermit, Draft)>,
    answer: Answer,
    method: &Method,
    cache_status: CacheStatus,
) -> Response<Body> {
    let Some((permit, draft)) = draft else {
        return answers::passed(edge, answer, method, cache_status);
    };
    // Whether it ends well is nobody's question.
    let (tail, gathering) = spool::begin(edge, permit, draft, answer.body);
    drop(gathering);
    answers::streamed(edge, answer.parts, tail, method, cache_status)
}

/// Books what an answer says of its master.
fn note(project: &Project, answer: &Answer) {
    let status = answer.parts.status;
    if meaning(status).try_another_master() {
        project.sources.handle_failed(
            answer.master,
            Failure::Status(status.as_u16()),
            clock::now(),
        );
    } else {
        project.sources.handle_ok(answer.master);
    }
}

/// Whether a method may be passed on at all: these two speak of the connection, not of content.
pub(crate) fn may_pass(method: &Method) -> bool {
    !matches!(*method, Method::CONNECT | Method::TRACE)
}
