//! The walk: through the ordered pools of a class, for one address family, against node states.
//!
//! This is the one place that decides who may be answered; plans and explanations are both read
//! off its [`Walk`].
//!
//! Where the node map has a plan for the clients, `planned` has the rules. Else, in order, for each pool of
//! the list:
//! 1. A member counts when its weight is above zero, it has addresses of the family, it serves such
//!    clients, it is neither drained nor down, it is not unfit for the project, and it has not lost all
//!    of its weight (`permille` of its state). `unknown` counts as up: a checker's ignorance takes
//!    nobody away.
//! 2. The first pool with a member that counts answers.
//! 3. For IPv6, a pool that has no IPv6 configured but is up over IPv4 ends the walk with no data,
//!    unless a pool before it would have answered if its IPv6 were up: the clients are served over
//!    IPv4 from the pool meant for them rather than over IPv6 from a worse one. For IPv4 such a
//!    pool is passed over, since IPv4-only clients would get nothing.
//! 4. When no pool answers, but some members have only lost all of their weight, these count after all:
//!    answering beats every cap.
//! 5. When no pool answers, but some pool has addresses of the family, the project's `all_down`
//!    policy answers:
//!    - `last-good`: of the first pool that has members which are down or unfit (not drained, weight above
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

mod planned;

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::{Family, Name, NodeState, PERMILLE, State};
use nodemap::{AllDown, NodeMap};
use serde::Serialize;

use crate::table::Audience;

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
    /// It serves others than this client.
    NotServed,
    /// A person took it out.
    Drained,
    /// Probes fail.
    Down,
    /// Probes of this project fail.
    Unfit,
    /// It is up, but has lost all of its weight for now.
    Full,
    /// An earlier pool answered, or ended the walk.
    PoolNotReached,
    /// Already taken from an earlier pool.
    Repeated,
    /// The plan gives it none of these clients.
    Unplanned,
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
    /// The plan gives it none of these clients.
    Unplanned,
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
    NotServed => "not-served",
    Drained => "drained",
    Down => "down",
    Unfit => "unfit",
    Full => "full",
    PoolNotReached => "pool-not-reached",
    Repeated => "repeated",
    Unplanned => "unplanned",
});
words!(Outcome {
    Answers => "answers",
    Spilled => "spilled",
    PassedOver => "passed-over",
    NoData => "nodata",
    NotReached => "not-reached",
    LastResort => "last-resort",
    Unplanned => "unplanned",
});

/// How long answers with nodes that are down hold at most, seconds: any of them may be up again at any
/// moment.
pub const LAST_RESORT_TTL_S: u32 = 5;

impl Verdict {
    /// How long an answer holds where the project says `ttl_s`.
    pub fn ttl_s(self, ttl_s: u32) -> u32 {
        match self {
            Self::AllDown => ttl_s.min(LAST_RESORT_TTL_S),
            _ => ttl_s,
        }
    }
}

/// Every step from an ordered list of pools to the nodes that may be answered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Walk {
    /// The address family walked for.
    pub family: Family,
    /// How it ended.
    pub verdict: Verdict,
    /// The pool that answers, when one alone does; by a plan several may.
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
    /// Its share of the answers in millionths, where the plan names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planned_ppm: Option<u32>,
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
    /// Its state, if any is published for the family; that for the project when it is unfit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<NodeState>,
    /// Why it is left out; `None` when it may be answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excluded: Option<Excluded>,
    /// Its expected share of the answers, from 0 to 1.
    pub share: f64,
    /// It could be answered, were its pool reached.
    #[serde(skip)]
    pub(crate) is_able: bool,
}

/// What nodes are judged by.
#[derive(Clone, Copy)]
struct Ground<'a> {
    map: &'a NodeMap,
    /// Whose clients they are.
    project: &'a Name,
    /// The nodes that do not serve the client.
    refused: &'a BTreeSet<Name>,
    /// Whether those without weight left are left out.
    heeds_room: bool,
}

/// Walks the pools of `audience` in order for clients of `project`; see the module for the rules.
pub fn walk(
    map: &NodeMap,
    project: &Name,
    audience: &Audience,
    family: Family,
    all_down: &AllDown,
) -> Walk {
    let ground = Ground { map, project, refused: &audience.refused, heeds_room: true };
    if let Some(walk) = planned::walk(ground, audience, family) {
        return walk;
    }
    let heedful = walk_on(ground, audience, family, all_down);
    let answers = matches!(heedful.verdict, Verdict::Pool | Verdict::Spilled);
    if answers || !heedful.is_full_somewhere() {
        return heedful;
    }
    walk_on(Ground { heeds_room: false, ..ground }, audience, family, all_down)
}

fn walk_on(ground: Ground<'_>, audience: &Audience, family: Family, all_down: &AllDown) -> Walk {
    let mut walk = Walk { family, verdict: Verdict::NoFamily, pool: None, pools: Vec::new() };
    let (mut ended, mut configured) = (false, false);
    for pool in &audience.pools {
        let mut step = PoolStep::judge(ground, pool, family);
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
        } else if family == Family::V6 && !configured && serves(ground, pool, Family::V4) {
            step.outcome = Outcome::NoData;
            ended = true;
        }
        walk.pools.push(step);
    }
    if !ended && configured {
        walk.all_down(ground, all_down);
    }
    walk.share_out();
    walk
}

impl Walk {
    /// The nodes that may be answered, with their steps.
    pub fn included(&self) -> impl Iterator<Item = &NodeStep> {
        self.pools.iter().flat_map(|step| &step.nodes).filter(|node| node.excluded.is_none())
    }

    /// The nodes that could be answered of each pool behind the one that answers, each node once.
    pub fn further(&self) -> impl Iterator<Item = Vec<&NodeStep>> {
        let mut seen: BTreeSet<&Name> = self.included().map(|node| &node.node).collect();
        let not_reached = self.pools.iter().filter(|step| step.outcome == Outcome::NotReached);
        let pools = not_reached.filter(|_| self.included().next().is_some());
        let pools = pools.map(move |step| {
            let able = step.nodes.iter().filter(|node| node.is_able);
            able.filter(|node| seen.insert(&node.node)).collect::<Vec<_>>()
        });
        pools.filter(|nodes| !nodes.is_empty())
    }

    /// Whether some member was left out only because it has no weight left.
    fn is_full_somewhere(&self) -> bool {
        let mut nodes = self.pools.iter().flat_map(|step| &step.nodes);
        nodes.any(|node| node.excluded == Some(Excluded::Full))
    }

    /// Nobody is up: applies the project's policy.
    fn all_down(&mut self, ground: Ground<'_>, policy: &AllDown) {
        match policy {
            AllDown::LastGood => self.last_good(),
            AllDown::All => self.all(),
            AllDown::Pool(pool) => self.policy_pool(ground, pool),
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
        let mut taken = BTreeSet::new();
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

    fn policy_pool(&mut self, ground: Ground<'_>, pool: &Name) {
        let mut step = PoolStep::judge(ground, pool, self.family);
        if !step.answers() {
            step.down().for_each(|(node, _)| node.excluded = None);
        }
        let answers = step.answers();
        let no_family = self.family == Family::V6
            && !step.has_family()
            && has_candidate(ground, pool, Family::V4);
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
        let total: u64 = self.included().map(|node| u64::from(node.effective())).sum();
        for node in self.pools.iter_mut().flat_map(|step| &mut step.nodes) {
            if node.excluded.is_none() {
                // Included weights are above zero, so the total is too.
                node.share = f64::from(node.effective()) / total as f64;
            }
        }
    }
}

impl PoolStep {
    /// Judges every member as if the pool were reached.
    fn judge(ground: Ground<'_>, pool: &Name, family: Family) -> Self {
        let members = ground.map.map.pools.get(pool).into_iter().flatten();
        let nodes = members.map(|(node, weight)| NodeStep::judge(ground, node, *weight, family));
        let nodes = nodes.collect();
        Self { pool: pool.clone(), outcome: Outcome::PassedOver, planned_ppm: None, nodes }
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
        let never = [Excluded::WeightZero, Excluded::NoAddress, Excluded::NotServed];
        self.nodes.iter().any(|node| !node.excluded.is_some_and(|why| never.contains(&why)))
    }

    /// The members left out for being down or unfit and nothing else, with the time they became so.
    fn down(&mut self) -> impl Iterator<Item = (&mut NodeStep, u64)> {
        let failing = [Some(Excluded::Down), Some(Excluded::Unfit)];
        self.nodes.iter_mut().filter(move |node| failing.contains(&node.excluded)).map(|node| {
            let since_ms = node.state.as_ref().map_or(0, |state| state.since_ms);
            (node, since_ms)
        })
    }
}

impl NodeStep {
    /// The part of its weight that it has now, in thousandths of a weight; above zero if the weight is.
    pub(crate) fn effective(&self) -> u32 {
        self.weight.saturating_mul(self.permille().max(1))
    }

    fn permille(&self) -> u32 {
        self.state.as_ref().map_or(PERMILLE, |state| state.permille.min(PERMILLE))
    }

    /// Whether it has the whole of its weight.
    pub(crate) fn is_whole(&self) -> bool {
        self.permille() == PERMILLE
    }

    fn judge(ground: Ground<'_>, node: &Name, weight: u32, family: Family) -> Self {
        let Ground { map, project, refused, heeds_room } = ground;
        let addresses: Vec<IpAddr> =
            map.map.nodes.get(node).into_iter().flat_map(|n| n.addresses_of(family)).collect();
        let state = map.states.get(node).and_then(|states| states.get(family));
        let is_full = heeds_room && state.is_some_and(|state| state.permille == 0);
        let unfit = map.unfit_for(project, node, family);
        let excluded = match state.map_or(State::Unknown, |state| state.state) {
            _ if weight == 0 => Some(Excluded::WeightZero),
            _ if addresses.is_empty() => Some(Excluded::NoAddress),
            _ if refused.contains(node) => Some(Excluded::NotServed),
            State::Drained => Some(Excluded::Drained),
            State::Down => Some(Excluded::Down),
            State::Up | State::Unknown if unfit.is_some() => Some(Excluded::Unfit),
            State::Up | State::Unknown if is_full => Some(Excluded::Full),
            State::Up | State::Unknown => None,
        };
        let state = unfit.filter(|_| excluded == Some(Excluded::Unfit)).or(state).cloned();
        let is_able = excluded.is_none();
        Self { node: node.clone(), weight, addresses, state, excluded, share: 0.0, is_able }
    }
}

/// Whether `pool` could answer over `family` now.
fn serves(ground: Ground<'_>, pool: &Name, family: Family) -> bool {
    PoolStep::judge(ground, pool, family).answers()
}

/// Whether `pool` has a member for `family` that is up or down, but neither drained nor without
/// weight.
fn has_candidate(ground: Ground<'_>, pool: &Name, family: Family) -> bool {
    let step = PoolStep::judge(ground, pool, family);
    let counts = |node: &NodeStep| match node.excluded {
        None | Some(Excluded::Down | Excluded::Unfit | Excluded::Full) => true,
        Some(_) => false,
    };
    step.nodes.iter().any(counts)
}
