//! What to do next with a request: one function of the request, what is held, and the time.

use std::fmt;

use http::header::VARY;

use crate::fields::elements;
use crate::freshness::{Freshness, Policy};
use crate::request::Request;
use crate::status::Forward;
use crate::storable::NoCache;
use crate::stored::StoredHead;

/// Why something held is served without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// It is fresh.
    Fresh,
    /// The client wanted it confirmed, but it was lately ([`Policy::reload_min_age_s`],
    /// `immutable`).
    ReloadTooSoon,
    /// Stale, and the client's `max-stale` allows it.
    MaxStale,
}

impl Served {
    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::ReloadTooSoon => "reload-too-soon",
            Self::MaxStale => "max-stale",
        }
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Serve what is held.
    Serve(Served),
    /// Serve what is held, stale, and revalidate it behind (one request for all).
    ServeAndRevalidate,
    /// Ask upstream first, with [`crate::revalidation_headers`] (none without a validator: then the
    /// whole comes again); others may join.
    Revalidate {
        /// `stale` or `request`, for `Cache-Status`.
        why: Forward,
        /// Whether what is held may be served when upstream fails.
        stale_on_error: bool,
    },
    /// Nothing is held: fetch it; others may join. A HEAD needs the head alone.
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

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serve(served) => write!(f, "serve {}", served.as_str()),
            Self::ServeAndRevalidate => f.write_str("serve-and-revalidate"),
            Self::Revalidate { why, stale_on_error } => {
                let allowed = if *stale_on_error { " stale-on-error" } else { "" };
                write!(f, "revalidate {}{allowed}", why.as_str())
            }
            Self::Fetch => f.write_str("fetch"),
            Self::Pass(why) => write!(f, "pass {why}"),
            Self::Refuse(Refusal::OnlyIfCached) => f.write_str("refuse only-if-cached"),
        }
    }
}

/// Decides by the request, and by what is held and how fresh it is now.
pub fn next_step(
    request: &Request,
    held: Option<(&StoredHead, &Freshness)>,
    policy: &Policy,
) -> Step {
    let Some((stored, fresh)) = held else {
        return if request.directives.only_if_cached {
            Step::Refuse(Refusal::OnlyIfCached)
        } else if request.authorized {
            // Whether the answer may be shared is known only when it comes (RFC 9111 section 3.5),
            // and until then nobody else may wait for it.
            Step::Pass(NoCache::Authorization)
        } else {
            Step::Fetch
        };
    };
    if request.refuses_identity && elements(&stored.headers, VARY).any(is_accept_encoding) {
        // What is held has no coding, and its master chooses by this field.
        return Step::Pass(NoCache::ContentEncoding);
    }
    if fresh.fresh { step_fresh(request, fresh, policy) } else { step_stale(request, fresh) }
}

fn is_accept_encoding(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"accept-encoding")
}

fn step_fresh(request: &Request, held: &Freshness, policy: &Policy) -> Step {
    let d = &request.directives;
    let left_s = held.lifetime_s.saturating_sub(held.age_s);
    let reload = d.no_cache
        || d.max_age_s.is_some_and(|n| held.age_s > n)
        || d.min_fresh_s.is_some_and(|n| left_s < n);
    if !reload {
        Step::Serve(Served::Fresh)
    } else if held.immutable || held.held_s < policy.reload_min_age_s {
        Step::Serve(Served::ReloadTooSoon)
    } else if d.only_if_cached {
        Step::Refuse(Refusal::OnlyIfCached)
    } else {
        // A client that wants it confirmed still takes it when that is not possible.
        Step::Revalidate { why: Forward::Request, stale_on_error: !held.must_revalidate }
    }
}

fn step_stale(request: &Request, held: &Freshness) -> Step {
    let d = &request.directives;
    let strict = d.no_cache || d.max_age_s.is_some_and(|n| held.age_s > n);
    let accepted = d.max_stale_s.is_some_and(|n| held.stale_for_s <= n);
    if accepted && !strict && !held.must_revalidate {
        Step::Serve(Served::MaxStale)
    } else if d.only_if_cached {
        Step::Refuse(Refusal::OnlyIfCached)
    } else if held.may_serve_while_revalidating && !strict {
        Step::ServeAndRevalidate
    } else {
        Step::Revalidate { why: Forward::Stale, stale_on_error: held.may_serve_stale_on_error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::freshness::freshness;
    use crate::testing::{START, fields, head};
    use http::Method;

    fn step(client: &str, stored: &str, after_s: u64) -> String {
        let headers = fields(&[("cache-control", client)]);
        let request = Request::parse(&Method::GET, &"/".parse().unwrap(), &headers).unwrap();
        let stored = head(200, &[("cache-control", stored), ("etag", "\"a\"")]);
        let policy = Policy::default();
        let fresh = freshness(&stored, START.plus_ms(after_s * 1000), &policy);
        next_step(&request, Some((&stored, &fresh)), &policy).to_string()
    }

    #[test]
    fn steps_with_something_held() {
        for (client, stored, after_s, want) in [
            ("", "max-age=600", 0, "serve fresh"),
            ("", "max-age=600", 599, "serve fresh"),
            ("", "max-age=600", 600, "revalidate stale stale-on-error"),
            ("", "max-age=600, must-revalidate", 600, "revalidate stale"),
            ("", "no-cache", 0, "revalidate stale"),
            ("", "", 0, "revalidate stale stale-on-error"),
            ("", "max-age=1, stale-while-revalidate=60", 30, "serve-and-revalidate"),
            (
                "no-cache",
                "max-age=1, stale-while-revalidate=60",
                30,
                "revalidate stale stale-on-error",
            ),
            // A reload never reaches a master for what was confirmed less than a minute ago.
            ("no-cache", "max-age=600", 59, "serve reload-too-soon"),
            ("no-cache", "max-age=600", 60, "revalidate request stale-on-error"),
            ("no-cache", "max-age=600, must-revalidate", 60, "revalidate request"),
            ("no-cache", "max-age=600, immutable", 300, "serve reload-too-soon"),
            ("no-cache", "max-age=600, immutable", 600, "revalidate stale stale-on-error"),
            ("max-age=0", "max-age=600", 59, "serve reload-too-soon"),
            ("max-age=0", "max-age=600", 300, "revalidate request stale-on-error"),
            ("max-age=300", "max-age=600", 300, "serve fresh"),
            ("max-age=299", "max-age=600", 300, "revalidate request stale-on-error"),
            ("min-fresh=300", "max-age=600", 300, "serve fresh"),
            ("min-fresh=301", "max-age=600", 300, "revalidate request stale-on-error"),
            ("max-stale=10", "max-age=600", 610, "serve max-stale"),
            ("max-stale=10", "max-age=600", 611, "revalidate stale stale-on-error"),
            ("max-stale", "max-age=600", 9999, "serve max-stale"),
            ("max-stale", "max-age=600, must-revalidate", 601, "revalidate stale"),
            ("max-stale", "s-maxage=600", 601, "revalidate stale"),
            ("max-stale, no-cache", "max-age=600", 601, "revalidate stale stale-on-error"),
            ("only-if-cached", "max-age=600", 0, "serve fresh"),
            ("only-if-cached", "max-age=600", 600, "refuse only-if-cached"),
            ("only-if-cached, max-age=0", "max-age=600", 300, "refuse only-if-cached"),
            ("only-if-cached, max-stale", "max-age=600", 601, "serve max-stale"),
            ("no-store", "max-age=600", 0, "serve fresh"),
        ] {
            assert_eq!(step(client, stored, after_s), want, "{client} | {stored} | {after_s}");
        }
    }

    #[test]
    fn steps_with_nothing_held() {
        for (list, want) in [
            (&[][..], "fetch"),
            (&[("cache-control", "no-cache")], "fetch"),
            (&[("cache-control", "no-store")], "fetch"),
            (&[("cookie", "a=b")], "fetch"),
            (&[("authorization", "Basic eA==")], "pass authorization"),
            (&[("cache-control", "only-if-cached")], "refuse only-if-cached"),
        ] {
            let request =
                Request::parse(&Method::GET, &"/".parse().unwrap(), &fields(list)).unwrap();
            let got = next_step(&request, None, &Policy::default()).to_string();
            assert_eq!(got, want, "{list:?}");
        }
    }

    #[test]
    fn a_project_may_let_reloads_through() {
        let headers = fields(&[("cache-control", "no-cache")]);
        let request = Request::parse(&Method::GET, &"/".parse().unwrap(), &headers).unwrap();
        let stored = head(200, &[("cache-control", "max-age=600")]);
        let policy = Policy { reload_min_age_s: 0, ..Policy::default() };
        let fresh = freshness(&stored, START, &policy);
        let got = next_step(&request, Some((&stored, &fresh)), &policy).to_string();
        assert_eq!(got, "revalidate request stale-on-error");
    }
}
