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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_parent_serves_stale_is_served_on_and_asked_of_it_again() {
    let (dir, mut master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(3, LENGTH);
    let item = Item { cache_control: Some("max-age=0"), ..Item::new(body.clone(), "a1") };
    master.put("/a", item);
    let map = node_map(1, &[master.address]);
    let parent = Edge::named("parent1", &dir.path().join("p"), map).await;
    let map = with_parents(2, &master, &[("parent1", &parent)]);
    let child = Edge::named("child1", &dir.path().join("c"), map).await;
    assert_same(&parent.get("/a", &[]).await.body, &body);
    master.down().await;
    let asked_of = |n: usize| child.status()["edge"]["masters"]["videolan"][n]["requests"].clone();
    for n in 1..=2 {
        let reply = child.get("/a", &[]).await;
        assert_eq!((reply.status, reply.header("etag")), (200, "\"a1\""));
        assert_same(&reply.body, &body);
        assert_eq!((asked_of(0), asked_of(1)), (0.into(), n.into()));
    }
    for edge in [child, parent] {
        edge.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_parents_the_next_takes_over_and_masters_are_spared() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(4, 1000);
    for n in 0..12 {
        master.put(&format!("/{n}"), Item::new(body.clone(), "a1"));
    }
    let map = node_map(1, &[master.address]);
    let one = Edge::named("parent1", &dir.path().join("1"), map.clone()).await;
    let two = Edge::named("parent2", &dir.path().join("2"), map).await;
    let map = with_parents(2, &master, &[("parent1", &one), ("parent2", &two)]);
    let child = Edge::named("child1", &dir.path().join("c"), map).await;
    let asked_of = |n: usize| {
        let requests = &child.status()["edge"]["masters"]["videolan"][n]["requests"];
        requests.as_u64().unwrap()
    };
    for n in 0..6 {
        assert_same(&child.get(&format!("/{n}"), &[]).await.body, &body);
    }
    assert_eq!((asked_of(0), asked_of(1) + asked_of(2)), (0, 6));
    one.stop().await;
    for n in 6..12 {
        assert_same(&child.get(&format!("/{n}"), &[]).await.body, &body);
    }
    assert_eq!((asked_of(0), master.asked().len()), (0, 12), "each once, by a parent");
    for edge in [child, two] {
        edge.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_at_the_site_of_the_child_has_all_objects() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let map = node_map(1, &[master.address]);
    let near = Edge::named("near", &dir.path().join("n"), map.clone()).await;
    let far = Edge::named("far", &dir.path().join("f"), map).await;
    let mut map = with_parents(2, &master, &[("far", &far), ("near", &near)]);
    let mut child = nodemap::testing::node(&["127.0.0.2"]);
    child.site = "there".parse().unwrap();
    map.map.nodes.insert("child1".parse().unwrap(), child);
    map.map.nodes.get_mut("near").unwrap().site = "there".parse().unwrap();
    let child = Edge::named("child1", &dir.path().join("c"), map).await;
    for n in 0..8 {
        let path = format!("/{n}");
        master.put(&path, Item::new(content(n, 100), "a1"));
        assert_same(&child.get(&path, &[]).await.body, &content(n, 100));
    }
    let masters = child.status()["edge"]["masters"]["videolan"].clone();
    assert_eq!((&masters[1]["name"], &masters[1]["requests"]), (&"far".into(), &0.into()));
    assert_eq!((&masters[2]["name"], &masters[2]["requests"]), (&"near".into(), &8.into()));
    for edge in [child, near, far] {
        edge.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edges_that_take_each_other_for_parents_end_at_the_masters() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(5, LENGTH);
    for n in 0..4 {
        master.put(&format!("/{n}"), Item::new(body.clone(), "a1"));
    }
    let map = node_map(1, &[master.address]);
    let one = Edge::named("one", &dir.path().join("1"), map.clone()).await;
    let two = Edge::named("two", &dir.path().join("2"), map).await;
    // Two maps of different times, as in the middle of a change.
    one.map.send_replace(Some(Arc::new(with_parents(2, &master, &[("two", &two)]))));
    two.map.send_replace(Some(Arc::new(with_parents(2, &master, &[("one", &one)]))));
    for edge in [&one, &two] {
        while edge.status()["edge"]["generation"] != 2 {
            tokio::task::yield_now().await;
        }
    }
    for n in 0..4 {
        let path = format!("/{n}");
        for edge in [&one, &two] {
            let reply = edge.get(&path, &[]).await;
            assert_eq!(reply.status, 200);
            assert_same(&reply.body, &body);
        }
    }
    for edge in [&one, &two] {
        let parent = &edge.status()["edge"]["masters"]["videolan"][1];
        assert_eq!(parent["skipped"], false, "a loop says nothing against it");
    }
    for edge in [one, two] {
        edge.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_that_lags_or_does_not_know_the_project_hides_nothing() {
    let (dir, master, lags) =
        (tempfile::tempdir().unwrap(), Origin::start().await, Origin::start().await);
    let body = content(6, LENGTH);
    for path in ["/a", "/b"] {
        master.put(path, Item::new(body.clone(), "a1"));
    }
    let map = node_map(1, &[lags.address]);
    let parent = Edge::named("parent1", &dir.path().join("p"), map).await;
    let map = with_parents(2, &master, &[("parent1", &parent)]);
    let child = Edge::named("child1", &dir.path().join("c"), map).await;
    // 404 there, and content at a master.
    assert_same(&child.get("/a", &[]).await.body, &body);
    let mut other = node_map(3, &[lags.address]);
    for project in other.map.projects.values_mut() {
        project.hosts = vec![nodemap::HostPattern::Exact("other.example".parse().unwrap())];
    }
    parent.map.send_replace(Some(Arc::new(other)));
    while parent.status()["edge"]["generation"] != 3 {
        tokio::task::yield_now().await;
    }
    // 421 there.
    assert_same(&child.get("/b", &[]).await.body, &body);
    assert_eq!((lags.asked().len(), master.sent()), (1, 2 * LENGTH as u64));
    for edge in [child, parent] {
        edge.stop().await;
    }
}
