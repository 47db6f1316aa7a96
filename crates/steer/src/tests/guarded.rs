//! The guard over answers (`max_share`): nobody above its share while others have room.

use std::sync::Arc;

use locate::testing;
use model::{Dice, Now};
use nodemap::MaxShare;

use super::*;
use crate::guard::{COUNTED_MIN, Done};
use crate::{ClassTable, Client, Steering};

struct World {
    steering: Steering,
    dice: Dice,
    now: Now,
    /// Asked from one network after another.
    asked: u32,
}

/// Nodes `a` to `d`, the first two at one site.
fn world(limit: MaxShare, change: impl FnOnce(&mut NodeMap)) -> World {
    let mut map = node_map("near: a=70 b=20 c=10\nfar: d=1", "a up up\nb up up\nc up up\nd up up");
    for (node, site) in [("a", "s1"), ("b", "s1"), ("c", "s2"), ("d", "s3")] {
        map.map.sites.insert(name(site), nodemap::Site::default());
        map.map.nodes.get_mut(&name(node)).unwrap().site = name(site);
    }
    map.map.maps.insert(name("default"), steering_map("default = near far"));
    let project = Project { max_share: Some(limit), ..project("default", AllDown::LastGood) };
    map.map.projects.insert(name("x"), project);
    change(&mut map);
    let table = ClassTable::compile(&testing::locator(&[]).unwrap(), &map.map, 0).unwrap();
    let steering = Steering::new(Arc::new(table), Arc::new(map)).unwrap();
    World { steering, dice: Dice::seeded(5), now: Now::default(), asked: 0 }
}

fn limit(nodes: Option<u32>, sites: Option<u32>) -> MaxShare {
    MaxShare { nodes, sites, window_s: 80 }
}

impl World {
    /// Asks `count` times, `step_ms` apart; how often each node was given.
    fn ask(&mut self, count: u32, step_ms: u64) -> BTreeMap<String, u32> {
        let mut hits = BTreeMap::new();
        let class = self.steering.table().lookup("192.0.2.1".parse().unwrap()).class;
        for _ in 0..count {
            let address = Ipv4Addr::from_bits(self.asked << 8).into();
            let client = Client { address, scope: 24, now: self.now };
            let plan = self.steering.plan(&name("x"), class, Family::V4).unwrap();
            for node in plan.choose(&mut self.dice, &client).iter() {
                *hits.entry(node.node.to_string()).or_insert(0) += 1;
            }
            self.now = self.now.plus_ms(step_ms);
            self.asked += 1;
        }
        hits
    }

    fn done(&self) -> Done {
        self.steering.guards().next().unwrap().1.take_done()
    }

    /// That the shares within the window are these, in percent, as near as chance lets them be.
    fn assert_shares(&self, expected: &[(&str, f64)]) {
        let guard = self.steering.guards().next().unwrap().1;
        let (nodes, sites) = guard.shares(self.now);
        let found: Vec<(&Name, f64)> = nodes.into_iter().chain(sites).collect();
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, expected.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        for ((name, share), (_, percent)) in found.iter().zip(expected) {
            assert!((share * 100.0 - percent).abs() < 2.0, "{name}: {share} is not {percent} %");
        }
    }
}

const CAPPED: [(&str, f64); 5] =
    [("a", 40.0), ("b", 40.0), ("c", 20.0), ("s1", 80.0), ("s2", 20.0)];

#[test]
fn a_node_gets_its_share_and_the_rest_goes_to_the_others_by_weight() {
    for sticky in [false, true] {
        let mut world = world(limit(Some(40), None), |map| {
            map.map.projects.get_mut(&name("x")).unwrap().sticky = sticky;
        });
        let hits = world.ask(10_000, 10);
        assert!(hits["a"] <= 4100, "{hits:?}");
        // The next of the pool is cut too; the last one has as much as is left, and none spills on.
        assert!(hits["b"] <= 4100 && hits["b"] > 3800, "{hits:?}");
        assert!(hits["c"] > 1800 && !hits.contains_key("d"), "{hits:?}");
        let done = world.done();
        assert!(done.spilled > 2500 && done.overruled == 0, "{done:?}");
        assert_eq!(world.done(), Done::default());
        world.assert_shares(&CAPPED);
    }
}

#[test]
fn answers_spill_to_the_pools_behind_when_a_pool_has_no_room() {
    let mut world = world(limit(None, Some(35)), |_| ());
    let hits = world.ask(10_000, 1);
    // Two sites of the pool may have 35 % each, the rest is for the next pool.
    assert!(hits["a"] + hits["b"] <= 3600 && hits["c"] <= 3600, "{hits:?}");
    assert!(hits["d"] >= 2900, "{hits:?}");
    assert_eq!(hits.values().sum::<u32>(), 10_000);
    assert_eq!(world.done().overruled, 0);
}

#[test]
fn answering_beats_the_cap() {
    let mut world = world(limit(Some(10), None), |map| {
        for node in ["b", "c", "d"] {
            map.states.get_mut(&name(node)).unwrap().v4 = state("down");
        }
    });
    assert_eq!(world.ask(1000, 1), BTreeMap::from([("a".to_owned(), 1000)]));
    assert_eq!(world.done(), Done { spilled: 0, overruled: 1000 - COUNTED_MIN });
}

#[test]
fn few_answers_are_given_by_weight_alone() {
    let mut world = world(limit(Some(1), None), |_| ());
    let hits = world.ask(u32::try_from(COUNTED_MIN).unwrap(), 0);
    assert!(hits["a"] > 50, "{hits:?}");
    assert_eq!(world.done(), Done::default());
}

#[test]
fn the_window_slides_and_a_new_node_map_goes_on_counting() {
    let mut world = world(limit(Some(40), None), |_| ());
    world.ask(10_000, 1);
    world.assert_shares(&CAPPED);
    // A node map with other weights: what was counted stands.
    let mut map = NodeMap::clone(world.steering.map());
    map.map.pools.get_mut(&name("near")).unwrap().insert(name("a"), 71);
    let table = Arc::clone(world.steering.table());
    world.steering = Steering::after(Some(&world.steering), table, Arc::new(map)).unwrap();
    world.assert_shares(&CAPPED);
    let hits = world.ask(1000, 1);
    assert!(hits["a"] < 500, "{hits:?}");
    // Longer than a window later nothing of it is left.
    world.now = world.now.plus_ms(80_000);
    world.assert_shares(&[]);
    let hits = world.ask(90, 0);
    assert!(hits["a"] > 50, "{hits:?}");
}

#[test]
fn several_nodes_in_an_answer_are_those_with_room() {
    let mut world = world(limit(Some(35), None), |map| {
        let project = map.map.projects.get_mut(&name("x")).unwrap();
        (project.answers, project.answers_elsewhere) = (2, 0);
    });
    let hits = world.ask(10_000, 1);
    let total: u32 = hits.values().sum();
    assert!(hits["a"] * 100 <= total * 36 && hits["b"] * 100 <= total * 36, "{hits:?}");
    // Places that the pool could not fill went to the next one.
    assert_eq!(total, 20_000);
}

#[test]
fn threads_that_count_at_once_lose_nothing_within_a_slice() {
    let world = world(limit(Some(99), None), |_| ());
    let class = world.steering.table().lookup("192.0.2.1".parse().unwrap()).class;
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let steering = &world.steering;
            scope.spawn(move || {
                let plan = steering.plan(&name("x"), class, Family::V4).unwrap();
                let address = "192.0.2.1".parse().unwrap();
                let client = Client { address, scope: 24, now: Now::default().plus_ms(90_000) };
                let mut dice = Dice::seeded(seed);
                (0..5000).for_each(|_| assert_eq!(plan.choose(&mut dice, &client).len(), 1));
            });
        }
    });
    let guard = world.steering.guards().next().unwrap().1;
    let (nodes, _) = guard.shares(Now::default().plus_ms(90_000));
    assert!((nodes.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-9, "{nodes:?}");
}
