//! Asking masters: pooled HTTP/1.1 connections with bounded patience.

use std::error::Error as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use fill::{Failure, MasterId};
use http::response::Parts;
use http::{HeaderMap, Method, Request, Response, Uri, header};
use http_body_util::{BodyExt, Empty};
use http_cache::{Reply, Target};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use model::Now;
use rt::clock;
use rt::metrics::Counter;

use crate::params::Timeouts;
use crate::project::{Endpoint, Project};

/// Idle connections kept for each master.
const IDLE_PER_HOST: usize = 32;
/// How long an idle connection is kept. Below the keep-alive time of common servers, so that a
/// request seldom meets a connection that is just being closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

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

/// The client of all masters.
#[derive(Debug)]
pub(crate) struct Upstream {
    client: Client<HttpConnector, Empty<Bytes>>,
    /// Makes a connection for each request.
    unpooled: Client<HttpConnector, Empty<Bytes>>,
    /// The same for requests with content.
    sending: Client<HttpConnector, Content>,
    timeouts: Timeouts,
}

impl Upstream {
    pub(crate) fn new(timeouts: Timeouts) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(timeouts.connect));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_PER_HOST)
            .build(connector.clone());
        let unpooled = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build(connector.clone());
        let sending = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .retry_canceled_requests(false)
            .build(connector);
        Self { client, unpooled, sending, timeouts }
    }

    /// How long a client waits for a revalidation before it gets what is held, where that is
    /// allowed: as long as a connection may take.
    pub(crate) fn stale_wait(&self) -> Duration {
        self.timeouts.connect
    }

    /// Asks a master of the project for a target by GET or HEAD and waits for the head of its answer.
    /// Asks once more, on a new connection, when a connection ends before an answer: a kept one may
    /// be closed at any time, and these methods may be repeated (RFC 9110 section 9.2.2).
    pub(crate) async fn ask(
        &self,
        project: &Project,
        master: MasterId,
        method: &Method,
        target: &Target,
        headers: HeaderMap,
    ) -> Result<Answer, Failure> {
        let endpoint = project.masters.get(master).ok_or(Failure::Connect)?;
        let request = request_to(endpoint, method, target, headers, Empty::new())?;
        endpoint.note_asked(target);
        let asked = clock::now();
        let answering = async {
            match self.client.request(request.clone()).await {
                Err(error) if !error.is_connect() && kind_of(&error) == Failure::Connect => {
                    endpoint.requests.inc();
                    self.unpooled.request(request).await
                }
                answer => answer,
            }
        };
        let answer = match tokio::time::timeout(self.patience(), answering).await {
            Ok(answer) => answer.map_err(|error| kind_of(&error))?,
            Err(_) => return Err(Failure::FirstByteTimeout),
        };
        let answer = self.begun(endpoint, master, asked, answer)?;
        let waited_ns = answer.got.mono_ns.saturating_sub(asked.mono_ns);
        project.handle_first_byte(master, waited_ns.div_ceil(1_000_000));
        Ok(answer)
    }

    /// Passes a request with its content on to a master, on a connection of its own, and waits for
    /// the head of the answer. Never repeats it: nobody knows what a master has done before it
    /// failed. The content is read as the master takes it.
    pub(crate) async fn send(
        &self,
        project: &Project,
        master: MasterId,
        method: &Method,
        target: &Target,
        headers: HeaderMap,
        content: Incoming,
    ) -> Result<Answer, Unsent> {
        let endpoint = project.masters.get(master).ok_or(Failure::Connect)?;
        let upload = Arc::new(Upload::default());
        let content = Content { content, upload: Arc::clone(&upload) };
        let request = request_to(endpoint, method, target, headers, content)?;
        let asked = clock::now();
        tokio::select! {
            answer = self.sending.request(request) => match answer {
                Ok(answer) => Ok(self.begun(endpoint, master, asked, answer)?),
                Err(_) if upload.is_broken.load(Relaxed) => Err(Unsent::Content),
                Err(error) => Err(kind_of(&error).into()),
            },
            () = upload.stands_still(self.patience()) => Err(Failure::FirstByteTimeout.into()),
        }
    }

    /// For a connection and the head of the answer.
    fn patience(&self) -> Duration {
        self.timeouts.connect.saturating_add(self.timeouts.first_byte)
    }

    /// An answer whose head is here.
    fn begun(
        &self,
        endpoint: &Endpoint,
        master: MasterId,
        asked: Now,
        answer: Response<Incoming>,
    ) -> Result<Answer, Failure> {
        let (mut parts, body) = answer.into_parts();
        if parts.status.is_informational() {
            // A 101 that nobody asked for: there is no answer behind it.
            return Err(Failure::Protocol);
        }
        if parts.headers.contains_key(header::TRANSFER_ENCODING) {
            // It overrides the length (RFC 9112 section 6.3), which may be wrong then.
            parts.headers.remove(header::CONTENT_LENGTH);
        }
        let patience = self.timeouts.between_bytes;
        let body = Reading { body, patience, bytes: endpoint.bytes.clone() };
        Ok(Answer { parts, body, master, asked, got: clock::now() })
    }
}

/// A request as a master gets it; counted.
fn request_to<B>(
    endpoint: &Endpoint,
    method: &Method,
    target: &Target,
    mut headers: HeaderMap,
    body: B,
) -> Result<Request<B>, Failure> {
    let url = format!("{}{}", endpoint.base, target.as_str());
    let uri: Uri = url.parse().map_err(|_| Failure::Protocol)?;
    headers.remove(header::HOST);
    if let Some(host) = &endpoint.host {
        headers.insert(header::HOST, host.clone());
    }
    let mut request = Request::new(body);
    *request.method_mut() = method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    endpoint.requests.inc();
    Ok(request)
}

/// Why a request that was passed on has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsent {
    /// The client's content broke off.
    Content,
    /// The master failed.
    Master(Failure),
}

impl From<Failure> for Unsent {
    fn from(why: Failure) -> Self {
        Self::Master(why)
    }
}

/// How a client's content goes on its way to a master.
#[derive(Debug, Default)]
struct Upload {
    pieces: AtomicU64,
    is_broken: AtomicBool,
}

impl Upload {
    /// Waits until nothing has moved for `patience`, and at most twice that.
    async fn stands_still(&self, patience: Duration) {
        loop {
            let before = self.pieces.load(Relaxed);
            tokio::time::sleep(patience).await;
            if self.pieces.load(Relaxed) == before {
                return;
            }
        }
    }
}

/// A client's content, without trailers.
#[derive(Debug)]
struct Content {
    content: Incoming,
    upload: Arc<Upload>,
}

impl Body for Content {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        loop {
            let frame = ready!(Pin::new(&mut self.content).poll_frame(cx));
            self.upload.pieces.fetch_add(1, Relaxed);
            match frame {
                Some(Ok(frame)) if !frame.is_data() => {}
                Some(Err(error)) => {
                    self.upload.is_broken.store(true, Relaxed);
                    return Poll::Ready(Some(Err(error)));
                }
                frame => return Poll::Ready(frame),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.content.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.content.size_hint()
    }
}

/// A body being read with a limit on its pauses.
#[derive(Debug)]
pub(crate) struct Reading {
    body: Incoming,
    patience: Duration,
    bytes: Counter,
}

impl Reading {
    /// The next bytes; `None` at the end of a whole body.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            match tokio::time::timeout(self.patience, self.body.frame()).await {
                Err(_) => return Err(Failure::BetweenBytesTimeout),
                Ok(None) => return Ok(None),
                Ok(Some(Err(_))) => return Err(Failure::Truncated),
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        self.bytes.inc_by(u64::try_from(data.len()).unwrap_or(u64::MAX));
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

/// What kind of failure kept the head of the answer from us.
fn kind_of(error: &ClientError) -> Failure {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<io::Error>()
            && io.kind() == io::ErrorKind::TimedOut
        {
            return Failure::ConnectTimeout;
        }
        if cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse) {
            return Failure::Protocol;
        }
        source = cause.source();
    }
    Failure::Connect
}
