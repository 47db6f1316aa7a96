//! The store.

use std::sync::Arc;

use bytes::Bytes;
use model::{ByteCount, Now};

use crate::{Disk, Key, Representation};

/// How a store is set up.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// Bytes the store may occupy on its disk: a hard ceiling.
    pub capacity: ByteCount,
    /// Bytes of a block of new representations: a multiple of 4096. Default 1 MiB.
    pub block_bytes: u32,
}

/// Figures of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Representations that can be looked up.
    pub objects: u64,
    /// Bytes on disk, those of removed but still used representations included.
    pub bytes: u64,
    /// The ceiling.
    pub capacity: u64,
    /// Representations evicted since the store was opened.
    pub evictions: u64,
    /// Blocks that turned out bad since the store was opened.
    pub corrupt_blocks: u64,
    /// Failed writes to the disk since the store was opened.
    pub write_errors: u64,
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {}

/// Why something was not stored. The content can still be passed to the client.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {}

/// A disk's worth of representations. Cheap calls: `get`, `set_head`, `usage`; the others block.
#[derive(Debug)]
pub struct Store {}

impl Store {
    /// Opens a store and recovers what is there; what is doubtful is dropped. Blocks.
    pub fn open(_disk: Arc<dyn Disk>, _params: Params) -> Result<Self, OpenError> {
        todo!()
    }
    /// The visible representation of a key. Never touches the disk.
    pub fn get(&self, _key: &Key) -> Option<Arc<Representation>> {
        todo!()
    }
    /// Starts a representation without blocks and makes it the visible one of its key. The former
    /// one stays readable for those who hold it. Blocks.
    pub fn create(
        &self,
        _key: Key,
        _head: Bytes,
        _length: u64,
    ) -> Result<Arc<Representation>, WriteError> {
        todo!()
    }
    /// Replaces the head of a representation (after a 304); body and length stay.
    pub fn set_head(&self, _rep: &Representation, _head: Bytes) -> Result<(), WriteError> {
        todo!()
    }
    /// Makes a key a miss; whether there was something. Blocks.
    pub fn remove(&self, _key: &Key) -> bool {
        todo!()
    }
    /// Makes this representation invisible unless another has already taken its place. Blocks.
    pub fn discard(&self, _rep: &Representation) -> bool {
        todo!()
    }
    /// Makes everything stored so far durable: to be called each second. Blocks.
    pub fn flush(&self, _now: Now) {
        todo!()
    }
    /// Figures for metrics and status.
    pub fn usage(&self) -> Usage {
        todo!()
    }
}
