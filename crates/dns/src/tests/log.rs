//! The log of queries, and what is sampled for the metrics.

use serde_json::{Value, json};
use usage::write::Addresses;

use super::*;
use crate::LogParams;

fn log(path: &Path) -> LogParams {
    LogParams { path: path.to_owned(), sample: 1, addresses: Addresses::Truncated }
}

/// The lines of a log, without their times.
fn lines(path: &Path) -> Vec<Value> {
    let line = |line: &str| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        let at_ms = value.as_object_mut().unwrap().remove("at_ms").unwrap();
        assert!(at_ms.as_u64().unwrap() > 1_500_000_000_000, "{line}");
        value
    };
    std::fs::read_to_string(path).unwrap().lines().map(line).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_query_has_a_line_that_says_what_decided() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("queries.log");
    // One thread: lines in the order of the queries.
    let params = |params| Params { log: Some(log(&path)), udp_threads: Some(1), ..params };
    let dns = Running::start_with(Some(node_map(7, 1)), params).await;
    let socket = dns.udp().await;
    ask_udp(&socket, &query("p.cdn.example", Some([192, 0, 2]))).await;
    ask_udp(&socket, &query("P.cdn.example", None)).await;
    ask_udp(&socket, &query("x.cdn.example", None)).await;
    ask_udp(&socket, &query("elsewhere.example", Some([203, 0, 113]))).await;
    let mut stream = dns.tcp().await;
    stream.write_all(&framed(&query("www.static.example", None))).await.unwrap();
    read_tcp(&mut stream).await;
    drop(stream);
    dns.stop().await;
    let mut found = lines(&path);
    let over_tcp = found.iter().position(|line| line["transport"] == "tcp").unwrap();
    assert_eq!(
        found.remove(over_tcp),
        json!({
            "client": "127.0.0.0", "transport": "tcp", "name": "www.static.example.", "type": "A",
            "answer": "fixed", "rcode": 0, "size": 63
        })
    );
    assert_eq!(
        found,
        [
            json!({
                "client": "127.0.0.0", "transport": "udp", "name": "p.cdn.example.", "type": "A",
                "ecs": "192.0.2.0/24", "project": "p", "evidence": "country", "pool": "europe",
                "nodes": ["de"], "answer": "steered", "rcode": 0, "scope": 24, "size": 69
            }),
            json!({
                "client": "127.0.0.0", "transport": "udp", "name": "p.cdn.example.", "type": "A",
                "project": "p", "evidence": "default", "pool": "world", "nodes": ["us"],
                "answer": "steered", "rcode": 0, "size": 58
            }),
            json!({
                "client": "127.0.0.0", "transport": "udp", "name": "x.cdn.example.", "type": "A",
                "answer": "nxdomain", "rcode": 3, "size": 108
            }),
            json!({
                "client": "127.0.0.0", "transport": "udp", "name": "elsewhere.example.", "type": "A",
                "ecs": "203.0.113.0/24", "answer": "refused", "rcode": 5, "size": 63
            }),
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sample_is_a_part_and_lines_without_room_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("queries.log");
    let params = |params| Params { log: Some(LogParams { sample: 10, ..log(&path) }), ..params };
    let dns = Running::start_with(Some(node_map(7, 1)), params).await;
    let socket = dns.udp().await;
    for _ in 0..2000 {
        ask_udp(&socket, &query("p.cdn.example", Some([192, 0, 2]))).await;
    }
    // Which evidence decided is sampled whether there is a log or not: of 2000 answers, none is left
    // out by chance once in 10^13 times.
    let metrics = dns.context.metrics.render();
    let count = |evidence: &str| {
        let name = format!(
            "cacheboy_dns_evidence_samples_total{{evidence=\"{evidence}\",project=\"p\"}} "
        );
        let value = metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap();
        value.parse::<u64>().unwrap()
    };
    assert!((1..100).contains(&count("country")), "{metrics}");
    assert_eq!(count("default"), 0);
    dns.stop().await;
    // Expected are 200, with a standard deviation of 13.
    let count = lines(&path).len();
    assert!((100..300).contains(&count), "{count}");

    let params = |params| Params { log: Some(log(Path::new("/dev/full"))), ..params };
    let dns = Running::start_with(Some(node_map(7, 1)), params).await;
    ask_udp(&dns.udp().await, &query("p.cdn.example", None)).await;
    let metrics = dns.context.metrics.clone();
    let status = dns.context.status.clone();
    dns.stop().await;
    let lost = "cacheboy_dns_log_lost_lines_total{file=\"/dev/full\"} 1";
    assert!(metrics.render().lines().any(|line| line == lost), "{}", metrics.render());
    let error = &status.show()["dns"]["log"]["last_error"]["why"];
    assert!(error.as_str().unwrap().contains("space"), "{error}");
}
