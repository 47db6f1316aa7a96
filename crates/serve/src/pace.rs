//! How fast bodies leave: a [`Shaper`] has a rate, and all bodies that it is given to share it.
//!
//! A body asks its shapers, one after the other, before it hands out the next chunk; the chunk is no
//! longer than what all of them grant. Content is counted as it is handed to the connection; heads of
//! responses, TLS and packets come on top. What was granted to a client that has gone is given back.
//!
//! A shaper on which nobody waits is a few numbers. While somebody waits it has one task with a timer.
//! The rules are those of `bucket`.

mod bucket;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use model::Rate;
use rt::clock;
use tokio::sync::Notify;

use bucket::{Asked, Bucket, Ticket};

/// A rate that bodies share. Copies are handles of the same one.
#[derive(Clone, Debug)]
pub struct Shaper(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The rate has changed.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    bucket: Bucket<Waker>,
    /// There is a task that serves those who wait.
    is_served: bool,
}

/// How a shaper is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shaped {
    /// Its rate; `None`: no limit.
    pub rate: Option<Rate>,
    /// Bodies that wait now.
    pub waiting: usize,
    /// Bytes granted so far.
    pub granted_bytes: u64,
}

impl Shaper {
    /// A shaper of this rate; at 0 nothing leaves.
    pub fn new(rate: Rate) -> Self {
        let state = State { bucket: Bucket::new(rate, clock::now()), is_served: false };
        Self(Arc::new(Shared { state: Mutex::new(state), changed: Notify::new() }))
    }

    /// From now on this rate, for those who wait already too.
    pub fn set_rate(&self, rate: Rate) {
        self.set(Some(rate));
    }

    /// From now on no limit.
    pub fn lift(&self) {
        self.set(None);
    }

    fn set(&self, rate: Option<Rate>) {
        let mut state = self.0.state();
        if state.bucket.rate() != rate {
            state.bucket.set_rate(rate, clock::now());
            self.0.changed.notify_one();
        }
    }

    /// How it is doing.
    pub fn shaped(&self) -> Shaped {
        let state = self.0.state();
        let bucket = &state.bucket;
        Shaped {
            rate: bucket.rate(),
            waiting: bucket.waiting(),
            granted_bytes: bucket.granted_bytes(),
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(self: &Arc<Self>, bytes: u64, cx: &Context<'_>) -> Asked {
        let mut state = self.state();
        let asked = state.bucket.ask(bytes, cx.waker().clone(), clock::now());
        if matches!(asked, Asked::Waits(_)) && !state.is_served {
            state.is_served = true;
            tokio::spawn(serve(Arc::clone(self)));
        }
        asked
    }
}

/// Wakes those who wait, each in his turn, until nobody does.
async fn serve(shared: Arc<Shared>) {
    loop {
        let (served, due_ns, now) = {
            let mut state = shared.state();
            let now = clock::now();
            let served = state.bucket.serve(now);
            if state.bucket.waiting() == 0 {
                state.is_served = false;
            }
            let due_ns = state.is_served.then(|| state.bucket.due_ns());
            (served, due_ns, now)
        };
        served.into_iter().for_each(Waker::wake);
        match due_ns {
            None => return,
            Some(None) => shared.changed.notified().await,
            Some(Some(due_ns)) => {
                let wait = Duration::from_nanos(due_ns.saturating_sub(now.mono_ns));
                // Either way it is looked again.
                let _ = tokio::time::timeout(wait, shared.changed.notified()).await;
            }
        }
    }
}

/// The shapers of a response.
#[derive(Clone, Debug, Default)]
pub struct Pace(Vec<Shaper>);

impl Pace {
    /// Paced by this one too.
    pub fn add(&mut self, shaper: &Shaper) {
        self.0.push(shaper.clone());
    }

    /// Whether nothing paces.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A body with its shapers: what it may send now.
#[derive(Debug)]
pub(crate) struct Pacer {
    /// Each with what it has granted and the next one has not.
    shapers: Vec<(Arc<Shared>, Turn)>,
    /// Bytes that all of them grant.
    granted: u64,
}

#[derive(Clone, Copy, Debug)]
enum Turn {
    /// Not asked yet.
    Next,
    Waits(Ticket),
    Granted(u64),
}

impl Pacer {
    pub(crate) fn new(pace: Pace) -> Self {
        let mut pacer = Self { shapers: Vec::new(), granted: 0 };
        pacer.add(pace);
        pacer
    }

    /// These shapers too. To be called before anything is asked.
    pub(crate) fn add(&mut self, pace: Pace) {
        self.shapers.extend(pace.0.into_iter().map(|Shaper(shared)| (shared, Turn::Next)));
    }

    /// What may be sent now, once that is something; `bytes`: what there is to be sent, more than 0.
    pub(crate) fn poll(&mut self, bytes: u64, cx: &mut Context<'_>) -> Poll<u64> {
        if self.granted > 0 {
            return Poll::Ready(self.granted);
        }
        let mut least = bytes;
        for (shared, turn) in &mut self.shapers {
            if matches!(turn, Turn::Next) {
                *turn = match shared.ask(least, cx) {
                    Asked::Granted(bytes) => Turn::Granted(bytes),
                    Asked::Waits(ticket) => Turn::Waits(ticket),
                };
            }
            if let Turn::Waits(ticket) = *turn {
                let taken = shared.state().bucket.take(ticket, cx.waker().clone());
                *turn = taken.map_or(*turn, Turn::Granted);
            }
            let Turn::Granted(bytes) = *turn else { return Poll::Pending };
            least = least.min(bytes);
        }
        for (shared, turn) in &mut self.shapers {
            if let Turn::Granted(bytes) = std::mem::replace(turn, Turn::Next)
                && bytes > least
            {
                shared.state().bucket.give_back(bytes.saturating_sub(least));
            }
        }
        self.granted = least;
        Poll::Ready(least)
    }

    /// So many bytes were handed out. What is more than was granted is a debt.
    pub(crate) fn used(&mut self, bytes: u64) {
        let owed = bytes.saturating_sub(self.granted);
        self.granted = self.granted.saturating_sub(bytes);
        if owed > 0 {
            for (shared, _) in &self.shapers {
                shared.state().bucket.owe(owed);
            }
        }
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        for (shared, turn) in &self.shapers {
            let mut state = shared.state();
            match *turn {
                Turn::Next => state.bucket.give_back(self.granted),
                Turn::Waits(ticket) => {
                    state.bucket.leave(ticket);
                    if state.bucket.waiting() == 0 {
                        // Its task may be waiting for a rate.
                        shared.changed.notify_one();
                    }
                }
                Turn::Granted(bytes) => state.bucket.give_back(bytes),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;

    use bytes::{Buf, Bytes};
    use http_body::Body as _;

    use super::*;
    use crate::{Body, BodyError, FileRange, Piece, Source};

    const MBIT: u64 = 1_000_000;

    fn pace(shapers: &[&Shaper]) -> Pace {
        let mut pace = Pace::default();
        shapers.iter().for_each(|shaper| pace.add(shaper));
        pace
    }

    /// The lengths of the chunks of a body, and its bytes.
    async fn all(mut body: Body) -> (Vec<usize>, Vec<u8>) {
        let (mut lengths, mut bytes) = (Vec::new(), Vec::new());
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let mut data = frame.unwrap().into_data().ok().unwrap();
            lengths.push(data.remaining());
            bytes.extend_from_slice(&data.copy_to_bytes(data.remaining()));
        }
        (lengths, bytes)
    }

    struct Pieces(Vec<Piece>);

    impl Source for Pieces {
        async fn next(&mut self) -> Option<Result<Piece, BodyError>> {
            (!self.0.is_empty()).then(|| Ok(self.0.remove(0)))
        }
    }

    #[tokio::test]
    async fn a_body_of_any_kind_leaves_whole_and_in_grants() {
        let content: Vec<u8> = (0..200_000u32).map(|i| i.to_le_bytes()[0]).collect();
        let file = Arc::new(tempfile::tempfile().unwrap());
        std::os::unix::fs::FileExt::write_all_at(&*file, &content, 0).unwrap();
        let shared = Bytes::from(content.clone());
        let pieces = vec![
            Piece::Bytes(shared.slice(..100_000)),
            Piece::Bytes(Bytes::new()),
            Piece::File(FileRange::new(Arc::clone(&file), 100_000, 100_000)),
        ];
        let bodies = [
            Body::bytes(shared.clone()),
            Body::file(FileRange::new(file, 0, 200_000)),
            Body::stream(Pieces(pieces), Some(200_000)),
        ];
        for body in bodies {
            let (fast, slow) = (Shaper::new(Rate(1000 * MBIT)), Shaper::new(Rate(50 * MBIT)));
            let (lengths, bytes) = all(body.paced(pace(&[&fast, &slow]))).await;
            assert!(bytes == content);
            assert!(
                lengths.iter().all(|bytes| *bytes <= 31_250),
                "50 Mbit/s for 5 ms: {lengths:?}"
            );
            for shaper in [fast, slow] {
                let Shaped { waiting, granted_bytes, .. } = shaper.shaped();
                assert_eq!((waiting, granted_bytes), (0, 200_000), "no more and no less");
            }
        }
    }

    #[tokio::test]
    async fn what_is_paced_by_nothing_leaves_at_once() {
        let body = Body::bytes(Bytes::from(vec![7; 1 << 20])).paced(Pace::default());
        assert_eq!(all(body).await.0, [1 << 20]);
    }

    /// A client that goes while it waits, or with a grant that it has not used, costs the others
    /// nothing.
    #[tokio::test]
    async fn who_goes_gives_back() {
        let (fast, stopped) = (Shaper::new(Rate(1000 * MBIT)), Shaper::new(Rate(0)));
        let both = |_| Body::bytes(Bytes::from(vec![7; 9000])).paced(pace(&[&fast, &stopped]));
        let mut bodies: Vec<Body> = (0..3).map(both).collect();
        for body in &mut bodies {
            let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut *body).poll_frame(cx))).await;
            // At a rate of 0 there is one quantum, once.
            let got = matches!(polled, Poll::Ready(Some(Ok(_))));
            assert_eq!(got, stopped.shaped().waiting == 0);
        }
        assert_eq!((fast.shaped().granted_bytes, stopped.shaped().waiting), (1400 + 2 * 9000, 2));
        drop(bodies);
        assert_eq!((fast.shaped().granted_bytes, stopped.shaped().waiting), (1400, 0));
    }

    #[tokio::test]
    async fn a_new_rate_reaches_those_who_wait() {
        let shaper = Shaper::new(Rate(0));
        let body = Body::bytes(Bytes::from(vec![7; 100_000])).paced(pace(&[&shaper]));
        let whole = tokio::spawn(all(body));
        while shaper.shaped().waiting == 0 {
            tokio::task::yield_now().await;
        }
        shaper.set_rate(Rate(1000 * MBIT));
        assert_eq!(whole.await.unwrap().1.len(), 100_000);
    }
}
