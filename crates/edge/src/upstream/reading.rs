//! The body of an answer: read with a limit on its pauses and on its speed. Its connection goes back
//! to the pool when nothing of it is left.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fill::Failure;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use rt::clock;

use super::endpoint::Endpoint;
use super::pace::Pace;
use super::pool::Connection;
use super::turns::{Turn, Turns};

/// So much of a body that nobody wants is read all the same: it costs less than a connection.
const DRAIN_BYTES_MAX: u64 = 64 << 10;
/// And for so long.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);

/// A body being read.
#[derive(Debug)]
pub(crate) struct Reading {
    /// `None`: a drain has it.
    body: Option<Incoming>,
    patience: Duration,
    endpoint: Arc<Endpoint>,
    /// The budget of all sources together.
    intake: Arc<Pace>,
    /// `None`: it is not to be used again, or is back in the pool.
    connection: Option<Connection>,
    turn: Option<Turn>,
    carried: u64,
    /// Until when nothing is to be read.
    pause: Duration,
}

impl Reading {
    /// `connection`: what is to be used again after it.
    pub(crate) fn new(
        body: Incoming,
        patience: Duration,
        endpoint: &Arc<Endpoint>,
        intake: &Arc<Pace>,
        connection: Option<Connection>,
        turn: Turn,
    ) -> Self {
        let (endpoint, intake) = (Arc::clone(endpoint), Arc::clone(intake));
        let (body, turn, carried, pause) = (Some(body), Some(turn), 0, Duration::ZERO);
        Self { body, patience, endpoint, intake, connection, turn, carried, pause }
    }

    /// The places of its source, of which it has one.
    pub(super) fn turns(&self) -> &Arc<Turns> {
        &self.endpoint.turns
    }

    /// The next bytes; `None` at the end of a whole body.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        if !self.pause.is_zero() {
            tokio::time::sleep(self.pause).await;
            self.pause = Duration::ZERO;
        }
        let Some(body) = &mut self.body else { return Ok(None) };
        loop {
            match tokio::time::timeout(self.patience, body.frame()).await {
                Err(_) => return Err(self.broken(Failure::BetweenBytesTimeout)),
                Ok(Some(Err(_))) => return Err(self.broken(Failure::Truncated)),
                Ok(None) => {
                    self.end();
                    return Ok(None);
                }
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
                        self.endpoint.bytes.inc_by(length);
                        self.carried = self.carried.saturating_add(length);
                        let now = clock::now();
                        let of_all = self.intake.book(data.len(), now);
                        self.pause = self.endpoint.pace.book(data.len(), now).max(of_all);
                        if body.is_end_stream() {
                            self.end();
                        }
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// The connection is of no use any more.
    fn broken(&mut self, why: Failure) -> Failure {
        self.connection = None;
        why
    }

    /// Nothing is left of the body.
    fn end(&mut self) {
        self.body = None;
        self.turn = None;
        if let Some(mut connection) = self.connection.take() {
            connection.burst = self.carried;
            self.endpoint.pool.put(connection, clock::now());
        }
    }

    /// Whether the rest is worth reading for the sake of the connection.
    fn is_nearly_done(&self) -> bool {
        let left = self.body.as_ref().and_then(|body| body.size_hint().upper());
        self.connection.is_some() && left.is_some_and(|left| left <= DRAIN_BYTES_MAX)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if self.body.as_ref().is_some_and(Body::is_end_stream) {
            self.end();
        } else if self.is_nearly_done()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
            && let (Some(body), Some(connection)) = (self.body.take(), self.connection.take())
        {
            let (endpoint, turn) = (Arc::clone(&self.endpoint), self.turn.take());
            let carried = self.carried;
            runtime.spawn(async move {
                let drained = drain(body, &endpoint, carried);
                if let Ok(Some(burst)) = tokio::time::timeout(DRAIN_TIME_MAX, drained).await {
                    endpoint.pool.put(Connection { burst, ..connection }, clock::now());
                }
                drop(turn);
            });
        }
    }
}

/// Reads a body to its end. Gives how many bytes there were with those `carried` before.
async fn drain(mut body: Incoming, endpoint: &Endpoint, mut carried: u64) -> Option<u64> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.ok()?.into_data() {
            let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
            endpoint.bytes.inc_by(length);
            carried = carried.saturating_add(length);
        }
    }
    Some(carried)
}
