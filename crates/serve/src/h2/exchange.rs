//! One request of an HTTP/2 connection and its response.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use ::h2::server::SendResponse;
use ::h2::{Reason, RecvStream, SendStream};
use bytes::{Buf, Bytes};
use http::{HeaderMap, Method, Request, Response, header};
use http_body::Body as _;

use super::gather::Gather;
use crate::connection::Wire;
use crate::crowd::Doing;
use crate::head::{complete, may_have_body, name_host};
use crate::priority::{Held, Priority, Turn, Turns};
use crate::server::{Counters, Handler};
use crate::tally::{Tally, note_sent};
use crate::{Body, BodyError, RequestBody};

/// After a wait for the client's window a body asks for so much of it: when it is small, whoever
/// asks next finds some of it left.
const PART_BYTES_NARROW: usize = 16 * 1024;

/// What all exchanges of a connection need.
pub(crate) struct Answering<H: Handler> {
    pub(crate) handler: Arc<H>,
    pub(crate) visitor: H::Visitor,
    pub(crate) counters: Arc<Counters>,
    pub(crate) turns: Arc<Turns>,
    /// Requests in all, and those of which nothing is left to be done.
    begun: AtomicU64,
    ended: AtomicU64,
}

/// A request until it has ended, in whatever way.
struct Running<'a>(&'a AtomicU64);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Why an exchange ended early.
enum Broken {
    /// By the client: it reset the stream, or the connection has ended.
    Gone,
    /// The client takes nothing of this response.
    Stalled,
    /// The body cannot go on.
    Body(BodyError),
}

impl<H: Handler> Answering<H> {
    pub(crate) fn new(handler: Arc<H>, visitor: H::Visitor, counters: Arc<Counters>) -> Self {
        let (begun, ended) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { handler, visitor, counters, turns: Arc::default(), begun, ended }
    }

    /// Requests in all.
    pub(crate) fn requests(&self) -> u64 {
        self.begun.load(Relaxed)
    }

    /// What the connection does, whose bytes leave by `out`.
    pub(crate) fn doing(&self, out: &Gather<impl Wire>) -> Doing {
        let (begun, ended) = (self.requests(), self.ended.load(Relaxed));
        let is_clients_turn = self.turns.owes() || !out.is_empty();
        if begun == ended && !is_clients_turn {
            return Doing::Nothing(begun);
        }
        Doing::Answering(is_clients_turn.then(|| out.acknowledged()).flatten())
    }

    /// Answers one request. Dropped, it resets the stream.
    pub(crate) async fn answer(
        self: Arc<Self>,
        mut request: Request<RecvStream>,
        mut respond: SendResponse<Given>,
    ) {
        self.begun.fetch_add(1, Relaxed);
        let _running = Running(&self.ended);
        self.counters.requests.add(1);
        self.counters.h2_requests.fetch_add(1, Relaxed);
        if !name_host(&mut request) {
            self.counters.malformed.fetch_add(1, Relaxed);
            return respond.send_reset(Reason::PROTOCOL_ERROR);
        }
        let method = request.method().clone();
        let priority = Priority::of(request.headers());
        let length = content_length(request.headers());
        let request = request.map(|content| RequestBody::h2(content, length));
        let mut handled = pin!(self.handler.handle(request, &self.visitor));
        let response = poll_fn(|cx| {
            if let Poll::Ready(response) = handled.as_mut().poll(cx) {
                return Poll::Ready(Some(response));
            }
            respond.poll_reset(cx).map(|_| None)
        });
        let Some(response) = response.await else {
            self.counters.h2_resets.fetch_add(1, Relaxed);
            return;
        };
        let (mut head, body) = response.into_parts();
        let length = body.size_hint().exact();
        complete(head.status, &method, &mut head.headers, length);
        let has_no_body =
            method == Method::HEAD || !may_have_body(head.status) || body.is_end_stream();
        let mut stream = match respond.send_response(Response::from_parts(head, ()), has_no_body) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(%error, "a response cannot be sent");
                return respond.send_reset(Reason::INTERNAL_ERROR);
            }
        };
        if has_no_body {
            return;
        }
        let turn = self.turns.enter(stream.stream_id().as_u32(), priority.with_length(length));
        match pour(body, &mut stream, &turn).await {
            Ok(()) => {}
            Err(Broken::Gone) => {
                self.counters.h2_resets.fetch_add(1, Relaxed);
            }
            Err(Broken::Stalled) => {
                stream.send_reset(Reason::CANCEL);
                self.counters.stalled.fetch_add(1, Relaxed);
            }
            Err(Broken::Body(error)) => {
                // Never END_STREAM: half a body must not look like a whole one.
                stream.send_reset(Reason::INTERNAL_ERROR);
                self.counters.broke_off(&error);
            }
        }
    }
}

/// What a request announces. The h2 crate has refused what is no number.
fn content_length(fields: &HeaderMap) -> Option<u64> {
    fields.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Sends a body, part by part: each when it is its turn and the client has room for it.
async fn pour(mut body: Body, stream: &mut SendStream<Given>, turn: &Turn) -> Result<(), Broken> {
    let mut body = Pin::new(&mut body);
    // What the body gave and the client has no room for yet.
    let mut chunk = Bytes::new();
    let mut tally = None;
    let mut ask = turn.part_bytes();
    loop {
        poll_fn(|cx| {
            let turn = turn.poll(cx);
            if turn.is_pending() && stream.capacity() > 0 {
                stream.reserve_capacity(0); // who has the turn may need it
            }
            or_reset(turn, stream, cx)
        })
        .await?;
        let wanted = if chunk.is_empty() { ask } else { ask.min(chunk.len()) };
        stream.reserve_capacity(wanted);
        let mut waited = false;
        let room = poll_fn(|cx| poll_room(stream, turn, wanted, &mut waited, cx)).await?;
        if chunk.is_empty() {
            body.read_at_most(room);
            let mut polled = poll_fn(|cx| Poll::Ready(body.as_mut().poll_frame(cx))).await;
            if polled.is_pending() {
                // Others may have the room in the meantime.
                stream.reserve_capacity(0);
                turn.is_quiet();
                polled = Poll::Ready(
                    poll_fn(|cx| or_reset(body.as_mut().poll_frame(cx), stream, cx)).await?,
                );
            }
            let Poll::Ready(frame) = polled else { continue };
            match frame.transpose().map_err(Broken::Body)?.map(|frame| frame.into_data()) {
                Some(Ok(data)) => (chunk, tally) = data.into_parts(),
                Some(Err(_)) => continue, // trailers: our bodies have none
                None => return give(stream, turn, Bytes::new(), None, true),
            }
        }
        let room = room.min(stream.capacity());
        ask = if waited { PART_BYTES_NARROW } else { turn.part_bytes() };
        let part = chunk.split_to(room.min(chunk.len()));
        if part.is_empty() {
            continue;
        }
        let is_last = chunk.is_empty() && body.is_end_stream();
        give(stream, turn, part, tally.clone(), is_last)?;
        if is_last {
            return Ok(());
        }
    }
}

fn give(
    stream: &mut SendStream<Given>,
    turn: &Turn,
    bytes: Bytes,
    tally: Option<Arc<dyn Tally>>,
    is_last: bool,
) -> Result<(), Broken> {
    let held = turn.give(bytes.len());
    stream.send_data(Given { bytes, held, tally }, is_last).map_err(|_| Broken::Gone)
}

/// Ready when the client takes more of this response: the bytes of it.
fn poll_room(
    stream: &mut SendStream<Given>,
    turn: &Turn,
    wanted: usize,
    waited: &mut bool,
    cx: &mut Context<'_>,
) -> Poll<Result<usize, Broken>> {
    loop {
        let room = stream.capacity();
        if room > 0 {
            return or_reset(Poll::Ready(room), stream, cx);
        }
        match stream.poll_capacity(cx) {
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(_) => return Poll::Ready(Err(Broken::Gone)),
            Poll::Pending => break,
        }
    }
    if !*waited {
        *waited = true;
        stream.reserve_capacity(wanted.min(PART_BYTES_NARROW));
    }
    if !turn.waits(cx) {
        return Poll::Ready(Err(Broken::Stalled));
    }
    or_reset(Poll::Pending, stream, cx)
}

/// What was polled, unless the client has reset the stream.
fn or_reset<T>(
    polled: Poll<T>,
    stream: &mut SendStream<Given>,
    cx: &mut Context<'_>,
) -> Poll<Result<T, Broken>> {
    if stream.poll_reset(cx).is_ready() {
        return Poll::Ready(Err(Broken::Gone));
    }
    Poll::Ready(Ok(ready!(polled)))
}

/// Bytes given to the codec, in the account of their connection until they are written.
pub(crate) struct Given {
    bytes: Bytes,
    held: Held,
    tally: Option<Arc<dyn Tally>>,
}

impl Buf for Given {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, bytes: usize) {
        self.bytes.advance(bytes);
        self.held.wrote(bytes);
        note_sent(self.tally.as_deref(), bytes);
    }
}
