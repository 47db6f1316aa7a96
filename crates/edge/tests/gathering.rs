//! Answers that show only at their end whether they can be kept.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use support::edge::{Edge, HOST};
use support::origin::{Item, Origin};
use support::{BLOCK, assert_same, client, content};

/// An answer in chunks; `whole`: with its end.
fn chunked(body: &[u8], fields: &str, whole: bool) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{fields}\r\n");
    let mut out = head.into_bytes();
    for chunk in body.chunks(10_000) {
        out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    if whole {
        out.extend_from_slice(b"0\r\nX-Checksum: 1\r\n\r\n");
    }
    out
}

fn answering(answers: impl IntoIterator<Item = Vec<u8>>) -> Item {
    Item { raw: answers.into_iter().collect(), ..Item::default() }
}

/// The body of an answer in chunks, with its end or without.
fn unchunked(answer: &str) -> (String, bool) {
    let mut body = String::new();
    let (head, mut rest) = answer.split_once("\r\n\r\n").unwrap_or(("", ""));
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    if let Some(length) = length {
        // It was stored before its first client got the head: the length is known by then.
        return (rest.to_owned(), rest.len().to_string() == length);
    }
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return (body, true);
        }
        // A connection that is reset may lose what was on its way.
        body.push_str(after.get(..size).unwrap_or(after));
        rest = after.get(size + 2..).unwrap_or("");
    }
    (body, false)
}

async fn exchange(edge: &Edge, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
    client::exchange(edge.address, &request).await
}

/// Text, so that answers can be compared as such.
fn text(length: usize) -> String {
    "0123456789abcdef".repeat(length / 16)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ends_within_a_block_is_stored_whole() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let edge = Edge::start(dir.path(), &[&master]).await;
    for (path, length) in [("/empty", 0), ("/small", 16), ("/block", BLOCK)] {
        let body = text(length);
        let fields = "Cache-Control: max-age=60\r\nTrailer: X-Checksum\r\n";
        master.put(path, answering([chunked(body.as_bytes(), fields, true)]));
        let first = exchange(&edge, path).await;
        assert_eq!(unchunked(&first), (body.clone(), true), "{path}");
        let hit = edge.get(path, &[]).await;
        assert_same(&hit.body, body.as_bytes());
        assert!(hit.header("cache-status").starts_with("edge1; hit"), "{path}");
        assert_eq!(hit.header("content-length"), length.to_string());
        assert!(!hit.headers.contains_key("trailer") && !hit.headers.contains_key("x-checksum"));
        if length > 10 {
            let part = edge.get(path, &["Range: bytes=5-9"]).await;
            assert_eq!((part.status, part.body), (206, body.as_bytes()[5..10].to_vec()));
        }
    }
    assert_eq!(master.asked().len(), 3);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_longer_goes_to_its_client_and_is_remembered() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = text(3 * BLOCK);
    let answer = || chunked(body.as_bytes(), "Cache-Control: max-age=60\r\n", true);
    master.put("/a", answering([answer(), answer()]));
    let edge = Edge::start(dir.path(), &[&master]).await;
    for detail in ["", "; detail=length-unknown"] {
        let got = exchange(&edge, "/a").await;
        assert_eq!(unchunked(&got), (body.clone(), true));
        let status = got.lines().find_map(|l| l.strip_prefix("cache-status: ")).unwrap();
        assert!(status.ends_with(&format!("fwd-status=200{detail}")), "{status}");
    }
    assert_eq!(edge.status()["edge"]["stores"][0]["objects"], 0);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_cut_off_is_never_stored_and_its_client_sees_it() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = text(BLOCK / 2);
    let fields = "Cache-Control: max-age=60\r\n";
    let answers = [false, true].map(|whole| chunked(body.as_bytes(), fields, whole));
    master.put("/a", answering(answers));
    let edge = Edge::start(dir.path(), &[&master]).await;
    let (got, is_whole) = unchunked(&exchange(&edge, "/a").await);
    assert!(!is_whole && body.starts_with(&got), "visibly broken off");
    assert_eq!(unchunked(&exchange(&edge, "/a").await), (body.clone(), true));
    assert_same(&edge.get("/a", &[]).await.body, body.as_bytes());
    assert_eq!(master.asked().len(), 2);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_replaces_what_is_held_takes_its_place_at_its_end() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let old = content(1, 2 * BLOCK);
    let stale = Item { cache_control: Some("max-age=0"), ..Item::new(old.clone(), "a1") };
    master.put("/a", stale);
    let edge = Edge::start(dir.path(), &[&master]).await;
    assert_same(&edge.get("/a", &[]).await.body, &old);
    let new = text(1000 * 16);
    let fields = "Cache-Control: max-age=60\r\nETag: \"a2\"\r\n";
    let answers = [false, true].map(|whole| chunked(new.as_bytes(), fields, whole));
    master.change("/a", |item| item.raw = answers.into());
    // Broken off: what is held stays.
    assert!(!unchunked(&exchange(&edge, "/a").await).1);
    assert_eq!(edge.status()["edge"]["stores"][0]["objects"], 1);
    assert_eq!(unchunked(&exchange(&edge, "/a").await), (new.clone(), true));
    assert_same(&edge.get("/a", &[]).await.body, new.as_bytes());
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_is_served_by_one_answer() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = text(BLOCK / 2);
    master.put("/a", answering([chunked(body.as_bytes(), "Cache-Control: max-age=60\r\n", true)]));
    let edge = std::sync::Arc::new(Edge::start(dir.path(), &[&master]).await);
    let mut crowd = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let edge = std::sync::Arc::clone(&edge);
        crowd.spawn(async move { exchange(&edge, "/a").await });
    }
    while let Some(answer) = crowd.join_next().await {
        assert!(answer.unwrap().contains(&body[..1000]));
    }
    assert_eq!(master.asked().len(), 1);
    std::sync::Arc::into_inner(edge).unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_to_an_authorized_request_is_kept_when_it_may_be_shared() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let edge = Edge::start(dir.path(), &[&master]).await;
    for (path, cache_control, length, is_kept) in [
        ("/public", "public, max-age=60", BLOCK, true),
        ("/shared", "s-maxage=60", 10, true),
        ("/own", "max-age=60", 10, false),
        // What is missing of it could not be asked for without the client's own fields.
        ("/long", "public, max-age=60", BLOCK + 1, false),
    ] {
        let body = content(7, length);
        let item = Item { cache_control: Some(cache_control), ..Item::new(body.clone(), "a") };
        master.put(path, item);
        let before = master.asked().len();
        let own = edge.get(path, &["Authorization: Basic eA=="]).await;
        assert_same(&own.body, &body);
        let want = "edge1; fwd=bypass; fwd-status=200; detail=authorization";
        assert_eq!(own.header("cache-status"), want);
        let asked = master.asked();
        assert_eq!(asked.last().unwrap().headers["authorization"], "Basic eA==");
        if is_kept {
            // It is stored behind.
            while edge.get(path, &["Cache-Control: only-if-cached"]).await.status == 504 {}
        }
        assert_same(&edge.get(path, &[]).await.body, &body);
        let asked = &master.asked()[before..];
        assert_eq!(asked.len(), if is_kept { 1 } else { 2 }, "{path}");
        assert!(is_kept || !asked[1].headers.contains_key("authorization"));
    }
    edge.stop().await;
}
