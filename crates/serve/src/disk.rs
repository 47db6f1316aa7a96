//! A folder of the file system as the disk under a store.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rt::file::{LockError, lock_folder};
use store::{Disk, Entry, Lock};

/// Bytes in a unit of `st_blocks`, whatever the file system's own block size.
const STAT_BLOCK_BYTES: u64 = 512;

/// A folder of the file system as the store's disk. Every call blocks.
#[derive(Debug)]
pub struct FsDisk {
    root: PathBuf,
    /// The root folder, open from the first sync on.
    handle: OnceLock<File>,
}

impl FsDisk {
    /// The disk whose paths are relative to `root`. `Store::open` makes the folder.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), handle: OnceLock::new() }
    }

    fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path)
    }
}

impl Disk for FsDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(self.at(path))
    }

    fn lock(&self) -> io::Result<Option<Lock>> {
        match lock_folder(&self.root) {
            Ok(lock) => Ok(Some(Box::new(lock))),
            Err(LockError::InUse { .. }) => Ok(None),
            Err(LockError::Lock { source, .. }) => Err(source),
        }
    }

    fn create_new(&self, path: &Path) -> io::Result<File> {
        File::options().read(true).write(true).create_new(true).open(self.at(path))
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        File::options().read(true).write(true).create(true).truncate(true).open(self.at(path))
    }

    fn open_read(&self, path: &Path) -> io::Result<File> {
        File::open(self.at(path))
    }

    fn open_write(&self, path: &Path) -> io::Result<File> {
        File::options().read(true).write(true).open(self.at(path))
    }

    fn read_at(&self, file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        file.read_at(buffer, offset)
    }

    fn write_all_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    fn set_len(&self, file: &File, len: u64) -> io::Result<()> {
        file.set_len(len)
    }

    fn punch(&self, file: &File, offset: u64, len: u64) -> io::Result<()> {
        sys::punch_hole(file, offset, len)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        // One handle for good: failed write-backs are told to each handle that was open then.
        let root = match self.handle.get() {
            Some(root) => root,
            None => {
                let root = File::open(&self.root)?;
                self.handle.get_or_init(|| root)
            }
        };
        sys::sync_file_system(root)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(self.at(from), self.at(to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(self.at(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(self.at(path))? {
            let entry = entry?;
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            // A name that is not UTF-8 is none of the store's.
            let (true, Ok(name)) = (metadata.is_file(), entry.file_name().into_string()) else {
                continue;
            };
            let allocated_bytes = metadata.blocks().saturating_mul(STAT_BLOCK_BYTES);
            entries.push(Entry { name, allocated_bytes });
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use model::ByteCount;
    use store::{Key, OpenError, Params, Store};

    use super::*;

    #[test]
    fn two_stores_never_share_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let params = Params {
            capacity: ByteCount(1 << 20),
            block_bytes: 4096,
            memory: Params::MEMORY,
            open_files: Params::OPEN_FILES,
        };
        let open = || Store::open(Arc::new(FsDisk::new(folder.path())), params);
        let first = open().unwrap();
        let rep = first.create(Key([1; 16]), Bytes::new(), 10).unwrap();
        rep.write_block(0, b"0123456789").unwrap();
        assert!(matches!(open(), Err(OpenError::InUse)));
        let extent = rep.extent(0, 10).unwrap();
        let mut read = [0; 10];
        extent.file.read_exact_at(&mut read, extent.offset).unwrap();
        assert_eq!(&read, b"0123456789");
        drop((first, rep, extent));
        open().unwrap();
    }

    #[test]
    fn a_new_body_never_empties_an_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let disk = FsDisk::new(folder.path());
        let (path, old) = (Path::new("body"), folder.path().join("body"));
        fs::write(&old, b"bytes").unwrap();
        assert_eq!(disk.create_new(path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(old).unwrap(), b"bytes");
    }

    #[test]
    fn a_folder_that_was_removed_is_made_anew_and_a_removed_store_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("store");
        let params = Params {
            capacity: ByteCount(1 << 20),
            block_bytes: 4096,
            memory: Params::MEMORY,
            open_files: Params::OPEN_FILES,
        };
        let store = Store::open(Arc::new(FsDisk::new(&root)), params).unwrap();
        let fill = |key: u8| {
            let rep = store.create(Key([key; 16]), Bytes::new(), 8192)?;
            (0..2).try_for_each(|block| rep.write_block(block, &[key; 4096]))?;
            Ok::<_, store::WriteError>(rep.is_complete())
        };
        fs::remove_dir(root.join("data/01")).unwrap();
        assert!(fill(1).unwrap());
        assert_eq!(store.usage().folder_errors, 0);
        fs::remove_dir_all(&root).unwrap();
        assert!(fill(2).is_err() && !root.exists());
        assert_eq!(store.usage().folder_errors, 1);
    }

    #[test]
    fn a_store_on_a_real_folder_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("new").join("store");
        let params = Params {
            capacity: ByteCount(1 << 20),
            block_bytes: 4096,
            memory: Params::MEMORY,
            open_files: Params::OPEN_FILES,
        };
        let open = || Store::open(Arc::new(FsDisk::new(&root)), params).unwrap();
        let store = open();
        let body = vec![7; 10_000];
        let rep = store.create(Key([1; 16]), Bytes::from_static(b"head"), 10_000).unwrap();
        for (block, bytes) in (0..).zip(body.chunks(4096)) {
            rep.write_block(block, bytes).unwrap();
        }
        store.flush();
        let bytes = store.usage().bytes;
        // The marker, the log with what is reserved ahead, the body, its metadata.
        assert_eq!(bytes, (1 + 2 + 3 + 1) * 4096);
        drop((rep, store));
        let store = open();
        assert_eq!(store.usage().bytes, bytes);
        let rep = store.load(&Key([1; 16])).unwrap();
        assert!((0..3).all(|block| rep.verify(block)));
        let extent = rep.extent(0, u64::MAX).unwrap();
        let mut read = vec![0; 10_000];
        extent.file.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(read, body);
        assert_eq!(rep.head(), "head");
        assert!(store.remove(&Key([1; 16])));
        drop((rep, extent));
        store.flush();
        assert_eq!(store.usage().bytes, (1 + 2) * 4096);
    }
}
