//! An edge whose stores go to a successor: what runs goes on, byte for byte, and masters are not asked
//! twice.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "the same")]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use support::edge::{Edge, HOST, node_map};
use support::origin::{Item, Origin};
use support::{BLOCK, assert_same, client, content};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// More than the sockets of a client that does not read take.
const LENGTH: usize = 400 * BLOCK + 321;

/// The files of large bodies.
fn bodies(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            found.extend(bodies(&path));
        } else if path.extension().is_some_and(|id| id.len() == 16) {
            found.push(path);
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_response_goes_on_and_no_master_is_asked_again() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(1, LENGTH);
    master.put("/a", Item::new(body.clone(), "a1"));
    let first = Edge::start(dir.path(), &[&master]).await;
    assert_same(&first.get("/a", &[]).await.body, &body);
    let mut running = first.send("/a", &[]).await;
    running.read_body(1).await;
    let mut ranges = first.send("/a", &["Range: bytes=0-99,70000-20000000"]).await;
    ranges.read_body(1).await;

    first.hand_over().await;
    let second = first.succeeded(dir.path()).await;
    assert_same(&running.reply().await.body, &body);
    let reply = ranges.reply().await;
    assert!(reply.complete && reply.body.windows(64).any(|w| w == &body[19_999_000..][..64]));
    assert_eq!((master.asked().len(), master.sent()), (1, LENGTH as u64));
    let metrics = first.metrics();
    for (name, of) in [("write_errors", &metrics), ("corrupt_blocks", &second.metrics())] {
        let line = of.lines().find(|l| l.contains(&format!("store_{name}_total{{"))).unwrap();
        assert!(line.ends_with(" 0"), "{line}");
    }
    first.stop().await;
    second.stop().await;
}

/// The worst that the successor may do to a file: what the former process knows does not fit any
/// more, and every byte comes from elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_successor_has_changed_is_never_sent() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(2, LENGTH);
    master.put("/a", Item::new(body.clone(), "a1"));
    let first = Edge::start(dir.path(), &[&master]).await;
    assert_same(&first.get("/a", &[]).await.body, &body);
    let mut running = first.send("/a", &[]).await;
    running.read_body(1).await;

    first.hand_over().await;
    let [file] = &bodies(dir.path())[..] else { panic!("one body") };
    let file = std::fs::File::options().write(true).open(file).unwrap();
    file.set_len(0).unwrap();
    file.set_len(LENGTH as u64).unwrap();
    let second = first.succeeded(dir.path()).await;
    let reply = running.reply().await;
    assert!(reply.complete);
    assert_same(&reply.body, &body);
    // The successor found out and has brought them again, once.
    let asked = master.asked();
    assert!(asked.len() > 1);
    assert_same(&second.get("/a", &[]).await.body, &body);
    assert!(master.sent() <= 2 * LENGTH as u64, "{}", master.sent());
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fill_ends_with_the_block_that_was_on_its_way_and_the_successor_goes_on() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(3, LENGTH);
    let gate = Arc::new(Semaphore::new(0));
    let stop = (10 * BLOCK + 100) as u64;
    master
        .put("/a", Item { gate: Some((stop, Arc::clone(&gate))), ..Item::new(body.clone(), "a1") });
    let first = Edge::start(dir.path(), &[&master]).await;
    let mut readers = Vec::new();
    for _ in 0..3 {
        let mut reader = first.send("/a", &[]).await;
        reader.read_body(10 * BLOCK + 50).await;
        readers.push(reader);
    }

    first.hand_over().await;
    let second = first.succeeded(dir.path()).await;
    gate.add_permits(Semaphore::MAX_PERMITS >> 1);
    for reader in readers {
        let reply = reader.reply().await;
        assert!(reply.complete);
        assert_same(&reply.body, &body);
    }
    let asked = master.asked();
    let ranges: Vec<_> = asked.iter().map(|asked| asked.range().unwrap_or("all")).collect();
    let part = |from: usize, to: usize| format!("bytes={from}-{}", to - 1);
    assert_eq!(ranges[..2], ["all", &part(11 * BLOCK, LENGTH)], "what nobody had begun to bring");
    // The block that was on its way is all that may come twice: when the successor completes it.
    let again = part(10 * BLOCK, 11 * BLOCK);
    assert!(ranges[2..].is_empty() || ranges[2..] == [&again], "{ranges:?}");
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn further_requests_are_the_successors_however_many_came_after_it() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let (small, large) = (content(4, 1000), content(5, 3 * BLOCK));
    master.put("/small", Item::new(small.clone(), "s1"));
    master.put("/large", Item::new(large.clone(), "l1"));
    let first = Edge::start(dir.path(), &[&master]).await;
    assert_same(&first.get("/large", &[]).await.body, &large);
    first.hand_over().await;
    let second = first.succeeded(dir.path()).await;
    second.hand_over().await;
    let third = second.succeeded(dir.path()).await;

    let reply = first.get("/large", &[]).await;
    assert_same(&reply.body, &large);
    let status = client::exchange(
        first.address,
        &format!("HEAD /large HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n"),
    )
    .await;
    assert!(status.contains("detail=handed-over"), "{status}");
    assert_eq!(first.get("/large", &["If-None-Match: \"l1\""]).await.status, 304);
    assert_same(&first.range("/large", 5, BLOCK).await.body, &large[5..=BLOCK]);
    assert_eq!(master.asked().len(), 1);
    for edge in [&first, &second, &third] {
        assert_same(&edge.get("/small", &[]).await.body, &small);
        assert_eq!(master.asked().len(), 2, "stored where the stores are");
    }
    assert_eq!(first.get("/none", &[]).await.status, 404);
    assert_eq!(master.asked().len(), 3);

    let asked = serde_json::json!({ "url": format!("http://{HOST}/small") });
    let (status, receipt) = first.purge(asked.clone()).await;
    assert_eq!(status, 503);
    assert!(receipt["error"].as_str().unwrap().starts_with("handed-over: "), "{receipt}");
    assert_eq!(third.purge(asked).await.0, 200);
    assert_same(&first.get("/small", &[]).await.body, &small);
    assert_eq!(master.asked().len(), 4, "what is purged is purged for all");
    assert_eq!(first.status()["edge"]["handed_over"], true);
    for edge in [first, second, third] {
        edge.stop().await;
    }
}

/// A successor that never comes up costs hits, not answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_successor_masters_are_asked() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(6, LENGTH);
    master.put("/a", Item::new(body.clone(), "a1"));
    let first = Edge::start(dir.path(), &[&master]).await;
    assert_same(&first.get("/a", &[]).await.body, &body);
    let mut running = first.send("/a", &[]).await;
    running.read_body(1).await;
    first.hand_over().await;
    assert_same(&running.reply().await.body, &body);
    assert_eq!(master.asked().len(), 1, "it has all that this one wants");
    for asked in 2..4 {
        assert_same(&first.get("/a", &[]).await.body, &body);
        assert_eq!(master.asked().len(), asked);
    }
    assert_eq!(asked_successor(&first), 1, "that it is silent is known from then on");
    first.stop().await;
}

/// How often an edge has asked its successor.
fn asked_successor(edge: &Edge) -> u64 {
    let name = "cacheboy_edge_upstream_requests_total{master=\"successor\",project=\"videolan\"} ";
    let metrics = edge.metrics();
    metrics.lines().find_map(|line| line.strip_prefix(name)).map_or(0, |n| n.parse().unwrap())
}

/// The listener stays open for the next successor, so that no connection says that one has died.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_that_has_died_is_not_waited_for() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(7, 1000);
    master.put("/a", Item::new(body.clone(), "a1"));
    let first = Edge::start(dir.path(), &[&master]).await;
    first.hand_over().await;
    let waiting = first.send("/a", &[]).await;
    while asked_successor(&first) == 0 {
        tokio::task::yield_now().await;
    }
    first.shutdown().lose_successor();
    assert_same(&waiting.reply().await.body, &body);
    let failed = "{kind=\"connect\",master=\"successor\",project=\"videolan\"} 1";
    assert!(first.metrics().contains(failed), "{}", first.metrics());
    assert_same(&first.get("/a", &[]).await.body, &body);
    assert_eq!((master.asked().len(), asked_successor(&first)), (2, 1));

    // The next one has begun.
    first.shutdown().give_up();
    let second = first.succeeded(dir.path()).await;
    assert_same(&first.get("/a", &[]).await.body, &body);
    assert_eq!(asked_successor(&first), 2);
    first.stop().await;
    second.stop().await;
}

/// An answer of unknown length is stored once it is whole, when its client may be far behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_unknown_length_goes_on_from_the_store_of_the_successor() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(8, LENGTH);
    let head = "HTTP/1.1 200 OK\r\nETag: \"a1\"\r\nCache-Control: max-age=3600\r\n\r\n";
    let raw = [head.as_bytes(), &body].concat();
    master.put("/a", Item { raw: [raw].into(), ..Item::new(body.clone(), "a1") });
    let map = node_map(1, &[master.address]);
    let first = Edge::with_blocks(dir.path(), map, 32 << 20).await;
    // In HTTP/1.0 such a body goes to the end of its connection.
    let mut running = TcpStream::connect(first.address).await.unwrap();
    let request = format!("GET /a HTTP/1.0\r\nHost: {HOST}\r\n\r\n");
    running.write_all(request.as_bytes()).await.unwrap();
    let mut reply = vec![running.read_u8().await.unwrap()];
    // Who comes now waits until it is stored.
    assert_same(&first.range("/a", 5, 9).await.body, &body[5..10]);
    first.hand_over().await;
    let second = first.succeeded(dir.path()).await;
    running.read_to_end(&mut reply).await.unwrap();
    let head = reply.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert_same(&reply[head..], &body);
    assert_eq!(master.asked().len(), 1);
    first.stop().await;
    second.stop().await;
}
