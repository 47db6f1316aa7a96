//! The fields of answers with the whole of objects that are asked for all the time, as this cache has
//! signed them: they stay the same until the age is another, which is a second.
//!
//! Each thread keeps its own, and the values are its own too: what threads that serve one object write
//! for each answer, the counts of references of these values, is in no cache line that they share.
//! A thread keeps them for [`PLACES`] objects at most, from the second answer in a row on.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};
use http_cache::{CacheStatus, Freshness, Plan, Policy, ReadyHead, Request};

/// Objects of which a thread keeps fields; each has one place, by where its head is in memory.
const PLACES: usize = 64;

/// What is known at one place.
#[derive(Default)]
enum Place {
    #[default]
    Empty,
    /// Where the head is that was answered from last.
    Seen(usize),
    Kept(Box<Kept>),
}

/// Signed fields, and all that they were made of but the identity of the cache, which is one for a head.
struct Kept {
    // Holds its address, so that no other head can have that.
    head: Weak<ReadyHead>,
    fresh: Freshness,
    policy: Policy,
    status: CacheStatus,
    fields: HeaderMap,
}

thread_local! {
    static KEPT: RefCell<[Place; PLACES]> = const { RefCell::new([const { Place::Empty }; PLACES]) };
}

/// The answer to a request that gets the whole; `sign` makes it when its fields are not at hand.
pub(crate) fn whole(
    head: &Arc<ReadyHead>,
    request: &Request,
    fresh: &Freshness,
    policy: &Policy,
    status: &CacheStatus,
    sign: impl FnOnce() -> Plan,
) -> Plan {
    let at = Arc::as_ptr(head).addr();
    KEPT.with_borrow_mut(|places| {
        let nth = (at >> 4).wrapping_add(at >> 10) & PLACES.saturating_sub(1);
        let Some(place) = places.get_mut(nth) else { return sign() };
        let is_known = match place {
            Place::Kept(kept) if kept.head.as_ptr().addr() == at => {
                let is_same =
                    kept.fresh == *fresh && kept.status == *status && kept.policy == *policy;
                if is_same {
                    return head.whole(request, kept.fields.clone());
                }
                true
            }
            Place::Seen(seen) => *seen == at,
            Place::Kept(_) | Place::Empty => false,
        };
        let plan = sign();
        let fields = if is_known { own(&plan.headers) } else { None };
        *place = match fields {
            None => Place::Seen(at),
            Some(fields) => Place::Kept(Box::new(Kept {
                head: Arc::downgrade(head),
                fresh: *fresh,
                policy: *policy,
                status: status.clone(),
                fields,
            })),
        };
        plan
    })
}

/// The same fields in memory of their own.
fn own(fields: &HeaderMap) -> Option<HeaderMap> {
    let field = |(name, value): (&HeaderName, &HeaderValue)| {
        let name = HeaderName::from_bytes(name.as_str().as_bytes()).ok()?;
        Some((name, HeaderValue::from_bytes(value.as_bytes()).ok()?))
    };
    fields.iter().map(field).collect()
}

#[cfg(test)]
mod tests {
    use http::{Method, StatusCode};
    use http_cache::StoredHead;
    use http_cache::hygiene::Identity;
    use model::Now;

    use super::*;

    const NOW: Now = Now { mono_ns: 1, wall_ms: 1_800_000_000_000 };

    fn head(etag: &'static str) -> Arc<ReadyHead> {
        let fields = [
            ("etag", etag),
            ("content-type", "text/plain"),
            ("x-two", "1"),
            ("x-two", "2"),
            ("cache-control", "max-age=60"),
        ];
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name, HeaderValue::from_static(value));
        }
        let at = NOW.wall_ms;
        let status = StatusCode::OK;
        let head = StoredHead { status, headers, request_ms: at, response_ms: at, master: None };
        Arc::new(ReadyHead::new(head, 10))
    }

    fn request(method: &Method) -> Request {
        Request::parse(method, &"/a".parse().unwrap(), &HeaderMap::new()).unwrap()
    }

    /// An answer, the same made anew, and whether it was signed anew.
    fn answer(
        head: &Arc<ReadyHead>,
        now: Now,
        policy: &Policy,
        method: &Method,
    ) -> (Plan, Plan, bool) {
        let me = Identity::new(&"edge1".parse().unwrap());
        let (request, fresh) = (request(method), head.freshness(now, policy));
        let status = CacheStatus { ttl_s: Some(fresh.ttl_s()), ..CacheStatus::hit() };
        let sign = || head.respond(&request, now).by_cache(head, &fresh, policy, &me, &status);
        let mut is_new = false;
        let plan = whole(head, &request, &fresh, policy, &status, || {
            is_new = true;
            sign()
        });
        (plan, sign(), is_new)
    }

    #[test]
    fn answers_are_those_that_would_be_made_anew() {
        let (one, other) = (head("\"a\""), head("\"b\""));
        let (usual, own) = (Policy::default(), Policy { ttl_s: Some(7), ..Policy::default() });
        let (get, head) = (Method::GET, Method::HEAD);
        let mut signed = 0;
        for (head_of, ms, policy, method, want_new) in [
            (&one, 0, usual, &get, Some(true)),
            (&one, 0, usual, &get, Some(true)),
            (&one, 0, usual, &get, Some(false)),
            (&one, 999, usual, &head, Some(false)),
            (&one, 1_000, usual, &get, Some(true)),
            (&one, 1_000, usual, &get, Some(false)),
            (&one, 1_000, own, &get, Some(true)),
            (&one, 1_000, own, &head, Some(false)),
            // Another head may have the same place, or its own.
            (&other, 1_000, own, &get, Some(true)),
            (&other, 1_000, own, &get, None),
            (&one, 1_000, own, &get, None),
        ] {
            let (plan, anew, is_new) = answer(head_of, NOW.plus_ms(ms), &policy, method);
            assert_eq!(plan, anew);
            assert_eq!(is_new, want_new.unwrap_or(is_new), "{ms} {method} {signed}");
            signed += u32::from(is_new);
        }
    }

    #[test]
    fn values_are_not_shared_with_the_head() {
        let head = head("\"a\"");
        let answers = (0..4).map(|_| answer(&head, NOW, &Policy::default(), &Method::GET).0);
        let plans: Vec<Plan> = answers.collect();
        let (first, last) = (&plans[0], &plans[3]);
        assert_eq!(first.headers, last.headers);
        let at = |plan: &Plan| plan.headers["etag"].as_bytes().as_ptr();
        assert_ne!(at(first), at(last));
    }
}
