//! Two edges of one project in front of one master, each host a process of its own.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{cacheboy, certificate, output, until};

const FIRST: &str = r#"
[host]
name = "one"
state_dir = "one"

[admin]
listen = "unix:one.sock"

[[tls.certificate]]
chain = "tls/chain.pem"
key = "tls/key.pem"

[follow]
node_map = ["http://NET.1:7083/node-map"]

[master]
listen = ["NET.1:7082"]
tree = "tree"

[health]
listen = ["NET.1:7083"]
maps = "maps"

[health.probe]
port = 7080

[edge]
listen = ["NET.1:7080", { address = "NET.1:7443", tls = true, http3 = true }]
drain_notice_s = 0

[[edge.store]]
path = "cache-one"
size = "1 GiB"

[[edge.log]]
path = "access.log"
format = "json"
"#;

const SECOND: &str = r#"
[host]
name = "two"
state_dir = "two"

[admin]
listen = "unix:two.sock"

[[tls.certificate]]
chain = "tls/chain.pem"
key = "tls/key.pem"

[follow]
node_map = ["http://NET.1:7083/node-map"]

[edge]
listen = ["NET.2:7080", { address = "NET.2:7443", tls = true, http3 = true }]
drain_notice_s = 0

[[edge.store]]
path = "cache-two"
size = "1 GiB"
"#;

const MAP: &str = r#"
[site.here]

[node.one]
site = "here"
addresses = ["NET.1"]

[node.two]
site = "here"
addresses = ["NET.2"]

[pool]
all = { one = 1, two = 1 }

[map.default]
default = ["all"]

[zone."cdn.example"]
ns = ["ns1.cdn.example"]
soa = { contact = "noc.cdn.example", negative_ttl_s = 60 }

[zone."cdn.example".host]
"ns1.cdn.example" = ["NET.1"]

[project.files]
name = "files.cdn.example"
hosts = ["*"]
map = "default"

[project.files.master.here]
url = "http://NET.1:7082"
"#;

const HOSTS: [&str; 2] = ["one", "two"];

fn spawn(dir: &Path, host: &str) -> Child {
    let log = dir.join(format!("{host}.log"));
    let log = fs::File::options().create(true).append(true).open(log).unwrap();
    let mut command = cacheboy();
    command.args(["run", "--end-with-parent", "--config"]).arg(dir.join(format!("{host}.toml")));
    command.stderr(log).stdout(Stdio::null()).spawn().unwrap()
}

/// The running network; ends with this value.
pub(crate) struct Network {
    dir: tempfile::TempDir,
    /// The first three numbers of its addresses.
    net: &'static str,
    /// The digest of the key of its edges' certificate, as browsers know it.
    key_digest: String,
    hosts: Vec<Child>,
}

impl Network {
    /// Starts it with these `[[project.files.path]]` and waits until both edges serve.
    pub(crate) fn start(net: &'static str, paths: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["tree", "maps"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        let write = |name: &str, text: &str| {
            fs::write(dir.path().join(name), text.replace("NET", net)).unwrap();
        };
        write("maps/all.toml", &format!("{MAP}{paths}"));
        write("one.toml", FIRST);
        write("two.toml", SECOND);
        write("tree/.cacheboy-tree", "");
        write("tree/hello", "hello\n");
        let addresses = [format!("{net}.1"), format!("{net}.2")];
        let key_digest = certificate::make(&dir.path().join("tls"), &addresses);
        let hosts = HOSTS.map(|host| spawn(dir.path(), host)).into();
        let network = Self { dir, net, key_digest, hosts };
        (0..2).for_each(|edge| network.wait_for(edge));
        network
    }

    /// Waits until an edge serves.
    fn wait_for(&self, edge: usize) {
        let url = format!("http://{}/hello", self.edge(edge));
        until("an edge serves", || {
            output(Command::new("curl").args(["-s", &url])).out == "hello\n"
        });
    }

    /// Ends the host of an edge by a signal (`TERM`: with all it holds made durable) and starts it again.
    pub(crate) fn restart(&mut self, edge: usize, signal: &str) {
        self.kill(edge, signal);
        self.spawn(edge);
        self.wait_for(edge);
    }

    /// Ends the host of an edge by a signal.
    pub(crate) fn kill(&mut self, edge: usize, signal: &str) {
        self.signal(edge, signal);
        self.hosts[edge].wait().unwrap();
    }

    /// Sends the host of an edge a signal.
    pub(crate) fn signal(&self, edge: usize, signal: &str) {
        let pid = self.hosts[edge].id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }

    /// Starts the host of an edge, which may not come to serve.
    pub(crate) fn spawn(&mut self, edge: usize) {
        self.hosts[edge] = spawn(self.dir.path(), HOSTS[edge]);
    }

    /// Where configs and admin sockets lie, `one.toml`, `one.sock` and so on.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Where an edge serves: an even number is the first, an odd one the second.
    pub(crate) fn edge(&self, number: usize) -> SocketAddr {
        format!("{}.{}:7080", self.net, number % 2 + 1).parse().unwrap()
    }

    /// Where it serves over TLS.
    pub(crate) fn tls_edge(&self, number: usize) -> SocketAddr {
        SocketAddr::new(self.edge(number).ip(), 7443)
    }

    /// The certificate of both edges.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.dir.path().join("tls/chain.pem")
    }

    /// The digest of its key, as browsers are told whom to trust.
    pub(crate) fn key_digest(&self) -> &str {
        &self.key_digest
    }

    /// What the master serves.
    pub(crate) fn tree(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    /// A folder for a client, made.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let folder = self.dir.path().join("clients").join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// `/status` of a host.
    pub(crate) fn status(&self, host: &str) -> serde_json::Value {
        serde_json::from_str(&self.admin(host, "status")).unwrap()
    }

    /// The sum of all samples of a metric of a host.
    pub(crate) fn metric(&self, host: &str, name: &str) -> u64 {
        let text = self.admin(host, "metrics");
        let samples = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        samples.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    /// A page of the admin listener of a host.
    pub(crate) fn admin(&self, host: &str, page: &str) -> String {
        let mut get = Command::new("curl");
        get.args(["-sS", "--unix-socket"]).arg(self.dir.path().join(format!("{host}.sock")));
        output(get.arg(format!("http://admin/{page}"))).out
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in &mut self.hosts {
            let _ = host.kill();
            let _ = host.wait();
        }
    }
}
