//! What a query gets.
//!
//! The client whose location decides a steered answer is the network of its EDNS Client Subnet
//! option; without one, the resolver that asks. A client that sends source prefix length 0 does
//! not want to be located (RFC 7871 section 7.1.2): it gets what the maps give to those of whom
//! nothing is known, with scope 0. The resolver's own address is not used then, because it mostly
//! stands where the client stands; and because it makes every answer with scope 0 the same one,
//! so that a cache that gives it to others tells them nothing about where the first one was.

use std::net::IpAddr;

use model::{Dice, Family};
use steer::{Hit, Steering, Verdict};

use crate::outcome::{Answered, Outcome, Sort};
use crate::query::{self, Fault, Head, Query};
use crate::records::push_addresses;
use crate::reply::{ExtendedError, Reply};
use crate::snapshot::{Entry, Snapshot, Steered, Zone};
use crate::wire::{CLASS_IN, TCP_BYTES_MAX, UDP_BYTES_MAX, UDP_BYTES_PLAIN, rtype};

/// How the query came; decides how long the answer may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// 512 bytes, or what EDNS says up to [`UDP_BYTES_MAX`].
    Udp,
    /// 65,535 bytes.
    Tcp,
}

/// RFC 8914 section 4.15.
const NOT_READY: ExtendedError = ExtendedError { code: 14, text: "no node map yet" };

/// Answers `message`, sent by `peer`, into `out`; `out` is empty when nothing is to be sent.
pub fn answer(
    snapshot: &Snapshot,
    message: &[u8],
    peer: IpAddr,
    transport: Transport,
    dice: &mut Dice,
    out: &mut Vec<u8>,
) -> Outcome {
    match query::read(message) {
        Err(Fault::Drop(why)) => {
            out.clear();
            Outcome::Dropped(why)
        }
        Err(Fault::Refuse(head, sort)) => without_data(&head, transport, sort, out),
        Ok(query) => look_up(snapshot, &query, peer, transport, dice, out),
    }
}

fn look_up(
    snapshot: &Snapshot,
    query: &Query<'_>,
    peer: IpAddr,
    transport: Transport,
    dice: &mut Dice,
    out: &mut Vec<u8>,
) -> Outcome {
    if let Some(sort) = refusal(query) {
        return without_data(&query.head, transport, sort, out);
    }
    let Some(steering) = snapshot.steering() else {
        return without_data(&query.head, transport, Sort::NotReady, out);
    };
    let Some(found) = snapshot.find(query.name.as_bytes()) else {
        return without_data(&query.head, transport, Sort::Refused, out);
    };
    let mut making =
        Making { head: &query.head, reply: begin(&query.head, transport, None, out), scope: 0 };
    let sort = match found.entry {
        None => Sort::NxDomain,
        Some(entry) => match (&entry.steered, family_of(query.qtype)) {
            (Some(steered), Some(family)) => {
                let hit = locate(steering, &query.head, peer);
                // Outside a client subnet option the scope is not announced.
                making.scope = hit.scope;
                making.steered(steering, steered, hit, family, dice)
            }
            _ => making.fixed(snapshot, entry, query.qtype),
        },
    };
    if matches!(sort, Sort::NxDomain | Sort::NoData) {
        making.negative(found.zone, query.name.as_bytes().len());
    }
    making.finish(sort)
}

/// What is refused whatever the name is.
fn refusal(query: &Query<'_>) -> Option<Sort> {
    match query.qtype {
        rtype::OPT | rtype::TKEY | rtype::TSIG => Some(Sort::FormErr),
        rtype::MAILA | rtype::MAILB => Some(Sort::NotImp),
        _ if query.qclass != CLASS_IN => Some(Sort::Refused),
        rtype::AXFR | rtype::IXFR => Some(Sort::Refused),
        _ => None,
    }
}

fn family_of(qtype: u16) -> Option<Family> {
    match qtype {
        rtype::A => Some(Family::V4),
        rtype::AAAA => Some(Family::V6),
        _ => None,
    }
}

/// The class of the client behind a query; the scope is meant for its client subnet option.
///
/// A client that asks not to be located (source length 0) is served as its resolver is, which the
/// resolver's own address tells (RFC 7871 section 7.1.2); the scope is then 0, as it must be.
fn locate(steering: &Steering, head: &Head<'_>, peer: IpAddr) -> Hit {
    let subnet = head.edns.and_then(|edns| edns.subnet);
    match subnet.map(|subnet| subnet.network()) {
        Some(Some(network)) => steering.table().lookup_net(network),
        Some(None) => Hit { scope: 0, ..steering.table().lookup(peer.to_canonical()) },
        None => steering.table().lookup(peer.to_canonical()),
    }
}

fn begin<'a, 'o>(
    head: &'a Head<'a>,
    transport: Transport,
    error: Option<ExtendedError>,
    out: &'o mut Vec<u8>,
) -> Reply<'a, 'o> {
    let bytes_max = match (transport, &head.edns) {
        (Transport::Tcp, _) => TCP_BYTES_MAX,
        (Transport::Udp, Some(edns)) => edns.udp_bytes.min(UDP_BYTES_MAX),
        (Transport::Udp, None) => UDP_BYTES_PLAIN,
    };
    Reply::new(head, bytes_max, error, out)
}

/// A reply that is only its code.
fn without_data(head: &Head<'_>, transport: Transport, sort: Sort, out: &mut Vec<u8>) -> Outcome {
    let error = (sort == Sort::NotReady).then_some(NOT_READY);
    let truncated = begin(head, transport, error, out).finish(sort.rcode(), false, 0);
    Outcome::Answered(Answered { sort, subnet: has_subnet(head), truncated })
}

fn has_subnet(head: &Head<'_>) -> bool {
    head.edns.is_some_and(|edns| edns.subnet.is_some())
}

/// An authoritative reply in the making.
struct Making<'a, 'o> {
    head: &'a Head<'a>,
    reply: Reply<'a, 'o>,
    scope: u8,
}

impl Making<'_, '_> {
    fn steered(
        &mut self,
        steering: &Steering,
        steered: &Steered,
        hit: Hit,
        family: Family,
        dice: &mut Dice,
    ) -> Sort {
        let Some(plan) = steering.plan(&steered.project, hit.class, family) else {
            // Every project of a node map has a plan for every class.
            return Sort::ServFail;
        };
        let sort = match plan.verdict {
            Verdict::Pool => Sort::Steered,
            Verdict::Spilled => Sort::Spilled,
            Verdict::AllDown => Sort::AllDown,
            Verdict::NoFamily | Verdict::NoData => return Sort::NoData,
            Verdict::ServFail => return Sort::ServFail,
        };
        match plan.pick(dice) {
            Some(node) => {
                self.reply.answer_with(|out| push_addresses(&node.addresses, steered.ttl_s, out));
                sort
            }
            None => Sort::NoData,
        }
    }

    fn fixed(&mut self, snapshot: &Snapshot, entry: &Entry, qtype: u16) -> Sort {
        if qtype == rtype::ANY {
            if entry.is_empty() {
                return Sort::NoData;
            }
            self.reply.answer(snapshot.minimal_any());
            return Sort::MinimalAny;
        }
        match entry.set(qtype) {
            Some(set) => {
                self.reply.answer(set.answer());
                self.reply.additional(set.additional());
                Sort::Fixed
            }
            None => Sort::NoData,
        }
    }

    /// Adds the SOA record, whose owner is the end of the question's name.
    fn negative(&mut self, zone: &Zone, name_bytes: usize) {
        let above = name_bytes.saturating_sub(zone.apex_bytes);
        self.reply.authority(u16::try_from(above).unwrap_or(0), &zone.negative_soa);
    }

    fn finish(self, sort: Sort) -> Outcome {
        let authoritative = sort != Sort::ServFail;
        let truncated = self.reply.finish(sort.rcode(), authoritative, self.scope);
        Outcome::Answered(Answered { sort, subnet: has_subnet(self.head), truncated })
    }
}
