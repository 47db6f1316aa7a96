//! Groups in virtual time: a repository that changes, edges that look at it with latency, clients in
//! the middle of their runs.

use http::StatusCode;
use http_cache::Target;
use model::{Dice, Now};

use super::grid::Grid;
use super::machine::{Found, Group, Next, Reply};
use super::snapshots::Held;

const START: Now = Now { mono_ns: 0, wall_ms: 1_700_000_000_000 };
/// Resolution of the clock, milliseconds.
const STEP_MS: u64 = 5;

fn target(name: &str) -> Target {
    Target::parse(format!("/{name}").as_bytes()).unwrap()
}

fn at(ms: u64) -> Now {
    START.plus_ms(ms)
}

/// A repository whose files all change to the next version at these times, each file `spread_ms`
/// after the one before it.
#[derive(Clone, Debug, Default)]
struct Repository {
    changes_ms: Vec<u64>,
    spread_ms: u64,
    /// No answers from here to there.
    away_ms: std::ops::Range<u64>,
}

impl Repository {
    fn look(&self, name: &str, ms: u64) -> Found<usize> {
        if self.away_ms.contains(&ms) {
            return Found::Away;
        }
        let Ok(file) = name.trim_start_matches('/').parse::<u64>() else {
            return Found::Is(Held::Missing(StatusCode::NOT_FOUND));
        };
        let late = file * self.spread_ms;
        let version = self.changes_ms.iter().filter(|change| *change + late <= ms).count();
        Found::Is(Held::Content(version))
    }
}

/// An edge with one group and one pass at a time.
struct Edge {
    group: Group<usize>,
    dice: Dice,
    /// What is looked at when, and found then.
    pass: Vec<(u64, Target, Option<Found<usize>>)>,
    wake_ms: u64,
    looks: usize,
    /// Whether the group has nothing to do any more.
    over: bool,
}

impl Edge {
    fn new(step_s: u32, seed: u64) -> Self {
        Self {
            group: Group::new(START, Grid::new(step_s)),
            dice: Dice::seeded(seed),
            pass: Vec::new(),
            wake_ms: 0,
            looks: 0,
            over: false,
        }
    }

    fn step(&mut self, repository: &Repository, ms: u64) {
        for (look_ms, target, found) in &mut self.pass {
            if found.is_none() && *look_ms <= ms {
                *found = Some(repository.look(target.as_str(), ms));
            }
        }
        if !self.pass.is_empty() && self.pass.iter().all(|(.., found)| found.is_some()) {
            let found = self.pass.drain(..).map(|(_, t, found)| (t, found.unwrap())).collect();
            self.group.handle_pass(at(ms), found);
            self.wake_ms = ms;
        }
        while self.pass.is_empty() && self.wake_ms <= ms && !self.over {
            match self.group.poll(at(ms)) {
                Next::Pass { targets, .. } => {
                    self.looks += targets.len();
                    let dice = &mut self.dice;
                    let later = |t| (ms + STEP_MS + dice.below(60), t, None);
                    self.pass = targets.into_iter().map(later).collect();
                }
                Next::Sleep(sleep_ms) => self.wake_ms = ms + sleep_ms,
                Next::Idle => self.over = true,
            }
        }
    }
}

/// One run of a package manager: the same files one after the other.
struct Run {
    client: std::net::SocketAddr,
    files: Vec<Target>,
    waits: bool,
    next_ms: u64,
    pause_ms: u64,
    got: Vec<Held<usize>>,
    refused: Vec<&'static str>,
    stale: bool,
    mixed: bool,
}

impl Run {
    fn new(port: u16, files: u64, start_ms: u64, pause_ms: u64) -> Self {
        Self {
            client: ([192, 0, 2, 1], port).into(),
            files: (0..files).map(|n| target(&n.to_string())).collect(),
            waits: false,
            next_ms: start_ms,
            pause_ms,
            got: Vec::new(),
            refused: Vec::new(),
            stale: false,
            mixed: false,
        }
    }

    fn step(&mut self, edge: &mut Edge, ms: u64) {
        let done = self.got.len() + self.refused.len();
        let Some(file) = self.files.get(done).filter(|_| ms >= self.next_ms) else { return };
        let client = Some(self.client);
        let reply = if self.waits {
            edge.group.resume(at(ms), client, file)
        } else {
            edge.group.handle_ask(at(ms), client, file)
        };
        self.waits = false;
        match reply {
            Reply::Serve(serving) => {
                self.stale |= serving.stale;
                self.mixed |= serving.mixed;
                self.got.push(serving.held);
                self.next_ms = ms + self.pause_ms;
            }
            Reply::Wait => {
                if !std::mem::replace(&mut self.waits, true) && edge.pass.is_empty() {
                    edge.wake_ms = ms;
                }
            }
            Reply::Apart(word) => {
                self.refused.push(word);
                self.next_ms = ms + self.pause_ms;
            }
        }
    }

    fn is_over(&self) -> bool {
        self.got.len() + self.refused.len() == self.files.len()
    }

    /// The one version that it saw.
    #[track_caller]
    fn version(&self) -> usize {
        let Some(Held::Content(version)) = self.got.first() else { panic!("{:?}", self.refused) };
        let same = self.got.iter().all(|held| *held == Held::Content(*version));
        assert!(same && self.refused.is_empty(), "{:?} {:?}", self.got, self.refused);
        *version
    }
}

/// Plays runs against an edge until `end_ms`.
fn play(edge: &mut Edge, repository: &Repository, runs: &mut [Run], from_ms: u64, end_ms: u64) {
    let mut ms = from_ms;
    while ms < end_ms {
        edge.step(repository, ms);
        for run in runs.iter_mut() {
            run.step(edge, ms);
        }
        ms += STEP_MS;
    }
}

/// A run on its own.
fn run(edge: &mut Edge, repository: &Repository, port: u16, files: u64, start_ms: u64) -> Run {
    let mut runs = [Run::new(port, files, start_ms, 0)];
    play(edge, repository, &mut runs, start_ms, start_ms + 5_000);
    let [run] = runs;
    assert!(run.is_over());
    run
}

#[test]
fn runs_never_see_two_times_whenever_the_repository_changes() {
    let mut dice = Dice::seeded(7);
    for seed in 0..60 {
        let step_s = 1 + u32::try_from(dice.below(4)).unwrap();
        let mut repository = Repository { spread_ms: dice.below(25), ..Repository::default() };
        let mut change_ms = 5_000;
        while change_ms < 60_000 {
            change_ms += 700 + dice.below(2_000);
            repository.changes_ms.push(change_ms);
        }
        let mut edge = Edge::new(step_s, seed);
        // What is asked for the first time is learned before anything changes.
        run(&mut edge, &repository, 1, 5, 0);
        let mut runs: Vec<Run> = (0..50)
            .map(|n| Run::new(100 + n, 5, 5_000 + dice.below(50_000), dice.below(1_500)))
            .collect();
        play(&mut edge, &repository, &mut runs, 5_000, 70_000);
        for run in &runs {
            run.version();
            assert!(!run.mixed);
        }
        assert!(edge.group.figures().switches > 5, "{:?}", edge.group.figures());
    }
}

#[test]
fn edges_that_share_nothing_but_the_time_show_the_same() {
    let repository = Repository { changes_ms: vec![7_100, 13_300], ..Repository::default() };
    let mut edges = [Edge::new(2, 1), Edge::new(2, 2)];
    let mut seen = Vec::new();
    for edge in &mut edges {
        run(edge, &repository, 1, 3, 0);
        let versions = (1..12u16).map(|n| {
            // After the second pass of the tick, and another address each time.
            let start_ms = u64::from(n) * 2_000 + 700;
            let mut runs = [Run::new(n, 3, start_ms, 0)];
            runs[0].client = ([192, 0, 2, n as u8 + 1], n).into();
            play(edge, &repository, &mut runs, start_ms - 700, start_ms + 1_300);
            runs[0].version()
        });
        seen.push(versions.collect::<Vec<_>>());
    }
    assert_eq!(seen[0], [0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2]);
    assert_eq!(seen[0], seen[1]);
}

#[test]
fn a_quiet_tick_takes_one_look_at_each_member_and_a_change_two() {
    let repository = Repository { changes_ms: vec![9_000], ..Repository::default() };
    let mut edge = Edge::new(2, 3);
    run(&mut edge, &repository, 1, 3, 0);
    // One alone; a second and a third, each before a look at all; all at the next beat; the ticks at
    // 2 s and 4 s.
    let looks = 1 + (1 + 2) + (1 + 3) + 3 + 2 * 3;
    assert_eq!(edge.looks, looks);
    play(&mut edge, &repository, &mut [], 5_000, 9_000);
    assert_eq!(edge.looks, looks + 2 * 3);
    play(&mut edge, &repository, &mut [], 9_000, 11_000);
    assert_eq!(edge.looks, looks + 2 * 3 + 2 * 3);
    assert_eq!(edge.group.figures().switches, 1);
}

#[test]
fn a_member_that_comes_after_a_change_brings_the_others_along() {
    let repository = Repository { changes_ms: vec![100], ..Repository::default() };
    let mut edge = Edge::new(60, 4);
    let mut early = Run::new(1, 1, 0, 0);
    play(&mut edge, &repository, std::slice::from_mut(&mut early), 0, 100);
    assert_eq!(early.version(), 0);
    // Long before the next tick.
    let mut late = Run::new(2, 2, 200, 0);
    late.client = ([192, 0, 2, 2], 2).into();
    late.files.reverse();
    play(&mut edge, &repository, std::slice::from_mut(&mut late), 200, 2_000);
    assert_eq!(late.version(), 1);
    assert_eq!(edge.group.figures().switches, 1);
}

#[test]
fn a_member_that_comes_in_the_middle_of_a_change_is_put_right_at_the_next_beat() {
    let repository =
        Repository { changes_ms: vec![5_000], spread_ms: 200, ..Repository::default() };
    let mut edge = Edge::new(60, 10);
    let mut early = Run::new(1, 2, 0, 0);
    early.files.reverse();
    early.files.truncate(1);
    play(&mut edge, &repository, std::slice::from_mut(&mut early), 0, 5_020);
    // The new first file, the old second one: as the master has them.
    let mut middle = Run::new(2, 2, 5_020, 0);
    middle.client = ([192, 0, 2, 2], 2).into();
    play(&mut edge, &repository, std::slice::from_mut(&mut middle), 5_020, 5_180);
    assert_eq!(middle.got, [Held::Content(1), Held::Content(0)]);
    play(&mut edge, &repository, &mut [], 5_180, 6_500);
    let mut late = Run::new(3, 2, 6_500, 0);
    late.client = ([192, 0, 2, 3], 3).into();
    play(&mut edge, &repository, std::slice::from_mut(&mut late), 6_500, 7_000);
    assert_eq!(late.version(), 1);
}

#[test]
fn while_masters_are_away_the_snapshot_is_served_whole() {
    let repository = Repository {
        changes_ms: vec![6_000, 70_000],
        away_ms: 5_500..65_000,
        ..Repository::default()
    };
    let mut edge = Edge::new(2, 5);
    assert!(!run(&mut edge, &repository, 1, 3, 0).stale);
    play(&mut edge, &repository, &mut [], 5_000, 40_000);
    let during = run(&mut edge, &repository, 2, 3, 40_000);
    assert_eq!((during.version(), during.stale), (0, true));
    assert_eq!(edge.group.figures().kept.map(|k| k.as_str()), Some("group-masters-away"));
    // A member that was never seen cannot be had, and does not disturb the others.
    let other = run(&mut edge, &repository, 3, 4, 45_000);
    assert_eq!(other.refused, ["group-masters-away"]);
    play(&mut edge, &repository, &mut [], 50_000, 68_000);
    let after = run(&mut edge, &repository, 4, 3, 68_000);
    assert_eq!((after.version(), after.stale), (1, false));
    assert_eq!(edge.group.figures().kept, None);
}

#[test]
fn a_repository_that_never_stands_still_is_followed_all_the_same() {
    let changes_ms = (0..1_000).map(|n| 6_000 + n * 90).collect();
    let repository = Repository { changes_ms, ..Repository::default() };
    let mut edge = Edge::new(2, 6);
    run(&mut edge, &repository, 1, 3, 0);
    play(&mut edge, &repository, &mut [], 5_000, 9_900);
    assert_eq!(edge.group.figures().switches, 0);
    assert_eq!(edge.group.figures().kept.map(|k| k.as_str()), Some("group-restless"));
    play(&mut edge, &repository, &mut [], 9_900, 60_000);
    assert!(edge.group.figures().switches > 1, "{:?}", edge.group.figures());
    assert_eq!(edge.group.figures().kept.map(|k| k.as_str()), Some("group-restless"));
    // Nobody waits for what could not be found to fit; members are served on.
    let ask = |edge: &mut Edge, ms, name| edge.group.handle_ask(at(ms), None, &target(name));
    assert_eq!(ask(&mut edge, 60_000, "7"), Reply::Apart("group-restless"));
    assert!(matches!(ask(&mut edge, 60_000, "1"), Reply::Serve(_)));
    // It stands still again.
    play(&mut edge, &repository, &mut [], 60_000, 105_000);
    assert_eq!(ask(&mut edge, 105_000, "7"), Reply::Wait);
}

#[test]
fn what_masters_do_not_have_is_remembered_until_the_tick_and_disturbs_nobody() {
    let mut edge = Edge::new(60, 7);
    let mut repository = Repository::default();
    run(&mut edge, &repository, 1, 2, 0);
    let looks = edge.looks;
    for start_ms in [5_000, 10_000] {
        let mut runs = [Run::new(2, 0, start_ms, 0)];
        runs[0].files = vec![target("none")];
        play(&mut edge, &repository, &mut runs, start_ms, start_ms + 5_000);
        assert_eq!(runs[0].got, [Held::Missing(StatusCode::NOT_FOUND)]);
    }
    assert_eq!(edge.looks, looks + 1, "the others were not looked at, and it was but once");
    assert_eq!(edge.group.figures().missing, 1);
    repository.changes_ms = vec![];
    play(&mut edge, &repository, &mut [], 15_000, 65_000);
    assert_eq!(edge.looks, looks + 1 + 3);
}

#[test]
fn members_are_bounded_and_forgotten() {
    let mut edge = Edge::new(1, 8);
    let repository = Repository::default();
    for n in 0..300 {
        let reply = edge.group.handle_ask(at(0), None, &target(&format!("x{n}")));
        assert!(matches!(reply, Reply::Wait | Reply::Apart("group-full" | "group-busy")), "{n}");
    }
    assert!(edge.group.figures().members <= 256);
    play(&mut edge, &repository, &mut [], 0, 119_000);
    assert!(!edge.over && edge.group.figures().members > 10);
    play(&mut edge, &repository, &mut [], 119_000, 123_000);
    assert!(edge.over);
    assert_eq!(edge.group.figures().members, 0);
}

#[test]
fn a_look_that_brings_nothing_leaves_nobody_waiting() {
    let mut group: Group<usize> = Group::new(START, Grid::new(60));
    let lost = target("lost");
    assert_eq!(group.handle_ask(at(0), None, &lost), Reply::Wait);
    assert!(matches!(group.poll(at(0)), Next::Pass { .. }));
    group.handle_pass(at(0), Vec::new());
    assert_eq!(group.resume(at(0), None, &lost), Reply::Apart("group-masters-away"));
}

#[test]
fn a_full_group_takes_no_further_members() {
    let mut edge = Edge::new(60, 9);
    let repository = Repository { changes_ms: vec![0], ..Repository::default() };
    run(&mut edge, &repository, 1, 2, 0);
    assert_eq!(edge.group.contents().copied().collect::<Vec<_>>(), [1, 1]);
    edge.group.set_full(true);
    assert_eq!(edge.group.handle_ask(at(5_000), None, &target("2")), Reply::Apart("group-full"));
    assert!(matches!(edge.group.handle_ask(at(5_000), None, &target("1")), Reply::Serve(_)));
}

#[test]
fn what_cannot_be_kept_stands_apart_until_the_tick() {
    let mut group: Group<usize> = Group::new(START, Grid::new(60));
    let odd = target("odd");
    assert_eq!(group.handle_ask(at(0), None, &odd), Reply::Wait);
    assert!(matches!(group.poll(at(0)), Next::Pass { whole: false, .. }));
    group.handle_pass(at(0), vec![(odd.clone(), Found::Is(Held::Apart("no-store")))]);
    assert_eq!(group.handle_ask(at(9), None, &odd), Reply::Apart("no-store"));
    let tick = at(60_000);
    assert_eq!(group.poll(tick), Next::Idle);
    assert_eq!(group.handle_ask(tick, None, &odd), Reply::Wait);
}
