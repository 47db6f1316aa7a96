//! One connection with a peer.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use bgp_proto::frame::EXTENDED_BYTES_MAX;
use bgp_proto::session::Conn;
use tokio::net::{TcpSocket, TcpStream};

use crate::PeerParams;

/// Bytes that are read at a time, behind what is left of the message before.
const READ_BYTES: usize = 128 << 10;
/// What may wait for a peer that does not take it: keepalives of hours.
const UNSENT_BYTES_MAX: usize = 16 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) conn: Conn,
    stream: TcpStream,
    /// What was read; the first `filled` bytes are the beginning of a message.
    buffer: Vec<u8>,
    filled: usize,
    unsent: Vec<u8>,
}

impl Link {
    pub(crate) fn new(conn: Conn, stream: TcpStream) -> Self {
        let buffer = vec![0; READ_BYTES.saturating_add(EXTENDED_BYTES_MAX)];
        Self { conn, stream, buffer, filled: 0, unsent: Vec::new() }
    }

    /// Ready when bytes may be read, or the connection is gone. Sends what waits, meanwhile.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.unsent.is_empty() && self.stream.poll_write_ready(cx).is_ready() {
            self.flush();
        }
        // An error shows when it is read.
        let _ = ready!(self.stream.poll_read_ready(cx));
        Poll::Ready(())
    }

    /// Everything that was read and not used, with what there is to be read now; `None` when nothing
    /// is, so that it is to be asked again later.
    ///
    /// # Errors
    /// When the connection is gone.
    pub(crate) fn read(&mut self) -> io::Result<Option<&[u8]>> {
        let room = self.buffer.get_mut(self.filled..).unwrap_or_default();
        match self.stream.try_read(room) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                self.filled = self.filled.saturating_add(read);
                Ok(self.buffer.get(..self.filled))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// So much of it was used.
    pub(crate) fn used(&mut self, bytes: usize) {
        let bytes = bytes.min(self.filled);
        self.buffer.copy_within(bytes..self.filled, 0);
        self.filled = self.filled.saturating_sub(bytes);
    }

    /// Sends these bytes, soon. What is too much for a peer that takes nothing is left out: its hold
    /// timer ends the session, or ours.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        if self.unsent.len().saturating_add(bytes.len()) <= UNSENT_BYTES_MAX {
            self.unsent.extend(bytes);
        }
        self.flush();
    }

    fn flush(&mut self) {
        while !self.unsent.is_empty() {
            match self.stream.try_write(&self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent.min(self.unsent.len()))),
                // Later, or never: reading tells.
                Err(_) => return,
            }
        }
    }
}

/// Connects to a peer.
pub(crate) async fn connect(params: PeerParams, key: Option<Vec<u8>>) -> io::Result<TcpStream> {
    let address = SocketAddr::new(params.address, params.port);
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if let Some(key) = key {
        sys::socket::sign_segments(&socket, params.address, &key)?;
    }
    if let Some(local) = params.local_address {
        socket.bind(SocketAddr::new(local, 0))?;
    }
    let stream = socket.connect(address).await?;
    prepare(&stream, &params)?;
    Ok(stream)
}

/// What every connection has.
pub(crate) fn prepare(stream: &TcpStream, params: &PeerParams) -> io::Result<()> {
    stream.set_nodelay(true)?;
    if let Some(hops) = params.hops {
        // Who is `hops` hops away has decremented 255 once less than that.
        let at_least = u8::MAX.saturating_sub(hops.saturating_sub(1));
        sys::socket::hops(stream, params.address.is_ipv6(), u8::MAX, at_least)?;
    }
    Ok(())
}
