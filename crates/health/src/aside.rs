//! Work that may hang for ever, such as reading a folder of a file server that has died.
//!
//! It runs on threads of its own and not on those that the runtime has for blocking work: the end of
//! the process waits for those, and would wait for ever too. These are left behind.

use std::io;
use std::thread;

use tokio::sync::oneshot;

/// Runs `work` on a thread of its own and waits for it. Whoever waits no longer leaves it behind.
///
/// # Errors
/// There is no thread to be had, or the work panicked.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (sender, done) = oneshot::channel();
    start(move || {
        // Nobody may wait for it any more.
        let _ = sender.send(work());
    })?;
    done.await.map_err(|_| io::Error::other("it ended by a defect"))
}

/// Starts a thread that nobody waits for.
pub(crate) fn start(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("health-files".into()).spawn(work).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_runtime_ends_while_the_work_hangs() {
        let (ended, end) = mpsc::channel();
        let (_never, hang) = mpsc::channel::<()>();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (begun, begin) = oneshot::channel();
                let work = aside(move || {
                    begun.send(()).unwrap();
                    hang.recv()
                });
                tokio::select! {
                    _ = work => unreachable!("it hangs"),
                    begun = begin => begun.unwrap(),
                }
            });
            drop(runtime);
            ended.send(()).unwrap();
        });
        end.recv_timeout(Duration::from_secs(60)).unwrap();
    }
}
