//! Connections.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Request, Response};
use tokio::net::TcpListener;

use crate::Body;

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    /// The response to `request` of `peer`. Dropped when the client goes.
    fn handle(
        &self,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// Bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once; further ones wait in the kernel's backlog.
    pub connections_max: usize,
    /// Bytes of a request head; 431 above.
    pub head_bytes_max: usize,
    /// Header lines of a request; 431 above.
    pub headers_max: usize,
    /// Time for a request's head to arrive, and for an idle connection to ask again.
    pub head_timeout: Duration,
    /// Time for running responses to finish once shutdown has begun.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        todo!()
    }
}

/// What happened on a listener; read it for metrics.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections accepted.
    pub accepted: AtomicU64,
    /// Connections open now.
    pub open: AtomicU64,
    /// Requests handed to the handler.
    pub requests: AtomicU64,
    /// Connections closed for a request that is not HTTP, or too large.
    pub malformed: AtomicU64,
    /// Connections closed because a request's head did not arrive in time.
    pub timeouts: AtomicU64,
    /// Responses broken off because their body could not go on.
    pub broken_off: AtomicU64,
}

/// Serves HTTP/1.1 on `listener` until `shutdown` completes, then finishes the running responses
/// for at most `limits.drain_timeout`, and returns.
pub async fn http<H: Handler>(
    _listener: TcpListener,
    _handler: Arc<H>,
    _limits: Limits,
    _counters: Arc<Counters>,
    _shutdown: impl Future<Output = ()> + Send,
) {
    todo!()
}
