//! Who keeps account of a body, in tests.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serve::Tally;
use tokio::sync::mpsc::UnboundedSender;

/// What was told of one body by the time it was dropped.
#[derive(Debug, PartialEq, Eq)]
pub struct Account {
    pub sent: u64,
    pub whole_at: Option<u64>,
}

/// Keeps account of one body.
pub struct Book {
    sent: AtomicU64,
    whole_at: AtomicU64,
    closed: UnboundedSender<Account>,
}

const UNKNOWN: u64 = u64::MAX;

impl Book {
    /// It goes there in the end.
    pub fn new(closed: &UnboundedSender<Account>) -> Self {
        let (sent, whole_at) = (AtomicU64::new(0), AtomicU64::new(UNKNOWN));
        Self { sent, whole_at, closed: closed.clone() }
    }
}

impl Tally for Book {
    fn sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Relaxed);
    }

    fn is_whole_at(&self, bytes: u64) {
        self.whole_at.store(bytes, Relaxed);
    }
}

impl Drop for Book {
    fn drop(&mut self) {
        let whole_at = Some(self.whole_at.load(Relaxed)).filter(|at| *at != UNKNOWN);
        let _ = self.closed.send(Account { sent: self.sent.load(Relaxed), whole_at });
    }
}

pub fn account(sent: usize, whole_at: Option<u64>) -> Account {
    Account { sent: sent as u64, whole_at }
}
