//! What a fill does next: which blocks are asked for, of whom, and when of a second master.
//!
//! In this order: blocks that clients are blocked on; what clients near them will want; the rest,
//! once the whole is due. Completion has a run of its own beside the others and takes no place
//! from them.

use std::collections::BTreeSet;
use std::ops::Range;

use model::Now;

use crate::failure::Failure;
use crate::machine::{Around, Chosen, Fill, Output, RunId, overlap};
use crate::masters::MasterId;
use crate::run::{Pace, Phase, Reason, Run};

/// What a run is begun for.
#[derive(Clone, Copy)]
enum Start<'a> {
    /// A client is blocked on its first block; also blocked are these.
    Blocked(&'a BTreeSet<u32>),
    /// A client comes near.
    Ahead,
    /// The whole is due.
    Completion,
}

impl Fill {
    /// What to do next; to be asked until it gives `None`, after everything that happens.
    pub fn poll(&mut self, now: Now, around: &mut dyn Around) -> Option<Output> {
        loop {
            if std::mem::take(&mut self.unplanned) {
                self.plan(&|block| around.is_held(block));
            }
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            let unasked = self.runs.iter().find(|(_, r)| r.phase == Phase::Unasked);
            match unasked.map(|(id, _)| *id) {
                Some(id) => self.ask(id, now, around),
                None if self.hedge(now, around) => {}
                None => return None,
            }
        }
    }

    fn ask(&mut self, id: RunId, now: Now, around: &mut dyn Around) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let bound = self.only.map(|master| Chosen { master, patience_ns: u64::MAX });
        match bound
            .or_else(|| around.choose(&run.tried))
            .filter(|c| !run.changed.contains(&c.master))
        {
            Some(Chosen { master, patience_ns }) => {
                run.master = Some(master);
                run.phase = Phase::Asked;
                run.asked_end = run.blocks.end;
                // Completion may have to wait before it asks.
                let hedge_at_ns = now.mono_ns.checked_add(patience_ns);
                run.hedge_at_ns = hedge_at_ns.filter(|_| run.is_active());
                self.request(id, master, false);
            }
            None => {
                let changed = !run.changed.is_empty();
                self.give_up(id, if changed { Failure::Changed } else { Failure::Connect });
            }
        }
    }

    fn request(&mut self, id: RunId, master: MasterId, hedge: bool) {
        let Some(run) = self.runs.get(&id) else { return };
        let bytes = if self.ranges {
            run.pos..self.geometry.start_of(run.blocks.end)
        } else {
            0..self.geometry.length()
        };
        self.outputs.push_back(Output::Request { run: id, master, bytes, hedge });
    }

    /// Asks a second master for a run that lets a client wait. Whether there was such a run.
    fn hedge(&mut self, now: Now, around: &mut dyn Around) -> bool {
        let is_due = |r: &Run| {
            r.phase == Phase::Asked
                && r.hedge_at_ns.is_some_and(|at| at <= now.mono_ns)
                && self.clients.values().any(|w| w.at < w.until && r.blocks.contains(&w.at))
        };
        let Some(id) = self.runs.iter().find(|(_, r)| is_due(r)).map(|(id, _)| *id) else {
            return false;
        };
        let Some(run) = self.runs.get_mut(&id) else { return false };
        run.hedge_at_ns = None;
        let mut tried = run.tried.clone();
        tried.extend(run.master);
        if let Some(rival) = around.rival(&tried).filter(|rival| !tried.contains(rival)) {
            run.rival = Some(rival);
            run.asked_end = run.blocks.end;
            self.request(id, rival, true);
        }
        true
    }

    fn plan(&mut self, held: &dyn Fn(u32) -> bool) {
        let wanted = self.wanted();
        let blocked: BTreeSet<u32> =
            self.clients.values().filter(|w| w.at < w.until).map(|w| w.at).collect();
        for &block in &blocked {
            if held(block) || self.run_of(block).is_some_and(|r| !self.is_far(block, r)) {
                continue;
            }
            if !self.has_place() {
                // The rest gets its turn when a run ends.
                return;
            }
            if self.run_of(block).is_some() {
                self.split(block);
            } else {
                self.start(block, &wanted, held, Start::Blocked(&blocked));
            }
        }
        self.plan_ahead(&wanted, held);
        self.plan_completion(held);
    }

    /// Starts runs for what clients come near to, while there are few.
    fn plan_ahead(&mut self, wanted: &[Range<u32>], held: &dyn Fn(u32) -> bool) {
        let resume = self.resume_blocks();
        let near = self.clients.values().map(|w| w.at..w.at.saturating_add(resume).min(w.until));
        for range in merged(near.filter(|r| !r.is_empty()).collect()) {
            let mut block = range.start;
            while block < range.end {
                let active = self.runs.values().filter(|r| r.is_active()).count();
                if active >= self.limits.ahead_max || self.places() == 0 {
                    return;
                }
                if let Some(run) = self.run_of(block) {
                    block = run.blocks.end;
                    continue;
                }
                if !self.parked.contains(&block) && !held(block) {
                    self.start(block, wanted, held, Start::Ahead);
                }
                block = block.saturating_add(1);
            }
        }
    }

    /// Starts the run for what nobody wants yet.
    fn plan_completion(&mut self, held: &dyn Fn(u32) -> bool) {
        let busy = self.runs.values().any(|r| r.completion || !self.ranges);
        if !self.proof.due || self.incomplete || busy {
            return;
        }
        let all = self.swept..self.geometry.blocks();
        let needed = |b: &u32| !held(*b) && !self.parked.contains(b) && self.run_of(*b).is_none();
        let block = all.clone().find(needed);
        self.swept = block.unwrap_or(all.end);
        if let Some(block) = block {
            self.start(block, &[], held, Start::Completion);
        }
    }

    /// Starts a run at `block` that reaches as far as blocks are wanted (for completion: a window),
    /// missing and not in flight.
    /// With the blocks that clients are blocked on it goes over parked ones too, and leaves to
    /// a run of its own what would come late in this one. Without ranges it begins as early and
    /// ends as late as its answer brings something.
    fn start(
        &mut self,
        block: u32,
        wanted: &[Range<u32>],
        held: &dyn Fn(u32) -> bool,
        why: Start<'_>,
    ) {
        let all = self.geometry.blocks();
        let until = match why {
            // Short, so that a client that comes to want its last block waits little.
            Start::Completion => all.min(block.saturating_add(self.limits.window_blocks)),
            _ => wanted.iter().find(|r| r.contains(&block)).map_or(block, |r| r.end),
        };
        let far = block.saturating_add(self.limits.split_blocks_min)..;
        let (far, parked) = match why {
            Start::Blocked(all) => (all.range(far).find(|b| !held(**b)).copied(), false),
            Start::Ahead | Start::Completion => (None, true),
        };
        let limit = until.min(self.free_end(block)).min(far.unwrap_or(u32::MAX));
        let next = block.saturating_add(1);
        let end = (next..limit)
            .find(|b| held(*b) || (parked && self.parked.contains(b)))
            .unwrap_or(limit.max(next));
        let mut blocks = block..end;
        if !self.ranges {
            let before = self.runs.values().map(|r| r.blocks.end).filter(|end| *end <= block);
            let before = before.max().unwrap_or(0);
            let first = (before..block).find(|b| !held(*b)).unwrap_or(block);
            blocks = first..self.free_end(block);
        }
        for block in blocks.clone() {
            self.parked.remove(&block);
        }
        let mut run = Run::new(blocks, self.geometry);
        if let Start::Completion = why {
            run.pace = Pace::Spare;
            run.completion = true;
        }
        self.insert(run);
    }

    /// Takes what those blocked at `block` want out of the run that would come to it late.
    fn split(&mut self, block: u32) {
        let blocked = self.clients.values().filter(|w| w.at == block);
        let until = blocked.map(|w| w.until).max().unwrap_or(block);
        let run = self.runs.values_mut().find(|r| r.blocks.contains(&block));
        let Some(run) = run else { return };
        let end = until.min(run.blocks.end);
        run.blocks.end = block;
        self.insert(Run::new(block..end, self.geometry));
    }

    pub(crate) fn insert(&mut self, run: Run) -> RunId {
        let id = RunId(self.next_run);
        self.next_run = self.next_run.saturating_add(1);
        self.runs.insert(id, run);
        id
    }

    /// How many more runs there may be for what clients want.
    pub(crate) fn places(&self) -> usize {
        let taken = self.runs.values().filter(|r| !r.completion).count();
        self.limits.runs_max.saturating_sub(taken)
    }

    /// Whether a blocked client gets a run; one that nobody needs now gives its place.
    fn has_place(&mut self) -> bool {
        if self.places() > 0 {
            return true;
        }
        let goes = |r: &Run| !r.completion && r.may_go(self.geometry);
        let going = self.runs.iter().find(|(_, r)| goes(r)).map(|(id, _)| *id);
        going.is_some_and(|id| self.end(id).is_some())
    }

    pub(crate) fn run_of(&self, block: u32) -> Option<&Run> {
        self.runs.values().find(|r| r.blocks.contains(&block))
    }

    /// The first block that is neither held nor brought by another run than `id`.
    pub(crate) fn first_free(
        &self,
        blocks: Range<u32>,
        id: RunId,
        held: &dyn Fn(u32) -> bool,
    ) -> Option<u32> {
        let taken = |b: u32| self.runs.iter().any(|(i, r)| *i != id && r.blocks.contains(&b));
        blocks.into_iter().find(|b| !held(*b) && !taken(*b))
    }

    /// The block after `block` at which another run begins, or the end.
    pub(crate) fn free_end(&self, block: u32) -> u32 {
        let starts = self.runs.values().map(|r| r.blocks.start).filter(|b| *b > block);
        starts.min().unwrap_or_else(|| self.geometry.blocks())
    }

    /// How near its readers must come for a paused run to go on, or a new one to begin.
    pub(crate) fn resume_blocks(&self) -> u32 {
        self.limits.window_blocks.div_ceil(2)
    }

    /// Whether a client that is blocked on `block` would wait too long for `run` to come there.
    pub(crate) fn is_far(&self, block: u32, run: &Run) -> bool {
        let behind = block.saturating_sub(run.blocks.start);
        self.ranges && behind >= self.limits.split_blocks_min
    }

    /// Whether a client is at most `window` blocks behind the next block of `run`, or waits for one
    /// that comes after it.
    pub(crate) fn is_near(&self, run: &Run, window: u32) -> bool {
        let next = run.blocks.start;
        self.clients.values().filter(|w| w.at < w.until).any(|w| match next.checked_sub(w.at) {
            Some(behind) => behind < window && next < w.until,
            None => run.blocks.contains(&w.at) && !self.is_far(w.at, run),
        })
    }

    pub(crate) fn is_wanted_soon(&self, left: &Range<u32>) -> bool {
        let gap = if self.ranges { self.limits.gap_blocks_max } else { u32::MAX };
        let reach = left.start.saturating_add(gap).min(left.end.saturating_sub(1));
        let soon = left.start..reach.saturating_add(1);
        self.clients.values().any(|w| overlap(&(w.at..w.until), &soon))
    }

    /// Why the block is brought.
    pub(crate) fn reason(&self, block: u32) -> Reason {
        let wants = self.clients.values().filter(|w| (w.at..w.until).contains(&block));
        match wants.map(|w| w.at).max() {
            Some(at) if at == block => Reason::Demand,
            Some(_) => Reason::Ahead,
            None => Reason::Completion,
        }
    }

    /// Everything wanted, as disjoint ascending ranges.
    fn wanted(&self) -> Vec<Range<u32>> {
        merged(self.clients.values().filter(|w| w.at < w.until).map(|w| w.at..w.until).collect())
    }
}

/// The same as disjoint ascending ranges.
fn merged(mut ranges: Vec<Range<u32>>) -> Vec<Range<u32>> {
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
