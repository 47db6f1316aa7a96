//! A slow link between clients and an edge, in user space: so many bytes a second for all connections
//! together, a small queue before it, and a delay each way. Each connection has one piece waiting for
//! the queue at a time, as if its path had a buffer of its own before the bottleneck.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

/// What travels at once, about a packet.
const PIECE_BYTES: usize = 1448;
/// What the kernel may take from the edge ahead of the link, for each connection.
const AHEAD_BYTES: u32 = 16 << 10;

/// What the link is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// Bits a second towards clients; the other way is not limited.
    pub(crate) bits_s: u64,
    /// Bytes that wait before it.
    pub(crate) queue_bytes: usize,
    /// How long a byte travels, each way.
    pub(crate) delay: Duration,
}

/// A piece on its way, and where and when it arrives.
type Arrival = (Instant, Vec<u8>);

/// A piece in the queue, its place there, and its connection.
struct Queued {
    since: Instant,
    piece: Vec<u8>,
    place: OwnedSemaphorePermit,
    to: UnboundedSender<Arrival>,
}

/// What the connections share.
#[derive(Clone)]
struct Shared {
    link: Link,
    room: Arc<Semaphore>,
    queue: UnboundedSender<Queued>,
}

/// Starts a link to an edge; clients connect to the address that is given back.
pub(crate) async fn start(link: Link, edge: SocketAddr) -> Result<SocketAddr> {
    let listener = TcpListener::bind((edge.ip(), 0)).await.context("cannot listen")?;
    let address = listener.local_addr()?;
    let room = Arc::new(Semaphore::new(link.queue_bytes));
    let (queue, queued) = unbounded_channel();
    let shared = Shared { link, room, queue };
    tokio::spawn(transmit(link, queued));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(carry(shared.clone(), client, edge));
        }
    });
    Ok(address)
}

/// One connection; it ends on both sides when either ends.
async fn carry(shared: Shared, client: TcpStream, edge: SocketAddr) -> Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(AHEAD_BYTES)?;
    let edge = socket.connect(edge).await?;
    client.set_nodelay(true)?;
    edge.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_edge, to_edge) = edge.into_split();
    let (up, going_up) = unbounded_channel();
    let (down, going_down) = unbounded_channel();
    tokio::select! {
        ended = delay_only(shared.link.delay, from_client, up) => ended,
        ended = queue_up(&shared, from_edge, down) => ended,
        ended = arrive(going_up, to_edge) => ended,
        ended = arrive(going_down, to_client) => ended,
    }
}

/// Towards the edge: everything travels at once.
async fn delay_only(
    delay: Duration,
    mut from: OwnedReadHalf,
    to: UnboundedSender<Arrival>,
) -> Result<()> {
    loop {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        if from.read_buf(&mut piece).await? == 0 {
            return Ok(());
        }
        to.send((Instant::now() + delay, piece))?;
    }
}

/// Towards the client: a piece waits for room in the queue before the next is read.
async fn queue_up(
    shared: &Shared,
    mut from: OwnedReadHalf,
    to: UnboundedSender<Arrival>,
) -> Result<()> {
    loop {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        if from.read_buf(&mut piece).await? == 0 {
            return Ok(());
        }
        let bytes = u32::try_from(piece.len())?;
        let place = Arc::clone(&shared.room).acquire_many_owned(bytes).await?;
        shared.queue.send(Queued { since: Instant::now(), piece, place, to: to.clone() })?;
    }
}

/// The link itself: one piece after the other, each for as long as its bytes take.
async fn transmit(link: Link, mut queued: UnboundedReceiver<Queued>) {
    let mut free = Instant::now();
    while let Some(Queued { since, piece, place, to }) = queued.recv().await {
        let bits = 8.0 * piece.len() as f64;
        // Late alarms take nothing of the rate: the next piece begins when this one ended.
        free = free.max(since) + Duration::from_secs_f64(bits / link.bits_s as f64);
        sleep_until(free).await;
        drop(place);
        // Its client may be gone.
        let _ = to.send((free + link.delay, piece));
    }
}

async fn arrive(mut pieces: UnboundedReceiver<Arrival>, mut to: OwnedWriteHalf) -> Result<()> {
    while let Some((at, piece)) = pieces.recv().await {
        sleep_until(at).await;
        to.write_all(&piece).await?;
    }
    Ok(())
}
