//! The end of a process, in phases that come in one order: every task holds a [`Shutdown`] and waits
//! for the phase that concerns it.
//!
//! Two ways lead through the phases. A process that is told to leave (SIGTERM) says so first, then
//! takes no new connections, then gives running responses their time. One that hands over to a
//! successor writes nothing any more from [`Phase::Yielded`] on, while connections are still taken
//! until the successor takes them. What must know which way it is asks [`Shutdown::is_leaving`] and
//! [`Shutdown::has_yielded`].

use std::time::Duration;

use tokio::sync::watch;

use crate::clock;

/// How long running responses have when a person waits, or when a role has failed.
const SOON: Duration = Duration::from_secs(5);

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It has not begun.
    Serving,
    /// Told to leave: the health page says so, connections are still taken.
    Leaving,
    /// A successor owns what is on disk: nothing is written any more, connections are still taken.
    Yielded,
    /// No new connections; running responses go on until they end, or the next phase.
    Draining,
    /// Everything ends now.
    Cut,
}

impl Phase {
    /// All of them, in order.
    pub const ALL: [Self; 5] =
        [Self::Serving, Self::Leaving, Self::Yielded, Self::Draining, Self::Cut];

    /// The stable word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Leaving => "leaving",
            Self::Yielded => "yielded",
            Self::Draining => "draining",
            Self::Cut => "cut",
        }
    }
}

/// Where a process stands in its end.
#[derive(Clone, Copy, Debug)]
struct Standing {
    phase: Phase,
    is_leaving: bool,
    has_yielded: bool,
    /// What is on disk was given up, and the successor that was to have it is gone.
    is_alone: bool,
    /// When `phase` began.
    since_ms: u64,
    /// How long running responses have once `phase` is [`Phase::Draining`].
    patience: Duration,
}

/// A clone for each task; phases only go forward.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Sender<Standing>);

impl Default for Shutdown {
    fn default() -> Self {
        Self(watch::Sender::new(Standing {
            phase: Phase::Serving,
            is_leaving: false,
            has_yielded: false,
            is_alone: false,
            since_ms: clock::now().wall_ms,
            patience: Duration::MAX,
        }))
    }
}

impl Shutdown {
    /// The phase now.
    pub fn phase(&self) -> Phase {
        self.0.borrow().phase
    }

    /// Whether the end has come as far as `phase`.
    pub fn has_reached(&self, phase: Phase) -> bool {
        self.phase() >= phase
    }

    /// Returns when `phase` or a later one is reached; at once when it was.
    pub async fn reached(&self, phase: Phase) {
        // The sender lives in `self`, so the channel cannot close under the wait.
        let _ = self.0.subscribe().wait_for(|now| now.phase >= phase).await;
    }

    /// Whether the process was told to leave: what it does will be done by nobody after it.
    pub fn is_leaving(&self) -> bool {
        self.0.borrow().is_leaving
    }

    /// Returns when the process was told to leave; at once when it was.
    pub async fn told_to_leave(&self) {
        let _ = self.0.subscribe().wait_for(|now| now.is_leaving).await;
    }

    /// Whether what is on disk belongs to a successor.
    pub fn has_yielded(&self) -> bool {
        self.0.borrow().has_yielded
    }

    /// Whether what is on disk was given up while no successor is there to have it.
    pub fn is_alone(&self) -> bool {
        self.0.borrow().is_alone
    }

    /// Returns when that is so; at once when it is.
    pub async fn alone(&self) {
        let _ = self.0.subscribe().wait_for(|now| now.is_alone).await;
    }

    /// When the phase began, Unix time in milliseconds.
    pub fn since_ms(&self) -> u64 {
        self.0.borrow().since_ms
    }

    /// How long running responses have from [`Phase::Draining`] on.
    pub fn patience(&self) -> Duration {
        self.0.borrow().patience
    }

    /// Returns when it has become less than `than`.
    pub(crate) async fn less_patience(&self, than: Duration) {
        let _ = self.0.subscribe().wait_for(|now| now.patience < than).await;
    }

    /// It was told to leave.
    pub fn leave(&self) {
        self.advance(Phase::Leaving, |now| now.is_leaving = true);
    }

    /// A successor is about to own what is on disk.
    pub fn give_up(&self) {
        self.advance(Phase::Yielded, |now| (now.has_yielded, now.is_alone) = (true, false));
    }

    /// The successor that was to own what is on disk is gone.
    pub fn lose_successor(&self) {
        self.0.send_modify(|now| now.is_alone = now.has_yielded);
    }

    /// No new connections from now on; what runs is to be cut after `patience`, by whoever conducts
    /// the end.
    pub fn drain(&self, patience: Duration) {
        self.advance(Phase::Draining, |now| now.patience = now.patience.min(patience));
    }

    /// It leaves without a notice, and soon: a person waits, or a part of it has failed.
    pub fn end_soon(&self) {
        self.leave();
        self.drain(SOON);
    }

    /// Everything ends now.
    pub fn cut(&self) {
        self.advance(Phase::Cut, |_| {});
    }

    fn advance(&self, phase: Phase, note: impl FnOnce(&mut Standing)) {
        self.0.send_modify(|now| {
            if phase > now.phase {
                now.phase = phase;
                now.since_ms = clock::now().wall_ms;
            }
            note(now);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn phases_only_go_forward_and_end_the_waits_for_them_and_earlier_ones() {
        let shutdown = Shutdown::default();
        assert!(shutdown.has_reached(Phase::Serving) && !shutdown.has_reached(Phase::Leaving));
        shutdown.give_up();
        shutdown.reached(Phase::Leaving).await;
        shutdown.reached(Phase::Yielded).await;
        assert!(shutdown.has_yielded() && !shutdown.is_leaving());
        shutdown.leave();
        assert_eq!((shutdown.phase(), shutdown.is_leaving()), (Phase::Yielded, true));
        shutdown.cut();
        shutdown.drain(Duration::from_secs(1));
        assert_eq!(shutdown.phase(), Phase::Cut);
        assert!(Phase::ALL.is_sorted());
    }

    #[test]
    fn the_shorter_patience_holds() {
        let shutdown = Shutdown::default();
        shutdown.drain(Duration::from_secs(60));
        shutdown.drain(Duration::from_secs(5));
        shutdown.drain(Duration::from_secs(30));
        assert_eq!(shutdown.patience(), Duration::from_secs(5));
    }
}
