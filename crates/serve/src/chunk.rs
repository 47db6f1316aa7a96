//! What a body is made of on its way out: bytes in memory, or a part of a file that the connection
//! sends by itself.
//!
//! A file chunk is only a [mark](sys::sendfile) of so many bytes; what it stands for waits in the
//! [`Files`] of its connection, in the order of the chunks. So a chunk can pass through hyper, which
//! knows nothing of files, and its buffers and limits count as for any other.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Buf, Bytes};
use sys::sendfile::{MARK_BYTES, mark};

use crate::file_range::FileRange;

/// Bytes of one file chunk at most. So long that asking for the next one costs nothing; all that
/// one connection holds at a time must fit into the range of the marks.
const FILE_CHUNK_BYTES_MAX: u64 = 64 << 20;

/// A part of a body. Only connections that asked for files get [`Chunk::File`]: plain HTTP/1.1.
#[derive(Debug)]
pub enum Chunk {
    /// Bytes in memory.
    Mem(Bytes),
    /// Bytes of a file that the connection has ready.
    File(FileChunk),
}

/// The mark of a part of a file.
#[derive(Debug)]
pub struct FileChunk(&'static [u8]);

impl Buf for Chunk {
    fn remaining(&self) -> usize {
        self.chunk().len()
    }

    fn chunk(&self) -> &[u8] {
        match self {
            Self::Mem(bytes) => bytes,
            Self::File(FileChunk(mark)) => mark,
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Self::Mem(bytes) => bytes.advance(count),
            Self::File(FileChunk(mark)) => *mark = mark.get(count..).unwrap_or_default(),
        }
    }

    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        match self {
            Self::Mem(bytes) => bytes.copy_to_bytes(len),
            Self::File(FileChunk(mark)) => mark.copy_to_bytes(len),
        }
    }
}

/// What the file chunks of one connection stand for, from the body that made them to the
/// [`crate::io::Io`] that sends them.
#[derive(Debug, Default)]
pub(crate) struct Files(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    ranges: VecDeque<Marked>,
    /// Where the next mark begins.
    next_at: usize,
    /// Those that wait and the one that is being sent.
    unsent: usize,
}

/// A part of a file and where its mark begins.
#[derive(Debug)]
pub(crate) struct Marked {
    pub(crate) at: usize,
    pub(crate) range: FileRange,
}

impl Files {
    /// Takes the beginning of `range`, at most `limit` bytes, and gives the chunk that stands for it.
    /// `None` when there can be no marks here; `range` is then as it was.
    pub(crate) fn take(&self, range: &mut FileRange, limit: u64) -> Option<Chunk> {
        let mut waiting = self.waiting();
        let len = usize::try_from(range.len().min(limit).min(FILE_CHUNK_BYTES_MAX)).ok()?;
        let end = waiting.next_at.checked_add(len).filter(|end| *end <= MARK_BYTES);
        let (at, end) = end.map_or((0, len), |end| (waiting.next_at, end));
        let chunk = Chunk::File(FileChunk(mark(at, len)?));
        waiting.next_at = end;
        waiting.unsent = waiting.unsent.saturating_add(1);
        waiting.ranges.push_back(Marked { at, range: range.split_to(len) });
        Some(chunk)
    }

    /// The next one to be sent.
    pub(crate) fn next(&self) -> Option<Marked> {
        self.waiting().ranges.pop_front()
    }

    /// The one that [`Self::next`] gave is sent.
    pub(crate) fn note_sent(&self) {
        let mut waiting = self.waiting();
        waiting.unsent = waiting.unsent.saturating_sub(1);
    }

    /// Whether bodies have handed over something that is not sent yet.
    pub(crate) fn has_unsent(&self) -> bool {
        self.waiting().unsent > 0
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
