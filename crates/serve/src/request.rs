//! What a handler is told of a request beside its head: who asks, and the content that comes with it.
//! The same over every protocol.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::h2::RecvStream;
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
    /// HTTP/1.1.
    Hyper(Incoming),
    /// HTTP/2, and the length that was announced.
    H2(RecvStream, Option<u64>),
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

impl RequestBody {
    /// Content that comes in a stream of HTTP/2. The h2 crate holds it against `length`.
    pub(crate) fn h2(stream: RecvStream, length: Option<u64>) -> Self {
        Self(Content::H2(stream, length))
    }
}

/// The next bytes of a stream. The client may send as many more: they are taken.
fn poll_h2(
    stream: &mut RecvStream,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Bytes, ::h2::Error>>> {
    let Some(bytes) = ready!(stream.poll_data(cx)?) else { return Poll::Ready(None) };
    stream.flow_control().release_capacity(bytes.len())?;
    Poll::Ready(Some(Ok(bytes)))
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
            // Trailers of requests mean nothing to any handler.
            Content::H2(stream, _) => {
                poll_h2(stream, cx).map(|data| Some(data?.map(Frame::data).map_err(Into::into)))
            }
            Content::Quic(content) => Pin::new(content).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Content::Hyper(incoming) => incoming.is_end_stream(),
            Content::H2(stream, _) => stream.is_end_stream(),
            Content::Quic(content) => content.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Content::Hyper(incoming) => incoming.size_hint(),
            Content::H2(stream, _) if stream.is_end_stream() => SizeHint::with_exact(0),
            Content::H2(_, length) => length.map_or_else(SizeHint::default, SizeHint::with_exact),
            Content::Quic(content) => content.size_hint(),
        }
    }
}
