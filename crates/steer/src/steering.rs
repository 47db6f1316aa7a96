//! [`Steering`]: the plan of every project, class and address family, ready to be looked up.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use locate::Locator;
use model::{Family, Name};
use nodemap::NodeMap;

use crate::explain::{DecidedBy, Explanation};
use crate::guard::Guard;
use crate::plan::{Numbers, Plan, Policy};
use crate::table::{Audience, ClassId, ClassTable};
use crate::walk::{Walk, walk};

/// The class table was compiled from other steering maps than those of the node map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the class table is of other steering maps: compile it anew from this node map")]
pub struct OutdatedTable;

/// Plans for everybody: what health publishes, seen through the class table. Made whole from each
/// node map, then only read.
#[derive(Debug)]
pub struct Steering {
    table: Arc<ClassTable>,
    map: Arc<NodeMap>,
    /// In the order of the node map.
    projects: Vec<Planned>,
    numbers: HashMap<Name, u16>,
    /// Of the projects that have one.
    guards: BTreeMap<Name, Arc<Guard>>,
}

/// The plans of one project.
#[derive(Debug)]
struct Planned {
    /// Its steering map.
    map: Name,
    /// By class: index into `plans`, which is that of the audience.
    of_class: Arc<[u32]>,
    /// By family.
    plans: Vec<[Plan; 2]>,
}

impl Steering {
    /// Walks the pools of every audience of every project's map once per family.
    ///
    /// # Errors
    /// When `table` was compiled from other steering maps than `map` has.
    pub fn new(table: Arc<ClassTable>, map: Arc<NodeMap>) -> Result<Self, OutdatedTable> {
        Self::after(None, table, map)
    }

    /// The same, in place of `old`, with whose counts the guards go on.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn after(
        old: Option<&Self>,
        table: Arc<ClassTable>,
        map: Arc<NodeMap>,
    ) -> Result<Self, OutdatedTable> {
        if !table.is_of(&map.map) {
            return Err(OutdatedTable);
        }
        let (mut projects, mut guards) = (Vec::new(), BTreeMap::new());
        let numbers = Numbers::of(&map.map);
        for (number, (name, project)) in (0..=u16::MAX).zip(&map.map.projects) {
            let audiences = table.audiences_of(&project.map);
            let distinct = audiences.map_or(&[][..], |of| &of.distinct);
            let policy = Policy::of(project);
            let guard = project.max_share.map(|limit| {
                let old = old.and_then(|old| old.guards.get(name));
                Arc::new(Guard::new(limit, &map.map, old.map(Arc::as_ref)))
            });
            let of_audience = |audience: &Audience| {
                let walk = |family| walk(&map, name, audience, family, &project.all_down);
                let plan = |walk: Walk| {
                    let tables = (&map.map, &numbers);
                    Plan::of(&walk, policy, tables, number, guard.as_ref())
                };
                Family::ALL.map(|family| plan(walk(family)))
            };
            projects.push(Planned {
                map: project.map.clone(),
                of_class: audiences.map(|of| Arc::clone(&of.of_class)).unwrap_or_default(),
                plans: distinct.iter().map(of_audience).collect(),
            });
            guards.extend(guard.map(|guard| (name.clone(), guard)));
        }
        let numbers = map.map.projects.keys().cloned().zip(0..).collect();
        Ok(Self { table, map, projects, numbers, guards })
    }

    /// The plan for clients of `class` who ask for `project`; `None` when the project or class is
    /// not of this node map and table.
    pub fn plan(&self, project: &Name, class: ClassId, family: Family) -> Option<&Plan> {
        self.plan_of(*self.numbers.get(project)?, class, family)
    }

    /// The same of the project at this place among those of the node map: what each query asks for is
    /// found without looking up a name.
    pub fn plan_of(&self, project: u16, class: ClassId, family: Family) -> Option<&Plan> {
        let Planned { of_class, plans, .. } = self.projects.get(usize::from(project))?;
        let audience = *of_class.get(usize::from(class.get()))?;
        let [v4, v6] = plans.get(audience as usize)?;
        Some(match family {
            Family::V4 => v4,
            Family::V6 => v6,
        })
    }

    /// The entry of the project's map that decides for `address`; the project is given by its place
    /// among those of the node map. `locator` must be the one that the class table was compiled from.
    pub fn decided_by(
        &self,
        project: u16,
        address: IpAddr,
        locator: &Locator,
    ) -> Option<DecidedBy> {
        let Planned { map, .. } = self.projects.get(usize::from(project))?;
        DecidedBy::find(self, map, address, (&locator.locate(address), locator))
    }

    /// The guards, by project.
    pub fn guards(&self) -> impl Iterator<Item = (&Name, &Guard)> {
        self.guards.iter().map(|(name, guard)| (name, guard.as_ref()))
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
