//! Masters that answer in odd ways, and clients of HTTP/1.0.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::ErrorKind;

use support::edge::{Edge, HOST};
use support::origin::{Item, Origin};
use support::{BLOCK, assert_same, content};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A master that sends this, byte for byte, to a request for `path`.
fn says(master: &Origin, path: &str, raw: &str) {
    master.put(path, Item { raw: vec![raw.as_bytes().to_vec(); 3].into(), ..Item::default() });
}

/// What comes until the end of the connection, and how that ends.
async fn talk(edge: &Edge, request: &str) -> (Result<(), ErrorKind>, String) {
    let mut stream = TcpStream::connect(edge.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let ended = stream.read_to_end(&mut answer).await.map_err(|error| error.kind());
    (ended.map(|_| ()), String::from_utf8_lossy(&answer).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_before_an_answer_is_passed_over() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let edge = Edge::start(dir.path(), &[&master]).await;
    let early = "HTTP/1.1 100 Continue\r\n\r\n\
                 HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n";
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"a\"\r\n\
                  Cache-Control: max-age=60\r\n\r\nhello";
    says(&master, "/a", &format!("{early}{answer}"));
    for _ in 0..2 {
        let reply = edge.get("/a", &[]).await;
        assert_eq!((reply.status, &reply.body[..]), (200, &b"hello"[..]));
        assert_eq!(reply.header("link"), "");
    }
    assert_eq!(master.asked().len(), 1);
    // Protocols that nobody asked to change to.
    says(
        &master,
        "/b",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    );
    let reply = edge.get("/b", &["Upgrade: x", "Connection: upgrade"]).await;
    assert_eq!(reply.status, 502);
    let proxy = reply.header("proxy-status");
    assert!(proxy.starts_with("edge1; error=http_protocol_error"), "{proxy}");
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_of_a_connection_stay_on_it() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let edge = Edge::start(dir.path(), &[&master]).await;
    for (path, control) in [("/kept", "max-age=60"), ("/passed", "no-store")] {
        let raw = format!(
            "HTTP/1.1 200 OK\r\nConnection: x-hop, keep-alive\r\nKeep-Alive: timeout=5\r\n\
             X-Hop: 1\r\nX-End: 1\r\nProxy-Authenticate: Basic\r\nUpgrade: h2c\r\n\
             Trailer: X-Sum\r\nETag: \"a\"\r\nCache-Control: {control}\r\n\
             Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n"
        );
        says(&master, path, &raw);
        let request = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        for _ in 0..2 {
            let (ended, answer) = talk(&edge, &request).await;
            assert_eq!(ended, Ok(()));
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(body.contains("hello"), "{answer}");
            assert!(head.contains("\r\nx-end: 1"), "{head}");
            for gone in
                ["x-hop", "keep-alive", "proxy-authenticate", "upgrade", "trailer:", "x-sum"]
            {
                assert!(!answer.to_ascii_lowercase().contains(gone), "{gone}: {answer}");
            }
        }
    }
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_http_1_0() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let edge = Edge::start(dir.path(), &[&master]).await;
    let body = content(1, BLOCK + 5);
    master.put("/a", Item::new(body.clone(), "a1"));
    let ask =
        |path: &str, fields: &str| format!("GET {path} HTTP/1.0\r\nHost: {HOST}\r\n{fields}\r\n");
    // Closed after the answer, unless the client asks for more.
    let (ended, answer) = talk(&edge, &ask("/a", "Range: bytes=0-4\r\n")).await;
    assert_eq!(ended, Ok(()));
    assert!(answer.starts_with("HTTP/1.0 206 "), "{answer}");
    let twice = ask("/a", "Connection: keep-alive\r\nRange: bytes=0-4\r\n")
        + &ask("/a", "Range: bytes=0-4\r\n");
    let (_, answer) = talk(&edge, &twice).await;
    assert_eq!(answer.matches("HTTP/1.0 206 ").count(), 2, "{answer}");
    assert_eq!(answer.matches("connection: keep-alive").count(), 1, "{answer}");
    // Without a length the end is the end of the connection, and half is no end.
    let chunked =
        "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nTransfer-Encoding: chunked\r\n\r\n";
    says(&master, "/whole", &format!("{chunked}5\r\nhello\r\n0\r\n\r\n"));
    says(&master, "/half", &format!("{chunked}5\r\nhello\r\n"));
    let (ended, answer) = talk(&edge, &ask("/whole", "")).await;
    assert_eq!(ended, Ok(()));
    assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
    assert!(!answer.contains("transfer-encoding"), "{answer}");
    let (ended, answer) = talk(&edge, &ask("/half", "")).await;
    assert_eq!(ended, Err(ErrorKind::ConnectionReset), "{answer}");
    // The whole, at last: nothing of all this hurt it.
    assert_same(&edge.get("/a", &[]).await.body, &body);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_in_a_transfer_coding_is_not_taken_for_content() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let edge = Edge::start(dir.path(), &[&master]).await;
    for (n, coding) in ["gzip, chunked", "chunked, gzip", "br"].into_iter().enumerate() {
        let path = format!("/{n}");
        let head = "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nCache-Control: max-age=60\r\n";
        let raw = format!("{head}Transfer-Encoding: {coding}\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
        says(&master, &path, &raw);
        let reply = edge.get(&path, &[]).await;
        let proxy = reply.header("proxy-status");
        assert_eq!(reply.status, 502, "{coding}: {reply:?}");
        assert!(proxy.starts_with("edge1; error=http_protocol_error"), "{proxy}");
    }
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_length_that_was_said_twice_is_one() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let edge = Edge::start(dir.path(), &[&master]).await;
    for (n, length) in ["5, 5", "5\r\nContent-Length: 5"].into_iter().enumerate() {
        for control in ["max-age=60", "no-store"] {
            let path = format!("/{n}/{control}");
            let head = format!("HTTP/1.1 200 OK\r\nETag: \"a\"\r\nCache-Control: {control}\r\n");
            says(&master, &path, &format!("{head}Content-Length: {length}\r\n\r\nhello"));
            let ask = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
            let (ended, answer) = talk(&edge, &ask).await;
            assert_eq!(ended, Ok(()), "{answer}");
            assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
            assert_eq!(answer.matches("content-length: 5\r\n").count(), 1, "{answer}");
        }
    }
    edge.stop().await;
}

/// Nobody can tell which bytes came.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_is_not_its_range_is_not_taken() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let edge = Edge::start(dir.path(), &[&master]).await;
    let head = "HTTP/1.1 206 X\r\nETag: \"a\"\r\nCache-Control: max-age=60\r\n";
    for (n, range) in ["0-9/10", "0-3/10", "0-4/5"].into_iter().enumerate() {
        let path = format!("/{n}");
        let rest = format!("Content-Range: bytes {range}\r\nContent-Length: 5\r\n\r\nhello");
        says(&master, &path, &format!("{head}{rest}"));
        let reply = edge.get(&path, &["Range: bytes=0-4"]).await;
        let want = if range == "0-4/5" { 206 } else { 502 };
        assert_eq!(reply.status, want, "{range}");
    }
    // The same of a further part: nothing of it is taken, and another answer brings it.
    let body = content(3, 4 * BLOCK);
    master.put("/a", Item::new(body.clone(), "a"));
    assert_same(&edge.get("/a", &["Range: bytes=0-9"]).await.body, &body[..10]);
    let (first, last) = (BLOCK, 2 * BLOCK - 1);
    let range = format!("Content-Range: bytes {first}-{last}/{}\r\n", body.len());
    let raw = format!("{head}{range}Content-Length: 5\r\n\r\nhello").into_bytes();
    master.change("/a", |item| item.raw = [raw].into());
    let reply = edge.get("/a", &[&format!("Range: bytes={first}-{last}")]).await;
    assert_same(&reply.body, &body[first..=last]);
    edge.stop().await;
}
