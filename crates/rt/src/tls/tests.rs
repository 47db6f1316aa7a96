//! Certificates as clients meet them: handshakes in memory.

use std::path::PathBuf;

use rcgen::{CertificateParams, CertifiedKey as Made, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind,
    ServerConnection, SignatureScheme,
};

use super::*;

/// A client's verifier that takes any certificate: the tests look at it themselves.
#[derive(Debug)]
struct Anything;

impl ServerCertVerifier for Anything {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

fn client(versions: &[&'static rustls::SupportedProtocolVersion]) -> Arc<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(versions).unwrap().dangerous();
    let verifier = Arc::new(Anything);
    Arc::new(builder.with_custom_certificate_verifier(verifier).with_no_client_auth())
}

/// What a client sees: the names it is shown and how the handshake went.
fn handshake(
    server: &Arc<ServerConfig>,
    client: &Arc<ClientConfig>,
    name: &str,
) -> Result<(CertificateDer<'static>, HandshakeKind), rustls::Error> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::clone(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::clone(server)).unwrap();
    while client.is_handshaking() || server.is_handshaking() || client.wants_write() {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let mut rest = &wire[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
        }
        // Of a failure the client hears by an alert.
        let _ = server.process_new_packets();
        move_to_client(&mut server, &mut client)?;
    }
    // Tickets of TLS 1.3 come after it.
    move_to_client(&mut server, &mut client)?;
    let shown = client.peer_certificates().unwrap()[0].clone().into_owned();
    Ok((shown, client.handshake_kind().unwrap()))
}

fn move_to_client(
    server: &mut ServerConnection,
    client: &mut ClientConnection,
) -> Result<(), rustls::Error> {
    let mut wire = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut wire).unwrap();
    }
    let mut rest = &wire[..];
    while !rest.is_empty() {
        client.read_tls(&mut rest).unwrap();
        client.process_new_packets()?;
    }
    Ok(())
}

/// A host with certificates in files.
struct Host {
    dir: tempfile::TempDir,
    metrics: Metrics,
    files: Vec<CertificateFiles>,
}

impl Host {
    fn new() -> Self {
        let (dir, metrics) = (tempfile::tempdir().unwrap(), Metrics::new());
        Self { dir, metrics, files: Vec::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes the certificate number `at` for `names`, or makes it anew.
    fn certificate(&mut self, at: usize, names: &[&str]) -> CertificateDer<'static> {
        let Made { cert, signing_key } = made(names);
        let (chain, key) = (self.path(&format!("{at}.pem")), self.path(&format!("{at}.key")));
        std::fs::write(&chain, cert.pem()).unwrap();
        std::fs::write(&key, signing_key.serialize_pem()).unwrap();
        if at == self.files.len() {
            self.files.push(CertificateFiles { chain, key });
        }
        cert.der().clone()
    }

    fn load(&self) -> Certificates {
        Certificates::load(&self.files, false, self.dir.path(), &self.metrics).unwrap()
    }
}

fn made(names: &[&str]) -> Made<KeyPair> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let signing_key = KeyPair::generate().unwrap();
    let cert = CertificateParams::new(names).unwrap().self_signed(&signing_key).unwrap();
    Made { cert, signing_key }
}

#[test]
fn the_name_decides_and_a_strange_one_gets_an_alert() {
    let mut host = Host::new();
    let first = host.certificate(0, &["download.videolan.example", "videolan.cdn.example"]);
    let wild = host.certificate(1, &["*.cdn.example", "cdn.example"]);
    let exact = host.certificate(2, &["kernel.cdn.example"]);
    let (config, client) = (host.load().server_config(&[]), client(rustls::ALL_VERSIONS));
    for (name, expected) in [
        ("download.videolan.example", &first),
        ("DOWNLOAD.Videolan.example", &first),
        ("videolan.cdn.example", &first),
        ("kernel.cdn.example", &exact),
        ("other.cdn.example", &wild),
        ("cdn.example", &wild),
        // By address a client names no host.
        ("192.0.2.1", &first),
    ] {
        let (shown, _) = handshake(&config, &client, name).unwrap();
        assert!(shown == *expected, "{name}");
    }
    for name in ["a.other.cdn.example", "videolan.example", "example"] {
        let refused = handshake(&config, &client, name).unwrap_err();
        assert_eq!(refused, rustls::Error::AlertReceived(AlertDescription::AccessDenied), "{name}");
    }
    assert_eq!(host.metrics.counter(&metric::UNKNOWN_NAMES, &[]).get(), 3);
}

#[test]
fn a_client_comes_back_by_its_ticket_after_a_restart_with_either_version() {
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut host = Host::new();
        host.certificate(0, &["a.example"]);
        let client = client(&[version]);
        let mut kinds = Vec::new();
        for _ in 0..2 {
            // Each time another process: nothing but the files is the same.
            let config = host.load().server_config(&[b"http/1.1"]);
            kinds.push(handshake(&config, &client, "a.example").unwrap().1);
        }
        assert_eq!(kinds, [HandshakeKind::Full, HandshakeKind::Resumed], "{version:?}");
    }
}

#[test]
fn changed_files_are_taken_over_whole_or_not_at_all() {
    let mut host = Host::new();
    let old = host.certificate(0, &["a.example"]);
    host.certificate(1, &["b.example"]);
    let certificates = host.load();
    let config = certificates.server_config(&[]);
    let shown = |name| {
        let client = client(rustls::ALL_VERSIONS);
        handshake(&config, &client, name).map(|(shown, _)| shown)
    };
    let mut watch = Watch::default();
    let reloads = |word| host_reloads(&certificates, word);

    // Nothing changed, however often it is looked.
    watch.look(&certificates.shared);
    watch.look(&certificates.shared);
    assert_eq!((reloads("good"), reloads("failed")), (0, 0));

    // One of two is broken: the other is not taken over either.
    let new = host.certificate(0, &["a.example", "c.example"]);
    std::fs::write(&host.files[1].chain, "broken").unwrap();
    watch.look(&certificates.shared);
    assert_eq!(reloads("failed"), 0, "they may still be written");
    watch.look(&certificates.shared);
    watch.look(&certificates.shared);
    assert_eq!(reloads("failed"), 1, "once for each state of the files");
    assert!(shown("a.example").unwrap() == old);
    let error = certificates.reload().unwrap_err().to_string();
    assert!(error.contains(host.files[1].chain.to_str().unwrap()), "{error}");

    // Mended.
    host.certificate(1, &["b.example"]);
    watch.look(&certificates.shared);
    watch.look(&certificates.shared);
    assert_eq!(reloads("good"), 1);
    assert!(shown("a.example").unwrap() == new);
    assert!(shown("c.example").unwrap() == new);
    let status = certificates.status();
    assert_eq!(status[0]["names"], serde_json::json!(["a.example", "c.example"]));
    assert_eq!(status[0]["not_after"], "4096-01-01 00:00:00Z");
    assert!(host.metrics.gauge(&metric::EXPIRY, &["a.example"]).get() > 0);
}

fn host_reloads(certificates: &Certificates, word: &str) -> u64 {
    certificates.shared.metrics.counter(&metric::RELOADS, &[word]).get()
}

#[test]
fn what_is_wrong_with_files_is_said() {
    let mut host = Host::new();
    host.certificate(0, &["a.example"]);
    host.certificate(1, &["b.example"]);
    let (chain, key) = (host.files[0].chain.clone(), host.files[0].key.clone());
    let (other, none, text) = (host.files[1].key.clone(), host.path("none"), host.path("text"));
    std::fs::write(&text, "no PEM here").unwrap();
    std::fs::write(
        host.path("odd"),
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    for (chain, key, start) in [
        (&none, &key, "cannot read "),
        (&chain, &none, "cannot read "),
        (&text, &key, "no certificate is in "),
        (&key, &key, "no certificate is in "),
        (&host.path("odd"), &key, "the first certificate in "),
        (&chain, &text, "no private key is in "),
        (&chain, &other, "the key in "),
    ] {
        let files = CertificateFiles { chain: chain.clone(), key: key.clone() };
        let error = Certificate::load(&files).unwrap_err().to_string();
        assert!(error.starts_with(start), "{error}");
        assert!(error.contains(": "), "{error}");
    }
    assert!(is_open_to_others(&key));
}
