//! Probes over TLS, against certificates good and bad.

use std::net::SocketAddr;
use std::sync::Arc;

use health_proto::probe::{Expect, HttpQuestion, Method, Place, Scheme};
use health_proto::{Failure, Probe, Question, Target};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::ProbeParams;
use crate::probe::Prober;

/// An authority of the test's own.
struct Authority {
    folder: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { folder, issuer }
    }

    fn prober(&self) -> Prober {
        let ca = Some(self.folder.path().join("ca.pem"));
        Prober::new(ProbeParams { ca, ..ProbeParams::default() }).unwrap()
    }

    /// A node that says `up` to whoever speaks TLS with it, with a certificate that ends in this year.
    async fn node(&self, name: &str, ends: i32) -> SocketAddr {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(ends, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let chain = vec![certificate.der().clone()];
        let config = builder.with_no_client_auth().with_single_cert(chain, key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.55.0.3:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else { break };
                    head.push(byte);
                }
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nup\n";
                // A probe of the certificate alone is gone by now.
                let _ = stream.write_all(answer).await;
            }
        });
        address
    }
}

fn probe(at: SocketAddr, question: Question) -> Probe {
    let target = Target::Outside { name: "o".parse().unwrap() };
    Probe { id: 1, target, place: Place::Address(at), question, timeout_ms: 10_000 }
}

fn of_certificate(at: SocketAddr) -> Probe {
    probe(at, Question::Tls { name: "a.example".parse().unwrap(), days_min: 7 })
}

#[tokio::test]
async fn certificates_must_have_the_name_hold_now_and_be_of_a_known_authority() {
    let authority = Authority::new("ours");
    let prober = authority.prober();
    let failure = async |at| prober.probe(&of_certificate(at)).await.unwrap_err().failure;
    let good = authority.node("a.example", 2100).await;
    let passed = prober.probe(&of_certificate(good)).await.unwrap();
    // The first of January 2100.
    assert_eq!(passed.seen.certificate_end_ms, Some(4_102_444_800_000));

    let certificate = |why: &str| Failure::Certificate(why.into());
    let expired = authority.node("a.example", 2020).await;
    assert_eq!(failure(expired).await, certificate("expired"));
    let other = authority.node("b.example", 2100).await;
    assert_eq!(failure(other).await, certificate("is for other names"));
    let foreign = Authority::new("theirs").node("a.example", 2100).await;
    assert_eq!(failure(foreign).await, certificate("of an unknown authority"));
}

#[tokio::test]
async fn a_page_is_asked_for_over_tls_by_the_name_of_its_host() {
    let authority = Authority::new("ours");
    let prober = authority.prober();
    let at = authority.node("a.example", 2100).await;
    let question = |host: &str| {
        Question::Http(HttpQuestion {
            scheme: Scheme::Https,
            method: Method::Get,
            host: host.into(),
            sni: None,
            path: "/".into(),
            range: None,
            hash: false,
            expect: Expect { length: Some(3), ..Expect::default() },
        })
    };
    let passed = prober.probe(&probe(at, question("a.example:443"))).await.unwrap();
    assert!(passed.seen.certificate_end_ms.is_some());
    let wrong = prober.probe(&probe(at, question("b.example"))).await.unwrap_err();
    assert_eq!(wrong.failure.word(), "certificate");
}
