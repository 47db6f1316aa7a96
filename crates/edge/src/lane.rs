//! Work on small objects of one disk, off the workers, by few threads.
//!
//! Records of small objects go one after another into one file, so more threads would wait for each
//! other. And each thread that works keeps half a megabyte for what it works with: by the dozen, a
//! burst of misses of 1 KiB took more memory than all it stored.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Threads at work, at most: while one has to make room on the disk, the other goes on.
const THREADS_MAX: usize = 2;

type Work = Box<dyn FnOnce() + Send>;

/// The work that waits and those who do it.
#[derive(Default)]
pub(crate) struct Lane(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: VecDeque<Work>,
    threads: usize,
}

impl Lane {
    /// Does `work` in its turn, also when nobody waits for it any more. `None`: it ended by a defect,
    /// or the process ends.
    pub(crate) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, done) = oneshot::channel();
        self.begin(Box::new(move || {
            // Nobody may wait for it any more.
            let _ = sender.send(work());
        }));
        done.await.ok()
    }

    fn begin(self: &Arc<Self>, work: Work) {
        let mut state = self.lock();
        state.waiting.push_back(work);
        if state.threads < THREADS_MAX {
            state.threads = state.threads.saturating_add(1);
            let lane = Arc::clone(self);
            drop(tokio::task::spawn_blocking(move || lane.work_off()));
        }
    }

    fn work_off(&self) {
        while let Some(work) = self.next() {
            // Its panic was told where it happened, and who waits for it hears that there is no result.
            let _ = catch_unwind(AssertUnwindSafe(work));
        }
    }

    /// `None`: the calling thread is not one of the lane's any more.
    fn next(&self) -> Option<Work> {
        let mut state = self.lock();
        let work = state.waiting.pop_front();
        if work.is_none() {
            state.threads = state.threads.saturating_sub(1);
            state.waiting.shrink_to_fit();
        }
        work
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn a_crowd_is_worked_off_by_few_threads() {
        let (lane, first) = (Arc::new(Lane::default()), Arc::new(Barrier::new(THREADS_MAX)));
        let works = (0..1000).map(|n| {
            let (lane, first) = (Arc::clone(&lane), Arc::clone(&first));
            tokio::spawn(async move {
                lane.run(move || {
                    if n < THREADS_MAX {
                        // All threads are there before the first is done.
                        first.wait();
                    }
                    (n, thread::current().id())
                })
                .await
            })
        });
        let mut threads = HashSet::new();
        for (n, work) in works.collect::<Vec<_>>().into_iter().enumerate() {
            let (done, thread) = work.await.unwrap().unwrap();
            assert_eq!(done, n);
            threads.insert(thread);
        }
        assert_eq!(threads.len(), THREADS_MAX);
    }

    #[tokio::test]
    async fn work_that_panics_takes_no_other_with_it() {
        let lane = Arc::new(Lane::default());
        for _ in 0..=THREADS_MAX {
            let broken = lane.run(|| -> usize { std::panic::resume_unwind(Box::new(())) }).await;
            assert_eq!(broken, None);
        }
        assert_eq!(lane.run(|| 7).await, Some(7));
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_is_done() {
        let lane = Arc::new(Lane::default());
        let (sender, done) = oneshot::channel();
        tokio::select! {
            biased;
            _ = lane.run(move || sender.send(7)) => {}
            () = std::future::ready(()) => {}
        }
        assert_eq!(done.await, Ok(7));
    }
}
