//! A client's request as far as the rules care.

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, PRAGMA, RANGE,
};
use http::{HeaderMap, Method, StatusCode, Uri};

use crate::directives::RequestDirectives;
use crate::range::ByteRanges;
use crate::target::{Target, TargetError};
use crate::validator::{IfRange, Preconditions};
use crate::vary::refuses_identity;

/// The fields that say more than that something is asked for, beside `Accept-Encoding`.
static SAYING_MORE: [HeaderName; 9] = [
    AUTHORIZATION,
    RANGE,
    IF_RANGE,
    IF_MATCH,
    IF_NONE_MATCH,
    IF_MODIFIED_SINCE,
    IF_UNMODIFIED_SINCE,
    CACHE_CONTROL,
    PRAGMA,
];

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
    /// Whether `Accept-Encoding` forbids an answer without a content coding.
    pub refuses_identity: bool,
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
        match self {
            Self::Target(TargetError::TooLong) => StatusCode::URI_TOO_LONG,
            Self::Target(_) => StatusCode::BAD_REQUEST,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
        }
    }
}

impl Request {
    /// Whether the answer is the whole, or its head, whatever is held: nothing is asked under a condition.
    pub fn is_for_whole(&self) -> bool {
        self.range.is_none() && self.preconditions == Preconditions::default()
    }

    /// Understands a request's head.
    pub fn parse(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Self, RequestError> {
        let head = *method == Method::HEAD;
        if !head && *method != Method::GET {
            return Err(RequestError::Method);
        }
        let (target, refuses_identity) = (Target::of(uri)?, refuses_identity(headers));
        // Nearly all: one look at the few fields there are, instead of one for each there may be.
        if !headers.keys().any(|name| SAYING_MORE.contains(name)) {
            return Ok(Self {
                head,
                target,
                range: None,
                if_range: None,
                preconditions: Preconditions::default(),
                directives: RequestDirectives::default(),
                authorized: false,
                refuses_identity,
            });
        }
        let range = if head { None } else { ByteRanges::of(headers) };
        Ok(Self {
            head,
            target,
            if_range: range.as_ref().and_then(|_| IfRange::of(headers)),
            range,
            preconditions: Preconditions::of(headers),
            directives: RequestDirectives::of(headers),
            authorized: headers.contains_key(AUTHORIZATION),
            refuses_identity,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fields;

    #[test]
    fn refusals_and_their_status() {
        let parse = |method: Method, uri: &str| {
            Request::parse(&method, &uri.parse().unwrap(), &HeaderMap::new())
                .map_err(RequestError::status)
        };
        assert!(parse(Method::GET, "/a").is_ok());
        assert!(parse(Method::HEAD, "/a").unwrap().head);
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
            assert_eq!(parse(method, "/a").unwrap_err(), 405);
        }
        assert_eq!(parse(Method::GET, "/%zz").unwrap_err(), 400);
        let long = format!("/{}", "a".repeat(9000));
        assert_eq!(parse(Method::GET, &long).unwrap_err(), 414);
    }

    #[test]
    fn head_has_no_ranges_and_if_range_needs_one() {
        let list = [("range", "bytes=0-1"), ("if-range", "\"a\"")];
        let uri = "/".parse().unwrap();
        let get = Request::parse(&Method::GET, &uri, &fields(&list)).unwrap();
        assert!(get.range.is_some() && get.if_range.is_some());
        let head = Request::parse(&Method::HEAD, &uri, &fields(&list)).unwrap();
        assert!(head.range.is_none() && head.if_range.is_none());
        let bare = Request::parse(&Method::GET, &uri, &fields(&list[1..])).unwrap();
        assert!(bare.if_range.is_none());
        let twice = fields(&[("range", "bytes=0-1"), ("range", "bytes=2-3")]);
        assert!(Request::parse(&Method::GET, &uri, &twice).unwrap().range.is_none());
    }
}
