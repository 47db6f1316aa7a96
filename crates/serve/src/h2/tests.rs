//! Whose bytes come when, frame by frame on a wire that holds little.
#![allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use http::{Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;
use crate::{Body, BodyError, Piece, RequestBody, Source};

/// Bytes that the wire holds in each direction.
const WIRE: usize = 16 * 1024;
const FRAME: usize = 16 * 1024;
const PIECE: usize = 100_000;
/// What may lie between a body and its client: the wire, what gathers, a frame in the codec.
const ON_ITS_WAY: usize = WIRE + 64 * 1024 + 2 * FRAME;

/// `/endless` never ends, `/N` has N bytes; counts the bytes that it gave.
#[derive(Clone, Default)]
struct Given(Arc<AtomicU64>);

impl Source for Given {
    async fn next(&mut self) -> Option<Result<Piece, BodyError>> {
        self.0.fetch_add(PIECE as u64, Relaxed);
        Some(Ok(Piece::Bytes(Bytes::from_static(&[0; PIECE]))))
    }
}

impl Handler for Given {
    type Visitor = Client;

    fn greet(&self, client: Client) -> Client {
        client
    }

    async fn handle(&self, request: Request<RequestBody>, _: &Client) -> Response<Body> {
        let body = match request.uri().path().trim_start_matches('/') {
            "endless" => Body::stream(self.clone(), None),
            length => Body::bytes(vec![0; length.parse().unwrap()].into()),
        };
        Response::new(body)
    }
}

/// The client's end of a connection, frame by frame.
struct Wired {
    stream: DuplexStream,
    given: Given,
    counters: Arc<Counters>,
    /// Bytes of DATA by stream.
    data: BTreeMap<u32, usize>,
    ended: Vec<u32>,
}

const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn field(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    [vec![0], text(name), text(value)].concat()
}

impl Wired {
    /// A connection of a client that gives this window to each stream, and `connection` in all.
    async fn new(window: u32, connection: u32) -> Self {
        Self::within(Limits::default(), window, connection).await
    }

    /// The same on a listener with these limits.
    async fn within(limits: Limits, window: u32, connection: u32) -> Self {
        let (mut stream, server) = tokio::io::duplex(WIRE);
        let (given, counters) = (Given::default(), Arc::<Counters>::default());
        let (stop, stopping) = watch::channel(false);
        let peer = Client { address: ([127, 0, 0, 1], 1).into(), is_secure: false };
        let (handler, count) = (Arc::new(given.clone()), Arc::clone(&counters));
        let first = Bytes::from_static(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        tokio::spawn(async move {
            serve(server, first, peer, handler, limits, count, stopping).await;
            drop(stop);
        });
        let window = [&[0, 4][..], &window.to_be_bytes()].concat();
        stream.write_all(&frame(SETTINGS, 0, 0, &window)).await.unwrap();
        let mut wired = Self { stream, given, counters, data: BTreeMap::new(), ended: Vec::new() };
        if connection > 0 {
            wired.widen(0, connection).await;
        }
        wired
    }

    async fn ask(&mut self, stream: u32, path: &str, priority: Option<&str>) {
        let fields = [(":method", "GET"), (":scheme", "http"), (":path", path), ("host", "a")];
        let fields = fields.into_iter().chain(priority.map(|value| ("priority", value)));
        let head: Vec<u8> = fields.flat_map(|(name, value)| field(name, value)).collect();
        self.stream.write_all(&frame(1, 5, stream, &head)).await.unwrap();
    }

    async fn widen(&mut self, stream: u32, by: u32) {
        self.stream.write_all(&frame(WINDOW_UPDATE, 0, stream, &by.to_be_bytes())).await.unwrap();
    }

    /// Takes the next frame: its kind, its stream, the bytes of its payload.
    async fn next(&mut self) -> (u8, u32, usize) {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        self.stream.read_exact(&mut vec![0; length]).await.unwrap();
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        if head[3] == 0 {
            *self.data.entry(stream).or_default() += length;
        }
        if head[3] <= 1 && head[4] & 1 != 0 {
            self.ended.push(stream);
        }
        (head[3], stream, length)
    }

    /// Takes frames until `stream` has ended.
    async fn until_end(&mut self, stream: u32) {
        while !self.ended.contains(&stream) {
            self.next().await;
        }
    }

    /// Takes frames with so many bytes of DATA.
    async fn take(&mut self, bytes: usize) {
        let end = self.all() + bytes;
        while self.all() < end {
            self.next().await;
        }
    }

    fn all(&self) -> usize {
        self.data.values().sum()
    }

    fn of(&self, stream: u32) -> usize {
        self.data.get(&stream).copied().unwrap_or_default()
    }
}

const WIDE: u32 = 1 << 30;

/// Lets the connection's task run until it can do no more by itself.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_small_answer_overtakes_what_bulk_has_not_sent_yet() {
    for bulks in [1, 2, 8] {
        let mut client = Wired::new(WIDE, WIDE).await;
        for n in 0..bulks {
            client.ask(2 * n + 1, "/endless", None).await;
        }
        client.take(3_000_000).await;
        let before = client.all();
        client.ask(101, "/1024", None).await;
        client.until_end(101).await;
        let bulk = client.all() - before - 1024;
        // A few frames of each that had its turn before, at most what is held in all.
        let held = HELD_BYTES_MAX.min((bulks as usize + 2) * 2 * FRAME);
        assert!(bulk <= ON_ITS_WAY + held, "{bulks}: {bulk}");
    }
}

/// What is on its way goes before: for a slow client that is a frame or two at each place.
#[tokio::test]
async fn for_a_slow_client_less_is_on_its_way() {
    let mut client = Wired::new(WIDE, WIDE).await;
    for n in 0..8 {
        client.ask(2 * n + 1, "/endless", None).await;
    }
    client.take(1_000_000).await;
    for _ in 0..60 {
        // Nothing is waited for: this is how fast it is, 16 KiB in 20 ms.
        tokio::time::sleep(Duration::from_millis(20)).await;
        client.take(FRAME).await;
    }
    let before = client.all();
    client.ask(101, "/1024", None).await;
    client.until_end(101).await;
    let bulk = client.all() - before - 1024;
    // The wire, what gathers, two frames in the codec; four parts and one more that were given.
    assert!(bulk <= WIRE + 3 * FRAME + 5 * FRAME, "{bulk}");
}

/// A client whose window for all is what bulk uses up.
#[tokio::test]
async fn a_small_answer_finds_window_after_the_next_updates() {
    let mut client = Wired::new(WIDE, 0).await;
    client.ask(1, "/endless", None).await;
    client.take(65_535).await;
    client.ask(3, "/1024", None).await;
    settle().await;
    client.widen(0, 32_768).await;
    client.until_end(3).await;
    assert!(client.of(1) <= 65_535 + 32_768, "{}", client.of(1));
    assert_eq!(client.of(3), 1024);
}

#[tokio::test]
async fn the_more_urgent_goes_first_and_the_other_when_it_is_held_up() {
    let mut client = Wired::new(0, WIDE).await;
    client.ask(1, "/endless", Some("u=5")).await;
    client.ask(3, "/endless", Some("u=1")).await;
    client.widen(1, WIDE).await;
    client.take(1_000_000).await;
    assert_eq!(client.of(3), 0, "it has no window");
    client.widen(3, 1_000_000).await;
    let bulk = client.of(1);
    while client.of(3) < 1_000_000 {
        client.next().await;
    }
    // What of the other was held when the urgent one could go, and comes in turns with it.
    let meanwhile = client.of(1) - bulk;
    assert!(meanwhile <= ON_ITS_WAY + HELD_BYTES_MAX + crate::priority::PART_BYTES, "{meanwhile}");
    client.take(1_000_000).await;
    assert_eq!(client.of(3), 1_000_000, "it is held up again, and the other goes on");
}

#[tokio::test]
async fn equal_ones_share() {
    let mut client = Wired::new(WIDE, WIDE).await;
    for stream in [1, 3, 5, 7, 9, 11] {
        client.ask(stream, "/endless", None).await;
    }
    client.take(12_000_000).await;
    for stream in [1, 3, 5, 7, 9, 11] {
        let bytes = client.of(stream);
        assert!((1_500_000..2_500_000).contains(&bytes), "{stream}: {:?}", client.data);
    }
}

#[tokio::test]
async fn who_asks_for_it_is_answered_one_after_the_other() {
    let mut client = Wired::new(WIDE, WIDE).await;
    client.ask(1, "/2000000", Some("u=3")).await;
    client.ask(3, "/2000000", Some("u=3")).await;
    client.until_end(1).await;
    // The next one's turn comes when the last part of the first was given.
    assert!(client.of(3) <= HELD_BYTES_MAX, "{}", client.of(3));
    client.until_end(3).await;
    assert_eq!((client.of(1), client.of(3)), (2_000_000, 2_000_000));
}

/// Whatever the number of streams, and whether it is the wire or windows that nobody empties.
#[tokio::test]
async fn a_client_that_stops_reading_stops_every_source() {
    for window in [WIDE, 20_000, 0] {
        let mut client = Wired::new(window, WIDE).await;
        for n in 0..STREAMS_MAX {
            client.ask(2 * n + 1, "/endless", None).await;
        }
        settle().await;
        let pieces = client.given.0.load(Relaxed) / PIECE as u64;
        let most = match window {
            0 => 0,
            // A piece of each that has its turn while less is held than may be.
            _ => HELD_BYTES_MAX.div_ceil(window.min(65_536) as usize) + 16,
        };
        assert!(pieces <= most as u64, "{window}: {pieces}");
        assert_eq!(client.counters.h2_requests.load(Relaxed), u64::from(STREAMS_MAX));
    }
}

/// While it takes others.
#[tokio::test]
async fn a_response_of_which_the_client_takes_nothing_is_reset_alone() {
    let limits = Limits { head_timeout: Duration::from_millis(20), ..Limits::default() };
    let mut client = Wired::within(limits, 0, WIDE).await;
    client.ask(1, "/endless", None).await;
    client.ask(3, "/endless", None).await;
    let reset = loop {
        client.widen(3, 1000).await;
        let (kind, stream, _) = client.next().await;
        if kind == RST_STREAM {
            break stream;
        }
    };
    assert_eq!((reset, client.of(1)), (1, 0));
    client.widen(3, 100_000).await;
    client.take(100_000).await;
    assert_eq!(client.counters.stalled.load(Relaxed), 1);
    // With the other one the whole connection stalls.
    while client.stream.read_u8().await.is_ok() {}
    assert_eq!(client.counters.stalled.load(Relaxed), 2);
}

#[tokio::test]
async fn more_streams_than_allowed_are_refused() {
    let mut client = Wired::new(0, WIDE).await;
    for n in 0..=STREAMS_MAX {
        client.ask(2 * n + 1, "/endless", None).await;
    }
    let refused = loop {
        let (kind, stream, _) = client.next().await;
        if kind == 3 {
            break stream;
        }
    };
    assert_eq!(refused, 2 * STREAMS_MAX + 1);
}
