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

use arc_swap::ArcSwapOption;
use fill::MasterId;
use rt::shutdown::Phase;
use rt::{Context, Shutdown};
use serve::{Body, Elsewhere};

use crate::deliver;
use crate::project::Project;
use crate::state::{Edge, Object};

/// Where the successor takes requests of this process; nothing while the stores are here.
#[derive(Debug, Default)]
pub(crate) struct Successor(ArcSwapOption<SocketAddr>);

impl Edge {
    /// Whether the stores are given away, or about to be.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.successor.0.load().is_some()
    }

    /// The successor as a source of a project's content, once there is one.
    pub(crate) fn successor(&self, project: &Project) -> Option<MasterId> {
        let address = self.successor.0.load();
        address.as_ref().and_then(|address| project.successor(**address))
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
    edge.successor.0.store(Some(Arc::new(address)));
    edge.groups.end_all();
    let giving = tokio::task::spawn_blocking(move || {
        edge.stores.hand_over();
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
