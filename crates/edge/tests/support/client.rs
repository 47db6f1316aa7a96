//! A client that says exactly what it is told to say and reads at its own pace.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// An answer.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    pub status: u16,
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
    /// Whether the body had its whole length.
    pub complete: bool,
}

impl Reply {
    /// A header; empty when absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// A request that has been sent.
#[derive(Debug)]
pub struct Pending {
    stream: TcpStream,
    head_only: bool,
    buffer: Vec<u8>,
}

/// Sends a request; `fields` are header lines without their ends.
pub async fn send(
    to: SocketAddr,
    method: &str,
    path: &str,
    host: &str,
    fields: &[&str],
) -> Pending {
    send_from([127, 0, 0, 1].into(), to, method, path, host, fields).await
}

/// The same from an address of this machine.
pub async fn send_from(
    from: IpAddr,
    to: SocketAddr,
    method: &str,
    path: &str,
    host: &str,
    fields: &[&str],
) -> Pending {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    let mut stream = socket.connect(to).await.unwrap();
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n");
    for field in fields {
        head.push_str(field);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    Pending { stream, head_only: method == "HEAD", buffer: Vec::new() }
}

/// Sends these bytes and reads all that comes until the end of the connection.
pub async fn exchange(to: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

impl Pending {
    /// Reads until at least `n` bytes of the answer, head included, are here; fewer at its end.
    pub async fn read(&mut self, n: usize) {
        while self.buffer.len() < n {
            if self.stream.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
                return;
            }
        }
    }

    /// Reads the head and `n` bytes of the body.
    pub async fn read_body(&mut self, n: usize) {
        while self.head_end().is_none() {
            self.read(self.buffer.len() + 1).await;
        }
        let end = self.head_end().unwrap();
        self.read(end + n).await;
    }

    fn head_end(&self) -> Option<usize> {
        self.buffer.windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4)
    }

    /// Reads the whole answer.
    pub async fn reply(mut self) -> Reply {
        while self.head_end().is_none() {
            let before = self.buffer.len();
            self.read(before + 1).await;
            assert!(self.buffer.len() > before, "no answer");
        }
        let end = self.head_end().unwrap();
        let head = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let headers: HashMap<String, String> = head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let length = match headers.get("content-length") {
            _ if self.head_only || status == 304 => 0,
            Some(length) => length.parse().unwrap(),
            None => panic!("no length: {head}"),
        };
        self.read(end + length).await;
        let body = self.buffer[end..].to_vec();
        Reply { status, headers, complete: body.len() == length, body }
    }
}

/// A whole exchange.
pub async fn fetch(to: SocketAddr, method: &str, path: &str, host: &str, fields: &[&str]) -> Reply {
    send(to, method, path, host, fields).await.reply().await
}
