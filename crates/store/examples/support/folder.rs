//! A folder as the disk of a store, as simple as can be: for measuring programs alone. Nothing locks
//! it, nothing is synced, and it makes no holes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use store::{Disk, Entry, Lock};

/// The folder.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Disk for Folder {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(self.0.join(path))
    }
    fn lock(&self) -> io::Result<Option<Lock>> {
        Ok(Some(Box::new(())))
    }
    fn create(&self, path: &Path) -> io::Result<File> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true).open(self.0.join(path))
    }
    fn create_new(&self, path: &Path) -> io::Result<File> {
        File::options().read(true).write(true).create_new(true).open(self.0.join(path))
    }
    fn open_read(&self, path: &Path) -> io::Result<File> {
        File::open(self.0.join(path))
    }
    fn open_write(&self, path: &Path) -> io::Result<File> {
        File::options().read(true).write(true).open(self.0.join(path))
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
        // Good enough for measuring what is held: the budget counts it as given back.
        let (_, _, _) = (file, offset, len);
        Ok(())
    }
    fn sync(&self, _: &File) -> io::Result<()> {
        Ok(())
    }
    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(self.0.join(path))
    }
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(self.0.join(path))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            entries.push(Entry { name, allocated_bytes: entry.metadata()?.blocks() * 512 });
        }
        Ok(entries)
    }
}
