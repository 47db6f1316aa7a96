//! Whether parts of files can be sent without waiting for a disk, asked of the kernel once in a while
//! for parts that are sent all the time: what was in the page cache a moment ago, and used since, is
//! still there but for a machine that is out of memory, and then one worker waits for one read.

use std::cell::RefCell;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use sys::sendfile::is_cached;
use tokio::time::Instant;

/// So long a part counts as cached after the kernel has said so.
const FOR: Duration = Duration::from_millis(100);
/// Parts that a thread remembers; each has one place, by where it begins.
const PLACES: usize = 64;
/// Longer parts are not remembered: to ask costs little beside what it costs to send them.
const BYTES_MAX: usize = 512 * 1024;

/// A part of a file, known by where the file is in memory: should another take its place, a worker
/// may wait for a read.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Part {
    file: usize,
    offset: u64,
    len: usize,
}

impl Part {
    fn place(&self) -> usize {
        let at = usize::try_from(self.offset >> 12).unwrap_or(0);
        (self.file >> 4).wrapping_add(at) & PLACES.saturating_sub(1)
    }
}

thread_local! {
    static KNOWN: RefCell<[Option<(Part, Instant)>; PLACES]> = const { RefCell::new([None; PLACES]) };
}

/// Whether `len` bytes of `file` from `offset` on are in the page cache, or were a moment ago.
pub(crate) fn is_cached_now(file: &Arc<File>, offset: u64, len: usize) -> bool {
    let ask = || is_cached(file, offset, u64::try_from(len).unwrap_or(u64::MAX));
    if len > BYTES_MAX {
        return ask();
    }
    let part = Part { file: Arc::as_ptr(file).addr(), offset, len };
    let now = Instant::now();
    KNOWN.with_borrow_mut(|known| {
        let Some(place) = known.get_mut(part.place()) else { return ask() };
        if place.is_some_and(|(of, at)| of == part && now.duration_since(at) < FOR) {
            return true;
        }
        let is_cached = ask();
        *place = is_cached.then_some((part, now));
        is_cached
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

    use std::io::Write;

    use super::*;

    #[test]
    fn the_kernel_is_asked_once_in_a_while() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        let file = Arc::new(file);
        let known = |offset, len| {
            let part = Part { file: Arc::as_ptr(&file).addr(), offset, len };
            let at = KNOWN.with_borrow(|known| known[part.place()]);
            at.filter(|(of, _)| *of == part).map(|(_, at)| at)
        };
        assert!(is_cached_now(&file, 0, 70_000));
        let asked = known(0, 70_000).unwrap();
        assert!(is_cached_now(&file, 0, 70_000));
        let long_ago = Part { file: Arc::as_ptr(&file).addr(), offset: 0, len: 70_000 };
        let place = long_ago.place();
        KNOWN.with_borrow_mut(|known| known[place] = Some((long_ago, asked - FOR)));
        assert!(is_cached_now(&file, 0, 70_000));
        assert!(known(0, 70_000).unwrap() >= asked, "asked again");
        // Another part is not the same.
        assert!(is_cached_now(&file, 4096, 70_000));
        assert!(known(4096, 70_000).is_some());
        // What is not there is not remembered.
        assert!(!is_cached_now(&file, u64::MAX, 2));
        assert!(known(u64::MAX, 2).is_none());
        assert!(is_cached_now(&file, 0, 0));
    }
}
