//! Masters that name the same content otherwise: each web server makes entity tags in its own way, so
//! that two origins with equal files seldom have equal tags.
//!
//! Clients know the representation by the name that it was stored under, and resume by that name. So
//! what is held keeps its name, and an answer of another master counts as one about it when something
//! else proves that it is the same content: equal digests, or equal length and the same modification
//! date where that date is a strong validator on both sides (RFC 9110 section 8.8.2.2).

use http::HeaderMap;
use http::header::{
    CONTENT_ENCODING, ETAG, HeaderName, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE, LAST_MODIFIED,
};

use crate::digest::repr_digest;
use crate::merge::merge_304;
use crate::reply::Reply;
use crate::stored::StoredHead;
use crate::validator::{EntityTag, date_is_strong, last_modified_s};

const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
/// Algorithms that nobody can make two contents of one digest for (RFC 9530 section 5).
const STRONG: [&[u8]; 2] = [b"sha-256", b"sha-512"];

/// Fields that make a request to another master than the one that what is held came from a
/// revalidation: the tag says nothing there. `None` when the date proves nothing either.
pub fn revalidation_headers_elsewhere(stored: &StoredHead) -> Option<HeaderMap> {
    let date = stored.headers.get(LAST_MODIFIED).filter(|_| date_is_strong(stored))?;
    let mut fields = HeaderMap::new();
    fields.insert(IF_MODIFIED_SINCE, date.clone());
    Some(fields)
}

/// Fields that make a request for further ranges to such a master fail with 412 when its content is
/// another. The reply is to be checked with [`confirmed_elsewhere`].
pub fn range_headers_elsewhere(stored: &StoredHead) -> Option<HeaderMap> {
    let date = stored.headers.get(LAST_MODIFIED).filter(|_| date_is_strong(stored))?;
    let mut fields = HeaderMap::new();
    fields.insert(IF_UNMODIFIED_SINCE, date.clone());
    Some(fields)
}

/// What is held, of `length` bytes, as another master confirms it with this reply: a 304 to
/// [`revalidation_headers_elsewhere`], or the content itself. `None` when it speaks of other content,
/// or when that cannot be told.
pub fn confirmed_elsewhere(
    stored: &StoredHead,
    length: u64,
    reply: &Reply<'_>,
) -> Option<StoredHead> {
    let is_same = match reply.status.as_u16() {
        304 => {
            let date = last_modified_s(reply.headers);
            date_is_strong(stored)
                && date.is_none_or(|d| last_modified_s(&stored.headers) == Some(d))
        }
        200 | 206 => has_same_content(stored, length, reply),
        _ => false,
    };
    if !is_same {
        return None;
    }
    // Its names for the content are not ours.
    let mut headers = reply.headers.clone();
    headers.remove(ETAG);
    headers.remove(LAST_MODIFIED);
    merge_304(stored, &Reply { headers: &headers, ..*reply })
}

/// Whether a reply calls itself another representation than the held one: its tag, or without one its
/// date, is not the held one's. What says nothing does not.
pub fn names_another(stored: &StoredHead, reply: &HeaderMap) -> bool {
    let new_date = last_modified_s(reply);
    let is_other_date = new_date != last_modified_s(&stored.headers);
    match (EntityTag::of(&stored.headers), EntityTag::of(reply)) {
        (Some(held), Some(new)) => !new.is_weakly(&held),
        (None, Some(_)) => is_other_date,
        (_, None) => new_date.is_some() && is_other_date,
    }
}

/// Whether a 200 or 206 carries bytes of the held content, whatever it is called there.
fn has_same_content(stored: &StoredHead, length: u64, reply: &Reply<'_>) -> bool {
    let same = |name: &HeaderName| reply.headers.get(name) == stored.headers.get(name);
    if reply.complete_length() != Some(length) || !same(&CONTENT_ENCODING) {
        return false;
    }
    if let Some(equal) = digests_agree(&stored.headers, reply.headers) {
        return equal;
    }
    // Of a part it is the digest of the part.
    if reply.status == 200 && reply.headers.contains_key(&CONTENT_MD5) && same(&CONTENT_MD5) {
        return true;
    }
    let (asked_ms, got_ms) = (reply.asked.wall_ms, reply.got.wall_ms);
    let theirs = StoredHead::new(reply.status, reply.headers, asked_ms, got_ms);
    date_is_strong(stored)
        && date_is_strong(&theirs)
        && last_modified_s(reply.headers) == last_modified_s(&stored.headers)
}

/// Whether all strong digests that both have are equal; `None` when there is none.
fn digests_agree(a: &HeaderMap, b: &HeaderMap) -> Option<bool> {
    let pairs = STRONG.iter().filter_map(|name| repr_digest(a, name).zip(repr_digest(b, name)));
    pairs.map(|(a, b)| a == b).reduce(|all, one| all && one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{START, fields, head};
    use http::StatusCode;

    const OLD: &str = "Thu, 31 Dec 2026 00:00:00 GMT";
    const OTHER: &str = "Wed, 30 Dec 2026 00:00:00 GMT";
    const NOW: &str = "Fri, 01 Jan 2027 00:00:00 GMT";

    type Fields<'a> = &'a [(&'a str, &'a str)];

    fn confirmed(stored: &StoredHead, status: u16, list: Fields<'_>) -> Option<StoredHead> {
        let headers = fields(list);
        let status = StatusCode::from_u16(status).unwrap();
        let (asked, got) = (START.plus_ms(60_000), START.plus_ms(61_000));
        confirmed_elsewhere(stored, 10, &Reply { status, headers: &headers, asked, got })
    }

    #[test]
    fn equal_content_under_another_name_is_recognised_and_other_content_is_not() {
        let dated = head(200, &[("etag", "\"a\""), ("last-modified", OLD), ("date", NOW)]);
        let young = head(200, &[("etag", "\"a\""), ("last-modified", NOW), ("date", NOW)]);
        let digest = ("repr-digest", "sha-512=:AA==:, sha-256=:BB==:");
        let hashed = head(200, &[("etag", "\"a\""), digest]);
        let summed = head(200, &[("etag", "\"a\""), ("content-md5", "CC==")]);
        let (tag, ten) = (("etag", "\"b\""), ("content-length", "10"));
        let (lm, date) = (("last-modified", OLD), ("date", NOW));
        let part = ("content-range", "bytes 0-4/10");
        let cases: &[(&StoredHead, u16, Fields<'_>, bool)] = &[
            (&dated, 200, &[tag, lm, date, ten], true),
            (&dated, 206, &[tag, lm, date, part], true),
            (&dated, 200, &[tag, lm, date, ("content-length", "11")], false),
            (&dated, 200, &[tag, lm, date], false),
            (&dated, 200, &[tag, ("last-modified", OTHER), date, ten], false),
            (&dated, 200, &[tag, date, ten], false),
            (&dated, 200, &[tag, lm, date, ten, ("content-encoding", "gzip")], false),
            (&dated, 304, &[tag], true),
            (&dated, 304, &[tag, lm], true),
            (&dated, 304, &[tag, ("last-modified", OTHER)], false),
            (&dated, 404, &[tag, lm, date, ten], false),
            (&young, 200, &[tag, ("last-modified", NOW), date, ten], false),
            (&young, 304, &[tag], false),
            (&hashed, 200, &[tag, ten, ("repr-digest", "sha-256=:BB==:")], true),
            (&hashed, 206, &[tag, part, ("repr-digest", "sha-256=:BB==:")], true),
            (&hashed, 200, &[tag, ten, ("repr-digest", "sha-256=:DD==:")], false),
            (&hashed, 200, &[tag, ten, ("repr-digest", "md5=:BB==:")], false),
            (&summed, 200, &[tag, ten, ("content-md5", "CC==")], true),
            (&summed, 206, &[tag, part, ("content-md5", "CC==")], false),
            (&summed, 200, &[tag, ten, ("content-md5", "DD==")], false),
        ];
        for (stored, status, list, want) in cases {
            assert_eq!(confirmed(stored, *status, list).is_some(), *want, "{status} {list:?}");
        }
    }

    #[test]
    fn what_is_held_keeps_its_name_and_is_as_fresh_as_the_answer() {
        let stored = head(
            200,
            &[
                ("etag", "\"a\""),
                ("last-modified", OLD),
                ("date", NOW),
                ("cache-control", "max-age=1"),
            ],
        );
        let list = [
            ("etag", "W/\"b\""),
            ("last-modified", OLD),
            ("date", NOW),
            ("content-length", "10"),
            ("cache-control", "max-age=9"),
        ];
        let got = confirmed(&stored, 200, &list).unwrap();
        assert_eq!(got.headers["etag"], "\"a\"");
        assert_eq!(got.headers["last-modified"], OLD);
        assert_eq!(got.headers["cache-control"], "max-age=9");
        assert_eq!(got.response_ms, START.wall_ms + 61_000);
        let asked = revalidation_headers_elsewhere(&stored).unwrap();
        assert_eq!(asked, fields(&[("if-modified-since", OLD)]));
        let part = range_headers_elsewhere(&stored).unwrap();
        assert_eq!(part, fields(&[("if-unmodified-since", OLD)]));
        let undated = head(200, &[("etag", "\"a\"")]);
        assert_eq!(revalidation_headers_elsewhere(&undated), None);
        assert_eq!(range_headers_elsewhere(&undated), None);
    }

    #[test]
    fn who_names_it_otherwise() {
        let by_tag = head(200, &[("etag", "\"a\""), ("last-modified", OLD)]);
        let by_date = head(200, &[("last-modified", OLD)]);
        let cases: &[(&StoredHead, Fields<'_>, bool)] = &[
            (&by_tag, &[("etag", "\"a\"")], false),
            (&by_tag, &[("etag", "W/\"a\"")], false),
            (&by_tag, &[("etag", "\"b\""), ("last-modified", OLD)], true),
            (&by_tag, &[("last-modified", OLD)], false),
            (&by_tag, &[("last-modified", OTHER)], true),
            (&by_tag, &[], false),
            (&by_date, &[("etag", "\"a\""), ("last-modified", OLD)], false),
            (&by_date, &[("etag", "\"a\"")], true),
            (&by_date, &[("last-modified", OLD)], false),
            (&by_date, &[("last-modified", OTHER)], true),
        ];
        for (stored, list, want) in cases {
            assert_eq!(names_another(stored, &fields(list)), *want, "{list:?}");
        }
    }
}
