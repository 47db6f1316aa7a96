//! Pouring an upstream answer into the store, block by block, at the network's pace.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use fill::{Failure, MasterId, Next, RunId};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_cache::ContentRange;
use http_cache::hygiene::fill_request;

use store::WriteError;

use crate::filling::Filling;
use crate::home;
use crate::upstream::{Answer, Reading};

/// One request of the fill machine, from the question to its end.
pub(crate) async fn request(
    filling: Arc<Filling>,
    run: RunId,
    master: MasterId,
    bytes: Range<u64>,
) {
    let brought = async {
        let (body, skip) = ask(&filling, master, &bytes).await?;
        filling.handle_head(run);
        pour(&filling, run, master, body, skip).await
    };
    while_wanted(&filling, run, master, brought).await;
}

/// An answer that came before its filling: the one that began the representation. `skip` bytes of
/// it come before the run's first block.
pub(crate) async fn adopted(filling: Arc<Filling>, run: RunId, answer: Answer, skip: u64) {
    let master = answer.master;
    let brought = pour(&filling, run, master, answer.body, skip);
    while_wanted(&filling, run, master, brought).await;
}

/// Carries a run to its end, or until nobody has wanted it for a while.
async fn while_wanted(
    filling: &Arc<Filling>,
    run: RunId,
    master: MasterId,
    brought: impl Future<Output = Result<(), Failure>>,
) {
    tokio::select! {
        result = brought => if let Err(why) = result {
            filling.handle_failed(run, master, why);
        },
        () = filling.abandoned(run) => {}
    }
}

/// Asks for bytes on condition that they are of the same representation. Gives the body and how
/// many bytes of it come before those asked for.
pub(crate) async fn ask(
    filling: &Filling,
    master: MasterId,
    bytes: &Range<u64>,
) -> Result<(Reading, u64), Failure> {
    let (edge, object) = (&filling.edge, &filling.object);
    let whole = *bytes == (0..object.rep.length());
    let range = format!("bytes={}-{}", bytes.start, bytes.end.saturating_sub(1));
    let range = HeaderValue::try_from(range).map_err(|_| Failure::Protocol)?;
    let (project, target) = (&object.project, &object.target);
    let mut answer = Err(Failure::Changed);
    for mut extra in
        home::conditions(object, filling.conditions.clone().unwrap_or_default(), master)
    {
        if !whole {
            extra.insert(header::RANGE, range.clone());
        }
        let headers = fill_request(&HeaderMap::new(), &edge.me, &object.selecting, &extra);
        answer = edge.upstream.ask(project, master, &Method::GET, target, headers).await;
        if !answer.as_ref().is_ok_and(|a| a.parts.status == StatusCode::PRECONDITION_FAILED) {
            break;
        }
    }
    let answer = answer?;
    let reply = answer.reply();
    let status = reply.status;
    let same = home::is_part(edge, object, master, &reply);
    let start = match (reply.status, ContentRange::of(reply.headers)) {
        (StatusCode::OK, _) if same => 0,
        (StatusCode::PARTIAL_CONTENT, Some(ContentRange::Part { first, last, .. })) if same => {
            let covers = first <= bytes.start && last >= bytes.start;
            if covers { first } else { return Err(Failure::Protocol) }
        }
        // No answer to what was asked.
        (StatusCode::PARTIAL_CONTENT, part)
            if whole || !matches!(part, Some(ContentRange::Part { .. })) =>
        {
            return Err(Failure::Protocol);
        }
        (StatusCode::OK | StatusCode::PARTIAL_CONTENT, _)
        | (StatusCode::PRECONDITION_FAILED | StatusCode::RANGE_NOT_SATISFIABLE, _) => {
            return Err(Failure::Changed);
        }
        (status, _) => return Err(Failure::Status(status.as_u16())),
    };
    project.handle_ok(master);
    filling.note_status(status);
    Ok((answer.body, bytes.start.saturating_sub(start)))
}

/// Reads `body` into the run's blocks until they are there or nobody wants more of them.
async fn pour(
    filling: &Arc<Filling>,
    run: RunId,
    master: MasterId,
    mut body: Reading,
    mut skip: u64,
) -> Result<(), Failure> {
    let edge = &filling.edge;
    edge.counters.in_flight.inc();
    let _in_flight = OnDrop(|| edge.counters.in_flight.dec());
    while let Some(mut data) = body.next().await? {
        let count = u64::try_from(data.len()).unwrap_or(u64::MAX);
        let skipped = skip.min(count);
        data.advance(usize::try_from(skipped).unwrap_or(data.len()));
        skip = skip.saturating_sub(skipped);
        while !data.is_empty() {
            let Some(block) = put(filling, run, &mut data).await? else { continue };
            match store(filling, run, block).await {
                Ok(Next::Read) => {}
                Ok(Next::Done | Next::Cut) => return Ok(()),
                Err(why) => {
                    if why == Failure::Disk && filling.conditions.is_none() {
                        filling.leave_rest(block, master, data, body);
                    }
                    return Err(why);
                }
            }
        }
    }
    Err(Failure::Truncated)
}

/// Moves bytes of `data` into the block being filled; gives it when it is full. Waits for memory
/// at the start of a block: upstream is then held back by TCP.
async fn put(filling: &Filling, run: RunId, data: &mut Bytes) -> Result<Option<u32>, Failure> {
    let place = filling.place(run).ok_or(Failure::Protocol)?;
    let permit = if place.slot.has_buffer() {
        None
    } else {
        filling.edge.buffer(&filling.object.project).await
    };
    let part = data.split_to(place.missing.min(data.len()));
    place.slot.append(&part, permit, place.block_bytes);
    let full = filling.handle_bytes(run, part.len());
    place.slot.changed.notify_waiters();
    Ok(full)
}

/// Writes a full block off the workers.
async fn store(filling: &Arc<Filling>, run: RunId, block: u32) -> Result<Next, Failure> {
    let (rep, slot) = (Arc::clone(&filling.object.rep), filling.slot(block));
    let written = tokio::task::spawn_blocking(move || {
        slot.with_bytes(|bytes| rep.write_block(block, bytes).map(|()| bytes.len()))
    });
    match written.await {
        Ok(Ok(bytes)) => {
            filling.edge.counters.filled.inc_by(u64::try_from(bytes).unwrap_or(0));
            Ok(filling.handle_stored(run, block))
        }
        Ok(Err(error)) => {
            let (edge, object) = (&filling.edge, &filling.object);
            edge.note_unstored(&object.project, &object.target, &error);
            if let WriteError::Differs { .. } = error {
                // Nobody can say which is right: no client gets bytes of both (E1).
                edge.discard(object);
                return Err(Failure::Changed);
            }
            Err(Failure::Disk)
        }
        Err(_) => Err(Failure::Disk),
    }
}

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
