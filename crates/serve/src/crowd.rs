//! What happens when as many connections are open as may be, and one more client has come.
//!
//! 1. Of the connections on which nothing is answered for a second, the one that has rested longest
//!    makes room: a client between two requests, one that never asked, one whose request's head does not
//!    come to its end.
//! 2. When none has done so within 100 ms, a connection makes room whose client has acknowledged less
//!    than 250 bytes a second for a minute, while it was for the client to take what waits.
//! 3. When there is none of these either, whoever came waits until a place is free.
//!
//! While places are free nobody is asked to leave.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::server::{Counters, Quiet};

/// Looks in a row at which a client must have taken too little: a minute.
const LOOKS: usize = 6;
/// A client that acknowledges less in a minute gives way to those who wait: 250 bytes a second.
const BYTES_MIN: u64 = 250 * 60;

/// How long things take; other than these in tests alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// A connection rests when nothing was asked and nothing answered on it for so long.
    pub(crate) rest: Duration,
    /// How often it is looked what a client of a running response has acknowledged.
    pub(crate) look: Duration,
    /// For so long those who wait are content with connections that rest.
    pub(crate) patience: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            rest: Duration::from_secs(1),
            look: Duration::from_secs(10),
            patience: Duration::from_millis(100),
        }
    }
}

/// Why a connection makes room for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shed {
    /// Nothing was answered on it.
    Idle,
    /// Its client takes next to nothing.
    Slow,
}

impl Shed {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Idle, Self::Slow];

    /// Its stable word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Slow => "slow",
        }
    }
}

/// Those who wait for a place, and those who could make room.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    /// A connection has ended.
    freed: Notify,
    /// Connections that rest wait here to be asked to leave, the longest first.
    idle: Notify,
    /// Likewise those whose clients take next to nothing.
    slow: Notify,
    /// By [`Shed`].
    shed: [AtomicU64; Shed::ALL.len()],
    said: Quiet,
    pub(crate) times: Times,
}

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Nothing is answered; so many requests have come.
    Nothing(u64),
    /// A response runs. When it is for the client to take what waits: bytes it has acknowledged, as
    /// far as that is known.
    Answering(Option<u64>),
}

impl Crowd {
    /// A connection has ended.
    pub(crate) fn note_freed(&self) {
        self.freed.notify_waiters();
    }
}

impl Counters {
    /// Returns when there is room for one more connection, and asks others to leave meanwhile. Two
    /// who wait may both find the same room.
    pub(crate) async fn room(&self, connections_max: usize) {
        let mut is_patient = true;
        loop {
            let freed = self.crowd.freed.notified();
            if self.has_room(connections_max) {
                return;
            }
            self.crowd.idle.notify_one();
            if !is_patient {
                self.crowd.slow.notify_one();
            }
            is_patient = timeout(self.crowd.times.patience, freed).await.is_ok();
        }
    }

    /// Returns when a connection is to make room for another: what it does is asked now and then.
    pub(crate) async fn gives_way(
        &self,
        connections_max: usize,
        doing: impl Fn() -> Doing,
    ) -> Shed {
        let (times, mut taking) = (self.crowd.times, Taking::default());
        loop {
            let acknowledged = match doing() {
                rests @ Doing::Nothing(_) => {
                    taking = Taking::default();
                    sleep(times.rest).await;
                    if doing() == rests {
                        self.crowd.idle.notified().await;
                        if !self.has_room(connections_max) {
                            if doing() == rests {
                                return self.note_shed(Shed::Idle);
                            }
                            self.crowd.idle.notify_one(); // in vain: the next one's turn
                        }
                    }
                    continue;
                }
                Doing::Answering(acknowledged) => acknowledged,
            };
            let next_look = sleep(times.look);
            if !taking.is_too_little(acknowledged) {
                next_look.await;
                continue;
            }
            let told = async {
                self.crowd.slow.notified().await;
                let is_slow = matches!(doing(), Doing::Answering(Some(_)));
                if is_slow && !self.has_room(connections_max) {
                    return;
                }
                std::future::pending().await
            };
            tokio::select! {
                biased;
                () = told => return self.note_shed(Shed::Slow),
                () = next_look => {}
            }
        }
    }

    /// The same for a connection that rests.
    pub(crate) async fn gives_way_from_rest(&self, connections_max: usize) -> Shed {
        loop {
            self.crowd.idle.notified().await;
            if !self.has_room(connections_max) {
                return self.note_shed(Shed::Idle);
            }
        }
    }

    /// The same for a connection that has asked for nothing yet.
    pub(crate) fn gives_way_unasked(&self, connections_max: usize) -> impl Future<Output = Shed> {
        self.gives_way(connections_max, || Doing::Nothing(0))
    }

    fn note_shed(&self, why: Shed) -> Shed {
        if let Some(count) = self.crowd.shed.get(why as usize) {
            count.fetch_add(1, Relaxed);
        }
        if let Some(more) = self.crowd.said.due(rt::clock::now()) {
            let why = why.word();
            tracing::warn!(why, more, "a connection was closed: others wait for its place");
        }
        why
    }

    /// How many connections made room for others for this reason.
    pub fn shed(&self, why: Shed) -> u64 {
        self.crowd.shed.get(why as usize).map_or(0, |count| count.load(Relaxed))
    }
}

/// What a client has acknowledged at the last looks.
#[derive(Debug, Default)]
struct Taking {
    at: [u64; LOOKS],
    looks: usize,
}

impl Taking {
    /// To be asked every ten seconds: whether the client has acknowledged too little for a minute.
    fn is_too_little(&mut self, acknowledged: Option<u64>) -> bool {
        let Some(now) = acknowledged else {
            *self = Self::default();
            return false;
        };
        let Some(place) = self.at.get_mut(self.looks.rem_euclid(LOOKS)) else { return false };
        let before = std::mem::replace(place, now);
        let is_known = self.looks >= LOOKS;
        self.looks = self.looks.saturating_add(1);
        is_known && now.saturating_sub(before) < BYTES_MIN
    }
}

/// Counters of as many open connections as may be: one. What takes minutes takes moments.
#[cfg(test)]
pub(crate) fn full() -> Counters {
    let moment = Duration::from_millis(1);
    let mut counters = Counters::default();
    counters.crowd.times =
        Times { rest: moment.saturating_mul(20), look: moment, patience: moment };
    counters.open.store(1, Relaxed);
    counters
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Why a connection that does `doing` makes room for another, which waits all the time.
    async fn pressed(counters: &Counters, doing: impl Fn() -> Doing) -> Option<Shed> {
        tokio::select! {
            () = counters.room(1) => None,
            why = counters.gives_way(1, doing) => Some(why),
        }
    }

    #[tokio::test]
    async fn a_connection_that_rests_makes_room_and_one_that_works_does_not() {
        let counters = full();
        assert_eq!(pressed(&counters, || Doing::Nothing(3)).await, Some(Shed::Idle));
        assert_eq!(Shed::ALL.map(|why| counters.shed(why)), [1, 0]);
        // Each time that it is looked at a request more has come, until the place is free anyhow.
        let asked = Cell::new(0);
        let works = || {
            asked.set(asked.get() + 1);
            if asked.get() == 100 {
                counters.open.store(0, Relaxed);
                counters.crowd.note_freed();
            }
            Doing::Nothing(asked.get())
        };
        assert_eq!(pressed(&counters, works).await, None);
        assert_eq!(Shed::ALL.map(|why| counters.shed(why)), [1, 0]);
    }

    /// Whoever was asked for something since it came to rest is passed over, and who rests next leaves.
    #[tokio::test]
    async fn the_longest_rest_ends_first() {
        let counters = full();
        let (asked, looks) = (Cell::new(0), Cell::new(0));
        let works = counters.gives_way(1, || Doing::Nothing(asked.get()));
        let second = counters.gives_way(1, || Doing::Nothing(0));
        let third = counters.gives_way(1, || {
            looks.set(looks.get() + 1);
            Doing::Nothing(0)
        });
        let press = async {
            while looks.get() < 2 {
                tokio::task::yield_now().await; // until the third rests too
            }
            asked.set(1);
            counters.room(1).await;
        };
        let who = tokio::select! {
            biased;
            _ = works => 1,
            _ = second => 2,
            _ = third => 3,
            () = press => 0,
        };
        assert_eq!(who, 2);
    }

    #[tokio::test]
    async fn nobody_leaves_while_there_is_room() {
        let counters = full();
        let looks = Cell::new(0);
        let doing = || {
            looks.set(looks.get() + 1);
            counters.crowd.idle.notify_one();
            counters.crowd.slow.notify_one();
            if looks.get() < 50 { Doing::Nothing(0) } else { Doing::Answering(Some(0)) }
        };
        tokio::select! {
            why = counters.gives_way(2, doing) => unreachable!("{why:?}"),
            () = async { while looks.get() < 100 { tokio::task::yield_now().await } } => {}
        }
    }

    #[tokio::test]
    async fn a_client_that_takes_next_to_nothing_makes_room_after_a_minute() {
        let counters = full();
        let looks = Cell::new(0);
        let taking = |bytes: u64| {
            looks.set(looks.get() + 1);
            Doing::Answering(Some(looks.get() * bytes))
        };
        assert_eq!(pressed(&counters, || taking(2_499)).await, Some(Shed::Slow));
        assert!(looks.get() > 6, "{}", looks.get());
        assert_eq!(Shed::ALL.map(|why| counters.shed(why)), [0, 1]);
        let enough = || {
            if looks.get() > 100 {
                counters.open.store(0, Relaxed);
                counters.crowd.note_freed();
            }
            taking(2_500)
        };
        assert_eq!(pressed(&counters, enough).await, None);
    }

    /// Whoever takes little for less than a minute at a time stays, and so does who waits for us.
    #[test]
    fn only_a_whole_minute_in_a_row_counts() {
        let mut taking = Taking::default();
        for look in 0..LOOKS {
            assert!(!taking.is_too_little(Some(0)), "{look}");
        }
        assert!(taking.is_too_little(Some(14_999)));
        assert!(!taking.is_too_little(Some(15_000)));
        assert!(!taking.is_too_little(None));
        for look in 0..LOOKS {
            assert!(!taking.is_too_little(Some(15_000)), "{look}");
        }
        assert!(taking.is_too_little(Some(15_000)));
    }
}
