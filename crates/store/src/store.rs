//! The store as its user sees it: create, find, remove, count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use model::ByteCount;

use crate::meta::{self, HEAD_BYTES_MAX};
use crate::names::{Key, Part, Place};
use crate::representation::{Representation, map_bytes};
use crate::shared::{Shared, WriteError, units};

/// How a store is set up.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// Bytes the store may occupy on its disk: a hard ceiling over all its files.
    pub capacity: ByteCount,
    /// Bytes of a block of new representations: a multiple of 4096, at most 64 MiB.
    pub block_bytes: u32,
}

impl Params {
    /// Block size unless the configuration says otherwise: 1 MiB.
    pub const BLOCK_BYTES: u32 = 1024 * 1024;
}

/// Figures of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Representations that can be looked up.
    pub objects: u64,
    /// Bytes on disk, those of removed but still used representations included.
    pub bytes: u64,
    /// The ceiling of `bytes`.
    pub capacity: u64,
    /// Representations evicted since the store was opened.
    pub evictions: u64,
    /// Blocks that turned out bad since the store was opened.
    pub corrupt_blocks: u64,
    /// Refused writes, syncs and removals since the store was opened.
    pub write_errors: u64,
}

/// A disk's worth of representations. Dropping it keeps the files; what was not flushed is then
/// missing at the next start.
pub struct Store {
    pub(crate) shared: Arc<Shared>,
    block_bytes: u32,
    next_id: AtomicU64,
}

impl Store {
    pub(crate) fn with_next_id(shared: Arc<Shared>, block_bytes: u32, next_id: u64) -> Self {
        Self { shared, block_bytes, next_id: AtomicU64::new(next_id) }
    }

    /// The visible representation of a key, marked as asked for. Never touches the disk.
    pub fn get(&self, key: &Key) -> Option<Arc<Representation>> {
        let index = self.shared.index();
        let rep = index.get(key)?;
        rep.visit();
        Some(Arc::clone(rep))
    }

    /// Starts a representation without blocks and makes it the visible one of its key. The former
    /// one stays readable for those who hold it. Blocks.
    pub fn create(
        &self,
        key: Key,
        head: Bytes,
        length: u64,
    ) -> Result<Arc<Representation>, WriteError> {
        self.create_with(key, head, length, |_| ()).map(|(rep, ())| rep)
    }

    /// The same, with something that is done once it is sure to be made and before anybody else can
    /// find it. Blocks.
    pub fn create_with<T>(
        &self,
        key: Key,
        head: Bytes,
        length: u64,
        first: impl FnOnce(&Arc<Representation>) -> T,
    ) -> Result<(Arc<Representation>, T), WriteError> {
        check_head(&head)?;
        let capacity = self.shared.capacity;
        let room = room_bytes(length, self.block_bytes, head.len());
        if room.is_none_or(|bytes| bytes > capacity) {
            return Err(WriteError::TooLarge { length, capacity });
        }
        let place = Place { key, id: self.next_id.fetch_add(1, Relaxed) };
        let path = place.path(Part::Body);
        let disk = &self.shared.disk;
        let file = self
            .shared
            .with_file_to_spare(|| disk.create_new(&path))
            .map_err(|error| self.shared.refused("create a file", error))?;
        if let Err(error) = disk.set_len(&file, length) {
            // An empty file under a name that is not used again; the next start sweeps it up.
            let _ = self.shared.remove_file(place, Part::Body);
            return Err(self.shared.refused("size a file", error));
        }
        self.shared.note_renamed();
        let shared = Arc::clone(&self.shared);
        let rep = Representation::create(shared, place, head, length, self.block_bytes, file);
        let done = first(&rep);
        let former = self.shared.index_mut().insert(Arc::clone(&rep));
        self.retire(former);
        if length == 0 {
            // Complete from the start: no block will ever mark it.
            rep.mark_dirty();
        }
        Ok((rep, done))
    }

    /// Replaces the head of a representation (after a 304); body and length stay. Never touches
    /// the disk.
    pub fn set_head(&self, rep: &Representation, head: Bytes) -> Result<(), WriteError> {
        check_head(&head)?;
        rep.set_head(head);
        Ok(())
    }

    /// Makes a key a miss; whether there was something. Blocks.
    pub fn remove(&self, key: &Key) -> bool {
        let former = self.shared.index_mut().remove(key);
        self.retire(former)
    }

    /// Makes this representation a miss, unless another has taken its place already. Blocks.
    pub fn discard(&self, rep: &Representation) -> bool {
        self.shared.discard(rep.place())
    }

    /// Figures for metrics and status.
    pub fn usage(&self) -> Usage {
        let counts = &self.shared.counts;
        Usage {
            objects: u64::try_from(self.shared.index().len()).unwrap_or(u64::MAX),
            bytes: self.shared.used(),
            capacity: self.shared.capacity,
            evictions: counts.evictions.load(Relaxed),
            corrupt_blocks: counts.corrupt_blocks.load(Relaxed),
            write_errors: counts.write_errors.load(Relaxed),
        }
    }

    fn retire(&self, rep: Option<Arc<Representation>>) -> bool {
        rep.is_some_and(|rep| {
            self.shared.retire(&rep);
            true
        })
    }
}

impl Shared {
    /// Makes exactly this representation a miss. Blocks.
    pub(crate) fn discard(&self, place: Place) -> bool {
        let rep = self.index_mut().remove_place(place);
        rep.is_some_and(|rep| {
            self.retire(&rep);
            true
        })
    }

    /// Takes a representation that has left the index off the disk, now or with the remains.
    fn retire(&self, rep: &Representation) {
        if let Err(error) = rep.retire() {
            self.refused("remove a file", error);
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Representations know the shared part and the other way round: cut the circle.
        let held = self.shared.index_mut().clear();
        drop(held);
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({:?})", self.usage())
    }
}

/// Bytes of a store that can hold this representation and nothing else: the marker, all blocks, the
/// metadata and its next version beside it. `None`: more than any format or disk has.
fn room_bytes(length: u64, block_bytes: u32, head_len: usize) -> Option<u64> {
    let count = meta::block_count(length, block_bytes)?;
    let last = length.checked_rem(u64::from(block_bytes))?;
    let whole = length.checked_sub(last)?;
    let body = whole.checked_add(units(last))?.checked_add(map_bytes(count))?;
    let meta = units(meta::image_bytes(head_len, usize::try_from(count).ok()?));
    body.checked_add(meta.checked_mul(2)?)?.checked_add(meta::UNIT_BYTES)
}

fn check_head(head: &Bytes) -> Result<(), WriteError> {
    match head.len() {
        bytes if bytes > HEAD_BYTES_MAX => Err(WriteError::HeadTooLarge { bytes }),
        _ => Ok(()),
    }
}
