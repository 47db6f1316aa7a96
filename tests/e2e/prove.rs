//! Thousands of mixed requests over every protocol, many of whose clients go away: what comes is
//! right to the byte, and so in the access log and the metrics. And a crowd that does nothing keeps what it has. `tests/bench/prove.sh` does the same
//! with many more.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

#[path = "../bench/prove/ask.rs"]
mod ask;
#[path = "../bench/prove/books.rs"]
mod books;
#[path = "../bench/prove/crowd.rs"]
mod crowd;
#[path = "../bench/prove/edge.rs"]
mod edge;
#[path = "../bench/prove/http1.rs"]
mod http1;
#[path = "../bench/prove/http2.rs"]
mod http2;
#[path = "../bench/prove/http3.rs"]
mod http3;
#[path = "../bench/prove/judge.rs"]
mod judge;
#[path = "../bench/prove/mixed.rs"]
mod mixed;
#[path = "../bench/prove/objects.rs"]
mod objects;
mod support;
#[path = "../bench/prove/tls.rs"]
mod tls;

use books::Books;
use crowd::Crowd;
use edge::{Edge, Way};
use mixed::Mixed;
use support::network::Network;

fn edge(network: &Network) -> Edge {
    Edge {
        http: network.edge(0),
        https: Some(network.tls_edge(0)),
        certificate: Some(network.certificate()),
        pid: None,
        tree: network.tree(),
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
