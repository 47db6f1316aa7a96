//! What hosts know each other by when one gives another a secret: a key of each host's own.
//!
//! A host makes its key, and a certificate that nobody else signs, when they are first needed, and keeps both
//! in `STATE_DIR/identity.pem`. Others know it by the digest of its public key ([`KeyDigest`]): who may
//! fetch certificates stands in the admin map (`node.NAME.identity`), where they are to be had, and
//! whose key is to be there, in the node map. So there is no authority to run, and nothing that expires;
//! whoever leaves the map is known no more.
//!
//! TLS 1.3 alone. The handshake proves that the other end has the key; names and times in its
//! certificate mean nothing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nodemap::KeyDigest;
use ring::digest;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring as provider, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};
use x509_parser::parse_x509_certificate;

use crate::file::{read_bounded, write_atomic_private};

/// Name of the file in the state directory.
const FILE: &str = "identity.pem";
/// Largest such file, bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// What the certificate says; nobody reads it.
const CERTIFICATE_NAME: &str = "cacheboy";

/// Why a host has no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file cannot be read or written.
    #[error("{0} cannot be read or written")]
    File(PathBuf, #[source] io::Error),
    /// It is none.
    #[error("{0} is no key with its certificate: move it away, and a new one is made")]
    Broken(PathBuf),
    /// No key can be made, or it cannot be used.
    #[error("no key can be made")]
    Make,
}

/// The key of this host, and its certificate.
#[derive(Debug)]
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    digest: KeyDigest,
}

impl Identity {
    /// The one in `state_dir`; made and written when there is none. Blocks.
    ///
    /// # Errors
    /// What stands in the way. A broken file is not replaced: others know this host by what was in it.
    pub fn open(state_dir: &Path) -> Result<Self, IdentityError> {
        let path = state_dir.join(FILE);
        match read_bounded(&path, FILE_BYTES_MAX) {
            Ok(pem) => Self::parse(&pem).ok_or(IdentityError::Broken(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let pem = make().ok_or(IdentityError::Make)?;
                let written = write_atomic_private(&path, pem.as_bytes());
                written.map_err(|error| IdentityError::File(path, error))?;
                Self::parse(pem.as_bytes()).ok_or(IdentityError::Make)
            }
            Err(error) => Err(IdentityError::File(path, error)),
        }
    }

    fn parse(pem: &[u8]) -> Option<Self> {
        let certificate = CertificateDer::from_pem_slice(pem).ok()?;
        let key = PrivateKeyDer::from_pem_slice(pem).ok()?;
        let digest = digest_of(&certificate)?;
        Some(Self { certificate, key, digest })
    }

    /// What others know it by.
    pub fn digest(&self) -> KeyDigest {
        self.digest
    }

    /// To listen with: whoever connects must show a key, which [`digest_of`] tells; that it is one of ours is
    /// for the caller to see.
    ///
    /// # Errors
    /// The key cannot be used.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, Error> {
        let provider = Arc::new(provider::default_provider());
        let verifier = Arc::new(AnyClient(Arc::clone(&provider)));
        let builder =
            ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13])?;
        let builder = builder.with_client_cert_verifier(verifier);
        let chain = vec![self.certificate.clone()];
        let mut config = builder.with_single_cert(chain, self.key.clone_key())?;
        // Everybody shows the key each time.
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// To connect with, to whoever has the key with this digest and nobody else.
    ///
    /// # Errors
    /// The key cannot be used.
    pub fn client_config(&self, server: KeyDigest) -> Result<Arc<ClientConfig>, Error> {
        let provider = Arc::new(provider::default_provider());
        let verifier = Arc::new(OneServer { digest: server, provider: Arc::clone(&provider) });
        let builder =
            ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13])?;
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let chain = vec![self.certificate.clone()];
        Ok(Arc::new(builder.with_client_auth_cert(chain, self.key.clone_key())?))
    }
}

/// A new key and its certificate in PEM.
fn make() -> Option<String> {
    let made = rcgen::generate_simple_self_signed([CERTIFICATE_NAME.to_owned()]).ok()?;
    Some(made.signing_key.serialize_pem() + &made.cert.pem())
}

/// The digest of the public key in a certificate.
pub fn digest_of(certificate: &CertificateDer<'_>) -> Option<KeyDigest> {
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    let digest = digest::digest(&digest::SHA256, parsed.public_key().raw);
    digest.as_ref().try_into().ok().map(KeyDigest)
}

/// Takes every key that a client proves to have.
#[derive(Debug)]
struct AnyClient(Arc<CryptoProvider>);

impl ClientCertVerifier for AnyClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Takes the one server whose key has this digest.
#[derive(Debug)]
struct OneServer {
    digest: KeyDigest,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for OneServer {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match digest_of(certificate) {
            Some(digest) if digest == self.digest => Ok(ServerCertVerified::assertion()),
            _ => Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn only_tls13() -> Error {
    Error::PeerIncompatible(rustls::PeerIncompatible::Tls12NotOffered)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rustls::{ClientConnection, ServerConnection};

    use super::*;

    /// Shakes hands; gives whom the server sees.
    fn meet(
        client: &Identity,
        expected: KeyDigest,
        server: &Identity,
    ) -> Result<Option<KeyDigest>, Error> {
        let config = client.client_config(expected)?;
        let name = ServerName::try_from("any.example").unwrap();
        let mut client = ClientConnection::new(config, name)?;
        let mut server = ServerConnection::new(server.server_config()?)?;
        while client.is_handshaking() || server.is_handshaking() {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut &bytes[..]).unwrap();
            server.process_new_packets()?;
            bytes.clear();
            server.write_tls(&mut bytes).unwrap();
            client.read_tls(&mut &bytes[..]).unwrap();
            client.process_new_packets()?;
        }
        Ok(server.peer_certificates().and_then(|all| digest_of(all.first()?)))
    }

    #[test]
    fn hosts_know_each_other_by_their_keys() {
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [a, b] = [&dirs[0], &dirs[1]].map(|dir| Identity::open(dir.path()).unwrap());
        assert_ne!(a.digest(), b.digest());
        assert_eq!(Identity::open(dirs[0].path()).unwrap().digest(), a.digest(), "it stays");
        let mode = std::fs::metadata(dirs[0].path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(meet(&a, b.digest(), &b), Ok(Some(a.digest())));
        let error = meet(&a, a.digest(), &b).unwrap_err();
        assert_eq!(
            error,
            Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)
        );
        std::fs::write(dirs[0].path().join(FILE), "x").unwrap();
        assert!(matches!(Identity::open(dirs[0].path()), Err(IdentityError::Broken(_))));
    }

    #[test]
    fn who_shows_no_key_does_not_get_in() {
        let dir = tempfile::tempdir().unwrap();
        let server = Identity::open(dir.path()).unwrap();
        let provider = Arc::new(provider::default_provider());
        let verifier =
            Arc::new(OneServer { digest: server.digest(), provider: Arc::clone(&provider) });
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .unwrap();
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let config = Arc::new(builder.with_no_client_auth());
        let name = ServerName::try_from("any.example").unwrap();
        let mut client = ClientConnection::new(config, name).unwrap();
        let mut server = ServerConnection::new(server.server_config().unwrap()).unwrap();
        let mut refused = None;
        while refused.is_none() {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut &bytes[..]).unwrap();
            refused = server.process_new_packets().err();
            bytes.clear();
            server.write_tls(&mut bytes).unwrap();
            client.read_tls(&mut &bytes[..]).unwrap();
            let _ = client.process_new_packets();
        }
        assert_eq!(refused, Some(Error::NoCertificatesPresented));
    }
}
