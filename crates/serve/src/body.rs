//! What is sent to a client: bytes at hand, a part of a file, or pieces pulled from a source.
//!
//! Nothing is read or pulled before the connection has room for it. A body that knows its length
//! keeps it: a source that ends early or goes on too long is an error like any other, and an error
//! makes hyper break the connection off.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};

use crate::chunk::{Chunk, Files};
use crate::file_range::{CHUNK_BYTES, FileRange, Reader};
use crate::pace::{Pace, Pacer};
use crate::pulse::Busy;
use crate::tally::Tally;

/// A shorter part of a file is read and leaves in one write with what is before it. For 100 KiB that
/// costs 6 % more CPU than `sendfile`, though it is a system call less.
const FILE_CHUNK_BYTES_MIN: u64 = 64 * 1024;

/// Why a body cannot go on. The connection is broken off; the text is for the log.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The source cannot go on.
    #[error("the source of the body cannot go on")]
    Source(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The file cannot be read.
    #[error("cannot read the file of the body")]
    File(#[source] io::Error),
    /// The source ended early or gave too much.
    #[error("the body has not the announced length: {left} bytes were left and {given} came")]
    Length {
        /// Bytes that were still to come.
        left: u64,
        /// Bytes that came; 0 for the end.
        given: u64,
    },
}

impl BodyError {
    /// An error of a source, or a plain text.
    pub fn source(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Source(error.into())
    }
}

/// One piece of a body.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Bytes in memory: at most a few hundred KiB, they stay until the client has taken them.
    Bytes(Bytes),
    /// A part of a file of any length (`extent.into()`).
    File(FileRange),
}

/// Gives the pieces of a body one after the other, each only when the client has room for it.
pub trait Source: Send + 'static {
    /// The next piece; `None` at the end; an error breaks the connection off. Dropped with the
    /// body when the client goes.
    fn next(&mut self) -> impl Future<Output = Option<Result<Piece, BodyError>>> + Send;
}

/// A response body.
pub struct Body {
    content: Content,
    /// Bytes still to come, when known.
    left: Option<u64>,
    /// Bytes that have come, when it is not known how many will.
    given: u64,
    /// Who is told of what leaves.
    tally: Option<Arc<dyn Tally>>,
    /// Tells the connection when the response has been handed over.
    busy: Option<Busy>,
    /// Bytes read of a file at once at most.
    read_bytes_max: usize,
    /// What it is paced by, if anything.
    pacer: Option<Box<Pacer>>,
}

enum Content {
    Bytes(Bytes),
    File(Reader),
    // Boxed, so that the body of a hit is less to move.
    Source(Box<Pulling>),
    Over,
}

impl Body {
    /// No bytes.
    pub fn empty() -> Self {
        Self::new(Content::Over, Some(0))
    }

    /// Bytes in memory.
    pub fn bytes(bytes: Bytes) -> Self {
        let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Self::new(Content::Bytes(bytes), Some(len))
    }

    /// A part of a file.
    pub fn file(range: FileRange) -> Self {
        let len = range.len();
        Self::new(Content::File(Reader::new(range)), Some(len))
    }

    /// Pieces pulled from `source`. With `Some(length)` that many bytes are announced and a source
    /// that gives fewer or more is broken off; with `None` the body is sent chunked.
    pub fn stream(source: impl Source, length: Option<u64>) -> Self {
        Self::new(Content::Source(Box::new(Pulling::new(source))), length)
    }

    fn new(content: Content, left: Option<u64>) -> Self {
        Self {
            content,
            left,
            given: 0,
            tally: None,
            busy: None,
            read_bytes_max: CHUNK_BYTES,
            pacer: None,
        }
    }

    /// Leaves no faster than these shapers let it, beside those that it has. To be called before the
    /// body is asked for anything.
    pub fn paced(mut self, pace: Pace) -> Self {
        match &mut self.pacer {
            _ if pace.is_empty() => {}
            Some(pacer) => pacer.add(pace),
            None => self.pacer = Some(Box::new(Pacer::new(pace))),
        }
        self
    }

    /// What leaves of it is told to `tally`.
    pub fn tell(&mut self, tally: Arc<dyn Tally>) {
        self.tally = Some(tally);
    }

    /// Whether its length is known beforehand.
    pub(crate) fn has_length(&self) -> bool {
        self.left.is_some()
    }

    /// From now on so many bytes of a file are read at once at most.
    pub(crate) fn read_at_most(&mut self, bytes: usize) {
        self.read_bytes_max = bytes;
    }

    /// Tells the connection when it has been handed over.
    pub(crate) fn hold(&mut self, busy: Busy) {
        self.busy = Some(busy);
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, BodyError>>> {
        let files = self.busy.as_ref().and_then(Busy::files);
        let most = self.read_bytes_max;
        if let Some(pacer) = &mut self.pacer {
            return poll_paced(&mut self.content, pacer, files, most, cx);
        }
        match &mut self.content {
            Content::Bytes(bytes) => {
                let bytes = std::mem::take(bytes);
                self.content = Content::Over;
                Poll::Ready((!bytes.is_empty()).then_some(Ok(bytes.into())))
            }
            Content::File(reader) => poll_file(reader, files, most, u64::MAX, cx),
            Content::Source(pulling) => match ready!(pulling.poll_part(cx)) {
                None => Poll::Ready(None),
                Some(Err(error)) => Poll::Ready(Some(Err(error))),
                Some(Ok(mut part)) => part.poll_chunk(files, most, u64::MAX, cx),
            },
            Content::Over => Poll::Ready(None),
        }
    }

    /// Checks what came against what was announced.
    fn account(&mut self, chunk: Option<&Chunk>) -> Result<(), BodyError> {
        let given = chunk.map_or(0, |chunk| u64::try_from(chunk.remaining()).unwrap_or(u64::MAX));
        let Some(left) = self.left else {
            self.given = self.given.saturating_add(given);
            if let (None, Some(tally)) = (chunk, &self.tally) {
                tally.is_whole_at(self.given);
            }
            return Ok(());
        };
        match left.checked_sub(given) {
            Some(rest) if chunk.is_some() || rest == 0 => {
                self.left = Some(rest);
                Ok(())
            }
            _ => Err(BodyError::Length { left, given }),
        }
    }
}

impl http_body::Body for Body {
    type Data = Chunk;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Chunk>, BodyError>>> {
        let chunk = match ready!(self.poll_chunk(cx)).transpose() {
            Ok(chunk) => self.account(chunk.as_ref()).map(|()| chunk),
            Err(error) => Err(error),
        };
        match chunk {
            Ok(Some(chunk)) => {
                let is_last = self.left == Some(0);
                let tally = if is_last { self.tally.take() } else { self.tally.clone() };
                Poll::Ready(Some(Ok(Frame::data(chunk.with_tally(tally)))))
            }
            Ok(None) => {
                self.content = Content::Over;
                Poll::Ready(None)
            }
            Err(error) => {
                self.content = Content::Over;
                if let Some(busy) = &self.busy {
                    busy.note_broken(&error);
                }
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Bytes(bytes) => bytes.is_empty(),
            Content::File(reader) => reader.left() == 0,
            Content::Source(_) => false,
            Content::Over => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match &self.content {
            Content::Bytes(_) => "bytes",
            Content::File(_) => "file",
            Content::Source(_) => "source",
            Content::Over => "over",
        };
        write!(f, "Body({kind}, left: {:?})", self.left)
    }
}

/// The next chunk, no longer than its shapers let it be. Nothing is asked of them before there is
/// something to send.
fn poll_paced(
    content: &mut Content,
    pacer: &mut Pacer,
    files: Option<&Files>,
    most: usize,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Chunk, BodyError>>> {
    let mut part = match content {
        Content::Bytes(bytes) => PartMut::Bytes(bytes),
        Content::File(reader) => PartMut::File(reader),
        Content::Source(pulling) => match ready!(pulling.poll_part(cx)) {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            Some(Ok(part)) => part,
        },
        Content::Over => return Poll::Ready(None),
    };
    let left = part.left();
    if left == 0 {
        return Poll::Ready(None);
    }
    let limit = ready!(pacer.poll(left, cx));
    let chunk = ready!(part.poll_chunk(files, most, limit, cx));
    if let Some(Ok(chunk)) = &chunk {
        pacer.used(u64::try_from(chunk.remaining()).unwrap_or(u64::MAX));
    }
    Poll::Ready(chunk)
}

/// What a body has at hand.
enum PartMut<'a> {
    Bytes(&'a mut Bytes),
    File(&'a mut Reader),
}

impl PartMut<'_> {
    fn left(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            Self::File(reader) => reader.left(),
        }
    }

    /// The next chunk of it, of at most `limit` bytes.
    fn poll_chunk(
        &mut self,
        files: Option<&Files>,
        most: usize,
        limit: u64,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Chunk, BodyError>>> {
        match self {
            Self::Bytes(bytes) => {
                let limit = usize::try_from(limit).unwrap_or(usize::MAX).min(bytes.len());
                Poll::Ready(Some(Ok(bytes.split_to(limit).into())))
            }
            Self::File(reader) => poll_file(reader, files, most, limit, cx),
        }
    }
}

/// The next chunk of a file, of at most `limit` bytes: as much of it as a connection that sends files
/// takes, as far as that is worth it, else what is read.
fn poll_file(
    reader: &mut Reader,
    files: Option<&Files>,
    most: usize,
    limit: u64,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Chunk, BodyError>>> {
    if let Some(files) = files
        && !reader.is_reading()
        && reader.left().min(limit) >= FILE_CHUNK_BYTES_MIN
        && let Some(chunk) = files.take(reader.range_mut(), limit)
    {
        return Poll::Ready(Some(Ok(chunk)));
    }
    let most = usize::try_from(limit).unwrap_or(usize::MAX).min(most);
    let read = ready!(reader.poll_chunk(most, cx));
    Poll::Ready(read.map(|read| read.map(Chunk::from).map_err(BodyError::File)))
}

/// A source of any type, behind one allocation for itself and one for each piece.
trait Pull: Send {
    fn pull(self: Box<Self>) -> Pin<Box<dyn Future<Output = Pulled> + Send>>;
}

type Pulled = (Box<dyn Pull>, Option<Result<Piece, BodyError>>);

impl<S: Source> Pull for S {
    fn pull(mut self: Box<Self>) -> Pin<Box<dyn Future<Output = Pulled> + Send>> {
        Box::pin(async move {
            let piece = self.next().await;
            (self as Box<dyn Pull>, piece)
        })
    }
}

/// A source and where we are with it.
struct Pulling {
    source: Option<Box<dyn Pull>>,
    next: Option<Pin<Box<dyn Future<Output = Pulled> + Send>>>,
    /// The piece at hand.
    part: Part,
}

/// What is left of a piece.
enum Part {
    Bytes(Bytes),
    File(Reader),
}

impl Pulling {
    fn new(source: impl Source) -> Self {
        Self { source: Some(Box::new(source)), next: None, part: Part::Bytes(Bytes::new()) }
    }

    /// What is left of the piece at hand, or the next one: never empty, for that would look like the
    /// end of the body to a chunked encoder.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<PartMut<'_>, BodyError>>> {
        while self.part.is_empty() {
            self.part = Part::Bytes(Bytes::new()); // a file piece pins its blocks
            if let Some(source) = self.source.take() {
                self.next = Some(source.pull());
            }
            let Some(next) = &mut self.next else { return Poll::Ready(None) };
            let (source, piece) = ready!(next.as_mut().poll(cx));
            self.next = None;
            self.part = match piece {
                Some(Ok(Piece::Bytes(bytes))) => Part::Bytes(bytes),
                Some(Ok(Piece::File(range))) => Part::File(Reader::new(range)),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            };
            self.source = Some(source);
        }
        Poll::Ready(Some(Ok(match &mut self.part {
            Part::Bytes(bytes) => PartMut::Bytes(bytes),
            Part::File(reader) => PartMut::File(reader),
        })))
    }
}

impl Part {
    fn is_empty(&self) -> bool {
        match self {
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::File(reader) => reader.left() == 0,
        }
    }
}
