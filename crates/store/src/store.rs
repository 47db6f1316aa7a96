//! The store as its user sees it: create, find, remove, count.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use model::ByteCount;

use crate::entry::Change;
use crate::file_body::{FileBody, map_bytes};
use crate::index::Spot;
use crate::log::log_bytes_max;
use crate::meta::{self, HEAD_BYTES_MAX, UNIT_BYTES};
use crate::names::{Key, MARKER, Part, Place};
use crate::packed::PackedBody;
use crate::record::{PACKED_BYTES_MAX, record_bytes};
use crate::representation::{Body, Representation};
use crate::shared::{CREATE, Shared, WriteError, segment_bytes, units};

/// How a store is set up.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// Bytes the store may occupy on its disk: a hard ceiling over all its files.
    pub capacity: ByteCount,
    /// Bytes of a block of new representations: a multiple of 4096, at most 64 MiB.
    pub block_bytes: u32,
    /// Bytes of memory for representations and the bodies of small ones that are asked for often. The
    /// index (less than 100 bytes an object) comes on top, and so does what is in use.
    pub memory: ByteCount,
    /// Body files that are kept open for their next use. What is being read or written comes on
    /// top, and so do the segments.
    pub open_files: usize,
}

impl Params {
    /// Block size unless the configuration says otherwise: 256 KiB. Chosen by measurement: a range
    /// in a cold object waits for the bytes before it in its block (`docs/benchmarks.md`).
    pub const BLOCK_BYTES: u32 = 256 * 1024;
    /// Memory unless the configuration says otherwise: 256 MiB.
    pub const MEMORY: ByteCount = ByteCount(256 << 20);
    /// Open files where the process may have many.
    pub const OPEN_FILES: usize = 4096;
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
    /// Bytes of memory of the index.
    pub index_bytes: u64,
    /// Bytes of memory of representations and bodies.
    pub memory_bytes: u64,
    /// Representations evicted since the store was opened.
    pub evictions: u64,
    /// Bytes of giants given back block by block since the store was opened.
    pub trimmed_bytes: u64,
    /// Blocks that turned out bad since the store was opened.
    pub corrupt_blocks: u64,
    /// Refused writes, syncs and removals since the store was opened.
    pub write_errors: u64,
    /// Of these and of reads, those that say that the device is broken or read-only.
    pub device_errors: u64,
    /// Files that could not be made because their folder is gone.
    pub folder_errors: u64,
}

/// A disk's worth of representations. Dropping it keeps the files; what was not flushed is then
/// missing at the next start.
pub struct Store {
    pub(crate) shared: Arc<Shared>,
    block_bytes: u32,
    next_id: AtomicU64,
    former: Option<u32>,
}

impl Store {
    pub(crate) fn with_next_id(
        shared: Arc<Shared>,
        block_bytes: u32,
        next_id: u64,
        former: Option<u32>,
    ) -> Self {
        Self { shared, block_bytes, next_id: AtomicU64::new(next_id), former }
    }

    /// The format version of what was in the folder when it was opened and was thrown away, because
    /// a cache is rebuilt, never reinterpreted.
    pub fn emptied_version(&self) -> Option<u32> {
        self.former
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
        let shared = &self.shared;
        if !shared.tenure.is_ours() {
            return Err(WriteError::HandedOver);
        }
        let capacity = shared.capacity;
        let is_small = self.packs(length, head.len());
        let room = match is_small {
            true => small_room_bytes(length, head.len(), capacity),
            false => room_bytes(length, self.block_bytes, head.len(), capacity),
        };
        if room.is_none_or(|bytes| bytes > capacity) {
            return Err(WriteError::TooLarge { length, capacity });
        }
        shared.make_log_room()?;
        let id = self.next_id.fetch_add(1, Relaxed);
        shared.log.note_id(id);
        let place = Place { key, id };
        let (body, spot) = match is_small {
            true => (Body::Packed(PackedBody::empty()), Spot::Filling),
            false => (self.create_file(place, length)?, Spot::File { units: 0 }),
        };
        let rep =
            Representation::new(Arc::clone(shared), place, length, self.block_bytes, head, body);
        if !is_small {
            shared.note_open(&rep);
        }
        let done = first(&rep);
        let mut index = shared.index_mut();
        // What was done first may have brought its block already.
        let spot = rep.seated(&index).unwrap_or(spot);
        let former = index.put(place, spot);
        let former_rep = shared.live.insert(&rep);
        if let Some((former, spot)) = former {
            shared.note_gone(former, spot);
        }
        if matches!(spot, Spot::Packed { .. }) {
            shared.note(Change::At(place, spot));
            shared.note_unsynced(place);
        }
        drop(index);
        shared.note_newcomer(&rep);
        if rep.is_dirty() {
            shared.note_dirty(place);
        }
        if let Some((former, spot)) = former {
            shared.retire(former, spot, former_rep);
        }
        if length == 0 {
            // Complete from the start: no block will ever mark it.
            rep.mark_dirty();
        }
        if shared.live.is_over() {
            shared.trim_memory();
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
        let found = self.shared.index().get(key);
        found.is_some_and(|(place, _)| self.shared.discard(place))
    }

    /// Makes this representation a miss, unless another has taken its place already. Blocks.
    pub fn discard(&self, rep: &Representation) -> bool {
        Arc::ptr_eq(&self.shared, &rep.shared) && self.shared.discard(rep.place())
    }

    /// Whether one of this length, with a head of so many bytes, is packed with others rather than that
    /// it has a file of its own.
    pub fn packs(&self, length: u64, head_len: usize) -> bool {
        let head = u64::try_from(head_len).unwrap_or(u64::MAX);
        length <= u64::from(self.block_bytes) && length.saturating_add(head) <= PACKED_BYTES_MAX
    }

    /// Figures for metrics and status.
    pub fn usage(&self) -> Usage {
        let counts = &self.shared.counts;
        let (objects, index_bytes) = {
            let index = self.shared.index();
            (index.len(), index.bytes())
        };
        Usage {
            objects: u64::try_from(objects).unwrap_or(u64::MAX),
            bytes: self.shared.used(),
            capacity: self.shared.capacity,
            index_bytes: u64::try_from(index_bytes).unwrap_or(u64::MAX),
            memory_bytes: self.shared.live.bytes(),
            evictions: counts.evictions.load(Relaxed),
            trimmed_bytes: counts.trimmed_bytes.load(Relaxed),
            corrupt_blocks: counts.corrupt_blocks.load(Relaxed),
            write_errors: counts.write_errors.load(Relaxed),
            device_errors: counts.device_errors.load(Relaxed),
            folder_errors: counts.folder_errors.load(Relaxed),
        }
    }

    fn create_file(&self, place: Place, length: u64) -> Result<Body, WriteError> {
        let created = self.shared.create_body(place, length);
        let file = created.map_err(|error| self.shared.refused(CREATE, error))?;
        let blocks = meta::block_count(length, self.block_bytes).unwrap_or(0);
        Ok(Body::File(FileBody::create(blocks, file)))
    }
}

impl Shared {
    /// Makes a body file, which is one hole, and its folder when somebody has removed that alone: a
    /// store whose marker is gone too is another matter. Blocks.
    pub(crate) fn create_body(&self, place: Place, length: u64) -> io::Result<File> {
        let (disk, path) = (&self.disk, place.path(Part::Body));
        let create = || self.with_file_to_spare(|| disk.create_new(&path));
        let file = match create() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                disk.open_read(Path::new(MARKER))?;
                disk.create_dir(path.parent().unwrap_or(Path::new("")))?;
                create()
            }
            file => file,
        }?;
        if let Err(error) = disk.set_len(&file, length) {
            // An empty file under a name that is not used again; the next start sweeps it up.
            let _ = self.remove_file(place, Part::Body);
            return Err(error);
        }
        self.note_changed();
        Ok(file)
    }

    /// Makes exactly this representation a miss. Blocks.
    pub(crate) fn discard(&self, place: Place) -> bool {
        let mut index = self.index_mut();
        let Some(spot) = index.remove(place) else { return false };
        let rep = self.live.remove(place);
        self.note_gone(place, spot);
        drop(index);
        if self.is_writing() {
            self.retire(place, spot, rep);
        }
        true
    }

    /// Takes what has left the index off the disk, now or with the remains, and makes sure that a
    /// kill does not bring it back.
    fn retire(&self, place: Place, spot: Spot, rep: Option<Arc<Representation>>) {
        match rep {
            Some(rep) => {
                if let Err(error) = rep.retire() {
                    self.refused("remove a file", error);
                }
            }
            None => {
                if let Err(error) = self.remove_file(place, Part::Meta) {
                    self.refused("remove a file", error);
                }
                self.leave_file(place, spot);
            }
        }
        // What is refused is written later: counted where it happens.
        let _ = self.write_log();
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Representations know the shared part and the other way round: cut the circle.
        self.shared.live.clear();
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({:?})", self.usage())
    }
}

/// Bytes of a store that can hold this representation and nothing else: all blocks, the metadata and
/// its next version beside it, and what every store has. `None`: more than any format or disk has.
fn room_bytes(length: u64, block_bytes: u32, head_len: usize, capacity: u64) -> Option<u64> {
    let count = meta::block_count(length, block_bytes)?;
    let last = length.checked_rem(u64::from(block_bytes))?;
    let whole = length.checked_sub(last)?;
    let body = whole.checked_add(units(last))?.checked_add(map_bytes(count))?;
    let meta = units(meta::image_bytes(head_len, usize::try_from(count).ok()?));
    body.checked_add(meta.checked_mul(2)?)?.checked_add(base_bytes(capacity))
}

/// The same for a packed one: its record, perhaps across one unit more, and the next one.
fn small_room_bytes(length: u64, head_len: usize, capacity: u64) -> Option<u64> {
    let record = units(record_bytes(head_len, length)).checked_add(UNIT_BYTES)?;
    record.checked_mul(2)?.checked_add(base_bytes(capacity))
}

/// What every store of this size has: the marker, its log, and what is kept for making room.
fn base_bytes(capacity: u64) -> u64 {
    UNIT_BYTES.saturating_add(log_bytes_max(capacity)).saturating_add(segment_bytes(capacity))
}

fn check_head(head: &Bytes) -> Result<(), WriteError> {
    match head.len() {
        bytes if bytes > HEAD_BYTES_MAX => Err(WriteError::HeadTooLarge { bytes }),
        _ => Ok(()),
    }
}
