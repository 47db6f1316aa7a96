//! One client's connection over HTTP/3: handshake, requests, idleness, and its part in a shutdown.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use h3::error::Code;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::exchange::{self, Outcome};
use super::flow::Flow;
use super::quic::{self, Connection};
use crate::crowd::{Doing, Shed};
use crate::server::{Counters, Handler, Limits, stopped};
use crate::{Client, way};

/// A head that is too large is answered with 431 as long as it has at most so many times the limit
/// in its frame; a longer frame is not read at all.
const HEADS_READ: usize = 4;
/// Requests that a client may take back before it is looked at how many it lets be answered.
const CANCELLED_FREE: u64 = 500;

/// What the requests of one connection share.
pub(super) struct Shared<H: Handler> {
    pub(super) handler: Arc<H>,
    pub(super) visitor: H::Visitor,
    pub(super) limits: Limits,
    pub(super) counters: Arc<Counters>,
    pub(super) connection: quinn::Connection,
    pub(super) flow: Flow,
    /// Bytes of a frame that may be gathered in memory.
    pub(super) head_bytes_read: usize,
}

/// Serves one connection to its end: the client's, idleness, or, once `stopping` changes, the end of
/// the running responses.
pub(super) async fn serve<H: Handler>(
    connecting: impl Future<Output = Result<quinn::Connection, quinn::ConnectionError>>,
    handler: Arc<H>,
    limits: Limits,
    counters: Arc<Counters>,
    stopping: watch::Receiver<bool>,
) {
    let connection = match timeout(limits.head_timeout, connecting).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => {
            counters.h3_handshakes_failed.fetch_add(1, Relaxed);
            tracing::debug!(%error, "a QUIC handshake failed");
            return;
        }
        Err(_) => {
            counters.h3_handshakes_failed.fetch_add(1, Relaxed);
            return;
        }
    };
    counters.h3_connections.fetch_add(1, Relaxed);
    let head_bytes_read = limits.head_bytes_max.saturating_mul(HEADS_READ);
    let flow = Flow::new(connection.clone(), limits.head_timeout);
    let client = Client { address: connection.remote_address(), is_secure: true };
    let visitor = handler.greet(client);
    let shared = Shared { handler, visitor, limits, counters, connection, flow, head_bytes_read };
    let shared = Arc::new(shared);
    if let Err(error) = run(Arc::clone(&shared), stopping).await {
        tracing::debug!(%error, "an HTTP/3 connection ended early");
    }
    let Shared { handler, visitor, connection, .. } = &*shared;
    handler.leave(visitor, Some(way::of_quic(connection)));
}

async fn run<H: Handler>(
    shared: Arc<Shared<H>>,
    mut stopping: watch::Receiver<bool>,
) -> Result<(), h3::error::ConnectionError> {
    let Shared { limits, counters, connection, head_bytes_read, .. } = &*shared;
    let quic = Connection::new(connection.clone(), *head_bytes_read);
    let handles = quic.handles();
    let mut http = h3::server::builder();
    // Greasing costs a stream and packets on each connection, for a look at clients that is not ours.
    http.max_field_section_size(u64::try_from(limits.head_bytes_max).unwrap_or(u64::MAX))
        .send_grease(false);
    let mut http: h3::server::Connection<_, Bytes> = http.build(quic).await?;
    let mut exchanges = JoinSet::new();
    let mut tally = Tally::default();
    let (begun, running) = (AtomicU64::new(0), AtomicBool::new(false));
    let doing = || match running.load(Relaxed) {
        true => Doing::Answering(shared.flow.acknowledged()),
        false => Doing::Nothing(begun.load(Relaxed)),
    };
    let mut gives_way = pin!(counters.gives_way(limits.connections_max, doing));
    let mut tick = pin!(sleep(limits.head_timeout));
    // No more requests come: the client has said so, or we have.
    let (mut is_closing, mut stops) = (false, false);
    loop {
        tokio::select! {
            biased;
            accepted = http.accept(), if !is_closing => match accepted? {
                Some(resolver) => {
                    use h3::quic::SendStream as _;
                    tally.begun = tally.begun.saturating_add(1);
                    let id = resolver.frame_stream.send_id();
                    let Some(handle) = quic::take(&handles, id) else { continue };
                    if stops {
                        handle.sending.reset(Code::H3_REQUEST_REJECTED);
                    } else {
                        exchanges.spawn(exchange::serve(resolver, handle, Arc::clone(&shared)));
                    }
                }
                None => is_closing = true,
            },
            Some(ended) = exchanges.join_next(), if !exchanges.is_empty() => {
                if matches!(ended, Ok(Outcome::Cancelled)) {
                    counters.h3_resets.fetch_add(1, Relaxed);
                }
                if tally.is_abuse(ended) {
                    counters.malformed.fetch_add(1, Relaxed);
                    connection.close(quic::code(Code::H3_EXCESSIVE_LOAD), b"");
                    return Ok(());
                }
            }
            () = stopped(&mut stopping), if !stops => {
                stops = true;
                // Those that are on their way are rejected, and asked elsewhere. The frame names the
                // first request that is not answered; `h3` by itself would name the last that is.
                http.shutdown(1).await?;
            }
            () = tick.as_mut() => {
                if exchanges.is_empty() && !tally.has_begun() {
                    return Ok(());
                }
                let next = Instant::now().checked_add(limits.head_timeout);
                tick.as_mut().reset(next.unwrap_or_else(Instant::now));
            }
            why = gives_way.as_mut() => {
                if why == Shed::Slow {
                    connection.close(quic::code(Code::H3_EXCESSIVE_LOAD), b"");
                }
                return Ok(());
            }
        }
        begun.store(tally.begun, Relaxed);
        running.store(!exchanges.is_empty(), Relaxed);
        if (stops || is_closing) && exchanges.is_empty() {
            return Ok(());
        }
    }
}

/// What a connection's requests came to.
#[derive(Debug, Default)]
struct Tally {
    begun: u64,
    /// [`Self::begun`] when last looked at.
    seen: u64,
    answered: u64,
    cancelled: u64,
}

impl Tally {
    /// Whether a request began since the last look.
    fn has_begun(&mut self) -> bool {
        std::mem::replace(&mut self.seen, self.begun) != self.begun
    }

    /// Counts an end. Whether this client only makes us begin.
    fn is_abuse(&mut self, ended: Result<Outcome, JoinError>) -> bool {
        match ended {
            Ok(Outcome::Answered) => self.answered = self.answered.saturating_add(1),
            Ok(Outcome::Cancelled | Outcome::Refused) => {
                self.cancelled = self.cancelled.saturating_add(1);
            }
            Err(error) if error.is_panic() => {
                tracing::error!(%error, "a request ended by a fault of this program");
            }
            Err(_) => {}
        }
        self.cancelled > self.answered.saturating_add(CANCELLED_FREE)
    }
}
