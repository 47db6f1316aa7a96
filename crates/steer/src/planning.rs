//! Planning: weights from capacity, demand and preference.
//!
//! [`Demand`] sums what clients ask for by what steering tells apart -> `balance` says what may flow where and
//! solves it -> [`plan`] gives the [`LoadPlan`] for the node map, and what is expected of it.
//!
//! In this order: everybody is served; no node or site is above its capacity; none above what its sponsor
//! pays for; clients stay in their most preferred pools; those that are in a pool stay there; inside a pool
//! nodes get by their weights, as far as their room allows. All but the last is one minimum-cost flow from
//! clients over pools, nodes and sites, exact in bits per second: costs are so far apart that less of a later
//! wish never buys more of an earlier one. Families meet in the nodes.
//!
//! Clients with the same list of pools, limited nodes and family are one group, whatever their country,
//! network or project: a plan for 70,000 networks is one for some hundred groups. Weights inside a pool are
//! the same for all groups that see the same nodes of it; that costs nothing, since it is only their sum that
//! nodes feel.
//!
//! What a project alone holds against a node (`unfit`) is not looked at: its share goes on when answers are
//! made.

mod balance;
mod flow;
mod gather;

use std::collections::{BTreeMap, BTreeSet};

use model::{Family, Name};
use nodemap::published::LoadPlan;
use nodemap::{AllDown, NodeMap};
use serde::Serialize;

use self::balance::Model;
use crate::table::Audience;
use crate::walk::{Outcome, Verdict, Walk, walk};

/// Version of the JSON document.
const FORMAT: u32 = 1;

/// What clients ask for, by group, bits per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    groups: BTreeMap<Group, f64>,
    /// Of clients whose project is not of the map, or that no database knows any more.
    pub unplaced_bits_per_s: f64,
}

/// Clients that steering does not tell apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Group {
    /// Their pools, in order.
    pub pools: Vec<Name>,
    /// The limited nodes in these that do not serve them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub refused: BTreeSet<Name>,
    /// How they come.
    pub family: Family,
}

/// A plan, and what is expected of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Planning {
    /// Version of this document.
    pub format: u32,
    /// For the node map.
    pub plan: LoadPlan,
    /// By node.
    pub nodes: Vec<Load>,
    /// By site.
    pub sites: Vec<Load>,
    /// The groups of which not all are in their most preferred pool that serves.
    pub spills: Vec<Spill>,
    /// All demand, bits per second.
    pub demand_bits_per_s: f64,
    /// What of it goes to other nodes than now.
    pub moved_bits_per_s: f64,
    /// What is above commits after, and not above capacities.
    pub above_commit_bits_per_s: f64,
    /// What is above capacities after, of nodes and of sites: by so much there is too little room.
    pub above_capacity_bits_per_s: f64,
    /// Of clients for which no node serves at all, and of those that could not be placed.
    pub unplanned_bits_per_s: f64,
}

/// What a node or site has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Load {
    /// Its name.
    pub name: Name,
    /// What it can send, bits per second; of a node as its states cut it.
    pub capacity_bits_per_s: Option<f64>,
    /// What of it is paid for.
    pub commit_bits_per_s: Option<f64>,
    /// Expected now.
    pub before_bits_per_s: f64,
    /// Expected by the plan.
    pub after_bits_per_s: f64,
}

/// A group that is in several pools, or in another one than it would be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spill {
    /// Who.
    pub group: Group,
    /// What it asks for, bits per second.
    pub demand_bits_per_s: f64,
    /// The pools that answer, with their shares from 0 to 1.
    pub pools: Vec<(Name, f64)>,
    /// The nodes and sites of its most preferred pool that have no room left.
    pub full: Vec<Name>,
}

impl Demand {
    /// More of what clients of `audience` ask for, bits per second.
    pub fn add(&mut self, audience: &Audience, family: Family, bits_per_s: f64) {
        let Audience { pools, refused } = audience.clone();
        *self.groups.entry(Group { pools, refused, family }).or_default() += bits_per_s.max(0.0);
    }

    /// Whether nobody asks for anything.
    pub fn is_empty(&self) -> bool {
        self.groups.values().all(|demand| *demand <= 0.0)
    }
}

/// The weights that serve `demand` best from `map`, whose own plan, as far as it has one, is what clients have
/// now; see the module for what is best. Without demand the plan is empty: admin weights hold.
pub fn plan(map: &NodeMap, demand: &Demand) -> Planning {
    // By the states of nodes alone: what is decided now is not what decides.
    let bare = NodeMap { plan: LoadPlan::default(), unfit: BTreeMap::new(), ..map.clone() };
    let now = NodeMap { unfit: BTreeMap::new(), ..map.clone() };
    let (groups, unreachable) = reachable(&bare, demand);
    let current: Vec<Walk> = groups.iter().map(|(group, _)| group.walk(&now)).collect();
    let ordinary: Vec<Walk> = groups.iter().map(|(group, _)| group.walk(&bare)).collect();
    let model = Model::new(&bare, &groups, &ordinary, &current);
    let plan = if demand.is_empty() { LoadPlan::default() } else { model.solve() };
    let planned = NodeMap { plan, ..bare };
    let after: Vec<Walk> = groups.iter().map(|(group, _)| group.walk(&planned)).collect();
    let mut planning = Planning {
        format: FORMAT,
        plan: planned.plan,
        nodes: model.loads(&groups, &current, &after),
        sites: model.site_loads(&groups, &current, &after),
        spills: Vec::new(),
        demand_bits_per_s: groups.iter().map(|(_, demand)| demand).sum(),
        moved_bits_per_s: moved(&groups, &current, &after),
        above_commit_bits_per_s: 0.0,
        above_capacity_bits_per_s: 0.0,
        unplanned_bits_per_s: unreachable + demand.unplaced_bits_per_s,
    };
    for load in planning.nodes.iter().chain(&planning.sites) {
        let above =
            |limit: Option<f64>| limit.map_or(0.0, |l| (load.after_bits_per_s - l).max(0.0));
        let above_capacity = above(load.capacity_bits_per_s);
        planning.above_capacity_bits_per_s += above_capacity;
        planning.above_commit_bits_per_s +=
            (above(load.commit_bits_per_s) - above_capacity).max(0.0);
    }
    let sites: BTreeMap<&Name, &Name> =
        map.map.nodes.iter().map(|(n, node)| (n, &node.site)).collect();
    let full = planning.full();
    let spilled = groups.iter().zip(ordinary.iter().zip(&after));
    let spill = spilled.filter_map(|((group, demand), (ordinary, after))| {
        let shares: Vec<(Name, f64)> = pools_of(after);
        let meant = ordinary.pool.as_ref()?;
        if matches!(shares.as_slice(), [(only, _)] if only == meant) {
            return None;
        }
        let step = ordinary.pools.iter().find(|step| step.pool == *meant)?;
        let nodes = step.nodes.iter().filter(|node| node.is_able).map(|node| &node.node);
        let both = nodes.flat_map(|node| [Some(node), sites.get(node).copied()]).flatten();
        let full: BTreeSet<&Name> = both.filter(|name| full.contains(*name)).collect();
        let full = full.into_iter().cloned().collect();
        Some(Spill { group: group.clone(), demand_bits_per_s: *demand, pools: shares, full })
    });
    planning.spills = spill.collect();
    planning
}

impl Planning {
    /// Nodes and sites that have no room left: within a hundredth of a limit, or above it.
    fn full(&self) -> BTreeSet<Name> {
        let is_full = |load: &&Load| {
            let limits = [load.capacity_bits_per_s, load.commit_bits_per_s];
            limits.into_iter().flatten().any(|limit| load.after_bits_per_s >= limit * 0.99)
        };
        self.nodes.iter().chain(&self.sites).filter(is_full).map(|load| load.name.clone()).collect()
    }
}

impl Group {
    fn walk(&self, map: &NodeMap) -> Walk {
        let audience = Audience { pools: self.pools.clone(), refused: self.refused.clone() };
        // What is unfit is left out of the map, and nothing else is by project.
        let project = map.map.projects.keys().next().or(self.pools.first());
        match project {
            Some(project) => walk(map, project, &audience, self.family, &AllDown::LastGood),
            None => Walk {
                family: self.family,
                verdict: Verdict::ServFail,
                pool: None,
                pools: Vec::new(),
            },
        }
    }
}

/// The groups that some node serves; clients that get no IPv6 come by IPv4. And what nobody serves.
fn reachable(bare: &NodeMap, demand: &Demand) -> (Vec<(Group, f64)>, f64) {
    let mut groups: BTreeMap<Group, f64> = BTreeMap::new();
    let mut unreachable = 0.0;
    for (group, demand) in demand.groups.iter().filter(|(_, demand)| **demand > 0.0) {
        let mut group = group.clone();
        let mut verdict = group.walk(bare).verdict;
        if group.family == Family::V6 && verdict == Verdict::NoFamily {
            group.family = Family::V4;
            verdict = group.walk(bare).verdict;
        }
        match verdict {
            Verdict::Pool | Verdict::Spilled => *groups.entry(group).or_default() += demand,
            _ => unreachable += demand,
        }
    }
    (groups.into_iter().collect(), unreachable)
}

/// The pools that answer with their shares.
fn pools_of(walk: &Walk) -> Vec<(Name, f64)> {
    let answering = walk.pools.iter().filter(|step| step.outcome == Outcome::Answers);
    let share = |nodes: &[crate::walk::NodeStep]| nodes.iter().map(|node| node.share).sum();
    answering.map(|step| (step.pool.clone(), share(&step.nodes))).collect()
}

/// By node: its share of the answers of a walk.
fn shares_of(walk: &Walk) -> BTreeMap<&Name, f64> {
    let mut shares = BTreeMap::new();
    for node in walk.included() {
        *shares.entry(&node.node).or_default() += node.share;
    }
    shares
}

/// What goes to other nodes than before, bits per second.
fn moved(groups: &[(Group, f64)], before: &[Walk], after: &[Walk]) -> f64 {
    let walks = before.iter().zip(after);
    let of_group = |((_, demand), (before, after)): (&(Group, f64), (&Walk, &Walk))| {
        let (before, after) = (shares_of(before), shares_of(after));
        let gained = |(node, share): (&&Name, &f64)| {
            (share - before.get(*node).copied().unwrap_or_default()).max(0.0)
        };
        demand * after.iter().map(gained).sum::<f64>()
    };
    groups.iter().zip(walks).map(of_group).sum()
}

#[cfg(test)]
mod tests;
