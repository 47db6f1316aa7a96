//! The overrides of one map as a partition of an address space: which one holds where.

use ipnet::IpNet;
use locate::runs::{Bits, innermost};
use nodemap::Override;

/// Ascending from address zero: from here on this override holds, or none.
pub(crate) type Overlay<K> = Vec<(K, Option<u32>)>;

/// A partition of both address spaces by the overrides that hold at `wall_ms`; of several the longest
/// prefix. Values are indices into `overrides`.
pub(crate) fn overlays(overrides: &[Override], wall_ms: u64) -> (Overlay<u32>, Overlay<u128>) {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for (at, rule) in (0..).zip(overrides).filter(|(_, rule)| rule.holds_at(wall_ms)) {
        match rule.prefix.trunc() {
            IpNet::V4(net) => v4.push((net.network().to_bits(), net.broadcast().to_bits(), at)),
            IpNet::V6(net) => v6.push((net.network().to_bits(), net.broadcast().to_bits(), at)),
        }
    }
    (flatten(v4), flatten(v6))
}

/// Of nested ranges `(first, last, value)` the innermost at each address.
fn flatten<K: Bits>(mut ranges: Vec<(K, K, u32)>) -> Overlay<K> {
    // The outer one first where two begin together.
    ranges.sort_unstable_by_key(|(first, last, _)| (*first, std::cmp::Reverse(*last)));
    innermost(ranges.into_iter())
}

/// A walk upwards through an overlay.
#[derive(Debug)]
pub(crate) struct Cursor<'a, K> {
    left: &'a [(K, Option<u32>)],
}

impl<'a, K: Bits> Cursor<'a, K> {
    pub(crate) fn new(overlay: &'a Overlay<K>) -> Self {
        Self { left: overlay }
    }

    /// What holds at `address`, which is never below the one asked before, and the last address for
    /// which that is so.
    pub(crate) fn at(&mut self, address: K) -> (Option<u32>, K) {
        while let [_, rest @ ..] = self.left
            && rest.first().is_some_and(|(start, _)| *start <= address)
        {
            self.left = rest;
        }
        let value = self.left.first().and_then(|(_, value)| *value);
        let next = self.left.get(1).and_then(|(next, _)| next.before());
        (value, next.unwrap_or(K::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(prefix: &str, expires_ms: Option<u64>) -> Override {
        let (owner, reason) = ("noc".to_owned(), "a test".to_owned());
        Override { prefix: prefix.parse().unwrap(), pools: Vec::new(), owner, reason, expires_ms }
    }

    #[test]
    fn the_longest_prefix_holds_and_the_expired_do_not() {
        let rules = [
            rule("10.0.0.0/8", None),
            rule("10.0.0.0/9", None),
            rule("10.127.255.0/24", Some(5)),
            rule("10.1.0.0/16", Some(4)),
            rule("255.255.255.255/32", None),
            rule("2001:db8::/32", None),
            rule("::/0", Some(6)),
        ];
        let (v4, v6) = overlays(&rules, 4);
        let expected = [
            (0, None),
            (0x0a00_0000, Some(1)),
            (0x0a7f_ff00, Some(2)),
            (0x0a80_0000, Some(0)),
            (0x0b00_0000, None),
            (u32::MAX, Some(4)),
        ];
        assert_eq!(v4, expected);
        let doc = 0x2001_0db8_u128 << 96;
        assert_eq!(v6, [(0, Some(6)), (doc, Some(5)), (doc + (1 << 96), Some(6))]);
        let mut cursor = Cursor::new(&v4);
        assert_eq!(cursor.at(0x0a00_0005), (Some(1), 0x0a7f_feff));
        assert_eq!(cursor.at(0x0a80_0000), (Some(0), 0x0aff_ffff));
        assert_eq!(cursor.at(u32::MAX), (Some(4), u32::MAX));
        assert_eq!(overlays(&[], 0), (vec![(0, None)], vec![(0, None)]));
    }
}
