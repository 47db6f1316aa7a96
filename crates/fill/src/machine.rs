//! The machine: clients that want blocks, runs that bring them.
//!
//! Methods by kind: getters ([`Fill::room`], [`Fill::reach`], ...); what the world did
//! (`handle_*`); what to do next ([`Fill::poll`], until it gives `None`; [`Fill::turn`] at each
//! border between blocks; [`Fill::hedge_at`] for the timer). Plans are made in `plan`.
//!
//! A run lives: unasked -> asked -> streaming <-> storing -> done. A failure leads back to unasked
//! with another master, from the very byte that was reached, or ends the run and fails the clients
//! that are blocked on it. A run whose next blocks nobody wants any more is cut at a block border, or
//! before it by a shell that has waited long enough ([`Fill::cut`]).
//!
//! At each border a run has a pace: wanted by a client that is near; spare, for the completion of
//! the whole object; or paused, because those who want it read slower than it brings. A paused run
//! gives way when another needs its place, and begins anew when its readers come near.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use model::Completion;

use crate::failure::Failure;
use crate::geometry::Geometry;
use crate::masters::MasterId;
use crate::proof::Proof;
use crate::run::{Pace, Phase, Reason, Room, Run};

/// A client of one fill; the shell numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u64);

/// A run of one fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub(crate) u64);

/// Bounds of one fill.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Upstream requests at once for what clients want, each with one block in memory. Beside
    /// them there is one for completion.
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
    /// A run brings no more blocks than these ahead of the fastest client that wants them; paused
    /// there, it goes on when less than half of them are left.
    pub window_blocks: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            runs_max: 8,
            ahead_max: 2,
            gap_blocks_max: 2,
            split_blocks_min: 16,
            window_blocks: 8,
        }
    }
}

/// What one fill is about.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// Blocks and bytes.
    pub geometry: Geometry,
    /// How many masters can give it (strong validator).
    pub masters: usize,
    /// The one it came from, where the validator does not prove equality across machines (RFC 9110
    /// section 8.8.2.2).
    pub only: Option<MasterId>,
    /// Whether masters answer ranges of it; else each answer begins with the first byte.
    pub ranges: bool,
    /// How much of it is to be had.
    pub completion: Completion,
}

/// Whom to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Which.
    pub master: MasterId,
    /// How long a client that is blocked waits for its answer before another master is asked too.
    pub patience_ns: u64,
}

/// What the machine asks of its surroundings when it decides.
pub trait Around {
    /// Whether the store has a block.
    fn is_held(&self, block: u32) -> bool;
    /// The master to ask, given those already tried ([`crate::Masters::choose`]).
    fn choose(&mut self, tried: &[MasterId]) -> Option<Chosen>;
    /// Another good one to ask too, given those that are asked or were tried, if the budget for
    /// such requests allows it.
    fn rival(&mut self, tried: &[MasterId]) -> Option<MasterId>;
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
        /// Beside another request for the same bytes: the first good answer is taken.
        hedge: bool,
    },
    /// The bytes of this half-filled block are void. They will be asked for from the block's start.
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

/// What became of an answer that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Drop it: another was faster, or nobody wants it any more.
    Late,
    /// Its bytes are taken.
    Taken {
        /// The master that was asked first and has not answered yet.
        slow: Option<MasterId>,
        /// This answer came to the second question of two.
        rival: bool,
        /// A master that has another representation under this name.
        disagree: Option<MasterId>,
    },
}

/// A block that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Which: store it, then [`Fill::handle_stored`].
    pub block: u32,
    /// Why it was brought.
    pub reason: Reason,
}

/// What a run goes on with after a full block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// More of the same answer, as [`Fill::turn`] says.
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
pub(crate) struct Want {
    pub(crate) at: u32,
    pub(crate) until: u32,
}

/// Fills one representation.
#[derive(Debug)]
pub struct Fill {
    pub(crate) geometry: Geometry,
    pub(crate) limits: Limits,
    pub(crate) masters: usize,
    pub(crate) only: Option<MasterId>,
    pub(crate) ranges: bool,
    pub(crate) proof: Proof,
    /// Completion failed: it is not tried again by this fill.
    pub(crate) incomplete: bool,
    pub(crate) clients: BTreeMap<ClientId, Want>,
    pub(crate) runs: BTreeMap<RunId, Run>,
    pub(crate) next_run: u64,
    /// Blocks before this one need no completion: they are held, in flight or parked.
    pub(crate) swept: u32,
    /// Blocks that no master could give: asked again only when a client is blocked on one.
    pub(crate) parked: BTreeSet<u32>,
    /// Whether something changed that may call for a new run.
    pub(crate) unplanned: bool,
    pub(crate) outputs: VecDeque<Output>,
}

impl Fill {
    /// A fill of a representation of which the blocks `held` are there already.
    pub fn new(subject: Subject, limits: Limits, held: &dyn Fn(u32) -> bool) -> Self {
        let Subject { geometry, masters, only, ranges, completion } = subject;
        Self {
            geometry,
            limits,
            masters,
            only,
            ranges,
            proof: Proof::new(geometry.blocks(), completion, held),
            incomplete: false,
            clients: BTreeMap::new(),
            runs: BTreeMap::new(),
            next_run: 0,
            swept: 0,
            parked: BTreeSet::new(),
            unplanned: completion == Completion::Complete,
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

    /// Whether masters answer ranges of it, as far as is known.
    pub fn has_ranges(&self) -> bool {
        self.ranges
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

    /// Whether an answer of `master` is of use to `run`.
    pub fn takes(&self, run: RunId, master: MasterId) -> bool {
        self.runs.get(&run).is_some_and(|r| r.takes(master))
    }

    /// When to poll again at the latest, monotonic nanoseconds: a client that is still blocked on
    /// `run` then has waited long enough for its answer.
    pub fn hedge_at(&self, run: RunId) -> Option<u64> {
        self.runs.get(&run)?.hedge_at_ns
    }

    /// The client is blocked at `blocks.start` (or about to read it) and will read to
    /// `blocks.end`. Replaces what it wanted before.
    pub fn handle_want(&mut self, client: ClientId, blocks: Range<u32>) {
        let want = Want { at: blocks.start, until: blocks.end.min(self.geometry.blocks()) };
        let before = self.clients.insert(client, want);
        // What it read since counts, too.
        let passed = before.filter(|b| b.until == want.until && b.at < want.at);
        for block in passed.map_or(want.at, |b| b.at)..=want.at {
            self.unplanned |= self.proof.touch(block);
        }
        // A reader that moves on behind a run changes nothing: this is its usual call. Where no run
        // comes there is something to do, even if nothing of the want is new: the block was lost.
        let same_end = before.is_some_and(|b| b.until == want.until);
        let near = self.run_of(want.at).is_some_and(|r| r.is_active() && !self.is_far(want.at, r));
        self.unplanned |= !(same_end && near);
    }

    /// The client has all it wanted, or is gone.
    pub fn handle_gone(&mut self, client: ClientId) {
        self.clients.remove(&client);
    }

    /// Clients of two networks have asked for it.
    pub fn handle_popular(&mut self) {
        self.unplanned |= self.proof.note_popular();
    }

    /// Whether a client wants what `run` brings next. True while a full block of it is being stored.
    pub fn is_wanted(&self, run: RunId) -> bool {
        let wanted = |r: &Run| r.phase == Phase::Storing || self.is_wanted_soon(&r.blocks);
        self.runs.get(&run).is_some_and(wanted)
    }

    /// The next byte of `run`.
    pub fn position(&self, run: RunId) -> Option<u64> {
        self.runs.get(&run).map(|r| r.pos)
    }

    /// Ends a run that nobody wants, wherever it is in its block: break its request off. Where the
    /// whole is due it may go on, unless it has begun a block and brought nothing since it was at
    /// `position`. False when it goes on.
    pub fn cut(&mut self, id: RunId, position: Option<u64>) -> bool {
        let Some(run) = self.runs.get(&id) else { return false };
        let stuck = Some(run.pos) == position && !run.is_at_border(self.geometry);
        if self.is_wanted(id) || (self.proof.due && !stuck) {
            return false;
        }
        self.incomplete |= self.proof.due;
        self.end(id).is_some()
    }

    /// Ends a run that is paused; its readers come to a new one. False when it goes on.
    pub fn cut_paused(&mut self, run: RunId) -> bool {
        self.runs.get(&run).is_some_and(|r| r.rests(self.geometry)) && self.end(run).is_some()
    }

    /// Whether `run` may bring its next bytes now, for whom; asked again after each change until
    /// it is [`Pace::Wanted`]. `None`: it is over, break its request off.
    pub fn turn(&mut self, id: RunId) -> Option<Pace> {
        let run = self.runs.get(&id)?;
        let begun = !run.is_at_border(self.geometry);
        if begun || (run.fresh && run.pace == Pace::Wanted) {
            return Some(Pace::Wanted);
        }
        let paused = run.pace == Pace::Paused;
        let window = if paused { self.resume_blocks() } else { self.limits.window_blocks };
        let pace = if self.is_near(run, window) {
            Pace::Wanted
        } else if self.proof.due {
            Pace::Spare
        } else if self.is_wanted_soon(&run.blocks) {
            Pace::Paused
        } else {
            self.end(id);
            return None;
        };
        let run = self.runs.get_mut(&id)?;
        run.pace = pace;
        run.rested |= pace != Pace::Wanted;
        Some(pace)
    }

    /// An answer that brings `blocks` is coming in already: the one that began the
    /// representation. `None` when it brings no whole block or one that is in flight.
    pub fn adopt(&mut self, master: MasterId, blocks: Range<u32>) -> Option<RunId> {
        self.take_over(master, blocks, Phase::Streaming)
    }

    /// `master` was asked for `blocks` already, before anything was known of the representation.
    /// What becomes of that is told like of any other request; a client that is blocked on it waits
    /// until `hedge_at_ns`. `None` when it is of no use: no block of it is missing, one is in
    /// flight, or there are enough requests.
    pub fn expect(
        &mut self,
        master: MasterId,
        blocks: Range<u32>,
        hedge_at_ns: u64,
    ) -> Option<RunId> {
        if self.places() == 0 {
            return None;
        }
        let id = self.take_over(master, blocks, Phase::Asked)?;
        self.runs.get_mut(&id)?.hedge_at_ns = Some(hedge_at_ns);
        Some(id)
    }

    /// A run for a request that was made without the machine.
    fn take_over(&mut self, master: MasterId, blocks: Range<u32>, phase: Phase) -> Option<RunId> {
        let blocks = blocks.start..blocks.end.min(self.geometry.blocks());
        let taken = self.runs.values().any(|r| overlap(&r.blocks, &blocks));
        if blocks.is_empty() || taken {
            return None;
        }
        let mut run = Run::new(blocks, self.geometry);
        run.phase = phase;
        run.master = Some(master);
        run.asked_end = run.blocks.end;
        Some(self.insert(run))
    }

    /// The answer of `master` to `run` has begun and is of this representation; its first byte is
    /// at `from`. One that begins before what was asked brings what is missing there, too.
    pub fn handle_head(
        &mut self,
        id: RunId,
        master: MasterId,
        from: u64,
        held: &dyn Fn(u32) -> bool,
    ) -> Head {
        let Some(run) = self.runs.get_mut(&id) else { return Head::Late };
        if run.phase != Phase::Asked || !run.takes(master) {
            return Head::Late;
        }
        let rival = run.rival == Some(master);
        let slow = if rival { run.master } else { None };
        run.phase = Phase::Streaming;
        run.master = Some(master);
        run.rival = None;
        run.hedge_at_ns = None;
        let disagree = run.changed.last().copied();
        if from < self.geometry.start_of(run.blocks.start) {
            self.handle_early(id, from, held);
        }
        Head::Taken { slow, rival, disagree }
    }

    /// The answer to a run begins blocks before it.
    fn handle_early(&mut self, id: RunId, from: u64, held: &dyn Fn(u32) -> bool) {
        self.ranges = false;
        let Some(start) = self.runs.get(&id).map(|r| r.blocks.start) else { return };
        let first = self.geometry.inside(from..self.geometry.length()).start;
        let earlier = self.first_free(first..start, id, held);
        let end = self.free_end(start);
        let Some(run) = self.runs.get_mut(&id) else { return };
        run.blocks.end = end;
        run.asked_end = end;
        if let Some(earlier) = earlier
            && run.rewind(earlier, self.geometry)
        {
            self.outputs.push_back(Output::Discard { block: start });
        }
    }

    /// `bytes` more bytes of the block that [`Fill::room`] named, at most what is missing there.
    /// Gives the block when it is full.
    pub fn handle_bytes(&mut self, run: RunId, bytes: u32) -> Option<Full> {
        let room = self.room(run)?;
        let reason = self.reason(room.block);
        let run = self.runs.get_mut(&run)?;
        // Who wanted it when it began may be gone with what it needed of it.
        run.reason = if room.filled == 0 { reason } else { run.reason.min(reason) };
        run.pos = run.pos.saturating_add(u64::from(bytes.min(room.missing)));
        if bytes < room.missing {
            return None;
        }
        run.phase = Phase::Storing;
        Some(Full { block: room.block, reason: run.reason })
    }

    /// The store has the block that [`Fill::handle_bytes`] gave.
    pub fn handle_stored(&mut self, id: RunId, held: &dyn Fn(u32) -> bool) -> Next {
        let Some(run) = self.runs.get(&id).filter(|r| r.phase == Phase::Storing) else {
            return Next::Cut;
        };
        let (after, end) = (run.blocks.start.saturating_add(1), run.blocks.end);
        // An answer without ranges passes over what others have brought.
        let passing = || self.first_free(after..end, id, held).unwrap_or(end);
        let start = if self.ranges { after } else { passing() };
        let left = start..end;
        let next = if left.is_empty() {
            Next::Done
        } else if self.proof.due || self.is_wanted_soon(&left) {
            Next::Read
        } else {
            Next::Cut
        };
        if let Some(run) = self.runs.get_mut(&id) {
            run.rewind(left.start, self.geometry);
            run.phase = Phase::Streaming;
            run.progressed = true;
            run.fresh = false;
        }
        if next != Next::Read {
            self.runs.remove(&id);
            self.unplanned = true;
        }
        next
    }

    /// The present request of `run` to `master` is over before its time, for the reason given. The
    /// run goes on with another master from the byte it has reached, if there is one to ask.
    /// Whether the master is to blame: not for the end of an answer that was left waiting.
    pub fn handle_failed(&mut self, id: RunId, master: MasterId, why: Failure) -> bool {
        let attempts_max = if self.only.is_some() { 2 } else { self.masters.max(2) };
        let Some(run) = self.runs.get_mut(&id).filter(|r| r.takes(master)) else { return true };
        if run.rested && why == Failure::Truncated {
            run.rest();
            self.end_unwanted(id);
            return false;
        }
        if !run.note_failure(master, why) {
            // Another is being asked already.
            return true;
        }
        let hopeless = matches!(why, Failure::Disk | Failure::DigestMismatch)
            || run.tried.len() >= attempts_max;
        if hopeless || (why == Failure::Changed && self.only.is_some()) {
            self.give_up(id, why);
        } else {
            self.end_unwanted(id);
        }
        true
    }

    /// Ends a run that is to be asked for again, when nobody is left to ask for.
    fn end_unwanted(&mut self, id: RunId) {
        let Some(run) = self.runs.get(&id) else { return };
        if !self.clients.values().any(|w| w.wants(run)) {
            self.incomplete |= run.pace == Pace::Spare;
            self.end(id);
        }
    }

    /// Ends a run before its time.
    pub(crate) fn end(&mut self, id: RunId) -> Option<Run> {
        let run = self.runs.remove(&id)?;
        if !run.is_at_border(self.geometry) {
            self.outputs.push_back(Output::Discard { block: run.blocks.start });
        }
        self.swept = self.swept.min(run.blocks.start);
        self.unplanned = true;
        Some(run)
    }

    /// Ends a run that no master can bring: fails those blocked on it, parks its blocks.
    pub(crate) fn give_up(&mut self, id: RunId, why: Failure) {
        let Some(run) = self.end(id) else { return };
        if self.give_back(&run.blocks) {
            return;
        }
        self.incomplete = true;
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
}

impl Want {
    pub(crate) fn wants(&self, run: &Run) -> bool {
        overlap(&(self.at..self.until), &run.blocks)
    }
}

pub(crate) fn overlap(a: &Range<u32>, b: &Range<u32>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}
