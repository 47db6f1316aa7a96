//! The UDP socket under an endpoint, of which others may have copies.
//!
//! A process and its successor have one socket between them, and the kernel gives each datagram to
//! whoever asks first. So a successor asks when it serves, not before ([`super::Quic`]), and passes
//! on what belongs to processes before it; from then on its predecessor hears by the pipe alone.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use tokio::io::ReadBuf;
use tokio::net::UnixDatagram;
use tokio::sync::watch;

use super::quic::locked;
use super::relay::{Formers, HEAD_BYTES, unpack};

/// The longest datagram, as it comes through a pipe.
const PACKED_BYTES_MAX: usize = HEAD_BYTES + 65_535;

/// Sends always, hears until told not to, and what is passed on even then.
#[derive(Debug)]
pub(super) struct Socket {
    udp: Arc<dyn AsyncUdpSocket>,
    is_deaf: AtomicBool,
    formers: Formers,
    pipe: UnixDatagram,
    packed: Mutex<Box<[u8]>>,
    /// Nobody has the other end of the pipe any more.
    is_alone: watch::Sender<bool>,
}

impl Socket {
    pub(super) fn new(udp: Arc<dyn AsyncUdpSocket>, formers: Formers, pipe: UnixDatagram) -> Self {
        let packed = Mutex::new(vec![0; PACKED_BYTES_MAX].into());
        let (is_alone, is_deaf) = (watch::Sender::new(false), AtomicBool::new(false));
        Self { udp, is_deaf, formers, pipe, packed, is_alone }
    }

    /// From here on nothing is heard that is not passed on.
    pub(super) fn deafen(&self) {
        self.is_deaf.store(true, Relaxed);
    }

    /// Returns when nobody is left who would pass anything on.
    pub(super) async fn alone(&self) {
        // It ends with an error only when the sender is gone, and that is in here.
        let _ = self.is_alone.subscribe().wait_for(|alone| *alone).await;
    }

    /// What was passed on to this process.
    fn poll_pipe(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<usize> {
        let mut packed = locked(&self.packed);
        let mut count = 0usize;
        for (buffer, meta) in buffers.iter_mut().zip(meta) {
            if *self.is_alone.borrow() {
                break;
            }
            let mut read = ReadBuf::new(&mut packed);
            match self.pipe.poll_recv(cx, &mut read) {
                Poll::Ready(Ok(())) if !read.filled().is_empty() => {
                    *meta = unpack(read.filled(), buffer).unwrap_or_default();
                    count = count.saturating_add(1);
                }
                Poll::Ready(_) => _ = self.is_alone.send_replace(true),
                Poll::Pending => break,
            }
        }
        if count > 0 { Poll::Ready(count) } else { Poll::Pending }
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.udp).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.udp.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(count) = self.poll_pipe(cx, buffers, meta) {
            return Poll::Ready(Ok(count));
        }
        if self.is_deaf.load(Relaxed) {
            return Poll::Pending;
        }
        let count = ready!(self.udp.poll_recv(cx, buffers, meta))?;
        for (buffer, meta) in buffers.iter_mut().zip(meta).take(count) {
            meta.len = self.formers.pick(buffer, meta);
        }
        Poll::Ready(Ok(count))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.udp.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.udp.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.udp.may_fragment()
    }
}
