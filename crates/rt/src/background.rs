//! Work in the background: compiling a routing table takes most of a second of a processor, which those who
//! answer need more.

use std::panic::resume_unwind;
use std::thread;

/// Does `work` on a thread that gives way to all others, and waits for it. Blocks; panics as `work` does,
/// and where there is no thread to be had.
pub(crate) fn giving_way<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        // A thread cannot go back to what it was before it gave way, so it is one of its own.
        let thread = scope.spawn(|| {
            sys::process::give_way();
            work()
        });
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}
