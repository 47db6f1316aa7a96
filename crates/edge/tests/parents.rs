//! Edges above edges: a master sends each object once for all children.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use nodemap::NodeMap;
use support::client;
use support::edge::{Edge, HOST, node_map};
use support::origin::{Item, Origin};
use support::{BLOCK, assert_same, content};

const LENGTH: usize = 6 * BLOCK + 321;

/// The map of a project whose parents are these edges.
fn with_parents(generation: u64, master: &Origin, parents: &[(&str, &Edge)]) -> NodeMap {
    let mut map = node_map(generation, &[master.address]);
    let mut pool = std::collections::BTreeMap::new();
    for (name, edge) in parents {
        let mut node = nodemap::testing::node(&["127.0.0.1"]);
        node.port = edge.address.port();
        let name: model::Name = name.parse().unwrap();
        map.map.nodes.insert(name.clone(), node);
        pool.insert(name, 100);
    }
    map.map.pools.insert("tier".parse().unwrap(), pool);
    for project in map.map.projects.values_mut() {
        project.parents = Some("tier".parse().unwrap());
    }
    map
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_download_goes_on_at_another_child_and_the_master_sends_it_once() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(1, LENGTH);
    master.put("/a", Item::new(body.clone(), "a1"));
    let parent =
        Edge::named("parent1", &dir.path().join("p"), node_map(1, &[master.address])).await;
    let map = with_parents(2, &master, &[("parent1", &parent)]);
    // In the pool itself, it goes on asking masters.
    parent.map.send_replace(Some(Arc::new(map.clone())));
    let one = Edge::named("child1", &dir.path().join("1"), map.clone()).await;
    let two = Edge::named("child2", &dir.path().join("2"), map).await;

    let half = LENGTH / 2;
    let first = one.range("/a", 0, half - 1).await;
    assert_eq!(first.status, 206);
    assert_same(&first.body, &body[..half]);
    let range = format!("Range: bytes={half}-");
    let if_range = format!("If-Range: {}", first.header("etag"));
    let rest = two.get("/a", &[&range, &if_range]).await;
    assert_eq!((rest.status, rest.header("etag")), (206, "\"a1\""));
    assert_same(&rest.body, &body[half..]);
    let head = format!("HEAD /a HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
    let head = client::exchange(two.address, &head).await;
    let status: Vec<_> = head.lines().filter(|l| l.starts_with("cache-status: ")).collect();
    assert!(status[0].starts_with("cache-status: parent1; ") && status.len() == 2, "{head}");
    assert!(status[1].starts_with("cache-status: child2; hit"), "{head}");
    // The block in the middle is wanted by both halves, and every byte comes once.
    let sent = master.sent();
    assert_same(&one.get("/a", &[]).await.body, &body);
    assert_same(&two.get("/a", &[]).await.body, &body);
    assert_eq!((master.sent(), sent), (LENGTH as u64, LENGTH as u64));
    assert!(!one.metrics().contains("parent_bypasses_total{project=\"videolan\"} 1"));
    for edge in [one, two, parent] {
        edge.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_that_is_gone_is_passed_by_and_one_that_has_nothing_is_not_blamed() {
    let (dir, mut master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(2, LENGTH);
    for path in ["/a", "/b"] {
        master.put(path, Item::new(body.clone(), "a1"));
    }
    let parent =
        Edge::named("parent1", &dir.path().join("p"), node_map(1, &[master.address])).await;
    let map = with_parents(2, &master, &[("parent1", &parent)]);
    let child = Edge::named("child1", &dir.path().join("c"), map).await;
    let shown = |n: usize| child.status()["edge"]["masters"]["videolan"][n].clone();

    // Not there: the parent says so after its master, and a master is asked to be sure.
    assert_eq!(child.get("/none", &[]).await.status, 404);
    assert_eq!((&shown(1)["name"], &shown(1)["skipped"]), (&"parent1".into(), &false.into()));
    assert_eq!(shown(0)["requests"], 1);

    // The master is away: what the parent holds is served, what it has not is nobody's fault.
    assert_same(&parent.get("/a", &[]).await.body, &body);
    master.down().await;
    assert_same(&child.get("/a", &[]).await.body, &body);
    assert_eq!(child.get("/b", &[]).await.status, 502);
    assert_eq!((&shown(0)["skipped"], &shown(1)["skipped"]), (&true.into(), &false.into()));

    master.up().await;
    parent.stop().await;
    assert_same(&child.get("/b", &[]).await.body, &body);
    assert_eq!(shown(1)["skipped"], true);
    child.stop().await;
}
