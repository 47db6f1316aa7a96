//! What a signed zone says of keys below it, and of what is not there (RFC 9824).

use crate::dnssec::denial::{self, NOT_THERE};
use crate::names::{Holding, Zone};
use crate::outcome::Sort;
use crate::query::Query;
use crate::wire::rtype;

use super::{At, Making};

impl Making<'_, '_> {
    /// Adds what the zone has of the keys of one below it: their DS set, or that there is none (RFC
    /// 4035 section 3.1.4).
    pub(super) fn vouch(&mut self, zone: &Zone, cut: Holding<'_>, (owner, name): (u16, &[u8])) {
        match cut.set(rtype::DS) {
            Some(records) => {
                self.reply.authority(owner, records);
            }
            None => {
                let (ttl_s, types) = (zone.negative_ttl_s(), cut.types(true));
                self.reply.authority_with(|out| push_nsec((owner, name), ttl_s, types, out));
            }
        }
    }

    /// Adds the proof that the name does not exist, or (`holding`) has nothing of the type that was
    /// asked for, where that is wanted. Says which of the two.
    pub(super) fn deny(
        &mut self,
        zone: &Zone,
        at: At<'_>,
        holding: Option<Holding<'_>>,
        query: &Query<'_>,
    ) -> Sort {
        let is_signed = self.reply.is_sealed() && zone.is_signed();
        let plain = if holding.is_some() { Sort::NoData } else { Sort::NxDomain };
        if !is_signed {
            return plain;
        }
        let types = match holding {
            None => NOT_THERE.to_vec(),
            Some(holding) => {
                // The DS set of a zone is its parent's, unless we are only the child.
                let is_own_apex = at.name.len() == zone.apex_bytes;
                let parental = query.qtype == rtype::DS && holding.has_cut() && !is_own_apex;
                let mut types = holding.types(parental);
                // What steering has for others is not there for this client; and signatures are not
                // to be had by themselves.
                types.retain(|rtype| *rtype != query.qtype || *rtype == rtype::RRSIG);
                types
            }
        };
        let ttl_s = zone.negative_ttl_s();
        self.reply.authority_with(|out| push_nsec((at.owner, at.name), ttl_s, types, out));
        let knows = query.head.edns.is_some_and(|edns| edns.compact_ok);
        if plain == Sort::NxDomain && !knows { Sort::NxName } else { plain }
    }
}

/// One NSEC record.
pub(super) fn push_nsec(name: (u16, &[u8]), ttl_s: u32, types: Vec<u16>, out: &mut Vec<u8>) -> u16 {
    denial::push_record(name, ttl_s, types, out);
    1
}
