//! The role as a process runs it: listeners, the node map, the second's work, the end.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use http_cache::Identity;
use model::time::utc;
use rt::alive::Sign;
use rt::follow::Following;
use rt::listen;
use rt::steering::Watched;
use rt::{Context, Metrics};
use serve::disk::FsDisk;
use serve::{BindError, Counters as Connections, Files, Limits, Listener};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::account::Account;
use crate::audience::Audience;
use crate::bill::{self, Bill};
use crate::caps::Caps;
use crate::check::Checks;
use crate::complaints::Complaints;
use crate::connections::{self, ConnectionMetrics};
use crate::counters::Counters;
use crate::drain::{self, Drain};
use crate::filling::Fillings;
use crate::flight::Flights;
use crate::group::Groups;
use crate::guard::Guard;
use crate::hand_over::{self, Successor};
use crate::handler::Front;
use crate::memo::Memos;
use crate::offer;
use crate::params::{LimitParams, Params};
use crate::probe;
use crate::project::Projects;
use crate::purge::{self, Purges};
use crate::state::Edge;
use crate::stores::{Stores, StoresError};
use crate::upstream::Upstream;
use crate::upstream::tls::{CaError, Tls};

/// Where the listener for the process that had the stores before is bound.
const PRIVATE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// How often what was stored is made durable and the figures are shown.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// Fewest block buffers: with one, a run that waits for the disk would stop all others.
const BUFFERS_MIN: usize = 2;

/// Why the edge cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] BindError),
    /// The config names no address.
    #[error("no address to serve on: set [edge] listen")]
    NoListener,
    /// A store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoresError),
    /// The certificates of `upstream_ca` cannot be used.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// The task that opens the stores did not end.
    #[error("opening the stores was interrupted")]
    Interrupted,
}

/// An edge with its sockets bound and its stores open, not yet serving.
#[derive(Debug)]
pub struct Bound {
    edge: Arc<Edge>,
    listeners: Vec<Listener>,
    /// Where the process that had the stores before asks for what it has to send yet.
    private: TcpListener,
    private_address: Arc<ArcSwapOption<SocketAddr>>,
    limits: Limits,
    node_map: Following,
    context: Context,
}

/// Looks whether [`bind`] would refuse, addresses aside, while another process may be at work with the
/// same parameters. Blocks.
///
/// # Errors
/// As `bind` has them.
pub fn look(params: &Params) -> Result<(), Error> {
    Tls::new(params.upstream_ca.as_deref())?;
    Ok(Stores::look(&params.stores)?)
}

/// Opens the stores and binds the sockets.
pub async fn bind(
    params: Params,
    node_map: Following,
    steering: Watched,
    context: Context,
) -> Result<Bound, Error> {
    bind_on(|folder| Arc::new(FsDisk::new(folder)), params, node_map, steering, context).await
}

/// The same with disks of the caller's: each is made for the folder of a store.
pub async fn bind_on(
    disk_of: impl Fn(&Path) -> Arc<dyn store::Disk> + Send + Sync + 'static,
    params: Params,
    node_map: Following,
    steering: Watched,
    context: Context,
) -> Result<Bound, Error> {
    let limits = limits(&params.limits);
    let bind = |listen| Listener::bind(listen, &context, &limits);
    let listeners = params.listen.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
    if listeners.is_empty() {
        return Err(Error::NoListener);
    }
    let (disks, metrics) = (params.stores.clone(), context.metrics.clone());
    let memory = params.store_memory;
    let (state_dir, interface) = (context.state_dir.clone(), params.bill_interface.clone());
    let opening = tokio::task::spawn_blocking(move || {
        let stores = Stores::open(&disks, memory, disk_of, &metrics)?;
        let drain = Drain::open(&state_dir, &metrics);
        let bill = Bill::open(&state_dir, interface.as_deref(), &metrics);
        Ok::<_, Error>((stores, Purges::open(&state_dir, &metrics), drain, bill))
    });
    let (stores, purges, drain, bill) = opening.await.map_err(|_| Error::Interrupted)??;
    let disk_bytes = params.stores.iter().map(|s| s.size.0).fold(0, u64::saturating_add);
    let block_bytes = params.stores.iter().map(|s| s.block_bytes).max().unwrap_or(1);
    let buffers = params.fill_memory.0.checked_div(u64::from(block_bytes)).unwrap_or(0);
    let buffers = usize::try_from(buffers).unwrap_or(usize::MAX);
    let buffers = buffers.clamp(BUFFERS_MIN, Semaphore::MAX_PERMITS);
    let edge = Arc::new(Edge {
        me: Identity::new(&context.name),
        name: context.name.clone(),
        projects: ArcSwap::default(),
        steering,
        stores,
        successor: Successor::default(),
        upstream: Upstream::new(
            params.timeouts,
            Tls::new(params.upstream_ca.as_deref())?,
            context.shutdown.clone(),
        ),
        memos: Memos::default(),
        purges,
        drain,
        flights: Flights::default(),
        records: Mutex::default(),
        fillings: Fillings::default(),
        groups: Groups::new(&context.metrics, disk_bytes),
        buffers: Arc::new(Semaphore::new(buffers)),
        buffers_share: buffers.div_euclid(2).max(1),
        block_bytes,
        counters: Counters::new(&context.metrics),
        account: Arc::new(Account::new(&params.logs, &context.metrics, &context.reopen)),
        complaints: Complaints::default(),
        guard: Guard::new(&params.limits, &context.metrics),
        audience: Audience::default(),
        caps: Caps::new(&context.metrics),
        bill,
        checks: Checks::default(),
        http3_offer: offer::of(&listeners),
        shutdown: context.shutdown.clone(),
    });
    adopt_map(&edge, &mut node_map.clone(), &context.metrics);
    let purged = Arc::clone(&edge);
    context.status.on_post("/purge", move |body| {
        let edge = Arc::clone(&purged);
        async move { purge::answer(&edge, &body).await }
    });
    let drained = Arc::clone(&edge);
    context.status.on_post("/drain", move |body| {
        let edge = Arc::clone(&drained);
        async move { drain::answer_drain(&edge, &body).await }
    });
    let undrained = Arc::clone(&edge);
    context.status.on_post("/undrain", move |body| {
        let edge = Arc::clone(&undrained);
        async move { drain::answer_undrain(&edge, &body).await }
    });
    let private = listen::tcp(&context.sockets, PRIVATE).map_err(BindError::from)?;
    let private_address = Arc::new(ArcSwapOption::new(private.local_addr().ok().map(Arc::new)));
    // Before anybody can make the process yield.
    hand_over::register(&edge, &private_address, &context);
    Ok(Bound { edge, listeners, private, private_address, limits, node_map, context })
}

impl Bound {
    /// Where it listens.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|l| l.address().ok()).collect()
    }

    /// A copy of the listener on which requests of the process that had the stores before come in,
    /// for the process that has them next.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn share_private(&self) -> io::Result<StdListener> {
        self.private.as_fd().try_clone_to_owned().map(StdListener::from)
    }

    /// Takes requests of the process that had the stores before on its listener.
    ///
    /// # Errors
    /// When it is no listener that can be waited on.
    pub fn on_private(self, listener: StdListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        self.private_address.store(Some(Arc::new(listener.local_addr()?)));
        Ok(Self { private: TcpListener::from_std(listener)?, ..self })
    }

    /// Serves until the context's shutdown has cut, or ended, every response.
    pub async fn serve(self) {
        let Self { edge, listeners, private, limits, node_map, context, .. } = self;
        let connections = Arc::new(Connections::default());
        let status = (Arc::clone(&edge), Arc::clone(&connections));
        let addresses: serde_json::Value = listeners.iter().filter_map(listening).collect();
        context.status.set("edge", move || show(&status.0, &status.1, &limits, &addresses));
        let writer = edge.account.start();
        let mut background = JoinSet::new();
        background.spawn(follow(Arc::clone(&edge), node_map, context.metrics.clone()));
        let shown = ConnectionMetrics::new(&context.metrics, limits.connections_max);
        let sign = context.alive.begin("the second's work of the edge");
        background.spawn(bill::watch(Arc::clone(&edge)));
        background.spawn(each_second(Arc::clone(&edge), Arc::clone(&connections), shown, sign));
        for listener in &listeners {
            if let Ok(address) = listener.address() {
                let (tls, http3) = (listener.tls.is_some(), listener.quic.is_some());
                tracing::info!(%address, tls, http3, "the edge serves clients");
            }
        }
        let private = Listener::from(private);
        let serve = |listeners, is_for_former, shutdown| {
            let front = Arc::new(Front { edge: Arc::clone(&edge), is_for_former });
            serve::http(listeners, front, limits, Arc::clone(&connections), shutdown)
        };
        let of_former = serve(vec![private], true, hand_over::of_former(&context.shutdown));
        tokio::join!(serve(listeners, false, context.shutdown.clone()), of_former);
        background.shutdown().await;
        let closing = tokio::task::spawn_blocking(move || {
            writer.close();
            edge.stores.flush();
            if let Err(error) = edge.bill.close() {
                tracing::warn!(%error, "what the month has used was not written down");
            }
            edge.purges.close()
        });
        match closing.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the list of purges was not written again"),
            Err(_) => tracing::warn!("the last flush of the stores was interrupted"),
        }
    }
}

/// What holds for connections of clients; said when that is less than the config wants.
fn limits(params: &LimitParams) -> Limits {
    let limits = params.of_listeners(Files::of_process().connections);
    let Limits { connections_max, .. } = limits;
    if let Some(connections) = params.connections
        && usize::try_from(connections).is_ok_and(|wanted| wanted > connections_max)
    {
        tracing::warn!(
            connections,
            connections_max,
            "open files do not allow for so many connections"
        );
    }
    limits
}

/// Takes over the newest node map. Requests and fills go on with the projects they began with.
fn adopt_map(edge: &Edge, node_map: &mut Following, metrics: &Metrics) {
    let map = node_map.borrow_and_update().clone();
    if let Some(map) = map {
        let projects =
            Projects::new(&map, &edge.projects.load(), &edge.name, metrics, edge.buffers_share);
        edge.projects.store(Arc::new(projects));
        let node = map.map.nodes.get(&edge.name);
        edge.caps.adopt(node.map_or(&[][..], |node| node.caps.as_slice()));
        edge.bill.adopt(node.and_then(|node| node.bill));
    }
}

async fn follow(edge: Arc<Edge>, mut node_map: Following, metrics: Metrics) {
    loop {
        adopt_map(&edge, &mut node_map, &metrics);
        if node_map.changed().await.is_err() {
            // Nobody will publish any more: the last map stays.
            return;
        }
    }
}

async fn each_second(
    edge: Arc<Edge>,
    connections: Arc<Connections>,
    shown: ConnectionMetrics,
    sign: Sign,
) {
    let mut ticks = tokio::time::interval(FLUSH_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        sign.give();
        shown.show(&connections);
        if !edge.is_handed_over() {
            probe::begin_due(&edge);
        }
        sweep(&edge);
        let edge = Arc::clone(&edge);
        let tend = move || {
            edge.stores.tend();
            edge.drain.tend(rt::clock::now());
        };
        if tokio::task::spawn_blocking(tend).await.is_err() {
            tracing::warn!("a flush of the stores was interrupted");
        }
    }
}

/// Closes connections to sources that nobody needs.
fn sweep(edge: &Edge) {
    let now = rt::clock::now();
    for project in edge.projects.load().by_name.values() {
        for (_, endpoint) in project.sources.iter() {
            endpoint.sweep(now);
        }
    }
}

/// A listener in `/status`.
fn listening(listener: &Listener) -> Option<serde_json::Value> {
    Some(serde_json::json!({
        "address": listener.address().ok()?,
        "tls": listener.tls.is_some(),
        "http3": listener.quic.is_some(),
    }))
}

/// `/status`.
fn show(
    edge: &Edge,
    connections: &Connections,
    limits: &Limits,
    listeners: &serde_json::Value,
) -> serde_json::Value {
    let projects = edge.projects.load();
    let steered_by = edge.steering.view().map_or(0, |view| view.steering.map().generation);
    let now = rt::clock::now();
    let masters = |project: &crate::project::Project| -> serde_json::Value {
        let each = project.sources.iter().map(|(id, m)| {
            let shown = project.sources.shown(id, now);
            serde_json::json!({
                "name": m.name(), "url": m.url(), "parent": m.is_parent(),
                "requests": m.requests.get(), "bytes": m.bytes.get(),
                "in_flight": m.turns.taken(), "queued": m.turns.waiting(),
                "idle_connections": m.sweep(now),
                "disagreements": m.disagreements.get(),
                "skipped": shown.failures > 0, "failures": shown.failures,
                "probed_in_ms": shown.skipped_ms,
                "p50_first_byte_ms": shown.p50_first_byte_ms,
                "p99_first_byte_ms": shown.p99_first_byte_ms,
            })
        });
        each.collect()
    };
    let by_name: serde_json::Map<String, serde_json::Value> =
        projects.by_name.iter().map(|(n, p)| (n.to_string(), masters(p))).collect();
    let results: serde_json::Map<String, serde_json::Value> =
        edge.counters.results().map(|(word, n)| (word.to_owned(), n.into())).collect();
    let refused: serde_json::Map<String, serde_json::Value> =
        edge.counters.refusals().map(|(word, n)| (word.to_owned(), n.into())).collect();
    serde_json::json!({
        "node": edge.me.node(),
        "generation": projects.generation,
        "steering_generation": steered_by,
        "listeners": listeners,
        "draining": edge.is_draining(),
        "drain": edge.drain.now(now).map(|drained| drained.shown()),
        "connections": connections.open.load(Ordering::Relaxed),
        "connections_max": limits.connections_max,
        "limits": {
            "head_bytes": limits.head_bytes_max,
            "head_timeout_s": limits.head_timeout.as_secs(),
        },
        "guard": edge.guard.status(),
        "clients": connections::status(connections),
        "requests": results,
        "refused": refused,
        "sent_bytes": edge.counters.sent.get(),
        "logs": edge.account.status(),
        "systems": edge.account.largest(),
        "questions_in_flight": edge.flights.count(),
        "questions_waited_for": edge.flights.waiting(),
        "fills_in_flight": edge.fillings.count(),
        "block_buffers_free": edge.buffers.available_permits(),
        "groups": edge.groups.status(),
        "purges": {
            "active": edge.purges.count(),
            "newest": edge.purges.newest_at_ms().map(utc),
            "list_lost": edge.purges.lost_ms().map(utc),
        },
        "stores": edge.stores.status(),
        "caps": edge.caps.status(),
        "bill": edge.bill.status(),
        "handed_over": edge.is_handed_over(),
        "masters": by_name,
    })
}
