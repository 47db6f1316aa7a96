//! Purges: what was held before one is not used after it, and masters are asked as often as that
//! needs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;
use std::sync::Arc;

use model::ByteCount;
use serde_json::{Value, json};
use support::edge::{Edge, HOST, OTHER_HOST, node_map, two_projects};
use support::origin::{Item, Origin};
use support::{BLOCK, assert_same, content};
use tokio::sync::Semaphore;

const LENGTH: usize = 2 * BLOCK + 77;

/// An edge on one master that has `paths`, each of them held.
async fn holding(dir: &Path, paths: &[&str]) -> (Edge, Origin, Vec<u8>) {
    let (master, body) = (Origin::start().await, content(1, LENGTH));
    for path in paths {
        master.put(path, Item::new(body.clone(), "a1"));
    }
    let edge = Edge::start(dir, &[&master]).await;
    for path in paths {
        assert_eq!(edge.get(path, &[]).await.status, 200);
    }
    assert_eq!(master.asked().len(), paths.len());
    (edge, master, body)
}

/// A purge that must be done; its receipt.
async fn purge(edge: &Edge, asked: Value) -> Value {
    let (status, receipt) = edge.purge(asked).await;
    assert_eq!(status, 200, "{receipt}");
    receipt
}

fn url(path: &str) -> Value {
    json!({ "url": format!("http://{HOST}{path}") })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hard_purge_of_a_url_fetches_it_once_more_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (edge, master, body) = holding(dir.path(), &["/a", "/b"]).await;
    let changed = content(2, LENGTH);
    // The validator is the same: only a fetch without conditions can tell.
    master.put("/a", Item::new(changed.clone(), "a1"));
    let receipt = purge(&edge, url("/./%61")).await;
    assert_eq!(receipt["held"]["bytes"], LENGTH);
    assert_eq!(receipt["held"]["complete"], true);
    for key in ["node", "project", "scope", "target", "mode", "dry_run", "purges_active"] {
        let wanted = match key {
            "node" => json!("edge1"),
            "project" => json!("videolan"),
            "scope" => json!("url"),
            "target" => json!("/a"),
            "mode" => json!("hard"),
            "dry_run" => json!(false),
            _ => json!(1),
        };
        assert_eq!(receipt[key], wanted, "{key}");
    }
    for _ in 0..3 {
        assert_same(&edge.get("/a", &[]).await.body, &changed);
        assert_same(&edge.get("/b", &[]).await.body, &body);
    }
    let asked = master.asked();
    assert_eq!(asked.len(), 3);
    assert_eq!((asked[2].path.as_str(), asked[2].status), ("/a", 200));
    assert!(!asked[2].headers.contains_key("if-none-match"));
    assert!(edge.metrics().contains("cacheboy_edge_purged_objects_total{mode=\"hard\"} 1\n"));
    assert_eq!(edge.status()["edge"]["purges"]["active"], 1);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_soft_purge_of_a_prefix_confirms_each_object_once() {
    let dir = tempfile::tempdir().unwrap();
    let (edge, master, body) = holding(dir.path(), &["/v/a", "/v/b", "/w"]).await;
    purge(&edge, json!({ "project": "videolan", "path": "/v/*", "soft": true })).await;
    for path in ["/v/a", "/v/b", "/w", "/v/a", "/v/b"] {
        assert_same(&edge.get(path, &[]).await.body, &body);
    }
    let asked: Vec<_> = master.asked().into_iter().skip(3).map(|a| (a.path, a.status)).collect();
    assert_eq!(asked, [("/v/a".to_owned(), 304), ("/v/b".to_owned(), 304)]);
    assert!(edge.metrics().contains("cacheboy_edge_purged_objects_total{mode=\"soft\"} 2\n"));
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_masters_soft_serves_on_and_hard_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let (edge, mut master, body) = holding(dir.path(), &["/a"]).await;
    master.down().await;
    let asked = json!({ "project": "videolan", "path": "/a", "soft": true });
    purge(&edge, asked).await;
    let stale = edge.get("/a", &[]).await;
    assert_same(&stale.body, &body);
    assert!(stale.header("cache-status").ends_with("; detail=stale-on-error"));
    purge(&edge, url("/a")).await;
    assert_eq!(edge.get("/a", &[]).await.status, 502);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_of_a_project_leaves_others_alone() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let (other, body) = (Origin::start().await, content(3, LENGTH));
    master.put("/a", Item::new(body.clone(), "a1"));
    other.put("/a", Item::new(body.clone(), "a1"));
    let map = two_projects(&[master.address], &[other.address]);
    let edge = Edge::with_map(dir.path(), Some(map), model::ByteCount(1 << 30)).await;
    let get = |host| support::client::send(edge.address, "GET", "/a", host, &[]);
    for _ in 0..2 {
        for host in [HOST, OTHER_HOST] {
            assert_same(&get(host).await.reply().await.body, &body);
        }
        purge(&edge, json!({ "project": "kernel" })).await;
    }
    assert_eq!((master.asked().len(), other.asked().len()), (1, 2));
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_that_are_remembered_are_purged_too() {
    let dir = tempfile::tempdir().unwrap();
    let (edge, master, body) = holding(dir.path(), &[]).await;
    let mut asked = 0;
    while edge.get("/late", &[]).await.header("cache-status") != "edge1; hit; detail=negative" {
        asked = master.asked().len();
    }
    assert_eq!(master.asked().len(), asked, "it is remembered");
    master.put("/late", Item::new(body.clone(), "a1"));
    assert_eq!(edge.get("/late", &[]).await.status, 404);
    purge(&edge, json!({ "project": "videolan", "path": "/other*" })).await;
    assert_eq!(edge.get("/late", &[]).await.status, 404);
    purge(&edge, json!({ "project": "videolan", "path": "/la*", "soft": true })).await;
    assert_same(&edge.get("/late", &[]).await.body, &body);
    assert_eq!(master.asked().len(), asked + 1);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (edge, master, body) = holding(dir.path(), &["/a", "/b"]).await;
    purge(&edge, url("/a")).await;
    edge.stop().await;
    let edge = Edge::start(dir.path(), &[&master]).await;
    for _ in 0..2 {
        assert_same(&edge.get("/a", &[]).await.body, &body);
        assert_same(&edge.get("/b", &[]).await.body, &body);
    }
    assert_eq!(master.asked().len(), 3);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_asked_before_a_purge_does_not_come_back_after_it() {
    for soft in [false, true] {
        let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
        let (old, new) = (content(5, LENGTH), content(6, LENGTH));
        let gate = Arc::new(Semaphore::new(0));
        let gated = Item { gate: Some((0, Arc::clone(&gate))), ..Item::new(old, "old") };
        master.put("/a", gated);
        let edge = Arc::new(Edge::start(dir.path(), &[&master]).await);
        let before = tokio::spawn({
            let edge = Arc::clone(&edge);
            async move { edge.get("/a", &[]).await }
        });
        master.wait_asked(1).await;
        // The master has decided what it sends; now the object changes and is purged.
        master.put("/a", Item::new(new.clone(), "new"));
        let asked = json!({ "project": "videolan", "path": "/a", "soft": soft });
        purge(&edge, asked).await;
        let after = tokio::spawn({
            let edge = Arc::clone(&edge);
            async move { edge.get("/a", &[]).await }
        });
        gate.add_permits(Semaphore::MAX_PERMITS >> 1);
        for reply in [before.await.unwrap(), after.await.unwrap(), edge.get("/a", &[]).await] {
            assert_eq!(reply.header("etag"), "\"new\"");
            assert_same(&reply.body, &new);
        }
        assert_eq!(master.asked().len(), 2, "soft: {soft}");
        Arc::into_inner(edge).unwrap().stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (edge, master, _) = holding(dir.path(), &["/a"]).await;
    let asked = json!({ "url": format!("http://{HOST}/a"), "dry_run": true });
    let receipt = purge(&edge, asked).await;
    assert_eq!((&receipt["dry_run"], &receipt["purges_active"]), (&json!(true), &json!(0)));
    assert_eq!(receipt["held"]["bytes"], LENGTH);
    edge.get("/a", &[]).await;
    assert_eq!(master.asked().len(), 1);
    assert!(!dir.path().join("edge-purges.json").exists());
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_purge_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let (edge, _master, _) = holding(dir.path(), &[]).await;
    for (asked, status, words) in [
        (json!(7), 400, "the body is not a purge"),
        (json!({}), 400, "write either url, or project"),
        (json!({ "url": "http://a/b", "project": "videolan" }), 400, "write either url"),
        (json!({ "project": "videolan", "dryrun": true }), 400, "unknown field `dryrun`"),
        (json!({ "url": "a/b" }), 400, "is no URL: write http://HOST/PATH"),
        (json!({ "url": "http://a.example/b" }), 404, "no project here has the host a.example"),
        (json!({ "project": "vlc" }), 404, "there is no project vlc: its projects are videolan"),
        (json!({ "project": "videolan", "path": "/%" }), 400, "broken percent-encoding"),
    ] {
        let (got, receipt) = edge.purge(asked).await;
        let error = receipt["error"].as_str().unwrap();
        assert!(got == status && error.contains(words), "{got} {error}");
    }
    assert!(edge.metrics().contains("cacheboy_edge_purges 0\n"), "{}", edge.metrics());
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_of_a_url_covers_its_variants() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let item = Item { vary: Some("foo"), ..Item::new(content(7, LENGTH), "a") };
    master.put("/a", item.clone());
    let edge = Edge::start(dir.path(), &[&master]).await;
    // The first question was without the field: that it counts was not known yet.
    for (asked, purged) in [(3, false), (3, false), (5, true), (5, false)] {
        if purged {
            purge(&edge, url("/a")).await;
        }
        for value in ["1", "2"] {
            let reply = edge.get("/a", &[&format!("Foo: {value}")]).await;
            assert_same(&reply.body, &item.variant(Some(value)).body);
        }
        assert_eq!(master.asked().len(), asked);
    }
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_waited_for_its_turn_does_not_bring_back_what_was_purged_meanwhile() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let (old, new) = (content(1, LENGTH), content(2, LENGTH));
    let item =
        |body: &[u8]| Item { cache_control: Some("max-age=0"), ..Item::new(body.to_vec(), "same") };
    let gate = Arc::new(Semaphore::new(0));
    master.put("/a", item(&old));
    let busy = Item { gate: Some((0, Arc::clone(&gate))), ..Item::new(content(3, 10), "b1") };
    master.put("/busy", busy);
    let mut map = node_map(1, &[master.address]);
    for one in map.map.projects.values_mut().flat_map(|p| p.masters.values_mut()) {
        one.requests_max = Some(1);
    }
    let edge = Edge::with_map(dir.path(), Some(map), ByteCount(1 << 30)).await;
    assert_same(&edge.get("/a", &[]).await.body, &old);

    let holds = edge.send("/busy", &[]).await;
    master.wait_asked(2).await;
    let waits = edge.send("/a", &[]).await;
    while edge.status()["edge"]["masters"]["videolan"][0]["queued"] != 1 {
        tokio::task::yield_now().await;
    }
    master.put("/a", item(&new));
    purge(&edge, url("/a")).await;
    gate.add_permits(1);
    assert_eq!(holds.reply().await.status, 200);
    assert_same(&waits.reply().await.body, &new);
    assert_same(&edge.get("/a", &[]).await.body, &new);
    edge.stop().await;
}
