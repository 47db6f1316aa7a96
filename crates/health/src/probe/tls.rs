//! TLS of probes: the certificate must have the name, hold now, and come from a known authority.
//!
//! Known are the roots of the system, read when first needed, and those of `[health.probe] ca`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use health_proto::Failure;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use x509_parser::parse_x509_certificate;

use super::Trail;

/// Why the authorities of `ca` cannot be used.
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

    /// Speaks TLS with whoever has a certificate for `name`.
    pub(crate) async fn open(
        &self,
        stream: TcpStream,
        name: &str,
    ) -> Result<TlsStream<TcpStream>, Failure> {
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| Failure::Tls(format!("{name} is no name of a host")))?;
        let config = self.config.get_or_try_init(|| config(self.own.clone())).await?;
        let connecting = TlsConnector::from(Arc::clone(config)).connect(name, stream).await;
        connecting.map_err(|error| failure_of(&error))
    }

    /// The same, and notes when that ends.
    pub(super) async fn connect(
        &self,
        stream: TcpStream,
        name: &str,
        trail: &mut Trail,
    ) -> Result<TlsStream<TcpStream>, Failure> {
        let stream = self.open(stream, name).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let end_s = shown.and_then(|der| {
            let (_, certificate) = parse_x509_certificate(der).ok()?;
            u64::try_from(certificate.validity().not_after.timestamp()).ok()
        });
        trail.seen.certificate_end_ms = end_s.map(|end_s| end_s.saturating_mul(1000));
        Ok(stream)
    }
}

/// The roots of the system are files, so they are read off the workers.
async fn config(own: RootCertStore) -> Result<Arc<ClientConfig>, Failure> {
    let made = tokio::task::spawn_blocking(move || {
        let mut roots = own;
        let system = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(system.certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().ok()?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // A probe must see the certificate, so no session is resumed.
        config.resumption = rustls::client::Resumption::disabled();
        Some(Arc::new(config))
    });
    let made = made.await.ok().flatten();
    made.ok_or_else(|| Failure::Tls("it cannot be spoken here".into()))
}

/// What went wrong in a handshake.
fn failure_of(error: &io::Error) -> Failure {
    use rustls::Error::{InvalidCertificate, NoCertificatesPresented};
    match error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()) {
        Some(InvalidCertificate(why)) => Failure::Certificate(in_words(why)),
        Some(NoCertificatesPresented) => Failure::Certificate("none is shown".into()),
        Some(error) => Failure::Tls(error.to_string()),
        None if error.kind() == io::ErrorKind::UnexpectedEof => Failure::Closed,
        None => Failure::Tls(error.kind().to_string()),
    }
}

fn in_words(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "expired".into(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "does not hold yet".into()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "is for other names".into()
        }
        CertificateError::UnknownIssuer => "of an unknown authority".into(),
        other => format!("{other:?}"),
    }
}
