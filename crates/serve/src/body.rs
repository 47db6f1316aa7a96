//! What is sent.

use std::convert::Infallible;
use std::fs::File;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;

/// Why a body cannot go on; the connection is broken off.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BodyError(pub Box<dyn std::error::Error + Send + Sync>);

/// Bytes of a file that are to be sent. Read from the page cache inline, else on the blocking
/// pool, in chunks of at most 256 KiB.
#[derive(Clone, Debug)]
pub struct FileRange {}

impl FileRange {
    /// A range of any file (without a store's pin).
    pub fn new(_file: Arc<File>, _offset: u64, _len: u64) -> Self {
        todo!()
    }
}

impl From<store::Extent> for FileRange {
    fn from(_extent: store::Extent) -> Self {
        todo!()
    }
}

/// One piece of a body.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A part of a file (`extent.into()`).
    File(FileRange),
}

/// Gives the pieces of a body one after the other, each only when the client has room for it.
pub trait Source: Send + 'static {
    /// The next piece; `None` at the end; an error breaks the connection off. Dropped with the
    /// body when the client goes.
    fn next(&mut self) -> impl Future<Output = Option<Result<Piece, BodyError>>> + Send;
}

/// A response body.
#[derive(Debug)]
pub struct Body {}

impl Body {
    /// No bytes.
    pub fn empty() -> Self {
        todo!()
    }
    /// Bytes in memory.
    pub fn bytes(_bytes: Bytes) -> Self {
        todo!()
    }
    /// A part of a file.
    pub fn file(_range: FileRange) -> Self {
        todo!()
    }
    /// Pieces pulled from `source`. With `Some(length)` a body that ends before or goes past it
    /// is broken off; without, it is sent chunked.
    pub fn stream(_source: impl Source, _length: Option<u64>) -> Self {
        todo!()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;
    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let _: Option<Infallible> = None;
        todo!()
    }
}
