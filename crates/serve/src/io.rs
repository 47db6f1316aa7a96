//! A byte stream of tokio as hyper wants it, with signs of life for the connection's [`Pulse`], and
//! the way of file chunks: where a mark stands in a list of buffers, its file's bytes are sent.
//!
//! - What is before a mark leaves at once: kept back until the file follows (`MSG_MORE`) it would spare
//!   a packet, but under BBR the connection is then paced early, which costs more CPU
//!   (`docs/notes/2026-11-30-cost-of-a-hit.md`).
//! - What is in the page cache goes by `sendfile(2)`, at most [`SEND_BYTES_MAX`] at a time. What is
//!   not, or cannot go so, is read on the blocking pool, a chunk at a time, and sent from memory.
//! - After [`SEND_BYTES_MAX`] without a pause other connections have their turn.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use hyper::rt::ReadBufCursor;
use rt::listen::UNSENT_BYTES;
use sys::sendfile::mark_at;
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::BodyError;
use crate::chunk::Marked;
use crate::connection::Wire;
use crate::file_range::{CHUNK_BYTES, Reader};
use crate::pulse::Pulse;
use crate::unsent::{self, Bounds, Unsent};

/// Bytes read at once: more than nearly every request has. They are copied on, which costs
/// nothing beside the system call and needs no `unsafe`.
const READ_BYTES: usize = 8 * 1024;

/// Bytes sent by one `sendfile(2)`, and by one connection in one turn.
const SEND_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Of what waits in the kernel nothing is more urgent than the rest, so a client that is known to be
/// fast may have as much there as it takes in many turns of a busy process.
const BOUNDS: Bounds = Bounds { least: UNSENT_BYTES, most: 2 * 1024 * 1024, ahead_ms: 100 };
/// What was encrypted for it is memory of its own, which costs more when it is out of the CPU's caches
/// by the time it leaves.
const BOUNDS_TLS: Bounds = Bounds { most: 128 * 1024, ..BOUNDS };

pub(crate) struct Io<S> {
    stream: S,
    /// Bytes that came before hyper had the stream.
    first: Bytes,
    pulse: Arc<Pulse>,
    /// What its client may have, once that did not take all at once; few bytes in a connection that never needs it.
    unsent: Option<Box<Unsent>>,
    /// The file chunk that is being sent.
    part: Option<Part>,
    /// Bytes of files sent in this turn.
    turn_bytes: usize,
}

/// A file chunk on its way.
struct Part {
    /// Where the mark of what is left begins.
    at: usize,
    reader: Reader,
    /// Bytes read and not sent.
    read: Bytes,
}

impl From<Marked> for Part {
    fn from(Marked { at, range }: Marked) -> Self {
        Self { at, reader: Reader::new(range), read: Bytes::new() }
    }
}

impl<S: Wire> Io<S> {
    /// `first`: what was read from the stream already.
    pub(crate) fn new(stream: S, first: Bytes, pulse: Arc<Pulse>) -> Self {
        Self { stream, first, pulse, unsent: None, part: None, turn_bytes: 0 }
    }

    pub(crate) fn into_inner(self) -> S {
        self.stream
    }

    /// Sends at most `len` bytes of the file whose mark is at `at`.
    fn poll_file(
        &mut self,
        cx: &mut Context<'_>,
        at: usize,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        if self.turn_bytes >= SEND_BYTES_MAX {
            self.turn_bytes = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let next = || self.pulse.files()?.next();
        let Some(mut part) = self.part.take().or_else(|| next().map(Part::from)) else {
            return Poll::Ready(Err(io::Error::other("a file chunk has no file")));
        };
        if part.at != at {
            return Poll::Ready(Err(io::Error::other("a file chunk has another one's file")));
        }
        let sent = self.poll_part(cx, &mut part, len.min(SEND_BYTES_MAX));
        match &sent {
            Poll::Ready(Ok(sent)) => {
                part.at = part.at.saturating_add(*sent);
                self.turn_bytes = self.turn_bytes.saturating_add(*sent);
            }
            _ => self.turn_bytes = 0,
        }
        if part.reader.left() > 0 || !part.read.is_empty() {
            self.part = Some(part);
        } else {
            self.pulse.files().inspect(|files| files.note_sent());
        }
        sent
    }

    fn poll_part(
        &mut self,
        cx: &mut Context<'_>,
        part: &mut Part,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        loop {
            if !part.read.is_empty() {
                let bytes = part.read.get(..most).unwrap_or(&part.read);
                let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
                let sent = ready!(self.noted(written))?;
                part.read.advance(sent);
                return Poll::Ready(Ok(sent));
            }
            if let Some(socket) = self.stream.plain()
                && !part.reader.is_reading()
            {
                let mut is_cached = true;
                let sent = poll_socket(socket, cx, || {
                    let sent = part.reader.send(socket, most)?;
                    is_cached = sent.is_some();
                    Ok(sent.unwrap_or(0))
                });
                let sent = ready!(self.noted(sent))?;
                if is_cached {
                    let confirmed = part.reader.confirm(sent).map(|()| sent);
                    return Poll::Ready(confirmed.map_err(|error| self.broken(error)));
                }
            }
            let Poll::Ready(read) = part.reader.poll_chunk(CHUNK_BYTES, cx) else {
                // It is the client that waits for us.
                self.pulse.note_write(false);
                return Poll::Pending;
            };
            match read {
                Some(Ok(bytes)) => part.read = bytes,
                Some(Err(error)) => return Poll::Ready(Err(self.broken(error))),
                None => return Poll::Ready(Ok(0)),
            }
        }
    }

    /// The body of this file has left hyper already: it is for us to say that it was broken off.
    fn broken(&self, error: io::Error) -> io::Error {
        let kind = error.kind();
        self.pulse.note_broken(&BodyError::File(error), true);
        kind.into()
    }

    fn noted(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.pulse.note_write(written.is_pending());
        if written.is_pending() && self.unsent.is_none() {
            let bounds = if self.stream.plain().is_some() { BOUNDS } else { BOUNDS_TLS };
            self.unsent = Some(Box::new(Unsent::new(bounds, UNSENT_BYTES)));
        }
        if let Some(unsent) = &mut self.unsent {
            unsent::heed(unsent, &written, self.stream.socket());
        }
        written
    }
}

/// What has come, at most [`READ_BYTES`]; nothing at the end. While nothing comes there is no buffer.
pub(crate) fn poll_read_some(
    stream: &mut (impl AsyncRead + Unpin),
    cx: &mut Context<'_>,
) -> Poll<io::Result<Bytes>> {
    let mut space = [const { MaybeUninit::uninit() }; READ_BYTES];
    let mut buffer = ReadBuf::uninit(&mut space);
    ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
    Poll::Ready(Ok(Bytes::copy_from_slice(buffer.filled())))
}

/// Does `act`, which returns [`io::ErrorKind::WouldBlock`] when it cannot yet, as soon as the socket
/// takes bytes.
fn poll_socket<T>(
    socket: &TcpStream,
    cx: &mut Context<'_>,
    mut act: impl FnMut() -> io::Result<T>,
) -> Poll<io::Result<T>> {
    loop {
        ready!(socket.poll_write_ready(cx))?;
        match socket.try_io(Interest::WRITABLE, &mut act) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return Poll::Ready(done),
        }
    }
}

impl<S: Wire> hyper::rt::Read for Io<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.first.is_empty() {
            let count = self.first.len().min(cursor.remaining());
            cursor.put_slice(&self.first.split_to(count));
            self.pulse.note_read();
            return Poll::Ready(Ok(()));
        }
        let mut space = [const { MaybeUninit::uninit() }; READ_BYTES];
        let want = cursor.remaining().min(READ_BYTES);
        let mut buffer = ReadBuf::uninit(space.get_mut(..want).unwrap_or_default());
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
        if !buffer.filled().is_empty() {
            self.pulse.note_read();
            cursor.put_slice(buffer.filled());
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Wire> hyper::rt::Write for Io<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.pulse.note_acknowledged(|| self.stream.acknowledged());
        let mut buffers = buffers;
        if self.stream.plain().is_some()
            && let Some((before, at, len)) = first_mark(buffers)
        {
            match buffers.get(..before).filter(|before| !before.is_empty()) {
                Some(before) => buffers = before,
                None => return self.poll_file(cx, at, len),
            }
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        self.noted(written)
    }

    /// Marks must not be copied into one buffer with what is around them.
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The first mark among `buffers`: how many buffers are before it, where it begins, its length.
fn first_mark(buffers: &[IoSlice<'_>]) -> Option<(usize, usize, usize)> {
    let marks = buffers.iter().enumerate();
    marks.filter_map(|(nth, buffer)| Some((nth, mark_at(buffer)?, buffer.len()))).next()
}
