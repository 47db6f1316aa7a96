//! UDP: one thread, one socket. A batch of queries in, a batch of answers out.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dns_proto::{Asker, Desk, Transport, UDP_BYTES_MAX, answer};
use rt::metrics::{Counter, dns as metric};
use rt::{Context, Phase, Shutdown};
use sys::Batch;

use crate::counters::{Counters, Tally};
use crate::query_log::Entry;
use crate::scribe::Scribe;
use crate::shared::Shared;

/// Datagrams taken at a time: more save no system calls worth counting, and keep the first one's
/// answer waiting for the last one's.
const BATCH: usize = 32;
/// Longest query read. Real ones have less than 300 bytes; what is cut gets FORMERR.
const QUERY_BYTES_MAX: usize = 2048;
/// Asked of the kernel for each socket, so that a short stall drops nothing.
const RECEIVE_BUFFER_BYTES: u32 = 4 << 20;
/// How often an idle thread looks whether it shall end.
const STOP_POLL: Duration = Duration::from_millis(200);
/// Pause after an error that is not about one datagram, so that it cannot spin.
const ERROR_PAUSE: Duration = Duration::from_millis(10);
/// Batches still answered after the end was called for.
const LAST_BATCHES_MAX: usize = 1024;

/// Sets the options of a socket bound to `address`.
pub(crate) fn prepare(socket: &UdpSocket, address: SocketAddr) -> io::Result<()> {
    socket.set_read_timeout(Some(STOP_POLL))?;
    sys::socket::receive_buffer(socket, RECEIVE_BUFFER_BYTES)?;
    sys::socket::ignore_path_mtu(socket, address.is_ipv6())?;
    if address.ip().is_unspecified() {
        sys::socket::tell_destination(socket, address.is_ipv6())?;
    }
    Ok(())
}

/// What one thread works with.
pub(crate) struct Worker {
    socket: UdpSocket,
    shared: Arc<Shared>,
    shutdown: Shutdown,
    desk: Desk,
    scribe: Scribe,
    counters: Counters,
    receive_errors: Counter,
    send_errors: Counter,
    proxy_errors: Counter,
}

impl Worker {
    pub(crate) fn new(socket: UdpSocket, shared: Arc<Shared>, context: &Context) -> Self {
        let errors = |what| context.metrics.counter(&metric::UDP_ERRORS, &[what]);
        let (desk, scribe) = (shared.desk(), shared.scribe());
        Self {
            socket,
            shared,
            shutdown: context.shutdown.clone(),
            desk,
            scribe,
            counters: Counters::new(&context.metrics, "udp"),
            receive_errors: errors("receive"),
            send_errors: errors("send"),
            proxy_errors: errors("proxy"),
        }
    }

    /// Answers until shutdown, and then what the socket still holds.
    pub(crate) fn run(mut self) {
        let mut batch = Batch::new(BATCH, QUERY_BYTES_MAX);
        let mut replies: Vec<Vec<u8>> =
            (0..BATCH).map(|_| Vec::with_capacity(UDP_BYTES_MAX.into())).collect();
        while !self.shutdown.has_reached(Phase::Draining) {
            match batch.receive(&self.socket, true) {
                Ok(count) => self.answer(count, &mut batch, &mut replies),
                Err(error) => self.note(&error),
            }
        }
        for _ in 0..LAST_BATCHES_MAX {
            let Ok(count) = batch.receive(&self.socket, false) else { break };
            self.answer(count, &mut batch, &mut replies);
        }
    }

    fn answer(&mut self, count: usize, batch: &mut Batch, replies: &mut [Vec<u8>]) {
        let mut tally = Tally::default();
        {
            let published = self.shared.published();
            self.shared.freshen(&mut self.desk);
            let now = rt::clock::now();
            for (i, reply) in replies.iter_mut().enumerate().take(count) {
                reply.clear();
                if let Some(query) = batch.get(i) {
                    let from = query.from.ip();
                    let Some((peer, message)) = self.shared.proxies().datagram(from, query.bytes)
                    else {
                        self.proxy_errors.inc();
                        continue;
                    };
                    let asker = Asker { peer, transport: Transport::Udp, now };
                    let desk = &mut self.desk;
                    let outcome = answer(&published.snapshot, message, &asker, desk, reply);
                    tally.add(&outcome, &published.meters);
                    let (size, published) = (reply.len(), &**published);
                    let (asker, outcome) = (&asker, &outcome);
                    self.scribe.note(&Entry { asker, message, outcome, size, published });
                }
            }
        }
        tally.signed = self.desk.take_signed();
        // Before sending: whoever has an answer finds it counted.
        tally.flush(&self.counters);
        let sent = batch.reply(&self.socket, replies);
        if sent.failed > 0 {
            self.send_errors.inc_by(sent.failed as u64);
        }
    }

    fn note(&self, error: &io::Error) {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
            _ => {
                self.receive_errors.inc();
                tracing::debug!(%error, "receiving failed");
                thread::sleep(ERROR_PAUSE);
            }
        }
    }
}
