//! Opening files beneath a directory, so that no name leads out of it.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

/// The kernel's `struct open_how`; the one of libc cannot be built by field.
#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// Tries when a rename elsewhere made the kernel unsure whether a `..` of a link stayed beneath.
const TRIES: u32 = 8;

/// Opens `path` (bytes, relative) for reading, resolved beneath `directory` (`openat2(2)` with
/// `RESOLVE_BENEATH`). Symbolic links are followed as long as they stay inside; absolute ones never
/// do. Does not wait for the other end of a FIFO: look at the file's type before reading it.
///
/// # Errors
/// [`io::ErrorKind::CrossesDevices`] when the path leads out of the directory;
/// [`io::ErrorKind::Unsupported`] on kernels before Linux 5.6; others as `openat2(2)` has them.
pub fn open_beneath(directory: &File, path: &[u8]) -> io::Result<File> {
    let path = CString::new(path)?;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    let how = OpenHow {
        flags: u64::from(flags.unsigned_abs()),
        mode: 0,
        resolve: libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS,
    };
    let mut tries = 0;
    loop {
        // SAFETY: `path` is NUL-terminated and `how` is the structure of the size given; both live
        // through the call, and the kernel only reads them. The directory's descriptor is open
        // because `directory` is borrowed.
        let opened = unsafe {
            libc::syscall(
                libc::SYS_openat2,
                directory.as_raw_fd(),
                path.as_ptr(),
                &raw const how,
                size_of::<OpenHow>(),
            )
        };
        if let Some(descriptor) = RawFd::try_from(opened).ok().filter(|fd| *fd >= 0) {
            // SAFETY: the kernel just gave this descriptor to us and nobody else knows it.
            return Ok(unsafe { File::from_raw_fd(descriptor) });
        }
        let error = io::Error::last_os_error();
        tries += 1;
        match error.raw_os_error() {
            Some(libc::EINTR | libc::EAGAIN) if tries < TRIES => {}
            _ => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_inside_are_followed_and_links_out_are_not() {
        let base = std::env::temp_dir().join(format!("sys-beneath-{}", std::process::id()));
        let tree = base.join("tree");
        fs::create_dir_all(tree.join("a")).unwrap();
        fs::write(base.join("secret"), "secret").unwrap();
        fs::write(tree.join("a/file"), "content").unwrap();
        symlink("../a/file", tree.join("a/inside")).unwrap();
        symlink("../../secret", tree.join("a/outside")).unwrap();
        symlink(tree.join("a/file"), tree.join("absolute")).unwrap();
        symlink("loop", tree.join("loop")).unwrap();
        let root = File::open(&tree).unwrap();

        for path in ["a/file", "a/inside", "a/../a/file"] {
            let mut text = String::new();
            open_beneath(&root, path.as_bytes()).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "content", "{path}");
        }
        let refused = [
            ("a/outside", io::ErrorKind::CrossesDevices),
            ("../secret", io::ErrorKind::CrossesDevices),
            ("absolute", io::ErrorKind::CrossesDevices),
            ("/etc/passwd", io::ErrorKind::CrossesDevices),
            ("none", io::ErrorKind::NotFound),
            ("", io::ErrorKind::NotFound),
            ("a/file/more", io::ErrorKind::NotADirectory),
            ("a\0b", io::ErrorKind::InvalidInput),
        ];
        for (path, kind) in refused {
            assert_eq!(open_beneath(&root, path.as_bytes()).unwrap_err().kind(), kind, "{path}");
        }
        assert_eq!(open_beneath(&root, b"loop").unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert!(open_beneath(&root, b"a").unwrap().metadata().unwrap().is_dir());
        fs::remove_dir_all(&base).unwrap();
    }
}
