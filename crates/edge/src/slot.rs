//! The bytes of one block as they arrive.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::state::BufferPermit;

/// The bytes of one block as they arrive.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    buffer: RwLock<Buffer>,
    /// More bytes, or the block is stored, or its fill has changed course.
    pub(crate) changed: Notify,
}

/// Memory for a block, with the permit to use it.
#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    permit: Option<BufferPermit>,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Slot {
    fn read(&self) -> RwLockReadGuard<'_, Buffer> {
        self.buffer.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is memory for the block.
    pub(crate) fn has_buffer(&self) -> bool {
        self.read().permit.is_some()
    }

    /// Appends bytes; the first time `permit` is spent on memory for `block_bytes`.
    pub(crate) fn append(&self, part: &[u8], permit: Option<BufferPermit>, block_bytes: usize) {
        let mut buffer = self.buffer.write().unwrap_or_else(PoisonError::into_inner);
        if permit.is_some() {
            buffer.permit = permit;
            buffer.bytes.reserve_exact(block_bytes);
        }
        buffer.bytes.extend_from_slice(part);
    }

    /// Does something with all bytes that are there.
    pub(crate) fn with_bytes<T>(&self, with: impl FnOnce(&[u8]) -> T) -> T {
        with(&self.read().bytes)
    }

    /// All bytes and the permit for their memory, which comes free with the last of them. The slot is
    /// empty afterwards.
    pub(crate) fn take(&self) -> Bytes {
        let mut buffer = self.buffer.write().unwrap_or_else(PoisonError::into_inner);
        Bytes::from_owner(std::mem::take(&mut *buffer))
    }

    /// A copy of at most `max` bytes from `from` on; `None` when they are not there yet. A copy, so
    /// that a slow client never keeps a whole buffer alive.
    pub(crate) fn copy(&self, from: u64, max: usize) -> Option<Bytes> {
        let buffer = self.read();
        let from = usize::try_from(from).ok()?;
        let rest = buffer.bytes.get(from..).filter(|rest| !rest.is_empty())?;
        Some(Bytes::copy_from_slice(rest.get(..max).unwrap_or(rest)))
    }
}
