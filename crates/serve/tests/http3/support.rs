//! A server, and a client of it.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::client::{RequestStream, SendRequest};
use h3::error::{ConnectionError, StreamError};
use h3_quinn::{BidiStream, OpenStreams};
use http::{Request, Response};
use quinn::crypto::rustls::QuicClientConfig;
use rt::tls::{CertificateFiles, Certificates};
use rt::{Context, Metrics, Shutdown};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serve::h3::Quic;
use serve::{
    Body, BodyError, Client, Counters, Handler, Limits, Listener, Piece, RequestBody, Source,
};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

pub(crate) type Pieces = mpsc::UnboundedSender<Result<Piece, BodyError>>;

/// A source that gives what the test sends through a channel, and tells when it is dropped.
pub(crate) struct Script {
    pub(crate) pieces: mpsc::UnboundedReceiver<Result<Piece, BodyError>>,
    pub(crate) _dropped: Option<oneshot::Sender<()>>,
}

impl Source for Script {
    async fn next(&mut self) -> Option<Result<Piece, BodyError>> {
        self.pieces.recv().await
    }
}

pub(crate) fn script(pieces: Vec<Result<Piece, BodyError>>) -> Script {
    let (send, receive) = mpsc::unbounded_channel();
    pieces.into_iter().for_each(|piece| send.send(piece).unwrap());
    Script { pieces: receive, _dropped: None }
}

pub(crate) fn piece(text: &'static str) -> Result<Piece, BodyError> {
    Ok(Piece::Bytes(Bytes::from_static(text.as_bytes())))
}

pub(crate) fn error() -> Result<Piece, BodyError> {
    Err(BodyError::source("upstream has gone"))
}

/// Each request waits for the test to say what its body of this length is.
pub(crate) struct Waiting {
    length: Option<u64>,
    bodies: mpsc::UnboundedSender<(Pieces, oneshot::Receiver<()>)>,
}

pub(crate) type Bodies = mpsc::UnboundedReceiver<(Pieces, oneshot::Receiver<()>)>;

impl Handler for Waiting {
    type Visitor = Client;

    fn greet(&self, client: Client) -> Client {
        client
    }

    async fn handle(&self, _: Request<RequestBody>, _: &Client) -> Response<Body> {
        let (send, pieces) = mpsc::unbounded_channel();
        let (dropped, was_dropped) = oneshot::channel();
        self.bodies.send((send, was_dropped)).unwrap();
        Response::new(Body::stream(Script { pieces, _dropped: Some(dropped) }, self.length))
    }
}

/// A server whose requests answer themselves with `onetwo`.
pub(crate) struct Hello;

impl Handler for Hello {
    type Visitor = Client;

    fn greet(&self, client: Client) -> Client {
        client
    }

    async fn handle(&self, _: Request<RequestBody>, _: &Client) -> Response<Body> {
        Response::new(Body::bytes(Bytes::from_static(b"onetwo")))
    }
}

pub(crate) fn waiting(limits: Limits, length: Option<u64>) -> (Server, Bodies) {
    let (bodies, receive) = mpsc::unbounded_channel();
    (Server::start(Waiting { length, bodies }, limits), receive)
}

pub(crate) struct Server {
    pub(crate) dir: Arc<tempfile::TempDir>,
    pub(crate) address: SocketAddr,
    /// Where it serves plain HTTP.
    pub(crate) tcp: SocketAddr,
    pub(crate) counters: Arc<Counters>,
    pub(crate) shutdown: Shutdown,
    pub(crate) task: JoinHandle<()>,
    roots: RootCertStore,
}

impl Server {
    pub(crate) fn start(handler: impl Handler, limits: Limits) -> Self {
        Self::start_in(Arc::new(tempfile::tempdir().unwrap()), handler, limits)
    }

    /// The same with the state of another.
    pub(crate) fn start_in(
        dir: Arc<tempfile::TempDir>,
        handler: impl Handler,
        limits: Limits,
    ) -> Self {
        let files = CertificateFiles { chain: dir.path().join("pem"), key: dir.path().join("key") };
        if !files.chain.exists() {
            let signed = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
            std::fs::write(&files.chain, signed.cert.pem()).unwrap();
            std::fs::write(&files.key, signed.signing_key.serialize_pem()).unwrap();
        }
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&files.chain).unwrap()).unwrap();
        let certificates =
            Certificates::load(&[files], false, dir.path(), &Metrics::new()).unwrap();
        let tls = certificates.server_config(&[b"h3"]);
        let address = ([127, 0, 0, 1], 0).into();
        let context = Context::new("edge1".parse().unwrap(), dir.path().to_owned());
        let quic = Quic::bind(address, tls, &context, None, &limits).unwrap();
        let address = quic.address().unwrap();
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let tcp = socket.local_addr().unwrap();
        let listener = Listener {
            sockets: vec![TcpListener::from_std(socket).unwrap()],
            tls: None,
            quic: Some(quic),
            alive: rt::alive::Alive::default(),
        };
        let counters = Arc::new(Counters::default());
        let shutdown = Shutdown::default();
        let (handler, stop) = (Arc::new(handler), shutdown.clone());
        let serving = serve::http(vec![listener], handler, limits, counters.clone(), stop);
        Self { dir, address, tcp, counters, shutdown, task: tokio::spawn(serving), roots }
    }

    pub(crate) fn stop(&self) {
        self.shutdown.drain(Duration::MAX);
    }

    /// What a client that trusts this server needs; `transport` as the test wants it.
    pub(crate) fn client_config(&self, transport: quinn::TransportConfig) -> quinn::ClientConfig {
        let mut tls = rustls::ClientConfig::builder()
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let tls = QuicClientConfig::try_from(tls).unwrap();
        let mut config = quinn::ClientConfig::new(Arc::new(tls));
        config.transport_config(Arc::new(transport));
        config
    }

    pub(crate) async fn connect(&self) -> Browser {
        self.connect_as(quinn::TransportConfig::default()).await
    }

    pub(crate) async fn connect_as(&self, transport: quinn::TransportConfig) -> Browser {
        let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        let config = self.client_config(transport);
        let connecting = endpoint.connect_with(config, self.address, "a.example").unwrap();
        let connection = connecting.await.unwrap();
        let quic = h3_quinn::Connection::new(connection.clone());
        let (mut driver, requests) = h3::client::new(quic).await.unwrap();
        let ended = tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await });
        Browser { connection, requests, ended }
    }
}

pub(crate) type Stream = RequestStream<BidiStream<Bytes>, Bytes>;

/// One connection.
pub(crate) struct Browser {
    pub(crate) connection: quinn::Connection,
    pub(crate) requests: SendRequest<OpenStreams, Bytes>,
    /// How the connection ended.
    pub(crate) ended: JoinHandle<ConnectionError>,
}

pub(crate) fn request(method: &str, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(format!("https://a.example{path}"))
}

impl Browser {
    /// Sends a request without content.
    pub(crate) async fn ask(&mut self, request: http::request::Builder) -> Stream {
        let mut stream = self.requests.send_request(request.body(()).unwrap()).await.unwrap();
        stream.finish().await.unwrap();
        stream
    }

    pub(crate) async fn get(&mut self, path: &str) -> (Response<()>, Vec<u8>) {
        let mut stream = self.ask(request("GET", path)).await;
        let head = stream.recv_response().await.unwrap();
        (head, rest(&mut stream).await.unwrap())
    }
}

/// The body until its end, or why it has none.
pub(crate) async fn rest(stream: &mut Stream) -> Result<Vec<u8>, StreamError> {
    let mut bytes = Vec::new();
    while let Some(mut data) = stream.recv_data().await? {
        bytes.extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    Ok(bytes)
}

/// A HEADERS frame with these fields, each as a literal (RFC 9204 section 4.5.6).
pub(crate) fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = vec![0, 0];
    for (name, value) in fields {
        number(&mut block, 0x20, 7, name.len());
        block.extend_from_slice(name.as_bytes());
        number(&mut block, 0, 127, value.len());
        block.extend_from_slice(value.as_bytes());
    }
    frame(1, &block)
}

/// A frame of any type below 64.
pub(crate) fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32 | 0x8000_0000).to_be_bytes();
    [&[kind][..], &length, payload].concat()
}

/// An integer after a prefix whose largest value is `max` (RFC 7541 section 5.1).
fn number(to: &mut Vec<u8>, bits: u8, max: usize, value: usize) {
    to.push(bits | value.min(max) as u8);
    let Some(mut rest) = value.checked_sub(max) else { return };
    while rest > 127 {
        to.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    to.push(rest as u8);
}

/// What a stream of these bytes is answered with: all bytes, or the code of its reset.
pub(crate) async fn ask_raw(browser: &Browser, bytes: &[u8]) -> Result<Vec<u8>, u64> {
    let (mut send, mut receive) = browser.connection.open_bi().await.unwrap();
    // The server may stop reading before the end.
    if send.write_all(bytes).await.is_ok() {
        let _ = send.finish();
    }
    receive.read_to_end(1_000_000).await.map_err(|error| match error {
        quinn::ReadToEndError::Read(quinn::ReadError::Reset(code)) => code.into_inner(),
        error => panic!("{error:?}"),
    })
}

/// Waits for a condition that nothing tells of.
pub(crate) async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Short enough for a test to wait for several of them.
pub(crate) fn impatient() -> Limits {
    Limits { head_timeout: Duration::from_millis(100), ..Limits::default() }
}
