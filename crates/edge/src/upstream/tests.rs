//! Requests to sources that do what a test tells them, on 127.0.0.1.

#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // a test that cannot go on fails

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame};
use nodemap::{HostPattern, Master, NodeMap};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rt::Metrics;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use store::Key;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::destination::Destination;
use super::endpoint::{Definition, Kind};
use super::tls::CaError;
use super::*;
use crate::project::Projects;

/// A connection that was made to a source, and what is to be answered over it.
struct Origin {
    listener: TcpListener,
    url: String,
}

impl Origin {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        Self { listener, url }
    }

    async fn accept(&self) -> TcpStream {
        self.listener.accept().await.unwrap().0
    }
}

/// Reads the head of a request.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

async fn answer(stream: &mut (impl AsyncWrite + Unpin), length: usize, sent: usize) {
    let head = format!("HTTP/1.1 200 X\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b'x'; sent]).await.unwrap();
}

/// A source whose connections are never made, until room is made for them.
async fn deaf() -> (TcpListener, TcpStream) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let filler = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (listener, filler)
}

fn node_map(masters: &[Master]) -> NodeMap {
    let mut map = nodemap::testing::node_map(1);
    let mut project = nodemap::testing::project();
    project.hosts = vec![HostPattern::Any];
    let named = masters.iter().enumerate();
    project.masters = named.map(|(n, m)| (format!("m{n}").parse().unwrap(), m.clone())).collect();
    map.map.projects = [("p".parse().unwrap(), project)].into();
    map
}

fn project(masters: &[Master]) -> Arc<Project> {
    let me = "edge1".parse().unwrap();
    let all = Projects::new(&node_map(masters), &Projects::default(), &me, &Metrics::new(), 1);
    Arc::clone(all.of_host("any.example").unwrap())
}

fn of_urls(urls: &[&str]) -> Arc<Project> {
    let masters: Vec<_> = urls.iter().map(|url| nodemap::testing::master(*url)).collect();
    project(&masters)
}

fn upstream(ca: Option<&Path>) -> Upstream {
    let timeouts = Timeouts {
        connect: Duration::from_secs(20),
        first_byte: Duration::from_secs(20),
        between_bytes: Duration::from_millis(300),
    };
    Upstream::new(timeouts, Tls::new(ca).unwrap(), rt::Shutdown::default())
}

async fn get(upstream: &Upstream, project: &Project, source: MasterId) -> Result<Answer, Failure> {
    let target = Target::parse(b"/a").unwrap();
    upstream.ask(Call::new(project, source, &Method::GET, &target, HeaderMap::new())).await
}

async fn read(answer: &mut Answer) -> u64 {
    let mut bytes = 0;
    while let Some(data) = answer.body.next().await.unwrap() {
        bytes += u64::try_from(data.len()).unwrap();
    }
    bytes
}

#[tokio::test]
async fn the_connection_with_the_largest_burst_is_used_first() {
    let (origin, upstream) = (Origin::new().await, upstream(None));
    let project = of_urls(&[&origin.url]);
    let mut streams = Vec::new();
    let mut answers = Vec::new();
    for length in [100, 20_000, 3] {
        let served = async {
            let mut stream = origin.accept().await;
            head(&mut stream).await;
            answer(&mut stream, length, length).await;
            stream
        };
        let (stream, answered) = tokio::join!(served, get(&upstream, &project, 0));
        streams.push(stream);
        answers.push(answered.unwrap());
    }
    for answer in &mut answers {
        read(answer).await;
    }
    drop(answers);
    let served = async {
        head(&mut streams[1]).await;
        answer(&mut streams[1], 5, 5).await;
    };
    let (_, answered) = tokio::join!(served, get(&upstream, &project, 0));
    assert_eq!(read(&mut answered.unwrap()).await, 5);
    let endpoint = project.sources.get(0).unwrap();
    assert_eq!((endpoint.opened.get(), endpoint.sweep(clock::now())), (3, 3));
}

#[tokio::test]
async fn the_end_of_a_broken_off_body_is_read_for_the_sake_of_the_connection() {
    let (origin, upstream) = (Origin::new().await, upstream(None));
    let project = of_urls(&[&origin.url]);
    let endpoint = project.sources.get(0).unwrap();
    for (length, kept) in [(60_000, 1), (600_000, 0)] {
        let served = async {
            let mut stream = origin.accept().await;
            head(&mut stream).await;
            answer(&mut stream, length, 10).await;
            stream
        };
        let (mut stream, answered) = tokio::join!(served, get(&upstream, &project, 0));
        drop(answered.unwrap());
        assert_eq!(endpoint.turns.taken(), kept, "a drain is a request still");
        // Fails when the other end is closed.
        let _ = stream.write_all(&vec![b'x'; length - 10]).await;
        while endpoint.turns.taken() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(endpoint.sweep(clock::now()), kept, "{length}");
        drop(endpoint.pool.take(clock::now()));
    }
}

#[tokio::test]
async fn what_must_not_be_repeated_is_sent_once_over_a_new_connection() {
    let (origin, upstream) = (Origin::new().await, upstream(None));
    let project = of_urls(&[&origin.url]);
    let served = async {
        let mut stream = origin.accept().await;
        head(&mut stream).await;
        answer(&mut stream, 5, 5).await;
        stream
    };
    let (kept, answered) = tokio::join!(served, get(&upstream, &project, 0));
    read(&mut answered.unwrap()).await;
    let target = Target::parse(b"/a").unwrap();
    let body = Full::new(Bytes::from_static(b"content")).map_err(|never| match never {}).boxed();
    let call = Call::new(&project, 0, &Method::POST, &target, HeaderMap::new());
    let served = async {
        let mut stream = origin.accept().await;
        let head = head(&mut stream).await;
        assert!(head.starts_with("POST /a HTTP/1.1\r\n"), "{head}");
        let mut content = [0; 7];
        stream.read_exact(&mut content).await.unwrap();
        assert_eq!(&content, b"content");
        // The connection ends without an answer.
    };
    let asking = upstream.ask(Call { body: Some(body), ..call });
    let ((), answered) = tokio::join!(served, asking);
    assert_eq!(answered.unwrap_err(), Failure::Connect);
    let endpoint = project.sources.get(0).unwrap();
    assert_eq!((endpoint.requests.get(), endpoint.opened.get()), (2, 2));
    drop(kept);
}

/// Content that begins and does not go on.
struct Stalled(Option<Bytes>);

impl Body for Stalled {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.0.take() {
            Some(data) => Poll::Ready(Some(Ok(Frame::data(data)))),
            None => Poll::Pending,
        }
    }
}

#[tokio::test]
async fn content_that_pauses_too_long_is_the_fault_of_the_client() {
    let (origin, upstream) = (Origin::new().await, upstream(None));
    let project = of_urls(&[&origin.url]);
    let target = Target::parse(b"/a").unwrap();
    let call = Call::new(&project, 0, &Method::POST, &target, HeaderMap::new());
    let body = Some(Stalled(Some(Bytes::from_static(b"co"))).boxed());
    let (_stream, answered) = tokio::join!(origin.accept(), upstream.ask(Call { body, ..call }));
    assert_eq!(answered.unwrap_err(), Failure::Client);
    assert!(!Failure::Client.blames_master());
}

#[tokio::test]
async fn an_address_that_does_not_answer_costs_a_quarter_of_a_second() {
    let (deaf, filler) = deaf().await;
    let (origin, upstream) = (Origin::new().await, upstream(None));
    let destination = Destination {
        place: destination::Place::Addresses(vec![
            deaf.local_addr().unwrap(),
            origin.listener.local_addr().unwrap(),
        ]),
        ..Destination::of_url(&origin.url, None).unwrap()
    };
    let definition = Definition {
        name: "m1".parse().unwrap(),
        kind: Kind::Master,
        destination: Some(destination),
        requests_max: 1,
        rate: None,
    };
    let endpoint = Endpoint::new(&"p".parse().unwrap(), definition, &Metrics::new());
    let patience = Duration::from_secs(20);
    let made = connect(&endpoint, &upstream.tls, patience).await.unwrap();
    assert_eq!(endpoint.opened.get(), 1);
    // The other one comes late, and is kept.
    drop(filler);
    deaf.accept().await.unwrap();
    deaf.accept().await.unwrap();
    while endpoint.sweep(clock::now()) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(endpoint.opened.get(), 2);
    drop(made);
}

#[tokio::test]
async fn another_master_is_asked_when_the_first_is_slow_to_connect() {
    let (deaf, _filler) = deaf().await;
    let (origin, upstream) = (Origin::new().await, upstream(None));
    let slow = format!("http://{}", deaf.local_addr().unwrap());
    let project = of_urls(&[&slow, &origin.url]);
    let target = Target::parse(b"/a").unwrap();
    let spare = project.sources.spare(clock::now(), 0, &[]);
    assert_eq!(spare, Some(1));
    let call = Call::new(&project, 0, &Method::GET, &target, HeaderMap::new());
    let served = async {
        let mut stream = origin.accept().await;
        head(&mut stream).await;
        answer(&mut stream, 5, 5).await;
    };
    let (_, answered) = tokio::join!(served, upstream.ask(Call { spare, ..call }));
    assert_eq!(answered.unwrap().master, 1);
    assert_eq!(project.sources.shown(0, clock::now()).failures, 0, "slow is not bad");
}

#[tokio::test]
async fn a_request_beyond_the_limit_waits_for_its_turn() {
    let (origin, other, upstream) = (Origin::new().await, Origin::new().await, upstream(None));
    let limited = Master { requests_max: Some(1), ..nodemap::testing::master(&origin.url) };
    let project = project(&[limited, nodemap::testing::master(&other.url)]);
    let served = async {
        let mut stream = origin.accept().await;
        head(&mut stream).await;
        answer(&mut stream, 5, 5).await;
        stream
    };
    let (mut stream, answered) = tokio::join!(served, get(&upstream, &project, 0));
    let mut first = answered.unwrap();
    let key = Key([0; 16]);
    let chosen = project.sources.choose(clock::now(), &key, None, &[]).unwrap();
    assert_eq!((chosen.master, chosen.skipped), (1, false), "the other one has less to do");
    let endpoint = project.sources.get(0).unwrap();
    let second = async {
        let ended = async {
            while endpoint.turns.waiting() == 0 {
                tokio::task::yield_now().await;
            }
            assert_eq!(read(&mut first).await, 5);
            head(&mut stream).await;
            answer(&mut stream, 7, 7).await;
        };
        tokio::join!(get(&upstream, &project, 0), ended).0
    };
    assert_eq!(read(&mut second.await.unwrap()).await, 7);
    assert_eq!((endpoint.queued.get(), endpoint.opened.get(), endpoint.turns.taken()), (1, 1, 0));
}

/// An authority of the test's own, and a certificate of it.
struct Authority {
    folder: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { folder, issuer }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A server that has a certificate for a name.
    fn server(&self, name: &str) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let chain = vec![certificate.der().clone()];
        let config = builder.with_no_client_auth().with_single_cert(chain, key).unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

#[tokio::test]
async fn a_certificate_is_verified_for_the_host_that_is_asked_for() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (host, bad) = ("download.example", Failure::TlsCertificate);
    for (what, server, ca, host, want) in [
        ("good", authority.server(host), authority.file(), Some(host), None),
        ("of an address", authority.server("127.0.0.1"), authority.file(), None, None),
        ("another name", authority.server("b.example"), authority.file(), Some(host), Some(bad)),
        ("the address only", authority.server(host), authority.file(), None, Some(bad)),
        ("of nobody known", authority.server(host), other.file(), Some(host), Some(bad)),
    ] {
        let (origin, upstream) = (Origin::new().await, upstream(Some(&ca)));
        let url = format!("{}/tree", origin.url.replace("http:", "https:"));
        let master = Master { host: host.map(str::to_owned), ..nodemap::testing::master(&url) };
        let project = project(&[master]);
        let served = async {
            let stream = origin.accept().await;
            let mut stream = server.accept(stream).await.ok()?;
            let asked = head(&mut stream).await;
            answer(&mut stream, 5, 5).await;
            Some((asked, stream))
        };
        let (served, answered) = tokio::join!(served, get(&upstream, &project, 0));
        match want {
            Some(why) => {
                assert_eq!(answered.unwrap_err(), why, "{what}");
                let words = project.sources.get(0).unwrap().trouble().unwrap();
                assert!(words.contains("certificate"), "{what}: {words}");
            }
            None => {
                assert_eq!(read(&mut answered.unwrap()).await, 5, "{what}");
                let authority = origin.listener.local_addr().unwrap().to_string();
                let host = host.unwrap_or(&authority);
                let (asked, _stream) = served.unwrap();
                assert_eq!(asked, format!("GET /tree/a HTTP/1.1\r\nhost: {host}\r\n\r\n"));
            }
        }
    }
}

#[tokio::test]
async fn what_does_not_speak_tls_is_told_apart_from_a_bad_certificate() {
    let (origin, upstream) = (Origin::new().await, upstream(None));
    let project = of_urls(&[&origin.url.replace("http:", "https:")]);
    let served = async {
        let mut stream = origin.accept().await;
        stream.write_all(b"HTTP/1.1 400 X\r\n\r\n").await.unwrap();
        stream
    };
    let (_stream, answered) = tokio::join!(served, get(&upstream, &project, 0));
    assert_eq!(answered.unwrap_err(), Failure::Tls);
}

#[test]
fn a_file_of_authorities_that_is_of_no_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    assert!(matches!(Tls::new(Some(&file)), Err(CaError::Read(..))));
    std::fs::write(&file, "nothing").unwrap();
    assert!(matches!(Tls::new(Some(&file)), Err(CaError::Empty(_))));
    let block = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    std::fs::write(&file, block).unwrap();
    assert!(matches!(Tls::new(Some(&file)), Err(CaError::Unusable(..))));
}

#[tokio::test]
async fn a_client_that_takes_nothing_loses_its_place_to_others() {
    let (origin, upstream) = (Origin::new().await, upstream(None));
    let limited = Master { requests_max: Some(1), ..nodemap::testing::master(&origin.url) };
    let project = project(&[limited]);
    let large = 1 << 20;
    let served = async {
        let mut stream = origin.accept().await;
        head(&mut stream).await;
        answer(&mut stream, large, large / 2).await;
        stream
    };
    let (_kept, answered) = tokio::join!(served, get(&upstream, &project, 0));
    let mut first = Lent::with_patience(answered.unwrap().body, Duration::from_millis(80));
    assert!(first.next().await.unwrap().is_some());
    let served = async {
        let mut stream = origin.accept().await;
        head(&mut stream).await;
        answer(&mut stream, 7, 7).await;
        stream
    };
    let (_stream, second) = tokio::join!(served, get(&upstream, &project, 0));
    assert_eq!(read(&mut second.unwrap()).await, 7);
    assert_eq!(first.next().await.unwrap_err(), Failure::Client);
}
