//! Questions beside the first one about a cold object: who asks for another part of it does not
//! wait for the first answer, no byte comes twice, and parts of two versions are never joined.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use support::client::Pending;
use support::edge::Edge;
use support::origin::{Item, Origin};
use support::{BLOCK, assert_same, content};
use tokio::sync::Semaphore;

const LENGTH: usize = 100 * BLOCK;
const BLOCK_U64: u64 = BLOCK as u64;

/// The middle of one block.
fn part(block: usize) -> std::ops::Range<usize> {
    block * BLOCK + 100..block * BLOCK + 300
}

async fn send(edge: &Edge, block: usize) -> Pending {
    let part = part(block);
    edge.send("/a", &[&format!("Range: bytes={}-{}", part.start, part.end - 1)]).await
}

/// An object of which nothing is answered until the gate opens.
fn shut(body: &[u8]) -> (Item, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    (Item { gate: Some((0, Arc::clone(&gate))), ..Item::new(body.to_vec(), "a1") }, gate)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn some_who_want_other_blocks_ask_before_the_first_answer() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(1, LENGTH);
    let (item, gate) = shut(&body);
    master.put("/a", item);
    let edge = Edge::start(dir.path(), &[&master]).await;
    let mut clients = Vec::new();
    // One after the other, so that it is known who is first.
    for (block, asked) in [(10, 1), (20, 2), (10, 2), (20, 2), (99, 3), (40, 4), (50, 4), (60, 4)] {
        clients.push((block, send(&edge, block).await));
        master.wait_asked(asked).await;
    }
    gate.add_permits(1000);
    for (block, client) in clients {
        let reply = client.reply().await;
        assert_eq!(reply.status, 206);
        assert_same(&reply.body, &body[part(block)]);
    }
    edge.wait_filled().await;
    let asked = master.asked();
    let early = ["10", "20", "99", "40"].map(|block| {
        let start = block.parse::<usize>().unwrap() * BLOCK;
        format!("bytes={start}-{}", start + BLOCK - 1)
    });
    assert_eq!(asked.iter().take(4).map(|a| a.range().unwrap()).collect::<Vec<_>>(), early);
    // The others knew what they asked for.
    let conditional = |a: &&support::origin::Asked| a.headers.contains_key("if-match");
    assert_eq!((asked.len(), asked.iter().filter(conditional).count()), (6, 2));
    assert_eq!(master.sent(), 6 * BLOCK_U64, "each block once");
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_another_version_is_not_joined() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let (old, new) = (content(2, LENGTH), content(3, LENGTH));
    let (item, gate) = shut(&old);
    master.put("/a", item);
    let edge = Edge::start(dir.path(), &[&master]).await;
    let first = send(&edge, 10).await;
    master.wait_asked(1).await;
    master.change("/a", |item| {
        *item = Item { gate: item.gate.clone(), ..Item::new(new.clone(), "a2") }
    });
    let other = send(&edge, 20).await;
    master.wait_asked(2).await;
    gate.add_permits(1000);
    let (first, other) = (first.reply().await, other.reply().await);
    assert_eq!((first.status, other.status), (206, 206));
    assert_eq!((first.header("etag"), other.header("etag")), ("\"a1\"", "\"a2\""));
    assert_same(&first.body, &old[part(10)]);
    assert_same(&other.body, &new[part(20)]);
    assert_same(&edge.get("/a", &[]).await.body, &new);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_does_not_fit_is_asked_for_again_on_condition() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(7, LENGTH);
    let (item, gate) = shut(&body);
    master.put("/a", item.clone());
    let edge = Edge::start(dir.path(), &[&master]).await;
    let first = send(&edge, 10).await;
    master.wait_asked(1).await;
    // One of the machines behind the master's name has another version.
    master.put(
        "/a",
        Item {
            body: Arc::new(content(8, LENGTH)),
            etag: Some("\"a2\"".to_owned()),
            ..item.clone()
        },
    );
    let other = send(&edge, 20).await;
    master.wait_asked(2).await;
    master.put("/a", item);
    gate.add_permits(1000);
    assert_same(&first.reply().await.body, &body[part(10)]);
    let other = other.reply().await;
    assert_eq!((other.status, other.header("etag")), (206, "\"a1\""));
    assert_same(&other.body, &body[part(20)]);
    let asked = master.asked();
    assert_eq!(
        (asked.len(), asked[1].range(), asked[2].range()),
        (3, asked[2].range(), asked[1].range())
    );
    assert!(asked[2].headers.contains_key("if-match"));
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_first_answer_is_an_error_the_others_ask_anew() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(4, LENGTH);
    let (item, gate) = shut(&body);
    master.put("/a", Item { errors: [503].into(), ..item });
    let edge = Edge::start(dir.path(), &[&master]).await;
    let first = send(&edge, 10).await;
    master.wait_asked(1).await;
    let others = [send(&edge, 20).await, send(&edge, 30).await];
    master.wait_asked(3).await;
    gate.add_permits(1000);
    assert_eq!(first.reply().await.status, 503);
    for (block, other) in [20, 30].into_iter().zip(others) {
        let reply = other.reply().await;
        assert_eq!(reply.status, 206);
        assert_same(&reply.body, &body[part(block)]);
    }
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn masters_that_ignore_ranges_fill_with_their_first_answer() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(5, LENGTH);
    let (item, gate) = shut(&body);
    master.put("/a", Item { no_ranges: true, ..item });
    let edge = Edge::start(dir.path(), &[&master]).await;
    let mut clients = Vec::new();
    for (n, block) in [10, 20, 30].into_iter().enumerate() {
        clients.push((block, send(&edge, block).await));
        master.wait_asked(n + 1).await;
    }
    gate.add_permits(1000);
    for (block, client) in clients {
        assert_same(&client.reply().await.body, &body[part(block)]);
    }
    assert_same(&edge.get("/a", &[]).await.body, &body);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_strong_validator_nothing_that_was_asked_early_is_used() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(6, LENGTH);
    let (item, gate) = shut(&body);
    let last_modified = Some("Mon, 01 Jun 2026 00:00:00 GMT");
    master.put("/a", Item { etag: None, last_modified, ..item });
    let edge = Edge::start(dir.path(), &[&master]).await;
    let mut clients = Vec::new();
    for (n, block) in [10, 20].into_iter().enumerate() {
        clients.push((block, send(&edge, block).await));
        master.wait_asked(n + 1).await;
    }
    gate.add_permits(1000);
    for (block, client) in clients {
        assert_same(&client.reply().await.body, &body[part(block)]);
    }
    edge.wait_filled().await;
    let asked = master.asked();
    assert_eq!(asked.len(), 3);
    assert!(asked[2].headers.contains_key("if-unmodified-since"), "{:?}", asked[2]);
    edge.stop().await;
}
