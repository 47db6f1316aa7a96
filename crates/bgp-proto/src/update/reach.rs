//! The attributes that hold prefixes of any family (RFC 4760), next hops of RFC 2545 and 8950 included.
//!
//! One that is malformed resets the session: its prefixes cannot be found (RFC 7606 sections 5.3 and
//! 7.11).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use model::Family;

use crate::nlri::Nlri;
use crate::notification::{Code, Notification};
use crate::open;
use crate::wire::Reader;

fn malformed() -> Notification {
    Notification::new(Code::OptionalAttribute)
}

/// `MP_REACH_NLRI`: prefixes and their next hop; `None` for a family that is none of ours.
pub(super) fn reach(
    value: &[u8],
    extended_next_hop: bool,
) -> Result<Option<(Nlri<'_>, IpAddr)>, Notification> {
    let mut reader = Reader(value);
    let header = reader.u16().zip(reader.u8());
    let ((afi, safi), next_hop) = header.zip(reader.part_u8()).ok_or_else(malformed)?;
    // An octet that once counted something and is reserved.
    reader.u8().ok_or_else(malformed)?;
    let Some(family) = open::family(afi, safi) else { return Ok(None) };
    let next_hop = match (family, next_hop.len()) {
        (Family::V4, 4) => v4(next_hop),
        (Family::V4, 16 | 32) if extended_next_hop => v6(next_hop),
        (Family::V6, 16 | 32) => v6(next_hop),
        _ => None,
    };
    let next_hop = next_hop.ok_or_else(malformed)?;
    let nlri = Nlri::parse(family, reader.0).ok_or_else(malformed)?;
    Ok(Some((nlri, next_hop)))
}

/// `MP_UNREACH_NLRI`: prefixes; `None` for a family that is none of ours.
pub(super) fn unreach(value: &[u8]) -> Result<Option<Nlri<'_>>, Notification> {
    let mut reader = Reader(value);
    let (afi, safi) = reader.u16().zip(reader.u8()).ok_or_else(malformed)?;
    let Some(family) = open::family(afi, safi) else { return Ok(None) };
    Nlri::parse(family, reader.0).map(Some).ok_or_else(malformed)
}

fn v4(octets: &[u8]) -> Option<IpAddr> {
    let octets: [u8; 4] = octets.try_into().ok()?;
    Some(Ipv4Addr::from(octets).into())
}

/// The global address, or the link-local one where that is the only one.
fn v6(octets: &[u8]) -> Option<IpAddr> {
    let (addresses, _) = octets.as_chunks::<16>();
    let mut addresses = addresses.iter().map(|octets| Ipv6Addr::from(*octets));
    let (first, second) = (addresses.next()?, addresses.next());
    let only = second.filter(|_| first.is_unspecified());
    Some(only.unwrap_or(first).into())
}
