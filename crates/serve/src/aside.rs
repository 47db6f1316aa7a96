//! What waits beside something busier, polled only when it was woken itself. A task is woken for each
//! request of its client; its timers and bells have nothing to say then, and asking each of them costs
//! more than it seems.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::task::{Context, Poll, Wake, Waker};

/// Of one future; another one needs its own.
#[derive(Default)]
pub(crate) struct Aside(Option<Arc<Bell>>);

/// Wakes the task, and remembers for whom.
struct Bell {
    has_rung: AtomicBool,
    task: Waker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_rung.store(true, Release);
        self.task.wake_by_ref();
    }
}

impl Aside {
    /// Polls the future by `poll` if it was woken since it was last polled, or never was.
    pub(crate) fn poll<T>(
        &mut self,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let known = self.0.as_ref().filter(|bell| bell.task.will_wake(cx.waker()));
        let bell = match known {
            Some(bell) if !bell.has_rung.load(Relaxed) => return Poll::Pending,
            Some(bell) => {
                // Whoever rings from here on is heard at the next time.
                bell.has_rung.swap(false, AcqRel);
                Arc::clone(bell)
            }
            None => {
                let bell = Bell { has_rung: AtomicBool::new(false), task: cx.waker().clone() };
                Arc::clone(self.0.insert(Arc::new(bell)))
            }
        };
        poll(&mut Context::from_waker(&Waker::from(bell)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[derive(Default)]
    struct Task(AtomicU32);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn it_is_polled_when_it_was_woken_and_not_otherwise() {
        let task = Arc::new(Task::default());
        let waker = Waker::from(Arc::clone(&task));
        let cx = Context::from_waker(&waker);
        let (mut aside, mut polls, mut own) = (Aside::default(), 0, None);
        for (wakes, want) in [(0, 1), (0, 1), (1, 2), (0, 2), (2, 3)] {
            for _ in 0..wakes {
                own.as_ref().inspect(|own: &&Waker| own.wake_by_ref());
            }
            let polled = aside.poll(&cx, |cx| {
                polls += 1;
                own = Some(cx.waker().clone());
                Poll::<()>::Pending
            });
            assert_eq!((polled, polls), (Poll::Pending, want));
        }
        assert_eq!(task.0.load(Relaxed), 3);
        // Of another task it has to know the waker.
        let other = Arc::new(Task::default());
        let waker = Waker::from(Arc::clone(&other));
        let polled = aside.poll(&Context::from_waker(&waker), |cx| {
            cx.waker().wake_by_ref();
            Poll::Ready(())
        });
        assert_eq!((polled, other.0.load(Relaxed)), (Poll::Ready(()), 1));
    }
}
