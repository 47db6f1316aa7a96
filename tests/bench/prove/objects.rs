//! The objects that are asked for: every length at which something changes in an edge, each with
//! content of its own, so that bytes of another object or place are seen.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};

/// Lengths, and how often of a hundred requests each is asked for.
const LENGTHS: [(usize, usize); 9] = [
    (0, 4),
    (1, 5),
    (1 << 10, 20),
    (16 << 10, 20),
    ((64 << 10) - 1, 8),
    (64 << 10, 8),
    ((64 << 10) + 1, 8),
    (100 << 10, 15),
    (1 << 20, 10),
];
/// How often of a hundred the large one.
const LARGE_OF_100: usize = 2;
/// Files of each length.
const COPIES: u32 = 2;
/// When the files say they were written: edges keep them for a day.
const WRITTEN_S: u64 = 1_577_836_800;

/// A file of the tree.
pub(crate) struct Object {
    /// Its name in the tree.
    pub(crate) name: String,
    /// Its content.
    pub(crate) bytes: Vec<u8>,
    /// How often of all requests it is asked for, relative to the others.
    pub(crate) share: usize,
}

/// All objects, the large ones of this many bytes.
pub(crate) fn all(large: usize) -> Vec<Object> {
    let lengths = LENGTHS.into_iter().chain([(large, LARGE_OF_100)]);
    let copies = lengths.flat_map(|(length, share)| (0..COPIES).map(move |n| (length, share, n)));
    copies.map(|(length, share, copy)| Object::new(length, share, copy)).collect()
}

impl Object {
    /// An object of so many bytes.
    pub(crate) fn new(length: usize, share: usize, copy: u32) -> Self {
        let mut bytes = vec![0; length];
        let seed = u64::from(copy) << 56 | length as u64;
        fastrand::Rng::with_seed(seed).fill(&mut bytes);
        Self { name: format!("object-{length}-{copy}"), bytes, share }
    }

    /// How long it is.
    pub(crate) fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Puts it into the tree, unless it is there.
    pub(crate) fn write(&self, tree: &Path) -> Result<()> {
        let file = tree.join(&self.name);
        if fs::read(&file).is_ok_and(|there| there == self.bytes) {
            return Ok(());
        }
        let new = tree.join(format!(".{}", self.name));
        let written = SystemTime::UNIX_EPOCH + Duration::from_secs(WRITTEN_S);
        let write = || {
            fs::write(&new, &self.bytes)?;
            fs::File::options().append(true).open(&new)?.set_modified(written)?;
            fs::rename(&new, &file)
        };
        write().with_context(|| format!("cannot write {}", file.display()))
    }
}
