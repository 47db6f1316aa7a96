//! The real disk under a store.

use std::path::PathBuf;

/// A folder of the file system as the store's disk.
#[derive(Clone, Debug)]
pub struct FsDisk {
    root: PathBuf,
}

impl FsDisk {
    /// The disk whose paths are relative to `root`. The folder is made by `Store::open`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }
}
