//! TCP (RFC 7766): pipelined queries are answered in order, each batch of them in one write.
//!
//! A connection has a small input buffer and a bounded output; it is closed when no whole query
//! comes for a while, when the client does not take its answers, or when it sends what no query
//! needs. When connections run short, patience does first.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dns_proto::{Transport, answer};
use model::Dice;
use rt::metrics::{Gauge, dns as metric};
use rt::{Context, Metrics, Phase, Shutdown};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::counters::{Counters, Tally};
use crate::shared::Shared;

/// Longest query read over TCP.
const QUERY_BYTES_MAX: usize = 4096;
/// Output gathered before it is written.
const WRITE_BYTES: usize = 64 << 10;
/// Pause after `accept` failed, mostly for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How much clients may ask of us.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections at a time.
    pub(crate) connections_max: usize,
    /// How long a connection may be without a whole query.
    pub(crate) idle: Duration,
    /// The same when fewer than a quarter of the connections are left.
    pub(crate) idle_when_busy: Duration,
    /// How long a client may take to accept a write.
    pub(crate) write: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 2048,
            // RFC 7766 section 6.2.3 leaves it to the server; resolvers reuse within seconds.
            idle: Duration::from_secs(20),
            idle_when_busy: Duration::from_secs(2),
            write: Duration::from_secs(10),
        }
    }
}

/// Why a connection ended; the word is the metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closed {
    Client,
    Idle,
    Oversize,
    Slow,
    Error,
    Limit,
    Shutdown,
}

impl Closed {
    fn word(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Idle => "idle",
            Self::Oversize => "oversize",
            Self::Slow => "slow",
            Self::Error => "error",
            Self::Limit => "limit",
            Self::Shutdown => "shutdown",
        }
    }
}

/// What all listeners share.
pub(crate) struct Server {
    limits: Limits,
    shared: Arc<Shared>,
    shutdown: Shutdown,
    metrics: Metrics,
    counters: Counters,
    connections: Gauge,
    slots: Arc<Semaphore>,
}

impl Server {
    pub(crate) fn new(limits: Limits, shared: Arc<Shared>, context: &Context) -> Self {
        Self {
            limits,
            shared,
            shutdown: context.shutdown.clone(),
            metrics: context.metrics.clone(),
            counters: Counters::new(&context.metrics, "tcp"),
            connections: context.metrics.gauge(&metric::TCP_CONNECTIONS, &[]),
            slots: Arc::new(Semaphore::new(limits.connections_max)),
        }
    }

    /// Accepts until shutdown, then waits for the connections to end.
    pub(crate) async fn listen(self: Arc<Self>, listener: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = self.shutdown.reached(Phase::Draining) => break,
                accepted = listener.accept() => accepted,
                // Ended ones are taken out, so that the set holds the living only.
                Some(_) = connections.join_next() => continue,
            };
            match accepted {
                Ok((stream, peer)) => match Arc::clone(&self.slots).try_acquire_owned() {
                    Ok(slot) => {
                        connections.spawn(Arc::clone(&self).serve(stream, peer.ip(), slot));
                    }
                    Err(_) => self.closed(Closed::Limit),
                },
                Err(error) => {
                    tracing::warn!(%error, "accepting a TCP connection failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        while connections.join_next().await.is_some() {}
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, peer: IpAddr, _slot: OwnedSemaphorePermit) {
        self.connections.inc();
        // An answer is one write: waiting to merge it with another helps nobody.
        let _ = stream.set_nodelay(true);
        let mut connection = Connection {
            stream,
            peer,
            dice: rt::clock::dice(),
            input: Vec::new(),
            output: Vec::new(),
        };
        let why = connection.talk(&self).await;
        self.closed(why);
        self.connections.dec();
    }

    fn closed(&self, why: Closed) {
        self.metrics.counter(&metric::TCP_CLOSED, &[why.word()]).inc();
    }

    fn patience(&self) -> Duration {
        let busy = self.slots.available_permits() < self.limits.connections_max / 4;
        if busy { self.limits.idle_when_busy } else { self.limits.idle }
    }
}

struct Connection {
    stream: TcpStream,
    peer: IpAddr,
    dice: Dice,
    /// Bytes not answered yet; at most one query and its length after each turn.
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Connection {
    async fn talk(&mut self, server: &Server) -> Closed {
        loop {
            let ready = tokio::select! {
                biased;
                ready = timeout(server.patience(), self.read_query()) => ready,
                () = server.shutdown.reached(Phase::Draining) => return Closed::Shutdown,
            };
            match ready {
                Ok(Ok(())) => {}
                Ok(Err(why)) => return why,
                Err(_) => return Closed::Idle,
            }
            while self.answer_some(server) {
                match timeout(server.limits.write, self.stream.write_all(&self.output)).await {
                    Ok(Ok(())) => self.output.clear(),
                    Ok(Err(_)) => return Closed::Error,
                    Err(_) => return Closed::Slow,
                }
            }
            if server.shutdown.has_reached(Phase::Draining) {
                return Closed::Shutdown;
            }
        }
    }

    /// Returns when a whole query is there. Loses nothing when it is dropped on the way.
    async fn read_query(&mut self) -> Result<(), Closed> {
        loop {
            match first_query(&self.input) {
                Framed::Whole(..) => return Ok(()),
                Framed::Oversize => return Err(Closed::Oversize),
                Framed::Part => {}
            }
            self.input.reserve(512);
            match self.stream.read_buf(&mut self.input).await {
                Ok(0) => return Err(Closed::Client),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(Closed::Client);
                }
                Err(_) => return Err(Closed::Error),
            }
        }
    }

    /// Answers whole queries until there are none or the output is long; tells whether there is
    /// something to write.
    fn answer_some(&mut self, server: &Server) -> bool {
        let mut tally = Tally::default();
        let mut reply = Vec::new();
        let mut done = 0usize;
        let snapshot = server.shared.snapshot();
        while self.output.len() < WRITE_BYTES {
            let rest = self.input.get(done..).unwrap_or_default();
            let Framed::Whole(query, used) = first_query(rest) else { break };
            let outcome =
                answer(&snapshot, query, self.peer, Transport::Tcp, &mut self.dice, &mut reply);
            tally.add(outcome);
            done = done.saturating_add(used);
            if !reply.is_empty() {
                // An answer has at most 65,535 bytes.
                self.output.extend(u16::try_from(reply.len()).unwrap_or(u16::MAX).to_be_bytes());
                self.output.extend_from_slice(&reply);
            }
        }
        drop(snapshot);
        self.input.drain(..done);
        tally.flush(&server.counters);
        !self.output.is_empty()
    }
}

/// What the front of a connection's input is.
enum Framed<'a> {
    /// A query, and its length with the length prefix.
    Whole(&'a [u8], usize),
    /// Not all of it is there.
    Part,
    /// Longer than any query.
    Oversize,
}

/// Splits the first query off (RFC 1035 section 4.2.2).
fn first_query(input: &[u8]) -> Framed<'_> {
    let Some((prefix, rest)) = input.split_first_chunk::<2>() else { return Framed::Part };
    let length = usize::from(u16::from_be_bytes(*prefix));
    if length > QUERY_BYTES_MAX {
        return Framed::Oversize;
    }
    match rest.get(..length) {
        Some(query) => Framed::Whole(query, length.saturating_add(prefix.len())),
        None => Framed::Part,
    }
}
