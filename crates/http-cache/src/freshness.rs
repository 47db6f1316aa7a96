//! How old a stored response is and how long it may be used (RFC 9111 section 4.2).

use model::Now;

use crate::stored::StoredHead;

/// What a project chooses; the defaults are the design's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// A client's `no-cache`, `max-age` or `min-fresh` reaches a master only for objects that were
    /// last confirmed at least this many seconds ago.
    pub reload_min_age_s: u64,
    /// `stale-while-revalidate` for responses that name none, in seconds.
    pub stale_while_revalidate_s: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self { reload_min_age_s: 60, stale_while_revalidate_s: 0 }
    }
}

/// Age and lifetime of a stored response at one moment. Seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// How long it is fresh, from its age 0 on.
    pub lifetime_s: u64,
    /// Its current age, as the `Age` field says it.
    pub age_s: u64,
    /// Seconds since we last had it confirmed, whatever its age was then.
    pub held_s: u64,
    /// May be used without asking.
    pub fresh: bool,
    /// How long it has been stale; 0 while fresh.
    pub stale_for_s: u64,
    /// May be used when upstream fails, now.
    pub may_serve_stale_on_error: bool,
    /// May be used while it is revalidated behind, now.
    pub may_serve_while_revalidating: bool,
    /// Must never be used stale by our own choice or the client's (`max-stale`).
    pub must_revalidate: bool,
    /// `immutable`: a reload does not ask again while fresh.
    pub immutable: bool,
}

/// Age and lifetime now.
pub fn freshness(stored: &StoredHead, now: Now, policy: &Policy) -> Freshness {
    let _ = (stored, now, policy);
    todo!()
}
