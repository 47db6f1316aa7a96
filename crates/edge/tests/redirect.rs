//! Clients that are sent to another node (302), those that are not, and other nodes named beside content.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[allow(dead_code, unreachable_pub, clippy::indexing_slicing, reason = "of the tests of `serve`")]
#[path = "../../serve/tests/support/frames.rs"]
mod frames;
mod support;

use std::path::Path;
use std::sync::Arc;

use edge::LogParams;
use edge::params::Format;
use locate::Evidence;
use locate::mmdb_write::Writer;
use model::{ByteCount, CountryCode, Name, NodeState, State};
use nodemap::admin::Node;
use nodemap::{Bill, HostPattern, NodeMap, NodeStates, SteeringMap};
use serde_json::Value;
use support::client;
use support::edge::{Edge, HOST, node_map};
use support::origin::{Item, Origin};
use support::{BLOCK, assert_same, content};
use tokio::io::AsyncWriteExt;

const LENGTH: usize = 3 * BLOCK + 21;
/// The steered name of the project.
const NAME: &str = "videolan.cdn.example";

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// A map of three nodes that are up: `far` for everybody, `near` and `next` for Australia.
fn map_of(generation: u64, master: &Origin) -> NodeMap {
    let mut map = node_map(generation, &[master.address]);
    for (node, address) in [("far", "192.0.2.1"), ("near", "192.0.2.2"), ("next", "192.0.2.3")] {
        let mut node_of = nodemap::testing::node(&[address]);
        node_of.country = (node == "near").then(|| "AU".parse().unwrap());
        map.map.nodes.insert(name(node), node_of);
        let up = NodeState::new(State::Up, "probe ok", 1);
        map.states.insert(name(node), NodeStates { v4: Some(up), v6: None });
    }
    map.map.pools.insert(name("world"), [(name("far"), 1)].into());
    map.map.pools.insert(name("oceania"), [(name("near"), 1)].into());
    map.map.pools.insert(name("pacific"), [(name("next"), 1)].into());
    let australia: CountryCode = "AU".parse().unwrap();
    let steering = SteeringMap {
        default: vec![name("world")],
        country: [(australia, vec![name("oceania"), name("pacific"), name("world")])].into(),
        ..SteeringMap::default()
    };
    let project = map.map.projects.get_mut("videolan").unwrap();
    project.hosts.push(HostPattern::Exact(NAME.parse().unwrap()));
    project.redirect = true;
    project.redirect_above = ByteCount(LENGTH as u64);
    map.map.maps.insert(project.map.clone(), steering);
    map
}

/// A database that has all of loopback in Australia.
fn database(dir: &Path) -> std::path::PathBuf {
    let country: CountryCode = "AU".parse().unwrap();
    let evidence = Evidence { asn: None, country: Some(country), continent: country.continent() };
    let mut writer = Writer::new("Test", "test", 0);
    writer.insert("127.0.0.0/8".parse().unwrap(), &locate::testing::record(evidence, None));
    let path = dir.join("country.mmdb");
    std::fs::write(&path, writer.finish()).unwrap();
    path
}

async fn edge_at(node: &str, dir: &Path, map: NodeMap) -> Edge {
    Edge::located(node, &dir.join(node), map, database(dir)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missteered_client_is_sent_on_once_for_what_is_large() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(1, LENGTH);
    master.put("/large", Item::new(body.clone(), "a1"));
    master.put("/small", Item::new(body[1..].to_vec(), "b1"));
    let far = edge_at("far", dir.path(), map_of(1, &master)).await;
    let near = edge_at("near", dir.path(), map_of(1, &master)).await;
    let port = far.address.port();
    let ask = async |edge: &Edge, method: &str, path: &str, host: &str, fields: &[&str]| {
        client::fetch(edge.address, method, path, host, fields).await
    };

    // Nobody knows yet how large it is.
    let first = ask(&far, "GET", "/large", HOST, &[]).await;
    assert_eq!(first.status, 200);
    assert_same(&first.body, &body);
    far.wait_filled().await;
    let hosted = format!("{HOST}:{port}");
    let steered = format!("{NAME}:8080");
    for (method, path, host, fields, location) in [
        ("GET", "/large", HOST, &[][..], format!("http://near.{NAME}/large")),
        ("GET", "/large", &hosted, &[], format!("http://near.{NAME}:{port}/large")),
        ("GET", "/l%61rge", &steered, &[], format!("http://near.{NAME}:8080/l%61rge")),
        ("HEAD", "/large", HOST, &[], format!("http://near.{NAME}/large")),
        ("GET", "/large", HOST, &["Range: bytes=5-"], format!("http://near.{NAME}/large")),
        ("GET", "/large", HOST, &["Cacheboy-Avoid: near"], String::new()),
        ("GET", "/small", HOST, &[], String::new()),
        ("GET", "/small", HOST, &[], String::new()),
        // Whoever was sent once is never sent again, wherever the name leads it.
        ("GET", "/large", &format!("far.{NAME}"), &[], String::new()),
        ("GET", "/.well-known/cacheboy/health", HOST, &[], String::new()),
    ] {
        let reply = ask(&far, method, path, host, fields).await;
        let status = if location.is_empty() { 200 } else { 302 };
        assert_eq!(
            (reply.status, reply.header("location")),
            (status, location.as_str()),
            "{method} {path} {host} {fields:?}"
        );
        if status == 302 {
            assert_eq!(reply.header("cache-control"), "no-store");
            assert_eq!(reply.header("cache-status"), "far; detail=missteered");
            assert_eq!(reply.header("vary"), "");
        }
    }
    // There it is served, with its range; here the name of the other node is not known.
    let fixed = format!("near.{NAME}:{port}");
    let part = ask(&near, "GET", "/large", &fixed, &["Range: bytes=5-"]).await;
    assert_eq!(part.status, 206);
    assert_same(&part.body, &body[5..]);
    assert_eq!(ask(&far, "GET", "/large", &fixed, &[]).await.status, 421);
    // The bytes of four short texts and of what was served, in the books as they were sent.
    let bytes = 4 * 30 + 3 * LENGTH + 2 * (LENGTH - 1);
    let missteered = "cacheboy_edge_missteered";
    let bytes = format!("{missteered}_bytes_total{{project=\"videolan\"}} {bytes}");
    while !far.metrics().lines().any(|line| line == bytes) {
        tokio::task::yield_now().await;
    }
    let metrics = far.metrics();
    for line in [
        r#"cacheboy_edge_missteered_requests_total{project="videolan"} 10"#,
        r#"cacheboy_edge_redirects_total{project="videolan",why="missteered"} 5"#,
        r#"cacheboy_edge_redirects_total{project="videolan",why="avoid"} 0"#,
        r#"cacheboy_edge_requests_total{result="redirected"} 5"#,
    ] {
        assert!(metrics.lines().any(|l| l == line), "{line}\n{metrics}");
    }
    for edge in [far, near] {
        edge.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_cannot_use_nodes_is_sent_to_others_and_nobody_else_sees_that() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    master.put("/a", Item::new(content(2, 9), "a1"));
    master.put("/a?x=1", Item::new(content(3, 9), "b1"));
    let near = edge_at("near", dir.path(), map_of(1, &master)).await;
    let fixed = format!("near.{NAME}");
    for (path, host, fields, status, location, note) in [
        ("/a?avoid=near", HOST, &[][..], 302, format!("http://next.{NAME}/a"), ""),
        ("/a?avoid=near&x=1", HOST, &[], 302, format!("http://next.{NAME}/a?x=1"), ""),
        ("/a?x=1&avoid=near,next", HOST, &[], 302, format!("http://far.{NAME}/a?x=1"), ""),
        ("/a", HOST, &["Cacheboy-Avoid: near"], 302, format!("http://next.{NAME}/a"), ""),
        ("/a?avoid=near", HOST, &["Cacheboy-Avoid: next"], 302, format!("http://far.{NAME}/a"), ""),
        ("/a?avoid=near,next,far", HOST, &[], 200, String::new(), "nobody-else"),
        ("/a?avoid=near", &fixed, &[], 200, String::new(), "fixed-name"),
        ("/a?avoid=next", HOST, &[], 200, String::new(), ""),
        ("/a?avoid=nobody&x=1", HOST, &[], 200, String::new(), ""),
    ] {
        let reply = client::fetch(near.address, "GET", path, host, fields).await;
        let found = (reply.status, reply.header("location"), reply.header("cacheboy-avoid"));
        assert_eq!(found, (status, location.as_str(), note), "{path} {host} {fields:?}");
        if status == 200 {
            let seed = if path.contains("x=1") { 3 } else { 2 };
            assert_same(&reply.body, &content(seed, 9));
        }
    }
    // What is no path would be a part of the name it is put behind: of another one, maybe.
    for target in ["*", "*?avoid=near"] {
        let fields = &["Cacheboy-Avoid: near"];
        let reply = client::fetch(near.address, "GET", target, HOST, fields).await;
        assert_eq!((reply.status, reply.header("location")), (400, ""), "{target}");
    }
    // Two objects, whatever was to be avoided; and the master saw nothing of it.
    let asked = master.asked();
    let paths: Vec<&str> = asked.iter().map(|asked| asked.path.as_str()).collect();
    assert_eq!(paths, ["/a", "/a?x=1"]);
    assert!(asked.iter().all(|asked| !asked.headers.contains_key("cacheboy-avoid")));
    near.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_better_node_that_does_not_serve_gets_nobody_and_without_databases_nobody_is_judged() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(1, LENGTH);
    master.put("/large", Item::new(body.clone(), "a1"));
    let far = edge_at("far", dir.path(), map_of(1, &master)).await;
    assert_eq!(far.get("/large", &[]).await.status, 200);
    far.wait_filled().await;
    for (generation, state, to) in [
        (2, State::Down, "http://next.videolan.cdn.example/large"),
        (3, State::Drained, "http://next.videolan.cdn.example/large"),
        (4, State::Unknown, ""),
        (5, State::Up, "http://near.videolan.cdn.example/large"),
    ] {
        let mut map = map_of(generation, &master);
        let states = map.states.get_mut(&name("near")).unwrap();
        states.v4.as_mut().unwrap().state = state;
        far.map.send_replace(Some(Arc::new(map)));
        while far.status()["edge"]["steering_generation"] != generation {
            tokio::task::yield_now().await;
        }
        let reply = far.get("/large", &[]).await;
        assert_eq!(reply.header("location"), to, "{state:?}");
        assert_eq!(reply.status, if to.is_empty() { 200 } else { 302 });
    }
    far.stop().await;
    let blind = Edge::named("far", &dir.path().join("far"), map_of(6, &master)).await;
    let reply = blind.get("/large", &[]).await;
    assert_eq!(reply.status, 200);
    assert_same(&reply.body, &body);
    blind.stop().await;
}

/// All of the month is used up: nothing but a few words leaves. Whoever wants something large is sent on,
/// health and others that are no content are answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_bill_is_spent_clients_are_sent_on() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(1, LENGTH);
    master.put("/large", Item::new(body.clone(), "a1"));
    master.put("/small", Item::new(body[1..].to_vec(), "b1"));
    let of_edge = |generation: u64, bill: Option<Bill>| {
        let mut map = map_of(generation, &master);
        let here = Node { bill, ..nodemap::testing::node(&["192.0.2.9"]) };
        map.map.nodes.insert(name("edge1"), here);
        map.map.pools.get_mut(&name("world")).unwrap().insert(name("edge1"), 1);
        map
    };
    let log = dir.path().join("log");
    let edge = Edge::with(dir.path(), of_edge(1, None), |params| {
        params.logs = vec![LogParams { format: Format::Json, ..LogParams::new(log.clone()) }];
    })
    .await;
    for path in ["/large", "/small"] {
        assert_eq!(edge.get(path, &[]).await.status, 200);
    }
    edge.wait_filled().await;
    let used_up = Some(Bill::Monthly(ByteCount(LENGTH as u64)));
    edge.map.send_replace(Some(Arc::new(of_edge(2, used_up))));
    while edge.status()["edge"]["bill"]["allowed_bits_per_second"].is_null() {
        tokio::task::yield_now().await;
    }
    assert_eq!(edge.status()["edge"]["bill"]["spent"], false, "nobody waits");
    let waits = edge.send("/small", &[]).await;
    while edge.status()["edge"]["bill"]["spent"] == false {
        tokio::task::yield_now().await;
    }
    let reply = edge.get("/large", &[]).await;
    assert_eq!((reply.status, reply.body.len()), (302, 30));
    assert_eq!(reply.header("location"), format!("http://far.{NAME}/large"));
    assert_eq!(reply.header("cache-status"), "edge1; detail=bill");
    assert_same(&edge.get("/.well-known/cacheboy/health", &[]).await.body, b"up\n");
    let count = r#"cacheboy_edge_redirects_total{project="videolan",why="bill"} 1"#;
    assert!(edge.metrics().lines().any(|line| line == count), "{}", edge.metrics());
    // From then on the log says of whoever waits why.
    let waits_too = edge.send("/small", &[]).await;
    while edge.status()["edge"]["bill"]["waiting"] != 2 {
        tokio::task::yield_now().await;
    }
    drop((waits, waits_too));
    edge.stop().await;
    let text = std::fs::read_to_string(&log).unwrap();
    let mut words: Vec<(String, u64, String)> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line.get("kind").is_none())
        .map(|line| {
            let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
            (text("outcome"), line["bytes"].as_u64().unwrap(), text("limit"))
        })
        .collect();
    words.sort();
    let found: Vec<_> = words.iter().map(|(a, bytes, limit)| (&**a, *bytes, &**limit)).collect();
    let (large, small) = (LENGTH as u64, LENGTH as u64 - 1);
    let expected = [
        ("health", 3, ""),
        ("hit", 0, ""),
        ("hit", 0, "bill"),
        ("miss", small, ""),
        ("miss", large, ""),
        ("redirected", 30, ""),
    ];
    assert_eq!(found, expected);
}

/// Behind the name of a node this would be the name of another host.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_of_http2_that_is_none_is_never_part_of_a_location() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let near = edge_at("near", dir.path(), map_of(1, &master)).await;
    for path in ["@evil.example/a", ":81/a", "evil.example", ""] {
        let mut stream = frames::connect(near.address).await;
        let head = frames::head(path, &[(":authority", HOST), ("cacheboy-avoid", "near")]);
        let flags = frames::END_STREAM | frames::END_HEADERS;
        stream.write_all(&frames::frame(frames::HEADERS, flags, 1, &head)).await.unwrap();
        let (kind, _, id, payload) = frames::next(&mut stream).await.unwrap();
        // PROTOCOL_ERROR (RFC 9113 section 8.1.1).
        assert_eq!((kind, id, &*payload), (frames::RST_STREAM, 1, &[0, 0, 0, 1][..]), "{path}");
    }
    near.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_names_two_other_nodes_where_the_project_wants_it() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    master.put("/a", Item::new(content(2, 9), "a1"));
    let mut map = map_of(1, &master);
    map.map.projects.get_mut("videolan").unwrap().alternates = true;
    let far = edge_at("far", dir.path(), map).await;
    let near = format!("<http://near.{NAME}/a>; rel=duplicate; pri=1; geo=au");
    let next = format!("<http://next.{NAME}/a>; rel=duplicate; pri=2");
    for (method, fields, status) in
        [("GET", &[][..], 200), ("GET", &["Range: bytes=1-2"], 206), ("HEAD", &[], 200)]
    {
        let head = format!("{method} /a HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n");
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        let reply = client::exchange(far.address, &format!("{head}{fields}\r\n")).await;
        assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{reply}");
        let links: Vec<&str> = reply.lines().filter_map(|l| l.strip_prefix("link: ")).collect();
        assert_eq!(links, [&near, &next], "{method}");
    }
    let request = format!("GET /b HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
    let absent = client::exchange(far.address, &request).await;
    assert!(absent.starts_with("HTTP/1.1 404 ") && !absent.contains("link: "), "{absent}");
    far.stop().await;
}
