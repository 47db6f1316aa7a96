//! Whether a reply may be kept (RFC 9111 sections 3 and 3.5, and the house's decisions).

use std::fmt;

use http::header::{CONTENT_TYPE, DATE, EXPIRES, HeaderName, SET_COOKIE};
use http::{HeaderMap, StatusCode};

use crate::directives::ResponseDirectives;
use crate::fields::{date_s, date_value, single};
use crate::freshness::{Policy, forbids_storing, freshness, is_heuristic, is_understood};
use crate::reply::{ContentRange, Reply};
use crate::request::Request;
use crate::stored::StoredHead;
use crate::validator::validator;
use crate::vary::varying;

/// Why a reply is not kept. Prints one stable word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoCache {
    /// `no-store`.
    NoStore,
    /// `private`.
    Private,
    /// The request has `Authorization`, and the response does not say that it may be shared.
    Authorization,
    /// `Vary: *`: nobody can tell whom it suits.
    Vary,
    /// `Vary` names more fields, or there are more variants, than are kept of one target.
    VaryMany,
    /// The client forbids an answer without a content coding, which is what is held.
    ContentEncoding,
    /// `Set-Cookie` without `public` or a lifetime.
    SetCookie,
    /// A status that is never kept, or not without being told so: 206 that names no range, 302
    /// without a lifetime, 304, 416 ...
    Status,
    /// An error without explicit freshness goes to its requester alone.
    Error,
    /// Neither validator nor lifetime: could never be used again.
    NoValidator,
    /// The length is not known beforehand, and it does not end soon.
    LengthUnknown,
    /// The disk of the cache cannot take it now.
    Disk,
    /// Another process has the disk now.
    HandedOver,
}

impl NoCache {
    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoStore => "no-store",
            Self::Private => "private",
            Self::Authorization => "authorization",
            Self::Vary => "vary",
            Self::VaryMany => "vary-many",
            Self::ContentEncoding => "content-encoding",
            Self::SetCookie => "set-cookie",
            Self::Status => "status",
            Self::Error => "error",
            Self::NoValidator => "no-validator",
            Self::LengthUnknown => "length-unknown",
            Self::Disk => "disk",
            Self::HandedOver => "handed-over",
        }
    }

    /// Whether the reply to a neutral fill request may be wrong for a client with fields of its
    /// own, so that its request is to be passed on as it made it.
    pub fn ask_for_client(self) -> bool {
        match self {
            Self::Private
            | Self::Authorization
            | Self::Vary
            | Self::VaryMany
            | Self::ContentEncoding
            | Self::SetCookie => true,
            Self::NoStore
            | Self::Status
            | Self::Error
            | Self::NoValidator
            | Self::LengthUnknown
            | Self::Disk
            | Self::HandedOver => false,
        }
    }
}

impl fmt::Display for NoCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Keeps or refuses a reply to a request for the whole or a part. What is kept is the head of the
/// whole representation, of [`Reply::complete_length`] bytes.
///
/// Keeping an error (which then has explicit freshness) in the place of content is another
/// question: [`crate::errors::may_replace`].
pub fn storable(
    request: &Request,
    reply: &Reply<'_>,
    policy: &Policy,
) -> Result<StoredHead, NoCache> {
    let d = ResponseDirectives::of(reply.headers);
    let mut stored =
        StoredHead::new(reply.status, reply.headers, reply.asked.wall_ms, reply.got.wall_ms);
    if !is_keepable(reply) {
        return Err(NoCache::Status);
    }
    check_permission(request, reply, &d)?;
    varying(reply.headers)?;
    let explicit = is_explicit(reply.headers, &d);
    let lifetime_s = freshness(&stored, reply.got, policy).lifetime_s;
    // An error page that is as old as it says is no accident of a moment; any other may be, whatever
    // lifetime the project gives to those that last.
    let is_error = reply.status.as_u16() >= 400;
    if is_error && !explicit && freshness(&stored, reply.got, &policy.lenient()).lifetime_s == 0 {
        return Err(NoCache::Error);
    }
    if !explicit && !d.public && !is_heuristic(reply.status) {
        return Err(NoCache::Status);
    }
    // Of a part the rest must be asked for; a whole of unknown length may end soon enough.
    if reply.status == StatusCode::PARTIAL_CONTENT && reply.complete_length().is_none() {
        return Err(NoCache::LengthUnknown);
    }
    if validator(&stored).is_none() && lifetime_s == 0 {
        return Err(NoCache::NoValidator);
    }
    for name in &d.unkept_fields {
        stored.headers.remove(name);
    }
    drop_message_digests(reply.status, &mut stored.headers);
    ensure_date(&mut stored);
    Ok(stored)
}

/// Whether the reply says how long it may be used.
pub(crate) fn is_explicit(headers: &HeaderMap, d: &ResponseDirectives) -> bool {
    let expires = !d.targeted && headers.contains_key(EXPIRES);
    d.s_maxage_s.is_some() || d.max_age_s.is_some() || expires
}

/// A final status that stands for something reusable. 416 and 304 speak of one request; a 206 must
/// name its one range.
fn is_keepable(reply: &Reply<'_>) -> bool {
    match reply.status.as_u16() {
        206 => {
            let kind = reply.headers.get(CONTENT_TYPE).map_or(&[][..], |v| v.as_bytes());
            let multi = kind.get(..10).is_some_and(|k| k.eq_ignore_ascii_case(b"multipart/"));
            let range = ContentRange::of(reply.headers);
            matches!(range, Some(ContentRange::Part { .. })) && !(multi && is_byteranges(kind))
        }
        304 | 412 | 416 => false,
        status => status >= 200,
    }
}

fn is_byteranges(kind: &[u8]) -> bool {
    kind.get(10..20).is_some_and(|k| k.eq_ignore_ascii_case(b"byteranges"))
}

/// `no-store`, `private`, `Authorization`, `Set-Cookie`.
fn check_permission(
    request: &Request,
    reply: &Reply<'_>,
    d: &ResponseDirectives,
) -> Result<(), NoCache> {
    let Reply { status, headers, .. } = *reply;
    if forbids_storing(d, status) {
        return Err(NoCache::NoStore);
    }
    if d.must_understand && !is_understood(status) {
        return Err(NoCache::Status);
    }
    if d.private {
        return Err(NoCache::Private);
    }
    let shared = d.public || d.s_maxage_s.is_some();
    if request.authorized && !shared && !d.must_revalidate {
        return Err(NoCache::Authorization);
    }
    let cookie = headers.contains_key(SET_COOKIE) && !d.unkept_fields.contains(&SET_COOKIE);
    if cookie && !d.public && !is_explicit(headers, d) {
        return Err(NoCache::SetCookie);
    }
    Ok(())
}

/// Digests of the message's content, unlike `Repr-Digest`, say nothing of the whole when the
/// message was a part (RFC 9530 section 2).
pub(crate) fn drop_message_digests(status: StatusCode, headers: &mut HeaderMap) {
    if status == StatusCode::PARTIAL_CONTENT {
        headers.remove(HeaderName::from_static("content-digest"));
        headers.remove(HeaderName::from_static("content-md5"));
    }
}

/// A recipient with a clock gives a message without a right `Date` the time of its receipt
/// (RFC 9110 section 6.6.1).
pub(crate) fn ensure_date(stored: &mut StoredHead) {
    if single(&stored.headers, DATE).and_then(date_s).is_none()
        && let Some(now) = date_value(stored.response_ms / 1000)
    {
        stored.headers.insert(DATE, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fields, reply};
    use http::Method;

    type Fields<'a> = &'a [(&'a str, &'a str)];

    fn ask(list: Fields<'_>) -> Request {
        Request::parse(&Method::GET, &"/".parse().unwrap(), &fields(list)).unwrap()
    }

    fn keep(status: u16, list: Fields<'_>) -> Result<StoredHead, NoCache> {
        let mut headers = fields(list);
        headers.insert("content-length", http::HeaderValue::from_static("10"));
        storable(&ask(&[]), &reply(status, &headers), &Policy::default())
    }

    #[test]
    fn a_table_of_replies() {
        use NoCache::*;
        const LM: (&str, &str) = ("last-modified", "Thu, 31 Dec 2026 00:00:00 GMT");
        const FRESH: (&str, &str) = ("cache-control", "max-age=60");
        let cases: &[(u16, Fields<'_>, Option<NoCache>)] = &[
            (200, &[FRESH], None),
            (200, &[LM], None),
            (200, &[("etag", "\"a\"")], None),
            (200, &[], Some(NoValidator)),
            (200, &[("etag", "a")], Some(NoValidator)),
            (200, &[("cache-control", "max-age=0")], Some(NoValidator)),
            (200, &[("cache-control", "max-age=0"), LM], None),
            (200, &[("cache-control", "no-cache")], Some(NoValidator)),
            (200, &[("cache-control", "no-cache"), ("etag", "\"a\"")], None),
            (200, &[("cache-control", "no-store"), LM], Some(NoStore)),
            (200, &[("cache-control", "no-store, must-understand, max-age=60")], None),
            (299, &[("cache-control", "no-store, must-understand, max-age=60")], Some(NoStore)),
            (299, &[("cache-control", "must-understand, max-age=60")], Some(Status)),
            (200, &[("cache-control", "private, max-age=60")], Some(Private)),
            (200, &[("cache-control", "private=\"x\", max-age=60")], None),
            (200, &[("vary", "*"), FRESH], Some(Vary)),
            (200, &[("vary", "User-Agent"), FRESH], None),
            (200, &[("vary", "Accept-Encoding"), ("content-encoding", "gzip"), FRESH], None),
            // One coding for everybody is part of the representation.
            (200, &[("content-encoding", "gzip"), FRESH], None),
            (200, &[("set-cookie", "a=b"), LM], Some(SetCookie)),
            (200, &[("set-cookie", "a=b"), FRESH], None),
            (200, &[("set-cookie", "a=b"), ("cache-control", "public, max-age=60")], None),
            (200, &[("set-cookie", "a=b"), ("cache-control", "s-maxage=60")], None),
            (
                200,
                &[("set-cookie", "a=b"), ("cache-control", "max-age=60, no-cache=\"set-cookie\"")],
                None,
            ),
            (206, &[("content-range", "bytes 0-4/10"), LM], None),
            (206, &[LM], Some(Status)),
            (206, &[("content-range", "bytes */10"), LM], Some(Status)),
            (206, &[("content-range", "bytes 0-4/*"), LM], Some(LengthUnknown)),
            (
                206,
                &[
                    ("content-range", "bytes 0-4/10"),
                    ("content-type", "Multipart/ByteRanges; boundary=x"),
                    LM,
                ],
                Some(Status),
            ),
            (
                206,
                &[("content-range", "bytes 0-4/10"), ("content-type", "multipart/mixed"), LM],
                None,
            ),
            (301, &[LM], None),
            (302, &[LM], Some(Status)),
            (302, &[FRESH], None),
            (299, &[FRESH], None),
            (304, &[FRESH], Some(Status)),
            (412, &[FRESH], Some(Status)),
            (416, &[FRESH], Some(Status)),
            // For half a minute, as long as two equal ones.
            (404, &[LM], None),
            (404, &[("etag", "\"a\"")], Some(Error)),
            (503, &[LM], Some(Error)),
            (503, &[("cache-control", "public"), LM], None),
            (200, &[("cdn-cache-control", "no-store"), FRESH], Some(NoStore)),
            (200, &[("cache-control", "private"), ("cdn-cache-control", "max-age=60")], None),
            (404, &[FRESH], None),
            (503, &[FRESH], None),
            (503, &[], Some(Error)),
        ];
        for (status, list, want) in cases {
            assert_eq!(keep(*status, list).err(), *want, "{status} {list:?}");
        }
    }

    #[test]
    fn a_whole_may_be_of_any_length() {
        let headers = fields(&[("cache-control", "max-age=60")]);
        assert!(storable(&ask(&[]), &reply(200, &headers), &Policy::default()).is_ok());
        assert!(storable(&ask(&[]), &reply(204, &headers), &Policy::default()).is_ok());
    }

    #[test]
    fn authorization_needs_permission_to_share() {
        for (directives, want) in [
            ("max-age=60", Some(NoCache::Authorization)),
            ("max-age=60, public", None),
            ("max-age=60, must-revalidate", None),
            ("s-maxage=60", None),
        ] {
            let headers = fields(&[("cache-control", directives), ("content-length", "1")]);
            let got = storable(
                &ask(&[("authorization", "Basic eA==")]),
                &reply(200, &headers),
                &Policy::default(),
            );
            assert_eq!(got.err(), want, "{directives}");
        }
    }

    #[test]
    fn what_a_kept_head_looks_like() {
        let stored = keep(
            206,
            &[
                ("content-range", "bytes 0-4/10"),
                ("cache-control", "max-age=60, no-cache=\"x-once\""),
                ("x-once", "1"),
                ("x-more", "2"),
                ("content-digest", "sha-256=:AAAA:"),
                ("repr-digest", "sha-256=:BBBB:"),
            ],
        )
        .unwrap();
        assert_eq!(stored.status, 200);
        let want = fields(&[
            ("cache-control", "max-age=60, no-cache=\"x-once\""),
            ("x-more", "2"),
            ("repr-digest", "sha-256=:BBBB:"),
            ("date", "Fri, 01 Jan 2027 00:00:00 GMT"),
        ]);
        assert_eq!(stored.headers, want);
        let dated = keep(200, &[("cache-control", "max-age=60"), ("date", "soon")]).unwrap();
        assert_eq!(dated.headers["date"], "Fri, 01 Jan 2027 00:00:00 GMT");
    }
}
