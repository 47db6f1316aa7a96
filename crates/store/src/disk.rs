//! The seam to the disk: the few operations the store is built of.

use std::fs::File;
use std::io;
use std::path::Path;

/// One file of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// File name without its folder.
    pub name: String,
    /// Bytes the file system has allocated for it (holes do not count).
    pub allocated_bytes: u64,
}

/// Keeps a disk for one store until it is dropped.
pub type Lock = Box<dyn Send + Sync>;

/// What the store asks of a disk. Paths are relative to the folder the disk was made for. All
/// calls block.
pub trait Disk: Send + Sync {
    /// Makes a folder and its parents; one that exists is fine.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Takes the disk for one store, for as long as what is returned lives. `None`: another store
    /// has it, of this process or another.
    fn lock(&self) -> io::Result<Option<Lock>>;
    /// Makes or empties a file and opens it for reading and writing.
    fn create(&self, path: &Path) -> io::Result<File>;
    /// Makes a file and opens it for reading and writing; one that is there already stays as it is
    /// and is an error of kind `AlreadyExists`.
    fn create_new(&self, path: &Path) -> io::Result<File>;
    /// Opens a file for reading.
    fn open_read(&self, path: &Path) -> io::Result<File>;
    /// Opens a file for reading and writing, keeping its content.
    fn open_write(&self, path: &Path) -> io::Result<File>;
    /// Reads at `offset`; 0 is the end of the file.
    fn read_at(&self, file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `bytes` at `offset`.
    fn write_all_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes the file `len` bytes long; new bytes are a hole.
    fn set_len(&self, file: &File, len: u64) -> io::Result<()>;
    /// Gives the bytes `offset..offset + len` of a file back to the file system; they then read as
    /// zeros. An error of kind `Unsupported`: this file system cannot.
    fn punch(&self, file: &File, offset: u64, len: u64) -> io::Result<()>;
    /// Makes the content of one file durable.
    fn sync(&self, file: &File) -> io::Result<()>;
    /// Makes everything written and named so far durable. An error means that something of it
    /// may be lost, nobody knows what.
    fn sync_all(&self) -> io::Result<()>;
    /// Renames inside one folder, replacing what has the new name, in one step.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file's name.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// The files of a folder in any order; folders are left out.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;
}
