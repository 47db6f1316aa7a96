//! Which response of a connection gives bytes next: the `Priority` request field (RFC 9218) and a
//! sense of our own.
//!
//! A response of a connection asks for its turn before each part of its body. It has it unless one
//! that goes before it has bytes to give too. A more urgent one that waits for its client's window,
//! with nothing of it left to be written, holds up nobody. Equal ones share: whoever had its turn
//! longest ago is next; those whose clients asked for it (a `Priority` field without `i`) go one
//! after the other. Less is held for the whole connection than [`HELD_BYTES_MAX`] and one part.
//!
//! `PRIORITY_UPDATE` frames (RFC 9218 section 7) are not known here: the h2 crate drops them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use http::HeaderMap;

/// Bytes of a part at most. It is smaller for slow clients, see [`Turns::set_part`]: what is held goes
/// before whatever is asked for next.
pub(crate) const PART_BYTES: usize = 64 * 1024;
/// So many parts a connection holds before it asks for more of any body.
const HELD_PARTS: usize = 4;
/// Bytes of them at most.
pub(crate) const HELD_BYTES_MAX: usize = HELD_PARTS * PART_BYTES;
/// Whole bodies up to this are more urgent when the client says nothing: who waits for one mostly
/// waits for nothing else, and it is over at once.
const SMALL_BYTES: u64 = 64 * 1024;

const URGENCY_DEFAULT: u8 = 3;
const URGENCY_MAX: u8 = 7;

/// How soon a response is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Priority {
    /// 0 (most urgent) to 7.
    urgency: u8,
    /// Goes before those of equal urgency that were asked for later and are sequential too.
    sequential: bool,
    /// The client said so.
    is_said: bool,
}

impl Priority {
    /// Of a request: its `Priority` field. What is not understood is not there (section 4).
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut fields = headers.get_all("priority").iter().peekable();
        let is_said = fields.peek().is_some();
        let mut priority = Self { urgency: URGENCY_DEFAULT, sequential: is_said, is_said };
        let members = fields.filter_map(|field| field.to_str().ok()).flat_map(|f| f.split(','));
        for member in members {
            // Parameters mean nothing here.
            let member = member.split(';').next().unwrap_or_default().trim();
            match member.split_once('=') {
                None if member == "i" => priority.sequential = false,
                Some(("i", "?1")) => priority.sequential = false,
                Some(("i", "?0")) => priority.sequential = true,
                Some(("u", digits)) => {
                    let urgency = digits.parse().ok().filter(|u| *u <= URGENCY_MAX);
                    priority.urgency = urgency.unwrap_or(priority.urgency);
                }
                _ => {}
            }
        }
        priority
    }

    /// The same for who schedules by numbers of his own: the higher the sooner, 0 the usual.
    pub(crate) fn rank(self) -> i32 {
        i32::from(URGENCY_DEFAULT).saturating_sub(self.urgency.into())
    }

    /// With what is known of the body: its length.
    pub(crate) fn with_length(mut self, length: Option<u64>) -> Self {
        if !self.is_said && length.is_some_and(|bytes| bytes <= SMALL_BYTES) {
            self.urgency = self.urgency.saturating_sub(1);
        }
        self
    }
}

/// The responses of one connection.
#[derive(Debug)]
pub(crate) struct Turns {
    entries: Mutex<Entries>,
    /// Bytes of a part.
    part: AtomicUsize,
    /// Bytes given that were not written yet, of all.
    held: AtomicUsize,
    /// Bytes written in all.
    moved: AtomicU64,
}

#[derive(Debug, Default)]
struct Entries {
    all: Vec<Entry>,
    /// Counts turns.
    now: u64,
}

#[derive(Debug)]
struct Entry {
    id: u32,
    priority: Priority,
    state: State,
    /// When it had its last turn.
    had: u64,
    held: Arc<AtomicUsize>,
}

#[derive(Debug)]
enum State {
    /// Has nothing to give now.
    Quiet,
    /// Waits for its turn.
    Wants(Waker),
    /// Has its turn.
    Gives,
    /// Waits for its client to make room, and how many looks it was seen so.
    Waits { waker: Waker, looks: u32 },
    /// Waited for too long.
    GivenUp,
}

impl Entry {
    /// Whether those behind it wait for it.
    fn is_ahead(&self) -> bool {
        match self.state {
            State::Quiet | State::GivenUp => false,
            State::Wants(_) | State::Gives => true,
            State::Waits { .. } => self.held.load(Relaxed) > 0,
        }
    }
}

/// Who may go: the most urgent, and of those that go one after the other the first.
struct Front {
    urgency: u8,
    sequential: Option<u32>,
}

impl Entries {
    fn front(&self) -> Front {
        let mut front = Front { urgency: u8::MAX, sequential: None };
        for entry in self.all.iter().filter(|entry| entry.is_ahead()) {
            let Priority { urgency, sequential, .. } = entry.priority;
            if urgency < front.urgency {
                front = Front { urgency, sequential: None };
            }
            if urgency == front.urgency && sequential {
                let first = front.sequential.map_or(entry.id, |id| id.min(entry.id));
                front.sequential = Some(first);
            }
        }
        front
    }

    fn get(&mut self, id: u32) -> Option<&mut Entry> {
        self.all.iter_mut().find(|entry| entry.id == id)
    }
}

impl Front {
    fn lets(&self, entry: &Entry) -> bool {
        let Priority { urgency, sequential, .. } = entry.priority;
        // Who goes one after the other is let by equal ones that do not.
        let is_next = !sequential || self.sequential.is_none_or(|first| entry.id <= first);
        urgency < self.urgency || (urgency == self.urgency && is_next)
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
            part: AtomicUsize::new(PART_BYTES),
            held: AtomicUsize::new(0),
            moved: AtomicU64::new(0),
        }
    }
}

impl Turns {
    /// Parts have so many bytes from now on, [`PART_BYTES`] at most.
    pub(crate) fn set_part(&self, bytes: usize) {
        self.part.store(bytes.clamp(1, PART_BYTES), Relaxed);
    }

    /// How many more parts may be held.
    fn room(&self) -> usize {
        let part = self.part.load(Relaxed);
        let room = part.saturating_mul(HELD_PARTS).saturating_sub(self.held.load(Relaxed));
        room.div_ceil(part.max(1))
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A response begins to give its body.
    pub(crate) fn enter(self: &Arc<Self>, id: u32, priority: Priority) -> Turn {
        let held = Arc::new(AtomicUsize::new(0));
        let entry = Entry { id, priority, state: State::Quiet, had: 0, held: Arc::clone(&held) };
        self.entries().all.push(entry);
        Turn { turns: Arc::clone(self), id, held }
    }

    /// Wakes those that wait and may go now, as many as there is room for. To be called after
    /// bytes were written and after responses have been polled.
    pub(crate) fn wake_next(&self) {
        let mut entries = self.entries();
        let room = self.room();
        if room == 0 {
            return;
        }
        let front = entries.front();
        let waiting =
            |entry: &&mut Entry| matches!(entry.state, State::Wants(_)) && front.lets(entry);
        let mut next: Vec<&mut Entry> = entries.all.iter_mut().filter(waiting).collect();
        next.sort_unstable_by_key(|entry| entry.had);
        for entry in next.into_iter().take(room) {
            if let State::Wants(waker) = &entry.state {
                waker.wake_by_ref();
            }
        }
    }

    /// Bytes written in all.
    pub(crate) fn moved(&self) -> u64 {
        self.moved.load(Relaxed)
    }

    /// Whether a client has yet to take something, or to make room for it.
    pub(crate) fn owes(&self) -> bool {
        let waits = |entry: &Entry| matches!(entry.state, State::Wants(_) | State::Waits { .. });
        self.held.load(Relaxed) > 0 || self.entries().all.iter().any(waits)
    }

    /// Gives up those of which the client took nothing for more than so many looks, with nothing
    /// of them left to be written, and wakes them. To be called once a look.
    pub(crate) fn give_up_stalled(&self, looks_max: u32) {
        for entry in &mut self.entries().all {
            let is_written = entry.held.load(Relaxed) == 0;
            let State::Waits { waker, looks } = &mut entry.state else { continue };
            *looks = if is_written { looks.saturating_add(1) } else { 0 };
            if *looks > looks_max {
                waker.wake_by_ref();
                entry.state = State::GivenUp;
            }
        }
    }
}

/// The turn of one response; gone with it.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    id: u32,
    held: Arc<AtomicUsize>,
}

impl Turn {
    /// Ready when this response may give a part.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let has_room = self.turns.room() > 0;
        let mut entries = self.turns.entries();
        if let Some(entry) = entries.get(self.id) {
            entry.state = State::Wants(cx.waker().clone());
        }
        let front = entries.front();
        entries.now = entries.now.saturating_add(1);
        let now = entries.now;
        let Some(entry) = entries.get(self.id) else { return Poll::Ready(()) };
        if has_room && front.lets(entry) {
            entry.state = State::Gives;
            entry.had = now;
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Its client has to make room first; whether that is worth waiting for still.
    pub(crate) fn waits(&self, cx: &Context<'_>) -> bool {
        let mut entries = self.turns.entries();
        let Some(entry) = entries.get(self.id) else { return true };
        let looks = match entry.state {
            State::GivenUp => return false,
            State::Waits { looks, .. } => looks,
            _ => 0,
        };
        entry.state = State::Waits { waker: cx.waker().clone(), looks };
        true
    }

    /// Bytes that it may give at once.
    pub(crate) fn part_bytes(&self) -> usize {
        self.turns.part.load(Relaxed)
    }

    /// It has nothing to give for now.
    pub(crate) fn is_quiet(&self) {
        self.set(State::Quiet);
    }

    fn set(&self, state: State) {
        if let Some(entry) = self.turns.entries().get(self.id) {
            entry.state = state;
        }
    }

    /// What is to be kept with `bytes` that are given, until they are written.
    pub(crate) fn give(&self, bytes: usize) -> Held {
        self.held.fetch_add(bytes, Relaxed);
        self.turns.held.fetch_add(bytes, Relaxed);
        Held { turns: Arc::clone(&self.turns), own: Arc::clone(&self.held), bytes }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.entries().all.retain(|entry| entry.id != self.id);
    }
}

/// Bytes on their way, in the account of their connection.
#[derive(Debug)]
pub(crate) struct Held {
    turns: Arc<Turns>,
    own: Arc<AtomicUsize>,
    bytes: usize,
}

impl Held {
    /// So many of them were written.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.turns.moved.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Relaxed);
        self.release(bytes);
    }

    fn release(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.own.fetch_sub(bytes, Relaxed);
        self.turns.held.fetch_sub(bytes, Relaxed);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release(self.bytes);
    }
}
