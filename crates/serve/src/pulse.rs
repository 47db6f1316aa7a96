//! Signs of life of one connection, from which its task tells a slow request head and an idle
//! client from a response that is being sent.
//!
//! hyper's own head timeout makes and drops a timer for every request. Here a connection has one
//! timer that ticks seldom and looks whether anything happened since it last looked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::body::BodyError;
use crate::chunk::Files;
use crate::crowd::Doing;
use crate::server::Counters;

/// Touched by one task only; atomics because the task may move between threads.
#[derive(Debug)]
pub(crate) struct Pulse {
    counters: Arc<Counters>,
    /// File chunks between bodies and the stream, where the connection sends files.
    files: Option<Files>,
    requests: AtomicU64,
    /// A request is being answered: from its head on until its body was handed to hyper.
    busy: AtomicBool,
    /// The client takes no bytes now; what hyper holds for it is part of a response.
    write_blocked: AtomicBool,
    /// Writes of which the client took something.
    writes: AtomicU64,
    /// What the client has acknowledged is wanted, for whoever has the stream to note.
    wants_acknowledged: AtomicBool,
    acknowledged: AtomicU64,
    /// Bytes came since the last request: the head of the next one has begun.
    reading: AtomicBool,
    /// The last request came with content, of which something may still be on its way.
    has_content: AtomicBool,
    /// A body was broken off of which a close in peace could be the end, or whose last bytes are in
    /// doubt.
    cut_short: AtomicBool,
}

/// What a look at the pulse says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Something happened, or is still happening.
    Alive,
    /// Nothing was asked since the last look.
    Idle,
    /// A request has begun but its head is not there yet.
    SlowHead,
    /// The client has taken nothing of its response for [`STALLED_LOOKS`] looks.
    Stalled,
}

/// After so many looks at a client that takes nothing it is given up.
const STALLED_LOOKS: u32 = 4;

/// What was seen at the last look.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    requests: u64,
    writes: u64,
    /// Looks in a row at which the client took nothing since the one before.
    stalled: u32,
    /// Requests when it was last asked whether the connection rests.
    resting_since: u64,
}

impl Pulse {
    /// `sends_files`: whether its stream takes file chunks.
    pub(crate) fn new(counters: Arc<Counters>, sends_files: bool) -> Arc<Self> {
        Arc::new(Self {
            counters,
            files: sends_files.then(Files::default),
            requests: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            write_blocked: AtomicBool::new(false),
            writes: AtomicU64::new(0),
            wants_acknowledged: AtomicBool::new(false),
            acknowledged: AtomicU64::new(0),
            reading: AtomicBool::new(false),
            has_content: AtomicBool::new(false),
            cut_short: AtomicBool::new(false),
        })
    }

    /// A request has arrived, with content or without; it is being answered as long as the guard
    /// lives.
    pub(crate) fn begin(self: &Arc<Self>, has_content: bool) -> Busy {
        self.requests.fetch_add(1, Relaxed);
        self.counters.requests.add(1);
        self.busy.store(true, Relaxed);
        self.reading.store(false, Relaxed);
        self.has_content.store(has_content, Relaxed);
        Busy { pulse: Arc::clone(self), ends_connection: false }
    }

    pub(crate) fn note_read(&self) {
        self.reading.store(true, Relaxed);
    }

    pub(crate) fn note_write(&self, blocked: bool) {
        self.write_blocked.store(blocked, Relaxed);
        if !blocked {
            self.writes.fetch_add(1, Relaxed);
        }
    }

    /// To be told on the way to a write, whether it is possible or not: what the client has
    /// acknowledged, which is asked of the system only when that was wanted.
    pub(crate) fn note_acknowledged(&self, ask: impl FnOnce() -> Option<u64>) {
        if self.wants_acknowledged.load(Relaxed) {
            self.wants_acknowledged.store(false, Relaxed);
            self.acknowledged.store(ask().unwrap_or(0), Relaxed);
        }
    }

    /// What the connection does. What its client has acknowledged is as of the time that this was
    /// asked before.
    pub(crate) fn doing(&self) -> Doing {
        if !self.is_sending() {
            return Doing::Nothing(self.requests.load(Relaxed));
        }
        let is_clients_turn = self.write_blocked.load(Relaxed);
        self.wants_acknowledged.store(is_clients_turn, Relaxed);
        Doing::Answering(is_clients_turn.then(|| self.acknowledged.load(Relaxed)))
    }

    pub(crate) fn files(&self) -> Option<&Files> {
        self.files.as_ref()
    }

    /// A response cannot go on; `is_endless` when only the end of the connection would end it.
    pub(crate) fn note_broken(&self, error: &BodyError, is_endless: bool) {
        if is_endless {
            self.cut_short.store(true, Relaxed);
        }
        self.counters.broke_off(error);
    }

    /// Whether the client would take the end of the connection for the end of a body that has none.
    pub(crate) fn was_cut_short(&self) -> bool {
        self.cut_short.load(Relaxed)
    }

    /// Whether a request is being answered.
    pub(crate) fn is_sending(&self) -> bool {
        self.busy.load(Relaxed)
            || self.write_blocked.load(Relaxed)
            || self.files.as_ref().is_some_and(Files::has_unsent)
    }

    /// Whether nothing was asked since this was last asked, nothing is on its way in either
    /// direction, and whatever comes next begins a request.
    pub(crate) fn rests(&self, seen: &mut Seen) -> bool {
        let requests = self.requests.load(Relaxed);
        let before = std::mem::replace(&mut seen.resting_since, requests);
        let is_quiet = !self.reading.load(Relaxed) && !self.has_content.load(Relaxed);
        before == requests && is_quiet && !self.is_sending()
    }

    /// To be asked once a look; `seen` is the caller's memory of the last look.
    pub(crate) fn look(&self, seen: &mut Seen) -> Look {
        let (requests, writes) = (self.requests.load(Relaxed), self.writes.load(Relaxed));
        let before = std::mem::replace(&mut seen.requests, requests);
        let is_stalled = self.write_blocked.load(Relaxed) && writes == seen.writes;
        seen.writes = writes;
        seen.stalled = if is_stalled { seen.stalled.saturating_add(1) } else { 0 };
        if seen.stalled >= STALLED_LOOKS {
            return Look::Stalled;
        }
        if requests != before || self.is_sending() {
            Look::Alive
        } else if self.reading.load(Relaxed) {
            Look::SlowHead
        } else {
            Look::Idle
        }
    }
}

/// A request being answered.
pub(crate) struct Busy {
    pulse: Arc<Pulse>,
    /// The end of the body is the end of the connection: HTTP/1.0 and no length.
    pub(crate) ends_connection: bool,
}

impl Busy {
    /// What takes the file chunks of this response, if anything does.
    pub(crate) fn files(&self) -> Option<&Files> {
        self.pulse.files()
    }

    pub(crate) fn note_broken(&self, error: &BodyError) {
        self.pulse.note_broken(error, self.ends_connection);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.pulse.busy.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_off_responses_are_counted_each_and_logged_once_a_minute() {
        let (counters, t) = (Counters::default(), model::Now::default());
        for (at_ms, want) in [(0, Some(0)), (1, None), (59_999, None), (60_000, Some(2))] {
            assert_eq!(counters.note_broken_off(t.plus_ms(at_ms)), want, "{at_ms}");
        }
        assert_eq!(counters.broken_off.load(Relaxed), 4);
    }

    #[test]
    fn only_a_quiet_connection_between_requests_is_idle() {
        let pulse = Pulse::new(Arc::default(), false);
        let mut seen = Seen::default();
        assert_eq!(pulse.look(&mut seen), Look::Idle);
        pulse.note_read();
        assert_eq!(pulse.look(&mut seen), Look::SlowHead);
        let busy = pulse.begin(false);
        assert_eq!(pulse.look(&mut seen), Look::Alive);
        assert_eq!(pulse.look(&mut seen), Look::Alive, "still answering");
        pulse.note_write(true);
        drop(busy);
        assert_eq!(pulse.look(&mut seen), Look::Alive, "the client has yet to take the end");
        pulse.note_write(false);
        assert_eq!(pulse.look(&mut seen), Look::Idle);
        drop(pulse.begin(false));
        assert_eq!(pulse.look(&mut seen), Look::Alive, "asked since the last look");
        assert_eq!(pulse.look(&mut seen), Look::Idle);
    }

    /// hyper has let the body go long before the last byte of its file is sent.
    #[test]
    fn a_connection_that_still_has_a_file_to_send_is_not_idle() {
        let pulse = Pulse::new(Arc::default(), true);
        let file = Arc::new(tempfile::tempfile().unwrap());
        let mut range = crate::FileRange::new(file, 0, 1 << 20);
        assert!(pulse.files().unwrap().take(&mut range, u64::MAX).is_some() && range.is_empty());
        let mut seen = Seen::default();
        for _ in 0..10 {
            assert_eq!(pulse.look(&mut seen), Look::Alive);
        }
        let part = pulse.files().unwrap().next().unwrap();
        assert_eq!(pulse.look(&mut seen), Look::Alive, "it is being sent");
        drop(part);
        pulse.files().unwrap().note_sent();
        assert_eq!(pulse.look(&mut seen), Look::Idle);
    }

    #[test]
    fn a_client_that_takes_nothing_is_given_up_and_one_that_takes_little_is_not() {
        let pulse = Pulse::new(Arc::default(), false);
        let (_busy, mut seen) = (pulse.begin(false), Seen::default());
        for _ in 0..10 {
            pulse.note_write(false);
            pulse.note_write(true);
            assert_eq!(pulse.look(&mut seen), Look::Alive, "it took something");
        }
        for _ in 1..STALLED_LOOKS {
            pulse.note_write(true);
            assert_eq!(pulse.look(&mut seen), Look::Alive);
        }
        assert_eq!(pulse.look(&mut seen), Look::Stalled);
        pulse.note_write(false);
        for _ in 0..10 {
            assert_eq!(pulse.look(&mut seen), Look::Alive, "it waits for us");
        }
    }
}
