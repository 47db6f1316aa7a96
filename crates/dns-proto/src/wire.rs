//! Numbers of the protocol, a reader over bytes, and names in wire form.

use model::{HostName, Name};

/// The most we send over UDP, and what our OPT record announces: fits every path unfragmented
/// (DNS flag day 2020, RFC 9715).
pub const UDP_BYTES_MAX: u16 = 1232;
/// What every client takes over UDP (RFC 1035 section 4.2.1).
pub(crate) const UDP_BYTES_PLAIN: u16 = 512;
/// What the length prefix of TCP can say (RFC 1035 section 4.2.2).
pub(crate) const TCP_BYTES_MAX: u16 = u16::MAX;
/// Length of the header.
pub(crate) const HEADER_BYTES: usize = 12;
/// Longest name in wire form (RFC 1035 section 2.3.4).
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// A compression pointer to the question's name, which always stands behind the header.
pub(crate) const QUESTION_NAME: u16 = 0xc00c;

/// Record and query types.
pub(crate) mod rtype {
    pub(crate) const A: u16 = 1;
    pub(crate) const NS: u16 = 2;
    pub(crate) const CNAME: u16 = 5;
    pub(crate) const SOA: u16 = 6;
    pub(crate) const PTR: u16 = 12;
    pub(crate) const HINFO: u16 = 13;
    pub(crate) const MX: u16 = 15;
    pub(crate) const TXT: u16 = 16;
    pub(crate) const AAAA: u16 = 28;
    pub(crate) const SRV: u16 = 33;
    pub(crate) const NAPTR: u16 = 35;
    pub(crate) const DNAME: u16 = 39;
    pub(crate) const OPT: u16 = 41;
    pub(crate) const DS: u16 = 43;
    pub(crate) const RRSIG: u16 = 46;
    pub(crate) const NSEC: u16 = 47;
    pub(crate) const DNSKEY: u16 = 48;
    pub(crate) const NSEC3: u16 = 50;
    pub(crate) const NSEC3PARAM: u16 = 51;
    pub(crate) const CDS: u16 = 59;
    pub(crate) const CDNSKEY: u16 = 60;
    pub(crate) const SVCB: u16 = 64;
    pub(crate) const HTTPS: u16 = 65;
    pub(crate) const NXNAME: u16 = 128;
    pub(crate) const TKEY: u16 = 249;
    pub(crate) const TSIG: u16 = 250;
    pub(crate) const IXFR: u16 = 251;
    pub(crate) const AXFR: u16 = 252;
    pub(crate) const MAILB: u16 = 253;
    pub(crate) const MAILA: u16 = 254;
    pub(crate) const ANY: u16 = 255;

    /// The registered name of a type, or `TYPE` and its number (RFC 3597 section 5).
    pub(crate) fn word(rtype: u16) -> String {
        domain::base::iana::Rtype::from_int(rtype).to_string()
    }
}

/// The Internet class.
pub(crate) const CLASS_IN: u16 = 1;
/// CHAOS, where servers tell of themselves (RFC 4892).
pub(crate) const CLASS_CHAOS: u16 = 3;

/// EDNS options.
pub(crate) mod option {
    /// What the server calls itself (RFC 5001).
    pub(crate) const NSID: u16 = 3;
    /// Client subnet (RFC 7871).
    pub(crate) const SUBNET: u16 = 8;
    /// Cookies (RFC 7873).
    pub(crate) const COOKIE: u16 = 10;
    /// How long a connection is kept (RFC 7828).
    pub(crate) const KEEPALIVE: u16 = 11;
    /// Extended DNS error (RFC 8914).
    pub(crate) const EXTENDED_ERROR: u16 = 15;
}

/// Takes bytes off the front; `None` when there are too few.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        let (head, tail) = self.0.split_first()?;
        self.0 = tail;
        Some(*head)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        let (head, tail) = self.0.split_first_chunk::<2>()?;
        self.0 = tail;
        Some(u16::from_be_bytes(*head))
    }

    pub(crate) fn left(&self) -> usize {
        self.0.len()
    }

    /// Takes an uncompressed name, the root's label included.
    fn take_name(&mut self) -> Option<&'a [u8]> {
        let from = self.0;
        loop {
            match self.u8()? {
                0 => return from.get(..from.len().saturating_sub(self.left())),
                compressed if compressed & 0xc0 != 0 => return None,
                label => self.take(usize::from(label)).map(|_| ())?,
            }
        }
    }

    /// Steps over a name, compressed or not, without following it.
    pub(crate) fn skip_name(&mut self) -> Option<()> {
        loop {
            match self.u8()? {
                0 => return Some(()),
                pointer if pointer & 0xc0 == 0xc0 => return self.u8().map(|_| ()),
                reserved if reserved & 0xc0 != 0 => return None,
                label => self.take(usize::from(label)).map(|_| ())?,
            }
        }
    }
}

/// A question's name in wire form and lower case.
#[derive(Clone)]
pub(crate) struct LowerName {
    bytes: [u8; NAME_BYTES_MAX],
    length: usize,
}

impl LowerName {
    /// Reads an uncompressed name: a question is the first name of a message, so a pointer in it
    /// has nothing to point to.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let wire = reader.take_name()?;
        let mut name = Self { bytes: [0; NAME_BYTES_MAX], length: wire.len() };
        let bytes = name.bytes.get_mut(..wire.len())?;
        bytes.copy_from_slice(wire);
        // Lengths of labels are below 64, letters above.
        bytes.make_ascii_lowercase();
        Some(name)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// `name` and the names above it, the root last.
pub(crate) fn ancestry(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(name), |name| {
        let (label, rest) = name.split_first()?;
        if *label == 0 { None } else { rest.get(usize::from(*label)..) }
    })
}

/// `host` in wire form; it is lower case already.
pub(crate) fn wire_name(host: &HostName) -> Vec<u8> {
    let mut wire = labels(host.as_str());
    wire.push(0);
    wire
}

/// `label` below `name`; `None` when that would be too long.
pub(crate) fn child(label: &Name, name: &[u8]) -> Option<Vec<u8>> {
    let mut wire = labels(label.as_str());
    wire.extend_from_slice(name);
    (wire.len() <= NAME_BYTES_MAX).then_some(wire)
}

/// `name` (wire form) as people write it, with the final point (RFC 1035 section 5.1).
pub(crate) fn text_of(name: &[u8]) -> String {
    let mut text = String::new();
    for label in ancestry(name) {
        let Some((length, rest)) = label.split_first().filter(|(length, _)| **length > 0) else {
            break;
        };
        for byte in rest.iter().take(usize::from(*length)) {
            match byte {
                b'.' | b'\\' | b'"' | b';' | b'(' | b')' | b'@' | b'$' => {
                    text.extend(['\\', char::from(*byte)]);
                }
                b'!'..=b'~' => text.push(char::from(*byte)),
                other => text.push_str(&format!("\\{other:03}")),
            }
        }
        text.push('.');
    }
    if text.is_empty() { ".".to_owned() } else { text }
}

/// The labels of `text`, without the root.
fn labels(text: &str) -> Vec<u8> {
    let mut wire = Vec::with_capacity(text.len().saturating_add(2));
    for label in text.split('.').filter(|label| !label.is_empty()) {
        // Names are checked when they are made: a label has at most 63 bytes.
        wire.push(u8::try_from(label.len()).unwrap_or(63));
        wire.extend_from_slice(label.as_bytes());
    }
    wire
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_wire_form_and_fold_case() {
        let host: HostName = "ns1.cdn.example".parse().unwrap();
        assert_eq!(wire_name(&host), b"\x03ns1\x03cdn\x07example\0");
        assert_eq!(text_of(&wire_name(&host)), "ns1.cdn.example.");
        assert_eq!(text_of(b"\x03a.\x7f\0"), r"a\.\127.");
        assert_eq!(text_of(b"\0"), ".");
        let mut reader = Reader::new(b"\x03NS1\x03cDn\x07example\0rest");
        assert_eq!(LowerName::read(&mut reader).unwrap().as_bytes(), wire_name(&host));
        assert_eq!(reader.left(), 4);
        let above: Vec<&[u8]> = ancestry(b"\x03cdn\x07example\0").collect();
        assert_eq!(above, [&b"\x03cdn\x07example\0"[..], b"\x07example\0", b"\0"]);
    }

    #[test]
    fn bad_names_are_refused() {
        let long = [&[63u8][..], &[b'a'; 63]].concat().repeat(4);
        let cases: [&[u8]; 6] =
            [b"", b"\x03ab", b"\x01a", b"\xc0\x0c", b"\x40a\0", &[&long[..], b"\0"].concat()];
        for case in cases {
            assert!(LowerName::read(&mut Reader::new(case)).is_none(), "{case:?}");
        }
        let full = [&[63u8][..], &[b'a'; 63]].concat().repeat(3);
        let full = [&full[..], &[61], &[b'a'; 61], &[0]].concat();
        assert_eq!(full.len(), NAME_BYTES_MAX);
        assert_eq!(LowerName::read(&mut Reader::new(&full)).unwrap().as_bytes(), full);
        assert_eq!(child(&"x".parse().unwrap(), &full), None);
    }
}
