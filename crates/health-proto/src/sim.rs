//! A day of a network, in forty minutes: 40 nodes whose capacities differ by ten times, three checkers,
//! demand by country (`sim/demand-2009-06.tsv`, a week of June 2009) that rises and falls with the hour,
//! and what can happen: deaths, a node that flaps, one that serves wrong bytes, two that lie about their
//! load, a poisoned master, and the publisher cut off from everything.
//!
//! Clients follow the newest map that they can reach; where they go is what the guard of the step allows
//! (`crate::guard`). The same seed plays the same day: `CACHEBOY_SIM_SEED=7`. Times of recovery are printed
//! (`--nocapture`).

use std::collections::BTreeMap;

use model::{Continent, CountryCode, Dice, Family, Name, Now, Rate, State};
use nodemap::testing::{admin_map, master};
use nodemap::{AdminMap, MasterWord, NodeMap};

use crate::guard::{Group, Room, share_out};
use crate::probe::{Expect, Failure, Method, Passed, Place, Probe, ProbeResult, Question, Target};
use crate::setup::{Check, Compare, CouncilSetup, MasterCheck, Other, Timing};
use crate::tests::{START, name};
use crate::{Checker, LoadReport, Setup};

const NODES: usize = 40;
const CHECKERS: [&str; 3] = ["ha", "hb", "hc"];
const STEP_MS: u64 = 100;
const MINUTE_MS: u64 = 60_000;
const DAY_MS: u64 = 40 * MINUTE_MS;
/// At its peak all clients together want this much.
const PEAK_BPS: f64 = 11e9;
const GAIN_PERCENT: u32 = 25;

/// Pools, and the nodes in them.
const POOLS: [(&str, std::ops::Range<usize>); 3] =
    [("eu", 0..16), ("us", 16..32), ("rest", 32..40)];

fn setup() -> Setup {
    let timing = Timing::default();
    let question = Question::Tcp;
    let outside = |host: &str| Other {
        timing,
        place: Place::Name { host: host.parse().unwrap(), port: 443 },
        question: question.clone(),
    };
    let check = Check { name: name("canary"), timing, port: 80, question: question.clone() };
    let index = MasterCheck {
        name: name("index"),
        timing,
        path: "/index".into(),
        method: Method::Head,
        hash: false,
        expect: Expect::default(),
        compare: Compare::Content,
    };
    Setup {
        checks: [(name("x"), vec![check])].into(),
        masters: [(name("x"), vec![index])].into(),
        outside: ["o1", "o2"].map(|o| (name(o), outside("outside.example"))).into(),
        council: CouncilSetup {
            checkers: CHECKERS.map(name).into(),
            stale_ms: 3_000,
            takeover_ms: 5_000,
        },
        ..Setup::default()
    }
}

fn capacity_bps(node: usize) -> f64 {
    1e8 * (1 + node % 10) as f64
}

fn map() -> AdminMap {
    let names: Vec<(String, String)> =
        (0..NODES).map(|i| (format!("n{i:02}"), format!("192.0.2.{}", i + 1))).collect();
    let addresses: Vec<[&str; 1]> = names.iter().map(|(_, a)| [a.as_str()]).collect();
    let nodes: Vec<(&str, &[&str])> =
        names.iter().zip(&addresses).map(|((n, _), a)| (n.as_str(), a.as_slice())).collect();
    let mut map = admin_map(&nodes);
    for (i, node) in map.nodes.values_mut().enumerate() {
        node.capacity = Some(Rate(capacity_bps(i) as u64));
    }
    let members = |range: std::ops::Range<usize>| {
        range.map(|i| (node_name(i), (capacity_bps(i) / 1e7) as u32)).collect()
    };
    map.pools = POOLS.into_iter().map(|(pool, range)| (name(pool), members(range))).collect();
    map.maps.get_mut("default").unwrap().default = POOLS.iter().map(|(p, _)| name(p)).collect();
    let masters = ["m1", "m2", "m3"].map(|m| (name(m), master(format!("http://{m}.example"))));
    map.projects.get_mut("x").unwrap().masters = masters.into();
    map
}

fn node_name(node: usize) -> Name {
    name(&format!("n{node:02}"))
}

/// Clients by their ordered pools: where in the day their evening is, and their part of all demand.
struct Crowd {
    pools: [usize; 3],
    shift: f64,
    part: f64,
}

fn crowds() -> Vec<Crowd> {
    let mut sums: BTreeMap<Continent, f64> = BTreeMap::new();
    for line in include_str!("sim/demand-2009-06.tsv").lines().skip(1) {
        let (country, mbytes) = line.split_once('\t').unwrap();
        let country: CountryCode = country.parse().unwrap();
        *sums.entry(country.continent().unwrap()).or_default() += mbytes.parse::<f64>().unwrap();
    }
    let all: f64 = sums.values().sum();
    let crowd = |(continent, sum): (Continent, f64)| {
        let (pools, shift) = match continent.to_string().as_str() {
            "EU" => ([0, 1, 2], 0.0),
            "NA" => ([1, 0, 2], -7.0 / 24.0),
            "SA" => ([2, 1, 0], -4.0 / 24.0),
            _ => ([0, 2, 1], 2.0 / 24.0),
        };
        Crowd { pools, shift, part: sum / all }
    };
    sums.into_iter().map(crowd).collect()
}

/// What happens to whom, in milliseconds.
struct Script {
    /// Node, from, to.
    deaths: Vec<(usize, u64, u64)>,
    flapping: (usize, u64, u64),
    garbage: (usize, u64, u64),
    poisoned: (u64, u64),
    /// The publisher sees nothing and is seen by nobody.
    cut_off: (u64, u64),
    claims_full: usize,
    claims_idle: usize,
}

impl Script {
    fn new(dice: &mut Dice) -> Self {
        let mut nodes: Vec<usize> = (0..NODES).collect();
        let mut draw = |dice: &mut Dice| nodes.swap_remove(dice.below(nodes.len() as u64) as usize);
        let jitter = |dice: &mut Dice, at_ms: u64| at_ms + dice.below(20_000) / 100 * 100;
        // Two at once, and one while the publisher is cut off.
        let times = [(2, 5), (2, 8), (9, 12), (14, 16), (22, 27), (31, 35)];
        let deaths = times.map(|(from, to)| {
            let from_ms = jitter(dice, from * MINUTE_MS);
            (draw(dice), from_ms, jitter(dice, to * MINUTE_MS))
        });
        Self {
            deaths: deaths.into(),
            flapping: (draw(dice), 28 * MINUTE_MS, 33 * MINUTE_MS),
            garbage: (draw(dice), jitter(dice, 10 * MINUTE_MS), 15 * MINUTE_MS),
            poisoned: (jitter(dice, 17 * MINUTE_MS), 19 * MINUTE_MS),
            cut_off: (21 * MINUTE_MS, 25 * MINUTE_MS),
            claims_full: draw(dice),
            claims_idle: draw(dice),
        }
    }

    fn is_dead(&self, node: usize, at_ms: u64) -> bool {
        let within = |from: u64, to: u64| (from..to).contains(&at_ms);
        let (flapping, from, to) = self.flapping;
        let flaps = node == flapping && within(from, to) && (at_ms / 45_000).is_multiple_of(2);
        flaps || self.deaths.iter().any(|(dead, from, to)| *dead == node && within(*from, *to))
    }

    /// Whether a node may be down in a map at all: it was dead not long ago.
    fn may_be_down(&self, node: usize, at_ms: u64) -> bool {
        self.deaths.iter().any(|(dead, from, _)| *dead == node && at_ms >= *from)
            || (node == self.flapping.0 && at_ms >= self.flapping.1)
    }

    fn sees(&self, checker: usize, at_ms: u64) -> bool {
        checker != 0 || !(self.cut_off.0..self.cut_off.1).contains(&at_ms)
    }

    /// What a probe that is sent now will bring, and after how long.
    fn answer(
        &self,
        checker: usize,
        probe: &Probe,
        at_ms: u64,
        dice: &mut Dice,
    ) -> (u64, ProbeResult) {
        let silent =
            || (probe.timeout_ms, Err(Failure::NoAnswer { timeout_ms: probe.timeout_ms }.into()));
        if !self.sees(checker, at_ms) {
            return silent();
        }
        let took_ms = 20 + dice.below(200);
        let mut passed = Passed::page(took_ms);
        let number = |node: &Name| node.as_str()[1..].parse::<usize>().unwrap();
        match &probe.target {
            Target::Node { node, .. } | Target::Project { node, .. }
                if self.is_dead(number(node), at_ms) =>
            {
                return silent();
            }
            Target::Project { node, .. }
                if number(node) == self.garbage.0
                    && (self.garbage.1..self.garbage.2).contains(&at_ms) =>
            {
                return (took_ms, Err(Failure::Length { expected: 5, found: 4 }.into()));
            }
            Target::Master { master, .. } => {
                let poisoned = (self.poisoned.0..self.poisoned.1).contains(&at_ms);
                let right = master.as_str() != "m2" || !poisoned;
                passed.seen.etag = Some(if right { "\"1\"" } else { "\"2\"" }.to_owned());
            }
            _ => {}
        }
        (took_ms, Ok(passed))
    }
}

struct Net {
    script: Script,
    dice: Dice,
    checkers: Vec<Checker>,
    /// What will land: moment and number -> checker, probe, result.
    flights: BTreeMap<(u64, u64), (usize, u64, ProbeResult)>,
    flown: u64,
    maps: Vec<Option<NodeMap>>,
    /// What clients follow.
    seen: Option<NodeMap>,
    loads_bps: Option<Vec<f64>>,
    crowds: Vec<Crowd>,
    downs: Vec<(usize, State, u64)>,
    quarantined_ms: Option<u64>,
    unfit_ms: Option<u64>,
    publishers: Vec<String>,
    moved_most: f64,
}

impl Net {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::seeded(seed);
        let script = Script::new(&mut dice);
        let checker = |at: usize| {
            let dice = Dice::seeded(seed + at as u64);
            Checker::new(setup(), name(CHECKERS[at]), map(), None, START, dice)
        };
        Self {
            script,
            dice,
            checkers: (0..CHECKERS.len()).map(checker).collect(),
            flights: BTreeMap::new(),
            flown: 0,
            maps: vec![None; CHECKERS.len()],
            seen: None,
            loads_bps: None,
            crowds: crowds(),
            downs: Vec::new(),
            quarantined_ms: None,
            unfit_ms: None,
            publishers: Vec::new(),
            moved_most: 0.0,
        }
    }

    fn run(&mut self) {
        for at_ms in (0..DAY_MS).step_by(STEP_MS as usize) {
            let now = START.plus_ms(at_ms);
            self.probe(now, at_ms);
            if at_ms.is_multiple_of(500) {
                self.exchange(now, at_ms);
            }
            if at_ms.is_multiple_of(5_000) {
                self.report(now, at_ms);
            }
            self.follow(at_ms);
            if at_ms.is_multiple_of(1_000) && self.seen.is_some() {
                self.flow(at_ms);
            }
        }
    }

    fn probe(&mut self, now: Now, at_ms: u64) {
        while let Some(entry) = self.flights.first_entry().filter(|e| e.key().0 <= at_ms) {
            let (checker, id, result) = entry.remove();
            self.checkers[checker].handle_result(now, id, result);
        }
        for at in 0..self.checkers.len() {
            for probe in self.checkers[at].poll_due(now) {
                let (took_ms, result) = self.script.answer(at, &probe, at_ms, &mut self.dice);
                self.flown += 1;
                self.flights.insert((at_ms + took_ms, self.flown), (at, probe.id, result));
            }
            if let Some(map) = self.checkers[at].poll_publish(now) {
                self.maps[at] = Some(map);
            }
        }
    }

    fn exchange(&mut self, now: Now, at_ms: u64) {
        let said: Vec<_> = self.checkers.iter().map(|checker| checker.observations(now)).collect();
        for (from, seen) in said.iter().enumerate() {
            for to in (0..self.checkers.len()).filter(|to| *to != from) {
                if self.script.sees(from, at_ms) && self.script.sees(to, at_ms) {
                    assert!(self.checkers[to].handle_observations(now, seen.clone()));
                }
            }
        }
    }

    fn report(&mut self, now: Now, at_ms: u64) {
        let Some(loads) = self.loads_bps.clone() else { return };
        for (node, load) in loads.into_iter().enumerate() {
            let used = match node {
                node if node == self.script.claims_full => capacity_bps(node),
                node if node == self.script.claims_idle => 0.0,
                _ => load,
            };
            let report = LoadReport {
                used_bps: used as u64,
                cap_bps: 1_000_000_000_000,
                ..LoadReport::default()
            };
            for at in 0..self.checkers.len() {
                if self.script.sees(at, at_ms) && !self.script.is_dead(node, at_ms) {
                    self.checkers[at].handle_load(now, node_name(node), report);
                }
            }
        }
    }

    /// Clients take the newest map that they can reach.
    fn follow(&mut self, at_ms: u64) {
        let sees = |at: usize| self.script.sees(at, at_ms);
        let reached = self.maps.iter().enumerate().filter(|(at, _)| sees(*at));
        let newest = reached.filter_map(|(_, map)| map.as_ref()).max_by_key(|map| map.generation);
        let old = self.seen.as_ref().map_or(0, |map| map.generation);
        let Some(newest) = newest.filter(|map| map.generation > old).cloned() else { return };
        if self.publishers.last() != Some(&newest.publisher) {
            self.publishers.push(newest.publisher.clone());
        }
        for node in 0..NODES {
            let state = |map: &NodeMap| map.states[&node_name(node)].v4.as_ref().unwrap().state;
            let before = self.seen.as_ref().map_or(State::Unknown, &state);
            let after = state(&newest);
            assert!(
                after != State::Down || self.script.may_be_down(node, at_ms),
                "n{node} fell alone"
            );
            if before != after && (before == State::Down || after == State::Down) {
                self.downs.push((node, after, at_ms));
            }
        }
        let master = newest.masters.get("x").and_then(|masters| masters.get("m2"));
        if master.is_some_and(|m2| m2.state == MasterWord::Quarantined) {
            self.quarantined_ms.get_or_insert(at_ms);
        }
        let garbage = node_name(self.script.garbage.0);
        if newest.unfit_for(&name("x"), &garbage, Family::V4).is_some() {
            self.unfit_ms.get_or_insert(at_ms);
        }
        self.seen = Some(newest);
    }

    /// Where clients go in this second.
    fn flow(&mut self, at_ms: u64) {
        let map = self.seen.as_ref().unwrap();
        let pools = POOLS.map(|(pool, range)| {
            let members = range.filter_map(|node| {
                let node_of = node_name(node);
                let state = map.states[&node_of].v4.as_ref().unwrap();
                let unfit = map.unfit_for(&name("x"), &node_of, Family::V4).is_some();
                let weight = map.map.pools[pool][&node_of] * state.permille;
                (state.state.serves() && !unfit).then_some((node, weight))
            });
            members.collect::<Vec<_>>()
        });
        let hour = at_ms as f64 / DAY_MS as f64;
        let group = |crowd: &Crowd| {
            let angle = (hour + crowd.shift) * std::f64::consts::TAU;
            Group {
                demand_bps: PEAK_BPS * crowd.part * (0.7 + 0.3 * angle.sin()),
                pools: crowd.pools.map(|pool| pools[pool].clone()).into(),
            }
        };
        let groups: Vec<Group> = self.crowds.iter().map(group).collect();
        let room = |(node, before_bps): (usize, &f64)| Room {
            before_bps: *before_bps,
            capacity_bps: capacity_bps(node),
        };
        let first = self.loads_bps.is_none();
        let before = self.loads_bps.take().unwrap_or_else(|| vec![0.0; NODES]);
        let rooms: Vec<Room> = before.iter().enumerate().map(room).collect();
        let gain = if first { 100 } else { GAIN_PERCENT };
        let outcome = share_out(&groups, &rooms, gain);
        assert_eq!(outcome.beyond_bps, 0.0, "somebody finds no room at {at_ms}");
        for (node, load) in outcome.loads_bps.iter().enumerate() {
            let capacity = capacity_bps(node);
            assert!(*load <= capacity * 1.000_001, "n{node} is above its capacity at {at_ms}");
            let gained = (load - before[node]) / capacity;
            if !first {
                self.moved_most = self.moved_most.max(gained);
                assert!(gained <= f64::from(GAIN_PERCENT) / 100.0 + 1e-6, "n{node} gains {gained}");
            }
        }
        self.loads_bps = Some(outcome.loads_bps);
    }

    /// When `node` first was in `state` between two moments, as clients saw it.
    fn first(&self, node: usize, state: State, from_ms: u64) -> Option<u64> {
        let fits =
            |down: &&(usize, State, u64)| down.0 == node && down.1 == state && down.2 >= from_ms;
        self.downs.iter().find(fits).map(|(_, _, at_ms)| *at_ms)
    }
}

fn play(seed: u64) {
    let mut net = Net::new(seed);
    net.run();
    let setup = setup();
    let params = setup.params;
    let bound_ms = u64::from(params.fall) * params.interval_ms + params.timeout_ms + 1_000;
    for (node, died_ms, back_ms) in &net.script.deaths {
        let out_ms =
            net.first(*node, State::Down, *died_ms).expect("every death is seen") - died_ms;
        let up_ms =
            net.first(*node, State::Up, *back_ms).expect("who comes back is seen") - back_ms;
        println!("seed {seed}: n{node:02} out after {out_ms} ms, back after {up_ms} ms");
        assert!(out_ms <= bound_ms, "n{node} was out after {out_ms} ms");
    }
    let unfit_ms = net.unfit_ms.expect("wrong bytes are seen") - net.script.garbage.1;
    let quarantined_ms = net.quarantined_ms.expect("poison is seen") - net.script.poisoned.0;
    println!("seed {seed}: unfit after {unfit_ms} ms, quarantined after {quarantined_ms} ms");
    assert!(unfit_ms <= bound_ms);
    // Once asked, it is known: two of three checkers ask within an interval.
    assert!(quarantined_ms <= params.interval_ms + 1_500);
    let falls =
        net.downs.iter().filter(|d| d.0 == net.script.flapping.0 && d.1 == State::Down).count();
    println!("seed {seed}: flapping n{:02} fell {falls} times", net.script.flapping.0);
    assert!((1..=3).contains(&falls), "of three times that it was dead");
    assert_eq!(net.publishers, ["ha", "hb", "ha"], "taken over and given back");
    // Load reports lower the weight of who gives them, and of nobody else.
    let map = net.seen.as_ref().unwrap();
    let permille = |node: usize| map.states[&node_name(node)].v4.as_ref().unwrap().permille;
    assert_eq!(permille(net.script.claims_full), setup.load.floor_permille);
    assert_eq!(permille(net.script.claims_idle), 1000);
    let most = net.moved_most * 100.0;
    println!("seed {seed}: {} probes, no node gained more than {most:.1} % in a step", net.flown);
}

#[test]
fn a_day_with_failures() {
    match std::env::var("CACHEBOY_SIM_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => play(seed),
        None => play(1),
    }
}
