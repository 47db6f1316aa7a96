//! PROXY protocol, version 2 (haproxy.org, "The PROXY protocol", section 2.2): who asked a proxy such as
//! dnsdist. It stands before each datagram, and once at the beginning of a connection.
//!
//! Whoever is believed could be anybody, so it is read from the configured prefixes alone; from those it
//! is required, because what they send without it would be answered, and limited, as if all were one
//! client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// The longest header that is read: addresses of 216 bytes, and TLVs.
pub(crate) const HEADER_BYTES_MAX: usize = 1024;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family and protocol, length.
const FIXED_BYTES: usize = 16;

/// What stands at the front of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// A header of so many bytes; the address is the client's, or none when the proxy asks for itself.
    Whole(Option<IpAddr>, usize),
    /// The beginning of one.
    Part,
    /// None.
    Bad,
}

/// Who puts a header before what it sends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proxies(Vec<IpNet>);

impl Proxies {
    pub(crate) fn new(prefixes: Vec<IpNet>) -> Self {
        Self(prefixes)
    }

    pub(crate) fn has(&self, peer: IpAddr) -> bool {
        !self.0.is_empty() && self.0.iter().any(|net| net.contains(&peer.to_canonical()))
    }

    /// Who sent a datagram that came from `peer`, and its message; `None`: a proxy of ours that does
    /// not say for whom.
    pub(crate) fn datagram<'a>(&self, peer: IpAddr, bytes: &'a [u8]) -> Option<(IpAddr, &'a [u8])> {
        if !self.has(peer) {
            return Some((peer, bytes));
        }
        match read(bytes) {
            Header::Whole(source, length) => Some((source.unwrap_or(peer), bytes.get(length..)?)),
            Header::Part | Header::Bad => None,
        }
    }
}

/// Reads the header at the front of `bytes`.
pub(crate) fn read(bytes: &[u8]) -> Header {
    if !SIGNATURE.iter().zip(bytes).all(|(wanted, byte)| wanted == byte) {
        return Header::Bad;
    }
    let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED_BYTES>() else { return Header::Part };
    let [.., command, family, high, low] = *fixed;
    let length = usize::from(u16::from_be_bytes([high, low]));
    let whole = FIXED_BYTES.saturating_add(length);
    if whole > HEADER_BYTES_MAX {
        return Header::Bad;
    }
    let Some(data) = rest.get(..length) else { return Header::Part };
    // The protocol, in the lower half, is how the client reached the proxy: no matter here.
    let source = match (command, family >> 4) {
        // LOCAL: health checks of the proxy. Whatever follows is not looked at.
        (0x20, _) => Some(None),
        // UNSPEC: the proxy does not know.
        (0x21, 0) => Some(None),
        (0x21, 1) if length >= 12 => {
            data.first_chunk::<4>().map(|a| Some(Ipv4Addr::from(*a).into()))
        }
        (0x21, 2) if length >= 36 => {
            data.first_chunk::<16>().map(|a| Some(Ipv6Addr::from(*a).into()))
        }
        // Another version or command, a family without IP addresses, or too short for them.
        _ => None,
    };
    source.map_or(Header::Bad, |source| Header::Whole(source, whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(command: u8, family: u8, data: &[u8]) -> Vec<u8> {
        let length = u16::try_from(data.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, data].concat()
    }

    /// 203.0.113.9:4660 to 192.0.2.53:53.
    const V4: [u8; 12] = [203, 0, 113, 9, 192, 0, 2, 53, 0x12, 0x34, 0, 53];

    #[test]
    fn the_source_is_read_whatever_stands_behind_it() {
        let v4: IpAddr = "203.0.113.9".parse().unwrap();
        let v6: IpAddr = "2001:db8::9".parse().unwrap();
        let mut long = [0; 36];
        long[..16].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
        let tlv = [&V4[..], &[4, 0, 2, 1, 2]].concat();
        for (bytes, source) in [
            (header(0x21, 0x12, &V4), Some(v4)),
            (header(0x21, 0x11, &V4), Some(v4)),
            (header(0x21, 0x22, &long), Some(v6)),
            (header(0x21, 0x12, &tlv), Some(v4)),
            (header(0x20, 0x00, &[]), None),
            (header(0x20, 0x12, &V4), None),
            (header(0x20, 0x31, &[1; 216]), None),
            (header(0x21, 0x00, &[9; 7]), None),
        ] {
            let length = bytes.len();
            assert_eq!(read(&[&bytes[..], b"query"].concat()), Header::Whole(source, length));
            for cut in 0..length {
                assert_eq!(read(&bytes[..cut]), Header::Part, "{cut} of {bytes:?}");
            }
        }
    }

    #[test]
    fn what_is_no_header_is_bad() {
        let mut signature = header(0x21, 0x12, &V4);
        signature[11] = b'X';
        for (bytes, why) in [
            (b"\x12\x34\0\0\0\x01".to_vec(), "a query"),
            (b"PROXY TCP4 203.0.113.9 192.0.2.53 1 53\r\n".to_vec(), "version 1"),
            (signature, "another signature"),
            (header(0x11, 0x12, &V4), "another version"),
            (header(0x22, 0x12, &V4), "another command"),
            (header(0x21, 0x12, &V4[..11]), "too short for IPv4"),
            (header(0x21, 0x22, &[0; 35]), "too short for IPv6"),
            (header(0x21, 0x31, &[0; 216]), "a unix socket"),
            (header(0x21, 0x42, &V4), "an unknown family"),
            (header(0x21, 0x12, &[0; 1009]), "longer than any"),
        ] {
            assert_eq!(read(&bytes), Header::Bad, "{why}");
        }
    }

    #[test]
    fn only_those_who_are_named_are_believed() {
        let proxies = Proxies::new(vec!["192.0.2.0/24".parse().unwrap()]);
        let bytes = [&header(0x21, 0x12, &V4)[..], b"query"].concat();
        let (proxy, other) = ("::ffff:192.0.2.1".parse().unwrap(), "198.51.100.1".parse().unwrap());
        let source: IpAddr = "203.0.113.9".parse().unwrap();
        assert_eq!(proxies.datagram(proxy, &bytes), Some((source, &b"query"[..])));
        assert_eq!(proxies.datagram(other, &bytes), Some((other, &bytes[..])));
        assert_eq!(proxies.datagram(proxy, b"query"), None);
        assert_eq!(proxies.datagram(proxy, &bytes[..20]), None);
        let own = [&header(0x20, 0, &[])[..], b"query"].concat();
        assert_eq!(proxies.datagram(proxy, &own), Some((proxy, &b"query"[..])));
        assert_eq!(Proxies::default().datagram(proxy, &bytes), Some((proxy, &bytes[..])));
    }
}
