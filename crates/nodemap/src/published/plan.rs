//! Where planning deviates from the admin map: which clients get which shares of which pools, and with
//! which weights inside these.
//!
//! Clients are told apart as steering does: by their ordered list of pools, the limited nodes that do not
//! serve them, and their family. Who is not here gets the first pool that serves, by the weights of the
//! admin map. Invariant: lists are sorted, each once.

use std::collections::{BTreeMap, BTreeSet};

use model::{Family, Name};
use serde::{Deserialize, Serialize};

use crate::AdminMap;

/// The shares of all tiers of a list together.
pub const SHARE_PPM: u32 = 1_000_000;
/// Largest weight in a split.
pub const SPLIT_WEIGHT_MAX: u32 = 1_000_000;

/// What planning decided. Empty: nothing deviates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadPlan {
    /// Weights of the nodes inside a pool, for tiers to name by their place here.
    pub splits: Vec<BTreeMap<Name, u32>>,
    /// In the order of their pools, refused nodes and families.
    pub lists: Vec<PlannedList>,
}

/// What the clients of one list of pools get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedList {
    /// Their pools, in order, as steering maps have them.
    pub pools: Vec<Name>,
    /// The limited nodes in these pools that do not serve them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub refused: BTreeSet<Name>,
    /// The family of the answers.
    pub family: Family,
    /// The pools that answer, in the order of the list.
    pub tiers: Vec<Tier>,
}

/// A pool's part of the answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tier {
    /// The pool.
    pub pool: Name,
    /// Its share of the answers, in millionths, above zero; those of a list sum to [`SHARE_PPM`].
    pub share_ppm: u32,
    /// Which of [`LoadPlan::splits`] has the weights of its nodes. Who is not in it gets nothing.
    pub split: usize,
}

impl LoadPlan {
    /// Whether nothing deviates from the admin map.
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// What clients of these pools get, if it deviates.
    pub fn find(
        &self,
        pools: &[Name],
        refused: &BTreeSet<Name>,
        family: Family,
    ) -> Option<&PlannedList> {
        let wanted = (pools, refused, family);
        let at = self.lists.binary_search_by(|list| list.key().cmp(&wanted)).ok()?;
        self.lists.get(at)
    }

    /// What this says that cannot be for `map`.
    pub(super) fn wrong_for(&self, map: &AdminMap) -> Option<String> {
        if !self.lists.is_sorted_by(|a, b| a.key() < b.key()) {
            return Some("plan: its lists are not sorted, or one is there twice".to_owned());
        }
        self.lists.iter().enumerate().find_map(|(at, list)| {
            let problem = list.wrong_for(map, &self.splits)?;
            Some(format!("plan: list {at}: {problem}"))
        })
    }
}

impl PlannedList {
    fn key(&self) -> (&[Name], &BTreeSet<Name>, Family) {
        (&self.pools, &self.refused, self.family)
    }

    fn wrong_for(&self, map: &AdminMap, splits: &[BTreeMap<Name, u32>]) -> Option<String> {
        if let Some(pool) = self.pools.iter().find(|pool| !map.pools.contains_key(*pool)) {
            return Some(format!("there is no pool {pool}"));
        }
        let mut left = self.pools.iter();
        for tier in &self.tiers {
            if !left.any(|pool| *pool == tier.pool) {
                return Some(format!("pool {} is out of the order of the list", tier.pool));
            }
            let members = map.pools.get(&tier.pool)?;
            let Some(split) = splits.get(tier.split).filter(|split| !split.is_empty()) else {
                return Some(format!("pool {} has no weights", tier.pool));
            };
            let wrong = split.iter().find(|(node, weight)| {
                let is_member = members.get(*node).is_some_and(|weight| *weight > 0);
                !is_member || !(1..=SPLIT_WEIGHT_MAX).contains(*weight)
            });
            if let Some((node, weight)) = wrong {
                return Some(format!("node {node} cannot have weight {weight} in {}", tier.pool));
            }
        }
        let shares = self.tiers.iter().map(|tier| u64::from(tier.share_ppm));
        let has_none = self.tiers.iter().any(|tier| tier.share_ppm == 0);
        let is_whole = shares.sum::<u64>() == u64::from(SHARE_PPM);
        (has_none || !is_whole).then(|| format!("its shares are not above 0, or not {SHARE_PPM}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn planned() -> crate::NodeMap {
        let mut map = crate::testing::node_map(7);
        map.map.pools.insert(name("zero"), [(name("n"), 0)].into());
        let tier = Tier { pool: name("all"), share_ppm: SHARE_PPM, split: 0 };
        let list = |family| PlannedList {
            pools: vec![name("all")],
            refused: BTreeSet::new(),
            family,
            tiers: vec![tier.clone()],
        };
        map.plan.splits.push([(name("n"), 5)].into());
        map.plan.lists = vec![list(Family::V4), list(Family::V6)];
        map
    }

    #[test]
    fn a_plan_is_read_back_and_found() {
        let map = planned();
        let read = crate::NodeMap::parse(&map.to_json()).unwrap();
        assert_eq!(read, map);
        let find = |pools: &[&str]| {
            let pools: Vec<Name> = pools.iter().map(|pool| name(pool)).collect();
            read.plan.find(&pools, &BTreeSet::new(), Family::V6).map(|list| list.family)
        };
        assert_eq!((find(&["all"]), find(&["zero"])), (Some(Family::V6), None));
        let bare = crate::testing::node_map(7).to_json();
        assert!(!String::from_utf8(bare).unwrap().contains("\"plan\""));
    }

    #[test]
    fn a_plan_that_cannot_be_is_refused() {
        type Change = fn(&mut LoadPlan);
        let changes: [(Change, &str); 8] = [
            (|plan| plan.lists.reverse(), "plan: its lists are not sorted"),
            (|plan| plan.lists[1].pools = vec![name("gone")], "list 1: there is no pool gone"),
            (|plan| plan.lists[1].tiers[0].pool = name("zero"), "list 1: pool zero is out of the"),
            (|plan| plan.lists[0].tiers[0].split = 1, "list 0: pool all has no weights"),
            (|plan| plan.splits[0] = [(name("m"), 1)].into(), "node m cannot have weight 1 in all"),
            (|plan| plan.splits[0] = [(name("n"), 0)].into(), "node n cannot have weight 0 in all"),
            (|plan| plan.lists[0].tiers[0].share_ppm = 999_999, "list 0: its shares are not above"),
            (|plan| plan.lists[0].tiers.clear(), "list 0: its shares are not above 0"),
        ];
        for (change, expected) in changes {
            let mut map = planned();
            change(&mut map.plan);
            let error = crate::NodeMap::parse(&map.to_json()).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
