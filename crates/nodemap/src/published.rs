//! The node map: the admin map resolved with what is known of each node, as one JSON document.

mod acme;
mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use model::{Family, Name, NodeState, PERMILLE};
use serde::{Deserialize, Serialize};

use crate::admin::schema::limits;
use crate::admin::{
    check_request_field, references, sponsor_out_of_range, wrong_override, wrong_rule, zone_of,
};
use crate::{AdminMap, PathPolicy};

pub use acme::{Acme, HandOut};
pub use plan::{LoadPlan, PlannedList, SHARE_PPM, SPLIT_WEIGHT_MAX, Tier};

/// The document version this code writes and reads.
pub const FORMAT: u32 = 1;

/// What health publishes and DNS nodes and edges follow.
///
/// Invariant (H2): generations of one network only grow; a reader refuses an older one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeMap {
    /// Document version, [`FORMAT`].
    pub format: u32,
    /// `max(last + 1, unix time in ms)` when it was published.
    pub generation: u64,
    /// `[host] name` of the publisher.
    pub publisher: String,
    /// The admin map this was made from.
    pub map: AdminMap,
    /// State of every node of the map, by family; a family without addresses has none.
    pub states: BTreeMap<Name, NodeStates>,
    /// Project -> node -> why it must not get this project's clients, though it is up: it does not
    /// serve this `Host`, scheme or certificate as it should. Who is not here is fit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unfit: BTreeMap<Name, BTreeMap<Name, NodeStates>>,
    /// Project -> master -> what is known of it. Who is not here is good.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub masters: BTreeMap<Name, BTreeMap<Name, MasterState>>,
    /// Who gets otherwise than the admin map says, for the sake of capacities.
    #[serde(default, skip_serializing_if = "LoadPlan::is_empty")]
    pub plan: LoadPlan,
    /// What hosts answer authorities of certificates; `None` while nobody orders any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acme: Option<Acme>,
}

impl NodeMap {
    /// A node map of which everything else is as if nobody had looked: every node is fit, every
    /// master good.
    pub fn new(
        generation: u64,
        publisher: impl Into<String>,
        map: AdminMap,
        states: BTreeMap<Name, NodeStates>,
    ) -> Self {
        Self {
            format: FORMAT,
            generation,
            publisher: publisher.into(),
            map,
            states,
            unfit: BTreeMap::new(),
            masters: BTreeMap::new(),
            plan: LoadPlan::default(),
            acme: None,
        }
    }

    /// Why `node` must not get clients of `project` in `family`, if so.
    pub fn unfit_for(&self, project: &Name, node: &Name, family: Family) -> Option<&NodeState> {
        let state = self.unfit.get(project)?.get(node)?.get(family)?;
        (!state.state.serves()).then_some(state)
    }

    /// Reads a published document and checks that it can be served from: a known format; a node, a
    /// zone and a project at least; every name that is used is defined, and every project's lies in
    /// a zone; every list that is asked for an element has one; no number is above what a person
    /// could have written; every node has a state in each family where it has addresses, none more than its
    /// whole weight; what is unfit, and every master that has a state, is there; a plan is one for these pools.
    ///
    /// # Errors
    /// The first reason to refuse it.
    pub fn parse(document: &[u8]) -> Result<Self, ParseError> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let head: Head = serde_json::from_slice(document).map_err(ParseError::Json)?;
        if head.format > FORMAT {
            return Err(ParseError::Newer(head.format));
        }
        let map: Self = serde_json::from_slice(document).map_err(ParseError::Json)?;
        match map.inconsistency() {
            None => Ok(map),
            Some(what) => Err(ParseError::Inconsistent(what)),
        }
    }

    /// The document: the same bytes for the same value, one key a line so that two can be compared.
    pub fn to_json(&self) -> Vec<u8> {
        // Every key is a string or a number and nothing else can fail; the empty document that a
        // failure would give is refused by every reader.
        let mut document = serde_json::to_vec_pretty(self).unwrap_or_default();
        document.push(b'\n');
        document
    }

    /// What this map says that cannot be.
    fn inconsistency(&self) -> Option<String> {
        if self.format != FORMAT {
            return Some(format!("format {} was never written", self.format));
        }
        if let Some(kind) = self.hole() {
            return Some(format!("it has no {kind}, so nobody could be served from it"));
        }
        if let Some(fault) = references(&self.map, &BTreeSet::new()).first() {
            return Some(format!("{}: {}", fault.path, fault.problem));
        }
        self.empty_list()
            .or_else(|| self.outside_all_zones())
            .or_else(|| self.out_of_range())
            .or_else(|| self.wrong_bill())
            .or_else(|| wrong_override(&self.map))
            .or_else(|| wrong_rule(&self.map))
            .or_else(|| self.wrong_share())
            .or_else(|| self.wrong_policy())
            .or_else(|| self.wrong_state())
            .or_else(|| self.wrong_unfit())
            .or_else(|| self.wrong_master())
            .or_else(|| self.plan.wrong_for(&self.map))
            .or_else(|| self.acme.as_ref()?.wrong_for(&self.map))
    }

    /// What a map cannot do without, and does. Such a one is nobody's intent, and a reader that took
    /// it would stop to serve.
    fn hole(&self) -> Option<&'static str> {
        let AdminMap { nodes, zones, projects, .. } = &self.map;
        let kinds = [
            ("node", nodes.is_empty()),
            ("zone", zones.is_empty()),
            ("project", projects.is_empty()),
        ];
        kinds.into_iter().find(|(_, empty)| *empty).map(|(kind, _)| kind)
    }

    /// A project that no name server would answer for.
    fn outside_all_zones(&self) -> Option<String> {
        let mut projects = self.map.projects.iter();
        let (name, project) =
            projects.find(|(_, project)| zone_of(&self.map, &project.name).is_none())?;
        Some(format!("project.{name}.name: {} lies in none of its zones", project.name))
    }

    /// Numbers beyond what admin maps allow: the largest TTLs are none at all (RFC 2181 section 8).
    fn out_of_range(&self) -> Option<String> {
        let AdminMap { pools, zones, projects, .. } = &self.map;
        let ttl_max = *limits::TTL_S.end();
        let of_zones = zones.iter().flat_map(|(apex, zone)| {
            [
                (format!("zone.{apex}.ttl_s"), zone.ttl_s, ttl_max),
                (
                    format!("zone.{apex}.soa.negative_ttl_s"),
                    zone.soa.negative_ttl_s,
                    limits::NEGATIVE_TTL_S,
                ),
            ]
        });
        let of_projects = projects.iter().flat_map(|(name, project)| {
            let of_paths = project.paths.iter().flat_map(|path| {
                [
                    ("path.ttl_s", path.ttl_s.unwrap_or_default(), limits::PATH_TTL_S),
                    (
                        "path.negative_ttl_s",
                        path.negative_ttl_s.unwrap_or_default(),
                        limits::PATH_NEGATIVE_TTL_S,
                    ),
                ]
            });
            let stale = project.stale_while_revalidate_s;
            let places = project.answers.saturating_add(project.answers_elsewhere);
            let own = [
                ("ttl_s", project.ttl_s, ttl_max),
                ("answers", places, limits::ANSWERS),
                ("stale_while_revalidate_s", stale, limits::STALE_WHILE_REVALIDATE_S),
                ("reload_min_age_s", project.reload_min_age_s, limits::RELOAD_MIN_AGE_S),
            ];
            own.into_iter()
                .chain(of_paths)
                .map(move |(key, value, max)| (format!("project.{name}.{key}"), value, max))
        });
        let of_pools = pools.iter().flat_map(|(pool, nodes)| {
            nodes
                .iter()
                .map(move |(node, weight)| (format!("pool.{pool}.{node}"), *weight, limits::WEIGHT))
        });
        let (key, value, max) =
            of_zones.chain(of_projects).chain(of_pools).find(|(_, value, max)| value > max)?;
        Some(format!("{key} is {value}, more than {max}"))
    }

    /// Commits and caps below what admin maps allow, or more of them.
    fn wrong_bill(&self) -> Option<String> {
        self.map.nodes.iter().find_map(|(name, node)| {
            let key = sponsor_out_of_range(node)?;
            Some(format!("node.{name}.{key} is not what a person could have written"))
        })
    }

    /// Shares of answers beyond what admin maps allow.
    fn wrong_share(&self) -> Option<String> {
        self.map.projects.iter().find_map(|(name, project)| {
            let share = project.max_share?;
            let percent = |p: Option<u32>| p.is_none_or(|p| limits::SHARE_PERCENT.contains(&p));
            let right = percent(share.nodes)
                && percent(share.sites)
                && limits::SHARE_WINDOW_S.contains(&share.window_s);
            (!right).then(|| format!("project.{name}.max_share is out of range"))
        })
    }

    /// What an edge would have to make sense of by itself.
    fn wrong_policy(&self) -> Option<String> {
        self.map.projects.iter().find_map(|(name, project)| {
            let mut fields = project.request_fields.iter();
            if let Some(why) = fields.find_map(|field| check_request_field(field).err()) {
                return Some(format!("project.{name}.request_fields: one {why}"));
            }
            let grid = |p: &&PathPolicy| p.group.is_some() && p.ttl_s.unwrap_or_default() == 0;
            let path = project.paths.iter().find(grid)?;
            Some(format!("project.{name}.path {:?} has a group and no ttl_s", path.glob.as_str()))
        })
    }

    fn empty_list(&self) -> Option<String> {
        let AdminMap { nodes, maps, zones, projects, .. } = &self.map;
        let nodes = nodes.iter().filter(|(_, node)| node.addresses.is_empty());
        let maps = maps.iter().filter(|(_, map)| map.lists().any(Vec::is_empty));
        let zones = zones.iter().filter(|(_, zone)| zone.ns.is_empty());
        let projects = projects.iter().filter(|(_, project)| project.masters.is_empty());
        nodes
            .map(|(name, _)| format!("node.{name} has no addresses"))
            .chain(maps.map(|(name, _)| format!("map.{name} has an empty list of pools")))
            .chain(zones.map(|(apex, _)| format!("zone.{apex} has no name servers")))
            .chain(projects.map(|(name, _)| format!("project.{name} has no masters")))
            .next()
    }

    fn wrong_state(&self) -> Option<String> {
        if let Some(name) = self.states.keys().find(|name| !self.map.nodes.contains_key(*name)) {
            return Some(format!("there is a state of node {name}, but no such node"));
        }
        for (name, node) in &self.map.nodes {
            for family in Family::ALL {
                let has = self.states.get(name).is_some_and(|s| s.get(family).is_some());
                let needs = node.addresses_of(family).next().is_some();
                if needs && !has {
                    return Some(format!(
                        "node {name} has {family} addresses, but no {family} state"
                    ));
                }
            }
        }
        let above = self.states.iter().find(|(_, states)| states.is_above_whole())?;
        Some(format!("node {} has more than its whole weight", above.0))
    }

    /// Unfit for what is not there.
    fn wrong_unfit(&self) -> Option<String> {
        self.unfit.iter().find_map(|(project, nodes)| {
            if !self.map.projects.contains_key(project) {
                return Some(format!("nodes are unfit for project {project}, but no such project"));
            }
            let stranger = nodes.keys().find(|node| !self.map.nodes.contains_key(*node))?;
            Some(format!("node {stranger} is unfit for project {project}, but no such node"))
        })
    }

    /// States of masters that are not there.
    fn wrong_master(&self) -> Option<String> {
        self.masters.iter().find_map(|(project, masters)| {
            let known = self.map.projects.get(project).map(|project| &project.masters);
            let is_known = |master: &Name| known.is_some_and(|known| known.contains_key(master));
            let stranger = masters.keys().find(|master| !is_known(master))?;
            Some(format!("there is a state of master {project}/{stranger}, but no such master"))
        })
    }
}

/// State of one node by address family.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeStates {
    /// IPv4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v4: Option<NodeState>,
    /// IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v6: Option<NodeState>,
}

impl NodeStates {
    /// The state for `family`, if the node has addresses there.
    pub fn get(&self, family: Family) -> Option<&NodeState> {
        match family {
            Family::V4 => self.v4.as_ref(),
            Family::V6 => self.v6.as_ref(),
        }
    }

    /// The place for the state of `family`.
    pub fn get_mut(&mut self, family: Family) -> &mut Option<NodeState> {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }

    fn is_above_whole(&self) -> bool {
        [&self.v4, &self.v6].into_iter().flatten().any(|state| state.permille > PERMILLE)
    }
}

/// What is known of a master of a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MasterState {
    /// Whether it is to be asked.
    pub state: MasterWord,
    /// Why, in words for people.
    pub reason: String,
    /// Unix time in milliseconds since when.
    pub since_ms: u64,
}

/// Whether a master is to be asked. Edges avoid one that is not good while another is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MasterWord {
    /// It answers, and as the others do.
    Good,
    /// It answers otherwise than the others, or is behind them.
    Quarantined,
    /// It does not answer.
    Down,
}

impl MasterWord {
    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Quarantined => "quarantined",
            Self::Down => "down",
        }
    }
}

impl fmt::Display for MasterWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why a document was refused.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// Not the JSON of a node map.
    #[error("not a node map")]
    Json(#[source] serde_json::Error),
    /// Written by a newer Cacheboy.
    #[error("node map format {0} is newer than this program reads ({FORMAT}): upgrade this host")]
    Newer(u32),
    /// The document names what it does not define; the text says which.
    #[error("inconsistent node map: {0}")]
    Inconsistent(String),
}
