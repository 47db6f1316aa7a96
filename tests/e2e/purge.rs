//! `cacheboy purge` against two running edges: what is purged is fetched anew, also after `kill -9`, and
//! who was not reached is named.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::fs;
use std::process::Command;

use support::network::Network;
use support::{Ran, cacheboy, output};

/// Puts a file into the tree that looks old: edges keep it for a day.
fn put(network: &Network, name: &str, text: &str) {
    let (new, file) = (network.tree().join(".new"), network.tree().join(name));
    fs::write(&new, text).unwrap();
    let touched = Command::new("touch").args(["-d", "2020-01-01"]).arg(&new).status().unwrap();
    assert!(touched.success());
    fs::rename(new, file).unwrap();
}

fn get(network: &Network, edge: usize, name: &str) -> String {
    let url = format!("http://{}/{name}", network.edge(edge));
    output(Command::new("curl").args(["-sS", &url])).out
}

/// A purge at both edges by their sockets.
fn purge(network: &Network, what: &[&str]) -> Ran {
    let mut command = cacheboy();
    command.arg("purge").args(what);
    for host in ["one", "two"] {
        let socket = network.dir().join(format!("{host}.sock"));
        command.arg("--node").arg(format!("unix:{}", socket.display()));
    }
    output(&mut command)
}

#[test]
fn what_is_purged_is_fetched_anew_and_stays_purged_after_a_kill() {
    let mut network = Network::start("127.80.5", "");
    for name in ["a", "b"] {
        put(&network, name, "old");
    }
    for edge in 0..2 {
        assert_eq!(
            (get(&network, edge, "a"), get(&network, edge, "b")),
            ("old".into(), "old".into())
        );
    }
    for name in ["a", "b"] {
        put(&network, name, "new");
    }
    network.restart(1, "TERM");
    assert_eq!(get(&network, 1, "a"), "old", "it is fresh for a day");
    let url = format!("http://{}/a", network.edge(0));
    let ran = purge(&network, &[&url, "--dry-run"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.out.matches("would purge /a of files, hard").count(), 2, "{}", ran.out);
    assert_eq!(ran.out.matches("; held 3 B, confirmed ").count(), 2, "{}", ran.out);
    assert_eq!(get(&network, 0, "a"), "old", "a dry run changes nothing");

    let ran = purge(&network, &[&url]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    for host in ["one", "two"] {
        let start = format!("{host}: purged /a of files, hard, at ");
        assert!(ran.out.lines().any(|line| line.starts_with(&start)), "{}", ran.out);
    }
    network.restart(1, "KILL");
    for edge in 0..2 {
        assert_eq!(
            (get(&network, edge, "a"), get(&network, edge, "b")),
            ("new".into(), "old".into())
        );
    }
    let ran = purge(&network, &["/*", "--project", "files", "--soft", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&ran.out).expect(&ran.err);
    assert_eq!((&document["nodes"], &document["failed"]), (&2.into(), &0.into()));
    assert_eq!(document["receipts"][0]["scope"], "prefix", "{document:#}");
    for edge in 0..2 {
        assert_eq!(get(&network, edge, "b"), "new");
        assert_eq!(network.status(["one", "two"][edge])["edge"]["purges"]["active"], 2);
    }
}

#[test]
fn who_did_not_purge_is_named_with_the_reason() {
    let network = Network::start("127.80.6", "");
    let config = network.dir().join("one.toml");
    let with_config =
        |what: &[&str]| output(cacheboy().arg("purge").args(what).arg("--config").arg(&config));
    let ran = with_config(&["--project", "files"]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.out.lines().any(|line| line.starts_with("one: purged all of files, hard, at ")));
    let two = ran.out.lines().find(|line| line.starts_with("two: ")).expect(&ran.out);
    assert!(two.starts_with("two: FAILED: the maps do not say where"), "{two}");
    assert!(two.contains("add admin to [node.two]"), "{two}");
    assert_eq!(ran.err, "cacheboy: 1 of 2 nodes did not purge: run it again when they can\n");

    let ran = with_config(&["--project", "film"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("there is no project film: the projects are files"), "{}", ran.err);
    let ran = with_config(&["files.example/a"]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.err.contains("is no URL with host and path: write http://HOST/PATH"),
        "{}",
        ran.err
    );

    let ran =
        output(cacheboy().args(["purge", "--project", "files", "--node", "http://127.80.6.9:1"]));
    assert_eq!(ran.code, 1);
    let start = "http://127.80.6.9:1: FAILED: cannot connect to http://127.80.6.9:1";
    assert!(ran.out.starts_with(start), "{}", ran.out);
}
