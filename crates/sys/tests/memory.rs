//! What the program's allocator gives back to the system, measured on this process.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Anonymous memory of this process that is in RAM, in KiB, and how much of it is in huge pages.
fn anonymous_kib() -> (u64, u64) {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let field = |name: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
    };
    (field("Anonymous:"), field("AnonHugePages:"))
}

#[test]
fn what_was_freed_is_given_back_and_no_huge_page_keeps_it() {
    sys::memory::use_small_pages().unwrap();
    sys::memory::keep_briefly();
    let (before, huge_before) = anonymous_kib();
    let burst: Vec<Vec<u8>> = (0..8192).map(|_| vec![1; 8192]).collect();
    let (held, huge) = anonymous_kib();
    assert!(held >= before + 60 * 1024, "{before} {held}");
    assert!(huge <= huge_before, "{huge_before} {huge}");
    drop(burst);
    // It has to have been free for a while.
    let is_back = (0..1_000_000).any(|_| {
        sys::memory::give_back();
        std::thread::yield_now();
        anonymous_kib().0 <= before + 8 * 1024
    });
    assert!(is_back, "{before} KiB, then {held}, and still {}", anonymous_kib().0);
}
