//! What `h3` needs of QUIC, on quinn.
//!
//! Ours rather than `h3-quinn`, because of four things that it cannot do:
//! - body bytes reach quinn as the [`Bytes`] they are ([`Sending::write`]): `h3-quinn` copies them;
//! - a stream that is let go unfinished is reset. quinn would finish it, and half a body would look
//!   like a whole one;
//! - a stream gets its priority;
//! - `h3` gathers a frame of any length in memory before it looks at it. [`Allowance`] says how many
//!   bytes it may have of a stream, and what goes beyond ends the stream.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};
use quinn::{ConnectionError, ReadError, VarInt, WriteError};
use tokio::time::timeout;

/// Bytes that a unidirectional stream of the client brings in its whole life: its settings, then a
/// few bytes for each change of a priority. RFC 9204's streams stay empty: our table has no room.
const CONTROL_BYTES_MAX: usize = 256 * 1024;
/// What may come of a request to its end after nobody wants more of it: frames without meaning.
const REST_BYTES_MAX: usize = 1024;

/// An error code as quinn has it.
pub(super) fn code(code: Code) -> VarInt {
    // Every code of HTTP/3 is far below 2^62.
    VarInt::from_u64(code.value()).unwrap_or(VarInt::MAX)
}

/// How many bytes of a stream may still be handed to `h3`.
#[derive(Clone, Debug)]
pub(super) struct Allowance(Arc<AtomicUsize>);

impl Allowance {
    fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// From here on so many.
    pub(super) fn set(&self, bytes: usize) {
        self.0.store(bytes, Relaxed);
    }

    /// Takes `bytes` of it. `false` when that was too much.
    fn take(&self, bytes: usize) -> bool {
        let taken = self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes));
        taken.is_ok()
    }
}

/// What a request's task has of its stream beside what `h3` has.
#[derive(Debug)]
pub(super) struct Handle {
    /// The response's way.
    pub(super) sending: Sending,
    /// What `h3` may read of the request.
    pub(super) allowance: Allowance,
}

/// The handles of accepted requests until their tasks take them.
pub(super) type Handles = Arc<Mutex<VecDeque<Handle>>>;

/// Takes the handle of a request. Those before it belong to requests that `h3` rejected.
pub(super) fn take(handles: &Handles, id: StreamId) -> Option<Handle> {
    let mut handles = locked(handles);
    while let Some(handle) = handles.pop_front() {
        if handle.sending.id() == id {
            return Some(handle);
        }
    }
    None
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The sending side of a stream, shared by `h3`, which writes heads and control frames, and the
/// request's task, which writes the body. Reset with H3_INTERNAL_ERROR when the last of them lets go
/// of it unfinished.
#[derive(Clone, Debug)]
pub(super) struct Sending(Arc<Mutex<Out>>);

#[derive(Debug)]
struct Out {
    stream: quinn::SendStream,
    id: StreamId,
    is_over: bool,
    /// The rest of the request, once nobody wants it.
    unread: Option<quinn::RecvStream>,
}

impl Drop for Out {
    fn drop(&mut self) {
        if let Some(unread) = self.unread.take() {
            stop(unread);
        }
        if !self.is_over {
            // Refused only when it has ended otherwise.
            let _ = self.stream.reset(code(Code::H3_INTERNAL_ERROR));
        }
    }
}

impl Sending {
    fn new(stream: quinn::SendStream) -> Result<Self, ConnectionErrorIncoming> {
        let id = stream_id(stream.id())?;
        let out = Out { stream, id, is_over: false, unread: None };
        Ok(Self(Arc::new(Mutex::new(out))))
    }

    fn id(&self) -> StreamId {
        locked(&self.0).id
    }

    fn is_over(&self) -> bool {
        locked(&self.0).is_over
    }

    /// Hands over as much of `chunks` as there is room for, at least something; what was taken is
    /// cut off them.
    pub(super) async fn write(&self, chunks: &mut [Bytes]) -> Result<(), WriteError> {
        poll_fn(|cx| {
            let mut out = locked(&self.0);
            // Who waits stands in the connection, not in the future.
            let writing = pin!(out.stream.write_chunks(chunks));
            writing.poll(cx).map_ok(|_| ())
        })
        .await
    }

    /// The response ends here.
    pub(super) fn finish(&self) {
        let mut out = locked(&self.0);
        out.is_over = true;
        // Refused only when it has ended otherwise.
        let _ = out.stream.finish();
    }

    /// The response is broken off.
    pub(super) fn reset(&self, why: Code) {
        let mut out = locked(&self.0);
        out.is_over = true;
        let _ = out.stream.reset(code(why));
    }

    /// Streams of a higher priority send first.
    pub(super) fn set_priority(&self, priority: i32) {
        let _ = locked(&self.0).stream.set_priority(priority);
    }

    /// The response is over: waits for the end of a request that was not read to it. A client that has
    /// nothing more to send is not told to stop just before it says so, which some take for a failure;
    /// any other is.
    pub(super) async fn end_request(&self, patience: Duration) {
        let Some(mut unread) = locked(&self.0).unread.take() else { return };
        // Whatever comes of it.
        let _ = timeout(patience, unread.read_to_end(REST_BYTES_MAX)).await;
        stop(unread);
    }

    /// Returns when the client has all of the response or wants no more of it, or the connection is
    /// gone. Whether it has all.
    pub(super) fn taken(&self) -> impl Future<Output = bool> + Send + use<> {
        let stopped = locked(&self.0).stream.stopped();
        async move { matches!(stopped.await, Ok(None)) }
    }
}

/// A stream's number of one library as the other has it: both hold 62 bits.
fn stream_id(id: quinn::StreamId) -> Result<StreamId, ConnectionErrorIncoming> {
    StreamId::try_from(VarInt::from(id).into_inner())
        .map_err(|error| ConnectionErrorIncoming::InternalError(error.to_string()))
}

/// The sending side as `h3` writes to it.
#[derive(Debug)]
pub(super) struct Sender {
    sending: Sending,
    writing: Bytes,
}

impl Sender {
    fn new(sending: Sending) -> Self {
        Self { sending, writing: Bytes::new() }
    }
}

impl quic::SendStream<Bytes> for Sender {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        while !self.writing.is_empty() {
            let mut chunks = [std::mem::take(&mut self.writing)];
            let written = {
                let writing = pin!(self.sending.write(&mut chunks));
                writing.poll(cx)
            };
            let [left] = chunks;
            self.writing = left;
            ready!(written).map_err(write_error)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Heads and control frames: small, so copied into one piece.
    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        let mut data: WriteBuf<Bytes> = data.into();
        self.writing = data.copy_to_bytes(data.remaining());
        Ok(())
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.sending.finish();
        Poll::Ready(Ok(()))
    }

    fn reset(&mut self, reset_code: u64) {
        self.sending.reset(Code::from(reset_code));
    }

    fn send_id(&self) -> StreamId {
        self.sending.id()
    }
}

/// The receiving side.
#[derive(Debug)]
pub(super) struct Receiver {
    /// `None` once it has ended.
    stream: Option<quinn::RecvStream>,
    id: StreamId,
    allowance: Allowance,
    /// The response, where there is one.
    out: Weak<Mutex<Out>>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        match self.out.upgrade() {
            Some(out) => locked(&out).unread = Some(stream),
            None => stop(stream),
        }
    }
}

/// The rest of a request is not wanted, which is no error (RFC 9114 section 4.1).
fn stop(mut stream: quinn::RecvStream) {
    // Refused only when it has ended otherwise.
    let _ = stream.stop(code(Code::H3_NO_ERROR));
}

impl quic::RecvStream for Receiver {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(None)) };
        let chunk = {
            let reading = pin!(stream.read_chunk(usize::MAX, true));
            ready!(reading.poll(cx)).map_err(read_error)?
        };
        match chunk {
            Some(chunk) if !self.allowance.take(chunk.bytes.len()) => {
                let _ = stream.stop(code(Code::H3_EXCESSIVE_LOAD));
                let error_code = Code::H3_EXCESSIVE_LOAD.value();
                Poll::Ready(Err(StreamErrorIncoming::StreamTerminated { error_code }))
            }
            Some(chunk) => Poll::Ready(Ok(Some(chunk.bytes))),
            None => {
                self.stream = None;
                Poll::Ready(Ok(None))
            }
        }
    }

    fn stop_sending(&mut self, error_code: u64) {
        if let Some(stream) = &mut self.stream {
            let _ = stream.stop(code(Code::from(error_code)));
        }
    }

    fn recv_id(&self) -> StreamId {
        self.id
    }
}

/// A request's stream.
#[derive(Debug)]
pub(super) struct BidiStream {
    sender: Sender,
    receiver: Receiver,
}

impl quic::BidiStream<Bytes> for BidiStream {
    type SendStream = Sender;
    type RecvStream = Receiver;

    fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }
}

impl quic::SendStream<Bytes> for BidiStream {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.sender.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.sender.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.sender.poll_finish(cx)
    }

    fn reset(&mut self, reset_code: u64) {
        self.sender.reset(reset_code);
    }

    fn send_id(&self) -> StreamId {
        self.sender.send_id()
    }
}

impl quic::RecvStream for BidiStream {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.receiver.poll_data(cx)
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.receiver.stop_sending(error_code);
    }

    fn recv_id(&self) -> StreamId {
        self.receiver.recv_id()
    }
}

type Accepting<T> = Pin<Box<dyn Future<Output = Result<T, ConnectionError>> + Send + Sync>>;

/// A connection.
pub(super) struct Connection {
    opener: Opener,
    accepting_bi: Option<Accepting<(quinn::SendStream, quinn::RecvStream)>>,
    accepting_uni: Option<Accepting<quinn::RecvStream>>,
    handles: Handles,
    /// What `h3` may read of a request before its task says more.
    head_bytes_max: usize,
}

impl Connection {
    pub(super) fn new(connection: quinn::Connection, head_bytes_max: usize) -> Self {
        Self {
            opener: Opener { connection, opening: None },
            accepting_bi: None,
            accepting_uni: None,
            handles: Handles::default(),
            head_bytes_max,
        }
    }

    /// Where the tasks of requests find their handles.
    pub(super) fn handles(&self) -> Handles {
        Arc::clone(&self.handles)
    }
}

impl quic::Connection<Bytes> for Connection {
    type RecvStream = Receiver;
    type OpenStreams = Opener;

    fn poll_accept_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Receiver, ConnectionErrorIncoming>> {
        let accepting = self.accepting_uni.get_or_insert_with(|| {
            let connection = self.opener.connection.clone();
            Box::pin(async move { connection.accept_uni().await })
        });
        let accepted = ready!(accepting.as_mut().poll(cx));
        self.accepting_uni = None;
        let stream = accepted.map_err(connection_error)?;
        let id = stream_id(stream.id())?;
        let (allowance, out) = (Allowance::new(CONTROL_BYTES_MAX), Weak::new());
        Poll::Ready(Ok(Receiver { stream: Some(stream), id, allowance, out }))
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<BidiStream, ConnectionErrorIncoming>> {
        let accepting = self.accepting_bi.get_or_insert_with(|| {
            let connection = self.opener.connection.clone();
            Box::pin(async move { connection.accept_bi().await })
        });
        let accepted = ready!(accepting.as_mut().poll(cx));
        self.accepting_bi = None;
        let (send, stream) = accepted.map_err(connection_error)?;
        let (sending, id) = (Sending::new(send)?, stream_id(stream.id())?);
        let allowance = Allowance::new(self.head_bytes_max);
        let handle = Handle { sending: sending.clone(), allowance: allowance.clone() };
        let mut handles = locked(&self.handles);
        // `h3` rejects requests after its GOAWAY: nobody takes their handles.
        while handles.front().is_some_and(|handle| handle.sending.is_over()) {
            handles.pop_front();
        }
        handles.push_back(handle);
        drop(handles);
        let out = Arc::downgrade(&sending.0);
        let receiver = Receiver { stream: Some(stream), id, allowance, out };
        Poll::Ready(Ok(BidiStream { sender: Sender::new(sending), receiver }))
    }

    fn opener(&self) -> Opener {
        Opener { connection: self.opener.connection.clone(), opening: None }
    }
}

impl quic::OpenStreams<Bytes> for Connection {
    type BidiStream = BidiStream;
    type SendStream = Sender;

    fn poll_open_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<BidiStream, StreamErrorIncoming>> {
        self.opener.poll_open_bidi(cx)
    }

    fn poll_open_send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Sender, StreamErrorIncoming>> {
        self.opener.poll_open_send(cx)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.opener.close(code, reason);
    }
}

/// Opens our own streams: the control stream and those of QPACK.
pub(super) struct Opener {
    connection: quinn::Connection,
    opening: Option<Accepting<quinn::SendStream>>,
}

impl quic::OpenStreams<Bytes> for Opener {
    type BidiStream = BidiStream;
    type SendStream = Sender;

    /// A server asks nothing (RFC 9114 section 6.1).
    fn poll_open_bidi(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<Result<BidiStream, StreamErrorIncoming>> {
        let why = "servers open no request streams".to_owned();
        let connection_error = ConnectionErrorIncoming::InternalError(why);
        Poll::Ready(Err(StreamErrorIncoming::ConnectionErrorIncoming { connection_error }))
    }

    fn poll_open_send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Sender, StreamErrorIncoming>> {
        let opening = self.opening.get_or_insert_with(|| {
            let connection = self.connection.clone();
            Box::pin(async move { connection.open_uni().await })
        });
        let opened = ready!(opening.as_mut().poll(cx));
        self.opening = None;
        let sending = opened.map_err(connection_error).and_then(Sending::new);
        Poll::Ready(match sending {
            Ok(sending) => Ok(Sender::new(sending)),
            Err(connection_error) => {
                Err(StreamErrorIncoming::ConnectionErrorIncoming { connection_error })
            }
        })
    }

    fn close(&mut self, why: Code, reason: &[u8]) {
        self.connection.close(code(why), reason);
    }
}

fn connection_error(error: ConnectionError) -> ConnectionErrorIncoming {
    match error {
        ConnectionError::ApplicationClosed(close) => {
            ConnectionErrorIncoming::ApplicationClose { error_code: close.error_code.into_inner() }
        }
        ConnectionError::TimedOut => ConnectionErrorIncoming::Timeout,
        error => ConnectionErrorIncoming::Undefined(Arc::new(error)),
    }
}

fn write_error(error: WriteError) -> StreamErrorIncoming {
    match error {
        WriteError::Stopped(code) => {
            StreamErrorIncoming::StreamTerminated { error_code: code.into_inner() }
        }
        WriteError::ConnectionLost(error) => StreamErrorIncoming::ConnectionErrorIncoming {
            connection_error: connection_error(error),
        },
        error @ (WriteError::ClosedStream | WriteError::ZeroRttRejected) => {
            StreamErrorIncoming::Unknown(Box::new(error))
        }
    }
}

fn read_error(error: ReadError) -> StreamErrorIncoming {
    match error {
        ReadError::Reset(code) => {
            StreamErrorIncoming::StreamTerminated { error_code: code.into_inner() }
        }
        ReadError::ConnectionLost(error) => StreamErrorIncoming::ConnectionErrorIncoming {
            connection_error: connection_error(error),
        },
        error => StreamErrorIncoming::Unknown(Box::new(error)),
    }
}
