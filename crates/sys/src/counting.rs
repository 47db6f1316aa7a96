//! An allocator that counts, for tests and examples that hold what a piece of work may allocate.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);

/// Another allocator, whose allocations are counted. To be made the `#[global_allocator]`.
#[derive(Debug)]
pub struct Counting<A>(pub A);

/// What was allocated by all threads since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocated {
    /// Allocations; a growth counts as one.
    pub times: u64,
    /// Bytes asked for; of a growth, all of its new size.
    pub bytes: u64,
}

impl Allocated {
    /// Until now.
    pub fn now() -> Self {
        Self { times: ALLOCATIONS.load(Relaxed), bytes: BYTES.load(Relaxed) }
    }

    /// Bytes allocated and not given back.
    pub fn held_bytes() -> u64 {
        // In this order, so that what is freed meanwhile is not missing on the other side.
        let freed = FREED.load(Relaxed);
        BYTES.load(Relaxed).saturating_sub(freed)
    }

    /// Since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            times: self.times.saturating_sub(before.times),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }
}

fn count_freed(bytes: usize) {
    FREED.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Relaxed);
}

fn count(bytes: usize) {
    ALLOCATIONS.fetch_add(1, Relaxed);
    BYTES.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Relaxed);
}

// SAFETY: every call is handed on as it is to an allocator that keeps the contract; counting
// allocates nothing.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of this function, which is the same.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of this function, which is the same.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size);
        count_freed(layout.size());
        // SAFETY: the caller keeps the contract of this function, which is the same.
        unsafe { self.0.realloc(ptr, layout, new_size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count_freed(layout.size());
        // SAFETY: the caller keeps the contract of this function, which is the same.
        unsafe { self.0.dealloc(ptr, layout) }
    }
}
