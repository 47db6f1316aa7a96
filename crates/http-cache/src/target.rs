//! The target of a request: which documented spellings are one object, and its cache key.

use http::Uri;
use model::Name;

/// A cache key: one object of one project.
pub type Key = [u8; 16];

/// A normalised request target in origin form: path and, if there was one, `?` and query.
///
/// It is both what is hashed into the key and what is sent upstream, so that no spelling can be
/// asked for under another's key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target(String);

/// Why a target was refused; the client gets 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Neither a path nor an absolute URI.
    #[error("the request target is not a path")]
    Form,
    /// A `%` without two hex digits, or an encoded NUL.
    #[error("the request target has a broken percent-encoding")]
    Percent,
    /// A `..` that only shows once an encoded slash is decoded.
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
        let _ = uri;
        todo!()
    }

    /// The target of a path and query as they stand in a request line.
    pub fn parse(path_and_query: &[u8]) -> Result<Self, TargetError> {
        let _ = path_and_query;
        todo!()
    }

    /// Path and query.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path alone.
    pub fn path(&self) -> &str {
        todo!()
    }

    /// The query alone, without `?`; `Some("")` for a bare `?`.
    pub fn query(&self) -> Option<&str> {
        todo!()
    }
}

/// The key of a target in a project: two projects never share an object.
pub fn key(project: &Name, target: &Target) -> Key {
    let _ = (project, target);
    todo!()
}
