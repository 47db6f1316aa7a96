//! Methods other than GET and HEAD: refused, or passed on to one master once; what they make
//! doubtful.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use model::ByteCount;
use support::client::{self, exchange};
use support::edge::{Edge, HOST, node_map};
use support::origin::{Item, Origin};
use support::{BLOCK, assert_same, content};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// An edge whose project passes all methods on.
async fn open_edge(dir: &std::path::Path, masters: &[&Origin]) -> Edge {
    let addresses: Vec<_> = masters.iter().map(|m| m.address).collect();
    let mut map = node_map(1, &addresses);
    for project in map.map.projects.values_mut() {
        project.unsafe_methods = true;
    }
    Edge::with_map(dir, Some(map), ByteCount(1 << 30)).await
}

async fn ask(edge: &Edge, method: &str, path: &str, fields: &[&str]) -> client::Reply {
    client::fetch(edge.address, method, path, HOST, fields).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_project_is_for_reading_unless_it_says_otherwise() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let edge = Edge::start(dir.path(), &[&master]).await;
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
        let reply = ask(&edge, method, "/a", &["Content-Length: 0"]).await;
        assert_eq!((reply.status, reply.header("allow")), (405, "GET, HEAD"), "{method}");
        assert_eq!(reply.header("cache-status"), "edge1; detail=method-not-allowed");
    }
    let reply = ask(&edge, "M-SEARCH", "/a", &["Content-Length: 0"]).await;
    assert_eq!(reply.status, 501);
    assert_eq!(reply.header("cache-status"), "edge1; detail=unknown-method");
    // Who waits for leave to send its content gets the refusal instead.
    let head = format!("PUT /a HTTP/1.1\r\nHost: {HOST}\r\nExpect: 100-continue\r\n");
    let answer = exchange(edge.address, &format!("{head}Content-Length: 1000000\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    assert_eq!(master.asked().len(), 0);
    let refused = "cacheboy_edge_refused_total{reason=\"method-not-allowed\"} 7";
    assert!(edge.metrics().contains(refused), "{}", edge.metrics());
    assert_eq!(edge.status()["edge"]["refused"]["method-not-allowed"], 7);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_passed_on_arrives_whole_and_once() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    master.put("/a", Item::new(b"done\n".to_vec(), "a1"));
    let edge = open_edge(dir.path(), &[&master]).await;
    let upload = content(1, 3 * BLOCK + 7);
    for (n, framing) in ["length", "chunked"].into_iter().enumerate() {
        let mut stream = TcpStream::connect(edge.address).await.unwrap();
        let length = if framing == "length" {
            format!("Content-Length: {}", upload.len())
        } else {
            "Transfer-Encoding: chunked\r\nTrailer: X-Sum".to_owned()
        };
        let head = format!(
            "POST /a HTTP/1.1\r\nHost: {HOST}\r\n{length}\r\nExpect: 100-continue\r\n\
             Content-Type: text/x\r\nX-Forwarded-For: 192.0.2.1\r\nX-Hop: 1\r\n\
             Connection: close, X-Hop\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut leave = [0; 25];
        stream.read_exact(&mut leave).await.unwrap();
        assert_eq!(&leave, b"HTTP/1.1 100 Continue\r\n\r\n");
        if framing == "length" {
            stream.write_all(&upload).await.unwrap();
        } else {
            for part in upload.chunks(10_000) {
                let size = format!("{:x}\r\n", part.len());
                stream.write_all(size.as_bytes()).await.unwrap();
                stream.write_all(part).await.unwrap();
                stream.write_all(b"\r\n").await.unwrap();
            }
            stream.write_all(b"0\r\nX-Sum: 1\r\n\r\n").await.unwrap();
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\ndone\n"), "{answer}");
        assert!(answer.contains("cache-status: edge1; fwd=method; fwd-status=200\r\n"), "{answer}");
        let asked = master.asked();
        assert_eq!((asked.len(), asked[n].method.as_str()), (n + 1, "POST"));
        assert_same(&asked[n].content, &upload);
        assert_eq!(asked[n].headers["content-type"], "text/x");
        for absent in ["x-forwarded-for", "x-hop", "expect", "trailer"] {
            assert!(!asked[n].headers.contains_key(absent), "{absent}");
        }
    }
    for method in ["PUT", "DELETE", "PATCH", "OPTIONS", "M-SEARCH"] {
        let reply = ask(&edge, method, "/a", &["Content-Length: 0"]).await;
        assert_eq!((reply.status, &reply.body[..]), (200, &b"done\n"[..]), "{method}");
        assert_eq!(master.asked().last().unwrap().method, method);
    }
    for method in ["TRACE", "CONNECT"] {
        let target = if method == "CONNECT" { HOST } else { "/a" };
        let reply = ask(&edge, method, target, &[]).await;
        assert_eq!(reply.status, 405, "{method}");
    }
    assert_eq!(master.asked().len(), 7);
    edge.stop().await;
}

/// Method, path, status, fields of the answer, what is asked for anew afterwards.
type Case<'a> = (&'a str, &'a str, u16, &'a [&'a str], &'a [&'a str]);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_succeeds_invalidates_and_what_fails_does_not() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    for path in ["/a", "/b", "/c", "/d", "/post"] {
        master.put(path, Item::new(content(2, 100), "a1"));
    }
    let edge = open_edge(dir.path(), &[&master]).await;
    let elsewhere = "Location: http://other.example/c";
    let here = format!("Location: http://{HOST}/b");
    let cases: &[Case<'_>] = &[
        ("POST", "/a", 200, &[], &["/a"]),
        ("PUT", "/a", 500, &[], &[]),
        ("DELETE", "/a", 403, &[], &[]),
        ("OPTIONS", "/a", 200, &[], &[]),
        ("POST", "/post", 200, &[&here, "Content-Location: d"], &["/b", "/d"]),
        ("POST", "/post", 200, &[elsewhere, "Content-Location: //other.example/d"], &[]),
        ("M-SEARCH", "/c", 200, &[], &["/c"]),
    ];
    for (method, path, status, fields, anew) in cases {
        for held in ["/a", "/b", "/c", "/d"] {
            edge.get(held, &[]).await;
        }
        master.change(path, |item| {
            item.fields = fields.iter().map(|f| (*f).to_owned()).collect();
            if *status != 200 {
                item.errors = [*status].into();
            }
        });
        let reply = ask(&edge, method, path, &["Content-Length: 0"]).await;
        assert_eq!(reply.status, *status, "{method} {path}");
        master.change(path, |item| item.fields.clear());
        let before = master.asked().len();
        for held in ["/a", "/b", "/c", "/d"] {
            assert_eq!(edge.get(held, &[]).await.status, 200);
        }
        let asked: Vec<_> = master.asked()[before..].iter().map(|a| a.path.clone()).collect();
        assert_eq!(asked, *anew, "{method} {path} {status} {fields:?}");
    }
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_asked_before_a_change_is_not_used_after_it() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let (old, new) = (content(3, BLOCK), content(4, BLOCK));
    let opens = Arc::new(Semaphore::new(0));
    let gate = Some((0, Arc::clone(&opens)));
    master.put("/a", Item { gate, ..Item::new(old.clone(), "a1") });
    let edge = open_edge(dir.path(), &[&master]).await;
    let early = edge.send("/a", &[]).await;
    master.wait_asked(1).await;
    master.put("/a", Item::new(new.clone(), "a2"));
    assert_eq!(ask(&edge, "POST", "/a", &["Content-Length: 0"]).await.status, 200);
    let late = edge.get("/a", &[]).await;
    assert_same(&late.body, &new);
    opens.add_permits(1);
    assert_same(&early.reply().await.body, &old);
    assert_same(&edge.get("/a", &[]).await.body, &new);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_depends_on_the_request_is_invalidated_with_all_its_variants() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let varying = Item { vary: Some("accept-language"), ..Item::new(content(6, 100), "a1") };
    master.put("/a", varying);
    let edge = open_edge(dir.path(), &[&master]).await;
    let read = async || {
        for language in ["en", "de"] {
            let reply = edge.get("/a", &[&format!("Accept-Language: {language}")]).await;
            assert_eq!(reply.status, 200, "{language}");
        }
        master.asked().len()
    };
    let first = read().await;
    assert_eq!(read().await, first, "both are held");
    assert_eq!(ask(&edge, "POST", "/a", &["Content-Length: 0"]).await.status, 200);
    assert!(read().await >= first + 3, "neither is");
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_have_been_done_is_never_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (Origin::start().await, Origin::start().await);
    for master in [&first, &second] {
        master.put("/a", Item { raw: [Vec::new()].into(), ..Item::new(content(5, 10), "a1") });
    }
    let edge = open_edge(dir.path(), &[&first, &second]).await;
    let reply = ask(&edge, "POST", "/a", &["Content-Length: 0"]).await;
    assert_eq!(reply.status, 502);
    assert_eq!(reply.header("cache-status"), "edge1; fwd=method; detail=error");
    assert_eq!((first.asked().len(), second.asked().len()), (1, 0));
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_content_is_the_clients_fault() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    master.put("/a", Item::new(b"done\n".to_vec(), "a1"));
    let edge = open_edge(dir.path(), &[&master]).await;
    let head = format!("POST /a HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n");
    let answer = exchange(edge.address, &format!("{head}5\r\nhello\r\nzz\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.contains("cache-status: edge1; detail=broken-content\r\n"), "{answer}");
    assert_eq!(master.asked().len(), 0, "it never had the whole");
    assert!(!edge.metrics().contains("upstream_errors_total{"), "{}", edge.metrics());
    edge.stop().await;
}

/// A client that says it will send something and does not must not make its master a bad one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_that_never_comes_is_the_clients_fault() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    master.put("/a", Item::new(b"done\n".to_vec(), "a1"));
    let edge = open_edge(dir.path(), &[&master]).await;
    for fields in ["", "Expect: 100-continue\r\n"] {
        let head = format!("POST /a HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 5\r\n{fields}\r\n");
        let answer = exchange(edge.address, &head).await;
        assert!(answer.contains("HTTP/1.1 400 "), "{answer}");
        assert!(answer.contains("cache-status: edge1; detail=broken-content\r\n"), "{answer}");
    }
    assert!(!edge.metrics().contains("upstream_errors_total{"), "{}", edge.metrics());
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_in_an_unknown_coding_is_not_passed_on() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let edge = open_edge(dir.path(), &[&master]).await;
    let head = format!("POST /a HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: gzip, chunked\r\n");
    let body = "Connection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let answer = exchange(edge.address, &format!("{head}{body}")).await;
    assert!(answer.starts_with("HTTP/1.1 501 "), "{answer}");
    assert!(answer.contains("cache-status: edge1; detail=unknown-coding\r\n"), "{answer}");
    assert_eq!(master.asked().len(), 0);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_that_a_master_does_not_take_is_not_taken_from_the_client() {
    let dir = tempfile::tempdir().unwrap();
    let idle = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut map = node_map(1, &[idle.local_addr().unwrap()]);
    map.map.projects.values_mut().for_each(|p| p.unsafe_methods = true);
    let edge = Edge::with_map(dir.path(), Some(map), ByteCount(1 << 30)).await;
    let (mut read, mut write) = TcpStream::connect(edge.address).await.unwrap().into_split();
    const LENGTH: usize = 1 << 30;
    let head = format!("PUT /a HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {LENGTH}\r\n\r\n");
    write.write_all(head.as_bytes()).await.unwrap();
    let piece = vec![0; 64 << 10];
    let mut status = [0; 12];
    let mut sent = 0;
    let mut answering = Box::pin(read.read_exact(&mut status));
    loop {
        tokio::select! {
            biased;
            answer = &mut answering => break assert_eq!(answer.unwrap(), 12),
            written = write.write(&piece) => sent += written.unwrap(),
        };
    }
    drop(answering);
    assert_eq!(&status, b"HTTP/1.1 504");
    // What the kernel holds of four socket buffers, and a little of ours.
    assert!(sent < 64 << 20, "{sent}");
    drop(idle);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_to_post_that_is_the_target_itself_is_kept_for_get() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let answer = |location: &str| {
        let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n";
        format!("{head}Content-Location: {location}\r\n\r\n12345").into_bytes()
    };
    for (path, location, asked) in [("/a", "/a", 1), ("/b", "/other", 2)] {
        let item = Item::new(b"by get\n".to_vec(), "a1");
        master.put(path, Item { raw: [answer(location)].into(), ..item });
        let edge = open_edge(dir.path(), &[&master]).await;
        let before = master.asked().len();
        let reply = ask(&edge, "POST", path, &["Content-Length: 0"]).await;
        assert_eq!(reply.body, b"12345");
        if asked == 1 {
            // It is stored behind.
            while edge.get(path, &["Cache-Control: only-if-cached"]).await.status == 504 {}
        }
        let body = edge.get(path, &[]).await.body;
        assert_eq!(body, if asked == 1 { &b"12345"[..] } else { &b"by get\n"[..] });
        assert_eq!(master.asked().len() - before, asked, "{path}");
        edge.stop().await;
    }
}
