//! A value that is there at once, or that a future brings: what is at hand is answered by plain
//! functions, without the state of all that may have to be waited for.

use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

/// See the module.
pub(crate) enum Coming<'a, T> {
    Now(Ready<T>),
    Later(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
}

impl<'a, T: Send + 'a> Coming<'a, T> {
    pub(crate) fn now(value: T) -> Self {
        Self::Now(ready(value))
    }

    pub(crate) fn later(future: impl Future<Output = T> + Send + 'a) -> Self {
        Self::Later(Box::pin(future))
    }

    /// What `make` makes of the value.
    pub(crate) fn map<U: Send + 'a>(self, make: impl FnOnce(T) -> U + Send + 'a) -> Coming<'a, U> {
        match self {
            Self::Now(value) => Coming::now(make(value.into_inner())),
            Self::Later(future) => Coming::later(async move { make(future.await) }),
        }
    }
}

impl<T> Future for Coming<'_, T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match self.get_mut() {
            Self::Now(value) => Pin::new(value).poll(cx),
            Self::Later(future) => future.as_mut().poll(cx),
        }
    }
}
