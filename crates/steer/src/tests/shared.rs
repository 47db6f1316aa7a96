//! Plans of the node map: several pools answer, each with its share.

use std::sync::Arc;

use model::{Dice, Now};
use nodemap::published::{PlannedList, Tier};

use super::planned::world;
use super::*;
use crate::diff::Differ;
use crate::{Client, Steering, Verdict};

/// What `asia, world` get: 70 % of asia, of it three quarters `b`; 30 % of world, all `c`.
fn with_plan(steering: &Steering, change: impl Fn(&mut NodeMap)) -> Steering {
    let mut map = NodeMap::clone(steering.map());
    map.plan.splits = vec![[(name("a"), 1), (name("b"), 3)].into(), [(name("c"), 9)].into()];
    let tier = |pool: &str, share_ppm, split| Tier { pool: name(pool), share_ppm, split };
    map.plan.lists = vec![PlannedList {
        pools: vec![name("asia"), name("world")],
        refused: BTreeSet::new(),
        family: Family::V4,
        tiers: vec![tier("asia", 700_000, 0), tier("world", 300_000, 1)],
    }];
    change(&mut map);
    Steering::new(Arc::clone(steering.table()), Arc::new(map)).unwrap()
}

const CLIENT: &str = "10.2.0.1";

fn shares(steering: &Steering) -> (Verdict, Vec<(String, f64)>) {
    let class = steering.table().lookup(CLIENT.parse().unwrap()).class;
    let plan = steering.plan(&name("videolan"), class, Family::V4).unwrap();
    let round = |share: f64| (share * 1e6).round() / 1e6;
    (plan.verdict, plan.shares().map(|(node, share)| (node.to_string(), round(share))).collect())
}

fn list(shares: &[(&str, f64)]) -> Vec<(String, f64)> {
    shares.iter().map(|(node, share)| ((*node).to_owned(), *share)).collect()
}

#[test]
fn shares_of_nodes_that_do_not_serve_go_on_in_order() {
    let (_, steering) = world();
    let down = |nodes: &'static [&'static str]| {
        with_plan(&steering, move |map| {
            for node in nodes {
                map.states.get_mut(&name(node)).unwrap().v4 = state("down");
            }
        })
    };
    for (nodes, verdict, expected) in [
        (&[][..], Verdict::Pool, &[("a", 0.175), ("b", 0.525), ("c", 0.3)][..]),
        (&["b"], Verdict::Pool, &[("a", 0.7), ("c", 0.3)]),
        (&["a", "b"], Verdict::Spilled, &[("c", 1.0)]),
        (&["c"], Verdict::Pool, &[("a", 0.25), ("b", 0.75)]),
    ] {
        assert_eq!(shares(&down(nodes)), (verdict, list(expected)), "{nodes:?}");
    }
    // Nobody of the plan serves: it is as if there were none.
    let alone = with_plan(&steering, |map| {
        map.plan.splits[0] = [(name("b"), 1)].into();
        map.plan.lists[0].tiers.truncate(1);
        map.plan.lists[0].tiers[0].share_ppm = 1_000_000;
        map.states.get_mut(&name("b")).unwrap().v4 = state("down");
    });
    assert_eq!(shares(&alone), (Verdict::Pool, list(&[("a", 1.0)])));
}

#[test]
fn answers_follow_the_plan_by_dice_and_by_network() {
    let (_, steering) = world();
    for sticky in [false, true] {
        let steering = with_plan(&steering, |map| {
            map.map.projects.get_mut(&name("videolan")).unwrap().sticky = sticky;
        });
        let class = steering.table().lookup(CLIENT.parse().unwrap()).class;
        let plan = steering.plan(&name("videolan"), class, Family::V4).unwrap();
        let mut dice = Dice::seeded(7);
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        let mut pools: BTreeMap<Option<u16>, u32> = BTreeMap::new();
        for network in 0..40_000u32 {
            let address = IpAddr::from(Ipv4Addr::from_bits(network << 8));
            let client = Client { address, scope: 24, now: Now::default() };
            let choice = plan.choose(&mut dice, &client);
            *counts.entry(choice.first().unwrap().node.to_string()).or_default() += 1;
            *pools.entry(choice.pool()).or_default() += 1;
            if sticky {
                // S2: another address of the network, other dice.
                let address = IpAddr::from(Ipv4Addr::from_bits(network << 8 | 77));
                let again =
                    plan.choose(&mut Dice::seeded(network.into()), &Client { address, ..client });
                assert_eq!(again.first(), choice.first());
            }
        }
        // Three standard deviations are 300 at most.
        for (node, expected) in [("a", 7_000), ("b", 21_000), ("c", 12_000)] {
            assert!(counts[node].abs_diff(expected) < 300, "{sticky} {counts:?}");
        }
        // asia, waix and world in the order of their names.
        assert!(pools[&Some(0)].abs_diff(28_000) < 300 && pools[&Some(2)].abs_diff(12_000) < 300);
    }
}

#[test]
fn further_answers_are_of_the_pool_that_was_chosen_while_it_has_any() {
    let (_, steering) = world();
    let steering = with_plan(&steering, |map| {
        let project = map.map.projects.get_mut(&name("videolan")).unwrap();
        (project.answers, project.answers_elsewhere) = (2, 1);
    });
    let class = steering.table().lookup(CLIENT.parse().unwrap()).class;
    let plan = steering.plan(&name("videolan"), class, Family::V4).unwrap();
    let client = Client { address: CLIENT.parse().unwrap(), scope: 16, now: Now::default() };
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let choice = plan.choose(&mut Dice::seeded(seed), &client);
        let nodes: Vec<&str> = choice.iter().map(|node| node.node.as_str()).collect();
        seen.insert(nodes.join(" "));
    }
    // World has one node only: its second place is not filled, that of elsewhere is.
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["a b c", "b a c", "c a", "c b"]);
}

#[test]
fn a_plan_is_explained_and_compared() {
    let (locator, old) = world();
    let new = with_plan(&old, |_| {});
    let text =
        new.explain(&name("videolan"), CLIENT.parse().unwrap(), &locator).unwrap().to_string();
    for part in [
        "A (IPv4): pool by plan\n  pool asia: answers, 70.0 % by plan\n    a  weight 1       17.5 %",
        "\n    z  weight 0      excluded: weight-zero",
        "  pool world: answers, 30.0 % by plan\n    c  weight 9       30.0 %",
        "    d  weight 1      excluded: drained",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let diff = Differ::new(&old, &new, &locator).diff(9);
    let part = diff.projects.iter().find(|p| p.project == name("videolan")).unwrap();
    let pools: Vec<_> =
        part.pools.iter().map(|row| (row.key.clone(), row.amount.clients.round())).collect();
    assert_eq!(pools, [(("asia".to_owned(), "world".to_owned()), (65_536.0f64 * 0.3).round())]);
    // a: 75 % to 17.5 %; b: 25 % to 52.5 %, c: to 30 %.
    let moved = part.moved_between_nodes.clients / 65_536.0;
    assert!((moved - 0.575).abs() < 1e-9, "{moved}");
}
