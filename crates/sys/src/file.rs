//! Reading files from the page cache only, making holes in them, and writing a whole file system back.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Flag of `open(2)`: neither that nor reading and writing wait for whoever has the other end of a pipe.
pub const WITHOUT_WAITING: i32 = libc::O_NONBLOCK;

/// Reads up to `buffer.len()` bytes at `offset` if that needs no disk (`preadv2(2)` with
/// `RWF_NOWAIT`). Returns the number of bytes read, less than asked at the end of the file or
/// where the page cache ends, 0 at or behind the end of the file.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] when the first byte is not in the page cache, or when the file
/// system cannot tell: read it where waiting does no harm. Others as `preadv2(2)` has them.
pub fn read_nowait(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let offset = libc::off_t::try_from(offset)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "file offset above 2^63"))?;
    let part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    loop {
        // SAFETY: `part` describes exactly `buffer`, which is borrowed mutably for the whole call;
        // the kernel writes only there. The descriptor is open because `file` is borrowed.
        let read = unsafe { libc::preadv2(file.as_raw_fd(), &part, 1, offset, libc::RWF_NOWAIT) };
        if let Ok(read) = usize::try_from(read) {
            return Ok(read);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            // Some file systems know no RWF_NOWAIT: as good as "may block".
            Some(libc::EOPNOTSUPP) => return Err(io::ErrorKind::WouldBlock.into()),
            _ => return Err(error),
        }
    }
}

/// Makes everything written to the file system that `file` is on durable (`syncfs(2)`), names
/// included: one call instead of one for each of a thousand small files. Blocks.
///
/// # Errors
/// As `syncfs(2)` has them; `EIO` when a page written since `file` was opened, or since the last
/// call with it, could not be written back (Linux 5.8).
pub fn sync_file_system(file: &File) -> io::Result<()> {
    // SAFETY: the call takes nothing but a descriptor, which is open because `file` is borrowed.
    match unsafe { libc::syncfs(file.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives the bytes `offset..offset + len` of a file back to the file system (`fallocate(2)` with
/// `FALLOC_FL_PUNCH_HOLE`); they read as zeros afterwards, and the file keeps its length. Blocks.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] when the file system cannot; others as `fallocate(2)` has them.
pub fn punch_hole(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let number = |bytes: u64| {
        libc::off_t::try_from(bytes)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "file offset above 2^63"))
    };
    let (offset, len) = (number(offset)?, number(len)?);
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    loop {
        // SAFETY: the call takes nothing but numbers and a descriptor, which is open because `file`
        // is borrowed.
        if unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => return Err(io::ErrorKind::Unsupported.into()),
            _ => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Freshly written bytes are in the page cache; a file system without RWF_NOWAIT may say
    /// `WouldBlock`, but must never give wrong bytes.
    fn read(file: &File, offset: u64, len: usize) -> Option<Vec<u8>> {
        let mut buffer = vec![0xee; len];
        match read_nowait(file, offset, &mut buffer) {
            Ok(n) => Some(buffer[..n].to_vec()),
            Err(e) => {
                assert_eq!(e.kind(), io::ErrorKind::WouldBlock, "{e}");
                None
            }
        }
    }

    #[test]
    fn reads_what_was_just_written_and_stops_at_the_end() {
        let path = std::env::temp_dir().join(format!("sys-nowait-{}", std::process::id()));
        let mut written = File::create(&path).unwrap();
        written.write_all(b"0123456789").unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for (offset, len, want) in
            [(0, 4, &b"0123"[..]), (8, 4, b"89"), (10, 4, b""), (99, 4, b""), (3, 0, b"")]
        {
            if let Some(got) = read(&file, offset, len) {
                assert_eq!(got, want, "{offset}+{len}");
            }
        }
        let far = read_nowait(&file, u64::MAX, &mut [0]).unwrap_err();
        assert_eq!(far.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_hole_reads_as_zeros_and_leaves_the_rest() {
        let path = std::env::temp_dir().join(format!("sys-hole-{}", std::process::id()));
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(&[7; 3 * 4096]).unwrap();
        match punch_hole(&file, 4096, 4096) {
            Ok(()) => {
                let mut bytes = vec![0xee; 3 * 4096];
                std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
                let unit = |n: usize| bytes[n * 4096..(n + 1) * 4096].to_vec();
                assert_eq!([unit(0), unit(1), unit(2)], [[7; 4096], [0; 4096], [7; 4096]]);
            }
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported),
        }
    }

    #[test]
    fn a_file_system_is_synced_through_any_of_its_files() {
        sync_file_system(&File::open(std::env::temp_dir()).unwrap()).unwrap();
    }
}
