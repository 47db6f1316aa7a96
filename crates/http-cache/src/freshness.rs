//! How old a stored response is and how long it may be used (RFC 9111 section 4.2, RFC 5861).
//!
//! # Age under clock skew
//! The age is counted from what upstream says in `Age` and from our own clock alone
//! (`corrected_age_value` of section 4.2.3): the upstream's clock never enters, so that a master
//! whose clock is wrong neither ages nor rejuvenates its objects. `Expires` and `Last-Modified` are
//! compared with the `Date` of the same response, which is the same clock. A response that seems to
//! come from our own future (our clock was set back), or whose `Age` nobody can read, is not fresh: it
//! is asked for again.

use http::header::{AGE, DATE, EXPIRES};
use http::{HeaderMap, StatusCode};
use model::Now;

use crate::directives::ResponseDirectives;
use crate::fields::{date_s, seconds, single};
use crate::stored::StoredHead;
use crate::validator::last_modified_s;

/// Without explicit freshness a response is fresh for this part of its age at the time ...
const HEURISTIC_DIVISOR: u64 = 10;
/// ... but for this many seconds at most.
const HEURISTIC_MAX_S: u64 = 24 * 60 * 60;
/// An error is not believed for longer than two equal ones in a row are, whatever its age.
const HEURISTIC_ERROR_MAX_S: u64 = 30;
/// How far our clock may go back before what was stored later is doubted.
const CLOCK_BACK_MS: u64 = 5_000;

/// What a project chooses; the defaults are the house's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// A client's `no-cache`, `max-age` or `min-fresh` reaches a master only for objects that were
    /// last confirmed at least this many seconds ago.
    pub reload_min_age_s: u64,
    /// `stale-while-revalidate` for responses that name none, in seconds.
    pub stale_while_revalidate_s: u64,
    /// Lifetime of content and redirects in seconds, whatever upstream says of lifetimes
    /// (`no-cache` included). What must not be kept is not kept for that.
    pub ttl_s: Option<u64>,
    /// The same for 404 and 410, and how long these are remembered where upstream says nothing.
    pub negative_ttl_s: Option<u64>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            reload_min_age_s: 60,
            stale_while_revalidate_s: 0,
            ttl_s: None,
            negative_ttl_s: None,
        }
    }
}

impl Policy {
    /// The same, leaving lifetimes to upstream.
    pub(crate) fn lenient(&self) -> Self {
        Self { ttl_s: None, negative_ttl_s: None, ..*self }
    }

    /// The lifetime in seconds that the project gives a response of this status.
    pub fn lifetime_s(&self, status: StatusCode) -> Option<u64> {
        match status.as_u16() {
            404 | 410 => self.negative_ttl_s,
            ..400 => self.ttl_s,
            _ => None,
        }
    }
}

/// Age and lifetime of a stored response at one moment. Seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freshness {
    /// How long it is fresh, from its age 0 on.
    pub lifetime_s: u64,
    /// Its current age, as the `Age` field says it.
    pub age_s: u64,
    /// How long ago it came or was last confirmed, whatever its age was then.
    pub held_s: u64,
    /// May be used without asking.
    pub fresh: bool,
    /// How long it has been stale; 0 while fresh.
    pub stale_for_s: u64,
    /// May be used when upstream fails, now.
    pub may_serve_stale_on_error: bool,
    /// May be used while it is revalidated behind, now.
    pub may_serve_while_revalidating: bool,
    /// Must not be used stale, whatever the client accepts.
    pub must_revalidate: bool,
    /// `immutable`: while fresh, a reload does not ask again.
    pub immutable: bool,
}

impl Freshness {
    /// Freshness left; negative when stale. What `ttl` of `Cache-Status` says.
    pub fn ttl_s(&self) -> i64 {
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        signed(self.lifetime_s).saturating_sub(signed(self.age_s))
    }
}

/// How a stored response ages: what its head says of that, read once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ageing {
    status: StatusCode,
    request_ms: u64,
    response_ms: u64,
    directives: ResponseDirectives,
    /// What `Age` said when it came; `None`: nobody can read it.
    upstream_s: Option<u64>,
    /// Its lifetime where no directive and no project gives one.
    implied_s: u64,
}

impl Ageing {
    /// Reads a head.
    pub fn of(stored: &StoredHead) -> Self {
        let StoredHead { status, request_ms, response_ms, .. } = *stored;
        let directives = ResponseDirectives::of(&stored.headers);
        let upstream_s = upstream_age_s(&stored.headers);
        let implied_s = implied_s(stored, &directives);
        Self { status, request_ms, response_ms, directives, upstream_s, implied_s }
    }

    /// Age and lifetime at a moment.
    pub fn at(&self, now: Now, policy: &Policy) -> Freshness {
        let d = &self.directives;
        let given_s = policy.lifetime_s(self.status);
        // Both say how long it may be used, which may be the project's to say.
        let no_cache = d.no_cache && given_s.is_none();
        let s_maxage_s = d.s_maxage_s.filter(|_| given_s.is_none());
        // And what only a 304 can bring into a stored head: `no-store`, `private`.
        let forbids_use = no_cache || d.private || forbids_storing(d, self.status);
        let lifetime_s = match given_s {
            _ if forbids_use => 0,
            // An edge above has the same policy and never gives out more than that; a foreign cache
            // that does would make everything stale from the start, so its age is not counted.
            Some(given_s) => {
                let foreign_s = self.upstream_s.filter(|age_s| *age_s >= given_s);
                given_s.saturating_add(foreign_s.unwrap_or(0))
            }
            None => s_maxage_s.or(d.max_age_s).unwrap_or(self.implied_s),
        };
        let age_s = self.age_s(now);
        let doubtful = now.wall_ms.saturating_add(CLOCK_BACK_MS) < self.response_ms
            || self.upstream_s.is_none();
        let fresh = lifetime_s > age_s && !doubtful;
        let stale_for_s = if fresh { 0 } else { age_s.saturating_sub(lifetime_s) };
        // These forbid staleness outright; s-maxage does so too (section 5.2.2.10), unless the same
        // response says how long it may be stale.
        let forbidden = d.must_revalidate || forbids_use;
        let must_revalidate = forbidden || s_maxage_s.is_some();
        let within = |limit_s: Option<u64>, default: bool| match limit_s {
            Some(limit_s) => !forbidden && stale_for_s <= limit_s,
            None => !must_revalidate && default,
        };
        let while_s = policy.stale_while_revalidate_s;
        Freshness {
            lifetime_s,
            age_s,
            held_s: now.wall_ms.saturating_sub(self.response_ms) / 1000,
            fresh,
            stale_for_s,
            may_serve_stale_on_error: within(d.stale_if_error_s, true),
            may_serve_while_revalidating: within(
                d.stale_while_revalidate_s,
                while_s > 0 && stale_for_s <= while_s,
            ),
            must_revalidate,
            immutable: d.immutable,
        }
    }

    /// Current age in seconds (RFC 9111 section 4.2.3).
    fn age_s(&self, now: Now) -> u64 {
        let delay_ms = self.response_ms.saturating_sub(self.request_ms);
        let resident_ms = now.wall_ms.saturating_sub(self.response_ms);
        let upstream_s = self.upstream_s.unwrap_or(0);
        upstream_s.saturating_add(delay_ms.saturating_add(resident_ms) / 1000)
    }
}

/// Age and lifetime now.
pub fn freshness(stored: &StoredHead, now: Now, policy: &Policy) -> Freshness {
    Ageing::of(stored).at(now, policy)
}

/// `no-store`; `must-understand` takes its place for who knows the status (section 5.2.2.3).
pub(crate) fn forbids_storing(d: &ResponseDirectives, status: StatusCode) -> bool {
    d.no_store && !(d.must_understand && is_understood(status))
}

pub(crate) fn is_understood(status: StatusCode) -> bool {
    is_heuristic(status) || matches!(status.as_u16(), 302 | 303 | 307)
}

/// What `Age` says; `None` when nobody can tell: it is no number, or a hop doubled it, on two lines or
/// as equal members of one. Of other lists the first member counts (RFC 9111 section 5.1). A cache may
/// ignore an `Age` that is wrong, but then old things begin a new life at every hop that breaks it.
fn upstream_age_s(headers: &HeaderMap) -> Option<u64> {
    if !headers.contains_key(AGE) {
        return Some(0);
    }
    let mut members =
        single(headers, AGE)?.as_bytes().split(|b| *b == b',').map(<[u8]>::trim_ascii);
    let first = members.next()?;
    if members.any(|member| member == first) { None } else { seconds(first) }
}

/// Freshness lifetime in seconds where no directive gives it (RFC 9111 section 4.2.1).
fn implied_s(stored: &StoredHead, d: &ResponseDirectives) -> u64 {
    let date = single(&stored.headers, DATE).and_then(date_s).unwrap_or(stored.response_ms / 1000);
    // Of doubled lines the first counts; a date that is none means already expired (section 5.3).
    if let Some(expires) = stored.headers.get(EXPIRES).filter(|_| !d.targeted) {
        return date_s(expires).map_or(0, |expires| expires.saturating_sub(date));
    }
    if !is_heuristic(stored.status) && !d.public {
        return 0;
    }
    let unchanged_s = last_modified_s(&stored.headers).map_or(0, |m| date.saturating_sub(m));
    let is_error = stored.status.as_u16() >= 400;
    let max_s = if is_error { HEURISTIC_ERROR_MAX_S } else { HEURISTIC_MAX_S };
    (unchanged_s / HEURISTIC_DIVISOR).min(max_s)
}

/// Whether a status may be kept without being told so (RFC 9110 section 15.1).
pub(crate) fn is_heuristic(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{START, head};

    type Fields<'a> = &'a [(&'a str, &'a str)];

    fn at(list: Fields<'_>, after_s: u64) -> Freshness {
        freshness(&head(200, list), START.plus_ms(after_s * 1000), &Policy::default())
    }

    const NOW: &str = "Fri, 01 Jan 2027 00:00:00 GMT";

    #[test]
    fn a_project_overrides_lifetimes_and_nothing_else() {
        let policy = Policy { ttl_s: Some(60), negative_ttl_s: Some(5), ..Policy::default() };
        let cases: &[(u16, Fields<'_>, u64)] = &[
            (200, &[("cache-control", "max-age=86400")], 60),
            (200, &[("cache-control", "no-cache, s-maxage=1")], 60),
            (200, &[("date", NOW), ("expires", "0")], 60),
            (200, &[], 60),
            (301, &[], 60),
            (200, &[("cache-control", "no-store")], 0),
            (200, &[("cache-control", "private")], 0),
            (404, &[("cache-control", "max-age=86400")], 5),
            (410, &[], 5),
            (403, &[("cache-control", "max-age=7")], 7),
            // An edge above has had it for a while; a foreign cache does not count.
            (200, &[("age", "59")], 60),
            (200, &[("age", "60")], 120),
        ];
        for (status, list, want) in cases {
            let got = freshness(&head(*status, list), START, &policy);
            assert_eq!(got.lifetime_s, *want, "{status} {list:?}");
        }
        let stale = |list| freshness(&head(200, list), START.plus_ms(61_000), &policy);
        assert!(stale(&[("cache-control", "no-cache")]).may_serve_stale_on_error);
        assert!(!stale(&[("cache-control", "must-revalidate")]).may_serve_stale_on_error);
    }

    #[test]
    fn lifetimes() {
        let cases: &[(Fields<'_>, u64)] = &[
            (&[("cache-control", "max-age=60")], 60),
            (&[("cache-control", "max-age=60, s-maxage=5")], 5),
            (&[("cache-control", "s-maxage=5"), ("cache-control", "max-age=60")], 5),
            (&[("cache-control", "max-age=60"), ("expires", "0")], 60),
            (&[("cache-control", "max-age=0"), ("expires", "Fri, 01 Jan 2027 01:00:00 GMT")], 0),
            (&[("date", NOW), ("expires", "Fri, 01 Jan 2027 01:00:00 GMT")], 3600),
            // Both by upstream's own wrong clock: still an hour.
            (
                &[
                    ("date", "Tue, 01 Jan 2019 00:00:00 GMT"),
                    ("expires", "Tue, 01 Jan 2019 01:00:00 GMT"),
                ],
                3600,
            ),
            // No Date: the time of receipt stands in.
            (&[("expires", "Fri, 01 Jan 2027 01:00:00 GMT")], 3600),
            (&[("date", NOW), ("expires", "0")], 0),
            (&[("date", NOW), ("expires", "Thu, 31 Dec 2026 00:00:00 GMT")], 0),
            // 10 % of ten hours.
            (&[("date", NOW), ("last-modified", "Thu, 31 Dec 2026 14:00:00 GMT")], 3600),
            // 10 % of eleven years, but at most a day.
            (&[("date", NOW), ("last-modified", "Fri, 01 Jan 2016 00:00:00 GMT")], 86_400),
            // Modified in upstream's future.
            (&[("date", NOW), ("last-modified", "Sat, 02 Jan 2027 00:00:00 GMT")], 0),
            (&[("date", NOW), ("etag", "\"a\"")], 0),
            (&[("cache-control", "max-age=60, no-cache")], 0),
            (&[("cache-control", "max-age=60, no-store")], 0),
            (&[("cache-control", "max-age=99999999999")], 1 << 31),
        ];
        for (list, want) in cases {
            assert_eq!(at(list, 0).lifetime_s, *want, "{list:?}");
        }
        let moved = [("date", NOW), ("last-modified", "Thu, 31 Dec 2026 14:00:00 GMT")];
        let of = |status| freshness(&head(status, &moved), START, &Policy::default()).lifetime_s;
        assert_eq!((of(301), of(302), of(500)), (3600, 0, 0));
        assert_eq!((of(404), of(410), of(405), of(501), of(403)), (30, 30, 30, 30, 0));
        // What is meant for us counts, not Cache-Control and Expires.
        let targeted = [
            ("cdn-cache-control", "max-age=5"),
            ("cache-control", "max-age=60"),
            ("expires", "Fri, 01 Jan 2027 01:00:00 GMT"),
        ];
        assert_eq!(at(&targeted, 0).lifetime_s, 5);
        let targeted = [("cdn-cache-control", "public"), targeted[1], targeted[2]];
        assert_eq!(at(&targeted, 0).lifetime_s, 0);
    }

    #[test]
    fn fresh_ends_when_the_age_reaches_the_lifetime() {
        let list = [("cache-control", "max-age=60"), ("age", "10")];
        let f = at(&list, 49);
        assert_eq!((f.age_s, f.fresh, f.stale_for_s, f.held_s), (59, true, 0, 49));
        assert_eq!(f.ttl_s(), 1);
        let f = at(&list, 50);
        assert_eq!((f.age_s, f.fresh, f.stale_for_s), (60, false, 0));
        let f = at(&list, 57);
        assert_eq!((f.age_s, f.fresh, f.stale_for_s, f.ttl_s()), (67, false, 7, -7));
    }

    #[test]
    fn age_counts_the_delay_of_the_exchange_and_the_stay_here() {
        let mut stored = head(200, &[("age", "100")]);
        stored.request_ms = START.wall_ms - 2_500;
        assert_eq!(freshness(&stored, START, &Policy::default()).age_s, 102);
        assert_eq!(freshness(&stored, START.plus_ms(1_500), &Policy::default()).age_s, 104);
    }

    #[test]
    fn age_fields_that_are_wrong() {
        let cases: &[(Fields<'_>, u64, bool)] = &[
            (&[], 0, true),
            (&[("age", "72")], 72, true),
            (&[("age", "0, 7200")], 0, true),
            (&[("age", "7200,0")], 7200, false),
            (&[("age", "99999999999999999999")], 1 << 31, false),
            // Nobody can tell: never fresh.
            (&[("age", "abc")], 0, false),
            (&[("age", "")], 0, false),
            (&[("age", "-7200")], 0, false),
            (&[("age", "72.0")], 0, false),
            (&[("age", "72;foo=1")], 0, false),
            (&[("age", "0, 0")], 0, false),
            (&[("age", "72"), ("age", "0")], 0, false),
        ];
        for (list, age_s, fresh) in cases {
            let mut list = list.to_vec();
            list.push(("cache-control", "max-age=3600"));
            let f = at(&list, 0);
            assert_eq!((f.age_s, f.fresh), (*age_s, *fresh), "{list:?}");
        }
    }

    #[test]
    fn upstreams_clock_does_not_age_what_it_sends() {
        for date in ["Tue, 01 Jan 2019 00:00:00 GMT", "Sat, 01 Jan 2050 00:00:00 GMT", "x"] {
            let f = at(&[("date", date), ("cache-control", "max-age=60")], 30);
            assert_eq!((f.age_s, f.fresh), (30, true), "{date}");
        }
    }

    #[test]
    fn what_comes_from_our_own_future_is_doubted() {
        let stored = head(200, &[("cache-control", "max-age=60")]);
        let back = |ms| {
            let now = Now { wall_ms: START.wall_ms - ms, ..START };
            freshness(&stored, now, &Policy::default())
        };
        assert!(back(5_000).fresh);
        assert!(!back(5_001).fresh);
        assert_eq!(back(5_001).age_s, 0);
        assert!(back(5_001).may_serve_stale_on_error);
    }

    #[test]
    fn stale_use() {
        // (Cache-Control, seconds after, on error, while revalidating, must revalidate)
        for (directives, after_s, on_error, behind, must) in [
            ("max-age=1", 1_000_000, true, false, false),
            ("max-age=1, must-revalidate", 2, false, false, true),
            ("max-age=1, proxy-revalidate", 2, false, false, true),
            ("s-maxage=1", 2, false, false, true),
            ("s-maxage=1, stale-if-error=60", 2, true, false, true),
            ("s-maxage=1, stale-while-revalidate=60", 2, false, true, true),
            ("no-cache", 0, false, false, true),
            ("max-age=1, no-cache, stale-if-error=60", 2, false, false, true),
            ("max-age=1, must-revalidate, stale-if-error=60", 2, false, false, true),
            ("max-age=1, stale-if-error=60", 61, true, false, false),
            ("max-age=1, stale-if-error=60", 62, false, false, false),
            ("max-age=1, stale-if-error=0", 2, false, false, false),
            ("max-age=1, stale-while-revalidate=10", 11, true, true, false),
            ("max-age=1, stale-while-revalidate=10", 12, true, false, false),
        ] {
            let f = at(&[("cache-control", directives)], after_s);
            assert!(!f.fresh, "{directives}");
            let got =
                (f.may_serve_stale_on_error, f.may_serve_while_revalidating, f.must_revalidate);
            assert_eq!(got, (on_error, behind, must), "{directives} after {after_s} s");
        }
        let policy = Policy { stale_while_revalidate_s: 10, ..Policy::default() };
        let behind = |directives, after_s: u64| {
            let stored = head(200, &[("cache-control", directives)]);
            freshness(&stored, START.plus_ms(after_s * 1000), &policy).may_serve_while_revalidating
        };
        assert!(behind("max-age=1", 11));
        assert!(!behind("max-age=1", 12));
        assert!(!behind("max-age=1, must-revalidate", 2));
        assert!(!behind("max-age=1, stale-while-revalidate=0", 2));
    }
}
