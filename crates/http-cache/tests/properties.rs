//! Properties of the rules, against slow references.
#![allow(clippy::unwrap_used, reason = "generators make only what is right")]

use std::ops::Range;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method, StatusCode};
use http_cache::range::{ByteRanges, Resolved};
use http_cache::{Piece, Request, StoredHead, Target, key, respond};
use model::{Now, Query};
use proptest::prelude::*;

// --- ranges ---------------------------------------------------------------------------------

#[derive(Clone, Debug)]
enum Asked {
    From(u64),
    Between(u64, u64),
    Suffix(u64),
}

fn asked() -> impl Strategy<Value = Asked> {
    let n = prop_oneof![0u64..40, Just(u64::MAX)];
    prop_oneof![
        n.clone().prop_map(Asked::From),
        (n.clone(), n.clone()).prop_map(|(a, b)| Asked::Between(a.min(b), a.max(b))),
        n.prop_map(Asked::Suffix),
    ]
}

fn print(list: &[Asked]) -> String {
    let specs: Vec<_> = list
        .iter()
        .map(|a| match a {
            Asked::From(n) => format!("{n}-"),
            Asked::Between(a, b) => format!("{a}-{b}"),
            Asked::Suffix(n) => format!("-{n}"),
        })
        .collect();
    format!("bytes={}", specs.join(", "))
}

/// Whether byte `i` of `length` is asked for, said one byte at a time.
fn wants(a: &Asked, i: u64, length: u64) -> bool {
    match *a {
        Asked::From(first) => first <= i,
        Asked::Between(first, last) => first <= i && i <= last,
        Asked::Suffix(n) => length - i <= n,
    }
}

/// The bytes to send: in order of asking, ranges that share a byte joined (each byte once).
fn reference(list: &[Asked], length: u64) -> Vec<Vec<u64>> {
    let mut groups: Vec<Vec<u64>> = Vec::new();
    for a in list {
        let mut bytes: Vec<u64> = (0..length).filter(|i| wants(a, *i, length)).collect();
        if bytes.is_empty() {
            continue;
        }
        // Join until nothing is shared any more.
        let mut place = groups.len();
        while let Some(at) = groups.iter().position(|g| g.iter().any(|b| bytes.contains(b))) {
            bytes.extend(groups.remove(at));
            bytes.sort_unstable();
            bytes.dedup();
            place = place.min(at);
        }
        groups.insert(place.min(groups.len()), bytes);
    }
    groups
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn ranges_are_resolved_as_a_byte_by_byte_reader_would(
        list in prop::collection::vec(asked(), 1..8),
        length in 0u64..30,
    ) {
        let got = ByteRanges::parse(print(&list).as_bytes()).unwrap().resolve(length);
        let want = reference(&list, length);
        match got {
            Resolved::Parts(parts) => {
                let bytes: Vec<Vec<u64>> = parts.iter().cloned().map(Iterator::collect).collect();
                prop_assert_eq!(bytes, want);
            }
            Resolved::Unsatisfiable => prop_assert!(want.is_empty()),
            Resolved::Whole => prop_assert_eq!(length, 0),
        }
    }

    #[test]
    fn an_answer_is_as_long_as_it_says_and_sends_each_byte_once(
        list in prop::collection::vec(asked(), 1..40),
        length in prop_oneof![0u64..2000, (u64::MAX - 5)..u64::MAX],
    ) {
        let mut headers = HeaderMap::new();
        headers.insert("range", HeaderValue::from_str(&print(&list)).unwrap());
        let request = Request::parse(&Method::GET, &"/".parse().unwrap(), &headers).unwrap();
        let stored = StoredHead::new(StatusCode::OK, &HeaderMap::new(), 0, 0);
        let plan = respond(&request, &stored, length, Now::default());
        let sum: u128 = plan.pieces.iter().map(|p| u128::from(p.length())).sum();
        prop_assert_eq!(plan.headers["content-length"].to_str().unwrap(), sum.to_string());
        let mut parts: Vec<Range<u64>> = plan.content().collect();
        parts.sort_by_key(|r| r.start);
        prop_assert!(parts.windows(2).all(|w| w[0].end <= w[1].start));
        prop_assert!(parts.iter().all(|r| r.start < r.end && r.end <= length));
        let framed = plan.pieces.iter().any(|p| matches!(p, Piece::Framing(_)));
        prop_assert_eq!(framed, parts.len() > 1);
    }

    #[test]
    fn any_range_value_is_read_or_ignored(value in prop::collection::vec(any::<u8>(), 0..60)) {
        if let Some(ranges) = ByteRanges::parse(&value) {
            ranges.resolve(u64::MAX);
        }
    }
}

// --- targets --------------------------------------------------------------------------------

/// What a target means by the documented equivalences: characters, each plain or encoded, the path
/// with its dot segments resolved by the buffer algorithm of RFC 3986 section 5.2.4.
#[derive(Debug, PartialEq)]
struct Meaning {
    path: Vec<Char>,
    query: Option<Vec<Char>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Char {
    Plain(u8),
    Encoded(u8),
}

fn chars(text: &[u8], query: bool) -> Vec<Char> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((&byte, mut after)) = rest.split_first() {
        let unreserved = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
        let mut value = byte;
        let mut plain = unreserved(byte) || b"!$&'()*+,;=/:@".contains(&byte);
        plain |= query && byte == b'?';
        if byte == b'%' {
            value = u8::from_str_radix(std::str::from_utf8(&after[..2]).unwrap(), 16).unwrap();
            plain = unreserved(value);
            after = &after[2..];
        }
        out.push(if plain { Char::Plain(value) } else { Char::Encoded(value) });
        rest = after;
    }
    out
}

fn remove_dot_segments(path: &[Char]) -> Vec<Char> {
    let p = |s: &str| s.bytes().map(Char::Plain).collect::<Vec<_>>();
    let (mut input, mut output) = (path.to_vec(), Vec::<Char>::new());
    while !input.is_empty() {
        if input.starts_with(&p("/./")) {
            input.drain(..2);
        } else if input == p("/.") {
            input = p("/");
        } else if input.starts_with(&p("/../")) || input == p("/..") {
            input.drain(..3);
            if input.is_empty() {
                input = p("/");
            }
            while output.pop().is_some_and(|c| c != Char::Plain(b'/')) {}
        } else {
            let next = input.iter().skip(1).position(|c| *c == Char::Plain(b'/'));
            let end = next.map_or(input.len(), |n| n + 1);
            output.extend(input.drain(..end));
        }
    }
    output
}

fn meaning(target: &str) -> Meaning {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(chars(query.as_bytes(), true))),
        None => (target, None),
    };
    Meaning { path: remove_dot_segments(&chars(path.as_bytes(), false)), query }
}

/// Targets from few pieces, so that equivalent ones meet.
fn target() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "/", "/", "/", ".", ".", "..", "a", "%61", "A", "%41", "%2e", "%2E", "%2f", "%2F", "+",
        "%20", "~", "%7E", "{", "%7b", "%7B", "?", "%3F", "&", "%26", "\u{fc}", "%c3%bc", "\\",
        "%5c",
    ]);
    prop::collection::vec(piece, 0..9).prop_map(|p| format!("/{}", p.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn targets_are_merged_exactly_when_they_mean_the_same(a in target(), b in target()) {
        let (ta, tb) = (Target::parse(a.as_bytes()), Target::parse(b.as_bytes()));
        if let (Ok(ta), Ok(tb)) = (ta, tb) {
            let same = meaning(&a) == meaning(&b);
            prop_assert_eq!(ta == tb, same, "{} and {}: {} and {}", a, b, ta.as_str(), tb.as_str());
            let project = "p".parse().unwrap();
            prop_assert_eq!(key(&project, &ta) == key(&project, &tb), same);
        }
    }

    #[test]
    fn normalising_keeps_the_meaning_and_is_idempotent(a in target()) {
        if let Ok(normal) = Target::parse(a.as_bytes()) {
            prop_assert_eq!(meaning(normal.as_str()), meaning(&a));
            prop_assert_eq!(Target::parse(normal.as_str().as_bytes()), Ok(normal.clone()));
            // What is sent upstream is a URI.
            let uri: http::Uri = normal.as_str().parse().unwrap();
            prop_assert_eq!(Target::of(&uri), Ok(normal));
        }
    }

    /// What a project drops of a query neither travels nor makes another object.
    #[test]
    fn reducing_keeps_the_path_and_what_is_listed(
        a in target(),
        names in prop::collection::vec("[a-c]", 0..3),
    ) {
        if let Ok(normal) = Target::parse(a.as_bytes()) {
            for policy in [Query::Keep, Query::Drop, Query::Only(names)] {
                let reduced = normal.clone().reduced(&policy);
                prop_assert_eq!(reduced.path(), normal.path());
                prop_assert_eq!(Target::parse(reduced.as_str().as_bytes()), Ok(reduced.clone()));
                let again = reduced.clone().reduced(&policy);
                if let Query::Only(names) = &policy {
                    let is_listed = |p: &str| names.iter().any(|n| p.split('=').next() == Some(n));
                    prop_assert!(reduced.query().is_none_or(|q| q.split('&').all(is_listed)));
                    let distinct: std::collections::BTreeSet<_> = names.iter().collect();
                    prop_assert!(distinct.len() < names.len() || again == reduced);
                } else {
                    prop_assert_eq!(again, reduced);
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_a_target_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(normal) = Target::parse(&bytes) {
            prop_assert!(normal.as_str().bytes().all(|b| b.is_ascii_graphic()));
            prop_assert_eq!(Target::parse(normal.as_str().as_bytes()), Ok(normal.clone()));
        }
    }
}

// --- stored heads ---------------------------------------------------------------------------

fn stored_head() -> impl Strategy<Value = StoredHead> {
    let name = "[a-z][a-z0-9-]{0,12}".prop_map(|n| HeaderName::from_bytes(n.as_bytes()).unwrap());
    let value = prop::collection::vec(prop_oneof![Just(b'\t'), 0x20u8..0x7f, 0x80u8..=0xff], 0..20)
        .prop_map(|v| HeaderValue::from_bytes(&v).unwrap());
    let fields = prop::collection::vec((name, value), 0..12);
    (200u16..600, fields, any::<u64>(), any::<u64>()).prop_map(|(status, fields, asked, got)| {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name, value);
        }
        StoredHead {
            status: StatusCode::from_u16(status).unwrap(),
            headers,
            request_ms: asked,
            response_ms: got,
            master: asked.is_multiple_of(2).then(|| "m1".parse().unwrap()),
        }
    })
}

proptest! {
    #[test]
    fn heads_survive_the_disk(head in stored_head()) {
        prop_assert_eq!(StoredHead::from_bytes(&head.to_bytes()), Ok(head));
    }

    #[test]
    fn damaged_heads_never_panic(
        head in stored_head(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = head.to_bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(other) = StoredHead::from_bytes(&Bytes::from(bytes)) {
            prop_assert_eq!(StoredHead::from_bytes(&other.to_bytes()), Ok(other));
        }
    }

    #[test]
    fn any_bytes_are_a_head_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = StoredHead::from_bytes(&Bytes::from(bytes));
    }

    #[test]
    fn any_text_breaks_no_invariant(text in "[ -~\n]{0,300}") {
        http_cache::fuzz_headers(text.as_bytes());
    }

    #[test]
    fn likely_heads_break_no_invariant(
        fields in prop::collection::vec((0usize..FIELDS.len(), 0usize..VALUES.len()), 0..12),
        cuts in (0usize..12, 0usize..12),
    ) {
        let mut text = String::from("GET /\n");
        for (i, (f, v)) in fields.iter().enumerate() {
            if i == cuts.0 || i == cuts.1 {
                text.push_str(if i == cuts.0.min(cuts.1) { "\n200\n" } else { "\n" });
            }
            text.push_str(&format!("{}: {}\n", FIELDS[*f], VALUES[*v]));
        }
        http_cache::fuzz_headers(text.as_bytes());
    }
}

const FIELDS: [&str; 16] = [
    "range",
    "if-range",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
    "cache-control",
    "etag",
    "last-modified",
    "date",
    "expires",
    "age",
    "content-length",
    "content-range",
    "vary",
    "connection",
];

const VALUES: [&str; 22] = [
    "\"a\"",
    "W/\"a\"",
    "*",
    "\"b\", \"a\"",
    "bytes=0-1",
    "bytes=1-2,5-,-3",
    "bytes=-0",
    "bytes 0-4/10",
    "bytes */10",
    "bytes 0-4/*",
    "Fri, 01 Jan 2027 00:00:00 GMT",
    "Thu, 31 Dec 2026 23:59:59 GMT",
    "0",
    "10",
    "18446744073709551615",
    "max-age=10",
    "no-cache",
    "max-stale, min-fresh=5",
    "s-maxage=1, stale-if-error=5",
    "accept-encoding",
    "etag, close",
    "",
];
