//! Asking masters: pooled HTTP/1.1 connections with bounded patience.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use fill::{Failure, MasterId};
use http::response::Parts;
use http::{HeaderMap, Method, Request, Uri, header};
use http_body_util::{BodyExt, Empty};
use http_cache::{Reply, Target};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use model::Now;
use rt::clock;
use rt::metrics::Counter;

use crate::params::Timeouts;
use crate::project::Project;

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
        let unpooled =
            Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        Self { client, unpooled, timeouts }
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
        mut headers: HeaderMap,
    ) -> Result<Answer, Failure> {
        let endpoint = project.masters.get(master).ok_or(Failure::Connect)?;
        let url = format!("{}{}", endpoint.base, target.as_str());
        let uri: Uri = url.parse().map_err(|_| Failure::Protocol)?;
        headers.remove(header::HOST);
        if let Some(host) = &endpoint.host {
            headers.insert(header::HOST, host.clone());
        }
        let mut request = Request::new(Empty::new());
        *request.method_mut() = method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        endpoint.requests.inc();
        endpoint.note_asked(target);
        let asked = clock::now();
        let patience = self.timeouts.connect.saturating_add(self.timeouts.first_byte);
        let answering = async {
            match self.client.request(request.clone()).await {
                Err(error) if !error.is_connect() && kind_of(&error) == Failure::Connect => {
                    endpoint.requests.inc();
                    self.unpooled.request(request).await
                }
                answer => answer,
            }
        };
        let answer = match tokio::time::timeout(patience, answering).await {
            Ok(answer) => answer.map_err(|error| kind_of(&error))?,
            Err(_) => return Err(Failure::FirstByteTimeout),
        };
        let (mut parts, body) = answer.into_parts();
        if parts.headers.contains_key(header::TRANSFER_ENCODING) {
            // It overrides the length (RFC 9112 section 6.3), which may be wrong then.
            parts.headers.remove(header::CONTENT_LENGTH);
        }
        let patience = self.timeouts.between_bytes;
        let body = Reading { body, patience, bytes: endpoint.bytes.clone() };
        let got = clock::now();
        let waited_ns = got.mono_ns.saturating_sub(asked.mono_ns);
        project.handle_first_byte(master, waited_ns.div_ceil(1_000_000));
        Ok(Answer { parts, body, master, asked, got })
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
