//! Masters that misbehave, and clients that do: nobody else may notice.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use model::ByteCount;
use support::client;
use support::edge::{Edge, OTHER_HOST, node_map, two_projects};
use support::origin::{Item, Origin};
use support::{BLOCK, assert_same, content};
use tokio::sync::Semaphore;

const LENGTH: usize = 3 * BLOCK + 321;

fn gate(at: usize) -> Option<(u64, Arc<Semaphore>)> {
    Some((at as u64, Arc::new(Semaphore::new(0))))
}

async fn wait_status(edge: &Edge, key: &str, value: u64) {
    while edge.status()["edge"][key] != value {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_waits_for_any_more_gives_its_memory_back() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(1, LENGTH);
    let map = node_map(1, &[master.address]);
    let (size, memory) = (ByteCount(1 << 30), ByteCount(2 * BLOCK as u64));
    let edge = Edge::with_memory(dir.path(), Some(map), size, memory).await;
    let mut slow = Vec::new();
    for path in ["/a", "/b"] {
        // The second block will never be whole.
        let item = Item { gate: gate(BLOCK + 1000), ..Item::new(body.clone(), "a1") };
        master.put(path, item);
        let mut client = edge.send(path, &[]).await;
        client.read_body(BLOCK + 1000).await;
        slow.push(client);
    }
    assert_eq!(edge.status()["edge"]["block_buffers_free"], 0);
    drop(slow);
    wait_status(&edge, "block_buffers_free", 2).await;
    wait_status(&edge, "fills_in_flight", 0).await;
    // The next one goes on behind what is held.
    master.change("/a", |item| item.gate = None);
    assert_same(&edge.get("/a", &[]).await.body, &body);
    assert_eq!(master.asked().len(), 3);
    let range = format!("bytes={BLOCK}-{}", LENGTH - 1);
    assert_eq!(master.asked()[2].range(), Some(range.as_str()));
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_project_leaves_half_of_the_memory_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let (slow, healthy) = (Origin::start().await, Origin::start().await);
    let body = content(2, LENGTH);
    let map = two_projects(&[slow.address], &[healthy.address]);
    let (size, memory) = (ByteCount(1 << 30), ByteCount(4 * BLOCK as u64));
    let edge = Edge::with_memory(dir.path(), Some(map), size, memory).await;
    let mut waiting = Vec::new();
    for n in 0..8 {
        let path = format!("/{n}");
        slow.put(&path, Item { gate: gate(1000), ..Item::new(body.clone(), "a1") });
        waiting.push(edge.send(&path, &[]).await);
    }
    slow.wait_sent(8 * 1000).await;
    wait_status(&edge, "block_buffers_free", 2).await;
    healthy.put("/a", Item::new(body.clone(), "a1"));
    let reply = client::fetch(edge.address, "GET", "/a", OTHER_HOST, &[]).await;
    assert_same(&reply.body, &body);
    assert_eq!(edge.status()["edge"]["block_buffers_free"], 2);
    drop(waiting);
    edge.stop().await;
}
