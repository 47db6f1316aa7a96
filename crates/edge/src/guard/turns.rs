//! How many requests of one client are answered at once; more wait for their turn.
//!
//! A client is an IPv4 address or a /64 of IPv6. There is an entry for it only while one of its
//! requests is answered or waits, so memory is bounded by the connections that may be open and what each
//! may ask at once.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// So many times as many as are answered may wait.
const WAITING_FACTOR: u32 = 4;
/// How long one waits, at most.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Parts of the table that are locked apart.
const PARTS: usize = 16;

type Part = HashMap<IpAddr, Entry>;

/// A client of which something is answered or waits.
#[derive(Debug)]
struct Entry {
    turns: Arc<Semaphore>,
    /// Requests that are answered or wait.
    requests: u32,
}

/// The clients.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Requests of one client that are answered at once.
    at_once: u32,
    parts: [Mutex<Part>; PARTS],
    /// Keyed, so that nobody outside can choose who is together with whom.
    hasher: RandomState,
    wait_max: Duration,
}

/// A request's turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _permit: OwnedSemaphorePermit,
    _place: Place,
}

/// A request in the count of its client.
#[derive(Debug)]
struct Place {
    turns: Arc<Turns>,
    client: IpAddr,
}

impl Turns {
    pub(crate) fn new(at_once: u32) -> Self {
        let (parts, hasher) = (std::array::from_fn(|_| Mutex::default()), RandomState::new());
        Self { at_once, parts, hasher, wait_max: WAIT_MAX }
    }

    fn part(&self, client: IpAddr) -> Option<MutexGuard<'_, Part>> {
        let hash = usize::try_from(self.hasher.hash_one(client)).unwrap_or(usize::MAX);
        let part = self.parts.get(hash.rem_euclid(PARTS))?;
        Some(part.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A turn for a request of this address, in the order in which they ask; `None` when too many wait
    /// or it takes too long. `waits` is told when it has to wait.
    pub(crate) async fn take(
        self: &Arc<Self>,
        address: IpAddr,
        waits: impl FnOnce(),
    ) -> Option<Turn> {
        let client = client(address);
        let turns = {
            let mut part = self.part(client)?;
            let places = usize::try_from(self.at_once).unwrap_or(Semaphore::MAX_PERMITS);
            let entry = part.entry(client).or_insert_with(|| Entry {
                turns: Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS))),
                requests: 0,
            });
            if entry.requests >= self.at_once.saturating_mul(WAITING_FACTOR.saturating_add(1)) {
                return None;
            }
            entry.requests = entry.requests.saturating_add(1);
            Arc::clone(&entry.turns)
        };
        let place = Place { turns: Arc::clone(self), client };
        let permit = match Arc::clone(&turns).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                waits();
                timeout(self.wait_max, turns.acquire_owned()).await.ok()?.ok()?
            }
        };
        Some(Turn { _permit: permit, _place: place })
    }

    /// Clients of which something is answered or waits.
    pub(crate) fn clients(&self) -> usize {
        let count = |part: &Mutex<Part>| part.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.parts.iter().map(count).fold(0, usize::saturating_add)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(mut part) = self.turns.part(self.client) else { return };
        if let Some(entry) = part.get_mut(&self.client) {
            entry.requests = entry.requests.saturating_sub(1);
            if entry.requests == 0 {
                part.remove(&self.client);
            }
        }
    }
}

/// Who counts as one: an IPv4 address, or what one subscriber of IPv6 has at least.
fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6) >> 64 << 64).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_client_is_an_address_or_a_64() {
        for (a, b, same) in [
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("2001:db8::1", "2001:db8::ffff:0:0:1", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
        ] {
            assert_eq!(client(ip(a)) == client(ip(b)), same, "{a} {b}");
        }
    }

    #[tokio::test]
    async fn further_requests_wait_in_order_and_more_of_them_are_refused() {
        let (turns, waited) = (Arc::new(Turns::new(1)), Cell::new(0));
        let waits = || waited.set(waited.get() + 1);
        let (one, other) = (ip("192.0.2.1"), ip("192.0.2.2"));
        let first = turns.take(one, waits).await.unwrap();
        let mut waiting: Vec<_> = (0..4).map(|_| Box::pin(turns.take(one, waits))).collect();
        for waiting in &mut waiting {
            assert!(poll(waiting.as_mut()).is_pending());
        }
        assert!(turns.take(one, waits).await.is_none(), "four times as many wait");
        assert!(turns.take(other, waits).await.is_some(), "others are not touched");
        let mut turn = first;
        for mut next in waiting {
            assert!(poll(next.as_mut()).is_pending());
            drop(turn);
            turn = next.await.unwrap();
        }
        assert_eq!((waited.get(), turns.clients()), (4, 1));
        drop(turn);
        assert_eq!(turns.clients(), 0, "nothing is left of it");
    }

    #[tokio::test]
    async fn who_waits_too_long_or_leaves_is_forgotten() {
        let turns = Turns { wait_max: Duration::from_millis(1), ..Turns::new(1) };
        let turns = Arc::new(turns);
        let turn = turns.take(ip("2001:db8::1"), || {}).await.unwrap();
        assert!(turns.take(ip("2001:db8::2"), || {}).await.is_none());
        {
            let mut leaves = pin!(turns.take(ip("2001:db8::3"), || {}));
            assert!(poll(leaves.as_mut()).is_pending());
        }
        drop(turn);
        assert_eq!(turns.clients(), 0);
    }
}
