//! Updating a stored head from a 304 (RFC 9111 sections 3.2 and 4.3.4).
//!
//! The 304 never touches body or length, nor what describes the very bytes that are held: a field
//! of it that says otherwise speaks of other bytes.

use http::HeaderMap;
use http::header::{
    AGE, CONTENT_ENCODING, CONTENT_RANGE, DATE, ETAG, HeaderName, LAST_MODIFIED, SET_COOKIE,
};

use crate::directives::ResponseDirectives;
use crate::reply::Reply;
use crate::storable::{ensure_date, is_explicit};
use crate::stored::StoredHead;
use crate::validator::{EntityTag, last_modified_s};

/// Fields that belong to the held bytes.
const OF_THE_BYTES: [HeaderName; 7] = [
    CONTENT_ENCODING,
    CONTENT_RANGE,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("content-md5"),
    ETAG,
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
];

/// The updated head; `None` when the 304 speaks of another representation, so that the object must
/// be asked for again without preconditions.
pub fn merge_304(stored: &StoredHead, reply: &Reply<'_>) -> Option<StoredHead> {
    if !speaks_of(stored, reply.headers) {
        return None;
    }
    let (asked_ms, got_ms) = (reply.asked.wall_ms, reply.got.wall_ms);
    let mut news = StoredHead::new(reply.status, reply.headers, asked_ms, got_ms).headers;
    let d = ResponseDirectives::of(reply.headers);
    for name in OF_THE_BYTES.iter().chain(&d.unkept_fields) {
        news.remove(name);
    }
    if !d.public && !is_explicit(reply.headers, &d) {
        news.remove(SET_COOKIE);
    }
    let mut merged = StoredHead { request_ms: asked_ms, response_ms: got_ms, ..stored.clone() };
    // Both tell of the message that brought them, not of the representation.
    merged.headers.remove(AGE);
    merged.headers.remove(DATE);
    for name in news.keys() {
        merged.headers.remove(name);
    }
    for (name, value) in &news {
        merged.headers.append(name, value.clone());
    }
    ensure_date(&mut merged);
    Some(merged)
}

/// Whether the validators of a 304, as far as it has any, are those of what is held: a strong tag by
/// strong comparison, a weak one by weak. A 304 with none answers the validator we sent.
fn speaks_of(stored: &StoredHead, headers: &HeaderMap) -> bool {
    let held_date = last_modified_s(&stored.headers);
    match (EntityTag::of(headers), EntityTag::of(&stored.headers)) {
        (Some(new), Some(held)) if new.weak => new.is_weakly(&held),
        (Some(new), Some(held)) => new.is_strongly(&held),
        // A tag where there was none: the date must vouch for it.
        (Some(_), None) => held_date.is_some() && last_modified_s(headers) == held_date,
        (None, _) => {
            !headers.contains_key(LAST_MODIFIED)
                || held_date.is_none()
                || last_modified_s(headers) == held_date
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{START, fields, head};
    use http::StatusCode;

    const OLD: &str = "Thu, 31 Dec 2026 00:00:00 GMT";
    const NEW: &str = "Thu, 31 Dec 2026 12:00:00 GMT";

    type Fields<'a> = &'a [(&'a str, &'a str)];

    fn merge(stored: &StoredHead, list: Fields<'_>) -> Option<StoredHead> {
        let headers = fields(list);
        let (asked, got) = (START.plus_ms(60_000), START.plus_ms(61_000));
        merge_304(
            stored,
            &Reply { status: StatusCode::NOT_MODIFIED, headers: &headers, asked, got },
        )
    }

    #[test]
    fn fields_are_replaced_and_the_bytes_own_ones_stay() {
        let stored = head(
            200,
            &[
                ("etag", "\"a\""),
                ("cache-control", "max-age=1"),
                ("age", "50"),
                ("date", "Fri, 01 Jan 2027 00:00:00 GMT"),
                ("x-a", "1"),
                ("x-a", "2"),
                ("x-keep", "1"),
                ("repr-digest", "sha-256=:AAAA:"),
            ],
        );
        let merged = merge(
            &stored,
            &[
                ("etag", "W/\"a\""),
                ("cache-control", "max-age=3600"),
                ("x-a", "3"),
                ("content-length", "0"),
                ("content-encoding", "gzip"),
                ("content-range", "bytes 0-1/2"),
                ("content-md5", "AAAA"),
                ("content-type", "text/plain"),
                ("repr-digest", "sha-256=:BBBB:"),
                ("connection", "x-hop"),
                ("x-hop", "1"),
                ("set-cookie", "a=b"),
            ],
        )
        .unwrap();
        assert_eq!(merged.status, 200);
        assert_eq!(merged.request_ms, START.wall_ms + 60_000);
        assert_eq!(merged.response_ms, START.wall_ms + 61_000);
        let want = fields(&[
            ("etag", "\"a\""),
            ("cache-control", "max-age=3600"),
            ("date", "Fri, 01 Jan 2027 00:01:01 GMT"),
            ("x-a", "3"),
            ("x-keep", "1"),
            ("repr-digest", "sha-256=:AAAA:"),
            ("content-type", "text/plain"),
            ("set-cookie", "a=b"),
        ]);
        assert_eq!(merged.headers, want);
        // Without a lifetime nobody says that the cookie is for all.
        let merged = merge(&stored, &[("set-cookie", "a=b"), ("x-a", "3")]).unwrap();
        assert!(!merged.headers.contains_key("set-cookie"));
    }

    #[test]
    fn a_304_of_another_representation_is_refused() {
        let by_tag = head(200, &[("etag", "\"a\""), ("last-modified", OLD)]);
        let by_date = head(200, &[("last-modified", OLD)]);
        let by_weak = head(200, &[("etag", "W/\"a\"")]);
        let by_none = head(200, &[]);
        let cases: &[(&StoredHead, Fields<'_>, bool)] = &[
            (&by_tag, &[("etag", "\"a\"")], true),
            (&by_tag, &[("etag", "\"b\"")], false),
            (&by_tag, &[("etag", "\"b\""), ("last-modified", OLD)], false),
            (&by_tag, &[("etag", "\"a\""), ("last-modified", NEW)], true),
            (&by_tag, &[("last-modified", OLD)], true),
            (&by_tag, &[("last-modified", NEW)], false),
            (&by_tag, &[], true),
            (&by_tag, &[("etag", "W/\"a\"")], true),
            (&by_weak, &[("etag", "W/\"a\"")], true),
            (&by_weak, &[("etag", "\"a\"")], false),
            (&by_date, &[("last-modified", OLD)], true),
            (&by_date, &[("last-modified", NEW)], false),
            (&by_date, &[("last-modified", "soon")], false),
            (&by_date, &[("etag", "\"a\"")], false),
            (&by_date, &[("etag", "\"a\""), ("last-modified", OLD)], true),
            (&by_date, &[], true),
            (&by_none, &[("etag", "\"a\"")], false),
            (&by_none, &[], true),
        ];
        for (stored, list, want) in cases {
            assert_eq!(merge(stored, list).is_some(), *want, "{:?} {list:?}", stored.headers);
        }
    }
}
