//! A client's request as far as the rules care.

use http::{HeaderMap, Method, StatusCode, Uri};

use crate::directives::RequestDirectives;
use crate::range::ByteRanges;
use crate::target::{Target, TargetError};
use crate::validator::{IfRange, Preconditions};

/// A GET or HEAD, understood.
#[derive(Clone, Debug)]
pub struct Request {
    /// HEAD: the answer has no body and `Range` is ignored.
    pub head: bool,
    /// What is asked for.
    pub target: Target,
    /// Ranges of a GET; `None` when absent or malformed (RFC 9110 section 14.2: ignored).
    pub range: Option<ByteRanges>,
    /// Condition of the ranges.
    pub if_range: Option<IfRange>,
    /// The other preconditions.
    pub preconditions: Preconditions,
    /// `Cache-Control` and `Pragma` of the client.
    pub directives: RequestDirectives,
    /// Whether the client sent `Authorization`.
    pub authorized: bool,
}

/// Why a request is refused before anything is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The target is not acceptable: 400.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// Neither GET nor HEAD: 405 with `Allow: GET, HEAD`.
    #[error("only GET and HEAD are served here")]
    Method,
}

impl RequestError {
    /// The status of the refusal.
    pub fn status(self) -> StatusCode {
        todo!()
    }
}

impl Request {
    /// Understands a request's head.
    pub fn parse(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Self, RequestError> {
        let _ = (method, uri, headers);
        todo!()
    }
}
