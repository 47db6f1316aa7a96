//! Who keeps account of a body is told of each byte that leaves, and of no other.
#![allow(clippy::arithmetic_side_effects, clippy::panic, clippy::unwrap_used, missing_docs)]

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use hyper::{Request, Response};
use serve::{Body, BodyError, Client, FileRange, Handler, Piece, RequestBody, Source, Way};
use support::book::{Account, Book, account};
use support::{Server, bytes_of, get, head_of, send};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

mod support;

const LEN: usize = 3_000_001;
/// More than all sockets between take.
const HUGE: u64 = 1 << 30;

struct Pieces(Vec<Piece>);

impl Source for Pieces {
    async fn next(&mut self) -> Option<Result<Piece, BodyError>> {
        if self.0.is_empty() { None } else { Some(Ok(self.0.remove(0))) }
    }
}

struct Site {
    file: Arc<File>,
    closed: UnboundedSender<Account>,
    left: UnboundedSender<Option<Way>>,
}

impl Handler for Site {
    type Visitor = Client;

    fn greet(&self, client: Client) -> Client {
        client
    }

    async fn handle(&self, request: Request<RequestBody>, _: &Client) -> Response<Body> {
        let range = |len| FileRange::new(Arc::clone(&self.file), 0, len);
        let word = || Piece::Bytes(Bytes::from_static(b"words"));
        let mut body = match request.uri().path() {
            "/bytes" => Body::bytes(vec![7; LEN].into()),
            "/empty" => Body::empty(),
            "/file" => Body::file(range(LEN as u64)),
            "/huge" => Body::file(range(HUGE)),
            "/unsized" => {
                Body::stream(Pieces(vec![word(), Piece::File(range(70_000)), word()]), None)
            }
            other => panic!("{other}"),
        };
        body.tell(Arc::new(Book::new(&self.closed)));
        Response::new(body)
    }

    fn leave(&self, _: &Client, way: Option<Way>) {
        self.left.send(way).unwrap();
    }
}

/// A server, the accounts that are closed, and the connections that have ended.
async fn site() -> (Server, UnboundedReceiver<Account>, UnboundedReceiver<Option<Way>>) {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![1; LEN]).unwrap();
    file.set_len(HUGE).unwrap();
    let (closed, accounts) = unbounded_channel();
    let (left, ends) = unbounded_channel();
    let server = Server::start(Site { file: Arc::new(file), closed, left }).await;
    (server, accounts, ends)
}

#[tokio::test]
async fn whole_answers_are_told_to_the_byte() {
    let (server, mut accounts, mut ends) = site().await;
    let mut client = server.ask("").await;
    for (path, len) in [("/bytes", LEN), ("/file", LEN), ("/empty", 0)] {
        send(&mut client, &get(path)).await;
        head_of(&mut client).await;
        bytes_of(&mut client, len).await;
        assert_eq!(accounts.recv().await.unwrap(), account(len, None), "{path}");
    }
    send(&mut client, "GET /unsized HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert_eq!(accounts.recv().await.unwrap(), account(70_010, Some(70_010)));
    let way = ends.recv().await.unwrap().unwrap();
    // What came before the last request was acknowledged with it; the last answer need not be yet.
    assert!(way.acked_bytes > 2 * LEN as u64, "{way:?}");
    assert!(way.sent_segments > 0 && way.min_rtt_us > 0, "{way:?}");
}

#[tokio::test]
async fn what_a_client_that_goes_has_not_taken_is_not_told() {
    let (server, mut accounts, _ends) = site().await;
    let mut client = server.ask(&get("/huge")).await;
    head_of(&mut client).await;
    bytes_of(&mut client, LEN).await;
    drop(client);
    let Account { sent, whole_at } = accounts.recv().await.unwrap();
    assert!((LEN as u64..HUGE).contains(&sent), "{sent}");
    assert_eq!(whole_at, None);
}

#[tokio::test]
async fn http2_tells_the_same() {
    let (server, mut accounts, mut ends) = site().await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (mut send, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let ask = |path: &str| Request::get(format!("http://a.example{path}")).body(()).unwrap();
    for (path, len, whole_at) in
        [("/bytes", LEN, None), ("/file", LEN, None), ("/unsized", 70_010, Some(70_010))]
    {
        let (response, _) = send.send_request(ask(path), true).unwrap();
        let mut body = response.await.unwrap().into_body();
        let mut got = 0;
        while let Some(bytes) = body.data().await {
            let bytes = bytes.unwrap().len();
            body.flow_control().release_capacity(bytes).unwrap();
            got += bytes;
        }
        assert_eq!(got, len, "{path}");
        assert_eq!(accounts.recv().await.unwrap(), account(len, whole_at), "{path}");
    }
    // Nobody reads: what the window lets through is sent, and no more.
    let (response, mut stream) = send.send_request(ask("/huge"), true).unwrap();
    let mut body = response.await.unwrap().into_body();
    let got = body.data().await.unwrap().unwrap().len();
    stream.send_reset(h2::Reason::CANCEL);
    let Account { sent, .. } = accounts.recv().await.unwrap();
    assert!((got as u64..=65_535).contains(&sent), "{sent} of {got}");
    drop((send, body, stream));
    connection.await.unwrap().unwrap();
    assert!(ends.recv().await.unwrap().is_some());
}
