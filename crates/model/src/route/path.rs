//! [`AsPath`]: the ASes that a route went through.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::Asn;

/// Kind of a segment of a path (RFC 4271 section 4.3, RFC 5065 section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentKind {
    /// `AS_SET`: routes of these were joined, in no order. Deprecated (RFC 9774).
    Set,
    /// `AS_SEQUENCE`: one after the other.
    Sequence,
    /// `AS_CONFED_SEQUENCE`: members of a confederation, one after the other.
    ConfedSequence,
    /// `AS_CONFED_SET`: members of a confederation in no order.
    ConfedSet,
}

impl SegmentKind {
    const ALL: [Self; 4] = [Self::Set, Self::Sequence, Self::ConfedSequence, Self::ConfedSet];

    /// The octet of the attribute: 1 to 4.
    pub fn code(self) -> u8 {
        match self {
            Self::Set => 1,
            Self::Sequence => 2,
            Self::ConfedSequence => 3,
            Self::ConfedSet => 4,
        }
    }

    /// By the octet of the attribute; `None` for one that was never defined.
    pub fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Whether it is of a confederation: nobody outside sees it, so it is never a hop.
    pub fn is_confed(self) -> bool {
        matches!(self, Self::ConfedSequence | Self::ConfedSet)
    }

    fn is_set(self) -> bool {
        matches!(self, Self::Set | Self::ConfedSet)
    }

    /// What stands around it in print.
    fn brackets(self) -> (&'static str, &'static str) {
        match self {
            Self::Sequence => ("", ""),
            Self::Set => ("{", "}"),
            Self::ConfedSequence => ("(", ")"),
            Self::ConfedSet => ("[", "]"),
        }
    }
}

/// A place on a path: an AS; `None` where it cannot be told which, as for several in a set.
pub type Hop = Option<Asn>;

/// The ASes that a route went through, the nearest first. Prints as `7545 4826 {64500 64501}`: sets
/// in braces, parts inside confederations in `( )` and `[ ]`.
///
/// Kept as it came: AS 0 and confederation segments are in it, but never an origin, neighbour or hop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AsPath {
    /// Each segment is a head (its kind above [`KIND_SHIFT`], its length below) and its AS numbers.
    words: Box<[u32]>,
}

const KIND_SHIFT: u32 = 24;
const LENGTH: u32 = (1 << KIND_SHIFT) - 1;

impl AsPath {
    /// A path of one sequence.
    pub fn sequence(asns: &[u32]) -> Self {
        Self::of_segments([(SegmentKind::Sequence, asns)])
    }

    /// A path of these segments. Empty ones are left out; of one with more than 2^24 - 1 AS numbers,
    /// which no message can hold, the rest is left out.
    pub fn of_segments<'a>(segments: impl IntoIterator<Item = (SegmentKind, &'a [u32])>) -> Self {
        let mut words = Vec::new();
        for (kind, asns) in segments.into_iter().filter(|(_, asns)| !asns.is_empty()) {
            let length = u32::try_from(asns.len()).unwrap_or(LENGTH).min(LENGTH);
            words.push(u32::from(kind.code()) << KIND_SHIFT | length);
            words.extend(asns.iter().take(length as usize));
        }
        Self { words: words.into() }
    }

    /// Its segments, the nearest first; none is empty.
    pub fn segments(&self) -> Segments<'_> {
        Segments { words: &self.words }
    }

    /// Whether there is no AS on it: of routes from inside the sender's own AS.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// How long it is when two are compared: a set counts one (RFC 4271 section 9.1.2.2), a
    /// confederation nothing (RFC 5065 section 5.3).
    pub fn length(&self) -> usize {
        let of = |(kind, asns): (SegmentKind, &[u32])| match kind {
            SegmentKind::Sequence => asns.len(),
            SegmentKind::Set => 1,
            SegmentKind::ConfedSequence | SegmentKind::ConfedSet => 0,
        };
        self.segments().map(of).fold(0, usize::saturating_add)
    }

    /// The AS that the prefix is of: the last hop. `None` where that is a set of several, AS 0, or
    /// the path is empty: then it is unknown, and unknown equals nothing.
    pub fn origin(&self) -> Option<Asn> {
        let (kind, asns) = self.segments().filter(|(kind, _)| !kind.is_confed()).last()?;
        hop(kind, asns, asns.last()?)
    }

    /// The AS that passed the route to us: the first hop, with the same exceptions.
    pub fn neighbour(&self) -> Option<Asn> {
        let (kind, asns) = self.segments().find(|(kind, _)| !kind.is_confed())?;
        hop(kind, asns, asns.first()?)
    }

    /// Its hops, the nearest first. An AS several times in a row (prepended) is one hop, a set is one,
    /// confederations are none.
    pub fn hops(&self) -> impl Iterator<Item = Hop> + '_ {
        let mut last = None;
        let outside = self.segments().filter(|(kind, _)| !kind.is_confed());
        let all = outside.flat_map(|(kind, asns)| {
            let places = if kind.is_set() { asns.get(..1).unwrap_or_default() } else { asns };
            places.iter().map(move |asn| hop(kind, asns, asn))
        });
        all.filter(move |hop| {
            let repeated = hop.is_some() && last == *hop;
            last = *hop;
            !repeated
        })
    }
}

/// `asn` of a segment as a hop.
fn hop(kind: SegmentKind, asns: &[u32], asn: &u32) -> Hop {
    if kind.is_set() && asns.iter().any(|other| other != asn) { None } else { Asn::new(*asn) }
}

/// The segments of a path: kind and AS numbers.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    words: &'a [u32],
}

impl<'a> Iterator for Segments<'a> {
    type Item = (SegmentKind, &'a [u32]);

    fn next(&mut self) -> Option<Self::Item> {
        let (head, rest) = self.words.split_first()?;
        let (asns, rest) = rest.split_at_checked((head & LENGTH) as usize)?;
        self.words = rest;
        Some((SegmentKind::of_code((head >> KIND_SHIFT) as u8)?, asns))
    }
}

impl fmt::Display for AsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        for (kind, asns) in self.segments() {
            let (open, close) = kind.brackets();
            write!(f, "{gap}{open}")?;
            let mut between = "";
            for asn in asns {
                write!(f, "{between}{asn}")?;
                between = " ";
            }
            f.write_str(close)?;
            gap = " ";
        }
        Ok(())
    }
}

impl Serialize for AsPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Not an AS path as it is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an AS path is AS numbers with spaces between them, sets in braces, for example `7545 4826 {{64500 64501}}`"
)]
pub struct ParsePathError;

impl FromStr for AsPath {
    type Err = ParsePathError;

    /// Reads what is printed.
    fn from_str(text: &str) -> Result<Self, ParsePathError> {
        let mut segments: Vec<(SegmentKind, Vec<u32>)> = Vec::new();
        let mut left = text.trim_start();
        while !left.is_empty() {
            let inside = SegmentKind::ALL.into_iter().filter(|kind| *kind != SegmentKind::Sequence);
            let kind = inside
                .into_iter()
                .find(|kind| left.starts_with(kind.brackets().0))
                .unwrap_or(SegmentKind::Sequence);
            let (open, close) = kind.brackets();
            let body = left.strip_prefix(open).ok_or(ParsePathError)?;
            let (body, rest) = match kind {
                SegmentKind::Sequence => {
                    body.split_at_checked(body.find(['{', '(', '[']).unwrap_or(body.len()))
                }
                _ => body.split_once(close),
            }
            .ok_or(ParsePathError)?;
            let numbers =
                body.split_whitespace().map(|word| word.parse().map_err(|_| ParsePathError));
            segments.push((kind, numbers.collect::<Result<_, _>>()?));
            left = rest.trim_start();
        }
        Ok(Self::of_segments(segments.iter().map(|(kind, asns)| (*kind, asns.as_slice()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> AsPath {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_printed_is_read_again() {
        for text in ["", "7545", "7545 4826 {1 2}", "(65001 65002) 7545 [65003 65004] {9} 8", "0 1"]
        {
            assert_eq!(path(text).to_string(), text);
        }
        assert_eq!(path(" 1   2{3}4 ").to_string(), "1 2 {3} 4");
        for bad in ["x", "1 -2", "{1", "1}", "(1 2}", "4294967296", "1.2"] {
            assert_eq!(bad.parse::<AsPath>(), Err(ParsePathError), "{bad}");
        }
        assert_eq!(path("7545 4826"), AsPath::sequence(&[7545, 4826]));
        assert!(path("").is_empty() && AsPath::sequence(&[]).is_empty());
    }

    #[test]
    fn ends_hops_and_length() {
        for (text, neighbour, origin, length, hops) in [
            ("", None, None, 0, vec![]),
            ("7545", Some(7545), Some(7545), 1, vec![Some(7545)]),
            ("1 1 1 2 3 3", Some(1), Some(3), 6, vec![Some(1), Some(2), Some(3)]),
            // A set of several has no order: it is not an origin, nor a neighbour, but a hop.
            ("1 {2 3}", Some(1), None, 2, vec![Some(1), None]),
            ("{2 3} {2 3} 1", None, Some(1), 3, vec![None, None, Some(1)]),
            ("1 {2}", Some(1), Some(2), 2, vec![Some(1), Some(2)]),
            ("1 {2 2} 2", Some(1), Some(2), 3, vec![Some(1), Some(2)]),
            ("(65001 65002) 1 [65003]", Some(1), Some(1), 1, vec![Some(1)]),
            ("(65001)", None, None, 0, vec![]),
            // AS 0 is reserved (RFC 7607).
            ("0 1 0", None, None, 3, vec![None, Some(1), None]),
            ("4294967295 1", Some(u32::MAX), Some(1), 2, vec![Some(u32::MAX), Some(1)]),
        ] {
            let path = path(text);
            assert_eq!(path.neighbour().map(Asn::get), neighbour, "{text}");
            assert_eq!(path.origin().map(Asn::get), origin, "{text}");
            assert_eq!(path.length(), length, "{text}");
            let found: Vec<_> = path.hops().map(|hop| hop.map(Asn::get)).collect();
            assert_eq!(found, hops, "{text}");
        }
    }

    #[test]
    fn segments_are_as_they_came() {
        let long: Vec<u32> = (1..=1000).collect();
        let path = AsPath::of_segments([
            (SegmentKind::Sequence, &long[..]),
            (SegmentKind::Sequence, &[]),
            (SegmentKind::Set, &[7, 8]),
        ]);
        let segments: Vec<_> = path.segments().collect();
        assert_eq!(segments, [(SegmentKind::Sequence, &long[..]), (SegmentKind::Set, &[7, 8][..])]);
        for kind in SegmentKind::ALL {
            assert_eq!(SegmentKind::of_code(kind.code()), Some(kind));
        }
        assert_eq!((SegmentKind::of_code(0), SegmentKind::of_code(5)), (None, None));
    }
}
