//! One client's connection in HTTP/2 (RFC 9113), by the h2 crate.
//!
//! One task a connection: it reads frames, answers the requests ([`exchanges`]), lets their bodies
//! give parts in the order of [`priority`](crate::priority), and sends what has gathered
//! ([`gather`]) when there is nothing more to do.
//!
//! Bounds, whatever the client does
//! - [`STREAMS_MAX`] requests at once; further ones are refused (RST_STREAM REFUSED_STREAM).
//! - Of responses: [`HELD_BYTES_MAX`](crate::priority::HELD_BYTES_MAX) and one part, and what
//!   gathers. A body is asked for bytes when its client has room for them, so responses that nobody
//!   reads hold nothing.
//! - Of requests: heads as long as those of HTTP/1.1, [`CONNECTION_WINDOW`] of content.
//! - Streams reset by the client before they were looked at ("rapid reset"), streams reset here for
//!   its faults, CONTINUATION frames of one head, empty and tiny DATA frames are counted, and
//!   too many end the connection with GOAWAY ENHANCE_YOUR_CALM. SETTINGS and PING frames are answered one
//!   by one; while the client does not take the answers it is not read from.
//! - A client that takes nothing of what waits for it is given up as on HTTP/1.1, whether its
//!   socket or its windows are full. A single response of which it takes nothing, while it takes
//!   others, is reset after the same time.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ::h2::server::{Builder, Connection};
use ::h2::{Reason, server};
use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use self::exchange::{Answering, Given};
use self::exchanges::Exchanges;
use self::gather::Gather;
use crate::connection::Wire;
use crate::crowd::Shed;
use crate::priority::HELD_BYTES_MAX;
use crate::server::{Counters, Goaway, Handler, Limits};
use crate::{Client, way};

mod exchange;
mod exchanges;
mod gather;
#[cfg(test)]
mod tests;

/// Requests of one connection at once.
const STREAMS_MAX: u32 = 128;
/// Content of one request, and of all of a connection, that may wait to be taken.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 512 * 1024;
/// Streams that a client may reset before they were looked at, and faults of its streams.
const EARLY_RESETS_MAX: usize = 64;
const FAULTS_MAX: usize = 256;
/// Streams that ended here a while ago of which frames may still come, and the while.
const ENDED_STREAMS_MAX: usize = 32;
const ENDED_STREAM_TIME: Duration = Duration::from_secs(5);

/// After so many looks at a client that takes nothing it is given up.
const STALLED_LOOKS: u32 = 4;

/// Serves one connection to its end, of which `first` was read already.
pub(crate) async fn serve<S, H>(
    stream: S,
    first: Bytes,
    client: Client,
    handler: Arc<H>,
    limits: Limits,
    counters: Arc<Counters>,
    mut stopping: watch::Receiver<bool>,
) where
    S: Wire,
    H: Handler,
{
    counters.h2_connections.fetch_add(1, Relaxed);
    let out = Gather::new(stream, first);
    let handshake = timeout(limits.head_timeout, handshake(&out, &limits));
    let connection = tokio::select! {
        biased;
        connection = handshake => match connection {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return note(&counters, &error),
            Err(_) => {
                counters.timeouts.fetch_add(1, Relaxed);
                return;
            }
        },
        _ = stopping.wait_for(|stop| *stop) => return,
    };
    let visitor = handler.greet(client);
    let mut driver = Driver {
        connection,
        exchanges: Exchanges::default(),
        answering: Arc::new(Answering::new(handler, visitor, counters)),
        out,
    };
    let is_stalled = driver.run(&limits, stopping).await;
    let Driver { connection, exchanges, answering, out, .. } = driver;
    drop((connection, exchanges));
    let stream = out.into_inner();
    let way = way::of_socket(stream.as_ref().and_then(Wire::socket));
    answering.handler.leave(&answering.visitor, way);
    if is_stalled && let Some(stream) = stream {
        stream.reset();
    }
}

async fn handshake<S: Wire>(
    out: &Gather<S>,
    limits: &Limits,
) -> Result<Connection<Gather<S>, Given>, ::h2::Error> {
    let mut handshake = pin!(builder(limits).handshake(out.clone()));
    poll_fn(|cx| {
        let connection = handshake.as_mut().poll(cx);
        // Our SETTINGS leave before the client's are waited for. That they cannot shows at the read.
        let _ = out.poll_send(cx);
        connection
    })
    .await
}

fn builder(limits: &Limits) -> Builder {
    let mut builder = server::Builder::new();
    builder
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(limits.head_bytes_max).unwrap_or(u32::MAX))
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        // Never reached: our own account of what is held says when to ask for more.
        .max_send_buffer_size(HELD_BYTES_MAX.saturating_mul(2))
        .max_pending_accept_reset_streams(EARLY_RESETS_MAX)
        .max_local_error_reset_streams(Some(FAULTS_MAX))
        .max_concurrent_reset_streams(ENDED_STREAMS_MAX)
        .reset_stream_duration(ENDED_STREAM_TIME);
    builder
}

struct Driver<S, H: Handler> {
    connection: Connection<Gather<S>, Given>,
    exchanges: Exchanges,
    answering: Arc<Answering<H>>,
    out: Gather<S>,
}

/// What was seen at the last look.
#[derive(Default)]
struct Seen {
    requests: u64,
    moved: u64,
    stalled: u32,
    idle: u32,
}

/// What a look says.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    Alive,
    /// Nothing was asked since the last look and nothing is answered.
    Idle,
    /// Likewise, and it was told to go at the look before.
    Gone,
    /// The client takes nothing of what waits for it.
    Stalled,
}

impl<S: Wire, H: Handler> Driver<S, H> {
    /// Until the connection ends; whether because its client takes nothing, or next to nothing.
    async fn run(&mut self, limits: &Limits, mut stopping: watch::Receiver<bool>) -> bool {
        let mut tick = pin!(sleep(limits.head_timeout));
        let (answering, out) = (Arc::clone(&self.answering), self.out.clone());
        let doing = || answering.doing(&out);
        let mut gives_way = pin!(answering.counters.gives_way(limits.connections_max, doing));
        let mut seen = Seen::default();
        let mut stops = false;
        loop {
            tokio::select! {
                biased;
                ended = poll_fn(|cx| self.poll(cx)) => {
                    ended.err().iter().for_each(|error| note(&self.answering.counters, error));
                    return false;
                }
                () = tick.as_mut() => {
                    let next = Instant::now().checked_add(limits.head_timeout);
                    tick.as_mut().reset(next.unwrap_or_else(Instant::now));
                    match self.look(&mut seen) {
                        Look::Alive => self.answering.turns.give_up_stalled(STALLED_LOOKS),
                        Look::Idle => self.say_goodbye(Goaway::Idle),
                        Look::Gone => return false,
                        Look::Stalled => {
                            self.answering.counters.stalled.fetch_add(1, Relaxed);
                            return true;
                        }
                    }
                }
                why = gives_way.as_mut() => {
                    if why == Shed::Idle {
                        self.connection.abrupt_shutdown(Reason::NO_ERROR);
                        self.answering.counters.note_goaway(Goaway::Idle);
                        // What does not leave at once is not waited for.
                        let _ = self.poll(&mut Context::from_waker(Waker::noop()));
                    }
                    return why == Shed::Slow;
                }
                _ = stopping.wait_for(|stop| *stop), if !stops => {
                    stops = true;
                    self.say_goodbye(Goaway::Leaving);
                }
            }
        }
    }

    /// Tells the client to ask for nothing more here; what it has asked for is finished.
    fn say_goodbye(&mut self, why: Goaway) {
        self.connection.graceful_shutdown();
        self.answering.counters.note_goaway(why);
    }

    /// Drives the connection as far as it goes.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ::h2::Error>> {
        self.exchanges.begin();
        loop {
            while let Poll::Ready(accepted) = self.connection.poll_accept(cx) {
                let Some(accepted) = accepted else { return Poll::Ready(Ok(())) };
                let (request, respond) = accepted?;
                self.exchanges.start(Arc::clone(&self.answering).answer(request, respond));
            }
            self.answering.turns.set_part(self.out.part_bytes());
            self.answering.turns.wake_next();
            if !self.exchanges.poll(cx) {
                break;
            }
        }
        match self.out.poll_send(cx) {
            Poll::Ready(Err(error)) => {
                tracing::debug!(%error, "a client has gone");
                Poll::Ready(Ok(()))
            }
            // What is left is sent when the socket takes more.
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    }

    /// To be called once a tick.
    fn look(&self, seen: &mut Seen) -> Look {
        let turns = &self.answering.turns;
        let now =
            Seen { requests: self.answering.requests(), moved: turns.moved(), ..Seen::default() };
        let before = std::mem::replace(seen, now);
        if seen.moved == before.moved && (turns.owes() || !self.out.is_empty()) {
            seen.stalled = before.stalled.saturating_add(1);
            return if seen.stalled < STALLED_LOOKS { Look::Alive } else { Look::Stalled };
        }
        if self.exchanges.len() > 0 || seen.requests != before.requests {
            return Look::Alive;
        }
        seen.idle = before.idle.saturating_add(1);
        if seen.idle < 2 { Look::Idle } else { Look::Gone }
    }
}

/// Counts why a connection ended. Clients that go away are no event.
fn note(counters: &Counters, error: &::h2::Error) {
    if error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM) {
        counters.note_goaway(Goaway::Flood);
    } else if error.is_library() {
        counters.note_goaway(Goaway::Fault);
        counters.malformed.fetch_add(1, Relaxed);
    } else if error.is_remote() && error.is_go_away() {
        counters.note_goaway(Goaway::Client);
    }
    tracing::debug!(%error, "a connection ended early");
}
