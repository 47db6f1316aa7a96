//! The disk for as long as it is this store's: whoever changes something passes the gate, and once it
//! is closed nobody does. Reading goes on.
//!
//! Closing waits for changes that are under way, so that nothing is written from the moment on in
//! which the folder is unlocked for the next store.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use crate::disk::{Disk, Entry, Lock};

/// A disk, and the lock that keeps other stores off it.
pub(crate) struct Gate {
    disk: Arc<dyn Disk>,
    /// `None`: closed. Held for reading while something is changed.
    lock: RwLock<Option<Lock>>,
}

/// What who came too late is told.
#[derive(Debug, thiserror::Error)]
#[error("the store was handed over to another process")]
struct Closed;

impl Gate {
    pub(crate) fn new(disk: Arc<dyn Disk>, lock: Lock) -> Self {
        Self { disk, lock: RwLock::new(Some(lock)) }
    }

    /// Unlocks the folder once nobody changes anything any more; `first` is done before that, when
    /// nobody is inside [`Self::unless_closed`] either. Blocks.
    pub(crate) fn close(&self, first: impl FnOnce()) {
        let mut lock = self.lock.write().unwrap_or_else(PoisonError::into_inner);
        first();
        drop(lock.take());
    }

    /// Does something during which the gate is not closed, if it is still open. `work` must neither
    /// change anything on the disk nor take long.
    pub(crate) fn unless_closed<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        self.pass().ok().map(|_inside| work())
    }

    fn pass(&self) -> io::Result<RwLockReadGuard<'_, Option<Lock>>> {
        let lock = self.lock.read().unwrap_or_else(PoisonError::into_inner);
        if lock.is_none() { Err(io::Error::other(Closed)) } else { Ok(lock) }
    }
}

impl Disk for Gate {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let _inside = self.pass()?;
        self.disk.create_dir(path)
    }

    /// It is this store's already.
    fn lock(&self) -> io::Result<Option<Lock>> {
        Ok(None)
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        let _inside = self.pass()?;
        self.disk.create(path)
    }

    fn create_new(&self, path: &Path) -> io::Result<File> {
        let _inside = self.pass()?;
        self.disk.create_new(path)
    }

    fn open_read(&self, path: &Path) -> io::Result<File> {
        self.disk.open_read(path)
    }

    fn open_write(&self, path: &Path) -> io::Result<File> {
        let _inside = self.pass()?;
        self.disk.open_write(path)
    }

    fn read_at(&self, file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.read_at(file, buffer, offset)
    }

    fn write_all_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let _inside = self.pass()?;
        self.disk.write_all_at(file, bytes, offset)
    }

    fn set_len(&self, file: &File, len: u64) -> io::Result<()> {
        let _inside = self.pass()?;
        self.disk.set_len(file, len)
    }

    fn punch(&self, file: &File, offset: u64, len: u64) -> io::Result<()> {
        let _inside = self.pass()?;
        self.disk.punch(file, offset, len)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        let _inside = self.pass()?;
        self.disk.sync(file)
    }

    fn sync_all(&self) -> io::Result<()> {
        let _inside = self.pass()?;
        self.disk.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _inside = self.pass()?;
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let _inside = self.pass()?;
        self.disk.remove(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.disk.list(path)
    }
}
