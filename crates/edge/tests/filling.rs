//! Filling: what is asked of masters, how often, and that every byte is right.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use support::edge::Edge;
use support::origin::{Item, Origin};
use support::{BLOCK, assert_same, content};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Ten blocks and a bit.
const LENGTH: usize = 10 * BLOCK + 1234;

fn gate(at: u64) -> (u64, Arc<Semaphore>) {
    (at, Arc::new(Semaphore::new(0)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cold_full_download_is_one_request_and_the_second_a_hit() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(1, LENGTH);
    master.put("/a", Item::new(body.clone(), "a1"));
    let edge = Edge::start(dir.path(), &[&master]).await;

    let first = edge.get("/a", &[]).await;
    assert_eq!((first.status, first.header("etag")), (200, "\"a1\""));
    assert_same(&first.body, &body);
    let status = first.header("cache-status");
    assert!(status.contains("fwd=uri-miss") && status.contains("stored"), "{status}");

    // The client has its last bytes before they are stored: a second one would join the fill.
    edge.wait_filled().await;
    let second = edge.get("/a", &[]).await;
    assert_same(&second.body, &body);
    assert!(second.header("cache-status").contains("hit"), "{:?}", second.headers);
    let asked = master.asked();
    assert_eq!((asked.len(), asked[0].range()), (1, None));
    assert_eq!(master.sent(), LENGTH as u64);
    let metrics = edge.metrics();
    let expected = format!(
        "cacheboy_edge_upstream_bytes_total{{master=\"m0\",project=\"videolan\"}} {LENGTH}"
    );
    assert!(metrics.contains(&expected), "{metrics}");
    assert!(metrics.contains("cacheboy_edge_requests_total{result=\"hit\"} 1"), "{metrics}");
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_ranges_on_a_cold_object_fetches_each_block_once() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = Arc::new(content(2, LENGTH));
    master.put("/a", Item::new(body.to_vec(), "a1"));
    let edge = Arc::new(Edge::start(dir.path(), &[&master]).await);
    let mut crowd = JoinSet::new();
    for client in 0..30 {
        let (edge, body) = (Arc::clone(&edge), Arc::clone(&body));
        crowd.spawn(async move {
            let mut dice = model::Dice::seeded(client);
            for _ in 0..10 {
                let first = dice.below((LENGTH - BLOCK) as u64) as usize;
                let last = first + BLOCK / 4;
                let reply = edge.range("/a", first, last).await;
                assert_eq!(reply.status, 206);
                assert_same(&reply.body, &body[first..=last]);
            }
        });
    }
    crowd.join_all().await;
    edge.get("/a", &[]).await;
    assert_eq!(master.sent(), LENGTH as u64, "{:?}", master.asked());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_alone_fill_the_cache() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(3, LENGTH);
    master.put("/a", Item::new(body.clone(), "a1"));
    let edge = Edge::start(dir.path(), &[&master]).await;
    for first in (0..LENGTH).step_by(100_000) {
        let last = (first + 99_999).min(LENGTH - 1);
        let reply = edge.range("/a", first, last).await;
        assert_eq!(reply.header("content-range"), format!("bytes {first}-{last}/{LENGTH}"));
        assert_same(&reply.body, &body[first..=last]);
    }
    assert_eq!(master.sent(), LENGTH as u64);
    let asked = master.asked().len();
    assert_same(&edge.get("/a", &[]).await.body, &body);
    assert_eq!((master.sent(), master.asked().len()), (LENGTH as u64, asked));
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tail_of_a_cold_object_asks_for_its_block_alone() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(4, LENGTH);
    for path in ["/a", "/b"] {
        master.put(path, Item::new(body.clone(), "a1"));
    }
    let edge = Edge::start(dir.path(), &[&master]).await;
    let reply = edge.range("/a", LENGTH - 100, LENGTH - 1).await;
    assert_same(&reply.body, &body[LENGTH - 100..]);
    let range = format!("bytes={}-{}", 10 * BLOCK, 11 * BLOCK - 1);
    assert_eq!(master.asked()[0].range(), Some(range.as_str()));
    assert_eq!(master.sent(), 1234);
    edge.range("/a", LENGTH - 1, LENGTH - 1).await;
    assert_eq!(master.asked().len(), 1, "held now");

    // Counted from the end: at most one block more than asked.
    let reply = edge.get("/b", &["Range: bytes=-100"]).await;
    assert_eq!((reply.status, reply.complete), (206, true));
    assert_same(&reply.body, &body[LENGTH - 100..]);
    let range = format!("bytes=-{}", 100 + BLOCK - 1);
    assert_eq!(master.asked()[1].range(), Some(range.as_str()));
    edge.range("/b", LENGTH - 1234, LENGTH - 1).await;
    assert_eq!(master.asked().len(), 2, "its whole block came");
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_client_gets_bytes_of_an_unfinished_block() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(5, LENGTH);
    let (at, opens) = gate(20_000);
    let gated = Item { gate: Some((at, Arc::clone(&opens))), ..Item::new(body.clone(), "a1") };
    master.put("/a", gated);
    let edge = Edge::start(dir.path(), &[&master]).await;
    let mut first = edge.send("/a", &[]).await;
    first.read_body(20_000).await;
    let mut joined = edge.send("/a", &["Range: bytes=10000-30000"]).await;
    joined.read_body(10_000).await;
    opens.add_permits(1);
    assert_same(&first.reply().await.body, &body);
    assert_same(&joined.reply().await.body, &body[10_000..=30_000]);
    assert_eq!(master.asked().len(), 1);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_slows_nobody() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(6, 32 << 20);
    master.put("/a", Item::new(body.clone(), "a1"));
    let edge = Edge::start(dir.path(), &[&master]).await;
    let mut slow = edge.send("/a", &[]).await;
    slow.read_body(1).await;
    let fast = edge.get("/a", &[]).await;
    assert_same(&fast.body, &body);
    assert_eq!((master.asked().len(), master.sent()), (1, 32 << 20));
    assert_same(&slow.reply().await.body, &body);
    assert_eq!(master.asked().len(), 1);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_ends_the_request_at_a_block_and_nothing_is_fetched_twice() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    // So long that what was read is no proof of demand for the whole.
    const LENGTH: usize = 64 * BLOCK + 1234;
    let body = content(7, LENGTH);
    let (at, opens) = gate(3 * BLOCK as u64 + 100);
    let gated = Item { gate: Some((at, Arc::clone(&opens))), ..Item::new(body.clone(), "a1") };
    master.put("/a", gated);
    let edge = Edge::start(dir.path(), &[&master]).await;
    let mut aborting = edge.send("/a", &[]).await;
    aborting.read_body(3 * BLOCK + 50).await;
    drop(aborting);
    // Its end is seen while the block is unfinished; then the block is finished.
    while edge.status()["edge"]["connections"] != 0 {
        tokio::task::yield_now().await;
    }
    opens.add_permits(1);
    while edge.status()["edge"]["fills_in_flight"] != 0 {
        tokio::task::yield_now().await;
    }
    master.change("/a", |item| item.gate = None);
    assert_same(&edge.get("/a", &[]).await.body, &body);
    let asked = master.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[1].range(), Some(format!("bytes={}-{}", 4 * BLOCK, LENGTH - 1).as_str()));
    assert_eq!(asked[1].headers["if-match"], "\"a1\"");
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_breaks_in_the_middle_is_followed_by_the_next_at_the_same_byte() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (Origin::start().await, Origin::start().await);
    let body = content(8, LENGTH);
    let breaking = Item { breaks: [100_000].into(), ..Item::new(body.clone(), "a1") };
    first.put("/a", breaking);
    second.put("/a", Item::new(body.clone(), "a1"));
    let edge = Edge::start(dir.path(), &[&first, &second]).await;
    let reply = edge.get("/a", &[]).await;
    assert!(reply.complete);
    assert_same(&reply.body, &body);
    let asked = second.asked();
    assert_eq!(asked.len(), 1);
    let range = asked[0].range().unwrap().strip_prefix("bytes=").unwrap();
    let (start, end) = range.split_once('-').unwrap();
    assert_eq!(end.parse::<usize>().unwrap(), LENGTH - 1);
    // What was on the wire when the connection was reset may be lost, nothing else.
    assert!(start.parse::<u64>().unwrap() <= 100_000, "{range}");
    assert_eq!(asked[0].headers["if-match"], "\"a1\"");
    assert!(edge.metrics().contains(
        "cacheboy_edge_upstream_errors_total{kind=\"truncated\",master=\"m0\",project=\"videolan\"} 1"
    ));
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_object_breaks_what_cannot_be_finished_and_is_new_for_new_clients() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let (old, new) = (content(9, LENGTH), content(10, LENGTH));
    let (at, opens) = gate(3 * BLOCK as u64);
    let item = Item {
        gate: Some((at, Arc::clone(&opens))),
        breaks: [4 * BLOCK as u64].into(),
        ..Item::new(old.clone(), "v1")
    };
    master.put("/a", item);
    let edge = Edge::start(dir.path(), &[&master]).await;
    let mut running = edge.send("/a", &[]).await;
    running.read_body(BLOCK).await;
    master.put("/a", Item::new(new.clone(), "v2"));
    opens.add_permits(1);
    let running = running.reply().await;
    assert_eq!((running.status, running.complete, running.header("etag")), (200, false, "\"v1\""));
    assert_same(&running.body, &old[..running.body.len()]);

    let fresh = edge.get("/a", &[]).await;
    assert_eq!((fresh.complete, fresh.header("etag")), (true, "\"v2\""));
    assert_same(&fresh.body, &new);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_seen_before_the_answer_begins_gives_the_new_object() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let (old, new) = (content(11, LENGTH), content(12, LENGTH + 77));
    master.put("/a", Item::new(old.clone(), "v1"));
    let edge = Edge::start(dir.path(), &[&master]).await;
    assert_same(&edge.range("/a", 0, 99).await.body, &old[..100]);
    while edge.status()["edge"]["fills_in_flight"] != 0 {
        tokio::task::yield_now().await;
    }
    master.put("/a", Item::new(new.clone(), "v2"));
    // Block 0 of the old one is held and fresh; block 1 is not, and the range spans both.
    let reply = edge.range("/a", BLOCK - 100, BLOCK + 100).await;
    assert_eq!((reply.status, reply.complete, reply.header("etag")), (206, true, "\"v2\""));
    assert_same(&reply.body, &new[BLOCK - 100..=BLOCK + 100]);
    assert_same(&edge.get("/a", &[]).await.body, &new);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_stored_is_served_after_a_restart_without_asking() {
    let (dir, mut master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(13, LENGTH);
    master.put("/a", Item::new(body.clone(), "a1"));
    let edge = Edge::start(dir.path(), &[&master]).await;
    edge.range("/a", 0, 5 * BLOCK - 1).await;
    while edge.status()["edge"]["fills_in_flight"] != 0 {
        tokio::task::yield_now().await;
    }
    edge.stop().await;
    master.down().await;

    let edge = Edge::start(dir.path(), &[&master]).await;
    let reply = edge.range("/a", 100, 5 * BLOCK - 1).await;
    assert_eq!((reply.status, reply.complete), (206, true));
    assert_same(&reply.body, &body[100..5 * BLOCK]);
    master.up().await;
    assert_same(&edge.get("/a", &[]).await.body, &body);
    assert_eq!(master.sent(), LENGTH as u64);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_that_rots_on_disk_is_fetched_anew() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(14, LENGTH);
    master.put("/a", Item::new(body.clone(), "a1"));
    let edge = Edge::start(dir.path(), &[&master]).await;
    edge.get("/a", &[]).await;
    edge.stop().await;
    rot(dir.path(), 2 * BLOCK as u64 + 7);

    let edge = Edge::start(dir.path(), &[&master]).await;
    assert_same(&edge.get("/a", &[]).await.body, &body);
    let asked = master.asked();
    let range = format!("bytes={}-{}", 2 * BLOCK, 3 * BLOCK - 1);
    assert_eq!((asked.len(), asked[1].range()), (2, Some(range.as_str())));
    assert_eq!(edge.status()["edge"]["stores"][0]["corrupt_blocks"], 1);
    edge.stop().await;
}

/// Changes one byte of the only body file.
fn rot(dir: &std::path::Path, at: u64) {
    use std::os::unix::fs::FileExt;
    let mut folders = vec![dir.join("store")];
    let mut found = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else if entry.metadata().unwrap().len() == LENGTH as u64 {
                let file =
                    std::fs::OpenOptions::new().read(true).write(true).open(entry.path()).unwrap();
                let mut byte = [0];
                file.read_exact_at(&mut byte, at).unwrap();
                file.write_all_at(&[byte[0] ^ 1], at).unwrap();
                found += 1;
            }
        }
    }
    assert_eq!(found, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_node_map_disturbs_no_transfer() {
    let dir = tempfile::tempdir().unwrap();
    let (before, after) = (Origin::start().await, Origin::start().await);
    let (old, new) = (content(15, LENGTH), content(16, LENGTH));
    let (at, opens) = gate(2 * BLOCK as u64);
    before.put("/a", Item { gate: Some((at, Arc::clone(&opens))), ..Item::new(old.clone(), "a1") });
    after.put("/b", Item::new(new.clone(), "b1"));
    let edge = Edge::start(dir.path(), &[&before]).await;
    let mut running = edge.send("/a", &[]).await;
    running.read_body(BLOCK).await;
    let map = support::edge::node_map(2, &[after.address]);
    edge.map.send_replace(Some(Arc::new(map)));
    while edge.status()["edge"]["generation"] != 2 {
        tokio::task::yield_now().await;
    }
    assert_same(&edge.get("/b", &[]).await.body, &new);
    opens.add_permits(1);
    assert_same(&running.reply().await.body, &old);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_room_on_the_disk_content_is_passed_through() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(17, LENGTH);
    master.put("/a", Item::new(body.clone(), "a1"));
    let map = support::edge::node_map(1, &[master.address]);
    // Fewer bytes than the object has.
    let size = model::ByteCount(4 * BLOCK as u64);
    let edge = Edge::with_map(dir.path(), Some(map), size).await;
    let whole = edge.get("/a", &[]).await;
    assert!(whole.complete);
    assert_same(&whole.body, &body);
    let part = edge.range("/a", 70_000, 80_000).await;
    assert_eq!(part.status, 206);
    assert_same(&part.body, &body[70_000..=80_000]);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_far_ahead_of_a_fill_does_not_wait_for_it() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(18, 30 * BLOCK);
    let (at, opens) = gate(2 * BLOCK as u64);
    master
        .put("/a", Item { gate: Some((at, Arc::clone(&opens))), ..Item::new(body.clone(), "a1") });
    let edge = Edge::start(dir.path(), &[&master]).await;
    let mut front = edge.send("/a", &[]).await;
    front.read_body(2 * BLOCK).await;
    // The front cannot go on before the gate opens; the tail is here all the same.
    let tail = edge.range("/a", 30 * BLOCK - 100, 30 * BLOCK - 1).await;
    assert_same(&tail.body, &body[30 * BLOCK - 100..]);
    opens.add_permits(1);
    assert_same(&front.reply().await.body, &body);
    let asked: Vec<_> = master.asked().iter().map(|a| a.range().map(str::to_owned)).collect();
    let last = format!("bytes={}-{}", 29 * BLOCK, 30 * BLOCK - 1);
    assert_eq!(asked, [None, Some(last)]);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_fills_share_the_memory_of_two_blocks() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let map = support::edge::node_map(1, &[master.address]);
    let (size, memory) = (model::ByteCount(1 << 30), model::ByteCount(2 * BLOCK as u64));
    let edge = Arc::new(Edge::with_memory(dir.path(), Some(map), size, memory).await);
    let mut crowd = JoinSet::new();
    for n in 0..20 {
        let body = content(100 + n, LENGTH);
        let path = format!("/{n}");
        master.put(&path, Item::new(body.clone(), "a1"));
        let edge = Arc::clone(&edge);
        crowd.spawn(async move { assert_same(&edge.get(&path, &[]).await.body, &body) });
    }
    crowd.join_all().await;
    assert_eq!(master.sent(), 20 * LENGTH as u64);
    // The last bytes reach their client before their block is stored and its buffer free.
    while edge.status()["edge"]["block_buffers_free"] != 2 {
        tokio::task::yield_now().await;
    }
}
