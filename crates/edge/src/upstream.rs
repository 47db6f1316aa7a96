//! Asking the sources of a project, masters and parents: HTTP/1.1, with TLS where their URL says so.
//!
//! A request takes a turn ([`turns`]: so many at once for each source), then a connection: a kept
//! one ([`pool`]) or a new one ([`connect`], [`tls`]), whichever is there first. Its answer is
//! read ([`reading`]) at the source's [`pace`], and the connection goes back to the pool. What one client
//! alone reads is [`lent`] to it.
//!
//! Patience is bounded everywhere: for a turn, a connection, the head of an answer, each pause of a
//! body. A GET or HEAD whose connection ended before an answer is sent once more over a new one; other
//! requests are never sent twice (RFC 9110 section 9.2.2), so they get a new connection at once.

pub(crate) mod connect;
pub(crate) mod destination;
pub(crate) mod endpoint;
pub(crate) mod lent;
pub(crate) mod pace;
pub(crate) mod pool;
pub(crate) mod reading;
#[cfg(test)]
mod tests;
pub(crate) mod tls;
pub(crate) mod turns;
pub(crate) mod upload;

use std::sync::Arc;
use std::time::Duration;

use fill::{Failure, MasterId};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use http_cache::status::CACHE_STATUS;
use http_cache::{Reply, Target, elements};
use hyper::body::Incoming;
use model::Now;
use rt::{Shutdown, clock};

use crate::params::Timeouts;
use crate::project::Project;
use connect::{HEDGE_AFTER, connect};
use endpoint::Endpoint;
pub(crate) use lent::Lent;
use pace::Pace;
use pool::{Connection, Outgoing};
pub(crate) use reading::Reading;
use tls::Tls;
use turns::{Seat, Turn, Urgency};
use upload::Upload;

/// A request.
pub(crate) struct Call<'a> {
    pub(crate) project: &'a Project,
    /// Whom to ask.
    pub(crate) source: MasterId,
    /// Whom else, when that one is slow to connect.
    pub(crate) spare: Option<MasterId>,
    pub(crate) urgency: Urgency,
    pub(crate) method: &'a Method,
    pub(crate) target: &'a Target,
    /// `Host` is not the caller's.
    pub(crate) headers: HeaderMap,
    /// Content, as it comes from a client.
    pub(crate) body: Option<Outgoing>,
}

impl<'a> Call<'a> {
    /// Without content, for a client that waits.
    pub(crate) fn new(
        project: &'a Project,
        source: MasterId,
        method: &'a Method,
        target: &'a Target,
        headers: HeaderMap,
    ) -> Self {
        let (spare, urgency, body) = (None, Urgency::Blocked, None);
        Self { project, source, spare, urgency, method, target, headers, body }
    }

    /// Whether it may be sent twice.
    fn is_repeatable(&self) -> bool {
        self.body.is_none() && matches!(*self.method, Method::GET | Method::HEAD)
    }
}

/// An answer whose body is still to come.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) parts: Parts,
    pub(crate) body: Reading,
    pub(crate) master: MasterId,
    pub(crate) asked: Now,
    pub(crate) got: Now,
}

impl Answer {
    /// The head for the rules.
    pub(crate) fn reply(&self) -> Reply<'_> {
        let Self { parts, asked, got, .. } = self;
        Reply { status: parts.status, headers: &parts.headers, asked: *asked, got: *got }
    }
}

/// A turn with a connection.
struct Place {
    endpoint: Arc<Endpoint>,
    turn: Turn,
    connection: Connection,
}

/// The client of all sources.
#[derive(Debug)]
pub(crate) struct Upstream {
    tls: Arc<Tls>,
    timeouts: Timeouts,
    shutdown: Shutdown,
    /// What is read of all sources together.
    pub(crate) intake: Arc<Pace>,
}

impl Upstream {
    pub(crate) fn new(timeouts: Timeouts, tls: Tls, shutdown: Shutdown) -> Self {
        let intake = Arc::new(Pace::new(None));
        Self { tls: Arc::new(tls), timeouts, shutdown, intake }
    }

    /// How long a client waits for a revalidation before it gets what is held, where that is
    /// allowed: as long as a connection may take.
    pub(crate) fn stale_wait(&self) -> Duration {
        self.timeouts.connect
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn ask(&self, mut call: Call<'_>) -> Result<Answer, Failure> {
        let repeatable = call.is_repeatable();
        let (master, mut place) = self.place(&call, repeatable).await?;
        let upload = call.body.take().map(|body| Upload::new(body, self.timeouts.between_bytes));
        let progress = upload.as_ref().map(Upload::progress);
        let body = upload.map(Upload::into_outgoing);
        let request = compose(&call, &place.endpoint, body)?;
        call.project.sources.handle_asked(master);
        let mut asked = clock::now();
        let sending = place.connection.sender.send_request(request);
        let patience = self.timeouts.first_byte;
        let too_late = async {
            match &progress {
                Some(progress) => progress.stands_still(patience).await,
                None => {
                    tokio::time::sleep(patience).await;
                    Failure::FirstByteTimeout
                }
            }
        };
        let mut answer = tokio::select! {
            answer = sending => answer,
            why = too_late => return Err(why),
            // It has died, and its listener waits for the next one.
            () = self.shutdown.alone(), if place.endpoint.is_successor() => {
                return Err(Failure::Connect);
            }
        };
        if repeatable && answer.as_ref().is_err_and(|e| !e.is_parse()) {
            // It was being closed, as one may be at any time.
            let endpoint = &place.endpoint;
            place.connection = connect(endpoint, &self.tls, self.timeouts.connect).await?;
            let request = compose(&call, endpoint, None)?;
            asked = clock::now();
            let sending = place.connection.sender.send_request(request);
            let in_time = tokio::time::timeout(patience, sending).await;
            answer = in_time.map_err(|_| Failure::FirstByteTimeout)?;
        }
        let answer = answer.map_err(|error| failure_of(&error))?;
        let got = clock::now();
        let waited_ns = got.mono_ns.saturating_sub(asked.mono_ns);
        call.project.sources.handle_first_byte(master, waited_ns.div_ceil(1_000_000));
        if answer.status().is_informational() {
            // A 101 that nobody asked for: there is no answer behind it.
            return Err(Failure::Protocol);
        }
        if elements(answer.headers(), header::TRANSFER_ENCODING).any(is_compression) {
            // What comes is not the content, and nobody here can decode it (RFC 9112 section 6.1).
            return Err(Failure::Protocol);
        }
        if place.endpoint.is_parent()
            && let Some(why) = trouble_of_parent(&answer)
        {
            return Err(why);
        }
        Ok(self.answer(place, answer, master, repeatable, (asked, got)))
    }

    fn answer(
        &self,
        place: Place,
        answer: Response<Incoming>,
        master: MasterId,
        may_reuse: bool,
        (asked, got): (Now, Now),
    ) -> Answer {
        let Place { endpoint, turn, connection, .. } = place;
        let (mut parts, body) = answer.into_parts();
        if parts.headers.contains_key(header::TRANSFER_ENCODING) {
            // It overrides the length (RFC 9112 section 6.3), which may be wrong then.
            parts.headers.remove(header::CONTENT_LENGTH);
        }
        unify_length(&mut parts.headers);
        // Not after a request with content: some of it may still be on its way.
        let connection = may_reuse.then_some(connection);
        let patience = self.timeouts.between_bytes;
        let body = Reading::new(body, patience, &endpoint, &self.intake, connection, turn);
        Answer { parts, body, master, asked, got }
    }

    /// A place at the source asked for, or at the spare one if that is sooner there.
    async fn place(&self, call: &Call<'_>, may_reuse: bool) -> Result<(MasterId, Place), Failure> {
        let endpoint = |id| call.project.sources.get(id).ok_or(Failure::Connect);
        endpoint(call.source)?.note_asked(call.target);
        let first = self.reserve(endpoint(call.source)?, call.urgency, may_reuse);
        let Some(spare) = call.spare else { return Ok((call.source, first.await?)) };
        tokio::pin!(first);
        if let Ok(placed) = tokio::time::timeout(HEDGE_AFTER, &mut first).await {
            return Ok((call.source, placed?));
        }
        let second = self.reserve(endpoint(spare)?, call.urgency, may_reuse);
        tokio::pin!(second);
        tokio::select! {
            placed = &mut first => match placed {
                Ok(place) => Ok((call.source, place)),
                Err(why) => {
                    call.project.sources.handle_failed(call.source, why, clock::now());
                    Ok((spare, second.await?))
                }
            },
            placed = &mut second => match placed {
                Ok(place) => Ok((spare, place)),
                Err(why) => {
                    call.project.sources.handle_failed(spare, why, clock::now());
                    Ok((call.source, first.await?))
                }
            },
        }
    }

    /// A turn at a source, and a connection.
    async fn reserve(
        &self,
        endpoint: &Arc<Endpoint>,
        urgency: Urgency,
        may_reuse: bool,
    ) -> Result<Place, Failure> {
        let turn = self.turn(endpoint, urgency).await?;
        let placed = |connection| Place { endpoint: Arc::clone(endpoint), turn, connection };
        if !may_reuse {
            let connection = connect(endpoint, &self.tls, self.timeouts.connect).await?;
            return Ok(placed(connection));
        }
        if let Some(connection) = kept(endpoint).await {
            return Ok(placed(connection));
        }
        let connecting = connect(endpoint, &self.tls, self.timeouts.connect);
        tokio::pin!(connecting);
        loop {
            tokio::select! {
                made = &mut connecting => return Ok(placed(made?)),
                () = endpoint.pool.returned.notified() => {
                    if let Some(connection) = kept(endpoint).await {
                        return Ok(placed(connection));
                    }
                }
            }
        }
    }

    /// A turn at a source, waited for as long as an answer might be.
    async fn turn(&self, endpoint: &Endpoint, urgency: Urgency) -> Result<Turn, Failure> {
        let waiting = match endpoint.turns.take(urgency) {
            Seat::Now(turn) => return Ok(turn),
            Seat::Full => return Err(Failure::Busy),
            Seat::Later(waiting) => waiting,
        };
        endpoint.queued.inc();
        let from_ns = clock::now().mono_ns;
        let turn = tokio::time::timeout(self.timeouts.first_byte, waiting).await;
        let waited_ns = clock::now().mono_ns.saturating_sub(from_ns);
        endpoint.queued_ms.inc_by(waited_ns.div_ceil(1_000_000));
        turn.ok().and_then(Result::ok).ok_or(Failure::Busy)
    }
}

/// A kept connection that can be used now.
async fn kept(endpoint: &Endpoint) -> Option<Connection> {
    while let Some(mut connection) = endpoint.pool.take(clock::now()) {
        // One that just came back still has to note the end of its last answer.
        let ready = tokio::time::timeout(HEDGE_AFTER, connection.sender.ready()).await;
        if ready.is_ok_and(|r| r.is_ok()) {
            return Some(connection);
        }
    }
    None
}

/// The request as it is sent.
fn compose(
    call: &Call<'_>,
    endpoint: &Endpoint,
    body: Option<Outgoing>,
) -> Result<Request<Outgoing>, Failure> {
    let destination = endpoint.definition.destination.as_ref().ok_or(Failure::Connect)?;
    let uri = destination.path_of(call.target.as_str()).ok_or(Failure::Protocol)?;
    let empty = || Empty::new().map_err(|never| match never {}).boxed();
    let mut request = Request::new(body.unwrap_or_else(empty));
    *request.method_mut() = call.method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = call.headers.clone();
    request.headers_mut().insert(header::HOST, destination.host.clone());
    endpoint.requests.inc();
    Ok(request)
}

/// Whether content in this transfer coding is other bytes than it was (RFC 9112 section 7.2, and what
/// servers write there besides). A word that names no coding at all changes nothing.
fn is_compression(coding: &[u8]) -> bool {
    let known = ["gzip", "x-gzip", "deflate", "compress", "x-compress", "br", "zstd"];
    known.iter().any(|known| coding.eq_ignore_ascii_case(known.as_bytes()))
}

/// Equal lengths that were joined to a list, or stand on several lines, are one (RFC 9112 section 6.3).
/// Those that differ are none: where there is a body, hyper has refused it.
fn unify_length(headers: &mut HeaderMap) {
    let mut all = elements(headers, header::CONTENT_LENGTH);
    let Some(first) = all.next().and_then(|one| HeaderValue::from_bytes(one).ok()) else { return };
    let is_one = all.all(|other| other == first.as_bytes());
    drop(all);
    if is_one {
        headers.insert(header::CONTENT_LENGTH, first);
    } else {
        headers.remove(header::CONTENT_LENGTH);
    }
}

/// What a parent says of itself instead of an answer. One that could not get the object either says
/// so with `Cache-Status`; anything else is about the parent.
fn trouble_of_parent(answer: &Response<Incoming>) -> Option<Failure> {
    let status = answer.status();
    if !status.is_server_error() && status != StatusCode::MISDIRECTED_REQUEST {
        return None;
    }
    let is_about_object = answer.headers().contains_key(CACHE_STATUS);
    let failure = if is_about_object { Failure::Parent } else { Failure::Status };
    Some(failure(status.as_u16()))
}

/// What kind of failure kept the head of the answer from us.
fn failure_of(error: &hyper::Error) -> Failure {
    if error.is_parse() {
        Failure::Protocol
    } else if error.is_user() {
        Failure::Client
    } else {
        Failure::Connect
    }
}
