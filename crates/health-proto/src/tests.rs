//! The machine on a virtual clock, with a small world of nodes around it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::{Dice, Family, Name, Now, State};
use nodemap::testing::admin_map;
use nodemap::{AdminMap, NodeMap};
use proptest::prelude::*;

use crate::probe::{Failure, Passed, ProbeResult, Target};
use crate::{Checker, Params, ParamsError, Setup};

pub(crate) const START: Now = Now { mono_ns: 7_000_000_000, wall_ms: 1_800_000_000_000 };

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn many(count: usize) -> AdminMap {
    let names: Vec<(String, String)> =
        (0..count).map(|i| (format!("n{i}"), format!("192.0.2.{}", i + 1))).collect();
    let addresses: Vec<[&str; 1]> = names.iter().map(|(_, a)| [a.as_str()]).collect();
    let nodes: Vec<(&str, &[&str])> =
        names.iter().zip(&addresses).map(|((n, _), a)| (n.as_str(), a.as_slice())).collect();
    admin_map(&nodes)
}

/// How a node answers a probe sent at some moment: after how many milliseconds, with what.
type Behaviour<'a> = dyn FnMut(&Target, Now) -> (u64, ProbeResult) + 'a;

/// Target -> result of the last probe and how many in a row ended so.
type Rows = BTreeMap<Target, (bool, u32)>;

struct World<'a> {
    checker: Checker,
    now: Now,
    behaviour: Box<Behaviour<'a>>,
    flights: BTreeMap<(u64, u64), ProbeResult>,
    sent: Vec<(u64, Target)>,
    rows: Rows,
    rows_at_maps: Vec<Rows>,
    targets: BTreeMap<u64, Target>,
    maps: Vec<(Now, NodeMap)>,
    in_flight_most: usize,
}

impl<'a> World<'a> {
    fn new(
        params: Params,
        map: AdminMap,
        seed: u64,
        behaviour: impl FnMut(&Target, Now) -> (u64, ProbeResult) + 'a,
    ) -> Self {
        // Recoveries as the counters say, at once and whole: damping has its own tests.
        let mut setup = Setup::of(params);
        (setup.damping.dwell_intervals, setup.load.slow_start_intervals) = (0, 0);
        let checker = Checker::new(setup, name("hc"), map, None, START, Dice::seeded(seed));
        Self {
            checker,
            now: START,
            behaviour: Box::new(behaviour),
            flights: BTreeMap::new(),
            sent: Vec::new(),
            rows: Rows::new(),
            rows_at_maps: Vec::new(),
            targets: BTreeMap::new(),
            maps: Vec::new(),
            in_flight_most: 0,
        }
    }

    fn act(&mut self) {
        for probe in self.checker.poll_due(self.now) {
            let (after_ms, result) = (self.behaviour)(&probe.target, self.now);
            self.flights.insert((self.now.plus_ms(after_ms).mono_ns, probe.id), result);
            self.sent.push((ms(self.now), probe.target.clone()));
            self.targets.insert(probe.id, probe.target);
        }
        self.in_flight_most = self.in_flight_most.max(self.flights.len());
        if let Some(map) = self.checker.poll_publish(self.now) {
            self.maps.push((self.now, map));
            self.rows_at_maps.push(self.rows.clone());
        }
    }

    fn run_until(&mut self, at_ms: u64) {
        let end = START.plus_ms(at_ms);
        loop {
            self.act();
            let flight = self.flights.keys().next().map(|(at, _)| *at);
            let next = flight.into_iter().chain(self.checker.poll_timeout()).min();
            let Some(next) = next.filter(|next| *next <= end.mono_ns) else { break };
            let ahead = next.saturating_sub(self.now.mono_ns);
            self.now.mono_ns = self.now.mono_ns.max(next);
            self.now.wall_ms = START.wall_ms + (self.now.mono_ns - START.mono_ns) / 1_000_000;
            assert!(ahead > 0 || flight == Some(next), "the machine asks to be asked in vain");
            if let Some(((_, id), result)) = self.take_landed() {
                let row = self.rows.entry(self.targets[&id].clone()).or_default();
                let same = row.0 == result.is_ok();
                *row = (result.is_ok(), if same { row.1 + 1 } else { 1 });
                self.checker.handle_result(self.now, id, result);
            }
        }
        self.now = end;
    }

    fn take_landed(&mut self) -> Option<((u64, u64), ProbeResult)> {
        let (key, _) = self.flights.first_key_value()?;
        if key.0 <= self.now.mono_ns { self.flights.pop_first() } else { None }
    }

    /// When the state of `node` (IPv4) first was `state` in a published map, ms after the start.
    fn first(&self, node: &str, state: State) -> Option<u64> {
        let is = |map: &NodeMap| {
            map.states[&name(node)].get(Family::V4).is_some_and(|s| s.state == state)
        };
        self.maps.iter().find(|(_, map)| is(map)).map(|(at, _)| ms(*at))
    }
}

fn ms(now: Now) -> u64 {
    (now.mono_ns - START.mono_ns) / 1_000_000
}

fn pass(_: &Target, _: Now) -> (u64, ProbeResult) {
    (3, Ok(Passed::page(3)))
}

const QUICK: Params =
    Params { interval_ms: 1000, timeout_ms: 500, rise: 2, fall: 2, in_flight_max: 256 };

#[test]
fn parameters_are_checked() {
    for (params, result) in [
        (Params::default(), Ok(())),
        (QUICK, Ok(())),
        (Params { interval_ms: 99, ..QUICK }, Err(ParamsError::Interval)),
        (Params { interval_ms: 3_600_001, ..QUICK }, Err(ParamsError::Interval)),
        (Params { timeout_ms: 1001, ..QUICK }, Err(ParamsError::Timeout)),
        (Params { timeout_ms: 9, ..QUICK }, Err(ParamsError::Timeout)),
        (Params { rise: 0, ..QUICK }, Err(ParamsError::Counts)),
        (Params { fall: 101, ..QUICK }, Err(ParamsError::Counts)),
        (Params { in_flight_max: 0, ..QUICK }, Err(ParamsError::InFlight)),
    ] {
        assert_eq!(params.check(), result, "{params:?}");
    }
}

#[test]
fn every_failure_is_evidence_in_words() {
    for (failure, words) in [
        (Failure::Refused, "connect refused"),
        (Failure::Unreachable("no route to host".into()), "cannot connect: no route to host"),
        (Failure::NoAnswer { timeout_ms: 500 }, "no answer in 500 ms"),
        (Failure::Closed, "connection closed before the whole answer"),
        (Failure::NotHttp, "answer is not HTTP"),
        (Failure::Status(503), "status 503"),
        (Failure::TooLarge { bytes_max: 65536 }, "body over 65536 bytes"),
    ] {
        assert_eq!(failure.to_string(), words);
    }
    assert_eq!(Passed::page(4).to_string(), "status 200 in 4 ms");
    assert_eq!(Passed { took_ms: 4, ..Passed::default() }.to_string(), "answered in 4 ms");
}

#[test]
fn a_healthy_network_is_up_within_a_second_and_then_silent() {
    let mut world = World::new(QUICK, many(40), 1, pass);
    world.run_until(10_000);
    for i in 0..40 {
        assert!(world.first(&format!("n{i}"), State::Up).is_some_and(|at| at < 510), "n{i}");
    }
    let last = world.maps.last().unwrap();
    assert!(ms(last.0) < 510, "a map without news at {}", ms(last.0));
    let overview = world.checker.overview(world.now);
    assert_eq!(overview.generation, last.1.generation);
    let node = &overview.nodes[&name("n7")][&Family::V4];
    assert_eq!(node.reason, "status 200 in 3 ms");
    assert!(node.addresses[0].last_probe_age_ms.is_some_and(|age| age <= 1000));
    assert!(node.addresses[0].next_probe_ms <= 1000);
}

#[test]
fn no_more_probes_are_under_way_than_allowed_and_all_get_their_turn() {
    let params = Params { in_flight_max: 3, ..QUICK };
    let slow = |_: &Target, _: Now| (100, Ok(Passed::page(100)));
    let mut world = World::new(params, many(20), 2, slow);
    world.run_until(5_000);
    assert_eq!(world.in_flight_most, 3);
    let seen: BTreeSet<IpAddr> = world.sent.iter().map(|(_, t)| address_of(t)).collect();
    assert_eq!(seen.len(), 20);
}

#[test]
fn a_result_for_a_target_that_left_changes_nothing_and_frees_its_place() {
    let params = Params { in_flight_max: 1, ..QUICK };
    let mut checker =
        Checker::new(Setup::of(params), name("hc"), many(1), None, START, Dice::seeded(3));
    let now = START.plus_ms(500);
    let first = checker.poll_due(now).remove(0);
    checker.handle_map(now, AdminMap::default());
    checker.handle_map(now, many(1));
    assert_eq!(checker.poll_due(now.plus_ms(500)), [], "the only place is taken");
    checker.handle_result(now, first.id, Ok(Passed::page(1)));
    checker.handle_result(now, first.id, Err(Failure::Refused.into()));
    let map = checker.poll_publish(now).unwrap();
    let state = map.states[&name("n0")].v4.clone().unwrap();
    assert_eq!((state.state, state.reason.as_str()), (State::Unknown, "not probed yet"));
    assert_eq!(checker.poll_due(now.plus_ms(500)).len(), 1);
}

/// Ways to die, by number.
fn death(way: u8) -> (u64, ProbeResult) {
    match way {
        0 => (1, Err(Failure::Refused.into())),
        1 => (500, Err(Failure::NoAnswer { timeout_ms: 500 }.into())),
        2 => (2, Err(Failure::Status(503).into())),
        _ => (250, Err(Failure::Closed.into())),
    }
}

proptest! {
    /// The promise: fall x interval + timeout. What remains of the second is for the DNS nodes.
    #[test]
    fn a_death_is_published_in_time_and_kills_nobody_else(
        seed: u64, way in 0u8..4, at in 1000u64..4000, fall in 1u32..5, nodes in 2usize..12,
    ) {
        let params = Params { fall, ..QUICK };
        let victim: IpAddr = "192.0.2.1".parse().unwrap();
        let mut world = World::new(params, many(nodes), seed, move |target, now| {
            if address_of(target) == victim && ms(now) >= at { death(way) } else { pass(target, now) }
        });
        let by = at + u64::from(fall) * params.interval_ms + params.timeout_ms;
        world.run_until(by);
        prop_assert!(world.first("n0", State::Down).is_some());
        prop_assert!(world.first("n0", State::Down) >= Some(at));
        for i in 1..nodes {
            prop_assert_eq!(world.first(&format!("n{i}"), State::Down), None);
        }
    }

    /// When everything dies, nobody is taken out before each had its count, and all go together.
    #[test]
    fn when_all_die_at_once_all_go_down_in_one_map(
        seed: u64, way in 0u8..3, at in 2000u64..3000, nodes in 2usize..8,
    ) {
        let params = Params { fall: 3, ..QUICK };
        let mut world = World::new(params, many(nodes), seed, move |target, now| {
            if ms(now) >= at { death(way) } else { pass(target, now) }
        });
        world.run_until(at + 4 * params.interval_ms + params.timeout_ms);
        let downs = |map: &NodeMap| {
            map.states.values().filter(|s| s.v4.as_ref().unwrap().state == State::Down).count()
        };
        let counts: BTreeSet<usize> = world.maps.iter().map(|(_, map)| downs(map)).collect();
        prop_assert_eq!(counts, BTreeSet::from([0, nodes]));
    }

    /// Whatever the nodes do: states follow the counters, generations grow, probes of one address
    /// neither overlap nor lie further apart than the interval.
    #[test]
    fn states_follow_the_counters(
        seed: u64, chaos: u64, nodes in 1usize..6, rise in 1u32..4, fall in 1u32..4,
    ) {
        let params = Params { rise, fall, ..QUICK };
        let mut luck = Dice::seeded(chaos);
        let mut world = World::new(params, many(nodes), seed, move |target, now| {
            if luck.below(2) == 0 { pass(target, now) } else { death(luck.below(4) as u8) }
        });
        world.run_until(30_000);
        let mut before: Vec<State> = vec![State::Unknown; nodes];
        let mut generation = 0;
        for (map, rows) in world.maps.iter().map(|(_, map)| map).zip(&world.rows_at_maps) {
            prop_assert!(map.generation > generation);
            generation = map.generation;
            for (i, old) in before.iter_mut().enumerate() {
                let target = target(i);
                let new = map.states[&name(&format!("n{i}"))].v4.as_ref().unwrap().state;
                let (ok, length) = rows.get(&target).copied().unwrap_or_default();
                let needed = match (*old, new) {
                    (State::Unknown, State::Up) => Some((true, 1)),
                    (State::Down, State::Up) => Some((true, rise)),
                    (State::Up | State::Unknown, State::Down) => Some((false, fall)),
                    (a, b) => { prop_assert_eq!(a, b); None }
                };
                if let Some((need_ok, need)) = needed {
                    prop_assert!(ok == need_ok && length >= need, "{} {}", ok, length);
                }
                *old = new;
            }
        }
        for i in 0..nodes {
            let target = target(i);
            let sent: Vec<u64> =
                world.sent.iter().filter(|(_, t)| *t == target).map(|(at, _)| *at).collect();
            for pair in sent.windows(2) {
                let apart = pair[1] - pair[0];
                prop_assert!((899..=1000).contains(&apart), "{} apart", apart);
            }
        }
    }
}

fn target(i: usize) -> Target {
    let address = format!("192.0.2.{}", i + 1);
    Target::Node { node: name(&format!("n{i}")), address: address.parse().unwrap() }
}

fn address_of(target: &Target) -> IpAddr {
    match target {
        Target::Node { address, .. } | Target::Project { address, .. } => *address,
        other => panic!("{other} has no address"),
    }
}

#[test]
fn nodes_that_are_up_and_readers_that_are_there_are_awaited() {
    let map = admin_map(&[("a", &["192.0.2.1"]), ("b", &["192.0.2.2"])]);
    let setup = Setup::of(Params::default());
    let mut checker = Checker::new(setup, name("hc"), map, None, START, Dice::seeded(1));
    let generation = checker.poll_publish(START).unwrap().generation;
    assert!(checker.is_awaited(START, generation), "nobody has polled yet");
    checker.handle_reader(START, name("a"), generation);
    checker.handle_reader(START, name("b"), 0);
    assert!(checker.is_awaited(START, generation), "b has an older one");
    checker.handle_reader(START, name("b"), generation);
    assert!(!checker.is_awaited(START, generation));
    checker.handle_reader(START, name("ns1"), 0);
    assert!(checker.is_awaited(START, generation), "a name server, too");
    let later = START.plus_ms(120_000);
    assert!(!checker.is_awaited(later, generation), "it has gone");
}
