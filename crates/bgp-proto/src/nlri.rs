//! Prefixes as UPDATE messages have them (RFC 4271 section 4.3): a length in bits, then as many octets
//! as that takes.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use model::Family;

use crate::wire::Reader;

/// Prefixes of one family, whole and well-formed: [`Nlri::parse`] has seen to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nlri<'a> {
    family: Family,
    bytes: &'a [u8],
}

impl<'a> Nlri<'a> {
    /// All of `bytes`; `None` when they are not prefixes of this family. Nobody can tell what was
    /// meant then, nor where the next one begins (RFC 7606 section 5.3).
    pub fn parse(family: Family, bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        while !reader.is_empty() {
            let bits = reader.u8().filter(|bits| *bits <= family.bits())?;
            reader.take(usize::from(bits.div_ceil(8)))?;
        }
        Some(Self { family, bytes })
    }

    /// None.
    pub fn none(family: Family) -> Self {
        Self { family, bytes: &[] }
    }

    /// Their family.
    pub fn family(self) -> Family {
        self.family
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.bytes.is_empty()
    }

    /// Each of them, bits beyond its length cleared.
    pub fn prefixes(self) -> impl Iterator<Item = IpNet> + 'a {
        let mut reader = Reader(self.bytes);
        std::iter::from_fn(move || prefix(self.family, &mut reader))
    }
}

/// The next prefix.
fn prefix(family: Family, reader: &mut Reader<'_>) -> Option<IpNet> {
    let bits = reader.u8()?;
    let octets = reader.take(usize::from(bits.div_ceil(8)))?;
    Some(match family {
        Family::V4 => Ipv4Net::new(Ipv4Addr::from(padded::<4>(octets)?), bits).ok()?.trunc().into(),
        Family::V6 => {
            Ipv6Net::new(Ipv6Addr::from(padded::<16>(octets)?), bits).ok()?.trunc().into()
        }
    })
}

/// These octets, then zeros.
fn padded<const N: usize>(octets: &[u8]) -> Option<[u8; N]> {
    let mut padded = [0; N];
    padded.get_mut(..octets.len())?.copy_from_slice(octets);
    Some(padded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(family: Family, bytes: &[u8]) -> Option<Vec<String>> {
        let nlri = Nlri::parse(family, bytes)?;
        Some(nlri.prefixes().map(|prefix| prefix.to_string()).collect())
    }

    #[test]
    fn prefixes_are_read_or_all_refused() {
        use Family::{V4, V6};
        for (family, bytes, expected) in [
            (V4, &[][..], Some(vec![])),
            (
                V4,
                &[0, 24, 192, 0, 2, 32, 192, 0, 2, 1],
                Some(vec!["0.0.0.0/0", "192.0.2.0/24", "192.0.2.1/32"]),
            ),
            // Bits beyond the length may be anything.
            (V4, &[20, 10, 1, 0xff], Some(vec!["10.1.240.0/20"])),
            (V4, &[33, 1, 2, 3, 4, 5], None),
            (V4, &[24, 1, 2], None),
            (V4, &[8, 10, 16], None),
            (V6, &[32, 0x20, 1, 0xd, 0xb8, 3, 0xff], Some(vec!["2001:db8::/32", "e000::/3"])),
            (V6, &[128, 1, 2], None),
            (V6, &[129], None),
        ] {
            let expected = expected.map(|all| all.into_iter().map(str::to_owned).collect());
            assert_eq!(read(family, bytes), expected, "{bytes:?}");
        }
    }
}
