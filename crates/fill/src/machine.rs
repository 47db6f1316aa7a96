//! The machine: clients that want blocks, runs that bring them.
//!
//! Methods by kind: getters ([`Fill::room`], [`Fill::reach`], ...); what the world did
//! (`handle_*`); what to do next ([`Fill::poll`], until it gives `None`).
//!
//! A run lives: unasked -> asked -> streaming <-> storing -> done. A failure leads back to unasked
//! with another master, from the very byte that was reached, or ends the run and fails the clients
//! that are blocked on it. A run whose next blocks nobody wants any more is cut at a block border, or
//! before it by a shell that has waited long enough ([`Fill::cut`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use crate::failure::Failure;
use crate::geometry::Geometry;
use crate::masters::MasterId;
use crate::run::{Phase, Room, Run};

/// A client of one fill; the shell numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u64);

/// A run of one fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(u64);

/// Bounds of one fill.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Upstream requests at once, each with one block in memory.
    pub runs_max: usize,
    /// Of these, at most so many for blocks that nobody is blocked on yet.
    pub ahead_max: usize,
    /// A run reads on over so many unwanted blocks to the next wanted one, because a new request
    /// would cost more than their bytes.
    pub gap_blocks_max: u32,
    /// A client that is blocked so many blocks ahead of the run that would bring its block gets a
    /// request of its own, and that run ends where it begins: nobody waits for a whole object to
    /// pass by.
    pub split_blocks_min: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { runs_max: 8, ahead_max: 2, gap_blocks_max: 2, split_blocks_min: 16 }
    }
}

/// What the shell has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Ask `master` for `bytes`, on condition that it is the same representation.
    Request {
        /// For which run.
        run: RunId,
        /// Whom.
        master: MasterId,
        /// Which bytes of the representation.
        bytes: Range<u64>,
    },
    /// The bytes of this half-filled block are void: its run has ended. They will be asked for from
    /// the block's start.
    Discard {
        /// Which block.
        block: u32,
    },
    /// This client cannot be served further: break its transfer off visibly. It is forgotten.
    Fail {
        /// Whom.
        client: ClientId,
        /// What the last master asked did.
        why: Failure,
    },
}

/// What a run goes on with after a full block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// More bytes of the same answer.
    Read,
    /// Nothing: all its blocks are there.
    Done,
    /// Nothing: the rest is not wanted; break the request off.
    Cut,
}

/// How near a missing block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// No request covers it.
    Unasked,
    /// A request covers it; no answer yet.
    Asked,
    /// An answer of the right representation that covers it is coming in.
    Coming,
}

/// `at`: where the client is blocked or last was; it will read on to `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Want {
    at: u32,
    until: u32,
}

/// Fills one representation.
#[derive(Debug)]
pub struct Fill {
    geometry: Geometry,
    limits: Limits,
    masters: usize,
    only: Option<MasterId>,
    clients: BTreeMap<ClientId, Want>,
    runs: BTreeMap<RunId, Run>,
    next_run: u64,
    /// Blocks that no master could give: asked again only when a client is blocked on one.
    parked: BTreeSet<u32>,
    /// Whether something changed that may call for a new run.
    unplanned: bool,
    outputs: VecDeque<Output>,
}

impl Fill {
    /// A fill of a representation that any of `masters` masters can give (strong validator), or
    /// `only` the one it came from, where the validator does not prove equality across machines
    /// (RFC 9110 section 8.8.2.2).
    pub fn new(geometry: Geometry, masters: usize, only: Option<MasterId>, limits: Limits) -> Self {
        Self {
            geometry,
            limits,
            masters,
            only,
            clients: BTreeMap::new(),
            runs: BTreeMap::new(),
            next_run: 0,
            parked: BTreeSet::new(),
            unplanned: false,
            outputs: VecDeque::new(),
        }
    }

    /// Blocks and bytes.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Number of runs.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Number of clients.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Whether nothing is going on.
    pub fn is_idle(&self) -> bool {
        self.runs.is_empty() && self.clients.is_empty()
    }

    /// Whether the client is still served (not failed).
    pub fn has_client(&self, client: ClientId) -> bool {
        self.clients.contains_key(&client)
    }

    /// Where the next bytes of `run` belong; `None` when it takes none now.
    pub fn room(&self, run: RunId) -> Option<Room> {
        self.runs.get(&run).filter(|r| r.phase == Phase::Streaming)?.room(self.geometry)
    }

    /// How near a block is that is not held.
    pub fn reach(&self, block: u32) -> Reach {
        match self.run_of(block).map(|r| r.phase) {
            None | Some(Phase::Unasked) => Reach::Unasked,
            Some(Phase::Asked) => Reach::Asked,
            Some(Phase::Streaming | Phase::Storing) => Reach::Coming,
        }
    }

    /// The client is blocked at `blocks.start` (or about to read it) and will read to
    /// `blocks.end`. Replaces what it wanted before.
    pub fn handle_want(&mut self, client: ClientId, blocks: Range<u32>) {
        let want = Want { at: blocks.start, until: blocks.end.min(self.geometry.blocks()) };
        let before = self.clients.insert(client, want);
        // A reader that moves on behind a run changes nothing: this is its usual call.
        let same_end = before.is_some_and(|b| b.until == want.until);
        let near = self.run_of(want.at).is_some_and(|r| !self.is_far(want.at, r));
        self.unplanned |= before != Some(want) && !(same_end && near);
    }

    /// The client has all it wanted, or is gone.
    pub fn handle_gone(&mut self, client: ClientId) {
        self.clients.remove(&client);
    }

    /// Whether anybody wants what `run` brings next. True while a full block of it is being stored.
    pub fn is_wanted(&self, run: RunId) -> bool {
        let run = self.runs.get(&run);
        run.is_some_and(|r| r.phase == Phase::Storing || self.is_wanted_soon(&r.blocks))
    }

    /// Ends a run that nobody wants, wherever it is in its block: break its request off. False when
    /// it goes on.
    pub fn cut(&mut self, run: RunId) -> bool {
        !self.is_wanted(run) && self.end(run).is_some()
    }

    /// An answer that brings `blocks` is coming in already: the one that began the
    /// representation. `None` when it brings no whole block or one that is in flight.
    pub fn adopt(&mut self, master: MasterId, blocks: Range<u32>) -> Option<RunId> {
        let blocks = blocks.start..blocks.end.min(self.geometry.blocks());
        let taken = self.runs.values().any(|r| overlap(&r.blocks, &blocks));
        if blocks.is_empty() || taken {
            return None;
        }
        let mut run = Run::new(blocks, self.geometry);
        run.phase = Phase::Streaming;
        run.master = Some(master);
        run.asked_end = run.blocks.end;
        Some(self.insert(run))
    }

    /// The answer to `run` has begun and is of this representation.
    pub fn handle_head(&mut self, run: RunId) {
        if let Some(run) = self.runs.get_mut(&run).filter(|r| r.phase == Phase::Asked) {
            run.phase = Phase::Streaming;
        }
    }

    /// `bytes` more bytes of the block that [`Fill::room`] named, at most what is missing there.
    /// Gives the block when it is full: store it, then [`Fill::handle_stored`].
    pub fn handle_bytes(&mut self, run: RunId, bytes: u32) -> Option<u32> {
        let geometry = self.geometry;
        let run = self.runs.get_mut(&run).filter(|r| r.phase == Phase::Streaming)?;
        let room = run.room(geometry)?;
        run.pos = run.pos.saturating_add(u64::from(bytes.min(room.missing)));
        let full = bytes >= room.missing;
        if full {
            run.phase = Phase::Storing;
        }
        full.then_some(room.block)
    }

    /// The store has the block that [`Fill::handle_bytes`] gave.
    pub fn handle_stored(&mut self, id: RunId) -> Next {
        let Some(run) = self.runs.get_mut(&id).filter(|r| r.phase == Phase::Storing) else {
            return Next::Cut;
        };
        run.blocks.start = run.blocks.start.saturating_add(1);
        run.phase = Phase::Streaming;
        run.progressed = true;
        let left = run.blocks.clone();
        let next = if left.is_empty() {
            Next::Done
        } else if self.is_wanted_soon(&left) {
            Next::Read
        } else {
            Next::Cut
        };
        if next != Next::Read {
            self.runs.remove(&id);
            self.unplanned = true;
        }
        next
    }

    /// The present request of `run` is over before its time, for the reason given. The run goes on
    /// with another master from the byte it has reached, if there is one to ask.
    pub fn handle_failed(&mut self, id: RunId, why: Failure) {
        let attempts_max = if self.only.is_some() { 2 } else { self.masters.max(2) };
        let Some(run) = self.runs.get_mut(&id) else { return };
        run.note_failure(why);
        let hopeless = why == Failure::Disk || run.tried.len() >= attempts_max;
        if hopeless || (why == Failure::Changed && self.only.is_some()) {
            self.give_up(id, why);
        } else if !self.clients.values().any(|w| self.runs.get(&id).is_some_and(|r| w.wants(r))) {
            // Nobody is left to try again for.
            self.end(id);
        }
    }

    /// What to do next. `held` says whether the store has a block; `choose` names the master to
    /// ask, given those already tried ([`crate::Masters::choose`]).
    pub fn poll(
        &mut self,
        held: &dyn Fn(u32) -> bool,
        choose: &dyn Fn(&[MasterId]) -> Option<MasterId>,
    ) -> Option<Output> {
        if std::mem::take(&mut self.unplanned) {
            self.plan(held);
        }
        while self.outputs.is_empty() {
            let unasked = self.runs.iter().find(|(_, r)| r.phase == Phase::Unasked);
            let (&id, _) = unasked?;
            self.ask(id, choose);
        }
        self.outputs.pop_front()
    }

    fn ask(&mut self, id: RunId, choose: &dyn Fn(&[MasterId]) -> Option<MasterId>) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let end = self.geometry.start_of(run.blocks.end);
        match self.only.or_else(|| choose(&run.tried)).filter(|m| !run.changed.contains(m)) {
            Some(master) => {
                run.master = Some(master);
                run.phase = Phase::Asked;
                run.asked_end = run.blocks.end;
                let bytes = run.pos..end;
                self.outputs.push_back(Output::Request { run: id, master, bytes });
            }
            None => {
                let changed = !run.changed.is_empty();
                self.give_up(id, if changed { Failure::Changed } else { Failure::Connect });
            }
        }
    }

    /// Ends a run before its time.
    fn end(&mut self, id: RunId) -> Option<Run> {
        let run = self.runs.remove(&id)?;
        if run.pos > self.geometry.start_of(run.blocks.start) {
            self.outputs.push_back(Output::Discard { block: run.blocks.start });
        }
        self.unplanned = true;
        Some(run)
    }

    /// Ends a run that no master can bring: fails those blocked on it, parks its blocks.
    fn give_up(&mut self, id: RunId, why: Failure) {
        let Some(run) = self.end(id) else { return };
        if self.give_back(&run.blocks) {
            return;
        }
        let blocked = |w: &Want| run.blocks.contains(&w.at);
        let lost: Vec<_> =
            self.clients.iter().filter(|(_, w)| blocked(w)).map(|(id, _)| *id).collect();
        for client in lost {
            self.clients.remove(&client);
            self.outputs.push_back(Output::Fail { client, why });
        }
        self.parked.extend(run.blocks);
    }

    /// The run these blocks were split off takes them back, if its answer still brings them.
    fn give_back(&mut self, blocks: &Range<u32>) -> bool {
        let brings = |run: &&mut Run| {
            run.phase != Phase::Unasked
                && run.blocks.end == blocks.start
                && run.asked_end >= blocks.end
        };
        let run = self.runs.values_mut().find(brings);
        run.map(|run| run.blocks.end = blocks.end).is_some()
    }

    /// Starts runs: for blocks that clients are blocked on first, in order of place, then, while
    /// there are few, for what else they will want.
    fn plan(&mut self, held: &dyn Fn(u32) -> bool) {
        let wanted = self.wanted();
        let blocked: BTreeSet<u32> =
            self.clients.values().filter(|w| w.at < w.until).map(|w| w.at).collect();
        for &block in &blocked {
            if self.runs.len() >= self.limits.runs_max {
                // The rest gets its turn when a run ends.
                return;
            }
            if !held(block) {
                if self.is_in_flight(block) {
                    self.split(block);
                } else {
                    self.start(block, &wanted, held, Some(&blocked));
                }
            }
        }
        for range in &wanted {
            let mut block = range.start;
            while block < range.end {
                if self.runs.len() >= self.limits.ahead_max {
                    return;
                }
                if let Some(run) = self.run_of(block) {
                    block = run.blocks.end;
                    continue;
                }
                if !self.parked.contains(&block) && !held(block) {
                    self.start(block, &wanted, held, None);
                }
                block = block.saturating_add(1);
            }
        }
    }

    /// Starts a run at `block` that reaches as far as blocks are wanted, missing and not in flight.
    /// With the blocks that clients are `blocked` on it goes over parked ones too, and leaves to
    /// a run of its own what would come late in this one.
    fn start(
        &mut self,
        block: u32,
        wanted: &[Range<u32>],
        held: &dyn Fn(u32) -> bool,
        blocked: Option<&BTreeSet<u32>>,
    ) {
        let until = wanted.iter().find(|r| r.contains(&block)).map_or(block, |r| r.end);
        let in_flight = self.runs.values().map(|r| r.blocks.start).filter(|b| *b > block).min();
        let far = block.saturating_add(self.limits.split_blocks_min)..;
        let far = blocked.and_then(|all| all.range(far).find(|b| !held(**b)).copied());
        let limit = until.min(in_flight.unwrap_or(u32::MAX)).min(far.unwrap_or(u32::MAX));
        let next = block.saturating_add(1);
        let end = (next..limit)
            .find(|b| held(*b) || (blocked.is_none() && self.parked.contains(b)))
            .unwrap_or(limit.max(next));
        for block in block..end {
            self.parked.remove(&block);
        }
        self.insert(Run::new(block..end, self.geometry));
    }

    /// Takes what those blocked at `block` want out of the run that would come to it late.
    fn split(&mut self, block: u32) {
        if !self.run_of(block).is_some_and(|r| self.is_far(block, r)) {
            return;
        }
        let blocked = self.clients.values().filter(|w| w.at == block);
        let until = blocked.map(|w| w.until).max().unwrap_or(block);
        let run = self.runs.values_mut().find(|r| r.blocks.contains(&block));
        let Some(run) = run else { return };
        let end = until.min(run.blocks.end);
        run.blocks.end = block;
        self.insert(Run::new(block..end, self.geometry));
    }

    fn insert(&mut self, run: Run) -> RunId {
        let id = RunId(self.next_run);
        self.next_run = self.next_run.saturating_add(1);
        self.runs.insert(id, run);
        id
    }

    fn run_of(&self, block: u32) -> Option<&Run> {
        self.runs.values().find(|r| r.blocks.contains(&block))
    }

    fn is_in_flight(&self, block: u32) -> bool {
        self.run_of(block).is_some()
    }

    /// Whether a client that is blocked on `block` would wait too long for `run` to come there.
    fn is_far(&self, block: u32, run: &Run) -> bool {
        block.saturating_sub(run.blocks.start) >= self.limits.split_blocks_min
    }

    fn is_wanted_soon(&self, left: &Range<u32>) -> bool {
        let reach =
            left.start.saturating_add(self.limits.gap_blocks_max).min(left.end.saturating_sub(1));
        let soon = left.start..reach.saturating_add(1);
        self.clients.values().any(|w| overlap(&(w.at..w.until), &soon))
    }

    /// Everything wanted, as disjoint ascending ranges.
    fn wanted(&self) -> Vec<Range<u32>> {
        let mut ranges: Vec<Range<u32>> =
            self.clients.values().filter(|w| w.at < w.until).map(|w| w.at..w.until).collect();
        ranges.sort_by_key(|r| r.start);
        let mut merged: Vec<Range<u32>> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        merged
    }
}

impl Want {
    fn wants(&self, run: &Run) -> bool {
        overlap(&(self.at..self.until), &run.blocks)
    }
}

fn overlap(a: &Range<u32>, b: &Range<u32>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD_NONE: &dyn Fn(u32) -> bool = &|_| false;
    const FIRST: &dyn Fn(&[MasterId]) -> Option<MasterId> = &|_| Some(0);

    /// A fill of three blocks whose one run has been asked for by a client.
    fn asked() -> (Fill, RunId) {
        let mut fill = Fill::new(Geometry::new(25, 10), 1, None, Limits::default());
        fill.handle_want(ClientId(1), 0..3);
        let Some(Output::Request { run, .. }) = fill.poll(HELD_NONE, FIRST) else { panic!() };
        (fill, run)
    }

    #[test]
    fn a_run_is_cut_only_when_nobody_wants_it() {
        let (mut fill, run) = asked();
        assert!(fill.is_wanted(run) && !fill.cut(run));
        fill.handle_gone(ClientId(1));
        assert!(!fill.is_wanted(run) && fill.cut(run) && !fill.cut(run), "before its head");
        assert_eq!((fill.poll(HELD_NONE, FIRST), fill.is_idle()), (None, true));

        let (mut fill, run) = asked();
        fill.handle_head(run);
        fill.handle_bytes(run, 4);
        fill.handle_gone(ClientId(1));
        fill.handle_want(ClientId(2), 2..3);
        assert!(fill.is_wanted(run) && !fill.cut(run), "another is near");
        fill.handle_gone(ClientId(2));
        assert!(fill.cut(run), "inside a block");
        assert_eq!(fill.poll(HELD_NONE, FIRST), Some(Output::Discard { block: 0 }));
        assert_eq!((fill.poll(HELD_NONE, FIRST), fill.is_idle()), (None, true));

        let (mut fill, run) = asked();
        fill.handle_head(run);
        assert_eq!(fill.handle_bytes(run, 10), Some(0));
        fill.handle_gone(ClientId(1));
        assert!(fill.is_wanted(run) && !fill.cut(run), "a whole block is kept");
        assert_eq!((fill.handle_stored(run), fill.is_idle()), (Next::Cut, true));
    }
}
