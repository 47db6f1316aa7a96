//! Pouring an upstream answer into the store, block by block, at the network's pace.
//!
//! Before each block a run waits for its turn: for memory, when a client is near; for memory and
//! budget to spare, when it completes the object; for its readers to come nearer, when it is far
//! ahead of them. Meanwhile the answer is not read and TCP holds its master back.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use fill::{Failure, Full, MasterId, Next, Pace, RunId};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_cache::ContentRange;
use http_cache::hygiene::fill_request;
use rt::clock;
use store::WriteError;
use tokio::sync::OwnedSemaphorePermit;

use crate::check;
use crate::filling::{Filling, Place};
use crate::home;
use crate::state::BufferPermit;
use crate::upstream::turns::Urgency;
use crate::upstream::{Answer, Call, Reading};

/// A paused answer is given up after this time, so that slow clients keep no connections of
/// masters; its readers get a new one when they come near.
const PAUSED_MAX: Duration = Duration::from_secs(10);
/// How soon a paused answer looks whether others wait for its place at the master; then it is given
/// up at once.
const PAUSED_LOOK: Duration = Duration::from_millis(250);
/// How soon completion looks again for memory to spare.
const SPARE_PAUSE: Duration = Duration::from_millis(100);

/// One request of the fill machine, from the question to its end.
pub(crate) async fn request(
    filling: Arc<Filling>,
    run: RunId,
    master: MasterId,
    bytes: Range<u64>,
) {
    let Some(_place) = place_to_ask(&filling, run, master).await else { return };
    let is_spare = filling.turn(run) == Some(Pace::Spare);
    let urgency = if is_spare { Urgency::Ahead } else { Urgency::Blocked };
    let asking = ask(&filling, master, &bytes, urgency);
    carry(&filling, run, master, asking).await;
}

/// A request for `bytes` that was made before its filling, without conditions. When its answer is of
/// another representation, it is made again with them.
pub(crate) async fn expected(
    filling: Arc<Filling>,
    run: RunId,
    master: MasterId,
    bytes: Range<u64>,
    answer: impl Future<Output = Result<Answer, Failure>>,
) {
    let asking = async {
        match judge(&filling, master, &bytes, answer.await?) {
            // Something else, perhaps from one of several machines.
            Err(Failure::Changed) => ask(&filling, master, &bytes, Urgency::Blocked).await,
            judged => judged,
        }
    };
    carry(&filling, run, master, asking).await;
}

/// What was asked for comes in, as soon as its head is there.
async fn carry(
    filling: &Arc<Filling>,
    run: RunId,
    master: MasterId,
    asking: impl Future<Output = Result<(Reading, u64), Failure>>,
) {
    let brought = async {
        let (body, from) = patiently(filling, run, asking).await?;
        if !filling.handle_head(run, master, from) {
            return Ok(());
        }
        pour(filling, run, master, body, from).await
    };
    while_wanted(filling, run, master, brought).await;
}

/// An answer that came before its filling: the one that began the representation, with the byte at
/// `from`.
pub(crate) async fn adopted(filling: Arc<Filling>, run: RunId, answer: Answer, from: u64) {
    let master = answer.master;
    let brought = pour(&filling, run, master, answer.body, from);
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
        () = filling.abandoned(run, master) => {}
    }
}

/// Completion has few answers of a master at once: waits for a place among them, unless a client
/// comes to want the run. `None`: it is over.
async fn place_to_ask(
    filling: &Arc<Filling>,
    run: RunId,
    master: MasterId,
) -> Option<Option<OwnedSemaphorePermit>> {
    loop {
        let moved = filling.moved();
        tokio::pin!(moved);
        // From here on no move is missed.
        moved.as_mut().enable();
        if filling.turn(run)? != Pace::Spare {
            return Some(None);
        }
        let places = filling.object.project.reach.completions(master);
        tokio::select! {
            place = places.acquire_owned() => return Some(place.ok()),
            () = moved => {}
        }
    }
}

/// Waits for an answer, and lets the machine know when a client has waited long enough for this
/// master alone.
async fn patiently(
    filling: &Arc<Filling>,
    run: RunId,
    asking: impl Future<Output = Result<(Reading, u64), Failure>>,
) -> Result<(Reading, u64), Failure> {
    tokio::pin!(asking);
    if let Some(at_ns) = filling.hedge_at_ns(run) {
        let patience = Duration::from_nanos(at_ns.saturating_sub(clock::now().mono_ns));
        if let Ok(answer) = tokio::time::timeout(patience, &mut asking).await {
            return answer;
        }
        filling.handle_time();
    }
    asking.await
}

/// Asks for bytes on condition that they are of the same representation. Gives the body and the
/// place of its first byte, which is that of the first asked for or before.
pub(crate) async fn ask(
    filling: &Filling,
    master: MasterId,
    bytes: &Range<u64>,
    urgency: Urgency,
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
        let call = Call::new(project, master, &Method::GET, target, headers);
        answer = edge.upstream.ask(Call { urgency, ..call }).await;
        if !answer.as_ref().is_ok_and(|a| a.parts.status == StatusCode::PRECONDITION_FAILED) {
            break;
        }
    }
    judge(filling, master, bytes, answer?)
}

/// Whether an answer is of the same representation and brings the first of `bytes`. Gives the body
/// and the place of its first byte, which is that of the first asked for or before.
fn judge(
    filling: &Filling,
    master: MasterId,
    bytes: &Range<u64>,
    answer: Answer,
) -> Result<(Reading, u64), Failure> {
    let (edge, object) = (&filling.edge, &filling.object);
    let whole = *bytes == (0..object.rep.length());
    let reply = answer.reply();
    let status = reply.status;
    if status == StatusCode::PARTIAL_CONTENT && !reply.fits_its_range() {
        return Err(Failure::Protocol);
    }
    let same = home::is_part(edge, object, master, &reply);
    let from = match (reply.status, ContentRange::of(reply.headers)) {
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
    object.project.sources.handle_ok(master);
    filling.note_told(answer.master, status);
    Ok((answer.body, from))
}

/// Reads `body`, whose next byte is at `at`, into the run's blocks until they are there or nobody
/// wants more of them.
async fn pour(
    filling: &Arc<Filling>,
    run: RunId,
    master: MasterId,
    mut body: Reading,
    mut at: u64,
) -> Result<(), Failure> {
    let edge = &filling.edge;
    edge.counters.in_flight.inc();
    let _in_flight = OnDrop(|| edge.counters.in_flight.dec());
    let mut data = Bytes::new();
    loop {
        let place = filling.place(run).ok_or(Failure::Protocol)?;
        let permit = if place.slot.has_buffer() {
            None
        } else {
            if edge.is_handed_over() && filling.conditions.is_some() {
                // What follows is the successor's to bring.
                return Err(Failure::Disk);
            }
            match turn(filling, run, master, &place).await {
                Some(permit) => permit,
                None => return Ok(()),
            }
        };
        // What comes before was not asked for, or others have brought it.
        while at < place.at || data.is_empty() {
            if data.is_empty() {
                data = body.next().await?.ok_or(Failure::Truncated)?;
            }
            let skipped = place.at.saturating_sub(at).min(length(&data));
            data.advance(usize::try_from(skipped).unwrap_or(data.len()));
            at = at.saturating_add(skipped);
        }
        let part = data.split_to(place.missing.min(data.len()));
        at = at.saturating_add(length(&part));
        place.slot.append(&part, permit, place.block_bytes);
        let full = filling.handle_bytes(run, part.len());
        place.slot.changed.notify_waiters();
        let Some(full) = full else { continue };
        match store(filling, run, master, full).await {
            Ok(Next::Read) => {}
            Ok(Next::Done | Next::Cut) => return Ok(()),
            Err(why) => {
                if why == Failure::Disk && filling.conditions.is_none() {
                    filling.leave_rest(full.block, master, data, body);
                }
                return Err(why);
            }
        }
    }
}

/// Waits until the run may bring its next block, and gives memory for it. `None`: it is over.
async fn turn(
    filling: &Arc<Filling>,
    run: RunId,
    master: MasterId,
    place: &Place,
) -> Option<Option<BufferPermit>> {
    let project = &filling.object.project;
    let began_ns = clock::now().mono_ns;
    loop {
        let moved = filling.moved();
        tokio::pin!(moved);
        // From here on no move is missed.
        moved.as_mut().enable();
        let pause = match filling.turn(run)? {
            Pace::Wanted => return Some(filling.edge.buffer(project).await),
            Pace::Spare => match spare(filling, master, place) {
                Ok(permit) => return Some(Some(permit)),
                Err(pause) => pause,
            },
            Pace::Paused => {
                let paused = Duration::from_nanos(clock::now().mono_ns.saturating_sub(began_ns));
                let is_in_the_way =
                    project.sources.get(master).is_some_and(|m| m.turns.waiting() > 0);
                let max = if is_in_the_way { Duration::ZERO } else { PAUSED_MAX };
                let left = max.saturating_sub(paused);
                if left.is_zero() && filling.conditions.is_some() && filling.cut_paused(run) {
                    return None;
                }
                left.clamp(SPARE_PAUSE, PAUSED_LOOK)
            }
        };
        tokio::select! {
            () = moved => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Memory for a block of completion, within what it may take of the master; else when to ask
/// again.
fn spare(filling: &Filling, master: MasterId, place: &Place) -> Result<BufferPermit, Duration> {
    let project = &filling.object.project;
    let permit = filling.edge.spare_buffer(project).ok_or(SPARE_PAUSE)?;
    let bytes = u64::try_from(place.missing).unwrap_or(u64::MAX);
    let taken = project.reach.take_spare(master, bytes, clock::now());
    taken.map(|()| permit).map_err(Duration::from_nanos)
}

/// Checks a full block and writes it, off the workers.
async fn store(
    filling: &Arc<Filling>,
    run: RunId,
    master: MasterId,
    Full { block, reason }: Full,
) -> Result<Next, Failure> {
    let (object, slot) = (Arc::clone(&filling.object), filling.slot(block));
    let work = move || {
        slot.with_bytes(|bytes| {
            check::block(&object, block, bytes)?;
            Ok(object.rep.write_block(block, bytes).map(|()| length(bytes)))
        })
    };
    let (edge, object) = (&filling.edge, &filling.object);
    match edge.at_disk(&object.key, object.rep.is_packed(), work).await {
        Some(Ok(Ok(bytes))) => {
            edge.counters.count_filled(reason, bytes);
            Ok(filling.handle_stored(run, master, block))
        }
        Some(Ok(Err(WriteError::HandedOver))) => {
            if filling.conditions.is_some() {
                filling.keep(block);
            }
            Err(Failure::Disk)
        }
        Some(Ok(Err(error))) => {
            edge.note_unstored(&object.project, &object.target, &error);
            if let WriteError::Differs { .. } = error {
                // Nobody can say which is right: no client gets bytes of both (E1).
                home::note_disagreement(edge, object, master, &object.head.headers);
                edge.discard(object);
                return Err(Failure::Changed);
            }
            Err(Failure::Disk)
        }
        Some(Err(why)) => Err(why),
        None => Err(Failure::Disk),
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
