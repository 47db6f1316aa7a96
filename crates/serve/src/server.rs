//! A listener: accepts connections within limits, and ends them in peace at shutdown.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use hyper::{Request, Response};
use model::Now;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use crate::connection;
use crate::{Body, Client, RequestBody};

/// Pause after an accept that failed for want of files or memory: there is none to close but
/// those that end by themselves.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// After a broken-off response was logged, further ones are only counted for so long, milliseconds.
const QUIET_MS: u64 = 60_000;

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    /// The response to a request of this client. Dropped when the client goes.
    fn handle(
        &self,
        request: Request<RequestBody>,
        client: Client,
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// Bounds of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once; further ones wait in the kernel's backlog.
    pub connections_max: usize,
    /// Bytes of a request head, at least 8192; 431 above.
    pub head_bytes_max: usize,
    /// A request head that takes longer, or an idle connection, is closed between this and twice
    /// this time. A client that takes nothing of its response is, between four and five times this.
    pub head_timeout: Duration,
    /// Time for running responses to finish once shutdown has begun.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            head_bytes_max: 16 * 1024,
            head_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(30),
        }
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
    /// Connections closed because the client took nothing of its response for too long.
    pub stalled: AtomicU64,
    /// Responses broken off because their body could not go on.
    pub broken_off: AtomicU64,
    /// Connections cut at the end of the drain timeout.
    pub cut: AtomicU64,
    /// QUIC handshakes whose clients had to prove their address first.
    pub retries: AtomicU64,
    /// Until when a broken-off response is only counted.
    quiet_until_ns: AtomicU64,
    /// Those that were.
    unsaid: AtomicU64,
}

impl Counters {
    /// A response was broken off: counted. Whether to log it, and how many were not since the last
    /// one that was.
    pub(crate) fn note_broken_off(&self, now: Now) -> Option<u64> {
        self.broken_off.fetch_add(1, Relaxed);
        if self.quiet_until_ns.load(Relaxed) > now.mono_ns {
            self.unsaid.fetch_add(1, Relaxed);
            return None;
        }
        self.quiet_until_ns.store(now.plus_ms(QUIET_MS).mono_ns, Relaxed);
        Some(self.unsaid.swap(0, Relaxed))
    }
}

/// Serves HTTP/1.1 on `listener` until `shutdown` completes; then closes it, finishes the running
/// responses for at most `limits.drain_timeout`, cuts the rest, and returns.
pub async fn http<H: Handler>(
    listener: TcpListener,
    handler: Arc<H>,
    limits: Limits,
    counters: Arc<Counters>,
    shutdown: impl Future<Output = ()> + Send,
) {
    let (stop, stopping) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let room = connections.len() < limits.connections_max;
        tokio::select! {
            biased;
            () = shutdown.as_mut() => break,
            Some(ended) = connections.join_next() => note_panic(ended),
            accepted = listener.accept(), if room => match accepted {
                Ok((stream, address)) => {
                    let open = Open::new(&counters);
                    let (handler, counters) = (Arc::clone(&handler), Arc::clone(&counters));
                    let stopping = stopping.clone();
                    no_delay(&stream);
                    connections.spawn(async move {
                        let client = Client { address, is_secure: false };
                        connection::serve(stream, client, handler, limits, counters, stopping).await;
                        drop(open);
                    });
                }
                Err(error) => accept_failed(&error).await,
            },
        }
    }
    drop(listener);
    stop.send_replace(true);
    drain(connections, limits.drain_timeout, &counters).await;
}

pub(crate) async fn drain(mut connections: JoinSet<()>, timeout: Duration, counters: &Counters) {
    let all_ended = async {
        while let Some(ended) = connections.join_next().await {
            note_panic(ended);
        }
    };
    if tokio::time::timeout(timeout, all_ended).await.is_err() {
        let left = connections.len();
        tracing::warn!(connections = left, "connections were cut: they did not end in time");
        counters.cut.fetch_add(u64::try_from(left).unwrap_or(u64::MAX), Relaxed);
        connections.shutdown().await;
    }
}

pub(crate) fn note_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a connection ended by a fault of this program");
    }
}

/// Small responses and the ends of large ones must not wait for the client's acknowledgement.
fn no_delay(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
}

/// A connection that died in the backlog is nothing; want of files or memory is to be waited out.
async fn accept_failed(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    if !matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
        tracing::warn!(%error, "cannot accept a connection; trying again");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// A connection in the count of open ones.
pub(crate) struct Open(Arc<Counters>);

impl Open {
    pub(crate) fn new(counters: &Arc<Counters>) -> Self {
        counters.accepted.fetch_add(1, Relaxed);
        counters.open.fetch_add(1, Relaxed);
        Self(Arc::clone(counters))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}
