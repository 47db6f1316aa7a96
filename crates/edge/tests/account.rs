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

use edge::LogParams;
use edge::params::{Addresses, Format};
use serde_json::Value;
use support::client;
use support::content;
use support::edge::{Edge, HOST};
use support::origin::{Item, Origin};

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
        let text = edge.metrics();
        if total(&text, "cacheboy_edge_asn_requests_total") == 10 {
            break text;
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
async fn a_full_disk_costs_lines_and_no_answer() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let edge = Edge::logging(dir.path(), &[&master], &[json_log(Path::new("/dev/full"))]).await;
    master.put("/a", Item::new(content(1, 10), "a"));
    for _ in 0..100 {
        assert_eq!(edge.get("/a", &[]).await.status, 200);
    }
    while edge.status()["edge"]["logs"][0]["lost_lines"].as_u64() < Some(100) {
        tokio::task::yield_now().await;
    }
    let log = edge.status()["edge"]["logs"][0].clone();
    assert_eq!(log["lines"], 0, "{log}");
    assert!(log["last_error"]["why"].as_str().unwrap().contains("No space"), "{log}");
    edge.stop().await;
}
