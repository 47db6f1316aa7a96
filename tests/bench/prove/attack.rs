//! Clients that mean harm, or might as well: what one connection of each kind does until the edge has
//! had enough of it.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use h2::Reason;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{interval, timeout};

use crate::edge::Edge;
use crate::frames::{CONTINUATION, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, SETTINGS};
use crate::frames::{field, frame, goaway, head, preface};

/// A head that does not end has another byte so often.
const DRIP_PAUSE: Duration = Duration::from_millis(500);
/// Requests of a connection that are taken back at once, and frames of a head without end.
const RESETS: u32 = 2_000;
const CONTINUATIONS: usize = 10_000;
/// Requests of a connection that takes nothing.
const UNREAD: u32 = 100;
/// A head that is too large, and the lines of one that has too many.
const LARGE_HEAD_BYTES: usize = 20 << 10;
const LINES: usize = 200;
/// Who is not cut off for so long never will be.
const PATIENCE: Duration = Duration::from_secs(60);

/// A kind of abuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Abuse {
    /// Heads of requests that come byte by byte and never end
    SlowHeads,
    /// Answers that are read at 2 KiB a second
    SlowReads,
    /// HTTP/2 requests that are taken back as soon as they are sent
    RapidReset,
    /// An HTTP/2 head that goes on and on
    Continuation,
    /// Heads that are too large, or have too many lines
    LargeHeads,
    /// HTTP/2 requests for answers that have no room to come
    ZeroWindow,
    /// Connections on which nothing is asked, more than there are places
    Idle,
}

/// How many do it and what the edge does about it.
pub(crate) struct Plan {
    /// Connections at a time.
    pub(crate) connections: u32,
    /// After a connection was ended its attacker rests so long; `None`: it has only this one.
    pub(crate) again_after: Option<Duration>,
    /// The metric that counts those that were ended.
    pub(crate) counted: &'static str,
}

impl Abuse {
    /// By default.
    pub(crate) fn plan(self) -> Plan {
        let flood = "cacheboy_edge_http2_goaways_total{reason=\"flood\"}";
        let (connections, pause_ms, counted) = match self {
            Self::SlowHeads => (500, None, "cacheboy_edge_connections_timed_out_total"),
            Self::SlowReads => (1_000, None, "cacheboy_edge_responses_stalled_total"),
            Self::RapidReset => (20, Some(200), flood),
            Self::Continuation => (20, Some(200), flood),
            Self::LargeHeads => (20, Some(100), "cacheboy_edge_connections_malformed_total"),
            Self::ZeroWindow => (100, None, "cacheboy_edge_responses_stalled_total"),
            Self::Idle => (14_000, None, "cacheboy_edge_connections_shed_total{reason=\"idle\"}"),
        };
        Plan { connections, again_after: pause_ms.map(Duration::from_millis), counted }
    }

    /// Whether the edge ends every one of them, places being free or not.
    pub(crate) fn is_ended(self) -> bool {
        !matches!(self, Self::SlowReads | Self::ZeroWindow | Self::Idle)
    }

    /// One connection; returns when the edge has ended it as its manual says.
    pub(crate) async fn once(self, edge: &Edge, large: &str) -> Result<()> {
        let stream = edge.tcp(edge.http).await?;
        let ended = async {
            match self {
                Self::SlowHeads => slow_head(stream).await,
                Self::RapidReset => rapid_reset(stream).await,
                Self::Continuation => continuation(stream).await,
                Self::LargeHeads => large_head(stream).await,
                Self::ZeroWindow => zero_window(stream, large).await,
                Self::SlowReads | Self::Idle => closed(stream).await,
            }
        };
        timeout(PATIENCE, ended).await.context("it was not ended")?
    }
}

async fn slow_head(stream: TcpStream) -> Result<()> {
    let (mut from, mut to) = stream.into_split();
    let drip = async {
        let mut ticks = interval(DRIP_PAUSE);
        to.write_all(b"GET /a HTTP/1.1\r\nHost: a.example\r\nX-Slow: ").await?;
        loop {
            ticks.tick().await;
            to.write_all(b"x").await?;
        }
    };
    let mut answer = Vec::new();
    tokio::select! {
        dripped = drip => {
            let dripped: std::io::Result<()> = dripped;
            // It was closed: what came before that still counts.
            let _ = dripped;
            let _ = from.read_to_end(&mut answer).await;
        }
        _ = from.read_to_end(&mut answer) => {}
    }
    ensure!(answer.is_empty(), "{:?} came", String::from_utf8_lossy(&answer));
    Ok(())
}

async fn rapid_reset(mut stream: TcpStream) -> Result<()> {
    let mut flood = preface();
    let head = head("/a", &[(":authority", "a.example")]);
    for id in (1..=RESETS * 2).step_by(2) {
        flood.extend(frame(HEADERS, END_STREAM | END_HEADERS, id, &head));
        flood.extend(frame(RST_STREAM, 0, id, &8_u32.to_be_bytes()));
    }
    // The other side may hang up before it has read all of it.
    let _ = stream.write_all(&flood).await;
    calmed(stream).await
}

async fn continuation(mut stream: TcpStream) -> Result<()> {
    let mut flood = preface();
    flood.extend(frame(HEADERS, END_STREAM, 1, &head("/a", &[(":authority", "a.example")])));
    flood.extend(frame(CONTINUATION, 0, 1, &field("a", "b")).repeat(CONTINUATIONS));
    let _ = stream.write_all(&flood).await;
    calmed(stream).await
}

/// Its end, with the reason that is due if one came through.
async fn calmed(mut stream: TcpStream) -> Result<()> {
    match goaway(&mut stream).await {
        None | Some(Reason::ENHANCE_YOUR_CALM) => Ok(()),
        Some(reason) => bail!("GOAWAY with {reason:?}"),
    }
}

async fn large_head(mut stream: TcpStream) -> Result<()> {
    let mut head = b"GET /a HTTP/1.1\r\nHost: a.example\r\n".to_vec();
    let is_long = stream.local_addr()?.port() % 2 == 0;
    match is_long {
        true => head.extend([b"X-Large: ".to_vec(), vec![b'x'; LARGE_HEAD_BYTES]].concat()),
        false => head.extend(b"X-Many: x\r\n".repeat(LINES)),
    }
    head.extend(b"\r\n\r\n");
    stream.write_all(&head).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let is_431 = answer.starts_with(b"HTTP/1.1 431 ");
    ensure!(is_431, "{:?} came", String::from_utf8_lossy(&answer));
    Ok(())
}

async fn zero_window(mut stream: TcpStream, large: &str) -> Result<()> {
    let mut asked = preface();
    // SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113 section 6.5.2).
    asked.extend(frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
    let head = head(large, &[(":authority", "a.example")]);
    for id in (1..=UNREAD * 2).step_by(2) {
        asked.extend(frame(HEADERS, END_STREAM | END_HEADERS, id, &head));
    }
    stream.write_all(&asked).await?;
    closed(stream).await
}

/// Waits for the end of a connection and passes over what comes.
async fn closed(mut stream: TcpStream) -> Result<()> {
    let mut passed = [0; 1024];
    while stream.read(&mut passed).await.unwrap_or_default() > 0 {}
    Ok(())
}
