//! One group: which version of each member a client gets, and when masters are asked.
//!
//! A *snapshot* names a version for each member; clients are served from snapshots only. It is true
//! of one instant: a *pass* looks at every member, and when the next pass finds the same versions,
//! then all of them were there at once, at any moment between the two (a double collect). A *round*
//! is a series of passes, a beat of the grid apart, until two agree; it begins at each tick, or when
//! a member is asked for that the snapshot has not.
//!
//! Phases of a round: pass -> compared with what was seen before (at first: with the newest
//! snapshot, so that a quiet tick takes one pass) -> equal: the snapshot is right, or a new one takes
//! its place at once; different: another pass; a member that no master could tell of, or too many
//! passes: the old snapshot stays, whole, and the next round comes soon.
//!
//! `V` is a version of content; two are equal when they have the same bytes. The machine knows
//! neither masters nor bodies. Use: [`Group::handle_ask`] for each request; [`Group::poll`] and
//! [`Group::handle_pass`] in turn by whoever drives it.

use std::collections::HashMap;
use std::net::SocketAddr;

use http_cache::Target;
use model::Now;

use super::bindings::Bindings;
use super::grid::Grid;
use super::snapshots::{Held, Snapshots, Versions, agree, contents};

/// Members of a group.
const MEMBERS_MAX: usize = 256;
/// A member is forgotten when it was not asked for in so many epochs ...
const UNASKED_EPOCHS: u64 = 10;
/// ... and so many milliseconds.
const UNASKED_MS: u64 = 120_000;
/// Passes of a round that began at a tick.
const PASSES_MAX: u32 = 8;
/// After a round without a snapshot the next comes this much later, or with the next tick.
const RETRY_MS: u64 = 30_000;
/// After so many rounds in a row in which the members never stood still, what the last pass found is
/// better than what is ever older.
const RESTLESS_ROUNDS_MAX: u32 = 3;
/// The wall clock may be set while nothing is to be done.
const SLEEP_MAX_MS: u64 = 60_000;
/// Looks at members that new members may cost between two ticks.
const LOOKS_MAX: usize = 4096;
/// What a pass brought for one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<V> {
    /// This.
    Is(Held<V>),
    /// No master could tell.
    Away,
}

/// What a request gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply<V> {
    /// This version.
    Serve(Serving<V>),
    /// Something has to be asked first: [`Group::resume`] after the next pass.
    Wait,
    /// Not from the group; with the reason.
    Apart(&'static str),
}

/// A version and its snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Serving<V> {
    pub(crate) held: Held<V>,
    /// The tick that the snapshot belongs to, unix milliseconds.
    pub(crate) tick_ms: u64,
    /// Masters could not confirm it when they should have.
    pub(crate) stale: bool,
    /// Not of the snapshot that the client began with: that one has not this member.
    pub(crate) mixed: bool,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Look at these members, all of them, and give [`Group::handle_pass`] what they are.
    Pass {
        /// In order of their names.
        targets: Vec<Target>,
        /// Whether their bodies must have come whole: no client waits for this pass.
        whole: bool,
    },
    /// Nothing until this long has passed or a request had to wait. Milliseconds.
    Sleep(u64),
    /// Nothing until a request had to wait: nobody has asked for anything in a long time.
    Idle,
}

/// What became of the snapshot with a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Another pass follows.
    GoesOn,
    /// It was found to be right still; members may have come to it.
    Confirmed,
    /// Another has taken its place.
    Switched,
    /// It stays, though it was not found to be right.
    Kept(Kept),
}

/// Why a snapshot was not replaced when it should have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// No two passes agreed.
    Restless,
    /// A member could not be confirmed with any master.
    MastersAway,
}

impl Kept {
    /// The stable word.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Restless => "group-restless",
            Self::MastersAway => "group-masters-away",
        }
    }
}

#[derive(Debug)]
struct Member {
    target: Target,
    asked_epoch: u64,
}

#[derive(Debug)]
struct Round<V> {
    /// The epoch it is for.
    epoch: u64,
    targets: Vec<Target>,
    passes: u32,
    /// When the next pass is due, unix milliseconds.
    due_ms: u64,
    /// What the pass before found, or the newest snapshot.
    seen: Versions<V>,
    /// Clients wait for new members, and these alone are looked at first.
    admits: bool,
}

/// Figures of a group, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) members: usize,
    /// Members that masters do not have.
    pub(crate) missing: usize,
    pub(crate) snapshots_kept: usize,
    /// Snapshots that took another's place.
    pub(crate) switches: u64,
    /// Tick of the newest snapshot, unix milliseconds; 0: there is none yet.
    pub(crate) tick_ms: u64,
    /// Why the last round brought none.
    pub(crate) kept: Option<Kept>,
}

/// A group.
#[derive(Debug)]
pub(crate) struct Group<V> {
    grid: Grid,
    /// Whatever was asked for lately, by target.
    members: HashMap<String, Member>,
    snapshots: Snapshots<V>,
    bindings: Bindings,
    round: Option<Round<V>>,
    /// The epoch of the last round that began at a tick.
    last_epoch: u64,
    retry_ms: Option<u64>,
    restless_rounds: u32,
    kept: Option<Kept>,
    looks_left: usize,
    is_full: bool,
}

impl<V: Clone + PartialEq> Group<V> {
    /// An empty group.
    pub(crate) fn new(now: Now, grid: Grid) -> Self {
        Self {
            grid,
            members: HashMap::new(),
            snapshots: Snapshots::default(),
            bindings: Bindings::default(),
            round: None,
            last_epoch: grid.epoch(now),
            retry_ms: None,
            restless_rounds: 0,
            kept: None,
            looks_left: LOOKS_MAX,
            is_full: false,
        }
    }

    /// The contents of the newest snapshot.
    pub(crate) fn contents(&self) -> impl Iterator<Item = &V> {
        let held = self.snapshots.newest().into_iter().flat_map(|s| s.members.values());
        held.filter_map(|held| match held {
            Held::Content(version) => Some(version),
            Held::Missing(_) | Held::Apart(_) => None,
        })
    }

    /// Whether its contents take all the room that there is: no further members then.
    pub(crate) fn set_full(&mut self, is_full: bool) {
        self.is_full = is_full;
    }

    /// For people.
    pub(crate) fn figures(&self) -> Figures {
        let newest = self.snapshots.newest();
        let is_missing = |held: &&Held<V>| matches!(held, Held::Missing(_));
        Figures {
            members: self.members.len(),
            missing: newest.map_or(0, |s| s.members.values().filter(is_missing).count()),
            snapshots_kept: self.snapshots.kept(),
            switches: self.snapshots.switches(),
            tick_ms: newest.map_or(0, |s| self.grid.tick_ms(s.epoch)),
            kept: self.kept,
        }
    }

    /// A request. `client`: `None` for another edge, which binds its own clients.
    pub(crate) fn handle_ask(
        &mut self,
        now: Now,
        client: Option<SocketAddr>,
        target: &Target,
    ) -> Reply<V> {
        let epoch = self.grid.epoch(now);
        if let Some(member) = self.members.get_mut(target.as_str()) {
            member.asked_epoch = epoch;
        } else if let Err(word) = self.admit(epoch, target) {
            return Reply::Apart(word);
        }
        self.answer(now, client, target).unwrap_or(Reply::Wait)
    }

    /// A request that had to wait, after a pass.
    pub(crate) fn resume(
        &mut self,
        now: Now,
        client: Option<SocketAddr>,
        target: &Target,
    ) -> Reply<V> {
        let is_awaited = self.members.contains_key(target.as_str());
        let none = if is_awaited { Reply::Wait } else { Reply::Apart(self.kept_word()) };
        self.answer(now, client, target).unwrap_or(none)
    }

    fn kept_word(&self) -> &'static str {
        self.kept.unwrap_or(Kept::MastersAway).as_str()
    }

    /// Makes a target a member, if there is room.
    fn admit(&mut self, epoch: u64, target: &Target) -> Result<(), &'static str> {
        if self.is_full {
            return Err("group-full");
        }
        if self.kept == Some(Kept::Restless) && self.contents().next().is_some() {
            // Nothing that comes to it could be found to fit: nobody waits for that.
            return Err(Kept::Restless.as_str());
        }
        if self.members.len() >= MEMBERS_MAX {
            // What masters do not have makes room for what they may have.
            let newest = self.snapshots.newest_mut().ok_or("group-full")?;
            let is_missing = |held: &Held<V>| matches!(held, Held::Missing(_));
            let missing = newest.members.iter().find(|(_, held)| is_missing(held));
            let name = missing.map(|(name, _)| name.clone()).ok_or("group-full")?;
            newest.members.remove(&name);
            self.members.remove(&name);
        }
        // Twice: at once, and at the next beat.
        let looks = self.members.len().saturating_mul(2).saturating_add(1);
        self.looks_left = self.looks_left.checked_sub(looks).ok_or("group-busy")?;
        let member = Member { target: target.clone(), asked_epoch: epoch };
        self.members.insert(target.as_str().to_owned(), member);
        Ok(())
    }

    /// From the snapshot that the client began with, or the newest where that one has not the
    /// target; `None` when the newest has it not.
    fn answer(
        &mut self,
        now: Now,
        client: Option<SocketAddr>,
        target: &Target,
    ) -> Option<Reply<V>> {
        let name = target.as_str();
        let newest = self.snapshots.newest().filter(|s| s.members.contains_key(name))?;
        let number = newest.number;
        let is_kept = |number| self.snapshots.get(number).is_some();
        let bound = client.map_or(number, |c| self.bindings.of(now, c, number, is_kept));
        let bound = self.snapshots.get(bound).filter(|s| s.members.contains_key(name));
        let mixed = bound.is_none();
        let snapshot = bound.unwrap_or(newest);
        Some(match snapshot.members.get(name)?.clone() {
            Held::Apart(word) => Reply::Apart(word),
            held => Reply::Serve(Serving {
                held,
                tick_ms: self.grid.tick_ms(snapshot.epoch),
                stale: self.kept.is_some(),
                mixed,
            }),
        })
    }

    /// What to do next, while no pass is being made.
    pub(crate) fn poll(&mut self, now: Now) -> Next {
        if self.round.is_none() && !self.begin(now) {
            return Next::Idle;
        }
        let Some(round) = &self.round else { return Next::Sleep(self.idle_ms(now)) };
        let wait_ms = round.due_ms.saturating_sub(now.wall_ms);
        // A clock that was set back does not stop the group.
        if (1..=self.grid.step_ms()).contains(&wait_ms) {
            return Next::Sleep(wait_ms);
        }
        Next::Pass { targets: round.targets.clone(), whole: !round.admits }
    }

    /// Begins a round if there is reason; `false` when there are no members.
    fn begin(&mut self, now: Now) -> bool {
        let epoch = self.grid.epoch(now);
        let is_tick = epoch != self.last_epoch;
        if is_tick {
            self.last_epoch = epoch;
            self.looks_left = LOOKS_MAX;
            self.forget(epoch);
            self.snapshots.drop_replaced(now);
        }
        if self.members.is_empty() {
            return !is_tick;
        }
        let is_due = is_tick || self.retry_ms.is_some_and(|at_ms| at_ms <= now.wall_ms);
        let seen = self.snapshots.newest().map(|s| s.members.clone()).unwrap_or_default();
        let is_new = |member: &&Member| !seen.contains_key(member.target.as_str());
        let targets = if is_due {
            sorted(self.members.values())
        } else {
            sorted(self.members.values().filter(is_new))
        };
        if targets.is_empty() {
            return true;
        }
        if is_due {
            self.retry_ms = None;
        }
        let (passes, due_ms) = (0, now.wall_ms);
        self.round = Some(Round { epoch, targets, passes, due_ms, seen, admits: !is_due });
        true
    }

    /// Lets go of members that nobody asks for, and of those that are none: these show at the next
    /// request what they are now.
    fn forget(&mut self, epoch: u64) {
        let step_ms = self.grid.step_ms();
        let unasked = UNASKED_EPOCHS.max(UNASKED_MS.checked_div(step_ms).unwrap_or(0));
        let newest = self.snapshots.newest_mut();
        let mut versions = newest.map(|s| &mut s.members);
        self.members.retain(|name, member| {
            let apart =
                versions.as_ref().is_some_and(|v| matches!(v.get(name), Some(Held::Apart(_))));
            let keep = !apart && member.asked_epoch.saturating_add(unasked) >= epoch;
            if !keep && let Some(versions) = &mut versions {
                versions.remove(name);
            }
            keep
        });
    }

    fn idle_ms(&self, now: Now) -> u64 {
        let tick_ms = self.grid.tick_ms(self.grid.epoch(now).saturating_add(1));
        let at_ms = self.retry_ms.map_or(tick_ms, |retry_ms| retry_ms.min(tick_ms));
        at_ms.saturating_sub(now.wall_ms).clamp(1, SLEEP_MAX_MS)
    }

    /// What the pass found. A target that it says nothing of was not found.
    pub(crate) fn handle_pass(&mut self, now: Now, found: Vec<(Target, Found<V>)>) -> Outcome {
        let Some(mut round) = self.round.take() else { return Outcome::GoesOn };
        let is_first = round.passes == 0;
        round.passes = round.passes.saturating_add(1);
        let mut versions = Versions::new();
        let mut is_away = false;
        for (target, found) in found {
            if let Found::Is(held) = found {
                versions.insert(target.as_str().to_owned(), held);
            }
        }
        for target in round.targets.iter().filter(|t| !versions.contains_key(t.as_str())) {
            if self.is_in_newest(target) {
                is_away = true;
            } else {
                // Whoever waits for it is not served by the group.
                self.drop_member(target);
            }
        }
        if round.admits && is_first {
            return self.handle_admission(now, round, versions);
        }
        round.targets.retain(|target| self.members.contains_key(target.as_str()));
        if is_away {
            if round.admits || round.passes >= PASSES_MAX {
                return self.give_up(now, &round, Kept::MastersAway);
            }
            round.seen.clear();
        } else if contents(&versions) <= 1 || agree(&versions, &round.seen) {
            let outcome = self.settle(now, round.epoch, versions);
            if round.admits {
                // Nobody had to wait for a beat: what was seen in the middle of a change shows then.
                self.retry_ms = Some(self.grid.next_beat_ms(now));
            }
            return outcome;
        } else if round.passes >= PASSES_MAX {
            self.restless_rounds = self.restless_rounds.saturating_add(1);
            if self.restless_rounds >= RESTLESS_ROUNDS_MAX {
                let outcome = self.settle(now, round.epoch, versions);
                self.kept = Some(Kept::Restless);
                return outcome;
            }
            return self.give_up(now, &round, Kept::Restless);
        } else {
            round.seen = versions;
        }
        round.admits = false;
        round.due_ms = self.grid.next_beat_ms(now);
        self.round = Some(round);
        Outcome::GoesOn
    }

    /// New members were looked at. Where others are held already (or several came together), these
    /// must be found unchanged after them: at once, because clients wait, and again at the next beat.
    fn handle_admission(
        &mut self,
        now: Now,
        mut round: Round<V>,
        versions: Versions<V>,
    ) -> Outcome {
        if versions.is_empty() {
            return Outcome::GoesOn;
        }
        let is_content = contents(&versions) > 0;
        round.seen.extend(versions);
        if !is_content || contents(&round.seen) <= 1 {
            self.snapshots.extend(round.epoch, round.seen);
            return Outcome::Confirmed;
        }
        round.targets =
            sorted(self.members.values().filter(|m| round.seen.contains_key(m.target.as_str())));
        round.due_ms = now.wall_ms;
        self.round = Some(round);
        Outcome::GoesOn
    }

    fn is_in_newest(&self, target: &Target) -> bool {
        self.snapshots.newest().is_some_and(|s| s.members.contains_key(target.as_str()))
    }

    fn drop_member(&mut self, target: &Target) {
        self.members.remove(target.as_str());
    }

    /// The old snapshot stays; who waits is served without the group.
    fn give_up(&mut self, now: Now, round: &Round<V>, why: Kept) -> Outcome {
        self.kept = Some(why);
        self.retry_ms = Some(now.wall_ms.saturating_add(RETRY_MS));
        for target in &round.targets {
            if !self.is_in_newest(target) {
                self.drop_member(target);
            }
        }
        Outcome::Kept(why)
    }

    /// These versions were all there at once in this epoch.
    fn settle(&mut self, now: Now, epoch: u64, versions: Versions<V>) -> Outcome {
        self.kept = None;
        self.retry_ms = None;
        self.restless_rounds = 0;
        if self.snapshots.put(now, epoch, versions) {
            Outcome::Switched
        } else {
            Outcome::Confirmed
        }
    }
}

fn sorted<'a>(members: impl Iterator<Item = &'a Member>) -> Vec<Target> {
    let mut targets: Vec<Target> = members.map(|m| m.target.clone()).collect();
    targets.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    targets
}
