//! Record sets: what maps and zone files say, as bytes that answers copy.

use std::net::IpAddr;

use nodemap::Zone;

use crate::reply::Records;
use crate::wire::{CLASS_IN, QUESTION_NAME, rtype, wire_name};

/// SOA timers for secondaries, seconds: nobody transfers these zones, so they only have to be sane
/// (RIPE-203).
const REFRESH_S: u32 = 7200;
const RETRY_S: u32 = 1800;
const EXPIRE_S: u32 = 1_209_600;

/// Bytes of a record before its data: owner pointer, type, class, TTL and length.
pub(crate) const RECORD_HEAD_BYTES: usize = 12;
/// Where in a SOA record its serial is, from the end.
pub(crate) const SERIAL_FROM_END: usize = 20;

/// All records of one name and type. Their data is in canonical form and order (RFC 4034 section
/// 6), each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordSet {
    pub(crate) rtype: u16,
    pub(crate) ttl_s: u32,
    data: Vec<Vec<u8>>,
}

impl RecordSet {
    pub(crate) fn new(rtype: u16, ttl_s: u32, data: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let mut data: Vec<Vec<u8>> = data.into_iter().collect();
        data.sort();
        data.dedup();
        Self { rtype, ttl_s, data }
    }

    /// The A and the AAAA set of `addresses`, those that have members.
    pub(crate) fn addresses(addresses: &[IpAddr], ttl_s: u32) -> impl Iterator<Item = Self> {
        let of = move |v4: bool| addresses.iter().filter(move |address| address.is_ipv4() == v4);
        [(rtype::A, true), (rtype::AAAA, false)]
            .into_iter()
            .map(move |(rtype, v4)| Self::new(rtype, ttl_s, of(v4).map(|a| octets(*a))))
            .filter(|set| !set.data.is_empty())
    }

    /// The TXT set with one record for each of `texts`.
    pub(crate) fn texts(texts: &[String], ttl_s: u32) -> Self {
        Self::new(rtype::TXT, ttl_s, texts.iter().map(|text| text_data(text)))
    }

    /// The one record that answers "give me everything" (RFC 8482 section 4.2).
    pub(crate) fn minimal_any(ttl_s: u32) -> Self {
        Self::new(rtype::HINFO, ttl_s, [b"\x07RFC8482\0".to_vec()])
    }

    /// The NS set of the zone's apex.
    pub(crate) fn name_servers(zone: &Zone) -> Self {
        Self::new(rtype::NS, zone.ttl_s, zone.ns.iter().map(wire_name))
    }

    /// The SOA set of the zone's apex, with serial 0.
    pub(crate) fn authority(zone: &Zone) -> Self {
        Self::new(rtype::SOA, zone.ttl_s, [soa_data(zone)])
    }

    /// The same records with another TTL.
    pub(crate) fn with_ttl(self, ttl_s: u32) -> Self {
        Self { ttl_s, ..self }
    }

    /// The data of each record.
    pub(crate) fn data(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.data.iter().map(Vec::as_slice)
    }

    /// The records one behind the other, their owner a pointer to the question's name.
    pub(crate) fn rendered(&self) -> Vec<u8> {
        let head = [QUESTION_NAME, self.rtype, CLASS_IN].map(u16::to_be_bytes);
        let mut bytes = Vec::new();
        for data in &self.data {
            bytes.extend_from_slice(head.as_flattened());
            bytes.extend(self.ttl_s.to_be_bytes());
            // Zone files are checked for it, and maps have nothing so long.
            bytes.extend(u16::try_from(data.len()).unwrap_or(u16::MAX).to_be_bytes());
            bytes.extend_from_slice(data);
        }
        bytes
    }

    /// How many records it has.
    pub(crate) fn count(&self) -> u16 {
        u16::try_from(self.data.len()).unwrap_or(u16::MAX)
    }
}

/// Writes `owner`, a pointer, into each of the rendered `records`.
pub(crate) fn set_owner(records: &mut [u8], owner: u16) {
    let mut rest = records;
    while let Some((head, behind)) = rest.split_first_chunk_mut::<RECORD_HEAD_BYTES>() {
        let [first, second, .., high, low] = head;
        [*first, *second] = owner.to_be_bytes();
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        rest = behind.get_mut(length..).unwrap_or_default();
    }
}

/// The data of each of the rendered `records`, and where it begins in them.
pub(crate) fn data_of(records: Records<'_>) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0usize;
    std::iter::from_fn(move || {
        let (head, behind) = records.bytes.get(at..)?.split_first_chunk::<RECORD_HEAD_BYTES>()?;
        let [.., high, low] = head;
        let data = behind.get(..usize::from(u16::from_be_bytes([*high, *low])))?;
        let start = at.saturating_add(RECORD_HEAD_BYTES);
        at = start.saturating_add(data.len());
        Some((start, data))
    })
}

/// The steered answer: every address of the chosen node, under `owner`, a pointer.
pub(crate) fn push_addresses(
    owner: u16,
    addresses: &[IpAddr],
    ttl_s: u32,
    out: &mut Vec<u8>,
) -> u16 {
    let mut count = 0u16;
    for address in addresses {
        let rtype = if address.is_ipv4() { rtype::A } else { rtype::AAAA };
        let owner_type_class = [owner, rtype, CLASS_IN].map(u16::to_be_bytes);
        out.extend_from_slice(owner_type_class.as_flattened());
        out.extend_from_slice(&ttl_s.to_be_bytes());
        match address {
            IpAddr::V4(v4) => {
                out.extend_from_slice(&4u16.to_be_bytes());
                out.extend_from_slice(&v4.octets());
            }
            IpAddr::V6(v6) => {
                out.extend_from_slice(&16u16.to_be_bytes());
                out.extend_from_slice(&v6.octets());
            }
        }
        count = count.saturating_add(1);
    }
    count
}

/// The data of a HTTPS record up to its addresses (RFC 9460): the first choice, under its own name,
/// over these protocols beside HTTP/1.1.
pub(crate) fn service_data(http3: bool) -> Box<[u8]> {
    let protocols: &[u8] = if http3 { b"\x02h3\x02h2" } else { b"\x02h2" };
    let length = u8::try_from(protocols.len()).unwrap_or(u8::MAX);
    let mut data = vec![0, 1, 0, 0, 1, 0, length];
    data.extend(protocols);
    data.into()
}

/// One HTTPS or SVCB record under `owner`, a pointer: `data` and the addresses, IPv4 and then IPv6, as
/// hints (RFC 9460 section 7.3).
pub(crate) fn push_service(
    owner: u16,
    rtype: u16,
    ttl_s: u32,
    data: &[u8],
    [v4, v6]: [impl Iterator<Item = IpAddr>; 2],
    out: &mut Vec<u8>,
) -> u16 {
    out.extend_from_slice([owner, rtype, CLASS_IN].map(u16::to_be_bytes).as_flattened());
    out.extend_from_slice(&ttl_s.to_be_bytes());
    let length = out.len();
    out.extend([0, 0]);
    out.extend_from_slice(data);
    push_hint(4, v4, out);
    push_hint(6, v6, out);
    write_length(length, out);
    1
}

/// A parameter with a list of addresses, if there are any.
fn push_hint(key: u16, addresses: impl Iterator<Item = IpAddr>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend(key.to_be_bytes());
    let length = out.len();
    out.extend([0, 0]);
    let mut any = false;
    for address in addresses {
        any = true;
        match address {
            IpAddr::V4(v4) => out.extend_from_slice(&v4.octets()),
            IpAddr::V6(v6) => out.extend_from_slice(&v6.octets()),
        }
    }
    if any {
        write_length(length, out);
    } else {
        out.truncate(start);
    }
}

/// Writes at `at` how many bytes follow behind the two there.
fn write_length(at: usize, out: &mut [u8]) {
    let follow = out.len().saturating_sub(at).saturating_sub(2);
    // At most 8 nodes with 8 addresses each.
    let follow = u16::try_from(follow).unwrap_or(u16::MAX);
    if let Some(place) = out.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) {
        *place = follow.to_be_bytes();
    }
}

/// A text as strings of at most 255 bytes, at least one (RFC 1035 section 3.3.14).
fn text_data(text: &str) -> Vec<u8> {
    if text.is_empty() {
        return vec![0];
    }
    let mut data = Vec::new();
    // 255 strings of 255 bytes are the most that fit a record.
    for string in text.as_bytes().chunks(255).take(255) {
        data.push(u8::try_from(string.len()).unwrap_or(u8::MAX));
        data.extend_from_slice(string);
    }
    data
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// RFC 1035 section 3.3.13. The first name server is the primary one.
fn soa_data(zone: &Zone) -> Vec<u8> {
    let mut data = zone.ns.first().map_or_else(|| vec![0], wire_name);
    data.extend(wire_name(&zone.soa.contact));
    for number in [0, REFRESH_S, RETRY_S, EXPIRE_S, zone.soa.negative_ttl_s] {
        data.extend(number.to_be_bytes());
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{HEADER_BYTES, NAME_BYTES_MAX, TCP_BYTES_MAX};

    #[test]
    fn the_most_that_maps_allow_of_texts_fits_an_answer() {
        let texts: Vec<String> = (10..26).map(|i| i.to_string().repeat(2000)).collect();
        let set = RecordSet::texts(&texts, 60);
        assert_eq!(set.count(), 16);
        // The question, and an OPT record with a client subnet.
        let around = HEADER_BYTES + NAME_BYTES_MAX + 4 + 11 + 24;
        assert!(set.rendered().len() + around <= usize::from(TCP_BYTES_MAX));
    }

    #[test]
    fn equal_texts_are_one_record() {
        let texts = ["a", "b", "a"].map(str::to_owned);
        assert_eq!(RecordSet::texts(&texts, 60).count(), 2);
    }

    #[test]
    fn owners_are_written_into_every_record() {
        let set = RecordSet::texts(&["one", "three"].map(str::to_owned), 7);
        let mut bytes = set.rendered();
        set_owner(&mut bytes, 0xc123);
        let records = Records { bytes: &bytes, count: set.count() };
        let data: Vec<_> = data_of(records).collect();
        assert_eq!(data, [(12, &b"\x03one"[..]), (28, b"\x05three")]);
        assert_eq!((&bytes[..2], &bytes[16..18]), (&[0xc1, 0x23][..], &[0xc1, 0x23][..]));
    }
}
