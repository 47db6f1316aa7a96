//! TLS towards masters: certificates are verified, always.
//!
//! Trusted are the roots of the system and, where the host's config names a file of them
//! (`[edge] upstream_ca`), those of a private authority. They are read when the first connection
//! needs them and kept until the process ends.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fill::Failure;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// What is spoken inside.
const ALPN: &[u8] = b"http/1.1";

/// Why the roots of `upstream_ca` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// The file cannot be read, or is not PEM.
    #[error("cannot read the certificates in {0}")]
    Read(PathBuf, #[source] rustls::pki_types::pem::Error),
    /// There is none in it.
    #[error("no certificate is in {0}")]
    Empty(PathBuf),
    /// One of them cannot be an authority's.
    #[error("a certificate in {0} cannot be used")]
    Unusable(PathBuf, #[source] rustls::Error),
}

/// Makes TLS connections.
#[derive(Debug)]
pub(crate) struct Tls {
    own: RootCertStore,
    config: OnceCell<Arc<ClientConfig>>,
}

impl Tls {
    /// With the roots of the system and those in the PEM file `ca`.
    pub(crate) fn new(ca: Option<&Path>) -> Result<Self, CaError> {
        let mut own = RootCertStore::empty();
        if let Some(file) = ca {
            let read = |error| CaError::Read(file.to_owned(), error);
            for certificate in CertificateDer::pem_file_iter(file).map_err(read)? {
                let added = own.add(certificate.map_err(read)?);
                added.map_err(|error| CaError::Unusable(file.to_owned(), error))?;
            }
            if own.is_empty() {
                return Err(CaError::Empty(file.to_owned()));
            }
        }
        Ok(Self { own, config: OnceCell::new() })
    }

    /// Speaks TLS over a connection with the host whose certificate has `name`. A failure comes with
    /// what exactly is wrong, for people.
    pub(crate) async fn connect(
        &self,
        stream: TcpStream,
        name: ServerName<'static>,
    ) -> Result<TlsStream<TcpStream>, (Failure, String)> {
        let roots = || (Failure::Tls, "no roots".to_owned());
        let config = self.config.get_or_try_init(|| config(self.own.clone())).await;
        let connector = TlsConnector::from(Arc::clone(config.map_err(|_| roots())?));
        let connecting = connector.connect(name, stream).await;
        connecting.map_err(|error| (failure_of(&error), error.to_string()))
    }
}

/// The roots of the system are files, so they are read off the workers.
async fn config(own: RootCertStore) -> Result<Arc<ClientConfig>, Failure> {
    let made = tokio::task::spawn_blocking(move || {
        let mut roots = own;
        let system = rustls_native_certs::load_native_certs();
        for error in &system.errors {
            let error: &dyn std::error::Error = error;
            tracing::warn!(error, "roots of the system cannot be read");
        }
        roots.add_parsable_certificates(system.certs);
        if roots.is_empty() {
            tracing::warn!("no roots are there: install ca-certificates, or set upstream_ca");
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let mut config = builder
            .with_safe_default_protocol_versions()
            .ok()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![ALPN.to_vec()];
        Some(Arc::new(config))
    });
    made.await.ok().flatten().ok_or(Failure::Tls)
}

/// What went wrong in a handshake.
fn failure_of(error: &io::Error) -> Failure {
    match error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => {
            Failure::TlsCertificate
        }
        Some(_) => Failure::Tls,
        // The connection broke, which is what servers do that do not like a handshake.
        None => Failure::Tls,
    }
}
