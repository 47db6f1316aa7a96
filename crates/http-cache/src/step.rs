//! What to do next with a request.

use model::Now;

use crate::freshness::Policy;
use crate::request::Request;
use crate::status::Forward;
use crate::storable::NoCache;
use crate::stored::StoredHead;

/// Why something held is served without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// It is fresh.
    Fresh,
    /// The client wanted it confirmed, but it was lately (`reload_min_age_s`, `immutable`).
    ReloadTooSoon,
    /// Stale, and the client's `max-stale` allows it.
    MaxStale,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Serve what is held.
    Serve(Served),
    /// Serve what is held, stale, and revalidate it behind (one request for all).
    ServeAndRevalidate,
    /// Ask upstream first, with [`crate::revalidation_headers`]; others may join.
    Revalidate {
        /// `stale` or `request`, for `Cache-Status`.
        why: Forward,
        /// Whether what is held may be served when upstream fails.
        stale_on_error: bool,
    },
    /// Nothing is held: fetch it; others may join.
    Fetch,
    /// Pass the client's own request on, alone; nothing is kept.
    Pass(NoCache),
    /// Answer with an error of our own.
    Refuse(Refusal),
}

/// Why a request is answered without content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `only-if-cached` and nothing usable is held: 504 (RFC 9111 section 5.2.1.7).
    OnlyIfCached,
}

/// Decides by the request, what is held and the time.
pub fn next_step(
    request: &Request,
    stored: Option<&StoredHead>,
    now: Now,
    policy: &Policy,
) -> Step {
    let _ = (request, stored, now, policy);
    todo!()
}
