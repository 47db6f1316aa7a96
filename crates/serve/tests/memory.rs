//! What connections hold in memory, counted by the allocator of this process.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    missing_docs
)]

use std::alloc::System;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use hyper::{Request, Response};
use serve::{Body, Client, FileRange, Handler, RequestBody};
use support::{Server, bytes_of, get, head_of};
use sys::counting::{Allocated, Counting};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

mod support;

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

/// There is one allocator: one test at a time.
static ONE: Mutex<()> = Mutex::const_new(());

const FILE_BYTES: usize = 64 << 20;

struct Site(Arc<File>);

impl Site {
    fn new() -> Self {
        let mut file = tempfile::tempfile().unwrap();
        let part: Vec<u8> = (0..1u32 << 20).map(|n| (n ^ (n >> 9)) as u8).collect();
        (0..FILE_BYTES >> 20).for_each(|_| file.write_all(&part).unwrap());
        Self(Arc::new(file))
    }
}

impl Handler for Site {
    type Visitor = Client;

    fn greet(&self, client: Client) -> Client {
        client
    }

    async fn handle(&self, request: Request<RequestBody>, _: &Client) -> Response<Body> {
        Response::new(match request.uri().path() {
            "/file" => Body::file(FileRange::new(Arc::clone(&self.0), 0, FILE_BYTES as u64)),
            _ => Body::bytes(Bytes::from_static(b"hello\n")),
        })
    }
}

async fn asks_for_hello(client: &mut TcpStream) {
    assert_eq!(head_of(client).await, "HTTP/1.1 200 OK\ncontent-length: 6");
    assert_eq!(bytes_of(client, 6).await, b"hello\n");
}

/// A connection gives back what it does not need while nothing is asked, and then answers as before.
#[tokio::test]
async fn an_idle_connection_costs_little_and_wakes_up() {
    /// Of our own; the kernel's are beside them.
    const BYTES_MAX: u64 = (3 << 10) + 256;
    const CLIENTS: u64 = 100;
    let _one = ONE.lock().await;
    let server = Server::start(Site::new()).await;
    asks_for_hello(&mut server.ask(&get("/")).await).await;
    let mut clients = Vec::with_capacity(CLIENTS as usize);
    let before = Allocated::held_bytes();
    for _ in 0..CLIENTS {
        let mut client = server.ask(&get("/")).await;
        asks_for_hello(&mut client).await;
        clients.push(client);
    }
    // The clients' own sockets count too.
    while Allocated::held_bytes() - before > CLIENTS * BYTES_MAX {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    for client in &mut clients {
        client.write_all(get("/").as_bytes()).await.unwrap();
        asks_for_hello(client).await;
    }
    // Nothing else is lost either: two requests, the second one in two parts.
    let (client, whole) = (&mut clients[0], get("/") + &get("/"));
    let (begin, end) = whole.split_at(get("/").len() + 7);
    client.write_all(begin.as_bytes()).await.unwrap();
    asks_for_hello(client).await;
    client.write_all(end.as_bytes()).await.unwrap();
    asks_for_hello(client).await;
    // And those at rest end with the server.
    server.stop().await;
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
}

/// What a client does not read stays in the file.
#[tokio::test]
async fn a_file_is_never_in_memory_however_slow_its_client() {
    const BYTES_MAX: u64 = 128 << 10;
    let _one = ONE.lock().await;
    let site = Site::new();
    let server = Server::start(site).await;
    let begun = Allocated::now();
    let mut client = server.ask(&get("/file")).await;
    assert_eq!(
        head_of(&mut client).await,
        format!("HTTP/1.1 200 OK\ncontent-length: {FILE_BYTES}")
    );
    let (mut read, mut part) = (0, vec![0; 1 << 20]);
    while read < FILE_BYTES {
        client.read_exact(&mut part).await.unwrap();
        let at = |n: usize| ((n as u32) ^ (n as u32 >> 9)) as u8;
        assert!(part.iter().enumerate().all(|(n, byte)| *byte == at(n)), "{read}");
        read += part.len();
    }
    let allocated = Allocated::now().since(begun).bytes - part.len() as u64;
    assert!(allocated < BYTES_MAX, "{allocated} bytes for a file that is in the page cache");
    server.stop().await;
}

/// What the kernel holds for the client of `peer`, sent and unsent (`/proc/net/tcp`).
fn kernel_bytes(peer: &TcpStream) -> usize {
    let (client, server) = (peer.local_addr().unwrap(), peer.peer_addr().unwrap());
    let hex = |port: u16| format!(":{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows
        .find(|row| row[1].ends_with(&hex(server.port())) && row[2].ends_with(&hex(client.port())));
    let queues = row.map(|row| row[4].to_owned()).unwrap_or_default();
    usize::from_str_radix(queues.split(':').next().unwrap(), 16).unwrap_or(0)
}

/// The kernel would take 1.5 MiB for each client that reads nothing, and be short of memory for all
/// others after a thousand of them.
#[tokio::test]
async fn the_kernel_holds_little_for_a_client_that_does_not_read() {
    /// What may wait unsent, one piece of what the kernel sends at once, and the client's buffer.
    const BYTES_MAX: usize = rt::listen::UNSENT_BYTES as usize + (64 << 10) + (64 << 10);
    let _one = ONE.lock().await;
    let server = Server::start(Site::new()).await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    let mut client = socket.connect(server.address).await.unwrap();
    client.write_all(get("/file").as_bytes()).await.unwrap();
    // As much as it gets: the same at ten looks.
    let (mut held, mut looks) = (0, 0);
    while held == 0 || looks < 10 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        let now = kernel_bytes(&client);
        looks = if now == held { looks + 1 } else { 0 };
        held = now;
    }
    assert!(held <= BYTES_MAX, "{held}");
    // Who reads gets all of it.
    assert!(head_of(&mut client).await.starts_with("HTTP/1.1 200 OK"));
    let got = bytes_of(&mut client, FILE_BYTES).await;
    assert!(got[FILE_BYTES - 4096..] == got[(1 << 20) - 4096..1 << 20]);
    server.stop().await;
}
