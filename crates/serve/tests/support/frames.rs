//! Frames of HTTP/2 as a test writes and reads them itself (RFC 9113 section 4).

use std::net::SocketAddr;

use h2::Reason;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A literal field without indexing, of at most 126 bytes each.
pub fn field(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    [vec![0], text(name), text(value)].concat()
}

/// A GET of `path` with further fields.
pub fn head(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut head = [(":method", "GET"), (":scheme", "http"), (":path", path)].to_vec();
    head.extend(more);
    head.into_iter().flat_map(|(name, value)| field(name, value)).collect()
}

/// The next frame that is not SETTINGS or WINDOW_UPDATE: kind, flags, stream, payload. `None` at
/// the end of the connection.
pub async fn next(stream: &mut TcpStream) -> Option<(u8, u8, u32, Vec<u8>)> {
    loop {
        let mut start = [0; 9];
        stream.read_exact(&mut start).await.ok()?;
        let length = u32::from_be_bytes([0, start[0], start[1], start[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).await.ok()?;
        let id = u32::from_be_bytes([start[5], start[6], start[7], start[8]]);
        if start[3] != SETTINGS && start[3] != WINDOW_UPDATE {
            return Some((start[3], start[4], id, payload));
        }
    }
}

/// The reason of the GOAWAY that ends the connection.
pub async fn goaway(stream: &mut TcpStream) -> Option<Reason> {
    loop {
        let (kind, _, _, payload) = next(stream).await?;
        if kind == GOAWAY {
            return Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()).into());
        }
    }
}

/// What a client begins with.
pub fn preface() -> Vec<u8> {
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, b"")].concat()
}

/// A connection of which the test writes the frames itself.
pub async fn connect(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&preface()).await.unwrap();
    stream
}
