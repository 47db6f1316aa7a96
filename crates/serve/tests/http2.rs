//! HTTP/2 by prior knowledge, as an independent codec sees it over loopback sockets.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Reason, RecvStream};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use rt::Shutdown;
use serve::{
    Body, BodyError, Client, Counters, Goaway, Handler, Limits, Piece, RequestBody, Shed, Source,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use support::frames::*;

mod support;

/// Gives its pieces, then says how it ends.
struct Script(std::vec::IntoIter<Result<Piece, BodyError>>);

impl Source for Script {
    async fn next(&mut self) -> Option<Result<Piece, BodyError>> {
        self.0.next()
    }
}

fn script(pieces: Vec<Result<Piece, BodyError>>) -> Script {
    Script(pieces.into_iter())
}

fn piece(text: &'static str) -> Result<Piece, BodyError> {
    Ok(Piece::Bytes(Bytes::from_static(text.as_bytes())))
}

/// Never comes to an end.
struct Never(mpsc::UnboundedReceiver<()>, #[expect(dead_code)] oneshot::Sender<()>);

impl Source for Never {
    async fn next(&mut self) -> Option<Result<Piece, BodyError>> {
        self.0.recv().await?;
        Some(piece("more"))
    }
}

fn large() -> Bytes {
    (0..3_000_003u32).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect()
}

/// Answers by path.
#[derive(Default)]
struct Site {
    never: std::sync::Mutex<Option<Never>>,
}

impl Handler for Site {
    type Visitor = Client;

    fn greet(&self, client: Client) -> Client {
        client
    }

    async fn handle(&self, request: Request<RequestBody>, client: &Client) -> Response<Body> {
        assert!(client.address.ip().is_loopback() && !client.is_secure);
        let error = || Err(BodyError::source("upstream has gone"));
        let head = Response::builder();
        match request.uri().path() {
            "/hello" => head.body(Body::bytes(Bytes::from_static(b"hello\n"))),
            "/host" => {
                let host = request.uri().host().unwrap_or("none").to_owned();
                head.body(Body::bytes(host.into()))
            }
            "/empty" => head.body(Body::empty()),
            "/head-of-large" => head.header("content-length", 5_000_000_000u64).body(Body::empty()),
            "/not-modified" => head.status(304).header("etag", "\"1\"").body(Body::empty()),
            "/large" => head.body(Body::bytes(large())),
            "/unsized" => head
                .header("connection", "close")
                .header("transfer-encoding", "chunked")
                .body(Body::stream(script(vec![piece("one"), piece(""), piece("two")]), None)),
            "/breaks" => head.body(Body::stream(script(vec![piece("one"), error()]), Some(10))),
            "/breaks-unsized" => head.body(Body::stream(script(vec![piece("one"), error()]), None)),
            "/short" => head.body(Body::stream(script(vec![piece("one")]), Some(10))),
            "/upload" => {
                let content = request.into_body().collect().await.unwrap().to_bytes();
                head.body(Body::bytes(content))
            }
            "/never" => {
                let never = self.never.lock().unwrap().take().unwrap();
                head.body(Body::stream(never, None))
            }
            other => panic!("{other}"),
        }
        .unwrap()
    }
}

struct Server {
    address: SocketAddr,
    counters: Arc<Counters>,
    shutdown: Shutdown,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(handler: impl Handler, limits: Limits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let counters = Arc::new(Counters::default());
        let shutdown = Shutdown::default();
        let (handler, stop) = (Arc::new(handler), shutdown.clone());
        let listeners = vec![listener.into()];
        let serving = serve::http(listeners, handler, limits, counters.clone(), stop);
        Self { address, counters, shutdown, task: tokio::spawn(serving) }
    }

    /// A client, and the end of its connection.
    async fn connect(&self) -> (SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>) {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        (client, tokio::spawn(connection))
    }
}

async fn site() -> Server {
    Server::start(Site::default(), Limits::default()).await
}

fn request(method: Method, path: &str) -> Request<()> {
    let uri = format!("http://a.example{path}");
    Request::builder().method(method).uri(uri).version(http::Version::HTTP_2).body(()).unwrap()
}

/// Everything of a body; an error of the stream with what came before.
async fn read(mut body: RecvStream) -> (Vec<u8>, Option<Reason>) {
    let mut bytes = Vec::new();
    loop {
        match body.data().await {
            Some(Ok(data)) => {
                body.flow_control().release_capacity(data.len()).unwrap();
                bytes.extend_from_slice(&data);
            }
            Some(Err(error)) => return (bytes, error.reason()),
            None => return (bytes, None),
        }
    }
}

async fn ask(client: &mut SendRequest<Bytes>, request: Request<()>) -> Response<RecvStream> {
    let mut ready = client.clone().ready().await.unwrap();
    ready.send_request(request, true).unwrap().0.await.unwrap()
}

#[tokio::test]
async fn bodies_of_each_kind() {
    let server = site().await;
    let (mut client, _) = server.connect().await;
    for (method, path, length, body) in [
        (Method::GET, "/hello", Some("6"), Bytes::from_static(b"hello\n")),
        (Method::HEAD, "/hello", Some("6"), Bytes::new()),
        (Method::GET, "/host", Some("9"), Bytes::from_static(b"a.example")),
        (Method::GET, "/empty", Some("0"), Bytes::new()),
        (Method::HEAD, "/empty", None, Bytes::new()),
        (Method::HEAD, "/head-of-large", Some("5000000000"), Bytes::new()),
        (Method::GET, "/not-modified", None, Bytes::new()),
        (Method::GET, "/large", Some("3000003"), large()),
        (Method::GET, "/unsized", None, Bytes::from_static(b"onetwo")),
    ] {
        let response = ask(&mut client, request(method.clone(), path)).await;
        let fields = response.headers();
        let got = fields.get("content-length").map(|value| value.to_str().unwrap());
        assert_eq!(got, length, "{method} {path}");
        assert!(fields.contains_key("date"), "{method} {path}");
        assert!(!fields.contains_key("connection") && !fields.contains_key("transfer-encoding"));
        assert_eq!(read(response.into_body()).await, (body.to_vec(), None), "{method} {path}");
    }
    let counters = &server.counters;
    assert_eq!((counters.requests.sum(), counters.h2_requests.load(Relaxed)), (9, 9));
    assert_eq!((counters.accepted.load(Relaxed), counters.h2_connections.load(Relaxed)), (1, 1));
}

#[tokio::test]
async fn a_body_that_cannot_go_on_ends_in_a_reset_and_others_go_on() {
    let server = site().await;
    let (mut client, _) = server.connect().await;
    for (count, path) in ["/breaks", "/breaks-unsized", "/short"].into_iter().enumerate() {
        let mut ready = client.clone().ready().await.unwrap();
        let (response, _) = ready.send_request(request(Method::GET, path), true).unwrap();
        // The reset may overtake what is still buffered, but nothing looks whole.
        let (bytes, reason) = match response.await {
            Ok(response) => read(response.into_body()).await,
            Err(error) => (Vec::new(), error.reason()),
        };
        assert_eq!(reason, Some(Reason::INTERNAL_ERROR), "{path}");
        assert!(b"one".starts_with(&bytes), "{path}: {bytes:?}");
        assert_eq!(server.counters.broken_off.load(Relaxed), count as u64 + 1, "{path}");
    }
    let response = ask(&mut client, request(Method::GET, "/hello")).await;
    assert_eq!(read(response.into_body()).await, (b"hello\n".to_vec(), None));
}

#[tokio::test]
async fn content_of_requests_passes() {
    let server = site().await;
    let (client, _) = server.connect().await;
    let mut client = client.ready().await.unwrap();
    let (response, mut content) =
        client.send_request(request(Method::POST, "/upload"), false).unwrap();
    let bytes = large().slice(..1_000_000);
    let mut left = bytes.clone();
    while !left.is_empty() {
        content.reserve_capacity(left.len());
        let room = std::future::poll_fn(|cx| content.poll_capacity(cx)).await.unwrap().unwrap();
        let part = left.split_to(room.min(left.len()));
        content.send_data(part, left.is_empty()).unwrap();
    }
    let (got, reason) = read(response.await.unwrap().into_body()).await;
    assert!(got == bytes && reason.is_none(), "{} bytes, {reason:?}", got.len());
}

#[tokio::test]
async fn a_client_that_resets_takes_its_source_along() {
    let (more, receive) = mpsc::unbounded_channel();
    let (dropped, was_dropped) = oneshot::channel();
    let site = Site { never: Some(Never(receive, dropped)).into() };
    let server = Server::start(site, Limits::default()).await;
    let (mut client, _) = server.connect().await;
    let mut body = ask(&mut client, request(Method::GET, "/never")).await.into_body();
    more.send(()).unwrap();
    assert_eq!(body.data().await.unwrap().unwrap(), "more");
    drop(body);
    assert!(was_dropped.await.is_err());
    let response = ask(&mut client, request(Method::GET, "/hello")).await;
    assert_eq!(read(response.into_body()).await.0, b"hello\n");
    assert_eq!(server.counters.h2_resets.load(Relaxed), 1);
}

#[tokio::test]
async fn shutdown_finishes_what_runs_and_takes_nothing_new() {
    let (more, receive) = mpsc::unbounded_channel();
    let (dropped, _) = oneshot::channel();
    let site = Site { never: Some(Never(receive, dropped)).into() };
    let server = Server::start(site, Limits::default()).await;
    let (mut client, connection) = server.connect().await;
    let body = ask(&mut client, request(Method::GET, "/never")).await.into_body();
    server.shutdown.drain(Duration::MAX);
    // The client learns of it with a GOAWAY, whereupon its requests fail.
    while client.clone().ready().await.is_ok() {
        let asked = client.send_request(request(Method::GET, "/hello"), true);
        let Ok((response, _)) = asked else { break };
        if response.await.is_err() {
            break;
        }
    }
    more.send(()).unwrap();
    drop(more);
    assert_eq!(read(body).await, (b"more".to_vec(), None));
    server.task.await.unwrap();
    connection.await.unwrap().unwrap();
    assert_eq!(server.counters.cut.load(Relaxed), 0);
}

#[tokio::test]
async fn fields_that_http_2_does_not_know_reset_their_stream() {
    let server = site().await;
    let mut stream = connect(server.address).await;
    let authority = (":authority", "a.example");
    let cases: [&[(&str, &str)]; 6] = [
        &[authority, ("connection", "close")],
        &[authority, ("transfer-encoding", "chunked")],
        &[authority, ("upgrade", "h2c")],
        &[authority, ("keep-alive", "1")],
        &[authority, ("te", "gzip")],
        &[("a", "b"), authority],
    ];
    for (n, fields) in (0u32..).zip(cases) {
        let id = 2 * n + 1;
        let head = frame(HEADERS, END_STREAM | END_HEADERS, id, &head("/hello", fields));
        stream.write_all(&head).await.unwrap();
        let (kind, _, of, payload) = next(&mut stream).await.unwrap();
        assert_eq!((kind, of), (RST_STREAM, id), "{fields:?}");
        assert_eq!(payload, 1u32.to_be_bytes(), "{fields:?}: PROTOCOL_ERROR");
    }
    let head = head("/hello", &[("te", "trailers"), ("host", "a.example")]);
    let head = frame(HEADERS, END_STREAM | END_HEADERS, 99, &head);
    stream.write_all(&head).await.unwrap();
    assert_eq!(next(&mut stream).await.unwrap().0, HEADERS);
    assert_eq!(next(&mut stream).await.unwrap(), (DATA, END_STREAM, 99, b"hello\n".to_vec()));
    assert_eq!(server.counters.requests.sum(), 1);
}

#[tokio::test]
async fn a_slow_preface_and_an_idle_client_are_closed() {
    let limits = Limits { head_timeout: Duration::from_millis(50), ..Limits::default() };
    let server = Server::start(Site::default(), limits).await;
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    slow.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
    assert_eq!(slow.read(&mut [0; 9]).await.unwrap_or(0), 0);
    assert_eq!(server.counters.timeouts.load(Relaxed), 1);
    let mut idle = connect(server.address).await;
    idle.write_all(&frame(PING, 0, 0, &[7; 8])).await.unwrap();
    assert_eq!(next(&mut idle).await.unwrap(), (PING, 1, 0, vec![7; 8]));
    assert_eq!(goaway(&mut idle).await, Some(Reason::NO_ERROR));
    while next(&mut idle).await.is_some() {}
    assert_eq!(server.counters.timeouts.load(Relaxed), 1, "idle clients are no event");
    assert_eq!(server.counters.malformed.load(Relaxed), 0);
}

/// A client that has nothing running is told to go by GOAWAY when others wait for its place.
#[tokio::test]
async fn an_idle_client_makes_room_for_those_who_come() {
    let limits = Limits { connections_max: 1, ..Limits::default() };
    let server = Server::start(Site::default(), limits).await;
    let mut idle = connect(server.address).await;
    idle.write_all(&frame(PING, 0, 0, &[7; 8])).await.unwrap();
    assert_eq!(next(&mut idle).await.unwrap(), (PING, 1, 0, vec![7; 8]));
    let (mut client, _connection) = server.connect().await;
    let response = ask(&mut client, request(Method::GET, "/hello")).await;
    assert_eq!(read(response.into_body()).await, (b"hello\n".to_vec(), None));
    assert_eq!(goaway(&mut idle).await, Some(Reason::NO_ERROR));
    assert_eq!(next(&mut idle).await, None);
    assert_eq!((server.counters.shed(Shed::Idle), server.counters.goaways(Goaway::Idle)), (1, 1));
}

/// A client that asks and gives no window has its connection for a bounded time, whatever else it
/// sends.
#[tokio::test]
async fn a_client_that_makes_no_room_is_cut_in_the_end() {
    let limits = Limits { head_timeout: Duration::from_millis(20), ..Limits::default() };
    let server = Server::start(Site::default(), limits).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    let no_window = [0, 4, 0, 0, 0, 0];
    stream.write_all(&frame(SETTINGS, 0, 0, &no_window)).await.unwrap();
    let head = head("/large", &[(":authority", "a.example")]);
    stream.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &head)).await.unwrap();
    assert_eq!(next(&mut stream).await.unwrap().0, HEADERS);
    while next(&mut stream).await.is_some() {
        let _ = stream.write_all(&frame(PING, 0, 0, &[0; 8])).await;
    }
    assert_eq!(server.counters.stalled.load(Relaxed), 1);
}

#[tokio::test]
async fn requests_of_http_1_1_come_through_the_same_door() {
    let server = site().await;
    for parts in [
        &["GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"][..],
        &["P", "RI /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"],
        &["PRI * HTTP/2.0\r\n\r\nNO"],
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        for part in parts {
            stream.write_all(part.as_bytes()).await.unwrap();
            tokio::task::yield_now().await;
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let want = if parts.concat().contains("/hello") { "HTTP/1.1 200" } else { "HTTP/1.1 400" };
        assert!(answer.starts_with(want), "{parts:?}: {answer}");
    }
    assert_eq!(server.counters.h2_connections.load(Relaxed), 0);
}
