//! Numbers, addresses and texts at the end of a buffer.

use std::io::Write as _;
use std::net::IpAddr;

/// Digits of the largest number.
const DIGITS_MAX: usize = 20;
const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// In decimal digits, with `fill` before them up to `width`, which is at most [`DIGITS_MAX`].
pub(super) fn padded(mut number: u64, width: usize, fill: u8, out: &mut Vec<u8>) {
    let mut digits = [fill; DIGITS_MAX];
    let mut first = DIGITS_MAX;
    for digit in digits.iter_mut().rev() {
        *digit = b'0'.saturating_add(u8::try_from(number % 10).unwrap_or(0));
        first = first.saturating_sub(1);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    let first = first.min(DIGITS_MAX.saturating_sub(width));
    out.extend_from_slice(digits.get(first..).unwrap_or_default());
}

/// In decimal digits.
pub(super) fn number(number: impl Into<u64>, out: &mut Vec<u8>) {
    padded(number.into(), 1, b'0', out);
}

pub(super) fn address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            number(a, out);
            for octet in [b, c, d] {
                out.push(b'.');
                number(octet, out);
            }
        }
        // Writing to a vector does not fail.
        IpAddr::V6(address) => drop(write!(out, "{address}")),
    }
}

/// Within the quotes of JSON (RFC 8259 section 7).
pub(super) fn in_json(text: &str, out: &mut Vec<u8>) {
    let is_special = |byte: &u8| *byte < b' ' || matches!(byte, b'"' | b'\\');
    escaped(text.as_bytes(), is_special, out, |byte, out| match byte {
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        _ => {
            out.extend_from_slice(b"\\u00");
            hex(byte, out);
        }
    });
}

/// As one field of a line whose fields have spaces between them; `-` when it is empty.
pub(super) fn field(text: &str, out: &mut Vec<u8>) {
    if text.is_empty() {
        out.push(b'-');
    }
    part_of_field(text, out);
}

/// A part of a field: what is no visible ASCII character is `%XX`, as in a URL.
pub(super) fn part_of_field(text: &str, out: &mut Vec<u8>) {
    escaped(
        text.as_bytes(),
        |byte| !byte.is_ascii_graphic(),
        out,
        |byte, out| {
            out.push(b'%');
            hex(byte, out);
        },
    );
}

fn hex(byte: u8, out: &mut Vec<u8>) {
    for digit in [byte >> 4, byte & 15] {
        out.extend(HEX.get(usize::from(digit)));
    }
}

/// Whole when nothing in it is special, which is nearly always so.
fn escaped(
    text: &[u8],
    is_special: impl Fn(&u8) -> bool,
    out: &mut Vec<u8>,
    mut escape: impl FnMut(u8, &mut Vec<u8>),
) {
    // Without a way out in the middle: so it is many bytes at a time.
    if !text.iter().fold(false, |any, byte| any | is_special(byte)) {
        return out.extend_from_slice(text);
    }
    for byte in text {
        if is_special(byte) {
            escape(*byte, out);
        } else {
            out.push(*byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_addresses_look_as_the_standard_library_has_them() {
        for n in [0, 7, 10, 99, 100, 12_345, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            padded(n, 6, b' ', &mut out);
            number(n, &mut out);
            padded(n, 3, b'0', &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), format!("{n:6}{n}{n:03}"));
        }
        for text in ["0.0.0.0", "255.99.100.1", "2001:db8::1", "::"] {
            let mut out = Vec::new();
            address(text.parse().unwrap(), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}
