//! A representation being filled: the fill machine with its clients and block buffers.
//!
//! One for each representation, however many clients; made when a block is first missing, gone with
//! its last reader and run. Clients are its [`crate::reader`]s. Upstream is read by [`crate::pour`]
//! at the network's pace, but no further ahead of the readers than the machine allows.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use fill::{
    Around, Chosen, ClientId, Failure, Fill, Full, Geometry, Head, Limits, MasterId, Next, Output,
    Pace, RunId, Subject,
};
use http::{HeaderMap, StatusCode};
use http_cache::{NoCache, Validator, validator};
use model::Now;
use rt::clock;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::check;
use crate::flight::Told;
use crate::home;
use crate::past::Rest;
use crate::pour;
use crate::reader::Reader;
use crate::slot::Slot;
use crate::state::{Edge, Object};
use crate::upstream::{Lent, Reading};

/// How long nothing more of an object is stored after its disk failed, milliseconds.
pub(crate) const DISK_TROUBLE_MS: u64 = 10_000;
/// How long a request that nobody wants any more may take to the end of its block. Not at once: a
/// HEAD wants nothing of the block that it began, and the next client often comes soon.
const UNWANTED_MAX: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) fill: Fill,
    slots: HashMap<u32, Arc<Slot>>,
    pub(crate) failed: HashMap<ClientId, Failure>,
    clients: u64,
    /// The masters whose bytes were stored.
    brought: Vec<MasterId>,
    /// The last answer that was of this representation.
    told: Option<Told>,
    /// The answer that could not be stored, where no other may take its place.
    rest: Option<Rest>,
    /// Blocks that came in when the stores had just been handed over.
    kept: HashMap<u32, Bytes>,
}

/// Where the next bytes of a run go.
pub(crate) struct Place {
    /// The first of them in the representation.
    pub(crate) at: u64,
    pub(crate) slot: Arc<Slot>,
    pub(crate) block_bytes: usize,
    pub(crate) missing: usize,
}

/// The fill of one representation.
#[derive(Debug)]
pub(crate) struct Filling {
    pub(crate) edge: Arc<Edge>,
    pub(crate) object: Arc<Object>,
    /// Preconditions of further requests; `None`: parts of two answers must not be joined, so that
    /// only the first answer can fill it.
    pub(crate) conditions: Option<HeaderMap>,
    /// The one master that may be asked, where the validator does not prove equality across
    /// machines.
    pub(crate) only: Option<MasterId>,
    /// Until when the store takes no more of it.
    unstorable_until_ns: AtomicU64,
    /// Clients have moved, come or gone, or a run has ended.
    moved: Notify,
    state: Mutex<State>,
}

/// All fillings, by representation.
#[derive(Debug, Default)]
pub(crate) struct Fillings(Mutex<HashMap<usize, Weak<Filling>>>);

impl Fillings {
    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Weak<Filling>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether bytes of the object are coming in.
    pub(crate) fn is_filling(&self, object: &Object) -> bool {
        let filling = self.lock().get(&identity(object)).and_then(Weak::upgrade);
        filling.is_some_and(|filling| filling.lock().fill.runs() > 0)
    }

    /// Representations being filled.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }
}

/// The identity of a representation while a filling holds it.
fn identity(object: &Object) -> usize {
    Arc::as_ptr(&object.rep).addr()
}

impl Filling {
    /// The filling of an object, made if there is none. `first`: the master it just came from.
    pub(crate) fn of(edge: &Arc<Edge>, object: &Arc<Object>, first: Option<MasterId>) -> Arc<Self> {
        let mut fillings = edge.fillings.lock();
        if let Some(filling) = fillings.get(&identity(object)).and_then(Weak::upgrade) {
            return filling;
        }
        let conditions = object.conditions();
        let geometry = Geometry::new(object.rep.length(), object.rep.block_bytes());
        let portable = matches!(validator(&object.head), Some(Validator::Strong(_)));
        let bound = || {
            first.or_else(|| {
                let sources = &object.project.sources;
                let choice = sources.choose(clock::now(), &object.key, object.home(), &[]);
                choice.map(|c| c.master)
            })
        };
        let only = if portable { None } else { bound() };
        let memo = edge.memos.get(&object.key);
        let subject = Subject {
            geometry,
            masters: object.project.sources.attempts_max(),
            only,
            ranges: !memo.no_ranges,
            completion: object.project.rules(&object.target).completion,
        };
        let state = State {
            fill: Fill::new(subject, Limits::default(), &|block| object.rep.has(block)),
            slots: HashMap::new(),
            failed: HashMap::new(),
            clients: 0,
            brought: Vec::new(),
            told: None,
            rest: None,
            kept: HashMap::new(),
        };
        let unstorable_until_ns = memo.unstorable_until_ns();
        let filling = Arc::new(Self {
            edge: Arc::clone(edge),
            object: Arc::clone(object),
            conditions,
            only,
            unstorable_until_ns: AtomicU64::new(unstorable_until_ns),
            moved: Notify::new(),
            state: Mutex::new(state),
        });
        fillings.insert(identity(object), Arc::downgrade(&filling));
        filling
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new client.
    pub(crate) fn reader(self: &Arc<Self>) -> Reader {
        let mut state = self.lock();
        state.clients = state.clients.saturating_add(1);
        let id = ClientId(state.clients);
        drop(state);
        Reader::new(Arc::clone(self), id)
    }

    /// Begins what is due without a client that waits: the completion of the whole. `popular`:
    /// clients of two networks have asked for it.
    pub(crate) fn complete(self: &Arc<Self>, popular: bool) {
        let mut state = self.lock();
        if popular {
            state.fill.handle_popular();
        }
        self.drive(&mut state);
    }

    /// An answer that brings `blocks` is coming in; `reader` wants them. `None` when it is of no
    /// use.
    pub(crate) fn adopt(
        &self,
        master: MasterId,
        blocks: Range<u32>,
        reader: &Reader,
    ) -> Option<RunId> {
        let mut state = self.lock();
        let held = |block: &u32| self.object.rep.has(*block);
        if blocks.clone().any(|b| held(&b)) {
            return None;
        }
        let run = state.fill.adopt(master, blocks.clone())?;
        state.fill.handle_want(reader.id(), blocks);
        Some(run)
    }

    /// `master` was asked for `blocks` before the representation was known; `reader` wants them.
    /// `None` when that is of no use.
    pub(crate) fn expect(
        &self,
        master: MasterId,
        blocks: Range<u32>,
        hedge_at_ns: u64,
        reader: &Reader,
    ) -> Option<RunId> {
        let mut state = self.lock();
        if blocks.clone().any(|block| self.object.rep.has(block)) {
            return None;
        }
        let run = state.fill.expect(master, blocks.clone(), hedge_at_ns)?;
        state.fill.handle_want(reader.id(), blocks);
        Some(run)
    }

    /// The answer of `master` to `run` has begun as it should, with the byte at `from`. Whether its
    /// bytes are of use.
    pub(crate) fn handle_head(self: &Arc<Self>, run: RunId, master: MasterId, from: u64) -> bool {
        let mut state = self.lock();
        let rep = &self.object.rep;
        let head = state.fill.handle_head(run, master, from, &|block| rep.has(block));
        let no_ranges = !state.fill.has_ranges();
        self.drive(&mut state);
        wake_all(&state);
        drop(state);
        self.moved.notify_waiters();
        let (edge, project) = (&self.edge, &self.object.project);
        let Head::Taken { slow, rival, disagree } = head else { return false };
        if let Some(slow) = slow {
            project.sources.handle_failed(slow, Failure::Slow, clock::now());
        }
        if rival {
            project.reach.hedges_won.inc();
        }
        if let Some(other) = disagree {
            home::note_disagreement(edge, &self.object, other, &HeaderMap::new());
        }
        if no_ranges {
            edge.memos.update(&self.object.key, |memo| memo.no_ranges = true);
        }
        true
    }

    /// Whether an answer of `master` is of use to `run`.
    pub(crate) fn takes(&self, run: RunId, master: MasterId) -> bool {
        self.lock().fill.takes(run, master)
    }

    /// When a client that is blocked on `run` has waited long enough for its answer.
    pub(crate) fn hedge_at_ns(&self, run: RunId) -> Option<u64> {
        self.lock().fill.hedge_at(run)
    }

    /// Time has passed.
    pub(crate) fn handle_time(self: &Arc<Self>) {
        self.drive(&mut self.lock());
    }

    /// Where the next bytes of `run` go; `None` when it takes none.
    pub(crate) fn place(&self, run: RunId) -> Option<Place> {
        let mut state = self.lock();
        let room = state.fill.room(run)?;
        let start = state.fill.geometry().start_of(room.block);
        let slot = Arc::clone(state.slots.entry(room.block).or_default());
        let block_bytes = usize::try_from(self.object.rep.block_len(room.block)).ok()?;
        let missing = usize::try_from(room.missing).ok()?;
        Some(Place { at: start.saturating_add(room.filled.into()), slot, block_bytes, missing })
    }

    /// For whom `run` may bring its next block now; `None`: it is over.
    pub(crate) fn turn(self: &Arc<Self>, run: RunId) -> Option<Pace> {
        let mut state = self.lock();
        let pace = state.fill.turn(run);
        self.drive(&mut state);
        drop(state);
        if pace.is_none() {
            self.note_left();
        }
        pace
    }

    /// Ends a run that has been paused for long.
    pub(crate) fn cut_paused(self: &Arc<Self>, run: RunId) -> bool {
        let mut state = self.lock();
        let cut = state.fill.cut_paused(run);
        self.drive(&mut state);
        cut
    }

    /// Waits until clients have moved, come or gone, or a run has ended; from its first poll on, or
    /// once it was enabled.
    pub(crate) fn moved(&self) -> Notified<'_> {
        self.moved.notified()
    }

    /// Clients have moved, come or gone.
    pub(crate) fn note_moved(&self) {
        self.moved.notify_waiters();
    }

    /// The slot of a block.
    pub(crate) fn slot(&self, block: u32) -> Arc<Slot> {
        Arc::clone(self.lock().slots.entry(block).or_default())
    }

    /// `bytes` more bytes are in the slot. Gives the block when it is full.
    pub(crate) fn handle_bytes(&self, run: RunId, bytes: usize) -> Option<Full> {
        self.lock().fill.handle_bytes(run, u32::try_from(bytes).unwrap_or(u32::MAX))
    }

    /// The store has the block.
    pub(crate) fn handle_stored(
        self: &Arc<Self>,
        run: RunId,
        master: MasterId,
        block: u32,
    ) -> Next {
        let mut state = self.lock();
        if !state.brought.contains(&master) {
            state.brought.push(master);
        }
        let slot = state.slots.remove(&block);
        let rep = &self.object.rep;
        let next = state.fill.handle_stored(run, &|block| rep.has(block));
        self.drive(&mut state);
        drop(state);
        if let Some(slot) = slot {
            slot.changed.notify_waiters();
        }
        match next {
            Next::Done => check::begin(self),
            Next::Cut => self.note_left(),
            Next::Read => {}
        }
        next
    }

    /// The masters whose bytes were stored.
    pub(crate) fn brought_by(&self) -> Vec<MasterId> {
        self.lock().brought.clone()
    }

    /// A run has ended before its time. What is missing of it can be had from another answer, or
    /// never.
    fn note_left(&self) {
        if self.conditions.is_none() {
            self.edge.discard(&self.object);
        }
    }

    /// Waits until nobody has wanted `run` for long enough; it has ended then. So a slow master and
    /// clients that do not wait for it keep no block buffer from others (E3, E5). Or until another
    /// answer than that of `master` was taken.
    pub(crate) async fn abandoned(self: &Arc<Self>, run: RunId, master: MasterId) {
        loop {
            let moved = self.moved();
            tokio::pin!(moved);
            // From here on no leave is missed.
            moved.as_mut().enable();
            if !self.takes(run, master) {
                return;
            }
            if self.lock().fill.is_wanted(run) {
                moved.await;
                continue;
            }
            let position = self.lock().fill.position(run);
            tokio::time::sleep(UNWANTED_MAX).await;
            let mut state = self.lock();
            if state.fill.cut(run, position) {
                self.drive(&mut state);
                break;
            }
        }
        self.note_left();
    }

    /// The block of `run` cannot be stored, and what follows it cannot come from another answer: one
    /// of the clients takes both.
    pub(crate) fn leave_rest(&self, block: u32, master: MasterId, data: Bytes, body: Reading) {
        let mut state = self.lock();
        let at = state.fill.geometry().start_of(block);
        if let Some(slot) = state.slots.get(&block) {
            let ready = VecDeque::from([slot.take(), data]);
            state.rest = Some(Rest { at, ready, body: Lent::new(body), master });
        }
    }

    /// A full block can go to nobody but those who wait for it: the stores were handed over.
    pub(crate) fn keep(&self, block: u32) {
        let mut state = self.lock();
        if let Some(slot) = state.slots.get(&block) {
            let bytes = slot.take();
            state.kept.insert(block, bytes);
        }
    }

    /// Such a block.
    pub(crate) fn kept(&self, block: u32) -> Option<Bytes> {
        self.lock().kept.get(&block).cloned()
    }

    /// The answer that could not be stored, for a client that has everything before `at`.
    pub(crate) fn take_rest(&self, at: u64) -> Option<Rest> {
        self.lock().rest.take_if(|rest| rest.at <= at)
    }

    /// Whether the store takes nothing more of it for now.
    pub(crate) fn is_unstorable(&self) -> bool {
        let until_ns = self.unstorable_until_ns.load(Relaxed);
        until_ns > 0 && until_ns > clock::now().mono_ns
    }

    /// A master answered with this representation.
    pub(crate) fn note_told(&self, master: MasterId, status: StatusCode) {
        let told = Told::by(&self.object.project, master, Some(status));
        self.lock().told = told;
    }

    /// The last answer that brought something of it.
    pub(crate) fn told(&self) -> Option<Told> {
        self.lock().told.clone()
    }

    /// The request of `run` to `master` failed.
    pub(crate) fn handle_failed(self: &Arc<Self>, run: RunId, master: MasterId, why: Failure) {
        let mut state = self.lock();
        let blamed = state.fill.handle_failed(run, master, why);
        // A refuted object is counted with it.
        if blamed && why != Failure::DigestMismatch {
            self.object.project.sources.handle_failed(master, why, clock::now());
        }
        let (edge, key) = (&self.edge, &self.object.key);
        match why {
            // Another than its own may never have had it.
            Failure::Changed if self.object.is_from_another(master) => {}
            Failure::Changed => edge.memos.update(key, |m| m.suspect = true),
            Failure::DigestMismatch => check::refute(edge, &self.object, &[master]),
            Failure::Disk => {
                // What is held of it is served on; it can go like anything else that is not used.
                let now = clock::now();
                edge.memos.update(key, |m| m.set_pass(now, DISK_TROUBLE_MS, NoCache::Disk));
                self.unstorable_until_ns.store(now.plus_ms(DISK_TROUBLE_MS).mono_ns, Relaxed);
                if self.conditions.is_none() {
                    edge.discard(&self.object);
                }
            }
            _ => self.note_left(),
        }
        self.drive(&mut state);
        drop(state);
        self.moved.notify_waiters();
    }

    /// Carries out what the machine wants.
    pub(crate) fn drive(self: &Arc<Self>, state: &mut State) {
        let now = clock::now();
        let mut around = Surroundings { filling: self, now };
        let mut failed = false;
        while let Some(output) = state.fill.poll(now, &mut around) {
            match output {
                Output::Request { run, master, bytes, .. } => {
                    tokio::spawn(pour::request(Arc::clone(self), run, master, bytes));
                }
                Output::Discard { block } => {
                    if let Some(slot) = state.slots.remove(&block) {
                        slot.changed.notify_waiters();
                    }
                }
                Output::Fail { client, why } => {
                    let why = if self.conditions.is_none() { Failure::Changed } else { why };
                    state.failed.insert(client, why);
                    failed = true;
                }
            }
        }
        if failed {
            wake_all(state);
        }
    }
}

/// What the machine sees of the edge.
struct Surroundings<'a> {
    filling: &'a Filling,
    now: Now,
}

impl Around for Surroundings<'_> {
    fn is_held(&self, block: u32) -> bool {
        self.filling.object.rep.has(block)
    }

    fn choose(&mut self, tried: &[MasterId]) -> Option<Chosen> {
        if self.filling.edge.is_handed_over() {
            return None;
        }
        let object = self.filling.conditions.as_ref().map(|_| &self.filling.object)?;
        object.project.chosen(self.now, &object.key, object.home(), tried)
    }

    fn rival(&mut self, tried: &[MasterId]) -> Option<MasterId> {
        let object = &self.filling.object;
        object.project.rival(self.now, &object.key, object.home(), tried)
    }
}

fn wake_all(state: &State) {
    for slot in state.slots.values() {
        slot.changed.notify_waiters();
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        let mut fillings = self.edge.fillings.lock();
        let key = identity(&self.object);
        // Another may have taken the place since the last reference went.
        if fillings.get(&key).is_some_and(|f| f.strong_count() == 0) {
            fillings.remove(&key);
        }
    }
}
