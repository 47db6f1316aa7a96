//! A client whose resolver is far from it: DNS sends it to the wrong edge, which sends it on once.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use locate::Evidence;
use locate::mmdb_write::Writer;
use model::CountryCode;
use support::{cacheboy, output, until};

/// Its edge, `one`, is for everybody but Australia.
const FIRST: &str = r#"
[host]
name = "one"
state_dir = "one"
[follow]
node_map = ["http://127.82.0.1:7083/node-map"]
[location]
country = "country.mmdb"
[master]
listen = ["127.82.0.1:7082"]
tree = "tree"
[health]
listen = ["127.82.0.1:7083"]
maps = "maps"
[health.probe]
port = 7080
[dns]
listen = ["127.82.0.1:7053"]
[edge]
listen = ["127.82.0.1:7080"]
drain_notice_s = 0
[[edge.store]]
path = "cache-one"
size = "1 GiB"
"#;

const SECOND: &str = r#"
[host]
name = "two"
state_dir = "two"
[follow]
node_map = ["http://127.82.0.1:7083/node-map"]
[location]
country = "country.mmdb"
[edge]
listen = ["127.82.0.2:7080"]
drain_notice_s = 0
[[edge.store]]
path = "cache-two"
size = "1 GiB"
"#;

const MAP: &str = r#"
[site.here]
[node.one]
site = "here"
addresses = ["127.82.0.1"]
[node.two]
site = "here"
country = "AU"
addresses = ["127.82.0.2"]
[pool]
world = { one = 1 }
oceania = { two = 1 }
[map.default]
default = ["world", "oceania"]
country = { AU = ["oceania", "world"] }
[zone."cdn.example"]
ns = ["ns1.cdn.example"]
soa = { contact = "noc.cdn.example", negative_ttl_s = 60 }
[zone."cdn.example".host]
"ns1.cdn.example" = ["127.82.0.1"]
[project.files]
name = "files.cdn.example"
hosts = ["download.files.example", "files.cdn.example"]
map = "default"
redirect = true
redirect_above = "100 KiB"
alternates = true
[project.files.master.here]
url = "http://127.82.0.1:7082"
"#;

/// The hosts of the network; they end with this value.
struct Hosts(Vec<Child>);

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in &mut self.0 {
            let _ = host.kill();
            let _ = host.wait();
        }
    }
}

fn spawn(dir: &Path, host: &str) -> Child {
    let log = fs::File::create(dir.join(format!("{host}.log"))).unwrap();
    let mut command = cacheboy();
    command.args(["run", "--end-with-parent", "--config"]).arg(dir.join(format!("{host}.toml")));
    command.stderr(log).stdout(Stdio::null()).spawn().unwrap()
}

/// A database that has the client in Australia and its resolver in the United States.
fn write_database(path: &Path) {
    let mut writer = Writer::new("Test", "test", 0);
    for (prefix, country) in [("127.82.9.0/24", "AU"), ("198.51.100.0/24", "US")] {
        let country: CountryCode = country.parse().unwrap();
        let evidence =
            Evidence { asn: None, country: Some(country), continent: country.continent() };
        writer.insert(prefix.parse().unwrap(), &locate::testing::record(evidence, None));
    }
    fs::write(path, writer.finish()).unwrap();
}

/// What curl, as the client, is told of `path` at the edge `one`: status, number of redirects and who
/// sent the content, which goes to `to`.
fn fetch(path: &str, to: &Path) -> String {
    let mut curl = Command::new("curl");
    curl.args(["-sSL", "--interface", "127.82.9.1", "--max-redirs", "3", "-o"]).arg(to);
    curl.args(["--resolve", "files.cdn.example:7080:127.82.0.1"]);
    curl.args(["--resolve", "two.files.cdn.example:7080:127.82.0.2"]);
    curl.args(["-w", "%{http_code} %{num_redirects} %{remote_ip} %{url_effective}"]);
    output(curl.arg(format!("http://files.cdn.example:7080{path}"))).out
}

#[test]
fn a_client_of_a_far_resolver_is_sent_once_to_the_better_node() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    fs::create_dir_all(dir.path().join("tree")).unwrap();
    fs::create_dir_all(dir.path().join("maps")).unwrap();
    let content: Vec<u8> = (0..300_000u32).flat_map(|i| i.to_le_bytes()).collect();
    write("tree/.cacheboy-tree", b"");
    write("tree/large", &content);
    write("tree/small", b"small\n");
    write("maps/all.toml", MAP.as_bytes());
    write("one.toml", FIRST.as_bytes());
    write("two.toml", SECOND.as_bytes());
    write_database(&dir.path().join("country.mmdb"));
    let _hosts = Hosts(["one", "two"].map(|host| spawn(dir.path(), host)).into());
    let got = dir.path().join("got");

    // The resolver is in the United States: DNS gives the edge `one`, also to the client behind it.
    let answer = |subnet: &str| {
        let mut dig = Command::new("dig");
        dig.args(["@127.82.0.1", "-p", "7053", "+short", "+time=1", "+tries=1"]);
        output(dig.args([&format!("+subnet={subnet}"), "files.cdn.example", "A"])).out
    };
    until("DNS answers", || answer("198.51.100.0/24") == "127.82.0.1\n");
    assert_eq!(answer("127.82.9.0/24"), "127.82.0.2\n", "so it would be by its own address");

    // The edge knows better as soon as it knows that the object is large and that `two` is up.
    let sent_on = "200 1 127.82.0.2 http://two.files.cdn.example:7080/large?x=1";
    until("the client is sent on", || fetch("/large?x=1", &got) == sent_on);
    assert!(fs::read(&got).unwrap() == content, "the bytes are those of the master");
    let small = "200 0 127.82.0.1 http://files.cdn.example:7080/small";
    for _ in 0..2 {
        assert_eq!(fetch("/small", &got), small);
    }
    // It cannot use that node either: it is served, and the node is not told of the wish.
    let avoiding = "200 0 127.82.0.1 http://files.cdn.example:7080/large?x=1&avoid=two";
    assert_eq!(fetch("/large?x=1&avoid=two", &got), avoiding);
    assert!(fs::read(&got).unwrap() == content);
    let avoiding = "200 1 127.82.0.2 http://two.files.cdn.example:7080/small";
    assert_eq!(fetch("/small?avoid=one", &got), avoiding);

    let explained = |client: &str, node: &str| {
        let mut explain = cacheboy();
        explain.args(["explain", client, "files", "--at", node, "--config"]);
        let ran = output(explain.arg(dir.path().join("one.toml")));
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.out
    };
    let told = explained("127.82.9.1", "one");
    assert!(told.contains("302 to two: missteered, for objects of 100 KiB and more\n"), "{told}");
    // Only a node that was probed and found up is named.
    let alternates = "serves: belongs\n  names as alternates: one\n";
    until("both nodes are up", || explained("127.82.9.1", "two").contains(alternates));
    let told = explained("198.51.100.1", "one");
    assert!(told.contains("serves: belongs\n"), "{told}");
}
