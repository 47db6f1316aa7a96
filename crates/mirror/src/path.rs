//! Request path -> path in the tree (RFC 3986 sections 2.1 and 3.3), or a refusal with its word.
//!
//! Names in a tree are bytes, as the kernel has them; they need not be UTF-8. A [`TreePath`] holds
//! only plain segments: no `.` or `..`, no name that starts with a dot, no slash or NUL inside a
//! segment. Symbolic links are the shell's business: it resolves beneath the root only.

use std::fmt;

/// Longest path accepted, in bytes after decoding: what Linux takes in one system call.
const PATH_BYTES_MAX: usize = 4095;
/// Longest segment accepted, in bytes after decoding: the limit of the usual file systems.
const SEGMENT_BYTES_MAX: usize = 255;

/// A path below the tree's root, made of plain segments. The empty path is the root itself.
///
/// Invariant: joined with `/`, no leading or trailing slash, each segment passes [`check_segment`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath {
    bytes: Box<[u8]>,
    directory: bool,
}

/// Why a request path names nothing a master would ever serve. Prints one stable word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The path does not begin with a slash (`*` of OPTIONS, for one).
    NotAbsolute,
    /// A `%` that two hexadecimal digits do not follow, or an encoded NUL or slash.
    BadEncoding,
    /// A `.` or `..` segment, encoded or not.
    DotSegment,
    /// A name that begins with a dot: markers, temporary files of rsync, secrets.
    Dotfile,
    /// Two slashes in a row.
    EmptySegment,
    /// Longer than a file system takes.
    TooLong,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAbsolute => "not-absolute",
            Self::BadEncoding => "bad-encoding",
            Self::DotSegment => "dot-segment",
            Self::Dotfile => "dotfile",
            Self::EmptySegment => "empty-segment",
            Self::TooLong => "too-long",
        })
    }
}

impl TreePath {
    /// Reads the path of a request target, percent-encoded as it came, without the query.
    pub fn from_request(path: &str) -> Result<Self, Refused> {
        let rest = path.strip_prefix('/').ok_or(Refused::NotAbsolute)?;
        let (rest, directory) = match rest.strip_suffix('/') {
            Some(inner) => (inner, true),
            None => (rest, rest.is_empty()),
        };
        let mut bytes = Vec::with_capacity(rest.len());
        if !rest.is_empty() || path.len() > 1 {
            for (i, raw) in rest.split('/').enumerate() {
                if i > 0 {
                    bytes.push(b'/');
                }
                let segment = percent_decode(raw)?;
                check_segment(&segment)?;
                bytes.extend_from_slice(&segment);
            }
        }
        if bytes.len() > PATH_BYTES_MAX {
            return Err(Refused::TooLong);
        }
        Ok(Self { bytes: bytes.into(), directory })
    }

    /// The path of a file found by walking the tree: `segments` are names from the root down.
    pub fn from_names<'a>(segments: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, Refused> {
        let mut bytes = Vec::new();
        for (i, segment) in segments.into_iter().enumerate() {
            if i > 0 {
                bytes.push(b'/');
            }
            check_segment(segment)?;
            bytes.extend_from_slice(segment);
        }
        if bytes.len() > PATH_BYTES_MAX {
            return Err(Refused::TooLong);
        }
        Ok(Self { bytes: bytes.into(), directory: false })
    }

    /// The path relative to the root, as the kernel wants it; empty for the root itself.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether the request ended in a slash, so that only a directory can be meant.
    pub fn names_directory(&self) -> bool {
        self.directory
    }

    /// The last segment; empty for the root.
    pub fn file_name(&self) -> &[u8] {
        self.bytes.rsplit(|b| *b == b'/').next().unwrap_or_default()
    }

    /// The file `name` inside this directory.
    pub fn join(&self, name: &str) -> Result<Self, Refused> {
        let segments = self.bytes.split(|b| *b == b'/').filter(|s| !s.is_empty());
        Self::from_names(segments.chain([name.as_bytes()]))
    }
}

/// Printed percent-encoded, readable where it can be: `dir/a%20b.iso`.
impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in &self.bytes {
            if byte.is_ascii_graphic() && byte != b'%' {
                write!(f, "{}", char::from(byte))?;
            } else {
                write!(f, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

/// Decodes one segment of a path.
fn percent_decode(raw: &str) -> Result<Vec<u8>, Refused> {
    let mut out = Vec::with_capacity(raw.len());
    let mut bytes = raw.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(hex_digit).ok_or(Refused::BadEncoding);
        let (high, low) = (digit()?, digit()?);
        out.push(high << 4 | low);
    }
    if out.iter().any(|b| matches!(b, 0 | b'/')) {
        return Err(Refused::BadEncoding);
    }
    Ok(out)
}

/// The value of one hexadecimal digit of either case.
pub(crate) fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Whether a decoded name may be a segment of a [`TreePath`].
fn check_segment(segment: &[u8]) -> Result<(), Refused> {
    match segment {
        [] => Err(Refused::EmptySegment),
        b"." | b".." => Err(Refused::DotSegment),
        [b'.', ..] => Err(Refused::Dotfile),
        _ if segment.iter().any(|b| matches!(b, 0 | b'/')) => Err(Refused::BadEncoding),
        _ if segment.len() > SEGMENT_BYTES_MAX => Err(Refused::TooLong),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_that_are_served() {
        let cases: &[(&str, &[u8], bool)] = &[
            ("/", b"", true),
            ("/a", b"a", false),
            ("/a/", b"a", true),
            ("/vlc/3.0/vlc-3.0.20.tar.xz", b"vlc/3.0/vlc-3.0.20.tar.xz", false),
            ("/a%20b", b"a b", false),
            ("/%76lc", b"vlc", false),
            ("/caf%C3%A9", "caf\u{e9}".as_bytes(), false),
            ("/latin%e9", b"latin\xe9", false),
            ("/100%25", b"100%", false),
            ("/a+b", b"a+b", false),
            ("/a..b/c.", b"a..b/c.", false),
        ];
        for (input, bytes, directory) in cases {
            let path = TreePath::from_request(input).unwrap();
            assert_eq!((path.as_bytes(), path.names_directory()), (*bytes, *directory), "{input}");
        }
    }

    #[test]
    fn paths_that_are_refused() {
        let long_segment = format!("/{}", "a".repeat(256));
        let long_path = "/abcdefghi".repeat(410);
        let cases: &[(&str, Refused, &str)] = &[
            ("", Refused::NotAbsolute, "not-absolute"),
            ("*", Refused::NotAbsolute, "not-absolute"),
            ("/..", Refused::DotSegment, "dot-segment"),
            ("/a/../b", Refused::DotSegment, "dot-segment"),
            ("/a/./b", Refused::DotSegment, "dot-segment"),
            ("/%2e%2E/etc/passwd", Refused::DotSegment, "dot-segment"),
            ("/.%2e/etc/passwd", Refused::DotSegment, "dot-segment"),
            ("/..%2fetc", Refused::BadEncoding, "bad-encoding"),
            ("/a%2Fb", Refused::BadEncoding, "bad-encoding"),
            ("/a%00b", Refused::BadEncoding, "bad-encoding"),
            ("/a%", Refused::BadEncoding, "bad-encoding"),
            ("/a%4", Refused::BadEncoding, "bad-encoding"),
            ("/a%zz", Refused::BadEncoding, "bad-encoding"),
            ("/.cacheboy-tree", Refused::Dotfile, "dotfile"),
            ("/%2Ecacheboy-tree", Refused::Dotfile, "dotfile"),
            ("/a/.git/config", Refused::Dotfile, "dotfile"),
            ("//", Refused::EmptySegment, "empty-segment"),
            ("//a", Refused::EmptySegment, "empty-segment"),
            ("/a//b", Refused::EmptySegment, "empty-segment"),
            ("/a//", Refused::EmptySegment, "empty-segment"),
            (&long_segment, Refused::TooLong, "too-long"),
            (&long_path, Refused::TooLong, "too-long"),
        ];
        for (input, refused, word) in cases {
            assert_eq!(TreePath::from_request(input), Err(*refused), "{input}");
            assert_eq!(refused.to_string(), *word);
        }
    }

    #[test]
    fn names_and_joins() {
        let dir = TreePath::from_request("/a/b/").unwrap();
        assert_eq!(dir.file_name(), b"b");
        let file = dir.join("index.html").unwrap();
        assert_eq!(file.as_bytes(), b"a/b/index.html");
        assert!(!file.names_directory());
        let root = TreePath::from_request("/").unwrap();
        assert_eq!(root.file_name(), b"");
        assert_eq!(root.join("index.html").unwrap().as_bytes(), b"index.html");
        assert_eq!(root.join(".hidden"), Err(Refused::Dotfile));
        assert_eq!(TreePath::from_names([b"a".as_slice(), b"b/c"]), Err(Refused::BadEncoding));
    }

    proptest! {
        /// Whatever comes in, what passes is made of plain segments and prints back to itself.
        #[test]
        fn accepted_paths_are_plain_and_print_back(path in "/?([a-c./%]|%2[0-9EFef]|%00){0,40}") {
            if let Ok(tree_path) = TreePath::from_request(&path) {
                for segment in tree_path.as_bytes().split(|b| *b == b'/') {
                    prop_assert!(!segment.starts_with(b"."));
                    prop_assert!(!segment.contains(&0));
                    prop_assert!(!segment.is_empty() || tree_path.as_bytes().is_empty());
                }
                let again = TreePath::from_request(&format!("/{tree_path}")).unwrap();
                prop_assert_eq!(again.as_bytes(), tree_path.as_bytes());
            }
        }
    }
}
