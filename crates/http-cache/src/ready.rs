//! A stored head with what every answer from it needs, worked out once: a hit reads none of its fields
//! anew.

use std::ops::Deref;

use http::header::{AGE, VIA};
use http::{HeaderMap, HeaderValue};
use model::Now;

use crate::freshness::{Ageing, Freshness, Policy};
use crate::request::Request;
use crate::respond::{Plan, respond_with, whole, whole_fields};
use crate::status::CACHE_STATUS;
use crate::stored::StoredHead;

/// Bytes of memory of a field in a map, beside those of its value.
const FIELD_BYTES: usize = 112;

/// The head of a stored representation, ready for answers of this cache.
#[derive(Clone, Debug)]
pub struct ReadyHead {
    head: StoredHead,
    ageing: Ageing,
    length: u64,
    /// The fields of an answer with the whole, with empty lines in the places of those that a cache
    /// adds.
    whole: HeaderMap,
}

impl ReadyHead {
    /// For a representation of `length` bytes.
    pub fn new(head: StoredHead, length: u64) -> Self {
        let mut whole = whole_fields(&head, length);
        for name in [AGE, VIA, CACHE_STATUS] {
            whole.entry(name).or_insert(HeaderValue::from_static(""));
        }
        let ageing = Ageing::of(&head);
        Self { head, ageing, length, whole }
    }

    /// Age and lifetime at a moment.
    pub fn freshness(&self, now: Now, policy: &Policy) -> Freshness {
        self.ageing.at(now, policy)
    }

    /// Answers a request; to be signed with [`Plan::by_cache`].
    pub fn respond(&self, request: &Request, now: Now) -> Plan {
        respond_with(request, &self.head, self.length, now, || self.whole.clone())
    }

    /// The answer to a request [for the whole](Request::is_for_whole), with these fields.
    pub fn whole(&self, request: &Request, fields: HeaderMap) -> Plan {
        whole(request, &self.head, self.length, fields)
    }

    /// Bytes of memory that it takes beside the bytes it was read from, about.
    pub fn memory_bytes(&self) -> usize {
        let map_bytes = |map: &HeaderMap| map.capacity().saturating_mul(FIELD_BYTES);
        let maps = map_bytes(&self.head.headers).saturating_add(map_bytes(&self.whole));
        size_of::<Self>().saturating_add(maps)
    }
}

impl Deref for ReadyHead {
    type Target = StoredHead;

    fn deref(&self) -> &StoredHead {
        &self.head
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::hygiene::Identity;
    use crate::respond::respond;
    use crate::status::CacheStatus;
    use crate::testing::{START, fields, head};

    /// What is worked out beforehand changes nothing of any answer.
    #[test]
    fn it_answers_as_the_head_does() {
        let me = Identity::new(&"edge1".parse().unwrap());
        let iso = [
            ("content-type", "application/x-iso9660-image"),
            ("etag", "\"a\""),
            ("last-modified", "Thu, 31 Dec 2026 00:00:00 GMT"),
            ("content-digest", "sha-256=:AAAA:"),
            ("cache-control", "max-age=60"),
        ];
        let behind_another = [("via", "1.1 parent"), ("cache-status", "parent; hit"), ("age", "7")];
        let odd = [("via", ""), ("cache-status", ""), ("age", "")];
        let asked: [&[(&str, &str)]; 8] = [
            &[],
            &[("range", "bytes=0-1")],
            &[("range", "bytes=0-1,4-5")],
            &[("range", "bytes=99-")],
            &[("if-none-match", "\"a\"")],
            &[("if-match", "\"b\"")],
            &[("if-range", "\"b\""), ("range", "bytes=0-1")],
            &[("if-modified-since", "Thu, 31 Dec 2026 00:00:00 GMT")],
        ];
        let policies = [Policy::default(), Policy { ttl_s: Some(5), ..Policy::default() }];
        for stored in [&iso[..], &behind_another, &odd].map(|list| head(200, list)) {
            let ready = ReadyHead::new(stored.clone(), 10);
            for (list, policy) in asked.iter().flat_map(|list| policies.map(|p| (list, p))) {
                let uri = "/".parse().unwrap();
                let request = Request::parse(&Method::GET, &uri, &fields(list)).unwrap();
                let fresh = ready.freshness(START, &policy);
                assert_eq!(fresh, crate::freshness(&stored, START, &policy));
                let signed =
                    |plan: Plan| plan.by_cache(&stored, &fresh, &policy, &me, &CacheStatus::hit());
                let plain = respond(&request, &stored, 10, START);
                assert_eq!(signed(ready.respond(&request, START)), signed(plain), "{list:?}");
            }
        }
    }
}
