//! The health role: probes every node, keeps its state, publishes the node map.
//!
//! # A tour in flow order
//! 1. [`Health::bind`] reads the maps and the last node map, publishes a first one and opens the
//!    listeners; [`Health::serve`] runs.
//! 2. `maps`: notices edits of the maps folder; `judge`: what one would move.
//! 3. `probe`: one question to one address, and what it means: over HTTP (`probe/http1.rs`), TLS
//!    (`probe/tls.rs`) or DNS (`probe/dns.rs`).
//! 4. `peers`: what the other checkers have seen.
//! 5. `desk`: what tasks share: the checker machine of `health-proto` and what it last published.
//! 6. `drive`: the one loop that feeds the machine and does what it asks.
//! 7. `events`: what changed, as lines of a file; `webhook`: the same, posted.
//! 8. `keep`: the node map on disk.
//! 9. [`history`]: those before it, and going back to one.
//! 10. `answer`: `/node-map` and `/status` over HTTP.
//! 11. `acme`: certificates of projects, ordered once for every name.
//! 12. `aside`: reads and writes of files that may hang, kept off the runtime.
//!
//! # Invariants
//! - All decisions are the machine's; this crate moves bytes.
//! - H2: the node map on disk is written whole before it is published, unless the disk takes longer
//!   than half a second or fails: then the clients' need goes first.
//! - A maps folder with findings changes nothing but what is shown of it.
//! - Bounded: probes under way, bytes read of each answer, connections, readers remembered.
//! - A file system that hangs keeps nobody from stopping the process.
//!
//! Does not know what a client is, nor how nodes are chosen.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use health_proto::guard::TooFar;
use health_proto::setup::Page;
use health_proto::{Checker, ParamsError, Setup};
use http::Uri;
use nodemap::signature::{self, ReadError, SecretKey};
use nodemap::{AdminMap, Finding, NodeMap};
use rt::listen::ListenError;
use rt::steering::LocationParams;
use rt::{Context, Phase, Shutdown, clock, file, follow, listen};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

mod acme;
mod answer;
mod aside;
mod desk;
mod drive;
mod events;
pub mod history;
mod judge;
mod keep;
mod maps;
mod peers;
mod probe;
#[cfg(test)]
mod tests;
mod webhook;

use acme::Orderer;
pub use acme::{AcmeError, AcmeParams, Challenge, HandOutParams};
use answer::Answerer;
use aside::aside;
use desk::{Aside, Desk, Published};
use events::EventLog;
use history::Rollback;
use judge::Judge;
use keep::Keeper;
use maps::{Folder, Found};
pub use peers::Peer;
use probe::Prober;
pub use probe::{CaError, ProberError};
use webhook::Webhook;

/// Name of the published node map in the state directory.
const STATE_FILE: &str = "node-map.json";

/// Where this role keeps the node map that it published last.
pub fn published_path(state_dir: &Path) -> PathBuf {
    state_dir.join(STATE_FILE)
}

/// `[health]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Where `/node-map` and `/status` are served.
    pub listen: Vec<SocketAddr>,
    /// The folder of admin maps.
    pub maps: PathBuf,
    /// File of the key that signs node maps; without one they are not signed.
    pub key: Option<PathBuf>,
    /// How nodes are probed.
    pub probe: ProbeParams,
    /// The databases that edits of the maps are judged by.
    pub location: LocationParams,
    /// Whom to ask besides their pages, and what follows; its `params` and `page` are those of `probe`.
    pub setup: Setup,
    /// The other checkers. With any, the first by name that is there publishes.
    pub peers: Vec<Peer>,
    /// Where events are posted.
    pub webhook: Option<Uri>,
    /// Where certificates of projects are ordered; `None`: nowhere.
    pub acme: Option<AcmeParams>,
}

/// `[health.probe]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeParams {
    /// When to probe and how to count; `health_proto::Params::check` says what is allowed.
    pub timing: health_proto::Params,
    /// Port of the nodes' HTTP service.
    pub port: u16,
    /// Path that must answer with status 200; begins with `/`.
    pub path: String,
    /// Who is told when probes are in the way, in their `User-Agent`: a URL or an address of mail.
    pub contact: Option<String>,
    /// PEM file of authorities that are trusted besides those of the system.
    pub ca: Option<PathBuf>,
    /// Where to connect instead, by the node's address in the map: for tests and demonstrations,
    /// whose maps name addresses that this machine does not have.
    pub connect_to: BTreeMap<IpAddr, SocketAddr>,
}

impl Default for ProbeParams {
    fn default() -> Self {
        Self {
            timing: health_proto::Params::default(),
            port: 80,
            path: "/.well-known/cacheboy/health".into(),
            contact: None,
            ca: None,
            connect_to: BTreeMap::new(),
        }
    }
}

/// Why the role could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address could not be bound.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A bound listener does not say its address.
    #[error("cannot learn the address of a listener")]
    Address(#[source] io::Error),
    /// Certificates cannot be ordered.
    #[error("[health.acme] {0}")]
    Acme(AcmeError),
    /// The timing cannot work.
    #[error("[health.probe]: {0}")]
    Timing(ParamsError),
    /// Probes cannot be made.
    #[error("[health.probe] {0}")]
    Prober(ProberError),
    /// There are no sound maps, and none of an earlier run either.
    #[error("the maps cannot be used:{}", lines(.0))]
    Maps(Vec<Finding>),
    /// The file of the key cannot be read.
    #[error("[health] key: cannot read {0}: is it there, and may this user read it?")]
    KeyFile(PathBuf, #[source] io::Error),
    /// The file of the key is not one.
    #[error("[health] key: {0} cannot be used")]
    Key(PathBuf, #[source] ReadError),
    /// Nothing can be read without.
    #[error("cannot start a thread that reads files")]
    Thread(#[source] io::Error),
}

/// Each finding on a line of its own.
fn lines(findings: &[Finding]) -> String {
    findings.iter().fold(String::new(), |mut text, finding| {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {finding}");
        text
    })
}

/// The role with its listeners open and a first node map published.
#[derive(Debug)]
pub struct Health {
    listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    /// What edits of the maps folder bring.
    edits: mpsc::Receiver<Found>,
    judge: Judge,
    prober: Arc<Prober>,
    desk: Arc<Desk>,
    keeper: Keeper,
    orderer: Option<Orderer>,
    /// The map that is published already.
    first: Option<NodeMap>,
    key: Option<Arc<SecretKey>>,
    events: EventLog,
    peers: Vec<Peer>,
    interval: Duration,
    context: Context,
}

impl Health {
    /// Reads the maps and the last run's node map, publishes, and opens the listeners. Takes as long
    /// as the file systems do, and may be given up while it waits for them.
    ///
    /// # Errors
    /// What stands in the way of starting. Faulty maps do only when there is no earlier node map to
    /// go on with: a checker that restarts must not stop because of an edit.
    pub async fn bind(params: Params, context: Context) -> Result<Self, Error> {
        params.probe.timing.check().map_err(Error::Timing)?;
        let page = Page { port: params.probe.port, path: params.probe.path.clone() };
        let mut setup = Setup { page, params: params.probe.timing, ..params.setup };
        if !params.peers.is_empty() {
            let others = params.peers.iter().map(|peer| peer.name.clone());
            setup.council.checkers = others.chain([context.name.clone()]).collect();
            setup.council.checkers.sort();
        }
        setup.check().map_err(Error::Timing)?;
        let (dir, last_path) = (params.maps.clone(), published_path(&context.state_dir));
        let interval = Duration::from_millis(params.probe.timing.interval_ms);
        let (key, probe) = (params.key.clone(), params.probe);
        let read = aside(move || {
            let last = load_last(&last_path);
            let rollback = last_path.parent().and_then(Rollback::load);
            (Prober::new(probe), key.map(load_key), last, rollback, Folder::open(dir))
        });
        let (prober, key, last, rollback, (mut folder, found)) =
            read.await.map_err(Error::Thread)?;
        let prober = prober.map_err(Error::Prober)?;
        let key = key.transpose()?.map(Arc::new);
        let (map, findings) = initial_map(found, last.as_ref())?;
        let (map, aside) = Aside::at_start(map, rollback);
        let judge = Judge { location: params.location, setup: setup.guards };
        let (map, held) = judged_at_start(&judge, map, last.as_ref()).await?;
        let mut listeners = Vec::new();
        for address in params.listen {
            listeners.push(listen::tcp(&context.sockets, address)?);
        }
        let addresses: Result<_, _> = listeners.iter().map(TcpListener::local_addr).collect();
        let now = clock::now();
        let name = context.name.clone();
        let mut checker = Checker::new(setup, name, map, last.as_ref(), now, clock::dice());
        let first = checker.poll_publish(now);
        drive::log_disbelieved(&mut checker);
        let published = first.as_ref().map(|map| Published::of(map, last.as_ref(), key.as_deref()));
        let desk = Arc::new(Desk::new(
            checker,
            published.unwrap_or_default(),
            &params.maps,
            &findings,
            aside,
            &context,
        ));
        if let Some((map, far)) = held {
            desk.hold(map, far);
        }
        let orderer = Orderer::of(params.acme, &desk, &context).await?;
        let webhook = params.webhook.map(|url| Webhook::start(url, &context));
        let keeper = Keeper::start(published_path(&context.state_dir), &desk, &context);
        let status = desk.clone();
        context.status.set("health", move || status.show());
        let asked = desk.clone();
        context.status.on_post("/rollback", move |body| answer::roll_back(asked.clone(), body));
        let asked = desk.clone();
        context
            .status
            .on_post("/maps/confirm", move |body| future::ready(answer::confirm(&asked, &body)));
        Ok(Self {
            listeners,
            addresses: addresses.map_err(Error::Address)?,
            edits: maps::watch(move || folder.look()).map_err(Error::Thread)?,
            judge,
            prober: Arc::new(prober),
            desk,
            keeper,
            orderer,
            first,
            key,
            peers: params.peers,
            interval,
            events: EventLog::start(context.state_dir.clone(), webhook).map_err(Error::Thread)?,
            context,
        })
    }

    /// The addresses listened on, in the order of the parameters.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Serves until the context's shutdown.
    pub async fn serve(mut self) {
        self.keeper.wait_for(self.first.as_ref().map_or(0, |first| first.generation)).await;
        let mut tasks = JoinSet::new();
        let shutdown = self.context.shutdown.clone();
        let answerer = Arc::new(Answerer::new(self.desk.clone(), self.key.clone(), &self.context));
        let (listeners, stop) = (self.listeners, shutdown.clone());
        let listeners = listeners.into_iter().map(Into::into).collect();
        tasks.spawn(serve::http(listeners, answerer, answer::limits(), Arc::default(), stop));
        for peer in self.peers {
            let (desk, context) = (self.desk.clone(), self.context.clone());
            tasks.spawn(peers::listen(peer, desk, self.interval, context));
        }
        if let Some(orderer) = self.orderer {
            tasks.spawn(orderer.run());
        }
        tasks.spawn(take_edits(self.edits, self.judge, self.desk.clone(), shutdown.clone()));
        let Self { desk, prober, keeper, first, key, events, context, .. } = self;
        let driver = drive::Driver::new(desk, prober, keeper, first, key, events, &context);
        driver.run(&shutdown).await;
        tasks.join_all().await;
    }
}

/// Takes over what edits of the maps bring, until nothing is published any more.
async fn take_edits(
    mut edits: mpsc::Receiver<Found>,
    judge: Judge,
    desk: Arc<Desk>,
    shutdown: Shutdown,
) {
    loop {
        let found = tokio::select! {
            found = edits.recv() => found,
            () = shutdown.reached(Phase::Yielded) => return,
        };
        let Some(found) = found else {
            tracing::error!("edits of the maps are not noticed any more, by a defect: restart");
            return;
        };
        let verdict = match &found {
            Ok(map) => {
                let (judge, desk, map) = (judge.clone(), desk.clone(), map.clone());
                let work = aside(move || judge.judge(&desk.beside(), &map)).await;
                work.unwrap_or_else(|error| {
                    tracing::error!(%error, "an edit is taken over without being judged");
                    Ok(())
                })
            }
            Err(_) => Ok(()),
        };
        desk.take_maps(found, verdict);
    }
}

/// The maps to start with, where those that were published last are `last`; and an edit made meanwhile that
/// has to be confirmed.
async fn judged_at_start(
    judge: &Judge,
    map: AdminMap,
    last: Option<&NodeMap>,
) -> Result<(AdminMap, Option<(AdminMap, TooFar)>), Error> {
    let Some(last) = last else { return Ok((map, None)) };
    let (judge, before, edited) = (judge.clone(), last.clone(), map.clone());
    match aside(move || judge.judge(&before, &edited)).await.map_err(Error::Thread)? {
        Ok(()) => Ok((map, None)),
        Err(far) => Ok((last.map.clone(), Some((map, far)))),
    }
}

/// The key that signs.
fn load_key(path: PathBuf) -> Result<SecretKey, Error> {
    let bytes = match file::read_bounded(&path, signature::FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) => return Err(Error::KeyFile(path, error)),
    };
    let text = std::str::from_utf8(&bytes).map_err(|_| ReadError::SecretKey);
    text.and_then(SecretKey::from_file).map_err(|error| Error::Key(path, error))
}

/// The node map of the last run.
fn load_last(path: &Path) -> Option<NodeMap> {
    let bytes = match file::read_bounded(path, follow::NODE_MAP_BYTES_MAX as u64) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "cannot read the last node map");
            return None;
        }
    };
    match NodeMap::parse(&bytes) {
        Ok(map) => Some(map),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the last node map is unusable");
            None
        }
    }
}

/// The maps to start with, and the findings if they are not those of the folder.
fn initial_map(
    found: Result<AdminMap, Vec<Finding>>,
    last: Option<&NodeMap>,
) -> Result<(AdminMap, Vec<Finding>), Error> {
    match (found, last) {
        (Ok(map), _) => Ok((map, Vec::new())),
        (Err(findings), None) => Err(Error::Maps(findings)),
        (Err(findings), Some(last)) => Ok((last.map.clone(), findings)),
    }
}
