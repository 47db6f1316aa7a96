//! Memory of this process that the system gets back.
//!
//! The allocator (mimalloc) keeps freed memory for a while before the system may have it, and looks
//! whether that is over only while it allocates: of a burst, everything would stay for as long as the
//! process is idle. Huge pages make it worse: of each, one used byte keeps 2 MiB.

use std::io;

/// How long freed memory is kept for the next who needs it, milliseconds. mimalloc's own 1000 leaves
/// a third more with clients that have just had their answers; 0 costs bulk over TLS twelve times the
/// system calls for memory.
const KEEP_MS: libc::c_long = 200;

/// The number of mimalloc's option `purge_delay`, which its bindings do not name.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Uses no huge pages for this process and its children from now on, whatever the system's default
/// and whatever the allocator asks for.
///
/// # Errors
/// As `prctl(2)` has them.
pub fn use_small_pages() -> io::Result<()> {
    let (on, unused) = (1 as libc::c_ulong, 0 as libc::c_ulong);
    // SAFETY: PR_SET_THP_DISABLE takes integers and touches no memory of ours.
    let result = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, on, unused, unused, unused) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Keeps freed memory only briefly from now on: [`give_back`] gives it back after 200 ms.
pub fn keep_briefly() {
    // SAFETY: it takes two numbers, and may be called by any thread at any time.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, KEEP_MS) };
}

/// Gives back what has been free for long enough. To be called now and then, best by a thread that
/// holds no memory itself: the memory of the calling thread is looked through, that of others is not.
pub fn give_back() {
    // SAFETY: it takes a flag, and may be called by any thread at any time.
    unsafe { libmimalloc_sys::mi_collect(false) };
}

/// While this lives, what is freed is given back at once: for work that takes much memory in large pieces
/// one after the other, each of which would else stay with the process while the next is taken. Then it
/// is again as after [`keep_briefly`].
#[derive(Debug)]
pub struct AtOnce(());

impl AtOnce {
    /// Begins it.
    pub fn begin() -> Self {
        // SAFETY: it takes two numbers, and may be called by any thread at any time.
        unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, 0) };
        Self(())
    }
}

impl Drop for AtOnce {
    fn drop(&mut self) {
        // SAFETY: it takes a flag, and may be called by any thread at any time.
        unsafe { libmimalloc_sys::mi_collect(true) };
        keep_briefly();
    }
}
