//! `cacheboy node drain` on running edges: health takes the node out, clients who come are served, a
//! restart changes nothing, and undraining brings it back.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

mod support;

use std::fs;
use std::process::Command;

use serde_json::Value;

use support::network::Network;
use support::{Ran, cacheboy, output, until};

/// A command about the second edge by its own config.
fn node(network: &Network, args: &[&str]) -> Ran {
    let config = network.dir().join("two.toml");
    output(cacheboy().arg("node").args(args).arg("--config").arg(config))
}

/// What health publishes of the second edge: its state and the reason.
fn state(network: &Network) -> (String, String) {
    let view = &network.status("one")["health"]["nodes"]["two"]["v4"];
    let text = |key: &str| view[key].as_str().unwrap_or_default().to_owned();
    (text("state"), text("reason"))
}

/// Status and words of the health page of the second edge.
fn health_page(network: &Network) -> String {
    let url = format!("http://{}/.well-known/cacheboy/health", network.edge(1));
    output(Command::new("curl").args(["-sS", "-w", "%{http_code}", &url])).out
}

#[test]
fn a_drained_node_is_taken_out_serves_on_and_comes_back() {
    let mut network = Network::start("127.80.8", "");
    let config = network.dir().join("one.toml");
    let text = fs::read_to_string(&config).unwrap();
    let quick = "[health.probe]\ninterval_ms = 200\ntimeout_ms = 200";
    fs::write(&config, text.replace("[health.probe]", quick)).unwrap();
    network.restart(0, "TERM");
    until("health has seen it up", || state(&network).0 == "up");

    let ran = node(&network, &["drain", "--reason", "new disk", "--for", "2h"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(
        ran.out.starts_with("two: drained since 2") && ran.out.ends_with("Z: new disk\n"),
        "{}",
        ran.out
    );
    assert_eq!(health_page(&network), "draining\n503");
    until("health takes it out", || state(&network).0 == "down");
    assert!(state(&network).1.contains("503"), "{}", state(&network).1);
    let url = format!("http://{}/hello", network.edge(1));
    assert_eq!(output(Command::new("curl").args(["-sS", &url])).out, "hello\n");

    network.restart(1, "KILL");
    assert_eq!(health_page(&network), "draining\n503", "a restart ends nothing");
    let ran = node(&network, &["status", "--json"]);
    let status: Value = serde_json::from_str(&ran.out).expect(&ran.err);
    assert_eq!((&status["node"], &status["state"]), (&"two".into(), &"drained".into()));
    assert_eq!(status["drain"]["reason"], "new disk");
    let ran = node(&network, &["status"]);
    assert!(ran.out.contains("state        drained since 2"), "{}", ran.out);

    let ran = node(&network, &["undrain"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "two: up\n", ""));
    assert_eq!(health_page(&network), "up\n200");
    until("health brings it back", || state(&network).0 == "up");

    let ran = node(&network, &["drain", "--for", "1s", "--json"]);
    let receipt: Value = serde_json::from_str(&ran.out).expect(&ran.err);
    assert_eq!((&receipt["state"], &receipt["drain"]["reason"]), (&"drained".into(), &"".into()));
    until("it ends by itself", || health_page(&network) == "up\n200");
    until("its file is gone", || !network.dir().join("two/edge-drain.json").exists());
}

#[test]
fn a_node_that_cannot_be_drained_says_why() {
    let network = Network::start("127.80.9", "");
    let config = network.dir().join("one.toml");
    let ran = output(cacheboy().args(["node", "drain", "two", "--config"]).arg(&config));
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("two is not drained: the maps do not say where"), "{}", ran.err);
    let ran = output(cacheboy().args(["node", "drain", "three", "--config"]).arg(&config));
    assert!(ran.err.contains("there is no node three in the maps"), "{}", ran.err);
    let ran = output(cacheboy().args(["node", "undrain", "--node", "http://127.80.9.9:1"]));
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("is not undrained: cannot connect to"), "{}", ran.err);
    let long = "x".repeat(201);
    let ran = node(&network, &["drain", "--reason", &long]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("the reason is longer than 200 characters"), "{}", ran.err);
    assert_eq!(health_page(&network), "up\n200");
}
