//! AS paths: segments of AS numbers with two or four octets, and joining both kinds (RFC 6793).

use model::route::{AsPath, SegmentKind};

use crate::wire::Reader;

/// Why a path cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AsPathFault {
    /// It has a set, plain or of a confederation (RFC 9774).
    Set,
    /// It is not segments (RFC 7606 section 7.2), or has some of a confederation that we are not in
    /// (RFC 5065 section 5).
    Malformed,
}

/// A path from the value of an attribute, whose AS numbers have four octets or two.
pub(super) fn read(value: &[u8], four_octet: bool, internal: bool) -> Result<AsPath, AsPathFault> {
    let mut reader = Reader(value);
    let mut has_set = false;
    let mut all: Vec<u32> = Vec::with_capacity(value.len() / 2);
    let mut segments: Vec<(SegmentKind, usize)> = Vec::new();
    while !reader.is_empty() {
        let header = reader.u8().zip(reader.u8()).ok_or(AsPathFault::Malformed)?;
        let (kind, count) = (SegmentKind::of_code(header.0), usize::from(header.1));
        let kind = kind.filter(|kind| internal || !kind.is_confed());
        let kind = kind.filter(|_| count > 0).ok_or(AsPathFault::Malformed)?;
        has_set |= matches!(kind, SegmentKind::Set | SegmentKind::ConfedSet);
        for _ in 0..count {
            let asn = if four_octet { reader.u32() } else { reader.u16().map(u32::from) };
            all.push(asn.ok_or(AsPathFault::Malformed)?);
        }
        segments.push((kind, count));
    }
    if has_set {
        return Err(AsPathFault::Set);
    }
    let mut left = all.as_slice();
    Ok(AsPath::of_segments(segments.into_iter().map_while(|(kind, count)| {
        let (asns, rest) = left.split_at_checked(count)?;
        left = rest;
        Some((kind, asns))
    })))
}

/// The path as speakers with four octets know it: what `four` (`AS4_PATH`) does not cover yet is taken
/// from the front of `two` (RFC 6793 section 4.2.3). One that is longer than the path is of no use.
/// Neither has sets.
pub(super) fn merge(two: &AsPath, four: &AsPath) -> AsPath {
    let Some(mut ahead) = two.length().checked_sub(four.length()) else { return two.clone() };
    let front = two.segments().map_while(|(kind, asns)| {
        // Confederations count nothing and stand before everything else.
        let taken = if kind.is_confed() { asns.len() } else { asns.len().min(ahead) };
        ahead = if kind.is_confed() { ahead } else { ahead.saturating_sub(taken) };
        asns.get(..taken).filter(|asns| !asns.is_empty()).map(|asns| (kind, asns))
    });
    let front: Vec<_> = front.collect();
    let four = four.segments().filter(|(kind, _)| !kind.is_confed());
    join(front.into_iter().chain(four))
}

/// A path of these segments, where two sequences in a row are one.
fn join<'a>(segments: impl Iterator<Item = (SegmentKind, &'a [u32])>) -> AsPath {
    let mut joined: Vec<(SegmentKind, Vec<u32>)> = Vec::new();
    for (kind, asns) in segments {
        match joined.last_mut() {
            Some((last, all)) if *last == kind => all.extend(asns),
            _ => joined.push((kind, asns.to_vec())),
        }
    }
    AsPath::of_segments(joined.iter().map(|(kind, asns)| (*kind, asns.as_slice())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &[u8], four_octet: bool, internal: bool) -> Result<String, AsPathFault> {
        read(value, four_octet, internal).map(|path| path.to_string())
    }

    #[test]
    fn paths_are_segments() {
        use AsPathFault::{Malformed, Set};
        for (value, four_octet, internal, expected) in [
            (&[][..], true, false, Ok("")),
            (&[2, 2, 0, 0, 0, 1, 0, 3, 0, 0], true, false, Ok("1 196608")),
            (&[2, 1, 0, 1, 2, 1, 0, 2], false, false, Ok("1 2")),
            (&[3, 1, 0, 9, 2, 1, 0, 2], false, true, Ok("(9) 2")),
            (&[3, 1, 0, 9, 2, 1, 0, 2], false, false, Err(Malformed)),
            (&[2, 0], true, false, Err(Malformed)),
            (&[2, 2, 0, 1], false, false, Err(Malformed)),
            (&[2, 1, 0, 1, 2], false, false, Err(Malformed)),
            (&[5, 1, 0, 1], false, false, Err(Malformed)),
            (&[2, 1, 0, 1, 1, 1, 0, 2], false, false, Err(Set)),
            (&[4, 1, 0, 1], false, true, Err(Set)),
            // Malformed is malformed, with a set or without.
            (&[1, 1, 0, 2, 9, 1, 0, 1], false, false, Err(Malformed)),
        ] {
            assert_eq!(text(value, four_octet, internal), expected.map(str::to_owned), "{value:?}");
        }
    }

    #[test]
    fn a_path_of_two_octets_is_completed_by_one_of_four() {
        for (two, four, expected) in [
            ("1 23456 23456", "196608 196609", "1 196608 196609"),
            ("1 2", "", "1 2"),
            ("23456", "196608", "196608"),
            ("1", "196608 196609", "1"),
            ("(65001) 1 23456", "196608", "(65001) 1 196608"),
            ("1 2 23456", "(65009) 196608", "1 2 196608"),
        ] {
            let (two, four) = (two.parse().unwrap(), four.parse().unwrap());
            assert_eq!(merge(&two, &four).to_string(), expected);
        }
    }
}
