//! What a handler is told of a request beside its head: who asks, and the content that comes with it.
//! The same over every protocol.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

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
pub struct RequestBody(Incoming);

impl From<Incoming> for RequestBody {
    fn from(incoming: Incoming) -> Self {
        Self(incoming)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.0).poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
