//! One client's connection: HTTP/1.1 by hyper, its timer, and its part in a shutdown.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Version};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::io::Io;
use crate::pulse::{Look, Pulse, Seen};
use crate::server::{Counters, Handler, Limits};
use crate::{Client, RequestBody};

/// Bytes of a response that hyper may hold before it asks for more of the body. With hyper's
/// `pipeline_flush` off (as it must stay: with it one slow reader makes hyper hold a whole body)
/// that is at most this and one chunk.
const WRITE_BYTES_MAX: usize = 64 * 1024;

/// What a client whose request was refused may still send before the connection is closed, so that
/// it comes to read why.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: u64 = 1024 * 1024;

/// Serves one connection to its end: the client's, a timeout's, or, once `stopping` changes, the
/// end of the running response.
pub(crate) async fn serve<S, H>(
    stream: S,
    client: Client,
    handler: Arc<H>,
    limits: Limits,
    counters: Arc<Counters>,
    mut stopping: watch::Receiver<bool>,
) where
    S: Wire,
    H: Handler,
{
    let pulse = Pulse::new(Arc::clone(&counters), stream.plain().is_some());
    let answer = service_fn(|request: Request<Incoming>| {
        let mut busy = pulse.begin();
        let handler = Arc::clone(&handler);
        async move {
            let can_chunk = request.version() >= Version::HTTP_11;
            let response = handler.handle(request.map(RequestBody::from), client).await;
            busy.ends_connection = !can_chunk && !response.body().has_length();
            Ok::<_, Infallible>(response.map(|body| body.with_busy(busy)))
        }
    });
    let io = Io::new(stream, Arc::clone(&pulse));
    let mut connection = http(&limits).serve_connection(io, answer);
    let mut tick = pin!(sleep(limits.head_timeout));
    let mut stops = false;
    let mut seen = Seen::default();
    let mut stalled = false;
    let refused = loop {
        tokio::select! {
            biased;
            ended = &mut connection => {
                let error = ended.err();
                error.iter().for_each(|error| note(&counters, error));
                break error.is_some_and(|error| error.is_parse());
            }
            () = tick.as_mut() => {
                match pulse.look(&mut seen) {
                    Look::Alive => {
                        let next = Instant::now().checked_add(limits.head_timeout);
                        tick.as_mut().reset(next.unwrap_or_else(Instant::now));
                    }
                    Look::Idle => break false,
                    Look::SlowHead => {
                        counters.timeouts.fetch_add(1, Relaxed);
                        break false;
                    }
                    Look::Stalled => {
                        counters.stalled.fetch_add(1, Relaxed);
                        stalled = true;
                        break false;
                    }
                }
            }
            _ = stopping.wait_for(|stop| *stop), if !stops => {
                stops = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
    };
    let stream = connection.into_parts().io.into_inner();
    if refused {
        linger(stream).await;
    } else if stalled || pulse.was_cut_short() {
        // Nobody takes what the kernel still has. And a close in peace would make half a body look like a whole one (RFC 9112 section 8).
        stream.reset();
    }
}

/// What a connection runs on.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Ends it so that the other side sees a failure, not an end.
    fn reset(self);

    /// The socket, when what is written goes to the client as it is: file content may then leave
    /// without a copy.
    fn plain(&self) -> Option<&TcpStream> {
        None
    }
}

impl Wire for TcpStream {
    fn reset(self) {
        if let Err(error) = self.set_zero_linger() {
            tracing::debug!(%error, "a connection cannot be reset");
        }
    }

    fn plain(&self) -> Option<&TcpStream> {
        Some(self)
    }
}

fn http(limits: &Limits) -> http1::Builder {
    let mut http = http1::Builder::new();
    // The number of header lines stays at hyper's 100, which it has room for on the stack.
    http.max_header_size(limits.head_bytes_max)
        .max_buf_size(limits.head_bytes_max.max(WRITE_BYTES_MAX))
        .header_read_timeout(None); // the pulse does it
    http
}

/// Counts why a connection ended. Clients that go away are no event.
fn note(counters: &Counters, error: &hyper::Error) {
    if error.is_parse() {
        counters.malformed.fetch_add(1, Relaxed);
    }
    tracing::debug!(error = error as &dyn std::error::Error, "a connection ended early");
}

/// Closes a connection on which the client may still be sending. Were it closed at once, the reset
/// that its bytes meet would take back the answer.
async fn linger(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    if stream.shutdown().await.is_ok() {
        let mut rest = stream.take(LINGER_BYTES_MAX);
        // Its end, an error and the time being over are all the same now.
        let _ = timeout(LINGER, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use bytes::Bytes;
    use hyper::Response;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;
    use crate::{Body, BodyError, Piece, Source};

    const PIECE: usize = 100_000;

    struct Endless(Arc<AtomicU64>);

    impl Source for Endless {
        async fn next(&mut self) -> Option<Result<Piece, BodyError>> {
            self.0.fetch_add(1, Relaxed);
            Some(Ok(Piece::Bytes(Bytes::from_static(&[0; PIECE]))))
        }
    }

    impl Wire for DuplexStream {
        fn reset(self) {}
    }

    impl Handler for Endless {
        async fn handle(&self, _: Request<RequestBody>, _: Client) -> Response<Body> {
            Response::new(Body::stream(Endless(Arc::clone(&self.0)), None))
        }
    }

    /// Lets the connection's task run until it can do no more by itself.
    async fn settle() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    /// A client that reads nothing keeps its connection for a bounded time.
    #[tokio::test]
    async fn a_reader_that_has_stopped_is_cut_in_the_end() {
        let (mut client, server) = tokio::io::duplex(10_000);
        let (_stop, stopping) = watch::channel(false);
        let (handler, counters) = (Arc::new(Endless(Arc::default())), Arc::<Counters>::default());
        let peer = Client { address: ([127, 0, 0, 1], 1).into(), is_secure: false };
        let limits = Limits { head_timeout: Duration::from_millis(10), ..Limits::default() };
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        serve(server, peer, handler, limits, Arc::clone(&counters), stopping).await;
        assert_eq!(counters.stalled.load(Relaxed), 1);
        assert_eq!((counters.timeouts.load(Relaxed), counters.malformed.load(Relaxed)), (0, 0));
    }

    /// A client that stops reading costs one piece above the write limit beside what the wire
    /// holds, and the source is asked again only as the client reads on.
    #[tokio::test]
    async fn a_reader_that_stops_stops_the_source() {
        const WIRE: usize = 10_000;
        let given = Arc::new(AtomicU64::new(0));
        let (mut client, server) = tokio::io::duplex(WIRE);
        let (_stop, stopping) = watch::channel(false);
        let handler = Arc::new(Endless(Arc::clone(&given)));
        let peer = Client { address: ([127, 0, 0, 1], 1).into(), is_secure: false };
        let counters = Arc::default();
        tokio::spawn(serve(server, peer, handler, Limits::default(), counters, stopping));
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        settle().await;
        assert_eq!(given.load(Relaxed), 1, "one piece fills the write limit");
        let mut read = vec![0; 1_000_000];
        client.read_exact(&mut read).await.unwrap();
        settle().await;
        assert_eq!(given.load(Relaxed), 11);
    }
}
