//! From a router to answers: BIRD announces the network of a client with a next hop, takes it back, and
//! dies; the DNS server's answer, `explain` and `lookup` follow.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command, Stdio};

use model::{Family, NodeState, State};
use nodemap::{NodeMap, NodeStates};
use support::{cacheboy, output, until};

const MAP: &str = r#"
[site.here]
[node.far]
site = "here"
addresses = ["198.51.100.10"]
[node.near]
site = "here"
addresses = ["198.51.100.20"]
[pool]
far = { far = 1 }
near = { near = 1 }

[map.routed]
default = ["far"]
[[map.routed.rule]]
view = "exchange"
next_hop = "192.0.2.20"
pools = ["near"]

[zone."cdn.example"]
ns = ["ns1.cdn.example"]
soa = { contact = "noc.cdn.example", negative_ttl_s = 60 }
[zone."cdn.example".host]
"ns1.cdn.example" = ["192.0.2.53"]

[project.files]
name = "files.cdn.example"
hosts = ["files.example"]
map = "routed"
master.here.url = "http://127.0.0.1:7082"
"#;

const COLLECTOR: &str = r#"
[host]
name = "collector"
state_dir = "collector-state"

[bgp]
asn = 65000
identifier = "192.0.2.100"
listen = ["127.83.NET.1:1790"]
publish = ["127.83.NET.1:8054"]

[[bgp.peer]]
name = "router"
address = "127.83.NET.2"
asn = 65001
view = "exchange"
passive = true
"#;

const DNS: &str = r#"
[host]
name = "ns1"
state_dir = "dns-state"

[admin]
listen = "unix:admin.sock"

[follow]
node_map = ["file:map.json"]

[location]
routes = "http://127.83.NET.1:8054/routes"
routes_hold_s = 2
routes_move_percent = 100

[dns]
listen = ["127.83.NET.3:7053"]
"#;

const BIRD: &str = "\
router id 192.0.2.20;
log stderr all;
protocol device {}
protocol static far { ipv4; route 203.0.113.0/24 unreachable; }
protocol static clients { ipv4; route 192.0.2.128/25 unreachable; }
protocol bgp collector {
  local 127.83.NET.2 as 65001;
  neighbor 127.83.NET.1 port 1790 as 65000;
  multihop 4;
  strict bind;
  connect delay time 1;
  error wait time 1, 2;
  ipv4 { import none; export all; next hop address 192.0.2.20; };
}
";

/// Processes that end with the test, and their folder.
struct Stage {
    dir: tempfile::TempDir,
    /// Everybody is in 127.83.`net`.0/24.
    net: u8,
    children: BTreeMap<&'static str, Child>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        for child in self.children.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Stage {
    fn write(&self, name: &str, text: &str) {
        let text = text.replace("NET", &self.net.to_string());
        fs::write(self.dir.path().join(name), text).unwrap();
    }

    /// The address that a client of this network is given.
    fn answer(&self, network: &str) -> String {
        let mut dig = Command::new("dig");
        dig.arg(format!("@127.83.{}.3", self.net));
        dig.args(["-p", "7053", "+short", "+norecurse", "+tries=1", "+time=2"]);
        output(dig.arg(format!("+subnet={network}")).args(["files.cdn.example", "A"]))
            .out
            .trim()
            .to_owned()
    }

    fn start(&mut self, name: &'static str, command: &mut Command) {
        let log = self.dir.path().join(format!("{name}.log"));
        let log = fs::File::options().create(true).append(true).open(log).unwrap();
        let command = command.current_dir(self.dir.path()).stdin(Stdio::null());
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn();
        let child = child.unwrap_or_else(|error| panic!("{name}: {error}: tests/run installs it"));
        self.children.insert(name, child);
    }

    fn bird(&mut self) {
        self.start("bird", Command::new("bird").args(["-f", "-c", "bird.conf", "-s", "bird.ctl"]));
    }

    fn birdc(&self, words: &[&str]) {
        let control = self.dir.path().join("bird.ctl");
        let ran = output(Command::new("birdc").arg("-s").arg(control).args(words));
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    }

    fn kill(&mut self, name: &str) {
        let mut child = self.children.remove(name).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Waits until a client in the network that comes and goes gets this address, and the other one
    /// still gets `other`.
    fn serves(&self, client: &str, other: &str) {
        let mut last = (String::new(), String::new());
        let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until("the answer follows", || {
                last = (self.answer("192.0.2.200/32"), self.answer("203.0.113.9/32"));
                last == (client.to_owned(), other.to_owned())
            });
        }));
        let logs = |name: &str| fs::read_to_string(self.dir.path().join(name)).unwrap_or_default();
        assert!(
            waited.is_ok(),
            "{last:?}\n{}\n{}\n{}",
            logs("bird.log"),
            logs("dns.log"),
            logs("collector.log")
        );
    }

    fn explain(&self) -> String {
        let mut command = cacheboy();
        command.args(["explain", "--config", "dns.toml", "192.0.2.200", "files.cdn.example"]);
        let ran = output(command.current_dir(self.dir.path()));
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        ran.out
    }

    /// What the running server says that it has of the client.
    fn lookup(&self) -> String {
        let socket = self.dir.path().join("admin.sock");
        let mut command = Command::new("curl");
        command.args(["-s", "-m", "5", "--unix-socket"]).arg(socket);
        output(command.arg("http://admin/lookup?address=192.0.2.200")).out
    }
}

/// A node map with every node up.
fn node_map() -> String {
    let map = nodemap::admin::load(&[("all.toml".into(), MAP.to_owned())]).unwrap();
    let up = NodeState::new(State::Up, "test", 0);
    let states = map.nodes.iter().map(|(name, node)| {
        let of = |family| node.addresses_of(family).next().map(|_| up.clone());
        (name.clone(), NodeStates { v4: of(Family::V4), v6: of(Family::V6) })
    });
    let states: BTreeMap<_, _> = states.collect();
    serde_json::to_string(&NodeMap::new(1_790_000_000_000, "test", map, states)).unwrap()
}

const FAR: &str = "198.51.100.10";
const NEAR: &str = "198.51.100.20";

/// A folder with all configs, and a server alone.
fn stage(net: u8) -> Stage {
    let stage = Stage { dir: tempfile::tempdir().unwrap(), net, children: BTreeMap::new() };
    stage.write("map.json", &node_map());
    stage.write("collector.toml", COLLECTOR);
    stage.write("dns.toml", DNS);
    stage.write("bird.conf", BIRD);
    stage
}

/// The same with the collector in the server's process.
#[test]
fn a_server_that_is_its_own_collector_steers_by_its_routes() {
    let mut stage = stage(11);
    let dns = DNS.replace("http://127.83.NET.1:8054/routes", "local");
    let (_, bgp) = COLLECTOR.split_once("[bgp]").unwrap();
    let bgp = bgp.replace("publish = [\"127.83.NET.1:8054\"]\n", "");
    stage.write("dns.toml", &format!("{dns}\n[bgp]{bgp}"));
    stage.start("dns", cacheboy().args(["run", "--config", "dns.toml"]));
    stage.serves(FAR, FAR);
    stage.bird();
    stage.serves(NEAR, NEAR);
    stage.birdc(&["disable", "clients"]);
    stage.serves(FAR, NEAR);
    stage.birdc(&["enable", "clients"]);
    stage.serves(NEAR, NEAR);
    until("explain knows the route", || stage.explain().contains("next_hop"));
    // The session goes without a word: after the hold nobody is near.
    stage.kill("bird");
    stage.serves(FAR, FAR);
    stage.bird();
    stage.serves(NEAR, NEAR);
    until("the table is on disk", || stage.explain().contains("next_hop"));
    // A start without any router: the routes of before hold for their time.
    stage.kill("bird");
    stage.kill("dns");
    stage.start("dns", cacheboy().args(["run", "--config", "dns.toml"]));
    stage.serves(NEAR, NEAR);
    stage.serves(FAR, FAR);
    // Alone the server has no routes to follow.
    let mut command = cacheboy();
    command.args(["dns", "--config", "dns.toml"]).current_dir(stage.dir.path());
    let ran = output(&mut command);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("routes is \"local\""), "{}", ran.err);
}

#[test]
fn an_announced_network_is_steered_by_its_next_hop() {
    let mut stage = stage(9);
    stage.start("collector", cacheboy().args(["bgp", "--config", "collector.toml"]));
    stage.start("dns", cacheboy().args(["dns", "--config", "dns.toml"]));
    // No router yet: nobody is near.
    stage.serves(FAR, FAR);

    stage.bird();
    stage.serves(NEAR, NEAR);
    let lookup = stage.lookup();
    for part in ["192.0.2.128/25", "192.0.2.20", "exchange", "65001"] {
        assert!(lookup.contains(part), "{part} is not in {lookup}");
    }
    // The command reads what the server keeps of the table on disk.
    until("explain knows the route", || stage.explain().contains("next_hop"));
    let explained = stage.explain();
    for part in ["192.0.2.20", NEAR] {
        assert!(explained.contains(part), "{part} is not in {explained}");
    }

    // Withdrawn alone: its neighbour stays where it is.
    stage.birdc(&["disable", "clients"]);
    stage.serves(FAR, NEAR);
    stage.birdc(&["enable", "clients"]);
    stage.serves(NEAR, NEAR);

    // The session goes without a word: after the hold nobody is near.
    stage.kill("bird");
    stage.serves(FAR, FAR);
    assert!(!stage.lookup().contains("192.0.2.128/25"));
    stage.bird();
    stage.serves(NEAR, NEAR);

    // Without the collector everything stays, over a restart of the server too: what it has is on disk
    // within 10 s.
    until("the table is on disk", || stage.explain().contains("next_hop"));
    stage.kill("collector");
    stage.kill("dns");
    stage.start("dns", cacheboy().args(["dns", "--config", "dns.toml"]));
    stage.serves(NEAR, NEAR);
}
