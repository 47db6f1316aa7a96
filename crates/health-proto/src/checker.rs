//! The checker machine: when to probe, what the results mean, when to publish.
//!
//! Every address of every node is asked for its health page, and for each project that it may serve
//! for what that project's checks say; masters, our own DNS nodes and canaries outside the network are
//! asked too (`targets`, `schedule`). `fall` failures in a row make a target down, `rise` passes make a
//! down one up; an unknown one is up with its first pass, because unknown serves as up does (`count`). A
//! node is down in a family when one of the family's addresses is: clients are given them all
//! (`watch`). What this checker sees is one vote (`council`); what the votes say is damped
//! (`standing`) and published.
//!
//! A dead node is therefore known after at most `fall` x `interval_ms` + `timeout_ms`, and the map
//! that says so is due at that moment.
//!
//! **Start.** The states of the last published map hold, with `unconfirmed:` before their reasons,
//! until a probe confirms or corrects them. A checker never starts with everything down: when the
//! last map had it so, everything starts unknown.
//!
//! **Suspecting itself (H1).** With canaries outside the network, no target falls unless a canary
//! answered a probe that was sent after the target began to fail; when all canaries fail, the checker
//! is isolated, changes nothing and says so to the others, and counts anew once it sees again. With other
//! checkers it is isolated too when none has been heard of lately, unless a canary answers and at
//! least half of the addresses pass. With neither, the plain rule holds: when every address begins to fail
//! within one interval, while at least half of them were up, every state is held until each address has
//! failed `fall` times; then all go down in one map, with one time, so that `all_down = "last-good"`
//! still knows who was good last. One pass anywhere ends the suspicion. That rule delays a withdrawal
//! by at most an interval, and cannot tell a dead network from a dead uplink.
//!
//! **Drain.** A node with a `drain` reason in the admin map is published as drained with that reason
//! in each family. It is probed on, and what the probes say holds again when the reason is gone.
//! Since it serves nobody, its failures say nothing about the others (H1), but its passes do.
//!
//! **Weights.** Load, the warming up after a recovery, and long silence take from the weight of a node
//! (`checker/weights.rs`), at most once in `rewrite_ms`; in panic nothing does.
//!
//! **Publishing.** A change of state or of the admin map is due at once. Mere confirmations change
//! no answer, so they are gathered for up to [`GATHER_MS`]. Only the publisher of the council
//! publishes.
//!
//! The methods are of four kinds:
//! - the world did something: [`Checker::handle_map`], [`Checker::handle_result`],
//!   [`Checker::handle_reader`], [`Checker::handle_observations`], [`Checker::handle_load`],
//!   [`Checker::handle_acme`];
//! - what to do next: [`Checker::poll_due`], [`Checker::poll_publish`], [`Checker::poll_timeout`];
//!   to be asked after each of the above and when the timeout is reached;
//! - getters: [`Checker::overview`], [`Checker::observations`], [`Checker::map`],
//!   [`Checker::is_holding`], [`Checker::is_isolated`], [`Checker::role`], [`Checker::readers`],
//!   [`Checker::take_disbelieved`], [`Checker::take_events`];
//! - commands: [`Checker::raise`], [`Checker::lower`].

mod alarms;
mod show;
mod states;
mod weights;

use std::collections::BTreeMap;

use model::{Dice, Family, Name, NodeState, Now, State};
use nodemap::{Acme, AdminMap, MasterState, MasterWord, NodeMap, NodeStates};

use crate::alarm::Alarm;
use crate::council::{Council, Me, Role};
use crate::event::{Event, Events};
use crate::generation::{Disbelieved, Generation};
use crate::load::{LoadReport, Loads};
use crate::observe::{Observations, Subject};
use crate::probe::{Probe, ProbeResult, Target};
use crate::schedule::Schedule;
use crate::setup::Setup;
use crate::standing::{Change, Standing};
use crate::targets::{subject_of, targets};
use crate::watch::{UNCONFIRMED, Watched};

/// How long confirmations are gathered before they are published, milliseconds.
pub const GATHER_MS: u64 = 1000;
/// How often what time alone changes is looked at, milliseconds; with shorter intervals as often.
const TICK_MS: u64 = 1000;
/// A reader that has not polled for so long is gone, milliseconds: they poll once a minute.
const AWAITED_MS: u64 = 120_000;
const NS_PER_MS: u64 = 1_000_000;

/// The machine. See the module's page.
#[derive(Debug)]
pub struct Checker {
    setup: Setup,
    publisher: Name,
    map: AdminMap,
    /// What hosts answer authorities of certificates.
    acme: Option<Acme>,
    schedule: Schedule,
    /// What this checker's probes say.
    watched: BTreeMap<Subject, Watched>,
    council: Council,
    role: Role,
    /// What is published.
    standing: BTreeMap<Subject, Standing>,
    /// Masters that answer otherwise than the others, and how, by this checker's probes.
    differing: BTreeMap<(Name, Name), String>,
    /// Projects whose masters disagree, and how.
    disagreeing: BTreeMap<Name, String>,
    /// Drained nodes, and since when (Unix time in milliseconds).
    drained: BTreeMap<Name, u64>,
    loads: Loads,
    /// Node and family -> what is left of its weight, thousandths, as published.
    permille: BTreeMap<(Name, Family), u32>,
    weighed_ns: u64,
    /// Why load and planner move nothing: what is up of the network's weight, percent.
    panic: Option<u32>,
    dice: Dice,
    generation: Generation,
    published_ms: u64,
    /// When a map is due.
    publish_ns: Option<u64>,
    tick_ns: u64,
    holding: bool,
    /// Why this checker suspects itself, if it does.
    isolated: Option<String>,
    /// No canary outside answers.
    blind: bool,
    /// When the last probe was sent that a canary outside answered.
    sight_ns: Option<u64>,
    /// Alarms that hold, and since when (Unix time in milliseconds).
    alarms: BTreeMap<(&'static str, String), (Alarm, u64)>,
    /// Those that somebody else raised.
    raised: BTreeMap<(&'static str, String), Alarm>,
    events: Events,
}

impl Checker {
    /// A checker of the nodes of `map` that goes on where `last`, the map it published last, ended.
    /// Its first node map is due at once.
    pub fn new(
        setup: Setup,
        publisher: Name,
        map: AdminMap,
        last: Option<&NodeMap>,
        now: Now,
        dice: Dice,
    ) -> Self {
        let council = Council::new(setup.council.clone(), publisher.clone(), now);
        let mut checker = Self {
            schedule: Schedule::new(&setup),
            role: Role::Standby { of: None },
            setup,
            publisher,
            map: AdminMap::default(),
            acme: None,
            watched: BTreeMap::new(),
            council,
            standing: BTreeMap::new(),
            differing: BTreeMap::new(),
            disagreeing: BTreeMap::new(),
            drained: BTreeMap::new(),
            loads: Loads::default(),
            permille: BTreeMap::new(),
            weighed_ns: now.mono_ns,
            panic: None,
            dice,
            generation: Generation::after(last.map_or(0, |last| last.generation)),
            published_ms: 0,
            publish_ns: None,
            tick_ns: now.mono_ns,
            holding: false,
            isolated: None,
            blind: false,
            sight_ns: None,
            alarms: BTreeMap::new(),
            raised: BTreeMap::new(),
            events: Events::default(),
        };
        checker.handle_map(now, map);
        if let Some(last) = last {
            checker.restore(last);
        }
        checker.role = checker.council.role(now, Me::default());
        checker
    }

    /// The admin map in use.
    pub fn map(&self) -> &AdminMap {
        &self.map
    }

    /// Whether states are held because everything fails at once (H1).
    pub fn is_holding(&self) -> bool {
        self.holding
    }

    /// Whether this checker suspects itself and changes nothing (H1).
    pub fn is_isolated(&self) -> bool {
        self.isolated.is_some()
    }

    /// Who publishes, by the static order of the checkers.
    pub fn role(&self) -> &Role {
        &self.role
    }

    /// Whether a node that is up, or a reader that polled in the last two minutes, has not come to
    /// `generation` yet. A checker that has just started knows of no readers, but of nodes.
    pub fn is_awaited(&self, now: Now, generation: u64) -> bool {
        let readers = self.generation.readers();
        let reader_lags = readers.values().any(|reader| {
            let silent_ms = now.mono_ns.saturating_sub(reader.polled.mono_ns) / NS_PER_MS;
            !reader.ahead && silent_ms < AWAITED_MS && reader.generation < generation
        });
        let mut up = self.standing.iter().filter(|(_, standing)| standing.state.state.serves());
        reader_lags
            || up.any(|(subject, _)| match subject {
                Subject::Node { node, .. } => !readers.contains_key(node),
                Subject::Project { .. } | Subject::Master { .. } => false,
            })
    }

    /// Readers remembered.
    pub fn readers(&self) -> usize {
        self.generation.readers().len()
    }

    /// Takes the states of `last` over for what is still there.
    fn restore(&mut self, last: &NodeMap) {
        let known = |node: &Name, family| last.states.get(node).and_then(|s| s.get(family));
        let none_served = |s: &NodeState| matches!(s.state, State::Down | State::Drained);
        let all_down = self.watched.keys().all(|subject| match subject {
            Subject::Node { node, family } => known(node, *family).is_some_and(none_served),
            Subject::Project { .. } | Subject::Master { .. } => true,
        });
        for (node, since_ms) in &mut self.drained {
            let states = Family::ALL.into_iter().filter_map(|family| known(node, family));
            let before = states.filter(|s| s.state == State::Drained).map(|s| s.since_ms).min();
            *since_ms = before.unwrap_or(*since_ms);
        }
        let subjects: Vec<Subject> = self.watched.keys().cloned().collect();
        for subject in subjects {
            let before = match &subject {
                Subject::Node { node, family } => known(node, *family).cloned(),
                Subject::Project { project, node, family } => {
                    last.unfit_for(project, node, *family).cloned()
                }
                Subject::Master { project, master } => last
                    .masters
                    .get(project)
                    .and_then(|masters| masters.get(master))
                    .filter(|state| state.state != MasterWord::Good)
                    .map(|state| NodeState::new(State::Down, &*state.reason, state.since_ms)),
            };
            if let Some(before) = before.filter(|before| before.state != State::Unknown) {
                let is_node = matches!(subject, Subject::Node { .. });
                self.restore_one(&subject, &before, is_node && all_down);
            }
        }
    }

    fn restore_one(&mut self, subject: &Subject, before: &NodeState, all_down: bool) {
        let (Some(watched), Some(standing)) =
            (self.watched.get_mut(subject), self.standing.get_mut(subject))
        else {
            return;
        };
        let state = match before.state {
            State::Up => State::Up,
            State::Down if !all_down => State::Down,
            State::Down | State::Unknown | State::Drained => State::Unknown,
        };
        let evidence = before.reason.strip_prefix(UNCONFIRMED).unwrap_or(&before.reason);
        let was = match state == before.state {
            true => String::new(),
            false => format!("was {} at the last run: ", before.state),
        };
        let reason = format!("{UNCONFIRMED}{was}{evidence}");
        for member in &watched.members {
            if let Some(tracked) = self.schedule.get_mut(member) {
                tracked.state = state;
                tracked.reason.clone_from(&reason);
            }
        }
        let kept = state == before.state;
        let since_ms = if kept { before.since_ms } else { watched.state.since_ms };
        watched.state = NodeState::new(state, reason, since_ms);
        standing.state = watched.state.clone();
    }

    /// Takes over an edited admin map: who left is forgotten, who is new starts unknown, and a new
    /// node map is due at once. The same map again changes nothing.
    pub fn handle_map(&mut self, now: Now, map: AdminMap) {
        if map == self.map && self.publish_ns.is_none() && self.generation.last() != 0 {
            return;
        }
        self.schedule.set(targets(&map, &self.setup), now, &mut self.dice);
        let mut before = std::mem::take(&mut self.watched);
        let members = before
            .iter_mut()
            .map(|(subject, watched)| (subject.clone(), std::mem::take(&mut watched.members)));
        let members: BTreeMap<Subject, Vec<Target>> = members.collect();
        for target in self.schedule.iter().map(|(target, _)| target) {
            let Some(subject) = subject_of(target) else { continue };
            let kept = || before.remove(&subject).unwrap_or_else(|| Watched::unprobed(now));
            let watched = self.watched.entry(subject.clone()).or_insert_with(kept);
            watched.members.push(target.clone());
        }
        // Who shares no target with what it was is somebody else under its name.
        let stays = |subject: &Subject| {
            let new = self.watched.get(subject).map_or(&[][..], |watched| &watched.members);
            members.get(subject).is_some_and(|old| old.iter().any(|target| new.contains(target)))
        };
        self.standing.retain(|subject, _| stays(subject));
        for (subject, watched) in &mut self.watched {
            watched.refresh(&self.schedule, now);
            let fresh = || Standing::new(watched.state.clone(), now);
            self.standing.entry(subject.clone()).or_insert_with(fresh);
        }
        let drained = map.nodes.iter().filter(|(_, node)| node.drain.is_some());
        let since_ms = |name| self.drained.get(name).copied().unwrap_or(now.wall_ms);
        self.drained = drained.map(|(name, _)| (name.clone(), since_ms(name))).collect();
        self.map = map;
        self.settle_all(now);
        self.publish_ns = Some(now.mono_ns);
    }

    /// Takes the result of the probe `id`. The result of a probe whose target has left the map
    /// changes nothing.
    pub fn handle_result(&mut self, now: Now, id: u64, result: ProbeResult) {
        let passed = result.is_ok();
        let Some(target) = self.schedule.take(now, id, result) else { return };
        self.note_sight(now, &target, passed);
        let change = self.settle_target(now, &target);
        self.note_change(now, change);
    }

    /// Makes a map due as `change` wants it.
    fn note_change(&mut self, now: Now, change: Change) {
        let due_ns = match change {
            Change::Nothing => return,
            Change::Words => now.mono_ns.saturating_add(GATHER_MS.saturating_mul(NS_PER_MS)),
            Change::State => now.mono_ns,
        };
        self.publish_ns = Some(self.publish_ns.map_or(due_ns, |before| before.min(due_ns)));
    }

    /// Notes that reader `name` polled and runs `generation`. When that is newer than ours (this
    /// publisher lost its memory, or its clock went back), a map above it is due at once; a
    /// generation a day or more ahead of the clock is shown but not followed.
    ///
    /// Gives whether a new map is due for this reader's sake.
    pub fn handle_reader(&mut self, now: Now, name: Name, generation: u64) -> bool {
        let newer = self.generation.note_reader(now, name, generation);
        // One that stands by has readers of the publisher's maps.
        if newer && self.role.publishes() {
            self.publish_ns = Some(now.mono_ns);
        }
        newer
    }

    /// Takes what another checker published. Its signature must have been found to be that of a known
    /// checker (H1). Gives whether it counts: not from strangers, and not when it is older than what
    /// was known.
    pub fn handle_observations(&mut self, now: Now, seen: Observations) -> bool {
        let generation = seen.generation;
        if !self.council.hear(now, seen) {
            return false;
        }
        self.generation.note_peer(now, generation);
        self.take_role(now);
        let change = self.settle_all(now);
        self.note_change(now, change);
        true
    }

    /// Takes what a node says of its load. One that is not in the map has none.
    pub fn handle_load(&mut self, now: Now, node: Name, report: LoadReport) {
        if self.map.nodes.contains_key(&node) {
            self.loads.hear(now, node, report);
        }
    }

    /// Takes over what hosts are to answer authorities of certificates; a map that says so is due at once.
    pub fn handle_acme(&mut self, now: Now, acme: Option<Acme>) {
        if acme != self.acme {
            self.acme = acme;
            self.publish_ns = Some(now.mono_ns);
        }
    }

    /// Raises an alarm of which the machine cannot know; it holds until it is lowered.
    pub fn raise(&mut self, now: Now, alarm: Alarm) {
        self.raised.insert((alarm.word(), alarm.about()), alarm);
        self.refresh_alarms(now);
    }

    /// Ends the alarm of this word that was raised about `about`.
    pub fn lower(&mut self, now: Now, word: &'static str, about: &str) {
        self.raised.remove(&(word, about.to_owned()));
        self.refresh_alarms(now);
    }

    /// The probes to send now, those due longest first, never more under way than allowed, nor more in
    /// a second than the budget has.
    pub fn poll_due(&mut self, now: Now) -> Vec<Probe> {
        self.schedule.poll_due(now, &mut self.dice)
    }

    /// What the last publication did not believe, to be told to people: a map of ours that was
    /// numbered so far ahead of the clock that nobody took it.
    pub fn take_disbelieved(&mut self) -> Option<Disbelieved> {
        self.generation.take_disbelieved()
    }

    /// What changed since this was last asked, and how many events were dropped because nobody asked.
    pub fn take_events(&mut self) -> (Vec<Event>, u64) {
        self.events.take()
    }

    /// The node map to publish now, if one is due and this checker publishes. Its generation is above
    /// every one before it that readers can have taken; see [`Checker::take_disbelieved`].
    pub fn poll_publish(&mut self, now: Now) -> Option<NodeMap> {
        self.tick(now);
        if !self.role.publishes() {
            return None;
        }
        self.publish_ns.take_if(|due_ns| *due_ns <= now.mono_ns)?;
        self.weigh(now);
        let mut states: BTreeMap<Name, NodeStates> =
            self.map.nodes.keys().map(|name| (name.clone(), NodeStates::default())).collect();
        let (mut unfit, mut masters) = (BTreeMap::new(), BTreeMap::new());
        for (subject, standing) in &self.standing {
            let state = &standing.state;
            match subject {
                Subject::Node { node, family } => {
                    let published = self.published_state(node, *family, state);
                    *states.entry(node.clone()).or_default().get_mut(*family) = Some(published);
                }
                Subject::Project { project, node, family } if state.state == State::Down => {
                    let nodes: &mut BTreeMap<Name, NodeStates> =
                        unfit.entry(project.clone()).or_default();
                    *nodes.entry(node.clone()).or_default().get_mut(*family) = Some(state.clone());
                }
                Subject::Master { project, master } if state.state == State::Down => {
                    let known: &mut BTreeMap<Name, MasterState> =
                        masters.entry(project.clone()).or_default();
                    known.insert(master.clone(), standing.of_master());
                }
                Subject::Project { .. } | Subject::Master { .. } => {}
            }
        }
        self.published_ms = now.wall_ms;
        let generation = self.generation.next(now);
        let map = NodeMap::new(generation, self.publisher.to_string(), self.map.clone(), states);
        Some(NodeMap { unfit, masters, acme: self.acme.clone(), ..map })
    }

    /// The monotonic time, nanoseconds, at which to ask `poll_due` and `poll_publish` again if
    /// nothing happens before.
    pub fn poll_timeout(&self) -> Option<u64> {
        let publish_ns = self.publish_ns.filter(|_| self.role.publishes());
        self.schedule.poll_timeout().into_iter().chain(publish_ns).chain([self.tick_ns]).min()
    }

    /// What time alone changes: roles, dwells, decay, weights, alarms.
    fn tick(&mut self, now: Now) {
        if now.mono_ns < self.tick_ns {
            return;
        }
        let tick_ms = TICK_MS.min(self.setup.params.interval_ms);
        self.tick_ns = now.mono_ns.saturating_add(tick_ms.saturating_mul(NS_PER_MS));
        self.take_role(now);
        self.note_isolation(now);
        let change = self.settle_all(now);
        self.note_change(now, change);
        self.move_weights(now);
        self.refresh_alarms(now);
    }

    /// The state of `node` in each family, if a person took it out.
    fn drain_of(&self, node: &Name) -> Option<NodeState> {
        let reason = self.map.nodes.get(node)?.drain.clone()?;
        Some(NodeState::new(State::Drained, reason, *self.drained.get(node)?))
    }

    /// What is published of a node in a family whose standing is `state`.
    fn published_state(&self, node: &Name, family: Family, state: &NodeState) -> NodeState {
        let permille = self.permille_of(node, family);
        self.drain_of(node).unwrap_or_else(|| NodeState { permille, ..state.clone() })
    }
}
