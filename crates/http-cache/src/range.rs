//! Byte ranges of a request.

use std::ops::Range;

/// A syntactically right `Range: bytes=...` of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteRanges {
    specs: Vec<Spec>,
}

/// One range of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spec {
    /// `first-` or `first-last`, last included.
    From { first: u64, last: Option<u64> },
    /// `-length`.
    Suffix(u64),
}

/// What ranges mean for a representation of known length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// Send all of it with 200: the ranges ask too much or nothing that 206 could say.
    Whole,
    /// Send these, in this order, disjoint and not empty, with 206.
    Parts(Vec<Range<u64>>),
    /// 416.
    Unsatisfiable,
}

impl ByteRanges {
    /// Most ranges that are looked at; a request with more gets the whole.
    pub const SPECS_MAX: usize = 100;

    /// Understands a `Range` field value; `None` when it is to be ignored.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let _ = value;
        todo!()
    }

    /// The byte ranges of a representation of `length` bytes.
    pub fn resolve(&self, length: u64) -> Resolved {
        let _ = (length, &self.specs);
        todo!()
    }

    /// Where the first range begins, counted from the start, if that is known without the length:
    /// what a first fill of an unknown object should ask for.
    pub fn first_offset(&self) -> Option<u64> {
        todo!()
    }
}
