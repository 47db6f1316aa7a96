//! The head of an upstream reply.

use http::{HeaderMap, StatusCode};
use model::Now;

use crate::stored::StoredHead;

/// An upstream reply's head, with the moments that its age is counted from.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// Status.
    pub status: StatusCode,
    /// Fields as received.
    pub headers: &'a HeaderMap,
    /// When the request was sent.
    pub asked: Now,
    /// When the head arrived.
    pub got: Now,
}

impl Reply<'_> {
    /// The length of the whole representation: `Content-Length` of a 200, the complete length of a
    /// 206; `None` when unknown.
    pub fn complete_length(&self) -> Option<u64> {
        todo!()
    }
}

/// A `Content-Range` of bytes (RFC 9110 section 14.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentRange {
    /// `bytes first-last/complete`; `last` included, `complete` unknown for `*`.
    Part {
        /// First byte.
        first: u64,
        /// Last byte, included.
        last: u64,
        /// Length of the whole.
        complete: Option<u64>,
    },
    /// `bytes */complete` of a 416.
    Unsatisfied {
        /// Length of the whole.
        complete: u64,
    },
}

impl ContentRange {
    /// Understands the field of a head; `None` when absent, doubled or wrong.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let _ = headers;
        todo!()
    }
}

/// Whether a 200 or 206 carries bytes of the representation that `stored` heads and that is
/// `length` bytes long: same strong validator, same complete length, same coding. Doubt is no.
pub fn same_representation(stored: &StoredHead, length: u64, reply: &Reply<'_>) -> bool {
    let _ = (stored, length, reply);
    todo!()
}
