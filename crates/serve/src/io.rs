//! A byte stream of tokio as hyper wants it, with signs of life for the connection's [`Pulse`].
//!
//! Ours, not a library's: file chunks will leave from here by `sendfile(2)`.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::rt::ReadBufCursor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::pulse::Pulse;

/// Bytes read at once: more than nearly every request has. They are copied on, which costs
/// nothing beside the system call and needs no `unsafe`.
const READ_BYTES: usize = 8 * 1024;

pub(crate) struct Io<S> {
    stream: S,
    pulse: Arc<Pulse>,
}

impl<S> Io<S> {
    pub(crate) fn new(stream: S, pulse: Arc<Pulse>) -> Self {
        Self { stream, pulse }
    }

    pub(crate) fn into_inner(self) -> S {
        self.stream
    }

    fn noted(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.pulse.note_write(written.is_pending());
        written
    }
}

impl<S: AsyncRead + Unpin> hyper::rt::Read for Io<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
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

impl<S: AsyncWrite + Unpin> hyper::rt::Write for Io<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.noted(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        self.noted(written)
    }

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
