//! The answer to a client from what is held.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use model::Now;

use crate::hygiene::Identity;
use crate::request::Request;
use crate::status::CacheStatus;
use crate::stored::StoredHead;

/// A piece of an answer's body, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// These bytes (framing of multipart/byteranges).
    Framing(Bytes),
    /// These bytes of the representation.
    Content(Range<u64>),
}

/// An answer: its head, and what its body is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// 200 (or the stored status), 206, 304, 412 or 416.
    pub status: StatusCode,
    /// All fields, `Content-Length` included.
    pub headers: HeaderMap,
    /// The body; empty for HEAD, 304, 412 and 416. For content the lengths of its pieces sum up to
    /// `Content-Length`.
    pub pieces: Vec<Piece>,
}

impl Plan {
    /// The ranges of the representation that the body needs.
    pub fn content(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.pieces.iter().filter_map(|p| match p {
            Piece::Content(range) => Some(range.clone()),
            Piece::Framing(_) => None,
        })
    }

    /// Adds what a cache adds and an origin does not: `Age`, `Via`, `Cache-Status`.
    pub fn by_cache(
        mut self,
        stored: &StoredHead,
        now: Now,
        me: &Identity,
        cache_status: &CacheStatus,
    ) -> Self {
        let _ = (&mut self, stored, now, me, cache_status);
        todo!()
    }
}

/// Answers a request from a representation of `length` bytes: preconditions, then ranges. Without
/// the fields that only a cache adds: a master uses this as it is.
pub fn respond(request: &Request, stored: &StoredHead, length: u64, now: Now) -> Plan {
    let _ = (request, stored, length, now);
    todo!()
}
