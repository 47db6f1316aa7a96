//! TCP (RFC 7766): pipelined queries are answered in order, each batch of them in one write.
//!
//! A connection has a small input buffer and a bounded output; it is closed when no whole query
//! comes for a while, when the client does not take its answers, or when it sends what no query
//! needs. When connections run short, patience does first.

use std::io::{self, Read};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dns_proto::{Asker, Desk, Transport, answer};
use rt::metrics::{Gauge, dns as metric};
use rt::{Context, Metrics, Phase, Shutdown};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::counters::{Counters, Tally};
use crate::proxy::{self, Header};
use crate::query_log::Entry;
use crate::scribe::Scribe;
use crate::shared::Shared;

mod clients;
mod idlers;

use clients::{Clients, Place};
use idlers::Idlers;

/// Longest query read over TCP.
const QUERY_BYTES_MAX: usize = 4096;
/// Output gathered before it is written.
const WRITE_BYTES: usize = 64 << 10;
/// Reads of a connection after the end was called for: of what was sent before.
const LATE_READS_MAX: u32 = 256;
/// Pause after `accept` failed, mostly for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How much clients may ask of us.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections at a time.
    pub(crate) connections_max: usize,
    /// Of them those of one address (IPv6: one /64).
    pub(crate) per_client_max: usize,
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
            per_client_max: 256,
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
    Displaced,
    Limit,
    ClientLimit,
    Proxy,
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
            Self::Displaced => "displaced",
            Self::Limit => "limit",
            Self::ClientLimit => "client-limit",
            Self::Proxy => "proxy",
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
    clients: Arc<Clients>,
    idlers: Arc<Idlers>,
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
            clients: Arc::default(),
            idlers: Arc::default(),
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
                Ok((stream, peer)) => match self.admit(peer.ip()) {
                    Ok(admission) => {
                        let server = Arc::clone(&self);
                        connections.spawn(async move {
                            match server.admitted(admission).await {
                                Ok(place) => server.serve(stream, peer.ip(), place).await,
                                Err(why) => server.closed(why),
                            }
                        });
                    }
                    Err(why) => self.closed(why),
                },
                Err(error) => {
                    tracing::warn!(%error, "accepting a TCP connection failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        while connections.join_next().await.is_some() {}
    }

    /// A place for a connection of `peer`. When none is free, that which has been without a query for
    /// longest makes room. Proxies hold those of their clients.
    fn admit(&self, peer: IpAddr) -> Result<Admission, Closed> {
        let place = match self.shared.proxies().has(peer) {
            true => None,
            // First: whoever has too many already displaces nobody.
            false => {
                let place = self.clients.enter(peer, self.limits.per_client_max);
                Some(place.ok_or(Closed::ClientLimit)?)
            }
        };
        match Arc::clone(&self.slots).try_acquire_owned() {
            Ok(slot) => Ok(Admission { slot: Some(slot), place }),
            Err(_) if self.idlers.displace() => Ok(Admission { slot: None, place }),
            Err(_) => Err(Closed::Limit),
        }
    }

    /// Waits for the slot of a connection that makes room.
    async fn admitted(&self, admission: Admission) -> Result<Admitted, Closed> {
        let Admission { slot, place } = admission;
        let slot = match slot {
            Some(slot) => slot,
            None => {
                let slot = timeout(self.patience(), Arc::clone(&self.slots).acquire_owned()).await;
                slot.ok().and_then(Result::ok).ok_or(Closed::Limit)?
            }
        };
        Ok(Admitted { _slot: slot, _place: place })
    }

    async fn serve(&self, stream: TcpStream, peer: IpAddr, _admitted: Admitted) {
        self.connections.inc();
        // An answer is one write: waiting to merge it with another helps nobody.
        let _ = stream.set_nodelay(true);
        let mut connection = Connection {
            stream,
            peer,
            desk: self.shared.desk(),
            scribe: self.shared.scribe(),
            input: Vec::new(),
            output: Vec::new(),
            is_served: false,
            late_reads_left: LATE_READS_MAX,
        };
        let why = connection.talk(self).await;
        self.closed(why);
        self.connections.dec();
    }

    fn closed(&self, why: Closed) {
        self.metrics.counter(&metric::TCP_CLOSED, &[why.word()]).inc();
    }

    fn patience(&self) -> Duration {
        let busy = self.slots.available_permits() < self.limits.connections_max / 4;
        if busy || self.shutdown.has_reached(Phase::Draining) {
            self.limits.idle_when_busy
        } else {
            self.limits.idle
        }
    }
}

/// What a connection may hold; without a slot, that of another that makes room.
struct Admission {
    slot: Option<OwnedSemaphorePermit>,
    place: Option<Place>,
}

/// What a connection holds while it lasts.
struct Admitted {
    _slot: OwnedSemaphorePermit,
    _place: Option<Place>,
}

struct Connection {
    stream: TcpStream,
    peer: IpAddr,
    desk: Desk,
    scribe: Scribe,
    /// Bytes not answered yet; at most one query and its length after each turn.
    input: Vec<u8>,
    output: Vec<u8>,
    /// It has sent a whole query.
    is_served: bool,
    /// How often more is read once the end has been called for.
    late_reads_left: u32,
}

impl Connection {
    async fn talk(&mut self, server: &Server) -> Closed {
        if server.shared.proxies().has(self.peer) {
            match timeout(server.patience(), self.read_proxy()).await {
                Ok(Ok(())) => {}
                Ok(Err(why)) => return why,
                Err(_) => return Closed::Idle,
            }
        }
        loop {
            let mut idler = Idlers::enter(&server.idlers);
            let ready = tokio::select! {
                biased;
                ready = timeout(server.patience(), self.read_query()) => ready,
                () = idler.displaced() => return Closed::Displaced,
                // Whoever has just come has a query on its way, and cannot know that it would be lost.
                () = server.shutdown.reached(Phase::Draining), if self.is_served => {
                    if self.has_more() {
                        continue;
                    }
                    return Closed::Shutdown;
                }
            };
            match ready {
                Ok(Ok(())) => {}
                Ok(Err(why)) => return why,
                Err(_) => return Closed::Idle,
            }
            drop(idler);
            self.is_served = true;
            while self.answer_some(server) {
                match timeout(server.limits.write, self.stream.write_all(&self.output)).await {
                    Ok(Ok(())) => self.output.clear(),
                    Ok(Err(_)) => return Closed::Error,
                    Err(_) => return Closed::Slow,
                }
            }
            if server.shutdown.has_reached(Phase::Draining) && !self.has_more() {
                return Closed::Shutdown;
            }
        }
    }

    /// Reads what has come already, but not for ever: whoever floods does not hold the end up. Whether
    /// there was something.
    fn has_more(&mut self) -> bool {
        let Some(left) = self.late_reads_left.checked_sub(1) else { return false };
        self.late_reads_left = left;
        let mut bytes = [0; QUERY_BYTES_MAX];
        // The kernel itself is asked: tokio takes the socket for empty until the next event reaches
        // it, though what the client sent is there.
        let Ok(read) = (&*SockRef::from(&self.stream)).read(&mut bytes) else { return false };
        self.input.extend_from_slice(bytes.get(..read).unwrap_or_default());
        read > 0
    }

    /// Returns when a whole query is there. Loses nothing when it is dropped on the way.
    async fn read_query(&mut self) -> Result<(), Closed> {
        loop {
            match first_query(&self.input) {
                Framed::Whole(..) => return Ok(()),
                Framed::Oversize => return Err(Closed::Oversize),
                Framed::Part => {}
            }
            self.read_more().await?;
        }
    }

    async fn read_more(&mut self) -> Result<(), Closed> {
        self.input.reserve(512);
        match self.stream.read_buf(&mut self.input).await {
            Ok(0) => Err(Closed::Client),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Err(Closed::Client),
            Err(_) => Err(Closed::Error),
        }
    }

    /// Takes the header of a proxy off the input: the client behind it is whom we talk to.
    async fn read_proxy(&mut self) -> Result<(), Closed> {
        loop {
            match proxy::read(&self.input) {
                Header::Whole(source, length) => {
                    self.peer = source.unwrap_or(self.peer);
                    self.input.drain(..length);
                    return Ok(());
                }
                Header::Part => self.read_more().await?,
                Header::Bad => return Err(Closed::Proxy),
            }
        }
    }

    /// Answers whole queries until there are none or the output is long; tells whether there is
    /// something to write.
    fn answer_some(&mut self, server: &Server) -> bool {
        let mut tally = Tally::default();
        let mut reply = Vec::new();
        let mut done = 0usize;
        let published = server.shared.published();
        server.shared.freshen(&mut self.desk);
        self.desk.manners.tcp_idle_ds = deciseconds(server.patience());
        let asker = Asker { peer: self.peer, transport: Transport::Tcp, now: rt::clock::now() };
        while self.output.len() < WRITE_BYTES {
            if self.desk.go_on(asker.now, &mut reply) {
                frame(&reply, &mut self.output);
                continue;
            }
            let rest = self.input.get(done..).unwrap_or_default();
            let Framed::Whole(query, used) = first_query(rest) else { break };
            let desk = &mut self.desk;
            let outcome = answer(&published.snapshot, query, &asker, desk, &mut reply);
            tally.add(&outcome, &published.meters);
            self.scribe.note(&Entry {
                asker: &asker,
                message: query,
                outcome: &outcome,
                size: reply.len(),
                published: &published,
            });
            done = done.saturating_add(used);
            if !reply.is_empty() {
                frame(&reply, &mut self.output);
            }
        }
        drop(published);
        self.input.drain(..done);
        tally.signed = self.desk.take_signed();
        tally.flush(&server.counters);
        !self.output.is_empty()
    }
}

/// Appends a message with its length (RFC 1035 section 4.2.2); it has at most 65,535 bytes.
fn frame(message: &[u8], output: &mut Vec<u8>) {
    output.extend(u16::try_from(message.len()).unwrap_or(u16::MAX).to_be_bytes());
    output.extend_from_slice(message);
}

/// In units of 100 ms.
fn deciseconds(time: Duration) -> u16 {
    u16::try_from(time.as_millis() / 100).unwrap_or(u16::MAX)
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
