//! Variants: what depends on fields of the request.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use support::edge::{Edge, node_map};
use support::origin::{Item, Origin};
use support::{BLOCK, assert_same, content};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

const LENGTH: usize = 2 * BLOCK + 321;

fn varying(seed: u64) -> Item {
    Item { vary: Some("foo"), ..Item::new(content(seed, LENGTH), "a") }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_value_has_its_own_variant_and_fills_carry_it() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let item = varying(1);
    master.put("/a", item.clone());
    let edge = Edge::start(dir.path(), &[&master]).await;
    for _ in 0..2 {
        for (fields, value) in [(&[][..], None), (&["Foo: 1"], Some("1")), (&["Foo: 2"], Some("2"))]
        {
            let reply = edge.get("/a", fields).await;
            assert_eq!(reply.status, 200);
            assert_same(&reply.body, &item.variant(value).body);
        }
    }
    let asked = master.asked();
    let values: Vec<_> = asked.iter().map(|a| a.headers.get("foo").map(String::as_str)).collect();
    assert_eq!(values, [None, Some("1"), Some("2")]);
    // Missing blocks come with the field too.
    master.put("/b", item.clone());
    edge.get("/b", &[]).await;
    let first = edge.get("/b", &["Foo: 3", "Range: bytes=0-9"]).await;
    assert_eq!(first.status, 206);
    let whole = edge.get("/b", &["Foo: 3"]).await;
    assert_same(&whole.body, &item.variant(Some("3")).body);
    let asked = master.asked();
    let of_b = asked.iter().filter(|a| a.path == "/b").skip(1);
    let values: Vec<_> = of_b.map(|a| a.headers.get("foo").map(String::as_str)).collect();
    assert!(values.len() >= 2 && values.iter().all(|v| *v == Some("3")), "{values:?}");
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_two_kinds_asks_once_for_each() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let gate = Arc::new(Semaphore::new(0));
    let item = Item { gate: Some((0, Arc::clone(&gate))), ..varying(2) };
    master.put("/a", item.clone());
    let edge = Arc::new(Edge::start(dir.path(), &[&master]).await);
    let mut crowd = JoinSet::new();
    for n in 0..20 {
        let edge = Arc::clone(&edge);
        crowd.spawn(async move {
            let value = if n % 2 == 0 { "1" } else { "2" };
            (value, edge.get("/a", &[&format!("Foo: {value}")]).await)
        });
    }
    master.wait_asked(1).await;
    gate.add_permits(100);
    while let Some(done) = crowd.join_next().await {
        let (value, reply) = done.unwrap();
        assert_same(&reply.body, &item.variant(Some(value)).body);
    }
    let mut values: Vec<_> =
        master.asked().iter().map(|a| a.headers.get("foo").cloned().unwrap_or_default()).collect();
    values.sort();
    assert_eq!(values, ["", "1", "2"], "the neutral question, then one for each");
    Arc::into_inner(edge).unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn variants_of_one_target_are_bounded() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let item = varying(3);
    master.put("/a", item.clone());
    let edge = Edge::start(dir.path(), &[&master]).await;
    edge.get("/a", &[]).await;
    for n in 1..16 {
        let reply = edge.get("/a", &[&format!("Foo: {n}")]).await;
        assert!(reply.header("cache-status").ends_with("; stored"), "{n}");
    }
    let reply = edge.get("/a", &["Foo: 16"]).await;
    assert_same(&reply.body, &item.variant(Some("16")).body);
    let reply = edge.get("/a", &["Foo: 16"]).await;
    let want = "edge1; fwd=bypass; fwd-status=200; detail=vary-many";
    assert_eq!(reply.header("cache-status"), want);
    assert_same(&reply.body, &item.variant(Some("16")).body);
    let before = master.asked().len();
    for n in 1..16 {
        edge.get("/a", &[&format!("Foo: {n}")]).await;
    }
    assert_eq!(master.asked().len(), before, "those that are held are served on");
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn variants_are_found_again_after_a_restart() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let item = varying(4);
    master.put("/a", item.clone());
    for _ in 0..2 {
        let edge = Edge::start(dir.path(), &[&master]).await;
        let reply = edge.get("/a", &["Foo: 1"]).await;
        assert_same(&reply.body, &item.variant(Some("1")).body);
        edge.stop().await;
    }
    assert_eq!(master.asked().len(), 2, "the neutral question and the client's");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_that_a_project_names_are_carried_and_key_nothing() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(5, LENGTH);
    master.put("/a", Item::new(body.clone(), "a"));
    let mut map = node_map(1, &[master.address]);
    for project in map.map.projects.values_mut() {
        project.request_fields = vec!["x-token".into()];
    }
    let edge = Edge::with_map(dir.path(), Some(map), model::ByteCount(1 << 30)).await;
    for token in ["1", "2"] {
        let fields = [&*format!("X-Token: {token}"), "X-Other: 1"];
        assert_same(&edge.get("/a", &fields).await.body, &body);
    }
    let asked = master.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].headers["x-token"], "1");
    assert!(!asked[0].headers.contains_key("x-other"));
    edge.stop().await;
}
