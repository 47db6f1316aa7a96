//! The EDNS Client Subnet option (RFC 7871).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::wire::{Reader, option};

/// A well-formed option of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientSubnet {
    /// 1 for IPv4, 2 for IPv6, 0 only with nothing else.
    family: u16,
    /// SOURCE PREFIX-LENGTH.
    source: u8,
    /// ADDRESS, filled up with zero bits.
    address: IpAddr,
}

impl ClientSubnet {
    /// Reads the option's data; `None` is FORMERR (section 7.1.2): a scope other than 0, a source
    /// longer than the address, more or fewer bytes than the source needs, bits behind it that are
    /// not zero, or an unknown family. Family 0 is taken with source 0 only: that is how common
    /// tools say "do not locate me".
    pub(crate) fn read(data: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(data);
        let (family, source, scope) = (reader.u16()?, reader.u8()?, reader.u8()?);
        let bits = match family {
            0 => 0,
            1 => 32,
            2 => 128,
            _ => return None,
        };
        let bytes = reader.take(usize::from(source).div_ceil(8))?;
        if scope != 0 || source > bits || reader.left() != 0 {
            return None;
        }
        let mut padded = [0u8; 16];
        padded.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        let address = match (family, padded) {
            (2, octets) => Ipv6Addr::from(octets).into(),
            (_, [a, b, c, d, ..]) => Ipv4Addr::new(a, b, c, d).into(),
        };
        let subnet = Self { family, source, address };
        let exact = IpNet::new(address, source).is_ok_and(|net| net.network() == address);
        exact.then_some(subnet)
    }

    /// The client's network; `None` with source 0, when the client does not want to be located.
    pub(crate) fn network(&self) -> Option<IpNet> {
        if self.source == 0 { None } else { IpNet::new(self.address, self.source).ok() }
    }

    /// Length of the option as [`ClientSubnet::write`] writes it.
    pub(crate) fn length(&self) -> usize {
        8usize.saturating_add(usize::from(self.source).div_ceil(8))
    }

    /// Writes the option of the reply: all as it came, and `scope` (section 7.2.1).
    pub(crate) fn write(&self, scope: u8, out: &mut Vec<u8>) {
        let address_bytes = usize::from(self.source).div_ceil(8);
        let data_bytes = 4usize.saturating_add(address_bytes);
        out.extend(option::SUBNET.to_be_bytes());
        // At most 20.
        out.extend(u16::try_from(data_bytes).unwrap_or(u16::MAX).to_be_bytes());
        out.extend(self.family.to_be_bytes());
        out.extend([self.source, scope]);
        match self.address {
            IpAddr::V4(v4) => out.extend(v4.octets().iter().take(address_bytes)),
            IpAddr::V6(v6) => out.extend(v6.octets().iter().take(address_bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_formed_options_come_back_with_their_scope() {
        let cases: [(&[u8], Option<&str>); 7] = [
            (&[0, 1, 24, 0, 192, 0, 2], Some("192.0.2.0/24")),
            (&[0, 1, 20, 0, 192, 0, 0x20], Some("192.0.32.0/20")),
            (&[0, 1, 32, 0, 192, 0, 2, 1], Some("192.0.2.1/32")),
            (&[0, 2, 48, 0, 0x20, 1, 0xd, 0xb8, 0, 7], Some("2001:db8:7::/48")),
            (&[0, 1, 0, 0], None),
            (&[0, 2, 0, 0], None),
            (&[0, 0, 0, 0], None),
        ];
        for (data, network) in cases {
            let subnet = ClientSubnet::read(data).unwrap();
            assert_eq!(subnet.network(), network.map(|n| n.parse().unwrap()), "{data:?}");
            let mut out = Vec::new();
            subnet.write(19, &mut out);
            assert_eq!(out.len(), subnet.length());
            assert_eq!(out[..4], [0, 8, 0, u8::try_from(data.len()).unwrap()]);
            assert_eq!((&out[4..7], out[7], &out[8..]), (&data[..3], 19, &data[4..]));
        }
    }

    #[test]
    fn malformed_options_are_refused() {
        let cases: [(&[u8], &str); 10] = [
            (&[0, 1, 24], "no scope"),
            (&[0, 1, 24, 24, 192, 0, 2], "scope in a query"),
            (&[0, 1, 33, 0, 192, 0, 2, 1, 0], "longer than an IPv4 address"),
            (&[0, 2, 129, 0], "longer than an IPv6 address"),
            (&[0, 1, 24, 0, 192, 0], "too few bytes"),
            (&[0, 1, 24, 0, 192, 0, 2, 0], "too many bytes"),
            (&[0, 1, 20, 0, 192, 0, 0x21], "bits behind the source"),
            (&[0, 3, 0, 0], "unknown family"),
            (&[0, 0, 8, 0, 10], "family 0 with an address"),
            (&[0, 1, 0, 0, 10], "source 0 with an address"),
        ];
        for (data, why) in cases {
            assert_eq!(ClientSubnet::read(data), None, "{why}");
        }
    }
}
