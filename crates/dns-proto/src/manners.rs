//! How a server treats those who ask.

use std::sync::Arc;

use crate::cookie::CookieKeys;
use crate::limit::Limiter;
use crate::transfer::Transfers;

/// What one answering thread or connection has of it. The default gives nothing away: no cookies, no
/// names; and limits nobody.
#[derive(Clone, Debug, Default)]
pub struct Manners {
    /// What cookies are made by; `None`: the option is ignored.
    pub cookies: Option<CookieKeys>,
    /// What the server calls itself (RFC 5001, and `id.server` in class CHAOS), at most
    /// [`TEXT_BYTES_MAX`] bytes; `None`: nothing.
    pub nsid: Option<Box<str>>,
    /// The answer to `version.bind` in class CHAOS, at most [`TEXT_BYTES_MAX`] bytes; `None`: refused.
    pub version: Option<Box<str>>,
    /// Who gets how much over UDP; `None`: everybody all.
    pub limiter: Option<Arc<Limiter>>,
    /// Who may copy which zones; `None`: nobody any.
    pub transfers: Option<Arc<Transfers>>,
    /// How long an idle TCP connection is kept, in units of 100 ms (RFC 7828).
    pub tcp_idle_ds: u16,
}

/// Longest text that a server says of itself: one string of a TXT record is longer.
pub const TEXT_BYTES_MAX: usize = 64;
