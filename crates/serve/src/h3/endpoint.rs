//! The UDP socket of a listener, and what QUIC may do on it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig};
use quinn::crypto::rustls::{NoInitialCipherSuite, QuicServerConfig};
use quinn::{
    EndpointConfig, IdleTimeout, Runtime as _, ServerConfig, TokioRuntime, TransportConfig, VarInt,
};
use ring::{hkdf, hmac};
use rt::Context;
use rt::listen::{self, ListenError};
use rt::secret::{self, SECRET_BYTES, SecretError};

use super::ids::{Ids, Seal};
use super::relay::{self, Formers};
use super::socket::Socket;
use crate::server::Limits;

/// The file of the state directory with the secret that [`Keys`] are made of.
const SECRET_FILE: &str = "quic-secret";

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

/// The secrets of an endpoint. With those of the process before, clients of that one are told at
/// once that their connections are gone, and addresses stay proved.
struct Keys {
    reset: Arc<hmac::Key>,
    /// Our connection identifiers are known by it: only of those a reset is sent.
    seal: Seal,
    token: Arc<hkdf::Prk>,
}

impl Keys {
    /// Those that this secret makes.
    fn new(secret: &[u8; SECRET_BYTES]) -> Self {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let of = |purpose: &[u8]| hmac::sign(&secret, purpose);
        let key = |purpose| Arc::new(hmac::Key::new(hmac::HMAC_SHA256, of(purpose).as_ref()));
        Self {
            reset: key(b"stateless resets"),
            seal: Seal(key(b"connection identifiers")),
            token: Arc::new(hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, of(b"tokens").as_ref())),
        }
    }
}

/// Why HTTP/3 cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum QuicError {
    /// The UDP socket cannot be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The secret of the state directory cannot be had.
    #[error("HTTP/3 has no secret: {path}")]
    Secret {
        /// Its file.
        path: PathBuf,
        /// Why.
        source: SecretError,
    },
    /// The TLS configuration lacks what QUIC needs: TLS 1.3 with AES-128-GCM.
    #[error("TLS is set up so that it cannot carry QUIC")]
    Tls(#[source] NoInitialCipherSuite),
    /// The system gives no random bytes.
    #[error("the system gives no random bytes for HTTP/3")]
    NoEntropy,
    /// The runtime does not take the socket.
    #[error("the UDP socket of HTTP/3 cannot be used")]
    Socket(#[source] io::Error),
}

/// A UDP socket that will speak QUIC. It hears nothing yet: a process before this one may do so.
#[derive(Debug)]
pub struct Quic {
    config: EndpointConfig,
    server: ServerConfig,
    socket: Arc<Socket>,
}

impl Quic {
    /// Binds `address`. `tls` offers `h3`; the secret is kept in the state directory; `congestion` is the name
    /// of a congestion control: `bbr`, or CUBIC. Needs a tokio runtime.
    ///
    /// # Errors
    /// When any of these cannot be had or used.
    pub fn bind(
        address: SocketAddr,
        tls: Arc<rustls::ServerConfig>,
        context: &Context,
        congestion: Option<&str>,
        limits: &Limits,
    ) -> Result<Self, QuicError> {
        let path = context.state_dir.join(SECRET_FILE);
        let secret = secret::of(&path).map_err(|source| QuicError::Secret { path, source })?;
        let keys = Keys::new(&secret);
        let tls = QuicServerConfig::try_from(tls).map_err(QuicError::Tls)?;
        let mut server = ServerConfig::with_crypto(Arc::new(tls));
        server
            .token_key(keys.token)
            .transport_config(Arc::new(transport(congestion, limits)))
            .max_incoming(INCOMING_MAX)
            .incoming_buffer_size(INCOMING_BYTES)
            .incoming_buffer_size_total(INCOMING_BYTES_ALL);
        let udp = TokioRuntime.wrap_udp_socket(listen::quic(&context.sockets, address)?);
        let udp = udp.map_err(QuicError::Socket)?;
        let (formers, mark) = Formers::take(&context.sockets, address, keys.seal.clone());
        let pipe = relay::pipe(&context.sockets, address, mark).map_err(QuicError::Socket)?;
        let mut config = EndpointConfig::new(keys.reset);
        let nonces = rt::clock::secret::<SECRET_BYTES>().ok_or(QuicError::NoEntropy)?;
        let (seal, shutdown) = (keys.seal, context.shutdown.clone());
        config.cid_generator(move || {
            let nonces = hmac::Key::new(hmac::HMAC_SHA256, &nonces);
            let (seal, shutdown) = (seal.clone(), shutdown.clone());
            Box::new(Ids { seal, mark, nonces, given: 0, shutdown })
        });
        Ok(Self { config, server, socket: Arc::new(Socket::new(udp, formers, pipe)) })
    }

    /// From here on it hears.
    ///
    /// # Errors
    /// When the kernel does not say where.
    pub(super) fn open(self) -> io::Result<(quinn::Endpoint, Arc<Socket>)> {
        let (abstract_socket, runtime) = (Arc::clone(&self.socket) as _, Arc::new(TokioRuntime));
        let endpoint = quinn::Endpoint::new_with_abstract_socket(
            self.config,
            Some(self.server),
            abstract_socket,
            runtime,
        )?;
        Ok((endpoint, self.socket))
    }

    /// Where it listens, with the port that port 0 was given.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        use quinn::AsyncUdpSocket as _;
        self.socket.local_addr()
    }
}

fn transport(congestion: Option<&str>, limits: &Limits) -> TransportConfig {
    let controller: Arc<dyn ControllerFactory + Send + Sync> = match congestion {
        Some("bbr") => Arc::new(BbrConfig::default()),
        _ => Arc::new(CubicConfig::default()),
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
