//! The UDP socket of a listener, and what QUIC may do on it.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig};
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{EndpointConfig, IdleTimeout, ServerConfig, TokioRuntime, TransportConfig, VarInt};
use ring::{hkdf, hmac};

use crate::server::Limits;

/// Requests of one client at once (RFC 9114 section 6.1 wants 100 at least).
const STREAMS_MAX: u32 = 100;
/// Its control stream, those of QPACK, and a few that we do not know.
const CONTROL_STREAMS_MAX: u32 = 16;
/// What a client may send of one request, and of all, before we have read it: requests are small.
const STREAM_BYTES: u32 = 128 * 1024;
const CONNECTION_BYTES: u32 = 512 * 1024;
/// Handshakes that wait for us to look at them, and bytes of their datagrams.
const INCOMING_MAX: usize = 1024;
const INCOMING_BYTES: u64 = 64 * 1024;
const INCOMING_BYTES_ALL: u64 = 8 * 1024 * 1024;

/// Which congestion control a listener uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// RFC 9438.
    #[default]
    Cubic,
    /// BBR, version 1, as quinn has it: marked experimental there.
    Bbr,
}

/// The secrets of an endpoint. With those of the process before, clients of that one are told at
/// once that their connections are gone, and addresses stay proved.
#[derive(Clone)]
pub struct Keys {
    reset: Arc<hmac::Key>,
    token: Arc<hkdf::Prk>,
}

/// Bytes of the secret that [`Keys`] are made of.
pub const SECRET_BYTES: usize = 64;

impl Keys {
    /// Those that this secret makes.
    pub fn new(secret: &[u8; SECRET_BYTES]) -> Self {
        let (reset, token) = secret.split_at(SECRET_BYTES / 2);
        Self {
            reset: Arc::new(hmac::Key::new(hmac::HMAC_SHA256, reset)),
            token: Arc::new(hkdf::Salt::new(hkdf::HKDF_SHA256, b"cacheboy").extract(token)),
        }
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys")
    }
}

/// Why HTTP/3 cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum QuicError {
    /// QUIC needs TLS 1.3 with AES-128-GCM.
    #[error("the TLS configuration cannot carry QUIC")]
    Tls(#[source] quinn::crypto::rustls::NoInitialCipherSuite),
    /// The socket cannot be used.
    #[error("the UDP socket cannot be used")]
    Socket(#[source] io::Error),
}

/// A UDP socket that speaks QUIC.
#[derive(Debug)]
pub struct Quic {
    pub(super) endpoint: quinn::Endpoint,
}

impl Quic {
    /// On a bound socket, with `tls` that offers `h3`; must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When the socket or the TLS configuration cannot be used.
    pub fn new(
        socket: UdpSocket,
        tls: Arc<rustls::ServerConfig>,
        keys: &Keys,
        congestion: Congestion,
        limits: &Limits,
    ) -> Result<Self, QuicError> {
        let tls = QuicServerConfig::try_from(tls).map_err(QuicError::Tls)?;
        let mut server = ServerConfig::with_crypto(Arc::new(tls));
        server
            .token_key(Arc::clone(&keys.token) as _)
            .transport_config(Arc::new(transport(congestion, limits)))
            .max_incoming(INCOMING_MAX)
            .incoming_buffer_size(INCOMING_BYTES)
            .incoming_buffer_size_total(INCOMING_BYTES_ALL);
        let config = EndpointConfig::new(Arc::clone(&keys.reset) as _);
        let runtime = Arc::new(TokioRuntime);
        let endpoint = quinn::Endpoint::new(config, Some(server), socket, runtime);
        Ok(Self { endpoint: endpoint.map_err(QuicError::Socket)? })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }
}

fn transport(congestion: Congestion, limits: &Limits) -> TransportConfig {
    let controller: Arc<dyn ControllerFactory + Send + Sync> = match congestion {
        Congestion::Cubic => Arc::new(CubicConfig::default()),
        Congestion::Bbr => Arc::new(BbrConfig::default()),
    };
    // As over TCP an idle connection ends between once and twice the head timeout; QUIC's own timer
    // is for clients that are gone.
    let idle = limits.head_timeout.saturating_mul(2).max(Duration::from_millis(1));
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(STREAMS_MAX))
        .max_concurrent_uni_streams(VarInt::from_u32(CONTROL_STREAMS_MAX))
        .stream_receive_window(VarInt::from_u32(STREAM_BYTES))
        .receive_window(VarInt::from_u32(CONNECTION_BYTES))
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(IdleTimeout::try_from(idle).ok())
        .congestion_controller_factory(controller);
    transport
}
