//! Requests and their responses.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use h3::error::{Code, StreamError};
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use serve::{Body, Client, FileRange, Handler, Limits, Piece, RequestBody};

use crate::support::{Server, ask_raw, error, frame, headers, piece, request, rest, script};

/// A file of 5,000,003 bytes: many chunks, and more than a fresh connection may send at once.
fn file() -> (Arc<std::fs::File>, Vec<u8>) {
    let bytes: Vec<u8> = (0..5_000_003u32).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    (Arc::new(file), bytes)
}

struct Site(Arc<std::fs::File>);

impl Handler for Site {
    type Visitor = Client;

    fn greet(&self, client: Client) -> Client {
        client
    }

    async fn handle(&self, request: Request<RequestBody>, client: &Client) -> Response<Body> {
        assert!(client.address.ip().is_loopback() && client.is_secure);
        assert_eq!(request.version(), Version::HTTP_3);
        assert_eq!(request.headers()["host"], "a.example");
        assert_eq!(request.uri().authority().unwrap(), "a.example");
        let head = Response::builder();
        let range = |offset, len| FileRange::new(Arc::clone(&self.0), offset, len);
        match request.uri().path() {
            "/hello" => head
                .header("connection", "keep-alive")
                .header("transfer-encoding", "chunked")
                .body(Body::bytes(Bytes::from_static(b"hello\n"))),
            "/empty" => head.body(Body::empty()),
            "/head-of-large" => head.header("content-length", 5_000_000_000u64).body(Body::empty()),
            "/not-modified" => head.status(304).header("etag", "\"1\"").body(Body::empty()),
            "/stream" => {
                let pieces =
                    vec![piece("one"), piece(""), Ok(Piece::File(range(9, 4))), piece("two")];
                head.body(Body::stream(script(pieces), None))
            }
            "/breaks" => head.body(Body::stream(script(vec![piece("one"), error()]), Some(10))),
            "/breaks-unsized" => head.body(Body::stream(script(vec![piece("one"), error()]), None)),
            "/short" => head.body(Body::stream(script(vec![piece("one")]), Some(10))),
            "/truncated" => head.body(Body::file(range(5_000_000, 4))),
            "/panic" => panic!("a fault of the handler"),
            "/range" => head.status(206).body(Body::file(range(999_999, 300_000))),
            "/echo" => {
                let is_empty = http_body::Body::is_end_stream(request.body());
                let length = http_body::Body::size_hint(request.body()).exact();
                let head = head.header("x-empty", is_empty.to_string());
                let head = head.header("x-length", format!("{length:?}"));
                match request.into_body().collect().await {
                    Ok(content) => head.body(Body::bytes(content.to_bytes())),
                    Err(_) => head.status(400).body(Body::empty()),
                }
            }
            _ => head.body(Body::file(range(0, 5_000_003))),
        }
        .unwrap()
    }
}

fn site() -> Server {
    Server::start(Site(file().0), Limits::default())
}

/// Fields beside the date, which is there.
fn fields(head: &Response<()>) -> String {
    let mut headers: HeaderMap = head.headers().clone();
    assert!(headers.remove("date").unwrap().to_str().unwrap().ends_with(" GMT"));
    let fields = headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
    fields.collect::<Vec<_>>().join(", ")
}

#[tokio::test]
async fn answers_arrive_whole_whatever_they_are_made_of() {
    let (server, (_, bytes)) = (site(), file());
    let mut browser = server.connect().await;
    for (path, status, want, body) in [
        ("/hello", 200, "content-length: 6", &b"hello\n"[..]),
        ("/empty", 200, "content-length: 0", b""),
        ("/not-modified", 304, "etag: \"1\"", b""),
        ("/stream", 200, "", &[b"one", &bytes[9..13], b"two"].concat()),
        ("/range", 206, "content-length: 300000", &bytes[999_999..1_299_999]),
        ("/file", 200, "content-length: 5000003", &bytes),
    ] {
        let (head, got) = browser.get(path).await;
        assert_eq!((head.status(), fields(&head).as_str()), (status.try_into().unwrap(), want));
        assert!(got == body, "{path}: {} bytes", got.len());
    }
    for (path, want) in [
        ("/hello", "content-length: 6"),
        ("/empty", ""),
        ("/head-of-large", "content-length: 5000000000"),
        ("/file", "content-length: 5000003"),
    ] {
        let mut stream = browser.ask(request("HEAD", path)).await;
        let head = stream.recv_response().await.unwrap();
        assert_eq!(fields(&head), want, "HEAD {path}");
        assert_eq!(rest(&mut stream).await.unwrap(), b"", "HEAD {path}");
    }
    assert_eq!(server.counters.requests.sum(), 10);
    assert_eq!(server.counters.accepted.load(Relaxed), 1);
}

#[tokio::test]
async fn many_responses_share_a_connection() {
    let (server, (_, bytes)) = (site(), file());
    let browser = server.connect().await;
    let asking = (0..150).map(|number| {
        let mut requests = browser.requests.clone();
        let path = if number % 30 == 0 { "/file" } else { "/hello" };
        tokio::spawn(async move {
            let request = request("GET", path).header("priority", format!("u={}", number % 8));
            let mut stream = requests.send_request(request.body(()).unwrap()).await.unwrap();
            stream.finish().await.unwrap();
            stream.recv_response().await.unwrap();
            (path, rest(&mut stream).await.unwrap())
        })
    });
    for asked in asking.collect::<Vec<_>>() {
        let (path, got) = asked.await.unwrap();
        assert!(got == if path == "/file" { &bytes[..] } else { b"hello\n" }, "{path}");
    }
}

#[tokio::test]
async fn a_body_that_cannot_go_on_is_reset_and_never_ended() {
    let server = site();
    let mut browser = server.connect().await;
    let paths = ["/breaks", "/breaks-unsized", "/short", "/truncated", "/panic"];
    for path in paths {
        let mut stream = browser.ask(request("GET", path)).await;
        let broken = match stream.recv_response().await {
            Ok(_) => rest(&mut stream).await.unwrap_err(),
            // The reset overtook the head.
            Err(broken) => broken,
        };
        let is_right =
            matches!(broken, StreamError::RemoteTerminate { code: Code::H3_INTERNAL_ERROR, .. });
        assert!(is_right, "{path}: {broken:?}");
    }
    assert_eq!(server.counters.broken_off.load(Relaxed), 4);
    assert_eq!(browser.get("/hello").await.1, b"hello\n", "its connection goes on");
}

#[tokio::test]
async fn content_of_requests_arrives() {
    let server = site();
    let mut browser = server.connect().await;
    let (head, body) = browser.get("/echo").await;
    assert_eq!((&head.headers()["x-length"], body.len()), (&"Some(0)".parse().unwrap(), 0));
    let content = Bytes::from((0..700_000u32).map(|n| n as u8).collect::<Vec<_>>());
    for (length, want, status) in [
        (None, "None", 200),
        (Some(700_000), "Some(700000)", 200),
        (Some(700_001), "Some(700001)", 400),
        (Some(699_999), "Some(699999)", 400),
    ] {
        let mut request = request("PUT", "/echo");
        if let Some(length) = length {
            request = request.header("content-length", length.to_string());
        }
        let mut stream = browser.requests.send_request(request.body(()).unwrap()).await.unwrap();
        // It is not wanted any more once it is known to be wrong.
        let _ = stream.send_data(content.clone()).await;
        let _ = stream.finish().await;
        let head = stream.recv_response().await.unwrap();
        assert_eq!(head.status(), status, "{length:?}");
        assert_eq!(head.headers()["x-length"], want);
        assert_eq!(head.headers()["x-empty"], "false");
        if status == 200 {
            assert!(rest(&mut stream).await.unwrap() == content);
        }
    }
}

/// Head and end of a request may travel apart: clients that send content have the end apart always.
#[tokio::test]
async fn who_ends_a_request_late_is_not_told_to_stop() {
    let server = site();
    let mut browser = server.connect().await;
    let head = request("GET", "/hello").body(()).unwrap();
    let mut stream = browser.requests.send_request(head).await.unwrap();
    assert_eq!(stream.recv_response().await.unwrap().status(), 200);
    assert_eq!(rest(&mut stream).await.unwrap(), b"hello\n");
    // What it was told by now has come with this.
    assert_eq!(browser.get("/hello").await.1, b"hello\n");
    stream.finish().await.unwrap();
}

#[tokio::test]
async fn who_waits_for_leave_to_send_content_gets_it() {
    let server = site();
    let mut browser = server.connect().await;
    let request = request("PUT", "/echo").header("expect", "100-continue").body(()).unwrap();
    let mut stream = browser.requests.send_request(request).await.unwrap();
    assert_eq!(stream.recv_response().await.unwrap().status(), StatusCode::CONTINUE);
    stream.send_data(Bytes::from_static(b"now")).await.unwrap();
    stream.finish().await.unwrap();
    assert_eq!(stream.recv_response().await.unwrap().status(), StatusCode::OK);
    assert_eq!(rest(&mut stream).await.unwrap(), b"now");
}

#[tokio::test]
async fn heads_that_speak_of_another_protocol_are_malformed() {
    let server = site();
    let mut browser = server.connect().await;
    for (request, want) in [
        (request("GET", "/hello").header("connection", "close"), Code::H3_MESSAGE_ERROR),
        (request("GET", "/hello").header("transfer-encoding", "gzip"), Code::H3_MESSAGE_ERROR),
        (request("GET", "/hello").header("te", "gzip"), Code::H3_MESSAGE_ERROR),
        (request("GET", "/hello").header("content-length", "+1"), Code::H3_MESSAGE_ERROR),
        (request("GET", "/hello").header("content-length", "5"), Code::H3_MESSAGE_ERROR),
    ] {
        let mut stream = browser.ask(request).await;
        let refused = stream.recv_response().await.unwrap_err();
        let StreamError::RemoteTerminate { code, .. } = refused else { panic!("{refused:?}") };
        assert_eq!(code, want);
    }
    let mut trailers = browser.ask(request("GET", "/hello").header("te", "trailers")).await;
    assert_eq!(trailers.recv_response().await.unwrap().status(), 200);
    assert_eq!(server.counters.malformed.load(Relaxed), 5);
    assert_eq!(server.counters.requests.sum(), 1);
    assert_eq!(browser.get("/hello").await.1, b"hello\n", "its connection goes on");
}

/// Streams as no client of ours would send them. What is answered begins with a HEADERS frame.
#[tokio::test]
async fn odd_streams_are_refused_alone_or_served() {
    let server = site();
    let mut browser = server.connect().await;
    let [method, scheme, host, path] = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "a.example"),
        (":path", "/hello"),
    ];
    let get = headers(&[method, scheme, host, path]);
    let cookie = |length| "a".repeat(length);
    let (large, huge) = (cookie(20_000), cookie(1_000_000));
    let message = Err(Code::H3_MESSAGE_ERROR.value());
    for (bytes, want) in [
        (get.clone(), Ok(200)),
        ([frame(0x21, b"greased"), get.clone()].concat(), Ok(200)),
        ([get.clone(), frame(0x2f, &[1; 5000])].concat(), Ok(200)),
        (headers(&[method, scheme, path, ("host", "a.example")]), Ok(200)),
        (headers(&[method, scheme, host, path, ("cookie", &large)]), Ok(431)),
        (
            headers(&[method, scheme, host, path, ("cookie", &huge)]),
            Err(Code::H3_EXCESSIVE_LOAD.value()),
        ),
        (frame(0x21, &vec![0; 1_000_000]), Err(Code::H3_EXCESSIVE_LOAD.value())),
        (Vec::new(), Err(Code::H3_REQUEST_INCOMPLETE.value())),
        (headers(&[scheme, host, path]), message),
        (headers(&[method, host, path]), message),
        (headers(&[method, scheme, path]), message),
        (headers(&[method, scheme, host]), message),
        (headers(&[method, scheme, host, path, ("host", "b.example")]), message),
        (headers(&[method, scheme, host, path, (":other", "a")]), message),
        (headers(&[method, scheme, host, path, ("Cookie", "a")]), message),
        (headers(&[method, scheme, host, path, ("cookie", "a\nb")]), message),
        (
            headers(&[(":method", "CONNECT"), (":protocol", "websocket"), scheme, host, path]),
            message,
        ),
    ] {
        let answer = ask_raw(&browser, &bytes).await;
        let status = answer.map(|bytes| match bytes.get(..5) {
            // The head: prefix, then `:status: 200` of the static table.
            Some([1, _, 0, 0, 0xd9]) => 200,
            // `:status` of the static table with a literal.
            Some([1, _, 0, 0, 0x5f]) => 431,
            other => panic!("{other:?}"),
        });
        let shown =
            String::from_utf8_lossy(bytes.get(..bytes.len().min(200)).unwrap()).into_owned();
        assert_eq!(status, want, "{shown:?}");
    }
    assert_eq!(browser.get("/hello").await.1, b"hello\n", "its connection goes on");
}
