//! OPEN: who one is and what one can (RFC 4271 section 4.2, capabilities of RFC 5492 and 9072).

use std::net::Ipv4Addr;

use model::{Asn, Family};

use crate::frame::{self, Kind};
use crate::notification::{Code, Notification};
use crate::wire::Reader;

/// What stands for an AS number that does not fit in two octets (RFC 6793).
pub const AS_TRANS: u16 = 23456;

const VERSION: u8 = 4;
const PARAMETER_CAPABILITIES: u8 = 2;
/// Says that the parameters have lengths of two octets (RFC 9072).
const PARAMETER_EXTENDED: u8 = 255;
const AFI: [(Family, u16); 2] = [(Family::V4, 1), (Family::V6, 2)];
const SAFI_UNICAST: u8 = 1;

/// Codes of capabilities.
mod code {
    pub(super) const MULTIPROTOCOL: u8 = 1;
    pub(super) const ROUTE_REFRESH: u8 = 2;
    pub(super) const EXTENDED_NEXT_HOP: u8 = 5;
    pub(super) const EXTENDED_MESSAGE: u8 = 6;
    pub(super) const GRACEFUL_RESTART: u8 = 64;
    pub(super) const FOUR_OCTET_AS: u8 = 65;
    pub(super) const ENHANCED_REFRESH: u8 = 70;
}

/// Unicast routes of this address family, if these numbers are any.
pub(crate) fn family(afi: u16, safi: u8) -> Option<Family> {
    let found = AFI.iter().find(|(_, number)| *number == afi && safi == SAFI_UNICAST)?;
    Some(found.0)
}

/// The numbers of a family: AFI, and SAFI for unicast.
pub(crate) fn numbers(family: Family) -> (u16, u8) {
    (if family == Family::V4 { 1 } else { 2 }, SAFI_UNICAST)
}

/// A flag for each address family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Families {
    /// IPv4 unicast.
    pub v4: bool,
    /// IPv6 unicast.
    pub v6: bool,
}

impl Families {
    /// Both.
    pub const ALL: Self = Self { v4: true, v6: true };

    /// Whether it is among them.
    pub fn has(self, family: Family) -> bool {
        if family == Family::V4 { self.v4 } else { self.v6 }
    }

    /// Adds one.
    pub fn add(&mut self, family: Family) {
        if family == Family::V4 { self.v4 = true } else { self.v6 = true }
    }

    /// Those that are in both.
    pub fn and(self, other: Self) -> Self {
        Self { v4: self.v4 && other.v4, v6: self.v6 && other.v6 }
    }

    /// Each of them, IPv4 first.
    pub fn each(self) -> impl Iterator<Item = Family> {
        Family::ALL.into_iter().filter(move |family| self.has(*family))
    }
}

/// What the other side says of graceful restarts (RFC 4724).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GracefulRestart {
    /// How long its routes are to be kept while it is away, in seconds: up to 4095.
    pub restart_s: u16,
    /// Those whose routes it can go on with.
    pub families: Families,
    /// Those of them for which it went on forwarding while it was away.
    pub forwarding: Families,
}

/// What one side can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Families by MP-BGP (RFC 4760); where nothing is said, IPv4 alone.
    pub families: Option<Families>,
    /// Asking for all routes again (RFC 2918).
    pub route_refresh: bool,
    /// Saying where a refresh begins and ends (RFC 7313).
    pub enhanced_refresh: bool,
    /// IPv4 routes with IPv6 next hops (RFC 8950).
    pub extended_next_hop: bool,
    /// Messages of more than 4096 octets (RFC 8654).
    pub extended_message: bool,
    /// Its AS number in four octets (RFC 6793).
    pub four_octet_as: Option<u32>,
    /// Graceful restarts (RFC 4724).
    pub graceful_restart: Option<GracefulRestart>,
}

/// An OPEN message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// The AS of the sender: of the capability where there is one.
    pub asn: Asn,
    /// The hold time that it offers, in seconds: 0 (none) or at least 3.
    pub hold_s: u16,
    /// Its BGP identifier, never 0.
    pub identifier: Ipv4Addr,
    /// What it can.
    pub capabilities: Capabilities,
}

impl Open {
    /// The message.
    pub fn compose(&self) -> Vec<u8> {
        let short = u16::try_from(self.asn.get()).unwrap_or(AS_TRANS);
        let mut body = vec![VERSION];
        body.extend(short.to_be_bytes());
        body.extend(self.hold_s.to_be_bytes());
        body.extend(self.identifier.octets());
        let capabilities = self.capabilities.compose();
        // Never more than some 50 octets.
        let length = u8::try_from(capabilities.len()).unwrap_or(u8::MAX);
        body.extend([length.saturating_add(2), PARAMETER_CAPABILITIES, length]);
        body.extend(capabilities);
        frame::compose(Kind::Open, &body)
    }

    /// From the body of a message.
    ///
    /// # Errors
    /// What to tell the other side before the connection is closed.
    pub fn parse(body: &[u8]) -> Result<Self, Notification> {
        let mut reader = Reader(body);
        let malformed = || Notification::new(Code::OpenUnspecific);
        let version = reader.u8().ok_or_else(malformed)?;
        if version != VERSION {
            return Err(Notification::with(Code::UnsupportedVersion, &[0, VERSION]));
        }
        let short = reader.u16().ok_or_else(malformed)?;
        let hold_s = reader.u16().ok_or_else(malformed)?;
        let identifier = Ipv4Addr::from(reader.u32().ok_or_else(malformed)?);
        let capabilities = parameters(&mut reader).ok_or_else(malformed)??;
        if !reader.is_empty() {
            return Err(malformed());
        }
        let asn = capabilities.four_octet_as.unwrap_or(u32::from(short));
        let asn = Asn::new(asn).ok_or_else(|| Notification::new(Code::BadPeerAs))?;
        if hold_s == 1 || hold_s == 2 {
            let data = hold_s.to_be_bytes();
            return Err(Notification::with(Code::UnacceptableHoldTime, &data));
        }
        if identifier.is_unspecified() {
            return Err(Notification::new(Code::BadIdentifier));
        }
        Ok(Self { asn, hold_s, identifier, capabilities })
    }
}

/// The optional parameters; `None` when they are not whole.
fn parameters(reader: &mut Reader<'_>) -> Option<Result<Capabilities, Notification>> {
    let mut capabilities = Capabilities::default();
    let mut ahead = *reader;
    let (length, first) = (ahead.u8()?, ahead.u8());
    let extended = length != 0 && first == Some(PARAMETER_EXTENDED);
    let mut all = Reader(if extended {
        *reader = ahead;
        reader.part_u16()?
    } else {
        reader.part_u8()?
    });
    while !all.is_empty() {
        let kind = all.u8()?;
        let value = if extended { all.part_u16()? } else { all.part_u8()? };
        if kind != PARAMETER_CAPABILITIES {
            return Some(Err(Notification::new(Code::UnsupportedParameter)));
        }
        capabilities.read(value)?;
    }
    Some(Ok(capabilities))
}

impl Capabilities {
    /// Adds those of one parameter; `None` when they are not whole. Unknown ones, and known ones of
    /// a length that they cannot have, are as if they were not there (RFC 5492 section 3).
    fn read(&mut self, value: &[u8]) -> Option<()> {
        let mut reader = Reader(value);
        while !reader.is_empty() {
            let code = reader.u8()?;
            let value = reader.part_u8()?;
            // What is malformed in itself says nothing.
            let _ = self.read_one(code, value);
        }
        Some(())
    }

    fn read_one(&mut self, code: u8, value: &[u8]) -> Option<()> {
        let mut reader = Reader(value);
        match code {
            code::MULTIPROTOCOL => {
                let (afi, _, safi) = (reader.u16()?, reader.u8()?, reader.u8()?);
                // Even an unknown family says that no other is meant but those that are said.
                let families = self.families.get_or_insert_default();
                if let Some(family) = family(afi, safi) {
                    families.add(family);
                }
            }
            code::ROUTE_REFRESH => self.route_refresh = true,
            code::ENHANCED_REFRESH => self.enhanced_refresh = true,
            code::EXTENDED_MESSAGE => self.extended_message = true,
            code::FOUR_OCTET_AS => self.four_octet_as = Some(reader.u32()?),
            code::EXTENDED_NEXT_HOP => {
                while !reader.is_empty() {
                    let (afi, safi, next_hop) = (reader.u16()?, reader.u16()?, reader.u16()?);
                    let of_v4 = family(afi, u8::try_from(safi).ok()?) == Some(Family::V4);
                    self.extended_next_hop |= of_v4 && next_hop == 2;
                }
            }
            code::GRACEFUL_RESTART => {
                let mut said =
                    GracefulRestart { restart_s: reader.u16()? & 0x0fff, ..<_>::default() };
                while !reader.is_empty() {
                    let (afi, safi, flags) = (reader.u16()?, reader.u8()?, reader.u8()?);
                    let Some(family) = family(afi, safi) else { continue };
                    said.families.add(family);
                    if flags & 0x80 != 0 {
                        said.forwarding.add(family);
                    }
                }
                self.graceful_restart = Some(said);
            }
            _ => {}
        }
        Some(())
    }

    fn compose(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut put = |code: u8, value: &[u8]| {
            bytes.push(code);
            // No value here has more than some ten octets.
            bytes.push(u8::try_from(value.len()).unwrap_or(u8::MAX));
            bytes.extend(value);
        };
        for family in self.families.unwrap_or_default().each() {
            let (afi, safi) = numbers(family);
            let [high, low] = afi.to_be_bytes();
            put(code::MULTIPROTOCOL, &[high, low, 0, safi]);
        }
        if self.route_refresh {
            put(code::ROUTE_REFRESH, &[]);
        }
        if self.enhanced_refresh {
            put(code::ENHANCED_REFRESH, &[]);
        }
        if self.extended_next_hop {
            put(code::EXTENDED_NEXT_HOP, &[0, 1, 0, SAFI_UNICAST, 0, 2]);
        }
        if self.extended_message {
            put(code::EXTENDED_MESSAGE, &[]);
        }
        if let Some(asn) = self.four_octet_as {
            put(code::FOUR_OCTET_AS, &asn.to_be_bytes());
        }
        if let Some(restart) = self.graceful_restart {
            let mut value = (restart.restart_s & 0x0fff).to_be_bytes().to_vec();
            for family in restart.families.each() {
                let (afi, safi) = numbers(family);
                value.extend(afi.to_be_bytes());
                value.extend([safi, if restart.forwarding.has(family) { 0x80 } else { 0 }]);
            }
            put(code::GRACEFUL_RESTART, &value);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> Open {
        Open {
            asn: Asn::new(4_200_000_000).unwrap(),
            hold_s: 90,
            identifier: Ipv4Addr::new(192, 0, 2, 1),
            capabilities: Capabilities {
                families: Some(Families::ALL),
                route_refresh: true,
                enhanced_refresh: true,
                extended_next_hop: true,
                extended_message: true,
                four_octet_as: Some(4_200_000_000),
                graceful_restart: Some(GracefulRestart {
                    restart_s: 120,
                    families: Families::ALL,
                    forwarding: Families { v4: true, v6: false },
                }),
            },
        }
    }

    /// The body of an OPEN of AS 65001 with these optional parameters, lengths and all.
    fn body(parameters: &[u8]) -> Vec<u8> {
        let mut body = vec![4, 0xfd, 0xe9, 0, 90, 192, 0, 2, 1];
        body.extend(parameters);
        body
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = open().compose();
        assert_eq!(Open::parse(&bytes[frame::HEADER_BYTES..]), Ok(open()));
        assert_eq!(bytes[20..22], AS_TRANS.to_be_bytes());
    }

    #[test]
    fn parameters_of_either_length_are_read() {
        let refresh = Capabilities { route_refresh: true, ..<_>::default() };
        for parameters in [
            &[4, 2, 2, 2, 0][..],
            // Twice is once, in two parameters or one.
            &[8, 2, 2, 2, 0, 2, 2, 2, 0],
            &[6, 2, 4, 2, 0, 2, 0],
            // An unknown capability, and one of a length that it cannot have.
            &[11, 2, 9, 200, 1, 9, 2, 0, 65, 2, 0, 1],
            // RFC 9072.
            &[255, 255, 0, 5, 2, 0, 2, 2, 0],
            &[7, 255, 0, 5, 2, 0, 2, 2, 0],
        ] {
            let open = Open::parse(&body(parameters)).unwrap();
            assert_eq!(open.capabilities, refresh, "{parameters:?}");
            assert_eq!((open.asn.get(), open.hold_s), (65001, 90));
        }
        assert_eq!(Open::parse(&body(&[0])).unwrap().capabilities, Capabilities::default());
        let strange = Open::parse(&body(&[8, 2, 6, 1, 4, 0, 25, 0, 70])).unwrap();
        assert_eq!(strange.capabilities.families, Some(Families::default()));
    }

    #[test]
    fn opens_that_cannot_be_are_refused() {
        let refused = |body: &[u8]| Open::parse(body).unwrap_err();
        for (at, with, code) in [
            (0, &[3][..], Code::UnsupportedVersion),
            (1, &[0, 0], Code::BadPeerAs),
            (3, &[0, 2], Code::UnacceptableHoldTime),
            (5, &[0, 0, 0, 0], Code::BadIdentifier),
        ] {
            let mut body = body(&[0]);
            body[at..at + with.len()].copy_from_slice(with);
            assert_eq!(refused(&body).code, code);
        }
        for (parameters, code) in [
            (&[1][..], Code::OpenUnspecific),
            (&[0, 0], Code::OpenUnspecific),
            (&[2, 2, 1], Code::OpenUnspecific),
            (&[3, 2, 1, 2], Code::OpenUnspecific),
            (&[2, 1, 0], Code::UnsupportedParameter),
            (&[255, 255, 0, 9, 2], Code::OpenUnspecific),
            (&[8, 2, 6, 65, 4, 0, 0, 0, 0], Code::BadPeerAs),
            (&[], Code::OpenUnspecific),
        ] {
            assert_eq!(refused(&body(parameters)).code, code, "{parameters:?}");
        }
    }
}
