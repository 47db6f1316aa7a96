//! How much is fetched for whom: the window ahead of readers, completion, second questions,
//! masters without ranges, digests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::net::IpAddr;
use std::sync::Arc;

use model::{ByteCount, Completion};
use support::client;
use support::edge::{Edge, HOST, node_map};
use support::origin::{Item, Origin};
use support::{BLOCK, assert_same, content};
use tokio::sync::Semaphore;

/// So long that a few blocks are no proof of demand.
const LENGTH: usize = 100 * BLOCK + 1234;
const BLOCK_U64: u64 = BLOCK as u64;

fn shut(at: u64) -> Option<(u64, Arc<Semaphore>)> {
    Some((at, Arc::new(Semaphore::new(0))))
}

async fn edge_with(dir: &std::path::Path, masters: &[&Origin], completion: Completion) -> Edge {
    let addresses: Vec<_> = masters.iter().map(|m| m.address).collect();
    let mut map = node_map(1, &addresses);
    map.map.projects.values_mut().for_each(|p| p.completion = completion);
    Edge::with_map(dir, Some(map), ByteCount(1 << 30)).await
}

/// Bytes stored for this reason.
fn filled(edge: &Edge, reason: &str) -> u64 {
    let name = format!("cacheboy_edge_filled_bytes_total{{reason=\"{reason}\"}} ");
    let metrics = edge.metrics();
    let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap().parse().unwrap()
}

fn upstream_error(edge: &Edge, kind: &str, master: &str) -> bool {
    edge.metrics().contains(&format!(
        "cacheboy_edge_upstream_errors_total{{kind=\"{kind}\",master=\"{master}\",project=\"videolan\"}} 1"
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_byte_of_each_of_many_files_costs_a_block_of_each() {
    const FILES: usize = 200;
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(1, 20 * BLOCK);
    for n in 0..FILES {
        master.put(&format!("/{n}"), Item::new(body.clone(), "a1"));
    }
    let edge = Edge::start(dir.path(), &[&master]).await;
    for n in 0..FILES {
        let reply = edge.range(&format!("/{n}"), 5 * BLOCK + n, 5 * BLOCK + n).await;
        assert_eq!(reply.body, [body[5 * BLOCK + n]]);
    }
    edge.wait_filled().await;
    assert_eq!((master.asked().len(), master.sent()), (FILES, FILES as u64 * BLOCK_U64));
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_for_everything_and_reads_nothing_moves_little() {
    const LONG: usize = 400 * BLOCK;
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(2, LONG);
    master.put("/a", Item::new(body.clone(), "a1"));
    let edge = edge_with(dir.path(), &[&master], Completion::Demanded).await;
    let mut slow = edge.send("/a", &[]).await;
    slow.read_body(1).await;
    while filled(&edge, "ahead") + filled(&edge, "demand") < 8 * BLOCK_U64
        || edge.status()["edge"]["block_buffers_free"] != edge.buffers()
    {
        tokio::task::yield_now().await;
    }
    // What the sockets on the way take is read as far as the edge can tell.
    let stored = edge.status()["edge"]["stores"][0]["bytes"].as_u64().unwrap();
    assert!(stored < LONG as u64 / 2, "{stored}");
    assert_same(&slow.reply().await.body, &body);
    assert_eq!(master.sent(), LONG as u64);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_stands_still_leaves_its_place_at_the_master_to_others() {
    const LONG: usize = 400 * BLOCK;
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let (body, other) = (content(2, LONG), content(3, BLOCK));
    master.put("/a", Item::new(body.clone(), "a1"));
    master.put("/b", Item::new(other.clone(), "b1"));
    let mut map = node_map(1, &[master.address]);
    map.map.projects.values_mut().for_each(|project| {
        project.completion = Completion::Demanded;
        project.masters.values_mut().for_each(|m| m.requests_max = Some(1));
    });
    let edge = Edge::with_map(dir.path(), Some(map), ByteCount(1 << 30)).await;
    let mut slow = edge.send("/a", &[]).await;
    slow.read_body(1).await;
    // The one place is taken until it is paused.
    while filled(&edge, "ahead") + filled(&edge, "demand") < 8 * BLOCK_U64
        || edge.status()["edge"]["block_buffers_free"] != edge.buffers()
    {
        tokio::task::yield_now().await;
    }
    let reply = edge.get("/b", &[]).await;
    assert_eq!(reply.status, 200);
    assert_same(&reply.body, &other);
    assert_same(&slow.reply().await.body, &body);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_network_or_a_tenth_of_the_blocks_completes_an_object() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(3, LENGTH);
    for path in ["/networks", "/tenth", "/held"] {
        master.put(path, Item::new(body.clone(), "a1"));
    }
    let edge = Edge::start(dir.path(), &[&master]).await;
    let from = async |address: [u8; 4], path: &str| {
        let fields = ["Range: bytes=100-199"];
        let address = IpAddr::from(address);
        let reply = client::send_from(address, edge.address, "GET", path, HOST, &fields).await;
        assert_same(&reply.reply().await.body, &body[100..200]);
        edge.wait_filled().await;
    };
    from([127, 0, 0, 1], "/networks").await;
    from([127, 0, 0, 77], "/networks").await;
    assert_eq!(master.sent(), BLOCK_U64, "one network");
    from([127, 0, 1, 1], "/networks").await;
    assert_eq!(master.sent(), LENGTH as u64, "held for the second, and yet a sign");
    assert_eq!(filled(&edge, "completion"), LENGTH as u64 - BLOCK_U64);
    assert_same(&edge.get("/networks", &[]).await.body, &body);
    assert_eq!((master.asked().len(), master.sent()), (14, LENGTH as u64), "a window at a time");

    for n in 0..10 {
        edge.range("/tenth", 10 * n * BLOCK, 10 * n * BLOCK).await;
        edge.wait_filled().await;
    }
    assert_eq!(master.sent(), LENGTH as u64 + 10 * BLOCK_U64, "ten of 101");
    edge.range("/tenth", 7 * BLOCK, 7 * BLOCK).await;
    edge.wait_filled().await;
    assert_eq!(master.sent(), 2 * LENGTH as u64, "each once");
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_policy_of_a_project_and_of_a_path_decides() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(4, LENGTH);
    for path in ["/whole", "/part.iso"] {
        master.put(path, Item::new(body.clone(), "a1"));
    }
    let mut map = node_map(1, &[master.address]);
    let project = map.map.projects.values_mut().next().unwrap();
    project.completion = Completion::Complete;
    project.paths.push(nodemap::PathPolicy {
        glob: "*.iso".parse().unwrap(),
        ttl_s: None,
        negative_ttl_s: None,
        completion: Some(Completion::Demanded),
        group: None,
    });
    let edge = Edge::with_map(dir.path(), Some(map), ByteCount(1 << 30)).await;
    edge.range("/whole", 0, 0).await;
    edge.wait_filled().await;
    assert_eq!(master.sent(), LENGTH as u64);
    for block in 0..50 {
        edge.range("/part.iso", block * BLOCK, block * BLOCK).await;
    }
    edge.wait_filled().await;
    assert_eq!(master.sent(), LENGTH as u64 + 50 * BLOCK_U64);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_master_holds_nobody_up_when_another_is_good() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (Origin::start().await, Origin::start().await);
    let body = content(5, LENGTH);
    for path in ["/a", "/b"] {
        first.put(path, Item::new(body.clone(), "a1"));
        second.put(path, Item::new(body.clone(), "a1"));
    }
    let edge = Edge::start(dir.path(), &[&first, &second]).await;
    edge.range("/a", 0, 0).await;
    // From here on the first answers nothing more.
    first.change("/a", |item| item.gate = shut(0));
    let reply = edge.range("/a", 50 * BLOCK, 50 * BLOCK + 9).await;
    assert_same(&reply.body, &body[50 * BLOCK..50 * BLOCK + 10]);
    assert_eq!((first.asked().len(), second.asked().len()), (2, 1));
    assert!(
        edge.metrics()
            .contains("cacheboy_edge_hedges_total{project=\"videolan\",result=\"won\"} 1")
    );
    assert!(upstream_error(&edge, "slow", "m0"), "{}", edge.metrics());
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_question_to_a_hanging_master_is_put_to_another() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (Origin::start().await, Origin::start().await);
    let body = content(11, LENGTH);
    first.put("/a", Item { gate: shut(0), ..Item::new(body.clone(), "a1") });
    second.put("/a", Item::new(body.clone(), "a1"));
    let edge = Edge::start(dir.path(), &[&first, &second]).await;
    assert_same(&edge.range("/a", 0, 9).await.body, &body[..10]);
    assert_eq!((first.asked().len(), second.asked().len()), (1, 1));
    assert!(upstream_error(&edge, "slow", "m0"), "not its timeout: {}", edge.metrics());
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_master_without_ranges_sends_is_kept_from_its_beginning() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(6, LENGTH);
    master.put("/a", Item::new(body.clone(), "a1"));
    let edge = edge_with(dir.path(), &[&master], Completion::Demanded).await;
    edge.range("/a", 5 * BLOCK, 5 * BLOCK).await;
    edge.wait_filled().await;
    // The next one does not understand ranges, and nobody knows yet.
    master.change("/a", |item| item.no_ranges = true);
    let reply = edge.range("/a", 40 * BLOCK, 40 * BLOCK + 99).await;
    assert_eq!(
        reply.header("content-range"),
        format!("bytes {}-{}/{LENGTH}", 40 * BLOCK, 40 * BLOCK + 99)
    );
    assert_same(&reply.body, &body[40 * BLOCK..40 * BLOCK + 100]);
    edge.wait_filled().await;
    let reply = edge.range("/a", 100, 41 * BLOCK - 1).await;
    assert_same(&reply.body, &body[100..41 * BLOCK]);
    assert_eq!(master.asked().len(), 2, "all of that was kept");
    assert_same(
        &edge.range("/a", 60 * BLOCK, 60 * BLOCK).await.body,
        &body[60 * BLOCK..=60 * BLOCK],
    );
    assert_eq!(master.asked()[2].range(), None, "it is known now");
    edge.stop().await;
}

fn digest_of(body: &[u8]) -> String {
    mirror::digest::ContentDigest::of(body).repr_digest()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_is_compared_with_the_announced_digest() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (Origin::start().await, Origin::start().await);
    let (good, bad) = (content(7, LENGTH), content(8, LENGTH));
    let announcing = |body: &[u8]| Item {
        fields: vec![format!("Repr-Digest: sha-512=:AA==:, {}", digest_of(&good))],
        ..Item::new(body.to_vec(), "a1")
    };
    first.put("/a", announcing(&bad));
    second.put("/a", announcing(&good));
    let edge = Edge::start(dir.path(), &[&first, &second]).await;
    assert_same(&edge.get("/a", &[]).await.body, &bad);
    let checked = |result: &str| {
        let line = format!("cacheboy_edge_digest_checks_total{{result=\"{result}\"}} 1");
        edge.metrics().contains(&line)
    };
    while !checked("mismatch") {
        tokio::task::yield_now().await;
    }
    while edge.status()["edge"]["stores"][0]["objects"] != 0 {
        tokio::task::yield_now().await;
    }
    assert!(upstream_error(&edge, "digest-mismatch", "m0"), "{}", edge.metrics());
    assert_same(&edge.get("/a", &[]).await.body, &good);
    assert_eq!(second.asked().len(), 1, "another one is asked");
    while !checked("good") {
        tokio::task::yield_now().await;
    }
    assert_same(&edge.get("/a", &[]).await.body, &good);
    assert_eq!((first.asked().len(), second.asked().len()), (1, 1), "and kept");
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_object_is_compared_before_it_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (Origin::start().await, Origin::start().await);
    let (good, bad) = (content(9, 1000), content(10, 1000));
    let fields = vec![format!("Repr-Digest: {}", digest_of(&good))];
    first.put("/a", Item { fields: fields.clone(), ..Item::new(bad, "a1") });
    second.put("/a", Item { fields, ..Item::new(good.clone(), "a1") });
    let edge = Edge::start(dir.path(), &[&first, &second]).await;
    // What comes of it is broken off, maybe before its head.
    let ask = format!("GET /a HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
    client::exchange(edge.address, &ask).await;
    while !upstream_error(&edge, "digest-mismatch", "m0") {
        tokio::task::yield_now().await;
    }
    assert_eq!(filled(&edge, "demand"), 0);
    assert_same(&edge.get("/a", &[]).await.body, &good);
    assert_eq!((first.asked().len(), second.asked().len()), (1, 1));
    edge.stop().await;
}

/// A field that is not well-formed, or has parameters, refutes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_digest_that_is_one_refutes_content() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let edge = Edge::start(dir.path(), &[&master]).await;
    let body = content(11, 1000);
    let (good, other) = (digest_of(&body), digest_of(b"other"));
    let fields = [
        format!("{good};x=1"),
        format!("{other}, {good}"),
        "sha-256=::".to_owned(),
        "sha-256=:zz".to_owned(),
    ];
    for (n, field) in fields.into_iter().enumerate() {
        let path = format!("/{n}");
        let fields = vec![format!("Repr-Digest: {field}")];
        master.put(&path, Item { fields, ..Item::new(body.clone(), "a1") });
        for _ in 0..2 {
            assert_same(&edge.get(&path, &[]).await.body, &body);
        }
        edge.wait_filled().await;
        assert_eq!(master.asked().len(), n + 1, "{field}");
    }
    assert!(!upstream_error(&edge, "digest-mismatch", "m0"), "{}", edge.metrics());
    edge.stop().await;
}
