//! One request over HTTP/3 and its response.
//!
//! The phases: the head comes in and is judged; the handler answers; the head of the response goes
//! out, then its body, chunk by chunk; the client acknowledges all of it. A client that takes its
//! request back ends each of them. A response whose body cannot go on ends with a reset of its
//! stream, never with its end.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use h3::error::{Code, StreamError};
use h3::server::{RequestResolver, RequestStream};
use http::header::{EXPECT, TE};
use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use tokio::time::timeout;

use super::connection::Shared;
use super::content::{Content, announced};
use super::flow::Unsent;
use super::quic::{Connection, Handle, Sender, Sending};
use crate::head::{OF_CONNECTIONS, complete, may_have_body, name_host};
use crate::priority::Priority;
use crate::server::Handler;
use crate::{Body, BodyError, RequestBody};

/// Responses that are known to be at most so long are read whatever the others of their connection
/// hold.
const SHORT_BYTES_MAX: u64 = 64 * 1024;

/// The type of a DATA frame (RFC 9114 section 7.2.1) and the mark of an eight-byte length (RFC 9000
/// section 16).
const DATA: u8 = 0;
const EIGHT_BYTES: u64 = 0b11 << 62;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The client has all of its answer.
    Answered,
    /// It took its request back, or is gone.
    Cancelled,
    /// The request was refused, or its response broken off.
    Refused,
}

/// Why a response is not sent to its end.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Head(#[from] StreamError),
    #[error(transparent)]
    Unsent(#[from] Unsent),
    #[error(transparent)]
    Body(#[from] BodyError),
}

/// Serves one request to its end.
pub(super) async fn serve<H: Handler>(
    resolver: RequestResolver<Connection, Bytes>,
    handle: Handle,
    shared: Arc<Shared<H>>,
) -> Outcome {
    let (sending, patience) = (handle.sending.clone(), shared.limits.head_timeout);
    let mut taken = pin!(sending.taken());
    let mut answering = Box::pin(answer(resolver, handle, shared));
    let finished = tokio::select! {
        biased;
        finished = &mut answering => finished,
        _ = taken.as_mut() => {
            sending.reset(Code::H3_REQUEST_CANCELLED);
            return Outcome::Cancelled;
        }
    };
    // What answered is not needed while the client acknowledges.
    drop(answering);
    match finished {
        Outcome::Answered if !taken.await => Outcome::Cancelled,
        outcome => {
            sending.end_request(patience).await;
            outcome
        }
    }
}

async fn answer<H: Handler>(
    resolver: RequestResolver<Connection, Bytes>,
    handle: Handle,
    shared: Arc<Shared<H>>,
) -> Outcome {
    let (limits, counters) = (&shared.limits, &shared.counters);
    let Handle { sending, allowance } = handle;
    let refused = |why: Code| {
        counters.malformed.fetch_add(1, Relaxed);
        sending.reset(why);
        Outcome::Refused
    };
    let (mut request, stream) = match timeout(limits.head_timeout, resolver.resolve_request()).await
    {
        Ok(Ok(resolved)) => resolved,
        Ok(Err(StreamError::HeaderTooBig { .. })) => {
            // `h3` has answered with 431.
            counters.malformed.fetch_add(1, Relaxed);
            sending.finish();
            return Outcome::Answered;
        }
        Ok(Err(StreamError::StreamError { code, .. })) => return refused(code),
        // Ours: the frame of the head was too long to be read.
        Ok(Err(StreamError::RemoteTerminate { code: Code::H3_EXCESSIVE_LOAD, .. })) => {
            return refused(Code::H3_EXCESSIVE_LOAD);
        }
        Ok(Err(_)) => return Outcome::Cancelled,
        Err(_) => {
            counters.timeouts.fetch_add(1, Relaxed);
            sending.reset(Code::H3_REQUEST_REJECTED);
            return Outcome::Refused;
        }
    };
    let (mut head, stream) = stream.split();
    let length = announced(request.headers());
    let (true, Ok(length)) = (is_well_formed(&request), length) else {
        return refused(Code::H3_MESSAGE_ERROR);
    };
    let Ok(content) = Content::of(stream, allowance, shared.head_bytes_read, length).await else {
        return refused(Code::H3_MESSAGE_ERROR);
    };
    if !name_host(&mut request) {
        return refused(Code::H3_MESSAGE_ERROR);
    }
    let priority = Priority::of(request.headers());
    counters.h3_requests.fetch_add(1, Relaxed);
    counters.requests.add(1);
    let expects = request.headers().contains_key(EXPECT);
    if expects && head.send_response(interim()).await.is_err() {
        return Outcome::Cancelled;
    }
    let method = request.method().clone();
    let request = request.map(|()| RequestBody::from(content));
    let response = shared.handler.handle(request, &shared.visitor).await;
    match respond(&shared, &method, priority, response, head, &sending).await {
        Ok(()) => Outcome::Answered,
        Err(broken) => note(&shared, &sending, &broken),
    }
}

/// Whether a head says nothing that HTTP/3 has no place for (RFC 9114 section 4.2). `h3` has seen to
/// its pseudo-headers.
fn is_well_formed(request: &Request<()>) -> bool {
    let headers = request.headers();
    let te_is_right = headers.get_all(TE).iter().all(|te| te == "trailers");
    te_is_right
        && !OF_CONNECTIONS.iter().any(|name| headers.contains_key(name))
        && request.extensions().get::<h3::ext::Protocol>().is_none()
}

fn interim() -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::CONTINUE;
    response
}

async fn respond<H: Handler>(
    shared: &Shared<H>,
    method: &Method,
    priority: Priority,
    response: Response<Body>,
    mut head: RequestStream<Sender, Bytes>,
    sending: &Sending,
) -> Result<(), Broken> {
    let (mut parts, body) = response.into_parts();
    let length = body.size_hint().exact();
    complete(parts.status, method, &mut parts.headers, length);
    let has_body = *method != Method::HEAD && may_have_body(parts.status);
    sending.set_priority(priority.with_length(length).rank());
    head.send_response(Response::from_parts(parts, ())).await?;
    drop(head);
    if has_body {
        send(shared, body, sending).await?;
    }
    sending.finish();
    Ok(())
}

/// Sends a body, each chunk as one DATA frame.
async fn send<H: Handler>(
    shared: &Shared<H>,
    mut body: Body,
    sending: &Sending,
) -> Result<(), Broken> {
    let is_short = body.size_hint().upper().is_some_and(|bytes| bytes <= SHORT_BYTES_MAX);
    loop {
        if !is_short {
            shared.flow.room().await;
        }
        let next = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let Some(frame) = next.transpose()? else { return Ok(()) };
        let Ok(data) = frame.into_data() else { continue };
        let (chunk, tally) = data.into_parts();
        shared.flow.write(sending, data_head(&chunk), chunk, tally.as_deref()).await?;
    }
}

/// Type and length of the DATA frame of a chunk.
fn data_head(chunk: &Bytes) -> Bytes {
    let length = u64::try_from(chunk.len()).unwrap_or_default() | EIGHT_BYTES;
    let [a, b, c, d, e, f, g, h] = length.to_be_bytes();
    Bytes::copy_from_slice(&[DATA, a, b, c, d, e, f, g, h])
}

/// Counts why a response ended early, and ends its stream so that the client sees it.
fn note<H: Handler>(shared: &Shared<H>, sending: &Sending, broken: &Broken) -> Outcome {
    match broken {
        Broken::Head(error) => {
            // A client that takes no head of this size, or is gone.
            tracing::debug!(%error, "the head of a response was not sent");
            sending.reset(Code::H3_INTERNAL_ERROR);
            Outcome::Cancelled
        }
        Broken::Unsent(Unsent::Gone(_)) => {
            sending.reset(Code::H3_REQUEST_CANCELLED);
            Outcome::Cancelled
        }
        Broken::Unsent(Unsent::Stalled) => {
            shared.counters.stalled.fetch_add(1, Relaxed);
            sending.reset(Code::H3_REQUEST_CANCELLED);
            Outcome::Refused
        }
        Broken::Body(error) => {
            sending.reset(Code::H3_INTERNAL_ERROR);
            shared.counters.broke_off(error);
            Outcome::Refused
        }
    }
}
