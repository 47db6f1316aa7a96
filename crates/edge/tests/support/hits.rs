//! A client that costs little: one connection, no allocation, one request after the other.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Plays requests for one path.
#[derive(Debug)]
pub struct Hits {
    stream: TcpStream,
    request: Vec<u8>,
    buffer: Vec<u8>,
    body: usize,
}

impl Hits {
    /// For `path`, whose body has `body` bytes. The fields are those that a browser or a package
    /// manager sends.
    pub fn new(to: SocketAddr, host: &str, path: &str, body: usize) -> Self {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_nodelay(true).unwrap();
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: hits/1.0\r\nAccept: */*\r\n\r\n"
        );
        Self { stream, request: request.into_bytes(), buffer: vec![0; body + 4096], body }
    }

    /// Sends `count` requests, each after the whole answer to the one before. Blocks.
    pub fn play(&mut self, count: usize) {
        for _ in 0..count {
            self.stream.write_all(&self.request).unwrap();
            let mut have = 0;
            let mut whole = None;
            while whole.is_none_or(|whole| have < whole) {
                let got = self.stream.read(&mut self.buffer[have..]).unwrap();
                assert!(got > 0, "the connection ended");
                have += got;
                let head = &self.buffer[..have.min(4096)];
                whole = whole.or_else(|| {
                    let end = head.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
                    assert!(head.starts_with(b"HTTP/1.1 200 "), "not a hit");
                    Some(end + self.body)
                });
            }
            assert_eq!(Some(have), whole, "one answer");
        }
    }

    /// The head of the last answer.
    pub fn head(&self) -> String {
        let end = self.buffer.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or(0);
        String::from_utf8_lossy(&self.buffer[..end]).into_owned()
    }
}
