//! Connections that wait for a query, in the order in which they began to: whoever waits for longest
//! makes room for a newcomer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

/// Those who wait; as many as there are connections at most.
#[derive(Debug, Default)]
pub(super) struct Idlers(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    by_number: BTreeMap<u64, oneshot::Sender<()>>,
}

/// A connection that waits, until it is dropped.
#[derive(Debug)]
pub(super) struct Idler {
    all: Arc<Idlers>,
    number: u64,
    displaced: oneshot::Receiver<()>,
}

impl Idlers {
    /// A connection begins to wait.
    pub(super) fn enter(all: &Arc<Self>) -> Idler {
        let (sender, displaced) = oneshot::channel();
        let mut waiting = all.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = waiting.next;
        waiting.next = number.saturating_add(1);
        waiting.by_number.insert(number, sender);
        drop(waiting);
        Idler { all: Arc::clone(all), number, displaced }
    }

    /// Tells the one that waits for longest to end; whether there was one.
    pub(super) fn displace(&self) -> bool {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = waiting.by_number.pop_first();
        first.is_some_and(|(_, sender)| sender.send(()).is_ok())
    }
}

impl Idler {
    /// Returns when it shall end; else never.
    pub(super) async fn displaced(&mut self) {
        // A sender goes only with this value, or after it has sent.
        if (&mut self.displaced).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Idler {
    fn drop(&mut self) {
        let mut waiting = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.by_number.remove(&self.number);
    }
}
