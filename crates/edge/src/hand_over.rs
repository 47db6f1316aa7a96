//! The edge whose stores go to the next process, its successor, while its responses run on.
//!
//! Phases: `serving` -> (the process yields) nothing new is stored and no master is asked for anything
//! new -> the stores are the successor's -> the process drains and ends.
//!
//! What goes on where, once it has begun:
//! - Running responses: blocks that are held are read whole, compared with their checksums and sent
//!   from memory; blocks that were coming in reach those who wait for them; everything else is asked of
//!   the successor, on condition that it is of the same representation, and of masters when that does not
//!   answer. So masters are not asked twice.
//! - Further requests are passed on to the successor as they are, whatever is held here: it knows of
//!   purges and groups that this process hears nothing of any more.
//! - Nothing is written: no block, no record of variants, no purge.
//!
//! The successor takes such requests on a private listener, where the mark of this node in `CDN-Loop`
//! means no loop. That goes from each process to the next: only the one that has the stores accepts.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwapOption;
use fill::{Failure, MasterId};
use model::Now;
use rt::shutdown::Phase;
use rt::{Context, Shutdown, clock};
use serve::{Body, Elsewhere};

use crate::deliver;
use crate::project::Project;
use crate::state::{Edge, Object};

/// How long a successor that did not answer is not asked, milliseconds; then one request tries.
const SILENT_MS: u64 = 30_000;

/// Where the successor takes requests of this process; nothing while the stores are here.
#[derive(Debug, Default)]
pub(crate) struct Successor {
    address: ArcSwapOption<SocketAddr>,
    /// It did not answer: not asked before this time, monotonic nanoseconds. 0: it answers.
    silent_until_ns: AtomicU64,
}

impl Successor {
    /// Whether to ask it now. Once its time is over, one request finds out for all.
    fn is_to_be_asked(&self, now: Now) -> bool {
        let until = self.silent_until_ns.load(Relaxed);
        let again = now.plus_ms(SILENT_MS).mono_ns;
        until == 0
            || until <= now.mono_ns
                && self.silent_until_ns.compare_exchange(until, again, Relaxed, Relaxed).is_ok()
    }
}

impl Edge {
    /// Whether the stores are given away, or about to be.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.successor.address.load().is_some()
    }

    /// The successor as a source of a project's content, while there is one that answers.
    pub(crate) fn successor(&self, project: &Project) -> Option<MasterId> {
        let address = self.successor.address.load();
        let address = address.as_ref().filter(|_| !self.shutdown.is_alone())?;
        let source = project.successor(**address)?;
        self.successor.is_to_be_asked(clock::now()).then_some(source)
    }

    /// What became of asking it: one that is silent is not asked for a while.
    pub(crate) fn note_successor<T>(&self, asked: &Result<T, Failure>) {
        if self.shutdown.is_alone() {
            // That one is gone; the next may answer well.
            return;
        }
        let is_silent = matches!(
            asked,
            Err(Failure::Connect | Failure::ConnectTimeout | Failure::FirstByteTimeout)
        );
        let until_ns = if is_silent { clock::now().plus_ms(SILENT_MS).mono_ns } else { 0 };
        self.successor.silent_until_ns.store(until_ns, Relaxed);
    }
}

/// Has the edge hand over when its process yields. `private`: where its successor takes requests of
/// this process. Connections to it wait until the successor serves.
pub(crate) fn register(
    edge: &Arc<Edge>,
    private: &Arc<ArcSwapOption<SocketAddr>>,
    context: &Context,
) {
    // An edge that has ended has nothing to hand over.
    let (edge, private) = (Arc::downgrade(edge), Arc::clone(private));
    context.on_yield("stores", async move {
        if let (Some(edge), Some(address)) = (edge.upgrade(), private.load_full()) {
            hand_over(edge, *address).await;
        }
    });
}

/// Makes everything durable, unlocks the stores and writes nothing from then on.
async fn hand_over(edge: Arc<Edge>, address: SocketAddr) {
    edge.successor.address.store(Some(Arc::new(address)));
    edge.groups.end_all();
    let giving = tokio::task::spawn_blocking(move || {
        edge.stores.hand_over();
        edge.drain.hand_over();
        if let Err(error) = edge.bill.close() {
            tracing::warn!(%error, "what the month has used was not written down");
        }
        edge.purges.hand_over()
    });
    match giving.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the list of purges was not written again"),
        Err(_) => tracing::warn!("handing the stores over was interrupted"),
    }
    tracing::info!(%address, "the stores are handed over");
}

/// How the requests of former processes end: connections are taken until the stores go to a
/// successor, which has the same listener.
pub(crate) fn of_former(whole: &Shutdown) -> Shutdown {
    let (ours, whole) = (Shutdown::default(), whole.clone());
    let ends = ours.clone();
    tokio::spawn(async move {
        whole.reached(Phase::Yielded).await;
        ends.drain(whole.patience());
        whole.reached(Phase::Cut).await;
        ends.cut();
    });
    ours
}

/// What is left of a response when the stores were given away under it.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) edge: Arc<Edge>,
    pub(crate) object: Arc<Object>,
}

impl Elsewhere for Rest {
    fn bytes(&self, range: Range<u64>) -> Body {
        deliver::rest(&self.edge, &self.object, range)
    }
}
