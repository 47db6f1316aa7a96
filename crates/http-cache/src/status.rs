//! `Cache-Status` (RFC 9211) and `Proxy-Status` (RFC 9209).

use http::{HeaderValue, StatusCode};

use crate::hygiene::Identity;

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

    /// The list member to append.
    pub fn header(&self, me: &Identity) -> HeaderValue {
        let _ = me;
        todo!()
    }
}

/// What failed between us and the next hop (RFC 9209 section 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxyError {
    /// The master's name has no address.
    DnsError,
    /// No answer of the resolver in time.
    DnsTimeout,
    /// All masters are known to be down.
    DestinationUnavailable,
    /// No master is configured.
    DestinationNotFound,
    /// Connection refused.
    ConnectionRefused,
    /// Connection closed or reset before the answer was whole.
    ConnectionTerminated,
    /// No connection in time.
    ConnectionTimeout,
    /// No byte in time.
    ConnectionReadTimeout,
    /// Our own limit of connections is reached.
    ConnectionLimitReached,
    /// The content ended early.
    HttpResponseIncomplete,
    /// Not HTTP, or HTTP that breaks its rules.
    HttpProtocolError,
    /// No answer in time.
    HttpResponseTimeout,
    /// `CDN-Loop` names us.
    ProxyLoopDetected,
    /// Our own fault.
    ProxyInternalError,
    /// The destination answered with an error that is passed on.
    HttpRequestError,
}

impl ProxyError {
    /// The registered name.
    pub fn as_str(self) -> &'static str {
        todo!()
    }

    /// The status that RFC 9209 recommends for an answer of our own.
    pub fn status(self) -> StatusCode {
        todo!()
    }
}

/// The `Proxy-Status` list member of an answer of our own. `next_hop` is a master's name,
/// `details` words for people.
pub fn proxy_status(
    me: &Identity,
    error: ProxyError,
    next_hop: Option<&str>,
    details: Option<&str>,
) -> HeaderValue {
    let _ = (me, error, next_hop, details);
    todo!()
}
