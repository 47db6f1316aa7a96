//! One version of an object: its blocks come in, its extents go out.
//!
//! Where the body is: in a file of its own (`file_body`), or, when it is small, in a record of a
//! segment (`packed`).
//!
//! Life of a representation: visible; then retired (replaced, removed or evicted: the next start
//! does not find it, those who hold it still read it); dropped: its files become remains. Between
//! uses it may leave memory and be loaded again.

use std::any::Any;
use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwapOption;
use bytes::Bytes;

use crate::file_body::FileBody;
use crate::names::{Key, Place};
use crate::packed::PackedBody;
use crate::shared::{Remains, Shared, WriteError, lock};

/// Asked for since the hand of eviction came by.
const USED: u8 = 1;
/// Asked for since the walk over what is in memory came by.
const TOUCHED: u8 = 2;
/// Asked for since it came into memory, or lately before that.
const ASKED: u8 = 4;
/// Asked for twice.
const HOT: u8 = 8;

/// One version of an object: head, length and the blocks held so far.
pub struct Representation {
    pub(crate) shared: Arc<Shared>,
    pub(crate) place: Place,
    pub(crate) length: u64,
    pub(crate) block_bytes: u32,
    head: Mutex<Bytes>,
    /// What its user has made of the head; changed while the head is locked.
    reading: ArcSwapOption<Arc<dyn Reading>>,
    pub(crate) body: Body,
    marks: AtomicU8,
    dirty: AtomicBool,
    /// Bytes of memory that it is counted with.
    counted: AtomicU64,
}

/// What a user of the store has made of a head, kept beside it ([`Representation::read_head`]).
pub trait Reading: Any + Send + Sync {
    /// Bytes of memory that it takes.
    fn memory_bytes(&self) -> usize;
}

pub(crate) enum Body {
    File(FileBody),
    Packed(PackedBody),
}

/// A run of held bytes in a file. While it lives (or any other reference to the representation)
/// none of the representation's blocks is removed from the disk.
#[derive(Clone, Debug)]
pub struct Extent {
    /// The file with the bytes. It may outlive the extent, the bytes in it may not.
    pub file: Arc<File>,
    /// Where the run starts in the file.
    pub offset: u64,
    /// Where the run starts in the body.
    pub at: u64,
    /// Bytes in the run, at least one.
    pub len: u64,
    /// Keeps the blocks on disk.
    pub representation: Arc<Representation>,
}

impl Representation {
    pub(crate) fn new(
        shared: Arc<Shared>,
        place: Place,
        length: u64,
        block_bytes: u32,
        head: Bytes,
        body: Body,
    ) -> Arc<Self> {
        Arc::new(Self {
            shared,
            place,
            length,
            block_bytes,
            head: Mutex::new(head),
            reading: ArcSwapOption::empty(),
            body,
            marks: AtomicU8::new(0),
            dirty: AtomicBool::new(false),
            counted: AtomicU64::new(0),
        })
    }

    /// The key it was made for.
    pub fn key(&self) -> &Key {
        &self.place.key
    }

    /// The opaque head given at creation or by the last [`crate::Store::set_head`].
    pub fn head(&self) -> Bytes {
        lock(&self.head).clone()
    }

    /// What `read` makes of the head. It is kept for the next time, until there is another head, when
    /// the representation is asked for often and there is memory to spare; so there is one type of
    /// readings for a store, and `read` depends on nothing but the head and the length.
    pub fn read_head<T: Reading>(&self, read: impl FnOnce(Bytes) -> T) -> Arc<T> {
        if let Some(known) = &*self.reading.load() {
            let known: Arc<dyn Any + Send + Sync> = Arc::<dyn Reading>::clone(known);
            if let Ok(known) = Arc::downcast(known) {
                return known;
            }
        }
        let bytes = self.head();
        let reading = Arc::new(read(bytes.clone()));
        if self.is_hot() {
            self.keep_reading(&bytes, Arc::clone(&reading));
        }
        reading
    }

    /// Keeps what was made of these bytes, if they are still the head.
    fn keep_reading<T: Reading>(&self, bytes: &Bytes, reading: Arc<T>) {
        let size = u64::try_from(reading.memory_bytes()).unwrap_or(u64::MAX);
        if !self.shared.live.grow(self, size) {
            return;
        }
        let head = lock(&self.head);
        // Another may have been quicker, or there is another head.
        if self.reading.load().is_none() && *head == *bytes {
            self.reading.store(Some(Arc::new(reading)));
        } else {
            drop(head);
            self.shared.live.shrink(self, size);
        }
    }

    /// Bytes of the whole body.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Whether it is packed with others rather than that it has a file of its own.
    pub fn is_packed(&self) -> bool {
        matches!(self.body, Body::Packed(_))
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
        match &self.body {
            Body::File(body) => body.has(block),
            Body::Packed(body) => block == 0 && body.has(),
        }
    }

    /// Whether every block is held.
    pub fn is_complete(&self) -> bool {
        match &self.body {
            Body::File(body) => body.is_complete(),
            Body::Packed(body) => self.length == 0 || body.has(),
        }
    }

    /// The runs of blocks not held, ascending.
    pub fn missing(&self) -> Vec<Range<u32>> {
        match &self.body {
            Body::File(body) => body.missing(),
            Body::Packed(_) if self.is_complete() => Vec::new(),
            Body::Packed(_) => std::iter::once(0..1).collect(),
        }
    }

    /// Whether the block is held but its checksum was not compared since the store was opened, or
    /// it is in doubt: [`Self::verify`] it off the worker threads before asking for its extent.
    pub fn verify_pending(&self, block: u32) -> bool {
        match &self.body {
            Body::File(body) => body.verify_pending(block),
            Body::Packed(body) => block == 0 && body.verify_pending(),
        }
    }

    /// Reads the block and compares its checksum. `true`: held and good from now on. `false`: not
    /// held (a bad block has just become a miss). Blocks.
    pub fn verify(self: &Arc<Self>, block: u32) -> bool {
        match &self.body {
            Body::File(body) => self.verify_in_file(body, block),
            Body::Packed(body) => block == 0 && self.verify_packed(body),
        }
    }

    /// Stores one block: exactly its bytes. One that is held already is left alone. Blocks.
    pub fn write_block(self: &Arc<Self>, block: u32, bytes: &[u8]) -> Result<(), WriteError> {
        let expected = self.block_len(block);
        if expected == 0 || u32::try_from(bytes.len()) != Ok(expected) {
            return Err(WriteError::WrongLength { block, expected, given: bytes.len() });
        }
        if !self.shared.tenure.is_ours() {
            return Err(WriteError::HandedOver);
        }
        match &self.body {
            Body::File(body) => self.write_to_file(body, block, bytes),
            Body::Packed(body) => self.write_packed(body, bytes),
        }
    }

    /// The longest held and verified run that starts at `offset`, at most `len_max` bytes. `None`
    /// if the block at `offset` is not held or waits for [`Self::verify`], or if its file cannot
    /// be opened: then it is to be treated as a miss. Also `None` once the store is handed over.
    /// Touches the disk only to open the file.
    pub fn extent(self: &Arc<Self>, offset: u64, len_max: u64) -> Option<Extent> {
        if self.is_handed_over() {
            return None;
        }
        match &self.body {
            Body::File(body) => self.extent_of_file(body, offset, len_max),
            Body::Packed(body) => self.extent_of_segment(body, offset, len_max),
        }
    }

    /// The whole body when it is in memory and not in doubt. Never touches the disk.
    pub fn memory(&self) -> Option<Bytes> {
        match &self.body {
            Body::File(_) => None,
            Body::Packed(body) => body.sound_memory(),
        }
    }

    /// Whether it is asked for so much that its body should be in memory: then
    /// [`Self::load_memory`] off the worker threads.
    pub fn wants_memory(&self) -> bool {
        match &self.body {
            Body::File(_) => false,
            Body::Packed(body) => {
                self.is_hot() && body.wants_memory() && self.shared.live.has_room(self.length)
            }
        }
    }

    /// Takes the body of a small representation into memory, if there is some to spare. Blocks.
    pub fn load_memory(&self) {
        if let Body::Packed(body) = &self.body {
            self.keep_in_memory(body);
        }
    }

    /// Whether all these bytes are held and none is in doubt: to be asked after bytes of an extent
    /// were read and before they are used, because a block may be lost while extents of it are
    /// about (a failed sync: the kernel may have put a hole in its place), and the store may be handed
    /// over.
    pub fn still_holds(&self, at: u64, len: u64) -> bool {
        !self.is_handed_over() && self.has_not_lost(at, len)
    }

    /// The same whoever has the store: for bytes that were used inside [`Self::while_held`].
    pub fn has_not_lost(&self, at: u64, len: u64) -> bool {
        match &self.body {
            Body::File(body) => body.still_holds(self.span(at, len), len),
            Body::Packed(body) => len > 0 && body.still_holds(),
        }
    }

    /// These bytes could not be read: their blocks are verified before the next use, and are then
    /// held or a miss.
    pub fn doubt(&self, at: u64, len: u64) {
        match &self.body {
            Body::File(body) => body.doubt(self.span(at, len)),
            Body::Packed(body) => body.doubt(),
        }
    }

    /// The blocks that these bytes touch.
    fn span(&self, at: u64, len: u64) -> Range<usize> {
        let block = |at: u64| at.checked_div(u64::from(self.block_bytes)).unwrap_or(u64::MAX);
        let last = block(at.saturating_add(len.saturating_sub(1)));
        let index = |block: u64| usize::try_from(block).unwrap_or(usize::MAX);
        index(block(at))..index(last.saturating_add(1))
    }

    pub(crate) fn block_start(&self, block: u32) -> u64 {
        u64::from(block).saturating_mul(u64::from(self.block_bytes))
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// It was asked for.
    pub(crate) fn visit(&self) {
        let is_first = self.marks.load(Relaxed) & ASKED == 0;
        self.mark(USED | TOUCHED | ASKED | if is_first { 0 } else { HOT });
    }

    /// It was brought into memory, or used there, for whoever is about to ask for it.
    pub(crate) fn touch(&self) {
        self.mark(USED | TOUCHED);
    }

    /// It was asked for before it came into memory this time.
    pub(crate) fn note_asked_before(&self) {
        self.mark(ASKED);
    }

    fn mark(&self, wanted: u8) {
        // Mostly they are set already; then the cache line stays shared.
        if self.marks.load(Relaxed) & wanted != wanted {
            self.marks.fetch_or(wanted, Relaxed);
        }
    }

    /// Whether it was asked for twice.
    pub(crate) fn is_hot(&self) -> bool {
        self.marks.load(Relaxed) & HOT != 0
    }

    /// Whether it was asked for since the hand of eviction came by.
    pub(crate) fn is_used(&self) -> bool {
        self.marks.load(Relaxed) & USED != 0
    }

    pub(crate) fn clear_used(&self) {
        self.marks.fetch_and(!USED, Relaxed);
    }

    pub(crate) fn take_touched(&self) -> bool {
        self.marks.fetch_and(!TOUCHED, Relaxed) & TOUCHED != 0
    }

    pub(crate) fn set_head(&self, bytes: Bytes) {
        let reading = {
            let mut head = lock(&self.head);
            *head = bytes;
            self.reading.swap(None)
        };
        if let Some(reading) = reading {
            let size = u64::try_from(reading.memory_bytes()).unwrap_or(u64::MAX);
            self.shared.live.shrink(self, size);
        }
        self.mark_dirty();
    }

    pub(crate) fn mark_dirty(&self) {
        if !self.dirty.swap(true, Relaxed) {
            self.shared.note_dirty(self.place);
        }
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.load(Relaxed)
    }

    pub(crate) fn clear_dirty(&self) {
        self.dirty.store(false, Relaxed);
    }

    /// Whether all it holds was verified in this process.
    pub(crate) fn is_verified(&self) -> bool {
        match &self.body {
            Body::File(body) => body.is_verified(),
            Body::Packed(body) => !body.verify_pending(),
        }
    }

    /// Whether everything about it is on the disk, so that it may leave memory.
    pub(crate) fn can_be_loaded(&self) -> bool {
        !self.is_dirty()
            && match &self.body {
                Body::File(body) => body.is_published(),
                Body::Packed(body) => body.has(),
            }
    }

    /// Bytes of memory it takes.
    fn footprint(&self) -> u64 {
        let body = match &self.body {
            Body::File(body) => body.memory_bytes(),
            Body::Packed(body) => body.memory_bytes(),
        };
        // What the index of the live ones takes for it is about as much as the pointers here.
        let own = size_of::<Self>().saturating_add(64).saturating_add(self.head().len());
        u64::try_from(own).unwrap_or(u64::MAX).saturating_add(body)
    }

    /// Its bytes of memory, which are counted from now on.
    pub(crate) fn count_in(&self) -> u64 {
        let bytes = self.footprint();
        self.counted.store(bytes, Relaxed);
        bytes
    }

    pub(crate) fn count_more(&self, bytes: u64) {
        self.counted.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn count_less(&self, bytes: u64) {
        self.counted.fetch_sub(bytes, Relaxed);
    }

    /// The bytes it was counted with, which it is no more.
    pub(crate) fn count_none(&self) -> u64 {
        self.counted.swap(0, Relaxed)
    }

    /// It is not visible any more: takes it out of what the next start finds. Its blocks stay for
    /// those who hold it; its files go when the last of them has let go. Even when the disk refuses
    /// it counts as retired, and its metadata file is tried again with the rest. Blocks.
    pub(crate) fn retire(&self) -> std::io::Result<()> {
        match &self.body {
            Body::File(body) => self.retire_file(body),
            Body::Packed(_) => Ok(()),
        }
    }

    /// Its blocks are in doubt beyond help: nothing is held any more.
    pub(crate) fn lose_all(&self) {
        let lost = match &self.body {
            Body::File(body) => body.lose_all(),
            Body::Packed(body) => body.lose(),
        };
        for _ in 0..lost {
            self.shared.count_corrupt();
        }
        self.mark_dirty();
    }

    pub(crate) fn close_file(&self) {
        if let Body::File(body) = &self.body {
            body.close();
        }
    }
}

impl Drop for Representation {
    fn drop(&mut self) {
        if let Body::File(body) = &mut self.body
            && let Some((meta_bytes, temp_bytes, body_bytes)) = body.remains()
        {
            let place = self.place;
            self.shared.leave_remains(Remains { place, meta_bytes, temp_bytes, body_bytes });
        }
    }
}

impl std::fmt::Debug for Representation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Place { key, id } = self.place;
        write!(f, "Representation({key}.{id:016x}, {} bytes)", self.length)
    }
}
