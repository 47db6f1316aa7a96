//! What a body is made of on its way out: bytes in memory, or a part of a file that the connection
//! sends by itself.
//!
//! A file chunk is only a [mark](sys::sendfile) of so many bytes; what it stands for waits in the
//! [`Files`] of its connection, in the order of the chunks. So a chunk can pass through hyper, which
//! knows nothing of files, and its buffers and limits count as for any other.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, Bytes};
use sys::sendfile::{MARK_BYTES, mark};

use crate::file_range::FileRange;
use crate::tally::{Tally, note_sent};

/// Bytes of one file chunk at most. So long that asking for the next one costs nothing; all that
/// one connection holds at a time must fit into the range of the marks.
const FILE_CHUNK_BYTES_MAX: u64 = 64 << 20;

/// A part of a body. Whoever advances it has sent what is advanced over, and its [`Tally`] is told.
pub struct Chunk {
    content: Content,
    tally: Option<Arc<dyn Tally>>,
}

#[derive(Debug)]
enum Content {
    Mem(Bytes),
    /// The mark of bytes of a file that the connection has ready. Only connections that asked for
    /// files get it: plain HTTP/1.1.
    File(&'static [u8]),
}

impl From<Bytes> for Chunk {
    fn from(bytes: Bytes) -> Self {
        Self { content: Content::Mem(bytes), tally: None }
    }
}

impl Chunk {
    /// What is sent of it is told to `tally`.
    pub(crate) fn with_tally(self, tally: Option<Arc<dyn Tally>>) -> Self {
        Self { tally, ..self }
    }

    /// Its bytes, and who is to be told of them by the one who sends them. In memory already, so this
    /// copies nothing.
    pub(crate) fn into_parts(mut self) -> (Bytes, Option<Arc<dyn Tally>>) {
        let tally = self.tally.take();
        (self.copy_to_bytes(self.remaining()), tally)
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.content.fmt(f)
    }
}

impl Buf for Chunk {
    fn remaining(&self) -> usize {
        self.chunk().len()
    }

    fn chunk(&self) -> &[u8] {
        match &self.content {
            Content::Mem(bytes) => bytes,
            Content::File(mark) => mark,
        }
    }

    fn advance(&mut self, count: usize) {
        note_sent(self.tally.as_deref(), count);
        match &mut self.content {
            Content::Mem(bytes) => bytes.advance(count),
            Content::File(mark) => *mark = mark.get(count..).unwrap_or_default(),
        }
    }

    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        note_sent(self.tally.as_deref(), len);
        match &mut self.content {
            Content::Mem(bytes) => bytes.copy_to_bytes(len),
            Content::File(mark) => mark.copy_to_bytes(len),
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
        let chunk = Chunk { content: Content::File(mark(at, len)?), tally: None };
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
