//! Connections to one source that wait for their next request.
//!
//! The one whose last answer was the largest is used first: its congestion window is open, and what
//! comes next comes at full speed. Small answers do not wear it out, because they take it only when
//! no other is there.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use hyper::client::conn::http1::SendRequest;
use model::Now;
use tokio::sync::Notify;

/// The body of a request.
pub(crate) type Outgoing = BoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Connections kept for each source.
const IDLE_MAX: usize = 32;
/// How long one is kept. Below the keep-alive time of common servers, so that a request seldom meets
/// a connection that is just being closed.
const IDLE_TIME: Duration = Duration::from_secs(30);

/// A connection over which a request can be sent.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) sender: SendRequest<Outgoing>,
    /// Body bytes of its last answer.
    pub(crate) burst: u64,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    until_ns: u64,
}

/// The connections to one source that nobody uses.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    idle: Mutex<Vec<Idle>>,
    /// One came back.
    pub(crate) returned: Notify,
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection with the largest burst.
    pub(crate) fn take(&self, now: Now) -> Option<Connection> {
        let mut idle = self.lock();
        retire(&mut idle, now);
        let at = position(&idle, |bursts| bursts.max())?;
        Some(idle.swap_remove(at).connection)
    }

    /// A connection that is free again; the one with the smallest burst goes when there are too many.
    pub(crate) fn put(&self, connection: Connection, now: Now) {
        if connection.sender.is_closed() {
            return;
        }
        let mut idle = self.lock();
        retire(&mut idle, now);
        let time_ns = u64::try_from(IDLE_TIME.as_nanos()).unwrap_or(u64::MAX);
        idle.push(Idle { connection, until_ns: now.mono_ns.saturating_add(time_ns) });
        if idle.len() > IDLE_MAX
            && let Some(at) = position(&idle, |bursts| bursts.min())
        {
            idle.swap_remove(at);
        }
        drop(idle);
        self.returned.notify_one();
    }

    /// Closes those that waited too long; gives how many are left.
    pub(crate) fn sweep(&self, now: Now) -> usize {
        let mut idle = self.lock();
        retire(&mut idle, now);
        idle.len()
    }
}

/// Drops what has ended and what waited too long.
fn retire(idle: &mut Vec<Idle>, now: Now) {
    idle.retain(|i| i.until_ns > now.mono_ns && !i.connection.sender.is_closed());
}

/// Where the connection is whose burst is chosen.
fn position(
    idle: &[Idle],
    choose: impl Fn(std::iter::Map<std::slice::Iter<'_, Idle>, fn(&Idle) -> u64>) -> Option<u64>,
) -> Option<usize> {
    let burst: fn(&Idle) -> u64 = |i| i.connection.burst;
    let wanted = choose(idle.iter().map(burst))?;
    idle.iter().position(|i| i.connection.burst == wanted)
}
