//! The body of an answer: pieces of one open file, each checked before it is handed on.
//!
//! The file was opened before its digest was taken, so a rename that puts another file in its place
//! changes nothing here. A write into the file itself does: after each read the stamp is looked at
//! again, and if the content may have changed since it was hashed the body ends in an error, which
//! breaks the connection off. No byte of another content goes out under this content's `ETag`.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use http_cache::Piece as Wanted;
use mirror::Stamp;
use rt::metrics::Counter;
use serve::{BodyError, Piece, Source};

use crate::scan::off_worker;
use crate::tree::stamp_of;

/// Most bytes read and held for one connection.
const CHUNK_BYTES: usize = 256 * 1024;

/// Why a body cannot go on.
#[derive(Debug, thiserror::Error)]
enum BrokenOff {
    #[error("the file was changed in place while it was being sent")]
    Changed,
    #[error("the file cannot be read")]
    Read(#[from] io::Error),
}

/// The pieces of one answer.
pub(crate) struct FileSource {
    file: Arc<File>,
    /// The stamp under which the file was hashed.
    stamp: Stamp,
    wanted: VecDeque<Wanted>,
    sent_bytes: Counter,
    broken_off: Counter,
}

impl FileSource {
    pub(crate) fn new(
        file: Arc<File>,
        stamp: Stamp,
        wanted: Vec<Wanted>,
        sent_bytes: Counter,
        broken_off: Counter,
    ) -> Self {
        Self { file, stamp, wanted: wanted.into(), sent_bytes, broken_off }
    }

    /// The beginning of `range`, at most one chunk: from the page cache at once, from the disk off
    /// the worker.
    async fn read(&self, range: &Range<u64>) -> Result<Bytes, BrokenOff> {
        let left = range.end.saturating_sub(range.start);
        let len = usize::try_from(left).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let mut chunk = vec![0; len];
        let read = match sys::read_nowait(&self.file, range.start, &mut chunk) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let (file, offset) = (Arc::clone(&self.file), range.start);
                let (read, back) = off_worker(move || {
                    let read = read_at(&file, &mut chunk, offset);
                    (read, chunk)
                })
                .await;
                chunk = back;
                read?
            }
            read => read?,
        };
        // Also true at the end of a file that was cut short.
        if read == 0 || !self.stamp.same_content_as(&stamp_of(&self.file)?) {
            return Err(BrokenOff::Changed);
        }
        chunk.truncate(read);
        Ok(chunk.into())
    }
}

impl Source for FileSource {
    async fn next(&mut self) -> Option<Result<Piece, BodyError>> {
        let mut range = loop {
            match self.wanted.pop_front()? {
                Wanted::Framing(bytes) => return Some(Ok(Piece::Bytes(bytes))),
                // The content of an empty file.
                Wanted::Content(range) if range.is_empty() => {}
                Wanted::Content(range) => break range,
            }
        };
        match self.read(&range).await {
            Ok(chunk) => {
                self.sent_bytes.inc_by(chunk.len() as u64);
                range.start = range.start.saturating_add(chunk.len() as u64);
                if !range.is_empty() {
                    self.wanted.push_front(Wanted::Content(range));
                }
                Some(Ok(Piece::Bytes(chunk)))
            }
            Err(error) => {
                self.broken_off.inc();
                tracing::warn!(why = crate::with_causes(&error), "response broken off");
                Some(Err(BodyError::Source(Box::new(error))))
            }
        }
    }
}

/// Reads what is there of `chunk.len()` bytes, interruptions taken care of.
fn read_at(file: &File, chunk: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(chunk, offset) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}
