//! The wire as a client sees it: raw bytes over loopback sockets.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs
)]

use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use hyper::{Request, Response};
use rt::Shutdown;
use serve::{
    Body, BodyError, Client, Counters, FileRange, Handler, Limits, Piece, RequestBody, Shed, Source,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// A source that gives what the test sends through a channel, and tells when it is dropped.
struct Script {
    pieces: mpsc::UnboundedReceiver<Result<Piece, BodyError>>,
    _dropped: Option<oneshot::Sender<()>>,
}

impl Source for Script {
    async fn next(&mut self) -> Option<Result<Piece, BodyError>> {
        self.pieces.recv().await
    }
}

fn script(pieces: Vec<Result<Piece, BodyError>>) -> Script {
    let (send, receive) = mpsc::unbounded_channel();
    pieces.into_iter().for_each(|piece| send.send(piece).unwrap());
    Script { pieces: receive, _dropped: None }
}

fn piece(text: &'static str) -> Result<Piece, BodyError> {
    Ok(Piece::Bytes(Bytes::from_static(text.as_bytes())))
}

fn error() -> Result<Piece, BodyError> {
    Err(BodyError::source("upstream has gone"))
}

/// A file of 1,000,003 bytes, more than three chunks.
fn file() -> (Arc<std::fs::File>, Vec<u8>) {
    let bytes: Vec<u8> = (0..1_000_003u32).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    (Arc::new(file), bytes)
}

fn version() -> Vec<u8> {
    std::fs::read("/proc/version").unwrap()
}

/// Answers by path.
struct Site;

impl Handler for Site {
    type Visitor = Client;

    fn greet(&self, client: Client) -> Client {
        client
    }

    async fn handle(&self, request: Request<RequestBody>, client: &Client) -> Response<Body> {
        assert!(client.address.ip().is_loopback());
        let head = Response::builder();
        match request.uri().path() {
            "/hello" => head.body(Body::bytes(Bytes::from_static(b"hello\n"))),
            "/empty" => head.body(Body::empty()),
            "/head-of-large" => head.header("content-length", 5_000_000_000u64).body(Body::empty()),
            "/not-modified" => head.status(304).header("etag", "\"1\"").body(Body::empty()),
            "/chunked" => {
                head.body(Body::stream(script(vec![piece("one"), piece(""), piece("two")]), None))
            }
            "/sized" => head.body(Body::stream(script(vec![piece("one"), piece("two")]), Some(6))),
            "/breaks" => head.body(Body::stream(script(vec![piece("one"), error()]), Some(10))),
            "/breaks-chunked" => head.body(Body::stream(script(vec![piece("one"), error()]), None)),
            "/short" => head.body(Body::stream(script(vec![piece("one")]), Some(10))),
            "/long" => head.body(Body::stream(script(vec![piece("one"), piece("more")]), Some(5))),
            // A file system that has no page cache to look into: the blocking pool reads.
            "/version" => {
                let file = std::fs::File::open("/proc/version").unwrap();
                head.body(Body::file(FileRange::new(Arc::new(file), 0, version().len() as u64)))
            }
            "/panic" => panic!("a fault of the handler"),
            path => {
                let (file, _) = file();
                let (offset, len) = match path {
                    "/file" => (0, 1_000_003),
                    "/range" => (999_999, 4),
                    "/truncated" => (999_999, 5),
                    _ => (2_000_000, 1),
                };
                let range = FileRange::new(file, offset, len);
                match request.uri().query() {
                    Some("stream") => {
                        let pieces = vec![piece("start"), Ok(Piece::File(range)), piece("end")];
                        head.body(Body::stream(script(pieces), Some(len + 8)))
                    }
                    _ => head.body(Body::file(range)),
                }
            }
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

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    fn stop(&self) {
        self.shutdown.drain(Duration::MAX);
    }

    /// Sends `request` on a connection of its own and returns all that comes until it is closed.
    async fn ask(&self, request: &[u8]) -> Vec<u8> {
        let mut client = self.connect().await;
        client.write_all(request).await.unwrap();
        rest(&mut client).await
    }

    async fn get(&self, path: &str) -> (String, Vec<u8>) {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
        split(&self.ask(request.as_bytes()).await)
    }
}

/// All bytes until the end; a reset after them is an end too.
async fn rest(client: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = client.read_to_end(&mut bytes).await;
    bytes
}

/// Head without the date, and body.
fn split(response: &[u8]) -> (String, Vec<u8>) {
    let end = response.windows(4).position(|four| four == b"\r\n\r\n").expect("a response head");
    let head = std::str::from_utf8(&response[..end]).unwrap();
    let lines = head.split("\r\n").filter(|line| !line.starts_with("date: "));
    (lines.collect::<Vec<_>>().join("\n"), response[end + 4..].to_vec())
}

async fn head_of(client: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(client.read_u8().await.unwrap());
    }
    split(&bytes).0
}

async fn site() -> Server {
    Server::start(Site, Limits::default()).await
}

#[tokio::test]
async fn bodies_of_each_kind() {
    let server = site().await;
    let (_, bytes) = file();
    for (path, framing, body) in [
        ("/hello", "content-length: 6", b"hello\n".to_vec()),
        ("/empty", "content-length: 0", vec![]),
        ("/chunked", "transfer-encoding: chunked", b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n".to_vec()),
        ("/sized", "content-length: 6", b"onetwo".to_vec()),
        ("/file", "content-length: 1000003", bytes.clone()),
        ("/range", "content-length: 4", bytes[999_999..].to_vec()),
        ("/range?stream", "content-length: 12", [b"start", &bytes[999_999..], b"end"].concat()),
    ] {
        let (head, got) = server.get(path).await;
        let mut lines: Vec<&str> = head.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["HTTP/1.1 200 OK", "connection: close", framing], "{path}");
        assert!(got == body, "{path}: {} bytes", got.len());
    }
}

#[tokio::test]
async fn requests_of_one_connection_are_answered_in_order_without_bodies_where_none_belong() {
    let server = site().await;
    let requests = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n\
         HEAD /hello HTTP/1.1\r\nHost: a\r\n\r\n\
         HEAD /head-of-large HTTP/1.1\r\nHost: a\r\n\r\n\
         HEAD /chunked HTTP/1.1\r\nHost: a\r\n\r\n\
         GET /not-modified HTTP/1.1\r\nHost: a\r\n\r\n\
         GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let answer = String::from_utf8(server.ask(requests.as_bytes()).await).unwrap();
    let lines = answer.split("\r\n").filter(|line| !line.starts_with("date: "));
    let ok = "HTTP/1.1 200 OK";
    assert_eq!(
        lines.collect::<Vec<_>>(),
        [
            ok,
            "content-length: 6",
            "",
            "hello\nHTTP/1.1 200 OK",
            "content-length: 6",
            "",
            ok,
            "content-length: 5000000000",
            "",
            ok,
            "",
            "HTTP/1.1 304 Not Modified",
            "etag: \"1\"",
            "",
            ok,
            "connection: close",
            "content-length: 6",
            "",
            "hello\n",
        ]
    );
    assert_eq!(server.counters.requests.sum(), 6);
    assert_eq!(server.counters.accepted.load(Relaxed), 1);
}

#[tokio::test]
async fn a_file_that_may_block_is_read_elsewhere() {
    let server = site().await;
    assert_eq!(server.get("/version").await.1, version());
}

#[tokio::test]
async fn a_body_that_nobody_reads_does_not_keep_the_answer_back() {
    let server = site().await;
    let request = b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab";
    let mut client = server.connect().await;
    client.write_all(request).await.unwrap();
    assert!(head_of(&mut client).await.starts_with("HTTP/1.1 200 OK"));
    client.read_exact(&mut [0; 6]).await.unwrap();
    assert_eq!(rest(&mut client).await, b"", "and it is not taken for the next request");
}

#[tokio::test]
async fn old_clients_get_no_chunks() {
    let server = site().await;
    let (head, body) = split(&server.ask(b"GET /chunked HTTP/1.0\r\n\r\n").await);
    assert!(head.starts_with("HTTP/1.0 200 OK") && !head.contains("chunked"), "{head}");
    assert_eq!(body, b"onetwo");
}

#[tokio::test]
async fn what_is_not_http_gets_400_and_the_connection_closed() {
    let server = site().await;
    let long = |n| "x".repeat(n);
    let many: String = (0..101).map(|n| format!("h{n}: v\r\n")).collect();
    let get = "GET / HTTP/1.1\r\nHost: a\r\n";
    let cases: [(Vec<u8>, &str); 16] = [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(), "400"),
        (b"hello\r\n\r\n".to_vec(), "400"),
        (b"GET\r\n\r\n".to_vec(), "400"),
        (b"GET /a b HTTP/1.1\r\n\r\n".to_vec(), "400"),
        (b"GET / HTTP/9.9\r\n\r\n".to_vec(), "400"),
        (b"GET / HTTP/2.0\r\n\r\n".to_vec(), "400"),
        (format!("{get}a b: c\r\n\r\n").into(), "400"),
        (format!("{get}a : c\r\n\r\n").into(), "400"),
        (format!("{get}a: \0\r\n\r\n").into(), "400"),
        (format!("{get}: c\r\n\r\n").into(), "400"),
        (format!("{get}Content-Length: x\r\n\r\n").into(), "400"),
        (format!("{get}Content-Length: 1\r\nContent-Length: 2\r\n\r\n").into(), "400"),
        (format!("{get}Transfer-Encoding: gzip\r\n\r\n").into(), "400"),
        (format!("{get}Big: {}\r\n\r\n", long(20_000)).into(), "431"),
        (format!("{get}Big: {}", long(70_000)).into(), "431"),
        (format!("{get}{many}\r\n").into(), "431"),
    ];
    let count = cases.len();
    for (request, status) in cases {
        let (head, body) = split(&server.ask(&request).await);
        let shown = String::from_utf8_lossy(&request[..request.len().min(80)]).into_owned();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{shown:?}: {head}");
        assert!(body.is_empty(), "{shown:?}");
    }
    assert_eq!(server.counters.malformed.load(Relaxed), count as u64);
    assert_eq!(server.counters.requests.sum(), 0);
    assert_eq!(server.get("/hello").await.1, b"hello\n", "others are served");
}

#[tokio::test]
async fn a_slow_head_and_an_idle_client_are_closed() {
    let limits = Limits { head_timeout: Duration::from_millis(50), ..Limits::default() };
    let server = Server::start(Site, limits).await;
    assert_eq!(server.ask(b"GET /hello HTTP/1.1\r\nHost: ").await, b"");
    assert_eq!(server.counters.timeouts.load(Relaxed), 1);
    assert_eq!(server.ask(b"").await, b"");
    let (_, body) = split(&server.ask(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").await);
    assert_eq!(body, b"hello\n");
    assert_eq!(server.counters.timeouts.load(Relaxed), 1, "idle clients are no event");
    let mut client = server.connect().await;
    client.write_all(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    head_of(&mut client).await;
    client.read_exact(&mut [0; 6]).await.unwrap();
    client.write_all(b"GET /hello HTTP/1.1\r\nHost: a\r\n").await.unwrap();
    assert_eq!(rest(&mut client).await, b"");
    assert_eq!(server.counters.timeouts.load(Relaxed), 2, "a second head is timed like the first");
}

#[tokio::test]
async fn a_body_that_cannot_go_on_is_visibly_broken_off() {
    let server = site().await;
    let (_, bytes) = file();
    for (path, framing, sent) in [
        ("/breaks", "content-length: 10", b"one".to_vec()),
        ("/breaks-chunked", "transfer-encoding: chunked", b"3\r\none\r\n".to_vec()),
        ("/short", "content-length: 10", b"one".to_vec()),
        ("/long", "content-length: 5", b"one".to_vec()),
        ("/truncated", "content-length: 5", bytes[999_999..].to_vec()),
        ("/truncated?stream", "content-length: 13", [b"start", &bytes[999_999..]].concat()),
        ("/behind-the-end", "content-length: 1", vec![]),
    ] {
        let before = server.counters.broken_off.load(Relaxed);
        // Without "Connection: close": that it is closed is the sign.
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = server.ask(request.as_bytes()).await;
        assert_eq!(server.counters.broken_off.load(Relaxed), before + 1, "{path}");
        // The end may overtake what is still buffered, but nothing looks whole.
        if !answer.is_empty() {
            let (head, body) = split(&answer);
            assert!(head.contains(framing), "{path}: {head}");
            assert!(sent.starts_with(&body), "{path}: {body:?}");
        }
    }
}

/// A client of HTTP/1.0 knows no chunks: it would take the end of the connection for the end.
#[tokio::test]
async fn half_a_body_without_length_ends_in_a_reset_for_http_1_0() {
    let server = Server::start(Site, Limits::default()).await;
    let ask = async |path: &str| {
        let mut stream = server.connect().await;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let ended = stream.read_to_end(&mut answer).await.map_err(|e| e.kind());
        (ended.map(|_| ()), String::from_utf8(answer).unwrap())
    };
    let (ended, answer) = ask("/breaks-chunked").await;
    assert_eq!(ended, Err(std::io::ErrorKind::ConnectionReset), "{answer}");
    let (ended, answer) = ask("/chunked").await;
    assert_eq!(ended, Ok(()));
    assert!(answer.ends_with("\r\n\r\nonetwo"), "{answer}");
    assert!(!answer.contains("transfer-encoding"), "{answer}");
}

#[tokio::test]
async fn a_fault_of_the_handler_costs_its_connection_only() {
    let server = site().await;
    assert_eq!(server.ask(b"GET /panic HTTP/1.1\r\nHost: a\r\n\r\n").await, b"");
    assert_eq!(server.get("/hello").await.1, b"hello\n");
}

/// Each request waits for the test to say what its body is.
struct Waiting {
    bodies: mpsc::UnboundedSender<(Pieces, oneshot::Receiver<()>)>,
}

impl Handler for Waiting {
    type Visitor = Client;

    fn greet(&self, client: Client) -> Client {
        client
    }

    fn handle(
        &self,
        _: Request<RequestBody>,
        _: &Client,
    ) -> impl Future<Output = Response<Body>> + Send {
        let (send, pieces) = mpsc::unbounded_channel();
        let (dropped, was_dropped) = oneshot::channel();
        self.bodies.send((send, was_dropped)).unwrap();
        let body = Body::stream(Script { pieces, _dropped: Some(dropped) }, Some(6));
        async { Response::new(body) }
    }
}

type Pieces = mpsc::UnboundedSender<Result<Piece, BodyError>>;
type Bodies = mpsc::UnboundedReceiver<(Pieces, oneshot::Receiver<()>)>;

async fn waiting(limits: Limits) -> (Server, Bodies) {
    let (bodies, receive) = mpsc::unbounded_channel();
    (Server::start(Waiting { bodies }, limits).await, receive)
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test]
async fn draining_finishes_what_runs_and_closes_what_idles() {
    let (server, mut bodies) = waiting(Limits::default()).await;
    let mut running = server.connect().await;
    running.write_all(GET).await.unwrap();
    let (body, _) = bodies.recv().await.unwrap();
    body.send(piece("one")).unwrap();
    head_of(&mut running).await;
    let mut idle = server.connect().await;
    idle.write_all(GET).await.unwrap();
    let (answered, _) = bodies.recv().await.unwrap();
    answered.send(piece("onetwo")).unwrap();
    drop(answered);
    head_of(&mut idle).await;
    let mut six = [0; 6];
    idle.read_exact(&mut six).await.unwrap();

    server.stop();
    assert_eq!(rest(&mut idle).await, b"");
    assert!(TcpStream::connect(server.address).await.is_err(), "nobody new");
    assert!(!server.task.is_finished());
    body.send(piece("two")).unwrap();
    drop(body);
    assert_eq!(rest(&mut running).await, b"onetwo");
    server.task.await.unwrap();
    assert_eq!(server.counters.open.load(Relaxed), 0);
    assert_eq!(server.counters.cut.load(Relaxed), 0);
}

#[tokio::test]
async fn a_cut_ends_what_runs() {
    let (server, mut bodies) = waiting(Limits::default()).await;
    let mut client = server.connect().await;
    client.write_all(GET).await.unwrap();
    let (body, dropped) = bodies.recv().await.unwrap();
    body.send(piece("one")).unwrap();
    head_of(&mut client).await;
    server.shutdown.cut();
    server.task.await.unwrap();
    assert_eq!(rest(&mut client).await, b"one");
    assert!(dropped.await.is_err(), "the source is let go");
    assert_eq!(server.counters.cut.load(Relaxed), 1);
}

#[tokio::test]
async fn a_client_that_goes_takes_its_source_along() {
    let (server, mut bodies) = waiting(Limits::default()).await;
    let mut client = server.connect().await;
    client.write_all(GET).await.unwrap();
    let (body, dropped) = bodies.recv().await.unwrap();
    body.send(piece("one")).unwrap();
    head_of(&mut client).await;
    drop(client);
    assert!(dropped.await.is_err());
}

#[tokio::test]
async fn connections_above_the_ceiling_wait_their_turn() {
    let limits = Limits { connections_max: 1, ..Limits::default() };
    let (server, mut bodies) = waiting(limits).await;
    let mut first = server.connect().await;
    first.write_all(GET).await.unwrap();
    let (body, _) = bodies.recv().await.unwrap();
    let mut second = server.connect().await;
    second.write_all(GET).await.unwrap();
    body.send(piece("onetwo")).unwrap();
    head_of(&mut first).await;
    assert!(bodies.try_recv().is_err(), "the second is not even read");
    assert_eq!(server.counters.accepted.load(Relaxed), 1);
    drop((first, body));
    let (body, _) = bodies.recv().await.unwrap();
    body.send(piece("onetwo")).unwrap();
    head_of(&mut second).await;
    assert_eq!(server.counters.accepted.load(Relaxed), 2);
}

/// Whoever has rested longest makes room: an answered client, one that never asked, one whose head does
/// not come to its end; never one that is being answered.
#[tokio::test]
async fn idle_connections_make_room_for_those_who_come() {
    let limits = Limits { connections_max: 4, ..Limits::default() };
    let (server, mut bodies) = waiting(limits).await;
    let mut busy = server.connect().await;
    busy.write_all(GET).await.unwrap();
    let (body, _) = bodies.recv().await.unwrap();
    body.send(piece("one")).unwrap();
    head_of(&mut busy).await;
    let mut answered = server.connect().await;
    answered.write_all(GET).await.unwrap();
    let (whole, _) = bodies.recv().await.unwrap();
    whole.send(piece("onetwo")).unwrap();
    head_of(&mut answered).await;
    answered.read_exact(&mut [0; 6]).await.unwrap();
    let mut silent = server.connect().await;
    let mut slow = server.connect().await;
    slow.write_all(b"GET / HTTP/1.1\r\nHost: a").await.unwrap();
    let mut served = Vec::new();
    for shed in 1..=3 {
        let mut client = server.connect().await;
        client.write_all(GET).await.unwrap();
        let (body, _) = bodies.recv().await.unwrap();
        body.send(piece("one")).unwrap();
        head_of(&mut client).await;
        served.push((client, body));
        assert_eq!(server.counters.shed(Shed::Idle), shed);
        assert_eq!(server.counters.full.load(Relaxed), shed);
    }
    for idle in [&mut answered, &mut silent, &mut slow] {
        assert_eq!(rest(idle).await, b"");
    }
    body.send(piece("two")).unwrap();
    busy.read_exact(&mut [0; 6]).await.unwrap();
    assert_eq!(server.counters.shed(Shed::Slow), 0);
}
