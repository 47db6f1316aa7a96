//! Answers that only show at their end whether they can be kept: those whose length nobody knows
//! beforehand, and those that a client's own request brought.
//!
//! The one who asked gets the bytes as they come. They are gathered beside that, at the master's pace
//! and in one block buffer at most. When the answer ends within it, it is stored whole; when it is
//! longer or takes too long, what was gathered and the rest go to its client alone. A truncated one is
//! never stored, and its client is broken off.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fill::Failure;
use http_cache::{ReadyHead, Selecting, StoredHead, Target};
use serve::{BodyError, Piece, Source};
use store::Key;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::task::JoinHandle;

use crate::deliver::Delivery;
use crate::project::Project;
use crate::state::{BufferPermit, Edge, Object};
use crate::upstream::{Lent, Reading};

/// An answer that takes longer than this is not gathered any further: its buffer is for others.
const GATHER_MAX: Duration = Duration::from_secs(30);
/// Bytes copied at once for the client.
const COPY_BYTES_MAX: usize = 64 << 10;

/// How an answer is to be kept.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) project: Arc<Project>,
    pub(crate) target: Target,
    pub(crate) key: Key,
    pub(crate) selecting: Selecting,
    pub(crate) head: StoredHead,
}

/// What became of an answer.
#[derive(Debug)]
pub(crate) enum End {
    /// It is over, and stored if the disk took it.
    Whole(Option<Arc<Object>>),
    /// It is longer than a block, or takes too long.
    Long,
    /// It broke off.
    Broken(Failure),
}

/// An answer being gathered.
#[derive(Debug)]
struct Spool {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    bytes: Vec<u8>,
    /// The right to them.
    permit: Option<BufferPermit>,
    length: usize,
    end: Option<Handed>,
}

/// Where the client goes on when it has what was gathered.
#[derive(Debug)]
enum Handed {
    /// Nowhere.
    Over,
    /// In the store, where all of it is.
    Stored(Arc<Object>),
    /// With the master.
    Rest(Option<Reading>),
    /// It cannot.
    Broken(Failure),
}

/// Begins to gather an answer. Gives its body for the client, and what becomes of it.
pub(crate) fn begin(
    edge: &Arc<Edge>,
    permit: BufferPermit,
    draft: Draft,
    body: Reading,
) -> (Tail, JoinHandle<End>) {
    let state = State { bytes: Vec::new(), permit: Some(permit), length: 0, end: None };
    let spool = Arc::new(Spool { state: Mutex::new(state), changed: Notify::new() });
    let tail =
        Tail { edge: Arc::clone(edge), spool: Arc::clone(&spool), at: 0, rest: None, stored: None };
    let gathering = tokio::spawn(gather(Arc::clone(edge), spool, draft, body));
    (tail, gathering)
}

async fn gather(edge: Arc<Edge>, spool: Arc<Spool>, draft: Draft, mut body: Reading) -> End {
    let max = usize::try_from(edge.block_bytes).unwrap_or(usize::MAX);
    let deadline = tokio::time::Instant::now().checked_add(GATHER_MAX);
    loop {
        let read = match deadline {
            Some(deadline) => tokio::time::timeout_at(deadline, body.next()).await.ok(),
            None => None,
        };
        match read {
            Some(Ok(Some(data))) => {
                if spool.append(&data) > max {
                    spool.hand(Handed::Rest(Some(body)));
                    return End::Long;
                }
            }
            Some(Ok(None)) => {
                let bytes = spool.lock().bytes.clone();
                let stored = store(&edge, draft, bytes).await;
                spool.hand(stored.clone().map_or(Handed::Over, Handed::Stored));
                return End::Whole(stored);
            }
            Some(Err(why)) => {
                spool.hand(Handed::Broken(why));
                return End::Broken(why);
            }
            None => {
                spool.hand(Handed::Rest(Some(body)));
                return End::Long;
            }
        }
    }
}

/// Stores a whole answer. Nobody can find it before its bytes are there.
async fn store(edge: &Arc<Edge>, draft: Draft, bytes: Vec<u8>) -> Option<Arc<Object>> {
    let Draft { project, target, key, selecting, head } = draft;
    let (length, head_bytes) = (u64::try_from(bytes.len()).ok()?, head.to_bytes());
    let store = edge.store(&key)?;
    let is_small = store.packs(length, head_bytes.len());
    let its_edge = Arc::clone(edge);
    let work = move || {
        let (known, name) = (Arc::clone(&project), target.clone());
        let created = store.create_with(key, head_bytes, length, |rep| {
            let (rep, head) = (Arc::clone(rep), Arc::new(ReadyHead::new(head, length)));
            let written = if bytes.is_empty() { Ok(()) } else { rep.write_block(0, &bytes) };
            its_edge.memos.clear(&key);
            (written, Object { project, target, key, selecting, rep, head })
        });
        match created {
            Ok((_, (Ok(()), object))) => Some(Arc::new(object)),
            Ok((rep, (Err(error), _))) => {
                its_edge.note_unstored(&known, &name, &error);
                store.discard(&rep);
                None
            }
            Err(error) => {
                its_edge.note_unstored(&known, &name, &error);
                None
            }
        }
    };
    edge.at_disk(&key, is_small, work).await.flatten()
}

impl Spool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds bytes; how many there are now.
    fn append(&self, data: &[u8]) -> usize {
        let mut state = self.lock();
        state.bytes.extend_from_slice(data);
        state.length = state.bytes.len();
        let length = state.length;
        drop(state);
        self.changed.notify_waiters();
        length
    }

    /// Nothing more is gathered.
    fn hand(&self, end: Handed) {
        let mut state = self.lock();
        if matches!(end, Handed::Stored(_) | Handed::Broken(_)) {
            // A slow client reads the store, or gets no more: the buffer is for others.
            state.bytes = Vec::new();
            state.permit = None;
        }
        state.end = Some(end);
        drop(state);
        self.changed.notify_waiters();
    }

    /// From here on no change is missed.
    fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }
}

/// The body of an answer that is being gathered, for the one who asked.
#[derive(Debug)]
pub(crate) struct Tail {
    edge: Arc<Edge>,
    spool: Arc<Spool>,
    /// Bytes it has.
    at: usize,
    /// Where it goes on.
    rest: Option<Lent>,
    /// The same when all of it is in the store.
    stored: Option<Box<Delivery>>,
}

impl Source for Tail {
    async fn next(&mut self) -> Option<Result<Piece, BodyError>> {
        loop {
            if let Some(stored) = &mut self.stored {
                return stored.next().await;
            }
            if let Some(rest) = &mut self.rest {
                return match rest.next().await {
                    Ok(data) => data.map(|data| Ok(Piece::Bytes(data))),
                    Err(why) => Some(Err(BodyError::source(why))),
                };
            }
            let spool = Arc::clone(&self.spool);
            let changed = spool.changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut state = spool.lock();
                let ready = state.bytes.get(self.at..).filter(|ready| !ready.is_empty());
                if let Some(ready) = ready {
                    let part = ready.get(..COPY_BYTES_MAX).unwrap_or(ready);
                    let part = Bytes::copy_from_slice(part);
                    self.at = self.at.saturating_add(part.len());
                    return Some(Ok(Piece::Bytes(part)));
                }
                let length = state.length;
                match &mut state.end {
                    None => {}
                    Some(Handed::Stored(object)) if self.at < length => {
                        let range = place(self.at)..place(length);
                        let delivery = Delivery::of(&self.edge, object, range);
                        self.stored = Some(Box::new(delivery));
                        continue;
                    }
                    Some(Handed::Over | Handed::Stored(_)) => return None,
                    Some(Handed::Rest(reading)) => {
                        self.rest = Some(Lent::new(reading.take()?));
                        // What was gathered has been taken.
                        (state.bytes, state.permit) = (Vec::new(), None);
                        continue;
                    }
                    Some(Handed::Broken(why)) => return Some(Err(BodyError::source(*why))),
                }
            }
            changed.await;
        }
    }
}

/// A place in memory as one in the representation.
fn place(at: usize) -> u64 {
    u64::try_from(at).unwrap_or(u64::MAX)
}
