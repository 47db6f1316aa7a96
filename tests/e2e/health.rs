//! The checker and those who follow it, as real processes: signed node maps, history, several checkers.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use support::network::Network;
use support::{Ran, cacheboy, output, until};

/// Edits the config of a host.
fn edit(network: &Network, host: &str, from: &str, to: &str) {
    let path = network.dir().join(format!("{host}.toml"));
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{from}");
    fs::write(path, text.replace(from, to)).unwrap();
}

fn minisign(dir: &Path, args: &[&str]) -> Ran {
    output(Command::new("minisign").args(args).current_dir(dir))
}

fn fetch(dir: &Path, url: &str, file: &str) {
    let ran = output(Command::new("curl").args(["-sS", "-o", file, url]).current_dir(dir));
    assert_eq!(ran.code, 0, "{}", ran.err);
}

/// S3: who lets in an edit that moves many sees first what it is.
#[test]
fn an_edit_that_moves_many_is_shown_and_let_in_by_name() {
    let network = Network::start("127.80.18", "");
    let maps = network.dir().join("maps");
    let map = fs::read_dir(&maps).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(&map).unwrap();
    let weights = |one: u32, two: u32| {
        let before = "all = { one = 1, two = 1 }";
        assert!(text.contains(before));
        fs::write(&map, text.replace(before, &format!("all = {{ one = {one}, two = {two} }}")))
            .unwrap();
    };
    let run = |words: &[&str]| {
        output(cacheboy().args(words).args(["--config", "one.toml"]).current_dir(network.dir()))
    };
    assert_eq!(run(&["map", "confirm"]).out, "no edit waits\n");
    weights(9, 1);
    let published = |weight: &str| {
        until("it is published", || {
            let ran = output(Command::new("curl").args(["-s", "http://127.80.18.1:7083/node-map"]));
            ran.out.contains(weight)
        });
    };
    published("\"one\": 9");
    weights(1, 9);
    until("the edit waits", || run(&["map", "confirm"]).code == 1);
    let shown = run(&["map", "confirm"]).out;
    assert!(shown.starts_with("it moves 80 % of the clients of a project; 50 % may"), "{shown}");
    assert!(shown.contains("  pool.all"), "{shown}");
    let id = shown.split("cacheboy map confirm ").nth(1).unwrap().split(' ').next().unwrap();
    assert_eq!(run(&["map", "confirm", "0123456789abcdef"]).code, 1, "another name");
    let confirmed = run(&["map", "confirm", id]);
    assert_eq!(confirmed.code, 0, "{}{}", confirmed.out, confirmed.err);
    published("\"two\": 9");
    assert_eq!(run(&["map", "confirm"]).out, "no edit waits\n");
}

#[test]
fn node_maps_are_signed_for_minisign_and_others_are_refused() {
    let mut network = Network::start("127.80.10", "");
    let dir = network.dir().to_owned();
    let ran = output(cacheboy().args(["map", "keygen", "key"]).current_dir(&dir));
    assert_eq!(ran.code, 0, "{}", ran.err);
    let again = output(cacheboy().args(["map", "keygen", "key"]).current_dir(&dir));
    assert_eq!(again.code, 1, "a key is not written over");
    let key = fs::read_to_string(dir.join("key.pub")).unwrap();
    let key = key.lines().last().unwrap();
    assert!(ran.out.contains(&format!("keys = [\"{key}\"]")), "{}", ran.out);

    edit(&network, "one", "maps = \"maps\"", "maps = \"maps\"\nkey = \"key\"");
    let follow = |keys: &str| format!("[follow]\nkeys = {keys}");
    edit(&network, "one", "[follow]", &follow(&format!("[\"{key}\"]")));
    edit(&network, "two", "[follow]", &follow(&format!("[\"{key}\"]")));
    network.restart(0, "TERM");
    network.restart(1, "TERM");
    let url = "http://127.80.10.1:7083/node-map";
    until("minisign takes the map", || {
        fetch(&dir, url, "map");
        fetch(&dir, &format!("{url}.minisig"), "map.minisig");
        // Between the two another map may have been published.
        minisign(&dir, &["-V", "-m", "map", "-p", "key.pub"]).code == 0
    });
    assert_eq!(network.metric("two", "cacheboy_host_node_map_errors_total"), 0);

    // Another's key: the map is refused, and so is the one on disk.
    let ran = minisign(&dir, &["-G", "-W", "-s", "other", "-p", "other.pub"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let other = fs::read_to_string(dir.join("other.pub")).unwrap();
    let other = other.lines().last().unwrap();
    let map = minisign(&dir, &["-S", "-s", "key", "-m", "map", "-x", "hashed.minisig"]);
    assert_eq!(map.code, 0, "minisign signs with our key: {}", map.err);
    edit(&network, "two", key, other);
    network.kill(1, "TERM");
    network.spawn(1);
    until("two refuses", || {
        network.dir().join("two.sock").exists()
            && network.admin("two", "metrics").contains("reason=\"signature\"")
    });
    let generation = network.metric("two", "cacheboy_host_node_map_generation");
    assert_eq!(generation, 0, "nor the last good one");

    // The other key signs from now on.
    edit(&network, "one", "key = \"key\"", "key = \"other\"");
    edit(&network, "one", key, other);
    network.restart(0, "TERM");
    until("two follows", || network.metric("two", "cacheboy_host_node_map_generation") > 0);
}

/// A file of the repository.
fn top(path: &str) -> String {
    format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_alerts_are_about_metrics_that_exist() {
    let rules = fs::read_to_string(top("deploy/prometheus/cacheboy.rules.yml")).unwrap();
    let page = fs::read_to_string(top("docs/metrics.md")).unwrap();
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let exprs: Vec<&str> = rules.lines().filter(|line| line.contains(" expr: ")).collect();
    assert_eq!(exprs.len(), rules.matches("- alert: ").count());
    assert_eq!(exprs.len(), rules.matches("labels: { severity: ").count());
    for expr in exprs {
        let words = expr.split(|c: char| !is_name(c));
        let mut metrics = words.filter(|word| word.starts_with("cacheboy_")).peekable();
        assert!(metrics.peek().is_some(), "{expr}");
        for metric in metrics {
            assert!(page.contains(&format!("| `{metric}` |")), "there is no metric {metric}");
        }
    }
}

#[test]
fn the_examples_of_anycast_are_taken_by_bird_and_exabgp() {
    let bird = top("deploy/anycast/cacheboy.bird.conf");
    let ran = output(Command::new("bird").args(["-p", "-c", &bird]));
    assert_eq!(ran.code, 0, "{}", ran.err);
    let exabgp = top("deploy/anycast/cacheboy.exabgp.conf");
    let ran = output(Command::new("exabgp").args(["--test", &exabgp]));
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
}

#[test]
fn an_anycast_address_is_announced_while_the_edge_is_up_and_not_draining() {
    let network = Network::start("127.80.11", "");
    let serves = |address: &str| {
        let script = top("deploy/anycast/serves");
        output(Command::new("sh").args([&script, "edge", address])).code
    };
    let edge = network.edge(1).to_string();
    assert_eq!(serves(&edge), 0);
    assert_eq!(serves("127.80.11.9:7080"), 1);
    let config = network.dir().join("two.toml");
    let ran = output(cacheboy().args(["node", "drain", "--config"]).arg(&config));
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(serves(&edge), 1);
}

#[test]
fn the_whole_network_is_shown_and_checked() {
    let mut network = Network::start("127.80.12", "");
    edit(&network, "one", "[health.probe]", "[health.probe]\ninterval_ms = 200\ntimeout_ms = 200");
    network.restart(0, "TERM");
    let config = network.dir().join("two.toml");
    let status =
        |args: &[&str]| output(cacheboy().arg("status").args(args).arg("--config").arg(&config));
    until("all is well", || status(&["--check"]).out.contains("up=2 down=0"));
    assert_eq!(status(&["--check"]).code, 0);
    let shown = status(&[]).out;
    assert!(shown.starts_with("publisher   one\n"), "{shown}");
    let row = shown.lines().find(|line| line.starts_with("two ")).expect(&shown);
    assert!(row.contains(" v4      up "), "{row}");

    let of_one = |args: &[&str]| {
        let config = network.dir().join("one.toml");
        output(cacheboy().arg("map").args(args).arg("--config").arg(config))
    };
    let shown = of_one(&["show"]).out;
    let first = shown.lines().nth(1).expect(&shown);
    assert!(first.ends_with("edit: 2 nodes, 1 projects"), "{shown}");
    let generation = first.split(' ').next().unwrap();
    let map = of_one(&["show", generation]).out;
    assert!(map.contains(&format!("\"generation\": {generation}")), "{map}");
    let ran = of_one(&["rollback", generation]);
    let said =
        format!("rolled back to {generation}, 0 changes; it holds until the maps are edited\n");
    assert_eq!((ran.code, ran.out), (0, said), "{}", ran.err);
    let ran = of_one(&["rollback", "1"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("nobody went back: generation 1 is not kept here"), "{}", ran.err);

    network.signal(1, "STOP");
    until("two is down", || status(&["--check"]).code == 1);
    let checked = status(&["--check"]).out;
    assert!(
        checked.starts_with("CACHEBOY WARNING - two v4 is down: no answer in 200 ms | "),
        "{checked}"
    );
    network.signal(1, "CONT");
    until("two is back", || status(&["--check"]).code == 0);
    network.kill(0, "KILL");
    let ran = status(&["--check"]);
    assert_eq!(ran.code, 3);
    assert!(ran.out.starts_with("CACHEBOY UNKNOWN - no checker answers"), "{}", ran.out);
}

#[test]
fn wrong_bytes_and_deaths_are_told_with_their_true_reasons() {
    let mut network = Network::start("127.80.13", "");
    let quick = "interval_ms = 200\ntimeout_ms = 200";
    edit(&network, "one", "[health.probe]", &format!("[health.probe]\n{quick}"));
    let good = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
    let canary = format!(
        "[[health.canary]]\nproject = \"files\"\nhost = \"files.cdn.example\"\nport = 7080\n\
         path = \"/hello\"\nsha256 = \"{good}\"\n{quick}\n\n[edge]"
    );
    edit(&network, "one", "[edge]", &canary);
    network.restart(0, "TERM");
    let check = |network: &Network| {
        let config = network.dir().join("two.toml");
        output(cacheboy().args(["status", "--check", "--config"]).arg(config))
    };
    until("all is well", || {
        let ran = check(&network);
        ran.code == 0 && ran.out.contains("up=2 ")
    });
    let told = |network: &Network, words: &str| {
        until(words, || check(network).out.contains(words));
    };
    edit(&network, "one", good, &"0".repeat(64));
    network.restart(0, "TERM");
    told(&network, "two v4 is unfit for files");
    assert!(check(&network).out.contains(&format!("wrong bytes: SHA-256 {good}, not 0000")));
    edit(&network, "one", "path = \"/hello\"", "path = \"/none\"");
    network.restart(0, "TERM");
    told(&network, "status 404");
    network.kill(1, "KILL");
    told(&network, "two v4 is down: connect refused");
    let has = |what: &str, to: &str| {
        let events = fs::read_to_string(network.dir().join("one/events.jsonl")).unwrap();
        let events = events.lines().filter_map(|line| serde_json::from_str(line).ok());
        let mut of_two = events.filter(|event: &serde_json::Value| event["node"] == "two");
        of_two.any(|event| event["what"] == what && event["to"] == to)
    };
    until("both are events", || has("fitness", "unfit") && has("node", "down"));
}
