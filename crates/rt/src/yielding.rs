//! What must be done before a successor may have what is on disk.
//!
//! A role registers its part with [`Yielding::on_yield`]: stop writing, finish what is being written,
//! release locks. The parts are done once, after [`crate::shutdown::Phase::Yielded`] was reached.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;

type Part = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The parts of all roles.
#[derive(Clone, Default)]
pub struct Yielding(Arc<Mutex<Vec<(&'static str, Part)>>>);

impl fmt::Debug for Yielding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Yielding")
    }
}

impl Yielding {
    /// `part` is done when the process yields, and before the successor is told that what is on
    /// disk is its own. `what` names it in the log.
    pub fn on_yield(&self, what: &'static str, part: impl Future<Output = ()> + Send + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((what, Box::pin(part)));
    }

    /// Does all parts, side by side. Those that were done are forgotten.
    ///
    /// # Errors
    /// The names of those that did not end within `patience`.
    pub async fn run(&self, patience: Duration) -> Result<(), Vec<&'static str>> {
        let parts = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut late: Vec<_> = parts.iter().map(|(what, _)| *what).collect();
        let mut running = JoinSet::new();
        for (what, part) in parts {
            running.spawn(async move {
                part.await;
                what
            });
        }
        let all = async {
            while let Some(ended) = running.join_next().await {
                if let Ok(what) = ended {
                    late.retain(|other| *other != what);
                }
            }
        };
        let _ = tokio::time::timeout(patience, all).await;
        // What is late goes on: it may still write, and must end before it lets go of its lock.
        running.detach_all();
        if late.is_empty() { Ok(()) } else { Err(late) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_part_is_done_once_and_late_ones_are_named() {
        let (yielding, done) = (Yielding::default(), Arc::new(Mutex::new(Vec::new())));
        for what in ["stores", "index"] {
            let done = Arc::clone(&done);
            yielding.on_yield(what, async move { done.lock().unwrap().push(what) });
        }
        assert_eq!(yielding.run(Duration::from_secs(60)).await, Ok(()));
        done.lock().unwrap().sort_unstable();
        assert_eq!(*done.lock().unwrap(), ["index", "stores"]);
        yielding.on_yield("disk", std::future::pending());
        yielding.on_yield("quick", async {});
        assert_eq!(yielding.run(Duration::from_millis(10)).await, Err(vec!["disk"]));
        assert_eq!(yielding.run(Duration::from_secs(60)).await, Ok(()), "nothing is left");
    }
}
