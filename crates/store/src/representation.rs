//! One version of an object on disk: its blocks come in, its extents go out.
//!
//! Life of a block: `Absent` -> (room reserved) `Reserved` -> (written) `Held`. After a restart it
//! starts as `Unverified` and becomes `Held` or, when its checksum is wrong, `Reserved` again.
//! A write that fails leaves `Reserved`: part of it may be on the disk.
//!
//! Life of a representation: visible; then retired (replaced, removed or evicted: no metadata on
//! disk any more, still readable by those who hold it); dropped: its files become remains.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::Bytes;

use crate::meta::{Meta, UNIT_BYTES};
use crate::names::{Key, Part, Place};
use crate::shared::{Remains, Shared, WriteError, lock, units};

/// Bytes read at a time when a block is verified.
const VERIFY_BYTES: usize = 128 * 1024;
/// Blocks that one further unit of the file system's own map of a sparse file is counted for;
/// the first few are in the inode.
const MAPPED_BLOCKS: u32 = 256;
const MAPPED_IN_INODE: u32 = 4;

/// One version of an object: head, length and the blocks held so far.
pub struct Representation {
    shared: Arc<Shared>,
    place: Place,
    length: u64,
    block_bytes: u32,
    head: RwLock<Bytes>,
    blocks: Mutex<Blocks>,
    /// Held while a block is written: blocks of one representation are written one by one.
    writing: Mutex<()>,
    on_disk: Mutex<OnDisk>,
    file: Mutex<Option<Opened>>,
    visited: AtomicBool,
    dirty: AtomicBool,
}

struct Blocks {
    slots: Box<[Slot]>,
    /// Bytes reserved for the body file.
    reserved_bytes: u64,
    /// Whether a block was written since the last flush began.
    unsynced: bool,
}

#[derive(Clone, Copy)]
struct Slot {
    state: State,
    crc: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Absent,
    Reserved,
    Unverified,
    Held,
}

struct OnDisk {
    /// Bytes reserved for the metadata file that is there; 0: none.
    meta_bytes: u64,
    /// Bytes reserved for the temporary metadata file, also while it could not be removed.
    temp_bytes: u64,
    /// No metadata is to be written any more.
    retired: bool,
}

struct Opened {
    file: Arc<File>,
    writable: bool,
}

/// A run of held bytes in a file. While it lives (or any other reference to the representation)
/// none of the representation's blocks is removed from the disk.
#[derive(Clone, Debug)]
pub struct Extent {
    /// The body file. It may outlive the extent, the bytes in it may not.
    pub file: Arc<File>,
    /// Where the run starts in the file, which is where it starts in the body.
    pub offset: u64,
    /// Bytes in the run, at least one.
    pub len: u64,
    /// Keeps the blocks on disk.
    pub representation: Arc<Representation>,
}

/// What is handed to the constructors: a new body file, or what a metadata file says.
pub(crate) struct Found {
    pub(crate) meta: Meta,
    /// Bytes counted for the body file.
    pub(crate) body_bytes: u64,
    /// Bytes counted for the metadata file.
    pub(crate) meta_bytes: u64,
}

impl Representation {
    pub(crate) fn create(
        shared: Arc<Shared>,
        place: Place,
        head: Bytes,
        length: u64,
        block_bytes: u32,
        file: File,
    ) -> Arc<Self> {
        let count = length.div_ceil(u64::from(block_bytes.max(1)));
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let meta = Meta { place, block_bytes, length, head, blocks: vec![None; count] };
        let rep = Self::new(shared, Found { meta, body_bytes: 0, meta_bytes: 0 });
        *lock(&rep.file) = Some(Opened { file: Arc::new(file), writable: true });
        let rep = Arc::new(rep);
        rep.shared.note_open(&rep);
        rep
    }

    /// A representation as it was found at the start: its blocks are still to be verified.
    pub(crate) fn recovered(shared: Arc<Shared>, found: Found) -> Arc<Self> {
        Arc::new(Self::new(shared, found))
    }

    fn new(shared: Arc<Shared>, found: Found) -> Self {
        let Found { meta, body_bytes, meta_bytes } = found;
        let slot = |held: &Option<u32>| match held {
            Some(crc) => Slot { state: State::Unverified, crc: *crc },
            None => Slot { state: State::Absent, crc: 0 },
        };
        let slots = meta.blocks.iter().map(slot).collect();
        Self {
            shared,
            place: meta.place,
            length: meta.length,
            block_bytes: meta.block_bytes,
            head: RwLock::new(meta.head),
            blocks: Mutex::new(Blocks { slots, reserved_bytes: body_bytes, unsynced: false }),
            writing: Mutex::new(()),
            on_disk: Mutex::new(OnDisk { meta_bytes, temp_bytes: 0, retired: false }),
            file: Mutex::new(None),
            visited: AtomicBool::new(false),
            dirty: AtomicBool::new(false),
        }
    }

    /// The key it was made for.
    pub fn key(&self) -> &Key {
        &self.place.key
    }

    /// The opaque head given at creation or by the last [`crate::Store::set_head`].
    pub fn head(&self) -> Bytes {
        self.head.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Bytes of the whole body.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Number of blocks of the whole body; 0 for an empty body.
    pub fn blocks(&self) -> u32 {
        u32::try_from(self.length.div_ceil(u64::from(self.block_bytes))).unwrap_or(u32::MAX)
    }

    /// Bytes of each block but the last.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Bytes of this block: `block_bytes`, less for the last one, 0 past the end.
    pub fn block_len(&self, block: u32) -> u32 {
        let left = self.length.saturating_sub(self.block_start(block));
        u32::try_from(left).map_or(self.block_bytes, |left| left.min(self.block_bytes))
    }

    /// Whether the block is held (perhaps still to be verified).
    pub fn has(&self, block: u32) -> bool {
        matches!(self.state(block), State::Held | State::Unverified)
    }

    /// Whether every block is held.
    pub fn is_complete(&self) -> bool {
        lock(&self.blocks).slots.iter().all(|slot| slot.is_held())
    }

    /// The runs of blocks not held, ascending.
    pub fn missing(&self) -> Vec<Range<u32>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for (block, slot) in (0..).zip(lock(&self.blocks).slots.iter()) {
            if slot.is_held() {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.end == block => run.end += 1,
                _ => runs.push(block..block + 1),
            }
        }
        runs
    }

    /// Whether the block is held but its checksum was not compared since the store was opened:
    /// [`Self::verify`] it off the worker threads before asking for its extent.
    pub fn verify_pending(&self, block: u32) -> bool {
        self.state(block) == State::Unverified
    }

    /// Reads the block and compares its checksum. `true`: held and good from now on. `false`: not
    /// held (a bad block has just become a miss). Blocks.
    pub fn verify(self: &Arc<Self>, block: u32) -> bool {
        let Some(Slot { state, crc }) = self.slot(block) else { return false };
        if state != State::Unverified {
            return state == State::Held;
        }
        let good = self
            .file_to_read()
            .is_some_and(|file| self.checksum(&file, block).is_ok_and(|found| found == Some(crc)));
        let mut blocks = lock(&self.blocks);
        let Some(slot) = blocks.slot_mut(block) else { return false };
        // Somebody may have verified or written it meanwhile.
        if slot.state != State::Unverified {
            return slot.state == State::Held;
        }
        slot.state = if good { State::Held } else { State::Reserved };
        drop(blocks);
        if !good {
            self.shared.counts.corrupt_blocks.fetch_add(1, Relaxed);
            self.mark_dirty();
        }
        good
    }

    /// Stores one block: exactly its bytes. One that is held already is left alone. Blocks.
    pub fn write_block(self: &Arc<Self>, block: u32, bytes: &[u8]) -> Result<(), WriteError> {
        let expected = self.block_len(block);
        if expected == 0 || u32::try_from(bytes.len()) != Ok(expected) {
            return Err(WriteError::WrongLength { block, expected, given: bytes.len() });
        }
        let crc = crc32c::crc32c(bytes);
        let _writing = lock(&self.writing);
        if let Some(held) = self.slot(block).filter(Slot::is_held) {
            if held.crc != crc {
                return Err(WriteError::Differs { block });
            }
            if held.state == State::Held {
                return Ok(());
            }
        }
        self.make_room(block)?;
        let file = self.file_to_write()?;
        let written = self.shared.disk.write_all_at(&file, bytes, self.block_start(block));
        written.map_err(|error| self.shared.refused("write a block", error))?;
        {
            let mut blocks = lock(&self.blocks);
            blocks.unsynced = true;
            if let Some(slot) = blocks.slot_mut(block) {
                *slot = Slot { state: State::Held, crc };
            }
        }
        self.mark_dirty();
        Ok(())
    }

    /// The longest held and verified run that starts at `offset`, at most `len_max` bytes. `None`
    /// if the block at `offset` is not held or waits for [`Self::verify`], or if its file cannot
    /// be opened: then it is to be treated as a miss. Touches the disk only to open the file.
    pub fn extent(self: &Arc<Self>, offset: u64, len_max: u64) -> Option<Extent> {
        let limit = offset.saturating_add(len_max).min(self.length);
        let first = offset.checked_div(u64::from(self.block_bytes))?;
        let end = {
            let blocks = lock(&self.blocks);
            let run = blocks.slots.get(usize::try_from(first).ok()?..)?;
            let held = run.iter().zip(first..).take_while(|(slot, block)| {
                slot.state == State::Held && block * u64::from(self.block_bytes) < limit
            });
            (first + held.count() as u64).saturating_mul(u64::from(self.block_bytes)).min(limit)
        };
        let len = end.checked_sub(offset).filter(|len| *len > 0)?;
        let file = self.file_to_read()?;
        Some(Extent { file, offset, len, representation: Arc::clone(self) })
    }

    /// Whether all these bytes are held and none is in doubt: to be asked after bytes of an extent
    /// were read and before they are used, because a block may be lost while extents of it are
    /// about (a failed sync: the kernel may have put a hole in its place).
    pub fn still_holds(&self, offset: u64, len: u64) -> bool {
        let lost = |slot: &mut Slot| slot.state != State::Held;
        len > 0 && !lock(&self.blocks).within(self.span(offset, len)).any(lost)
    }

    /// These bytes could not be read: their blocks are verified before the next use, and are then
    /// held or a miss.
    pub fn doubt(&self, offset: u64, len: u64) {
        for slot in lock(&self.blocks).within(self.span(offset, len)) {
            if slot.state == State::Held {
                slot.state = State::Unverified;
            }
        }
    }

    /// The blocks that these bytes touch.
    fn span(&self, offset: u64, len: u64) -> Range<usize> {
        let block = |at: u64| at.checked_div(u64::from(self.block_bytes)).unwrap_or(u64::MAX);
        let last = block(offset.saturating_add(len.saturating_sub(1)));
        let index = |block: u64| usize::try_from(block).unwrap_or(usize::MAX);
        index(block(offset))..index(last.saturating_add(1))
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// For the eviction order: this was asked for.
    pub(crate) fn visit(&self) {
        // Mostly it is set already; then the cache line stays shared.
        if !self.visited.load(Relaxed) {
            self.visited.store(true, Relaxed);
        }
    }

    pub(crate) fn take_visited(&self) -> bool {
        self.visited.swap(false, Relaxed)
    }

    pub(crate) fn set_head(&self, head: Bytes) {
        *self.head.write().unwrap_or_else(PoisonError::into_inner) = head;
        self.mark_dirty();
    }

    pub(crate) fn mark_dirty(&self) {
        if !self.dirty.swap(true, Relaxed) {
            self.shared.note_dirty(self.place);
        }
    }

    /// What is to be written down now, and whether blocks of it are new. Whatever changes later
    /// marks the representation again.
    pub(crate) fn take_dirty(&self) -> (Meta, bool) {
        self.dirty.store(false, Relaxed);
        let mut blocks = lock(&self.blocks);
        let crc = |slot: &Slot| slot.is_held().then_some(slot.crc);
        let meta = Meta {
            place: self.place,
            block_bytes: self.block_bytes,
            length: self.length,
            head: self.head(),
            blocks: blocks.slots.iter().map(crc).collect(),
        };
        (meta, std::mem::take(&mut blocks.unsynced))
    }

    /// Whether blocks were written since the last flush began.
    pub(crate) fn is_unsynced(&self) -> bool {
        lock(&self.blocks).unsynced
    }

    /// Whether the next start would find metadata of it.
    pub(crate) fn is_published(&self) -> bool {
        lock(&self.on_disk).meta_bytes > 0
    }

    /// Reserves the bytes of a temporary metadata file; how many more that took, because one may
    /// have been left behind. For a flush, which holds `referring`. Blocks.
    pub(crate) fn reserve_temp(&self, bytes: u64) -> Result<u64, WriteError> {
        let more = bytes.saturating_sub(lock(&self.on_disk).temp_bytes);
        self.shared.reserve_referring(more)?;
        lock(&self.on_disk).temp_bytes += more;
        Ok(more)
    }

    /// Puts the temporary metadata file in its place. `Ok(false)`: the representation was retired
    /// meanwhile and nothing was done.
    pub(crate) fn publish(&self) -> io::Result<bool> {
        let mut on_disk = lock(&self.on_disk);
        if on_disk.retired {
            return Ok(false);
        }
        let (from, to) = (self.place.path(Part::MetaTemp), self.place.path(Part::Meta));
        self.shared.disk.rename(&from, &to)?;
        let temp_bytes = std::mem::take(&mut on_disk.temp_bytes);
        self.shared.release(std::mem::replace(&mut on_disk.meta_bytes, temp_bytes));
        self.shared.note_renamed();
        Ok(true)
    }

    /// Gives back at most `bytes` of what was reserved for the temporary metadata file.
    pub(crate) fn release_temp(&self, bytes: u64) {
        let mut on_disk = lock(&self.on_disk);
        let bytes = bytes.min(on_disk.temp_bytes);
        on_disk.temp_bytes -= bytes;
        self.shared.release(bytes);
    }

    /// Takes it out of what the next start finds. Its blocks stay for those who hold it; its
    /// files go when the last of them has let go. Even when the disk refuses it counts as
    /// retired, and its metadata file is tried again with the rest. Blocks.
    pub(crate) fn retire(&self) -> io::Result<()> {
        let mut on_disk = lock(&self.on_disk);
        on_disk.retired = true;
        if on_disk.meta_bytes > 0 {
            self.shared.remove_file(self.place, Part::Meta)?;
            self.shared.release(std::mem::take(&mut on_disk.meta_bytes));
        }
        Ok(())
    }

    /// Undoes a [`Self::retire`] that the disk refused.
    pub(crate) fn revive(&self) {
        lock(&self.on_disk).retired = false;
    }

    pub(crate) fn close_file(&self) {
        *lock(&self.file) = None;
    }

    fn state(&self, block: u32) -> State {
        self.slot(block).map_or(State::Absent, |slot| slot.state)
    }

    fn slot(&self, block: u32) -> Option<Slot> {
        lock(&self.blocks).slots.get(usize::try_from(block).ok()?).copied()
    }

    fn block_start(&self, block: u32) -> u64 {
        u64::from(block) * u64::from(self.block_bytes)
    }

    /// Reserves the bytes of a block unless it has them already. The block is no longer held
    /// afterwards: its bytes are about to be overwritten.
    fn make_room(&self, block: u32) -> Result<(), WriteError> {
        let (absent, first) = {
            let blocks = lock(&self.blocks);
            let absent = blocks.slot(block).is_some_and(|slot| slot.state == State::Absent);
            (absent, blocks.reserved_bytes == 0)
        };
        let mut bytes = 0;
        if absent {
            bytes = units(u64::from(self.block_len(block)));
            if first {
                bytes += map_bytes(self.blocks());
            }
            self.shared.reserve(bytes)?;
        }
        let mut blocks = lock(&self.blocks);
        blocks.reserved_bytes += bytes;
        if let Some(slot) = blocks.slot_mut(block) {
            slot.state = State::Reserved;
        }
        Ok(())
    }

    fn checksum(&self, file: &File, block: u32) -> io::Result<Option<u32>> {
        let len = usize::try_from(self.block_len(block)).unwrap_or(usize::MAX);
        let mut buffer = vec![0; len.min(VERIFY_BYTES)];
        let (mut crc, mut done) = (0, 0);
        while done < len {
            let want = (len - done).min(buffer.len());
            let Some(window) = buffer.get_mut(..want) else { return Ok(None) };
            let offset = self.block_start(block) + done as u64;
            let got = match self.shared.disk.read_at(file, window, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            let Some(read) = window.get(..got).filter(|read| !read.is_empty()) else {
                return Ok(None);
            };
            crc = crc32c::crc32c_append(crc, read);
            done += got;
        }
        Ok(Some(crc))
    }

    /// The body file for reading. `None` when it cannot be had; when it is gone altogether, so
    /// are all blocks.
    fn file_to_read(self: &Arc<Self>) -> Option<Arc<File>> {
        match self.opened(false) {
            Ok(file) => Some(file),
            Err(error) => {
                if error.kind() == io::ErrorKind::NotFound {
                    self.lose_all();
                }
                None
            }
        }
    }

    fn file_to_write(self: &Arc<Self>) -> Result<Arc<File>, WriteError> {
        self.opened(true).map_err(|error| self.shared.refused("open a file for writing", error))
    }

    fn opened(self: &Arc<Self>, to_write: bool) -> io::Result<Arc<File>> {
        {
            let kept = lock(&self.file);
            if let Some(opened) = kept.as_ref().filter(|opened| opened.writable || !to_write) {
                return Ok(Arc::clone(&opened.file));
            }
        }
        let path = self.place.path(Part::Body);
        let disk = &self.shared.disk;
        let file = Arc::new(self.shared.with_file_to_spare(|| match to_write {
            true => disk.open_write(&path),
            false => disk.open_read(&path),
        })?);
        let opened = Opened { file: Arc::clone(&file), writable: to_write };
        let before = lock(&self.file).replace(opened);
        if before.is_none() {
            self.shared.note_open(self);
        }
        Ok(file)
    }

    /// The body file has vanished or is in doubt: nothing is held any more.
    pub(crate) fn lose_all(&self) {
        for slot in &mut lock(&self.blocks).slots {
            if slot.is_held() {
                slot.state = State::Reserved;
                self.shared.counts.corrupt_blocks.fetch_add(1, Relaxed);
            }
        }
        self.mark_dirty();
    }
}

/// Bytes counted for the file system's own map of a sparse body.
pub(crate) fn map_bytes(blocks: u32) -> u64 {
    match blocks {
        0..=MAPPED_IN_INODE => 0,
        more => u64::from(more.div_ceil(MAPPED_BLOCKS)) * UNIT_BYTES,
    }
}

impl Drop for Representation {
    fn drop(&mut self) {
        let on_disk = self.on_disk.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !on_disk.retired {
            return;
        }
        let blocks = self.blocks.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.shared.leave_remains(Remains {
            place: self.place,
            meta_bytes: on_disk.meta_bytes,
            temp_bytes: on_disk.temp_bytes,
            body_bytes: blocks.reserved_bytes,
        });
    }
}

impl std::fmt::Debug for Representation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Place { key, id } = self.place;
        write!(f, "Representation({key}.{id:016x}, {} bytes)", self.length)
    }
}

impl Blocks {
    fn slot(&self, block: u32) -> Option<&Slot> {
        self.slots.get(usize::try_from(block).ok()?)
    }

    fn slot_mut(&mut self, block: u32) -> Option<&mut Slot> {
        self.slots.get_mut(usize::try_from(block).ok()?)
    }

    fn within(&mut self, span: Range<usize>) -> impl Iterator<Item = &mut Slot> {
        let span = span.start..span.end.min(self.slots.len());
        self.slots.get_mut(span).unwrap_or_default().iter_mut()
    }
}

impl Slot {
    fn is_held(&self) -> bool {
        matches!(self.state, State::Held | State::Unverified)
    }
}
