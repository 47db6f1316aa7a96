//! A solver of linear programs as judge of plans for random networks.

use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};

use super::*;

/// Prices of load above a capacity, by where it begins as a part of the capacity.
const ABOVE: [f64; 8] = [1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 4.0, 8.0];

fn between(dice: &mut Dice, from: u64, to: u64) -> u64 {
    from + dice.below(to - from + 1)
}

/// Ten nodes at four sites in five pools, and up to twelve groups.
fn network(seed: u64) -> (NodeMap, Demand) {
    let mut dice = Dice::seeded(seed);
    let names: Vec<String> = (0..10).map(|node| format!("n{node}")).collect();
    let nodes: Vec<_> = names.iter().map(|n| (n.as_str(), between(&mut dice, 20, 1_000))).collect();
    let mut map = world(&nodes, &[]);
    for site in 0..4 {
        let capacity =
            (dice.below(2) == 0).then(|| Rate(between(&mut dice, 200, 2_000) * 1_000_000));
        map.map.sites.insert(name(&format!("s{site}")), Site { capacity, coordinates: None });
    }
    for node in map.map.nodes.values_mut() {
        node.site = name(&format!("s{}", dice.below(4)));
        if dice.below(3) == 0 {
            let part = node.capacity.unwrap().0 / 100 * between(&mut dice, 20, 90);
            node.bill = Some(Bill::P95(Rate(part)));
        }
    }
    for pool in 0..5 {
        let mut members = BTreeMap::new();
        for _ in 0..between(&mut dice, 1, 5) {
            members
                .insert(name(&names[dice.below(10) as usize]), between(&mut dice, 1, 100) as u32);
        }
        map.map.pools.insert(name(&format!("p{pool}")), members);
    }
    let mut demand = Demand::default();
    // From much room to too little.
    let most = between(&mut dice, 100, 800);
    for _ in 0..between(&mut dice, 3, 12) {
        let mut pools: Vec<String> = Vec::new();
        for _ in 0..between(&mut dice, 1, 4) {
            let pool = format!("p{}", dice.below(5));
            if !pools.contains(&pool) {
                pools.push(pool);
            }
        }
        let pools: Vec<&str> = pools.iter().map(String::as_str).collect();
        let family = Family::ALL[dice.below(2) as usize];
        demand.add(&audience(&pools), family, between(&mut dice, 1, most) as f64 * M);
    }
    (map, demand)
}

/// What a plan or an optimum costs, Mbit/s: above capacities (dearer the further), above commits, by pools
/// further down the list.
type Costs = [f64; 3];

/// The linear program; each wish after the first with the ones before it as constraints.
struct Program<'a> {
    map: &'a NodeMap,
    groups: &'a [(Group, f64)],
    walks: &'a [Walk],
}

impl Program<'_> {
    fn optimum(&self) -> Costs {
        let mut best: Vec<f64> = Vec::new();
        for _ in 0..3 {
            let cost = self.solve(&best);
            best.push(cost);
        }
        [best[0], best[1], best[2]]
    }

    /// The least of the wish after those of which `best` is known.
    fn solve(&self, best: &[f64]) -> f64 {
        let mut problem = Problem::new(OptimizationDirection::Minimize);
        let price = |wish: usize, price: f64| if wish == best.len() { price } else { 0.0 };
        let mut terms: [Vec<(Variable, f64)>; 3] = Default::default();
        let mut loads: BTreeMap<&Name, Vec<(Variable, f64)>> = BTreeMap::new();
        for ((_, demand), walk) in self.groups.iter().zip(self.walks) {
            let mut all = Vec::new();
            let able = walk.pools.iter().filter(|step| step.nodes.iter().any(|node| node.is_able));
            for (depth, step) in able.enumerate() {
                for node in step.nodes.iter().filter(|node| node.is_able) {
                    let flow = problem.add_var(price(2, depth as f64), (0.0, f64::INFINITY));
                    terms[2].push((flow, depth as f64));
                    all.push((flow, 1.0));
                    let site = &self.map.map.nodes[&node.node].site;
                    loads.entry(&node.node).or_default().push((flow, 1.0));
                    loads.entry(site).or_default().push((flow, 1.0));
                }
            }
            problem.add_constraint(all.as_slice(), ComparisonOp::Eq, demand / M);
        }
        for (place, mut load) in loads {
            let (capacity, paid) = limits(self.map, place);
            let Some(capacity) = capacity else { continue };
            let paid = paid.map_or(capacity, |paid| paid.min(capacity));
            let above = problem.add_var(price(1, 1.0), (0.0, capacity - paid));
            terms[1].push((above, 1.0));
            load.push((above, -1.0));
            for (at, from) in ABOVE.iter().enumerate() {
                let width = ABOVE.get(at + 1).map_or(f64::INFINITY, |to| capacity * (to - from));
                let above = problem.add_var(price(0, at as f64 + 1.0), (0.0, width));
                terms[0].push((above, at as f64 + 1.0));
                load.push((above, -1.0));
            }
            problem.add_constraint(load.as_slice(), ComparisonOp::Le, paid);
        }
        for (terms, best) in terms.iter().zip(best) {
            problem.add_constraint(terms.as_slice(), ComparisonOp::Le, best + 1e-3);
        }
        problem.solve().unwrap().into_solution().unwrap().objective()
    }

    /// What clients get by this plan.
    fn costs(&self, planning: &Planning) -> Costs {
        let map = NodeMap { plan: planning.plan.clone(), ..self.map.clone() };
        let mut costs = [0.0; 3];
        let mut loads: BTreeMap<&Name, f64> = BTreeMap::new();
        for ((group, demand), ordinary) in self.groups.iter().zip(self.walks) {
            let walk = group.walk(&map);
            let able = ordinary.pools.iter().filter(|step| step.nodes.iter().any(|n| n.is_able));
            let depths: BTreeMap<&Name, f64> =
                able.map(|step| &step.pool).zip((0..).map(f64::from)).collect();
            costs[2] +=
                pools_of(&walk).iter().map(|(pool, share)| share * depths[pool]).sum::<f64>()
                    * demand
                    / M;
            for (node, share) in shares_of(&walk) {
                let (node, at) = self.map.map.nodes.get_key_value(node).unwrap();
                *loads.entry(node).or_default() += share * demand / M;
                *loads.entry(&at.site).or_default() += share * demand / M;
            }
        }
        for (place, load) in loads {
            let (capacity, paid) = limits(self.map, place);
            let Some(capacity) = capacity else { continue };
            let paid = paid.map_or(capacity, |paid| paid.min(capacity));
            costs[1] += (load.min(capacity) - paid).max(0.0);
            for (at, from) in ABOVE.iter().enumerate() {
                let to = ABOVE.get(at + 1).map_or(f64::INFINITY, |to| to * capacity);
                costs[0] += (load.min(to) - from * capacity).max(0.0) * (at as f64 + 1.0);
            }
        }
        costs
    }
}

/// Capacity of a node or site and what is paid for, Mbit/s.
fn limits(map: &NodeMap, place: &Name) -> (Option<f64>, Option<f64>) {
    let mega = |rate: Rate| rate.0 as f64 / M;
    match (map.map.nodes.get(place), map.map.sites.get(place)) {
        (Some(node), _) => {
            let paid = node.bill.and_then(|bill| match bill {
                Bill::P95(rate) => Some(mega(rate)),
                _ => None,
            });
            (node.capacity.map(mega), paid)
        }
        (None, site) => (site.and_then(|site| site.capacity).map(mega), None),
    }
}

/// Each wish within a hundredth of what is possible without giving up an earlier one. What is kept free for
/// rounding, a thousandth of each limit, counts against it too.
#[test]
fn plans_of_random_networks_are_as_good_as_those_of_a_solver() {
    let (mut crowded, mut spilling) = (0, 0);
    for seed in 0..100 {
        let (map, demand) = network(seed);
        let planning = planned(&map, &demand);
        let (groups, unreachable) = reachable(&map, &demand);
        assert_eq!(unreachable, 0.0);
        let walks: Vec<Walk> = groups.iter().map(|(group, _)| group.walk(&map)).collect();
        let program = Program { map: &map, groups: &groups, walks: &walks };
        let (best, got) = (program.optimum(), program.costs(&planning));
        let all = planning.demand_bits_per_s / M;
        for (best, got) in best.iter().zip(got) {
            assert!(got <= best * 1.01 + all * 0.005, "{seed}: {best:?} {got:?} of {all}");
        }
        crowded += u32::from(best[0] > 1.0);
        spilling += u32::from(best[0] < 1.0 && best[2] > 1.0);
    }
    // Of each kind there are some.
    assert!(crowded > 10 && spilling > 10, "{crowded} {spilling}");
}
