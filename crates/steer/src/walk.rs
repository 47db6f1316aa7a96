//! The walk: through the ordered pools of a class, for one address family, against node states.
//!
//! This is the one place that decides who may be answered; plans and explanations are both read
//! off its [`Walk`].
//!
//! Rules, in order, for each pool of the list:
//! 1. A member counts when its weight is above zero, it has addresses of the family, and it is
//!    neither drained nor down. `unknown` counts as up: a checker's ignorance takes nobody away.
//! 2. The first pool with a member that counts answers.
//! 3. For IPv6, a pool that has no IPv6 configured but is up over IPv4 ends the walk with no data,
//!    unless a pool before it would have answered if its IPv6 were up: the clients are served over
//!    IPv4 from the pool meant for them rather than over IPv6 from a worse one. For IPv4 such a
//!    pool is passed over, since IPv4-only clients would get nothing.
//! 4. When no pool answers, but some pool has addresses of the family, the project's `all_down`
//!    policy answers:
//!    - `last-good`: of the first pool that has members which are down (not drained, weight above
//!      zero, with addresses of the family), those that went down last: whose `since_ms` is within
//!      [`LAST_GOOD_WINDOW_MS`] of the latest. It depends on the published states alone, so that
//!      every DNS node answers the same, also after a restart.
//!    - `all`: every such member of every pool of the list, each once, with the weight it has in
//!      the first pool that lists it.
//!    - `pool:NAME`: the members of that pool that are up; if none is, those that are down; if it
//!      has nobody for the family, no data where it could answer over IPv4, else as `last-good`.
//!    - `nodata`, `servfail`: that.
//!
//!    If only drained nodes are left it is a server failure, not no data: a resolver would cache
//!    the latter as truth.

use std::net::IpAddr;

use model::{Family, Name, NodeState, State};
use nodemap::{AllDown, NodeMap};
use serde::Serialize;

/// How far before the latest a node may have gone down and still be "last good", milliseconds: the
/// checkers need some rounds to see one outage on all nodes.
pub const LAST_GOOD_WINDOW_MS: u64 = 60_000;

/// How a walk ended. Prints as one stable word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The first pool answers.
    Pool,
    /// A later pool answers.
    Spilled,
    /// Nobody is up; the `all_down` policy chose nodes.
    AllDown,
    /// No data, because the pool meant for the client has no addresses of this family.
    NoFamily,
    /// No data, because nobody is up and the project wants that.
    NoData,
    /// Server failure, because nobody is up and the project wants that, or only drained nodes are
    /// left.
    ServFail,
}

/// Why a node is left out. Prints as one stable word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Excluded {
    /// Its weight in the pool is zero.
    WeightZero,
    /// It has no address of the family.
    NoAddress,
    /// A person took it out.
    Drained,
    /// Probes fail.
    Down,
    /// An earlier pool answered, or ended the walk.
    PoolNotReached,
    /// Already taken from an earlier pool.
    Repeated,
}

/// What became of a pool. Prints as one stable word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It answers.
    Answers,
    /// It has addresses of the family, but nobody is up.
    Spilled,
    /// It has no addresses of the family, and is passed over.
    PassedOver,
    /// It has no addresses of the family, and that is the answer.
    NoData,
    /// An earlier pool answered, or ended the walk.
    NotReached,
    /// Nobody is up anywhere; `all_down` took nodes from here.
    LastResort,
}

macro_rules! words {
    ($t:ty { $($variant:ident => $word:literal),+ $(,)? }) => {
        impl $t {
            /// The stable word.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }
        impl std::fmt::Display for $t {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
        impl serde::Serialize for $t {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
    };
}
pub(crate) use words;

words!(Verdict {
    Pool => "pool",
    Spilled => "spilled",
    AllDown => "all-down",
    NoFamily => "no-family",
    NoData => "nodata",
    ServFail => "servfail",
});
words!(Excluded {
    WeightZero => "weight-zero",
    NoAddress => "no-address",
    Drained => "drained",
    Down => "down",
    PoolNotReached => "pool-not-reached",
    Repeated => "repeated",
});
words!(Outcome {
    Answers => "answers",
    Spilled => "spilled",
    PassedOver => "passed-over",
    NoData => "nodata",
    NotReached => "not-reached",
    LastResort => "last-resort",
});

/// Every step from an ordered list of pools to the nodes that may be answered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Walk {
    /// The address family walked for.
    pub family: Family,
    /// How it ended.
    pub verdict: Verdict,
    /// The pool that answers, when one alone does.
    pub pool: Option<Name>,
    /// The pools in order; behind them that of the `all_down` policy, if it was asked and is not
    /// in the list.
    pub pools: Vec<PoolStep>,
}

/// One pool of a walk.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolStep {
    /// The pool.
    pub pool: Name,
    /// What became of it.
    pub outcome: Outcome,
    /// Its members in the order of their names.
    pub nodes: Vec<NodeStep>,
}

/// One member of a pool of a walk.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeStep {
    /// The node.
    pub node: Name,
    /// Its weight in this pool.
    pub weight: u32,
    /// Its addresses of the family.
    pub addresses: Vec<IpAddr>,
    /// Its state, if any is published for the family.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<NodeState>,
    /// Why it is left out; `None` when it may be answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excluded: Option<Excluded>,
    /// Its expected share of the answers, from 0 to 1.
    pub share: f64,
}

/// Walks `pools` in order; see the module for the rules.
pub fn walk(map: &NodeMap, pools: &[Name], family: Family, all_down: &AllDown) -> Walk {
    let mut walk = Walk { family, verdict: Verdict::NoFamily, pool: None, pools: Vec::new() };
    let (mut ended, mut configured) = (false, false);
    for pool in pools {
        let mut step = PoolStep::judge(map, pool, family);
        if ended {
            step.not_reached();
        } else if step.answers() {
            let first = walk.pools.is_empty();
            walk.verdict = if first { Verdict::Pool } else { Verdict::Spilled };
            walk.pool = Some(pool.clone());
            step.outcome = Outcome::Answers;
            ended = true;
        } else if step.has_family() {
            step.outcome = Outcome::Spilled;
            configured = true;
        } else if family == Family::V6 && !configured && serves(map, pool, Family::V4) {
            step.outcome = Outcome::NoData;
            ended = true;
        }
        walk.pools.push(step);
    }
    if !ended && configured {
        walk.all_down(map, all_down);
    }
    walk.share_out();
    walk
}

impl Walk {
    /// The nodes that may be answered, with their steps.
    pub fn included(&self) -> impl Iterator<Item = &NodeStep> {
        self.pools.iter().flat_map(|step| &step.nodes).filter(|node| node.excluded.is_none())
    }

    /// Nobody is up: applies the project's policy.
    fn all_down(&mut self, map: &NodeMap, policy: &AllDown) {
        match policy {
            AllDown::LastGood => self.last_good(),
            AllDown::All => self.all(),
            AllDown::Pool(pool) => self.policy_pool(map, pool),
            AllDown::NoData => self.verdict = Verdict::NoData,
            AllDown::ServFail => self.verdict = Verdict::ServFail,
        }
    }

    fn last_good(&mut self) {
        self.verdict = Verdict::ServFail;
        for step in &mut self.pools {
            let latest = step.down().map(|(_, since_ms)| since_ms).max();
            let Some(latest) = latest else { continue };
            let from = latest.saturating_sub(LAST_GOOD_WINDOW_MS);
            step.down().filter(|(_, since_ms)| *since_ms >= from).for_each(|(node, _)| {
                node.excluded = None;
            });
            step.outcome = Outcome::LastResort;
            self.verdict = Verdict::AllDown;
            self.pool = Some(step.pool.clone());
            return;
        }
    }

    fn all(&mut self) {
        self.verdict = Verdict::ServFail;
        let mut taken = std::collections::BTreeSet::new();
        for step in &mut self.pools {
            for (node, _) in step.down() {
                let new = taken.insert(node.node.clone());
                node.excluded = (!new).then_some(Excluded::Repeated);
            }
            if step.answers() {
                step.outcome = Outcome::LastResort;
                self.verdict = Verdict::AllDown;
            }
        }
    }

    fn policy_pool(&mut self, map: &NodeMap, pool: &Name) {
        let mut step = PoolStep::judge(map, pool, self.family);
        if !step.answers() {
            step.down().for_each(|(node, _)| node.excluded = None);
        }
        let answers = step.answers();
        let no_family =
            self.family == Family::V6 && !step.has_family() && has_candidate(map, pool, Family::V4);
        step.outcome = match (answers, no_family) {
            (true, _) => Outcome::LastResort,
            (false, true) => Outcome::NoData,
            (false, false) if step.has_family() => Outcome::Spilled,
            (false, false) => Outcome::PassedOver,
        };
        match self.pools.iter_mut().find(|step| step.pool == *pool) {
            Some(place) => *place = step,
            None => self.pools.push(step),
        }
        match (answers, no_family) {
            (true, _) => {
                self.verdict = Verdict::AllDown;
                self.pool = Some(pool.clone());
            }
            (false, true) => self.verdict = Verdict::NoFamily,
            (false, false) => self.last_good(),
        }
    }

    fn share_out(&mut self) {
        let total: u64 = self.included().map(|node| u64::from(node.weight)).sum();
        for node in self.pools.iter_mut().flat_map(|step| &mut step.nodes) {
            if node.excluded.is_none() {
                // Included weights are above zero, so the total is too.
                node.share = f64::from(node.weight) / total as f64;
            }
        }
    }
}

impl PoolStep {
    /// Judges every member as if the pool were reached.
    fn judge(map: &NodeMap, pool: &Name, family: Family) -> Self {
        let members = map.map.pools.get(pool).into_iter().flatten();
        let nodes = members.map(|(node, weight)| NodeStep::judge(map, node, *weight, family));
        Self { pool: pool.clone(), outcome: Outcome::PassedOver, nodes: nodes.collect() }
    }

    fn not_reached(&mut self) {
        self.outcome = Outcome::NotReached;
        self.nodes.iter_mut().for_each(|node| node.excluded = Some(Excluded::PoolNotReached));
    }

    /// Whether some member may be answered.
    fn answers(&self) -> bool {
        self.nodes.iter().any(|node| node.excluded.is_none())
    }

    /// Whether some member that may ever be answered has addresses of the family.
    fn has_family(&self) -> bool {
        self.nodes.iter().any(|node| node.weight > 0 && !node.addresses.is_empty())
    }

    /// The members left out for being down and nothing else, with the time they went down.
    fn down(&mut self) -> impl Iterator<Item = (&mut NodeStep, u64)> {
        self.nodes.iter_mut().filter(|node| node.excluded == Some(Excluded::Down)).map(|node| {
            let since_ms = node.state.as_ref().map_or(0, |state| state.since_ms);
            (node, since_ms)
        })
    }
}

impl NodeStep {
    fn judge(map: &NodeMap, node: &Name, weight: u32, family: Family) -> Self {
        let addresses: Vec<IpAddr> =
            map.map.nodes.get(node).into_iter().flat_map(|n| n.addresses_of(family)).collect();
        let state = map.states.get(node).and_then(|states| states.get(family)).cloned();
        let excluded = match state.as_ref().map_or(State::Unknown, |state| state.state) {
            _ if weight == 0 => Some(Excluded::WeightZero),
            _ if addresses.is_empty() => Some(Excluded::NoAddress),
            State::Drained => Some(Excluded::Drained),
            State::Down => Some(Excluded::Down),
            State::Up | State::Unknown => None,
        };
        Self { node: node.clone(), weight, addresses, state, excluded, share: 0.0 }
    }
}

/// Whether `pool` could answer over `family` now.
fn serves(map: &NodeMap, pool: &Name, family: Family) -> bool {
    PoolStep::judge(map, pool, family).answers()
}

/// Whether `pool` has a member for `family` that is up or down, but neither drained nor without
/// weight.
fn has_candidate(map: &NodeMap, pool: &Name, family: Family) -> bool {
    let step = PoolStep::judge(map, pool, family);
    step.nodes.iter().any(|node| matches!(node.excluded, None | Some(Excluded::Down)))
}
