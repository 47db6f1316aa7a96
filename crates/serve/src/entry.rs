//! Which protocol an accepted connection speaks.
//!
//! - After a TLS handshake: what the client chose of [`ALPN`], HTTP/1.1 if it named nothing.
//! - In the clear: HTTP/2 when its first bytes are the preface of HTTP/2 (prior knowledge, RFC 9113
//!   section 3.3), else HTTP/1.1. The first read decides as a rule; what was read is handed on.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use tokio::io::AsyncRead;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::connection::{self, Wire};
use crate::handshake::Tls;
use crate::io::poll_read_some;
use crate::server::{Counters, Handler, Limits};
use crate::{Client, h2};

/// What every client of HTTP/2 sends first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What is spoken over TLS, the best first.
pub(crate) const ALPN: [&[u8]; 2] = [H2, b"http/1.1"];
const H2: &[u8] = b"h2";

/// Serves a connection over TLS to its end.
pub(crate) async fn tls<H: Handler>(
    stream: TcpStream,
    tls: Tls,
    client: Client,
    handler: Arc<H>,
    limits: Limits,
    counters: Arc<Counters>,
    stopping: watch::Receiver<bool>,
) {
    let accepted = tokio::select! {
        biased;
        accepted = tls.accept(stream, &limits) => accepted,
        _ = counters.gives_way_unasked(limits.connections_max) => None,
    };
    let Some(stream) = accepted else { return };
    let first = Bytes::new();
    if stream.get_ref().1.alpn_protocol() == Some(H2) {
        h2::serve(stream, first, client, handler, limits, counters, stopping).await;
    } else {
        connection::serve(stream, first, client, handler, limits, counters, stopping).await;
    }
}

/// Serves a connection in the clear to its end.
pub(crate) async fn plain<S, H>(
    mut stream: S,
    client: Client,
    handler: Arc<H>,
    limits: Limits,
    counters: Arc<Counters>,
    mut stopping: watch::Receiver<bool>,
) where
    S: Wire,
    H: Handler,
{
    let mut first = Bytes::new();
    let is_h2 = tokio::select! {
        biased;
        told = timeout(limits.head_timeout, speaks_h2(&mut stream, &mut first)) => told,
        // Nothing has been asked: there is nothing to finish.
        _ = stopping.wait_for(|stop| *stop) => return,
        _ = counters.gives_way_unasked(limits.connections_max) => return,
    };
    match is_h2 {
        // What HTTP/2 needs, a connection without it does not keep room for.
        Ok(Some(true)) => {
            let serving = h2::serve(stream, first, client, handler, limits, counters, stopping);
            Box::pin(serving).await;
        }
        Ok(Some(false)) => {
            connection::serve(stream, first, client, handler, limits, counters, stopping).await;
        }
        Ok(None) => {}
        Err(_) if first.is_empty() => {} // an idle client is no event
        Err(_) => {
            counters.timeouts.fetch_add(1, Relaxed);
        }
    }
}

/// Reads until it is clear whether `first` begins like HTTP/2; `None` when the client goes before.
async fn speaks_h2(stream: &mut (impl AsyncRead + Unpin), first: &mut Bytes) -> Option<bool> {
    loop {
        let came = poll_fn(|cx| poll_read_some(stream, cx)).await.ok()?;
        if came.is_empty() {
            return None;
        }
        // One read nearly always.
        *first = if first.is_empty() { came } else { [&first[..], &came[..]].concat().into() };
        let compared = first.len().min(PREFACE.len());
        if first.get(..compared) != PREFACE.get(..compared) {
            return Some(false);
        }
        if compared == PREFACE.len() {
            return Some(true);
        }
    }
}
