//! Thousands of mixed requests over every protocol, many of whose clients go away: what comes is
//! right to the byte. `tests/bench/prove.sh mixed` asks the same a hundred thousand times.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

#[path = "../bench/prove/ask.rs"]
mod ask;
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

use mixed::{Mixed, Way};
use support::network::Network;

#[tokio::test]
async fn every_byte_of_mixed_requests_is_right() {
    let network = Network::start("127.80.8", "");
    let mixed = Mixed {
        http: network.edge(0),
        https: None,
        certificate: None,
        tree: network.tree(),
        ways: vec![Way::H1, Way::H1Pipelined],
        requests: 1_500,
        clients: 20,
        large_mib: 8,
        seed: 1,
    };
    mixed::run(&mixed).await.unwrap();
}
