//! Masters that misbehave, and clients that do: nobody else may notice.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use model::ByteCount;
use support::client;
use support::edge::{Edge, HOST, OTHER_HOST, node_map, two_projects};
use support::origin::{Item, Origin};
use support::{BLOCK, assert_same, content};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

const LENGTH: usize = 3 * BLOCK + 321;

fn gate(at: usize) -> Option<(u64, Arc<Semaphore>)> {
    Some((at as u64, Arc::new(Semaphore::new(0))))
}

async fn wait_status(edge: &Edge, key: &str, value: u64) {
    let reached = async {
        while edge.status()["edge"][key] != value {
            tokio::task::yield_now().await;
        }
    };
    // Only a failing test waits so long.
    let limit = std::time::Duration::from_secs(60);
    let in_time = tokio::time::timeout(limit, reached).await.is_ok();
    assert!(in_time, "{key} is not {value}: {}", edge.status());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_waits_for_any_more_gives_its_memory_back() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(1, LENGTH);
    let map = node_map(1, &[master.address]);
    let (size, memory) = (ByteCount(1 << 30), ByteCount(2 * BLOCK as u64));
    let edge = Edge::with_memory(dir.path(), Some(map), size, memory).await;
    let mut slow = Vec::new();
    for path in ["/a", "/b"] {
        // The second block will never be whole.
        let item = Item { gate: gate(BLOCK + 1000), ..Item::new(body.clone(), "a1") };
        master.put(path, item);
        let mut client = edge.send(path, &[]).await;
        client.read_body(BLOCK + 1000).await;
        slow.push(client);
    }
    assert_eq!(edge.status()["edge"]["block_buffers_free"], 0);
    drop(slow);
    wait_status(&edge, "block_buffers_free", 2).await;
    wait_status(&edge, "fills_in_flight", 0).await;
    // The next one goes on behind what is held.
    master.change("/a", |item| item.gate = None);
    assert_same(&edge.get("/a", &[]).await.body, &body);
    assert_eq!(master.asked().len(), 3);
    let range = format!("bytes={BLOCK}-{}", LENGTH - 1);
    assert_eq!(master.asked()[2].range(), Some(range.as_str()));
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_project_leaves_half_of_the_memory_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let (slow, healthy) = (Origin::start().await, Origin::start().await);
    let body = content(2, LENGTH);
    let map = two_projects(&[slow.address], &[healthy.address]);
    let (size, memory) = (ByteCount(1 << 30), ByteCount(4 * BLOCK as u64));
    let edge = Edge::with_memory(dir.path(), Some(map), size, memory).await;
    let mut waiting = Vec::new();
    for n in 0..8 {
        let path = format!("/{n}");
        slow.put(&path, Item { gate: gate(1000), ..Item::new(body.clone(), "a1") });
        waiting.push(edge.send(&path, &[]).await);
    }
    slow.wait_sent(8 * 1000).await;
    wait_status(&edge, "block_buffers_free", 2).await;
    healthy.put("/a", Item::new(body.clone(), "a1"));
    let reply = client::fetch(edge.address, "GET", "/a", OTHER_HOST, &[]).await;
    assert_same(&reply.body, &body);
    // The last buffer comes free after the client has its bytes.
    wait_status(&edge, "block_buffers_free", 2).await;
    drop(waiting);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_is_refused_at_once_and_not_one_by_one() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let opens = Arc::new(Semaphore::new(0));
    let refusing = || Item {
        errors: std::iter::repeat_n(403, 1000).collect(),
        gate: Some((0, Arc::clone(&opens))),
        ..Item::default()
    };
    let body = content(3, LENGTH);
    let stale = Item { cache_control: Some("max-age=0"), ..Item::new(body, "a1") };
    master.put("/held", stale);
    let mut map = node_map(1, &[master.address]);
    for project in map.map.projects.values_mut() {
        project.masters.values_mut().for_each(|m| m.requests_max = Some(150));
    }
    // However long the crowd takes to gather: nobody is given what is stale meanwhile, nor an error.
    let patience = std::time::Duration::from_secs(60);
    let patient = |params: &mut edge::Params| {
        params.timeouts =
            edge::Timeouts { connect: patience, first_byte: patience, between_bytes: patience };
    };
    let edge = Arc::new(Edge::with(dir.path(), map, patient).await);
    edge.get("/held", &[]).await;
    master.put("/held", refusing());
    master.put("/new", refusing());
    for path in ["/new", "/held"] {
        let before = master.asked().len();
        let mut crowd = JoinSet::new();
        for _ in 0..150 {
            let edge = Arc::clone(&edge);
            crowd.spawn(async move { edge.get(path, &[]).await });
        }
        master.wait_asked(before + 1).await;
        wait_status(&edge, "questions_waited_for", 150).await;
        opens.add_permits(1);
        // All of them ask while none of them has its answer.
        master.wait_asked(before + 150).await;
        opens.add_permits(149);
        for reply in crowd.join_all().await {
            assert_eq!((reply.status, &reply.body[..]), (403, &b"error 403\n"[..]), "{path}");
        }
        wait_status(&edge, "connections", 0).await;
    }
}

fn raw(head: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {head}\r\n\r\n{body}").into_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_length_beside_a_transfer_coding_means_nothing() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let head = "200 X\r\nETag: \"a\"\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\
                Transfer-Encoding: chunked";
    let answer = raw(head, "a\r\n0123456789\r\n0\r\n\r\n");
    master.put("/a", Item { raw: [answer].into(), ..Item::default() });
    let edge = Edge::start(dir.path(), &[&master]).await;
    let request = format!("GET /a HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
    let first = client::exchange(edge.address, &request).await;
    assert!(first.ends_with("\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n"), "{first}");
    assert!(!first.contains("content-length"));
    // Its end has shown how long it is.
    let second = client::exchange(edge.address, &request).await;
    assert!(second.ends_with("\r\n\r\n0123456789") && second.contains("content-length: 10"));
    assert_eq!(master.asked().len(), 1);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_to_another_question_comes_from_a_broken_master() {
    const PART: &str =
        "206 X\r\nETag: \"a1\"\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n";
    let range = |range: &str| raw(&format!("{PART}Content-Range: {range}"), "01234");
    let plain = &[][..];
    for (fields, answer) in [
        (plain, raw("304 X\r\nETag: \"a1\"", "")),
        (plain, range("bytes 0-4/10")),
        (&["Range: bytes=0-9"], raw(&format!("{PART}X: y"), "01234")),
        (&["Range: bytes=0-9"], range("bytes 4-0/10")),
        (&["Range: bytes=0-9"], range("bytes 100-104/1000")),
        (&["Range: bytes=0-9"], range("bytes */10")),
        (&["Range: bytes=-9"], range("bytes 0-4/1000000")),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (broken, good) = (Origin::start().await, Origin::start().await);
        let body = content(4, LENGTH);
        broken.put("/new", Item { raw: [answer.clone()].into(), ..Item::default() });
        let stale = Item { cache_control: Some("max-age=0"), ..Item::new(body.clone(), "a1") };
        for master in [&broken, &good] {
            master.put("/held", stale.clone());
        }
        good.put("/new", Item::new(body.clone(), "a1"));
        let edge = Edge::start(dir.path(), &[&broken, &good]).await;
        edge.get("/held", &[]).await;
        let want = match fields.first() {
            None => &body[..],
            Some(&"Range: bytes=-9") => &body[LENGTH - 9..],
            Some(_) => &body[..10],
        };
        let reply = edge.get("/new", fields).await;
        assert_same(&reply.body, want);
        assert_eq!(edge.status()["edge"]["masters"]["videolan"][0]["skipped"], true);
        assert_eq!((broken.asked().len(), good.asked().len()), (2, 1));
        edge.stop().await;

        // What is held stays when its confirmation is such an answer.
        if answer.starts_with(b"HTTP/1.1 206") {
            let edge = Edge::start(&dir.path().join("b"), &[&broken]).await;
            edge.get("/held", &[]).await;
            broken.change("/held", |item| item.raw = [answer].into());
            assert_same(&edge.get("/held", fields).await.body, want);
            assert_eq!(edge.status()["edge"]["stores"][0]["objects"], 1);
            edge.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_may_not_be_kept_and_is_no_content_replaces_nothing() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(5, LENGTH);
    let edge = Edge::start(dir.path(), &[&master]).await;
    for (n, head) in ["204 X", "299 X\r\nContent-Length: 0", "302 X\r\nContent-Length: 0"]
        .into_iter()
        .enumerate()
    {
        let path = format!("/{n}");
        let stale = Item { cache_control: Some("max-age=0"), ..Item::new(body.clone(), "a1") };
        master.put(&path, stale);
        edge.get(&path, &[]).await;
        master.change(&path, |item| item.raw = [raw(head, "")].into());
        let request = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        let answer = client::exchange(edge.address, &request).await;
        assert_eq!(answer.get(9..12), head.get(..3), "its requester gets it: {answer}");
        assert_eq!(edge.status()["edge"]["stores"][0]["objects"], n + 1, "{head}");
        // Passed on or confirmed: right in any case.
        assert_same(&edge.get(&path, &[]).await.body, &body);
    }
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_became_shorter_on_disk_is_fetched_anew() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(6, LENGTH);
    master.put("/a", Item::new(body.clone(), "a1"));
    let edge = Edge::start(dir.path(), &[&master]).await;
    assert_same(&edge.get("/a", &[]).await.body, &body);
    wait_status(&edge, "fills_in_flight", 0).await;
    let data = std::fs::read_dir(dir.path().join("store/data")).unwrap();
    let mut files = data.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
    let file = files.find_map(|f| f.ok().filter(|f| f.metadata().unwrap().len() == LENGTH as u64));
    let file = std::fs::File::options().write(true).open(file.unwrap().path()).unwrap();
    file.set_len(BLOCK as u64).unwrap();
    let second = edge.get("/a", &[]).await;
    if second.complete {
        // The scrub was there first.
        assert_same(&second.body, &body);
    }
    for _ in 0..4 {
        // Each block that is found lost costs one client at most.
        edge.get("/a", &[]).await;
    }
    assert_same(&edge.get("/a", &[]).await.body, &body);
    assert!(edge.status()["edge"]["stores"][0]["corrupt_blocks"].as_u64() >= Some(1));
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_connection_that_was_closed_costs_no_client_its_answer() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(7, LENGTH);
    master.put("/a", Item::new(body.clone(), "a1"));
    // The connection ends instead of an answer.
    let closing = Item { raw: [Vec::new()].into(), ..Item::new(body.clone(), "b1") };
    master.put("/b", closing);
    let edge = Edge::start(dir.path(), &[&master]).await;
    edge.get("/a", &[]).await;
    let reply = edge.get("/b", &[]).await;
    assert_eq!(reply.status, 200);
    assert_same(&reply.body, &body);
    assert_eq!(master.asked().len(), 3);
    assert_eq!(edge.status()["edge"]["masters"]["videolan"][0]["skipped"], false);
    // Once: a master that never answers is a broken one.
    master.put("/c", Item { raw: [Vec::new(), Vec::new()].into(), ..Item::default() });
    assert_eq!(edge.get("/c", &[]).await.status, 502);
    assert_eq!(master.asked().len(), 5);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_master_is_found_good_again_without_clients() {
    let dir = tempfile::tempdir().unwrap();
    let (mut first, second) = (Origin::start().await, Origin::start().await);
    let body = content(8, LENGTH);
    for path in ["/a", "/b", "/c"] {
        first.put(path, Item::new(body.clone(), "a1"));
        second.put(path, Item::new(body.clone(), "a1"));
    }
    let edge = Edge::start(dir.path(), &[&first, &second]).await;
    first.down().await;
    assert_same(&edge.get("/a", &[]).await.body, &body);
    let shown = |edge: &Edge| edge.status()["edge"]["masters"]["videolan"][0].clone();
    assert_eq!((&shown(&edge)["skipped"], &shown(&edge)["failures"]), (&true.into(), &1.into()));
    first.up().await;
    // The first probe may be on its way while nobody listens yet; a later one finds it.
    first.wait_asked(1).await;
    assert_eq!((first.asked()[0].method.as_str(), first.asked()[0].path.as_str()), ("HEAD", "/a"));
    while shown(&edge)["skipped"] == true {
        tokio::task::yield_now().await;
    }
    assert_same(&edge.get("/b", &[]).await.body, &body);
    assert_eq!((first.asked().len(), second.asked().len()), (2, 1));
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_changes_at_each_answer_is_an_error_after_a_few() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let answer = |n: u32| {
        let head = format!(
            "206 X\r\nETag: \"v{n}\"\r\nCache-Control: max-age=60\r\nContent-Length: 10\r\n\
             Content-Range: bytes 0-9/200000"
        );
        raw(&head, "0123456789")
    };
    master.put("/a", Item { raw: (0..500).map(answer).collect(), ..Item::default() });
    let edge = Edge::start(dir.path(), &[&master]).await;
    let reply = edge.range("/a", 0, 99).await;
    assert_eq!(reply.status, 502);
    assert!(master.asked().len() <= 12, "{}", master.asked().len());
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_names_one_host() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let edge = Edge::start(dir.path(), &[&master]).await;
    for (target, hosts, status) in [
        (format!("http://{HOST}/a"), format!("Host: {HOST}\r\n"), "404"),
        (format!("http://{HOST}/a"), String::new(), "400"),
        (format!("http://{HOST}/a"), format!("Host: {HOST}\r\nHost: {HOST}\r\n"), "400"),
        (format!("ftp://{HOST}/a"), format!("Host: {HOST}\r\n"), "400"),
        ("/a".to_owned(), "Host: u@h\r\n".to_owned(), "400"),
        ("/a".to_owned(), "Host: \r\n".to_owned(), "400"),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n");
        let answer = client::exchange(edge.address, &request).await;
        assert_eq!(answer.get(9..12), Some(status), "{target} {hosts}");
    }
    edge.stop().await;
}
