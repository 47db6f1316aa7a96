//! One client's connection: HTTP/1.1 by hyper, its timer, and its part in a shutdown.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Version};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::aside::Aside;
use crate::crowd::Shed;
use crate::io::{Io, poll_read_some};
use crate::pulse::{Look, Pulse, Seen};
use crate::server::{Counters, Handler, Limits};
use crate::{Client, RequestBody, way};

/// Bytes of a response that hyper may hold before it asks for more of the body. With hyper's
/// `pipeline_flush` off (as it must stay: with it one slow reader makes hyper hold a whole body)
/// that is at most this and one chunk.
const WRITE_BYTES_MAX: usize = 64 * 1024;

/// What a client whose request was refused may still send before the connection is closed, so that
/// it comes to read why.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: u64 = 1024 * 1024;

/// A connection on which so long nothing is asked gives back what HTTP needs of memory.
const REST: Duration = Duration::from_millis(500);

/// Serves one connection, of which `first` was read already, to its end: the client's, a timeout's,
/// or, once `stopping` changes, the end of the running response.
///
/// It alternates between two states: HTTP by hyper, with its buffers, and rest, in which there is
/// only the stream, the pulse and a timer.
pub(crate) async fn serve<S, H>(
    mut stream: S,
    mut first: Bytes,
    client: Client,
    handler: Arc<H>,
    limits: Limits,
    counters: Arc<Counters>,
    mut stopping: watch::Receiver<bool>,
) where
    S: Wire,
    H: Handler,
{
    let visitor = handler.greet(client);
    let (handler, visitor) = (&*handler, &visitor);
    let pulse = Pulse::new(Arc::clone(&counters), stream.plain().is_some());
    let mut tick = pin!(sleep(REST.min(limits.head_timeout)));
    let end = loop {
        let answer = service_fn(|request: Request<Incoming>| {
            let mut busy = pulse.begin(!request.body().is_end_stream());
            let can_chunk = request.version() >= Version::HTTP_11;
            let handled = handler.handle(request.map(RequestBody::from), visitor);
            async move {
                let mut response = handled.await;
                let body = response.body_mut();
                busy.ends_connection = !can_chunk && !body.has_length();
                body.hold(busy);
                Ok::<_, Infallible>(response)
            }
        });
        let io = Io::new(stream, std::mem::take(&mut first), Arc::clone(&pulse));
        let mut connection = Box::new(http(&limits).serve_connection(io, answer));
        let mut watch = Watch::new(&pulse, limits);
        // On the heap like hyper's part, so that rest keeps no room for it.
        let doing = || pulse.doing();
        let mut gives_way = Box::pin(counters.gives_way(limits.connections_max, doing));
        let mut stops = false;
        let end = loop {
            let mut aside = Aside::default();
            let (tick, gives_way) = (tick.as_mut(), gives_way.as_mut());
            let mut beside = pin!(beside(tick, &mut watch, gives_way, &mut stopping, stops));
            let came = poll_fn(|cx| match Pin::new(&mut *connection).poll(cx) {
                Poll::Ready(ended) => Poll::Ready(Some(over(ended, &counters))),
                Poll::Pending => aside.poll(cx, |cx| beside.as_mut().poll(cx)),
            });
            match came.await {
                Some(end) => break end,
                None => {
                    stops = true;
                    Pin::new(&mut *connection).graceful_shutdown();
                }
            }
        };
        drop(gives_way);
        let parts = connection.into_parts();
        stream = parts.io.into_inner();
        match (end, parts.read_buf) {
            (End::Rest, unread) if unread.is_empty() => drop(unread), // it still has hyper's buffer
            (End::Rest, unread) => {
                first = unread;
                continue;
            }
            (end, _) => break end,
        }
        tick.as_mut().reset(after(limits.head_timeout));
        tokio::select! {
            biased;
            came = poll_fn(|cx| poll_read_some(&mut stream, cx)) => match came {
                Ok(bytes) if !bytes.is_empty() => first = bytes,
                _ => break End::Over,
            },
            () = tick.as_mut() => break End::Over,
            why = counters.gives_way_from_rest(limits.connections_max) => break End::Shed(why),
            _ = stopping.wait_for(|stop| *stop) => break End::Over,
        }
        tick.as_mut().reset(after(REST.min(limits.head_timeout)));
    };
    handler.leave(visitor, way::of_socket(stream.socket()));
    match end {
        End::Refused => return linger(stream).await,
        End::SlowHead => counters.timeouts.fetch_add(1, Relaxed),
        End::Stalled => counters.stalled.fetch_add(1, Relaxed),
        End::Rest | End::Over | End::Shed(_) => 0,
    };
    // Nobody takes what the kernel still has. And a close in peace would make half a body look like
    // a whole one (RFC 9112 section 8).
    if matches!(end, End::Stalled | End::Shed(Shed::Slow)) || pulse.was_cut_short() {
        stream.reset();
    }
}

/// Waits for what may happen to a connection while hyper has it: its end, or `None` when it is to end
/// in peace, unless it `stops` already.
async fn beside(
    mut tick: Pin<&mut Sleep>,
    watch: &mut Watch<'_>,
    mut gives_way: Pin<&mut impl Future<Output = Shed>>,
    stopping: &mut watch::Receiver<bool>,
    stops: bool,
) -> Option<End> {
    loop {
        tokio::select! {
            biased;
            () = tick.as_mut() => match watch.tick() {
                Ok(next) => tick.as_mut().reset(next),
                Err(end) => return Some(end),
            },
            why = gives_way.as_mut() => return Some(End::Shed(why)),
            _ = stopping.wait_for(|stop| *stop), if !stops => return None,
        }
    }
}

/// Looks after a connection while hyper has it.
struct Watch<'a> {
    pulse: &'a Pulse,
    limits: Limits,
    seen: Seen,
    next_look: Instant,
}

impl<'a> Watch<'a> {
    fn new(pulse: &'a Pulse, limits: Limits) -> Self {
        Self { pulse, limits, seen: Seen::default(), next_look: after(limits.head_timeout) }
    }

    /// When to tick next.
    ///
    /// # Errors
    /// The end, when it has come.
    fn tick(&mut self) -> Result<Instant, End> {
        if self.pulse.rests(&mut self.seen) {
            return Err(End::Rest);
        }
        if Instant::now() >= self.next_look {
            self.next_look = after(self.limits.head_timeout);
            match self.pulse.look(&mut self.seen) {
                Look::Alive => {}
                Look::Idle => return Err(End::Over),
                Look::SlowHead => return Err(End::SlowHead),
                Look::Stalled => return Err(End::Stalled),
            }
        }
        // In a long response there is nothing to see so often.
        let next = if self.pulse.is_sending() { self.next_look } else { after(REST) };
        Ok(next.min(self.next_look))
    }
}

/// Why hyper has no more to do with a connection.
enum End {
    /// Nothing was asked for a while.
    Rest,
    /// The client has gone, or is to go.
    Over,
    /// What came is not HTTP.
    Refused,
    /// A head did not come in time.
    SlowHead,
    /// The client takes nothing of its response.
    Stalled,
    /// It makes room for another.
    Shed(Shed),
}

/// Counts why hyper has ended a connection. Clients that go away are no event.
fn over(ended: hyper::Result<()>, counters: &Counters) -> End {
    let Err(error) = ended else { return End::Over };
    tracing::debug!(error = &error as &dyn std::error::Error, "a connection ended early");
    if !error.is_parse() {
        return End::Over;
    }
    counters.malformed.fetch_add(1, Relaxed);
    End::Refused
}

fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now)
}

/// What a connection runs on.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Ends it so that the other side sees a failure, not an end.
    fn reset(self);

    /// The socket below, if there is one.
    fn socket(&self) -> Option<&TcpStream> {
        self.plain()
    }

    /// Bytes that the client has acknowledged, as far as that is known.
    fn acknowledged(&self) -> Option<u64> {
        sys::socket::acknowledged_bytes(self.socket()?).ok()
    }

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

    use hyper::Response;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;
    use crate::{Body, BodyError, Piece, Source, crowd};

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

        /// As of a client that has taken the head, and nothing since.
        fn acknowledged(&self) -> Option<u64> {
            Some(100)
        }
    }

    impl Handler for Endless {
        type Visitor = Client;

        fn greet(&self, client: Client) -> Client {
            client
        }

        async fn handle(&self, _: Request<RequestBody>, _: &Client) -> Response<Body> {
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
        serve(server, Bytes::new(), peer, handler, limits, Arc::clone(&counters), stopping).await;
        assert_eq!(counters.stalled.load(Relaxed), 1);
        assert_eq!((counters.timeouts.load(Relaxed), counters.malformed.load(Relaxed)), (0, 0));
    }

    /// What its client has acknowledged is known of a connection while hyper has it.
    #[tokio::test]
    async fn a_reader_that_takes_next_to_nothing_makes_room_for_others() {
        let (mut client, server) = tokio::io::duplex(10_000);
        let (_stop, stopping) = watch::channel(false);
        let handler = Arc::new(Endless(Arc::default()));
        let counters = Arc::new(crowd::full());
        let peer = Client { address: ([127, 0, 0, 1], 1).into(), is_secure: false };
        let limits = Limits { connections_max: 1, ..Limits::default() };
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let count = Arc::clone(&counters);
        let serving = serve(server, Bytes::new(), peer, handler, limits, count, stopping);
        tokio::select! {
            () = serving => {}
            () = counters.room(1) => unreachable!("no place is free"),
        }
        assert_eq!((counters.shed(Shed::Slow), counters.shed(Shed::Idle)), (1, 0));
        assert_eq!(counters.stalled.load(Relaxed), 0);
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
        tokio::spawn(serve(
            server,
            Bytes::new(),
            peer,
            handler,
            Limits::default(),
            counters,
            stopping,
        ));
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        settle().await;
        assert_eq!(given.load(Relaxed), 1, "one piece fills the write limit");
        let mut read = vec![0; 1_000_000];
        client.read_exact(&mut read).await.unwrap();
        settle().await;
        assert_eq!(given.load(Relaxed), 11);
    }
}
