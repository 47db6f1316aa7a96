//! The body of a request on its way to a source. Neither the client may pause for ever nor the source
//! that is to take it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fill::Failure;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::pool::Outgoing;

/// A body being sent.
#[derive(Debug)]
pub(crate) struct Upload {
    body: Outgoing,
    patience: Duration,
    pause: Pin<Box<Sleep>>,
    progress: Arc<Progress>,
}

/// How far a body is on its way.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pieces: AtomicU64,
    /// The source would take more than the client has sent.
    lacks: AtomicBool,
}

impl Progress {
    /// Waits until nothing has moved for `patience`, and at most twice that. Whose fault it is: that of
    /// the client, who sends nothing, or that of the source, which takes nothing, or has everything and
    /// does not answer.
    pub(crate) async fn stands_still(&self, patience: Duration) -> Failure {
        loop {
            let before = self.pieces.load(Relaxed);
            tokio::time::sleep(patience).await;
            if self.pieces.load(Relaxed) == before {
                let lacks = self.lacks.load(Relaxed);
                return if lacks { Failure::Client } else { Failure::FirstByteTimeout };
            }
        }
    }
}

impl Upload {
    /// Lets the client pause for `patience` at most.
    pub(crate) fn new(body: Outgoing, patience: Duration) -> Self {
        let pause = Box::pin(tokio::time::sleep(patience));
        Self { body, patience, pause, progress: Arc::default() }
    }

    /// What tells how far it is.
    pub(crate) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// As the body of a request.
    pub(crate) fn into_outgoing(self) -> Outgoing {
        BodyExt::boxed(self)
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        let mut frame = Pin::new(&mut this.body).poll_frame(context);
        while let Poll::Ready(Some(Ok(passed))) = &frame
            && !passed.is_data()
        {
            // Trailers are not passed on.
            frame = Pin::new(&mut this.body).poll_frame(context);
        }
        this.progress.lacks.store(frame.is_pending(), Relaxed);
        match frame {
            Poll::Pending if this.pause.as_mut().poll(context).is_ready() => {
                Poll::Ready(Some(Err(Box::new(io::Error::from(io::ErrorKind::TimedOut)))))
            }
            Poll::Pending => Poll::Pending,
            Poll::Ready(frame) => {
                this.progress.pieces.fetch_add(1, Relaxed);
                if let Some(until) = Instant::now().checked_add(this.patience) {
                    this.pause.as_mut().reset(until);
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
