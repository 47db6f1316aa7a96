//! One bounded HTTP request: for probes and for following the node map. Each request has its own
//! connection, because a probe must see whether a new client could connect.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Full, LengthLimitError, Limited};
use hyper::body::Body;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// What to ask.
#[derive(Clone, Debug)]
pub struct Get {
    /// `http://host[:port]/path`.
    pub url: Uri,
    /// Where to connect instead of the URL's host.
    pub connect_to: Option<SocketAddr>,
    /// Further request headers; `Host` is made from the URL unless given here.
    pub headers: HeaderMap,
    /// For everything together: connect, request, whole body.
    pub timeout: Duration,
    /// Largest body accepted, in bytes.
    pub body_bytes_max: usize,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Whole body.
    pub body: Bytes,
}

/// Why nothing came back. The words are those that people see as the reason of a node's state.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// Not a URL we can ask.
    #[error("{0} is not an http:// URL")]
    Url(String),
    /// The other end refused or could not be reached.
    #[error("cannot connect to {0}")]
    Connect(String, #[source] std::io::Error),
    /// Not everything arrived in time.
    #[error("no answer in {} ms", .0.as_millis())]
    Timeout(Duration),
    /// What came was not HTTP, or ended early.
    #[error("broken HTTP answer")]
    Protocol(#[source] hyper::Error),
    /// The body ended early or was broken.
    #[error("broken HTTP body")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The body is larger than asked for.
    #[error("answer larger than {0} bytes")]
    TooLarge(usize),
}

/// Asks once.
pub async fn get(get: Get) -> Result<Reply, GetError> {
    let timeout = get.timeout;
    match tokio::time::timeout(timeout, ask(get)).await {
        Ok(result) => result,
        Err(_) => Err(GetError::Timeout(timeout)),
    }
}

/// Bytes of the answer to what is posted that are read.
const POSTED_BYTES_MAX: usize = 64 << 10;

/// Posts a JSON document to an `http://` URL; gives the status of the answer.
///
/// # Errors
/// Nothing came back in time, or nothing that is HTTP.
pub async fn post(url: &Uri, json: Bytes, timeout: Duration) -> Result<StatusCode, GetError> {
    let body_bytes_max = POSTED_BYTES_MAX;
    let headers = HeaderMap::new();
    let to = Get { url: url.clone(), connect_to: None, headers, timeout, body_bytes_max };
    let exchange = async {
        let bad_url = || GetError::Url(url.to_string());
        let authority = url.authority().filter(|_| url.scheme_str() == Some("http"));
        let authority = authority.ok_or_else(bad_url)?;
        let port = authority.port_u16().unwrap_or(80);
        let stream = connect(&to, authority.host(), port).await?;
        let request = Request::post(url.path_and_query().map_or("/", |p| p.as_str()))
            .header(header::HOST, authority.as_str())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(json))
            .map_err(|_| bad_url())?;
        Ok(self::exchange(stream, request, body_bytes_max).await?.status)
    };
    tokio::time::timeout(timeout, exchange).await.unwrap_or(Err(GetError::Timeout(timeout)))
}

async fn ask(get: Get) -> Result<Reply, GetError> {
    let bad_url = || GetError::Url(get.url.to_string());
    let authority = get.url.authority().ok_or_else(bad_url)?.clone();
    if get.url.scheme_str() != Some("http") {
        return Err(bad_url());
    }
    let stream = connect(&get, authority.host(), authority.port_u16().unwrap_or(80)).await?;
    let path = get.url.path_and_query().map_or("/", |p| p.as_str());
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = path.parse().map_err(|_| bad_url())?;
    *request.headers_mut() = get.headers.clone();
    if !request.headers().contains_key(header::HOST) {
        let host = authority.as_str().parse().map_err(|_| bad_url())?;
        request.headers_mut().insert(header::HOST, host);
    }
    exchange(stream, request, get.body_bytes_max).await
}

/// One request over `stream`, and the whole answer to it, of at most `body_bytes_max` bytes.
///
/// # Errors
/// What comes back is no HTTP, or too much.
pub async fn exchange<S, B>(
    stream: S,
    request: Request<B>,
    body_bytes_max: usize,
) -> Result<Reply, GetError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(GetError::Protocol)?;
    let driver = tokio::spawn(connection);
    let answer = async {
        let response = sender.send_request(request).await.map_err(GetError::Protocol)?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, body_bytes_max).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                GetError::TooLarge(body_bytes_max)
            } else {
                GetError::Body(error)
            }
        })?;
        Ok(Reply { status: head.status, headers: head.headers, body: body.to_bytes() })
    };
    let result = answer.await;
    driver.abort();
    result
}

async fn connect(get: &Get, host: &str, port: u16) -> Result<TcpStream, GetError> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let (connected, target) = match get.connect_to {
        Some(address) => (TcpStream::connect(address).await, address.to_string()),
        None => (TcpStream::connect((bare, port)).await, format!("{host}:{port}")),
    };
    let stream = connected.map_err(|source| GetError::Connect(target, source))?;
    // A request is one small write; waiting to merge it with another helps nobody.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    fn ask(url: &str) -> Get {
        Get {
            url: url.parse().unwrap(),
            connect_to: None,
            headers: HeaderMap::new(),
            timeout: Duration::from_secs(5),
            body_bytes_max: 10,
        }
    }

    /// Answers one connection with `reply` after the request head; gives the head it saw.
    async fn one_shot(reply: &'static [u8]) -> (SocketAddr, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(reply).await.unwrap();
            String::from_utf8(head).unwrap()
        });
        (address, task)
    }

    #[tokio::test]
    async fn asks_through_another_address_and_reads_the_whole_body() {
        let (address, seen) = one_shot(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        let reply =
            get(Get { connect_to: Some(address), ..ask("http://[2001:db8::1]:81/a?b") }).await;
        let reply = reply.unwrap();
        assert_eq!((reply.status, &reply.body[..]), (StatusCode::OK, &b"ok"[..]));
        let head = seen.await.unwrap();
        assert!(head.starts_with("GET /a?b HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("host: [2001:db8::1]:81\r\n"), "{head}");
    }

    #[tokio::test]
    async fn each_failure_has_its_word() {
        let cases: [(&[u8], &str); 3] = [
            (b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n01234567890", "larger than 10 bytes"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n012", "broken HTTP body"),
            (b"hello\r\n\r\n", "broken HTTP answer"),
        ];
        for (reply, word) in cases {
            let (address, _) = one_shot(reply).await;
            let error = get(ask(&format!("http://{address}/"))).await.unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let refused = get(ask(&format!("http://{free}/"))).await.unwrap_err();
        assert!(matches!(refused, GetError::Connect(..)), "{refused}");
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", silent.local_addr().unwrap());
        let late = get(Get { timeout: Duration::from_millis(20), ..ask(&url) }).await.unwrap_err();
        assert_eq!(late.to_string(), "no answer in 20 ms");
        assert!(matches!(get(ask("https://a.example/")).await, Err(GetError::Url(_))));
    }
}
