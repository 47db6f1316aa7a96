//! The requests of one connection, answered within the task of the connection: a request that is
//! answered at once costs no task of its own, and one that waits wakes the connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

type Exchange = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Futures without results, polled when they were woken.
#[derive(Default)]
pub(crate) struct Exchanges {
    slots: Vec<Slot>,
    free: Vec<usize>,
    woken: Arc<Woken>,
}

struct Slot {
    exchange: Option<Exchange>,
    alarm: Arc<Alarm>,
    waker: Waker,
}

/// Whom to poll.
#[derive(Default)]
struct Woken(Mutex<List>);

#[derive(Default)]
struct List {
    slots: Vec<usize>,
    /// The connection, while it sleeps.
    connection: Option<Waker>,
}

impl Woken {
    fn list(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes one slot.
struct Alarm {
    slot: usize,
    is_rung: AtomicBool,
    woken: Arc<Woken>,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_rung.swap(true, AcqRel) {
            return;
        }
        let connection = {
            let mut list = self.woken.list();
            list.slots.push(self.slot);
            list.connection.take()
        };
        if let Some(connection) = connection {
            connection.wake();
        }
    }
}

impl Exchanges {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len().saturating_sub(self.free.len())
    }

    /// Takes one in and polls it for the first time.
    pub(crate) fn start(&mut self, exchange: impl Future<Output = ()> + Send + 'static) {
        let index = self.free.pop().unwrap_or_else(|| self.add_slot());
        if let Some(slot) = self.slots.get_mut(index) {
            slot.exchange = Some(Box::pin(exchange));
        }
        self.poll_one(index);
    }

    fn add_slot(&mut self) -> usize {
        let slot = self.slots.len();
        let woken = Arc::clone(&self.woken);
        let alarm = Arc::new(Alarm { slot, is_rung: AtomicBool::new(false), woken });
        let waker = Waker::from(Arc::clone(&alarm));
        self.slots.push(Slot { exchange: None, alarm, waker });
        slot
    }

    /// The connection is awake: it needs no waking until [`poll`](Self::poll) finds nobody.
    pub(crate) fn begin(&self) {
        self.woken.list().connection = None;
    }

    /// Polls those that were woken; whether there were any. When not, the connection is woken by
    /// the next one.
    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> bool {
        let woken = {
            let mut list = self.woken.list();
            if list.slots.is_empty() {
                list.connection = Some(cx.waker().clone());
                return false;
            }
            std::mem::take(&mut list.slots)
        };
        woken.into_iter().for_each(|slot| self.poll_one(slot));
        true
    }

    fn poll_one(&mut self, index: usize) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        slot.alarm.is_rung.swap(false, AcqRel);
        let Some(exchange) = &mut slot.exchange else { return };
        if exchange.as_mut().poll(&mut Context::from_waker(&slot.waker)).is_ready() {
            slot.exchange = None;
            self.free.push(index);
        }
    }
}
