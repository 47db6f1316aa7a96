//! Questions in flight: one for each key, however many clients wait for its answer.
//!
//! The question runs as its own task, so that the client that began it may go (E3). What can be
//! shared comes to all who wait ([`Outcome::Ready`]); what is for one client alone (an error, a
//! reply that is not kept) goes to the one that began, and the others try again: the first of them
//! asks anew (E4).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fill::{Failure, MasterId};
use http::StatusCode;
use http::response::Parts;
use http_cache::NoCache;
use store::Key;
use tokio::sync::{oneshot, watch};

use crate::early::{self, Board};
use crate::fetch::{self, Ask};
use crate::project::Project;
use crate::reader::Reader;
use crate::spool::Tail;
use crate::state::{Edge, Object};
use crate::upstream::Answer;
use crate::upstream::endpoint::Endpoint;

/// How an object came to be usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// It was not held; it is being filled now.
    Fetched,
    /// A master confirmed it, or sent another that is being filled now.
    Revalidated,
    /// It is stale, and no master could be asked.
    StaleOnError,
}

/// Who was asked last for something, and the status of its answer where it gave one.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) by: Arc<Endpoint>,
    pub(crate) status: Option<StatusCode>,
}

impl Told {
    /// By a source of the project; `None` when it has none of this number.
    pub(crate) fn by(
        project: &Project,
        source: MasterId,
        status: Option<StatusCode>,
    ) -> Option<Self> {
        let by = Arc::clone(project.sources.get(source)?);
        Some(Self { by, status })
    }
}

/// What a question brought to all who wait.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// This can be served; by what was told, where somebody was asked.
    Ready(Arc<Object>, How, Option<Told>),
    /// Something for the one who began.
    Alone,
    /// It is known now what the answer depends on: ask again.
    Again,
    /// Not yet anything, but the one who began gets what comes in.
    Streaming,
}

/// What a question brought to the one who began it.
#[derive(Debug)]
pub(crate) enum Payload {
    /// Already wants the blocks that the answer brings.
    Reader(Reader),
    /// A reply that is not kept.
    Reply(Box<Answer>, &'static str),
    /// A reply of a master that may yet be kept, as it comes in.
    Stream(MasterId, Box<Parts>, Tail),
    /// The client's own request is to be passed on.
    Pass(NoCache),
    /// No master answered; how, and which one failed last, where there was one.
    Failed(Failure, Option<MasterId>),
}

/// One question in flight.
#[derive(Debug)]
pub(crate) struct Flight {
    outcome: watch::Sender<Option<Outcome>>,
    payload: Mutex<Option<Payload>>,
    /// Questions of others about other parts of the same.
    pub(crate) board: Board,
    /// The key of its target.
    base: Key,
    /// See [`Ask::is_doubtful`].
    is_doubtful: Arc<AtomicBool>,
}

impl Flight {
    /// Waits for the answer.
    pub(crate) async fn outcome(&self) -> Outcome {
        self.wait(|outcome| !matches!(outcome, Outcome::Streaming)).await
    }

    /// Waits for the answer or, for the one who began, for its beginning.
    pub(crate) async fn beginning(&self) -> Outcome {
        self.wait(|_| true).await
    }

    async fn wait(&self, is_it: impl Fn(&Outcome) -> bool) -> Outcome {
        let mut outcome = self.outcome.subscribe();
        // The sender lives in `self`, so the channel cannot close under the wait.
        match outcome.wait_for(|known| known.as_ref().is_some_and(&is_it)).await {
            Ok(outcome) => outcome.clone().unwrap_or(Outcome::Alone),
            Err(_) => Outcome::Alone,
        }
    }

    /// Gives the one who began what comes in, before it is known what becomes of it.
    pub(crate) fn stream(&self, master: MasterId, parts: Parts, tail: Tail) {
        self.leave(Some(Payload::Stream(master, Box::new(parts), tail)));
        self.outcome.send_replace(Some(Outcome::Streaming));
    }

    fn leave(&self, payload: Option<Payload>) {
        if let Some(payload) = payload {
            let mut place = self.payload.lock().unwrap_or_else(PoisonError::into_inner);
            *place = Some(payload);
        }
    }

    /// What there is for the one who began.
    pub(crate) fn payload(&self) -> Option<Payload> {
        self.payload.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A place in a flight.
pub(crate) enum Seat {
    /// This request began it.
    First(Arc<Flight>),
    /// It was under way. What this request wants of what is known then may have been asked for, too.
    Joined(Arc<Flight>, Option<oneshot::Receiver<Reader>>),
    /// What is held has changed since it was looked at: look again.
    Stale,
}

/// All questions in flight.
#[derive(Debug, Default)]
pub(crate) struct Flights(Mutex<HashMap<Key, Arc<Flight>>>);

impl Flights {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Flight>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What questions about a target under way bring is for those who wait for it, and for nobody
    /// later: they may have been asked before something changed.
    pub(crate) fn doubt(&self, base: &Key) {
        self.lock().retain(|_, flight| {
            let is_doubtful = flight.base == *base;
            if is_doubtful {
                flight.is_doubtful.store(true, Relaxed);
            }
            !is_doubtful
        });
    }

    /// Questions in flight.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Requests that wait for their answers.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().values().map(|flight| flight.outcome.receiver_count()).sum()
    }
}

/// Joins the question about a key, or begins it.
pub(crate) fn join(edge: &Arc<Edge>, ask: Ask) -> Seat {
    let key = ask.key;
    let mut flights = edge.flights.lock();
    if let Some(flight) = flights.get(&key) {
        let flight = Arc::clone(flight);
        drop(flights);
        let reader = early::ask(edge, &flight.board, ask);
        return Seat::Joined(flight, reader);
    }
    // An answer may have come between the look and now: asking again would fetch it twice.
    let current = edge.find_now(&ask.project, &ask.target, ask.base, &ask.headers);
    let Ok(current) = current else { return Seat::Stale };
    let same = match (&current.object, &ask.held) {
        _ if current.key != key => false,
        (None, None) => true,
        (Some(now), Some(then)) => Arc::ptr_eq(&now.rep, &then.rep) && now.has_head_of(then),
        _ => false,
    };
    if !same {
        return Seat::Stale;
    }
    let flight = Arc::new(Flight {
        outcome: watch::Sender::new(None),
        payload: Mutex::new(None),
        board: Board::beside(edge, &ask),
        base: ask.base,
        is_doubtful: Arc::clone(&ask.is_doubtful),
    });
    flights.insert(key, Arc::clone(&flight));
    drop(flights);
    let landing = Landing { edge: Arc::clone(edge), key, flight: Arc::clone(&flight) };
    tokio::spawn(async move {
        let (outcome, payload) = fetch::fetch(&landing.edge, ask, &landing.flight).await;
        if let Outcome::Ready(object, ..) = &outcome
            && landing.flight.is_doubtful.load(Relaxed)
        {
            // Should the task not run, the process ends.
            let _ = landing.edge.discarding(&object.key, Arc::clone(&object.rep)).await;
        }
        landing.flight.leave(payload);
        landing.land(outcome);
    });
    Seat::First(flight)
}

/// Ends a flight whatever happens to its task, so that nobody waits for ever.
struct Landing {
    edge: Arc<Edge>,
    key: Key,
    flight: Arc<Flight>,
}

impl Landing {
    /// Out of the table first, so that who tries again begins a new flight.
    fn land(&self, outcome: Outcome) {
        let mut flights = self.edge.flights.lock();
        if flights.get(&self.key).is_some_and(|f| Arc::ptr_eq(f, &self.flight)) {
            flights.remove(&self.key);
        }
        drop(flights);
        // None of what was not taken will be of use.
        drop(self.flight.board.take());
        self.flight.outcome.send_if_modified(|known| {
            let unsent = matches!(known, None | Some(Outcome::Streaming));
            if unsent {
                *known = Some(outcome);
            }
            unsent
        });
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        self.land(Outcome::Alone);
    }
}
