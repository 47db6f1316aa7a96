//! Requests to an authority: bounded in time and size, by our own TLS.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::Full;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rt::client;
use tokio::net::TcpStream;

use crate::probe::Tls;

/// For everything of one request.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Largest answer: a chain of certificates.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Asks an authority.
pub(super) struct Client(pub(super) Arc<Tls>);

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let tls = Arc::clone(&self.0);
        Box::pin(async move {
            let late = |_| other(format!("no answer in {} s", TIMEOUT.as_secs()));
            tokio::time::timeout(TIMEOUT, ask(&tls, request)).await.unwrap_or_else(|e| Err(late(e)))
        })
    }
}

async fn ask(tls: &Tls, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
    let (mut head, body) = request.into_parts();
    let url = head.uri.clone();
    let authority = url.authority().filter(|_| url.scheme_str() == Some("https"));
    let authority = authority.ok_or_else(|| other(format!("{url} is no https:// URL")))?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let port = authority.port_u16().unwrap_or(443);
    let stream = TcpStream::connect((host, port)).await;
    let stream =
        stream.map_err(|error| other(format!("cannot connect to {authority}: {error}")))?;
    let stream = tls.open(stream, host).await;
    let stream = stream.map_err(|failure| other(format!("{authority}: {failure}")))?;
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    head.uri = path.parse()?;
    let name =
        HeaderValue::from_str(authority.as_str()).map_err(|error| other(error.to_string()))?;
    head.headers.insert(header::HOST, name);
    let reply = client::exchange(stream, Request::from_parts(head, body), ANSWER_BYTES_MAX).await;
    let reply = reply.map_err(|error| other(format!("{authority}: {error}")))?;
    let mut response = Response::new(Full::new(reply.body));
    *response.status_mut() = reply.status;
    *response.headers_mut() = reply.headers;
    Ok(response.into())
}

fn other(why: String) -> Error {
    Error::Other(why.into())
}
