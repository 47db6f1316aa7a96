//! Plays `tests/conversations/health/*.txt`: probe results in, published maps out, on a virtual
//! clock. The words of the scripts are explained in the README beside them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use model::{Dice, Family, Name, Now, PERMILLE};
use nodemap::testing::{admin_map, master};
use nodemap::{AdminMap, MasterWord, NodeMap};

use crate::event::Event;
use crate::observe::{Subject, Verdict, View};
use crate::probe::{
    Expect, Failure, Method, Passed, Place, Probe, ProbeResult, Question, Seen, Target,
};
use crate::setup::{Check, Compare, MasterCheck, Other, Timing};
use crate::tests::{START, name};
use crate::{Checker, LoadReport, Observations, Setup};

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
    assert!(played >= 15, "only {played} conversations found");
}

#[derive(Default)]
struct Player {
    setup: Setup,
    map: AdminMap,
    checker: Option<Checker>,
    last: Option<Vec<u8>>,
    at_ms: u64,
    /// Of the wall clock against the true time.
    shift_ms: i64,
    under_way: BTreeMap<Target, Probe>,
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
            ("params", _) => self.setup = setup(rest),
            ("nodes", _) => {
                self.map = nodes(rest);
                self.edited();
            }
            ("masters", _) => {
                let masters = rest.iter().map(|m| (name(m), master(format!("http://{m}.example"))));
                self.map.projects.get_mut("x").unwrap().masters = masters.collect();
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
                let address = address.parse().unwrap();
                self.answer(Target::Node { node: name(node), address }, words);
            }
            ("fetch", [check, node, address, words @ ..]) => {
                let (project, check) = (name("x"), name(check));
                let address = address.parse().unwrap();
                self.answer(Target::Project { project, node: name(node), address, check }, words);
            }
            ("master", [master, check, words @ ..]) => {
                let (project, check) = (name("x"), name(check));
                self.answer(Target::Master { project, master: name(master), check }, words);
            }
            ("outside", [canary, words @ ..]) => {
                self.answer(Target::Outside { name: name(canary) }, words);
            }
            ("hears", [checker, words @ ..]) => self.hears(checker, words),
            ("load", [node, used, capacity]) => {
                let (used_bps, cap_bps) = (used.parse().unwrap(), capacity.parse().unwrap());
                let report = LoadReport { used_bps, cap_bps, ..LoadReport::default() };
                self.checker.as_mut().unwrap().handle_load(now, name(node), report);
            }
            ("says", []) => self.says(),
            ("events", []) => self.events(),
            ("alarms", []) => self.alarms(),
            _ => panic!("unknown step {verb} {rest:?}"),
        }
    }

    fn answer(&mut self, target: Target, words: &[&str]) {
        let probe = self.under_way.remove(&target).expect("a probe is under way");
        let (now, result) = (self.now(), result(words));
        self.checker.as_mut().unwrap().handle_result(now, probe.id, result);
    }

    /// Another checker speaks: `isolated`, `publishing`, and `NODE pass|fail` for IPv4.
    fn hears(&mut self, checker: &str, words: &[&str]) {
        let now = self.now();
        let is_mark = |word: &&&str| ["isolated", "publishing"].contains(*word);
        let pairs: Vec<&str> = words.iter().filter(|word| !is_mark(word)).copied().collect();
        let views = pairs.chunks(2).map(|pair| {
            let [node, verdict] = pair else { panic!("{pair:?}") };
            let verdict = match *verdict {
                "pass" => Verdict::Pass,
                "fail" => Verdict::Fail,
                other => panic!("{other}"),
            };
            let reason = if verdict == Verdict::Fail { "connect refused" } else { "" };
            let subject = Subject::Node { node: name(node), family: Family::V4 };
            View { subject, verdict, reason: reason.into(), evidence: None }
        });
        let seen = Observations {
            format: crate::observe::FORMAT,
            checker: name(checker),
            at_ms: now.wall_ms,
            isolated: words.contains(&"isolated"),
            generation: 0,
            publishing: words.contains(&"publishing"),
            outside: BTreeMap::new(),
            views: views.collect(),
        };
        assert!(self.checker.as_mut().unwrap().handle_observations(now, seen));
    }

    /// What this checker tells the others.
    fn says(&mut self) {
        let now = self.now();
        let checker = self.checker.as_ref().unwrap();
        let seen = checker.observations(now);
        let mark = |is: bool, word: &'static str| if is { word } else { "" };
        let (isolated, publishing) =
            (mark(seen.isolated, " isolated"), mark(seen.publishing, " publishing"));
        writeln!(self.out, "< at {}: {}{isolated}{publishing}", self.at_ms, seen.checker).unwrap();
        for View { subject, verdict, reason, .. } in &seen.views {
            let line = format!("<   {subject} {verdict} {reason}");
            writeln!(self.out, "{}", line.trim_end()).unwrap();
        }
    }

    fn events(&mut self) {
        let (events, _) = self.checker.as_mut().unwrap().take_events();
        for event in events {
            let Event { at_ms, what, node, family, project, master, from, to, reason, .. } = event;
            let at = i128::from(at_ms) - i128::from(START.wall_ms);
            let names = [project, master, node].into_iter().flatten();
            let about: Vec<String> = names
                .map(|name| name.to_string())
                .chain(family.map(|family| family.to_string()))
                .collect();
            let about = about.join(" ");
            writeln!(self.out, "< {at} {what} {about} ({from} -> {to}): {reason}").unwrap();
        }
    }

    fn alarms(&mut self) {
        let overview = self.checker.as_ref().unwrap().overview(self.now());
        for alarm in overview.alarms {
            let since = i128::from(alarm.since_ms) - i128::from(START.wall_ms);
            let (word, text) = (alarm.alarm, alarm.text);
            writeln!(self.out, "< {word} since {since}: {text}").unwrap();
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
        let (setup, map, dice) = (self.setup.clone(), self.map.clone(), Dice::seeded(1));
        let last = last.as_ref();
        self.checker = Some(Checker::new(setup, name("hc"), map, last, self.now(), dice));
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
            let twice = self.under_way.insert(probe.target.clone(), probe);
            assert!(twice.is_none(), "two probes of one target");
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
                let left = match s.permille {
                    PERMILLE => String::new(),
                    permille => format!(" at {permille} permille"),
                };
                writeln!(self.out, "<   {node} {family} {state}{left} since {since}: {reason}")
                    .unwrap();
            }
        }
        for (project, nodes) in &map.unfit {
            for (node, states) in nodes {
                for (family, state) in [("v4", &states.v4), ("v6", &states.v6)] {
                    let Some(s) = state else { continue };
                    let (since, why) = (since(s.since_ms), &s.reason);
                    writeln!(
                        self.out,
                        "<   {node} {family} unfit for {project} since {since}: {why}"
                    )
                    .unwrap();
                }
            }
        }
        for (project, masters) in &map.masters {
            for (master, state) in masters.iter().filter(|(_, s)| s.state != MasterWord::Good) {
                let (word, since, why) = (state.state, since(state.since_ms), &state.reason);
                writeln!(self.out, "<   master {project}/{master} {word} since {since}: {why}")
                    .unwrap();
            }
        }
    }
}

/// Weights and silence move nothing unless a script wants them to.
fn setup(words: &[&str]) -> Setup {
    let mut setup = Setup::default();
    setup.load.slow_start_intervals = 0;
    setup.damping.unknown_after_intervals = 100_000;
    for word in words {
        let (key, value) = word.split_once('=').unwrap();
        let number: u64 = value.parse().unwrap_or(0);
        let small = || u32::try_from(number).unwrap();
        let names = || value.split(',').map(name);
        match key {
            "interval_ms" => setup.params.interval_ms = number,
            "timeout_ms" => setup.params.timeout_ms = number,
            "rise" => setup.params.rise = small(),
            "fall" => setup.params.fall = small(),
            "dwell" => setup.damping.dwell_intervals = small(),
            "dwell_max" => setup.damping.dwell_intervals_max = small(),
            "flap_window" => setup.damping.flap_window_intervals = small(),
            "unknown_after" => setup.damping.unknown_after_intervals = small(),
            "slow_start" => setup.load.slow_start_intervals = small(),
            "budget" => setup.budget_per_s = small(),
            "load_step" => setup.load.step_per_s = small(),
            "outside" => setup.outside = names().map(|canary| (canary, other())).collect(),
            "checkers" => setup.council.checkers = names().collect(),
            "fetch" => {
                let check = |name| Check { name, timing: timing(), port: 80, question: question() };
                setup.checks = [(name("x"), names().map(check).collect())].into();
            }
            "masters" => {
                let check = |name: Name| MasterCheck {
                    timing: timing(),
                    path: format!("/{name}"),
                    method: Method::Head,
                    hash: false,
                    expect: Expect::default(),
                    compare: match name.as_str() {
                        "marker" => Compare::Marker { behind_ms: 1000 },
                        _ => Compare::Content,
                    },
                    name,
                };
                setup.masters = [(name("x"), names().map(check).collect())].into();
            }
            _ => panic!("unknown parameter {key}"),
        }
    }
    setup.check().unwrap();
    setup
}

/// Of all that is not a node: as often as these are asked, once a second.
fn timing() -> Timing {
    Timing { interval_ms: 1000, timeout_ms: 500, jitter_percent: 0 }
}

fn question() -> Question {
    Question::Tls { name: "x.example".parse().unwrap(), days_min: 7 }
}

fn other() -> Other {
    let place = Place::Name { host: "outside.example".parse().unwrap(), port: 443 };
    Other { timing: timing(), place, question: question() }
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
    let failure = match words {
        ["passes"] => return Ok(Passed::page(4)),
        ["passes", "days", days] => {
            let end_ms = START.wall_ms + days.parse::<u64>().unwrap() * 86_400_000;
            let seen = Seen { certificate_end_ms: Some(end_ms), ..Seen::default() };
            return Ok(Passed { took_ms: 4, seen });
        }
        ["etag", etag] => {
            let seen = Seen { etag: Some((*etag).to_owned()), ..Seen::default() };
            return Ok(Passed { took_ms: 4, seen });
        }
        ["modified", at] => {
            let modified_ms = START.wall_ms.checked_add_signed(at.parse().unwrap());
            return Ok(Passed { took_ms: 4, seen: Seen { modified_ms, ..Seen::default() } });
        }
        ["expired"] => Failure::Certificate("it ended yesterday".into()),
        ["refused"] => Failure::Refused,
        ["silent"] => Failure::NoAnswer { timeout_ms: 500 },
        ["closed"] => Failure::Closed,
        ["garbage"] => Failure::NotHttp,
        ["status", code] => Failure::Status(code.parse().unwrap()),
        _ => panic!("unknown result {words:?}"),
    };
    Err(failure.into())
}
