//! Thousands of mixed requests over every protocol, many of whose clients go away: what comes is
//! right to the byte, and so in the access log and the metrics. And a crowd that does nothing keeps what it has. `tests/bench/prove.sh` does the same
//! with many more.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

#[path = "../bench/prove/abuse.rs"]
mod abuse;
#[path = "../bench/prove/admin.rs"]
mod admin;
#[path = "../bench/prove/ask.rs"]
mod ask;
#[path = "../bench/prove/attack.rs"]
mod attack;
#[path = "../bench/prove/books.rs"]
mod books;
#[path = "../bench/prove/cap.rs"]
mod cap;
#[path = "../bench/prove/crowd.rs"]
mod crowd;
#[path = "../bench/prove/edge.rs"]
mod edge;
#[allow(dead_code, unreachable_pub, reason = "of the tests of `serve`")]
#[path = "../../crates/serve/tests/support/frames.rs"]
mod frames;
#[path = "../bench/prove/http1.rs"]
mod http1;
#[path = "../bench/prove/http2.rs"]
mod http2;
#[path = "../bench/prove/http3.rs"]
mod http3;
#[path = "../bench/prove/judge.rs"]
mod judge;
#[path = "../bench/prove/load.rs"]
mod load;
#[path = "../bench/prove/mixed.rs"]
mod mixed;
#[path = "../bench/prove/objects.rs"]
mod objects;
#[path = "../bench/prove/restart.rs"]
mod restart;
mod support;
#[path = "../bench/prove/tls.rs"]
mod tls;

use std::fs;

use abuse::Abused;
use attack::Abuse;
use books::Books;
use cap::{Cap, Networks};
use crowd::Crowd;
use edge::{Edge, Way};
use mixed::Mixed;
use support::network::Network;

/// Changes the config of the first edge, which then begins anew.
fn configure(network: &mut Network, more: &str) {
    let config = network.dir().join("one.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}{more}")).unwrap();
    network.restart(0, "TERM");
}

fn edge(network: &Network) -> Edge {
    Edge {
        http: network.edge(0),
        https: Some(network.tls_edge(0)),
        certificate: Some(network.certificate()),
        pid: None,
        tree: network.tree(),
        from: None,
    }
}

#[tokio::test]
async fn every_byte_of_mixed_requests_is_right() {
    let network = Network::start("127.80.8", "");
    let mixed = Mixed {
        edge: edge(&network),
        books: Books {
            log: Some(network.dir().join("access.log")),
            admin: Some(network.dir().join("one.sock")),
        },
        ways: vec![Way::H1, Way::H1Pipelined, Way::Https, Way::H2c, Way::H2, Way::H3],
        requests: 1_500,
        clients: 20,
        large_mib: 8,
        seed: 1,
        restarts: 0,
    };
    mixed::run(&mixed).await.unwrap();
}

#[tokio::test]
async fn idle_connections_and_slow_readers_keep_theirs_and_others_are_served() {
    let network = Network::start("127.80.9", "");
    let within = f64::INFINITY; // how quick it is, this busy machine cannot tell
    let edge = edge(&network);
    let crowd = Crowd { edge, idle: 300, slow: 50, rate: 50, seconds: 2, within };
    crowd::run(&crowd).await.unwrap();
}

#[tokio::test]
async fn abuse_is_ended_as_documented_and_counted() {
    let mut network = Network::start("127.80.14", "");
    configure(&mut network, "[edge.limits]\nconnections = 500\nhead_timeout_s = 4\n");
    let kinds = vec![
        Abuse::SlowReads,
        Abuse::RapidReset,
        Abuse::Continuation,
        Abuse::LargeHeads,
        Abuse::ZeroWindow,
        Abuse::Idle,
        Abuse::SlowHeads,
    ];
    let (edge, admin) = (edge(&network), network.dir().join("one.sock"));
    let (within, rss_mib_max) = (f64::INFINITY, 512);
    let (one_in, clients, rate, seconds) = (20, 5, 50, 1);
    let abused = Abused { edge, admin, kinds, one_in, clients, rate, seconds, within, rss_mib_max };
    abuse::run(&abused).await.unwrap();
}

#[tokio::test]
async fn a_cap_is_for_those_of_its_network() {
    let cap = "[[node.one.cap]]\nrate = \"100 Mbit/s\"\nasns = [64500]\n";
    let mut network = Network::start("127.80.15", cap);
    cap::write_networks(&Networks { file: network.dir().join("networks.mmdb") }).unwrap();
    configure(&mut network, "[location]\nasn = \"networks.mmdb\"\n");
    let (rate_within, share_within, free_times) = (f64::INFINITY, f64::INFINITY, 0.0);
    let (clients, ways) = (vec![1, 10], vec![Way::H1, Way::H2, Way::H3]);
    let (edge, bits_s, seconds) = (edge(&network), 100_000_000, 1);
    let cap = Cap { edge, bits_s, clients, ways, seconds, rate_within, share_within, free_times };
    cap::run(&cap).await.unwrap();
    let status = network.status("one");
    let caps = &status["edge"]["caps"][0];
    assert_eq!(caps["for"], "AS64500", "{status}");
    assert!(caps["granted_bytes"].as_u64() > Some(1 << 20), "{status}");
}
