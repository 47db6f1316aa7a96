//! What is kept of a response's head, and its bytes on disk.
//!
//! # Bytes
//! All numbers little-endian: version `u8` = 1, status `u16`, request time `u64`, response time
//! `u64` (unix milliseconds), number of fields `u16`, then for each field the length of its name
//! `u16`, the length of its value `u32`, name, value. After them what is for the edge alone, as often
//! as there is something: kind `u8`, length `u8`, value. Kind 1 is the name of the master that it came
//! from; what has another kind, or is no name, is passed over. The keeper's checksum covers all.
//! Broken if: another version, an end inside anything, a name or value of a field that HTTP does not
//! allow. What is broken is a miss.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::header::{
    ACCEPT_RANGES, ALT_SVC, CONTENT_LENGTH, CONTENT_RANGE, HeaderName, HeaderValue, TRAILER,
};
use http::{HeaderMap, StatusCode};
use model::Name;

use crate::hygiene::end_to_end;

const VERSION: u8 = 1;
/// Kind of the name of a master.
const MASTER: u8 = 1;

/// The head of a stored representation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredHead {
    /// Status; a 206 is kept as the 200 that it is a part of.
    pub status: StatusCode,
    /// End-to-end fields, without those that belong to one message only: `Content-Length`, the
    /// `Content-Range` of a part (it says nothing on other statuses, RFC 9110 section 14.4),
    /// `Accept-Ranges`, `Trailer`, and `Alt-Svc`, which names the upstream's ports and not ours.
    pub headers: HeaderMap,
    /// Unix time in milliseconds when it was asked for or last revalidated.
    pub request_ms: u64,
    /// Unix time in milliseconds when it came or was last revalidated.
    pub response_ms: u64,
    /// The master it came from, if that is known. Others may name the same content otherwise.
    pub master: Option<Name>,
}

/// Why bytes are not a stored head; what they belong to is a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// Written by another version.
    #[error("a stored head of version {0}: only version 1 is known")]
    Version(u8),
    /// Cut short, too long or not a head.
    #[error("a stored head is damaged")]
    Damaged,
}

impl StoredHead {
    /// A head with what may be kept of `headers`, exchanged at these moments (unix milliseconds).
    /// For a master, which makes its heads itself; an edge gets its own from
    /// [`crate::storable()`].
    pub fn new(status: StatusCode, headers: &HeaderMap, request_ms: u64, response_ms: u64) -> Self {
        let mut headers = end_to_end(headers);
        for name in [CONTENT_LENGTH, ACCEPT_RANGES, TRAILER, ALT_SVC] {
            headers.remove(name);
        }
        let is_part = status == StatusCode::PARTIAL_CONTENT;
        if is_part {
            headers.remove(CONTENT_RANGE);
        }
        let status = if is_part { StatusCode::OK } else { status };
        Self { status, headers, request_ms, response_ms, master: None }
    }

    /// Whether ranges of it may be served.
    pub fn has_ranges(&self) -> bool {
        self.status == StatusCode::OK
    }

    /// The bytes to keep.
    pub fn to_bytes(&self) -> Bytes {
        let count = u16::try_from(self.headers.len()).unwrap_or(u16::MAX);
        let mut out = BytesMut::with_capacity(512);
        out.put_u8(VERSION);
        out.put_u16_le(self.status.as_u16());
        out.put_u64_le(self.request_ms);
        out.put_u64_le(self.response_ms);
        out.put_u16_le(count);
        // A HeaderMap holds at most 32,768 fields and names of at most 65,535 bytes; a value of
        // 4 GiB cannot come through any connection. If one of these changed, reading would refuse.
        for (name, value) in self.headers.iter().take(usize::from(count)) {
            out.put_u16_le(u16::try_from(name.as_str().len()).unwrap_or(u16::MAX));
            out.put_u32_le(u32::try_from(value.len()).unwrap_or(u32::MAX));
            out.put_slice(name.as_str().as_bytes());
            out.put_slice(value.as_bytes());
        }
        if let Some(master) = &self.master
            && let Ok(length) = u8::try_from(master.as_str().len())
        {
            out.put_slice(&[MASTER, length]);
            out.put_slice(master.as_str().as_bytes());
        }
        out.freeze()
    }

    /// The head that [`Self::to_bytes`] wrote. Its values share the memory of `bytes`.
    pub fn from_bytes(bytes: &Bytes) -> Result<Self, HeadError> {
        let mut rest = bytes.clone();
        match rest.try_get_u8() {
            Ok(VERSION) => {}
            Ok(other) => return Err(HeadError::Version(other)),
            Err(_) => return Err(HeadError::Damaged),
        }
        Self::read_fields(&mut rest).filter(|_| rest.is_empty()).ok_or(HeadError::Damaged)
    }

    fn read_fields(rest: &mut Bytes) -> Option<Self> {
        let status = StatusCode::from_u16(rest.try_get_u16_le().ok()?).ok()?;
        let request_ms = rest.try_get_u64_le().ok()?;
        let response_ms = rest.try_get_u64_le().ok()?;
        let count = rest.try_get_u16_le().ok()?;
        let mut headers = HeaderMap::new();
        for _ in 0..count {
            let name_len = usize::from(rest.try_get_u16_le().ok()?);
            let value_len = usize::try_from(rest.try_get_u32_le().ok()?).ok()?;
            if rest.len() < name_len.checked_add(value_len)? {
                return None;
            }
            let name = HeaderName::from_bytes(&rest.split_to(name_len)).ok()?;
            let value = HeaderValue::from_maybe_shared(rest.split_to(value_len)).ok()?;
            headers.try_append(name, value).ok()?;
        }
        let mut master = None;
        while !rest.is_empty() {
            let (kind, length) = (rest.try_get_u8().ok()?, rest.try_get_u8().ok()?);
            if rest.len() < usize::from(length) {
                return None;
            }
            let value = rest.split_to(usize::from(length));
            if kind == MASTER {
                master = str::from_utf8(&value).ok().and_then(|name| name.parse().ok());
            }
        }
        Some(Self { status, headers, request_ms, response_ms, master })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fields, head};

    #[test]
    fn the_bytes_are_as_documented() {
        let mut stored = head(200, &[("etag", "\"a\"")]);
        (stored.request_ms, stored.response_ms) = (1, 2);
        let want = [
            &[1, 200, 0][..],
            &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0],
            &[1, 0, 4, 0, 3, 0, 0, 0],
            b"etag\"a\"",
        ]
        .concat();
        assert_eq!(stored.to_bytes(), want);
        // What is for the edge alone follows; of that, what nobody knows is passed over.
        stored.master = Some("m1".parse().unwrap());
        let with_master = [&want[..], &[1, 2], b"m1"].concat();
        assert_eq!(stored.to_bytes(), with_master);
        let newer = [&want[..], &[9, 3], b"abc", &[1, 2], b"m1", &[8, 0]].concat();
        assert_eq!(StoredHead::from_bytes(&newer.into()), Ok(stored.clone()));
        let nameless = [&want[..], &[1, 2], b"!!"].concat();
        stored.master = None;
        assert_eq!(StoredHead::from_bytes(&nameless.into()), Ok(stored));
    }

    #[test]
    fn what_is_damaged_is_refused() {
        let good = head(404, &[("a", "1"), ("a", "2"), ("b", "")]).to_bytes();
        assert!(StoredHead::from_bytes(&good).is_ok());
        for n in 0..good.len() {
            let got = StoredHead::from_bytes(&good.slice(..n));
            assert_eq!(got, Err(HeadError::Damaged), "cut to {n}");
        }
        let longer = Bytes::from([&good[..], &[0]].concat());
        assert_eq!(StoredHead::from_bytes(&longer), Err(HeadError::Damaged));
        let newer = Bytes::from([&[2], &good[1..]].concat());
        assert_eq!(StoredHead::from_bytes(&newer), Err(HeadError::Version(2)));
    }

    #[test]
    fn only_what_belongs_to_the_representation_is_kept() {
        let received = fields(&[
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("keep-alive", "5"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("content-range", "bytes 0-4/10"),
            ("accept-ranges", "none"),
            ("alt-svc", "h3=\":9443\""),
            ("content-type", "text/plain"),
            ("repr-digest", "sha-256=:AAAA:"),
        ]);
        let kept = StoredHead::new(StatusCode::PARTIAL_CONTENT, &received, 1, 2);
        assert_eq!(kept.status, StatusCode::OK);
        let want = fields(&[("content-type", "text/plain"), ("repr-digest", "sha-256=:AAAA:")]);
        assert_eq!(kept.headers, want);
    }
}
