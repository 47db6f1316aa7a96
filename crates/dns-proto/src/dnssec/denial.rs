//! That a name or type is not there, in one NSEC record (RFC 9824).
//!
//! The record stands at the very name that was asked for, and its next name is the one that follows
//! at once in the order of RFC 4034 section 6.1: it speaks of no other name. A name that does not
//! exist gets the type NXNAME in the list of its types, so that whoever looks can tell it from a
//! name without data; the answer's code is NOERROR for both, unless the client knows the record
//! (the CO flag).

use crate::wire::{CLASS_IN, NAME_BYTES_MAX, rtype};

/// Types of a name that does not exist (RFC 9824 section 3.1).
pub(crate) const NOT_THERE: [u16; 3] = [rtype::RRSIG, rtype::NSEC, rtype::NXNAME];

/// Writes the NSEC record of `name` with the pointer `owner` to it.
pub(crate) fn push_record(
    (owner, name): (u16, &[u8]),
    ttl_s: u32,
    types: impl IntoIterator<Item = u16>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice([owner, rtype::NSEC, CLASS_IN].map(u16::to_be_bytes).as_flattened());
    out.extend_from_slice(&ttl_s.to_be_bytes());
    let length = out.len();
    out.extend_from_slice(&[0; 2]);
    let data = out.len();
    push_nsec(name, types, out);
    let bytes = u16::try_from(out.len().saturating_sub(data)).unwrap_or(u16::MAX);
    if let Some(place) = out.get_mut(length..).and_then(|rest| rest.first_chunk_mut::<2>()) {
        *place = bytes.to_be_bytes();
    }
}

/// Writes the data of the NSEC record of `name` (wire form, lower case): the name that follows, and
/// `types`, each once, in rising order.
fn push_nsec(name: &[u8], types: impl IntoIterator<Item = u16>, out: &mut Vec<u8>) {
    push_next(name, out);
    push_types(types, out);
}

/// The name that follows `name` at once: its child with the least label, `\000`.
fn push_next(name: &[u8], out: &mut Vec<u8>) {
    if name.len().saturating_add(2) <= NAME_BYTES_MAX {
        out.extend([1, 0]);
        out.extend_from_slice(name);
    } else {
        push_behind(name, out);
    }
}

/// The first name behind `name` and all below it (RFC 4471 section 3.1.2). A name too long to have a
/// child is followed by this one.
fn push_behind(name: &[u8], out: &mut Vec<u8>) {
    let Some((length, rest)) = name.split_first() else { return };
    let Some((label, above)) = rest.split_at_checked(usize::from(*length)) else { return };
    if label.len() < 63 && name.len() < NAME_BYTES_MAX {
        out.push(length.saturating_add(1));
        out.extend_from_slice(label);
        out.push(0);
        out.extend_from_slice(above);
        return;
    }
    match label.iter().rposition(|byte| *byte != u8::MAX) {
        Some(last) => {
            let (kept, _) = label.split_at_checked(last).unwrap_or_default();
            let grown = label.get(last).map_or(0, |byte| byte.saturating_add(1));
            // Upper case is the same letter as lower case, which is passed already.
            let grown = if grown == b'A' { b'[' } else { grown };
            out.push(u8::try_from(last.saturating_add(1)).unwrap_or(63));
            out.extend_from_slice(kept);
            out.push(grown);
            out.extend_from_slice(above);
        }
        // The label is the last one there can be.
        None => push_behind(above, out),
    }
}

/// RFC 4034 section 4.1.2: windows of 256 types, each a bitmap without zero bytes at its end.
fn push_types(types: impl IntoIterator<Item = u16>, out: &mut Vec<u8>) {
    let mut types = types.into_iter().peekable();
    while let Some(first) = types.peek().copied() {
        let [window, _] = first.to_be_bytes();
        let mut bitmap = [0u8; 32];
        let mut length = 0u8;
        while let Some(rtype) = types.next_if(|rtype| rtype.to_be_bytes()[0] == window) {
            let [_, low] = rtype.to_be_bytes();
            if let Some(byte) = bitmap.get_mut(usize::from(low / 8)) {
                *byte |= 0x80 >> (low % 8);
            }
            length = length.max((low / 8).saturating_add(1));
        }
        out.extend([window, length]);
        out.extend(bitmap.iter().take(length.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nsec(name: &[u8], types: &[u16]) -> Vec<u8> {
        let mut out = Vec::new();
        push_nsec(name, types.iter().copied(), &mut out);
        out
    }

    fn next(name: &[u8]) -> Vec<u8> {
        nsec(name, &[])
    }

    #[test]
    fn types_are_windows_of_bits() {
        // The example of RFC 4034 section 4.3: A MX RRSIG NSEC TYPE1234.
        let example = nsec(b"\0", &[1, 15, 46, 47, 1234]);
        let mut expected = b"\x01\0\0".to_vec();
        expected.extend(b"\x00\x06\x40\x01\x00\x00\x00\x03\x04\x1b");
        expected.extend([0; 26]);
        expected.push(0x20);
        assert_eq!(example, expected);
        // RFC 9824 section 3.1: RRSIG NSEC TYPE128.
        let expected = [&b"\x01\0\x01x\0\0\x11"[..], &[0; 5], &[3], &[0; 10], &[0x80]].concat();
        assert_eq!(nsec(b"\x01x\0", &NOT_THERE), expected);
    }

    #[test]
    fn the_next_name_is_the_first_below() {
        assert_eq!(next(b"\x03www\x07example\0"), b"\x01\0\x03www\x07example\0");
    }

    #[test]
    fn names_too_long_for_that_are_followed_as_rfc_4471_says() {
        let above = [&[63u8][..], &[b'a'; 63]].concat().repeat(3);
        let name = |label: &[u8]| {
            let length = u8::try_from(label.len()).unwrap();
            [&[length][..], label, &above, &[0]].concat()
        };
        // 254 bytes: room for one more byte in the label.
        assert_eq!(next(&name(&[b'b'; 60])), name(&[&[b'b'; 60][..], &[0]].concat()));
        // 255 bytes: the last byte grows.
        assert_eq!(next(&name(&[b'b'; 61])), name(&[&[b'b'; 60][..], b"c"].concat()));
        assert_eq!(next(&name(&[b'@'; 61])), name(&[&[b'@'; 60][..], b"["].concat()));
        assert_eq!(
            next(&name(&[&[b'b'; 59][..], b"\xff\xff"].concat())),
            name(&[&[b'b'; 58][..], b"c"].concat())
        );
        // Nothing in the label can grow: the label above does.
        let behind = [&[63u8][..], &[b'a'; 62], b"b", &above[64..], &[0]].concat();
        assert_eq!(next(&name(&[0xff; 61])), behind);
    }
}
