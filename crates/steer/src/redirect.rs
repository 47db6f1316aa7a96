//! What an edge does with a client that came to it: serve it, or send it to another node (302), and
//! which other nodes have the same (RFC 6249).
//!
//! DNS sees the resolver, an edge sees the client: where the two are far from each other, the client
//! is missteered. The edge asks the same plans that DNS answers from, with the client's own address.
//!
//! Rules of [`Steering::decide`], in order:
//! 1. A project that does not want it, and a request under the name of a node (`NODE.NAME`), are
//!    served: who was sent once is never sent again.
//! 2. A client that cannot use this node is sent to another of its plan; else to one of the further
//!    pools of its list; else to any of the project's map.
//! 3. A missteered client is sent to a node of its plan, as is any client while the node has used up
//!    what its sponsor pays for. Both only for large objects, which is the caller's to see to.
//!
//! Nobody is sent to a node that is not `up` in the client's family (`unknown` is not enough: a 302
//! has no second address to fail over to), has weight 0, is the node itself, or one that the client
//! cannot use. Among several the weights choose, the same for all clients of one network, so that a
//! downloader with many connections has them all at one node.

use std::net::IpAddr;

use model::{Dice, Family, Location, Name, State};
use nodemap::published::SHARE_PPM;
use serde::Serialize;

use crate::steering::Steering;
use crate::table::ClassId;
use crate::walk::{Verdict, words};

/// Most nodes that a client can name as unusable in one request.
pub const AVOID_MAX: usize = 8;
/// Other nodes named beside content.
pub const ALTERNATES: usize = 2;

/// A client at a node.
#[derive(Clone, Copy, Debug)]
pub struct Visit<'a> {
    /// What it asks for.
    pub project: &'a Name,
    /// Its own address.
    pub client: IpAddr,
    /// The node that it came to.
    pub here: &'a Name,
    class: ClassId,
    /// A database knows something of where it is.
    is_located: bool,
}

/// What counts beside who comes where.
#[derive(Clone, Copy, Debug, Default)]
pub struct Circumstances<'a> {
    /// Nodes that the client cannot use; names that no node has mean nothing.
    pub avoid: &'a [&'a str],
    /// It asks under the name of a node.
    pub is_fixed: bool,
    /// The node has used up what its sponsor pays for.
    pub is_spent: bool,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision<'a> {
    /// It is answered here.
    Serve(Stay),
    /// Its client is sent to this node.
    Redirect(&'a Name, Why),
}

/// Why a client is sent to another node. Prints as one stable word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// It cannot use this one.
    Avoid,
    /// It belongs to another pool.
    Missteered,
    /// What the sponsor pays for is used up.
    Bill,
}

/// Why a client is served where it came. Prints as one stable word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stay {
    /// The project does not send clients on.
    Off,
    /// It asked under the name of a node.
    FixedName,
    /// It belongs here, or nobody knows where.
    Belongs,
    /// It would be sent on, but no other node may have it.
    NobodyElse,
}

words!(Why {
    Avoid => "avoid",
    Missteered => "missteered",
    Bill => "bill",
});
words!(Stay {
    Off => "off",
    FixedName => "fixed-name",
    Belongs => "belongs",
    NobodyElse => "nobody-else",
});

impl Why {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Avoid, Self::Missteered, Self::Bill];

    /// Whether it holds for large objects only.
    pub fn is_for_large(self) -> bool {
        self != Self::Avoid
    }
}

/// Where a client belongs, seen from a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belongs<'a> {
    /// To this node.
    Here,
    /// To this pool, in which the node is not.
    To(&'a Name),
    /// Nobody knows.
    Unknown,
}

/// Whether a database knows anything of where a client is.
pub fn is_located(location: &Location) -> bool {
    let Location { asn, country, continent, .. } = location;
    asn.is_some() || country.is_some() || continent.is_some()
}

/// What a node does with a client; for people and as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AtNode {
    /// The node.
    pub node: Name,
    /// The pool to which the client belongs when the node is not in it.
    pub missteered: Option<Name>,
    /// Whether the client is served here, or the word of why it is not.
    pub served: &'static str,
    /// Where it is sent.
    pub redirect: Option<Name>,
    /// From which size of an object on, bytes.
    pub redirect_above_bytes: u64,
    /// Other nodes that are named beside content: of objects for which the client is not sent on.
    pub alternates: Vec<Name>,
}

impl<'a> Visit<'a> {
    /// `is_located`: [`is_located`] of what is known of the client.
    pub fn new(
        steering: &Steering,
        project: &'a Name,
        client: IpAddr,
        is_located: bool,
        here: &'a Name,
    ) -> Self {
        let class = steering.table().lookup(client).class;
        Self { project, client, here, class, is_located }
    }

    fn family(&self) -> Family {
        Family::of(self.client.to_canonical())
    }

    /// Dice that fall the same way for all clients of one network, a /24 or /48.
    fn dice(&self) -> Dice {
        let network = match self.client.to_canonical() {
            IpAddr::V4(v4) => u64::from(v4.to_bits() >> 8),
            // 48 bits, and one that no IPv4 network has.
            IpAddr::V6(v6) => u64::try_from(v6.to_bits() >> 80).unwrap_or(0) | 1 << 48,
        };
        Dice::seeded(network)
    }
}

impl Steering {
    /// Whether the node of a client is in the pool that answers (the last, where several do), or in one before it, which would have
    /// answered if it could. Nobody knows where no database has the client, where the node is not of
    /// this map, and where no pool answers.
    pub fn belongs(&self, visit: &Visit<'_>) -> Belongs<'_> {
        self.judge(visit).unwrap_or(Belongs::Unknown)
    }

    /// The same; `None` where nobody knows.
    fn judge(&self, visit: &Visit<'_>) -> Option<Belongs<'_>> {
        let map = &self.map().map;
        if !visit.is_located || !map.nodes.contains_key(visit.here) {
            return None;
        }
        let plan = self.plan(visit.project, visit.class, visit.family())?;
        if !matches!(plan.verdict, Verdict::Pool | Verdict::Spilled) {
            return None;
        }
        let (answers, _) = plan.pools().next()?;
        let (last, _) = plan.pools().last()?;
        let rules = &map.projects.get(visit.project)?.map;
        let audience = self.table().audience(rules.as_str(), visit.class)?;
        if audience.refused.contains(visit.here) {
            return Some(Belongs::To(answers));
        }
        let mut reached = audience.pools.iter().take_while(|pool| *pool != last).chain([last]);
        let is_in =
            |pool: &Name| map.pools.get(pool).is_some_and(|pool| pool.contains_key(visit.here));
        Some(if reached.any(is_in) { Belongs::Here } else { Belongs::To(answers) })
    }

    /// The pool to which the client belongs when its node is not in it.
    pub fn missteered(&self, visit: &Visit<'_>) -> Option<&Name> {
        match self.belongs(visit) {
            Belongs::To(pool) => Some(pool),
            Belongs::Here | Belongs::Unknown => None,
        }
    }

    /// What becomes of a GET or HEAD; see the module for the rules.
    pub fn decide(&self, visit: &Visit<'_>, with: &Circumstances<'_>) -> Decision<'_> {
        let wants = self.map().map.projects.get(visit.project).is_some_and(|p| p.redirect);
        if !wants {
            return Decision::Serve(Stay::Off);
        }
        if with.is_fixed {
            return Decision::Serve(Stay::FixedName);
        }
        let (chosen, why) = if is_named(with.avoid, visit.here) {
            (self.any_other(visit, with.avoid), Why::Avoid)
        } else if self.missteered(visit).is_some() {
            (self.planned(visit, with.avoid), Why::Missteered)
        } else if with.is_spent {
            (self.planned(visit, with.avoid), Why::Bill)
        } else {
            return Decision::Serve(Stay::Belongs);
        };
        match chosen {
            Some(node) => Decision::Redirect(node, why),
            None => Decision::Serve(Stay::NobodyElse),
        }
    }

    /// Other nodes that have what this one has, best first, at most [`ALTERNATES`]: of the client's
    /// plan, then of its list of pools, without those that it cannot use. None where the project does
    /// not want them named.
    pub fn alternates(&self, visit: &Visit<'_>, avoid: &[&str]) -> Vec<&Name> {
        let mut found: Vec<&Name> = Vec::new();
        if !self.map().map.projects.get(visit.project).is_some_and(|p| p.alternates) {
            return found;
        }
        let mut dice = visit.dice();
        let sets = std::iter::once_with(|| self.in_plan(visit)).chain(self.in_lists(visit, false));
        for mut set in sets {
            while found.len() < ALTERNATES {
                set.retain(|(node, _)| !found.contains(node) && !is_named(avoid, node));
                let Some(node) = pick(&mut dice, &set) else { break };
                found.push(node);
            }
        }
        found
    }

    /// The same as [`Self::decide`] and [`Self::alternates`], told to people.
    pub fn at_node(&self, visit: &Visit<'_>, with: &Circumstances<'_>) -> AtNode {
        // Who is sent on whatever it asks for is told of no others.
        let (served, redirect, is_never_served) = match self.decide(visit, with) {
            Decision::Serve(stay) => (stay.as_str(), None, false),
            Decision::Redirect(node, why) => {
                (why.as_str(), Some(node.clone()), !why.is_for_large())
            }
        };
        let alternates =
            if is_never_served { Vec::new() } else { self.alternates(visit, with.avoid) };
        let project = self.map().map.projects.get(visit.project);
        AtNode {
            node: visit.here.clone(),
            missteered: self.missteered(visit).cloned(),
            served,
            redirect,
            redirect_above_bytes: project.map_or(0, |project| project.redirect_above.0),
            alternates: alternates.into_iter().cloned().collect(),
        }
    }

    /// A node of the client's plan.
    fn planned(&self, visit: &Visit<'_>, avoid: &[&str]) -> Option<&Name> {
        let mut nodes = self.in_plan(visit);
        nodes.retain(|(node, _)| !is_named(avoid, node));
        pick(&mut visit.dice(), &nodes)
    }

    /// A node of the client's plan, else of its list of pools, else of any pool of the map.
    fn any_other(&self, visit: &Visit<'_>, avoid: &[&str]) -> Option<&Name> {
        self.planned(visit, avoid).or_else(|| {
            self.in_lists(visit, true).find_map(|mut nodes| {
                nodes.retain(|(node, _)| !is_named(avoid, node));
                pick(&mut visit.dice(), &nodes)
            })
        })
    }

    /// The nodes of the client's plan that it may be sent to, with their weights.
    fn in_plan(&self, visit: &Visit<'_>) -> Vec<(&Name, u32)> {
        let plan = self.plan(visit.project, visit.class, visit.family());
        let Some(plan) = plan else { return Vec::new() };
        let nodes = plan.candidates.iter().map(|candidate| (&candidate.node, candidate.weight));
        let mut nodes: Vec<(&Name, u32)> = nodes.collect();
        if plan.pools().nth(1).is_some() {
            // Weights count within one pool only.
            let weight = |share: f64| (share * f64::from(SHARE_PPM)).ceil() as u32;
            nodes = plan.shares().map(|(node, share)| (node, weight(share))).collect();
        }
        nodes.retain(|(node, _)| self.takes(visit, node));
        nodes
    }

    /// The same of each pool of the client's list and, if asked for, of the map's other lists.
    fn in_lists<'a>(
        &'a self,
        visit: &Visit<'_>,
        of_others: bool,
    ) -> impl Iterator<Item = Vec<(&'a Name, u32)>> {
        let map = &self.map().map;
        let rules = map.projects.get(visit.project).map(|project| &project.map);
        let own = rules.and_then(|rules| self.table().audience(rules.as_str(), visit.class));
        let others = rules.and_then(|rules| map.maps.get(rules)).filter(|_| of_others);
        let others = others.into_iter().flat_map(|rules| rules.lists().flatten());
        let own_pools = own.into_iter().flat_map(|audience| &audience.pools);
        own_pools.map(|pool| (pool, true)).chain(others.map(|pool| (pool, false))).map(
            move |(pool, is_own)| {
                let members = map.pools.get(pool).into_iter().flatten();
                let members = members.map(|(node, weight)| (node, *weight));
                // Of the nodes that serve some clients only, those of the client's own list are known
                // to serve it or not.
                let serves = |node: &Name| match own.filter(|_| is_own) {
                    Some(own) => !own.refused.contains(node),
                    None => map.nodes.get(node).is_some_and(|node| node.serve.is_none()),
                };
                let able = |node| serves(node) && self.takes(visit, node);
                members.filter(|(node, weight)| *weight > 0 && able(node)).collect()
            },
        )
    }

    /// Whether the client may be sent to `node`.
    fn takes(&self, visit: &Visit<'_>, node: &Name) -> bool {
        let family = visit.family();
        let states = self.map().states.get(node).and_then(|states| states.get(family));
        let has_address = self
            .map()
            .map
            .nodes
            .get(node)
            .is_some_and(|node| node.addresses_of(family).next().is_some());
        let is_fit = self.map().unfit_for(visit.project, node, family).is_none();
        node != visit.here
            && has_address
            && is_fit
            && states.is_some_and(|s| s.state == State::Up && s.permille > 0)
    }
}

fn pick<'a>(dice: &mut Dice, nodes: &[(&'a Name, u32)]) -> Option<&'a Name> {
    let at = dice.pick(nodes.iter().map(|(_, weight)| *weight))?;
    nodes.get(at).map(|(node, _)| *node)
}

fn is_named(names: &[&str], node: &Name) -> bool {
    names.iter().any(|name| name.eq_ignore_ascii_case(node.as_str()))
}

impl std::fmt::Display for AtNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "at {}", self.node)?;
        match &self.missteered {
            Some(pool) => writeln!(f, "  the client is missteered: it belongs to pool {pool}")?,
            None => writeln!(f, "  the client is not missteered")?,
        }
        match &self.redirect {
            Some(node) if self.served == Why::Avoid.as_str() => {
                writeln!(f, "  302 to {node}: {}", self.served)?;
            }
            Some(node) => {
                let above = model::ByteCount(self.redirect_above_bytes);
                writeln!(f, "  302 to {node}: {}, for objects of {above} and more", self.served)?;
            }
            None => writeln!(f, "  serves: {}", self.served)?,
        }
        let alternates: Vec<&str> = self.alternates.iter().map(Name::as_str).collect();
        let smaller = if self.redirect.is_some() { "serves smaller ones, and " } else { "" };
        match alternates.as_slice() {
            [] => Ok(()),
            names => writeln!(f, "  {smaller}names as alternates: {}", names.join(", ")),
        }
    }
}
