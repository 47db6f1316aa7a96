//! TLS towards clients: the host's certificates, chosen by the name that a client asks for.
//!
//! [`Certificates::load`] reads what `[[tls.certificate]]` names ([`load`] a file, [`names`] which
//! one answers for which name); [`Certificates::server_config`] is what a listener speaks TLS with.
//! All configs of a host share the certificates.
//!
//! TLS 1.2 and 1.3 by rustls on ring. No early data: whether a request may be replayed is not ours to
//! judge (RFC 8470).

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::NoServerSessionStorage;

mod load;
mod names;

pub use load::{Certificate, CertificateFiles, LoadError};
use names::ByName;

/// Why a host cannot speak TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A certificate cannot be used.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The library refuses.
    #[error("TLS cannot be set up")]
    Setup(#[source] rustls::Error),
}

/// The certificates of a host; a clone for each listener.
#[derive(Clone, Debug)]
pub struct Certificates {
    base: Arc<ServerConfig>,
}

impl Certificates {
    /// Reads all of `files`; the first is also shown to clients that name no host.
    pub fn load(files: &[CertificateFiles]) -> Result<Self, TlsError> {
        let loaded = files.iter().map(Certificate::load).collect::<Result<Vec<_>, _>>()?;
        let by_name = Arc::new(ByName::new(&loaded));
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().map_err(TlsError::Setup)?;
        let mut base = builder.with_no_client_auth().with_cert_resolver(by_name);
        base.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self { base: Arc::new(base) })
    }

    /// What a listener speaks TLS with; `alpn` are the protocols it has, the best first.
    pub fn server_config(&self, alpn: &[&[u8]]) -> Arc<ServerConfig> {
        let mut config = ServerConfig::clone(&self.base);
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        Arc::new(config)
    }
}
