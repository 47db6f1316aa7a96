//! The door: what a client asks for, host to project and target to key, and what is refused there.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use http::request::Parts;
use http::{Method, Request, Response, StatusCode, header};
use http_cache::{Selecting, Target, elements, key};
use model::Now;
use rt::clock;
use serve::pace::Pace;
use serve::{Body, Client, Handler, RequestBody, Way};
use store::Key;
use usage::{ConnectionRecord, Outcome as Served};

use crate::access::{Access, Answered};
use crate::answers;
use crate::asked::{Asked, begin};
use crate::coming::Coming;
use crate::group;
use crate::host::host_of;
use crate::offer;
use crate::pass::{may_pass, pass_method};
use crate::project::Project;
use crate::redirect;
use crate::refusal::Refusal;
use crate::state::Edge;
use crate::visitor::Visitor;

/// Health of this edge, on any host.
pub(crate) const HEALTH_PATH: &str = "/.well-known/cacheboy/health";

/// Where authorities of certificates ask whether a host is ours (RFC 8555 section 8.3).
const CHALLENGE_FOLDER: &str = "/.well-known/acme-challenge/";

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
                        let (now, project) = (clock::now(), &mut access.project);
                        answer(edge, request, visitor, false, now, project).await
                    }
                    Err(refusal) => Answered::refused(edge, refusal, request.method()),
                };
                let mut response = access.end(paced(answered, pace));
                offer::add(offer, &mut response);
                response
            });
        }
        let (now, project) = (access.began, &mut access.project);
        let coming = answer(edge, request, visitor, self.is_for_former, now, project);
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

/// Content is held back by the caps of the node and its bill. The few words of other answers are not: while
/// nothing may be sent, health must have its answer, and whoever is sent on.
fn paced(mut answered: Answered, (pace, limit): (Pace, &'static str)) -> Answered {
    let is_content =
        !matches!(answered.outcome, Served::Health | Served::Redirected | Served::Refused);
    if !pace.is_empty() && is_content {
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
    now: Now,
    of_project: &mut Option<Arc<Project>>,
) -> Coming<'a, Answered> {
    if request.uri().path() == HEALTH_PATH {
        return Coming::now(Answered::new(health(edge, request.method()), Served::Health));
    }
    let method = request.method().clone();
    admit(edge, request, visitor, is_for_former, now, of_project)
        .unwrap_or_else(|refusal| Coming::now(Answered::refused(edge, refusal, &method)))
}

/// Host to project.
fn admit<'a>(
    edge: &'a Arc<Edge>,
    request: Request<RequestBody>,
    visitor: Visitor,
    is_for_former: bool,
    now: Now,
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
    if let Some(response) = challenge(edge, &project, &parts) {
        return Ok(Coming::now(Answered::new(response, Served::Health)));
    }
    if !is_for_former && edge.me.in_loop(&parts.headers) {
        return Err(Refusal::Loop);
    }
    if project.knows_others() && !is_for_former {
        return Ok(Coming::later(here_or_elsewhere(edge, project, visitor, parts, body)));
    }
    here(edge, project, visitor.client, is_for_former, now, parts, body)
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
    let mut answered = match here(edge, project, visitor.client, false, clock::now(), parts, body) {
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
    now: Now,
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
        begin(asked, now)
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
        None => begin(asked, clock::now()).await,
    }
}

/// The answer to an authority of certificates, on any edge for all of them; `None` to all other requests,
/// and where masters see to certificates themselves.
fn challenge(edge: &Edge, project: &Project, parts: &Parts) -> Option<Response<Body>> {
    let token = parts.uri.path().strip_prefix(CHALLENGE_FOLDER)?;
    if !project.has_ordered_certificates() || !matches!(parts.method, Method::GET | Method::HEAD) {
        return None;
    }
    let projects = edge.projects.load();
    let mut response = match projects.acme.as_ref().and_then(|acme| acme.key_authorization(token)) {
        Some(answer) => answers::text(StatusCode::OK, &answer),
        None => answers::text(StatusCode::NOT_FOUND, "nobody orders a certificate with this token"),
    };
    if parts.method == Method::HEAD {
        *response.body_mut() = Body::empty();
    }
    Some(response)
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
