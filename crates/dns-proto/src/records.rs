//! Record sets, written once when the snapshot is built.
//!
//! Owners in answers are pointers to the question's name, so one rendering serves every spelling.

use std::net::IpAddr;

use model::HostName;
use nodemap::Zone;

use crate::reply::Records;
use crate::wire::{CLASS_IN, QUESTION_NAME, rtype, wire_name, wire_name_at_apex};

/// SOA timers for secondaries, seconds: nobody transfers these zones, so they only have to be sane
/// (RIPE-203).
const REFRESH_S: u32 = 7200;
const RETRY_S: u32 = 1800;
const EXPIRE_S: u32 = 1_209_600;

/// All records of one name and type.
#[derive(Debug)]
pub(crate) struct RecordSet {
    pub(crate) rtype: u16,
    answer: Rendered,
    /// Addresses of the names in the answer, where we have them.
    additional: Rendered,
}

#[derive(Debug, Default)]
struct Rendered {
    bytes: Vec<u8>,
    count: u16,
}

impl Rendered {
    fn push(&mut self, owner: &[u8], rtype: u16, ttl_s: u32, data: &[u8]) {
        self.bytes.extend_from_slice(owner);
        self.bytes.extend(tail(rtype, ttl_s, data));
        self.count = self.count.saturating_add(1);
    }

    fn records(&self) -> Records<'_> {
        Records { bytes: &self.bytes, count: self.count }
    }
}

/// A record behind its owner: type, class, TTL, length, data.
fn tail(rtype: u16, ttl_s: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(data.len().saturating_add(10));
    bytes.extend(rtype.to_be_bytes());
    bytes.extend(CLASS_IN.to_be_bytes());
    bytes.extend(ttl_s.to_be_bytes());
    // The longest data made here is a text of 65,280 bytes.
    bytes.extend(u16::try_from(data.len()).unwrap_or(u16::MAX).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

impl RecordSet {
    fn new(rtype: u16, ttl_s: u32, data: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let mut answer = Rendered::default();
        for data in data {
            answer.push(&QUESTION_NAME.to_be_bytes(), rtype, ttl_s, &data);
        }
        Self { rtype, answer, additional: Rendered::default() }
    }

    pub(crate) fn answer(&self) -> Records<'_> {
        self.answer.records()
    }

    pub(crate) fn additional(&self) -> Records<'_> {
        self.additional.records()
    }

    /// The A and the AAAA set of `addresses`, those that have members.
    pub(crate) fn addresses(addresses: &[IpAddr], ttl_s: u32) -> impl Iterator<Item = Self> {
        let of = move |v4: bool| addresses.iter().filter(move |address| address.is_ipv4() == v4);
        [(rtype::A, true), (rtype::AAAA, false)]
            .into_iter()
            .map(move |(rtype, v4)| Self::new(rtype, ttl_s, of(v4).map(|a| octets(*a))))
            .filter(|set| set.answer.count > 0)
    }

    /// The TXT set with one record for each of `texts`; a set has no two equal records (RFC 2181
    /// section 5).
    pub(crate) fn texts(texts: &[String], ttl_s: u32) -> Self {
        let mut data: Vec<Vec<u8>> = Vec::new();
        for record in texts.iter().map(|text| text_data(text)) {
            if !data.contains(&record) {
                data.push(record);
            }
        }
        Self::new(rtype::TXT, ttl_s, data)
    }

    /// The one record that answers "give me everything" (RFC 8482 section 4.2).
    pub(crate) fn minimal_any(ttl_s: u32) -> Self {
        Self::new(rtype::HINFO, ttl_s, [b"\x07RFC8482\0".to_vec()])
    }

    /// The NS set of the zone's apex, with the addresses that the zone itself knows.
    pub(crate) fn name_servers(apex: &HostName, zone: &Zone) -> Self {
        let data = zone.ns.iter().map(|host| wire_name_at_apex(host, apex));
        let mut set = Self::new(rtype::NS, zone.ttl_s, data);
        for (host, addresses) in zone.ns.iter().filter_map(|ns| zone.hosts.get_key_value(ns)) {
            let owner = wire_name_at_apex(host, apex);
            for address in addresses {
                let rtype = if address.is_ipv4() { rtype::A } else { rtype::AAAA };
                set.additional.push(&owner, rtype, zone.ttl_s, &octets(*address));
            }
        }
        set
    }

    /// The SOA set of the zone's apex.
    pub(crate) fn authority(zone: &Zone, serial: u32) -> Self {
        Self::new(rtype::SOA, zone.ttl_s, [soa_data(zone, serial)])
    }
}

/// The SOA record behind its owner as negative answers carry it: its TTL is the least of its own
/// and the negative one (RFC 2308 section 3).
pub(crate) fn negative_soa(zone: &Zone, serial: u32) -> Vec<u8> {
    tail(rtype::SOA, zone.ttl_s.min(zone.soa.negative_ttl_s), &soa_data(zone, serial))
}

/// The steered answer: every address of the chosen node.
pub(crate) fn push_addresses(addresses: &[IpAddr], ttl_s: u32, out: &mut Vec<u8>) -> u16 {
    let mut count = 0u16;
    for address in addresses {
        let rtype = if address.is_ipv4() { rtype::A } else { rtype::AAAA };
        let owner_type_class = [QUESTION_NAME, rtype, CLASS_IN].map(u16::to_be_bytes);
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
fn soa_data(zone: &Zone, serial: u32) -> Vec<u8> {
    let mut data = zone.ns.first().map_or_else(|| vec![0], wire_name);
    data.extend(wire_name(&zone.soa.contact));
    for number in [serial, REFRESH_S, RETRY_S, EXPIRE_S, zone.soa.negative_ttl_s] {
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
        let records = set.answer();
        assert_eq!(records.count, 16);
        // The question, and an OPT record with a client subnet.
        let around = HEADER_BYTES + NAME_BYTES_MAX + 4 + 11 + 24;
        assert!(records.bytes.len() + around <= usize::from(TCP_BYTES_MAX));
    }

    #[test]
    fn equal_texts_are_one_record() {
        let texts = ["a", "b", "a"].map(str::to_owned);
        assert_eq!(RecordSet::texts(&texts, 60).answer().count, 2);
    }
}
