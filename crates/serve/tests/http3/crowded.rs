//! When as many connections are open as may be: who makes room, and who is refused.

use std::sync::atomic::Ordering::Relaxed;

use quinn::{ConnectionError, TransportConfig};
use serve::{Limits, Shed};
use tokio::net::TcpStream;

use crate::support::{Hello, Server, until};

fn one_place() -> Limits {
    Limits { connections_max: 1, ..Limits::default() }
}

#[tokio::test]
async fn a_connection_on_which_nothing_is_asked_makes_room() {
    let server = Server::start(Hello, one_place());
    let mut browser = server.connect().await;
    assert_eq!(browser.get("/").await.1, b"onetwo");
    let _next = TcpStream::connect(server.tcp).await.unwrap();
    let ended = browser.ended.await.unwrap();
    assert!(ended.is_h3_no_error(), "{ended:?}");
    until(|| server.counters.accepted.load(Relaxed) == 2).await;
    assert_eq!((server.counters.shed(Shed::Idle), server.counters.shed(Shed::Slow)), (1, 0));
    assert_eq!(server.counters.malformed.load(Relaxed), 0);
}

/// Clients then ask over TCP, where they may wait.
#[tokio::test]
async fn a_newcomer_is_refused_at_once() {
    let server = Server::start(Hello, one_place());
    let mut browser = server.connect().await;
    let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let config = server.client_config(TransportConfig::default());
    let connecting = endpoint.connect_with(config, server.address, "a.example").unwrap();
    let refused = connecting.await.unwrap_err();
    // CONNECTION_REFUSED (RFC 9000 section 20.1).
    let ConnectionError::ConnectionClosed(close) = &refused else { panic!("{refused:?}") };
    assert_eq!(u64::from(close.error_code), 2, "{refused:?}");
    assert_eq!(server.counters.h3_refused.load(Relaxed), 1);
    assert_eq!(browser.get("/").await.1, b"onetwo", "who is there is served");
    assert_eq!(server.counters.shed(Shed::Idle), 0);
}
