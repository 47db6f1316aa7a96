//! Attributes in a document: a flag octet, and what it announces.
//!
//! Flags: origin (two bits), 4: the next hop is of IPv6, 8: MULTI_EXIT_DISC, 16: LOCAL_PREF, 32:
//! communities. Then the next hop in network order; the two numbers; the number of segments of the path,
//! each with its kind, length and AS numbers; the numbers of standard, large and extended communities,
//! and these.

use model::route::{
    AsPath, Attributes, Communities, Community, LargeCommunity, Origin, SegmentKind,
};

use super::bytes::{Reader, put};

const ORIGIN: u8 = 3;
const NEXT_HOP_V6: u8 = 4;
const MED: u8 = 8;
const LOCAL_PREF: u8 = 16;
const COMMUNITIES: u8 = 32;

pub(super) fn write(out: &mut Vec<u8>, attributes: &Attributes) {
    let Attributes { next_hop, origin, as_path, med, local_pref, communities } = attributes;
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.push(
        origin.code()
            | flag(next_hop.is_ipv6(), NEXT_HOP_V6)
            | flag(med.is_some(), MED)
            | flag(local_pref.is_some(), LOCAL_PREF)
            | flag(!communities.is_empty(), COMMUNITIES),
    );
    match next_hop {
        std::net::IpAddr::V4(v4) => out.extend(v4.octets()),
        std::net::IpAddr::V6(v6) => out.extend(v6.octets()),
    }
    med.iter().chain(local_pref).for_each(|number| put(out, (*number).into()));
    put(out, as_path.segments().count() as u128);
    for (kind, asns) in as_path.segments() {
        out.push(kind.code());
        put(out, asns.len() as u128);
        asns.iter().for_each(|asn| put(out, (*asn).into()));
    }
    if communities.is_empty() {
        return;
    }
    put(out, communities.standard().count() as u128);
    put(out, communities.large().count() as u128);
    put(out, communities.extended().count() as u128);
    communities.standard().for_each(|community| put(out, community.0.into()));
    for LargeCommunity { global, local: [first, second] } in communities.large() {
        [global, first, second].iter().for_each(|number| put(out, (*number).into()));
    }
    communities.extended().for_each(|community| out.extend(community));
}

pub(super) fn read(reader: &mut Reader<'_>) -> Option<Attributes> {
    let flags = reader.byte()?;
    let origin = Origin::of_code(flags & ORIGIN)?;
    let next_hop = match flags & NEXT_HOP_V6 {
        0 => (*reader.array::<4>()?).into(),
        _ => (*reader.array::<16>()?).into(),
    };
    let optional = |reader: &mut Reader<'_>, flag| match flags & flag {
        0 => Some(None),
        _ => reader.u32().map(Some),
    };
    let med = optional(reader, MED)?;
    let local_pref = optional(reader, LOCAL_PREF)?;
    let as_path = read_path(reader)?;
    let communities = match flags & COMMUNITIES {
        0 => Communities::default(),
        _ => read_communities(reader)?,
    };
    Some(Attributes { next_hop, origin, as_path, med, local_pref, communities })
}

/// A length of which each element takes an octet at least.
fn length(reader: &mut Reader<'_>) -> Option<usize> {
    let length = usize::try_from(reader.number()?).ok()?;
    (length <= reader.left()).then_some(length)
}

fn read_path(reader: &mut Reader<'_>) -> Option<AsPath> {
    let mut segments: Vec<(SegmentKind, Vec<u32>)> = Vec::new();
    for _ in 0..length(reader)? {
        let kind = SegmentKind::of_code(reader.byte()?)?;
        let asns = (0..length(reader)?).map(|_| reader.u32()).collect::<Option<_>>()?;
        segments.push((kind, asns));
    }
    Some(AsPath::of_segments(segments.iter().map(|(kind, asns)| (*kind, asns.as_slice()))))
}

fn read_communities(reader: &mut Reader<'_>) -> Option<Communities> {
    let (standard, large, extended) = (length(reader)?, length(reader)?, length(reader)?);
    let standard: Vec<_> =
        (0..standard).map(|_| reader.u32().map(Community)).collect::<Option<_>>()?;
    let large: Vec<_> = (0..large)
        .map(|_| {
            let global = reader.u32()?;
            Some(LargeCommunity { global, local: [reader.u32()?, reader.u32()?] })
        })
        .collect::<Option<_>>()?;
    let extended: Vec<_> =
        (0..extended).map(|_| reader.array::<8>().copied()).collect::<Option<_>>()?;
    Some(Communities::new(standard, large, extended))
}
