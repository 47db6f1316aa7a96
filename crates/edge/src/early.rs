//! Questions beside the first one about an object that is not held.
//!
//! Until the first answer begins, nobody knows of what the other clients want parts, and they would
//! wait for one round trip more than it does. So a few of them ask for their own blocks at once,
//! without conditions. Such an answer is taken as that of a run of the fill, when it turns out to be
//! of the very representation that the first one began (same strong validator and length, E1); else
//! the run asks again. No block is asked for twice (E2): a question is for blocks that no other one
//! is for, and the fill knows of it before any client can want them.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fill::{Failure, MasterId, RunId};
use http::Method;
use http_cache::{Request, Selecting};
use rt::clock;
use tokio::sync::oneshot;

use crate::fetch::Ask;
use crate::filling::Filling;
use crate::pour;
use crate::question::{Part, Question, first_range};
use crate::reader::Reader;
use crate::state::Edge;
use crate::upstream::{Answer, Call};

/// Questions beside the first one: enough to keep a master busy until the fill asks, few enough to
/// be a small loss when they come to nothing.
const EARLY_MAX: usize = 3;

/// A question that was put early.
#[derive(Debug)]
pub(crate) struct Early {
    master: MasterId,
    /// What it asks for: whole blocks.
    bytes: Range<u64>,
    /// When its client has waited long enough.
    hedge_at_ns: u64,
    /// Dropped, the question is given up.
    answer: oneshot::Receiver<Result<Answer, Failure>>,
    /// To its client.
    reader: oneshot::Sender<Reader>,
}

/// The questions about one key.
#[derive(Debug)]
pub(crate) struct Board(Mutex<Asked>);

#[derive(Debug)]
struct Asked {
    /// What the first question asks for; `None`: no other one is of use.
    first: Option<Range<u64>>,
    /// What masters are told by all.
    selecting: Selecting,
    early: Vec<Early>,
}

impl Board {
    /// Beside a first question.
    pub(crate) fn beside(edge: &Edge, ask: &Ask) -> Self {
        let first = part(edge, &ask.request).filter(|_| ask.held.is_none());
        Self(Mutex::new(Asked { first, selecting: ask.selecting.clone(), early: Vec::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All questions; there will be no more.
    pub(crate) fn take(&self) -> Vec<Early> {
        let mut asked = self.lock();
        asked.first = None;
        std::mem::take(&mut asked.early)
    }
}

impl Asked {
    /// Whether a question for `bytes` may be put, too.
    fn has_place(&self, bytes: &Range<u64>) -> bool {
        let is_apart = |other: &Range<u64>| other.end <= bytes.start || bytes.end <= other.start;
        self.early.len() < EARLY_MAX
            && self.first.as_ref().is_some_and(is_apart)
            && self.early.iter().all(|early| is_apart(&early.bytes))
    }
}

/// The blocks that a client asks for first, in bytes, where their end is known.
fn part(edge: &Edge, request: &Request) -> Option<Range<u64>> {
    match first_range(u64::from(edge.block_bytes), request)? {
        Part::From(first, Some(last)) => Some(first..last.saturating_add(1)),
        Part::From(_, None) | Part::Suffix(_) => None,
    }
}

/// Asks for the blocks of one who joins, if that may be of use. Gives what its client gets when its
/// blocks are on their way.
pub(crate) fn ask(edge: &Arc<Edge>, board: &Board, ask: Ask) -> Option<oneshot::Receiver<Reader>> {
    let bytes = part(edge, &ask.request).filter(|_| !ask.request.head && ask.held.is_none())?;
    let memo = edge.memos.get(&ask.key);
    if memo.no_ranges || !memo.distrusted.is_empty() {
        return None;
    }
    let mut asked = board.lock();
    if asked.selecting != ask.selecting || !asked.has_place(&bytes) {
        return None;
    }
    let now = clock::now();
    let choice = ask.project.sources.choose(now, &ask.key, None, &[])?;
    if choice.skipped {
        return None;
    }
    let (to_fill, answer) = oneshot::channel();
    let (reader, to_client) = oneshot::channel();
    let master = choice.master;
    let patience_ns = ask.project.patience_ms(master).saturating_mul(1_000_000);
    let hedge_at_ns = now.mono_ns.saturating_add(patience_ns);
    asked.early.push(Early { master, bytes: bytes.clone(), hedge_at_ns, answer, reader });
    drop(asked);
    ask.project.note_fill();
    tokio::spawn(put(Arc::clone(edge), ask, master, bytes, to_fill));
    Some(to_client)
}

/// Puts a question, as long as somebody waits for its answer.
async fn put(
    edge: Arc<Edge>,
    ask: Ask,
    master: MasterId,
    bytes: Range<u64>,
    mut to_fill: oneshot::Sender<Result<Answer, Failure>>,
) {
    let range = Some(Part::From(bytes.start, Some(bytes.end.saturating_sub(1))));
    let question = Question { conditional: false, range };
    let answer = async {
        let headers = question.head(&edge, &ask, master)?;
        let call = Call::new(&ask.project, master, &Method::GET, &ask.target, headers);
        edge.upstream.ask(call).await
    };
    tokio::select! {
        answer = answer => drop(to_fill.send(answer)),
        () = to_fill.closed() => {}
    }
}

/// A question whose answer the fill expects.
#[derive(Debug)]
pub(crate) struct Expected {
    early: Early,
    run: RunId,
    reader: Reader,
}

/// Tells the fill of what was asked for before it began. What is of no use to it is given up.
pub(crate) fn expect(filling: &Arc<Filling>, early: Vec<Early>) -> Vec<Expected> {
    if filling.conditions.is_none() || filling.only.is_some() {
        // No proof that the answers belong together.
        return Vec::new();
    }
    let geometry = filling.lock().fill.geometry();
    let expected = early.into_iter().filter_map(|mut early| {
        let blocks = geometry.touched_by(early.bytes.clone());
        early.bytes = geometry.bytes_of(blocks.clone());
        let reader = filling.reader();
        let run = filling.expect(early.master, blocks, early.hedge_at_ns, &reader)?;
        Some(Expected { early, run, reader })
    });
    expected.collect()
}

impl Expected {
    /// Lets it come in.
    pub(crate) fn go(self, filling: &Arc<Filling>) {
        let Self { early: Early { master, bytes, answer, reader: to_client, .. }, run, reader } =
            self;
        // A client that has gone wants nothing.
        drop(to_client.send(reader));
        let answer = async { answer.await.unwrap_or(Err(Failure::Connect)) };
        tokio::spawn(pour::expected(Arc::clone(filling), run, master, bytes, answer));
    }
}
