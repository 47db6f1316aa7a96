//! The role over real loopback sockets, with nodes that do as they are told.

mod certificates;
mod fake;
mod peers;
mod probing;
mod serving;
mod signing;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use model::{Family, NodeState, State};
use nodemap::NodeMap;
use rt::Context;
use rt::client::{self, Get, Reply};
use rt::steering::LocationParams;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::{Health, Params, ProbeParams};

/// When a test gives up waiting for a condition. Nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A maps file with these nodes, and what a map must have around them.
pub(crate) fn maps_of(nodes: &[(&str, &str)]) -> String {
    let mut text = "[site.here]\n".to_owned();
    for (node, address) in nodes {
        text += &format!("[node.{node}]\nsite = \"here\"\naddresses = [\"{address}\"]\n");
    }
    text += "[pool]\nall = { ";
    text += &nodes.iter().map(|(node, _)| format!("{node} = 1")).collect::<Vec<_>>().join(", ");
    text + " }\n[map.default]\ndefault = [\"all\"]\n\
            [zone.\"cdn.example\"]\nns = [\"ns1.example\"]\nsoa = { contact = \"noc.example\" }\n\
            [project.x]\nname = \"x.cdn.example\"\nhosts = [\"x.example\"]\nmap = \"default\"\n\
            master = { m1 = { url = \"http://m1.example\" } }\n"
}

/// Folders for a checker, kept over its restarts.
struct Home {
    dir: TempDir,
    connect_to: BTreeMap<std::net::IpAddr, SocketAddr>,
}

impl Home {
    fn new(maps: &str) -> Self {
        let home = Self { dir: tempfile::tempdir().unwrap(), connect_to: BTreeMap::new() };
        fs::create_dir(home.dir.path().join("maps")).unwrap();
        fs::create_dir(home.dir.path().join("state")).unwrap();
        home.write(maps);
        home
    }

    fn with(mut self, address: &str, node: &fake::Node) -> Self {
        self.connect_to.insert(address.parse().unwrap(), node.address());
        self
    }

    fn write(&self, maps: &str) {
        fs::write(self.dir.path().join("maps/all.toml"), maps).unwrap();
    }

    fn state_file(&self) -> std::path::PathBuf {
        self.dir.path().join("state/node-map.json")
    }

    fn params(&self) -> Params {
        let timing = health_proto::Params {
            interval_ms: 300,
            timeout_ms: 300,
            rise: 2,
            fall: 2,
            in_flight_max: 16,
        };
        Params {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            maps: self.dir.path().join("maps"),
            key: None,
            peers: Vec::new(),
            webhook: None,
            acme: None,
            location: LocationParams::default(),
            setup: health_proto::Setup::default(),
            probe: ProbeParams {
                timing,
                connect_to: self.connect_to.clone(),
                ..ProbeParams::default()
            },
        }
    }

    fn context(&self) -> Context {
        context(&self.dir.path().join("state"))
    }

    async fn start(&self) -> Running {
        self.start_with(self.params()).await
    }

    async fn start_with(&self, params: Params) -> Running {
        let context = self.context();
        let health = Health::bind(params, context.clone()).await.unwrap();
        let address = health.addresses()[0];
        Running { address, context, task: tokio::spawn(health.serve()) }
    }
}

fn context(state_dir: &Path) -> Context {
    Context::new("hc".parse().unwrap(), state_dir.to_owned())
}

/// A checker at work.
struct Running {
    address: SocketAddr,
    context: Context,
    task: JoinHandle<()>,
}

impl Running {
    async fn get(&self, path: &str, headers: &[(&'static str, &str)]) -> Reply {
        get(self.address, path, headers).await
    }

    async fn map(&self) -> NodeMap {
        NodeMap::parse(&self.get("/node-map", &[]).await.body).unwrap()
    }

    async fn status(&self) -> serde_json::Value {
        serde_json::from_slice(&self.get("/status", &[]).await.body).unwrap()
    }

    /// The first published map that is as wanted, by long poll.
    async fn map_where(&self, what: &str, wanted: impl Fn(&NodeMap) -> bool) -> NodeMap {
        let mut last = self.map().await;
        let look = async {
            while !wanted(&last) {
                let tag = format!("\"{}\"", last.generation);
                let reply = self.get("/node-map?wait=30", &[("if-none-match", &tag)]).await;
                if reply.status == StatusCode::OK {
                    last = NodeMap::parse(&reply.body).unwrap();
                }
            }
        };
        let found = tokio::time::timeout(PATIENCE, look).await;
        assert!(found.is_ok(), "never {what}: {:#?}", last.states);
        last
    }

    async fn node_is(&self, node: &str, state: State) -> NodeState {
        let map = self.map_where(&format!("{node} {state}"), |m| of(m, node).state == state).await;
        of(&map, node).clone()
    }

    async fn status_where(&self, what: &str, wanted: impl Fn(&serde_json::Value) -> bool) {
        let look = async {
            while !wanted(&self.status().await) {
                tokio::task::yield_now().await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, look).await.is_ok(), "never {what}");
    }

    async fn stop(self) {
        self.context.shutdown.end_soon();
        tokio::time::timeout(PATIENCE, self.task).await.unwrap().unwrap();
    }
}

async fn get(address: SocketAddr, path: &str, headers: &[(&'static str, &str)]) -> Reply {
    let headers = headers.iter().map(|(name, value)| {
        (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
    });
    let ask = Get {
        url: format!("http://{address}{path}").parse().unwrap(),
        connect_to: None,
        headers: HeaderMap::from_iter(headers),
        timeout: PATIENCE,
        body_bytes_max: 1 << 20,
    };
    client::get(ask).await.unwrap()
}

fn of<'a>(map: &'a NodeMap, node: &str) -> &'a NodeState {
    map.states[node].get(Family::V4).unwrap()
}
