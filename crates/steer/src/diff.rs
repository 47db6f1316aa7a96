//! Who moves where from one steering to another: other maps, other states, other databases.
//!
//! Goes through both class tables and the new locations together, from border to border, so that what
//! it says is exact. A client *moves between pools* where the pool that answers is another one; *between
//! nodes* it moves with the chance that the two answers differ: half of what the shares of the nodes
//! change by, together.
//!
//! Counts addresses of clients (IPv6 by networks of 48 bits) in the family that they come by. Given what
//! was sent to whom, it counts bytes too.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use locate::runs::Bits;
use locate::{Evidence, Locator};
use model::{Asn, CountryCode, Family, Name};
use serde::Serialize;

use crate::plan::Plan;
use crate::steering::Steering;
use crate::table::ClassId;

/// Version of the JSON document.
const FORMAT: u32 = 1;
/// Addresses of a network that IPv6 is counted by, as a shift.
const NETWORK_SHIFT: u32 = 80;

/// The difference between two steerings, for the projects that both have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// Version of this document.
    pub format: u32,
    /// Generations of the node maps; 0 for maps that were never published.
    pub generations: (u64, u64),
    /// By project and family of the clients.
    pub projects: Vec<Part>,
    /// Projects that only one of the two has.
    pub not_compared: Vec<Name>,
}

/// What moves of the clients of one project and family.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// The project.
    pub project: Name,
    /// The family of the clients.
    pub family: Family,
    /// All clients.
    pub all: Amount,
    /// Those that move between pools.
    pub moved: Amount,
    /// The same by pool before and pool after, the largest first. A word in brackets stands for a pool
    /// where none answers.
    pub pools: Vec<Row<(String, String)>>,
    /// Expected to move between nodes, those that move between pools included.
    pub moved_between_nodes: Amount,
    /// By node: what it has before and after.
    pub nodes: Vec<NodeRow>,
    /// Of those that move between pools the largest countries.
    pub countries: Vec<Row<Option<CountryCode>>>,
    /// And the largest networks.
    pub asns: Vec<Row<Option<Asn>>>,
}

/// A number of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Amount {
    /// IPv4 addresses, or IPv6 networks of 48 bits.
    pub clients: f64,
    /// Bytes sent to them, by the usage that was given.
    pub bytes: f64,
}

/// An amount under a key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row<K> {
    /// What it is of.
    pub key: K,
    /// The amount.
    pub amount: Amount,
}

/// A node before and after.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeRow {
    /// The node.
    pub node: Name,
    /// What it is expected to have.
    pub before: Amount,
    /// What it will have.
    pub after: Amount,
}

/// Clients that neither steering nor the locations tell apart.
type Group = (ClassId, ClassId, Evidence);

/// Compares two steerings.
#[derive(Debug)]
pub struct Differ<'a> {
    old: &'a Steering,
    new: &'a Steering,
    /// Tells countries and networks.
    locator: &'a Locator,
    /// Clients by family, exact: of IPv6 single addresses.
    groups: [BTreeMap<Group, u128>; 2],
    bytes: HashMap<(Name, Family, Group), u64>,
}

impl<'a> Differ<'a> {
    /// Between `old` and `new`, whose table was compiled from `locator`.
    pub fn new(old: &'a Steering, new: &'a Steering, locator: &'a Locator) -> Self {
        let (a, b) = (old.table(), new.table());
        let v4 = joined(a.ranges_v4(), b.ranges_v4(), locator.ranges_v4());
        let v6 = joined(a.ranges_v6(), b.ranges_v6(), locator.ranges_v6());
        Self { old, new, locator, groups: [v4, v6], bytes: HashMap::new() }
    }

    /// Counts bytes that were sent to a client of a project.
    pub fn sent(&mut self, project: &Name, client: IpAddr, bytes: u64) {
        let client = client.to_canonical();
        let location = self.locator.locate(client);
        let evidence = Evidence {
            asn: location.asn,
            country: location.country,
            continent: location.continent,
        };
        let classes =
            (self.old.table().lookup(client).class, self.new.table().lookup(client).class);
        let key = (project.clone(), Family::of(client), (classes.0, classes.1, evidence));
        let sum = self.bytes.entry(key).or_default();
        *sum = sum.saturating_add(bytes);
    }

    /// The difference; of countries and networks the largest `top`.
    pub fn diff(&self, top: usize) -> Diff {
        let projects = |steering: &'a Steering| steering.map().map.projects.keys();
        let has = |steering: &Steering, name: &Name| steering.map().map.projects.contains_key(name);
        let only = projects(self.old).filter(|name| !has(self.new, name));
        let only = only.chain(projects(self.new).filter(|name| !has(self.old, name)));
        let both = projects(self.old).filter(|name| has(self.new, name));
        let parts = both.flat_map(|name| Family::ALL.map(|family| self.part(name, family, top)));
        Diff {
            format: FORMAT,
            generations: (self.old.map().generation, self.new.map().generation),
            projects: parts.collect(),
            not_compared: only.cloned().collect(),
        }
    }

    fn part(&self, project: &Name, family: Family, top: usize) -> Part {
        let [v4, v6] = &self.groups;
        let groups = if family == Family::V4 { v4 } else { v6 };
        let mut sums = Sums::default();
        for (group, addresses) in groups {
            let bytes = self.bytes.get(&(project.clone(), family, *group));
            let count = Count { addresses: *addresses, bytes: bytes.copied().unwrap_or_default() };
            let (old_class, new_class, evidence) = *group;
            let old = self.old.plan(project, old_class, family);
            let new = self.new.plan(project, new_class, family);
            // The IPv4-mapped block has a class without plans: its clients are counted as IPv4.
            if let (Some(old), Some(new)) = (old, new) {
                sums.add(family, count, old, new, evidence);
            }
        }
        sums.part(project.clone(), family, top)
    }
}

/// A number of clients, exact.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// Single addresses, of IPv6 too.
    addresses: u128,
    bytes: u64,
}

impl Count {
    fn add(&mut self, other: Self) {
        self.addresses = self.addresses.saturating_add(other.addresses);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    fn amount(self, family: Family) -> Amount {
        let clients = match family {
            Family::V4 => self.addresses as f64,
            Family::V6 => self.addresses as f64 / (1u128 << NETWORK_SHIFT) as f64,
        };
        Amount { clients, bytes: self.bytes as f64 }
    }
}

impl Amount {
    fn add(&mut self, other: Self, share: f64) {
        self.clients += other.clients * share;
        self.bytes += other.bytes * share;
    }

    /// This part of `all`, from 0 to 1: of clients, and of bytes.
    pub fn shares(self, all: Self) -> (f64, f64) {
        let share = |part: f64, all: f64| if all > 0.0 { part / all } else { 0.0 };
        (share(self.clients, all.clients), share(self.bytes, all.bytes))
    }
}

/// What one part is made of.
#[derive(Default)]
struct Sums {
    all: Count,
    moved: Amount,
    between_nodes: Amount,
    pools: BTreeMap<(String, String), Amount>,
    nodes: BTreeMap<Name, (Amount, Amount)>,
    countries: BTreeMap<Option<CountryCode>, Amount>,
    asns: BTreeMap<Option<Asn>, Amount>,
}

impl Sums {
    fn add(&mut self, family: Family, count: Count, old: &Plan, new: &Plan, evidence: Evidence) {
        self.all.add(count);
        let amount = count.amount(family);
        let mut chances: BTreeMap<&Name, (f64, f64)> = BTreeMap::new();
        for (node, share) in old.shares() {
            chances.entry(node).or_default().0 += share;
            self.nodes.entry(node.clone()).or_default().0.add(amount, share);
        }
        for (node, share) in new.shares() {
            chances.entry(node).or_default().1 += share;
            self.nodes.entry(node.clone()).or_default().1.add(amount, share);
        }
        // What some nodes lose others gain, unless nobody answered before.
        let gained: f64 = chances.values().map(|(old, new)| (new - old).max(0.0)).sum();
        let lost: f64 = chances.values().map(|(old, new)| (old - new).max(0.0)).sum();
        self.between_nodes.add(amount, gained.max(lost));
        for ((from, to), share) in moves(old, new) {
            self.moved.add(amount, share);
            self.pools.entry((from, to)).or_default().add(amount, share);
            self.countries.entry(evidence.country).or_default().add(amount, share);
            self.asns.entry(evidence.asn).or_default().add(amount, share);
        }
    }

    fn part(self, project: Name, family: Family, top: usize) -> Part {
        let nodes = self.nodes.into_iter();
        Part {
            project,
            family,
            all: self.all.amount(family),
            moved: self.moved,
            pools: rows(self.pools, usize::MAX),
            moved_between_nodes: self.between_nodes,
            nodes: nodes.map(|(node, (before, after))| NodeRow { node, before, after }).collect(),
            countries: rows(self.countries, top),
            asns: rows(self.asns, top),
        }
    }
}

/// The pools that answer with their shares, or in brackets how else it ends.
fn answering(plan: &Plan) -> Vec<(String, f64)> {
    let pools: Vec<_> = plan.pools().map(|(pool, share)| (pool.to_string(), share)).collect();
    match pools.is_empty() {
        true => vec![(format!("[{}]", plan.verdict), 1.0)],
        false => pools,
    }
}

/// Which share moves from which pool to which: what each pool has less of goes to those that have more, in
/// proportion.
fn moves(old: &Plan, new: &Plan) -> Vec<((String, String), f64)> {
    let (old, new) = (answering(old), answering(new));
    let share_in = |all: &[(String, f64)], pool: &str| -> f64 {
        all.iter().filter(|(name, _)| name == pool).map(|(_, share)| share).sum()
    };
    let changed = |these: &[(String, f64)], others: &[(String, f64)]| -> Vec<(String, f64)> {
        let more = these.iter().map(|(pool, share)| (pool.clone(), share - share_in(others, pool)));
        more.filter(|(_, more)| *more > 0.0).collect()
    };
    let (lost, gained) = (changed(&old, &new), changed(&new, &old));
    let total: f64 = gained.iter().map(|(_, more)| more).sum();
    let pair = |(from, less): &(String, f64)| {
        let less = *less;
        let from = from.clone();
        gained.iter().map(move |(to, more)| ((from.clone(), to.clone()), less * more / total))
    };
    lost.iter().flat_map(pair).collect()
}

/// The largest `top`, by bytes, then by clients.
fn rows<K: Ord>(sums: BTreeMap<K, Amount>, top: usize) -> Vec<Row<K>> {
    let mut sums: Vec<(K, Amount)> = sums.into_iter().collect();
    // Stable: what is equal stays in the order of the keys.
    let order =
        |a: &Amount, b: &Amount| b.bytes.total_cmp(&a.bytes).then(b.clients.total_cmp(&a.clients));
    sums.sort_by(|(_, a), (_, b)| order(a, b));
    sums.truncate(top);
    sums.into_iter().map(|(key, amount)| Row { key, amount }).collect()
}

/// How many addresses each group has: a walk over the borders of all three together.
pub(crate) fn joined<K: Bits + Into<u128>>(
    old: impl Iterator<Item = (K, ClassId)>,
    new: impl Iterator<Item = (K, ClassId)>,
    places: impl Iterator<Item = (K, K, Evidence)>,
) -> BTreeMap<Group, u128> {
    let mut groups: BTreeMap<Group, u128> = BTreeMap::new();
    let (mut old, mut new) = (Classes::new(old), Classes::new(new));
    for (first, last, evidence) in places {
        let mut next = Some(first);
        while let Some(at) = next.filter(|at| *at <= last) {
            let ((old_class, old_until), (new_class, new_until)) = (old.at(at), new.at(at));
            let until = last.min(old_until).min(new_until);
            let (from, to): (u128, u128) = (at.into(), until.into());
            let count = to.saturating_sub(from).saturating_add(1);
            let sum = groups.entry((old_class, new_class, evidence)).or_default();
            *sum = sum.saturating_add(count);
            next = until.after();
        }
    }
    groups
}

/// A walk upwards through the ranges of a table.
struct Classes<K, I: Iterator<Item = (K, ClassId)>> {
    left: std::iter::Peekable<I>,
    class: ClassId,
}

impl<K: Bits, I: Iterator<Item = (K, ClassId)>> Classes<K, I> {
    fn new(ranges: I) -> Self {
        Self { left: ranges.peekable(), class: ClassId::default() }
    }

    /// The class of an address, which is never below the one asked before, and the last address up to
    /// which all have it.
    fn at(&mut self, address: K) -> (ClassId, K) {
        while let Some((_, class)) = self.left.next_if(|(first, _)| *first <= address) {
            self.class = class;
        }
        let until = self.left.peek().and_then(|(next, _)| next.before());
        (self.class, until.unwrap_or(K::MAX))
    }
}
