//! What a query gets: the way from the question's name over its aliases to the records, or to why
//! there are none. What depends on who asks is in `steered`, what signed zones say
//! of what is not there in `signed`, and queries that are signed themselves in `keyed`.

mod keyed;
mod signed;
mod steered;

use model::Dice;
use steer::Steering;

use crate::asker::{Asker, Desk, Transport};
use crate::caller::{Admission, Caller, Made};
use crate::dnssec::{Exhausted, Pen, Sealer};
use crate::names::{Found, Holding, What, Zone};
use crate::options::ExtendedError;
use crate::outcome::{Led, Outcome, Sort};
use crate::query::{self, Fault, OPCODE_NOTIFY, Query};
use crate::records::{RECORD_HEAD_BYTES, data_of};
use crate::reply::{Records, Reply};
use crate::snapshot::Snapshot;
use crate::wire::{CLASS_CHAOS, CLASS_IN, QUESTION_NAME, ancestry, rtype};

/// Aliases that one answer follows.
pub(crate) const ALIASES_MAX: usize = 8;

/// Answers `message`, sent by `asker`, into `out`; `out` is empty when nothing is to be sent.
pub fn answer(
    snapshot: &Snapshot,
    message: &[u8],
    asker: &Asker,
    desk: &mut Desk,
    out: &mut Vec<u8>,
) -> Outcome {
    // Whatever was going on ends with the next query.
    desk.transfer = None;
    // By reference: a query is a few hundred bytes.
    let query = &query::read(message);
    if let Ok(Query { tsig: Some(at), head, .. }) = query {
        return keyed::answer(snapshot, (message, *at), head, asker, desk, out);
    }
    let Desk { dice, manners, pen, .. } = desk;
    match query {
        Err(Fault::Drop(why)) => {
            out.clear();
            Outcome::Dropped(*why)
        }
        Err(Fault::Refuse(head, sort)) => {
            Caller::new(head, asker, manners).without_data(*sort, None, out)
        }
        Err(Fault::NoQuestion(head)) => Caller::new(head, asker, manners).cookie_alone(out),
        Ok(query) => {
            let caller = Caller::new(&query.head, asker, manners);
            look_up(snapshot, query, &caller, (dice, pen.as_mut()), out)
        }
    }
}

fn look_up(
    snapshot: &Snapshot,
    query: &Query<'_>,
    caller: &Caller<'_>,
    (dice, pen): (&mut Dice, Option<&mut Pen>),
    out: &mut Vec<u8>,
) -> Outcome {
    if query.qclass == CLASS_CHAOS {
        return caller.chaos(query, out);
    }
    if query.head.opcode == OPCODE_NOTIFY {
        return caller.without_data(Sort::Refused, Some(ExtendedError::PROHIBITED), out);
    }
    if let Some((sort, error)) = refusal(query) {
        return caller.without_data(sort, error, out);
    }
    let Some(steering) = snapshot.steering() else {
        return caller.without_data(Sort::NotReady, Some(ExtendedError::NOT_READY), out);
    };
    let Some(found) = snapshot.table().find(query.name.as_bytes(), query.qtype) else {
        let error = ExtendedError::NOT_AUTHORITATIVE;
        return caller.without_data(Sort::Refused, Some(error), out);
    };
    let zone = found.zone.number;
    let mut reply = caller.reply(out);
    let wants_signatures = query.head.edns.is_some_and(|edns| edns.dnssec_ok);
    if let Some(pen) = pen.filter(|_| wants_signatures) {
        let (names, made_up) = (snapshot.table(), found.is_made_up());
        reply.seal_with(Sealer::new(pen, names, caller.asker, query.qtype, made_up));
    }
    let mut making =
        Making { snapshot, steering, caller, reply, scope: 0, authoritative: true, led: None };
    let sort = making.resolve(query, found, dice);
    if sort == Sort::ServFail {
        making.authoritative = false;
        making.reply.explain(ExtendedError::NOBODY_SERVES);
    }
    let admission = caller.admit(sort, zone);
    let exhausted = admission == Admission::Granted && making.reply.close() == Err(Exhausted);
    if exhausted && caller.asker.transport == Transport::Tcp {
        // Over UDP the empty reply is a truncated one, so that those who mean it come by TCP.
        return caller.without_data(Sort::ServFail, Some(ExtendedError::SIGNS_NO_MORE), out);
    }
    let Making { reply, authoritative, scope, led, .. } = making;
    caller.finish(reply, admission, Made { sort, authoritative, scope, led })
}

/// What is refused whatever the name is.
fn refusal(query: &Query<'_>) -> Option<(Sort, Option<ExtendedError>)> {
    match query.qtype {
        rtype::OPT | rtype::TKEY | rtype::TSIG => Some((Sort::FormErr, None)),
        rtype::NXNAME => Some((Sort::FormErr, Some(ExtendedError::NO_QUERY_TYPE))),
        rtype::MAILA | rtype::MAILB => Some((Sort::NotImp, None)),
        _ if query.qclass != CLASS_IN => Some((Sort::Refused, None)),
        rtype::AXFR | rtype::IXFR => Some((Sort::Refused, Some(ExtendedError::PROHIBITED))),
        _ => None,
    }
}

/// A reply in the making.
struct Making<'a, 'o> {
    snapshot: &'a Snapshot,
    steering: &'a Steering,
    caller: &'a Caller<'a>,
    reply: Reply<'a, 'o>,
    scope: u8,
    authoritative: bool,
    led: Option<Led>,
}

/// The name that is being looked up, and where it stands in the reply.
#[derive(Clone, Copy)]
struct At<'a> {
    name: &'a [u8],
    owner: u16,
}

impl At<'_> {
    /// A pointer to the last `bytes` of the name.
    fn end(&self, bytes: usize) -> u16 {
        let above = self.name.len().saturating_sub(bytes);
        self.owner.saturating_add(u16::try_from(above).unwrap_or(0))
    }
}

impl<'a> Making<'a, '_> {
    /// RFC 1034 section 4.3.2: from the question's name over its aliases to what there is.
    fn resolve(&mut self, query: &'a Query<'a>, mut found: Found<'a>, dice: &mut Dice) -> Sort {
        let names = self.snapshot.table();
        let mut at = At { name: query.name.as_bytes(), owner: QUESTION_NAME };
        let (mut passed, mut aliases) = ([at.name; ALIASES_MAX], 0usize);
        loop {
            let holding = match found.what {
                What::Name(holding) => holding,
                What::Cut(holding, bytes) => {
                    // After an alias the reply is about a name of ours.
                    self.authoritative = at.owner != QUESTION_NAME;
                    return self.referral(found.zone, holding, at, bytes);
                }
                What::Nothing => {
                    self.negative(found.zone, at);
                    return self.deny(found.zone, at, None, query);
                }
            };
            let alias = match query.qtype {
                rtype::CNAME | rtype::ANY => None,
                _ => holding.alias(),
            };
            let Some((records, target)) = alias else {
                let steered = holding.steered();
                let sort = steered.and_then(|name| self.steered(at.owner, name, query.qtype, dice));
                let sort = sort.unwrap_or_else(|| self.fixed(at, found.zone, holding, query.qtype));
                if sort == Sort::NoData {
                    self.negative(found.zone, at);
                    return self.deny(found.zone, at, Some(holding), query);
                }
                return sort;
            };
            let start = self.reply.answer(at.owner, records);
            // Files are checked for circles; over several zones one can still be made.
            let circle = passed.contains(&target);
            let next = names.find(target, query.qtype).filter(|_| !circle);
            let owner = pointer(start.saturating_add(RECORD_HEAD_BYTES));
            let (Some(next), Some(place), Some(owner)) = (next, passed.get_mut(aliases), owner)
            else {
                return Sort::Fixed;
            };
            *place = target;
            aliases = aliases.saturating_add(1);
            at = At { name: target, owner };
            found = next;
        }
    }

    fn fixed(&mut self, at: At<'_>, zone: &Zone, holding: Holding<'_>, qtype: u16) -> Sort {
        if qtype == rtype::ANY {
            if holding.is_empty() {
                return Sort::NoData;
            }
            // Nothing stands beside a CNAME record, so it is itself what there is.
            let alias = holding.alias().map(|(records, _)| records);
            self.reply.answer(at.owner, alias.unwrap_or_else(|| self.snapshot.minimal_any()));
            return Sort::MinimalAny;
        }
        if qtype == rtype::NSEC && zone.is_signed() {
            let (ttl_s, types) = (zone.negative_ttl_s(), holding.types(false));
            self.reply.answer_with(|out| signed::push_nsec((at.owner, at.name), ttl_s, types, out));
            return Sort::Fixed;
        }
        let Some(records) = holding.set(qtype) else { return Sort::NoData };
        let start = self.reply.answer(at.owner, records);
        match qtype {
            rtype::SOA if zone.follows_map => self.reply.serial(self.snapshot.serial()),
            rtype::NS => self.addresses(start, records, |_| Some(false)),
            _ => {}
        }
        Sort::Fixed
    }

    /// Names the servers of the zone that begins at the last `bytes` of `name`.
    fn referral(&mut self, zone: &Zone, cut: Holding<'_>, at: At<'_>, bytes: usize) -> Sort {
        let (owner, above) = (at.end(bytes), at.name.len().saturating_sub(bytes));
        let cut_name = at.name.get(above..).unwrap_or_default();
        if let Some(records) = cut.set(rtype::NS) {
            let start = self.reply.authority(owner, records);
            if self.reply.is_sealed() && zone.is_signed() {
                self.vouch(zone, cut, (owner, cut_name));
            }
            let below = |target: &[u8]| ancestry(target).any(|above| above == cut_name);
            // Nobody else has the addresses of servers below the cut (RFC 9471 section 3).
            self.addresses(start, records, |target| below(target).then_some(true));
            self.addresses(start, records, |target| (!below(target)).then_some(false));
        }
        Sort::Referral
    }

    /// Adds the addresses of the name servers in `records`, which begin at `start` of the reply;
    /// `needed` says of each whether the reply is truncated for want of room for it, or that it is
    /// passed over.
    fn addresses(
        &mut self,
        start: usize,
        records: Records<'_>,
        needed: impl Fn(&[u8]) -> Option<bool>,
    ) {
        for (offset, target) in data_of(records) {
            let owner = pointer(start.saturating_add(offset));
            let holding = self.snapshot.table().exact(target);
            let (Some(needed), Some(owner), Some(holding)) = (needed(target), owner, holding)
            else {
                continue;
            };
            for records in [rtype::A, rtype::AAAA].into_iter().filter_map(|t| holding.set(t)) {
                self.reply.additional(owner, records, needed);
            }
        }
    }

    /// Adds the SOA record, whose owner is the end of the name.
    fn negative(&mut self, zone: &Zone, at: At<'_>) {
        self.reply.authority(at.end(zone.apex_bytes), zone.negative_soa());
        if zone.follows_map {
            self.reply.serial(self.snapshot.serial());
        }
    }
}

/// A compression pointer to `offset`, where one can point to (RFC 1035 section 4.1.4).
fn pointer(offset: usize) -> Option<u16> {
    u16::try_from(offset).ok().filter(|offset| *offset < 0x4000).map(|offset| 0xc000 | offset)
}
