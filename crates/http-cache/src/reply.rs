//! The head of an upstream reply, as far as it tells which bytes it carries.

use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderName};
use http::{HeaderMap, StatusCode};
use model::Now;

use crate::fields::{digits, single};
use crate::stored::StoredHead;
use crate::validator::{EntityTag, Validator, last_modified_s, validator};

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
    /// The length of the whole representation: `Content-Length`, or the complete length of a 206;
    /// 0 for statuses without content; `None` when unknown.
    pub fn complete_length(&self) -> Option<u64> {
        match self.status {
            StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT => Some(0),
            StatusCode::PARTIAL_CONTENT => match ContentRange::of(self.headers)? {
                ContentRange::Part { complete, .. } => complete,
                ContentRange::Unsatisfied { .. } => None,
            },
            _ => content_length(self.headers),
        }
    }
}

impl Reply<'_> {
    /// Whether the body of a 206 can be the range that it names: a `Content-Length` that is not the
    /// length of that range leaves open which bytes came (RFC 9110 section 14.4).
    pub fn fits_its_range(&self) -> bool {
        match (ContentRange::of(self.headers), content_length(self.headers)) {
            (Some(ContentRange::Part { first, last, .. }), Some(length)) => {
                last.checked_sub(first).and_then(|n| n.checked_add(1)) == Some(length)
            }
            _ => true,
        }
    }
}

/// `Content-Length`; `None` when absent, wrong or contradicting itself. Equal repetitions are one
/// (RFC 9110 section 8.6).
fn content_length(headers: &HeaderMap) -> Option<u64> {
    let mut all = headers.get_all(CONTENT_LENGTH).iter().map(|v| exact(v.as_bytes()));
    let first = all.next()??;
    all.all(|n| n == Some(first)).then_some(first)
}

/// A number that fits; unlike positions in a request, a length must not saturate.
fn exact(text: &[u8]) -> Option<u64> {
    digits(text).filter(|n| *n < u64::MAX)
}

/// A `Content-Range` of bytes (RFC 9110 section 14.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentRange {
    /// `bytes first-last/complete`.
    Part {
        /// First byte.
        first: u64,
        /// Last byte, included.
        last: u64,
        /// Length of the whole; unknown for `*`.
        complete: Option<u64>,
    },
    /// `bytes */complete` of a 416.
    Unsatisfied {
        /// Length of the whole.
        complete: u64,
    },
}

impl ContentRange {
    /// Understands the field of a head; `None` when absent, doubled, of another unit or not valid
    /// (`last` before `first`, or not inside the complete length).
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let value = single(headers, CONTENT_RANGE)?.to_str().ok()?;
        let (unit, rest) = value.split_once(' ')?;
        let (range, complete) = rest.split_once('/')?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        if range == "*" {
            return Some(Self::Unsatisfied { complete: exact(complete.as_bytes())? });
        }
        let (first, last) = range.split_once('-')?;
        let (first, last) = (exact(first.as_bytes())?, exact(last.as_bytes())?);
        let complete = if complete == "*" { None } else { Some(exact(complete.as_bytes())?) };
        let valid = first <= last && complete.is_none_or(|c| last < c);
        valid.then_some(Self::Part { first, last, complete })
    }
}

/// Whether a 200 or 206 carries bytes of the representation that `stored` heads and that is
/// `length` bytes long: same strong validator, same complete length, same coding (RFC 9110
/// section 15.3.7.3). Doubt is no.
pub fn same_representation(stored: &StoredHead, length: u64, reply: &Reply<'_>) -> bool {
    let is_content = matches!(reply.status, StatusCode::OK | StatusCode::PARTIAL_CONTENT);
    if !is_content || reply.complete_length() != Some(length) {
        return false;
    }
    let same = |name: HeaderName| reply.headers.get(&name) == stored.headers.get(&name);
    same(CONTENT_ENCODING)
        && match validator(stored) {
            Some(Validator::Strong(_)) => EntityTag::of(reply.headers)
                .zip(EntityTag::of(&stored.headers))
                .is_some_and(|(new, held)| new.is_strongly(&held)),
            Some(Validator::Date(_)) => {
                !reply.headers.contains_key(ETAG)
                    && last_modified_s(reply.headers) == last_modified_s(&stored.headers)
            }
            Some(Validator::Weak(_) | Validator::WeakDate(_)) | None => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fields, head, reply};

    type Fields<'a> = &'a [(&'a str, &'a str)];

    #[test]
    fn content_ranges() {
        let of = |v: &str| ContentRange::of(&fields(&[("content-range", v)]));
        let part = |first, last, complete| Some(ContentRange::Part { first, last, complete });
        assert_eq!(of("bytes 0-9/10"), part(0, 9, Some(10)));
        assert_eq!(of("Bytes 42-42/*"), part(42, 42, None));
        assert_eq!(of("bytes */10"), Some(ContentRange::Unsatisfied { complete: 10 }));
        for bad in [
            "",
            "bytes",
            "bytes 0-9",
            "bytes 0-9/",
            "bytes 9-0/10",
            "bytes 0-10/10",
            "bytes */*",
            "bytes=0-9/10",
            "items 0-9/10",
            "bytes 0-9/10, 1-2/10",
            "bytes -9/10",
            "bytes  0-9/10",
            "bytes 0-18446744073709551615/*",
            "bytes 0-1/99999999999999999999",
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
        let twice = fields(&[("content-range", "bytes 0-9/10"), ("content-range", "bytes 0-9/10")]);
        assert_eq!(ContentRange::of(&twice), None);
    }

    #[test]
    fn complete_lengths() {
        let cases: &[(u16, Fields<'_>, Option<u64>)] = &[
            (200, &[("content-length", "5")], Some(5)),
            (200, &[("content-length", "5"), ("content-length", "5")], Some(5)),
            (200, &[("content-length", "5"), ("content-length", "6")], None),
            (200, &[("content-length", "-5")], None),
            (200, &[("content-length", "99999999999999999999")], None),
            (200, &[], None),
            (206, &[("content-length", "5"), ("content-range", "bytes 0-4/10")], Some(10)),
            (206, &[("content-length", "5"), ("content-range", "bytes 0-4/*")], None),
            (206, &[("content-length", "5")], None),
            (204, &[], Some(0)),
        ];
        for (status, list, want) in cases {
            let headers = fields(list);
            assert_eq!(reply(*status, &headers).complete_length(), *want, "{status} {list:?}");
        }
    }

    #[test]
    fn same_representation_needs_proof() {
        const DAY: &str = "Thu, 31 Dec 2026 00:00:00 GMT";
        let by_tag = head(200, &[("etag", "\"a\"")]);
        let by_date =
            head(200, &[("last-modified", DAY), ("date", "Fri, 01 Jan 2027 00:00:00 GMT")]);
        let by_weak = head(200, &[("etag", "W/\"a\"")]);
        let by_none = head(200, &[]);
        let range = ("content-range", "bytes 0-4/10");
        let cases: &[(&StoredHead, u16, Fields<'_>, bool)] = &[
            (&by_tag, 206, &[("etag", "\"a\""), range], true),
            (&by_tag, 200, &[("etag", "\"a\""), ("content-length", "10")], true),
            (&by_tag, 206, &[("etag", "\"b\""), range], false),
            (&by_tag, 206, &[("etag", "W/\"a\""), range], false),
            (&by_tag, 206, &[range], false),
            (&by_tag, 206, &[("etag", "\"a\""), ("content-range", "bytes 0-4/11")], false),
            (&by_tag, 206, &[("etag", "\"a\""), ("content-range", "bytes 0-4/*")], false),
            (&by_tag, 206, &[("etag", "\"a\""), range, ("content-encoding", "gzip")], false),
            (&by_tag, 200, &[("etag", "\"a\"")], false),
            (&by_tag, 304, &[("etag", "\"a\""), ("content-length", "10")], false),
            (&by_date, 206, &[("last-modified", DAY), range], true),
            (&by_date, 206, &[("last-modified", DAY), ("etag", "\"a\""), range], false),
            (&by_date, 206, &[("last-modified", "Wed, 30 Dec 2026 00:00:00 GMT"), range], false),
            (&by_weak, 206, &[("etag", "W/\"a\""), range], false),
            (&by_none, 206, &[range], false),
        ];
        for (stored, status, list, want) in cases {
            let headers = fields(list);
            let got = same_representation(stored, 10, &reply(*status, &headers));
            assert_eq!(got, *want, "{status} {list:?}");
        }
    }
}
