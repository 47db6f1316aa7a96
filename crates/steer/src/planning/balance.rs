//! Groups, pools, nodes and sites as a network, and its solution as weights.
//!
//! Phases of [`Model::solve`]: the cheapest flow says how much of each group is in which pool, and how much
//! each node may have at most -> inside pools by weight, scaled until nobody has too much (iterative
//! proportional fitting: of all splits within the limits the one nearest to the weights) -> what does not
//! fit yet is moved along paths that have room (maximum flow) -> shares in millionths.

#![allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "indices were given out here; amounts are bounded by `flow::LIMIT`, the rest are floats"
)]

use std::collections::{BTreeMap, HashMap};

use model::{Name, PERMILLE, Rate};
use nodemap::published::{LoadPlan, PlannedList, SHARE_PPM, SPLIT_WEIGHT_MAX, Tier};
use nodemap::{Bill, NodeMap};

use super::flow::{LIMIT, Network};
use super::{Group, Load, pools_of, shares_of};
use crate::walk::{NodeStep, Walk};

/// What of a limit is planned for, in thousandths: rounding never exceeds the rest.
const PLANNED_PERMILLE: i64 = 999;
/// Where load above a capacity costs more, in thousandths of the capacity: what is too much is spread.
const ABOVE_PERMILLE: [i64; 8] = [1_000, 1_050, 1_100, 1_250, 1_500, 2_000, 4_000, 8_000];
/// Most rounds of fitting; what is left then is moved along paths.
const ROUNDS: usize = 200;
/// Overload at which fitting is good enough.
const FIT: f64 = 1e-4;
/// Difference of shares inside a pool that is not worth a plan.
const SAME: f64 = 0.002;
/// Mean month, seconds.
const MONTH_S: f64 = 30.44 * 86_400.0;
/// Most that a group or limit counts, bits per second: a thousand Tbit/s.
const RATE_MAX: f64 = 1e15;

/// A node or site.
#[derive(Debug)]
struct Place {
    name: Name,
    capacity: Option<f64>,
    commit: Option<f64>,
}

/// The nodes of a pool that serve some groups.
#[derive(Debug, PartialEq, Eq, Hash)]
struct View {
    pool: Name,
    family: model::Family,
    /// Node, weight, and the same with what states cut.
    members: Vec<(usize, u32, u32)>,
}

/// A group as the network has it.
#[derive(Debug)]
struct Client {
    group: Group,
    demand: i64,
    /// View, and the share that it has now, from 0 to 1.
    choices: Vec<(usize, f64)>,
}

#[derive(Debug)]
pub(super) struct Model {
    nodes: Vec<Place>,
    sites: Vec<Place>,
    /// By node.
    site_of: Vec<usize>,
    views: Vec<View>,
    clients: Vec<Client>,
}

/// What a bit per second costs.
struct Costs {
    /// One pool further down the list; moving is 1.
    step: i64,
    /// Above what is paid for.
    commit: i64,
    /// Above a capacity, and more the further.
    above: i64,
}

/// What the first phase found.
struct Routed {
    /// By client and choice.
    shares: Vec<Vec<i64>>,
    /// By view.
    totals: Vec<i64>,
    /// What nodes and sites may have at most.
    node_limits: Vec<i64>,
    site_limits: Vec<i64>,
}

/// What these arcs carry together.
fn flow_of(net: &Network, arcs: &[usize]) -> i64 {
    arcs.iter().map(|arc| net.flow(*arc)).fold(0, i64::saturating_add)
}

fn whole(rate: f64) -> i64 {
    rate.clamp(0.0, RATE_MAX) as i64
}

impl Model {
    pub(super) fn new(
        map: &NodeMap,
        groups: &[(Group, f64)],
        ordinary: &[Walk],
        current: &[Walk],
    ) -> Self {
        let rate = |rate: Rate| rate.0 as f64;
        let sites: Vec<Place> = map
            .map
            .sites
            .iter()
            .map(|(name, site)| Place {
                name: name.clone(),
                capacity: site.capacity.map(rate),
                commit: None,
            })
            .collect();
        let numbers: HashMap<&Name, usize> = map.map.nodes.keys().zip(0..).collect();
        let site_numbers: HashMap<&Name, usize> = map.map.sites.keys().zip(0..).collect();
        let nodes = map.map.nodes.iter().map(|(name, node)| {
            let states = map.states.get(name);
            let families = model::Family::ALL.into_iter();
            let left = families.filter_map(|family| Some(states?.get(family)?.permille)).min();
            let left = f64::from(left.unwrap_or(PERMILLE)) / f64::from(PERMILLE);
            let commit = node.bill.and_then(|bill| match bill {
                Bill::P95(commit) => Some(rate(commit)),
                Bill::Monthly(bytes) => Some(bytes.0 as f64 * 8.0 / MONTH_S),
                Bill::Flat => None,
            });
            Place { name: name.clone(), capacity: node.capacity.map(|c| rate(c) * left), commit }
        });
        let mut model = Self {
            nodes: nodes.collect(),
            site_of: map
                .map
                .nodes
                .values()
                .map(|n| site_numbers.get(&n.site).copied().unwrap_or(0))
                .collect(),
            sites,
            views: Vec::new(),
            clients: Vec::new(),
        };
        let mut known = HashMap::new();
        for ((group, demand), (ordinary, current)) in
            groups.iter().zip(ordinary.iter().zip(current))
        {
            let now: BTreeMap<Name, f64> = pools_of(current).into_iter().collect();
            let mut choices: Vec<(usize, f64)> = Vec::new();
            for step in &ordinary.pools {
                let able = step.nodes.iter().filter(|node| node.is_able);
                let member = |n: &NodeStep| Some((*numbers.get(&n.node)?, n.weight, n.effective()));
                let members: Vec<_> = able.filter_map(member).collect();
                if members.is_empty() {
                    continue;
                }
                let view = View { pool: step.pool.clone(), family: group.family, members };
                let key = (view.pool.clone(), view.family, view.members.clone());
                let number = *known.entry(key).or_insert_with(|| {
                    model.views.push(view);
                    model.views.len() - 1
                });
                if choices.iter().all(|(view, _)| *view != number) {
                    choices.push((number, now.get(&step.pool).copied().unwrap_or_default()));
                }
            }
            model.clients.push(Client { group: group.clone(), demand: whole(*demand), choices });
        }
        model
    }

    /// The plan, where it deviates from the admin map.
    pub(super) fn solve(&self) -> LoadPlan {
        let routed = self.route();
        let splits = self.split(&routed);
        let mut plan = LoadPlan::default();
        let mut numbers: HashMap<usize, usize> = HashMap::new();
        for (client, flows) in self.clients.iter().zip(&routed.shares) {
            let total: i64 = flows.iter().copied().fold(0, i64::saturating_add);
            let used: Vec<(usize, i64)> =
                client.choices.iter().map(|c| c.0).zip(flows.iter().copied()).collect();
            let is_first = used.iter().skip(1).all(|(_, flow)| *flow == 0);
            let is_same = used.iter().all(|(view, flow)| *flow == 0 || splits[*view].is_none());
            if total == 0 || (is_first && is_same) {
                continue;
            }
            let mut tiers: Vec<Tier> = Vec::new();
            for (view, flow) in used {
                let share_ppm = (flow as f64 / total as f64 * f64::from(SHARE_PPM)).floor() as u32;
                if share_ppm == 0 {
                    continue;
                }
                let split = *numbers.entry(view).or_insert_with(|| {
                    plan.splits.push(self.named(view, splits[view].as_deref()));
                    plan.splits.len() - 1
                });
                tiers.push(Tier { pool: self.views[view].pool.clone(), share_ppm, split });
            }
            let given: u32 = tiers.iter().map(|tier| tier.share_ppm).sum();
            if let Some(most) = tiers.iter_mut().max_by_key(|tier| tier.share_ppm) {
                most.share_ppm += SHARE_PPM - given;
            }
            let Group { pools, refused, family } = client.group.clone();
            plan.lists.push(PlannedList { pools, refused, family, tiers });
        }
        plan
    }

    /// The split of a view by names; without one that of the admin map.
    fn named(&self, view: usize, split: Option<&[u32]>) -> BTreeMap<Name, u32> {
        let members = self.views[view].members.iter().enumerate();
        let weight = |(at, (node, weight, _)): (usize, &(usize, u32, u32))| {
            (self.nodes[*node].name.clone(), split.map_or(*weight, |split| split[at]))
        };
        members.map(weight).filter(|(_, weight)| *weight > 0).collect()
    }

    /// The cheapest flow.
    fn route(&self) -> Routed {
        let mut net = Network::default();
        let [source, sink] = [net.vertex(), net.vertex()];
        let sites: Vec<usize> = self.sites.iter().map(|_| net.vertex()).collect();
        let nodes: Vec<usize> = self.nodes.iter().map(|_| net.vertex()).collect();
        let views: Vec<usize> = self.views.iter().map(|_| net.vertex()).collect();
        let costs = self.costs();
        let Costs { step, .. } = costs;
        let site_arcs: Vec<_> = self
            .sites
            .iter()
            .zip(&sites)
            .map(|(place, site)| place.arcs(&mut net, *site, sink, &costs))
            .collect();
        let node_arcs: Vec<_> = self
            .nodes
            .iter()
            .zip(&nodes)
            .zip(&self.site_of)
            .map(|((place, node), site)| place.arcs(&mut net, *node, sites[*site], &costs))
            .collect();
        for (view, vertex) in self.views.iter().zip(&views) {
            for (node, ..) in &view.members {
                net.arc(*vertex, nodes[*node], LIMIT, 0);
            }
        }
        let mut arcs: Vec<Vec<[usize; 2]>> = Vec::new();
        for client in &self.clients {
            let vertex = net.vertex();
            net.arc(source, vertex, client.demand, 0);
            let choice = |(depth, (view, now)): (i64, &(usize, f64))| {
                let stays = whole(client.demand as f64 * now);
                let cost = depth * step;
                [
                    net.arc(vertex, views[*view], stays, cost),
                    net.arc(vertex, views[*view], LIMIT, cost + 1),
                ]
            };
            arcs.push((0..).zip(&client.choices).map(choice).collect());
        }
        net.fill(source, sink);
        let shares: Vec<Vec<i64>> =
            arcs.iter().map(|arcs| arcs.iter().map(|pair| flow_of(&net, pair)).collect()).collect();
        let mut totals: Vec<i64> = vec![0; self.views.len()];
        for (client, flows) in self.clients.iter().zip(&shares) {
            for ((view, _), flow) in client.choices.iter().zip(flows) {
                totals[*view] = totals[*view].saturating_add(*flow);
            }
        }
        // Up to what is paid for weights decide, above only the flow.
        let limits = |places: &[Place], arcs: &[Vec<usize>]| -> Vec<i64> {
            let both = places.iter().zip(arcs);
            both.map(|(place, arcs)| flow_of(&net, arcs).max(place.limits().1)).collect()
        };
        Routed {
            node_limits: limits(&self.nodes, &node_arcs),
            site_limits: limits(&self.sites, &site_arcs),
            shares,
            totals,
        }
    }

    /// What wishes cost: a path that takes back what went elsewhere may pass each group, node and site once,
    /// and even so less of a later wish does not buy more of an earlier one.
    fn costs(&self) -> Costs {
        let places = self.clients.len() + self.nodes.len() + self.sites.len();
        let step = 2 * (places as i64 + 2);
        let deepest = self.clients.iter().map(|client| client.choices.len()).max().unwrap_or(0);
        let commit = step * step * (deepest as i64 + 1);
        Costs { step, commit, above: commit * step }
    }

    /// By view: the weights inside it, where they are not those of the admin map.
    fn split(&self, routed: &Routed) -> Vec<Option<Vec<u32>>> {
        let fitted = self.fit(routed);
        let moved = self.fill_up(routed, &fitted);
        let of_view = |(view, flows): (&View, &Vec<i64>)| {
            let total: i64 = flows.iter().copied().fold(0, i64::saturating_add);
            let meant: f64 = view.members.iter().map(|(_, _, weight)| f64::from(*weight)).sum();
            let mut members = view.members.iter().zip(flows);
            let is_same = |((_, _, weight), flow): (&(usize, u32, u32), &i64)| {
                (*flow as f64 / total as f64 - f64::from(*weight) / meant).abs() <= SAME
            };
            if total == 0 || members.all(is_same) {
                return None;
            }
            // What states cut is cut again when answers are made.
            let members = view.members.iter().zip(flows);
            let raw: Vec<f64> = members
                .map(|((_, whole, left), flow)| *flow as f64 * f64::from(*whole) / f64::from(*left))
                .collect();
            let most = raw.iter().copied().fold(0.0, f64::max);
            Some(
                raw.iter()
                    .map(|flow| (flow / most * f64::from(SPLIT_WEIGHT_MAX)).round() as u32)
                    .collect(),
            )
        };
        self.views.iter().zip(&moved).map(of_view).collect()
    }

    /// By view and member: what is nearest to the weights, within the limits as far as it got.
    fn fit(&self, routed: &Routed) -> Vec<Vec<f64>> {
        let mut node_scale = vec![1.0f64; self.nodes.len()];
        let mut site_scale = vec![1.0f64; self.sites.len()];
        let mut flows: Vec<Vec<f64>> = Vec::new();
        for _ in 0..ROUNDS {
            flows.clear();
            for (view, total) in self.views.iter().zip(&routed.totals) {
                let scaled = view.members.iter().map(|(node, _, weight)| {
                    f64::from(*weight) * node_scale[*node] * site_scale[self.site_of[*node]]
                });
                let scaled: Vec<f64> = scaled.collect();
                let sum: f64 = scaled.iter().sum();
                flows.push(
                    scaled
                        .iter()
                        .map(|part| *total as f64 * part / sum.max(f64::MIN_POSITIVE))
                        .collect(),
                );
            }
            let (node_loads, site_loads) = self.loads_of(&flows);
            let mut worst: f64 = 0.0;
            let mut rescale = |scales: &mut [f64], loads: &[f64], limits: &[i64]| {
                for ((scale, load), limit) in scales.iter_mut().zip(loads).zip(limits) {
                    if *load > 0.0 {
                        let ratio = *limit as f64 / load;
                        worst = worst.max(1.0 / ratio.max(1e-9) - 1.0);
                        *scale = (*scale * ratio).clamp(1e-12, 1.0);
                    }
                }
            };
            rescale(&mut site_scale, &site_loads, &routed.site_limits);
            rescale(&mut node_scale, &node_loads, &routed.node_limits);
            if worst <= FIT {
                break;
            }
        }
        flows
    }

    fn loads_of(&self, flows: &[Vec<f64>]) -> (Vec<f64>, Vec<f64>) {
        let (mut nodes, mut sites) = (vec![0.0; self.nodes.len()], vec![0.0; self.sites.len()]);
        for (view, flows) in self.views.iter().zip(flows) {
            for ((node, ..), flow) in view.members.iter().zip(flows) {
                nodes[*node] += flow;
                sites[self.site_of[*node]] += flow;
            }
        }
        (nodes, sites)
    }

    /// The same cut to the limits, and what was cut off moved to where there is room: the cheapest flow
    /// shows that there is.
    fn fill_up(&self, routed: &Routed, fitted: &[Vec<f64>]) -> Vec<Vec<i64>> {
        let (node_loads, site_loads) = self.loads_of(fitted);
        let cut =
            |limit: i64, load: f64| if load > limit as f64 { limit as f64 / load } else { 1.0 };
        let mut net = Network::default();
        let [source, sink] = [net.vertex(), net.vertex()];
        let sites: Vec<usize> = self.sites.iter().map(|_| net.vertex()).collect();
        let nodes: Vec<usize> = self.nodes.iter().map(|_| net.vertex()).collect();
        let out: Vec<usize> = sites
            .iter()
            .zip(&routed.site_limits)
            .map(|(site, limit)| net.arc(*site, sink, *limit, 0))
            .collect();
        let through: Vec<usize> = nodes
            .iter()
            .zip(&routed.node_limits)
            .zip(&self.site_of)
            .map(|((node, limit), site)| net.arc(*node, sites[*site], *limit, 0))
            .collect();
        let mut arcs: Vec<Vec<usize>> = Vec::new();
        for ((view, total), flows) in self.views.iter().zip(&routed.totals).zip(fitted) {
            let vertex = net.vertex();
            let inward = net.arc(source, vertex, *total, 0);
            let mut of_view = Vec::new();
            for ((node, ..), flow) in view.members.iter().zip(flows) {
                let arc = net.arc(vertex, nodes[*node], LIMIT, 0);
                let site = self.site_of[*node];
                let kept = cut(routed.node_limits[*node], node_loads[*node])
                    .min(cut(routed.site_limits[site], site_loads[site]));
                // Rounded down, so that no arc takes more than it can.
                let amount = whole(flow * kept);
                [inward, arc, through[*node], out[site]]
                    .into_iter()
                    .for_each(|arc| net.preset(arc, amount));
                of_view.push(arc);
            }
            arcs.push(of_view);
        }
        net.fill(source, sink);
        arcs.iter().map(|arcs| arcs.iter().map(|arc| net.flow(*arc)).collect()).collect()
    }

    /// What each node is expected to have.
    pub(super) fn loads(
        &self,
        groups: &[(Group, f64)],
        before: &[Walk],
        after: &[Walk],
    ) -> Vec<Load> {
        let (before, after) = (load(groups, before), load(groups, after));
        self.nodes.iter().map(|place| place.load(&before, &after, [&place.name])).collect()
    }

    /// What each site is expected to have.
    pub(super) fn site_loads(
        &self,
        groups: &[(Group, f64)],
        before: &[Walk],
        after: &[Walk],
    ) -> Vec<Load> {
        let (before, after) = (load(groups, before), load(groups, after));
        let of_site = |(at, place): (usize, &Place)| {
            let nodes = self.nodes.iter().zip(&self.site_of).filter(|(_, site)| **site == at);
            place.load(&before, &after, nodes.map(|(node, _)| &node.name))
        };
        self.sites.iter().enumerate().map(of_site).collect()
    }
}

impl Place {
    /// What of its capacity is planned for, and of that what is paid for.
    fn limits(&self) -> (i64, i64) {
        let planned = |rate: f64| whole(rate) / 1000 * PLANNED_PERMILLE;
        let capacity = self.capacity.map_or(LIMIT, planned);
        (capacity, self.commit.map_or(LIMIT, planned).min(capacity))
    }

    /// Arcs of rising cost through it.
    fn arcs(&self, net: &mut Network, from: usize, to: usize, costs: &Costs) -> Vec<usize> {
        let (capacity, paid) = self.limits();
        let mut arcs =
            vec![net.arc(from, to, paid, 0), net.arc(from, to, capacity - paid, costs.commit)];
        if capacity < LIMIT {
            for (at, (from_permille, times)) in ABOVE_PERMILLE.into_iter().zip(1..).enumerate() {
                let until = ABOVE_PERMILLE.get(at + 1);
                let width = until.map_or(LIMIT, |until| capacity / 1000 * (until - from_permille));
                arcs.push(net.arc(from, to, width, costs.above * times));
            }
        }
        arcs
    }

    fn load<'a>(
        &self,
        before: &BTreeMap<&Name, f64>,
        after: &BTreeMap<&Name, f64>,
        nodes: impl IntoIterator<Item = &'a Name>,
    ) -> Load {
        let mut load = Load {
            name: self.name.clone(),
            capacity_bits_per_s: self.capacity,
            commit_bits_per_s: self.commit,
            before_bits_per_s: 0.0,
            after_bits_per_s: 0.0,
        };
        for node in nodes {
            load.before_bits_per_s += before.get(node).copied().unwrap_or_default();
            load.after_bits_per_s += after.get(node).copied().unwrap_or_default();
        }
        load
    }
}

/// By node: what these walks bring it.
fn load<'a>(groups: &[(Group, f64)], walks: &'a [Walk]) -> BTreeMap<&'a Name, f64> {
    let mut loads = BTreeMap::new();
    for ((_, demand), walk) in groups.iter().zip(walks) {
        for (node, share) in shares_of(walk) {
            *loads.entry(node).or_default() += demand * share;
        }
    }
    loads
}
