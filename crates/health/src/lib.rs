//! The health role: probes every node, keeps its state, publishes the node map.
//!
//! # A tour in flow order
//! 1. [`Health::bind`] reads the maps and the last node map, publishes a first one and opens the
//!    listeners; [`Health::serve`] runs.
//! 2. `maps`: notices edits of the maps folder.
//! 3. `probe`: one HTTP request to one address, and what it means.
//! 4. `desk`: what tasks share: the checker machine of `health-proto` and what it last published.
//! 5. `drive`: the one loop that feeds the machine and does what it asks.
//! 6. `keep`: the node map on disk.
//! 7. `answer`: `/node-map` and `/status` over HTTP.
//! 8. `aside`: reads and writes of files that may hang, kept off the runtime.
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
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use health_proto::{Checker, ParamsError};
use nodemap::{AdminMap, Finding, NodeMap};
use rt::listen::ListenError;
use rt::{Context, Phase, Shutdown, clock, file, follow, listen};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

mod answer;
mod aside;
mod desk;
mod drive;
mod keep;
mod maps;
mod probe;
#[cfg(test)]
mod tests;

use answer::Answerer;
use aside::aside;
use desk::{Desk, Published};
use keep::Keeper;
use maps::{Folder, Found};
use probe::Prober;

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
    /// How nodes are probed.
    pub probe: ProbeParams,
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
    /// The timing cannot work.
    #[error("[health.probe]: {0}")]
    Timing(ParamsError),
    /// The path cannot be asked for.
    #[error("[health.probe] path: {0:?} is no URL path: write one that begins with /")]
    Path(String),
    /// There are no sound maps, and none of an earlier run either.
    #[error("the maps cannot be used:{}", lines(.0))]
    Maps(Vec<Finding>),
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
    prober: Arc<Prober>,
    desk: Arc<Desk>,
    keeper: Keeper,
    /// The map that is published already.
    first: Option<NodeMap>,
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
        let timing = params.probe.timing;
        let prober = Prober::new(params.probe).map_err(Error::Path)?;
        let (dir, last_path) = (params.maps.clone(), published_path(&context.state_dir));
        let read = aside(move || (load_last(&last_path), Folder::open(dir)));
        let (last, (mut folder, found)) = read.await.map_err(Error::Thread)?;
        let (map, findings) = initial_map(found, last.as_ref())?;
        let mut listeners = Vec::new();
        for address in params.listen {
            listeners.push(listen::tcp(&context.sockets, address)?);
        }
        let addresses: Result<_, _> = listeners.iter().map(TcpListener::local_addr).collect();
        let now = clock::now();
        let name = context.name.clone();
        let mut checker = Checker::new(timing, name, map, last.as_ref(), now, clock::dice());
        let first = checker.poll_publish(now);
        drive::log_disbelieved(&mut checker);
        let published = first.as_ref().map(Published::of).unwrap_or_default();
        let desk = Arc::new(Desk::new(checker, published, &params.maps, &findings, &context));
        let keeper = Keeper::start(published_path(&context.state_dir), &desk, &context);
        let status = desk.clone();
        context.status.set("health", move || status.show());
        Ok(Self {
            listeners,
            addresses: addresses.map_err(Error::Address)?,
            edits: maps::watch(move || folder.look()).map_err(Error::Thread)?,
            prober: Arc::new(prober),
            desk,
            keeper,
            first,
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
        let answerer = Arc::new(Answerer::new(self.desk.clone(), &self.context));
        let (listeners, stop) = (self.listeners, shutdown.clone());
        let listeners = listeners.into_iter().map(Into::into).collect();
        tasks.spawn(serve::http(listeners, answerer, answer::limits(), Arc::default(), stop));
        tasks.spawn(take_edits(self.edits, self.desk.clone(), shutdown.clone()));
        let Self { desk, prober, keeper, first, context, .. } = self;
        let driver = drive::Driver::new(desk, prober, keeper, first, &context);
        driver.run(&shutdown).await;
        tasks.join_all().await;
    }
}

/// Takes over what edits of the maps bring, until nothing is published any more.
async fn take_edits(mut edits: mpsc::Receiver<Found>, desk: Arc<Desk>, shutdown: Shutdown) {
    loop {
        let found = tokio::select! {
            found = edits.recv() => found,
            () = shutdown.reached(Phase::Yielded) => return,
        };
        let Some(found) = found else {
            tracing::error!("edits of the maps are not noticed any more, by a defect: restart");
            return;
        };
        desk.take_maps(found);
    }
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
