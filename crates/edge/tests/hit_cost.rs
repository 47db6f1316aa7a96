//! What a hit may allocate. One test alone in this file: the allocator counts all threads.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::alloc::System;

use support::edge::{Edge, HOST};
use support::hits::Hits;
use support::origin::{Item, Origin};
use sys::counting::{Allocated, Counting};

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

/// What a hit allocates at most, whatever the size of its body. Who adds an allocation for a good
/// reason raises them; who takes one out lowers them.
const TIMES_MAX: u64 = 7;
const BYTES_MAX: u64 = 1_400;
/// Hits of one measurement, and measurements: what runs each second beside the hits is not in the
/// least of them.
const HITS: usize = 200;
const BATCHES: usize = 10;

/// The least that a hit took in one of the batches.
fn measure(hits: &mut Hits) -> Allocated {
    hits.play(100);
    let each = u64::try_from(HITS).unwrap();
    let batch = |_| {
        let before = Allocated::now();
        hits.play(HITS);
        let all = Allocated::now().since(before);
        Allocated { times: all.times / each, bytes: all.bytes / each }
    };
    (0..BATCHES).map(batch).min_by_key(|allocated| (allocated.times, allocated.bytes)).unwrap()
}

#[tokio::test]
async fn a_hit_allocates_little() {
    let dir = tempfile::tempdir().unwrap();
    let origin = Origin::start().await;
    let edge = Edge::start(dir.path(), &[&origin]).await;
    for bytes in [1 << 10, 16 << 10] {
        let path = format!("/pool/main/v/vlc/{bytes}.deb");
        origin.put(&path, Item::new(support::content(1, bytes), "a"));
        assert_eq!(edge.get(&path, &[]).await.status, 200);
        edge.wait_filled().await;
        let mut hits = Hits::new(edge.address, HOST, &path, bytes);
        let measured = tokio::task::spawn_blocking(move || {
            let measured = measure(&mut hits);
            (measured, hits.head())
        });
        let (allocated, head) = measured.await.unwrap();
        assert!(head.contains("hit"), "{head}");
        let fits = allocated.times <= TIMES_MAX && allocated.bytes <= BYTES_MAX;
        assert!(fits, "{bytes} bytes: {allocated:?}");
    }
    edge.stop().await;
}
