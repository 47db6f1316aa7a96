//! HTTP/3 (RFC 9114) on QUIC (RFC 9000): quinn carries, `h3` frames, and the same [`Handler`],
//! [`Limits`] and [`Counters`] serve as over TCP. Nothing outside this folder knows any of them.
//!
//! - [`serve`] owns a UDP socket: it takes handshakes, asks for a proof of address when many are
//!   open (`endpoint`), and ends everything in peace at shutdown.
//! - `socket` is shared with a successor, which passes on what belongs to connections of this
//!   process: their `ids` say so, and `relay` is the way.
//! - `connection` is one client, `exchange` one request of it; `content` comes with a request; `flow`
//!   bounds what a connection holds and how long it waits; `quic` is what `h3` needs of quinn.
//!
//! Invariants
//! - A response that cannot go on ends with a reset of its stream (RFC 9114 section 4.1.1), never with
//!   its end.
//! - A connection holds 4 MiB of chunks that wait for their streams, twice its congestion window (256
//!   KiB to 8 MiB) until it is acknowledged, and of each of at most 100 requests a bounded head.
//! - Requests are never answered from early data (0-RTT): a replay is not ours to judge.
//!
//! What quinn and `h3` do by themselves: three times the bytes that came go to an address that has
//! not proved itself (RFC 9000 section 8.1), rounded up to a whole datagram; lengths, limits and orders of frames are
//! checked; unknown frames, streams and settings are passed over; fields are coded by QPACK's static
//! table alone (RFC 9204). PRIORITY_UPDATE is passed over too: the `Priority` field of a request
//! decides (RFC 9218).

mod connection;
mod content;
mod endpoint;
mod exchange;
mod flow;
mod ids;
mod quic;
mod relay;
mod socket;

pub(crate) use content::Content;
pub use endpoint::{Quic, QuicError};

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use h3::error::Code;
use rt::Shutdown;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::server::{Counters, Handler, Limits, Open, drain, note_panic, stopped};

/// Handshakes at once above which a client must first prove that its address is its own (Retry, RFC
/// 9000 section 8.1.2). Below, it is spared the round trip.
const HANDSHAKES_UNPROVED: usize = 64;

/// Time for the last packets of closed connections.
const CLOSING: Duration = Duration::from_millis(500);

/// Serves HTTP/3 on `quic` until `stopping`; then takes no new connection, tells the open ones
/// (GOAWAY), finishes the running responses until everything is to be cut, cuts the rest, and
/// returns. After a hand-over it does so by what its successor passes on; without one that does, it
/// closes them. Connections above `limits.connections_max` are refused, so that their clients go on
/// over TCP.
pub(crate) async fn serve<H: Handler>(
    quic: Quic,
    handler: Arc<H>,
    limits: Limits,
    counters: Arc<Counters>,
    mut stopping: watch::Receiver<bool>,
    shutdown: Shutdown,
) {
    let (endpoint, socket) = match quic.open() {
        Ok(opened) => opened,
        Err(error) => {
            tracing::error!(%error, "HTTP/3 is not served: its socket cannot be used");
            return;
        }
    };
    let mut connections = JoinSet::new();
    let handshakes = Arc::new(AtomicUsize::new(0));
    loop {
        tokio::select! {
            biased;
            () = stopped(&mut stopping) => break,
            Some(ended) = connections.join_next() => note_panic(ended),
            incoming = endpoint.accept() => {
                let Some(incoming) = incoming else { break };
                if !counters.has_room(limits.connections_max) {
                    counters.h3_refused.fetch_add(1, Relaxed);
                    incoming.refuse();
                    continue;
                }
                let must_prove = handshakes.load(Relaxed) >= HANDSHAKES_UNPROVED;
                if must_prove && incoming.may_retry() {
                    counters.h3_retries.fetch_add(1, Relaxed);
                    // Refused only where `may_retry` is false.
                    let _ = incoming.retry();
                    continue;
                }
                let connecting = match incoming.accept() {
                    Ok(connecting) => connecting,
                    Err(error) => {
                        tracing::debug!(%error, "a QUIC connection was not accepted");
                        continue;
                    }
                };
                let open = Open::new(&counters);
                let handshake = Handshake::new(&handshakes);
                let (handler, counters) = (Arc::clone(&handler), Arc::clone(&counters));
                let stopping = stopping.clone();
                connections.spawn(async move {
                    let connecting = handshake.of(connecting);
                    connection::serve(connecting, handler, limits, counters, stopping).await;
                    drop(open);
                });
            }
        }
    }
    endpoint.set_server_config(None);
    if shutdown.has_yielded() {
        // The successor has the same socket: it passes on what is not its own.
        socket.deafen();
        let close_alone = async {
            socket.alone().await;
            tracing::info!("HTTP/3 connections are closed: nobody passes on what comes for them");
            endpoint.close(quic::code(Code::H3_NO_ERROR), b"");
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = drain(connections, &shutdown, &counters) => {}
            () = close_alone => {}
        }
    } else {
        drain(connections, &shutdown, &counters).await;
    }
    endpoint.close(quic::code(Code::H3_NO_ERROR), b"");
    // What is left are packets for clients that do not acknowledge any more.
    let _ = timeout(CLOSING, endpoint.wait_idle()).await;
}

/// A handshake in the count of those that are open.
struct Handshake(Arc<AtomicUsize>);

impl Handshake {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Relaxed);
        Self(Arc::clone(count))
    }

    /// `connecting`, counted until it is over.
    async fn of(
        self,
        connecting: quinn::Connecting,
    ) -> Result<quinn::Connection, quinn::ConnectionError> {
        connecting.await
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
