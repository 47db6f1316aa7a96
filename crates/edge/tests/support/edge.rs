//! An edge of one project in this process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use edge::{LogParams, Params, StoreParams, Timeouts};
use model::ByteCount;
use nodemap::{AdminMap, HostPattern, NodeMap, Project};
use rt::follow::Following;
use rt::steering::{LocationParams, Watched};
use rt::tls::{CertificateFiles, Certificates};
use rt::{Context, Shutdown};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::client::{self, Pending, Reply};
use super::{BLOCK, origin::Origin};

/// The host of the project.
pub const HOST: &str = "download.videolan.example";

/// A running edge.
#[derive(Debug)]
pub struct Edge {
    pub address: SocketAddr,
    pub map: watch::Sender<Option<Arc<NodeMap>>>,
    context: Context,
    private: std::net::TcpListener,
    task: JoinHandle<()>,
}

/// The host of the second project of [`two_projects`].
pub const OTHER_HOST: &str = "download.kernel.example";

/// A node map of two projects.
pub fn two_projects(masters: &[SocketAddr], others: &[SocketAddr]) -> NodeMap {
    let mut map = node_map(1, masters);
    let mut second = node_map(1, others).map.projects.into_values().next().unwrap();
    second.name = "kernel.cdn.example".parse().unwrap();
    second.hosts = vec![HostPattern::Exact(OTHER_HOST.parse().unwrap())];
    map.map.projects.insert("kernel".parse().unwrap(), second);
    map
}

/// The node map of one project with these masters.
pub fn node_map(generation: u64, masters: &[SocketAddr]) -> NodeMap {
    let masters = masters.iter().enumerate().map(|(i, address)| {
        let url = format!("http://{address}");
        (format!("m{i}").parse().unwrap(), nodemap::testing::master(url))
    });
    let project = Project {
        name: "videolan.cdn.example".parse().unwrap(),
        hosts: vec![HostPattern::Exact(HOST.parse().unwrap())],
        masters: masters.collect(),
        ..nodemap::testing::project()
    };
    let projects = [("videolan".parse().unwrap(), project)].into();
    let map = AdminMap { projects, ..AdminMap::default() };
    NodeMap::new(generation, "health1", map, Default::default())
}

fn params(dir: &Path, size: ByteCount) -> Params {
    let block_bytes = u32::try_from(BLOCK).unwrap();
    let store = StoreParams { path: dir.join("store"), size, block_bytes };
    let mut params = Params::new(vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()], vec![store]);
    params.timeouts = Timeouts {
        connect: Duration::from_millis(500),
        first_byte: Duration::from_millis(1500),
        between_bytes: Duration::from_secs(5),
    };
    params
}

fn context(dir: &Path) -> Context {
    Context::new("edge1".parse().unwrap(), dir.to_owned())
}

/// Where clients belong, without databases.
async fn steering(following: &Following, context: &Context) -> Watched {
    let location = LocationParams::default();
    rt::steering::start(location, following.clone(), context).await.unwrap()
}

async fn bind(
    params: Params,
    following: Following,
    context: &Context,
) -> Result<edge::Bound, edge::Error> {
    let steering = steering(&following, context).await;
    edge::bind(params, following, steering, context.clone()).await
}

impl Edge {
    /// An edge that keeps its blocks in `dir`.
    pub async fn start(dir: &Path, masters: &[&Origin]) -> Self {
        let addresses: Vec<_> = masters.iter().map(|m| m.address).collect();
        Self::with_map(dir, Some(node_map(1, &addresses)), ByteCount(1 << 30)).await
    }

    /// An edge with this node map and disk.
    pub async fn with_map(dir: &Path, map: Option<NodeMap>, size: ByteCount) -> Self {
        Self::with_memory(dir, map, size, edge::params::FILL_MEMORY_DEFAULT).await
    }

    /// An edge of another name, for one behind another.
    pub async fn named(name: &str, dir: &Path, map: NodeMap) -> Self {
        let context = Context { name: name.parse().unwrap(), ..context(dir) };
        let (map, following) = watch::channel(Some(Arc::new(map)));
        let params = params(dir, ByteCount(1 << 30));
        let bound = bind(params, following, &context).await.unwrap();
        Self::serving(bound, map, context)
    }

    /// An edge of another name that knows where clients are, from a country database.
    pub async fn located(name: &str, dir: &Path, map: NodeMap, country: PathBuf) -> Self {
        std::fs::create_dir_all(dir).unwrap();
        let context = Context { name: name.parse().unwrap(), ..context(dir) };
        let (map, following) = watch::channel(Some(Arc::new(map)));
        let location = LocationParams { country: Some(country), ..LocationParams::default() };
        let steering = rt::steering::start(location, following.clone(), &context).await.unwrap();
        let params = params(dir, ByteCount(1 << 30));
        let bound = edge::bind(params, following, steering, context.clone()).await.unwrap();
        Self::serving(bound, map, context)
    }

    /// An edge with this node map, disk and memory.
    pub async fn with_memory(
        dir: &Path,
        map: Option<NodeMap>,
        size: ByteCount,
        fill_memory: ByteCount,
    ) -> Self {
        let mut params = params(dir, size);
        params.fill_memory = fill_memory;
        let context = context(dir);
        let (map, following) = watch::channel(map.map(Arc::new));
        let bound = bind(params, following, &context).await.unwrap();
        Self::serving(bound, map, context)
    }

    /// An edge whose blocks have this size.
    pub async fn with_blocks(dir: &Path, map: NodeMap, block_bytes: u32) -> Self {
        let change = |params: &mut Params| {
            params.stores.iter_mut().for_each(|store| store.block_bytes = block_bytes);
        };
        Self::with(dir, map, change).await
    }

    /// An edge with access logs.
    pub async fn logging(dir: &Path, masters: &[&Origin], logs: &[LogParams]) -> Self {
        let mut params = params(dir, ByteCount(1 << 30));
        params.logs = logs.to_vec();
        let addresses: Vec<_> = masters.iter().map(|m| m.address).collect();
        let context = context(dir);
        let (map, following) = watch::channel(Some(Arc::new(node_map(1, &addresses))));
        let bound = bind(params, following, &context).await.unwrap();
        Self::serving(bound, map, context)
    }

    /// Has its log files opened anew.
    pub fn reopen_logs(&self) {
        self.context.reopen.ask();
    }

    /// An edge on a disk of the test's.
    pub async fn on_disk(
        dir: &Path,
        map: Option<NodeMap>,
        size: ByteCount,
        disk: Arc<dyn store::Disk>,
    ) -> Self {
        let context = context(dir);
        let (map, following) = watch::channel(map.map(Arc::new));
        let disk_of = move |_: &Path| Arc::clone(&disk);
        let steering = steering(&following, &context).await;
        let params = params(dir, size);
        let bound = edge::bind_on(disk_of, params, following, steering, context.clone());
        Self::serving(bound.await.unwrap(), map, context)
    }

    /// An edge with parameters of the test's.
    pub async fn with(dir: &Path, map: NodeMap, change: impl FnOnce(&mut Params)) -> Self {
        let mut params = params(dir, ByteCount(1 << 30));
        change(&mut params);
        let context = context(dir);
        let (map, following) = watch::channel(Some(Arc::new(map)));
        let bound = bind(params, following, &context).await.unwrap();
        Self::serving(bound, map, context)
    }

    /// An edge that trusts the authorities of a file too.
    pub async fn trusting(dir: &Path, map: NodeMap, ca: &Path) -> Self {
        let change = |params: &mut Params| {
            params.upstream_ca = Some(ca.to_owned());
            // A handshake is slow in an unoptimised build beside other tests.
            params.timeouts.connect = Duration::from_secs(10);
        };
        Self::with(dir, map, change).await
    }

    /// An edge that speaks TLS with these certificates.
    pub async fn over_tls(dir: &Path, map: NodeMap, files: &[CertificateFiles]) -> Self {
        let mut params = params(dir, ByteCount(1 << 30));
        params.listen.iter_mut().for_each(|listen| listen.tls = true);
        let mut context = context(dir);
        let certificates = Certificates::load(files, false, dir, &context.metrics).unwrap();
        context.certificates = Some(certificates);
        let (map, following) = watch::channel(Some(Arc::new(map)));
        let bound = bind(params, following, &context).await.unwrap();
        Self::serving(bound, map, context)
    }

    /// What it shows who speaks TLS with it.
    pub fn certificates(&self) -> &Certificates {
        self.context.certificates.as_ref().unwrap()
    }

    /// An edge that may not come up.
    pub async fn try_start(dir: &Path, map: NodeMap) -> Result<Self, edge::Error> {
        let context = context(dir);
        let (map, following) = watch::channel(Some(Arc::new(map)));
        let bound = bind(params(dir, ByteCount(1 << 30)), following, &context);
        Ok(Self::serving(bound.await?, map, context))
    }

    fn serving(
        bound: edge::Bound,
        map: watch::Sender<Option<Arc<NodeMap>>>,
        context: Context,
    ) -> Self {
        let address = bound.addresses()[0];
        let private = bound.share_private().unwrap();
        Self { address, map, context, private, task: tokio::spawn(bound.serve()) }
    }

    /// Gives its stores away; they are in the same folder.
    pub async fn hand_over(&self) {
        self.context.shutdown.give_up();
        self.context.yielding.run(Duration::from_secs(60)).await.unwrap();
    }

    /// The edge that has them next, in the same folder.
    pub async fn succeeded(&self, dir: &Path) -> Self {
        let context = context(dir);
        let map = self.map.borrow().clone();
        let (map, following) = watch::channel(map);
        let params = params(dir, ByteCount(1 << 30));
        let bound = bind(params, following, &context).await.unwrap();
        let bound = bound.on_private(self.private.try_clone().unwrap()).unwrap();
        Self::serving(bound, map, context)
    }

    /// Block buffers of an edge with the usual memory.
    pub fn buffers(&self) -> u64 {
        edge::params::FILL_MEMORY_DEFAULT.0 / BLOCK as u64
    }

    /// Stops it and waits for its end.
    pub async fn stop(self) {
        self.context.shutdown.end_soon();
        self.task.await.unwrap();
    }

    /// How far its end has come.
    pub fn shutdown(&self) -> &Shutdown {
        &self.context.shutdown
    }

    pub fn metrics(&self) -> String {
        self.context.metrics.render()
    }

    pub fn status(&self) -> serde_json::Value {
        self.context.status.show()
    }

    /// Posts to the admin listener's `/purge`: status and receipt.
    pub async fn purge(&self, asked: serde_json::Value) -> (u16, serde_json::Value) {
        let body = asked.to_string().into();
        let (status, receipt) = self.context.status.act("/purge", body).await.unwrap();
        (status.as_u16(), receipt)
    }

    pub async fn send(&self, path: &str, fields: &[&str]) -> Pending {
        client::send(self.address, "GET", path, HOST, fields).await
    }

    /// Waits until nothing is being filled.
    pub async fn wait_filled(&self) {
        while self.status()["edge"]["fills_in_flight"] != 0 {
            tokio::task::yield_now().await;
        }
    }

    pub async fn get(&self, path: &str, fields: &[&str]) -> Reply {
        self.send(path, fields).await.reply().await
    }

    /// The bytes `first..=last`.
    pub async fn range(&self, path: &str, first: usize, last: usize) -> Reply {
        self.get(path, &[&format!("Range: bytes={first}-{last}")]).await
    }
}
