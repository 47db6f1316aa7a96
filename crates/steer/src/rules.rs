//! What of an admin map tells addresses apart.
//!
//! Health, weights and most of a map do not: as long as the rules are the same, a class table holds.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use model::{Asn, Name};
use nodemap::{AdminMap, AllDown, Serve, SteeringMap};

/// What a class table is compiled from, beside the locations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    maps: BTreeMap<Name, SteeringMap>,
    /// The nodes that do not serve everybody.
    limited: Vec<Limited>,
    /// By steering map: the pools that its projects fall back on (`all_down`). Only with limited nodes.
    last_resorts: BTreeMap<Name, BTreeSet<Name>>,
}

/// A node that serves some clients only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limited {
    pub(crate) node: Name,
    pub(crate) serve: Serve,
    /// Where it is a member, whatever its weight: a weight of zero may be another one tomorrow.
    pools: BTreeSet<Name>,
}

impl Rules {
    /// Those of `map`.
    pub fn of(map: &AdminMap) -> Self {
        let limited: Vec<Limited> = map
            .nodes
            .iter()
            .filter_map(|(name, node)| {
                let has = |(pool, nodes): (&Name, &BTreeMap<Name, u32>)| {
                    nodes.contains_key(name).then(|| pool.clone())
                };
                let pools = map.pools.iter().filter_map(has).collect();
                Some(Limited { node: name.clone(), serve: node.serve.clone()?, pools })
            })
            .collect();
        let mut last_resorts: BTreeMap<Name, BTreeSet<Name>> = BTreeMap::new();
        for project in map.projects.values().filter(|_| !limited.is_empty()) {
            if let AllDown::Pool(pool) = &project.all_down {
                last_resorts.entry(project.map.clone()).or_default().insert(pool.clone());
            }
        }
        Self { maps: map.maps.clone(), limited, last_resorts }
    }

    pub(crate) fn maps(&self) -> &BTreeMap<Name, SteeringMap> {
        &self.maps
    }

    /// Every AS that a map or a node names.
    pub(crate) fn named_asns(&self) -> HashSet<Asn> {
        let of_maps = self.maps.values().flat_map(|map| map.asn.keys());
        let of_nodes = self.limited.iter().flat_map(|node| &node.serve.asn);
        of_maps.chain(of_nodes).copied().collect()
    }

    pub(crate) fn limited(&self) -> &[Limited] {
        &self.limited
    }

    /// Of the limited nodes `refused` (indices), those that clients of `map` with the list `pools` could
    /// ever be sent to.
    pub(crate) fn reached(&self, map: &Name, pools: &[Name], refused: &[usize]) -> BTreeSet<Name> {
        let last = self.last_resorts.get(map);
        let leads = |node: &Limited| {
            let is_last = |pool| last.is_some_and(|pools| pools.contains(pool));
            node.pools.iter().any(|pool| pools.contains(pool) || is_last(pool))
        };
        let nodes = refused.iter().filter_map(|at| self.limited.get(*at));
        nodes.filter(|node| leads(node)).map(|node| node.node.clone()).collect()
    }
}
