//! HTTP/2: a connection that many requests share.

use anyhow::{Context as _, Result};
use bytes::Bytes;
use h2::Reason;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::ask::Ask;
use crate::edge::Ended;
use crate::http1::Stream;
use crate::judge::{Judge, Next};

/// What each stream may have sent ahead of its reader, as browsers and curl allow it.
const STREAM_WINDOW: u32 = 6 << 20;
/// What all streams of a connection may.
const CONNECTION_WINDOW: u32 = 15 << 20;

/// A connection; clones share it.
#[derive(Clone)]
pub(crate) struct Connection {
    requests: SendRequest<Empty<Bytes>>,
    /// Scheme and authority.
    base: String,
}

impl Connection {
    /// On a stream to the server that this base names.
    pub(crate) async fn on(stream: impl Stream + 'static, base: String) -> Result<Self> {
        let mut builder = Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(STREAM_WINDOW);
        builder.initial_connection_window_size(CONNECTION_WINDOW);
        let (requests, connection) = builder.handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { requests, base })
    }

    /// Sends a request and has its answer judged; how many bytes of body came.
    pub(crate) async fn ask(&mut self, ask: &Ask) -> Result<u64> {
        let mut request = Request::builder()
            .method(ask.method.clone())
            .uri(format!("{}{}", self.base, ask.target));
        for (name, value) in &ask.fields {
            request = request.header(name, value);
        }
        let answer = self.send(request.body(Empty::new())?).await?;
        let (head, mut body) = answer.into_parts();
        let mut judge = Judge::begin(ask, head.status, &head.headers)?;
        while let Some(frame) = body.frame().await {
            let Ok(bytes) = frame.context("broken off")?.into_data() else { continue };
            if judge.take(&bytes)? == Next::Leave {
                return Ok(judge.taken());
            }
        }
        judge.end()
    }

    async fn send(&mut self, request: Request<Empty<Bytes>>) -> Result<Response<Incoming>> {
        self.requests.ready().await.context(Ended)?;
        self.requests.try_send_request(request).await.map_err(|unsent| {
            let is_unsent = unsent.message().is_some();
            let error = anyhow::Error::from(unsent.into_error());
            let reason =
                error.chain().find_map(|cause| cause.downcast_ref::<h2::Error>()?.reason());
            // RFC 9113 sections 6.8 and 8.7: nothing was done with it.
            let is_refused = matches!(reason, Some(Reason::NO_ERROR | Reason::REFUSED_STREAM));
            if is_unsent || is_refused { error.context(Ended) } else { error.context("no answer") }
        })
    }
}
