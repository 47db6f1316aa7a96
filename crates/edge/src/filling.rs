//! A representation being filled: the fill machine with its clients and block buffers.
//!
//! One for each representation, however many clients; made when a block is first missing, gone with
//! its last reader and run. A reader waits for a block's [`Slot`]: it reads bytes from there as they
//! arrive, and from the store once the block is written. Upstream is read by [`crate::pour`] at the
//! network's pace.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use bytes::Bytes;
use fill::{ClientId, Failure, Fill, Geometry, Limits, MasterId, Next, Output, Reach, RunId};
use http::{HeaderMap, StatusCode};
use http_cache::{NoCache, Validator, validator};
use rt::clock;
use tokio::sync::Notify;

use crate::past::Rest;
use crate::pour;
use crate::state::{BufferPermit, Edge, Object};
use crate::upstream::Reading;

/// How long nothing more of an object is stored after its disk failed, milliseconds.
pub(crate) const DISK_TROUBLE_MS: u64 = 10_000;
/// How long a request that nobody wants any more may take to the end of its block. Not at once: a
/// HEAD wants nothing of the block that it began, and the next client often comes soon.
const UNWANTED_MAX: Duration = Duration::from_secs(2);

/// The bytes of one block as they arrive.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    buffer: RwLock<Buffer>,
    /// More bytes, or the block is stored, or its fill has changed course.
    pub(crate) changed: Notify,
}

/// Memory for a block, with the permit to use it.
#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    permit: Option<BufferPermit>,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Slot {
    fn read(&self) -> RwLockReadGuard<'_, Buffer> {
        self.buffer.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is memory for the block.
    pub(crate) fn has_buffer(&self) -> bool {
        self.read().permit.is_some()
    }

    /// Appends bytes; the first time `permit` is spent on memory for `block_bytes`.
    pub(crate) fn append(&self, part: &[u8], permit: Option<BufferPermit>, block_bytes: usize) {
        let mut buffer = self.buffer.write().unwrap_or_else(PoisonError::into_inner);
        if permit.is_some() {
            buffer.permit = permit;
            buffer.bytes.reserve_exact(block_bytes);
        }
        buffer.bytes.extend_from_slice(part);
    }

    /// Does something with all bytes that are there.
    pub(crate) fn with_bytes<T>(&self, with: impl FnOnce(&[u8]) -> T) -> T {
        with(&self.read().bytes)
    }

    /// All bytes and the permit for their memory, which comes free with the last of them. The slot is
    /// empty afterwards.
    pub(crate) fn take(&self) -> Bytes {
        let mut buffer = self.buffer.write().unwrap_or_else(PoisonError::into_inner);
        Bytes::from_owner(std::mem::take(&mut *buffer))
    }

    /// A copy of at most `max` bytes from `from` on; `None` when they are not there yet. A copy, so
    /// that a slow client never keeps a whole buffer alive.
    fn copy(&self, from: u64, max: usize) -> Option<Bytes> {
        let buffer = self.read();
        let from = usize::try_from(from).ok()?;
        let rest = buffer.bytes.get(from..).filter(|rest| !rest.is_empty())?;
        Some(Bytes::copy_from_slice(rest.get(..max).unwrap_or(rest)))
    }
}

#[derive(Debug)]
struct State {
    fill: Fill,
    slots: HashMap<u32, Arc<Slot>>,
    failed: HashMap<ClientId, Failure>,
    clients: u64,
    /// The answer that could not be stored, where no other may take its place.
    rest: Option<Rest>,
}

/// Where the next bytes of a run go.
pub(crate) struct Place {
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
    /// Status of the last answer that was of this representation; 0: none yet.
    status: AtomicU16,
    /// A client has gone.
    gone: Notify,
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
                object.project.choose(clock::now(), object.home(), &[]).map(|c| c.master)
            })
        };
        let only = if portable { None } else { bound() };
        let masters = object.project.masters.len();
        let state = State {
            fill: Fill::new(geometry, masters, only, Limits::default()),
            slots: HashMap::new(),
            failed: HashMap::new(),
            clients: 0,
            rest: None,
        };
        let unstorable_until_ns = edge.memos.get(&object.key).unstorable_until_ns();
        let filling = Arc::new(Self {
            edge: Arc::clone(edge),
            object: Arc::clone(object),
            conditions,
            only,
            unstorable_until_ns: AtomicU64::new(unstorable_until_ns),
            status: AtomicU16::new(0),
            gone: Notify::new(),
            state: Mutex::new(state),
        });
        fillings.insert(identity(object), Arc::downgrade(&filling));
        filling
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new client.
    pub(crate) fn reader(self: &Arc<Self>) -> Reader {
        let mut state = self.lock();
        state.clients = state.clients.saturating_add(1);
        let id = ClientId(state.clients);
        drop(state);
        Reader { filling: Arc::clone(self), id }
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
        state.fill.handle_want(reader.id, blocks);
        Some(run)
    }

    /// The answer to `run` has begun as it should.
    pub(crate) fn handle_head(&self, run: RunId) {
        let mut state = self.lock();
        state.fill.handle_head(run);
        wake_all(&state);
    }

    /// Where the next bytes of `run` go; `None` when it takes none.
    pub(crate) fn place(&self, run: RunId) -> Option<Place> {
        let mut state = self.lock();
        let room = state.fill.room(run)?;
        let slot = Arc::clone(state.slots.entry(room.block).or_default());
        let block_bytes = usize::try_from(self.object.rep.block_len(room.block)).ok()?;
        Some(Place { slot, block_bytes, missing: usize::try_from(room.missing).ok()? })
    }

    /// The slot of a block.
    pub(crate) fn slot(&self, block: u32) -> Arc<Slot> {
        Arc::clone(self.lock().slots.entry(block).or_default())
    }

    /// `bytes` more bytes are in the slot. Gives the block when it is full.
    pub(crate) fn handle_bytes(&self, run: RunId, bytes: usize) -> Option<u32> {
        self.lock().fill.handle_bytes(run, u32::try_from(bytes).unwrap_or(u32::MAX))
    }

    /// The store has the block.
    pub(crate) fn handle_stored(self: &Arc<Self>, run: RunId, block: u32) -> Next {
        let mut state = self.lock();
        let slot = state.slots.remove(&block);
        let next = state.fill.handle_stored(run);
        self.drive(&mut state);
        drop(state);
        if let Some(slot) = slot {
            slot.changed.notify_waiters();
        }
        if next == Next::Cut && self.conditions.is_none() {
            // What is missing can never be joined to what is there.
            self.edge.discard(&self.object);
        }
        next
    }

    /// Waits until nobody has wanted `run` for long enough; it has ended then. So a slow master and
    /// clients that do not wait for it keep no block buffer from others (E3, E5).
    pub(crate) async fn abandoned(self: &Arc<Self>, run: RunId) {
        loop {
            let gone = self.gone.notified();
            tokio::pin!(gone);
            // From here on no leave is missed.
            gone.as_mut().enable();
            if self.lock().fill.is_wanted(run) {
                gone.await;
                continue;
            }
            tokio::time::sleep(UNWANTED_MAX).await;
            let mut state = self.lock();
            if state.fill.cut(run) {
                self.drive(&mut state);
                break;
            }
        }
        if self.conditions.is_none() {
            self.edge.discard(&self.object);
        }
    }

    /// The block of `run` cannot be stored, and what follows it cannot come from another answer: one
    /// of the clients takes both.
    pub(crate) fn leave_rest(&self, block: u32, master: MasterId, data: Bytes, body: Reading) {
        let mut state = self.lock();
        let at = state.fill.geometry().start_of(block);
        if let Some(slot) = state.slots.get(&block) {
            let ready = VecDeque::from([slot.take(), data]);
            state.rest = Some(Rest { at, ready, body, master });
        }
    }

    /// The answer that could not be stored, for a client that has everything before `at`.
    pub(crate) fn take_rest(&self, at: u64) -> Option<Rest> {
        self.lock().rest.take_if(|rest| rest.at <= at)
    }

    /// Whether the store takes nothing more of it for now.
    fn is_unstorable(&self) -> bool {
        let until_ns = self.unstorable_until_ns.load(Relaxed);
        until_ns > 0 && until_ns > clock::now().mono_ns
    }

    /// A master answered with this representation.
    pub(crate) fn note_status(&self, status: StatusCode) {
        self.status.store(status.as_u16(), Relaxed);
    }

    /// The request of `run` failed.
    pub(crate) fn handle_failed(self: &Arc<Self>, run: RunId, master: MasterId, why: Failure) {
        self.object.project.handle_failed(master, why, clock::now());
        let (edge, key) = (&self.edge, &self.object.key);
        match why {
            // Another than its own may never have had it.
            Failure::Changed if self.object.is_from_another(master) => {}
            Failure::Changed => edge.memos.update(key, |m| m.suspect = true),
            Failure::Disk => {
                // What is held of it is served on; it can go like anything else that is not used.
                let now = clock::now();
                edge.memos.update(key, |m| m.set_pass(now, DISK_TROUBLE_MS, NoCache::Disk));
                self.unstorable_until_ns.store(now.plus_ms(DISK_TROUBLE_MS).mono_ns, Relaxed);
                if self.conditions.is_none() {
                    edge.discard(&self.object);
                }
            }
            _ if self.conditions.is_none() => edge.discard(&self.object),
            _ => {}
        }
        let mut state = self.lock();
        state.fill.handle_failed(run, why);
        self.drive(&mut state);
    }

    /// Carries out what the machine wants.
    fn drive(self: &Arc<Self>, state: &mut State) {
        let now = clock::now();
        let choose = |tried: &[MasterId]| {
            let project = self.conditions.as_ref().map(|_| &self.object.project)?;
            project.choose(now, self.object.home(), tried).map(|choice| choice.master)
        };
        let mut failed = false;
        while let Some(output) = state.fill.poll(&|block| self.object.rep.has(block), &choose) {
            match output {
                Output::Request { run, master, bytes } => {
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

/// A client of a filling; gone when dropped.
#[derive(Debug)]
pub(crate) struct Reader {
    filling: Arc<Filling>,
    id: ClientId,
}

impl Reader {
    /// What it reads.
    pub(crate) fn filling(&self) -> &Arc<Filling> {
        &self.filling
    }

    /// The status of the last answer that brought something of it.
    pub(crate) fn upstream_status(&self) -> Option<StatusCode> {
        StatusCode::from_u16(self.filling.status.load(Relaxed)).ok()
    }

    /// Whether the reader is one of this object's representation.
    pub(crate) fn is_of(&self, object: &Object) -> bool {
        Arc::ptr_eq(&self.filling.object.rep, &object.rep)
    }

    /// Waits until the first of `blocks` is held, or comes in with an answer that was found to be
    /// of this representation.
    pub(crate) async fn coming(&self, blocks: Range<u32>) -> Result<(), Failure> {
        let is_near = |state: &State| state.fill.reach(blocks.start) == Reach::Coming;
        self.wait(blocks.clone(), |state, _| is_near(state).then_some(())).await.map(|_| ())
    }

    /// Bytes from `offset` on, at most `max`, as they arrive; `None` when the block is in the store.
    /// `until`: the block before which the reader will stop.
    pub(crate) async fn bytes(
        &self,
        offset: u64,
        until: u32,
        max: usize,
    ) -> Result<Option<Bytes>, Failure> {
        let (block, start) = {
            let geometry = self.filling.lock().fill.geometry();
            let block = geometry.block_of(offset);
            (block, geometry.start_of(block))
        };
        let from = offset.saturating_sub(start);
        self.wait(block..until, |_, slot| slot.copy(from, max)).await
    }

    /// Waits until the first of `blocks` is in the store.
    pub(crate) async fn stored(&self, blocks: Range<u32>) -> Result<(), Failure> {
        self.wait(blocks, |_, _| None::<()>).await.map(|_| ())
    }

    /// Waits until the first of `blocks` is held (`None`) or `ready` gives something.
    async fn wait<T>(
        &self,
        blocks: Range<u32>,
        ready: impl Fn(&State, &Slot) -> Option<T>,
    ) -> Result<Option<T>, Failure> {
        let filling = &self.filling;
        loop {
            let slot = filling.slot(blocks.start);
            let changed = slot.changed.notified();
            tokio::pin!(changed);
            // From here on no change is missed.
            changed.as_mut().enable();
            if filling.object.rep.has(blocks.start) {
                return Ok(None);
            }
            {
                let mut state = filling.lock();
                if let Some(why) = state.failed.remove(&self.id) {
                    return Err(why);
                }
                if let Some(found) = ready(&state, &slot) {
                    return Ok(Some(found));
                }
                if filling.is_unstorable() {
                    // To fetch it for the store would be for nothing.
                    return Err(Failure::Disk);
                }
                state.fill.handle_want(self.id, blocks.clone());
                filling.drive(&mut state);
                if let Some(why) = state.failed.remove(&self.id) {
                    return Err(why);
                }
            }
            changed.await;
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.filling.lock();
        state.fill.handle_gone(self.id);
        state.failed.remove(&self.id);
        drop(state);
        self.filling.gone.notify_waiters();
    }
}
