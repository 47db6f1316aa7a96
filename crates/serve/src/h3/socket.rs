//! The UDP socket under an endpoint, which can stop hearing.
//!
//! A process and its successor have one socket between them, and the kernel gives each datagram to
//! whoever asks first. From the moment that the successor serves, all that comes is for it.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};

/// Sends always, and hears until told not to.
#[derive(Debug)]
pub(super) struct Socket {
    udp: Arc<dyn AsyncUdpSocket>,
    is_deaf: AtomicBool,
}

impl Socket {
    pub(super) fn new(udp: Arc<dyn AsyncUdpSocket>) -> Self {
        Self { udp, is_deaf: AtomicBool::new(false) }
    }

    /// From here on nothing is heard.
    pub(super) fn deafen(&self) {
        self.is_deaf.store(true, Relaxed);
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
        if self.is_deaf.load(Relaxed) {
            return Poll::Pending;
        }
        self.udp.poll_recv(cx, buffers, meta)
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
