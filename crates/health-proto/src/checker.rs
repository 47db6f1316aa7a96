//! The checker machine: when to probe, what the results mean, when to publish.
//!
//! Every address of every node of the admin map is probed by itself, at most `interval_ms` apart
//! (the dice take up to a tenth off, so that probes do not march in step). `fall` failures in a row
//! make an address down, `rise` passes make a down one up; an unknown one is up with its first
//! pass, because unknown serves as up does. A node is down in a family when one of the family's
//! addresses is: clients are given them all.
//!
//! A dead node is therefore known after at most `fall` x `interval_ms` + `timeout_ms`, and the map
//! that says so is due at that moment.
//!
//! **Start.** The states of the last published map hold, with `unconfirmed:` before their reasons,
//! until a probe confirms or corrects them. A checker never starts with everything down: when the
//! last map had it so, everything starts unknown.
//!
//! **All at once (H1).** When every address begins to fail within one interval, while at least half
//! of them were up, the checker itself may be cut off. It goes on probing, and holds every state
//! until each address has failed `fall` times; then all go down in one map, with one time, so that
//! `all_down = "last-good"` still knows who was good last. One pass anywhere ends the suspicion:
//! what has failed often enough goes down at once. This is the plain rule for one checker without
//! canaries outside the network; it delays a withdrawal by at most an interval, and cannot tell a
//! dead network from a dead uplink. Canaries, which can, and which freeze the map, come with several
//! vantage points.
//!
//! **Drain.** A node with a `drain` reason in the admin map is published as drained with that reason
//! in each family. It is probed on, and what the probes say holds again when the reason is gone.
//! Since it serves nobody, its failures say nothing about the others (H1), but its passes do.
//!
//! **Publishing.** A change of state or of the admin map is due at once. Mere confirmations change
//! no answer, so they are gathered for up to [`GATHER_MS`].
//!
//! The methods are of four kinds:
//! - the world did something: [`Checker::handle_map`], [`Checker::handle_result`],
//!   [`Checker::handle_reader`];
//! - what to do next: [`Checker::poll_due`], [`Checker::poll_publish`], [`Checker::poll_timeout`];
//!   to be asked after each of the above and when the timeout is reached;
//! - getters: [`Checker::overview`], [`Checker::map`], [`Checker::is_holding`],
//!   [`Checker::readers`], [`Checker::take_disbelieved`];
//! - commands: none yet.

use std::collections::BTreeMap;
use std::net::IpAddr;

use model::{Dice, Family, Name, NodeState, Now, State};
use nodemap::{AdminMap, NodeMap, NodeStates};

use crate::generation::{Disbelieved, Generation};
use crate::overview::{AddressView, FamilyView, Overview, ReaderView};
use crate::probe::{Probe, ProbeResult, Target, Tracked};

/// How long confirmations are gathered before they are published, milliseconds.
pub const GATHER_MS: u64 = 1000;
/// First probes are spread over at most this long, milliseconds.
const FIRST_SPREAD_MS: u64 = 500;
/// An interval is shortened by up to one part in this many.
const JITTER_PART: u64 = 10;
const NS_PER_MS: u64 = 1_000_000;
/// What stands before the reason of a state that no probe of this run has confirmed.
const UNCONFIRMED: &str = "unconfirmed: ";

/// `[health.probe]`, as far as the machine cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// Longest time from the start of one probe of an address to the start of the next.
    pub interval_ms: u64,
    /// Longest time a whole probe may take; at most the interval.
    pub timeout_ms: u64,
    /// Passes in a row that make a down address up.
    pub rise: u32,
    /// Failures in a row that make an address down.
    pub fall: u32,
    /// Probes under way at any time, at most.
    pub in_flight_max: usize,
}

impl Default for Params {
    fn default() -> Self {
        Self { interval_ms: 10_000, timeout_ms: 2_000, rise: 2, fall: 3, in_flight_max: 256 }
    }
}

/// Which parameter was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamsError {
    /// Too quick, or so slow that a death is known only after a day.
    #[error("interval_ms must be from 100 to 3600000")]
    Interval,
    /// No time at all, or more than the interval: probes of one address would overlap.
    #[error("timeout_ms must be from 10 to interval_ms")]
    Timeout,
    /// Out of range.
    #[error("rise and fall must be from 1 to 100")]
    Counts,
    /// Nothing could be probed.
    #[error("at least one probe must be allowed at a time")]
    InFlight,
}

impl Params {
    /// Whether the machine can keep its promises with these.
    pub fn check(&self) -> Result<(), ParamsError> {
        if !(100..=3_600_000).contains(&self.interval_ms) {
            return Err(ParamsError::Interval);
        }
        if !(10..=self.interval_ms).contains(&self.timeout_ms) {
            return Err(ParamsError::Timeout);
        }
        if !(1..=100).contains(&self.rise) || !(1..=100).contains(&self.fall) {
            return Err(ParamsError::Counts);
        }
        if self.in_flight_max == 0 {
            return Err(ParamsError::InFlight);
        }
        Ok(())
    }
}

/// A node in one family as the probes see it, with the addresses that decide.
#[derive(Debug)]
struct Watched {
    state: NodeState,
    /// The address whose evidence the reason tells.
    speaker: Option<IpAddr>,
    addresses: BTreeMap<IpAddr, Tracked>,
}

/// What a result changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Nothing,
    Words,
    State,
}

/// The machine. See the module's page.
#[derive(Debug)]
pub struct Checker {
    params: Params,
    publisher: Name,
    map: AdminMap,
    /// What the probes say.
    watched: BTreeMap<(Name, Family), Watched>,
    /// Drained nodes, and since when (Unix time in milliseconds).
    drained: BTreeMap<Name, u64>,
    in_flight: BTreeMap<u64, Target>,
    next_probe: u64,
    dice: Dice,
    generation: Generation,
    published_ms: u64,
    /// When a map is due.
    publish_ns: Option<u64>,
    holding: bool,
}

impl Checker {
    /// A checker of the nodes of `map` that goes on where `last`, the map it published last, ended.
    /// Its first node map is due at once.
    pub fn new(
        params: Params,
        publisher: Name,
        map: AdminMap,
        last: Option<&NodeMap>,
        now: Now,
        dice: Dice,
    ) -> Self {
        let mut checker = Self {
            params,
            publisher,
            map: AdminMap::default(),
            watched: BTreeMap::new(),
            drained: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            next_probe: 0,
            dice,
            generation: Generation::after(last.map_or(0, |last| last.generation)),
            published_ms: 0,
            publish_ns: None,
            holding: false,
        };
        checker.handle_map(now, map);
        if let Some(last) = last {
            checker.restore(last);
        }
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

    /// Readers remembered.
    pub fn readers(&self) -> usize {
        self.generation.readers().len()
    }

    /// Takes the states of `last` over for the addresses that are still there.
    fn restore(&mut self, last: &NodeMap) {
        let known = |node: &Name, family| last.states.get(node).and_then(|s| s.get(family));
        let none_served = |s: &NodeState| matches!(s.state, State::Down | State::Drained);
        let all_down =
            self.watched.keys().all(|(node, family)| known(node, *family).is_some_and(none_served));
        for (node, since_ms) in &mut self.drained {
            let states = Family::ALL.into_iter().filter_map(|family| known(node, family));
            let before = states.filter(|s| s.state == State::Drained).map(|s| s.since_ms).min();
            *since_ms = before.unwrap_or(*since_ms);
        }
        for ((node, family), watched) in &mut self.watched {
            let Some(before) = known(node, *family) else { continue };
            let state = match before.state {
                State::Up => State::Up,
                State::Down if !all_down => State::Down,
                State::Down | State::Unknown | State::Drained => State::Unknown,
            };
            if before.state == State::Unknown {
                continue;
            }
            let evidence = before.reason.strip_prefix(UNCONFIRMED).unwrap_or(&before.reason);
            let was = if state == before.state {
                String::new()
            } else {
                format!("was {} at the last run: ", before.state)
            };
            let reason = format!("{UNCONFIRMED}{was}{evidence}");
            for tracked in watched.addresses.values_mut() {
                tracked.state = state;
                tracked.reason.clone_from(&reason);
            }
            let since_ms =
                if state == before.state { before.since_ms } else { watched.state.since_ms };
            watched.state = NodeState { state, reason, since_ms };
        }
    }

    /// Takes over an edited admin map: who left is forgotten, who is new starts unknown, and a new
    /// node map is due at once. The same map again changes nothing.
    pub fn handle_map(&mut self, now: Now, map: AdminMap) {
        if map == self.map && self.publish_ns.is_none() && self.generation.last() != 0 {
            return;
        }
        let mut before = std::mem::take(&mut self.watched);
        let spread = FIRST_SPREAD_MS.min(self.params.interval_ms).saturating_mul(NS_PER_MS);
        for (name, node) in &map.nodes {
            for family in Family::ALL {
                let mut known = before.remove(&(name.clone(), family));
                let mut addresses = BTreeMap::new();
                for address in node.addresses_of(family) {
                    let kept = known.as_mut().and_then(|k| k.addresses.remove(&address));
                    let due_ns = now.mono_ns.saturating_add(self.dice.below(spread));
                    let fresh = || {
                        let unprobed = NodeState::unprobed(now.wall_ms);
                        Tracked::new(unprobed.state, unprobed.reason, due_ns)
                    };
                    addresses.insert(address, kept.unwrap_or_else(fresh));
                }
                if addresses.is_empty() {
                    continue;
                }
                let (state, speaker) = known.map_or_else(
                    || (NodeState::unprobed(now.wall_ms), None),
                    |k| (k.state, k.speaker),
                );
                let mut watched = Watched { state, speaker, addresses };
                watched.refresh(now);
                self.watched.insert((name.clone(), family), watched);
            }
        }
        let drained = map.nodes.iter().filter(|(_, node)| node.drain.is_some());
        let since_ms = |name| self.drained.get(name).copied().unwrap_or(now.wall_ms);
        self.drained = drained.map(|(name, _)| (name.clone(), since_ms(name))).collect();
        self.map = map;
        self.publish_ns = Some(now.mono_ns);
    }

    /// Takes the result of the probe `id`. The result of a probe whose target has left the map
    /// changes nothing.
    pub fn handle_result(&mut self, now: Now, id: u64, result: ProbeResult) {
        let Some(target) = self.in_flight.remove(&id) else { return };
        let Some(tracked) = self.tracked_mut(&target) else { return };
        let Some((_, sent_ns)) = tracked.asked.filter(|(asked, _)| *asked == id) else { return };
        tracked.count(result, sent_ns, now);
        let holding = self.all_failing_at_once();
        let held = std::mem::replace(&mut self.holding, holding);
        // The end of a hold settles everyone it held back; else only this target can have moved.
        let everyone = held && !self.holding;
        let mut change = Change::Nothing;
        for ((node, family), watched) in &mut self.watched {
            if everyone || (*node == target.node && *family == target.family()) {
                for tracked in watched.addresses.values_mut() {
                    tracked.settle(&self.params, self.holding);
                }
                let of_this = watched.refresh(now);
                // What the probes of a drained node say is not published.
                if !self.drained.contains_key(node) {
                    change = change.max(of_this);
                }
            }
        }
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
        if newer {
            self.publish_ns = Some(now.mono_ns);
        }
        newer
    }

    /// The probes to send now, those due longest first, never more under way than allowed.
    pub fn poll_due(&mut self, now: Now) -> Vec<Probe> {
        let free = self.params.in_flight_max.saturating_sub(self.in_flight.len());
        let mut due = Vec::new();
        for ((node, _), watched) in &self.watched {
            for (address, tracked) in &watched.addresses {
                if tracked.asked.is_none() && tracked.due_ns <= now.mono_ns {
                    let target = Target { node: node.clone(), address: *address };
                    due.push((tracked.due_ns, target));
                }
            }
        }
        due.sort();
        due.truncate(free);
        due.into_iter().map(|(_, target)| self.send(now, target)).collect()
    }

    fn send(&mut self, now: Now, target: Target) -> Probe {
        let id = self.next_probe;
        self.next_probe = id.wrapping_add(1);
        let interval_ns = self.params.interval_ms.saturating_mul(NS_PER_MS);
        let early = self.dice.below((interval_ns / JITTER_PART).saturating_add(1));
        if let Some(tracked) = self.tracked_mut(&target) {
            tracked.asked = Some((id, now.mono_ns));
            tracked.due_ns = now.mono_ns.saturating_add(interval_ns.saturating_sub(early));
        }
        self.in_flight.insert(id, target.clone());
        Probe { id, target }
    }

    /// What the last publication did not believe, to be told to people: a map of ours that was
    /// numbered so far ahead of the clock that nobody took it.
    pub fn take_disbelieved(&mut self) -> Option<Disbelieved> {
        self.generation.take_disbelieved()
    }

    /// The node map to publish now, if one is due. Its generation is above every one before it that
    /// readers can have taken; see [`Checker::take_disbelieved`].
    pub fn poll_publish(&mut self, now: Now) -> Option<NodeMap> {
        self.publish_ns.take_if(|due_ns| *due_ns <= now.mono_ns)?;
        let mut states: BTreeMap<Name, NodeStates> =
            self.map.nodes.keys().map(|name| (name.clone(), NodeStates::default())).collect();
        for ((node, family), watched) in &self.watched {
            let state = self.drain_of(node).unwrap_or_else(|| watched.state.clone());
            *states.entry(node.clone()).or_default().get_mut(*family) = Some(state);
        }
        self.published_ms = now.wall_ms;
        Some(NodeMap {
            format: nodemap::published::FORMAT,
            generation: self.generation.next(now),
            publisher: self.publisher.to_string(),
            map: self.map.clone(),
            states,
        })
    }

    /// The monotonic time, nanoseconds, at which to ask `poll_due` and `poll_publish` again if
    /// nothing happens before.
    pub fn poll_timeout(&self) -> Option<u64> {
        let full = self.in_flight.len() >= self.params.in_flight_max;
        let tracked = self.watched.values().flat_map(|w| w.addresses.values());
        let next = tracked.filter(|t| t.asked.is_none() && !full).map(|t| t.due_ns).min();
        next.into_iter().chain(self.publish_ns).min()
    }

    /// What is known of everything, for people.
    pub fn overview(&self, now: Now) -> Overview {
        let age_ms = |then: Now| now.mono_ns.saturating_sub(then.mono_ns) / NS_PER_MS;
        let mut nodes: BTreeMap<Name, BTreeMap<Family, FamilyView>> = BTreeMap::new();
        for ((node, family), watched) in &self.watched {
            let addresses = watched.addresses.iter().map(|(address, tracked)| AddressView {
                address: *address,
                state: tracked.state,
                passes: tracked.passes,
                fails: tracked.fails,
                last_result: tracked.last.as_ref().map(|(result, _)| match result {
                    Ok(passed) => passed.to_string(),
                    Err(failure) => failure.to_string(),
                }),
                last_probe_age_ms: tracked.last.as_ref().map(|(_, at)| age_ms(*at)),
                next_probe_ms: match tracked.asked {
                    Some(_) => 0,
                    None => tracked.due_ns.saturating_sub(now.mono_ns) / NS_PER_MS,
                },
            });
            let drained = self.drain_of(node);
            let published = drained.as_ref().unwrap_or(&watched.state);
            let view = FamilyView {
                state: published.state,
                reason: published.reason.clone(),
                since_ms: published.since_ms,
                addresses: addresses.collect(),
            };
            nodes.entry(node.clone()).or_default().insert(*family, view);
        }
        let readers = self.generation.readers().iter().map(|(name, reader)| {
            let view = ReaderView {
                generation: reader.generation,
                last_poll_age_ms: age_ms(reader.polled),
                ahead: reader.ahead,
            };
            (name.clone(), view)
        });
        Overview {
            generation: self.generation.last(),
            published_ms: self.published_ms,
            holding: self.holding,
            probes_in_flight: self.in_flight.len(),
            nodes,
            readers: readers.collect(),
            readers_left_out: self.generation.left_out(),
        }
    }

    /// The state of `node` in each family, if a person took it out.
    fn drain_of(&self, node: &Name) -> Option<NodeState> {
        let reason = self.map.nodes.get(node)?.drain.clone()?;
        Some(NodeState { state: State::Drained, reason, since_ms: *self.drained.get(node)? })
    }

    /// Whether every address began to fail within one interval, at least half of them are still
    /// held to be up, and not all have failed often enough yet.
    fn all_failing_at_once(&self) -> bool {
        let (mut all, mut up, mut fallen) = (0usize, 0usize, 0usize);
        let (mut first, mut last) = (u64::MAX, 0);
        for ((node, _), watched) in &self.watched {
            let drained = self.drained.contains_key(node);
            for tracked in watched.addresses.values() {
                if tracked.fails == 0 {
                    return false;
                }
                if drained {
                    continue;
                }
                all = all.saturating_add(1);
                up = up.saturating_add(usize::from(tracked.state == State::Up));
                fallen = fallen.saturating_add(usize::from(tracked.has_fallen(&self.params)));
                first = first.min(tracked.failing_since_ns);
                last = last.max(tracked.failing_since_ns);
            }
        }
        // A probe that was already under way when everything ended began up to a timeout earlier.
        let once_ms = self.params.interval_ms.saturating_add(self.params.timeout_ms);
        let at_once = last.saturating_sub(first) <= once_ms.saturating_mul(NS_PER_MS);
        at_once && up.saturating_mul(2) >= all && fallen < all
    }

    fn tracked_mut(&mut self, target: &Target) -> Option<&mut Tracked> {
        let watched = self.watched.get_mut(&(target.node.clone(), target.family()))?;
        watched.addresses.get_mut(&target.address)
    }
}

impl Watched {
    /// Draws the family's state from its addresses: the worst one speaks, and goes on speaking for
    /// as long as none is worse, so that the reason does not wander.
    fn refresh(&mut self, now: Now) -> Change {
        // Of equally bad ones, a confirmed failure is the better evidence, and everything must be
        // confirmed to call the family up or unknown without reserve.
        let rank = |t: &Tracked| match t.state {
            State::Down => (0, !t.confirmed),
            State::Drained => (1, t.confirmed),
            State::Unknown => (2, t.confirmed),
            State::Up => (3, t.confirmed),
        };
        let by_rank =
            |(address, t): &(&IpAddr, &Tracked)| (rank(t), self.speaker != Some(**address));
        let Some((address, worst)) = self.addresses.iter().min_by_key(by_rank) else {
            return Change::Nothing;
        };
        let reason = if self.addresses.len() > 1 && worst.confirmed {
            format!("{address}: {}", worst.reason)
        } else {
            worst.reason.clone()
        };
        let confirmed = worst.confirmed && self.state.reason.starts_with(UNCONFIRMED);
        let change = if self.state.state != worst.state {
            self.state = NodeState { state: worst.state, reason, since_ms: now.wall_ms };
            Change::State
        } else if confirmed || self.speaker.is_some_and(|speaker| speaker != *address) {
            self.state.reason = reason;
            Change::Words
        } else {
            Change::Nothing
        };
        self.speaker = Some(*address);
        change
    }
}
