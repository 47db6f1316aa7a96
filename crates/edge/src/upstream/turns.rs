//! How many requests one source gets at once, and whose turn is next.
//!
//! Who finds no place waits, for a bounded time and in a line of bounded length. Requests that a
//! client is blocked on come before those that are made ahead of clients.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Requests that may wait.
const WAITING_MAX: usize = 1024;

/// How much a request is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// A client waits for it.
    #[default]
    Blocked,
    /// Nobody waits for it yet.
    Ahead,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    blocked: VecDeque<oneshot::Sender<Turn>>,
    ahead: VecDeque<oneshot::Sender<Turn>>,
}

/// The places of one source.
#[derive(Debug)]
pub(crate) struct Turns {
    max: usize,
    state: Mutex<State>,
}

/// A place; free again when dropped.
#[derive(Debug)]
pub(crate) struct Turn(Option<Arc<Turns>>);

/// What became of somebody who wants a place.
#[derive(Debug)]
pub(crate) enum Seat {
    /// There was one.
    Now(Turn),
    /// One will come.
    Later(oneshot::Receiver<Turn>),
    /// The line is too long.
    Full,
}

impl Turns {
    /// `max` places, at least one.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max: max.max(1), state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place, or one in the line.
    pub(crate) fn take(self: &Arc<Self>, urgency: Urgency) -> Seat {
        let mut state = self.lock();
        if state.taken < self.max {
            state.taken = state.taken.saturating_add(1);
            return Seat::Now(Turn(Some(Arc::clone(self))));
        }
        let line = match urgency {
            Urgency::Blocked => &mut state.blocked,
            Urgency::Ahead => &mut state.ahead,
        };
        if line.len() >= WAITING_MAX {
            line.retain(|waiting| !waiting.is_closed());
        }
        if line.len() >= WAITING_MAX {
            return Seat::Full;
        }
        let (sender, receiver) = oneshot::channel();
        line.push_back(sender);
        Seat::Later(receiver)
    }

    /// Whether no place is free.
    pub(crate) fn is_full(&self) -> bool {
        self.lock().taken >= self.max
    }

    /// Places that are taken.
    pub(crate) fn taken(&self) -> usize {
        self.lock().taken
    }

    /// Requests that wait.
    pub(crate) fn waiting(&self) -> usize {
        let state = self.lock();
        let lines = state.blocked.iter().chain(&state.ahead);
        lines.filter(|waiting| !waiting.is_closed()).count()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(turns) = self.0.take() else { return };
        let mut state = turns.lock();
        while let Some(next) = state.blocked.pop_front().or_else(|| state.ahead.pop_front()) {
            match next.send(Turn(Some(Arc::clone(&turns)))) {
                Ok(()) => return,
                // That one waits no more; what comes back is not a place of its own.
                Err(mut turn) => drop(turn.0.take()),
            }
        }
        state.taken = state.taken.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(turns: &Arc<Turns>, urgency: Urgency) -> oneshot::Receiver<Turn> {
        match turns.take(urgency) {
            Seat::Later(waiting) => waiting,
            seat => panic!("{seat:?}"),
        }
    }

    #[test]
    fn who_is_blocked_comes_first_and_who_left_is_passed_over() {
        let turns = Turns::new(1);
        let Seat::Now(turn) = turns.take(Urgency::Ahead) else { panic!("a place is free") };
        let mut ahead = wait(&turns, Urgency::Ahead);
        let gone = wait(&turns, Urgency::Blocked);
        let mut blocked = wait(&turns, Urgency::Blocked);
        assert_eq!((turns.taken(), turns.waiting(), turns.is_full()), (1, 3, true));
        drop(gone);
        assert_eq!(turns.waiting(), 2);
        drop(turn);
        assert!(ahead.try_recv().is_err());
        let turn = blocked.try_recv().unwrap();
        assert_eq!(turns.taken(), 1);
        drop(turn);
        // Who leaves after it was its turn leaves the place too.
        drop(ahead);
        assert_eq!((turns.taken(), turns.waiting(), turns.is_full()), (0, 0, false));
    }

    #[test]
    fn the_line_is_bounded() {
        let turns = Turns::new(0);
        let Seat::Now(_turn) = turns.take(Urgency::Blocked) else { panic!("at least one place") };
        let mut line: Vec<_> = (0..WAITING_MAX).map(|_| wait(&turns, Urgency::Ahead)).collect();
        assert!(matches!(turns.take(Urgency::Ahead), Seat::Full));
        line.pop();
        assert!(matches!(turns.take(Urgency::Ahead), Seat::Later(_)), "one left");
        assert!(matches!(turns.take(Urgency::Blocked), Seat::Later(_)), "the lines are apart");
    }
}
