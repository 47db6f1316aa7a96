//! One request in the books, from its head to the last byte of its answer.
//!
//! [`Access`] goes with the request until it is answered; then an [`Entry`] goes with the body, is
//! told of every byte that leaves, and is complete when it is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::header::{CONTENT_TYPE, HOST, RANGE, USER_AGENT};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use model::Now;
use rt::clock;
use serve::{Body, Tally};
use usage::{Outcome, Record};

use crate::guard::Copying;
use crate::guard::turns::Turn;
use crate::project::Project;
use crate::refusal::Refusal;
use crate::state::Edge;
use crate::upstream::endpoint::Endpoint;
use crate::visitor::Visitor;

/// Bytes of one text of a request that the books keep: what follows is left out.
const TEXT_BYTES_MAX: usize = 4096;
/// Bytes of room for the media type of an answer: nearly all have fewer.
const TYPE_BYTES: usize = 40;
/// More bytes than any answer has.
const UNKNOWN: u64 = u64::MAX;

/// The answer to a request, and what is to be known of it.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) response: Response<Body>,
    pub(crate) outcome: Outcome,
    /// The source that was asked, where one was.
    pub(crate) upstream: Option<Arc<Endpoint>>,
    /// The word of the limit that holds it back or refused it; empty when none does.
    pub(crate) limit: &'static str,
    /// Where its bytes count as part of a copy.
    pub(crate) copy: Option<Box<Copying>>,
}

impl Answered {
    /// One that nobody was asked for and no limit holds back.
    pub(crate) fn new(response: Response<Body>, outcome: Outcome) -> Self {
        Self { response, outcome, upstream: None, limit: "", copy: None }
    }

    /// A refusal.
    pub(crate) fn refused(edge: &Edge, refusal: Refusal, method: &Method) -> Self {
        let limit = match refusal {
            Refusal::TooMany | Refusal::Repeat => refusal.as_str(),
            _ => "",
        };
        Self { limit, ..Self::new(refusal.answer(edge, method), Outcome::Refused) }
    }

    /// This source was asked, where one was.
    pub(crate) fn from(self, upstream: Option<Arc<Endpoint>>) -> Self {
        Self { upstream, ..self }
    }
}

/// A request that is not answered yet. Dropped before, its client has gone: then it is in the books
/// as one that was missed, with status 0.
#[derive(Debug)]
pub(crate) struct Access<'a> {
    edge: &'a Arc<Edge>,
    visitor: Visitor,
    /// When its head was there.
    pub(crate) began: Now,
    head: Head,
    /// Whose content it asks for, once that is known.
    pub(crate) project: Option<Arc<Project>>,
    /// Its turn among those of its client, where these are limited.
    pub(crate) turn: Option<Box<Turn>>,
    /// It is still to be booked. Never so for what another process of this edge passes on, which has
    /// it in its own books.
    is_open: bool,
}

impl<'a> Access<'a> {
    pub(crate) fn begin<T>(
        edge: &'a Arc<Edge>,
        visitor: Visitor,
        request: &Request<T>,
        is_for_former: bool,
    ) -> Self {
        let wants_texts = edge.account.has_logs() && !is_for_former;
        let head = if wants_texts { Head::of(request) } else { Head::default() };
        let (began, is_open) = (clock::now(), !is_for_former);
        Self { edge, visitor, began, head, project: None, turn: None, is_open }
    }

    /// It is answered: the entry goes with the body.
    pub(crate) fn end(mut self, answered: Answered) -> Response<Body> {
        if !std::mem::take(&mut self.is_open) {
            return answered.response;
        }
        let Answered { mut response, outcome, upstream, limit, copy } = answered;
        self.edge.counters.count(outcome);
        let status = response.status();
        let has_body = self.head.method != Method::HEAD
            && !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let announced = if has_body { response.body().size_hint().exact() } else { Some(0) };
        if self.edge.account.has_logs()
            && let Some(content_type) = response.headers().get(CONTENT_TYPE)
        {
            self.head.note_content_type(content_type.as_bytes());
        }
        let mut entry = self.entry(outcome);
        entry.status = status.as_u16();
        entry.upstream = upstream;
        entry.limit = limit;
        entry.copy = copy;
        entry.announced = AtomicU64::new(announced.unwrap_or(UNKNOWN));
        response.body_mut().tell(Arc::new(entry));
        response
    }

    /// Of an answer of which nothing else is known.
    fn entry(&mut self, outcome: Outcome) -> Entry {
        let project = self.project.take();
        let of_project = project.as_deref();
        let missteered = of_project.and_then(|p| self.visitor.missteered(self.edge, p));
        Entry {
            edge: Arc::clone(self.edge),
            visitor: self.visitor,
            missteered,
            began_ns: self.began.mono_ns,
            head: std::mem::take(&mut self.head),
            project,
            status: 0,
            outcome,
            upstream: None,
            limit: "",
            copy: None,
            _turn: self.turn.take(),
            announced: AtomicU64::new(UNKNOWN),
            sent: AtomicU64::new(0),
        }
    }
}

impl Drop for Access<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.edge.counters.count(Outcome::Miss);
            drop(self.entry(Outcome::Miss));
        }
    }
}

/// What logs want of the heads of a request and its answer, copied: so the buffer that the request
/// came in is free while the answer is on its way, and no count of references is touched that other
/// threads touch too.
#[derive(Debug, Default)]
struct Head {
    method: Method,
    version: Version,
    /// Host, target, `Range`, `User-Agent` and the answer's `Content-Type`, one after the other.
    texts: String,
    /// Where each of them ends.
    ends: [usize; 5],
}

impl Head {
    fn of<T>(request: &Request<T>) -> Self {
        let (uri, headers) = (request.uri(), request.headers());
        let field = |name| headers.get(name).map_or(&[][..], HeaderValue::as_bytes);
        let host = uri.authority().map_or_else(|| field(HOST), |host| host.as_str().as_bytes());
        let target = uri.path_and_query().map_or("", |target| target.as_str()).as_bytes();
        let parts = [host, target, field(RANGE), field(USER_AGENT)];
        let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
        let mut texts = String::with_capacity(bytes.saturating_add(TYPE_BYTES));
        let [host, target, range, user_agent] = parts.map(|part| {
            put(part, &mut texts);
            texts.len()
        });
        let (method, version) = (request.method().clone(), request.version());
        Self { method, version, texts, ends: [host, target, range, user_agent, user_agent] }
    }

    fn note_content_type(&mut self, content_type: &[u8]) {
        put(content_type, &mut self.texts);
        let [.., end] = &mut self.ends;
        *end = self.texts.len();
    }

    fn texts(&self) -> [&str; 5] {
        let mut start = 0;
        self.ends.map(|end| self.texts.get(std::mem::replace(&mut start, end)..end).unwrap_or(""))
    }
}

/// A text at the end of others, not without end.
fn put(text: &[u8], texts: &mut String) {
    let text = text.get(..TEXT_BYTES_MAX).unwrap_or(text);
    match std::str::from_utf8(text) {
        Ok(text) => texts.push_str(text),
        Err(_) => texts.push_str(&String::from_utf8_lossy(text)),
    }
}

/// An answer on its way.
#[derive(Debug)]
struct Entry {
    edge: Arc<Edge>,
    visitor: Visitor,
    /// As in a [`Record`].
    missteered: Option<String>,
    began_ns: u64,
    head: Head,
    project: Option<Arc<Project>>,
    status: u16,
    outcome: Outcome,
    upstream: Option<Arc<Endpoint>>,
    limit: &'static str,
    // Boxed, as these are rare.
    copy: Option<Box<Copying>>,
    _turn: Option<Box<Turn>>,
    /// Bytes that are all of it.
    announced: AtomicU64,
    sent: AtomicU64,
}

impl Tally for Entry {
    fn sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Relaxed);
        self.edge.counters.sent.inc_by(bytes);
    }

    fn is_whole_at(&self, bytes: u64) {
        self.announced.store(bytes, Relaxed);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // Sums want no time, and clocks are read often enough.
        let now = if self.edge.account.has_logs() { clock::now() } else { Now::default() };
        let Visitor { client, asn, country, .. } = self.visitor;
        let [host, target, range, user_agent, content_type] = self.head.texts();
        let bytes = self.sent.load(Relaxed);
        if let Some(copy) = &mut self.copy {
            copy.note_delivered(bytes);
        }
        let upstream = self.upstream.as_deref();
        let record = Record {
            ended_ms: now.wall_ms,
            elapsed_ms: now.mono_ns.saturating_sub(self.began_ns) / 1_000_000,
            client: client.address.ip(),
            asn,
            country,
            node: self.edge.name.as_str(),
            project: self.project.as_ref().map_or("", |project| project.name.as_str()),
            method: self.head.method.as_str(),
            scheme: if client.is_secure { "https" } else { "http" },
            protocol: word(self.head.version),
            host,
            target,
            status: self.status,
            bytes,
            is_aborted: bytes < self.announced.load(Relaxed),
            outcome: self.outcome,
            upstream: upstream.map_or("", |source| source.name().as_str()),
            is_from_parent: upstream.is_some_and(Endpoint::is_parent),
            content_type,
            range,
            user_agent,
            missteered: self.missteered.as_deref(),
            limit: self.limit,
        };
        if let (Some(project), Some(pool)) = (&self.project, record.missteered)
            && !pool.is_empty()
        {
            project.count_missteered(bytes);
        }
        self.edge.account.note_answer(&record, self.project.as_ref());
    }
}

fn word(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_3 => "HTTP/3",
        _ => "HTTP/1.1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_head_are_kept_as_they_came_and_not_without_end() {
        let long = "a".repeat(TEXT_BYTES_MAX + 9);
        let request = Request::get("/b?c")
            .header(HOST, "a.example:80")
            .header(USER_AGENT, HeaderValue::from_bytes(b"x\xff").unwrap())
            .header(RANGE, &long)
            .body(())
            .unwrap();
        let mut head = Head::of(&request);
        assert_eq!(head.texts(), ["a.example:80", "/b?c", &long[9..], "x\u{fffd}", ""]);
        head.note_content_type(b"text/plain");
        assert_eq!(head.texts(), ["a.example:80", "/b?c", &long[9..], "x\u{fffd}", "text/plain"]);
        let request = Request::get("http://b.example/").header(HOST, "a.example").body(()).unwrap();
        assert_eq!(Head::of(&request).texts(), ["b.example", "/", "", "", ""]);
        assert_eq!(Head::default().texts(), [""; 5]);
    }
}
