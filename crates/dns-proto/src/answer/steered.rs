//! Answers that depend on who asks.
//!
//! The client whose location decides is the network of its EDNS Client Subnet option; without one,
//! or where the project does not want the option, the resolver that asks. A client that sends source
//! prefix length 0 does not want to be located (RFC 7871 section 7.1.2): it is served as its resolver
//! is, and the scope is 0, as it must be.

use std::net::IpAddr;

use model::{Dice, Family};
use steer::{Choice, Client, LAST_RESORT_TTL_S, Plan, Verdict};

use super::Making;
use crate::names::Steered;
use crate::outcome::{Led, Sort};
use crate::records::{push_addresses, push_service};
use crate::wire::rtype;

impl<'a> Making<'a, '_> {
    /// Answers what of `qtype` a steered name has; `None` when that does not depend on who asks.
    pub(super) fn steered(
        &mut self,
        owner: u16,
        steered: &Steered,
        qtype: u16,
        dice: &mut Dice,
    ) -> Option<Sort> {
        let family = match qtype {
            rtype::A => Family::V4,
            rtype::AAAA => Family::V6,
            rtype::HTTPS | rtype::SVCB => {
                let service = steered.service.as_deref()?;
                return Some(self.service(owner, steered, qtype, service, dice));
            }
            _ => return None,
        };
        let (hit, client) = self.locate(steered);
        let plan = self.steering.plan_of(steered.project, hit.class, family);
        let chosen = choose(plan, dice, &client);
        self.led = plan.map(|plan| led(plan, client.address, &chosen));
        Some(match chosen {
            Ok((choice, sort)) => {
                let ttl_s = ttl_s(steered, [sort]);
                self.reply.answer_with(|out| {
                    let nodes = choice.iter();
                    nodes.map(|node| push_addresses(owner, &node.addresses, ttl_s, out)).sum()
                });
                sort
            }
            Err(sort) => sort,
        })
    }

    /// The one HTTPS or SVCB record of a steered name (RFC 9460), with the addresses that questions
    /// for A and AAAA would get: the same dice choose the same nodes in both families, where both
    /// have them.
    fn service(
        &mut self,
        owner: u16,
        steered: &Steered,
        qtype: u16,
        service: &[u8],
        dice: &mut Dice,
    ) -> Sort {
        let (hit, client) = self.locate(steered);
        let plan = |family| self.steering.plan_of(steered.project, hit.class, family);
        let v4 = choose(plan(Family::V4), &mut dice.clone(), &client);
        let v6 = choose(plan(Family::V6), dice, &client);
        // Both families lead to the same nodes where both have them: one is counted.
        let counted = if v4.is_ok() { (Family::V4, &v4) } else { (Family::V6, &v6) };
        self.led = plan(counted.0).map(|plan| led(plan, client.address, counted.1));
        let sort = match (&v4, &v6) {
            (Ok((_, sort)), _) | (_, Ok((_, sort))) => *sort,
            (Err(Sort::ServFail), _) | (_, Err(Sort::ServFail)) => return Sort::ServFail,
            (Err(sort), Err(_)) => return *sort,
        };
        let sorts = [&v4, &v6].into_iter().flatten().map(|(_, sort)| *sort);
        let ttl_s = ttl_s(steered, sorts);
        let [v4, v6] = [v4, v6].map(|chosen| chosen.map(|(choice, _)| choice).unwrap_or_default());
        let hints = [addresses(&v4), addresses(&v6)];
        self.reply.answer_with(|out| push_service(owner, qtype, ttl_s, service, hints, out));
        sort
    }

    /// The class of the client behind the query, and what its nodes are chosen by; notes the scope
    /// that is announced if the query has a client subnet.
    fn locate(&mut self, steered: &Steered) -> (steer::Hit, Client) {
        let asker = self.caller.asker;
        let subnet = self.caller.head.edns.and_then(|edns| edns.subnet).filter(|_| steered.ecs);
        let network = subnet.and_then(|subnet| subnet.network());
        let (hit, address) = match network {
            Some(network) => (self.steering.table().lookup_net(network), network.addr()),
            None => {
                let peer = asker.peer.to_canonical();
                (self.steering.table().lookup(peer), peer)
            }
        };
        self.scope = if network.is_some() { hit.scope } else { 0 };
        (hit, Client { address, scope: hit.scope, now: asker.now })
    }
}

/// How long an answer holds: as the project says, but one by its `all_down` policy only until the next
/// moment at which a node may be up again.
fn ttl_s(steered: &Steered, sorts: impl IntoIterator<Item = Sort>) -> u32 {
    match sorts.into_iter().any(|sort| sort == Sort::AllDown) {
        true => steered.ttl_s.min(LAST_RESORT_TTL_S),
        false => steered.ttl_s,
    }
}

/// The nodes of an answer, or that there are none.
fn choose<'a>(
    plan: Option<&'a Plan>,
    dice: &mut Dice,
    client: &Client,
) -> Result<(Choice<'a>, Sort), Sort> {
    // Every project of a node map has a plan for every class.
    let plan = plan.ok_or(Sort::ServFail)?;
    let sort = match plan.verdict {
        Verdict::Pool => Sort::Steered,
        Verdict::Spilled => Sort::Spilled,
        Verdict::AllDown => Sort::AllDown,
        Verdict::NoFamily | Verdict::NoData => return Err(Sort::NoData),
        Verdict::ServFail => return Err(Sort::ServFail),
    };
    let choice = plan.choose(dice, client);
    if choice.is_empty() { Err(Sort::NoData) } else { Ok((choice, sort)) }
}

/// What is counted and logged of it.
fn led(plan: &Plan, client: IpAddr, chosen: &Result<(Choice<'_>, Sort), Sort>) -> Led {
    Led::by(plan, client, &chosen.map_or_else(|_| Choice::default(), |(choice, _)| choice))
}

fn addresses<'a>(choice: &'a Choice<'_>) -> impl Iterator<Item = IpAddr> + 'a {
    choice.iter().flat_map(|node| node.addresses.iter().copied())
}
