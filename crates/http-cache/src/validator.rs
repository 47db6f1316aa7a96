//! Entity tags, dates as validators, and preconditions both ways (RFC 9110 sections 8.8 and 13).

use http::header::{
    DATE, ETAG, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, LAST_MODIFIED,
};
use http::{HeaderMap, HeaderValue};

use crate::fields::{date_s, single};
use crate::stored::StoredHead;

/// An entity tag (RFC 9110 section 8.8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityTag<'a> {
    /// `W/` in front.
    pub weak: bool,
    /// What stands between the quotes.
    pub opaque: &'a [u8],
}

impl<'a> EntityTag<'a> {
    /// The tag that a value is, whole.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let (tag, rest) = Self::take(value.trim_ascii())?;
        rest.is_empty().then_some(tag)
    }

    /// The tag of a head, if it has exactly one that is right.
    pub fn of(headers: &'a HeaderMap) -> Option<Self> {
        Self::parse(single(headers, ETAG)?.as_bytes())
    }

    /// The tag at the beginning of `text`, and what follows it.
    fn take(text: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (weak, text) = match text.strip_prefix(b"W/") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let text = text.strip_prefix(b"\"")?;
        // No escapes here: a backslash is a character like any other.
        let end = text.iter().position(|b| !matches!(b, 0x21 | 0x23..=0x7e | 0x80..))?;
        let (opaque, rest) = text.split_at_checked(end)?;
        Some((Self { weak, opaque }, rest.strip_prefix(b"\"")?))
    }

    /// Strong comparison: both strong and equal.
    pub fn is_strongly(&self, other: &EntityTag<'_>) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Weak comparison: equal, whatever their strength.
    pub fn is_weakly(&self, other: &EntityTag<'_>) -> bool {
        self.opaque == other.opaque
    }
}

/// A list of entity tags or `*`, as a client sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TagList {
    /// `*`.
    Any,
    /// The field's lines; read when compared, since most are compared once or never.
    Lines(Vec<HeaderValue>),
}

impl TagList {
    fn of(headers: &HeaderMap, name: HeaderName) -> Option<Self> {
        let lines: Vec<_> = headers.get_all(name).iter().cloned().collect();
        match lines.as_slice() {
            [] => None,
            [one] if one.as_bytes().trim_ascii() == b"*" => Some(Self::Any),
            _ => Some(Self::Lines(lines)),
        }
    }

    /// Whether `matches` holds for one of the tags; `*` holds for every representation there is.
    fn has(&self, matches: impl Fn(&EntityTag<'_>) -> bool) -> bool {
        match self {
            Self::Any => true,
            Self::Lines(lines) => lines.iter().any(|l| tags(l.as_bytes()).any(|t| matches(&t))),
        }
    }
}

/// The tags of one line; what is none is skipped up to the next comma.
fn tags(line: &[u8]) -> impl Iterator<Item = EntityTag<'_>> {
    let mut rest = line;
    std::iter::from_fn(move || {
        loop {
            rest = rest.trim_ascii_start();
            if rest.is_empty() {
                return None;
            }
            if let Some((tag, after)) = EntityTag::take(rest) {
                rest = after;
                return Some(tag);
            }
            let comma = rest.iter().position(|b| *b == b',')?;
            rest = rest.get(comma.saturating_add(1)..)?;
        }
    })
}

/// `If-Range` of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IfRange {
    /// An entity tag, as it stands in the field.
    Tag(HeaderValue),
    /// A date, as unix time in seconds.
    Date(u64),
    /// Neither: never true, so the whole is sent.
    Broken,
}

impl IfRange {
    /// Reads a request's head.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        if !headers.contains_key(IF_RANGE) {
            return None;
        }
        let value = single(headers, IF_RANGE);
        Some(match value {
            Some(v) if EntityTag::parse(v.as_bytes()).is_some() => Self::Tag(v.clone()),
            Some(v) => date_s(v).map_or(Self::Broken, Self::Date),
            None => Self::Broken,
        })
    }

    /// Whether the ranges may be served from this representation (RFC 9110 section 13.1.5): a
    /// strong tag that is equal, or the very date if that is a strong validator.
    pub fn holds(&self, stored: &StoredHead) -> bool {
        match self {
            Self::Tag(value) => EntityTag::parse(value.as_bytes())
                .zip(EntityTag::of(&stored.headers))
                .is_some_and(|(asked, held)| asked.is_strongly(&held)),
            Self::Date(asked) => {
                last_modified_s(&stored.headers) == Some(*asked) && date_is_strong(stored)
            }
            Self::Broken => false,
        }
    }
}

/// The preconditions of a request; `None` where absent or not to be evaluated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// `If-Match`.
    pub if_match: Option<TagList>,
    /// `If-None-Match`.
    pub if_none_match: Option<TagList>,
    /// `If-Modified-Since`, unix time in seconds.
    pub if_modified_since: Option<u64>,
    /// `If-Unmodified-Since`, unix time in seconds.
    pub if_unmodified_since: Option<u64>,
}

/// What preconditions lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Serve it.
    Go,
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

impl Preconditions {
    /// Reads a request's head. A date that is none, or stands twice, is ignored (RFC 9110
    /// sections 13.1.3 and 13.1.4).
    pub fn of(headers: &HeaderMap) -> Self {
        let date = |name: HeaderName| single(headers, name).and_then(date_s);
        Self {
            if_match: TagList::of(headers, IF_MATCH),
            if_none_match: TagList::of(headers, IF_NONE_MATCH),
            if_modified_since: date(IF_MODIFIED_SINCE),
            if_unmodified_since: date(IF_UNMODIFIED_SINCE),
        }
    }

    /// Evaluates them for a GET or HEAD in the order of RFC 9110 section 13.2.2. A cache may leave
    /// out `If-Match` and `If-Unmodified-Since`; we do not, because edges above and below us use
    /// them to keep the parts of one representation together.
    pub fn evaluate(&self, stored: &StoredHead) -> Verdict {
        if *self == Self::default() {
            return Verdict::Go;
        }
        let held = EntityTag::of(&stored.headers);
        let modified = last_modified_s(&stored.headers);
        let may_go = match (&self.if_match, self.if_unmodified_since) {
            (Some(TagList::Any), _) => true,
            (Some(list), _) => held.is_some_and(|h| list.has(|t| t.is_strongly(&h))),
            (None, Some(since)) => modified.is_none_or(|m| m <= since),
            (None, None) => true,
        };
        if !may_go {
            return Verdict::Failed;
        }
        let is_known = match (&self.if_none_match, self.if_modified_since) {
            (Some(TagList::Any), _) => true,
            (Some(list), _) => held.is_some_and(|h| list.has(|t| t.is_weakly(&h))),
            // Without Last-Modified the date of the message stands in (RFC 9111 section 4.3.2).
            (None, Some(since)) => modified
                .or_else(|| single(&stored.headers, DATE).and_then(date_s))
                .is_some_and(|m| m <= since),
            (None, None) => false,
        };
        if is_known { Verdict::NotModified } else { Verdict::Go }
    }
}

/// The validator of a stored representation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Validator {
    /// A strong entity tag: byte for byte the same, so that ranges may be joined.
    Strong(HeaderValue),
    /// A weak entity tag: good for revalidation only.
    Weak(HeaderValue),
    /// A date that is strong by RFC 9110 section 8.8.2.2: at least a second before `Date`.
    Date(HeaderValue),
    /// A date that is not: good for revalidation only.
    WeakDate(HeaderValue),
}

impl Validator {
    /// Whether parts that carry it may be joined to one representation.
    pub fn joins(&self) -> bool {
        matches!(self, Self::Strong(_) | Self::Date(_))
    }
}

/// The best validator of a stored representation. A weak tag is never bettered by a date: who
/// calls equal what differs in bytes does so under one date too.
pub fn validator(stored: &StoredHead) -> Option<Validator> {
    let headers = &stored.headers;
    if let Some(tag) = EntityTag::of(headers) {
        let value = headers.get(ETAG)?.clone();
        return Some(if tag.weak { Validator::Weak(value) } else { Validator::Strong(value) });
    }
    last_modified_s(headers)?;
    let value = headers.get(LAST_MODIFIED)?.clone();
    Some(if date_is_strong(stored) { Validator::Date(value) } else { Validator::WeakDate(value) })
}

pub(crate) fn last_modified_s(headers: &HeaderMap) -> Option<u64> {
    single(headers, LAST_MODIFIED).and_then(date_s)
}

/// Whether the object cannot have changed twice in the second it was last modified, by the clock
/// that dated the response; without `Date` (a master's own heads) that is ours.
pub(crate) fn date_is_strong(stored: &StoredHead) -> bool {
    let dated = single(&stored.headers, DATE).and_then(date_s).unwrap_or(stored.response_ms / 1000);
    last_modified_s(&stored.headers).is_some_and(|modified| modified < dated)
}

/// Fields that make a request for the whole a revalidation (`If-None-Match`,
/// `If-Modified-Since`); empty without a validator.
pub fn revalidation_headers(stored: &StoredHead) -> HeaderMap {
    let mut fields = HeaderMap::new();
    if EntityTag::of(&stored.headers).is_some()
        && let Some(tag) = stored.headers.get(ETAG)
    {
        fields.insert(IF_NONE_MATCH, tag.clone());
    }
    if last_modified_s(&stored.headers).is_some()
        && let Some(date) = stored.headers.get(LAST_MODIFIED)
    {
        fields.insert(IF_MODIFIED_SINCE, date.clone());
    }
    fields
}

/// Fields that make a request for further ranges fail with 412 when the representation is another
/// (`If-Match` or `If-Unmodified-Since`); `None` when its parts cannot be joined: then only one
/// upstream response can fill it.
///
/// Not every upstream obeys them, so the reply is checked with [`crate::same_representation`].
pub fn range_headers(stored: &StoredHead) -> Option<HeaderMap> {
    let (name, value) = match validator(stored)? {
        Validator::Strong(tag) => (IF_MATCH, tag),
        Validator::Date(date) => (IF_UNMODIFIED_SINCE, date),
        Validator::Weak(_) | Validator::WeakDate(_) => return None,
    };
    let mut fields = HeaderMap::new();
    fields.insert(name, value);
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::head;

    const EARLY: &str = "Thu, 31 Dec 2026 23:00:00 GMT";
    const LATE: &str = "Fri, 01 Jan 2027 00:00:00 GMT";

    #[test]
    fn tags_are_read_as_they_stand() {
        let tag = |s: &'static str| EntityTag::parse(s.as_bytes());
        assert_eq!(tag("\"a\""), Some(EntityTag { weak: false, opaque: b"a" }));
        assert_eq!(tag("W/\"\""), Some(EntityTag { weak: true, opaque: b"" }));
        assert_eq!(tag("\"a,b\\\""), Some(EntityTag { weak: false, opaque: b"a,b\\" }));
        for bad in ["", "a", "\"a", "a\"", "w/\"a\"", "W\"a\"", "\"a\" \"b\"", "\"a b\"", "\"a\"b"]
        {
            assert_eq!(tag(bad), None, "{bad}");
        }
        let found: Vec<_> = tags(br#"bad, "a" ,, W/"b,c","d" x, "e"#).collect();
        let opaque: Vec<_> = found.iter().map(|t| t.opaque).collect();
        assert_eq!(opaque, [b"a".as_slice(), b"b,c", b"d"]);
    }

    #[test]
    fn the_comparisons_of_rfc_9110_section_8_8_3_2() {
        for (a, b, strong, weak) in [
            ("W/\"1\"", "W/\"1\"", false, true),
            ("W/\"1\"", "W/\"2\"", false, false),
            ("W/\"1\"", "\"1\"", false, true),
            ("\"1\"", "\"1\"", true, true),
        ] {
            let a = EntityTag::parse(a.as_bytes()).unwrap();
            let b = EntityTag::parse(b.as_bytes()).unwrap();
            assert_eq!((a.is_strongly(&b), a.is_weakly(&b)), (strong, weak));
        }
    }

    #[test]
    fn preconditions_in_their_order() {
        use Verdict::{Failed, Go, NotModified};
        let stored = head(200, &[("etag", "\"a\""), ("last-modified", EARLY), ("date", LATE)]);
        let cases: &[(&[(&str, &str)], Verdict)] = &[
            (&[], Go),
            (&[("if-match", "\"a\"")], Go),
            (&[("if-match", "\"b\", \"a\"")], Go),
            (&[("if-match", "*")], Go),
            (&[("if-match", "\"b\"")], Failed),
            (&[("if-match", "W/\"a\"")], Failed),
            (&[("if-unmodified-since", EARLY)], Go),
            (&[("if-unmodified-since", "Thu, 31 Dec 2026 22:59:59 GMT")], Failed),
            (&[("if-unmodified-since", "yesterday")], Go),
            // A right If-Match makes If-Unmodified-Since void.
            (
                &[("if-match", "\"a\""), ("if-unmodified-since", "Thu, 31 Dec 2026 22:59:59 GMT")],
                Go,
            ),
            (&[("if-none-match", "\"a\"")], NotModified),
            (&[("if-none-match", "\"b\", W/\"a\"")], NotModified),
            (&[("if-none-match", "*")], NotModified),
            (&[("if-none-match", "\"b\"")], Go),
            (&[("if-none-match", "a")], Go),
            (&[("if-modified-since", EARLY)], NotModified),
            (&[("if-modified-since", LATE)], NotModified),
            (&[("if-modified-since", "Thu, 31 Dec 2026 22:59:59 GMT")], Go),
            (&[("if-modified-since", "0")], Go),
            // If-None-Match makes If-Modified-Since void, even when it is malformed.
            (&[("if-none-match", "\"b\""), ("if-modified-since", LATE)], Go),
            (&[("if-none-match", "b"), ("if-modified-since", LATE)], Go),
            (&[("if-match", "\"b\""), ("if-none-match", "\"a\"")], Failed),
            (&[("if-match", "\"a\""), ("if-none-match", "\"a\"")], NotModified),
        ];
        for (fields, want) in cases {
            let asked = Preconditions::of(&head(200, fields).headers);
            assert_eq!(asked.evaluate(&stored), *want, "{fields:?}");
        }
    }

    #[test]
    fn without_last_modified_the_message_date_stands_in() {
        let stored = head(200, &[("date", LATE)]);
        let since = |d: &str| Preconditions::of(&head(200, &[("if-modified-since", d)]).headers);
        assert_eq!(since(LATE).evaluate(&stored), Verdict::NotModified);
        assert_eq!(since(EARLY).evaluate(&stored), Verdict::Go);
    }

    #[test]
    fn if_range_needs_a_strong_equal_validator() {
        let strong = head(200, &[("etag", "\"a\""), ("last-modified", EARLY), ("date", LATE)]);
        let weak = head(200, &[("etag", "W/\"a\""), ("last-modified", LATE), ("date", LATE)]);
        for (stored, value, want) in [
            (&strong, "\"a\"", true),
            (&strong, "\"b\"", false),
            (&strong, "W/\"a\"", false),
            (&weak, "W/\"a\"", false),
            (&weak, "\"a\"", false),
            (&strong, EARLY, true),
            (&strong, "Thu, 31 Dec 2026 23:00:01 GMT", false),
            (&weak, LATE, false),
            (&strong, "a", false),
        ] {
            let asked = IfRange::of(&head(200, &[("if-range", value)]).headers).unwrap();
            assert_eq!(asked.holds(stored), want, "{value}");
        }
        assert_eq!(IfRange::of(&HeaderMap::new()), None);
    }

    #[test]
    fn validators_and_the_preconditions_made_of_them() {
        type Fields = &'static [(&'static str, &'static str)];
        let cases: [(Fields, &str, Fields, Option<Fields>); 8] = [
            (
                &[("etag", "\"a\""), ("last-modified", EARLY)],
                "Strong",
                &[("if-none-match", "\"a\""), ("if-modified-since", EARLY)],
                Some(&[("if-match", "\"a\"")]),
            ),
            (
                &[("etag", "W/\"a\""), ("last-modified", EARLY), ("date", LATE)],
                "Weak",
                &[("if-none-match", "W/\"a\""), ("if-modified-since", EARLY)],
                None,
            ),
            (
                &[("last-modified", EARLY), ("date", LATE)],
                "Date",
                &[("if-modified-since", EARLY)],
                Some(&[("if-unmodified-since", EARLY)]),
            ),
            (
                &[("last-modified", LATE), ("date", LATE)],
                "WeakDate",
                &[("if-modified-since", LATE)],
                None,
            ),
            (
                &[("last-modified", EARLY)],
                "Date",
                &[("if-modified-since", EARLY)],
                Some(&[("if-unmodified-since", EARLY)]),
            ),
            (&[("last-modified", LATE)], "WeakDate", &[("if-modified-since", LATE)], None),
            (&[("etag", "a"), ("last-modified", "soon")], "none", &[], None),
            (&[], "none", &[], None),
        ];
        for (fields, kind, revalidate, ranges) in cases {
            let stored = head(200, fields);
            let got = validator(&stored);
            let name = match &got {
                Some(Validator::Strong(_)) => "Strong",
                Some(Validator::Weak(_)) => "Weak",
                Some(Validator::Date(_)) => "Date",
                Some(Validator::WeakDate(_)) => "WeakDate",
                None => "none",
            };
            assert_eq!(name, kind, "{fields:?}");
            assert_eq!(got.is_some_and(|v| v.joins()), ranges.is_some(), "{fields:?}");
            assert_eq!(revalidation_headers(&stored), head(200, revalidate).headers);
            assert_eq!(range_headers(&stored), ranges.map(|r| head(200, r).headers));
        }
    }
}
