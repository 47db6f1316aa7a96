//! One peer: feeds its session machine and does what it asks.

use std::future::{self, Future};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bgp_proto::session::{self, Action, Conn, News, Session, TableChange, Way};
use bgp_proto::{Code, Families, Kind, PeerId, Rib};
use model::{Family, Now};
use rt::metrics::{Counter, Gauge, bgp as metric};
use rt::{Phase, Shutdown, clock};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::desk::{self, Desk, Peer};
use crate::link::{self, Link};

/// A peer that never says that it has told everything is taken to have after this time.
const COMPLETE_NS: u64 = 60_000_000_000;
/// Reads in a row of one connection, so that the others are not kept waiting.
const READS_MAX: usize = 8;

type Connecting = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// The instruments of a peer, resolved once.
struct Meters {
    up: Gauge,
    announced: Counter,
    withdrawn: Counter,
    routes: [Gauge; 2],
    messages: [(Kind, Counter, u64); 5],
}

/// What happened.
enum Event {
    Ready(usize),
    Came(TcpStream),
    Connected(io::Result<TcpStream>),
    Due,
    Refresh,
    Leave,
}

struct Driver<'a> {
    desk: &'a Desk,
    peer: &'a Peer,
    key: Option<Vec<u8>>,
    session: Session,
    links: Vec<Link>,
    next_conn: u64,
    connecting: Option<Connecting>,
    meters: Meters,
    /// Families whose end has not come yet, since when the session is up.
    awaited: Option<(Families, u64)>,
}

/// Runs the session of the peer at this place until the process yields.
pub(crate) async fn run(
    desk: Arc<Desk>,
    at: usize,
    key: Option<Vec<u8>>,
    mut coming: mpsc::Receiver<TcpStream>,
    shutdown: Shutdown,
) {
    let Some(peer) = desk.peers.get(at) else { return };
    let mut driver = Driver::new(&desk, peer, key);
    driver.session.start(clock::now());
    loop {
        driver.act();
        let event = driver.next(&mut coming, &shutdown).await;
        let now = clock::now();
        match event {
            Event::Ready(link) => driver.read(now, link).await,
            Event::Came(stream) => driver.connected(now, stream, Way::In),
            Event::Connected(Ok(stream)) => driver.connected(now, stream, Way::Out),
            Event::Connected(Err(error)) => {
                tracing::debug!(peer = %peer.params.name, %error, "cannot connect");
                driver.session.handle_connect_failed(now);
            }
            Event::Due => driver.session.handle_timeout(now),
            Event::Refresh => {
                let asked = driver.session.refresh();
                tracing::info!(peer = %peer.params.name, asked, "routes asked for again");
            }
            Event::Leave => {
                driver.session.stop(now, Code::Reset);
                driver.act();
                return;
            }
        }
    }
}

impl<'a> Driver<'a> {
    fn new(desk: &'a Desk, peer: &'a Peer, key: Option<Vec<u8>>) -> Self {
        let (ours, params) = (&desk.params, &peer.params);
        let session = Session::new(session::Params {
            local_as: ours.asn,
            identifier: ours.identifier,
            peer_as: params.asn,
            passive: params.passive,
            hold_s: ours.hold_s,
            families: Families::ALL,
            max_prefixes: params.max_prefixes,
        });
        let (metrics, name) = (&desk.metrics, params.name.as_str());
        let routes = Family::ALL.map(|f| metrics.gauge(&metric::ROUTES, &[name, &f.to_string()]));
        let messages = session.received().map(|(kind, count)| {
            let word = match kind {
                Kind::Open => "open",
                Kind::Update => "update",
                Kind::Notification => "notification",
                Kind::Keepalive => "keepalive",
                Kind::Refresh => "refresh",
            };
            (kind, metrics.counter(&metric::MESSAGES, &[name, word]), count)
        });
        let meters = Meters {
            up: metrics.gauge(&metric::SESSION_UP, &[name]),
            announced: metrics.counter(&metric::ANNOUNCED, &[name]),
            withdrawn: metrics.counter(&metric::WITHDRAWN, &[name]),
            routes,
            messages,
        };
        let links = Vec::new();
        Self {
            desk,
            peer,
            key,
            session,
            links,
            next_conn: 0,
            connecting: None,
            meters,
            awaited: None,
        }
    }

    /// Waits until something happens. Bytes go before timers: a peer whose bytes wait here is not
    /// silent.
    async fn next(&mut self, coming: &mut mpsc::Receiver<TcpStream>, shutdown: &Shutdown) -> Event {
        let due_ns = self.session.poll_timeout();
        let (links, connecting) = (&mut self.links, &mut self.connecting);
        let ready = future::poll_fn(|cx| {
            let ready = links.iter_mut().position(|link| link.poll_ready(cx).is_ready());
            ready.map_or(Poll::Pending, Poll::Ready)
        });
        let connected = future::poll_fn(|cx| match connecting {
            Some(connecting) => connecting.as_mut().poll(cx),
            None => Poll::Pending,
        });
        let due = async {
            match due_ns {
                Some(at) => {
                    let left = at.saturating_sub(clock::now().mono_ns);
                    tokio::time::sleep(Duration::from_nanos(left)).await;
                }
                None => future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = shutdown.reached(Phase::Yielded) => Event::Leave,
            link = ready => Event::Ready(link),
            Some(stream) = coming.recv() => Event::Came(stream),
            result = connected => {
                self.connecting = None;
                Event::Connected(result)
            }
            () = due => Event::Due,
            () = self.peer.refresh.notified() => Event::Refresh,
        }
    }

    fn connected(&mut self, now: Now, stream: TcpStream, way: Way) {
        self.next_conn = self.next_conn.wrapping_add(1);
        let conn = Conn(self.next_conn);
        self.links.push(Link::new(conn, stream));
        self.session.handle_connected(now, conn, way);
    }

    /// Reads a connection, and takes over what it says.
    async fn read(&mut self, now: Now, link: usize) {
        for _ in 0..READS_MAX {
            let Some(conn) = self.links.get(link).map(|link| link.conn) else { return };
            if !self.read_once(now, link) {
                return;
            }
            self.act();
            // The other sessions, and what waits for the table, have their turn.
            tokio::task::yield_now().await;
            if self.links.get(link).is_none_or(|link| link.conn != conn) {
                return;
            }
        }
    }

    /// Takes over what there is to be read now; false when there is nothing more.
    fn read_once(&mut self, now: Now, link: usize) -> bool {
        let (desk, peer) = (self.desk, self.peer);
        let Some(link) = self.links.get_mut(link) else { return false };
        let conn = link.conn;
        let bytes = match link.read() {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return false,
            Err(error) => {
                tracing::debug!(peer = %peer.params.name, %error, "a connection ended");
                self.session.handle_closed(now, conn);
                return false;
            }
        };
        let mut rib = desk.rib();
        let (meters, awaited) = (&self.meters, &mut self.awaited);
        let used = self.session.handle_bytes(now, conn, bytes, |news| match news {
            News::Update(update) => {
                if let Some((families, _)) = awaited {
                    *families = without(*families, update.end_of_rib);
                }
                for fault in &update.faults {
                    let labels = [fault.what.word(), fault.remedy.word()];
                    desk.metrics.counter(&metric::FAULTS, &labels).inc();
                    tracing::debug!(peer = %peer.params.name, %fault, "a malformed attribute");
                }
                let applied = rib.apply(peer.id, update);
                meters.announced.inc_by(applied.announced.into());
                meters.withdrawn.inc_by(applied.withdrawn.into());
            }
            News::Table(change) => change_table(&mut rib, peer.id, change),
        });
        let counts = rib.peer_counts(peer.id);
        drop(rib);
        link.used(used);
        self.session.handle_counts(now, counts);
        true
    }

    /// Does what the session asks for, and shows where it is.
    fn act(&mut self) {
        while let Some(action) = self.session.poll_action() {
            match action {
                Action::Connect => {
                    let (params, key) = (self.peer.params.clone(), self.key.clone());
                    self.connecting = Some(Box::pin(link::connect(params, key)));
                }
                Action::CancelConnect => self.connecting = None,
                Action::Send(conn, bytes) => {
                    if let Some(link) = self.links.iter_mut().find(|link| link.conn == conn) {
                        link.send(&bytes);
                    }
                }
                Action::Close(conn) => self.links.retain(|link| link.conn != conn),
                Action::Table(change) => {
                    change_table(&mut self.desk.rib(), self.peer.id, change);
                }
                Action::Up => self.up(),
                Action::Ended { established, end } => self.ended(established, &end),
            }
        }
        self.show();
    }

    fn up(&mut self) {
        self.meters.up.set(1);
        let families = self.session.agreed().map_or(Families::ALL, |agreed| agreed.rules.families);
        self.awaited = Some((families, clock::now().mono_ns));
        tracing::info!(peer = %self.peer.params.name, address = %self.peer.params.address, "session up");
    }

    fn ended(&mut self, established: bool, end: &session::End) {
        let name = self.peer.params.name.as_str();
        self.desk.metrics.counter(&metric::SESSION_ENDS, &[name, desk::word(end)]).inc();
        let why = desk::why(end);
        if established {
            self.meters.up.set(0);
            self.awaited = None;
            tracing::warn!(peer = name, why, "session down");
        } else {
            tracing::info!(peer = name, why, "no session");
        }
    }

    fn show(&mut self) {
        let now_ns = clock::now().mono_ns;
        let complete = self.awaited.is_some_and(|(families, since)| {
            families == Families::default() || now_ns.saturating_sub(since) >= COMPLETE_NS
        });
        let was_complete = self.peer.is_complete();
        self.peer.show(&self.session, complete);
        for (gauge, count) in
            self.meters.routes.iter().zip(self.desk.rib().peer_counts(self.peer.id))
        {
            gauge.set(count.into());
        }
        let received = self.session.received();
        for ((_, counter, shown), (_, count)) in self.meters.messages.iter_mut().zip(received) {
            counter.inc_by(count.saturating_sub(*shown));
            *shown = count;
        }
        if was_complete != complete {
            self.desk.tell();
        }
    }
}

fn without(mut families: Families, ended: Option<Family>) -> Families {
    match ended {
        Some(Family::V4) => families.v4 = false,
        Some(Family::V6) => families.v6 = false,
        None => {}
    }
    families
}

fn change_table(rib: &mut Rib, peer: PeerId, change: TableChange) {
    match change {
        TableChange::MarkStale(family) => rib.mark_stale(peer, family),
        TableChange::Sweep(family) => rib.sweep(peer, family),
        TableChange::Clear(family) => rib.clear(peer, family),
    }
}
