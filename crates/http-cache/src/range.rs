//! Byte ranges of a request (RFC 9110 section 14).
//!
//! What a client may make us do is bounded: ranges that overlap are joined (each byte is sent at
//! most once), more than [`ByteRanges::SPECS_MAX`] of them, or many tiny ones, get the whole, as
//! section 17.15 advises against denial of service (CVE-2011-3192). Sums never wrap
//! (CVE-2017-7529).

use std::ops::Range;

use http::HeaderMap;
use http::header::RANGE;

use crate::fields::{digits, single};

/// A syntactically right `Range: bytes=...` of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteRanges {
    specs: Vec<Spec>,
}

/// One range of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spec {
    /// `first-` or `first-last`, last included.
    From {
        /// First byte.
        first: u64,
        /// Last byte, included; to the end when `None`.
        last: Option<u64>,
    },
    /// `-length`: the last bytes.
    Suffix(u64),
}

/// What ranges mean for a representation of known length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// Send all of it with 200: the ranges ask too much, or nothing that 206 could say.
    Whole,
    /// Send these, in this order, disjoint and not empty, with 206.
    Parts(Vec<Range<u64>>),
    /// 416.
    Unsatisfiable,
}

impl ByteRanges {
    /// Most ranges that are looked at; a request with more gets the whole.
    pub const SPECS_MAX: usize = 100;
    /// Up to this many parts may be as small as they like.
    pub const TINY_PARTS_MAX: usize = 16;
    /// With more parts, their mean size must be at least this many bytes, or the whole is sent.
    pub const PART_BYTES_MIN: u64 = 1024;

    /// Reads a request's head; `None` when there is no range or it is to be ignored.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        Self::parse(single(headers, RANGE)?.as_bytes())
    }

    /// Understands a `Range` field value; `None` when it is to be ignored: another unit, a
    /// syntax error in any range, or too many ranges.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let at = value.iter().position(|b| *b == b'=')?;
        let (unit, set) = value.split_at_checked(at)?;
        if !unit.trim_ascii().eq_ignore_ascii_case(b"bytes") {
            return None;
        }
        let specs = set
            .get(1..)?
            .split(|b| *b == b',')
            .map(<[u8]>::trim_ascii)
            .filter(|s| !s.is_empty())
            .take(Self::SPECS_MAX.saturating_add(1))
            .map(Spec::parse)
            .collect::<Option<Vec<_>>>()?;
        let fits = !specs.is_empty() && specs.len() <= Self::SPECS_MAX;
        fits.then_some(Self { specs })
    }

    /// The ranges as asked.
    pub fn specs(&self) -> &[Spec] {
        &self.specs
    }

    /// The byte ranges of a representation of `length` bytes.
    pub fn resolve(&self, length: u64) -> Resolved {
        if length == 0 && self.specs.iter().any(|s| matches!(s, Spec::Suffix(1..))) {
            // Satisfiable by section 14.1.2, but no Content-Range can name an empty range.
            return Resolved::Whole;
        }
        let mut parts: Vec<Range<u64>> = Vec::new();
        for range in self.specs.iter().filter_map(|s| s.resolve(length)) {
            add_joined(&mut parts, range);
        }
        if parts.is_empty() {
            return Resolved::Unsatisfiable;
        }
        if parts.len() > Self::TINY_PARTS_MAX {
            let count = u64::try_from(parts.len()).unwrap_or(u64::MAX);
            let bytes = parts.iter().map(span).fold(0, u64::saturating_add);
            if bytes < count.saturating_mul(Self::PART_BYTES_MIN) {
                return Resolved::Whole;
            }
        }
        Resolved::Parts(parts)
    }
}

impl Spec {
    fn parse(text: &[u8]) -> Option<Self> {
        let at = text.iter().position(|b| *b == b'-')?;
        let (first, last) = text.split_at_checked(at)?;
        let last = last.get(1..)?;
        if first.is_empty() {
            return digits(last).map(Self::Suffix);
        }
        let first = digits(first)?;
        let last = if last.is_empty() { None } else { Some(digits(last)?) };
        let ordered = last.is_none_or(|last| first <= last);
        ordered.then_some(Self::From { first, last })
    }

    /// The bytes it means; `None` when it is not satisfiable.
    pub fn resolve(&self, length: u64) -> Option<Range<u64>> {
        let range = match *self {
            Self::From { first, last } => {
                first..last.map_or(length, |last| last.saturating_add(1).min(length))
            }
            Self::Suffix(n) => length.saturating_sub(n)..length,
        };
        (range.start < range.end).then_some(range)
    }
}

pub(crate) fn span(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

/// Adds a range to disjoint ones, joined with all that it overlaps, at the place of the first.
fn add_joined(parts: &mut Vec<Range<u64>>, mut new: Range<u64>) {
    let mut place = None;
    let mut i = 0usize;
    // What the union reaches next may stand before what it reached last: start over after a join.
    while let Some(part) = parts.get(i) {
        if part.start < new.end && new.start < part.end {
            new = new.start.min(part.start)..new.end.max(part.end);
            parts.remove(i);
            place = Some(place.map_or(i, |p: usize| p.min(i)));
            i = 0;
        } else {
            i = i.saturating_add(1);
        }
    }
    parts.insert(place.unwrap_or(parts.len()).min(parts.len()), new);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a `Range` value means, in words.
    fn resolve(value: &str, length: u64) -> String {
        match ByteRanges::parse(value.as_bytes()).map(|r| r.resolve(length)) {
            None => "ignored".into(),
            Some(Resolved::Whole) => "whole".into(),
            Some(Resolved::Unsatisfiable) => "unsatisfiable".into(),
            Some(Resolved::Parts(parts)) => {
                parts.iter().map(|p| format!("{p:?}")).collect::<Vec<_>>().join(" ")
            }
        }
    }

    #[test]
    fn the_examples_of_rfc_9110_section_14_1_2() {
        assert_eq!(resolve("bytes=0-499", 10_000), "0..500");
        assert_eq!(resolve("bytes=500-999", 10_000), "500..1000");
        assert_eq!(resolve("bytes=-500", 10_000), "9500..10000");
        assert_eq!(resolve("bytes=9500-", 10_000), "9500..10000");
        assert_eq!(resolve("bytes=0-0,-1", 10_000), "0..1 9999..10000");
        assert_eq!(
            resolve("bytes= 0-999, 4500-5499, -1000", 10_000),
            "0..1000 4500..5500 9000..10000"
        );
        assert_eq!(resolve("bytes=500-600,601-999", 10_000), "500..601 601..1000");
        assert_eq!(resolve("bytes=500-700,601-999", 10_000), "500..1000");
    }

    #[test]
    fn edges_of_the_representation() {
        assert_eq!(resolve("bytes=0-", 10), "0..10");
        assert_eq!(resolve("bytes=9-", 10), "9..10");
        assert_eq!(resolve("bytes=10-", 10), "unsatisfiable");
        assert_eq!(resolve("bytes=5-99", 10), "5..10");
        assert_eq!(resolve("bytes=-99", 10), "0..10");
        assert_eq!(resolve("bytes=-0", 10), "unsatisfiable");
        assert_eq!(resolve("bytes=10-,-0,3-3", 10), "3..4");
        assert_eq!(resolve("bytes=0-", 0), "unsatisfiable");
        assert_eq!(resolve("bytes=-1", 0), "whole");
        assert_eq!(resolve("bytes=-0", 0), "unsatisfiable");
    }

    #[test]
    fn what_is_ignored() {
        for bad in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=a-b",
            "bytes=1",
            "bytes=5-4",
            "bytes=-",
            "bytes=--1",
            "bytes=1-2-3",
            "bytes=0-1;2-3",
            "bytes=1 - 2",
            "bytes=+1-2",
            "byte=0-1",
            "lines=1-2",
            "bytes:0-1",
            "bytes=0-1,x",
            "bytes=0x1-2",
            "none",
        ] {
            assert_eq!(resolve(bad, 10), "ignored", "{bad}");
        }
        assert_eq!(resolve("Bytes=0-1", 10), "0..2");
        assert_eq!(resolve("bytes=,, 0-1 ,", 10), "0..2");
    }

    #[test]
    fn egregious_ranges_are_bounded() {
        // CVE-2011-3192: thousands of overlapping ranges.
        let many = |n: usize| {
            let list: Vec<_> = (0..n).map(|i| format!("5-{}", i + 5)).collect();
            format!("bytes=0-,{}", list.join(","))
        };
        assert_eq!(resolve(&many(1300), 10_000), "ignored");
        assert_eq!(resolve(&many(99), 10_000), "0..10000");
        // CVE-2017-7529: suffixes whose sum wraps around.
        let max = u64::MAX;
        assert_eq!(resolve("bytes=-18446744073709551999", 10), "0..10");
        assert_eq!(resolve(&format!("bytes=-{max},-{max}"), 10), "0..10");
        assert_eq!(resolve(&format!("bytes=0-{max}"), max), format!("0..{max}"));
        assert_eq!(resolve("bytes=99999999999999999999-", max), "unsatisfiable");
        // One byte here and there: a few are fine, many get the whole.
        let spread = |n: u64| {
            let list: Vec<_> = (0..n).map(|i| format!("{0}-{0}", i * 1000)).collect();
            resolve(&format!("bytes={}", list.join(",")), 1_000_000)
        };
        assert!(spread(16).split(' ').count() == 16);
        assert_eq!(spread(17), "whole");
        // Real multi-range clients (zchunk, zsync) ask for pieces of some size.
        let pieces: Vec<_> =
            (0..100).map(|i| format!("{}-{}", i * 9000, i * 9000 + 1023)).collect();
        let got = resolve(&format!("bytes={}", pieces.join(",")), 1_000_000);
        assert!(got.split(' ').count() == 100);
    }

    #[test]
    fn a_range_that_bridges_others_joins_them_at_the_first_place() {
        assert_eq!(resolve("bytes=50-59,0-9,30-39,5-55", 100), "0..60");
        assert_eq!(resolve("bytes=90-99,50-59,0-9,55-70", 100), "90..100 50..71 0..10");
    }
}
