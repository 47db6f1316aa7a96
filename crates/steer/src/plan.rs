//! [`Plan`]: whom the clients of a class may be sent to in one address family.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use model::Name;
use nodemap::published::SHARE_PPM;
use nodemap::{AdminMap, Project};

use crate::choose::stable_hash;
use crate::guard::{Guard, Places};
use crate::walk::{NodeStep, Outcome, Verdict, Walk};

/// Whom the clients of a class may be sent to in one address family.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How it came about, and whether there is an answer at all.
    pub verdict: Verdict,
    /// The pool that answers, when one alone does; by a plan of the node map several may.
    pub pool: Option<Name>,
    /// The place of the project, and of the pool, among those of the node map.
    pub numbers: (u16, Option<u16>),
    /// Every node that may be answered, weights above zero. Empty only with the verdicts
    /// `NoFamily`, `NoData` and `ServFail`.
    pub candidates: Vec<Candidate>,
    /// The pools that answer, where these are several; they have the candidates one after another.
    pub(crate) tiers: Vec<Tier>,
    /// Those that serve of the pools behind the one that answers, pool by pool, each node once.
    pub(crate) further: Vec<Vec<Candidate>>,
    pub(crate) policy: Policy,
    pub(crate) guard: Option<Arc<Guard>>,
}

/// One of several pools that answer.
#[derive(Clone, Debug)]
pub(crate) struct Tier {
    pub(crate) pool: Name,
    /// Its place among the pools of the node map.
    pub(crate) number: Option<u16>,
    /// Where its share of the answers ends, in millionths: it begins where that of the one before does.
    pub(crate) until_ppm: u32,
    /// Likewise its candidates.
    pub(crate) until: usize,
}

/// A node of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The node.
    pub node: Name,
    /// Its addresses of the plan's family, at least one.
    pub addresses: Vec<IpAddr>,
    /// Its weight beside those of the same pool, above zero: what it has of it now.
    pub weight: u32,
    /// Its place among the nodes of the node map.
    pub number: u16,
    /// Of the name: the same on every host.
    pub(crate) hash: u64,
    /// Where the guard counts it, if there is one.
    pub(crate) places: Places,
}

/// Places of names in the node map, in its order: what is counted for each of them needs no look-up
/// by name.
#[derive(Debug)]
pub(crate) struct Numbers<'a> {
    nodes: HashMap<&'a Name, u16>,
    pools: HashMap<&'a Name, u16>,
}

impl<'a> Numbers<'a> {
    pub(crate) fn of(map: &'a AdminMap) -> Self {
        // No map has more than 65,535 of either: what is beyond is not counted.
        Self {
            nodes: map.nodes.keys().zip(0..).collect(),
            pools: map.pools.keys().zip(0..).collect(),
        }
    }
}

/// What a project wants of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Nodes of the pool that answers.
    pub(crate) answers: usize,
    /// Nodes of further pools.
    pub(crate) elsewhere: usize,
    pub(crate) sticky: bool,
}

impl Policy {
    pub(crate) fn of(project: &Project) -> Self {
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Self {
            answers: count(project.answers).max(1),
            elsewhere: count(project.answers_elsewhere),
            sticky: project.sticky,
        }
    }
}

impl Plan {
    /// That of a walk through `map`.
    pub(crate) fn of(
        walk: &Walk,
        policy: Policy,
        (map, numbers): (&AdminMap, &Numbers<'_>),
        project: u16,
        guard: Option<&Arc<Guard>>,
    ) -> Self {
        let candidate = |step: &NodeStep, all_whole: bool| {
            let site = map.nodes.get(&step.node).map(|node| &node.site);
            let places = guard.map(|guard| guard.places(&step.node, site));
            let number = numbers.nodes.get(&step.node).copied().unwrap_or(u16::MAX);
            let weight = if all_whole { step.weight } else { step.effective() };
            Candidate::of(step, weight, number, places.unwrap_or_default())
        };
        // Weights count within one pool only: where each node has the whole of its own, they stay.
        let candidates = |nodes: Vec<&NodeStep>| {
            let all_whole = nodes.iter().all(|node| node.is_whole());
            nodes.into_iter().map(|node| candidate(node, all_whole)).collect::<Vec<_>>()
        };
        let number = |pool: &Name| numbers.pools.get(pool).copied();
        let (tiers, of_tiers) = match walk.is_planned() && walk.pool.is_none() {
            true => tiers(walk, number, candidates),
            false => (Vec::new(), candidates(walk.included().collect())),
        };
        Self {
            verdict: walk.verdict,
            pool: walk.pool.clone(),
            numbers: (project, walk.pool.as_ref().and_then(number)),
            candidates: of_tiers,
            tiers,
            further: walk.further().map(candidates).collect(),
            policy,
            guard: guard.cloned(),
        }
    }

    /// The share of answers each candidate can expect, from 0 to 1; they sum to 1. A node of several
    /// pools that answer is there once for each.
    pub fn shares(&self) -> impl Iterator<Item = (&Name, f64)> {
        let parts = (0..self.tiers.len().max(1)).map(|at| (self.share_of(at), self.of_tier(at)));
        parts.flat_map(|(share, nodes)| {
            let total: u64 = nodes.iter().map(|c| u64::from(c.weight)).sum();
            nodes.iter().map(move |c| (&c.node, share * f64::from(c.weight) / total as f64))
        })
    }

    /// The pools that answer with their shares, in order; none where no pool alone does and no plan of the
    /// node map says so.
    pub fn pools(&self) -> impl Iterator<Item = (&Name, f64)> {
        let tiers = self.tiers.iter().enumerate();
        let one = self.pool.iter().map(|pool| (pool, 1.0));
        one.chain(tiers.map(|(at, tier)| (&tier.pool, self.share_of(at))))
    }

    /// The share of answers of the tier at a place, from 0 to 1; without tiers all of them.
    fn share_of(&self, at: usize) -> f64 {
        let until = |at: usize| self.tiers.get(at).map_or(SHARE_PPM, |tier| tier.until_ppm);
        let from = at.checked_sub(1).map_or(0, until);
        f64::from(until(at).saturating_sub(from)) / f64::from(SHARE_PPM)
    }

    /// The candidates of the tier at a place; without tiers all of them.
    pub(crate) fn of_tier(&self, at: usize) -> &[Candidate] {
        let until = |at: usize| self.tiers.get(at).map_or(self.candidates.len(), |tier| tier.until);
        let from = at.checked_sub(1).map_or(0, until);
        self.candidates.get(from..until(at)).unwrap_or_default()
    }
}

/// The pools that answer by a plan, and the candidates of all.
fn tiers(
    walk: &Walk,
    number: impl Fn(&Name) -> Option<u16>,
    candidates: impl Fn(Vec<&NodeStep>) -> Vec<Candidate>,
) -> (Vec<Tier>, Vec<Candidate>) {
    let (mut tiers, mut all, mut until_ppm) = (Vec::new(), Vec::new(), 0u32);
    for step in walk.pools.iter().filter(|step| step.outcome == Outcome::Answers) {
        until_ppm = until_ppm.saturating_add(step.planned_ppm.unwrap_or_default());
        all.extend(candidates(step.nodes.iter().filter(|n| n.excluded.is_none()).collect()));
        let pool = step.pool.clone();
        tiers.push(Tier { number: number(&pool), pool, until_ppm, until: all.len() });
    }
    (tiers, all)
}

impl Candidate {
    fn of(step: &NodeStep, weight: u32, number: u16, places: Places) -> Self {
        Self {
            node: step.node.clone(),
            addresses: step.addresses.clone(),
            weight,
            number,
            hash: stable_hash(step.node.as_str().as_bytes()),
            places,
        }
    }
}
