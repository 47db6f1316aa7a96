//! Plans of small networks, worked out by hand; random ones in `judge`.

use model::{Dice, NodeState, Rate, State};
use nodemap::testing::{admin_map, published};
use nodemap::{Bill, Site};

use super::*;

mod judge;

/// One Mbit/s.
const M: f64 = 1e6;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// Nodes with both families and these capacities, Mbit/s, all at the site `here`; pools as given.
fn world(nodes: &[(&str, u64)], pools: &[(&str, &[(&str, u32)])]) -> NodeMap {
    let addresses: &[&str] = &["192.0.2.1", "2001:db8::1"];
    let listed: Vec<_> = nodes.iter().map(|(node, _)| (*node, addresses)).collect();
    let mut map = admin_map(&listed);
    for (node, capacity) in nodes {
        map.nodes.get_mut(&name(node)).unwrap().capacity = Some(Rate(capacity * 1_000_000));
    }
    for (pool, members) in pools {
        let members = members.iter().map(|(node, weight)| (name(node), *weight));
        map.pools.insert(name(pool), members.collect());
    }
    published(1, map)
}

fn audience(pools: &[&str]) -> Audience {
    Audience { pools: pools.iter().map(|pool| name(pool)).collect(), refused: BTreeSet::new() }
}

/// Demand over IPv4 by lists of pools, Mbit/s.
fn demand(groups: &[(&[&str], f64)]) -> Demand {
    let mut demand = Demand::default();
    groups.iter().for_each(|(pools, m)| demand.add(&audience(pools), Family::V4, m * M));
    demand
}

/// What nodes are expected to have, whole Mbit/s.
fn after(planning: &Planning) -> Vec<(&str, i64)> {
    planning
        .nodes
        .iter()
        .map(|n| (n.name.as_str(), (n.after_bits_per_s / M).round() as i64))
        .collect()
}

/// A plan that every reader of node maps takes.
fn planned(map: &NodeMap, demand: &Demand) -> Planning {
    let planning = plan(map, demand);
    let with = NodeMap { plan: planning.plan.clone(), ..map.clone() };
    assert_eq!(NodeMap::parse(&with.to_json()).unwrap().plan, planning.plan);
    planning
}

/// `a` and `b` near, `c` far.
fn near_and_far() -> NodeMap {
    world(
        &[("a", 100), ("b", 100), ("c", 1_000)],
        &[("near", &[("a", 3), ("b", 1)]), ("far", &[("c", 1)])],
    )
}

const NEAR: &[&str] = &["near", "far"];

#[test]
fn with_room_for_all_or_without_demand_admin_weights_hold() {
    let planning = planned(&near_and_far(), &demand(&[(NEAR, 100.0)]));
    assert!(planning.plan.is_empty() && planning.spills.is_empty());
    assert_eq!(after(&planning), [("a", 75), ("b", 25), ("c", 0)]);
    assert_eq!(planning.moved_bits_per_s, 0.0);
    let planning = planned(&near_and_far(), &Demand::default());
    assert!(planning.plan.is_empty());
}

#[test]
fn inside_a_pool_others_help_before_clients_spill() {
    let planning = planned(&near_and_far(), &demand(&[(NEAR, 160.0)]));
    assert_eq!(after(&planning), [("a", 100), ("b", 60), ("c", 0)]);
    assert!(planning.spills.is_empty(), "{:?}", planning.spills);
    assert_eq!(planning.above_capacity_bits_per_s, 0.0);
}

#[test]
fn what_has_no_room_spills_in_order_and_says_why() {
    let planning = planned(&near_and_far(), &demand(&[(NEAR, 300.0)]));
    assert_eq!(after(&planning), [("a", 100), ("b", 100), ("c", 100)]);
    let [spill] = planning.spills.as_slice() else { panic!("{:?}", planning.spills) };
    assert_eq!(spill.full, [name("a"), name("b")]);
    let far = &spill.pools[1];
    assert!(far.0 == name("far") && (far.1 - 1.0 / 3.0).abs() < 0.002, "{far:?}");
}

/// Of two groups the one that has elsewhere to go goes.
#[test]
fn who_can_go_elsewhere_makes_room_for_who_cannot() {
    let groups: &[(&[&str], f64)] = &[(NEAR, 100.0), (&["near"], 150.0)];
    let planning = planned(&near_and_far(), &demand(groups));
    assert_eq!(after(&planning), [("a", 100), ("b", 100), ("c", 50)]);
    assert_eq!(planning.above_capacity_bits_per_s, 0.0);
    assert_eq!(planning.spills.len(), 1);
    assert_eq!(planning.spills[0].group.pools, audience(NEAR).pools);
}

#[test]
fn too_much_is_answered_anyway_and_said() {
    let planning = planned(&near_and_far(), &demand(&[(&["near"], 300.0)]));
    assert_eq!(after(&planning), [("a", 150), ("b", 150), ("c", 0)]);
    assert!((planning.above_capacity_bits_per_s / M - 100.0).abs() < 1.0);
}

#[test]
fn families_meet_in_their_nodes() {
    let mut demand = demand(&[(NEAR, 120.0)]);
    demand.add(&audience(NEAR), Family::V6, 120.0 * M);
    let planning = planned(&near_and_far(), &demand);
    assert_eq!(after(&planning), [("a", 100), ("b", 100), ("c", 40)]);
}

/// Only `a` has IPv6: it gets all of that, and the others IPv4.
#[test]
fn a_node_that_draws_all_ipv6_gets_less_ipv4() {
    let mut map = near_and_far();
    for node in ["b", "c"] {
        map.map.nodes.get_mut(&name(node)).unwrap().addresses.truncate(1);
        map.states.get_mut(&name(node)).unwrap().v6 = None;
    }
    let mut demand = demand(&[(NEAR, 80.0)]);
    demand.add(&audience(NEAR), Family::V6, 90.0 * M);
    let planning = planned(&map, &demand);
    assert_eq!(after(&planning), [("a", 100), ("b", 70), ("c", 0)]);
}

#[test]
fn commits_and_sites_are_limits_too_and_commits_give_way_first() {
    let mut map = near_and_far();
    map.map.nodes.get_mut(&name("a")).unwrap().bill = Some(Bill::P95(Rate(20_000_000)));
    let planning = planned(&map, &demand(&[(NEAR, 160.0)]));
    assert_eq!(after(&planning), [("a", 20), ("b", 100), ("c", 40)]);
    // Nowhere else to go: above the commit, not above capacities.
    let planning = planned(&map, &demand(&[(&["near"], 160.0)]));
    assert_eq!(after(&planning), [("a", 60), ("b", 100), ("c", 0)]);
    assert!((planning.above_commit_bits_per_s / M - 40.0).abs() < 1.0);
    assert_eq!(planning.above_capacity_bits_per_s, 0.0);
    // The uplink that `a` and `b` share.
    let mut map = near_and_far();
    map.map.sites.insert(name("up"), Site { capacity: Some(Rate(90_000_000)), coordinates: None });
    for node in ["a", "b"] {
        map.map.nodes.get_mut(&name(node)).unwrap().site = name("up");
    }
    let planning = planned(&map, &demand(&[(NEAR, 160.0)]));
    assert_eq!(after(&planning), [("a", 67), ("b", 22), ("c", 70)]);
    assert_eq!(planning.spills[0].full, [name("up")]);
}

#[test]
fn who_is_down_carries_nothing_and_who_is_cut_less() {
    let mut map = near_and_far();
    map.states.get_mut(&name("b")).unwrap().v4 = Some(NodeState::new(State::Down, "no", 1));
    let planning = planned(&map, &demand(&[(NEAR, 160.0)]));
    assert_eq!(after(&planning), [("a", 100), ("b", 0), ("c", 60)]);
    let mut map = near_and_far();
    map.states.get_mut(&name("b")).unwrap().v4.as_mut().unwrap().permille = 500;
    let planning = planned(&map, &demand(&[(NEAR, 160.0)]));
    assert_eq!(after(&planning), [("a", 100), ("b", 50), ("c", 10)]);
}

/// Two groups of which either may spill: the one that did goes on doing so, and only what is too much moves.
#[test]
fn clients_that_are_in_a_pool_stay_there() {
    let mut map = near_and_far();
    map.map.pools.insert(name("else"), [(name("c"), 1)].into());
    let other: &[&str] = &["near", "else"];
    for (first, second) in [(250.0, 100.0), (100.0, 250.0)] {
        let mut map = map.clone();
        map.plan = planned(&map, &demand(&[(NEAR, first), (other, second)])).plan;
        let again = planned(&map, &demand(&[(NEAR, first), (other, second)]));
        assert!(again.moved_bits_per_s < 0.01 * 350.0 * M, "{}", again.moved_bits_per_s);
        let more = planned(&map, &demand(&[(NEAR, first * 1.1), (other, second)]));
        let least = first * 0.1 * M;
        assert!(more.moved_bits_per_s < least + 4.0 * M, "{} {least}", more.moved_bits_per_s);
    }
}

#[test]
fn whom_nobody_serves_is_said() {
    let mut map = near_and_far();
    map.states.get_mut(&name("c")).unwrap().v4 = Some(NodeState::new(State::Down, "no", 1));
    let planning = planned(&map, &demand(&[(&["far"], 30.0), (NEAR, 10.0)]));
    assert_eq!(planning.unplanned_bits_per_s, 30.0 * M);
}
