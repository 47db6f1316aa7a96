//! Who keeps account of a body is told of what QUIC took of it.

use bytes::Bytes;
use h3::error::Code;
use http::{Request, Response};
use serve::{Body, Client, Handler, Limits, RequestBody};
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::book::{Account, Book, account};
use crate::support::{Server, piece, request, rest, script};

const LEN: usize = 3_000_001;
/// More than a connection that nobody reads takes.
const HUGE: usize = 64 << 20;

struct Site(UnboundedSender<Account>);

impl Handler for Site {
    type Visitor = Client;

    fn greet(&self, client: Client) -> Client {
        client
    }

    async fn handle(&self, request: Request<RequestBody>, _: &Client) -> Response<Body> {
        let mut body = match request.uri().path() {
            "/unsized" => Body::stream(script(vec![piece("one"), piece("two")]), None),
            "/huge" => Body::bytes(Bytes::from(vec![7; HUGE])),
            _ => Body::bytes(Bytes::from(vec![7; LEN])),
        };
        body.tell(Arc::new(Book::new(&self.0)));
        Response::new(body)
    }
}

#[tokio::test]
async fn http3_tells_each_byte_of_content_and_no_other() {
    let (closed, mut accounts) = unbounded_channel();
    let server = Server::start(Site(closed), Limits::default());
    let mut browser = server.connect().await;
    for (method, path, len, sent, whole_at) in [
        ("GET", "/bytes", LEN, LEN, None),
        ("GET", "/unsized", 6, 6, Some(6)),
        ("HEAD", "/bytes", 0, 0, None),
    ] {
        let mut stream = browser.ask(request(method, path)).await;
        stream.recv_response().await.unwrap();
        assert_eq!(rest(&mut stream).await.unwrap().len(), len, "{path}");
        assert_eq!(accounts.recv().await.unwrap(), account(sent, whole_at), "{method} {path}");
    }
    // Who takes it back has not had all.
    let mut stream = browser.ask(request("GET", "/huge")).await;
    stream.recv_response().await.unwrap();
    let first = stream.recv_data().await.unwrap().unwrap();
    let got = bytes::Buf::remaining(&first);
    stream.stop_sending(Code::H3_REQUEST_CANCELLED);
    let Account { sent, .. } = accounts.recv().await.unwrap();
    assert!((got as u64..HUGE as u64).contains(&sent), "{sent} of {got}");
}
