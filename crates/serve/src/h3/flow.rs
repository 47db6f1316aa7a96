//! How much of responses a connection holds, and how long it waits for its client to take it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use quinn::WriteError;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::quic::Sending;
use crate::tally::{Tally, note_sent};

/// Bytes that are read and not yet taken by QUIC, of all responses of a connection, above which no
/// more is read for long ones. One stream's chunk has at most 256 KiB, so 16 of them may stand still
/// before their neighbours wait for them.
const HELD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes that QUIC holds for a connection until they are acknowledged: twice what is on its way, so
/// that a fast client never waits for us and ten thousand slow ones fit into memory.
const SEND_WINDOW_MIN: u64 = 256 * 1024;
const SEND_WINDOW_MAX: u64 = 8 * 1024 * 1024;

/// After so many head timeouts without taking anything a client is given up, as over HTTP/1.1.
const STALLED_TIMEOUTS: u32 = 4;
/// A stream alone, while the client takes bytes of others, after so many times that.
const STALLED_ALONE: u32 = 3;

/// Why nothing more of a response is sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unsent {
    /// The client wants no more of it, or is gone.
    #[error(transparent)]
    Gone(#[from] WriteError),
    /// It takes nothing of it.
    #[error("the client takes nothing")]
    Stalled,
}

/// What the responses of one connection share.
#[derive(Debug)]
pub(super) struct Flow {
    connection: quinn::Connection,
    /// Time without progress after which a client is given up.
    patience: Duration,
    held: AtomicUsize,
    less_held: Notify,
    /// Writes of which QUIC took something, and what it took.
    writes: AtomicU64,
    taken: AtomicU64,
    send_window: AtomicU64,
}

impl Flow {
    pub(super) fn new(connection: quinn::Connection, head_timeout: Duration) -> Self {
        connection.set_send_window(SEND_WINDOW_MIN);
        Self {
            connection,
            patience: head_timeout.saturating_mul(STALLED_TIMEOUTS),
            held: AtomicUsize::new(0),
            less_held: Notify::new(),
            writes: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            send_window: AtomicU64::new(SEND_WINDOW_MIN),
        }
    }

    /// Waits until another chunk may be read for this connection.
    pub(super) async fn room(&self) {
        loop {
            let mut less = std::pin::pin!(self.less_held.notified());
            less.as_mut().enable();
            if self.held.load(Relaxed) < HELD_BYTES_MAX {
                return;
            }
            less.await;
        }
    }

    /// Bytes that the client has acknowledged, when it is for it to take what waits. QUIC takes no
    /// more than a window beyond that, so while something waits what it took grows by what was
    /// acknowledged.
    pub(super) fn acknowledged(&self) -> Option<u64> {
        (self.held.load(Relaxed) > 0).then(|| self.taken.load(Relaxed))
    }

    /// Hands the head of a frame and its content over, each byte as soon as there is room for it;
    /// `tally` is told of those of the content.
    pub(super) async fn write(
        &self,
        to: &Sending,
        head: Bytes,
        content: Bytes,
        tally: Option<&(dyn Tally + 'static)>,
    ) -> Result<(), Unsent> {
        let mut chunks = [head, content];
        let left = |[head, content]: &[Bytes; 2]| head.len().saturating_add(content.len());
        let mut held = Held { flow: self, bytes: 0 };
        held.set(left(&chunks));
        let mut alone = 0u32;
        while left(&chunks) > 0 {
            let before = self.writes.load(Relaxed);
            let unsent = chunks[1].len();
            match timeout(self.patience, to.write(&mut chunks)).await {
                Ok(written) => {
                    written?;
                    alone = 0;
                    self.writes.fetch_add(1, Relaxed);
                    let (held_before, left) = (held.bytes, left(&chunks));
                    let taken = u64::try_from(held_before.saturating_sub(left)).unwrap_or(0);
                    self.taken.fetch_add(taken, Relaxed);
                    held.set(left);
                    note_sent(tally, unsent.saturating_sub(chunks[1].len()));
                }
                Err(_) => {
                    alone = alone.saturating_add(1);
                    if self.writes.load(Relaxed) == before || alone >= STALLED_ALONE {
                        return Err(Unsent::Stalled);
                    }
                }
            }
        }
        self.fit_window();
        Ok(())
    }

    /// Fits the send window to what the path takes.
    fn fit_window(&self) {
        let path = self.connection.stats().path;
        let want = path.cwnd.saturating_mul(2).clamp(SEND_WINDOW_MIN, SEND_WINDOW_MAX);
        let is = self.send_window.load(Relaxed);
        if want > is.saturating_add(is / 4) || want < is / 2 {
            self.send_window.store(want, Relaxed);
            self.connection.set_send_window(want);
        }
    }
}

/// The rest of a chunk in the count of what is held.
struct Held<'a> {
    flow: &'a Flow,
    bytes: usize,
}

impl Held<'_> {
    fn set(&mut self, bytes: usize) {
        if bytes > self.bytes {
            self.flow.held.fetch_add(bytes.saturating_sub(self.bytes), Relaxed);
        } else if bytes < self.bytes {
            self.flow.held.fetch_sub(self.bytes.saturating_sub(bytes), Relaxed);
            self.flow.less_held.notify_waiters();
        }
        self.bytes = bytes;
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.set(0);
    }
}
