//! Answers that are not content: refusals, errors, health, and what is passed on.

use bytes::Bytes;
use fill::Failure;
use http::response::Parts;
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_cache::hygiene::pass_response;
use http_cache::status::PROXY_STATUS;
use http_cache::{CacheStatus, Forward, ProxyError, proxy_status};
use serve::{Body, BodyError, Piece, Source};

use crate::state::Edge;
use crate::upstream::{Answer, Lent};

/// A short text of our own. Never kept by other caches.
pub(crate) fn text(status: StatusCode, words: &str) -> Response<Body> {
    let body = format!("{words}\n");
    let length = HeaderValue::from(body.len());
    let mut response = Response::new(Body::bytes(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::CONTENT_LENGTH, length);
    response
}

/// An error about what stands behind us, with `Cache-Status` and `Proxy-Status`.
/// `forward`: why it was asked.
pub(crate) fn gateway_error(
    edge: &Edge,
    why: Failure,
    master: &str,
    forward: Forward,
) -> Response<Body> {
    let status = match why {
        _ if why.is_timeout() => StatusCode::GATEWAY_TIMEOUT,
        Failure::Busy => StatusCode::SERVICE_UNAVAILABLE,
        Failure::Client => StatusCode::BAD_REQUEST,
        _ => StatusCode::BAD_GATEWAY,
    };
    let words = match why {
        Failure::Busy => "the masters of this content have as much to do as they may",
        Failure::Client => "the content of the request did not come whole",
        _ if why.is_timeout() => "no master of this content answered in time",
        _ => "no master of this content could be asked",
    };
    let mut response = text(status, words);
    let fwd_status = match why {
        Failure::Status(status) => StatusCode::from_u16(status).ok(),
        _ => None,
    };
    let cache_status =
        CacheStatus { fwd_status, ..CacheStatus::forwarded(forward).with_detail("error") };
    cache_status.add(response.headers_mut(), &edge.me);
    let error = proxy_error(why);
    let value = proxy_status(&edge.me, error, Some(master), Some(&why.to_string()));
    response.headers_mut().append(PROXY_STATUS, value);
    response
}

/// A status remembered from two equal errors in a row.
pub(crate) fn negative(edge: &Edge, status: StatusCode) -> Response<Body> {
    let mut response = text(status, "the masters of this content answered with this error lately");
    let cache_status = CacheStatus::hit().with_detail("negative");
    cache_status.add(response.headers_mut(), &edge.me);
    response
}

fn proxy_error(why: Failure) -> ProxyError {
    match why {
        Failure::Connect => ProxyError::DestinationUnavailable,
        Failure::ConnectTimeout => ProxyError::ConnectionTimeout,
        Failure::TlsCertificate => ProxyError::TlsCertificateError,
        Failure::Tls => ProxyError::TlsProtocolError,
        Failure::Busy => ProxyError::ConnectionLimitReached,
        Failure::Client => ProxyError::HttpRequestError,
        Failure::FirstByteTimeout | Failure::Slow => ProxyError::HttpResponseTimeout,
        Failure::BetweenBytesTimeout => ProxyError::ConnectionReadTimeout,
        Failure::Truncated | Failure::Changed => ProxyError::HttpResponseIncomplete,
        Failure::Status(_) | Failure::Parent(_) => ProxyError::HttpProtocolError,
        Failure::Protocol | Failure::DigestMismatch => ProxyError::HttpProtocolError,
        Failure::Disk => ProxyError::ProxyInternalError,
    }
}

/// A master's answer, as it comes, for one client.
pub(crate) fn passed(
    edge: &Edge,
    answer: Answer,
    method: &Method,
    cache_status: CacheStatus,
) -> Response<Body> {
    let body = Passing { lent: Lent::new(answer.body) };
    streamed(edge, answer.parts, body, method, cache_status)
}

/// The same with a body of any source.
pub(crate) fn streamed(
    edge: &Edge,
    parts: Parts,
    body: impl Source,
    method: &Method,
    cache_status: CacheStatus,
) -> Response<Body> {
    let mut headers = pass_response(&parts.headers, &edge.me);
    let status = parts.status;
    CacheStatus { fwd_status: Some(status), ..cache_status }.add(&mut headers, &edge.me);
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.parse::<u64>().ok());
    let bodyless = *method == Method::HEAD
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED;
    let body = if bodyless { Body::empty() } else { Body::stream(body, length) };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

struct Passing {
    lent: Lent,
}

impl Source for Passing {
    async fn next(&mut self) -> Option<Result<Piece, BodyError>> {
        match self.lent.next().await {
            Ok(data) => data.map(|data| Ok(Piece::Bytes(data))),
            Err(why) => Some(Err(BodyError::source(why))),
        }
    }
}
