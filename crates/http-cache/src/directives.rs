//! `Cache-Control` and `Pragma`, of requests and responses (RFC 9111 sections 5.2 and 5.4), and
//! `CDN-Cache-Control` (RFC 9213), which takes the place of `Cache-Control` and `Expires` for us. It is
//! passed on: there may be other caches of this kind behind us.
//!
//! Reading is forgiving where that is safe and strict where it is not: unknown directives are
//! skipped, of doubled ones the first counts (section 4.2.1), and a lifetime that is no number
//! counts as 0, so that the response is stale.

use http::header::{CACHE_CONTROL, EXPIRES, HeaderName, PRAGMA};
use http::{HeaderMap, HeaderValue};

use crate::dictionary::{self, Value};
use crate::fields::{elements, seconds, unquoted};

/// `CDN-Cache-Control`.
const CDN_CACHE_CONTROL: HeaderName = HeaderName::from_static("cdn-cache-control");

/// The request directives that count. They are advisory (RFC 9111 section 5.2.1): `no-store` of a
/// request is not among them, because what others asked for anyway may be kept, and a client's
/// wish must not multiply fetches from a master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestDirectives {
    /// `no-cache`, or `Pragma: no-cache` without any `Cache-Control`.
    pub no_cache: bool,
    /// `max-age` in seconds.
    pub max_age_s: Option<u64>,
    /// `min-fresh` in seconds.
    pub min_fresh_s: Option<u64>,
    /// `max-stale` in seconds; without a value any staleness is accepted (`u64::MAX`).
    pub max_stale_s: Option<u64>,
    /// `only-if-cached`.
    pub only_if_cached: bool,
}

impl RequestDirectives {
    /// Reads a request's head.
    pub fn of(headers: &HeaderMap) -> Self {
        let mut d = Self::default();
        for (name, value) in directives(headers) {
            let number = value.and_then(|v| seconds(unquoted(v)));
            match Word::of(name) {
                Some(Word::NoCache) => d.no_cache = true,
                Some(Word::OnlyIfCached) => d.only_if_cached = true,
                Some(Word::MaxAge) => d.max_age_s = d.max_age_s.or(number),
                Some(Word::MinFresh) => d.min_fresh_s = d.min_fresh_s.or(number),
                Some(Word::MaxStale) if value.is_none() => d.max_stale_s = Some(u64::MAX),
                Some(Word::MaxStale) => d.max_stale_s = d.max_stale_s.or(number),
                _ => {}
            }
        }
        if !headers.contains_key(CACHE_CONTROL) {
            d.no_cache = elements(headers, PRAGMA).any(|e| e.eq_ignore_ascii_case(b"no-cache"));
        }
        d
    }
}

/// The response directives that count for a shared cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseDirectives {
    /// `no-store`.
    pub no_store: bool,
    /// `no-cache` without field names.
    pub no_cache: bool,
    /// `private` without field names.
    pub private: bool,
    /// `public`.
    pub public: bool,
    /// `must-revalidate` or `proxy-revalidate`.
    pub must_revalidate: bool,
    /// `must-understand`.
    pub must_understand: bool,
    /// `immutable` (RFC 8246).
    pub immutable: bool,
    /// Whether they stand in `CDN-Cache-Control`: `Expires` does not count then.
    pub targeted: bool,
    /// `max-age` in seconds; 0 when it is no number.
    pub max_age_s: Option<u64>,
    /// `s-maxage` in seconds; 0 when it is no number.
    pub s_maxage_s: Option<u64>,
    /// `stale-while-revalidate` in seconds (RFC 5861).
    pub stale_while_revalidate_s: Option<u64>,
    /// `stale-if-error` in seconds (RFC 5861).
    pub stale_if_error_s: Option<u64>,
    /// Fields named by `no-cache="..."` or `private="..."`: they are not kept.
    pub unkept_fields: Vec<HeaderName>,
}

impl ResponseDirectives {
    /// Reads a response's head.
    pub fn of(headers: &HeaderMap) -> Self {
        if let Some(d) = Self::targeted(headers) {
            return d;
        }
        let mut d = Self::default();
        for (name, value) in directives(headers) {
            if let Some(word) = Word::of(name) {
                d.take(word, value);
            }
        }
        d
    }

    /// Those of `CDN-Cache-Control`; `None` when it is absent, empty or not well-formed (RFC 9213
    /// section 2.2). A directive whose value has another type is not there.
    fn targeted(headers: &HeaderMap) -> Option<Self> {
        let lines: Vec<_> = headers.get_all(CDN_CACHE_CONTROL).iter().collect();
        if lines.is_empty() {
            return None;
        }
        let lines: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
        let members = dictionary::parse(&lines.join(&b','))?;
        if members.is_empty() {
            return None;
        }
        let mut d = Self { targeted: true, ..Self::default() };
        for (name, value) in members {
            let Some(word) = Word::of(&name) else { continue };
            match value {
                Value::Boolean(true) if !word.has_seconds() => d.take(word, None),
                Value::Integer(n) if word.has_seconds() => {
                    // A negative lifetime is none, like one that is no number.
                    d.take(word, Some(n.to_string().as_bytes()));
                }
                Value::String(names) if word.may_name_fields() => d.take(word, Some(&names)),
                _ => {}
            }
        }
        Some(d)
    }

    fn take(&mut self, word: Word, value: Option<&[u8]>) {
        let number = value.and_then(|v| seconds(unquoted(v)));
        let lifetime = || Some(number.unwrap_or(0));
        match word {
            Word::NoStore => self.no_store = true,
            Word::NoCache => match value {
                Some(fields) => self.unkept_fields.extend(field_names(fields)),
                None => self.no_cache = true,
            },
            Word::Private => match value {
                Some(fields) => self.unkept_fields.extend(field_names(fields)),
                None => self.private = true,
            },
            Word::Public => self.public = true,
            Word::MustRevalidate | Word::ProxyRevalidate => self.must_revalidate = true,
            Word::MustUnderstand => self.must_understand = true,
            Word::Immutable => self.immutable = true,
            Word::MaxAge => self.max_age_s = self.max_age_s.or_else(lifetime),
            Word::SMaxage => self.s_maxage_s = self.s_maxage_s.or_else(lifetime),
            Word::StaleWhileRevalidate => {
                self.stale_while_revalidate_s = self.stale_while_revalidate_s.or_else(lifetime);
            }
            Word::StaleIfError => {
                self.stale_if_error_s = self.stale_if_error_s.or_else(lifetime);
            }
            Word::OnlyIfCached | Word::MinFresh | Word::MaxStale => {}
        }
    }
}

#[derive(Clone, Copy)]
enum Word {
    NoStore,
    NoCache,
    Private,
    Public,
    MustRevalidate,
    ProxyRevalidate,
    MustUnderstand,
    Immutable,
    MaxAge,
    SMaxage,
    StaleWhileRevalidate,
    StaleIfError,
    OnlyIfCached,
    MinFresh,
    MaxStale,
}

const WORDS: [(&[u8], Word); 15] = [
    (b"max-age", Word::MaxAge),
    (b"s-maxage", Word::SMaxage),
    (b"public", Word::Public),
    (b"no-cache", Word::NoCache),
    (b"no-store", Word::NoStore),
    (b"private", Word::Private),
    (b"must-revalidate", Word::MustRevalidate),
    (b"proxy-revalidate", Word::ProxyRevalidate),
    (b"must-understand", Word::MustUnderstand),
    (b"immutable", Word::Immutable),
    (b"stale-while-revalidate", Word::StaleWhileRevalidate),
    (b"stale-if-error", Word::StaleIfError),
    (b"only-if-cached", Word::OnlyIfCached),
    (b"min-fresh", Word::MinFresh),
    (b"max-stale", Word::MaxStale),
];

impl Word {
    /// Whether its value is a number of seconds.
    fn has_seconds(self) -> bool {
        use Word::*;
        matches!(self, MaxAge | SMaxage | StaleWhileRevalidate | StaleIfError | MinFresh | MaxStale)
    }

    /// Whether it may name fields.
    fn may_name_fields(self) -> bool {
        matches!(self, Self::NoCache | Self::Private)
    }

    fn of(name: &[u8]) -> Option<Self> {
        WORDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(name)).map(|(_, word)| *word)
    }
}

/// Name and value of each directive. No space is allowed around `=`: with one, the name or the
/// number is not what it seems and is not taken for it.
fn directives(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
    elements(headers, CACHE_CONTROL).map(|e| match e.iter().position(|b| *b == b'=') {
        Some(at) => {
            let (name, value) = e.split_at_checked(at).unwrap_or((e, &[]));
            (name, Some(value.get(1..).unwrap_or(&[])))
        }
        None => (e, None),
    })
}

/// Makes a head say this lifetime, and no other. What it says besides of its use stays.
pub(crate) fn set_lifetime(headers: &mut HeaderMap, lifetime_s: u64) {
    let mut value = format!("max-age={lifetime_s}").into_bytes();
    for (name, argument) in directives(headers) {
        let is_lifetime = match Word::of(name) {
            Some(Word::MaxAge | Word::SMaxage) => true,
            Some(Word::NoCache) => argument.is_none(),
            _ => false,
        };
        if !is_lifetime {
            value.extend_from_slice(b", ");
            value.extend_from_slice(name);
            if let Some(argument) = argument {
                value.push(b'=');
                value.extend_from_slice(argument);
            }
        }
    }
    for name in [EXPIRES, PRAGMA, CDN_CACHE_CONTROL] {
        headers.remove(name);
    }
    // All of it stood in fields before.
    if let Ok(value) = HeaderValue::from_bytes(&value) {
        headers.insert(CACHE_CONTROL, value);
    }
}

fn field_names(value: &[u8]) -> impl Iterator<Item = HeaderName> + '_ {
    unquoted(value)
        .split(|b| *b == b',')
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fields;

    #[test]
    fn a_lifetime_takes_the_place_of_all_others() {
        let told = |list| {
            let mut headers = fields(list);
            set_lifetime(&mut headers, 60);
            headers
        };
        let want = |value| fields(&[("etag", "\"a\""), ("cache-control", value)]);
        let others = [("etag", "\"a\""), ("expires", "0"), ("cdn-cache-control", "max-age=9")];
        assert_eq!(told(&others), want("max-age=60"));
        let lines = [
            ("cache-control", "Max-Age=1, S-MAXAGE=2, public"),
            ("etag", "\"a\""),
            ("cache-control", "no-cache, no-cache=\"a, b\", x=\"max-age=1\", immutable"),
            ("pragma", "no-cache"),
        ];
        let kept = "max-age=60, public, no-cache=\"a, b\", x=\"max-age=1\", immutable";
        assert_eq!(told(&lines), want(kept));
    }

    fn response(lines: &[&'static str]) -> ResponseDirectives {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(CACHE_CONTROL, HeaderValue::from_static(line));
        }
        ResponseDirectives::of(&headers)
    }

    #[test]
    fn lifetimes_are_read_strictly() {
        for (line, want) in [
            ("max-age=60", Some(60)),
            ("MaX-aGe=60", Some(60)),
            ("foobar, max-age=60", Some(60)),
            (r#"max-age="60""#, Some(60)),
            ("max-age=0060", Some(60)),
            ("max-age='60'", Some(0)),
            ("max-age=-60", Some(0)),
            ("max-age=60.5", Some(0)),
            ("max-age=a60", Some(0)),
            ("max-age=60a", Some(0)),
            ("max-age= 60", Some(0)),
            ("max-age", Some(0)),
            ("max-age =60", None),
            (r#"x="max-age=60""#, None),
            (r#"x="max-age=60", max-age=1"#, Some(1)),
            ("max-age=1, max-age=60", Some(1)),
            ("max-age=60, max-age=1", Some(60)),
            ("max-age=99999999999", Some(1 << 31)),
        ] {
            assert_eq!(response(&[line]).max_age_s, want, "{line}");
        }
    }

    #[test]
    fn no_cache_and_private_may_name_fields_instead() {
        let d = response(&[r#"no-cache="a, Set-Cookie", private=b"#, "max-age=1"]);
        assert!(!d.no_cache && !d.private);
        assert_eq!(d.unkept_fields, ["a", "set-cookie", "b"]);
        let d = response(&["No-CaChE, nO-sToRe, PRIVATE"]);
        assert!(d.no_cache && d.no_store && d.private);
    }

    #[test]
    fn words_inside_quotes_do_not_count() {
        let d = response(&[r#"x="no-store, private", public, s-maxage=5, stale-if-error=7"#]);
        assert!(!d.no_store && !d.private && d.public);
        assert_eq!((d.s_maxage_s, d.stale_if_error_s), (Some(5), Some(7)));
    }

    #[test]
    fn what_is_meant_for_cdns_takes_the_place_of_the_rest() {
        let of = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            headers.append(CACHE_CONTROL, HeaderValue::from_static("private, max-age=1"));
            for line in lines {
                headers.append(CDN_CACHE_CONTROL, HeaderValue::from_static(line));
            }
            ResponseDirectives::of(&headers)
        };
        let d = of(&["max-age=60", "must-revalidate"]);
        assert!(d.targeted && d.must_revalidate && !d.private);
        assert_eq!(d.max_age_s, Some(60));
        let d = of(&[r#"no-cache="a, b";x=1, public, s-maxage=5, foo=bar"#]);
        assert_eq!(d.unkept_fields, ["a", "b"]);
        assert!(d.public && !d.no_cache && d.s_maxage_s == Some(5) && d.max_age_s.is_none());
        // A value of another type: the directive is not there.
        let d = of(&["max-age=\"60\", no-store=1, private=?0, no-cache"]);
        assert!(d.targeted && d.no_cache && !d.no_store && !d.private && d.max_age_s.is_none());
        assert_eq!(of(&["max-age=-1"]).max_age_s, Some(0));
        // Not well-formed, or empty: as if it were not there.
        for bad in ["", "Max-Age=60", "max-age=60,", "max-age= 60", "no-store, =1"] {
            let d = of(&[bad]);
            assert!(!d.targeted && d.private && d.max_age_s == Some(1), "{bad}");
        }
    }

    #[test]
    fn request_directives_and_pragma() {
        let of = |lines: &[(HeaderName, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(name, HeaderValue::from_static(value));
            }
            RequestDirectives::of(&headers)
        };
        assert!(of(&[(PRAGMA, "No-Cache")]).no_cache);
        assert!(!of(&[(PRAGMA, "no-cache"), (CACHE_CONTROL, "max-age=5")]).no_cache);
        let d = of(&[(CACHE_CONTROL, "max-age=0, max-stale, min-fresh=3, only-if-cached")]);
        assert_eq!((d.max_age_s, d.min_fresh_s), (Some(0), Some(3)));
        assert_eq!((d.max_stale_s, d.only_if_cached), (Some(u64::MAX), true));
        assert_eq!(of(&[(CACHE_CONTROL, "max-age=x, max-stale=9")]).max_age_s, None);
        assert_eq!(of(&[(CACHE_CONTROL, "max-stale=9")]).max_stale_s, Some(9));
    }
}
