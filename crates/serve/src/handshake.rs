//! The TLS handshake of an accepted connection.

use std::sync::Arc;

use rt::tls::{Certificates, Handshakes};
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::connection::Wire;
use crate::server::Limits;

/// What a listener speaks TLS with.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ServerConfig>,
    handshakes: Handshakes,
}

impl Tls {
    /// With the certificates of the host; `alpn` are the protocols, the best first.
    pub fn new(certificates: &Certificates, alpn: &[&[u8]]) -> Self {
        let handshakes = certificates.handshakes().clone();
        Self { config: certificates.server_config(alpn), handshakes }
    }

    /// The stream inside, or nothing when the client fails or takes longer than it may for the head
    /// of a request.
    pub(crate) async fn accept(
        self,
        stream: TcpStream,
        limits: &Limits,
    ) -> Option<TlsStream<TcpStream>> {
        let handshake = TlsAcceptor::from(self.config).accept(stream);
        match timeout(limits.head_timeout, handshake).await {
            Ok(Ok(stream)) => {
                self.handshakes.note_done(stream.get_ref().1);
                Some(stream)
            }
            Ok(Err(error)) => {
                self.handshakes.note_failed(&error);
                tracing::debug!(%error, "a TLS handshake failed");
                None
            }
            Err(_) => {
                self.handshakes.note_timeout();
                tracing::debug!("a TLS handshake took too long");
                None
            }
        }
    }
}

impl Wire for TlsStream<TcpStream> {
    fn reset(self) {
        self.into_inner().0.reset();
    }

    fn socket(&self) -> Option<&TcpStream> {
        Some(self.get_ref().0)
    }
}
