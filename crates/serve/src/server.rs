//! A listener: accepts connections within limits, and ends them in peace at shutdown.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hyper::{Request, Response};
use model::Now;
use rt::alive::{Alive, Sign};
use rt::clock;
use rt::listen::{self, Listen, ListenError};
use rt::metrics::Striped;
use rt::{Phase, Shutdown};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::MissedTickBehavior;

use crate::crowd::Crowd;
use crate::entry::{self, ALPN};
use crate::h3::{Quic, QuicError};
use crate::handshake::Tls;
use crate::{Body, BodyError, Client, RequestBody, Way, h3};

/// Pause after an accept that failed for want of files or memory: there is none to close but
/// those that end by themselves.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How often whoever accepts says that it does, whether connections come or not.
const SIGN_EVERY: Duration = Duration::from_secs(1);

/// After something was logged, more of its kind are only counted for so long, milliseconds.
const QUIET_MS: u64 = 60_000;

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    /// What is kept of a client as long as its connection lasts.
    type Visitor: Send + Sync + 'static;

    /// A connection of this client begins: asked once, before its first request.
    fn greet(&self, client: Client) -> Self::Visitor;

    /// The response to a request. Dropped when the client goes.
    fn handle(
        &self,
        request: Request<RequestBody>,
        visitor: &Self::Visitor,
    ) -> impl Future<Output = Response<Body>> + Send;

    /// A connection that was greeted has ended; `way`: what was measured of it, when somebody knows.
    /// Those that are cut at the end of the process are not told of.
    fn leave(&self, _visitor: &Self::Visitor, _way: Option<Way>) {}
}

/// Bounds of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once. Above it one waits at each listening socket until others make room, and
    /// further ones in the kernel's queue behind it.
    pub connections_max: usize,
    /// Bytes of a request head, at least 8192; 431 above.
    pub head_bytes_max: usize,
    /// A request head that takes longer, or an idle connection, is closed between this and twice
    /// this time. A client that takes nothing of its response is, between four and five times this.
    pub head_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            head_bytes_max: 16 * 1024,
            head_timeout: Duration::from_secs(30),
        }
    }
}

/// Where connections come in.
#[derive(Debug)]
pub struct Listener {
    /// Sockets of one address, each accepted from for itself.
    pub sockets: Vec<TcpListener>,
    /// Speaks TLS first.
    pub tls: Option<Tls>,
    /// HTTP/3 beside it.
    pub quic: Option<Quic>,
    /// Where those who accept give signs of life.
    pub alive: Alive,
}

/// Why a listener cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// It cannot speak HTTP/3.
    #[error("cannot serve HTTP/3 on {address}")]
    Quic {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: QuicError,
    },
    /// The kernel does not say where it is.
    #[error("the kernel does not say where a listener is")]
    Address(#[source] io::Error),
}

/// A socket that speaks no TLS.
impl From<TcpListener> for Listener {
    fn from(socket: TcpListener) -> Self {
        Self { sockets: vec![socket], tls: None, quic: None, alive: Alive::default() }
    }
}

impl Listener {
    /// Binds an entry of `listen`. Needs a tokio runtime.
    ///
    /// # Errors
    /// When the address cannot be had, or it is to speak TLS and there are no certificates.
    pub fn bind(
        listen: &Listen,
        context: &rt::Context,
        limits: &Limits,
    ) -> Result<Self, BindError> {
        let address = listen.address;
        let certificates = match (listen.tls, &context.certificates) {
            (false, _) => None,
            (true, Some(certificates)) => Some(certificates),
            (true, None) => return Err(ListenError::NoCertificate { address }.into()),
        };
        let tls = certificates.map(|certificates| Tls::new(certificates, &ALPN));
        let workers = tokio::runtime::Handle::current().metrics().num_workers();
        let sockets = listen::tcp_shared(&context.sockets, listen, workers)?;
        let mut listener = Self { sockets, tls, quic: None, alive: context.alive.clone() };
        if let (true, Some(certificates)) = (listen.http3, certificates) {
            let address = listener.address().map_err(BindError::Address)?;
            let tls = certificates.server_config(&[b"h3"]);
            let congestion = listen.congestion.as_deref();
            let quic = Quic::bind(address, tls, context, congestion, limits)
                .map_err(|source| BindError::Quic { address, source })?;
            listener.quic = Some(quic);
        }
        Ok(listener)
    }

    /// Where it listens, with the port that port 0 was given.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.sockets
            .first()
            .map_or(Err(io::ErrorKind::NotConnected.into()), TcpListener::local_addr)
    }
}

/// What happened on the listeners of a role; read it for metrics.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections accepted.
    pub accepted: AtomicU64,
    /// Connections open now.
    pub open: AtomicU64,
    /// Requests handed to the handler.
    pub requests: Striped,
    /// Connections closed for a request that is not HTTP, or too large.
    pub malformed: AtomicU64,
    /// Connections closed because a request's head did not arrive in time.
    pub timeouts: AtomicU64,
    /// Connections, and single responses in HTTP/2 and 3, ended because the client took nothing for
    /// too long.
    pub stalled: AtomicU64,
    /// Of the connections, those in HTTP/2.
    pub h2_connections: AtomicU64,
    /// Of the requests, those in HTTP/2.
    pub h2_requests: AtomicU64,
    /// Responses in HTTP/2 that the client did not want to its end.
    pub h2_resets: AtomicU64,
    /// Connections in HTTP/2 that were told to end, by [`Goaway`].
    h2_goaways: [AtomicU64; Goaway::ALL.len()],
    /// Of the connections, those in HTTP/3.
    pub h3_connections: AtomicU64,
    /// Of the requests, those in HTTP/3.
    pub h3_requests: AtomicU64,
    /// Requests in HTTP/3 that the client took back, or whose responses it did not want to its end.
    pub h3_resets: AtomicU64,
    /// Responses broken off because their body could not go on.
    pub broken_off: AtomicU64,
    /// Connections cut because their time after the last new one was over.
    pub cut: AtomicU64,
    /// QUIC handshakes whose clients had to prove their address first.
    pub h3_retries: AtomicU64,
    /// Connections in HTTP/3 refused because as many connections were open as may be.
    pub h3_refused: AtomicU64,
    /// QUIC handshakes that did not come to an end: failed, broken off, or too slow.
    pub h3_handshakes_failed: AtomicU64,
    /// Those who wait for a place, and those who could make room.
    pub(crate) crowd: Crowd,
    /// Clients that had to wait for a place.
    pub full: AtomicU64,
    full_said: Quiet,
    broken_off_said: Quiet,
}

/// Why an HTTP/2 connection was told to end (GOAWAY, RFC 9113 section 6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goaway {
    /// Nothing was asked for a while.
    Idle,
    /// The process takes no more requests.
    Leaving,
    /// The client sent frames that cost much and ask for nothing.
    Flood,
    /// The client broke the protocol.
    Fault,
    /// The client ended it for an error of its own finding.
    Client,
}

impl Goaway {
    /// Every one.
    pub const ALL: [Self; 5] = [Self::Idle, Self::Leaving, Self::Flood, Self::Fault, Self::Client];

    /// Its stable word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Leaving => "leaving",
            Self::Flood => "flood",
            Self::Fault => "fault",
            Self::Client => "client",
        }
    }
}

/// Keeps a log line to one in [`QUIET_MS`].
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    /// Until when it is only counted.
    until_ns: AtomicU64,
    /// Those that were.
    unsaid: AtomicU64,
}

impl Quiet {
    /// Whether to say it now, and how many were not said since the last one that was.
    pub(crate) fn due(&self, now: Now) -> Option<u64> {
        if self.until_ns.load(Relaxed) > now.mono_ns {
            self.unsaid.fetch_add(1, Relaxed);
            return None;
        }
        self.until_ns.store(now.plus_ms(QUIET_MS).mono_ns, Relaxed);
        Some(self.unsaid.swap(0, Relaxed))
    }
}

impl Counters {
    /// A client has come that no place is free for.
    fn note_full(&self, connections_max: usize) {
        self.full.fetch_add(1, Relaxed);
        if let Some(more) = self.full_said.due(clock::now()) {
            tracing::warn!(connections_max, more, "no connection is free: clients wait");
        }
    }

    /// How many HTTP/2 connections were told to end for this.
    pub fn goaways(&self, why: Goaway) -> u64 {
        self.h2_goaways.get(why as usize).map_or(0, |count| count.load(Relaxed))
    }

    pub(crate) fn note_goaway(&self, why: Goaway) {
        if let Some(count) = self.h2_goaways.get(why as usize) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// A response was broken off: counted, and logged now and then.
    pub(crate) fn broke_off(&self, error: &BodyError) {
        if let Some(more) = self.note_broken_off(clock::now()) {
            let error: &dyn std::error::Error = error;
            tracing::warn!(error, more, "a response was broken off");
        }
    }

    /// Whether there is.
    pub(crate) fn has_room(&self, connections_max: usize) -> bool {
        let open = usize::try_from(self.open.load(Relaxed)).unwrap_or(usize::MAX);
        open < connections_max
    }

    /// A response was broken off: counted. Whether to log it, and how many were not since the last
    /// one that was.
    pub(crate) fn note_broken_off(&self, now: Now) -> Option<u64> {
        self.broken_off.fetch_add(1, Relaxed);
        self.broken_off_said.due(now)
    }
}

/// Serves HTTP on `listeners` until nobody new is to be served; then closes them, finishes the
/// running responses until everything is to be cut, cuts the rest, and returns.
pub async fn http<H: Handler>(
    listeners: Vec<Listener>,
    handler: Arc<H>,
    limits: Limits,
    counters: Arc<Counters>,
    shutdown: Shutdown,
) {
    let (stop, stopping) = watch::channel(false);
    let mut accepting = JoinSet::new();
    for Listener { sockets, tls, quic, alive } in listeners {
        if let Some(quic) = quic {
            let (handler, counters) = (Arc::clone(&handler), Arc::clone(&counters));
            let (stopping, shutdown) = (stopping.clone(), shutdown.clone());
            accepting.spawn(h3::serve(quic, handler, limits, counters, stopping, shutdown));
        }
        for socket in sockets {
            let entrance = Entrance {
                sign: alive.begin("accepting connections"),
                tls: tls.clone(),
                handler: Arc::clone(&handler),
                limits,
                counters: Arc::clone(&counters),
                stopping: stopping.clone(),
                shutdown: shutdown.clone(),
            };
            accepting.spawn(entrance.accept(socket));
        }
    }
    shutdown.reached(Phase::Draining).await;
    stop.send_replace(true);
    while let Some(ended) = accepting.join_next().await {
        note_panic(ended);
    }
}

/// What every connection of a socket needs.
struct Entrance<H> {
    sign: Sign,
    tls: Option<Tls>,
    handler: Arc<H>,
    limits: Limits,
    counters: Arc<Counters>,
    stopping: watch::Receiver<bool>,
    shutdown: Shutdown,
}

impl<H: Handler> Entrance<H> {
    /// Takes connections from `socket` until `stopping`, then closes it and waits for theirs to end.
    async fn accept(self, socket: TcpListener) {
        let mut connections = JoinSet::new();
        let mut stopping = self.stopping.clone();
        let mut turns = tokio::time::interval(SIGN_EVERY);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let connections_max = self.limits.connections_max;
        // Who has come while no place was free.
        let mut waiting = None;
        loop {
            tokio::select! {
                biased;
                () = stopped(&mut stopping) => break,
                _ = turns.tick() => self.sign.give(),
                Some(ended) = connections.join_next() => note_panic(ended),
                () = self.counters.room(connections_max), if waiting.is_some() => {
                    if let Some((stream, address)) = waiting.take() {
                        connections.spawn(self.serve(stream, address));
                    }
                }
                accepted = socket.accept(), if waiting.is_none() => match accepted {
                    Ok(came) if !self.counters.has_room(connections_max) => {
                        self.counters.note_full(connections_max);
                        waiting = Some(came);
                    }
                    Ok((stream, address)) => {
                        connections.spawn(self.serve(stream, address));
                    }
                    Err(error) => accept_failed(&error).await,
                },
            }
        }
        // Who has come by now is served all the same; closing the socket would refuse them.
        if let Some((stream, address)) = waiting {
            connections.spawn(self.serve(stream, address));
        }
        while let Poll::Ready(Ok((stream, address))) =
            socket.poll_accept(&mut Context::from_waker(Waker::noop()))
        {
            connections.spawn(self.serve(stream, address));
        }
        drop((socket, self.sign));
        drain(connections, &self.shutdown, &self.counters).await;
    }

    /// One connection to its end.
    fn serve(&self, stream: TcpStream, address: SocketAddr) -> impl Future<Output = ()> + use<H> {
        let open = Open::new(&self.counters);
        let (tls, limits) = (self.tls.clone(), self.limits);
        let (handler, counters) = (Arc::clone(&self.handler), Arc::clone(&self.counters));
        let stopping = self.stopping.clone();
        let client = Client { address, is_secure: tls.is_some() };
        async move {
            match tls {
                None => entry::plain(stream, client, handler, limits, counters, stopping).await,
                // What TLS needs, a connection without it does not keep room for.
                Some(tls) => {
                    let secure =
                        entry::tls(stream, tls, client, handler, limits, counters, stopping);
                    Box::pin(secure).await;
                }
            }
            drop(open);
        }
    }
}

pub(crate) async fn drain(mut connections: JoinSet<()>, shutdown: &Shutdown, counters: &Counters) {
    let all_ended = async {
        while let Some(ended) = connections.join_next().await {
            note_panic(ended);
        }
    };
    let is_cut = tokio::select! {
        () = all_ended => false,
        () = shutdown.reached(Phase::Cut) => true,
    };
    if is_cut {
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

/// Returns once the listeners are to be closed.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // It ends with an error when the sender is gone, which is a stop too.
    let _ = stopping.wait_for(|stop| *stop).await;
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
        self.0.crowd.note_freed();
    }
}
