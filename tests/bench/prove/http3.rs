//! HTTP/3: a connection that many requests share.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use bytes::{Buf as _, Bytes};
use h3::client::SendRequest;
use h3::error::{Code, StreamError};
use h3_quinn::OpenStreams;
use http::Request;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint};

use crate::ask::Ask;
use crate::edge::Ended;
use crate::judge::{Judge, Next};

/// A connection; clones share it.
#[derive(Clone)]
pub(crate) struct Connection {
    requests: SendRequest<OpenStreams, Bytes>,
    edge: SocketAddr,
}

impl Connection {
    /// Connects from a port of its own.
    pub(crate) async fn connect(
        from: IpAddr,
        edge: SocketAddr,
        tls: rustls::ClientConfig,
    ) -> Result<Self> {
        let endpoint = Endpoint::client((from, 0).into())?;
        let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
        let connection = endpoint.connect_with(config, edge, &edge.ip().to_string())?.await?;
        let (mut driver, requests) = h3::client::new(h3_quinn::Connection::new(connection)).await?;
        tokio::spawn(async move {
            // The endpoint lives as long as its connection.
            let _endpoint = endpoint;
            poll_fn(|context| driver.poll_close(context)).await
        });
        Ok(Self { requests, edge })
    }

    /// Sends a request and has its answer judged; how many bytes of body came.
    pub(crate) async fn ask(&mut self, ask: &Ask) -> Result<u64> {
        let uri = format!("https://{}{}", self.edge, ask.target);
        let mut request = Request::builder().method(ask.method.clone()).uri(uri);
        for (name, value) in &ask.fields {
            request = request.header(name, value);
        }
        let mut stream = self.requests.send_request(request.body(())?).await.context(Ended)?;
        // A connection that has ended shows below.
        let finished = stream.finish().await;
        let head = stream.recv_response().await.map_err(|error| match is_unanswered(&error) {
            true => anyhow::Error::from(error).context(Ended),
            false => anyhow::Error::from(error).context("no answer"),
        })?;
        finished?;
        let mut judge = Judge::begin(ask, head.status(), head.headers())?;
        while let Some(mut data) = stream.recv_data().await.context("broken off")? {
            let bytes = data.copy_to_bytes(data.remaining());
            if judge.take(&bytes)? == Next::Leave {
                // Letting go of the stream stops it; `h3-quinn` told to while it waits would panic.
                return Ok(judge.taken());
            }
        }
        judge.end()
    }
}

/// Whether the server says, or must be taken to say, that it has not begun with a request (RFC 9114
/// sections 5.2 and 8.1).
fn is_unanswered(error: &StreamError) -> bool {
    match error {
        StreamError::RemoteTerminate { code, .. } => *code == Code::H3_REQUEST_REJECTED,
        StreamError::RemoteClosing { .. } => true,
        error => error.is_h3_no_error(),
    }
}
