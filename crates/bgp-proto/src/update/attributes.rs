//! The attributes of a message, each checked as its RFC and RFC 7606 section 7 have it.

use std::net::{IpAddr, Ipv4Addr};

use model::route::{AsPath, Attributes, Communities, Community, LargeCommunity, Origin};

use super::as_path::{self, AsPathFault};
use super::{Fault, Remedy, Rules, What, reach};
use crate::nlri::Nlri;
use crate::notification::{Code, Notification};
use crate::wire::Reader;

/// Faults of one message that are told apart; what is done never depends on how many there are.
const FAULTS_MAX: usize = 16;

const OPTIONAL: u8 = 0x80;
const TRANSITIVE: u8 = 0x40;
const EXTENDED_LENGTH: u8 = 0x10;

/// Type codes (registry "BGP Path Attributes").
pub(super) mod code {
    pub(crate) const ORIGIN: u8 = 1;
    pub(crate) const AS_PATH: u8 = 2;
    pub(crate) const NEXT_HOP: u8 = 3;
    pub(crate) const MED: u8 = 4;
    pub(crate) const LOCAL_PREF: u8 = 5;
    pub(crate) const ATOMIC_AGGREGATE: u8 = 6;
    pub(crate) const AGGREGATOR: u8 = 7;
    pub(crate) const COMMUNITIES: u8 = 8;
    pub(crate) const ORIGINATOR_ID: u8 = 9;
    pub(crate) const CLUSTER_LIST: u8 = 10;
    pub(crate) const MP_REACH: u8 = 14;
    pub(crate) const MP_UNREACH: u8 = 15;
    pub(crate) const EXTENDED_COMMUNITIES: u8 = 16;
    pub(crate) const AS4_PATH: u8 = 17;
    pub(crate) const AS4_AGGREGATOR: u8 = 18;
    pub(crate) const IPV6_EXTENDED_COMMUNITIES: u8 = 25;
    pub(crate) const LARGE_COMMUNITIES: u8 = 32;
}

/// What the attributes of a message say together.
#[derive(Clone, Debug, Default)]
pub(super) struct Path<'a> {
    origin: Option<Origin>,
    as_path: Option<AsPath>,
    as4_path: Option<AsPath>,
    pub(super) next_hop: Option<IpAddr>,
    med: Option<u32>,
    local_pref: Option<u32>,
    /// Values of the three kinds of communities that are kept; lengths are right.
    communities: [&'a [u8]; 3],
    /// AS of `AGGREGATOR` where it has two octets.
    aggregator: Option<u16>,
    has_as4_aggregator: bool,
    /// Prefixes of `MP_REACH_NLRI`, and their next hop where it can be one.
    pub(super) reach: Option<(Nlri<'a>, Option<IpAddr>)>,
    /// It has an `MP_REACH_NLRI` of a family that is none of ours.
    pub(super) reach_of_others: bool,
    /// Prefixes of `MP_UNREACH_NLRI`.
    pub(super) unreach: Option<Nlri<'a>>,
    /// There is no attribute but, perhaps, `MP_UNREACH_NLRI`.
    pub(super) only_unreach: bool,
    pub(super) faults: Vec<Fault>,
    /// The strongest remedy so far.
    remedy: Option<Remedy>,
    /// A bit for each type code that was there.
    seen: [u64; 4],
}

/// What a well-formed attribute of this type says of itself; `None` for types that are not known.
fn flags_of(code: u8) -> Option<u8> {
    Some(match code {
        code::ORIGIN | code::AS_PATH | code::NEXT_HOP => TRANSITIVE,
        code::LOCAL_PREF | code::ATOMIC_AGGREGATE => TRANSITIVE,
        code::MED | code::ORIGINATOR_ID | code::CLUSTER_LIST => OPTIONAL,
        code::MP_REACH | code::MP_UNREACH => OPTIONAL,
        code::AGGREGATOR | code::COMMUNITIES | code::EXTENDED_COMMUNITIES => OPTIONAL | TRANSITIVE,
        code::AS4_PATH | code::AS4_AGGREGATOR => OPTIONAL | TRANSITIVE,
        code::IPV6_EXTENDED_COMMUNITIES | code::LARGE_COMMUNITIES => OPTIONAL | TRANSITIVE,
        _ => return None,
    })
}

impl<'a> Path<'a> {
    /// Reads all of `bytes`.
    ///
    /// # Errors
    /// What resets the session.
    pub(super) fn read(bytes: &'a [u8], rules: &Rules) -> Result<Self, Notification> {
        let mut path = Self { only_unreach: true, ..Self::default() };
        let mut reader = Reader(bytes);
        while !reader.is_empty() {
            let rest = reader.0;
            let Some((flags, code, value)) = next(&mut reader) else {
                // The length of all attributes still says where the prefixes are (RFC 7606 section 4).
                path.fault(rest.get(1).copied().unwrap_or(0), What::Overrun, Remedy::Withdraw);
                path.only_unreach = false;
                break;
            };
            path.take(flags, code, value, rules)?;
        }
        Ok(path)
    }

    /// Notes what is wrong with an attribute.
    fn fault(&mut self, attribute: u8, what: What, remedy: Remedy) {
        self.remedy = self.remedy.max(Some(remedy));
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(Fault { attribute, what, remedy });
        }
    }

    /// Whether all prefixes of the message are to be withdrawn.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.remedy == Some(Remedy::Withdraw)
    }

    /// Notes that the type was there; false if it was before.
    fn first_of(&mut self, code: u8) -> bool {
        let (word, bit) = (usize::from(code >> 6), 1 << (code & 63));
        let Some(word) = self.seen.get_mut(word) else { return false };
        let first = *word & bit == 0;
        *word |= bit;
        first
    }

    /// One attribute.
    fn take(
        &mut self,
        flags: u8,
        code: u8,
        value: &'a [u8],
        rules: &Rules,
    ) -> Result<(), Notification> {
        self.only_unreach &= code == code::MP_UNREACH;
        let holds_prefixes = matches!(code, code::MP_REACH | code::MP_UNREACH);
        if !self.first_of(code) {
            if holds_prefixes {
                return Err(Notification::new(Code::MalformedAttributeList));
            }
            self.fault(code, What::Repeated, Remedy::Discard);
            return Ok(());
        }
        match flags_of(code) {
            None if flags & OPTIONAL == 0 => {
                return Err(Notification::with(Code::UnrecognisedWellKnown, &[flags, code]));
            }
            // What is optional and not known is passed on by those who pass routes on; we do not.
            None => return Ok(()),
            Some(right) if (flags ^ right) & (OPTIONAL | TRANSITIVE) != 0 => {
                self.fault(code, What::Flags, Remedy::Withdraw);
                if !holds_prefixes {
                    return Ok(());
                }
            }
            Some(_) => {}
        }
        match code {
            code::MP_REACH => self.take_reach(value, rules)?,
            code::MP_UNREACH => {
                self.unreach = reach::unreach(value)?.filter(|n| rules.families.has(n.family()));
            }
            _ => {
                if let Err((what, remedy)) = self.take_value(code, value, rules) {
                    self.fault(code, what, remedy);
                }
            }
        }
        Ok(())
    }

    fn take_reach(&mut self, value: &'a [u8], rules: &Rules) -> Result<(), Notification> {
        let Some((nlri, next_hop)) = reach::reach(value, rules.extended_next_hop)? else {
            self.reach_of_others = true;
            return Ok(());
        };
        let next_hop = usable(next_hop);
        if next_hop.is_none() {
            self.fault(code::MP_REACH, What::Value, Remedy::Withdraw);
        }
        self.reach = Some((nlri, next_hop));
        Ok(())
    }

    /// One attribute without prefixes, whose flags are right.
    fn take_value(
        &mut self,
        code: u8,
        value: &'a [u8],
        rules: &Rules,
    ) -> Result<(), (What, Remedy)> {
        let withdraw = (What::Length, Remedy::Withdraw);
        let discard = (What::Length, Remedy::Discard);
        match code {
            code::ORIGIN => {
                let [origin] = value else { return Err(withdraw) };
                let origin = Origin::of_code(*origin);
                self.origin = Some(origin.ok_or((What::Value, Remedy::Withdraw))?);
            }
            code::AS_PATH => {
                let path = as_path::read(value, rules.four_octet_as, rules.internal);
                self.as_path = Some(path.map_err(|fault| match fault {
                    AsPathFault::Set => (What::AsSet, Remedy::Withdraw),
                    AsPathFault::Malformed => (What::Value, Remedy::Withdraw),
                })?);
            }
            code::NEXT_HOP => {
                let octets = <[u8; 4]>::try_from(value).map_err(|_| withdraw)?;
                self.next_hop = usable(Ipv4Addr::from(octets).into());
                self.next_hop.ok_or((What::Value, Remedy::Withdraw))?;
            }
            code::MED => self.med = Some(number(value).ok_or(withdraw)?),
            // What only routers of one AS tell each other is as if it were not there (7.5, 7.9, 7.10).
            code::LOCAL_PREF | code::ORIGINATOR_ID | code::CLUSTER_LIST if !rules.internal => {
                return Err((What::Value, Remedy::Discard));
            }
            code::LOCAL_PREF => self.local_pref = Some(number(value).ok_or(withdraw)?),
            code::ORIGINATOR_ID => {
                number(value).ok_or(withdraw)?;
            }
            code::CLUSTER_LIST => multiple_of(4, value).ok_or(withdraw)?,
            code::ATOMIC_AGGREGATE if !value.is_empty() => return Err(discard),
            code::AGGREGATOR => {
                let octets = if rules.four_octet_as { 8 } else { 6 };
                if value.len() != octets {
                    return Err(discard);
                }
                self.aggregator = Reader(value).u16().filter(|_| !rules.four_octet_as);
            }
            code::AS4_AGGREGATOR => {
                if value.len() != 8 {
                    return Err(discard);
                }
                self.has_as4_aggregator = true;
            }
            // Who knows four octets says nothing twice (RFC 6793 section 3).
            code::AS4_PATH if rules.four_octet_as => return Err((What::Value, Remedy::Discard)),
            code::AS4_PATH => {
                // Segments of confederations are left out when it is joined (RFC 6793 section 6).
                let path = as_path::read(value, true, true);
                self.as4_path = Some(path.map_err(|fault| match fault {
                    AsPathFault::Set => (What::AsSet, Remedy::Withdraw),
                    AsPathFault::Malformed => (What::Value, Remedy::Discard),
                })?);
            }
            _ => self.take_communities(code, value)?,
        }
        Ok(())
    }

    fn take_communities(&mut self, code: u8, value: &'a [u8]) -> Result<(), (What, Remedy)> {
        let (of, octets) = match code {
            code::COMMUNITIES => (Some(0), 4),
            code::LARGE_COMMUNITIES => (Some(1), 12),
            code::EXTENDED_COMMUNITIES => (Some(2), 8),
            // Nothing is made of these; they must be whole all the same (RFC 7606 section 7.15).
            code::IPV6_EXTENDED_COMMUNITIES => (None, 20),
            _ => return Ok(()),
        };
        multiple_of(octets, value).ok_or((What::Length, Remedy::Withdraw))?;
        if let Some(kept) = of.and_then(|of: usize| self.communities.get_mut(of)) {
            *kept = value;
        }
        Ok(())
    }

    /// Notes mandatory attributes that are not there, where there are prefixes that need them (RFC
    /// 7606 section 3 d). `old` says that some are as the first RFC has them.
    pub(super) fn require(&mut self, old: bool) {
        if !old && self.reach.is_none() {
            return;
        }
        // One that is there and malformed has had its fault already.
        let needed = [(true, code::ORIGIN), (true, code::AS_PATH), (old, code::NEXT_HOP)];
        for (_, code) in needed.into_iter().filter(|(needed, _)| *needed) {
            if self.first_of(code) {
                self.fault(code, What::Missing, Remedy::Withdraw);
            }
        }
    }

    /// What all prefixes of the message carry, with a next hop that is none; `None` when they carry
    /// nothing or not enough.
    pub(super) fn shared(&mut self) -> Option<Attributes> {
        let mut as_path = self.as_path.take()?;
        // Who says the AS of an aggregator in two octets, and in four, has met a speaker that knew
        // only two on the way, and its path is of no use (RFC 6793 section 4.2.3).
        let stale =
            self.has_as4_aggregator && self.aggregator.is_some_and(|a| a != crate::open::AS_TRANS);
        if let Some(four) = self.as4_path.take().filter(|_| !stale) {
            as_path = as_path::merge(&as_path, &four);
        }
        let [standard, large, extended] = self.communities;
        let words =
            |bytes: &'a [u8]| bytes.as_chunks::<4>().0.iter().map(|b| u32::from_be_bytes(*b));
        let large = large.as_chunks::<12>().0.iter().map(|bytes| {
            let mut parts = words(bytes);
            let mut next = || parts.next().unwrap_or(0);
            LargeCommunity { global: next(), local: [next(), next()] }
        });
        let extended = extended.as_chunks::<8>().0.iter().copied();
        Some(Attributes {
            next_hop: Ipv4Addr::UNSPECIFIED.into(),
            origin: self.origin?,
            as_path,
            med: self.med,
            local_pref: self.local_pref,
            communities: Communities::new(words(standard).map(Community), large, extended),
        })
    }
}

/// The next attribute: flags, type, value. `None` when it is not whole.
fn next<'a>(reader: &mut Reader<'a>) -> Option<(u8, u8, &'a [u8])> {
    let [flags, code] = reader.array()?;
    let value = if flags & EXTENDED_LENGTH == 0 { reader.part_u8()? } else { reader.part_u16()? };
    Some((flags, code, value))
}

/// All of `value` as a number of four octets.
fn number(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_be_bytes)
}

/// Nothing, if there are some of so many octets each, and all whole.
fn multiple_of(octets: usize, value: &[u8]) -> Option<()> {
    (!value.is_empty() && value.len().checked_rem(octets) == Some(0)).then_some(())
}

/// A next hop that somebody can have (RFC 4271 section 6.3).
fn usable(address: IpAddr) -> Option<IpAddr> {
    let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    (!address.is_unspecified() && !address.is_multicast() && !broadcast).then_some(address)
}
