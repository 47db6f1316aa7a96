//! What a node sends at most to some: caps of the node map, over real sockets. How exactly they hold
//! is shown with time as an argument, in `serve::pace`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use edge::LogParams;
use edge::params::Format;
use model::{Name, Rate};
use nodemap::{Bill, Cap};
use serde_json::Value;
use support::edge::{Edge, HOST, OTHER_HOST, two_projects};
use support::origin::{Item, Origin};
use support::{assert_same, client, content};

const MBIT: u64 = 1_000_000;

fn cap(rate: u64, project: &str) -> Cap {
    let projects: Vec<Name> = vec![project.parse().unwrap()];
    Cap { rate: Rate(rate), projects, asns: Vec::new(), countries: Vec::new() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_byte_of_a_project_goes_through_its_caps_and_no_other() {
    const LENGTH: usize = 300_000;
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(7, LENGTH);
    master.put("/a", Item::new(body.clone(), "a1"));
    let mut map = two_projects(&[master.address], &[master.address]);
    let mut node = nodemap::testing::node(&["192.0.2.1"]);
    node.caps = vec![cap(20 * MBIT, "videolan"), cap(30 * MBIT, "elsewhere")];
    node.bill = Some(Bill::P95(Rate(1000 * MBIT)));
    map.map.nodes.insert("edge1".parse().unwrap(), node);
    let log = dir.path().join("log");
    let edge = Edge::with(dir.path(), map, |params| {
        params.logs = vec![LogParams { format: Format::Json, ..LogParams::new(log.clone()) }];
    })
    .await;
    // From the master, from its blocks, and from a file.
    for _ in 0..3 {
        let reply = edge.get("/a", &[]).await;
        assert_same(&reply.body, &body);
    }
    let other = client::fetch(edge.address, "GET", "/a", OTHER_HOST, &[]).await;
    assert_same(&other.body, &body);
    let status = edge.status();
    let granted = |at: usize| status["edge"]["caps"][at]["granted_bytes"].as_u64();
    assert_eq!((granted(0), granted(1)), (Some(3 * 300_000), Some(0)), "{status}");
    let bill = &status["edge"]["bill"];
    assert_eq!((&bill["billing"], &bill["commit"]), (&"p95".into(), &"1 Gbit/s".into()));
    assert_eq!(bill["spent"], false, "{bill}");
    // Refusals are no content: they wait for nothing.
    let refused = client::fetch(edge.address, "POST", "/a", HOST, &[]).await;
    assert_eq!(refused.status, 405);
    edge.stop().await;
    let text = std::fs::read_to_string(&log).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let answers = lines.filter(|line| line.get("kind").is_none());
    let mut words: Vec<_> = answers
        .map(|line| {
            let limit = line["limit"].as_str().unwrap_or_default().to_owned();
            (line["status"].as_u64().unwrap(), limit)
        })
        .collect();
    words.sort();
    let expected = [(200, ""), (200, "paced"), (200, "paced"), (200, "paced"), (405, "")];
    assert_eq!(words, expected.map(|(status, limit)| (status, limit.to_owned())));
}
