//! What is kept of a response's head, and its bytes on disk.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

/// The head of a stored representation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredHead {
    /// Status; a 206 is kept as the 200 that it is a part of.
    pub status: StatusCode,
    /// End-to-end fields, without `Content-Length`, `Content-Range` and `Accept-Ranges`.
    pub headers: HeaderMap,
    /// Unix time in milliseconds when it was asked for or last revalidated.
    pub request_ms: u64,
    /// Unix time in milliseconds when it came or was last revalidated.
    pub response_ms: u64,
}

/// Why bytes are not a stored head; what they belong to is a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// Written by a newer version.
    #[error("a stored head of version {0}: only version 1 is known")]
    Version(u8),
    /// Cut short, too long or not a head.
    #[error("a stored head is damaged")]
    Damaged,
}

impl StoredHead {
    /// A head with what may be kept of `headers`, exchanged at these moments. For a master, which
    /// makes its heads itself; an edge gets its own from [`crate::storable()`].
    pub fn new(status: StatusCode, headers: &HeaderMap, request_ms: u64, response_ms: u64) -> Self {
        let _ = (status, headers, request_ms, response_ms);
        todo!()
    }

    /// The bytes to keep.
    pub fn to_bytes(&self) -> Bytes {
        todo!()
    }

    /// The head that [`Self::to_bytes`] wrote. Fields share the memory of `bytes`.
    pub fn from_bytes(bytes: &Bytes) -> Result<Self, HeadError> {
        let _ = bytes;
        todo!()
    }

    /// Whether it heads a representation with content to serve ranges of (status 200).
    pub fn has_ranges(&self) -> bool {
        self.status == StatusCode::OK
    }
}
