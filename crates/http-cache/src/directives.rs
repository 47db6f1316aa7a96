//! `Cache-Control` and `Pragma`, of requests and responses.

/// The request directives that count (RFC 9111 section 5.2.1). Seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestDirectives {
    /// `no-cache`, or `Pragma: no-cache` without any `Cache-Control`.
    pub no_cache: bool,
    /// `max-age`.
    pub max_age_s: Option<u64>,
    /// `min-fresh`.
    pub min_fresh_s: Option<u64>,
    /// `max-stale`; without a value any staleness is accepted (`u64::MAX`).
    pub max_stale_s: Option<u64>,
    /// `only-if-cached`.
    pub only_if_cached: bool,
}
