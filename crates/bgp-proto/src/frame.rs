//! Where one message ends and the next begins: the header (RFC 4271 sections 4.1 and 6.1, RFC 8654).

use crate::notification::{Code, Notification};

/// Octets of a header: marker, length, type.
pub const HEADER_BYTES: usize = 19;
/// Octets of the longest message (RFC 4271).
pub const BYTES_MAX: usize = 4096;
/// Octets of the longest message where both sides can take extended ones (RFC 8654).
pub const EXTENDED_BYTES_MAX: usize = 65535;

const MARKER: [u8; 16] = [0xff; 16];

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Says who one is.
    Open,
    /// Routes.
    Update,
    /// Why the session ends.
    Notification,
    /// A sign of life.
    Keepalive,
    /// Asks for all routes, or says where a refresh begins and ends (RFC 2918, 7313).
    Refresh,
}

impl Kind {
    fn number(self) -> u8 {
        match self {
            Self::Open => 1,
            Self::Update => 2,
            Self::Notification => 3,
            Self::Keepalive => 4,
            Self::Refresh => 5,
        }
    }

    fn of(number: u8) -> Option<Self> {
        let all = [Self::Open, Self::Update, Self::Notification, Self::Keepalive, Self::Refresh];
        all.into_iter().find(|kind| kind.number() == number)
    }

    /// The shortest body that the kind can have.
    fn body_bytes_min(self) -> usize {
        match self {
            Self::Open => 10,
            Self::Update | Self::Refresh => 4,
            Self::Notification => 2,
            Self::Keepalive => 0,
        }
    }
}

/// A whole message at the front of what was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What it is.
    pub kind: Kind,
    /// What follows the header.
    pub body: &'a [u8],
    /// Octets of the whole.
    pub length: usize,
}

/// The first message of `bytes`; `None` when it is not whole yet. An UPDATE may be longer than 4096
/// octets if `extended`; an OPEN or KEEPALIVE never (RFC 8654 section 4).
///
/// # Errors
/// What to tell the other side before the connection is closed.
pub fn first(bytes: &[u8], extended: bool) -> Result<Option<Frame<'_>>, Notification> {
    let Some((header, _)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        // What cannot become a header any more is refused without waiting for the rest of it.
        let wrong = bytes.iter().zip(MARKER).any(|(byte, mark)| *byte != mark);
        return if wrong { Err(Notification::new(Code::NotSynchronised)) } else { Ok(None) };
    };
    let [marker @ .., high, low, number] = header;
    if marker != &MARKER {
        return Err(Notification::new(Code::NotSynchronised));
    }
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    let bad_length = || Notification::with(Code::BadMessageLength, &[*high, *low]);
    if !(HEADER_BYTES..=EXTENDED_BYTES_MAX).contains(&length) {
        return Err(bad_length());
    }
    let Some(kind) = Kind::of(*number) else {
        return Err(Notification::with(Code::BadMessageType, &[*number]));
    };
    let body_bytes = length.saturating_sub(HEADER_BYTES);
    let longest = match kind {
        Kind::Keepalive => HEADER_BYTES,
        Kind::Open => BYTES_MAX,
        _ if extended => EXTENDED_BYTES_MAX,
        _ => BYTES_MAX,
    };
    if length > longest || body_bytes < kind.body_bytes_min() {
        return Err(bad_length());
    }
    let body = bytes.get(HEADER_BYTES..length);
    Ok(body.map(|body| Frame { kind, body, length }))
}

/// A message of this body. One longer than a message can be is cut, which no caller asks for.
pub(crate) fn compose(kind: Kind, body: &[u8]) -> Vec<u8> {
    let room = BYTES_MAX.saturating_sub(HEADER_BYTES);
    let body = body.get(..room).unwrap_or(body);
    let length = u16::try_from(body.len().saturating_add(HEADER_BYTES)).unwrap_or(u16::MAX);
    let mut bytes = MARKER.to_vec();
    bytes.extend(length.to_be_bytes());
    bytes.push(kind.number());
    bytes.extend(body);
    bytes
}

/// A KEEPALIVE.
pub fn keepalive() -> Vec<u8> {
    compose(Kind::Keepalive, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(length: u16, number: u8) -> Vec<u8> {
        let mut bytes = MARKER.to_vec();
        bytes.extend(length.to_be_bytes());
        bytes.push(number);
        bytes.resize(usize::from(length).clamp(HEADER_BYTES, 9000), 0);
        bytes
    }

    #[test]
    fn messages_are_cut_where_they_end() {
        let mut bytes = keepalive();
        bytes.extend(compose(Kind::Update, &[0; 4]));
        let frame = first(&bytes, false).unwrap().unwrap();
        assert_eq!((frame.kind, frame.body, frame.length), (Kind::Keepalive, &[][..], 19));
        let frame = first(&bytes[19..], false).unwrap().unwrap();
        assert_eq!((frame.kind, frame.body.len(), frame.length), (Kind::Update, 4, 23));
        for end in 0..19 {
            assert_eq!(first(&bytes[..end], false), Ok(None));
        }
        assert_eq!(first(&bytes[19..30], false), Ok(None));
    }

    #[test]
    fn headers_that_cannot_be_are_refused() {
        let refused = |bytes: &[u8], extended| first(bytes, extended).unwrap_err();
        for (length, number, extended, code, data) in [
            (18, 4, false, Code::BadMessageLength, &[0, 18][..]),
            (20, 4, false, Code::BadMessageLength, &[0, 20]),
            (28, 1, false, Code::BadMessageLength, &[0, 28]),
            (22, 2, false, Code::BadMessageLength, &[0, 22]),
            (20, 3, false, Code::BadMessageLength, &[0, 20]),
            (4097, 2, false, Code::BadMessageLength, &[16, 1]),
            (4097, 1, true, Code::BadMessageLength, &[16, 1]),
            (19, 6, false, Code::BadMessageType, &[6]),
            (19, 0, false, Code::BadMessageType, &[0]),
        ] {
            let expected = Notification::with(code, data);
            assert_eq!(refused(&header(length, number), extended), expected, "{length} {number}");
        }
        assert!(first(&header(4097, 2), true).unwrap().is_some());
        let mut bytes = keepalive();
        bytes[3] = 0;
        assert_eq!(refused(&bytes, false).code, Code::NotSynchronised);
        assert_eq!(refused(&bytes[..4], false).code, Code::NotSynchronised);
        assert_eq!(refused(b"GET / HTTP/1.1\r\n", false).code, Code::NotSynchronised);
    }
}
