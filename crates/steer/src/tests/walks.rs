//! The walk through the pools: S1, the rules for IPv6, `all_down`, weight zero, drained.

use proptest::prelude::*;

use super::*;
use crate::walk::{Excluded, LAST_GOOD_WINDOW_MS, Outcome, Verdict, walk};

/// Walks pools `p q r` in that order and tells the end as `VERDICT POOL: NODE=WEIGHT ...`.
fn told(pools: &str, nodes: &str, family: Family, all_down: &str) -> String {
    let map = node_map(pools, nodes);
    let order: Vec<Name> =
        names("p q r").into_iter().filter(|p| map.map.pools.contains_key(p)).collect();
    let all_down = all_down.to_owned().try_into().unwrap();
    let walk = walk(&map, &name("x"), &audience(&order), family, &all_down);
    let pool = walk.pool.as_ref().map_or("-", Name::as_str);
    format!("{} {pool}: {}", walk.verdict, included(&walk)).trim_end().to_owned()
}

#[test]
fn pools_spill_in_order_and_only_when_nobody_is_up() {
    let pools = "p: a=1 b=2\nq: c=3\nr: d=4";
    for (nodes, expected) in [
        ("a up -\nb up -\nc up -\nd up -", "pool p: a=1 b=2"),
        ("a down -\nb up -\nc up -\nd up -", "pool p: b=2"),
        ("a down -\nb down -\nc up -\nd up -", "spilled q: c=3"),
        ("a down -\nb drained -\nc down -\nd up -", "spilled r: d=4"),
        // Unknown serves like up.
        ("a unknown -\nb down -\nc up -\nd up -", "pool p: a=1"),
        ("a drained -\nb drained -\nc unknown -\nd up -", "spilled q: c=3"),
    ] {
        assert_eq!(told(pools, nodes, Family::V4, "last-good"), expected, "{nodes}");
    }
}

#[test]
fn a_node_without_published_state_serves() {
    let mut map = node_map("p: a=1", "a down -");
    map.states.clear();
    assert_eq!(
        walk(&map, &name("x"), &audience(&names("p")), Family::V4, &AllDown::LastGood).verdict,
        Verdict::Pool
    );
}

#[test]
fn weight_zero_is_never_whatever_else_is_down() {
    let pools = "p: a=0 b=1\nq: c=0 d=5";
    for (nodes, all_down, expected) in [
        ("a up -\nb up -\nc up -\nd up -", "last-good", "pool p: b=1"),
        ("a up -\nb down -\nc up -\nd up -", "last-good", "spilled q: d=5"),
        ("a up -\nb down -\nc up -\nd down -", "last-good", "all-down p: b=1"),
        ("a up -\nb down -\nc up -\nd down -", "all", "all-down -: b=1 d=5"),
        ("a up -\nb down -\nc up -\nd down -", "pool:q", "all-down q: d=5"),
    ] {
        assert_eq!(told(pools, nodes, Family::V4, all_down), expected, "{nodes} {all_down}");
    }
    // A pool of nothing but zeros is passed over, and does not stop IPv6 either.
    assert_eq!(told("p: a=0\nq: b=1", "a up -\nb up up", Family::V6, "all"), "spilled q: b=1");
}

#[test]
fn ipv6_is_answered_from_the_pool_meant_for_the_client_or_not_at_all() {
    for (pools, nodes, v4, v6) in [
        // The first pool has no IPv6: its clients come by IPv4.
        ("p: a=1\nq: b=1", "a up -\nb up up", "pool p: a=1", "no-family -:"),
        // It has, but it is down: spill.
        ("p: a=1\nq: b=1", "a up down\nb up up", "pool p: a=1", "spilled q: b=1"),
        // Spilled already: a pool without IPv6 does not stop the walk any more.
        ("p: a=1\nq: b=1\nr: c=1", "a up down\nb up -\nc up up", "pool p: a=1", "spilled r: c=1"),
        // Both spill: IPv6 follows to the same pool.
        ("p: a=1\nq: b=1", "a down -\nb up up", "spilled q: b=1", "spilled q: b=1"),
        ("p: a=1\nq: b=1\nr: c=1", "a down -\nb up -\nc up up", "spilled q: b=1", "no-family -:"),
        // Some members have IPv6.
        ("p: a=1 b=3", "a up up\nb up -", "pool p: a=1 b=3", "pool p: a=1"),
        // A drained pool has IPv6 configured: spill, not "no data".
        ("p: a=1\nq: b=1", "a drained drained\nb up up", "spilled q: b=1", "spilled q: b=1"),
        // Nobody has IPv6 at all: no data, whether IPv4 is up or down.
        ("p: a=1", "a up -", "pool p: a=1", "no-family -:"),
        ("p: a=1", "a down -", "all-down p: a=1", "no-family -:"),
        // IPv6 down everywhere.
        ("p: a=1\nq: b=1", "a up down\nb up down", "pool p: a=1", "all-down p: a=1"),
    ] {
        assert_eq!(told(pools, nodes, Family::V4, "last-good"), v4, "A {pools} {nodes}");
        assert_eq!(told(pools, nodes, Family::V6, "last-good"), v6, "AAAA {pools} {nodes}");
    }
}

#[test]
fn ipv4_clients_are_never_refused_for_a_pool_without_ipv4() {
    let pools = "p: a=1\nq: b=1";
    assert_eq!(told(pools, "a - up\nb up up", Family::V4, "last-good"), "spilled q: b=1");
    assert_eq!(told(pools, "a - up\nb down up", Family::V4, "last-good"), "all-down q: b=1");
    assert_eq!(told(pools, "a - up\nb - up", Family::V4, "last-good"), "no-family -:");
}

#[test]
fn last_good_is_who_went_down_last_in_the_first_pool_that_has_any() {
    let pools = "p: a=1 b=2 c=3\nq: d=4";
    for (nodes, expected) in [
        // Within a minute of the latest, not a millisecond more.
        ("a down@1000 -\nb down@1060 -\nc down@999 -\nd down@5000 -", "all-down p: a=1 b=2"),
        ("a down@1 -\nb down@1060 -\nc down@1 -\nd down@5000 -", "all-down p: b=2"),
        // Drained nodes and weight zero do not count, also not for "latest".
        ("a down@1000 -\nb drained@9000 -\nc down@990 -\nd down@5000 -", "all-down p: a=1 c=3"),
        ("a drained -\nb drained -\nc drained -\nd down@5 -", "all-down q: d=4"),
        // Nobody but drained: a failure, never "there is no such address".
        ("a drained -\nb drained -\nc drained -\nd drained -", "servfail -:"),
    ] {
        assert_eq!(told(pools, nodes, Family::V4, "last-good"), expected, "{nodes}");
    }
    // The states of each family apart.
    let nodes = "a down@1000 down@5\nb down@1000 down@500\nc down@1 -\nd up up";
    assert_eq!(told("p: a=1 b=2 c=3", nodes, Family::V4, "last-good"), "all-down p: a=1 b=2");
    assert_eq!(told("p: a=1 b=2 c=3", nodes, Family::V6, "last-good"), "all-down p: b=2");
    assert_eq!(LAST_GOOD_WINDOW_MS, 60_000);
}

#[test]
fn the_other_all_down_policies() {
    let pools = "p: a=1 b=2\nq: b=7 c=3\nx: e=1 f=2\ny: g=1";
    let nodes = "a down@1 -\nb down@2000 -\nc drained -\ne down -\nf drained -\ng - up";
    for (all_down, expected) in [
        ("last-good", "all-down p: b=2"),
        // Each node once, with its first weight; drained never.
        ("all", "all-down -: a=1 b=2"),
        ("pool:x", "all-down x: e=1"),
        ("pool:q", "all-down q: b=7"),
        // Nobody there has IPv4: back to last-good.
        ("pool:y", "all-down p: b=2"),
        ("nodata", "nodata -:"),
        ("servfail", "servfail -:"),
    ] {
        assert_eq!(told(pools, nodes, Family::V4, all_down), expected, "{all_down}");
    }
    // Of the policy's pool those that are up go first.
    let nodes = "a down -\nb down -\nc down -\ne up -\nf down -\ng - up";
    assert_eq!(told(pools, nodes, Family::V4, "pool:x"), "all-down x: e=1");
    // Only drained nodes: a failure also with "all".
    let nodes = "a drained -\nb drained -\nc drained -\ne up -\nf up -\ng - up";
    assert_eq!(told(pools, nodes, Family::V4, "all"), "servfail -:");
    // IPv6 of a policy's pool that has only IPv4: its clients come by IPv4.
    let nodes = "a down down\nb down -\nc down -\ne down -\nf up -\ng - up";
    assert_eq!(told(pools, nodes, Family::V6, "pool:x"), "no-family -:");
    assert_eq!(told(pools, nodes, Family::V6, "pool:y"), "all-down y: g=1");
}

#[test]
fn every_node_left_out_has_its_word() {
    let map = node_map(
        "p: a=1 b=0 c=1 d=1\nq: e=1\nr: e=2",
        "a down -\nb up -\nc drained -\nd - up\ne up -",
    );
    let walk = walk(&map, &name("x"), &audience(&names("p q r")), Family::V4, &AllDown::LastGood);
    let words: Vec<Vec<&str>> = walk
        .pools
        .iter()
        .map(|p| p.nodes.iter().map(|n| n.excluded.map_or("-", Excluded::as_str)).collect())
        .collect();
    assert_eq!(
        words,
        [vec!["down", "weight-zero", "drained", "no-address"], vec!["-"], vec!["pool-not-reached"]]
    );
    let outcomes: Vec<Outcome> = walk.pools.iter().map(|p| p.outcome).collect();
    assert_eq!(outcomes, [Outcome::Spilled, Outcome::Answers, Outcome::NotReached]);
}

fn any_map() -> impl Strategy<Value = NodeMap> {
    let word =
        || prop::sample::select(vec!["up", "down@1000", "down@2000", "unknown", "drained", "-"]);
    let nodes = prop::collection::vec((word(), word()), 6);
    let pool = || prop::collection::vec((0usize..6, 0u32..4), 0..5);
    (nodes, prop::collection::vec(pool(), 3)).prop_map(|(nodes, pools)| {
        let nodes: Vec<String> =
            nodes.iter().enumerate().map(|(i, (v4, v6))| format!("n{i} {v4} {v6}")).collect();
        let pools: Vec<String> = ["p", "q", "r"]
            .iter()
            .zip(pools)
            .map(|(pool, members)| {
                let members: Vec<String> =
                    members.iter().map(|(n, weight)| format!("n{n}={weight}")).collect();
                format!("{pool}: {}", members.join(" "))
            })
            .collect();
        node_map(&pools.join("\n"), &nodes.join("\n"))
    })
}

fn any_policy() -> impl Strategy<Value = AllDown> {
    prop::sample::select(vec!["last-good", "all", "pool:p", "pool:r", "nodata", "servfail"])
        .prop_map(|s| s.to_owned().try_into().unwrap())
}

/// Members of a pool for a family that some rule could ever answer, with their states.
fn able(map: &NodeMap, pool: &Name, family: Family) -> Vec<(Name, State)> {
    map.map.pools[pool]
        .iter()
        .filter(|(node, weight)| {
            **weight > 0 && map.map.nodes[*node].addresses_of(family).next().is_some()
        })
        .map(|(node, _)| {
            let state = map.states[node].get(family).map_or(State::Unknown, |s| s.state);
            (node.clone(), state)
        })
        .filter(|(_, state)| *state != State::Drained)
        .collect()
}

proptest! {
    #[test]
    fn s1_never_empty_because_nodes_are_down(
        map in any_map(),
        policy in any_policy(),
        listed in 1usize..=3,
    ) {
        let pools = &names("p q r")[..listed];
        let up = |pool: &Name, family| able(&map, pool, family).iter().any(|(_, s)| s.serves());
        for family in BOTH {
            let walk = walk(&map, &name("x"), &audience(pools), family, &policy);
            let chosen: Vec<_> = walk.included().collect();

            // Weight zero, drained and addressless nodes never, under no policy.
            for node in &chosen {
                prop_assert!(node.weight > 0 && !node.addresses.is_empty());
                prop_assert_ne!(node.state.as_ref().map(|s| s.state), Some(State::Drained));
            }
            prop_assert_eq!(
                chosen.is_empty(),
                matches!(walk.verdict, Verdict::NoFamily | Verdict::NoData | Verdict::ServFail)
            );
            // Empty only by choice of the project, for want of the family, or of all but drained.
            match walk.verdict {
                Verdict::Pool | Verdict::Spilled => {
                    let pool = walk.pool.clone().unwrap();
                    let at = pools.iter().position(|p| *p == pool).unwrap();
                    prop_assert!(!pools[..at].iter().any(|p| up(p, family)), "an earlier pool is up");
                    prop_assert_eq!(at == 0, walk.verdict == Verdict::Pool);
                    let members: Vec<_> = able(&map, &pool, family).into_iter()
                        .filter(|(_, s)| s.serves()).map(|(n, _)| n).collect();
                    prop_assert_eq!(members, chosen.iter().map(|n| n.node.clone()).collect::<Vec<_>>());
                }
                Verdict::AllDown => {
                    prop_assert!(!pools.iter().any(|p| up(p, family)), "somebody is up");
                    prop_assert!(!matches!(policy, AllDown::NoData | AllDown::ServFail));
                }
                Verdict::NoData => prop_assert_eq!(&policy, &AllDown::NoData),
                Verdict::ServFail => {
                    let nobody = pools.iter().all(|p| able(&map, p, family).is_empty());
                    prop_assert!(policy == AllDown::ServFail || nobody);
                }
                Verdict::NoFamily if family == Family::V4 => {
                    prop_assert!(pools.iter().all(|p| able(&map, p, Family::V4).is_empty()));
                }
                // The client is served by IPv4, or nobody listed could ever answer IPv6, or the
                // policy's pool answers by IPv4.
                Verdict::NoFamily => {
                    let by_v4 = pools.iter().any(|p| up(p, Family::V4));
                    let nobody = pools.iter().all(|p| able(&map, p, Family::V6).is_empty());
                    let policy_v4 = matches!(&policy, AllDown::Pool(p) if !able(&map, p, Family::V4).is_empty());
                    prop_assert!(by_v4 || nobody || policy_v4);
                }
            }
            let shares: f64 = chosen.iter().map(|n| n.share).sum();
            prop_assert!(chosen.is_empty() || (shares - 1.0).abs() < 1e-9, "{}", shares);
        }
    }

    #[test]
    fn a_node_coming_up_takes_nobody_else_away_but_last_resorts(map in any_map()) {
        let pools = names("p q r");
        let before = walk(&map, &name("x"), &audience(&pools), Family::V4, &AllDown::LastGood);
        for node in map.map.nodes.keys() {
            let mut better = map.clone();
            let Some(Some(state)) = better.states.get_mut(node).map(|s| s.v4.as_mut()) else { continue };
            if state.state == State::Drained {
                continue;
            }
            state.state = State::Up;
            let after = walk(&better, &name("x"), &audience(&pools), Family::V4, &AllDown::LastGood);
            if before.pool == after.pool && before.verdict != Verdict::AllDown {
                let kept = |n: &Name| after.included().any(|a| a.node == *n);
                prop_assert!(before.included().all(|n| kept(&n.node)));
            }
        }
    }
}

/// Sets how much of its weight a node has over IPv4.
fn weaken(map: &mut NodeMap, node: &str, permille: u32) {
    map.states.get_mut(node).unwrap().v4.as_mut().unwrap().permille = permille;
}

#[test]
fn shares_follow_what_nodes_have_of_their_weight() {
    let mut map = node_map("p: a=10 b=30", "a up -\nb up -");
    weaken(&mut map, "b", 500);
    let walk = walk(&map, &name("x"), &audience(&names("p")), Family::V4, &AllDown::LastGood);
    let shares: Vec<f64> = walk.included().map(|node| node.share).collect();
    assert_eq!(shares, [0.4, 0.6]);
}

#[test]
fn a_full_node_is_spilled_from_until_nobody_else_is_left() {
    let told = |weak: &[&str], down: &str| {
        let nodes = "a up -\nb up -\nc up -".replace(down, &down.replace("up", "down"));
        let mut map = node_map("p: a=1 b=3\nq: c=1", &nodes);
        weak.iter().for_each(|node| weaken(&mut map, node, 0));
        let pools = audience(&names("p q"));
        let walk = walk(&map, &name("x"), &pools, Family::V4, &AllDown::LastGood);
        format!("{}: {}", walk.verdict, included(&walk))
    };
    assert_eq!(told(&["a"], ""), "pool: b=3");
    assert_eq!(told(&["a", "b"], ""), "spilled: c=1");
    assert_eq!(told(&["a", "b", "c"], ""), "pool: a=1 b=3");
    assert_eq!(told(&["a", "b"], "c up"), "pool: a=1 b=3");
}

#[test]
fn who_is_unfit_for_a_project_serves_the_others_and_is_the_last_resort() {
    let mut map = node_map("p: a=1 b=3\nq: c=1", "a up -\nb up -\nc down@100 -");
    let unfit = |nodes: &str| {
        let states = || NodeStates { v4: state("down@300"), v6: None };
        names(nodes).into_iter().map(|node| (node, states())).collect()
    };
    let told = |map: &NodeMap, project: &str| {
        let pools = audience(&names("p q"));
        let walk = walk(map, &name(project), &pools, Family::V4, &AllDown::LastGood);
        let reasons: Vec<&str> =
            walk.pools[0].nodes.iter().map(|n| n.excluded.map_or("-", Excluded::as_str)).collect();
        format!("{}: {} ({})", walk.verdict, included(&walk), reasons.join(" "))
    };
    map.unfit.insert(name("x"), unfit("a"));
    assert_eq!(told(&map, "x"), "pool: b=3 (unfit -)");
    assert_eq!(told(&map, "y"), "pool: a=1 b=3 (- -)");
    map.unfit.insert(name("x"), unfit("a b"));
    assert_eq!(told(&map, "x"), "all-down: a=1 b=3 (- -)");
}
