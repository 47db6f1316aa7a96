//! The answer to a client from what is held (RFC 9110 sections 13.2 and 15.3.7, RFC 9111
//! section 4).

use std::ops::Range;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, AGE, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_RANGE,
    CONTENT_TYPE, ETAG, HeaderName, LAST_MODIFIED,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use model::Now;
use sha2::{Digest, Sha256};

use crate::directives::set_lifetime;
use crate::fields::number;
use crate::freshness::{Freshness, Policy};
use crate::hygiene::Identity;
use crate::range::{Resolved, span};
use crate::request::Request;
use crate::status::CacheStatus;
use crate::storable::drop_message_digests;
use crate::stored::StoredHead;
use crate::validator::Verdict;

/// A piece of an answer's body, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// These bytes (framing of multipart/byteranges).
    Framing(Bytes),
    /// These bytes of the representation.
    Content(Range<u64>),
}

impl Piece {
    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        match self {
            Self::Framing(bytes) => u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            Self::Content(range) => span(range),
        }
    }
}

/// An answer: its head, and what its body is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// 200 (or the stored status), 206, 304, 412 or 416.
    pub status: StatusCode,
    /// All fields, `Content-Length` included.
    pub headers: HeaderMap,
    /// The body; empty for HEAD, 304, 412 and 416. Otherwise the lengths of the pieces sum up to
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

    /// Adds what a cache adds and an origin does not: `Age`, `Via`, `Cache-Status`. `fresh`: what is
    /// stored, now. Where the project gives the lifetime, clients are told that one: none uses it for
    /// longer than we do.
    pub fn by_cache(
        mut self,
        stored: &StoredHead,
        fresh: &Freshness,
        policy: &Policy,
        me: &Identity,
        cache_status: &CacheStatus,
    ) -> Self {
        let own_error = matches!(self.status.as_u16(), 412 | 416) && self.status != stored.status;
        if !own_error {
            if policy.lifetime_s(stored.status).is_some() {
                set_lifetime(&mut self.headers, fresh.lifetime_s);
            }
            self.headers.insert(AGE, number(fresh.age_s));
        }
        me.add_via(&mut self.headers);
        cache_status.add(&mut self.headers, me);
        self
    }
}

/// Answers a request from a representation of `length` bytes: preconditions, then ranges. Without
/// the fields that only a cache adds: a master uses this as it is. `now` only varies the boundary
/// of several parts.
pub fn respond(request: &Request, stored: &StoredHead, length: u64, now: Now) -> Plan {
    respond_with(request, stored, length, now, || whole_fields(stored, length))
}

/// The same; `fields` gives those of an answer with the whole.
pub(crate) fn respond_with(
    request: &Request,
    stored: &StoredHead,
    length: u64,
    now: Now,
    fields: impl Fn() -> HeaderMap,
) -> Plan {
    // Preconditions and ranges speak of content that there is (RFC 9110 section 13.2.1).
    if stored.status.is_success() {
        match request.preconditions.evaluate(stored) {
            Verdict::NotModified => return not_modified(stored),
            Verdict::Failed => return own_error(StatusCode::PRECONDITION_FAILED),
            Verdict::Go => {}
        }
    }
    let range = request.range.as_ref().filter(|_| stored.has_ranges() && !request.head);
    let range = range.filter(|_| request.if_range.as_ref().is_none_or(|c| c.holds(stored)));
    let whole = || whole(request, stored, length, fields());
    match range.map_or(Resolved::Whole, |r| r.resolve(length)) {
        Resolved::Whole => whole(),
        Resolved::Unsatisfiable => unsatisfiable(length),
        Resolved::Parts(parts) => match parts.as_slice() {
            [one] => single_part(partial(fields()), one, length),
            _ => multipart(stored, &parts, length, now, partial(fields())).unwrap_or_else(whole),
        },
    }
}

/// The answer with the whole, or its head.
pub(crate) fn whole(
    request: &Request,
    stored: &StoredHead,
    length: u64,
    headers: HeaderMap,
) -> Plan {
    let has_body = !request.head && length > 0;
    let pieces = if has_body { vec![Piece::Content(0..length)] } else { Vec::new() };
    Plan { status: stored.status, headers, pieces }
}

/// The fields of an answer with the whole.
pub(crate) fn whole_fields(stored: &StoredHead, length: u64) -> HeaderMap {
    let mut headers = stored.headers.clone();
    if stored.has_ranges() {
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    }
    // No length where there is no content at all (RFC 9110 section 8.6).
    if !matches!(stored.status.as_u16(), 204 | 304) {
        headers.insert(CONTENT_LENGTH, number(length));
    }
    headers
}

/// A 304 has what a 200 would have of these: validators, caching, and nothing that describes
/// content (RFC 9110 section 15.4.5).
fn not_modified(stored: &StoredHead) -> Plan {
    let mut headers = stored.headers.clone();
    let about_content: Vec<HeaderName> = headers
        .keys()
        .filter(|n| {
            let name = n.as_str();
            (name.starts_with("content-")
                && **n != CONTENT_LOCATION
                && name != "content-security-policy")
                || matches!(name, "repr-digest" | "digest")
        })
        .cloned()
        .collect();
    for name in about_content {
        headers.remove(name);
    }
    if headers.contains_key(ETAG) {
        headers.remove(LAST_MODIFIED);
    }
    Plan { status: StatusCode::NOT_MODIFIED, headers, pieces: Vec::new() }
}

fn unsatisfiable(length: u64) -> Plan {
    let mut plan = own_error(StatusCode::RANGE_NOT_SATISFIABLE);
    if let Ok(value) = HeaderValue::from_str(&format!("bytes */{length}")) {
        plan.headers.insert(CONTENT_RANGE, value);
    }
    plan.headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    plan
}

/// An answer that says something of this request only: nobody may keep it.
fn own_error(status: StatusCode) -> Plan {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_LENGTH, number(0));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Plan { status, headers, pieces: Vec::new() }
}

/// Of the fields of the whole, those that are of a part too.
fn partial(mut headers: HeaderMap) -> HeaderMap {
    drop_message_digests(StatusCode::PARTIAL_CONTENT, &mut headers);
    headers
}

/// A 206 with one range. It has all fields of the 200 even after `If-Range`, where fewer would do:
/// clients that resume take the file's time from them.
fn single_part(mut headers: HeaderMap, part: &Range<u64>, length: u64) -> Plan {
    if let Ok(value) = HeaderValue::from_str(&content_range(part, length)) {
        headers.insert(CONTENT_RANGE, value);
    }
    headers.insert(CONTENT_LENGTH, number(span(part)));
    let pieces = vec![Piece::Content(part.clone())];
    Plan { status: StatusCode::PARTIAL_CONTENT, headers, pieces }
}

fn content_range(part: &Range<u64>, length: u64) -> String {
    format!("bytes {}-{}/{length}", part.start, part.end.saturating_sub(1))
}

/// A 206 with several ranges (RFC 9110 section 14.6); `None` when its length does not fit.
fn multipart(
    stored: &StoredHead,
    parts: &[Range<u64>],
    length: u64,
    now: Now,
    mut headers: HeaderMap,
) -> Option<Plan> {
    let boundary = boundary(stored, now);
    let kind = stored.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let mut pieces = Vec::with_capacity(parts.len().saturating_mul(2).saturating_add(1));
    let mut start = "--";
    for part in parts {
        let mut frame = format!("{start}{boundary}\r\n").into_bytes();
        if let Some(kind) = kind {
            frame.extend_from_slice(b"Content-Type: ");
            frame.extend_from_slice(kind);
            frame.extend_from_slice(b"\r\n");
        }
        let range = content_range(part, length);
        frame.extend_from_slice(format!("Content-Range: {range}\r\n\r\n").as_bytes());
        pieces.push(Piece::Framing(frame.into()));
        pieces.push(Piece::Content(part.clone()));
        start = "\r\n--";
    }
    pieces.push(Piece::Framing(format!("\r\n--{boundary}--\r\n").into()));
    let total = pieces.iter().try_fold(0u64, |sum, p| sum.checked_add(p.length()))?;
    headers.remove(CONTENT_RANGE);
    let kind = format!("multipart/byteranges; boundary={boundary}");
    headers.insert(CONTENT_TYPE, HeaderValue::from_str(&kind).ok()?);
    headers.insert(CONTENT_LENGTH, number(total));
    Some(Plan { status: StatusCode::PARTIAL_CONTENT, headers, pieces })
}

/// A boundary that whoever made the content could not know: it depends on the nanosecond of the
/// answer.
fn boundary(stored: &StoredHead, now: Now) -> String {
    let mut hash = Sha256::new();
    hash.update(now.mono_ns.to_le_bytes());
    hash.update(now.wall_ms.to_le_bytes());
    hash.update(stored.response_ms.to_le_bytes());
    hash.update(stored.headers.get(ETAG).map_or(&[][..], HeaderValue::as_bytes));
    hash.finalize().iter().take(12).map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::freshness::freshness;
    use crate::testing::{START, fields, head};
    use http::Method;

    type Fields<'a> = &'a [(&'a str, &'a str)];

    fn plan(method: Method, list: Fields<'_>, stored: &StoredHead, length: u64) -> Plan {
        let request = Request::parse(&method, &"/".parse().unwrap(), &fields(list)).unwrap();
        respond(&request, stored, length, START)
    }

    fn iso() -> StoredHead {
        head(
            200,
            &[
                ("content-type", "application/x-iso9660-image"),
                ("etag", "\"a\""),
                ("last-modified", "Thu, 31 Dec 2026 00:00:00 GMT"),
                ("date", "Fri, 01 Jan 2027 00:00:00 GMT"),
                ("content-digest", "sha-256=:AAAA:"),
                ("repr-digest", "sha-256=:AAAA:"),
                ("cache-control", "max-age=60"),
            ],
        )
    }

    #[test]
    fn whole_and_head() {
        let get = plan(Method::GET, &[], &iso(), 10);
        assert_eq!(get.status, 200);
        assert_eq!(get.pieces, [Piece::Content(0..10)]);
        assert_eq!(get.headers["content-length"], "10");
        assert_eq!(get.headers["accept-ranges"], "bytes");
        let head = plan(Method::HEAD, &[("range", "bytes=0-1")], &iso(), 10);
        assert_eq!(head.status, 200);
        assert_eq!(head.headers, get.headers);
        assert_eq!(head.pieces, []);
        assert_eq!(plan(Method::GET, &[], &iso(), 0).pieces, []);
    }

    #[test]
    fn one_range() {
        let got = plan(Method::GET, &[("range", "bytes=-3")], &iso(), 10);
        assert_eq!(got.status, 206);
        assert_eq!(got.pieces, [Piece::Content(7..10)]);
        assert_eq!(got.headers["content-range"], "bytes 7-9/10");
        assert_eq!(got.headers["content-length"], "3");
        assert_eq!(got.headers["content-type"], "application/x-iso9660-image");
        assert_eq!(got.headers["repr-digest"], "sha-256=:AAAA:");
        assert!(!got.headers.contains_key("content-digest"));
    }

    #[test]
    fn several_ranges_are_framed_to_the_byte() {
        let got = plan(Method::GET, &[("range", "bytes=8-,0-1")], &iso(), 10);
        assert_eq!(got.status, 206);
        let kind = got.headers["content-type"].to_str().unwrap();
        let boundary = kind.strip_prefix("multipart/byteranges; boundary=").unwrap();
        assert_eq!(boundary.len(), 24);
        let content = b"0123456789";
        let mut body = Vec::new();
        for piece in &got.pieces {
            match piece {
                Piece::Framing(bytes) => body.extend_from_slice(bytes),
                Piece::Content(r) => {
                    body.extend_from_slice(&content[r.start as usize..r.end as usize]);
                }
            }
        }
        let want = format!(
            "--{boundary}\r\nContent-Type: application/x-iso9660-image\r\n\
             Content-Range: bytes 8-9/10\r\n\r\n89\r\n\
             --{boundary}\r\nContent-Type: application/x-iso9660-image\r\n\
             Content-Range: bytes 0-1/10\r\n\r\n01\r\n--{boundary}--\r\n"
        );
        assert_eq!(String::from_utf8(body).unwrap(), want);
        assert_eq!(got.headers["content-length"], want.len().to_string().as_str());
        assert!(!got.headers.contains_key("content-range"));
        let later = {
            let list = fields(&[("range", "bytes=8-,0-1")]);
            let request = Request::parse(&Method::GET, &"/".parse().unwrap(), &list).unwrap();
            respond(&request, &iso(), 10, START.plus_ms(1))
        };
        assert_ne!(later.headers["content-type"], got.headers["content-type"]);
    }

    #[test]
    fn ranges_that_cannot_be_served() {
        let got = plan(Method::GET, &[("range", "bytes=10-")], &iso(), 10);
        assert_eq!(got.status, 416);
        assert_eq!(got.headers["content-range"], "bytes */10");
        assert_eq!(got.headers["content-length"], "0");
        assert!(!got.headers.contains_key("etag"));
        assert_eq!(got.pieces, []);
        // Parts of a length that no field can say: the whole instead of a wrong sum.
        let got =
            plan(Method::GET, &[("range", "bytes=0-9,11-18446744073709551614")], &iso(), u64::MAX);
        assert_eq!(got.status, 200);
    }

    #[test]
    fn if_range_decides_between_part_and_whole() {
        for (value, status) in [("\"a\"", 206), ("\"b\"", 200), ("W/\"a\"", 200), ("nonsense", 200)]
        {
            let list = [("range", "bytes=0-1"), ("if-range", value)];
            assert_eq!(plan(Method::GET, &list, &iso(), 10).status, status, "{value}");
        }
    }

    #[test]
    fn preconditions_come_before_ranges() {
        let list = [("range", "bytes=99-"), ("if-none-match", "\"a\"")];
        let got = plan(Method::GET, &list, &iso(), 10);
        assert_eq!(got.status, 304);
        let want = fields(&[
            ("etag", "\"a\""),
            ("date", "Fri, 01 Jan 2027 00:00:00 GMT"),
            ("cache-control", "max-age=60"),
        ]);
        assert_eq!(got.headers, want);
        let list = [("range", "bytes=99-"), ("if-match", "\"b\"")];
        assert_eq!(plan(Method::GET, &list, &iso(), 10).status, 412);
    }

    #[test]
    fn stored_errors_and_redirects_know_neither_preconditions_nor_ranges() {
        for status in [301, 404] {
            let stored = head(status, &[("etag", "\"a\"")]);
            let list = [("range", "bytes=0-1"), ("if-none-match", "\"a\"")];
            let got = plan(Method::GET, &list, &stored, 10);
            assert_eq!(got.status, status);
            assert_eq!(got.pieces, [Piece::Content(0..10)]);
            assert!(!got.headers.contains_key("accept-ranges"));
        }
    }

    #[test]
    fn a_cache_signs_what_it_serves() {
        let me = Identity::new(&"edge1".parse().unwrap());
        let mut stored = iso();
        stored.headers.append("via", HeaderValue::from_static("1.1 parent"));
        let now = START.plus_ms(5_000);
        let policy = Policy::default();
        let fresh = freshness(&stored, now, &policy);
        let signed =
            |plan: Plan| plan.by_cache(&stored, &fresh, &policy, &me, &CacheStatus::hit()).headers;
        let headers = signed(plan(Method::GET, &[], &stored, 10));
        assert_eq!(headers["age"], "5");
        let via: Vec<_> = headers.get_all("via").iter().collect();
        assert_eq!(via, ["1.1 parent", "1.1 edge1"]);
        assert_eq!(headers["cache-status"], "edge1; hit");
        let headers = signed(plan(Method::GET, &[("range", "bytes=99-")], &stored, 10));
        assert!(!headers.contains_key("age"));
        assert_eq!(headers["via"], "1.1 edge1");
    }
}
