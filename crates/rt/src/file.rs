//! Files that are whole or absent, and folders that are one process's own.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The file of a folder that is locked while somebody has the folder. Empty, and left where it is.
const LOCK_FILE: &str = "lock";

/// Writes `bytes` to `path` so that a reader, or a start after a crash, finds the old content or
/// the new, never a part: temporary file beside it, fsync, rename, fsync of the folder.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_with(path, bytes, None)
}

/// The same for what nobody but the owner may read: mode 0600 from the first byte on.
pub fn write_atomic_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_with(path, bytes, Some(0o600))
}

fn write_with(path: &Path, bytes: &[u8], mode: Option<u32>) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let folder = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    // Always the same name: what a killed process left is overwritten by the next one.
    let mut temporary = name.to_owned();
    temporary.push(".tmp");
    let temporary = folder.join(temporary);
    let written = (|| {
        let mut file = File::create(&temporary)?;
        if let Some(mode) = mode {
            file.set_permissions(fs::Permissions::from_mode(mode))?;
        }
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        // Best effort: the error that matters is the first one.
        let _ = fs::remove_file(&temporary);
        return written;
    }
    File::open(folder)?.sync_all()
}

/// Reads a whole file of at most `max` bytes; a larger one is an error of kind `FileTooLarge`, and
/// what is no file (a pipe, a device) is one of kind `InvalidInput`: it might never end.
pub fn read_bounded(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// What is opened so is waited for neither now nor later: a pipe without a reader cannot be opened to be
/// written, and one that is full is an error of kind `WouldBlock`. Of files nothing changes.
pub fn without_waiting(options: &mut OpenOptions) -> &mut OpenOptions {
    options.custom_flags(sys::file::WITHOUT_WAITING)
}

/// A folder that is this process's own until the lock is dropped; the end of the process, however it
/// comes, drops it too.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Why a folder cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody else has it.
    #[error(
        "the folder {folder} is in use by another process: stop that one \
         (`fuser -v {folder}/{LOCK_FILE}` shows it) or give each process a folder of its own",
        folder = .folder.display()
    )]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// The lock file cannot be made or locked.
    #[error(
        "cannot lock {folder}/{LOCK_FILE}: check the owner of the folder and its file system",
        folder = .folder.display()
    )]
    Lock {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Makes an existing folder this process's own. Two locks on one folder exclude each other inside a
/// process too.
pub fn lock_folder(folder: &Path) -> Result<Lock, LockError> {
    let failed = |source| LockError::Lock { folder: folder.to_owned(), source };
    let file = open_to_lock(&folder.join(LOCK_FILE)).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(Lock { _file: file }),
        Err(TryLockError::WouldBlock) => Err(LockError::InUse { folder: folder.to_owned() }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// A file system that has become read-only or full still lets a file be locked that is there.
fn open_to_lock(path: &Path) -> io::Result<File> {
    let made = File::options().write(true).create(true).truncate(false).open(path);
    made.or_else(|error| File::open(path).map_err(|_| error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_owner_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let lock = lock_folder(dir.path()).unwrap();
        let error = lock_folder(dir.path()).unwrap_err();
        let folder = dir.path().display();
        assert!(
            error.to_string().starts_with(&format!("the folder {folder} is in use")),
            "{error}"
        );
        drop(lock);
        lock_folder(dir.path()).unwrap();
        let nowhere = dir.path().join("none");
        assert!(matches!(lock_folder(&nowhere), Err(LockError::Lock { .. })));
    }

    #[test]
    fn a_write_replaces_and_leaves_nothing_beside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        write_atomic(&path, b"one").unwrap();
        write_atomic(&path, b"two").unwrap();
        assert_eq!(read_bounded(&path, 3).unwrap(), b"two");
        assert_eq!(read_bounded(&path, 2).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(write_atomic(&dir.path().join("no/such/folder"), b"x").is_err());
        let device = read_bounded(Path::new("/dev/zero"), 3).unwrap_err();
        assert_eq!(device.kind(), io::ErrorKind::InvalidInput);
    }
}
