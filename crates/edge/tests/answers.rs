//! Answers: errors, staleness, refusals, preconditions and ranges.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::ByteCount;
use support::client;
use support::edge::{Edge, HOST, node_map};
use support::origin::{Item, Origin};
use support::{BLOCK, assert_same, content};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

const LENGTH: usize = 3 * BLOCK + 321;

/// An object that is stale at once.
fn stale(body: &[u8], etag: &str) -> Item {
    Item { cache_control: Some("max-age=0"), ..Item::new(body.to_vec(), etag) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_object_is_confirmed_with_its_validator() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(1, LENGTH);
    master.put("/a", stale(&body, "a1"));
    let edge = Edge::start(dir.path(), &[&master]).await;
    edge.get("/a", &[]).await;
    let again = edge.get("/a", &[]).await;
    assert_same(&again.body, &body);
    assert_eq!(again.header("cache-status"), "edge1; fwd=stale; fwd-status=304");
    let asked = master.asked();
    assert_eq!((asked.len(), asked[1].status), (2, 304));
    assert_eq!(asked[1].headers["if-none-match"], "\"a1\"");

    let changed = content(2, LENGTH - 5);
    master.put("/a", stale(&changed, "a2"));
    let new = edge.get("/a", &[]).await;
    assert_eq!((new.status, new.header("etag")), (200, "\"a2\""));
    assert_eq!(new.header("cache-status"), "edge1; fwd=stale; fwd-status=200; stored");
    assert_same(&new.body, &changed);
    assert_eq!(master.asked().len(), 3, "one answer told and brought it");
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_never_replaces_what_is_held() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(3, LENGTH);
    for status in [404, 410, 500, 503] {
        let path = format!("/{status}");
        master.put(&path, stale(&body, "a1"));
    }
    let edge = Edge::start(dir.path(), &[&master]).await;
    for status in [404, 410, 500, 503] {
        let path = format!("/{status}");
        edge.get(&path, &[]).await;
        master.change(&path, |item| item.errors = [status].into());
        let reply = edge.get(&path, &[]).await;
        assert_eq!(reply.status, 200, "{status}");
        assert_same(&reply.body, &body);
        let cache_status = reply.header("cache-status");
        let begins = format!("edge1; fwd=stale; fwd-status={status}; ttl=");
        assert!(cache_status.starts_with(&begins), "{cache_status}");
        assert!(cache_status.ends_with("; detail=stale-on-error"), "{cache_status}");
    }
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_status_says_what_the_master_said() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(20, LENGTH);
    for path in ["/whole", "/part", "/broken"] {
        master.put(path, Item::new(body.clone(), "a1"));
    }
    master.change("/broken", |item| item.errors = [500].into());
    let edge = Edge::start(dir.path(), &[&master]).await;
    for (path, range, want) in [
        ("/whole", None, "edge1; fwd=uri-miss; fwd-status=200; stored"),
        ("/part", Some("Range: bytes=0-9"), "edge1; fwd=uri-miss; fwd-status=206; stored"),
        ("/part", Some("Range: bytes=0-99999"), "edge1; fwd=partial; fwd-status=206; ttl=3600"),
        ("/broken", None, "edge1; fwd=uri-miss; fwd-status=500; detail=error"),
        ("/none", None, "edge1; fwd=uri-miss; fwd-status=404; detail=error"),
        ("/none", None, "edge1; fwd=uri-miss; fwd-status=404; detail=error"),
        ("/none", None, "edge1; hit; detail=negative"),
    ] {
        let fields: Vec<&str> = range.into_iter().collect();
        let reply = edge.get(path, &fields).await;
        assert_eq!(reply.header("cache-status").replace("3599", "3600"), want, "{path}");
    }
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_masters_are_away_held_content_is_served_and_the_rest_is_a_clear_error() {
    let (dir, mut master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(4, LENGTH);
    master.put("/stale", stale(&body, "a1"));
    master.put("/part", Item::new(body.clone(), "b1"));
    master.put("/other", Item::new(body.clone(), "c1"));
    let edge = Edge::start(dir.path(), &[&master]).await;
    edge.get("/stale", &[]).await;
    edge.range("/part", 0, 99).await;
    master.down().await;

    for _ in 0..3 {
        let reply = edge.get("/stale", &[]).await;
        assert_eq!(reply.status, 200);
        assert_same(&reply.body, &body);
    }
    assert_same(&edge.range("/part", 0, 99).await.body, &body[..100]);
    for path in ["/other", "/part"] {
        let reply = edge.get(path, &[]).await;
        assert_eq!(reply.status, 502, "{path}");
        assert!(reply.header("cache-status").starts_with("edge1; fwd="), "{:?}", reply.headers);
        let proxy = reply.header("proxy-status");
        assert!(proxy.starts_with("edge1; error=destination_unavailable"), "{proxy}");
    }
    master.up().await;
    let reply = edge.get("/part", &[]).await;
    assert_eq!(reply.status, 200, "it recovers by itself");
    assert_same(&reply.body, &body);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_does_not_answer_is_a_504() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let never = Some((0, Arc::new(Semaphore::new(0))));
    master.put("/a", Item { gate: never, ..Item::new(content(5, 10), "a1") });
    let edge = Edge::start(dir.path(), &[&master]).await;
    let reply = edge.get("/a", &[]).await;
    assert_eq!(reply.status, 504);
    let proxy = reply.header("proxy-status");
    assert!(proxy.contains("error=http_response_timeout"), "{proxy}");
    assert!(proxy.contains("m0"), "{proxy}");
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_error_is_for_one_client_and_another_asks_again() {
    for status in [404, 500] {
        let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
        let body = content(6, LENGTH);
        let opens = Arc::new(Semaphore::new(0));
        let item = Item {
            errors: [status].into(),
            gate: Some((0, Arc::clone(&opens))),
            ..Item::new(body.clone(), "a1")
        };
        master.put("/a", item);
        let edge = Arc::new(Edge::start(dir.path(), &[&master]).await);
        let mut crowd = JoinSet::new();
        for _ in 0..50 {
            let edge = Arc::clone(&edge);
            crowd.spawn(async move { edge.get("/a", &[]).await });
        }
        master.wait_asked(1).await;
        while edge.status()["edge"]["connections"] != 50 {
            tokio::task::yield_now().await;
        }
        opens.add_permits(2);
        let mut statuses = BTreeMap::new();
        for reply in crowd.join_all().await {
            *statuses.entry(reply.status).or_insert(0) += 1;
            if reply.status == 200 {
                assert_same(&reply.body, &body);
            }
        }
        assert_eq!(statuses, [(200, 49), (status, 1)].into());
        assert_eq!(master.asked().len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_equal_errors_are_remembered_and_a_lagging_master_hides_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (lagging, good) = (Origin::start().await, Origin::start().await);
    let body = content(7, LENGTH);
    good.put("/new", Item::new(body.clone(), "a1"));
    let edge = Edge::start(dir.path(), &[&lagging, &good]).await;
    assert_same(&edge.get("/new", &[]).await.body, &body);

    for _ in 0..5 {
        assert_eq!(edge.get("/nowhere", &[]).await.status, 404);
    }
    assert_eq!((lagging.asked().len(), good.asked().len()), (2, 2), "once for each master");
    let status = edge.status();
    let counted = ["absent", "negative", "error"].map(|word| &status["edge"]["requests"][word]);
    assert_eq!(counted, [1, 4, 0], "what nobody has is no trouble");
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let edge = Edge::start(dir.path(), &[&master]).await;
    for (method, host, status) in
        [("GET", "other.example", 421), ("POST", HOST, 405), ("FROB", HOST, 501)]
    {
        let reply = client::fetch(edge.address, method, "/a", host, &["Content-Length: 0"]).await;
        assert_eq!(reply.status, status, "{method} {host}");
    }
    let reply = client::fetch(edge.address, "PUT", "/a", HOST, &["Content-Length: 0"]).await;
    assert_eq!(reply.header("allow"), "GET, HEAD");
    assert_eq!(master.asked().len(), 0);
    edge.get("/a", &[]).await;
    let mark = master.asked()[0].headers["cdn-loop"].clone();
    let looped = edge.get("/b", &[&format!("CDN-Loop: other.example, {mark}")]).await;
    assert_eq!((looped.status, master.asked().len()), (508, 1));
    assert_eq!(looped.header("proxy-status"), "edge1; error=proxy_loop_detected");
    assert_eq!(edge.get("/%zz", &[]).await.status, 400);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_says_whether_to_come_here() {
    let dir = tempfile::tempdir().unwrap();
    let edge = Edge::with_map(dir.path(), None, model::ByteCount(1 << 20)).await;
    let path = "/.well-known/cacheboy/health";
    let before = client::fetch(edge.address, "GET", path, "any.example", &[]).await;
    assert_eq!((before.status, &before.body[..]), (503, &b"no node map yet\n"[..]));
    let content = edge.get("/a", &[]).await;
    assert_eq!((content.status, &content.body[..]), (503, &b"no node map yet\n"[..]));
    assert_eq!(content.header("retry-after"), "5");
    edge.map.send_replace(Some(Arc::new(support::edge::node_map(9, &[]))));
    while edge.status()["edge"]["generation"] != 9 {
        tokio::task::yield_now().await;
    }
    let up = client::fetch(edge.address, "GET", path, "192.0.2.1", &[]).await;
    assert_eq!((up.status, &up.body[..]), (200, &b"up\n"[..]));
    let head = client::fetch(edge.address, "HEAD", path, "192.0.2.1", &[]).await;
    assert_eq!(head.status, 200);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn head_preconditions_and_many_ranges() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(8, LENGTH);
    master.put("/a", Item::new(body.clone(), "a1"));
    let edge = Edge::start(dir.path(), &[&master]).await;
    let head = client::fetch(edge.address, "HEAD", "/a", HOST, &[]).await;
    assert_eq!((head.status, head.header("content-length")), (200, LENGTH.to_string().as_str()));
    assert_eq!(head.header("accept-ranges"), "bytes");

    let not_modified = edge.get("/a", &["If-None-Match: \"x\", \"a1\""]).await;
    assert_eq!(not_modified.status, 304);
    let failed = edge.get("/a", &["If-Match: \"x\""]).await;
    assert_eq!(failed.status, 412);
    let part = edge.get("/a", &["Range: bytes=5-9", "If-Range: \"a1\""]).await;
    assert_eq!((part.status, &part.body[..]), (206, &body[5..10]));
    let whole = edge.get("/a", &["Range: bytes=5-9", "If-Range: \"old\""]).await;
    assert_eq!(whole.status, 200);
    assert_same(&whole.body, &body);
    let outside = edge.get("/a", &[&format!("Range: bytes={LENGTH}-")]).await;
    assert_eq!(outside.status, 416);
    assert_eq!(outside.header("content-range"), format!("bytes */{LENGTH}"));

    let last = LENGTH - 10;
    let range = format!("Range: bytes=0-9,{BLOCK}-{},{last}-", BLOCK + 9);
    let parts = edge.get("/a", &[&range]).await;
    assert_eq!((parts.status, parts.complete), (206, true));
    let kind = parts.header("content-type");
    let boundary = kind.strip_prefix("multipart/byteranges; boundary=").unwrap().trim_matches('"');
    for (first, end) in [(0, 10), (BLOCK, BLOCK + 10), (last, LENGTH)] {
        let mut expected = format!("bytes {first}-{}/{LENGTH}\r\n\r\n", end - 1).into_bytes();
        expected.extend_from_slice(&body[first..end]);
        expected.extend_from_slice(format!("\r\n--{boundary}").as_bytes());
        assert!(parts.body.windows(expected.len()).any(|w| w == expected), "{first}");
    }
    assert_eq!(master.sent(), LENGTH as u64, "nothing was asked twice");
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_of_a_cold_object_that_has_no_such_bytes() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    master.put("/short", Item::new(b"0123456789".to_vec(), "a1"));
    master.put("/empty", Item::new(Vec::new(), "b1"));
    let edge = Edge::start(dir.path(), &[&master]).await;
    let reply = edge.range("/short", BLOCK, BLOCK + 1).await;
    assert_eq!((reply.status, reply.header("content-range")), (416, "bytes */10"));
    assert_eq!(edge.get("/short", &[]).await.body, b"0123456789");
    let head = client::fetch(edge.address, "HEAD", "/empty", HOST, &[]).await;
    assert_eq!((head.status, head.header("content-length")), (200, "0"));
    let empty = edge.get("/empty", &[]).await;
    assert_eq!((empty.status, empty.body.len()), (200, 0));
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_not_be_kept_is_passed_on_as_the_client_asked() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(9, LENGTH);
    let private = Item { cache_control: Some("no-store"), ..Item::new(body.clone(), "a1") };
    master.put("/a", private);
    let edge = Edge::start(dir.path(), &[&master]).await;
    for round in 1..=2 {
        let reply = edge.get("/a", &["X-Forwarded-For: 192.0.2.1"]).await;
        assert_eq!(reply.status, 200);
        assert_same(&reply.body, &body);
        assert!(reply.header("cache-status").contains("detail=no-store"), "{:?}", reply.headers);
        assert_eq!(master.asked().len(), round);
    }
    let part = edge.range("/a", 10, 19).await;
    assert_eq!((part.status, &part.body[..]), (206, &body[10..20]));
    assert_eq!(master.asked()[2].range(), Some("bytes=10-19"), "exactly what the client asked");
    assert!(master.asked().iter().all(|a| !a.headers.contains_key("x-forwarded-for")));
    assert_eq!(edge.status()["edge"]["stores"][0]["objects"], 0);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_validator_one_answer_is_one_representation() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let (old, new) = (content(10, LENGTH), content(11, LENGTH));
    let nameless = |body: &[u8]| Item { etag: None, ..Item::new(body.to_vec(), "") };
    master.put("/a", nameless(&old));
    let edge = Edge::start(dir.path(), &[&master]).await;
    assert_same(&edge.range("/a", 0, 99).await.body, &old[..100]);
    master.put("/a", nameless(&new));
    let span = edge.range("/a", 50, BLOCK + 50).await;
    assert_same(&span.body, &new[50..=BLOCK + 50]);
    let whole = edge.get("/a", &[]).await;
    assert_same(&whole.body, &new);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_object_is_not_held_back_by_a_master_that_hangs() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(12, LENGTH);
    master.put("/a", stale(&body, "a1"));
    let edge = Edge::start(dir.path(), &[&master]).await;
    edge.get("/a", &[]).await;
    let opens = Arc::new(Semaphore::new(0));
    master.change("/a", |item| item.gate = Some((0, Arc::clone(&opens))));
    for _ in 0..2 {
        let reply = edge.get("/a", &[]).await;
        assert_same(&reply.body, &body);
        assert!(reply.header("cache-status").contains("stale-on-error"), "{:?}", reply.headers);
    }
    assert_eq!(master.asked().len(), 2, "one question, still open");
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_stale_is_served_while_it_is_revalidated_where_it_says_so() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let (old, new) = (content(13, LENGTH), content(14, LENGTH));
    let control = Some("max-age=0, stale-while-revalidate=600");
    master.put("/a", Item { cache_control: control, ..Item::new(old.clone(), "a1") });
    let edge = Edge::start(dir.path(), &[&master]).await;
    edge.get("/a", &[]).await;
    master.put("/a", Item { cache_control: control, ..Item::new(new.clone(), "a2") });
    let reply = edge.get("/a", &[]).await;
    assert_same(&reply.body, &old);
    assert!(reply.header("cache-status").contains("stale-while-revalidate"), "{:?}", reply.headers);
    while edge.status()["edge"]["questions_in_flight"] != 0 {
        tokio::task::yield_now().await;
    }
    assert_same(&edge.get("/a", &[]).await.body, &new);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_not_be_kept_takes_out_only_what_it_replaces() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(30, LENGTH);
    let edge = Edge::start(dir.path(), &[&master]).await;
    for (path, etag, objects) in [("/same", "a1", 1), ("/other", "a2", 1)] {
        master.put(path, stale(&body, "a1"));
        edge.get(path, &[]).await;
        let head = format!("HTTP/1.1 200 X\r\nETag: \"{etag}\"\r\nCache-Control: no-store\r\n");
        let head = format!("{head}Content-Length: {LENGTH}\r\n\r\n");
        let answer = [head.as_bytes(), &body].concat();
        master.change(path, |item| item.raw = [answer].into());
        let reply = edge.get(path, &[]).await;
        assert_same(&reply.body, &body);
        assert!(reply.header("cache-status").ends_with("; detail=no-store"));
        // What was held under another tag goes, off the workers.
        while edge.status()["edge"]["stores"][0]["objects"] != objects {
            tokio::task::yield_now().await;
        }
    }
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_are_kept_served_again_and_completed() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(31, LENGTH);
    master.put("/a", Item::new(body.clone(), "a1"));
    let edge = Edge::start(dir.path(), &[&master]).await;
    let tail = edge.get("/a", &["Range: bytes=-5"]).await;
    assert_eq!((tail.status, &tail.body[..]), (206, &body[LENGTH - 5..]));
    let before = master.asked().len();
    for (range, bytes) in [
        ("-5", LENGTH - 5..LENGTH),
        ("-1", LENGTH - 1..LENGTH),
        (&*format!("{}-", LENGTH - 4), LENGTH - 4..LENGTH),
        (&*format!("{}-{}", LENGTH - 4, LENGTH - 2), LENGTH - 4..LENGTH - 1),
    ] {
        let part = edge.get("/a", &[&format!("Range: bytes={range}")]).await;
        assert_eq!((part.status, &part.body[..]), (206, &body[bytes]), "{range}");
    }
    assert_eq!(master.asked().len(), before, "served from the part that is held");
    assert_same(&edge.get("/a", &[]).await.body, &body);
    let asked = master.asked();
    assert!(asked[before..].iter().all(|a| a.range().is_some()), "only what was missing");
    assert!(asked[before..].iter().all(|a| a.headers["if-match"] == "\"a1\""));
    // Where the blocks of an unknown length begin is unknown too: less than one comes twice.
    assert!(master.sent() < (LENGTH + BLOCK) as u64);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authorities_of_certificates_are_answered_where_certificates_are_ordered() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let path = "/.well-known/acme-challenge/token-1_a";
    master.put(path, Item::new(b"the master's own\n".to_vec(), "a1"));
    let thumbprint = "LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0";
    let acme = nodemap::Acme { thumbprint: Some(thumbprint.into()), ..nodemap::Acme::default() };
    for (tls, answer) in [
        (nodemap::ProjectTls::Files, "the master's own\n".to_owned()),
        (nodemap::ProjectTls::Acme, format!("token-1_a.{thumbprint}\n")),
    ] {
        let mut map = node_map(1, &[master.address]);
        map.acme = Some(acme.clone());
        map.map.projects.values_mut().for_each(|project| project.tls = tls);
        let folder = dir.path().join(tls.as_str());
        std::fs::create_dir(&folder).unwrap();
        let edge = Edge::with_map(&folder, Some(map), ByteCount(1 << 30)).await;
        assert_same(&edge.get(path, &[]).await.body, answer.as_bytes());
        if tls == nodemap::ProjectTls::Acme {
            let asked = master.asked().len();
            for bad in ["", "a.b", "%3Cscript%3E", &"a".repeat(200)] {
                let reply = edge.get(&format!("/.well-known/acme-challenge/{bad}"), &[]).await;
                assert_eq!(reply.status, 404, "{bad}");
            }
            assert_eq!(master.asked().len(), asked, "nobody else is asked");
        }
        edge.stop().await;
    }
}
