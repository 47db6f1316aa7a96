//! A location database that would move many clients is not taken into use by a running DNS server
//! until somebody says so.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command, Stdio};

use locate::Evidence;
use locate::mmdb_write::Writer;
use model::{CountryCode, NodeState, State};
use nodemap::{NodeMap, NodeStates};
use support::{Ran, cacheboy, output, until};

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

[map.default]
default = ["far"]
country = { DE = ["near"] }

[zone."cdn.example"]
ns = ["ns1.cdn.example"]
soa = { contact = "noc.cdn.example", negative_ttl_s = 60 }
[zone."cdn.example".host]
"ns1.cdn.example" = ["192.0.2.53"]

[project.files]
name = "files.cdn.example"
hosts = ["files.example"]
map = "default"
master.here.url = "http://127.0.0.1:7082"
"#;

const DNS: &str = r#"
[host]
name = "ns1"
state_dir = "state"

[admin]
listen = "unix:admin.sock"

[follow]
node_map = ["file:map.json"]

[location]
country = "country.mmdb"

[dns]
listen = ["127.83.12.3:7053"]
"#;

const FAR: &str = "198.51.100.10";
const NEAR: &str = "198.51.100.20";

/// A DNS server that ends with the test, and its folder.
struct Stage {
    dir: tempfile::TempDir,
    server: Child,
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Stage {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let map = nodemap::admin::load(&[("all.toml".into(), MAP.to_owned())]).unwrap();
        let up = NodeState::new(State::Up, "test", 0);
        let states = map
            .nodes
            .keys()
            .map(|name| (name.clone(), NodeStates { v4: Some(up.clone()), v6: None }));
        let states: BTreeMap<_, _> = states.collect();
        let map = NodeMap::new(1_790_000_000_000, "test", map, states);
        fs::write(dir.path().join("map.json"), serde_json::to_string(&map).unwrap()).unwrap();
        fs::write(dir.path().join("dns.toml"), DNS).unwrap();
        write_database(&dir, "192.0.2.0/24");
        let log = fs::File::create(dir.path().join("log")).unwrap();
        let mut command = cacheboy();
        command.args(["dns", "--config", "dns.toml"]).current_dir(dir.path()).stdin(Stdio::null());
        let server = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        Self { dir, server }
    }

    fn cacheboy(&self, words: &[&str]) -> Ran {
        let mut command = cacheboy();
        output(command.args(words).args(["--config", "dns.toml"]).current_dir(self.dir.path()))
    }

    fn serves(&self, client: &str, node: &str) {
        until("the answer follows", || answer(client) == node);
    }
}

/// Writes a database that puts `prefix` into Germany.
fn write_database(dir: &tempfile::TempDir, prefix: &str) {
    let country: CountryCode = "DE".parse().unwrap();
    let evidence = Evidence { asn: None, country: Some(country), continent: country.continent() };
    let mut writer = Writer::new("Test-Country", "networks of a test", 1_790_000_000);
    writer.insert(prefix.parse().unwrap(), &locate::testing::record(evidence, None));
    rt::file::write_atomic(&dir.path().join("country.mmdb"), &writer.finish()).unwrap();
}

/// The address that a client of this network is given.
fn answer(network: &str) -> String {
    let mut dig = Command::new("dig");
    dig.args(["@127.83.12.3", "-p", "7053", "+short", "+norecurse", "+tries=1", "+time=2"]);
    let asked = dig.arg(format!("+subnet={network}")).args(["files.cdn.example", "A"]);
    output(asked).out.trim().to_owned()
}

#[test]
fn a_database_that_moves_many_is_held_until_somebody_confirms_it() {
    let stage = Stage::start();
    stage.serves("192.0.2.0/24", NEAR);
    stage.serves("203.0.113.0/24", FAR);
    let info = stage.cacheboy(&["geoip", "info"]);
    assert_eq!(info.code, 0, "{}{}", info.out, info.err);
    assert!(
        info.out.contains("Test-Country, built 2026-09-21 14:13:20Z, 1 networks"),
        "{}",
        info.out
    );
    assert_eq!(stage.cacheboy(&["geoip", "confirm"]).code, 1, "nothing waits");

    write_database(&stage.dir, "203.0.113.0/24");
    let held = "100 % of all known addresses answered otherwise, and 20 % may go";
    until("the database is held", || {
        let info = stage.cacheboy(&["geoip", "info"]);
        info.code == 1 && info.out.contains(held)
    });
    assert_eq!((answer("192.0.2.0/24").as_str(), answer("203.0.113.0/24").as_str()), (NEAR, FAR));
    let confirmed = stage.cacheboy(&["geoip", "confirm"]);
    assert_eq!(confirmed.code, 0, "{}{}", confirmed.out, confirmed.err);
    stage.serves("203.0.113.0/24", NEAR);
    stage.serves("192.0.2.0/24", FAR);
    assert_eq!(stage.cacheboy(&["geoip", "info"]).code, 0);
}
