//! A part of a file on its way to a client: sent from the page cache as it is, or read in chunks, from
//! the page cache on the spot, from the disk on the blocking pool. No worker waits for a disk,
//! but for one read of a part that was in the page cache within the last 100 ms (`cached`).
//!
//! When the store of the part is handed over to another process, what is left of it comes from
//! [`Elsewhere`]: that process may change the file at any time. Nothing is sent from the file after
//! the hand-over: sending holds it up, and what was read before it only counts if it had not come by
//! the end of the reading.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use store::Representation;
use sys::sendfile::send_file;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::body::Body;
use crate::cached::is_cached_now;

/// Bytes of a chunk at most: large enough to be cheap, small enough that many slow clients fit.
pub(crate) const CHUNK_BYTES: usize = 256 * 1024;
/// Buffers of [`CHUNK_BYTES`] kept for the next chunk.
const SPARE_BUFFERS_MAX: usize = 64;
/// Chunks up to this have a buffer of their own size, made for them.
const SMALL_BYTES: usize = 64 * 1024;

/// A part of a file that is to be sent.
#[derive(Clone, Debug)]
pub struct FileRange {
    file: Arc<File>,
    offset: u64,
    len: u64,
    /// Keeps the blocks of a store where they are, and says when one is lost all the same.
    pin: Option<Part>,
    /// Where the rest comes from once the store has been handed over.
    elsewhere: Option<Arc<dyn Elsewhere>>,
}

/// Another way to bytes of a representation than its file.
pub trait Elsewhere: std::fmt::Debug + Send + Sync {
    /// These bytes of the representation, all of them or an error.
    fn bytes(&self, range: Range<u64>) -> Body;
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
        Self { file, offset, len, pin: None, elsewhere: None }
    }

    /// The same range, whose bytes are had `elsewhere` once its store has been handed over.
    pub fn or_from(self, elsewhere: Arc<dyn Elsewhere>) -> Self {
        Self { elsewhere: Some(elsewhere), ..self }
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
        self.in_store(bytes).is_none_or(|(rep, at, len)| rep.still_holds(at, len))
    }

    /// The same for bytes that were sent inside [`Self::while_held`].
    fn is_sent_good(&self, bytes: usize) -> bool {
        self.in_store(bytes).is_none_or(|(rep, at, len)| rep.has_not_lost(at, len))
    }

    /// Does something quick with the next `bytes` bytes while nobody else can get at them.
    fn while_held<T>(&self, bytes: usize, work: impl FnOnce() -> T) -> Option<T> {
        match self.in_store(bytes) {
            Some((rep, at, len)) => rep.while_held(at, len, work),
            None => Some(work()),
        }
    }

    /// The next `bytes` bytes as bytes of a representation.
    fn in_store(&self, bytes: usize) -> Option<(&Representation, u64, u64)> {
        let Part { rep, start } = self.pin.as_ref()?;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        Some((rep, self.offset.saturating_sub(*start), bytes))
    }

    /// Whether another process may change the file.
    fn is_handed_over(&self) -> bool {
        self.pin.as_ref().is_some_and(|part| part.rep.is_handed_over())
    }

    /// The other way to all that is left, if it is time to take that.
    fn elsewhere(&self) -> Option<Body> {
        let elsewhere = self.elsewhere.as_ref()?;
        let (_, at, _) = self.in_store(0).filter(|_| self.is_handed_over())?;
        Some(elsewhere.bytes(at..at.saturating_add(self.len)))
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
        let pin = Some(Part { rep: representation, start });
        Self { file, offset, len, pin, elsewhere: None }
    }
}

/// Reads a range chunk by chunk.
#[derive(Debug)]
pub(crate) struct Reader {
    range: FileRange,
    /// A chunk being read on the blocking pool.
    pending: Option<JoinHandle<io::Result<Bytes>>>,
    /// What is left, when it does not come from the file any more.
    elsewhere: Option<Box<Body>>,
}

impl Reader {
    pub(crate) fn new(range: FileRange) -> Self {
        Self { range, pending: None, elsewhere: None }
    }

    /// Bytes still to come.
    pub(crate) fn left(&self) -> u64 {
        self.range.len
    }

    /// What is left. To be changed only while nothing is being read.
    pub(crate) fn range_mut(&mut self) -> &mut FileRange {
        debug_assert!(!self.is_reading());
        &mut self.range
    }

    /// Whether a chunk is being read; [`Self::poll_chunk`] has it next.
    pub(crate) fn is_reading(&self) -> bool {
        self.pending.is_some() || self.elsewhere.is_some()
    }

    /// Sends at most `most` bytes straight to `socket` if they are in the page cache; they are to
    /// be [confirmed](Self::confirm). `None` when they cannot go that way, whatever the reason:
    /// [`Self::poll_chunk`] gets them, or tells why not.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when the socket takes nothing now.
    pub(crate) fn send(&self, socket: &TcpStream, most: usize) -> io::Result<Option<usize>> {
        let FileRange { file, offset, len, .. } = &self.range;
        let left = usize::try_from(*len).unwrap_or(usize::MAX);
        // A page that is missing further on does not keep back what is before it.
        let mut lengths = [most, CHUNK_BYTES.min(most)].into_iter().map(|bytes| bytes.min(left));
        let Some(most) = lengths.find(|bytes| is_cached_now(file, *offset, *bytes)) else {
            return Ok(None);
        };
        match self.range.while_held(most, || send_file(socket, file, *offset, most)) {
            Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            None | Some(Ok(0) | Err(_)) => Ok(None),
            Some(Ok(sent)) => Ok(Some(sent)),
        }
    }

    /// Goes on behind `sent` bytes that [`Self::send`] has sent.
    ///
    /// # Errors
    /// When they may not be what was stored.
    pub(crate) fn confirm(&mut self, sent: usize) -> io::Result<()> {
        if !self.range.is_sent_good(sent) {
            return Err(lost());
        }
        self.range.advance(sent);
        Ok(())
    }

    /// The next chunk, of at most `most` bytes and [`CHUNK_BYTES`]; `None` at the end.
    pub(crate) fn poll_chunk(
        &mut self,
        most: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Bytes>>> {
        if self.range.is_empty() {
            return Poll::Ready(None);
        }
        if self.elsewhere.is_none() {
            if let Some(read) = ready!(self.poll_file(most, cx)) {
                return Poll::Ready(Some(read));
            }
            self.elsewhere = self.range.elsewhere().map(Box::new);
        }
        let Some(body) = &mut self.elsewhere else { return Poll::Ready(Some(Err(lost()))) };
        let chunk = ready!(poll_bytes(body, cx));
        if let Ok(bytes) = &chunk {
            self.range.advance(bytes.len());
        }
        Poll::Ready(Some(chunk))
    }

    /// The next chunk of the file; `None`: it is not to be had from there any more.
    fn poll_file(&mut self, most: usize, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.pending.is_none() {
            let most = most.min(CHUNK_BYTES);
            let len = usize::try_from(self.range.len).unwrap_or(most).min(most);
            let mut buffer = Buffer::of(len);
            match sys::read_nowait(&self.range.file, self.range.offset, buffer.as_mut(len)) {
                Ok(got) => return Poll::Ready(self.take(Ok(buffer.filled(got)))),
                Err(error) if needs_the_pool(&error) => {
                    let (file, offset) = (Arc::clone(&self.range.file), self.range.offset);
                    let read = move || read_blocking(&file, offset, buffer, len);
                    self.pending = Some(tokio::task::spawn_blocking(read));
                }
                Err(error) => return Poll::Ready(self.take(Err(error))),
            }
        }
        let Some(pending) = &mut self.pending else { return Poll::Ready(None) };
        let read = ready!(Pin::new(pending).poll(cx)).map_err(io::Error::other).flatten();
        self.pending = None;
        Poll::Ready(self.take(read))
    }

    /// What was read, if it counts.
    fn take(&mut self, read: io::Result<Bytes>) -> Option<io::Result<Bytes>> {
        let chunk = match read {
            Ok(chunk) if !chunk.is_empty() && self.range.is_good(chunk.len()) => chunk,
            // Whatever it was, it says nothing about what was stored.
            _ if self.range.is_handed_over() => return None,
            Ok(chunk) if chunk.is_empty() => {
                // The same is true of all that comes after: nobody else is to find out block by
                // block.
                self.range.doubt(u64::MAX);
                let words = "the file has become shorter while it was sent";
                return Some(Err(io::Error::new(io::ErrorKind::UnexpectedEof, words)));
            }
            Ok(_) => return Some(Err(lost())),
            Err(error) => {
                self.range.doubt(1);
                return Some(Err(error));
            }
        };
        self.range.advance(chunk.len());
        Some(Ok(chunk))
    }
}

fn lost() -> io::Error {
    io::Error::other("a block was lost while it was sent")
}

/// The next bytes of a body that does not end yet.
fn poll_bytes(body: &mut Body, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
    let frame = ready!(http_body::Body::poll_frame(Pin::new(body), cx));
    let chunk =
        frame.transpose().map_err(io::Error::other)?.and_then(|frame| frame.into_data().ok());
    let bytes = chunk.map(|mut chunk| chunk.copy_to_bytes(chunk.remaining()));
    Poll::Ready(bytes.ok_or_else(|| io::ErrorKind::UnexpectedEof.into()))
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
        let bytes = if len <= SMALL_BYTES {
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
        poll_fn(|cx| reader.poll_chunk(CHUNK_BYTES, cx)).await
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

    /// Gives bytes of its own, and notes what it was asked for.
    #[derive(Debug, Default)]
    struct Other(Mutex<Vec<(u64, u64)>>);

    impl Elsewhere for Other {
        fn bytes(&self, range: Range<u64>) -> Body {
            let len = range.clone().count();
            self.0.lock().unwrap().push((range.start, range.end));
            Body::bytes(Bytes::from(vec![9; len]))
        }
    }

    async fn rest(reader: &mut Reader) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        while let Some(chunk) = chunk(reader).await {
            all.extend_from_slice(&chunk?);
        }
        Ok(all)
    }

    /// The next process may have made a hole there: not one byte more comes from the file.
    #[tokio::test]
    async fn after_a_hand_over_the_rest_comes_from_elsewhere() {
        let (_folder, store, rep, body) = held();
        let other = Arc::new(Other::default());
        let range = FileRange::from(rep.extent(100, 8000).unwrap()).or_from(other.clone());
        let mut reader = Reader::new(range.clone());
        let mut first = Reader::new(range.clone().split_to(4000));
        assert_eq!(rest(&mut first).await.unwrap(), [7; 4000]);
        store.hand_over();
        body.set_len(0).unwrap();
        assert_eq!(rest(&mut reader).await.unwrap(), [9; 8000]);
        assert_eq!(*other.0.lock().unwrap(), [(100, 8100)]);
        let mut plain = Reader::new(FileRange { elsewhere: None, ..range });
        assert_eq!(rest(&mut plain).await.unwrap_err().to_string(), lost().to_string());
        assert!(!rep.verify_pending(0), "nothing is said of the disk");
    }

    #[tokio::test]
    async fn nothing_is_sent_from_a_file_after_the_hand_over() {
        let (_folder, store, rep, _) = held();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut client, _) = listener.accept().await.unwrap();
        socket.writable().await.unwrap();
        let other = Arc::new(Other::default());
        let range = FileRange::from(rep.extent(0, 8192).unwrap()).or_from(other.clone());
        let mut reader = Reader::new(range);
        assert_eq!(reader.send(&socket, 1000).unwrap(), Some(1000));
        // What left before the hand-over is good, whenever that is looked at.
        store.hand_over();
        reader.confirm(1000).unwrap();
        assert_eq!(reader.send(&socket, 1000).unwrap(), None);
        assert_eq!(rest(&mut reader).await.unwrap(), [9; 7192]);
        assert_eq!(*other.0.lock().unwrap(), [(1000, 8192)]);
        drop(socket);
        let mut came = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut client, &mut came).await.unwrap();
        assert_eq!(came, [7; 1000]);
    }
}
