//! Parts of files on plain HTTP/1.1, where the kernel takes them from the page cache itself.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    missing_docs
)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use hyper::{Request, Response};
use model::ByteCount;
use serve::disk::FsDisk;
use serve::{Body, BodyError, Client, FileRange, Handler, Piece, RequestBody, Source};
use store::{Key, Params, Representation, Store};
use support::{Server, bytes_of, get, head_of};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

mod support;

/// Where the content of a sparse file begins: beyond what 32 bits can say.
const FAR: u64 = (5 << 30) + 7;
const LEN: usize = 3_000_001;

/// Byte `n` of the content: no two pages are equal.
fn byte(n: usize) -> u8 {
    (n ^ (n >> 8) ^ (n >> 16)) as u8
}

fn content(from: usize, to: usize) -> Vec<u8> {
    (from..to).map(byte).collect()
}

/// A file with content at its beginning and far behind it, between them nothing.
fn file() -> Arc<File> {
    let file = tempfile::tempfile().unwrap();
    let bytes = content(0, LEN);
    file.write_all_at(&bytes, 0).unwrap();
    file.write_all_at(&bytes, FAR).unwrap();
    Arc::new(file)
}

/// Gives its pieces one after the other.
struct Pieces(Vec<Piece>);

impl Source for Pieces {
    async fn next(&mut self) -> Option<Result<Piece, BodyError>> {
        if self.0.is_empty() { None } else { Some(Ok(self.0.remove(0))) }
    }
}

/// `/OFFSET/LEN`: that part of the file. With `?parts` between two words; with `?endless` without
/// announcing the length.
struct Site(Arc<File>);

impl Handler for Site {
    type Visitor = Client;

    fn greet(&self, client: Client) -> Client {
        client
    }

    async fn handle(&self, request: Request<RequestBody>, _: &Client) -> Response<Body> {
        let uri = request.uri();
        let numbers: Vec<u64> = uri.path().split('/').filter_map(|n| n.parse().ok()).collect();
        let [offset, len] = numbers[..] else {
            return Response::new(Body::bytes(Bytes::from_static(b"small\n")));
        };
        let range = FileRange::new(Arc::clone(&self.0), offset, len);
        let word = |text: &'static str| Piece::Bytes(Bytes::from_static(text.as_bytes()));
        Response::new(match uri.query() {
            None => Body::file(range),
            Some("parts") => {
                let pieces = vec![word("before "), Piece::File(range), word(" after")];
                Body::stream(Pieces(pieces), Some(len + 13))
            }
            Some(_) => Body::stream(Pieces(vec![Piece::File(range)]), None),
        })
    }
}

async fn site() -> Server {
    Server::start(Site(file())).await
}

fn ok(len: usize) -> String {
    format!("HTTP/1.1 200 OK\ncontent-length: {len}")
}

/// All until the connection ends, in whichever way.
async fn rest(client: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = client.read_to_end(&mut bytes).await;
    bytes
}

#[tokio::test]
async fn any_part_of_a_file_arrives_as_it_is() {
    let server = site().await;
    let mut client = server.ask("").await;
    for (offset, len) in
        [(0, LEN), (1, LEN - 1), (4095, 200_002), (65_536, 65_536), (77, 65_535), (LEN - 1, 1)]
    {
        for start in [0, FAR] {
            let path = format!("/{}/{len}", start + offset as u64);
            support::send(&mut client, &get(&path)).await;
            assert_eq!(head_of(&mut client).await, ok(len), "{path}");
            let got = bytes_of(&mut client, len).await;
            assert!(got == content(offset, offset + len), "{path}");
        }
    }
    assert_eq!(server.counters.accepted.load(Relaxed), 1, "one connection");
}

/// What is not in the page cache comes from the disk; a hole is such a thing.
#[tokio::test]
async fn holes_and_content_arrive_in_order() {
    const HOLE: usize = 1_000_000;
    let server = site().await;
    let len = HOLE + 500_000;
    let mut client = server.ask(&get(&format!("/{}/{len}", FAR - HOLE as u64))).await;
    assert_eq!(head_of(&mut client).await, ok(len));
    assert!(bytes_of(&mut client, HOLE).await.iter().all(|byte| *byte == 0));
    assert!(bytes_of(&mut client, 500_000).await == content(0, 500_000));
}

#[tokio::test]
async fn requests_of_all_kinds_that_come_at_once_are_answered_in_order() {
    let server = site().await;
    let mut client = TcpStream::connect(server.address).await.unwrap();
    let (mut requests, mut answers) = (String::new(), Vec::new());
    for n in 0..64_usize {
        let (offset, len) = (n * 1_009, 60_000 + n * 1_117);
        let path = format!("/{offset}/{len}");
        let body = content(offset, offset + len);
        let (request, head, body) = match n % 5 {
            0 => (get("/small"), ok(6), b"small\n".to_vec()),
            1 => (get(&path), ok(len), body),
            2 => {
                let body = [b"before ", &body[..], b" after"].concat();
                (get(&(path + "?parts")), ok(len + 13), body)
            }
            3 => (get(&path).replace("GET", "HEAD"), ok(len), vec![]),
            _ => {
                let head = "HTTP/1.1 200 OK\ntransfer-encoding: chunked".to_owned();
                let chunk = [format!("{len:X}\r\n").as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
                (get(&(path + "?endless")), head, chunk)
            }
        };
        requests += &request;
        answers.push((path_of(&request), head, body));
    }
    support::send(&mut client, &requests).await;
    for (path, head, body) in answers {
        assert_eq!(head_of(&mut client).await, head, "{path}");
        assert!(bytes_of(&mut client, body.len()).await == body, "{path}");
    }
    assert_eq!(server.counters.requests.sum(), 64);
}

fn path_of(request: &str) -> String {
    request.lines().next().unwrap_or_default().to_owned()
}

/// A file that is shorter than it should be breaks the answer off, wherever that shows.
#[tokio::test]
async fn a_file_that_ends_too_early_breaks_the_answer_off() {
    let server = site().await;
    let end = FAR + LEN as u64;
    for (there, tail) in [(100_000, ""), (100_000, "?endless"), (0, ""), (0, "?endless")] {
        let before = server.counters.broken_off.load(Relaxed);
        let path = format!("/{}/100100{tail}", end - there as u64);
        // Nor may a client of HTTP/1.0, which knows no chunks, take the end for the end.
        for version in ["1.1", "1.0"] {
            let request = get(&path).replace("HTTP/1.1", &format!("HTTP/{version}"));
            let mut client = server.ask(&request).await;
            let mut answer = Vec::new();
            let ended = client.read_to_end(&mut answer).await;
            assert!(answer.len() < 100_300, "{path}");
            let looks_whole = ended.is_ok() && tail == "?endless" && version == "1.0";
            assert!(!looks_whole && !answer.ends_with(b"0\r\n\r\n"), "{path} {version}");
        }
        assert_eq!(server.counters.broken_off.load(Relaxed), before + 2, "{path}: each once");
    }
}

/// The same when it becomes shorter under a client that has read a part of it.
#[tokio::test]
async fn a_file_that_shrinks_while_it_is_sent_breaks_the_answer_off() {
    const LONG: usize = 64 << 20;
    let file = Arc::new(tempfile::tempfile().unwrap());
    (0..LONG / LEN + 1)
        .for_each(|n| file.write_all_at(&content(0, LEN), (n * LEN) as u64).unwrap());
    let server = Server::start(Site(Arc::clone(&file))).await;
    let mut client = server.ask(&get(&format!("/0/{LONG}"))).await;
    assert_eq!(head_of(&mut client).await, ok(LONG));
    assert!(bytes_of(&mut client, LEN).await == content(0, LEN));
    file.set_len(1_000_000).unwrap();
    let got = rest(&mut client).await;
    assert!(got.len() < LONG - LEN, "{}", got.len());
    assert!(got.iter().enumerate().all(|(n, got)| *got == byte(n % LEN)), "what came is right");
    assert_eq!(server.counters.broken_off.load(Relaxed), 1);
}

/// An object of a store, of so many blocks.
struct Stored(Arc<Representation>);

const BLOCKS: u32 = 64;
const BLOCK_BYTES: usize = 1 << 20;

impl Handler for Stored {
    type Visitor = Client;

    fn greet(&self, client: Client) -> Client {
        client
    }

    async fn handle(&self, _: Request<RequestBody>, _: &Client) -> Response<Body> {
        let extent = self.0.extent(0, u64::from(BLOCKS) << 20).unwrap();
        Response::new(Body::file(extent.into()))
    }
}

/// A block that is lost under a transfer may be a hole by now.
#[tokio::test]
async fn a_block_that_is_lost_while_its_file_is_sent_breaks_the_answer_off() {
    let folder = tempfile::tempdir().unwrap();
    let params = Params {
        capacity: ByteCount(1 << 30),
        block_bytes: BLOCK_BYTES as u32,
        memory: Params::MEMORY,
        open_files: Params::OPEN_FILES,
    };
    let store = Store::open(Arc::new(FsDisk::new(folder.path())), params).unwrap();
    let len = u64::from(BLOCKS) << 20;
    let rep = store.create(Key([7; 16]), Bytes::new(), len).unwrap();
    let block = content(0, BLOCK_BYTES);
    (0..BLOCKS).for_each(|n| rep.write_block(n, &block).unwrap());
    let server = Server::start(Stored(Arc::clone(&rep))).await;
    let mut client = server.ask(&get("/")).await;
    assert_eq!(head_of(&mut client).await, ok(len as usize));
    assert!(bytes_of(&mut client, BLOCK_BYTES).await == block);
    // No socket has taken as much as that.
    rep.doubt(len - 1, 1);
    let got = rest(&mut client).await;
    assert!(got.len() < len as usize - BLOCK_BYTES);
    assert!(got.iter().enumerate().all(|(n, got)| *got == byte(n % BLOCK_BYTES)));
    assert_eq!(server.counters.broken_off.load(Relaxed), 1);
}

struct Nothing;

impl Handler for Nothing {
    type Visitor = Client;

    fn greet(&self, client: Client) -> Client {
        client
    }

    async fn handle(&self, _: Request<RequestBody>, _: &Client) -> Response<Body> {
        Response::new(Body::empty())
    }
}

/// What systemd's watchdog looks at.
#[tokio::test]
async fn whoever_accepts_gives_signs_of_life_until_nobody_is_to_come() {
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (alive, shutdown) = (rt::alive::Alive::default(), rt::Shutdown::default());
    let listeners = vec![serve::Listener { alive: alive.clone(), ..socket.into() }];
    let (limits, stop) = (serve::Limits::default(), shutdown.clone());
    let serving = serve::http(listeners, Arc::new(Nothing), limits, Arc::default(), stop);
    let serving = tokio::spawn(serving);
    while alive.stuck(std::time::Duration::ZERO).is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(alive.stuck(std::time::Duration::ZERO), Some("accepting connections"));
    shutdown.end_soon();
    serving.await.unwrap();
    assert_eq!(alive.stuck(std::time::Duration::ZERO), None);
}
