//! What one client and one network may take, where the config bounds it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;
use std::sync::Arc;

use edge::LimitParams;
use model::Rate;
use support::edge::{Edge, node_map};
use support::origin::{Item, Origin};
use support::{assert_same, content};
use tokio::sync::Semaphore;

/// As many bytes as an object needs to be counted.
const COUNTED: usize = 10 << 20;

async fn limited(dir: &Path, master: &Origin, limits: LimitParams) -> Edge {
    Edge::with(dir, node_map(1, &[master.address]), |params| params.limits = limits).await
}

async fn wait_status(edge: &Edge, key: &str, value: u64) {
    while edge.status()["edge"]["guard"][key] != value {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_one_client_wait_their_turn_and_too_many_are_refused() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let (body, opens) = (content(1, 100_000), Arc::new(Semaphore::new(0)));
    let gate = Some((50_000, Arc::clone(&opens)));
    master.put("/a", Item { gate, ..Item::new(body.clone(), "a1") });
    let limits = LimitParams { requests_per_client: Some(1), ..LimitParams::default() };
    let edge = limited(dir.path(), &master, limits).await;
    // The turn lasts until the last byte has left, not until the head has.
    let mut asked = vec![edge.send("/a", &[]).await];
    master.wait_sent(50_000).await;
    for waiting in 1..=4 {
        asked.push(edge.send("/a", &[]).await);
        wait_status(&edge, "waited", waiting).await;
    }
    let refused = edge.get("/a", &[]).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, "10"));
    assert_eq!(refused.header("cache-status"), "edge1; detail=too-many");
    assert_eq!(edge.get("/.well-known/cacheboy/health", &[]).await.status, 200);
    opens.add_permits(1);
    for asked in asked {
        assert_same(&asked.reply().await.body, &body);
    }
    wait_status(&edge, "clients", 0).await;
    assert_eq!(edge.get("/a", &[]).await.status, 200);
    assert_eq!(edge.status()["edge"]["refused"]["too-many"], 1);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_downloads_again_and_again_is_paced_and_then_refused() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let (body, small) = (content(2, COUNTED), content(3, COUNTED - 1));
    master.put("/a", Item::new(body.clone(), "a1"));
    master.put("/b", Item::new(body.clone(), "b1"));
    master.put("/small", Item::new(small, "s1"));
    let limits = LimitParams {
        copies_per_day: Some(1),
        copies_rate: Rate(10_000_000_000),
        ..LimitParams::default()
    };
    let edge = limited(dir.path(), &master, limits).await;
    let paced = || edge.status()["edge"]["guard"]["paced"].as_u64().unwrap();
    // Two halves are a copy.
    let half = COUNTED / 2;
    assert_same(&edge.range("/a", 0, half - 1).await.body, &body[..half]);
    assert_same(&edge.range("/a", half, COUNTED - 1).await.body, &body[half..]);
    assert_eq!(paced(), 0);
    assert_same(&edge.get("/a", &[]).await.body, &body);
    assert_eq!(paced(), 1);
    let refused = edge.get("/a", &[]).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("cache-status"), "edge1; detail=repeat");
    let wait_s: u64 = refused.header("retry-after").parse().unwrap();
    assert!((1..=86_400).contains(&wait_s), "{wait_s}");
    wait_status(&edge, "networks_paced", 0).await;
    // Nor are other objects touched, and small ones are not counted.
    assert_same(&edge.get("/b", &[]).await.body, &body);
    for _ in 0..3 {
        assert_eq!(edge.get("/small", &[]).await.status, 200);
    }
    assert_eq!(paced(), 1);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_exempt_takes_what_it_wants() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(4, COUNTED);
    master.put("/a", Item::new(body.clone(), "a1"));
    let limits = LimitParams {
        requests_per_client: Some(1),
        copies_per_day: Some(1),
        exempt: vec!["127.0.0.0/8".parse().unwrap()],
        ..LimitParams::default()
    };
    let edge = limited(dir.path(), &master, limits).await;
    for _ in 0..3 {
        assert_same(&edge.get("/a", &[]).await.body, &body);
    }
    assert_eq!(edge.status()["edge"]["guard"]["waited"], 0);
    assert_eq!(edge.status()["edge"]["guard"]["paced"], 0);
    edge.stop().await;
}
