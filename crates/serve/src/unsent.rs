//! How fast a client takes what it is sent, and so how much may wait for it unsent in the kernel
//! (`TCP_NOTSENT_LOWAT`).
//!
//! What waits there is lost to two purposes. It is memory: by itself the kernel keeps 1.5 MiB for each
//! client that does not read, and when all TCP of the machine has its share (`tcp_mem`), every
//! connection becomes slow. And nothing can overtake it: a small answer on the same HTTP/2 connection
//! leaves after it. So every connection begins with a little
//! ([`rt::listen::UNSENT_BYTES`]), and may have what its client takes in a short time once that is
//! known: a slow one stays at little, a fast one costs no more wake-ups than it must.
//!
//! Time is an argument; the option is set by [`heed`].

use std::io;
use std::task::Poll;

use model::Now;
use tokio::net::TcpStream;

/// A pace is measured for at least so long.
const MEASURE_NS: u64 = 10_000_000;

/// How much may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Bytes for the slowest, and for the fastest.
    pub(crate) least: u32,
    pub(crate) most: u32,
    /// Between these, as much as the client takes in this time.
    pub(crate) ahead_ms: u64,
}

/// One connection's.
#[derive(Debug)]
pub(crate) struct Unsent {
    bounds: Bounds,
    /// Bytes that may wait.
    bytes: u32,
    /// When the socket took no more, and what it has taken since.
    measured: Option<(Now, u64)>,
}

impl Unsent {
    /// Not known yet. The socket has `bytes` as its limit.
    pub(crate) fn new(bounds: Bounds, bytes: u32) -> Self {
        Self { bounds, bytes, measured: None }
    }

    /// Bytes that may wait.
    pub(crate) fn bytes(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }

    /// Whether its client may have less than the fastest.
    pub(crate) fn is_slow(&self) -> bool {
        self.bytes < self.bounds.most
    }

    /// The socket took so many bytes.
    fn took(&mut self, bytes: usize) {
        if let Some((_, taken)) = &mut self.measured {
            *taken = taken.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        }
    }

    /// The socket takes no more for now. What may wait from now on, when that changes.
    fn blocked(&mut self, now: Now) -> Option<u32> {
        let Some((since, taken)) = self.measured else {
            self.measured = Some((now, 0));
            return None;
        };
        let for_ns = now.mono_ns.saturating_sub(since.mono_ns);
        if for_ns < MEASURE_NS {
            return None;
        }
        self.measured = Some((now, 0));
        let ahead_ns = self.bounds.ahead_ms.saturating_mul(1_000_000);
        let ahead = taken.saturating_mul(ahead_ns).checked_div(for_ns).unwrap_or(0);
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
        // Powers of two, so that it does not change all the time.
        let ahead = ahead.checked_ilog2().map_or(0, |log| 1 << log);
        let bytes = ahead.clamp(self.bounds.least, self.bounds.most);
        (std::mem::replace(&mut self.bytes, bytes) != bytes).then_some(bytes)
    }
}

/// Takes note of a write, and lets `socket` hold what is right for its client.
pub(crate) fn heed(
    unsent: &mut Unsent,
    written: &Poll<io::Result<usize>>,
    socket: Option<&TcpStream>,
) {
    match written {
        Poll::Ready(Ok(bytes)) => unsent.took(*bytes),
        Poll::Ready(Err(_)) => {}
        Poll::Pending => {
            if let Some(bytes) = unsent.blocked(rt::clock::now())
                && let Some(socket) = socket
                && let Err(error) = sys::socket::unsent_at_most(socket, bytes)
            {
                tracing::debug!(%error, "cannot set TCP_NOTSENT_LOWAT");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

    use super::*;

    const BOUNDS: Bounds = Bounds { least: 1 << 14, most: 1 << 20, ahead_ms: 100 };

    /// What may wait after the client took `bytes` between two times at which it took no more.
    fn after(bytes: usize, ms: u64) -> (Option<u32>, usize) {
        let (mut unsent, t) = (Unsent::new(BOUNDS, 1 << 16), Now::default());
        unsent.took(5_000_000); // at once, before it ever blocked: this says nothing
        assert_eq!(unsent.blocked(t), None);
        unsent.took(bytes / 2);
        unsent.took(bytes - bytes / 2);
        (unsent.blocked(t.plus_ms(ms)), unsent.bytes())
    }

    #[test]
    fn as_much_waits_as_the_client_takes_in_the_time() {
        for (bytes, ms, unsent) in [
            (2_048, 1_000, 1 << 14),     // slow: the least
            (0, 60_000, 1 << 14),        // nothing at all
            (250_000, 100, 1 << 17),     // 20 Mbit/s: 250 kB in 100 ms
            (250_000, 1_000, 1 << 14),   // a tenth of that
            (2_000_000, 1_000, 1 << 17), // 200 kB in 100 ms
            (10_000_000, 100, 1 << 20),  // fast: the most
            (usize::MAX, 10, 1 << 20),
        ] {
            assert_eq!(after(bytes, ms), (Some(unsent), unsent as usize), "{bytes} in {ms} ms");
        }
        assert_eq!(after(100_000, 100), (None, 1 << 16), "nothing changes");
        assert_eq!(after(100_000_000, 9), (None, 1 << 16), "too short to say");
    }

    #[test]
    fn short_waits_are_measured_together() {
        let (mut unsent, t) = (Unsent::new(BOUNDS, 1 << 16), Now::default());
        let told: Vec<_> = (0..=12)
            .map(|ms| {
                unsent.took(20_000);
                unsent.blocked(t.plus_ms(ms))
            })
            .collect();
        let mut expected = vec![None; 13];
        expected[10] = Some(1 << 20);
        assert_eq!(told, expected);
    }
}
