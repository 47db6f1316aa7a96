//! Masters that do not agree: one lags, or they name equal content otherwise, or have other content.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use model::ByteCount;
use support::edge::{Edge, node_map};
use support::origin::{Item, Origin};
use support::{BLOCK, assert_same, content};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

const LENGTH: usize = 3 * BLOCK + 321;
/// Long before the `Date` of the origins, so that it is a strong validator.
const DAY: &str = "Sun, 29 Nov 2026 12:00:00 GMT";

/// A file as a web server has it that makes tags in its own way.
fn foreign(body: &[u8], etag: &str) -> Item {
    let item = Item::new(body.to_vec(), etag);
    Item { last_modified: Some(DAY), cache_control: Some("max-age=0"), ..item }
}

/// Answers to all but probes.
fn statuses(master: &Origin) -> Vec<u16> {
    master.asked().iter().filter(|a| a.method == "GET").map(|a| a.status).collect()
}

fn disagreements(edge: &Edge, master: &str) -> u64 {
    let line = format!(
        "cacheboy_edge_masters_disagree_total{{master=\"{master}\",project=\"videolan\"}} "
    );
    let metrics = edge.metrics();
    let value = metrics.lines().find_map(|l| l.strip_prefix(&line));
    value.unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn origins_with_other_tags_for_equal_files_do_not_take_turns() {
    let dir = tempfile::tempdir().unwrap();
    let (mut first, second) = (Origin::start().await, Origin::start().await);
    let body = content(1, LENGTH);
    first.put("/a", foreign(&body, "nginx-1"));
    second.put("/a", foreign(&body, "apache-1"));
    let edge = Edge::start(dir.path(), &[&first, &second]).await;
    assert_eq!(edge.get("/a", &[]).await.header("etag"), "\"nginx-1\"");
    for round in 1..=3 {
        first.down().await;
        for _ in 0..2 {
            let resumed = edge.get("/a", &["Range: bytes=70000-", "If-Range: \"nginx-1\""]).await;
            assert_eq!((resumed.status, resumed.header("etag")), (206, "\"nginx-1\""), "{round}");
            assert_same(&resumed.body, &body[70_000..]);
        }
        first.up().await;
        // Its home is asked again as soon as it is known to be good.
        while statuses(&first).len() < 1 + round {
            edge.get("/a", &[]).await;
        }
    }
    assert_eq!(first.sent(), LENGTH as u64, "fetched once");
    assert!(statuses(&first)[1..].iter().all(|s| *s == 304), "{:?}", statuses(&first));
    // The first answer told that its tags are others; from then on it is asked by date.
    assert_eq!(statuses(&second)[0], 206);
    assert!(statuses(&second)[1..].iter().all(|s| *s == 304), "{:?}", statuses(&second));
    let asked = &second.asked()[1].headers;
    assert_eq!(asked.get("if-modified-since").map(String::as_str), Some(DAY));
    assert!(!asked.contains_key("if-none-match"));
    assert!(disagreements(&edge, "m1") >= 1);
    assert_eq!(disagreements(&edge, "m0"), 0);
    let shown = &edge.status()["edge"]["masters"]["videolan"][1]["disagreements"];
    assert_eq!(shown, disagreements(&edge, "m1"));
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_missing_comes_from_whoever_has_the_same_content() {
    let dir = tempfile::tempdir().unwrap();
    let (mut first, second) = (Origin::start().await, Origin::start().await);
    let body = content(7, LENGTH);
    for (path, tag) in [("/a", "apache-1"), ("/b", "apache-2")] {
        let fresh =
            |etag: &str| Item { cache_control: Some("max-age=3600"), ..foreign(&body, etag) };
        first.put(path, fresh("nginx-1"));
        second.put(path, fresh(tag));
    }
    let edge = Edge::start(dir.path(), &[&first, &second]).await;
    for path in ["/a", "/b"] {
        assert_eq!(edge.range(path, 0, 9).await.header("etag"), "\"nginx-1\"");
    }
    first.down().await;
    for path in ["/a", "/b"] {
        let whole = edge.get(path, &["If-Range: \"nginx-1\""]).await;
        assert_eq!((whole.status, whole.header("etag")), (200, "\"nginx-1\""));
        assert_same(&whole.body, &body);
    }
    // Once by tag, to find out; by date from then on.
    assert_eq!(statuses(&second), [412, 206, 206]);
    assert_eq!(second.sent(), 2 * (LENGTH - BLOCK) as u64);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_content_replaces_nothing_while_its_home_may_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let (mut first, second) = (Origin::start().await, Origin::start().await);
    let (body, other) = (content(2, LENGTH), content(3, LENGTH - 1));
    first.put("/a", foreign(&body, "v2"));
    second.put("/a", foreign(&other, "v1"));
    let edge = Edge::start(dir.path(), &[&first, &second]).await;
    edge.get("/a", &[]).await;
    first.down().await;
    for _ in 0..3 {
        let reply = edge.get("/a", &[]).await;
        assert_eq!((reply.status, reply.header("etag")), (200, "\"v2\""));
        assert_same(&reply.body, &body);
        assert!(reply.header("cache-status").contains("stale-on-error"), "{:?}", reply.headers);
    }
    assert_eq!(disagreements(&edge, "m1"), 1, "asked once: the next may be tried in ten seconds");
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_lags_hides_nothing_whatever_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let (lagging, good) = (Origin::start().await, Origin::start().await);
    let body = content(4, LENGTH);
    let edge = Edge::start(dir.path(), &[&lagging, &good]).await;
    let page = "HTTP/1.1 404 X\r\nCache-Control: max-age=600\r\nContent-Length: 4\r\n\r\ngone";
    for (path, status) in [("/404", 404), ("/410", 410), ("/403", 403), ("/kept", 0)] {
        good.put(path, Item::new(body.clone(), "a1"));
        let raw = if status == 0 { vec![page.as_bytes().to_vec()] } else { Vec::new() };
        let errors = if status == 0 { Vec::new() } else { vec![status] };
        let item = Item { errors: errors.into(), raw: raw.into(), ..Item::default() };
        lagging.put(path, item);
        assert_same(&edge.get(path, &[]).await.body, &body);
    }
    assert_eq!((lagging.asked().len(), good.asked().len()), (4, 4));
    // Where both say so, it is so.
    for master in [&lagging, &good] {
        master.put("/none", Item { raw: vec![page.as_bytes().to_vec()].into(), ..Item::default() });
    }
    for _ in 0..3 {
        let reply = edge.get("/none", &[]).await;
        assert_eq!((reply.status, &reply.body[..]), (404, &b"gone"[..]));
    }
    assert_eq!((lagging.asked().len(), good.asked().len()), (5, 5));
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_error_of_one_master_is_shown_to_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (Origin::start().await, Origin::start().await);
    let body = content(5, LENGTH);
    let opens = Arc::new(Semaphore::new(0));
    let gate = Some((0, Arc::clone(&opens)));
    first.put("/a", Item { errors: [500].into(), gate, ..Item::new(body.clone(), "a1") });
    second.put("/a", Item::new(body.clone(), "a1"));
    let edge = Arc::new(Edge::start(dir.path(), &[&first, &second]).await);
    let mut crowd = JoinSet::new();
    for _ in 0..50 {
        let edge = Arc::clone(&edge);
        crowd.spawn(async move { edge.get("/a", &[]).await });
    }
    first.wait_asked(1).await;
    while edge.status()["edge"]["connections"] != 50 {
        tokio::task::yield_now().await;
    }
    opens.add_permits(1);
    for reply in crowd.join_all().await {
        assert_eq!(reply.status, 200);
        assert_same(&reply.body, &body);
    }
    assert_eq!((first.asked().len(), second.asked().len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_has_its_own_lifetime_and_its_own_memory_of_errors() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let mut map = node_map(1, &[master.address]);
    let policy = |glob: &str, ttl_s, negative_ttl_s| nodemap::PathPolicy {
        glob: glob.parse().unwrap(),
        ttl_s,
        negative_ttl_s,
        completion: None,
        group: None,
    };
    for project in map.map.projects.values_mut() {
        project.paths = vec![
            policy("lists/**", Some(600), Some(0)),
            policy("lists/long/**", Some(1), None),
            policy("now/*", Some(0), None),
        ];
    }
    let edge = Edge::with_map(dir.path(), Some(map.clone()), ByteCount(1 << 30)).await;
    // (path, what the master says, times asked for three requests, what clients are told)
    for (path, says, asked, told) in [
        ("/lists/a", "max-age=0", 1, "max-age=600"),
        ("/lists/long/a", "no-cache", 1, "max-age=600"),
        ("/now/a", "max-age=86400", 3, "max-age=0"),
        ("/now/x/a", "max-age=86400", 1, "max-age=86400"),
        ("/other", "max-age=0", 3, "max-age=0"),
    ] {
        let before = master.asked().len();
        let item = Item { cache_control: Some(says), ..Item::new(content(6, 100), "a1") };
        master.put(path, item);
        for _ in 0..3 {
            let reply = edge.get(path, &[]).await;
            assert_eq!((reply.status, reply.header("cache-control")), (200, told), "{path}");
        }
        assert_eq!(master.asked().len() - before, asked, "{path}");
    }
    for (path, asked) in [("/lists/none", 5), ("/none", 2)] {
        let before = master.asked().len();
        for _ in 0..5 {
            assert_eq!(edge.get(path, &[]).await.status, 404);
        }
        assert_eq!(master.asked().len() - before, asked, "{path}");
    }
    // Another policy holds for what is held already.
    map.generation = 2;
    map.map.projects.values_mut().for_each(|p| p.paths.clear());
    edge.map.send_replace(Some(Arc::new(map)));
    while edge.status()["edge"]["generation"] != 2 {
        tokio::task::yield_now().await;
    }
    let before = master.asked().len();
    assert_eq!(edge.get("/lists/a", &[]).await.header("cache-control"), "max-age=0");
    assert_eq!(master.asked().len() - before, 1);
    edge.stop().await;
}
