//! The content of a request over HTTP/3.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::server::RequestStream;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::{Body, Frame, SizeHint};

use super::quic::{Allowance, Receiver};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The content has not the length that its head announced: the request is malformed (RFC 9114
/// section 4.1.2).
#[derive(Debug, thiserror::Error)]
#[error("the content of the request has not the announced length")]
struct WrongLength;

/// What a `Content-Length` says, when it says nothing else than one number.
pub(super) fn announced(headers: &HeaderMap) -> Result<Option<u64>, ()> {
    let mut values = headers.get_all(CONTENT_LENGTH).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => {
            let text = value.to_str().map_err(|_| ())?;
            let is_number = text.bytes().all(|b| b.is_ascii_digit());
            text.parse().map(Some).ok().filter(|_| is_number).ok_or(())
        }
        _ => Err(()),
    }
}

/// Content as it comes in.
pub(crate) struct Content {
    /// `None` once it has ended.
    stream: Option<RequestStream<Receiver, Bytes>>,
    allowance: Allowance,
    /// What `h3` may read of the stream from one piece of content to the next.
    frame_bytes_max: usize,
    /// A piece that was looked at beforehand.
    first: Option<Bytes>,
    /// Bytes still to come, when announced.
    left: Option<u64>,
}

impl Content {
    /// The content of a request whose head announces `length`. Looks whether anything comes at all,
    /// without waiting: most requests have none.
    pub(super) async fn of(
        stream: RequestStream<Receiver, Bytes>,
        allowance: Allowance,
        frame_bytes_max: usize,
        length: Option<u64>,
    ) -> Result<Self, Error> {
        allowance.set(frame_bytes_max);
        let stream = Some(stream);
        let mut content = Self { stream, allowance, frame_bytes_max, first: None, left: length };
        let look = poll_fn(|cx| match content.poll_piece(cx) {
            Poll::Ready(piece) => Poll::Ready(piece.transpose()),
            Poll::Pending => Poll::Ready(Ok(None)),
        });
        content.first = look.await?;
        Ok(content)
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(None) };
        let piece = match ready!(stream.poll_recv_data(cx)) {
            Ok(piece) => piece.map(|mut piece| piece.copy_to_bytes(piece.remaining())),
            Err(error) => return Poll::Ready(Some(Err(error.into()))),
        };
        self.allowance.set(self.frame_bytes_max);
        let given =
            piece.as_ref().map_or(0, |piece| u64::try_from(piece.len()).unwrap_or(u64::MAX));
        if let Some(left) = &mut self.left {
            match left.checked_sub(given) {
                Some(rest) if piece.is_some() || rest == 0 => *left = rest,
                _ => return Poll::Ready(Some(Err(WrongLength.into()))),
            }
        }
        if piece.is_none() {
            self.stream = None;
        }
        Poll::Ready(piece.map(Ok))
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        self.poll_piece(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_none() && self.first.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.as_ref().map_or(0, |first| u64::try_from(first.len()).unwrap_or(0));
        match self.left {
            _ if self.is_end_stream() => SizeHint::with_exact(0),
            Some(left) => SizeHint::with_exact(left.saturating_add(first)),
            None => SizeHint::default(),
        }
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Content(left: {:?})", self.left)
    }
}
