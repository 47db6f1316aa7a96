//! Groups of index files: what belongs together is shown together, whole, and from one instant.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::net::SocketAddr;
use std::path::Path;

use model::ByteCount;
use nodemap::{NodeMap, PathPolicy};
use support::client::Reply;
use support::content;
use support::edge::{Edge, HOST, node_map};
use support::origin::{Item, Origin};

/// Another edge: it gets the newest snapshot always.
const EDGE: &str = "CDN-Loop: other";
const INDEX: &str = "/debian/dists/stable/InRelease";
const PACKAGES: &str = "/debian/dists/stable/main/Packages.xz";

/// A node map with one group on a grid of a second.
fn map(master: SocketAddr) -> NodeMap {
    let mut map = node_map(1, &[master]);
    let policy = PathPolicy {
        glob: "**/dists/**".parse().unwrap(),
        ttl_s: Some(1),
        negative_ttl_s: None,
        completion: None,
        group: Some("index".parse().unwrap()),
    };
    for project in map.map.projects.values_mut() {
        project.paths = vec![policy.clone()];
    }
    map
}

async fn start(dir: &Path, master: &Origin) -> Edge {
    Edge::with_map(dir, Some(map(master.address)), ByteCount(1 << 30)).await
}

/// Both files of a version, one after the other.
fn publish(master: &Origin, version: u64) {
    for (path, kind) in [(PACKAGES, "packages"), (INDEX, "index")] {
        let seed = version * 2 + u64::from(kind == "index");
        let item = Item {
            cache_control: Some("max-age=86400"),
            ..Item::new(content(seed, 150_000), &format!("{kind}-{version}"))
        };
        master.put(path, item);
    }
}

/// The version that an answer's tag names.
#[track_caller]
fn version(reply: &Reply) -> u64 {
    assert_eq!(reply.status, 200, "{:?}", reply.headers);
    let tag = reply.header("etag").trim_matches('"');
    let version = tag.rsplit('-').next().unwrap().parse().unwrap();
    let seed = version * 2 + u64::from(tag.starts_with("index"));
    support::assert_same(&reply.body, &content(seed, 150_000));
    version
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_and_what_it_names_change_at_once() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    publish(&master, 1);
    let edge = start(dir.path(), &master).await;
    // A client that began before the change.
    assert_eq!(version(&edge.get(INDEX, &[]).await), 1);
    assert_eq!(version(&edge.get(PACKAGES, &[]).await), 1);
    publish(&master, 2);
    loop {
        let index = version(&edge.get(INDEX, &[EDGE]).await);
        let packages = version(&edge.get(PACKAGES, &[EDGE]).await);
        assert!(packages >= index, "an index of {index} with packages of {packages}");
        if index == 2 {
            break;
        }
    }
    // It is in the middle of its run.
    assert_eq!(version(&edge.get(PACKAGES, &[]).await), 1);
    let range = edge.get(PACKAGES, &["Range: bytes=149999-"]).await;
    assert_eq!((range.status, range.header("etag")), (206, "\"packages-1\""));
    assert_eq!(range.body, content(2, 150_000)[149_999..]);
    assert!(
        edge.metrics().contains(
            "cacheboy_edge_group_switches_total{group=\"index\",project=\"videolan\"} 1\n"
        )
    );
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_end_for_all_members_at_the_same_tick_and_say_where_they_come_from() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    publish(&master, 1);
    let edge = start(dir.path(), &master).await;
    edge.get(INDEX, &[]).await;
    edge.get(PACKAGES, &[]).await;
    for path in [INDEX, PACKAGES] {
        let reply = edge.get(path, &["Cache-Control: max-age=0"]).await;
        assert_eq!(reply.header("cache-control"), "max-age=1");
        let age: u64 = reply.header("age").parse().unwrap();
        let ttl = 1 - i64::try_from(age).unwrap();
        let status = reply.header("cache-status");
        // A second may end between the two readings of the clock.
        let likely = [ttl, ttl + 1].map(|ttl| format!("edge1; hit; ttl={ttl}; detail=group"));
        assert!(likely.iter().any(|likely| likely == status), "{:?}", reply.headers);
        let same = edge.get(path, &[&format!("If-None-Match: {}", reply.header("etag"))]).await;
        assert_eq!((same.status, same.header("cache-control")), (304, "max-age=1"));
    }
    // What is not there is so for the whole epoch.
    let first = edge.get("/dists/none", &[EDGE]).await;
    assert_eq!(first.status, 404);
    assert!(first.header("cache-status").contains("fwd=uri-miss"), "{:?}", first.headers);
    let group = &edge.status()["edge"]["groups"][0];
    assert_eq!(group["members"], 3, "{group:#}");
    assert_eq!((&group["missing"], &group["why_kept"]), (&1.into(), &serde_json::Value::Null));
    let head = rest(&edge, "HEAD", PACKAGES).await;
    assert_eq!((head.status, head.header("content-length")), (200, "150000"));
    edge.stop().await;
}

async fn rest(edge: &Edge, method: &str, path: &str) -> Reply {
    support::client::fetch(edge.address, method, path, HOST, &[]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_masters_are_away_the_last_snapshot_is_served_whole() {
    let (dir, mut master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    publish(&master, 1);
    let edge = start(dir.path(), &master).await;
    edge.get(INDEX, &[]).await;
    edge.get(PACKAGES, &[]).await;
    master.down().await;
    loop {
        let index = edge.get(INDEX, &[EDGE]).await;
        let packages = edge.get(PACKAGES, &[EDGE]).await;
        assert_eq!((version(&index), version(&packages)), (1, 1));
        if index.header("cache-status").ends_with("; detail=stale-on-error") {
            break;
        }
    }
    assert_eq!(edge.status()["edge"]["groups"][0]["why_kept"], "group-masters-away");
    // Nobody knows this one, and nobody can be asked.
    assert_eq!(edge.get("/debian/dists/other", &[]).await.status, 502);
    publish(&master, 2);
    master.up().await;
    while version(&edge.get(PACKAGES, &[EDGE]).await) == 1 {}
    assert_eq!(version(&edge.get(INDEX, &[EDGE]).await), 2);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_what_is_held_is_confirmed_and_not_fetched_again() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    publish(&master, 1);
    let edge = start(dir.path(), &master).await;
    edge.get(INDEX, &[]).await;
    edge.get(PACKAGES, &[]).await;
    edge.stop().await;
    let sent = master.sent();
    let edge = start(dir.path(), &master).await;
    assert_eq!(version(&edge.get(INDEX, &[]).await), 1);
    assert_eq!(version(&edge.get(PACKAGES, &[]).await), 1);
    assert_eq!(master.sent(), sent);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_kept_goes_the_usual_way() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    publish(&master, 1);
    let own = Item { cache_control: Some("no-store"), ..Item::new(vec![7; 10], "a") };
    master.put("/dists/own", own);
    let edge = start(dir.path(), &master).await;
    edge.get(INDEX, &[]).await;
    for _ in 0..2 {
        let reply = edge.get("/dists/own", &[]).await;
        assert_eq!((reply.status, reply.body), (200, vec![7; 10]));
        assert!(reply.headers["cache-status"].ends_with("detail=no-store"), "{:?}", reply.headers);
    }
    let nobody = edge.get(PACKAGES, &["Cache-Control: only-if-cached"]).await;
    assert_eq!(nobody.status, 504);
    assert_eq!(version(&edge.get(INDEX, &["Cache-Control: only-if-cached"]).await), 1);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hard_purge_does_not_wait_for_the_grid() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    publish(&master, 1);
    let mut map = map(master.address);
    for project in map.map.projects.values_mut() {
        project.paths[0].ttl_s = Some(86_400);
    }
    let edge = Edge::with_map(dir.path(), Some(map), ByteCount(1 << 30)).await;
    assert_eq!(version(&edge.get(INDEX, &[]).await), 1);
    assert_eq!(version(&edge.get(PACKAGES, &[]).await), 1);
    publish(&master, 2);
    assert_eq!(version(&edge.get(INDEX, &[]).await), 1);
    let asked = serde_json::json!({ "project": "videolan", "path": "/debian/dists/*" });
    assert_eq!(edge.purge(asked).await.0, 200);
    for path in [INDEX, PACKAGES, INDEX, PACKAGES] {
        assert_eq!(version(&edge.get(path, &[]).await), 2, "{path}");
    }
    let late = "/debian/dists/stable/late";
    for _ in 0..3 {
        assert_eq!(edge.get(late, &[]).await.status, 404);
    }
    master.put(late, Item::new(content(9, 1000), "late-9"));
    let asked = serde_json::json!({ "project": "videolan", "path": late, "soft": true });
    assert_eq!(edge.purge(asked).await.0, 200);
    assert_eq!(edge.get(late, &[]).await.body, content(9, 1000));
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edges_behind_an_edge_show_its_snapshots() {
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let master = Origin::start().await;
    publish(&master, 1);
    let parent = start(dirs[0].path(), &master).await;
    let mut behind = map(parent.address);
    for project in behind.map.projects.values_mut() {
        for parent in project.masters.values_mut() {
            parent.host = Some(HOST.to_owned());
        }
    }
    let children = [
        Edge::named("edge2", dirs[1].path(), behind.clone()).await,
        Edge::named("edge3", dirs[2].path(), behind).await,
    ];
    for newest in 1..=3 {
        publish(&master, newest);
        for child in &children {
            loop {
                let index = version(&child.get(INDEX, &[EDGE]).await);
                let packages = version(&child.get(PACKAGES, &[EDGE]).await);
                assert!(packages >= index, "an index of {index} with packages of {packages}");
                if index == newest {
                    break;
                }
            }
        }
    }
    assert_eq!(master.sent(), 3 * 2 * 150_000, "each version came once");
    for child in children {
        child.stop().await;
    }
    parent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_changes_a_member_does_not_wait_for_the_grid() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    publish(&master, 1);
    let mut map = map(master.address);
    for project in map.map.projects.values_mut() {
        project.unsafe_methods = true;
        project.paths[0].ttl_s = Some(86_400);
    }
    let edge = Edge::with_map(dir.path(), Some(map), ByteCount(1 << 30)).await;
    assert_eq!(version(&edge.get(INDEX, &[]).await), 1);
    publish(&master, 2);
    assert_eq!(version(&edge.get(INDEX, &[]).await), 1);
    assert_eq!(rest(&edge, "DELETE", INDEX).await.status, 200);
    assert_eq!(version(&edge.get(INDEX, &[]).await), 2);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dates_are_validators_of_a_group_as_well() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    for path in [INDEX, PACKAGES] {
        let date = Some("Thu, 01 Jan 2026 00:00:00 GMT");
        let body = content(1, 150_000);
        master.put(path, Item { etag: None, last_modified: date, ..Item::new(body, "") });
    }
    for _start in 0..2 {
        let edge = start(dir.path(), &master).await;
        let mut snapshots = std::collections::BTreeSet::new();
        while snapshots.len() < 3 {
            for path in [INDEX, PACKAGES] {
                let reply = edge.get(path, &[EDGE]).await;
                assert_eq!(reply.status, 200);
                support::assert_same(&reply.body, &content(1, 150_000));
            }
            let group = &edge.status()["edge"]["groups"][0];
            assert_eq!((&group["switches"], group["why_kept"].as_str()), (&0.into(), None));
            snapshots.insert(group["snapshot_of"].to_string());
        }
        edge.stop().await;
    }
}
