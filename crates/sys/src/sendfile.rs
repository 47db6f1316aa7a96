//! File content to sockets without a copy: `sendfile(2)`, and a way to say "file content goes here"
//! where only slices of memory can be said.
//!
//! A mark is a slice of one reserved range of addresses. It stands for bytes of a file in a list of
//! buffers, is cut and advanced like any other slice, and is told from real ones by its address.
//! Who writes the list out puts the file's bytes in its place. Whoever reads a mark by mistake
//! reads zeros.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;

/// Addresses reserved for marks.
pub const MARK_BYTES: usize = 1 << 28;

/// Bytes of a page of the page cache, at least.
const PAGE_BYTES: u64 = 4096;

/// The range of the marks, reserved at the first use and never given back.
fn marks() -> Option<&'static [u8]> {
    static MARKS: OnceLock<Option<&'static [u8]>> = OnceLock::new();
    *MARKS.get_or_init(|| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), MARK_BYTES, libc::PROT_READ, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: `base` is the start of `MARK_BYTES` readable bytes, all zero, that nobody can
        // write (PROT_READ, private, no other mapping) and nobody unmaps.
        Some(unsafe { std::slice::from_raw_parts(base.cast_const().cast(), MARK_BYTES) })
    })
}

/// The mark of `len` bytes that stands `at` bytes from the beginning of the range. `None` when that
/// is not within [`MARK_BYTES`], or when the system gives no range.
pub fn mark(at: usize, len: usize) -> Option<&'static [u8]> {
    marks()?.get(at..at.checked_add(len)?)
}

/// How far from the beginning of the range `bytes` begins, if it is a mark.
pub fn mark_at(bytes: &[u8]) -> Option<usize> {
    let at = bytes.as_ptr().addr().checked_sub(marks()?.as_ptr().addr())?;
    (at < MARK_BYTES && !bytes.is_empty()).then_some(at)
}

/// Sends at most `len` bytes of `file` from `offset` on. Returns how many the socket took; 0 when
/// the file ends there. Waits for the disk unless [`is_cached`], and for the socket unless that is
/// non-blocking.
///
/// # Errors
/// As `sendfile(2)` has them; [`io::ErrorKind::WouldBlock`] when the socket takes nothing now.
pub fn send_file(socket: &impl AsFd, file: &File, offset: u64, len: usize) -> io::Result<usize> {
    let mut offset = offset_of(offset)?;
    loop {
        // SAFETY: the pointer is to `offset`, which lives through the call. Both descriptors are
        // open because their owners are borrowed.
        let sent = unsafe {
            libc::sendfile(socket.as_fd().as_raw_fd(), file.as_raw_fd(), &raw mut offset, len)
        };
        match usize::try_from(sent) {
            Ok(sent) => return Ok(sent),
            Err(_) => interrupted_or(io::Error::last_os_error())?,
        }
    }
}

/// Whether `len` bytes of `file` from `offset` on can be read without waiting for a disk: by
/// `cachestat(2)` (Linux 6.5); where that cannot say, by a look at the first byte and the last.
pub fn is_cached(file: &File, offset: u64, len: u64) -> bool {
    let pages = |bytes: u64| bytes.checked_div(PAGE_BYTES).unwrap_or(0);
    let Some(more) = len.checked_sub(1) else { return true };
    let Some(last) = offset.checked_add(more) else { return false };
    match cached_pages(file, offset, len) {
        Some(cached) if cached > 0 => cached > pages(last).saturating_sub(pages(offset)),
        // Not supported, not allowed, or a file system that keeps its pages elsewhere.
        _ => [offset, last].iter().all(|at| crate::read_nowait(file, *at, &mut [0]).is_ok()),
    }
}

/// `cachestat(2)`'s number on every architecture; it is younger than their common table.
const SYS_CACHESTAT: libc::c_long = 451;

/// Pages of that part of the file in the page cache, if the kernel says.
fn cached_pages(file: &File, offset: u64, len: u64) -> Option<u64> {
    #[repr(C)]
    struct Part {
        offset: u64,
        len: u64,
    }
    /// `struct cachestat`: cached, dirty, in write-back, evicted, lately evicted; pages each.
    #[repr(C)]
    #[derive(Default)]
    struct Counts([u64; 5]);
    let (part, mut counts) = (Part { offset, len }, Counts::default());
    // SAFETY: both pointers are to structures as the kernel has them that live through the call;
    // it reads the first and writes the second. The descriptor is open because `file` is borrowed.
    let done = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const part, &raw mut counts, 0)
    };
    (done == 0).then_some(counts.0[0])
}

fn offset_of(bytes: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "file offset above 2^63"))
}

/// Nothing when the call is to be made again.
fn interrupted_or(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn file(bytes: &[u8], name: &str) -> File {
        let path = std::env::temp_dir().join(format!("sys-{name}-{}", std::process::id()));
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn marks_are_known_by_their_addresses_wherever_they_are_cut() {
        let whole = mark(10, 100).unwrap();
        assert_eq!((whole.len(), mark_at(whole)), (100, Some(10)));
        assert_eq!(mark_at(&whole[7..9]), Some(17));
        assert_eq!(mark_at(&whole[100..]), None, "an empty slice is nobody's");
        assert_eq!(mark_at(&[1, 2, 3]), None);
        assert!(whole.iter().all(|byte| *byte == 0), "a stray read does no harm");
        assert!(mark(MARK_BYTES, 1).is_none() && mark(1, usize::MAX).is_none());
        assert_eq!(mark_at(mark(MARK_BYTES - 1, 1).unwrap()), Some(MARK_BYTES - 1));
    }

    #[test]
    fn parts_of_a_file_arrive_in_order() {
        let file = file(b"0123456789", "sendfile");
        let (near, mut far) = UnixStream::pair().unwrap();
        assert_eq!(send_file(&near, &file, 3, 4).unwrap(), 4);
        assert_eq!(send_file(&near, &file, 8, 4).unwrap(), 2, "what there is");
        assert_eq!(send_file(&near, &file, 10, 4).unwrap(), 0, "the end");
        drop(near);
        let mut got = String::new();
        far.read_to_string(&mut got).unwrap();
        assert_eq!(got, "345689");
        let (near, _far) = UnixStream::pair().unwrap();
        let error = send_file(&near, &file, u64::MAX, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn what_was_just_written_is_cached() {
        let file = file(&[7; 10_000], "cached");
        for (offset, len) in [(0, 10_000), (4095, 2), (9_999, 1), (0, 0), (20_000, 0)] {
            assert!(is_cached(&file, offset, len), "{offset}+{len}");
        }
        assert!(!is_cached(&file, u64::MAX, 2));
    }
}
