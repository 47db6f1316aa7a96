//! What comes of TLS handshakes, as listeners count them.
#![allow(clippy::unwrap_used, missing_docs)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use rt::tls::{CertificateFiles, Certificates};
use rt::{Metrics, Shutdown};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, version};
use serve::{Body, Client, Handler, Limits, Listener, RequestBody, Tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

struct Hello;

impl Handler for Hello {
    type Visitor = Client;

    fn greet(&self, client: Client) -> Client {
        client
    }

    async fn handle(&self, _: Request<RequestBody>, client: &Client) -> Response<Body> {
        assert!(client.is_secure);
        Response::new(Body::bytes("hello\n".into()))
    }
}

struct Server {
    address: SocketAddr,
    certificates: Certificates,
    roots: RootCertStore,
    dir: tempfile::TempDir,
}

impl Server {
    async fn start(limits: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let files = CertificateFiles { chain: dir.path().join("pem"), key: dir.path().join("key") };
        let signed = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        std::fs::write(&files.chain, signed.cert.pem()).unwrap();
        std::fs::write(&files.key, signed.signing_key.serialize_pem()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&files.chain).unwrap()).unwrap();
        let certificates =
            Certificates::load(&[files], false, dir.path(), &Metrics::new()).unwrap();
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let tls = Some(Tls::new(&certificates, &[b"http/1.1"]));
        let listeners = vec![Listener { tls, ..socket.into() }];
        let (handler, shutdown) = (Arc::new(Hello), Shutdown::default());
        tokio::spawn(serve::http(listeners, handler, limits, Arc::default(), shutdown));
        Self { address, certificates, roots, dir }
    }

    fn client(&self, version: &'static SupportedProtocolVersion) -> TlsConnector {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        TlsConnector::from(Arc::new(config))
    }

    /// The answer to a request over a connection of its own.
    async fn ask(&self, client: &TlsConnector, name: &'static str) -> std::io::Result<String> {
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from(name).unwrap();
        let mut stream = client.connect(name, stream).await?;
        let request = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    /// From `/status`.
    fn counted(&self, kind: &str) -> String {
        self.certificates.handshakes_status()[kind].to_string()
    }
}

#[tokio::test]
async fn handshakes_are_counted_by_what_came_of_them() {
    let server = Server::start(Limits::default()).await;
    for version in [&version::TLS12, &version::TLS13] {
        let client = server.client(version);
        for _ in 0..3 {
            let answer = server.ask(&client, "a.example").await.unwrap();
            assert!(answer.ends_with("hello\n"), "{answer}");
        }
        server.ask(&client, "strange.example").await.unwrap_err();
    }
    let mut garbage = TcpStream::connect(server.address).await.unwrap();
    garbage.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await.unwrap();
    // An alert; a reset may overtake it.
    let _ = garbage.read_to_end(&mut Vec::new()).await;
    assert_eq!(server.counted("handshakes"), r#"{"failed":1,"ok":6,"timeout":0,"unknown-name":2}"#);
    assert_eq!(
        server.counted("sessions"),
        r#"{"1.2":{"full":1,"resumed":2},"1.3":{"full":1,"resumed":2}}"#
    );
    drop(server.dir);
}

#[tokio::test]
async fn a_handshake_that_takes_too_long_is_given_up() {
    let limits = Limits { head_timeout: Duration::from_millis(50), ..Limits::default() };
    let server = Server::start(limits).await;
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    slow.write_all(&[22, 3, 1]).await.unwrap();
    assert_eq!(slow.read(&mut [0; 9]).await.unwrap_or(0), 0);
    let counted = server.counted("handshakes");
    assert_eq!(counted, r#"{"failed":0,"ok":0,"timeout":1,"unknown-name":0}"#);
}
