//! The body of a representation in a file of its own: sparse, byte N of the body at offset N.
//!
//! Life of a block: `Absent` -> (room reserved) `Reserved` -> (written) `Held`. When it comes from
//! the disk it starts as `Unverified` and becomes `Held` or, when its checksum is wrong, `Reserved`
//! again. A write that fails leaves `Reserved`: part of it may be on the disk. A block that is
//! trimmed away is `Absent` at once, and its room comes back when the file has a hole there.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::meta::{Meta, UNIT_BYTES};
use crate::names::Part;
use crate::representation::{Body, Extent, Representation};
use crate::shared::{WriteError, lock, units};

/// Bytes read at a time when a block is verified.
const VERIFY_BYTES: usize = 128 * 1024;
/// Blocks that one further unit of the file system's own map of a sparse file is counted for;
/// the first few are in the inode.
const MAPPED_BLOCKS: u32 = 256;
const MAPPED_IN_INODE: u32 = 4;
/// Blocks from which on a representation is trimmed rather than evicted while parts of it are used.
const GIANT_BLOCKS: u32 = 8;

pub(crate) struct FileBody {
    blocks: Mutex<Blocks>,
    /// Blocks held, changed with `blocks` locked.
    held: AtomicU32,
    /// Held while a block is written: blocks of one representation are written one by one.
    writing: Mutex<()>,
    on_disk: Mutex<OnDisk>,
    file: Mutex<Option<Opened>>,
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
    crc: u32,
    state: State,
    /// An extent of it was given since the hand of eviction came by.
    used: bool,
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

/// What a body file and its metadata file were found to be.
pub(crate) struct Found<'a> {
    pub(crate) meta: &'a Meta,
    /// Bytes counted for the body file.
    pub(crate) body_bytes: u64,
    /// Bytes counted for the metadata file.
    pub(crate) meta_bytes: u64,
    /// Its blocks were all verified by this process.
    pub(crate) verified: bool,
}

impl FileBody {
    /// A new one of so many blocks, none of which is held, with its file.
    pub(crate) fn create(blocks: u32, file: File) -> Self {
        let absent = Slot { state: State::Absent, crc: 0, used: false };
        let slots = std::iter::repeat_n(absent, usize::try_from(blocks).unwrap_or(0)).collect();
        let body = Self::of(slots, 0, 0);
        *lock(&body.file) = Some(Opened { file: Arc::new(file), writable: true });
        body
    }

    pub(crate) fn found(found: &Found<'_>) -> Self {
        let held = if found.verified { State::Held } else { State::Unverified };
        let slot = |crc: &Option<u32>| match crc {
            Some(crc) => Slot { state: held, crc: *crc, used: false },
            None => Slot { state: State::Absent, crc: 0, used: false },
        };
        let slots = found.meta.blocks.iter().map(slot).collect();
        Self::of(slots, found.body_bytes, found.meta_bytes)
    }

    fn of(slots: Box<[Slot]>, body_bytes: u64, meta_bytes: u64) -> Self {
        let held = slots.iter().filter(|slot| slot.is_held()).count();
        Self {
            blocks: Mutex::new(Blocks { slots, reserved_bytes: body_bytes, unsynced: false }),
            held: AtomicU32::new(u32::try_from(held).unwrap_or(u32::MAX)),
            writing: Mutex::new(()),
            on_disk: Mutex::new(OnDisk { meta_bytes, temp_bytes: 0, retired: false }),
            file: Mutex::new(None),
        }
    }

    pub(crate) fn has(&self, block: u32) -> bool {
        matches!(self.state(block), State::Held | State::Unverified)
    }

    pub(crate) fn is_complete(&self) -> bool {
        usize::try_from(self.held.load(Relaxed)) == Ok(lock(&self.blocks).slots.len())
    }

    pub(crate) fn missing(&self) -> Vec<Range<u32>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for (block, slot) in (0..).zip(lock(&self.blocks).slots.iter()) {
            if slot.is_held() {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.end == block => run.end = block.saturating_add(1),
                _ => runs.push(block..block.saturating_add(1)),
            }
        }
        runs
    }

    pub(crate) fn verify_pending(&self, block: u32) -> bool {
        self.state(block) == State::Unverified
    }

    pub(crate) fn is_verified(&self) -> bool {
        lock(&self.blocks).slots.iter().all(|slot| slot.state != State::Unverified)
    }

    pub(crate) fn still_holds(&self, span: Range<usize>, len: u64) -> bool {
        let lost = |slot: &mut Slot| slot.state != State::Held;
        len > 0 && !lock(&self.blocks).within(span).any(lost)
    }

    pub(crate) fn doubt(&self, span: Range<usize>) {
        for slot in lock(&self.blocks).within(span) {
            if slot.state == State::Held {
                slot.state = State::Unverified;
            }
        }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        let slots = lock(&self.blocks).slots.len();
        u64::try_from(slots.saturating_mul(size_of::<Slot>())).unwrap_or(u64::MAX)
    }

    /// Units counted for all its files.
    pub(crate) fn units(&self) -> u32 {
        let on_disk = lock(&self.on_disk);
        let files = on_disk.meta_bytes.saturating_add(on_disk.temp_bytes);
        let bytes = lock(&self.blocks).reserved_bytes.saturating_add(files);
        u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
    }

    /// Whether blocks were written since the last flush began.
    pub(crate) fn is_unsynced(&self) -> bool {
        lock(&self.blocks).unsynced
    }

    /// Whether the next start would find metadata of it.
    pub(crate) fn is_published(&self) -> bool {
        lock(&self.on_disk).meta_bytes > 0
    }

    /// Gives back at most `bytes` of what was reserved for the temporary metadata file.
    pub(crate) fn take_temp(&self, bytes: u64) -> u64 {
        let mut on_disk = lock(&self.on_disk);
        let bytes = bytes.min(on_disk.temp_bytes);
        on_disk.temp_bytes = on_disk.temp_bytes.saturating_sub(bytes);
        bytes
    }

    /// Bytes that a temporary metadata file of this size needs besides those it has.
    pub(crate) fn temp_wanted(&self, bytes: u64) -> u64 {
        bytes.saturating_sub(lock(&self.on_disk).temp_bytes)
    }

    pub(crate) fn add_temp(&self, bytes: u64) {
        let mut on_disk = lock(&self.on_disk);
        on_disk.temp_bytes = on_disk.temp_bytes.saturating_add(bytes);
    }

    /// Undoes a retirement that the disk refused.
    pub(crate) fn revive(&self) {
        lock(&self.on_disk).retired = false;
    }

    pub(crate) fn close(&self) {
        *lock(&self.file) = None;
    }

    /// All its blocks are in doubt beyond help; how many were held.
    pub(crate) fn lose_all(&self) -> usize {
        let mut blocks = lock(&self.blocks);
        let held = blocks.slots.iter_mut().filter(|slot| slot.is_held());
        let lost = held.map(|slot| slot.state = State::Reserved).count();
        self.held.store(0, Relaxed);
        lost
    }

    /// Bytes reserved for metadata, temporary metadata and body when it is over and was retired.
    pub(crate) fn remains(&mut self) -> Option<(u64, u64, u64)> {
        let on_disk = self.on_disk.get_mut().unwrap_or_else(PoisonError::into_inner);
        let blocks = self.blocks.get_mut().unwrap_or_else(PoisonError::into_inner);
        let bytes = (on_disk.meta_bytes, on_disk.temp_bytes, blocks.reserved_bytes);
        on_disk.retired.then_some(bytes)
    }

    /// Whether it is a giant of which some blocks are used and others are not.
    pub(crate) fn can_be_trimmed(&self) -> bool {
        let blocks = lock(&self.blocks);
        if self.held.load(Relaxed) < GIANT_BLOCKS {
            return false;
        }
        let is_used = |used| blocks.slots.iter().any(|slot| slot.is_held() && slot.used == used);
        is_used(true) && is_used(false)
    }

    /// The metadata as it will be after [`Self::trim`].
    pub(crate) fn crcs_of_used(&self) -> Vec<Option<u32>> {
        let crc = |slot: &Slot| (slot.is_held() && slot.used).then_some(slot.crc);
        lock(&self.blocks).slots.iter().map(crc).collect()
    }

    /// Forgets the blocks that were not used, and which were; gives those forgotten.
    pub(crate) fn trim(&self) -> Vec<u32> {
        let mut blocks = lock(&self.blocks);
        let mut unused = Vec::new();
        for (block, slot) in (0..).zip(blocks.slots.iter_mut()) {
            if slot.is_held() && !std::mem::take(&mut slot.used) {
                slot.state = State::Absent;
                unused.push(block);
            }
        }
        let gone = u32::try_from(unused.len()).unwrap_or(u32::MAX);
        self.held.fetch_sub(gone, Relaxed);
        unused
    }

    fn state(&self, block: u32) -> State {
        self.slot(block).map_or(State::Absent, |slot| slot.state)
    }

    fn slot(&self, block: u32) -> Option<Slot> {
        lock(&self.blocks).slots.get(usize::try_from(block).ok()?).copied()
    }

    fn set(&self, block: u32, change: impl FnOnce(&mut Slot)) {
        let mut blocks = lock(&self.blocks);
        if let Some(slot) = blocks.slot_mut(block) {
            let before = slot.is_held();
            change(slot);
            match (before, slot.is_held()) {
                (false, true) => self.held.fetch_add(1, Relaxed),
                (true, false) => self.held.fetch_sub(1, Relaxed),
                _ => 0,
            };
        }
    }
}

impl Representation {
    pub(crate) fn file_body(&self) -> Option<&FileBody> {
        match &self.body {
            Body::File(body) => Some(body),
            Body::Packed(_) => None,
        }
    }

    pub(crate) fn verify_in_file(self: &Arc<Self>, body: &FileBody, block: u32) -> bool {
        let Some(Slot { state, crc, .. }) = body.slot(block) else { return false };
        if state != State::Unverified {
            return state == State::Held;
        }
        let good = self.is_as_written(body, block, crc).unwrap_or(false);
        self.judge(body, block, State::Unverified, good)
    }

    /// Reads a held block again, for the scrub; `None`: it is not held, or the disk does not answer.
    pub(crate) fn recheck(self: &Arc<Self>, body: &FileBody, block: u32) -> Option<bool> {
        let Slot { state, crc, .. } = body.slot(block).filter(Slot::is_held)?;
        let good = self.is_as_written(body, block, crc)?;
        Some(self.judge(body, block, state, good))
    }

    /// Reads a held block whole; one that is not as written becomes a miss.
    pub(crate) fn read_checked_in_file(
        self: &Arc<Self>,
        body: &FileBody,
        block: u32,
    ) -> Option<Bytes> {
        let Slot { state, crc, .. } = body.slot(block).filter(Slot::is_held)?;
        let len = usize::try_from(self.block_len(block)).ok()?;
        let file = self.file_to_read(body)?;
        let bytes = self.shared.read_exact(&file, self.block_start(block), len).ok();
        let good = bytes.filter(|bytes| crc32c::crc32c(bytes) == crc);
        self.judge(body, block, state, good.is_some());
        good.map(Bytes::from)
    }

    /// `None`: the disk does not answer.
    fn is_as_written(self: &Arc<Self>, body: &FileBody, block: u32, crc: u32) -> Option<bool> {
        let file = self.file_to_read(body)?;
        let found = self.checksum(&file, block).inspect_err(|error| self.shared.note_device(error));
        found.map(|found| found == Some(crc)).ok()
    }

    /// Takes over what was found of a block that was in this state; whether it is held now.
    fn judge(&self, body: &FileBody, block: u32, before: State, good: bool) -> bool {
        let (mut is_held, mut is_bad) = (false, false);
        body.set(block, |slot| {
            // Somebody may have verified, written or trimmed it meanwhile.
            if slot.state == before {
                slot.state = if good { State::Held } else { State::Reserved };
                is_bad = !good;
            }
            is_held = slot.state == State::Held;
        });
        if is_bad {
            self.shared.count_corrupt();
            self.mark_dirty();
        }
        is_held
    }

    pub(crate) fn write_to_file(
        self: &Arc<Self>,
        body: &FileBody,
        block: u32,
        bytes: &[u8],
    ) -> Result<(), WriteError> {
        let crc = crc32c::crc32c(bytes);
        let _writing = lock(&body.writing);
        if let Some(held) = body.slot(block).filter(Slot::is_held) {
            if held.crc != crc {
                return Err(WriteError::Differs { block });
            }
            if held.state == State::Held {
                return Ok(());
            }
        }
        self.make_room(body, block)?;
        let written = self.file_to_write(body).and_then(|file| {
            let written = self.shared.disk.write_all_at(&file, bytes, self.block_start(block));
            written.map_err(|error| self.shared.refused("write a block", error))
        });
        match written {
            Ok(()) => self.hold(body, block, crc),
            // What is counted for it has changed.
            Err(_) => self.mark_dirty(),
        }
        written
    }

    /// A block is there. Whoever sees that can count on the next flush to write it down, and on a
    /// failed sync to lose it: all of it changes at once.
    fn hold(&self, body: &FileBody, block: u32, crc: u32) {
        let mut blocks = lock(&body.blocks);
        let Some(slot) = blocks.slot_mut(block) else { return };
        if !slot.is_held() {
            body.held.fetch_add(1, Relaxed);
        }
        *slot = Slot { state: State::Held, crc, used: slot.used };
        blocks.unsynced = true;
        self.mark_dirty();
    }

    /// Reserves the bytes of a block unless it has them already. The block is no longer held
    /// afterwards: its bytes are about to be overwritten.
    fn make_room(&self, body: &FileBody, block: u32) -> Result<(), WriteError> {
        let (absent, first) = {
            let blocks = lock(&body.blocks);
            let absent = blocks.slot(block).is_some_and(|slot| slot.state == State::Absent);
            (absent, blocks.reserved_bytes == 0)
        };
        let mut bytes = 0;
        if absent {
            bytes = units(u64::from(self.block_len(block)));
            if first {
                bytes = bytes.saturating_add(map_bytes(self.blocks()));
            }
            self.shared.reserve(bytes)?;
        }
        {
            let mut blocks = lock(&body.blocks);
            blocks.reserved_bytes = blocks.reserved_bytes.saturating_add(bytes);
        }
        body.set(block, |slot| slot.state = State::Reserved);
        Ok(())
    }

    pub(crate) fn extent_of_file(
        self: &Arc<Self>,
        body: &FileBody,
        offset: u64,
        len_max: u64,
    ) -> Option<Extent> {
        let block_bytes = u64::from(self.block_bytes);
        let limit = offset.saturating_add(len_max).min(self.length);
        let first = offset.checked_div(block_bytes)?;
        let end = {
            let mut blocks = lock(&body.blocks);
            let run = blocks.slots.get_mut(usize::try_from(first).ok()?..)?;
            let mut end = first;
            for slot in run {
                if slot.state != State::Held || end.saturating_mul(block_bytes) >= limit {
                    break;
                }
                slot.used = true;
                end = end.saturating_add(1);
            }
            end.saturating_mul(block_bytes).min(limit)
        };
        let len = end.checked_sub(offset).filter(|len| *len > 0)?;
        let file = self.file_to_read(body)?;
        Some(Extent { file, offset, at: offset, len, representation: Arc::clone(self) })
    }

    /// What is to be written down now, and whether blocks of it are new. Whatever changes later
    /// marks the representation again.
    pub(crate) fn take_dirty(&self, body: &FileBody) -> (Meta, bool) {
        self.clear_dirty();
        let mut blocks = lock(&body.blocks);
        let crc = |slot: &Slot| slot.is_held().then_some(slot.crc);
        let crcs = blocks.slots.iter().map(crc).collect();
        let is_new = std::mem::take(&mut blocks.unsynced);
        drop(blocks);
        (self.meta(crcs), is_new)
    }

    pub(crate) fn meta(&self, blocks: Vec<Option<u32>>) -> Meta {
        Meta {
            place: self.place,
            block_bytes: self.block_bytes,
            length: self.length,
            head: self.head(),
            blocks,
        }
    }

    /// Puts the temporary metadata file in its place. `Ok(false)`: the representation was retired
    /// meanwhile and nothing was done.
    pub(crate) fn publish(&self, body: &FileBody) -> io::Result<bool> {
        let mut on_disk = lock(&body.on_disk);
        if on_disk.retired {
            return Ok(false);
        }
        let (from, to) = (self.place.path(Part::MetaTemp), self.place.path(Part::Meta));
        self.shared.disk.rename(&from, &to)?;
        let temp_bytes = std::mem::take(&mut on_disk.temp_bytes);
        self.shared.release(std::mem::replace(&mut on_disk.meta_bytes, temp_bytes));
        self.shared.note_changed();
        Ok(true)
    }

    pub(crate) fn retire_file(&self, body: &FileBody) -> io::Result<()> {
        let mut on_disk = lock(&body.on_disk);
        on_disk.retired = true;
        if on_disk.meta_bytes > 0 {
            self.shared.remove_file(self.place, Part::Meta)?;
            self.shared.release(std::mem::take(&mut on_disk.meta_bytes));
        }
        Ok(())
    }

    /// Makes holes where blocks were that [`FileBody::trim`] gave; what of them has been written
    /// again meanwhile stays. Gives the bytes that came back. Blocks.
    pub(crate) fn punch(self: &Arc<Self>, body: &FileBody, blocks: &[u32]) -> io::Result<u64> {
        let mut freed = 0u64;
        let file = self.opened(body, true);
        let mut refused = file.as_ref().err().map(|error| io::Error::from(error.kind()));
        for block in blocks {
            let _writing = lock(&body.writing);
            let bytes = units(u64::from(self.block_len(*block)));
            if body.state(*block) == State::Absent {
                if let (Ok(file), None) = (&file, &refused) {
                    let start = self.block_start(*block);
                    refused = self.shared.disk.punch(file, start, bytes).err();
                }
                if refused.is_some() {
                    // It may have its bytes still: they stay counted.
                    body.set(*block, |slot| slot.state = State::Reserved);
                    continue;
                }
            }
            // Who has written it again has reserved anew.
            let mut held = lock(&body.blocks);
            held.reserved_bytes = held.reserved_bytes.saturating_sub(bytes);
            drop(held);
            self.shared.release(bytes);
            freed = freed.saturating_add(bytes);
            self.shared.note_changed();
        }
        refused.map_or(Ok(freed), Err)
    }

    fn checksum(&self, file: &File, block: u32) -> io::Result<Option<u32>> {
        let len = usize::try_from(self.block_len(block)).unwrap_or(usize::MAX);
        let mut buffer = vec![0; len.min(VERIFY_BYTES)];
        let (mut crc, mut done) = (0, 0usize);
        while done < len {
            let want = len.saturating_sub(done).min(buffer.len());
            let Some(window) = buffer.get_mut(..want) else { return Ok(None) };
            let offset = self.block_start(block).saturating_add(done as u64);
            let got = match self.shared.disk.read_at(file, window, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            let Some(read) = window.get(..got).filter(|read| !read.is_empty()) else {
                return Ok(None);
            };
            crc = crc32c::crc32c_append(crc, read);
            done = done.saturating_add(got);
        }
        Ok(Some(crc))
    }

    /// The body file for reading. `None` when it cannot be had; when it is gone altogether, so
    /// are all blocks.
    fn file_to_read(self: &Arc<Self>, body: &FileBody) -> Option<Arc<File>> {
        match self.opened(body, false) {
            Ok(file) => Some(file),
            Err(error) => {
                if error.kind() == io::ErrorKind::NotFound {
                    self.lose_all();
                }
                None
            }
        }
    }

    fn file_to_write(self: &Arc<Self>, body: &FileBody) -> Result<Arc<File>, WriteError> {
        let opened = self.opened(body, true);
        opened.map_err(|error| self.shared.refused("open a file for writing", error))
    }

    fn opened(self: &Arc<Self>, body: &FileBody, to_write: bool) -> io::Result<Arc<File>> {
        {
            let kept = lock(&body.file);
            if let Some(opened) = kept.as_ref().filter(|opened| opened.writable || !to_write) {
                return Ok(Arc::clone(&opened.file));
            }
        }
        let path = self.place.path(Part::Body);
        let disk = &self.shared.disk;
        let file = self.shared.with_file_to_spare(|| match to_write {
            true => disk.open_write(&path),
            false => disk.open_read(&path),
        });
        let file = Arc::new(match file {
            Err(error) if to_write && error.kind() == io::ErrorKind::NotFound => {
                // Somebody has removed it: it begins anew, without what it held.
                self.lose_all();
                self.shared.create_body(self.place, self.length)?
            }
            file => file?,
        });
        let opened = Opened { file: Arc::clone(&file), writable: to_write };
        let before = lock(&body.file).replace(opened);
        if before.is_none() {
            self.shared.note_open(self);
        }
        Ok(file)
    }
}

/// Bytes counted for the file system's own map of a sparse body.
pub(crate) fn map_bytes(blocks: u32) -> u64 {
    match blocks {
        0..=MAPPED_IN_INODE => 0,
        more => u64::from(more.div_ceil(MAPPED_BLOCKS)).saturating_mul(UNIT_BYTES),
    }
}

/// Bytes that the held blocks of a body occupy.
pub(crate) fn held_bytes(meta: &Meta) -> u64 {
    let block = u64::from(meta.block_bytes);
    let held = (0u64..).zip(&meta.blocks).filter(|(_, crc)| crc.is_some());
    let bytes =
        held.map(|(at, _)| units(meta.length.saturating_sub(at.saturating_mul(block)).min(block)));
    let count = u32::try_from(meta.blocks.len()).unwrap_or(u32::MAX);
    bytes.fold(0, u64::saturating_add).saturating_add(map_bytes(count))
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
