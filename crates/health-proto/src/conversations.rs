//! Plays `tests/conversations/health/*.txt`: probe results in, published maps out, on a virtual
//! clock. The words of the scripts are explained in the README beside them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use model::{Dice, Now};
use nodemap::testing::admin_map;
use nodemap::{AdminMap, NodeMap};

use crate::probe::{Failure, Passed, Probe, ProbeResult};
use crate::tests::{START, name};
use crate::{Checker, Params};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conversations/health")
}

/// After a change that is meant run with `CACHEBOY_GOLDEN=write`, and read the difference.
#[test]
fn every_conversation_goes_as_written() {
    let write = std::env::var("CACHEBOY_GOLDEN").is_ok_and(|v| v == "write");
    let mut played = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "txt") {
            continue;
        }
        let script = fs::read_to_string(&path).unwrap();
        let actual = Player::default().play(&script);
        if write {
            fs::write(&path, &actual).unwrap();
        }
        assert!(actual == script, "{} went differently:\n{actual}", path.display());
        played += 1;
    }
    assert!(played >= 8, "only {played} conversations found");
}

#[derive(Default)]
struct Player {
    params: Params,
    map: AdminMap,
    checker: Option<Checker>,
    last: Option<Vec<u8>>,
    at_ms: u64,
    /// Of the wall clock against the true time.
    shift_ms: i64,
    under_way: BTreeMap<(String, IpAddr), Probe>,
    out: String,
}

impl Player {
    /// The script with the maps that were really published.
    fn play(mut self, script: &str) -> String {
        for line in script.lines().filter(|line| !line.starts_with('<')) {
            self.out.push_str(line);
            self.out.push('\n');
            let words: Vec<&str> = line.split('#').next().unwrap().split_whitespace().collect();
            if let [verb, rest @ ..] = words.as_slice() {
                self.step(verb, rest);
                self.act();
            }
        }
        self.out
    }

    fn now(&self) -> Now {
        let now = START.plus_ms(self.at_ms);
        Now { wall_ms: now.wall_ms.checked_add_signed(self.shift_ms).unwrap(), ..now }
    }

    fn step(&mut self, verb: &str, rest: &[&str]) {
        let now = self.now();
        match (verb, rest) {
            ("params", _) => self.params = params(rest),
            ("nodes", _) => {
                self.map = nodes(rest);
                self.edited();
            }
            ("drain", [node, reason @ ..]) => {
                let reason = (!reason.is_empty()).then(|| reason.join(" "));
                self.map.nodes.get_mut(*node).unwrap().drain = reason;
                self.edited();
            }
            ("show", [node]) => self.show(node),
            ("start", ["forgetful"]) => self.start(None),
            ("start", []) => {
                let last = self.last.as_ref().map(|bytes| NodeMap::parse(bytes).unwrap());
                self.start(last);
            }
            ("at", [ms]) => self.advance(ms.parse().unwrap()),
            ("clock", [shift]) => self.shift_ms += shift.parse::<i64>().unwrap(),
            ("reader", [reader, generation]) => {
                let generation =
                    START.wall_ms.checked_add_signed(generation.parse::<i64>().unwrap()).unwrap();
                self.checker.as_mut().unwrap().handle_reader(now, name(reader), generation);
            }
            ("answer", [node, address, words @ ..]) => {
                let key = ((*node).to_owned(), address.parse().unwrap());
                let probe = self.under_way.remove(&key).expect("a probe is under way");
                self.checker.as_mut().unwrap().handle_result(now, probe.id, result(words));
            }
            _ => panic!("unknown step {verb} {rest:?}"),
        }
    }

    fn edited(&mut self) {
        let (now, map) = (self.now(), self.map.clone());
        if let Some(checker) = &mut self.checker {
            checker.handle_map(now, map);
        }
    }

    /// What `/status` shows of a node.
    fn show(&mut self, node: &str) {
        let overview = self.checker.as_ref().unwrap().overview(self.now());
        for (family, view) in &overview.nodes[node] {
            writeln!(self.out, "< {node} {family} {}: {}", view.state, view.reason).unwrap();
            for a in &view.addresses {
                let last = a.last_result.as_deref().unwrap_or("-");
                let (passes, fails) = (a.passes, a.fails);
                writeln!(
                    self.out,
                    "<   {} {} passes {passes} fails {fails}: {last}",
                    a.address, a.state
                )
                .unwrap();
            }
        }
    }

    fn start(&mut self, last: Option<NodeMap>) {
        self.under_way.clear();
        let (params, map, dice) = (self.params, self.map.clone(), Dice::seeded(1));
        let last = last.as_ref();
        self.checker = Some(Checker::new(params, name("hc"), map, last, self.now(), dice));
    }

    /// Lets time pass, stopping wherever the machine asks for it.
    fn advance(&mut self, to_ms: u64) {
        let to_ns = START.plus_ms(to_ms).mono_ns;
        while let Some(next) = self.checker.as_ref().unwrap().poll_timeout() {
            if next > to_ns {
                break;
            }
            self.at_ms = self.at_ms.max((next - START.mono_ns).div_ceil(1_000_000));
            self.act();
        }
        self.at_ms = to_ms;
    }

    fn act(&mut self) {
        let now = self.now();
        let Some(checker) = &mut self.checker else { return };
        for probe in checker.poll_due(now) {
            let key = (probe.target.node.to_string(), probe.target.address);
            assert!(self.under_way.insert(key, probe).is_none(), "two probes of one address");
        }
        if let Some(map) = checker.poll_publish(now) {
            self.print(&map);
            self.last = Some(map.to_json());
        }
    }

    fn print(&mut self, map: &NodeMap) {
        let since = |wall_ms: u64| i128::from(wall_ms) - i128::from(START.wall_ms);
        let generation = since(map.generation);
        writeln!(self.out, "< at {}: generation {generation}", self.at_ms).unwrap();
        for (node, states) in &map.states {
            for (family, state) in [("v4", &states.v4), ("v6", &states.v6)] {
                let Some(s) = state else { continue };
                let (state, since, reason) = (s.state, since(s.since_ms), &s.reason);
                writeln!(self.out, "<   {node} {family} {state} since {since}: {reason}").unwrap();
            }
        }
    }
}

fn params(words: &[&str]) -> Params {
    let mut params = Params::default();
    for word in words {
        let (key, value) = word.split_once('=').unwrap();
        match key {
            "interval_ms" => params.interval_ms = value.parse().unwrap(),
            "timeout_ms" => params.timeout_ms = value.parse().unwrap(),
            "rise" => params.rise = value.parse().unwrap(),
            "fall" => params.fall = value.parse().unwrap(),
            _ => panic!("unknown parameter {key}"),
        }
    }
    params.check().unwrap();
    params
}

fn nodes(words: &[&str]) -> AdminMap {
    let split = words.iter().map(|word| {
        let (node, addresses) = word.split_once('=').unwrap();
        (node, addresses.split(',').collect::<Vec<_>>())
    });
    let split: Vec<_> = split.collect();
    let borrowed: Vec<(&str, &[&str])> = split.iter().map(|(n, a)| (*n, a.as_slice())).collect();
    admin_map(&borrowed)
}

fn result(words: &[&str]) -> ProbeResult {
    Err(match words {
        ["passes"] => return Ok(Passed { took_ms: 4 }),
        ["refused"] => Failure::Refused,
        ["silent"] => Failure::NoAnswer { timeout_ms: 500 },
        ["closed"] => Failure::Closed,
        ["garbage"] => Failure::NotHttp,
        ["status", code] => Failure::Status(code.parse().unwrap()),
        _ => panic!("unknown result {words:?}"),
    })
}
