//! Clients that try to change what others get, by spellings, fields and hosts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use model::{ByteCount, Query};
use support::client::{self, exchange};
use support::edge::{Edge, HOST, OTHER_HOST, node_map, two_projects};
use support::origin::{Item, Origin};
use support::{BLOCK, assert_same, content};

async fn with_query(dir: &std::path::Path, master: &Origin, query: Query) -> Edge {
    let mut map = node_map(1, &[master.address]);
    map.map.projects.values_mut().for_each(|p| p.query = query.clone());
    Edge::with_map(dir, Some(map), ByteCount(1 << 30)).await
}

fn paths(master: &Origin) -> Vec<String> {
    master.asked().into_iter().map(|a| a.path).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_a_client_adds_reaches_a_master_or_another_client() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(1, 2 * BLOCK);
    let edge = Edge::start(dir.path(), &[&master]).await;
    let claims = [
        "X-Forwarded-Host: evil.example",
        "X-Forwarded-For: 192.0.2.1",
        "X-Forwarded-Proto: nothing",
        "X-Forwarded-Scheme: http",
        "X-Forwarded-Server: evil.example",
        "Forwarded: for=192.0.2.1;host=evil.example",
        "X-Host: evil.example",
        "X-Original-URL: /evil",
        "X-Rewrite-URL: /evil",
        "X-HTTP-Method-Override: DELETE",
        "X-Real-IP: 192.0.2.1",
        "Accept-Encoding: gzip",
        "Accept: text/evil",
        "Accept-Language: xx",
        "Cookie: a=b",
        "User-Agent: evil",
        "Origin: http://evil.example",
        "Referer: http://evil.example/",
        "Max-Forwards: 0",
        "TE: trailers, deflate",
        "Upgrade: h2c",
        "HTTP2-Settings: AAMAAABkAAQAAP__",
        "Connection: Upgrade, Host, Content-Length, CDN-Loop, X-Evil",
        "X-Evil: 1",
        "If-Match: \"evil\"",
        "If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT",
        "Range: bytes=99999999-",
        "If-Range: \"evil\"",
        "Transfer-Encoding: identity",
    ];
    for (n, claim) in claims.iter().enumerate() {
        let path = format!("/{n}");
        master.put(&path, Item::new(body.clone(), "a1"));
        // Whatever it gets, the next one gets the object, whole and from the store or the master.
        let request = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n{claim}\r\n\r\n");
        let closing = request.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
        exchange(edge.address, &closing).await;
        let reply = edge.get(&path, &[]).await;
        assert_eq!(reply.status, 200, "{claim}");
        assert_same(&reply.body, &body);
        for asked in master.asked().iter().filter(|a| a.path == path) {
            assert_eq!(asked.method, "GET", "{claim}");
            let mut names: Vec<_> = asked.headers.keys().map(String::as_str).collect();
            names.sort_unstable();
            names.retain(|n| *n != "range" && *n != "if-match");
            let ours = ["accept-encoding", "cdn-loop", "host", "user-agent", "via"];
            assert_eq!(names, ours, "{claim}");
            assert_eq!(asked.headers["host"], master.address.to_string(), "{claim}");
            assert_eq!(asked.headers["accept-encoding"], "identity");
        }
    }
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_documented_spellings_are_one_object() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let edge = Edge::start(dir.path(), &[&master]).await;
    master.put("/d/a", Item::new(content(2, 100), "a1"));
    edge.get("/d/a", &[]).await;
    while edge.status()["edge"]["fills_in_flight"] != 0 {
        tokio::task::yield_now().await;
    }
    for same in ["/d/%61", "/%64/a", "/d/./a", "/d/x/../a", "/d/%2e/a", "/../d/a"] {
        let reply = edge.get(same, &[]).await;
        assert!(reply.header("cache-status").starts_with("edge1; hit"), "{same}: {reply:?}");
    }
    let absolute =
        format!("GET http://{HOST}/d/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let answer = exchange(edge.address, &absolute).await;
    assert!(answer.contains("cache-status: edge1; hit"), "{answer}");
    assert_eq!(paths(&master), ["/d/a"]);
    // Other objects, and each travels as it is keyed. A master may well think otherwise: then it is
    // asked for more than once, and nobody gets another's answer.
    let others = [
        ("//d/a", "//d/a"),
        ("/d//a", "/d//a"),
        ("/D/a", "/D/a"),
        ("/d/a/", "/d/a/"),
        ("/d%2Fa", "/d%2Fa"),
        ("/d%2fa", "/d%2Fa"),
        ("/d\\a", "/d%5Ca"),
        ("/d/a;x", "/d/a;x"),
        ("/d/a%20", "/d/a%20"),
        ("/d/a%0d%0aX:1", "/d/a%0D%0AX:1"),
        ("/d/a%3Fb", "/d/a%3Fb"),
        ("/d/a%23b", "/d/a%23b"),
        ("/d/a?", "/d/a?"),
        ("/d/a?b", "/d/a?b"),
    ];
    for (asked, travels) in others {
        assert_eq!(edge.get(asked, &[]).await.status, 404, "{asked}");
        assert_eq!(paths(&master).last().unwrap(), travels, "{asked}");
    }
    let before = master.asked().len();
    let long = format!("/{}", "a".repeat(9000));
    for (bad, status) in [
        ("/d/%", 400),
        ("/d/%zz", 400),
        ("/d/a%00", 400),
        ("/d/..%2fa", 400),
        ("/d/..\\a", 400),
        (&long, 414),
    ] {
        let reply = edge.get(bad, &[]).await;
        assert_eq!(reply.status, status, "{bad:.20}");
        assert_eq!(reply.header("cache-status"), "edge1; detail=bad-target");
    }
    assert_eq!(master.asked().len(), before, "none of them reaches a master");
    let reply = edge.get("/d/a", &[]).await;
    assert_same(&reply.body, &content(2, 100));
    assert!(reply.header("cache-status").starts_with("edge1; hit"));
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_do_not_mix() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (Origin::start().await, Origin::start().await);
    let (body, another) = (content(3, 100), content(4, 100));
    one.put("/a", Item::new(body.clone(), "a1"));
    other.put("/a", Item::new(another.clone(), "b1"));
    let map = two_projects(&[one.address], &[other.address]);
    let edge = Edge::with_map(dir.path(), Some(map), ByteCount(1 << 30)).await;
    for _ in 0..2 {
        let reply = client::fetch(edge.address, "GET", "/a", HOST, &[]).await;
        assert_same(&reply.body, &body);
        let reply = client::fetch(edge.address, "GET", "/a", OTHER_HOST, &[]).await;
        assert_same(&reply.body, &another);
    }
    let upper = HOST.to_ascii_uppercase();
    for (target, hosts, status) in [
        ("/a", format!("Host: {upper}."), 200),
        ("/a", format!("Host: {HOST}:8080"), 200),
        ("/a", "Host: evil.example".to_owned(), 421),
        ("/a", format!("Host: {HOST}\r\nHost: {OTHER_HOST}"), 400),
        ("/a", format!("Host: {HOST}, {OTHER_HOST}"), 400),
        ("/a", format!("Host: {HOST}@{OTHER_HOST}"), 400),
        ("/a", format!("Host: {HOST}/x"), 400),
        ("/a", "X-Forwarded-Host: x".to_owned(), 400),
        ("http://evil.example/a", format!("Host: {HOST}"), 421),
        ("ftp://evil.example/a", format!("Host: {HOST}"), 400),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\n{hosts}\r\nConnection: close\r\n\r\n");
        let answer = exchange(edge.address, &request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{hosts}: {answer}");
        assert!(answer.contains("\r\ncache-status: edge1; "), "{hosts}: {answer}");
    }
    assert_eq!((one.asked().len(), other.asked().len()), (1, 1));
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_marks_of_one_client_make_no_error_for_others() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    let body = content(5, 100);
    let looped = [508, 508, 508].into();
    master.put("/a", Item { errors: looped, ..Item::new(body.clone(), "a1") });
    let edge = Edge::start(dir.path(), &[&master]).await;
    for _ in 0..3 {
        let reply = edge.get("/a", &["CDN-Loop: the-masters-own-mark"]).await;
        assert_eq!(reply.status, 508);
    }
    assert_same(&edge.get("/a", &[]).await.body, &body);
    assert_eq!(master.asked().len(), 4);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_project_says_what_of_a_query_counts_and_travels() {
    let only = Query::Only(vec!["id".to_owned(), "v".to_owned()]);
    // (policy, what is asked for, what a master is asked for)
    let cases: [(Query, &[&str], &[&str]); 3] = [
        (Query::Keep, &["/a?x=1", "/a?x=2", "/a?x=1", "/a"], &["/a?x=1", "/a?x=2", "/a"]),
        (Query::Drop, &["/a?x=1", "/a?x=2", "/a?", "/a"], &["/a"]),
        (
            only,
            &["/a?v=2&id=1", "/a?x=9&id=1&v=2", "/a?%69d=1&v=2&y", "/a?id=1", "/a?x=1", "/a"],
            &["/a?id=1&v=2", "/a?id=1", "/a"],
        ),
    ];
    for (query, asked, want) in cases {
        let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
        for path in want {
            master.put(path, Item::new(path.as_bytes().to_vec(), "a1"));
        }
        let edge = with_query(dir.path(), &master, query).await;
        for path in asked {
            assert_eq!(edge.get(path, &[]).await.status, 200, "{path}");
        }
        assert_eq!(paths(&master), *want);
        edge.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_hides_a_second_request_is_closed_upon() {
    let (dir, master) = (tempfile::tempdir().unwrap(), Origin::start().await);
    master.put("/a", Item::new(content(6, 100), "a1"));
    let edge = Edge::start(dir.path(), &[&master]).await;
    let hidden = format!("GET /hidden HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    for (length, status) in [
        ("Content-Length: 18446744073709551616", "400"),
        ("Content-Length: 99999999999999999999999999", "400"),
        ("Content-Length: -1", "400"),
        ("Content-Length: 1_0", "400"),
        ("Content-Length: 5\r\nContent-Length: 6", "400"),
        ("Content-Length: 0x10", "400"),
        // Fits into 64 bits, but hyper has no room for it.
        ("Content-Length: 18446744073709551615", "431"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "400"),
        ("Transfer-Encoding: xchunked", "400"),
    ] {
        let request = format!("GET /a HTTP/1.1\r\nHost: {HOST}\r\n{length}\r\n\r\n{hidden}");
        let answer = exchange(edge.address, &request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{length}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{length}: {answer}");
    }
    assert_eq!(master.asked().len(), 0);
    edge.stop().await;
}
