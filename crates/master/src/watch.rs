//! Whether the tree is there: looked at each second and by every request, told once when it
//! changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rt::metrics::{Gauge, master as metric};
use rt::{Metrics, Phase, Shutdown};
use tokio::sync::watch;

use crate::catalogue::Catalogue;
use crate::scan::{off_worker, scan};
use crate::tree::{Lost, Tree};

/// Time between two looks when nobody asks for anything.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// What is known of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Nobody looked yet.
    Unknown,
    /// Root and marker are there.
    Up,
    /// They are not, with the reason for people.
    Lost(String),
}

/// See the module's page.
#[derive(Debug)]
pub(crate) struct Watch {
    presence: watch::Sender<Presence>,
    /// Whether every file of the tree was hashed since it came up.
    scanned: AtomicBool,
    tree_up: Gauge,
}

impl Watch {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let tree_up = metrics.gauge(&metric::TREE_UP, &[]);
        Self {
            presence: watch::Sender::new(Presence::Unknown),
            scanned: AtomicBool::new(false),
            tree_up,
        }
    }

    /// What the last look saw.
    pub(crate) fn presence(&self) -> Presence {
        self.presence.borrow().clone()
    }

    /// Whether the whole tree was walked through since it came up.
    pub(crate) fn scanned(&self) -> bool {
        self.scanned.load(Ordering::Relaxed)
    }

    /// Takes down what somebody saw when opening the root.
    pub(crate) fn saw(&self, seen: Result<(), &Lost>) {
        let unchanged = match (&*self.presence.borrow(), &seen) {
            (Presence::Up, Ok(())) => true,
            (Presence::Lost(why), Err(lost)) => *why == crate::with_causes(*lost),
            _ => false,
        };
        if unchanged {
            return;
        }
        let presence = match seen {
            Ok(()) => {
                tracing::info!("the tree is there");
                Presence::Up
            }
            Err(lost) => {
                let why = crate::with_causes(lost);
                tracing::error!(%why, "the tree is lost: answering 503 for everything");
                Presence::Lost(why)
            }
        };
        self.tree_up.set(i64::from(presence == Presence::Up));
        self.presence.send_replace(presence);
    }

    /// Looks at the tree from time to time until nobody new is served.
    pub(crate) async fn look(self: Arc<Self>, tree: Arc<Tree>, shutdown: Shutdown) {
        loop {
            let at = Arc::clone(&tree);
            let seen = off_worker(move || at.open_root().map(drop)).await;
            self.saw(seen.as_ref().copied());
            tokio::select! {
                () = tokio::time::sleep(LOOK_PAUSE) => {}
                () = shutdown.reached(Phase::Draining) => return,
            }
        }
    }

    /// Walks through the tree each time it comes up, while the index is ours.
    pub(crate) async fn scan_when_up(
        self: Arc<Self>,
        tree: Arc<Tree>,
        catalogue: Arc<Catalogue>,
        shutdown: Shutdown,
    ) {
        let mut presence = self.presence.subscribe();
        for wanted_up in [true, false].into_iter().cycle() {
            tokio::select! {
                seen = presence.wait_for(|p| (*p == Presence::Up) == wanted_up) => {
                    if seen.is_err() {
                        return;
                    }
                }
                () = shutdown.reached(Phase::Yielded) => return,
            }
            self.scanned.store(false, Ordering::Relaxed);
            if wanted_up {
                let whole = scan(Arc::clone(&tree), Arc::clone(&catalogue), shutdown.clone()).await;
                self.scanned.store(whole, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gauge_and_the_presence_follow_what_was_seen() {
        let metrics = Metrics::new();
        let watch = Watch::new(&metrics);
        let gauge = || metrics.gauge(&metric::TREE_UP, &[]).get();
        assert_eq!((watch.presence(), gauge()), (Presence::Unknown, 0));
        watch.saw(Ok(()));
        assert_eq!((watch.presence(), gauge()), (Presence::Up, 1));
        watch.saw(Err(&Lost::Marker("/srv/tree".into())));
        assert_eq!(gauge(), 0);
        assert!(matches!(watch.presence(), Presence::Lost(why) if why.contains("/srv/tree")));
        watch.saw(Ok(()));
        assert_eq!((watch.presence(), gauge()), (Presence::Up, 1));
    }
}
