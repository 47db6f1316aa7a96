//! One probe, against every kind of node.

use std::collections::BTreeMap;
use std::net::IpAddr;

use health_proto::Failure;

use super::fake::{Mood, Node};
use crate::ProbeParams;
use crate::probe::{BODY_BYTES_MAX, Prober};

fn prober(node: &Node, timeout_ms: u64) -> Prober {
    let timing = health_proto::Params { timeout_ms, ..health_proto::Params::default() };
    let connect_to = BTreeMap::from([(address(), node.address())]);
    Prober::new(ProbeParams { timing, connect_to, ..ProbeParams::default() }).unwrap()
}

fn address() -> IpAddr {
    "2001:db8::7".parse().unwrap()
}

fn with_body(bytes: usize) -> Mood {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n");
    Mood::says([head.as_bytes(), &vec![b'x'; bytes]].concat())
}

#[tokio::test]
async fn each_kind_of_answer_has_its_word() {
    let mut node = Node::new(Mood::well()).await;
    let prober = prober(&node, 10_000);
    let too_large = Failure::TooLarge { bytes_max: BODY_BYTES_MAX };
    for (mood, expected) in [
        (Mood::well(), None),
        (Mood::says("HTTP/1.0 200 OK\r\n\r\nup until the end"), None),
        (with_body(BODY_BYTES_MAX), None),
        (with_body(BODY_BYTES_MAX + 1), Some(too_large)),
        (Mood::says("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n"), Some(Failure::Status(503))),
        (Mood::says("HTTP/1.1 204 None\r\n\r\n"), Some(Failure::Status(204))),
        (
            Mood::says("HTTP/1.1 301 Gone\r\nlocation: /\r\ncontent-length: 0\r\n\r\n"),
            Some(Failure::Status(301)),
        ),
        (Mood::says("SSH-2.0-OpenSSH_9.2\r\n\r\n"), Some(Failure::NotHttp)),
        (
            Mood::says("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"),
            Some(Failure::NotHttp),
        ),
        (Mood::says(""), Some(Failure::Closed)),
        (Mood::says("HTTP/1.1 200 OK\r\nconten"), Some(Failure::Closed)),
        (Mood::says("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"), Some(Failure::Closed)),
    ] {
        node.feels(mood.clone()).await;
        assert_eq!(prober.probe(address()).await.err(), expected, "{mood:?}");
    }
    node.refuses().await;
    assert_eq!(prober.probe(address()).await.err(), Some(Failure::Refused));
}

#[tokio::test]
async fn the_timeout_covers_the_whole_answer_and_closes_the_connection() {
    let mut node = Node::new(Mood::Hangs(Vec::new())).await;
    let prober = prober(&node, 50);
    let silent = Some(Failure::NoAnswer { timeout_ms: 50 });
    for part in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n1"] {
        node.feels(Mood::Hangs(part.into())).await;
        assert_eq!(prober.probe(address()).await.err(), silent, "{part:?}");
        while node.seen.recv().await.unwrap() != "gone" {}
    }
}

#[tokio::test]
async fn the_request_is_for_the_address_in_the_map_over_the_address_it_is_mapped_to() {
    let mut node = Node::new(Mood::well()).await;
    prober(&node, 10_000).probe(address()).await.unwrap();
    let head = node.seen.recv().await.unwrap();
    assert!(head.starts_with("GET /.well-known/cacheboy/health HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nhost: [2001:db8::7]\r\n"), "{head}");
    assert!(head.contains("\r\nuser-agent: cacheboy-health/"), "{head}");
}
