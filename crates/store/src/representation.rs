//! One version of an object on disk.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::{Key, WriteError};

/// One version of an object: head, length and the blocks held so far.
#[derive(Debug)]
pub struct Representation {}

/// A run of held bytes in a file. While it lives (or any other reference to the representation)
/// none of the representation's blocks is removed from the disk.
#[derive(Clone, Debug)]
pub struct Extent {
    /// The body file; readable at once.
    pub file: Arc<File>,
    /// Where the run starts in the file, which is where it starts in the body.
    pub offset: u64,
    /// Bytes in the run, at least one.
    pub len: u64,
    /// Keeps the blocks on disk.
    pub representation: Arc<Representation>,
}

impl Representation {
    /// The key it was made for.
    pub fn key(&self) -> &Key {
        todo!()
    }
    /// The opaque head given at creation or by the last [`crate::Store::set_head`].
    pub fn head(&self) -> Bytes {
        todo!()
    }
    /// Bytes of the whole body.
    pub fn length(&self) -> u64 {
        todo!()
    }
    /// Number of blocks of the whole body; 0 for an empty body.
    pub fn blocks(&self) -> u32 {
        todo!()
    }
    /// Bytes of each block but the last.
    pub fn block_bytes(&self) -> u32 {
        todo!()
    }
    /// Bytes of this block: `block_bytes`, less for the last one, 0 past the end.
    pub fn block_len(&self, _block: u32) -> u32 {
        todo!()
    }
    /// Whether the block is held (perhaps still to be verified).
    pub fn has(&self, _block: u32) -> bool {
        todo!()
    }
    /// Whether every block is held.
    pub fn is_complete(&self) -> bool {
        todo!()
    }
    /// The runs of blocks not held, ascending.
    pub fn missing(&self) -> Vec<Range<u32>> {
        todo!()
    }
    /// Whether the block is held but its checksum was not compared since the store was opened.
    /// Call [`Self::verify`] off the worker threads before asking for its extent.
    pub fn verify_pending(&self, _block: u32) -> bool {
        todo!()
    }
    /// Reads the block and compares its checksum. `true`: held and good from now on. `false`: not
    /// held (a bad block has just become a miss). Blocks.
    pub fn verify(&self, _block: u32) -> bool {
        todo!()
    }
    /// Stores one block: exactly its length. A block that is held already is left alone. Blocks.
    pub fn write_block(&self, _block: u32, _bytes: &[u8]) -> Result<(), WriteError> {
        todo!()
    }
    /// The longest held and verified run that starts at `offset`, at most `len_max` bytes. `None`
    /// if the block at `offset` is not held or waits for [`Self::verify`], or if its file cannot
    /// be opened: then it is to be treated as a miss.
    pub fn extent(self: &Arc<Self>, _offset: u64, _len_max: u64) -> Option<Extent> {
        todo!()
    }
}
