//! Access logs: every answer has its line, and lines, metrics and clients agree to the byte.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails"
)]

mod support;

use std::path::Path;
use std::sync::Arc;

use edge::params::{Addresses, Format};
use edge::{LimitParams, LogParams, Params};
use model::Rate;
use serde_json::Value;
use support::client;
use support::edge::{Edge, HOST, node_map};
use support::origin::{Item, Origin};
use support::{BLOCK, content};
use tokio::sync::Semaphore;

fn json_log(path: &Path) -> LogParams {
    LogParams { format: Format::Json, addresses: Addresses::Whole, ..LogParams::new(path.into()) }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Of answers, not of connections.
fn answers(path: &Path) -> Vec<Value> {
    lines(path).into_iter().filter(|line| line.get("kind").is_none()).collect()
}

/// The sum of all samples of a metric.
fn total(metrics: &str, name: &str) -> u64 {
    let of_it = |line: &&str| line.split(['{', ' ']).next() == Some(name);
    let values = metrics.lines().filter(of_it).filter_map(|line| line.rsplit(' ').next());
    values.map(|value| value.parse::<u64>().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_metrics_and_clients_agree_to_the_byte() {
    const LONG: usize = 64 << 20;
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let (json, squid) = (dir.path().join("json.log"), dir.path().join("squid.log"));
    let logs = [json_log(&json), LogParams::new(squid.clone())];
    let edge = Edge::logging(dir.path(), &[&master], &logs).await;
    master.put("/a", Item::new(content(1, 100_000), "a"));
    master.put("/long", Item::new(vec![7; LONG], "l"));
    let mut got = Vec::new();
    for (method, path, fields, status, outcome) in [
        ("GET", "/a", &["User-Agent: \"x\" y"][..], 200, "miss"),
        ("GET", "/a", &[], 200, "hit"),
        ("GET", "/a", &["Range: bytes=7-16"], 206, "hit"),
        ("GET", "/a", &["Range: bytes=0-1,9-10"], 206, "hit"),
        ("GET", "/a", &["If-None-Match: \"a\""], 304, "hit"),
        ("HEAD", "/a", &[], 200, "hit"),
        ("GET", "/none", &[], 404, "absent"),
        ("POST", "/a", &["Content-Length: 0"], 405, "refused"),
        ("GET", "/.well-known/cacheboy/health", &[], 200, "health"),
    ] {
        let reply = client::fetch(edge.address, method, path, HOST, fields).await;
        assert_eq!(reply.status, status, "{method} {path}");
        // A block may still be on its way into the store when its bytes have reached the client.
        edge.wait_filled().await;
        let status = u64::from(status);
        got.push((
            method.to_owned(),
            path.to_owned(),
            status,
            reply.body.len(),
            outcome.to_owned(),
        ));
    }
    // One that goes in the middle.
    let mut gone = edge.send("/long", &[]).await;
    gone.read_body(1_000_000).await;
    drop(gone);
    let text = loop {
        // A page may be made while a sum is being added: the next one has all of it.
        if total(&edge.metrics(), "cacheboy_edge_asn_requests_total") == 10 {
            break edge.metrics();
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(total(&text, "cacheboy_edge_log_lost_lines_total"), 0);
    edge.stop().await;

    // Threads write for themselves: the order within a tenth of a second is not kept.
    let (aborted, whole): (Vec<Value>, Vec<Value>) =
        answers(&json).into_iter().partition(|line| line["is_aborted"] == true);
    let shown = |line: &Value| {
        let text = |key: &str| line[key].as_str().unwrap().to_owned();
        let bytes = usize::try_from(line["bytes"].as_u64().unwrap()).unwrap();
        (text("method"), text("target"), line["status"].as_u64().unwrap(), bytes, text("outcome"))
    };
    let mut found: Vec<_> = whole.iter().map(shown).collect();
    found.sort();
    got.sort();
    assert_eq!(found, got);
    let [aborted] = &aborted[..] else { panic!("{aborted:?}") };
    let (method, target, status, aborted_bytes, outcome) = shown(aborted);
    assert_eq!((&*method, &*target, status, &*outcome), ("GET", "/long", 200, "miss"));
    assert!((1_000_000..LONG).contains(&aborted_bytes), "{aborted}");
    let first = whole.iter().find(|line| line["outcome"] == "miss").unwrap();
    assert_eq!((&first["user_agent"], &first["project"]), (&"\"x\" y".into(), &"videolan".into()));
    assert_eq!(first["client"], "127.0.0.1");

    let bytes = found.iter().map(|line| line.3).sum::<usize>() + aborted_bytes;
    for metric in ["sent", "project_sent", "country_sent", "asn_sent"] {
        let metric = format!("cacheboy_edge_{metric}_bytes_total");
        assert_eq!(total(&text, &metric), bytes as u64, "{metric}");
    }
    for metric in ["requests", "project_requests", "country_requests"] {
        assert_eq!(total(&text, &format!("cacheboy_edge_{metric}_total")), 10, "{metric}");
    }
    let squid = std::fs::read_to_string(&squid).unwrap();
    assert_eq!(squid.lines().count(), 10);
    assert!(squid.lines().all(|line| line.split_ascii_whitespace().count() == 11), "{squid}");
    assert!(
        squid.contains(&format!(" 127.0.0.0 TCP_HIT/206 10 GET http://{HOST}/a - ")),
        "{squid}"
    );
    assert!(squid.contains(" TCP_MISS_ABORTED/200 "), "{squid}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_line_is_lost_when_logs_are_rotated() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let (path, first, second) =
        (dir.path().join("a"), dir.path().join("a.1"), dir.path().join("a.2"));
    let edge = Edge::logging(dir.path(), &[&master], &[json_log(&path)]).await;
    master.put("/a", Item::new(content(1, 10), "a"));
    for n in 0..300 {
        assert_eq!(edge.get("/a", &[]).await.status, 200);
        // By renaming alone, and with a signal.
        if n == 100 {
            std::fs::rename(&path, &first).unwrap();
        }
        if n == 200 {
            while !path.exists() {
                tokio::task::yield_now().await;
            }
            std::fs::rename(&path, &second).unwrap();
            edge.reopen_logs();
        }
    }
    edge.stop().await;
    let counts = [&first, &second, &path].map(|path| answers(path).len());
    assert_eq!(counts.iter().sum::<usize>(), 300, "{counts:?}");
    assert!(counts[0] > 100, "{counts:?}");
}

/// Whoever serves does not notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_written_costs_lines_and_no_answer() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let folder = dir.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    let paths = [Path::new("/dev/full"), &folder];
    let edge = Edge::logging(dir.path(), &[&master], &paths.map(json_log)).await;
    master.put("/a", Item::new(content(1, 10), "a"));
    for _ in 0..100 {
        assert_eq!(edge.get("/a", &[]).await.status, 200);
    }
    for (number, why) in ["No space", "Is a directory"].into_iter().enumerate() {
        while edge.status()["edge"]["logs"][number]["lost_lines"].as_u64() < Some(100) {
            tokio::task::yield_now().await;
        }
        let log = edge.status()["edge"]["logs"][number].clone();
        assert_eq!(log["lines"], 0, "{log}");
        assert!(log["last_error"]["why"].as_str().unwrap().contains(why), "{log}");
    }
    edge.stop().await;
}

/// The lines are where it leads, also when it is to lead elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_may_be_a_symbolic_link() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let [path, new, first, second] = ["log", "new", "first", "second"].map(|n| dir.path().join(n));
    std::os::unix::fs::symlink(&first, &path).unwrap();
    let edge = Edge::logging(dir.path(), &[&master], &[json_log(&path)]).await;
    master.put("/a", Item::new(content(1, 10), "a"));
    assert_eq!(edge.get("/a", &[]).await.status, 200);
    while std::fs::metadata(&first).map_or(0, |about| about.len()) == 0 {
        tokio::task::yield_now().await;
    }
    std::os::unix::fs::symlink(&second, &new).unwrap();
    std::fs::rename(&new, &path).unwrap();
    while !second.exists() {
        tokio::task::yield_now().await;
    }
    assert_eq!(edge.get("/a", &[]).await.status, 200);
    edge.stop().await;
    assert_eq!((answers(&first).len(), answers(&second).len()), (1, 1));
}

/// Target, outcome and upstream of each line, and whether that was a parent.
fn asked(path: &Path) -> Vec<(String, String, String, bool)> {
    let shown = |line: Value| {
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        (text("target"), text("outcome"), text("upstream"), line["is_from_parent"] == true)
    };
    let mut shown: Vec<_> = answers(path).into_iter().map(shown).collect();
    shown.sort();
    shown
}

fn asked_of<'a>(
    expected: impl IntoIterator<Item = (&'a str, &'a str, &'a str, bool)>,
) -> Vec<(String, String, String, bool)> {
    let owned = expected.into_iter().map(|(target, outcome, upstream, is_parent)| {
        (target.to_owned(), outcome.to_owned(), upstream.to_owned(), is_parent)
    });
    let mut expected: Vec<_> = owned.collect();
    expected.sort();
    expected
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_names_the_master_that_was_asked() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let (json, squid) = (dir.path().join("json.log"), dir.path().join("squid.log"));
    let logs = [json_log(&json), LogParams::new(squid.clone())];
    let edge = Edge::logging(dir.path(), &[&master], &logs).await;
    let stale = |etag| Item { cache_control: Some("max-age=0"), ..Item::new(content(1, 9), etag) };
    master.put("/a", Item::new(content(1, 3 * BLOCK), "a"));
    master.put("/old", stale("o"));
    master.put("/own", Item { cache_control: Some("private"), ..Item::new(content(2, 9), "p") });
    master.put("/bad", Item { errors: [500].into(), ..Item::new(content(3, 9), "b") });
    let endless = b"HTTP/1.1 200 X\r\nCache-Control: max-age=60\r\nETag: \"e\"\r\n\r\nabc".to_vec();
    master.put("/endless", Item { raw: [endless].into(), ..Item::new(content(4, 9), "e") });
    let expected = [
        ("/a", "Range: bytes=0-9", "miss", "m0"),
        ("/a", "Range: bytes=5-14", "hit", ""),
        ("/a", "", "partial", "m0"),
        ("/a", "", "hit", ""),
        ("/old", "", "miss", "m0"),
        ("/old", "", "revalidated", "m0"),
        ("/own", "", "pass", "m0"),
        ("/none", "", "absent", "m0"),
        ("/bad", "", "error", "m0"),
    ];
    for (path, field, ..) in expected {
        let fields: &[&str] = if field.is_empty() { &[] } else { &[field] };
        edge.get(path, fields).await;
        edge.wait_filled().await;
    }
    let endless = format!("GET /endless HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
    assert!(client::exchange(edge.address, &endless).await.contains("abc"));
    edge.stop().await;
    let expected = expected.map(|(path, _, outcome, upstream)| (path, outcome, upstream, false));
    let endless = ("/endless", "miss", "m0", false);
    assert_eq!(asked(&json), asked_of(expected.into_iter().chain([endless])));
    let squid = std::fs::read_to_string(&squid).unwrap();
    for (outcome, peer) in [("TCP_HIT/", "NONE/-"), ("TCP_REFRESH_UNMODIFIED/", "DIRECT/m0")] {
        let line = squid.lines().find(|line| line.contains(outcome)).unwrap();
        assert_eq!(line.split_ascii_whitespace().nth(8), Some(peer), "{squid}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_names_the_parent_that_was_asked_and_the_master_when_it_is_gone() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let path = dir.path().join("json.log");
    let map = node_map(1, &[master.address]);
    let parent = Edge::named("parent1", &dir.path().join("p"), map.clone()).await;
    let mut map = map;
    let mut node = nodemap::testing::node(&["127.0.0.1"]);
    node.port = parent.address.port();
    map.map.nodes.insert("parent1".parse().unwrap(), node);
    map.map.pools.insert("tier".parse().unwrap(), [("parent1".parse().unwrap(), 100)].into());
    for project in map.map.projects.values_mut() {
        project.parents = Some("tier".parse().unwrap());
    }
    let change = |params: &mut Params| params.logs = vec![json_log(&path)];
    let edge = Edge::with(&dir.path().join("e"), map, change).await;
    master.put("/a", Item::new(content(1, 9), "a"));
    master.put("/b", Item::new(content(2, 9), "b"));
    assert_eq!(edge.get("/a", &[]).await.status, 200);
    parent.stop().await;
    assert_eq!(edge.get("/b", &[]).await.status, 200);
    edge.stop().await;
    let expected = [("/a", "miss", "parent1", true), ("/b", "miss", "m0", false)];
    assert_eq!(asked(&path), asked_of(expected));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_has_the_word_of_the_limit_that_held_its_answer_back() {
    // Enough that copies are counted.
    const LONG: usize = 10 << 20;
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let (path, opens) = (dir.path().join("json.log"), Arc::new(Semaphore::new(0)));
    let change = |params: &mut Params| {
        params.logs = vec![json_log(&path)];
        params.limits = LimitParams {
            requests_per_client: Some(1),
            copies_per_day: Some(1),
            copies_rate: Rate(10_000_000_000),
            ..LimitParams::default()
        };
    };
    let edge = Edge::with(dir.path(), node_map(1, &[master.address]), change).await;
    master.put("/long", Item::new(content(1, LONG), "l"));
    for status in [200, 200, 429] {
        assert_eq!(edge.get("/long", &[]).await.status, status);
    }
    let gate = Some((1, Arc::clone(&opens)));
    master.put("/a", Item { gate, ..Item::new(content(2, 9), "a") });
    let mut asked = vec![edge.send("/a", &[]).await];
    // One has the turn, and so many may wait for it.
    for waiting in 1..=4u64 {
        while edge.status()["edge"]["guard"]["waited"] != waiting - 1 {
            tokio::task::yield_now().await;
        }
        asked.push(edge.send("/a", &[]).await);
    }
    while edge.status()["edge"]["guard"]["waited"] != 4 {
        tokio::task::yield_now().await;
    }
    assert_eq!(edge.get("/a", &[]).await.status, 429);
    opens.add_permits(1);
    for asked in asked {
        assert_eq!(asked.reply().await.status, 200);
    }
    edge.stop().await;
    let shown = |line: Value| {
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        (text("target"), line["status"].as_u64().unwrap(), text("outcome"), text("limit"))
    };
    let mut found: Vec<_> = answers(&path).into_iter().map(shown).collect();
    found.sort();
    let found: Vec<_> = found
        .iter()
        .map(|(path, status, out, limit)| (&**path, *status, &**out, &**limit))
        .collect();
    assert_eq!(
        found[found.len() - 4..],
        [
            ("/a", 429, "refused", "too-many"),
            ("/long", 200, "hit", "repeat"),
            ("/long", 200, "miss", ""),
            ("/long", 429, "refused", "repeat"),
        ]
    );
    assert!(found[..5].iter().all(|line| (line.1, line.3) == (200, "")), "{found:?}");
    assert_eq!(found.len(), 9);
}
