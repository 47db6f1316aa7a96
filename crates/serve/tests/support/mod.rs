//! A server of plain HTTP/1.1 in this process, and a client that is no more than a socket.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails"
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rt::{Context, Shutdown};
use serve::{Counters, Handler, Limits, Listener};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

pub mod book;
pub mod frames;

pub struct Server {
    pub address: SocketAddr,
    pub counters: Arc<Counters>,
    shutdown: Shutdown,
    task: JoinHandle<()>,
}

impl Server {
    pub async fn start(handler: impl Handler) -> Self {
        Self::within(Limits::default(), handler).await
    }

    pub async fn within(limits: Limits, handler: impl Handler) -> Self {
        // As a role binds it; nothing is kept in the folder.
        let context = Context::new("edge1".parse().unwrap(), std::env::temp_dir());
        let listen = SocketAddr::from(([127, 0, 0, 1], 0)).into();
        let listener = Listener::bind(&listen, &context, &limits).unwrap();
        let address = listener.address().unwrap();
        let (counters, shutdown) = (Arc::new(Counters::default()), Shutdown::default());
        let (handler, listeners, stop) = (Arc::new(handler), vec![listener], shutdown.clone());
        let serving = serve::http(listeners, handler, limits, Arc::clone(&counters), stop);
        Self { address, counters, shutdown, task: tokio::spawn(serving) }
    }

    /// A connection on which `requests` were sent.
    pub async fn ask(&self, requests: &str) -> TcpStream {
        let mut client = TcpStream::connect(self.address).await.unwrap();
        client.write_all(requests.as_bytes()).await.unwrap();
        client
    }

    /// Stops and waits until every connection has ended.
    pub async fn stop(self) {
        self.shutdown.drain(Duration::MAX);
        self.task.await.unwrap();
    }
}

pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n")
}

/// Reads a head, without the date.
pub async fn head_of(client: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(client.read_u8().await.unwrap());
    }
    let head = String::from_utf8(bytes).unwrap();
    let lines = head.trim_end().lines().filter(|line| !line.starts_with("date: "));
    lines.collect::<Vec<_>>().join("\n")
}

/// Reads `count` bytes.
pub async fn bytes_of(client: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    client.read_exact(&mut bytes).await.unwrap();
    bytes
}

pub async fn send(client: &mut TcpStream, requests: &str) {
    client.write_all(requests.as_bytes()).await.unwrap();
}
