//! An answer with something to give: it begins a representation, confirms what is held or is joined to
//! it, or goes to the one client it is for.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fill::{Geometry, MasterId, RunId};
use http::StatusCode;
use http_cache::errors::{Meaning, may_replace, meaning};
use http_cache::{
    ContentRange, NoCache, ReadyHead, StoredHead, asks_nothing_else, merge_304, range_headers,
    same_representation, storable,
};
use rt::clock;
use store::Key;

use crate::early::{self, Early, Expected};
use crate::fetch::{Answered, Ask};
use crate::filling::{DISK_TROUBLE_MS, Filling};
use crate::flight::{Flight, How, Outcome, Payload, Told};
use crate::pour;
use crate::project::Project;
use crate::question::Question;
use crate::reader::Reader;
use crate::spool::{self, Draft, End};
use crate::state::{BufferPermit, Edge, Object};
use crate::upstream::Answer;
use crate::variants::{self, Settled};

/// How long an answer that may not be kept keeps later requests from waiting for each other.
const PASS_MS: u64 = 60_000;
/// The same for an answer that neither is kept nor replaces what is held: a refusal, another status.
const PASS_OTHER_MS: u64 = 1000;
/// How long others wait for the end of an answer whose length nobody knows.
const GATHER_PATIENCE: Duration = Duration::from_secs(1);

/// An answer with something to give.
pub(crate) async fn accept(
    edge: &Arc<Edge>,
    ask: &Ask,
    question: &Question,
    answer: Answer,
    flight: &Flight,
) -> Answered {
    let reply = answer.reply();
    let head = match storable(&ask.request, &reply, &ask.policy) {
        Ok(head) => StoredHead {
            master: ask.project.sources.get(answer.master).map(|m| m.name().clone()),
            ..head
        },
        Err(why) => return refuse(edge, ask, question, answer, why),
    };
    if let Some(held) = &ask.held
        && !may_replace(held.head.status, reply.status)
    {
        return refuse(edge, ask, question, answer, NoCache::Error);
    }
    let key = match variants::settle(edge, ask, question, &answer).await {
        Ok(Settled::Under(key)) => key,
        Ok(Settled::AskAgain) => return (Outcome::Again, None),
        Err(why) => return refuse(edge, ask, question, answer, why),
    };
    let Some((length, part)) = extent_of(&answer) else {
        return match edge.try_buffer(&ask.project) {
            Some(permit) if reply.status != StatusCode::PARTIAL_CONTENT => {
                gather(edge, ask, (key, head), answer, permit, flight).await
            }
            _ => refuse(edge, ask, question, answer, NoCache::LengthUnknown),
        };
    };
    if let Some(held) = &ask.held
        && held.key == key
        && same_representation(&held.head, held.rep.length(), &reply)
    {
        let object = renewed(edge, held, head);
        edge.memos.clear(&ask.key);
        let from = (answer.master, reply.status);
        return Begun::new(edge, object, from, part).go(answer, How::Revalidated);
    }
    if part != (0..length) && range_headers(&head).is_none() {
        // A part that no other part may be joined to is for its requester alone.
        return refuse(edge, ask, question, answer, NoCache::NoValidator);
    }
    let from = (answer.master, reply.status);
    let early = flight.board.take();
    match create(edge, ask, (key, head), length, from, part, early).await {
        Some(begun) => {
            edge.counters.fills.inc();
            let how = if ask.held.is_some() { How::Revalidated } else { How::Fetched };
            begun.go(answer, how)
        }
        None => {
            let answered = refuse(edge, ask, question, answer, NoCache::Disk);
            let now = clock::now();
            let ms = DISK_TROUBLE_MS;
            edge.memos.update(&ask.key, |memo| memo.set_pass(now, ms, NoCache::Disk));
            answered
        }
    }
}

/// A 304: what is held is right. `None` when it speaks of something else.
pub(crate) fn confirm(edge: &Edge, ask: &Ask, answer: &Answer) -> Option<Answered> {
    let held = ask.held.as_ref()?;
    let head = merge_304(&held.head, &answer.reply())?;
    if !variants::stays(ask, &head) {
        return None;
    }
    ask.project.sources.handle_ok(answer.master);
    edge.memos.clear(&ask.key);
    let object = renewed(edge, held, head);
    Some((Outcome::Ready(object, How::Revalidated, told(&ask.project, answer)), None))
}

/// Another master confirmed what is held. What it sent of the content is of use where blocks are
/// missing.
pub(crate) fn confirmed(edge: &Arc<Edge>, ask: &Ask, head: StoredHead, answer: Answer) -> Answered {
    let Some(held) = &ask.held else { return (Outcome::Alone, None) };
    let object = renewed(edge, held, head);
    edge.memos.clear(&ask.key);
    let status = answer.parts.status;
    match extent_of(&answer).filter(|_| status != StatusCode::NOT_MODIFIED) {
        Some((_, part)) => {
            let from = (answer.master, status);
            Begun::new(edge, object, from, part).go(answer, How::Revalidated)
        }
        None => (Outcome::Ready(object, How::Revalidated, told(&ask.project, &answer)), None),
    }
}

/// Whether an answer may be kept, and take the place of what is held.
pub(crate) fn is_kept(ask: &Ask, answer: &Answer) -> bool {
    let status = answer.parts.status;
    let fits = ask.held.as_ref().is_none_or(|held| may_replace(held.head.status, status));
    fits && storable(&ask.request, &answer.reply(), &ask.policy).is_ok()
}

/// The held representation under a newer head.
fn renewed(edge: &Edge, held: &Object, head: StoredHead) -> Arc<Object> {
    let kept = edge.store(&held.key).map(|store| store.set_head(&held.rep, head.to_bytes()));
    if let Some(Err(error)) = kept {
        tracing::warn!(%error, "a confirmed head is not stored; it will be asked for again");
    }
    Arc::new(held.with_head(head))
}

/// Who gave an answer, of the sources of the project, and its status.
fn told(project: &Project, answer: &Answer) -> Option<Told> {
    Told::by(project, answer.master, Some(answer.parts.status))
}

/// Length of the representation and the part of it that the answer's body is.
fn extent_of(answer: &Answer) -> Option<(u64, Range<u64>)> {
    let reply = answer.reply();
    let length = reply.complete_length()?;
    if reply.status != StatusCode::PARTIAL_CONTENT {
        return Some((length, 0..length));
    }
    match ContentRange::of(reply.headers)? {
        ContentRange::Part { first, last, .. } if first <= last && last < length => {
            Some((length, first..last.saturating_add(1)))
        }
        _ => None,
    }
}

/// An answer whose length shows only at its end. Its client gets it as it comes; the others wait a
/// moment for what becomes of it.
async fn gather(
    edge: &Arc<Edge>,
    ask: &Ask,
    (key, head): (Key, StoredHead),
    answer: Answer,
    permit: BufferPermit,
    flight: &Flight,
) -> Answered {
    let (master, status) = (answer.master, answer.parts.status);
    let draft = Draft {
        project: Arc::clone(&ask.project),
        target: ask.target.clone(),
        key,
        selecting: ask.selecting.clone(),
        head,
    };
    let (tail, gathering) = spool::begin(edge, permit, draft, answer.body);
    flight.stream(master, answer.parts, tail);
    let now = clock::now();
    let pass = |ms, why| edge.memos.update(&ask.key, |memo| memo.set_pass(now, ms, why));
    match tokio::time::timeout(GATHER_PATIENCE, gathering).await {
        Ok(Ok(End::Whole(Some(object)))) => {
            edge.counters.fills.inc();
            edge.memos.clear(&ask.key);
            let how = if ask.held.is_some() { How::Revalidated } else { How::Fetched };
            let told = Told::by(&ask.project, master, Some(status));
            return (Outcome::Ready(object, how, told), None);
        }
        Ok(Ok(End::Whole(None))) => pass(DISK_TROUBLE_MS, NoCache::Disk),
        Ok(Ok(End::Long)) => {
            if let Some(held) = &ask.held {
                edge.discard(held);
            }
            pass(PASS_MS, NoCache::LengthUnknown);
        }
        Ok(Ok(End::Broken(why))) => ask.project.sources.handle_failed(master, why, clock::now()),
        // It may be kept yet; nobody waits for that.
        Ok(Err(_)) | Err(_) => pass(PASS_OTHER_MS, NoCache::LengthUnknown),
    }
    (Outcome::Alone, None)
}

/// Makes a representation that the answer `from` a master begins. Its fill is there before anybody
/// can find it: who found it first would ask for the blocks that are coming in (E2).
async fn create(
    edge: &Arc<Edge>,
    ask: &Ask,
    (key, head): (Key, StoredHead),
    length: u64,
    from: (MasterId, StatusCode),
    part: Range<u64>,
    early: Vec<Early>,
) -> Option<Begun> {
    let store = edge.store(&key)?;
    let (project, target) = (Arc::clone(&ask.project), ask.target.clone());
    let (asked_key, selecting) = (ask.key, ask.selecting.clone());
    let (filler, is_doubtful) = (Arc::clone(edge), Arc::clone(&ask.is_doubtful));
    let bytes = head.to_bytes();
    let is_small = store.packs(length, bytes.len());
    let creation = edge.at_disk(&key, is_small, move || {
        store.create_with(key, bytes, length, |rep| {
            let (rep, head) = (Arc::clone(rep), Arc::new(ReadyHead::new(head, length)));
            let object = Object { project, target, key, selecting, rep, head };
            filler.memos.clear(&asked_key);
            filler.memos.clear(&key);
            if is_doubtful.load(Relaxed) {
                filler.memos.update(&key, |memo| memo.suspect = true);
            }
            let begun = Begun::new(&filler, Arc::new(object), from, part);
            let expected = early::expect(&begun.filling, early);
            Begun { expected, ..begun }
        })
    });
    match creation.await? {
        Ok((_, begun)) => Some(begun),
        Err(error) => {
            edge.note_unstored(&ask.project, &ask.target, &error);
            None
        }
    }
}

/// An object whose fill has taken over an answer that is coming in.
struct Begun {
    object: Arc<Object>,
    filling: Arc<Filling>,
    reader: Reader,
    /// `None`: the answer is of no use to the fill.
    run: Option<RunId>,
    /// The first byte of the answer.
    from: u64,
    /// What others asked for meanwhile.
    expected: Vec<Expected>,
}

impl Begun {
    /// `part`: which bytes of the object the answer brings.
    fn new(
        edge: &Arc<Edge>,
        object: Arc<Object>,
        (master, status): (MasterId, StatusCode),
        part: Range<u64>,
    ) -> Self {
        let geometry = Geometry::new(object.rep.length(), object.rep.block_bytes());
        let blocks = geometry.inside(part.clone());
        let filling = Filling::of(edge, &object, Some(master));
        filling.note_told(master, status);
        let reader = filling.reader();
        let run = filling.adopt(master, blocks, &reader);
        Self { object, filling, reader, run, from: part.start, expected: Vec::new() }
    }

    /// Lets the bytes come in.
    fn go(self, answer: Answer, how: How) -> Answered {
        let Self { object, filling, reader, run, from, expected } = self;
        for expected in expected {
            expected.go(&filling);
        }
        let told = told(&object.project, &answer);
        let payload = run.map(|run| {
            tokio::spawn(pour::adopted(filling, run, answer, from));
            Payload::Reader(reader)
        });
        (Outcome::Ready(object, how, told), payload)
    }
}

/// An answer that is not kept: for its requester alone.
fn refuse(edge: &Edge, ask: &Ask, question: &Question, answer: Answer, why: NoCache) -> Answered {
    let status = answer.parts.status;
    let now = clock::now();
    let is_content = matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT);
    let is_good = meaning(status) == Meaning::Good;
    match &ask.held {
        None if is_good => edge.memos.renew(&ask.key, |memo| memo.set_pass(now, PASS_MS, why)),
        Some(held)
            if is_content
                && !same_representation(&held.head, held.rep.length(), &answer.reply()) =>
        {
            // What is held was replaced at its origin by something that may not be kept.
            edge.discard(held);
            edge.memos.renew(&ask.key, |memo| memo.set_pass(now, PASS_MS, why));
        }
        // Nobody waits to hear the same after others.
        held => edge.memos.update(&ask.key, |memo| {
            memo.suspect |= is_good && held.is_some();
            memo.set_pass(now, PASS_OTHER_MS, NoCache::Error);
        }),
    }
    let partial = status == StatusCode::PARTIAL_CONTENT && question.range.is_some();
    let is_for_client = why.ask_for_client() && !asks_nothing_else(&ask.headers, &ask.selecting);
    // The whole came, as it was to be stored; who asked for less, or under a condition, asks again.
    let is_more = why == NoCache::Disk && is_content && !ask.request.is_for_whole();
    let payload = if partial || is_for_client || is_more {
        Payload::Pass(why)
    } else {
        Payload::Reply(Box::new(answer), why.as_str())
    };
    (Outcome::Alone, Some(payload))
}
