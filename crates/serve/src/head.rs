//! What HTTP/2 and HTTP/3 say of heads alike (RFC 9113 sections 8.2 and 8.3, RFC 9114 sections 4.2 and
//! 4.3), and what hyper does for HTTP/1.1.

use http::header::{
    CONNECTION, CONTENT_LENGTH, DATE, HOST, HeaderName, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use rt::clock;

use crate::date;

/// Fields that speak of an HTTP/1.1 connection: a request with one is malformed, and a response has
/// none.
pub(crate) const OF_CONNECTIONS: [HeaderName; 5] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Gives a request whose host stands in `:authority` alone the `Host` that other versions have.
/// Whether the two say the same where both are there; else the request is malformed.
#[must_use]
pub(crate) fn name_host<B>(request: &mut Request<B>) -> bool {
    let Some(authority) = request.uri().authority() else { return true };
    if let Some(host) = request.headers().get(HOST) {
        return host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes());
    }
    let Ok(host) = HeaderValue::from_str(authority.as_str()) else { return false };
    request.headers_mut().insert(HOST, host);
    true
}

/// Takes out and adds what hyper does for HTTP/1.1; `length` is that of the body, when known.
pub(crate) fn complete(
    status: StatusCode,
    method: &Method,
    headers: &mut HeaderMap,
    length: Option<u64>,
) {
    for name in &OF_CONNECTIONS {
        headers.remove(name);
    }
    if !headers.contains_key(DATE) {
        headers.insert(DATE, date::header(clock::now()));
    }
    if let Some(length) = length
        && may_have_body(status)
        && (*method != Method::HEAD || length > 0)
    {
        headers.entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
}

/// Whether a response of this status has a body (RFC 9110 section 6.4.1).
pub(crate) fn may_have_body(status: StatusCode) -> bool {
    !status.is_informational()
        && status != StatusCode::NO_CONTENT
        && status != StatusCode::NOT_MODIFIED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authority_and_host_are_one() {
        for (target, host, want) in [
            ("https://a.example/", None, Some("a.example")),
            ("https://a.example:81/", None, Some("a.example:81")),
            ("https://a.example/", Some("A.example"), Some("A.example")),
            ("https://a.example/", Some("b.example"), None),
            ("https://a.example/", Some("a.example:443"), None),
            ("/", Some("a.example"), Some("a.example")),
        ] {
            let mut request = Request::get(target);
            if let Some(host) = host {
                request = request.header(HOST, host);
            }
            let mut request = request.body(()).unwrap();
            let is_right = name_host(&mut request);
            let named = request.headers().get(HOST).and_then(|host| host.to_str().ok());
            assert_eq!(is_right.then_some(named).flatten(), want, "{target} {host:?}");
        }
    }
}
