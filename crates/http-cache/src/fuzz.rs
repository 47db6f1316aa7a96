//! One entry for fuzzers: any bytes, played through all rules, with the invariants asserted.
//!
//! The bytes are text in three parts, separated by empty lines: a request (`METHOD TARGET`, then
//! fields), a reply (`STATUS`, then fields), a 304 (fields). What is no line is skipped.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, ETAG, HeaderName};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use model::Now;

use crate::errors::{ErrorRun, meaning};
use crate::hygiene::{Identity, fill_request, pass_request, pass_response};
use crate::range::{ByteRanges, span};
use crate::reply::{ContentRange, Reply, same_representation};
use crate::request::Request;
use crate::respond::{Plan, respond};
use crate::status::CacheStatus;
use crate::stored::StoredHead;
use crate::target::Target;
use crate::validator::{range_headers, revalidation_headers, validator};
use crate::vary::{Selecting, Variants, varying};
use crate::{
    Policy, confirmed_elsewhere, freshness, invalidated, merge_304, names_another, next_step,
    storable,
};

/// Plays `data` through the rules. Panics only when an invariant is broken.
pub fn fuzz_headers(data: &[u8]) {
    fuzz_forms(data);
    let mut parts = data.split(|b| *b == b'\n').collect::<Vec<_>>();
    parts.truncate(1000);
    let mut parts = parts.split(|line| line.trim_ascii().is_empty());
    let request = parts.next().unwrap_or(&[]);
    let reply = parts.next().unwrap_or(&[]);
    let update = fields(parts.next().unwrap_or(&[]));
    let client = fields(request.get(1..).unwrap_or(&[]));
    let Some(request) = understand(request.first().copied().unwrap_or(&[]), &client) else {
        return;
    };
    let status = reply.first().and_then(|l| StatusCode::from_bytes(l.trim_ascii()).ok());
    let status = status.unwrap_or(StatusCode::OK);
    let headers = fields(reply.get(1..).unwrap_or(&[]));
    play(&request, &client, status, &headers, &update);
}

/// The readers of single values take any bytes.
fn fuzz_forms(data: &[u8]) {
    if let Ok(target) = Target::parse(data) {
        assert_eq!(Target::parse(target.as_str().as_bytes()).as_ref(), Ok(&target));
    }
    if let Some(ranges) = ByteRanges::parse(data) {
        for length in [0, 1, 1000, u64::MAX] {
            check_ranges(&ranges, length);
        }
    }
    if let Ok(stored) = StoredHead::from_bytes(&Bytes::copy_from_slice(data)) {
        assert_eq!(StoredHead::from_bytes(&stored.to_bytes()).as_ref(), Ok(&stored));
    }
}

fn check_ranges(ranges: &ByteRanges, length: u64) {
    if let crate::range::Resolved::Parts(parts) = ranges.resolve(length) {
        check_disjoint(&parts, length);
    }
}

fn check_disjoint(parts: &[std::ops::Range<u64>], length: u64) {
    let mut sorted = parts.to_vec();
    sorted.sort_by_key(|r| r.start);
    assert!(sorted.iter().all(|r| r.start < r.end && r.end <= length), "{parts:?} of {length}");
    let ends = sorted.iter().map(|r| r.end);
    assert!(ends.zip(sorted.iter().skip(1)).all(|(end, next)| end <= next.start), "{parts:?}");
}

fn fields(lines: &[&[u8]]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        let mut halves = line.splitn(2, |b| *b == b':');
        let name = halves.next().and_then(|n| HeaderName::from_bytes(n).ok());
        let value = halves.next().and_then(|v| HeaderValue::from_bytes(v.trim_ascii()).ok());
        if let Some((name, value)) = name.zip(value) {
            headers.append(name, value);
        }
    }
    headers
}

fn understand(line: &[u8], client: &HeaderMap) -> Option<Request> {
    let mut words = line.split(|b| *b == b' ');
    let method = Method::from_bytes(words.next()?).ok()?;
    let uri = http::Uri::from_maybe_shared(Bytes::copy_from_slice(words.next()?)).ok()?;
    Request::parse(&method, &uri, client).ok()
}

fn play(
    request: &Request,
    client: &HeaderMap,
    status: StatusCode,
    headers: &HeaderMap,
    update: &HeaderMap,
) {
    let asked = Now { mono_ns: 1, wall_ms: 1_798_761_600_000 };
    let (got, later) = (asked.plus_ms(1_500), asked.plus_ms(100_000));
    let Ok(node) = "edge1".parse() else { return };
    let me = Identity::new(&node);
    let reply = Reply { status, headers, asked, got };
    // Half of all projects give the lifetime themselves.
    let ttl_s = Some(60).filter(|_| headers.len().is_multiple_of(2));
    let policy = Policy { ttl_s, ..Policy::default() };
    ErrorRun::default().handle_error(got, status, &Policy::default());
    let _ = (meaning(status), ContentRange::of(headers), me.in_loop(client));
    let _ = (pass_request(client, &me), pass_response(headers, &me));
    let length = reply.complete_length().unwrap_or(1000);
    let kept = storable(request, &reply, &policy);
    let stored =
        kept.unwrap_or_else(|_| StoredHead::new(status, headers, asked.wall_ms, got.wall_ms));
    assert_eq!(StoredHead::from_bytes(&stored.to_bytes()).as_ref(), Ok(&stored));
    let record = Variants::new(varying(headers).unwrap_or_default(), got);
    assert_eq!(Variants::from_bytes(&record.to_bytes()).as_ref(), Some(&record));
    let selecting = Selecting::of(record.names(), client);
    let sent = fill_request(client, &me, &selecting, &revalidation_headers(&stored));
    assert_eq!(record.key(&[0; 16], client), record.key(&[0; 16], &sent));
    assert_eq!(validator(&stored).is_some_and(|v| v.joins()), range_headers(&stored).is_some());
    let held = freshness(&stored, later, &policy);
    assert!(!held.fresh || held.age_s < held.lifetime_s);
    let _ = next_step(request, Some((&stored, &held)), &policy).to_string();
    let _ = (same_representation(&stored, length, &reply), names_another(&stored, headers));
    if let Some(confirmed) = confirmed_elsewhere(&stored, length, &reply) {
        // Whatever another master calls it, it keeps its name.
        assert_eq!(confirmed.headers.get(ETAG), stored.headers.get(ETAG));
    }
    let changed = invalidated(&Method::POST, &request.target, "a.example", status, headers);
    assert!(changed.len() <= 3, "{changed:?}");
    check_plan(request, &respond(request, &stored, length, later), length);
    let status = StatusCode::NOT_MODIFIED;
    let update = Reply { status, headers: update, asked: later, got: later };
    if let Some(merged) = merge_304(&stored, &update) {
        // A 304 may bring a validator but never takes one away.
        assert!(validator(&merged).is_some() || validator(&stored).is_none());
        let plan = respond(request, &merged, length, later);
        check_plan(request, &plan, length);
        let fresh = freshness(&merged, later, &policy);
        let signed = plan.by_cache(&merged, &fresh, &policy, &me, &CacheStatus::hit());
        assert!(signed.headers.contains_key("via"));
    }
}

fn check_plan(request: &Request, plan: &Plan, length: u64) {
    let content: Vec<_> = plan.content().collect();
    check_disjoint(&content, length);
    let sum = plan.pieces.iter().map(crate::Piece::length).fold(0, u64::saturating_add);
    let said = plan.headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
    if request.head {
        assert!(plan.pieces.is_empty());
    } else if let Some(said) = said {
        assert_eq!(sum, said, "{plan:?}");
    }
    let most = content.iter().map(span).fold(0, u64::saturating_add);
    assert!(most <= length);
}
