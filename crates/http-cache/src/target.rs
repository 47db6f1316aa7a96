//! The target of a request: which spellings are one object, and its cache key.
//!
//! Two targets are the same object when these steps, and only these, make them equal
//! (RFC 3986 section 6.2.2):
//! 1. an encoded unreserved character (letters, digits, `-._~`) is that character: `%41` is `A`;
//! 2. hex digits of an encoding are upper case: `%2f` is `%2F`;
//! 3. a byte that may not stand in a URI (`"<>\^{|}`, backtick, brackets, everything above ASCII)
//!    is its encoding: `{` is `%7B`;
//! 4. in the path, the segments `.` and `..` are resolved, never above the root.
//!
//! Everything else distinguishes: case, doubled slashes, `+` and `%20`, `%2F` and `/`, a bare `?`,
//! the order of a query. What of a query counts at all is the project's choice ([`Target::reduced`]).

use std::sync::Arc;

use http::Uri;
use model::{Name, Query};
use sha2::{Digest, Sha256};

/// A cache key: one object of one project.
pub type Key = [u8; 16];

/// A normalised request target in origin form: path and, if there was one, `?` and query.
///
/// It is both what is hashed into the key and what is sent upstream, so that no spelling can be
/// asked for under another's key. Copies share their memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target(Arc<str>);

/// Why a target was refused; the client gets 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Neither a path nor an absolute URI, or with bytes that no request line can have.
    #[error("the request target is not a path")]
    Form,
    /// A `%` without two hex digits, or an encoded NUL.
    #[error("the request target has a broken percent-encoding")]
    Percent,
    /// A `..` that only shows once an encoded slash is decoded: some masters would climb out of
    /// their tree by it.
    #[error("the request target hides dot segments behind encoded slashes")]
    Hidden,
    /// Too long.
    #[error("the request target is longer than {} bytes", Target::LENGTH_MAX)]
    TooLong,
}

impl Target {
    /// Longest normalised target in bytes.
    pub const LENGTH_MAX: usize = 8192;

    /// The target of a URI in origin or absolute form.
    pub fn of(uri: &Uri) -> Result<Self, TargetError> {
        if uri.path_and_query().is_none() || !uri.path().starts_with('/') {
            return Err(TargetError::Form);
        }
        Self::build(uri.path().as_bytes(), uri.query().map(str::as_bytes))
    }

    /// The target of a path and query as they stand in a request line.
    pub fn parse(path_and_query: &[u8]) -> Result<Self, TargetError> {
        match path_and_query.iter().position(|b| *b == b'?') {
            Some(at) => {
                let (path, query) = path_and_query.split_at_checked(at).ok_or(TargetError::Form)?;
                Self::build(path, query.get(1..))
            }
            None => Self::build(path_and_query, None),
        }
    }

    fn build(path: &[u8], query: Option<&[u8]>) -> Result<Self, TargetError> {
        let length = path.len().saturating_add(query.map_or(0, <[u8]>::len));
        if length > Self::LENGTH_MAX {
            return Err(TargetError::TooLong);
        }
        if path.first() != Some(&b'/') {
            return Err(TargetError::Form);
        }
        if let Some(same) = as_it_stands(path, query) {
            return Ok(Self(same));
        }
        let mut out = resolved(&unified(path, b"/:@")?);
        if out.split('/').any(climbs) {
            return Err(TargetError::Hidden);
        }
        if let Some(query) = query {
            out.push('?');
            out.push_str(&unified(query, b"/:@?")?);
        }
        if out.len() > Self::LENGTH_MAX { Err(TargetError::TooLong) } else { Ok(Self(out.into())) }
    }

    /// What a project lets count of it: without a query, or with these parameters alone, in the
    /// order of the policy; those of one name keep theirs. A parameter's name ends with its first
    /// `=`; names are compared after steps 1 to 3.
    #[must_use]
    pub fn reduced(self, policy: &Query) -> Self {
        if *policy == Query::Keep {
            return self;
        }
        let Some((path, query)) = self.0.split_once('?') else { return self };
        let mut out = path.to_owned();
        match policy {
            Query::Keep => {}
            Query::Drop => {}
            Query::Only(names) => {
                let mut mark = '?';
                for name in names {
                    let has_name = |p: &&str| p.split('=').next() == Some(name.as_str());
                    for parameter in query.split('&').filter(has_name) {
                        out.push(mark);
                        out.push_str(parameter);
                        mark = '&';
                    }
                }
            }
        }
        Self(out.into())
    }

    /// Path and query.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path alone.
    pub fn path(&self) -> &str {
        self.0.split_once('?').map_or(&*self.0, |(path, _)| path)
    }

    /// The query alone, without `?`; `Some("")` for a bare `?`.
    pub fn query(&self) -> Option<&str> {
        self.0.split_once('?').map(|(_, query)| query)
    }
}

/// The key of a target in a project: two projects never share an object.
pub fn key(project: &Name, target: &Target) -> Key {
    let mut hash = Sha256::new();
    hash.update(project.as_str().as_bytes());
    // Ends the name: a NUL can stand neither in a name nor in a target.
    hash.update([0]);
    hash.update(target.as_str().as_bytes());
    let mut key = Key::default();
    for (to, from) in key.iter_mut().zip(hash.finalize()) {
        *to = from;
    }
    key
}

/// For each byte whether it stands for itself in a path; none above ASCII does.
#[allow(clippy::indexing_slicing, reason = "computed by the compiler, which would say")]
static PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0u8;
    while byte.is_ascii() {
        plain[byte as usize] = is_unreserved(byte) || stands_in_path(byte);
        byte = byte.wrapping_add(1);
    }
    plain
};

/// A path without a query that is normalised already, as nearly all are: nothing in it is encoded or
/// would have to be, and no segment begins with a dot.
fn as_it_stands(path: &[u8], query: Option<&[u8]>) -> Option<Arc<str>> {
    if query.is_some() {
        return None;
    }
    let mut before = 0;
    for byte in path {
        let is_plain = PLAIN.get(usize::from(*byte)).is_some_and(|plain| *plain);
        if !is_plain || (*byte == b'.' && before == b'/') {
            return None;
        }
        before = *byte;
    }
    str::from_utf8(path).ok().map(Arc::from)
}

/// Steps 1 to 3: one spelling for each character.
fn unified(text: &[u8], extra: &[u8]) -> Result<String, TargetError> {
    let mut out = String::with_capacity(text.len());
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let high = bytes.next().and_then(hex_value).ok_or(TargetError::Percent)?;
                let low = bytes.next().and_then(hex_value).ok_or(TargetError::Percent)?;
                match high << 4 | low {
                    0 => return Err(TargetError::Percent),
                    b if is_unreserved(b) => out.push(char::from(b)),
                    b => push_encoded(&mut out, b),
                }
            }
            0..=b' ' | b'#' | 0x7f => return Err(TargetError::Form),
            b if is_unreserved(b) || is_sub_delimiter(b) || extra.contains(&b) => {
                out.push(char::from(b));
            }
            b => push_encoded(&mut out, b),
        }
    }
    Ok(out)
}

/// Step 4 (RFC 3986 section 5.2.4) on a path that begins with `/`.
fn resolved(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    let mut open = false;
    for segment in path.split('/').skip(1) {
        open = matches!(segment, "." | "..");
        match segment {
            "." => {}
            ".." => {
                segments.pop();
            }
            s => segments.push(s),
        }
    }
    // A path that ends in a dot segment names a directory.
    if open {
        segments.push("");
    }
    let mut out = String::with_capacity(path.len());
    for segment in segments {
        out.push('/');
        out.push_str(segment);
    }
    out
}

/// Whether a segment would climb once its encoded slashes and backslashes are decoded.
fn climbs(segment: &str) -> bool {
    segment.contains('%') && segment.replace("%5C", "%2F").split("%2F").any(|s| s == "..")
}

const fn is_sub_delimiter(b: u8) -> bool {
    matches!(b, b'!' | b'$' | b'&'..=b',' | b';' | b'=')
}

const fn stands_in_path(b: u8) -> bool {
    is_sub_delimiter(b) || matches!(b, b'/' | b':' | b'@')
}

const fn is_unreserved(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~')
}

fn hex_value(b: u8) -> Option<u8> {
    char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok())
}

fn push_encoded(out: &mut String, b: u8) {
    const HEX: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    out.push('%');
    for nibble in [b >> 4, b & 15] {
        out.push(HEX.get(usize::from(nibble)).copied().unwrap_or('0'));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_equivalences() {
        for (asked, want) in [
            ("/", "/"),
            ("/a/b.iso", "/a/b.iso"),
            ("/%41%2d%7e", "/A-~"),
            ("/a%2fb", "/a%2Fb"),
            ("/a b", ""),
            ("/a%20b", "/a%20b"),
            ("/a+b", "/a+b"),
            ("/{a}[b]\\", "/%7Ba%7D%5Bb%5D%5C"),
            ("/\u{fc}", "/%C3%BC"),
            ("/a/./b/../c", "/a/c"),
            ("/a/%2e%2E/b", "/b"),
            ("/../../a", "/a"),
            ("/a/..", "/"),
            ("/a/.", "/a/"),
            ("/a/", "/a/"),
            ("/a//b", "/a//b"),
            ("/a//../b", "/a/b"),
            ("/a...", "/a..."),
            ("/.a/..b", "/.a/..b"),
            ("/a:@!$&'()*+,;=", "/a:@!$&'()*+,;="),
            ("/a?", "/a?"),
            ("/a?b/../c?d%2e", "/a?b/../c?d."),
            ("/a?{%7b", "/a?%7B%7B"),
            ("/A", "/A"),
        ] {
            let got = Target::parse(asked.as_bytes());
            if want.is_empty() {
                assert_eq!(got, Err(TargetError::Form), "{asked}");
            } else {
                assert_eq!(got.as_ref().map(Target::as_str), Ok(want), "{asked}");
            }
        }
    }

    #[test]
    fn what_is_refused() {
        for (asked, want) in [
            ("", TargetError::Form),
            ("*", TargetError::Form),
            ("a", TargetError::Form),
            ("/a#b", TargetError::Form),
            ("/a\u{1}", TargetError::Form),
            ("/%", TargetError::Percent),
            ("/%4", TargetError::Percent),
            ("/%zz", TargetError::Percent),
            ("/%00", TargetError::Percent),
            ("/a?%", TargetError::Percent),
            ("/..%2f..%2fetc/passwd", TargetError::Hidden),
            ("/a/%2e%2e%2Fb", TargetError::Hidden),
            ("/..\\b", TargetError::Hidden),
            ("/a%2f..", TargetError::Hidden),
        ] {
            assert_eq!(Target::parse(asked.as_bytes()), Err(want), "{asked}");
        }
        let long = |n: usize| Target::parse(format!("/{}", "a".repeat(n)).as_bytes());
        assert!(long(Target::LENGTH_MAX - 1).is_ok());
        assert_eq!(long(Target::LENGTH_MAX), Err(TargetError::TooLong));
        let grows = format!("/{}", "{".repeat(Target::LENGTH_MAX / 2));
        assert_eq!(Target::parse(grows.as_bytes()), Err(TargetError::TooLong));
    }

    #[test]
    fn absolute_and_origin_form_agree_and_others_are_refused() {
        let of = |s: &str| Target::of(&s.parse().unwrap());
        assert_eq!(of("http://h.example/a?b"), of("/a?b"));
        assert_eq!(of("http://h.example").as_ref().map(Target::as_str), Ok("/"));
        assert_eq!(of("http://h.example?x").as_ref().map(Target::as_str), Ok("/?x"));
        assert_eq!(of("h.example:443"), Err(TargetError::Form));
        assert_eq!(of("*"), Err(TargetError::Form));
        let t = of("/a/b?c=d").unwrap();
        assert_eq!((t.path(), t.query()), ("/a/b", Some("c=d")));
        assert_eq!(of("/a").unwrap().query(), None);
    }

    #[test]
    fn a_project_says_what_of_a_query_counts() {
        let only = |names: &[&str]| Query::Only(names.iter().map(|n| (*n).to_owned()).collect());
        let both = only(&["id", "v"]);
        for (policy, asked, want) in [
            (&Query::Keep, "/a?b=1&a=2", "/a?b=1&a=2"),
            (&Query::Keep, "/a?", "/a?"),
            (&Query::Drop, "/a?b=1", "/a"),
            (&Query::Drop, "/a?", "/a"),
            (&Query::Drop, "/a", "/a"),
            (&both, "/a?v=2&x=3&id=1", "/a?id=1&v=2"),
            (&both, "/a?%69d=1&v", "/a?id=1&v"),
            (&both, "/a?v=1&id=2&v=0&id=1", "/a?id=2&id=1&v=1&v=0"),
            (&both, "/a?id=1&id=1", "/a?id=1&id=1"),
            (&both, "/a?ID=1&idx=1&=id", "/a"),
            (&both, "/a?id==1?2", "/a?id==1?2"),
            (&both, "/a?x=1&&", "/a"),
            (&both, "/a", "/a"),
            (&only(&["v", "id"]), "/a?id=1&v=2", "/a?v=2&id=1"),
        ] {
            let target = Target::parse(asked.as_bytes()).unwrap().reduced(policy);
            assert_eq!(target.as_str(), want, "{policy:?} {asked}");
        }
    }

    #[test]
    fn keys_differ_by_project_and_target() {
        let (a, b): (Name, Name) = ("a".parse().unwrap(), "b".parse().unwrap());
        let t = |s: &str| Target::parse(s.as_bytes()).unwrap();
        assert_eq!(key(&a, &t("/x/../y")), key(&a, &t("/y")));
        assert_ne!(key(&a, &t("/y")), key(&b, &t("/y")));
        assert_ne!(key(&a, &t("/y")), key(&a, &t("/Y")));
        // Keys are on disk: a change of the hash empties every cache.
        let hex: String = key(&a, &t("/y")).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, KEY_A_Y);
    }

    /// `printf 'a\0/y' | sha256sum | cut -c1-32`
    const KEY_A_Y: &str = "5b9e53b72a5026e986530e7f299762a7";
}
