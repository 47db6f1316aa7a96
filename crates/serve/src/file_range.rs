//! A part of a file on its way to a client: sent from the page cache as it is, or read in chunks, from
//! the page cache on the spot, from the disk on the blocking pool. No worker ever waits for a disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use store::Representation;
use sys::sendfile::{is_cached, send_file};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Bytes of a chunk at most: large enough to be cheap, small enough that many slow clients fit.
pub(crate) const CHUNK_BYTES: usize = 256 * 1024;
/// Buffers of [`CHUNK_BYTES`] kept for the next chunk.
const SPARE_BUFFERS_MAX: usize = 64;
/// Chunks smaller than this have a buffer of their own size, made for them.
const SMALL_BYTES: usize = 32 * 1024;

/// A part of a file that is to be sent.
#[derive(Clone, Debug)]
pub struct FileRange {
    file: Arc<File>,
    offset: u64,
    len: u64,
    /// Keeps the blocks of a store where they are, and says when one is lost all the same.
    pin: Option<Part>,
}

/// What a range of a store is part of.
#[derive(Clone, Debug)]
struct Part {
    rep: Arc<Representation>,
    /// Where the body begins in the file.
    start: u64,
}

impl FileRange {
    /// `len` bytes from `offset` on of any file. When the file turns out to be shorter, the body
    /// is broken off.
    pub fn new(file: Arc<File>, offset: u64, len: u64) -> Self {
        Self { file, offset, len, pin: None }
    }

    /// Bytes in the range.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Cuts the first `bytes` bytes off.
    pub(crate) fn split_to(&mut self, bytes: usize) -> Self {
        let mut first = self.clone();
        self.advance(bytes);
        first.len = first.len.saturating_sub(self.len);
        first
    }

    /// Whether the next `bytes` bytes, just read, are those that were stored. A block may be lost
    /// while it is sent (the kernel could not write it down and dropped it): what was read then is
    /// perhaps a hole.
    fn is_good(&self, bytes: usize) -> bool {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let still_holds =
            |part: &Part| part.rep.still_holds(self.offset.saturating_sub(part.start), bytes);
        self.pin.as_ref().is_none_or(still_holds)
    }

    /// The next `bytes` bytes cannot be read: a store looks at them again before it counts on them.
    fn doubt(&self, bytes: u64) {
        if let Some(Part { rep, start }) = &self.pin {
            rep.doubt(self.offset.saturating_sub(*start), bytes);
        }
    }

    fn advance(&mut self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.offset = self.offset.saturating_add(bytes);
        self.len = self.len.saturating_sub(bytes);
    }
}

impl From<store::Extent> for FileRange {
    fn from(extent: store::Extent) -> Self {
        let store::Extent { file, offset, at, len, representation } = extent;
        let start = offset.saturating_sub(at);
        Self { file, offset, len, pin: Some(Part { rep: representation, start }) }
    }
}

/// Reads a range chunk by chunk.
#[derive(Debug)]
pub(crate) struct Reader {
    range: FileRange,
    /// A chunk being read on the blocking pool.
    pending: Option<JoinHandle<io::Result<Bytes>>>,
}

impl Reader {
    pub(crate) fn new(range: FileRange) -> Self {
        Self { range, pending: None }
    }

    /// Bytes still to come.
    pub(crate) fn left(&self) -> u64 {
        self.range.len
    }

    /// What is left. To be changed only while nothing is being read.
    pub(crate) fn range_mut(&mut self) -> &mut FileRange {
        debug_assert!(self.pending.is_none());
        &mut self.range
    }

    /// Whether a chunk is being read; [`Self::poll_chunk`] has it next.
    pub(crate) fn is_reading(&self) -> bool {
        self.pending.is_some()
    }

    /// Sends at most `most` bytes straight to `socket` if they are in the page cache; they are to
    /// be [confirmed](Self::confirm). `None` when they cannot go that way, whatever the reason:
    /// [`Self::poll_chunk`] gets them, or tells why not.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when the socket takes nothing now.
    pub(crate) fn send(&self, socket: &TcpStream, most: usize) -> io::Result<Option<usize>> {
        let FileRange { file, offset, len, .. } = &self.range;
        let most = usize::try_from(*len).unwrap_or(most).min(most);
        let bytes = u64::try_from(most).unwrap_or(u64::MAX);
        if !is_cached(file, *offset, bytes) || !self.range.is_good(most) {
            return Ok(None);
        }
        match send_file(socket, file, *offset, most) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            Ok(0) | Err(_) => Ok(None),
            Ok(sent) => Ok(Some(sent)),
        }
    }

    /// Goes on behind `sent` bytes that were just read or sent.
    ///
    /// # Errors
    /// When they may not be what was stored.
    pub(crate) fn confirm(&mut self, sent: usize) -> io::Result<()> {
        if !self.range.is_good(sent) {
            return Err(io::Error::other("a block was lost while it was sent"));
        }
        self.range.advance(sent);
        Ok(())
    }

    /// The next chunk; `None` at the end.
    pub(crate) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.pending.is_none() {
            if self.range.is_empty() {
                return Poll::Ready(None);
            }
            let len = usize::try_from(self.range.len).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            let mut buffer = Buffer::of(len);
            match sys::read_nowait(&self.range.file, self.range.offset, buffer.as_mut(len)) {
                Ok(got) => return Poll::Ready(Some(self.take(Ok(buffer.filled(got))))),
                Err(error) if needs_the_pool(&error) => {
                    let (file, offset) = (Arc::clone(&self.range.file), self.range.offset);
                    let read = move || read_blocking(&file, offset, buffer, len);
                    self.pending = Some(tokio::task::spawn_blocking(read));
                }
                Err(error) => return Poll::Ready(Some(self.take(Err(error)))),
            }
        }
        let Some(pending) = &mut self.pending else { return Poll::Ready(None) };
        let read = ready!(Pin::new(pending).poll(cx)).map_err(io::Error::other).flatten();
        self.pending = None;
        Poll::Ready(Some(self.take(read)))
    }

    fn take(&mut self, read: io::Result<Bytes>) -> io::Result<Bytes> {
        let chunk = read.inspect_err(|_| self.range.doubt(1))?;
        if chunk.is_empty() {
            // The same is true of all that comes after: nobody else is to find out block by block.
            self.range.doubt(u64::MAX);
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file has become shorter while it was sent",
            ));
        }
        self.confirm(chunk.len())?;
        Ok(chunk)
    }
}

/// Not in the page cache, or a file system that cannot say so.
fn needs_the_pool(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Unsupported | io::ErrorKind::Interrupted
    )
}

fn read_blocking(file: &File, offset: u64, mut buffer: Buffer, len: usize) -> io::Result<Bytes> {
    loop {
        match file.read_at(buffer.as_mut(len), offset) {
            Ok(got) => return Ok(buffer.filled(got)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A buffer that goes back to the spare ones when the last byte of it was sent.
struct Buffer {
    bytes: Vec<u8>,
    filled: usize,
}

static SPARE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

impl Buffer {
    fn of(len: usize) -> Self {
        let bytes = if len < SMALL_BYTES {
            vec![0; len]
        } else {
            let spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop();
            spare.unwrap_or_else(|| vec![0; CHUNK_BYTES])
        };
        Self { bytes, filled: 0 }
    }

    fn as_mut(&mut self, len: usize) -> &mut [u8] {
        self.bytes.get_mut(..len).unwrap_or_default()
    }

    fn filled(mut self, len: usize) -> Bytes {
        if self.bytes.len() < CHUNK_BYTES {
            let mut bytes = std::mem::take(&mut self.bytes);
            bytes.truncate(len);
            return Bytes::from(bytes);
        }
        self.filled = len;
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.filled).unwrap_or_default()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.bytes.len() < CHUNK_BYTES {
            return;
        }
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_BUFFERS_MAX {
            spare.push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use model::ByteCount;
    use store::{Key, Params, Store};

    use super::*;
    use crate::disk::FsDisk;

    /// A store of one object of two blocks, and its body file.
    fn held() -> (tempfile::TempDir, Store, Arc<Representation>, File) {
        let folder = tempfile::tempdir().unwrap();
        let params = Params {
            capacity: ByteCount(1 << 20),
            block_bytes: 4096,
            memory: Params::MEMORY,
            open_files: Params::OPEN_FILES,
        };
        let store = Store::open(Arc::new(FsDisk::new(folder.path())), params).unwrap();
        let rep = store.create(Key([7; 16]), Bytes::new(), 8192).unwrap();
        for block in 0..2 {
            rep.write_block(block, &[7; 4096]).unwrap();
        }
        let body = folder.path().join(format!("data/07/{}.{:016x}", "07".repeat(16), 1));
        let body = File::options().write(true).open(body).unwrap();
        (folder, store, rep, body)
    }

    async fn chunk(reader: &mut Reader) -> Option<io::Result<Bytes>> {
        poll_fn(|cx| reader.poll_chunk(cx)).await
    }

    #[tokio::test]
    async fn a_block_lost_on_its_way_is_not_sent() {
        let (_folder, _store, rep, _) = held();
        let mut reader = Reader::new(rep.extent(0, 8192).unwrap().into());
        rep.doubt(0, 1);
        let error = chunk(&mut reader).await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "a block was lost while it was sent");
        // The other block is as good as before.
        let mut reader = Reader::new(rep.extent(4096, 4096).unwrap().into());
        assert_eq!(chunk(&mut reader).await.unwrap().unwrap().len(), 4096);
        assert!(chunk(&mut reader).await.is_none());
    }

    /// A block that breaks off one client must not break off every client after it.
    #[tokio::test]
    async fn a_block_that_cannot_be_read_is_a_miss_for_the_next() {
        let (_folder, _store, rep, body) = held();
        let mut reader = Reader::new(rep.extent(4096, 4096).unwrap().into());
        body.set_len(4096).unwrap();
        let error = chunk(&mut reader).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(rep.verify_pending(1) && !rep.verify(1) && rep.verify(0));
        assert_eq!(rep.missing(), vec![1..2]);
    }

    /// Nor must each block that has gone break off one more.
    #[tokio::test]
    async fn all_that_a_shorter_file_has_lost_is_known_at_once() {
        let (_folder, _store, rep, body) = held();
        let mut reader = Reader::new(rep.extent(0, 100).unwrap().into());
        body.set_len(0).unwrap();
        assert!(chunk(&mut reader).await.unwrap().is_err());
        assert!(rep.verify_pending(0) && rep.verify_pending(1));
        assert!(!rep.verify(0) && !rep.verify(1));
    }
}
