//! Patterns of paths, as `[[project.NAME.path]]` has them.

use std::fmt;
use std::str::FromStr;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};

use super::schema::limits;

/// A pattern of paths, written without the leading slash. `*` and `?` stay inside a segment, `**`
/// crosses slashes, `[ab]` is one of these characters, `{a,b}` one of these texts.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Glob {
    text: String,
    /// Of one pattern: a set can be built without a way to panic.
    compiled: GlobSet,
}

impl Glob {
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether `path` matches; a leading slash is passed over.
    pub fn is_match(&self, path: &str) -> bool {
        self.compiled.is_match(path.strip_prefix('/').unwrap_or(path))
    }

    /// Whether every path matches.
    pub(super) fn is_all(&self) -> bool {
        matches!(self.as_str(), "**" | "**/*")
    }
}

impl PartialEq for Glob {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Glob {}

/// Why a pattern was refused, in words for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GlobError(String);

impl FromStr for Glob {
    type Err = GlobError;
    fn from_str(s: &str) -> Result<Self, GlobError> {
        let refused = |why: &str| Err(GlobError(why.to_owned()));
        if s.is_empty() {
            return refused("write a pattern: \"**\" matches every path");
        }
        if s.starts_with('/') {
            return refused("leave out the leading slash");
        }
        if s.len() > limits::GLOB_BYTES {
            return Err(GlobError(format!("write at most {} bytes", limits::GLOB_BYTES)));
        }
        if s.chars().any(char::is_control) {
            return refused("leave out what cannot be seen");
        }
        let why = |error: globset::Error| {
            GlobError(format!("write a pattern of *, **, ?, [ab] and {{a,b}}: {}", error.kind()))
        };
        let one = GlobBuilder::new(s).literal_separator(true).build().map_err(why)?;
        let mut set = GlobSetBuilder::new();
        set.add(one);
        Ok(Self { text: s.to_owned(), compiled: set.build().map_err(why)? })
    }
}

impl TryFrom<String> for Glob {
    type Error = GlobError;
    fn try_from(s: String) -> Result<Self, GlobError> {
        s.parse()
    }
}

impl From<Glob> for String {
    fn from(glob: Glob) -> Self {
        glob.text
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matches() {
        for (glob, path, is_match) in [
            ("**/SHA256SUMS*", "/SHA256SUMS", true),
            ("**/SHA256SUMS*", "/debian/12/SHA256SUMS.sign", true),
            ("**/SHA256SUMS*", "/debian/SHA256SUMS/x", false),
            ("*.iso", "/a.iso", true),
            ("*.iso", "/sub/a.iso", false),
            ("dists/**", "/dists/stable/Release", true),
            ("dists/**", "/pool/dists/x", false),
            ("dists/*/{In,}Release", "/dists/stable/InRelease", true),
            ("dists/*/{In,}Release", "/dists/a/b/Release", false),
            ("a?c", "/a/c", false),
            ("v[0-9]/x", "/v7/x", true),
            ("**", "/", true),
            ("**", "/a/b", true),
            ("x%20y", "/x%20y", true),
        ] {
            assert_eq!(glob.parse::<Glob>().unwrap().is_match(path), is_match, "{glob} {path}");
        }
    }

    #[test]
    fn what_is_no_pattern() {
        let long = "a".repeat(limits::GLOB_BYTES + 1);
        for bad in ["", "/a", "a[", "a{b", "a}", "[b-a]", "a\n", &long] {
            assert!(bad.parse::<Glob>().is_err(), "{bad:?}");
        }
        // As long and as branched as it may be, it still compiles.
        for part in ["**/?", "{a,b}", "[a-z]*", "**/"] {
            let most = part.repeat(limits::GLOB_BYTES / part.len());
            assert!(most.parse::<Glob>().is_ok(), "{part}");
        }
    }
}
