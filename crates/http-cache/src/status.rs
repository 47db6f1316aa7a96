//! `Cache-Status` (RFC 9211) and `Proxy-Status` (RFC 9209): lists to which every hop appends one
//! member, so that who reads them sees the way of a response from the origin to the client.

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::fields::{Line, add_member};
use crate::hygiene::Identity;

/// `Cache-Status`.
pub const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");
/// `Proxy-Status`.
pub const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// Why a request went upstream (RFC 9211 section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Forward {
    /// Nothing is held.
    UriMiss,
    /// Held, but not all that is asked for.
    Partial,
    /// Held and stale.
    Stale,
    /// The client's directives asked for it.
    Request,
    /// Our own rules forbid to serve it from the cache.
    Bypass,
    /// The method is not one we serve from the cache.
    Method,
}

impl Forward {
    /// The registered word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UriMiss => "uri-miss",
            Self::Partial => "partial",
            Self::Stale => "stale",
            Self::Request => "request",
            Self::Bypass => "bypass",
            Self::Method => "method",
        }
    }
}

/// What is said of how a response was handled here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheStatus {
    /// Served without asking upstream.
    pub hit: bool,
    /// Why upstream was asked.
    pub fwd: Option<Forward>,
    /// What upstream said, if that differs from the answer's status.
    pub fwd_status: Option<StatusCode>,
    /// Whether the reply was kept.
    pub stored: bool,
    /// Whether this request joined another's.
    pub collapsed: bool,
    /// Freshness left in seconds; negative when stale.
    pub ttl_s: Option<i64>,
    /// One word more: `fill`, `stale-on-error`, a [`crate::NoCache`] word ...
    pub detail: Option<&'static str>,
}

impl CacheStatus {
    /// A hit.
    pub fn hit() -> Self {
        Self { hit: true, ..Self::default() }
    }

    /// A request that went upstream.
    pub fn forwarded(fwd: Forward) -> Self {
        Self { fwd: Some(fwd), ..Self::default() }
    }

    /// With one word more.
    pub fn with_detail(mut self, word: &'static str) -> Self {
        self.detail = Some(word);
        self
    }

    /// Our member of the list.
    pub fn header(&self, me: &Identity) -> HeaderValue {
        let mut line = Line::default();
        line.push(me.item());
        if self.hit {
            line.push("; hit");
        }
        if let Some(fwd) = self.fwd {
            line.push("; fwd=");
            line.push(fwd.as_str());
        }
        if let Some(status) = self.fwd_status {
            line.push("; fwd-status=");
            line.push(status.as_str());
        }
        if self.stored {
            line.push("; stored");
        }
        if self.collapsed {
            line.push("; collapsed");
        }
        if let Some(ttl_s) = self.ttl_s {
            line.push(if ttl_s < 0 { "; ttl=-" } else { "; ttl=" });
            line.push_number(ttl_s.unsigned_abs());
        }
        if let Some(word) = self.detail {
            line.push("; detail=");
            match is_token(word) {
                true => line.push(word),
                false => line.push(&string(word)),
            }
        }
        line.value()
    }

    /// Adds our member to a response.
    pub fn add(&self, headers: &mut HeaderMap, me: &Identity) {
        add_member(headers, CACHE_STATUS, self.header(me));
    }
}

/// What failed between us and the next hop (RFC 9209 section 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxyError {
    /// No answer of the resolver in time.
    DnsTimeout,
    /// The master's name has no address.
    DnsError,
    /// No master is configured.
    DestinationNotFound,
    /// All masters are known to be down.
    DestinationUnavailable,
    /// No route to the master.
    DestinationIpUnroutable,
    /// Connection refused.
    ConnectionRefused,
    /// Connection closed or reset before the answer's head.
    ConnectionTerminated,
    /// No connection in time.
    ConnectionTimeout,
    /// No byte in time.
    ConnectionReadTimeout,
    /// The request could not be written in time.
    ConnectionWriteTimeout,
    /// Our own limit of connections is reached.
    ConnectionLimitReached,
    /// The certificate of the master does not prove who it is.
    TlsCertificateError,
    /// TLS could not be agreed on.
    TlsProtocolError,
    /// The content ended early.
    HttpResponseIncomplete,
    /// Not HTTP, or HTTP that breaks its rules.
    HttpProtocolError,
    /// No answer in time.
    HttpResponseTimeout,
    /// We answer a client's error on the origin's behalf.
    HttpRequestError,
    /// We refused the request by policy.
    HttpRequestDenied,
    /// `CDN-Loop` names us.
    ProxyLoopDetected,
    /// Our own fault.
    ProxyInternalError,
}

impl ProxyError {
    /// All errors.
    pub const ALL: [Self; 20] = [
        Self::DnsTimeout,
        Self::DnsError,
        Self::DestinationNotFound,
        Self::DestinationUnavailable,
        Self::DestinationIpUnroutable,
        Self::ConnectionRefused,
        Self::ConnectionTerminated,
        Self::ConnectionTimeout,
        Self::ConnectionReadTimeout,
        Self::ConnectionWriteTimeout,
        Self::ConnectionLimitReached,
        Self::TlsCertificateError,
        Self::TlsProtocolError,
        Self::HttpResponseIncomplete,
        Self::HttpProtocolError,
        Self::HttpResponseTimeout,
        Self::HttpRequestError,
        Self::HttpRequestDenied,
        Self::ProxyLoopDetected,
        Self::ProxyInternalError,
    ];

    /// The registered name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DnsTimeout => "dns_timeout",
            Self::DnsError => "dns_error",
            Self::DestinationNotFound => "destination_not_found",
            Self::DestinationUnavailable => "destination_unavailable",
            Self::DestinationIpUnroutable => "destination_ip_unroutable",
            Self::ConnectionRefused => "connection_refused",
            Self::ConnectionTerminated => "connection_terminated",
            Self::ConnectionTimeout => "connection_timeout",
            Self::ConnectionReadTimeout => "connection_read_timeout",
            Self::ConnectionWriteTimeout => "connection_write_timeout",
            Self::ConnectionLimitReached => "connection_limit_reached",
            Self::TlsCertificateError => "tls_certificate_error",
            Self::TlsProtocolError => "tls_protocol_error",
            Self::HttpResponseIncomplete => "http_response_incomplete",
            Self::HttpProtocolError => "http_protocol_error",
            Self::HttpResponseTimeout => "http_response_timeout",
            Self::HttpRequestError => "http_request_error",
            Self::HttpRequestDenied => "http_request_denied",
            Self::ProxyLoopDetected => "proxy_loop_detected",
            Self::ProxyInternalError => "proxy_internal_error",
        }
    }

    /// The status that RFC 9209 recommends for an answer of our own.
    pub fn status(self) -> StatusCode {
        match self {
            Self::DnsTimeout
            | Self::ConnectionTimeout
            | Self::ConnectionReadTimeout
            | Self::ConnectionWriteTimeout
            | Self::HttpResponseTimeout => StatusCode::GATEWAY_TIMEOUT,
            Self::DnsError
            | Self::DestinationIpUnroutable
            | Self::ConnectionRefused
            | Self::ConnectionTerminated
            | Self::TlsCertificateError
            | Self::TlsProtocolError
            | Self::HttpResponseIncomplete
            | Self::HttpProtocolError
            | Self::ProxyLoopDetected => StatusCode::BAD_GATEWAY,
            Self::DestinationUnavailable | Self::ConnectionLimitReached => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::DestinationNotFound | Self::ProxyInternalError => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Self::HttpRequestError => StatusCode::BAD_REQUEST,
            Self::HttpRequestDenied => StatusCode::FORBIDDEN,
        }
    }
}

/// Our `Proxy-Status` list member on an answer of our own. `next_hop` is a master's name,
/// `details` words for people.
pub fn proxy_status(
    me: &Identity,
    error: ProxyError,
    next_hop: Option<&str>,
    details: Option<&str>,
) -> HeaderValue {
    let mut out = format!("{}; error={}", me.item(), error.as_str());
    if let Some(hop) = next_hop {
        out.push_str("; next-hop=");
        out.push_str(&item(hop));
    }
    if let Some(details) = details {
        out.push_str("; details=");
        out.push_str(&string(details));
    }
    value(&out)
}

/// A structured-field token where the text is one, else a string (RFC 8941 section 3.3).
pub(crate) fn item(text: &str) -> String {
    if is_token(text) { text.to_owned() } else { string(text) }
}

fn is_token(text: &str) -> bool {
    let first = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '*');
    let rest = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&b);
    first && text.bytes().all(rest)
}

/// A structured-field string: printable ASCII; other characters become `?`.
fn string(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            _ => out.push('?'),
        }
    }
    out.push('"');
    out
}

/// Only printable ASCII comes here, so this cannot fail.
fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("cacheboy"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me(name: &str) -> Identity {
        Identity::new(&name.parse().unwrap())
    }

    #[test]
    fn cache_status_members() {
        let e = me("edge1");
        let hit = CacheStatus { ttl_s: Some(30), ..CacheStatus::hit() };
        assert_eq!(hit.header(&e), "edge1; hit; ttl=30");
        let all = CacheStatus {
            fwd_status: Some(StatusCode::NOT_MODIFIED),
            stored: true,
            collapsed: true,
            ttl_s: Some(-5),
            ..CacheStatus::forwarded(Forward::Stale)
        };
        let want =
            "edge1; fwd=stale; fwd-status=304; stored; collapsed; ttl=-5; detail=stale-on-error";
        assert_eq!(all.with_detail("stale-on-error").header(&e), want);
        // A name that is no token is a string.
        assert_eq!(CacheStatus::hit().header(&me("1edge")), "\"1edge\"; hit");
    }

    #[test]
    fn hops_append() {
        let mut headers = HeaderMap::new();
        CacheStatus::forwarded(Forward::UriMiss).add(&mut headers, &me("parent"));
        CacheStatus::hit().add(&mut headers, &me("edge"));
        let all: Vec<_> = headers.get_all(CACHE_STATUS).iter().collect();
        assert_eq!(all, ["parent; fwd=uri-miss", "edge; hit"]);
    }

    #[test]
    fn proxy_status_members() {
        let got = proxy_status(
            &me("edge1"),
            ProxyError::ConnectionRefused,
            Some("master1.example:80"),
            Some("tried \"m1\"\r\nüü"),
        );
        let want = "edge1; error=connection_refused; next-hop=master1.example:80; \
                    details=\"tried \\\"m1\\\"????\"";
        assert_eq!(got, want);
    }

    #[test]
    fn every_error_has_its_own_name_and_an_error_status() {
        let names: std::collections::BTreeSet<_> =
            ProxyError::ALL.iter().map(|e| e.as_str()).collect();
        assert_eq!(names.len(), ProxyError::ALL.len());
        for e in ProxyError::ALL {
            let status = e.status();
            assert!(status.is_server_error() || status.is_client_error(), "{e:?}");
        }
    }
}
