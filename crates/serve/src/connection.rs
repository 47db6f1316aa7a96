//! One client's connection: HTTP/1.1 by hyper, its timer, and its part in a shutdown.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::io::Io;
use crate::pulse::{Look, Pulse};
use crate::server::{Counters, Handler, Limits};

/// Bytes of a response that hyper may hold before it asks for more of the body. With hyper's
/// `pipeline_flush` off (as it must stay: with it one slow reader makes hyper hold a whole body)
/// that is at most this and one chunk.
const WRITE_BYTES_MAX: usize = 64 * 1024;

/// Serves one connection to its end: the client's, a timeout's, or, once `stopping` changes, the
/// end of the running response.
pub(crate) async fn serve<S, H>(
    stream: S,
    peer: SocketAddr,
    handler: Arc<H>,
    limits: Limits,
    counters: Arc<Counters>,
    mut stopping: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    let pulse = Pulse::new(Arc::clone(&counters));
    let answer = service_fn(|request| {
        let busy = pulse.begin();
        let handler = Arc::clone(&handler);
        async move {
            let response = handler.handle(request, peer).await;
            Ok::<_, Infallible>(response.map(|body| body.with_busy(busy)))
        }
    });
    let io = Io::new(stream, Arc::clone(&pulse));
    let mut connection = pin!(http(&limits).serve_connection(io, answer));
    let mut tick = pin!(sleep(limits.head_timeout));
    let mut stops = false;
    let mut seen = 0;
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    note(&counters, &error);
                }
                return;
            }
            () = tick.as_mut() => {
                match pulse.look(&mut seen) {
                    Look::Alive => {
                        let next = Instant::now().checked_add(limits.head_timeout);
                        tick.as_mut().reset(next.unwrap_or_else(Instant::now));
                    }
                    Look::Idle => return,
                    Look::SlowHead => {
                        counters.timeouts.fetch_add(1, Relaxed);
                        return;
                    }
                }
            }
            _ = stopping.wait_for(|stop| *stop), if !stops => {
                stops = true;
                connection.as_mut().graceful_shutdown();
            }
        }
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
