//! What a handler is told of a request beside its head: who asks, and the content that comes with it.
//! The same over every protocol.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::h3;

/// Who asks, and over what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its address.
    pub address: SocketAddr,
    /// Whether it asks over TLS or QUIC: the scheme of what it asks for is `https`.
    pub is_secure: bool,
}

/// The content of a request as it comes in.
#[derive(Debug)]
pub struct RequestBody(Content);

#[derive(Debug)]
enum Content {
    /// HTTP/1.1 and HTTP/2.
    Hyper(Incoming),
    /// HTTP/3.
    Quic(Box<h3::Content>),
}

impl From<Incoming> for RequestBody {
    fn from(incoming: Incoming) -> Self {
        Self(Content::Hyper(incoming))
    }
}

impl From<h3::Content> for RequestBody {
    fn from(content: h3::Content) -> Self {
        Self(Content::Quic(Box::new(content)))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut self.0 {
            Content::Hyper(incoming) => Pin::new(incoming).poll_frame(cx).map_err(Into::into),
            Content::Quic(content) => Pin::new(content).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Content::Hyper(incoming) => incoming.is_end_stream(),
            Content::Quic(content) => content.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Content::Hyper(incoming) => incoming.size_hint(),
            Content::Quic(content) => content.size_hint(),
        }
    }
}
