//! Frames that cost much and ask for nothing: each flood of HTTP/2 by a client that writes its frames
//! itself, and what it gets for it. Those of HTTP/3 are among the tests of its ends.
#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, missing_docs)]

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::{Request, Response};
use http_body_util::BodyExt;
use serve::{Body, Client, Goaway, Handler, Limits, RequestBody};
use support::Server;
use support::frames::*;
use tokio::io::AsyncWriteExt;

mod support;

/// Takes the content of a request, then says hello.
struct Hello;

impl Handler for Hello {
    type Visitor = Client;

    fn greet(&self, client: Client) -> Client {
        client
    }

    async fn handle(&self, request: Request<RequestBody>, _: &Client) -> Response<Body> {
        let _ = request.into_body().collect().await;
        Response::new(Body::bytes(Bytes::from_static(b"hello\n")))
    }
}

#[tokio::test]
async fn streams_that_are_reset_as_soon_as_asked_for_end_the_connection() {
    let server = Server::start(Hello).await;
    let mut stream = connect(server.address).await;
    let mut flood = Vec::new();
    for id in (1..2001).step_by(2) {
        let head = head("/hello", &[(":authority", "a.example")]);
        flood.extend(frame(HEADERS, END_STREAM | END_HEADERS, id, &head));
        flood.extend(frame(RST_STREAM, 0, id, &8u32.to_be_bytes()));
    }
    // The other side may hang up before it has read all of it.
    let _ = stream.write_all(&flood).await;
    let reason = goaway(&mut stream).await;
    assert!(reason.is_none_or(|reason| reason == Reason::ENHANCE_YOUR_CALM), "{reason:?}");
    assert_eq!(server.counters.goaways(Goaway::Flood), 1);
    assert!(server.counters.h2_requests.load(Relaxed) < 1000);
}

#[tokio::test]
async fn a_head_that_goes_on_and_on_ends_the_connection() {
    let server = Server::start(Hello).await;
    let mut stream = connect(server.address).await;
    let start = frame(HEADERS, END_STREAM, 1, &head("/hello", &[(":authority", "a.example")]));
    stream.write_all(&start).await.unwrap();
    for _ in 0..10_000 {
        if stream.write_all(&frame(CONTINUATION, 0, 1, &field("a", "b"))).await.is_err() {
            break;
        }
    }
    let reason = goaway(&mut stream).await;
    assert!(reason.is_none_or(|reason| reason == Reason::ENHANCE_YOUR_CALM), "{reason:?}");
    assert_eq!(server.counters.goaways(Goaway::Flood), 1);
    assert_eq!(server.counters.requests.sum(), 0);
}

#[tokio::test]
async fn a_head_that_is_too_large_is_answered_with_431() {
    let server = Server::start(Hello).await;
    let mut stream = connect(server.address).await;
    let long = "x".repeat(120);
    let more: Vec<(&str, &str)> = (0..140).map(|_| ("a", long.as_str())).collect();
    let fields = [&[(":authority", "a.example")], &more[..]].concat();
    let block = head("/hello", &fields);
    assert!(block.len() > 16 * 1024);
    let (start, rest) = block.split_at(16_000);
    stream.write_all(&frame(HEADERS, END_STREAM, 1, start)).await.unwrap();
    stream.write_all(&frame(CONTINUATION, END_HEADERS, 1, rest)).await.unwrap();
    let (kind, _, id, payload) = next(&mut stream).await.unwrap();
    assert_eq!((kind, id), (HEADERS, 1));
    // `:status` from the static table, "431" in Huffman code (RFC 7541).
    assert_eq!(payload, [0x48, 0x83, 0x69, 0x90, 0xff]);
    assert_eq!(server.counters.requests.sum(), 0);
}

/// Content that never comes, in frames without bytes.
#[tokio::test]
async fn empty_frames_of_data_end_the_connection() {
    let server = Server::start(Hello).await;
    let mut stream = connect(server.address).await;
    let head = head("/", &[(":authority", "a.example")]);
    stream.write_all(&frame(HEADERS, END_HEADERS, 1, &head)).await.unwrap();
    let empty = frame(DATA, 0, 1, b"").repeat(1000);
    while stream.write_all(&empty).await.is_ok() {}
    let reason = goaway(&mut stream).await;
    assert!(reason.is_none_or(|reason| reason == Reason::ENHANCE_YOUR_CALM), "{reason:?}");
    assert_eq!(server.counters.goaways(Goaway::Flood), 1);
}

/// Few bytes that mean many: a long field of the dynamic table, named again and again (RFC 7541 section
/// 7.3).
#[tokio::test]
async fn a_head_that_is_large_once_decoded_ends_the_connection() {
    let server = Server::start(Hello).await;
    let mut stream = connect(server.address).await;
    let mut block = head("/", &[(":authority", "a.example")]);
    // A literal field that goes into the table: 3000 bytes, in an integer of more than seven bits.
    block.extend([0x40, 1, b'a', 0x7f, 0xb9, 0x16]);
    block.extend([b'x'; 3000]);
    block.extend([0xbe; 1000]);
    stream.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &block)).await.unwrap();
    assert_eq!(goaway(&mut stream).await, Some(Reason::ENHANCE_YOUR_CALM));
    assert_eq!(server.counters.goaways(Goaway::Flood), 1);
    assert_eq!(server.counters.requests.sum(), 0);
}

/// Frames that must be answered, by a client that takes no answer: it is not read from any more, and
/// given up after a while. What it sends beyond stays in its own kernel.
#[tokio::test]
async fn who_takes_no_answers_to_pings_and_settings_is_not_read_from() {
    for flood in [frame(PING, 0, 0, &[7; 8]), frame(SETTINGS, 0, 0, b"")] {
        let limits = Limits { head_timeout: Duration::from_millis(20), ..Limits::default() };
        let server = Server::within(limits, Hello).await;
        let mut stream = connect(server.address).await;
        let flood = flood.repeat(10_000);
        while stream.write_all(&flood).await.is_ok() {}
        assert_eq!(server.counters.stalled.load(Relaxed), 1);
        assert_eq!(server.counters.goaways(Goaway::Fault), 0);
    }
}
