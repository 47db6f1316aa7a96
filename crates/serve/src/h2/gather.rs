//! The byte stream of a connection, shared by the HTTP/2 codec and the task that drives it.
//!
//! The codec writes and flushes frame by frame, and a frame and its head are a little more than a
//! TLS record holds. Here frames gather until there are [`GATHER_BYTES`] of them, or until the task
//! has nothing more to do and sends: few system calls, full records.
//!
//! What was gathered can no longer be overtaken by a more urgent response. For a client that is slow
//! less gathers, less waits in the kernel, and TLS is given the next only when the socket has taken
//! what it was given before: all three together are what the client takes in three times
//! [`BOUNDS`]`.ahead_ms`.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use rt::listen::UNSENT_BYTES;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::Wire;
use crate::unsent::{self, Bounds, Unsent};

/// Bytes that leave together at most: four TLS records.
const GATHER_BYTES: u32 = 64 * 1024;
/// What may gather, and wait in the kernel. A frame is the least; 8 ms are enough for the task to have
/// its next turn, and little beside the round trip of a client that is far away.
const BOUNDS: Bounds = Bounds { least: 16 * 1024, most: GATHER_BYTES, ahead_ms: 8 };
/// A buffer of more than this is given back when it is empty.
const KEPT_BYTES: usize = 4 * 1024;

/// A handle of the stream.
pub(crate) struct Gather<S>(Arc<Mutex<Gathered<S>>>);

struct Gathered<S> {
    stream: S,
    unsent: Unsent,
    /// What was read before it came here.
    first: Bytes,
    /// What waits to be sent, from `sent` on.
    out: Vec<u8>,
    sent: usize,
}

impl<S> Clone for Gather<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> Gather<S> {
    /// A stream of which `first` was read already.
    pub(crate) fn new(stream: S, first: Bytes) -> Self {
        let unsent = Unsent::new(BOUNDS, UNSENT_BYTES);
        Self(Arc::new(Mutex::new(Gathered { stream, unsent, first, out: Vec::new(), sent: 0 })))
    }

    fn lock(&self) -> MutexGuard<'_, Gathered<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream, when this is its last handle.
    pub(crate) fn into_inner(self) -> Option<S> {
        let gathered = Arc::into_inner(self.0)?;
        Some(gathered.into_inner().unwrap_or_else(PoisonError::into_inner).stream)
    }
}

impl<S: Wire> Gather<S> {
    /// Bytes that the client has acknowledged, as far as that is known.
    pub(crate) fn acknowledged(&self) -> Option<u64> {
        self.lock().stream.acknowledged()
    }

    /// Whether there is nothing to be sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().out.is_empty()
    }

    /// Bytes that are right for a part of a body.
    pub(crate) fn part_bytes(&self) -> usize {
        self.lock().unsent.bytes()
    }

    /// Sends what has gathered.
    pub(crate) fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.lock().poll_send(cx)
    }
}

impl<S: Wire> Gathered<S> {
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.out.len() {
            let wrote = ready!(self.poll_stream(cx, &[]))?;
            self.sent = self.sent.saturating_add(wrote);
        }
        self.clear();
        self.poll_flushed(cx)
    }

    /// Writes what waits and `buffers`; how many bytes of all of it.
    fn poll_stream(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // For a fast client TLS may have the next records ready when the socket takes more.
        if self.unsent.is_slow() {
            ready!(self.poll_flushed(cx))?;
        }
        let waiting = self.out.get(self.sent..).unwrap_or_default();
        // In one call, so that the larger part is never copied.
        let mut all = [IoSlice::new(&[]); SLICES_MAX];
        let together = std::iter::once(waiting).chain(buffers.iter().map(|buffer| &**buffer));
        all.iter_mut().zip(together).for_each(|(slot, bytes)| *slot = IoSlice::new(bytes));
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, &all);
        unsent::heed(&mut self.unsent, &written, self.stream.socket());
        match ready!(written)? {
            0 => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            wrote => Poll::Ready(Ok(wrote)),
        }
    }

    /// The socket has all that was written to the stream.
    fn poll_flushed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_pending() {
            unsent::heed(&mut self.unsent, &Poll::Pending, self.stream.socket());
        }
        flushed
    }

    fn clear(&mut self) {
        self.sent = 0;
        self.out.clear();
        if self.out.capacity() > KEPT_BYTES {
            self.out = Vec::new();
        }
    }

    /// Takes `buffers` in, or sends them together with what is there when that is enough.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let more: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        loop {
            let waiting = self.out.get(self.sent..).unwrap_or_default();
            if waiting.len().saturating_add(more) < self.unsent.bytes() {
                buffers.iter().for_each(|buffer| self.out.extend_from_slice(buffer));
                return Poll::Ready(Ok(more));
            }
            let waiting = waiting.len();
            let wrote = ready!(self.poll_stream(cx, buffers))?;
            match wrote.checked_sub(waiting) {
                None => self.sent = self.sent.saturating_add(wrote),
                Some(of_these) => {
                    self.clear();
                    if of_these > 0 {
                        return Poll::Ready(Ok(of_these));
                    }
                }
            }
        }
    }
}

/// What waits, and the head and the payload of a frame.
const SLICES_MAX: usize = 4;

impl<S: AsyncRead + Unpin> AsyncRead for Gather<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut gathered = self.lock();
        if gathered.first.is_empty() {
            return Pin::new(&mut gathered.stream).poll_read(cx, buffer);
        }
        let take = gathered.first.len().min(buffer.remaining());
        buffer.put_slice(gathered.first.get(..take).unwrap_or_default());
        gathered.first.advance(take);
        if gathered.first.is_empty() {
            gathered.first = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Wire> AsyncWrite for Gather<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.lock().poll_write(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.lock().poll_write(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Nothing yet: the driving task sends when there is nothing left to gather.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut gathered = self.lock();
        ready!(gathered.poll_send(cx))?;
        Pin::new(&mut gathered.stream).poll_shutdown(cx)
    }
}
