//! Who asks for what, as far as completion needs to know it: whether clients of two networks have
//! asked for a representation.
//!
//! A network is a /24 of IPv4 or a /48 of IPv6, kept as a keyed hash of 32 bits: nobody can read
//! clients out of it. A table of fixed size; what falls into the same place displaces what was
//! there. Forgetting costs a completion, never more.

use std::hash::{DefaultHasher, Hasher};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::header;
use rt::clock;

use crate::state::Object;

/// Representations remembered, eight bytes each.
const PLACES: usize = 1 << 15;
/// Of an entry: two networks have asked.
const POPULAR: u64 = 1 << 32;

/// The network a client is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network(u32);

/// Who asked for what lately.
#[derive(Debug)]
pub(crate) struct Audience {
    /// 31 bits of what, one whether it is popular, 32 bits of who asked first.
    places: Box<[AtomicU64]>,
    seed: u64,
}

impl Default for Audience {
    fn default() -> Self {
        let places = (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        Self { places, seed: clock::dice().below(u64::MAX) }
    }
}

impl Audience {
    /// The network of an address.
    pub(crate) fn network(&self, address: IpAddr) -> Network {
        let prefix = match address.to_canonical() {
            IpAddr::V4(v4) => u128::from(u32::from(v4) >> 8),
            // A bit that no IPv4 prefix has.
            IpAddr::V6(v6) => u128::from(v6) >> 80 | 1 << 64,
        };
        Network(low(self.hash(&[&prefix.to_le_bytes()])))
    }

    /// A client of `network` asks for the object. Whether clients of two networks have.
    pub(crate) fn note(&self, object: &Object, network: Network) -> bool {
        let validator = [header::ETAG, header::LAST_MODIFIED]
            .map(|name| object.head.headers.get(name).map_or(&b""[..], |value| value.as_bytes()));
        let length = object.rep.length().to_le_bytes();
        let [etag, date] = validator;
        self.note_of(self.hash(&[&object.key.0, &length, etag, date]), network)
    }

    fn note_of(&self, what: u64, Network(network): Network) -> bool {
        let index = usize::try_from(what).unwrap_or(0) & PLACES.saturating_sub(1);
        let Some(place) = self.places.get(index) else { return false };
        let tag = what & !(POPULAR | u64::from(u32::MAX)) | 1 << 63;
        let known = place.load(Relaxed);
        let same = known & !(POPULAR | u64::from(u32::MAX)) == tag;
        if same && (known & POPULAR != 0 || low(known) == network) {
            return known & POPULAR != 0;
        }
        let popular = if same { POPULAR } else { 0 };
        // Two at once: one of them is forgotten.
        place.store(tag | popular | u64::from(network), Relaxed);
        same
    }

    fn hash(&self, parts: &[&[u8]]) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.seed);
        for part in parts {
            hasher.write_usize(part.len());
            hasher.write(part);
        }
        hasher.finish()
    }
}

fn low(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_networks_make_something_popular_and_it_stays_so() {
        let audience = Audience::default();
        let network = |address: &str| audience.network(address.parse().unwrap());
        for (a, b, same) in [
            ("192.0.2.1", "192.0.2.254", true),
            ("192.0.2.1", "192.0.3.1", false),
            ("192.0.2.1", "::ffff:192.0.2.9", true),
            ("2001:db8:1::1", "2001:db8:1:ffff::2", true),
            ("2001:db8:1::1", "2001:db8:2::1", false),
        ] {
            assert_eq!(network(a) == network(b), same, "{a} {b}");
        }
        let (one, two) = (network("192.0.2.1"), network("192.0.3.1"));
        let what = audience.hash(&[b"a"]);
        assert!(!audience.note_of(what, one) && !audience.note_of(what, one));
        assert!(audience.note_of(what, two) && audience.note_of(what, two));
        assert!(audience.note_of(what, one), "for whoever asks then");
        assert!(!audience.note_of(what ^ 1 << 40, two), "another in the same place");
        assert!(!audience.note_of(what, one), "displaced it");
    }
}
