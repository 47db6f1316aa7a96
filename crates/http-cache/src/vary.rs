//! Variants: representations of one target among which fields of the request choose (RFC 9110
//! section 12.5.5, RFC 9111 section 4.1).
//!
//! What does not vary stands under the key of its target. What does leaves a record there,
//! [`Variants`], that names the varying fields, and stands under a key of its own, made of the
//! target's key and of what the request says in these fields, normalised. A record that is made anew
//! (after a purge, say) has another `mark`, so that what stood under the former one is never found
//! again.
//!
//! Fields that a fill never takes from a client say the same in every fill: nothing varies by them.
//! Nor does an answer without a content coding vary by `Accept-Encoding`: it suits everybody but a
//! client that forbids it ([`crate::request::Request::refuses_identity`]).
//!
//! # Bytes of a record
//! All numbers little-endian: version `u8` = 2 (a stored head begins with 1), mark `u64` twice,
//! number of fields `u8`, for each the length of its name `u8` and the name; number of variants `u8`,
//! for each its key of 16 bytes; nothing after the last. What is broken is a miss.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::HeaderMap;
use http::header::{
    ACCEPT_ENCODING, ACCEPT_LANGUAGE, CONTENT_ENCODING, CONTENT_LANGUAGE, HeaderName, VARY,
};
use model::Now;
use sha2::{Digest, Sha256};

use crate::fields::{digits, elements};
use crate::hygiene::is_carried;
use crate::storable::NoCache;
use crate::target::Key;

const VERSION: u8 = 2;

/// The fields of a request that the answer says it varies by, in a fixed order; none when it is the
/// same for everybody. `Vary: *` cannot be kept at all.
pub fn varying(reply: &HeaderMap) -> Result<Vec<HeaderName>, NoCache> {
    let is_coded = elements(reply, CONTENT_ENCODING).any(|c| !c.eq_ignore_ascii_case(b"identity"));
    let mut names = Vec::new();
    for name in elements(reply, VARY) {
        // `*`, and what cannot be the name of a field.
        let name = HeaderName::from_bytes(name).map_err(|_| NoCache::Vary)?;
        if name == "*" {
            return Err(NoCache::Vary);
        }
        if is_carried(&name) && (is_coded || name != ACCEPT_ENCODING) {
            names.push(name);
        }
    }
    names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
    names.dedup();
    if names.len() > Variants::FIELDS_MAX {
        return Err(NoCache::VaryMany);
    }
    Ok(names)
}

/// Request fields that a fill takes from its client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selecting {
    names: Vec<HeaderName>,
    values: HeaderMap,
}

impl Selecting {
    /// What a request says in these fields. A field that it does not have is not sent either, not
    /// even with a value of ours.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a HeaderName>, request: &HeaderMap) -> Self {
        let mut selecting = Self::default();
        for name in names {
            if !is_carried(name) || selecting.names.contains(name) {
                continue;
            }
            selecting.names.push(name.clone());
            for value in request.get_all(name) {
                selecting.values.append(name, value.clone());
            }
        }
        selecting
    }

    /// Whether the field is the client's.
    pub fn has(&self, name: &HeaderName) -> bool {
        self.names.contains(name)
    }

    /// The fields.
    pub fn values(&self) -> &HeaderMap {
        &self.values
    }
}

/// Where the reply to a fill is to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Under the key of its target, in the place of whatever stands there.
    Plain,
    /// As a variant.
    Variant {
        /// The record of its target: the known one or another.
        record: Variants,
        /// Where it stands.
        key: Key,
        /// Whether the client's own fields lead to it. If not, the client must be asked for again
        /// with them.
        suits: bool,
    },
}

impl Place {
    /// The place of the reply to a fill with the head `sent`, made for a client with the head
    /// `client`, where the target has the record `known`.
    pub fn of(
        base: &Key,
        known: Option<&Variants>,
        (client, sent): (&HeaderMap, &HeaderMap),
        reply: &HeaderMap,
        now: Now,
    ) -> Result<Self, NoCache> {
        let names = varying(reply)?;
        if names.is_empty() {
            return Ok(Self::Plain);
        }
        let record = match known {
            Some(known) if known.covers(&names) => known.clone(),
            Some(known) => known.widened(&names, now)?,
            None => Variants::new(names, now),
        };
        let (key, wanted) = (record.key(base, sent), record.key(base, client));
        Ok(Self::Variant { record, key, suits: key == wanted })
    }
}

/// The record of a target that has variants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variants {
    names: Vec<HeaderName>,
    mark: [u64; 2],
    keys: Vec<Key>,
}

impl Variants {
    /// Variants of one target; the answers to further requests are passed on.
    pub const MAX: usize = 16;
    /// Fields that one target may vary by.
    pub const FIELDS_MAX: usize = 8;

    /// A record without variants.
    pub fn new(names: Vec<HeaderName>, now: Now) -> Self {
        Self { names, mark: [now.wall_ms, now.mono_ns], keys: Vec::new() }
    }

    /// The varying fields.
    pub fn names(&self) -> &[HeaderName] {
        &self.names
    }

    /// Whether it tells apart what these fields tell apart.
    pub fn covers(&self, names: &[HeaderName]) -> bool {
        names.iter().all(|name| self.names.contains(name))
    }

    /// Whether it is the same record, whatever variants are noted in it.
    pub fn is_kin(&self, other: &Self) -> bool {
        self.mark == other.mark && self.names == other.names
    }

    /// A new record by these fields too, so that a master whose answers name them now and then makes
    /// no two records take turns.
    pub fn widened(&self, names: &[HeaderName], now: Now) -> Result<Self, NoCache> {
        let mut all = self.names.clone();
        all.extend(names.iter().filter(|name| !self.names.contains(name)).cloned());
        all.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        if all.len() > Self::FIELDS_MAX { Err(NoCache::VaryMany) } else { Ok(Self::new(all, now)) }
    }

    /// The key of the variant that suits a request.
    pub fn key(&self, base: &Key, request: &HeaderMap) -> Key {
        let mut hash = Sha256::new();
        hash.update(base);
        for part in self.mark {
            hash.update(part.to_le_bytes());
        }
        for name in &self.names {
            // Neither a name nor a value has these bytes, so that no two lists are written alike.
            hash.update(name.as_str().as_bytes());
            hash.update(if request.contains_key(name) { [0] } else { [1] });
            for element in normalised(name, request) {
                hash.update(&element);
                hash.update([b'\n']);
            }
        }
        let mut key = Key::default();
        for (to, from) in key.iter_mut().zip(hash.finalize()) {
            *to = from;
        }
        key
    }

    /// The variants that are noted, when a client may be given another than its own by the language
    /// it likes best ([`favourite_language`]): that alone must choose.
    pub fn by_language(&self) -> &[Key] {
        if self.names == [ACCEPT_LANGUAGE] { &self.keys } else { &[] }
    }

    /// Notes that a variant will be held; those that are held no more make room. Whether there is
    /// room for it.
    pub fn admit(&mut self, key: Key, is_held: impl Fn(&Key) -> bool) -> bool {
        if self.keys.contains(&key) {
            return true;
        }
        if self.keys.len() >= Self::MAX {
            self.keys.retain(is_held);
        }
        let has_room = self.keys.len() < Self::MAX;
        if has_room {
            self.keys.push(key);
        }
        has_room
    }

    /// Bytes of memory that it takes, about.
    pub fn memory_bytes(&self) -> usize {
        let names = self.names.len().saturating_mul(size_of::<HeaderName>());
        let keys = self.keys.len().saturating_mul(size_of::<Key>());
        size_of::<Self>().saturating_add(names).saturating_add(keys)
    }

    /// The bytes to keep.
    pub fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(64);
        out.put_u8(VERSION);
        for part in self.mark {
            out.put_u64_le(part);
        }
        // Names of a reply are shorter than its head, but a longer one than 255 cannot be kept:
        // reading would refuse.
        out.put_u8(u8::try_from(self.names.len()).unwrap_or(u8::MAX));
        for name in &self.names {
            out.put_u8(u8::try_from(name.as_str().len()).unwrap_or(u8::MAX));
            out.put_slice(name.as_str().as_bytes());
        }
        out.put_u8(u8::try_from(self.keys.len()).unwrap_or(u8::MAX));
        for key in &self.keys {
            out.put_slice(key);
        }
        out.freeze()
    }

    /// The record that [`Self::to_bytes`] wrote; `None` when the bytes are none.
    pub fn from_bytes(bytes: &Bytes) -> Option<Self> {
        let mut rest = bytes.clone();
        if rest.try_get_u8().ok()? != VERSION {
            return None;
        }
        let mark = [rest.try_get_u64_le().ok()?, rest.try_get_u64_le().ok()?];
        let mut names = Vec::new();
        for _ in 0..rest.try_get_u8().ok()? {
            let length = usize::from(rest.try_get_u8().ok()?);
            if rest.len() < length {
                return None;
            }
            names.push(HeaderName::from_bytes(&rest.split_to(length)).ok()?);
        }
        let mut keys = Vec::new();
        for _ in 0..rest.try_get_u8().ok()? {
            let mut key = Key::default();
            rest.try_copy_to_slice(&mut key).ok()?;
            keys.push(key);
        }
        rest.is_empty().then_some(Self { names, mark, keys })
    }
}

/// What a field says, so that values of one meaning are alike: lines joined, white space around
/// commas gone (RFC 9111 section 4.1); in the lists of preferences neither case nor order counts,
/// since weights say what is preferred.
fn normalised(name: &HeaderName, request: &HeaderMap) -> Vec<Vec<u8>> {
    let mut list: Vec<Vec<u8>> = elements(request, name.clone()).map(<[u8]>::to_vec).collect();
    if *name == ACCEPT_LANGUAGE || *name == ACCEPT_ENCODING {
        for element in &mut list {
            element.retain(|b| !b.is_ascii_whitespace());
            element.make_ascii_lowercase();
        }
        list.sort_unstable();
        list.dedup();
    }
    list
}

/// The language that a client likes better than all others, in lower case. A variant in it is what its
/// master would choose, whatever else the client takes.
pub fn favourite_language(request: &HeaderMap) -> Option<Vec<u8>> {
    let mut best: Option<(u64, Vec<u8>)> = None;
    let mut is_alone = false;
    for element in normalised(&ACCEPT_LANGUAGE, request) {
        let mut parts = element.split(|b| *b == b';');
        let language = parts.next()?.to_vec();
        let weight = match parts.next() {
            None => 1000,
            Some(weight) => thousandths(weight.strip_prefix(b"q=")?)?,
        };
        match &best {
            Some((most, _)) if weight < *most => {}
            Some((most, _)) if weight == *most => is_alone = false,
            _ => (best, is_alone) = (Some((weight, language)), true),
        }
    }
    let (weight, language) = best?;
    (is_alone && weight > 0 && language != b"*").then_some(language)
}

/// Whether what is held is in this language alone.
pub fn is_in_language(held: &HeaderMap, language: &[u8]) -> bool {
    let mut languages = elements(held, CONTENT_LANGUAGE);
    languages.next().is_some_and(|first| first.eq_ignore_ascii_case(language))
        && languages.next().is_none()
}

/// A weight: 0 to 1 with at most three digits behind its point (RFC 9110 section 12.4.2).
fn thousandths(weight: &[u8]) -> Option<u64> {
    let mut parts = weight.splitn(2, |b| *b == b'.');
    let whole = digits(parts.next()?)?;
    let part = parts.next().unwrap_or(b"");
    let part: Vec<u8> = part.iter().copied().chain(*b"000").take(3.max(part.len())).collect();
    let weight = whole.checked_mul(1000)?.checked_add(digits(&part)?)?;
    (part.len() == 3 && weight <= 1000).then_some(weight)
}

/// Whether `Accept-Encoding` forbids an answer without a coding (RFC 9110 section 12.5.3).
pub(crate) fn refuses_identity(request: &HeaderMap) -> bool {
    if !request.contains_key(ACCEPT_ENCODING) {
        return false;
    }
    let weight_is_zero = |element: &[u8], coding: &[u8]| {
        let mut parts = element.split(|b| *b == b';').map(<[u8]>::trim_ascii);
        let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(coding));
        named.then(|| parts.any(is_zero_weight))
    };
    let find = |coding: &[u8]| {
        elements(request, ACCEPT_ENCODING).find_map(|element| weight_is_zero(element, coding))
    };
    find(b"identity").or_else(|| find(b"*")).unwrap_or(false)
}

/// `q=0`, however many zeros follow its point.
fn is_zero_weight(parameter: &[u8]) -> bool {
    let value = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="));
    value.is_some_and(|value| {
        value.first() == Some(&b'0') && value.iter().all(|b| matches!(b, b'0' | b'.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{START, fields};

    type Fields<'a> = &'a [(&'a str, &'a str)];

    fn names(list: &[&str]) -> Vec<HeaderName> {
        list.iter().map(|n| n.parse().unwrap()).collect()
    }

    #[test]
    fn what_an_answer_varies_by() {
        let many: Vec<_> = (0..9).map(|i| format!("a{i}")).collect();
        let many = many.join(",");
        let cases: &[(Fields<'_>, Result<&[&str], NoCache>)] = &[
            (&[], Ok(&[])),
            (&[("vary", "")], Ok(&[])),
            (&[("vary", "Foo")], Ok(&["foo"])),
            (&[("vary", "Foo, Bar"), ("vary", "foo,,Baz")], Ok(&["bar", "baz", "foo"])),
            (&[("vary", "*")], Err(NoCache::Vary)),
            (&[("vary", "Foo, *")], Err(NoCache::Vary)),
            (&[("vary", "Foo"), ("vary", ", *")], Err(NoCache::Vary)),
            (&[("vary", "a b")], Err(NoCache::Vary)),
            (&[("vary", &many)], Err(NoCache::VaryMany)),
            // No coding: it suits all who accept that.
            (&[("vary", "Accept-Encoding")], Ok(&[])),
            (&[("vary", "Accept-Encoding"), ("content-encoding", "identity")], Ok(&[])),
            (&[("vary", "Accept-Encoding, Origin")], Ok(&["origin"])),
            (
                &[("vary", "Accept-Encoding"), ("content-encoding", "gzip")],
                Ok(&["accept-encoding"]),
            ),
            // Every fill says the same in these.
            (&[("vary", "Host, Connection, Range, If-None-Match, X-Forwarded-For")], Ok(&[])),
        ];
        for (list, want) in cases {
            let got = varying(&fields(list));
            assert_eq!(got, want.map(names), "{list:?}");
        }
    }

    #[test]
    fn values_of_one_meaning_have_one_key() {
        let record = Variants::new(names(&["accept-language", "foo"]), START);
        let key = |list: Fields<'_>| record.key(&[7; 16], &fields(list));
        for (one, other, same) in [
            (&[("foo", "1, 2")][..], &[("foo", "1"), ("foo", "2")][..], true),
            (&[("foo", "1,2")], &[("foo", " 1, 2 ")], true),
            (&[("foo", "1,2")], &[("foo", "2,1")], false),
            (&[("foo", "a")], &[("foo", "A")], false),
            (&[("foo", "1")], &[("foo", "2")], false),
            (&[("foo", "1")], &[], false),
            (&[("foo", "")], &[], false),
            (&[("foo", "1"), ("other", "2")], &[("foo", "1"), ("other", "3")], true),
            (&[("accept-language", "en, de")], &[("accept-language", " dE ,  En")], true),
            (&[("accept-language", "en;q=0.5")], &[("accept-language", "EN; q=0.5")], true),
            (&[("accept-language", "en;q=0.5")], &[("accept-language", "en;q=0.6")], false),
            (&[("accept-language", "1")], &[("foo", "1")], false),
        ] {
            assert_eq!(key(one) == key(other), same, "{one:?} {other:?}");
        }
        assert_ne!(record.key(&[7; 16], &fields(&[])), record.key(&[8; 16], &fields(&[])));
        let later = Variants::new(names(&["accept-language", "foo"]), START.plus_ms(1));
        assert_ne!(later.key(&[7; 16], &fields(&[])), key(&[]));
    }

    #[test]
    fn places_of_replies() {
        let base = [7; 16];
        let sent = fields(&[("accept-encoding", "identity"), ("user-agent", "cacheboy")]);
        let place = |known: Option<&Variants>, client: Fields<'_>, reply: Fields<'_>| {
            Place::of(&base, known, (&fields(client), &sent), &fields(reply), START)
        };
        assert_eq!(place(None, &[], &[]), Ok(Place::Plain));
        assert_eq!(place(None, &[], &[("vary", "*")]), Err(NoCache::Vary));
        let suits = |known: Option<&Variants>, client: Fields<'_>, vary: &str| match place(
            known,
            client,
            &[("vary", vary)],
        ) {
            Ok(Place::Variant { record, suits, .. }) => (record, suits),
            other => panic!("{other:?}"),
        };
        assert!(suits(None, &[], "Foo").1);
        assert!(!suits(None, &[("foo", "1")], "Foo").1);
        assert!(!suits(None, &[("user-agent", "curl")], "User-Agent").1);
        let known = Variants::new(names(&["bar", "foo"]), START);
        assert_eq!(suits(Some(&known), &[], "Foo").0, known);
        assert_eq!(suits(Some(&known), &[], "Baz").0.names(), names(&["bar", "baz", "foo"]));
        assert_eq!(place(Some(&known), &[], &[]), Ok(Place::Plain));
    }

    #[test]
    fn a_record_grows_up_to_its_bounds() {
        let mut record = Variants::new(names(&["foo"]), START);
        assert!(record.covers(&names(&["foo"])) && !record.covers(&names(&["bar", "foo"])));
        let wider = record.widened(&names(&["bar"]), START).unwrap();
        assert_eq!(wider.names(), names(&["bar", "foo"]));
        let many: Vec<_> = (0..8).map(|i| format!("a{i}").parse().unwrap()).collect();
        assert_eq!(record.widened(&many, START), Err(NoCache::VaryMany));

        for n in 0..16 {
            assert!(record.admit([n; 16], |_| true));
        }
        assert!(record.admit([3; 16], |_| true), "known already");
        assert!(!record.admit([16; 16], |_| true));
        assert!(record.admit([16; 16], |key| *key != [5; 16]), "one was evicted");
        assert!(!record.admit([5; 16], |_| true));
    }

    #[test]
    fn the_bytes_are_as_documented() {
        let mut record = Variants::new(names(&["foo"]), Now { wall_ms: 1, mono_ns: 2 });
        record.admit([9; 16], |_| true);
        let want = [
            &[2, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 3][..],
            b"foo",
            &[1],
            &[9; 16],
        ]
        .concat();
        let bytes = record.to_bytes();
        assert_eq!(bytes, want);
        assert_eq!(Variants::from_bytes(&bytes), Some(record));
        for n in 0..bytes.len() {
            assert_eq!(Variants::from_bytes(&bytes.slice(..n)), None, "cut to {n}");
        }
        assert_eq!(Variants::from_bytes(&Bytes::from([&want[..], &[0]].concat())), None);
        assert_eq!(Variants::from_bytes(&Bytes::from([&[1], &want[1..]].concat())), None);
    }

    #[test]
    fn what_a_fill_takes_from_its_client() {
        let client = fields(&[("foo", "1"), ("foo", "2"), ("host", "a"), ("range", "bytes=0-1")]);
        let selecting = Selecting::of(&names(&["foo", "host", "range", "user-agent"]), &client);
        assert_eq!(*selecting.values(), fields(&[("foo", "1"), ("foo", "2")]));
        assert!(selecting.has(&"user-agent".parse().unwrap()), "sent without a value of ours");
        assert!(!selecting.has(&"range".parse().unwrap()));
    }

    #[test]
    fn the_language_that_is_liked_best() {
        for (value, want) in [
            ("de", Some("de")),
            ("fr;q=0.5, DE;q=1.0", Some("de")),
            ("fr;q=0.5, de; q=0.501", Some("de")),
            ("en, de", None),
            ("en;q=0.5, de;q=0.500", None),
            ("fr;q=0.4, en;q=0.5, de;q=0.5", None),
            ("*, de;q=0.9", None),
            ("de;q=0", None),
            ("", None),
            ("de;q=2", None),
            ("de;q=0.1234", None),
            ("de;q=x", None),
            ("de;x=1", None),
        ] {
            let got = favourite_language(&fields(&[("accept-language", value)]));
            assert_eq!(got.as_deref(), want.map(str::as_bytes), "{value}");
        }
        for (value, want) in [("de", true), ("DE", true), ("de, en", false), ("de-AT", false)] {
            assert_eq!(is_in_language(&fields(&[("content-language", value)]), b"de"), want);
        }
        assert!(!is_in_language(&fields(&[]), b"de"));
        let mut record = Variants::new(names(&["accept-language"]), START);
        record.admit([1; 16], |_| true);
        assert_eq!(record.by_language(), [[1; 16]]);
        let mut record = Variants::new(names(&["accept-language", "foo"]), START);
        record.admit([1; 16], |_| true);
        assert!(record.by_language().is_empty());
    }

    #[test]
    fn who_forbids_an_answer_without_coding() {
        for (value, want) in [
            ("gzip", false),
            ("", false),
            ("identity", false),
            ("identity;q=0.5, *;q=0", false),
            ("identity;q=0", true),
            ("gzip, Identity; Q=0.000", true),
            ("gzip, *;q=0", true),
            ("*", false),
            ("*;q=0.001", false),
        ] {
            assert_eq!(refuses_identity(&fields(&[("accept-encoding", value)])), want, "{value}");
        }
        assert!(!refuses_identity(&HeaderMap::new()));
    }
}
