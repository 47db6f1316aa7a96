//! The TLS handshake of an accepted connection.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::connection::Wire;
use crate::server::{Counters, Limits};

/// The stream inside, or nothing when the client fails or takes longer than it may for the head of
/// a request.
pub(crate) async fn accept(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    limits: &Limits,
    counters: &Counters,
) -> Option<TlsStream<TcpStream>> {
    let handshake = timeout(limits.head_timeout, TlsAcceptor::from(config).accept(stream)).await;
    if let Ok(Ok(stream)) = handshake {
        return Some(stream);
    }
    counters.handshakes_failed.fetch_add(1, Relaxed);
    match handshake {
        Ok(failed) => tracing::debug!(error = ?failed.err(), "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
    None
}

impl Wire for TlsStream<TcpStream> {
    fn reset(self) {
        self.into_inner().0.reset();
    }

    fn socket(&self) -> Option<&TcpStream> {
        Some(self.get_ref().0)
    }
}
