//! [`Steering`]: the plan of every project, class and address family, ready to be looked up.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use locate::Locator;
use model::{Dice, Family, Name};
use nodemap::NodeMap;

use crate::explain::Explanation;
use crate::table::{ClassId, ClassTable};
use crate::walk::{Verdict, Walk, walk};

/// The class table was compiled from other steering maps than those of the node map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the class table is of other steering maps: compile it anew from this node map")]
pub struct OutdatedTable;

/// Whom the clients of a class may be sent to in one address family.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// How it came about, and whether there is an answer at all.
    pub verdict: Verdict,
    /// The pool that answers, when one alone does.
    pub pool: Option<Name>,
    /// Every node that may be answered, weights above zero. Empty only with the verdicts
    /// `NoFamily`, `NoData` and `ServFail`.
    pub candidates: Vec<Candidate>,
}

/// A node of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The node.
    pub node: Name,
    /// Its addresses of the plan's family, at least one.
    pub addresses: Vec<IpAddr>,
    /// Its weight, above zero.
    pub weight: u32,
}

impl Plan {
    fn of(walk: &Walk) -> Self {
        let candidates = walk.included().map(|step| Candidate {
            node: step.node.clone(),
            addresses: step.addresses.clone(),
            weight: step.weight,
        });
        Self { verdict: walk.verdict, pool: walk.pool.clone(), candidates: candidates.collect() }
    }

    /// One candidate by chance, each with the chance of its weight; `None` when there is none.
    pub fn pick(&self, dice: &mut Dice) -> Option<&Candidate> {
        match self.candidates.as_slice() {
            [only] => Some(only),
            several => several.get(dice.pick(several.iter().map(|c| c.weight))?),
        }
    }

    /// The share of answers each candidate can expect, from 0 to 1; they sum to 1.
    pub fn shares(&self) -> impl Iterator<Item = (&Name, f64)> {
        let total: u64 = self.candidates.iter().map(|c| u64::from(c.weight)).sum();
        self.candidates.iter().map(move |c| (&c.node, f64::from(c.weight) / total as f64))
    }
}

/// Plans for everybody: what health publishes, seen through the class table. Made whole from each
/// node map, then only read.
#[derive(Debug)]
pub struct Steering {
    table: Arc<ClassTable>,
    map: Arc<NodeMap>,
    /// Project -> pool list of its map -> plan by family.
    plans: HashMap<Name, Vec<[Plan; 2]>>,
}

impl Steering {
    /// Walks every pool list of every project's map once per family.
    ///
    /// # Errors
    /// When `table` was compiled from other steering maps than `map` has.
    pub fn new(table: Arc<ClassTable>, map: Arc<NodeMap>) -> Result<Self, OutdatedTable> {
        if !table.is_of(&map.map.maps) {
            return Err(OutdatedTable);
        }
        let mut plans = HashMap::new();
        for (name, project) in &map.map.projects {
            let lists = table.lists_of(&project.map).map_or(&[][..], |lists| &lists.distinct);
            let of_list = |pools: &Vec<Name>| {
                Family::ALL.map(|family| Plan::of(&walk(&map, pools, family, &project.all_down)))
            };
            plans.insert(name.clone(), lists.iter().map(of_list).collect());
        }
        Ok(Self { table, map, plans })
    }

    /// The plan for clients of `class` who ask for `project`; `None` when the project or class is
    /// not of this node map and table.
    pub fn plan(&self, project: &Name, class: ClassId, family: Family) -> Option<&Plan> {
        let map = &self.map.map.projects.get(project)?.map;
        let list = self.table.lists_of(map)?.index_of(class)?;
        let [v4, v6] = self.plans.get(project)?.get(list)?;
        Some(match family {
            Family::V4 => v4,
            Family::V6 => v6,
        })
    }

    /// Every step from `address` to the nodes it may be sent to; `None` when there is no such
    /// project. `locator` must be the one that the class table was compiled from.
    pub fn explain(
        &self,
        project: &Name,
        address: IpAddr,
        locator: &Locator,
    ) -> Option<Explanation> {
        Explanation::new(self, project, address, locator)
    }

    /// The class table.
    pub fn table(&self) -> &Arc<ClassTable> {
        &self.table
    }

    /// The node map.
    pub fn map(&self) -> &Arc<NodeMap> {
        &self.map
    }
}
