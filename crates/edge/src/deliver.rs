//! An object on its way to a client: from the store where blocks are held, from the block buffers
//! as they fill, by the fill machine where they are missing, past the store when it takes no more.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use fill::{Failure, Geometry};
use http::Response;
use http_cache::{CacheStatus, Forward, Freshness, Plan, Request};
use model::{Completion, Now};
use serve::{Body, BodyError, FileRange, Piece, Source};

use crate::filling::Filling;
use crate::flight::Told;
use crate::guard::Whole;
use crate::hand_over::Rest;
use crate::past::Past;
use crate::reader::Reader;
use crate::rules::PathRules;
use crate::signed;
use crate::state::{Edge, Object};

/// Bytes copied at once from a block that is being filled: what a slow client keeps in memory.
const COPY_BYTES_MAX: usize = 64 << 10;
/// Bytes of one extent; a bound so that a long transfer looks at the store again now and then.
const EXTENT_BYTES_MAX: u64 = 64 << 20;
/// The same in blocks while the object is being filled for this client.
const FILLING_BLOCKS_MAX: u64 = 2;
/// Blocks larger than this are not read into memory whole after a hand-over: the successor has them.
const CHECKED_BYTES_MAX: u32 = 1 << 20;
/// How often one block may turn out to be lost (evicted, corrupt) under one reader.
const LOSSES_MAX: u32 = 3;

/// What a client wants, and what its project says of that.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) request: &'a Request,
    pub(crate) rules: &'a PathRules,
    /// Whose asking counts as demand for the whole.
    pub(crate) client: Option<IpAddr>,
}

/// An answer whose body is on its way.
pub(crate) struct Delivered {
    pub(crate) response: Response<Body>,
    /// Whether something of it had to be brought first.
    pub(crate) filled: bool,
    /// Who brought that last, where it is known.
    pub(crate) told: Option<Told>,
}

/// Answers from the object. Before the head is sent, the first block that is missing must be on its
/// way from a master that has this very representation: then a change upstream is seen while the
/// client can still be given the new one.
pub(crate) async fn deliver(
    edge: &Arc<Edge>,
    object: Arc<Object>,
    wanted: Wanted<'_>,
    now: Now,
    mut status: CacheStatus,
    reader: Option<Reader>,
) -> Result<Delivered, Failure> {
    let Wanted { request, rules, client } = wanted;
    let plan = object.head.respond(request, now);
    let (mut kept, mut told) = (None, None);
    if !object.rep.is_complete() {
        if let Some(missing) = first_missing(&object, &plan) {
            let reader = reader
                .filter(|reader| reader.is_of(&object))
                .unwrap_or_else(|| Filling::of(edge, &object, None).reader());
            Box::pin(reader.coming(missing)).await?;
            told = reader.told();
            if status.hit {
                let forwarded = CacheStatus::forwarded(Forward::Partial);
                let (ttl_s, detail) = (status.ttl_s, status.detail);
                let fwd_status = told.as_ref().and_then(|told| told.status);
                status = CacheStatus { ttl_s, detail, fwd_status, ..forwarded };
            }
            kept = Some(reader);
        }
        if let Some(client) = client.filter(|_| !plan.pieces.is_empty()) {
            complete(edge, &object, rules.completion, kept.as_ref(), client);
        }
    }
    let fresh = object.head.freshness(now, &rules.policy);
    let plan = plan.by_cache(&object.head, &fresh, &rules.policy, &edge.me, &status);
    let filled = kept.is_some();
    Ok(Delivered { response: hand_out(edge, object, plan, kept), filled, told })
}

/// The same of what is held whole: nothing has to be waited for.
pub(crate) fn deliver_whole(
    edge: &Arc<Edge>,
    object: Object,
    wanted: Wanted<'_>,
    now: Now,
    fresh: &Freshness,
    status: &CacheStatus,
) -> Response<Body> {
    let Wanted { request, rules, .. } = wanted;
    let (head, policy) = (&object.head, &rules.policy);
    let sign = || head.respond(request, now).by_cache(head, fresh, policy, &edge.me, status);
    let plan = if request.is_for_whole() {
        signed::whole(head, request, fresh, policy, status, sign)
    } else {
        sign()
    };
    match in_memory(edge, &object, &plan.pieces) {
        Some(body) => respond(plan, body),
        None => hand_out(edge, Arc::new(object), plan, None),
    }
}

/// `reader`: of what is not held yet.
fn hand_out(
    edge: &Arc<Edge>,
    object: Arc<Object>,
    plan: Plan,
    reader: Option<Reader>,
) -> Response<Body> {
    let (pieces, length) = (&plan.pieces, object.rep.length());
    let at_once = in_memory(edge, &object, pieces).or_else(|| one_run(edge, &object, pieces));
    let body = at_once.unwrap_or_else(|| {
        let lengths = plan.pieces.iter().map(http_cache::Piece::length);
        let length = lengths.fold(0u64, u64::saturating_add);
        let delivery = Delivery {
            edge: Arc::clone(edge),
            object,
            pieces: plan.pieces.iter().cloned().collect(),
            reader,
            past: None,
            reading: None,
        };
        Body::stream(delivery, Some(length))
    });
    let mut response = respond(plan, body);
    if edge.guard.counts_copies_of(length) {
        response.extensions_mut().insert(Whole(length));
    }
    response
}

fn respond(plan: Plan, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = plan.status;
    *response.headers_mut() = plan.headers;
    response
}

/// A body that is nothing, or in memory and not in doubt.
fn in_memory(edge: &Edge, object: &Object, pieces: &[http_cache::Piece]) -> Option<Body> {
    let range = match pieces {
        [] => return Some(Body::empty()),
        [http_cache::Piece::Content(range)] => range.clone(),
        _ => return None,
    };
    let memory = object.rep.memory().filter(|_| is_sound(edge, object))?;
    Some(Body::bytes(slice(memory, range)))
}

/// A body that is one run of a file, all of it held and none of it in doubt.
fn one_run(edge: &Arc<Edge>, object: &Arc<Object>, pieces: &[http_cache::Piece]) -> Option<Body> {
    let [http_cache::Piece::Content(range)] = pieces else { return None };
    let (rep, len) = (&object.rep, range.end.saturating_sub(range.start));
    if !is_sound(edge, object) || rep.wants_memory() || len > EXTENT_BYTES_MAX {
        return None;
    }
    let extent = rep.extent(range.start, len).filter(|extent| extent.len == len)?;
    let rest = Rest { edge: Arc::clone(edge), object: Arc::clone(object) };
    Some(Body::file(FileRange::from(extent).or_from(Arc::new(rest))))
}

fn is_sound(edge: &Edge, object: &Object) -> bool {
    object.rep.is_complete() && !edge.checks.is_wrong(&object.rep)
}

/// What is left of a response that was to come from a file, when the stores were handed over: from
/// blocks that are looked at again, and from the successor.
pub(crate) fn rest(edge: &Arc<Edge>, object: &Arc<Object>, range: Range<u64>) -> Body {
    let length = range.end.saturating_sub(range.start);
    Body::stream(Delivery::of(edge, object, range), Some(length))
}

/// Begins the completion of what is held in part, when it is due.
fn complete(
    edge: &Arc<Edge>,
    object: &Arc<Object>,
    how: Completion,
    reader: Option<&Reader>,
    client: IpAddr,
) {
    let due = match how {
        Completion::Popular => edge.audience.note(object, edge.audience.network(client)),
        Completion::Complete => reader.is_none(),
        Completion::Demanded => false,
    };
    if due && object.conditions().is_some() {
        let filling = reader
            .map_or_else(|| Filling::of(edge, object, None), |reader| Arc::clone(reader.filling()));
        filling.complete(true);
    }
}

fn geometry(object: &Object) -> Geometry {
    Geometry::new(object.rep.length(), object.rep.block_bytes())
}

/// The first block that the answer needs and that is not held, up to the last one of its range.
fn first_missing(object: &Object, plan: &Plan) -> Option<Range<u32>> {
    let geometry = geometry(object);
    plan.content().find_map(|range| {
        let mut blocks = geometry.touched_by(range);
        blocks.start = blocks.clone().find(|b| !object.rep.has(*b))?;
        Some(blocks)
    })
}

/// A body in delivery. Asked for its next piece only when the client has room for it; what it
/// waits for is filled whether it asks or not.
#[derive(Debug)]
pub(crate) struct Delivery {
    edge: Arc<Edge>,
    object: Arc<Object>,
    pieces: VecDeque<http_cache::Piece>,
    reader: Option<Reader>,
    /// Its way past the store, to the end of the first piece.
    past: Option<Past>,
    /// The block its reader was last said to read.
    reading: Option<u32>,
}

impl Source for Delivery {
    async fn next(&mut self) -> Option<Result<Piece, BodyError>> {
        let range = match self.pieces.front()? {
            http_cache::Piece::Framing(bytes) => {
                let bytes = bytes.clone();
                self.pieces.pop_front();
                return Some(Ok(Piece::Bytes(bytes)));
            }
            http_cache::Piece::Content(range) => range.clone(),
        };
        let found = if self.edge.checks.is_wrong(&self.object.rep) {
            Err(Failure::DigestMismatch)
        } else {
            self.content(range.clone()).await
        };
        let (piece, len) = match found {
            Ok(found) => found,
            Err(why) => {
                tracing::debug!(target = self.object.target.as_str(), %why, "broken off");
                return Some(Err(BodyError::source(why)));
            }
        };
        let left = range.start.saturating_add(len)..range.end;
        if left.start >= left.end {
            self.pieces.pop_front();
            self.past = None;
        } else if let Some(front) = self.pieces.front_mut() {
            *front = http_cache::Piece::Content(left);
        }
        Some(Ok(piece))
    }
}

impl Delivery {
    /// Of one range.
    pub(crate) fn of(edge: &Arc<Edge>, object: &Arc<Object>, range: Range<u64>) -> Self {
        Self {
            edge: Arc::clone(edge),
            object: Arc::clone(object),
            pieces: [http_cache::Piece::Content(range)].into(),
            reader: None,
            past: None,
            reading: None,
        }
    }

    /// The next bytes of `range`, and how many they are: from the store, or past it when that takes
    /// no more.
    async fn content(&mut self, range: Range<u64>) -> Result<(Piece, u64), Failure> {
        let past = match &mut self.past {
            Some(past) => past,
            None => match self.stored(range.clone()).await {
                Ok(found) => return Ok(found),
                Err(why) => {
                    let why = if self.edge.is_handed_over() {
                        if let Some(found) = self.kept(range.clone()) {
                            return Ok(found);
                        }
                        Failure::Disk
                    } else {
                        why
                    };
                    // The fill goes on without this client.
                    let reader = self.reader.take();
                    let filling = reader.map_or_else(
                        || Filling::of(&self.edge, &self.object, None),
                        |reader| Arc::clone(reader.filling()),
                    );
                    self.past.insert(Past::begin(&filling, range.start, why)?)
                }
            },
        };
        Ok(counted(past.next(range).await?))
    }

    /// The next bytes of `range` from the store or on their way into it.
    async fn stored(&mut self, range: Range<u64>) -> Result<(Piece, u64), Failure> {
        let geometry = geometry(&self.object);
        let block = geometry.block_of(range.start);
        let len = range.end.saturating_sub(range.start);
        let until = geometry.touched_by(range.clone()).end;
        // While it is being filled, the fill is told where its readers are.
        let most = match self.reader {
            Some(_) => u64::from(self.object.rep.block_bytes()).saturating_mul(FILLING_BLOCKS_MAX),
            None => EXTENT_BYTES_MAX,
        };
        for _ in 0..=LOSSES_MAX {
            if self.object.rep.is_handed_over() {
                if let Some(found) = self.remembered(range.clone()).await {
                    return Ok(found);
                }
                // Perhaps it is coming in.
                let reader = self.reader.as_ref().ok_or(Failure::Disk)?;
                if let Some(bytes) = reader.bytes(range.start, until, copy_max(len)).await? {
                    return Ok(counted(bytes));
                }
                continue;
            }
            self.prepare(block).await;
            if let Some(body) = self.object.rep.memory() {
                return Ok(counted(slice(body, range)));
            }
            let extent = self.object.rep.extent(range.start, len.min(most));
            if let Some(extent) = extent {
                if let Some(reader) = &self.reader
                    && self.reading.replace(block) != Some(block)
                {
                    reader.note_at(block..until);
                }
                let len = extent.len;
                let (edge, object) = (Arc::clone(&self.edge), Arc::clone(&self.object));
                let file = FileRange::from(extent).or_from(Arc::new(Rest { edge, object }));
                return Ok((Piece::File(file), len));
            }
            if self.object.rep.has(block) {
                // Came between the two looks, or its file cannot be opened.
                continue;
            }
            let reader = self
                .reader
                .get_or_insert_with(|| Filling::of(&self.edge, &self.object, None).reader());
            if let Some(bytes) = reader.bytes(range.start, until, copy_max(len)).await? {
                return Ok(counted(bytes));
            }
        }
        Err(Failure::Disk)
    }

    /// The next bytes of `range` as this process has them after the hand-over: from memory, or from
    /// a block that was read whole and is as it was stored.
    async fn remembered(&self, range: Range<u64>) -> Option<(Piece, u64)> {
        if let Some(body) = self.object.rep.memory() {
            return Some(counted(slice(body, range)));
        }
        let block = geometry(&self.object).block_of(range.start);
        let rep = Arc::clone(&self.object.rep);
        if !rep.has(block) || rep.block_bytes() > CHECKED_BYTES_MAX {
            return None;
        }
        let read = tokio::task::spawn_blocking(move || rep.read_checked(block)).await;
        Some(self.within(block, read.ok()??, range))
    }

    /// The next bytes of `range` from a block that came in when the stores were handed over.
    fn kept(&self, range: Range<u64>) -> Option<(Piece, u64)> {
        let block = geometry(&self.object).block_of(range.start);
        let bytes = self.reader.as_ref()?.filling().kept(block)?;
        Some(self.within(block, bytes, range))
    }

    /// What a block has of `range`.
    fn within(&self, block: u32, bytes: Bytes, range: Range<u64>) -> (Piece, u64) {
        let start = geometry(&self.object).start_of(block);
        let at = |offset: u64| offset.saturating_sub(start);
        counted(slice(bytes, at(range.start)..at(range.end)))
    }

    /// Off the workers: the first use of a block after a start compares its checksum, and a small
    /// object that is asked for often comes into memory.
    async fn prepare(&self, block: u32) {
        let rep = &self.object.rep;
        if rep.verify_pending(block) {
            let rep = Arc::clone(rep);
            // A failed block has become a miss, and so is one whose check did not run.
            let _ = tokio::task::spawn_blocking(move || rep.verify(block)).await;
        }
        if rep.wants_memory() {
            let rep = Arc::clone(rep);
            // Without it the bytes come from the file.
            let _ = tokio::task::spawn_blocking(move || rep.load_memory()).await;
        }
    }
}

/// The bytes of a range of a body that is in memory.
fn slice(mut body: Bytes, range: Range<u64>) -> Bytes {
    let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(body.len());
    let (start, end) = (at(range.start), at(range.end));
    body.truncate(end.max(start));
    body.advance(start);
    body
}

fn copy_max(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX).min(COPY_BYTES_MAX)
}

fn counted(bytes: Bytes) -> (Piece, u64) {
    let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    (Piece::Bytes(bytes), len)
}
