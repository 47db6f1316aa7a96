//! A question about one key: a first fetch, or a revalidation of what is held.
//!
//! Phases: ask masters in turn until one gives a usable answer -> confirm what is held (304), or
//! begin a representation with the answer that is coming in, or hand the answer to the one client
//! it is for -> when no master helped: serve stale, or say what went wrong.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use fill::{Failure, Geometry, MasterId, RunId};
use http::{HeaderMap, StatusCode};
use http_cache::errors::{Meaning, may_replace, meaning};
use http_cache::hygiene::CDN_LOOP;
use http_cache::{
    ContentRange, NoCache, Policy, ReadyHead, Request, Selecting, StoredHead, Target,
    asks_nothing_else, merge_304, range_headers, same_representation, storable,
};
use rt::clock;
use store::Key;

use crate::early::{self, Early, Expected};
use crate::filling::{DISK_TROUBLE_MS, Filling};
use crate::flight::{Flight, How, Outcome, Payload, Told};
use crate::hedge;
use crate::home::{self, Elsewhere};
use crate::pour;
use crate::project::Project;
use crate::purge::Verdict;
use crate::question::{Question, first_range};
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
/// After a failed revalidation the next is tried this much later.
const RETRY_MS: u64 = 1000;
/// The same when a master said that the object is gone, or is another: one needs it twice, 30 s apart,
/// the other to last.
const RETRY_GONE_MS: u64 = 10_000;

/// A question.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) project: Arc<Project>,
    pub(crate) target: Target,
    /// The key of the target.
    pub(crate) base: Key,
    /// Where the answer is expected to stand: that key or a variant's.
    pub(crate) key: Key,
    /// The request that began it.
    pub(crate) request: Request,
    /// Its fields, for the loop marks and to tell whether an answer suits it.
    pub(crate) headers: HeaderMap,
    /// Those of its fields that masters are told.
    pub(crate) selecting: Selecting,
    /// What the project says of the target.
    pub(crate) policy: Policy,
    /// What is held and to be confirmed.
    pub(crate) held: Option<Arc<Object>>,
    /// Whether that may be served when nobody can be asked.
    pub(crate) stale_on_error: bool,
    /// Something changed on the masters while it was under way: what it brings is confirmed before
    /// others use it.
    pub(crate) is_doubtful: Arc<AtomicBool>,
}

type Answered = (Outcome, Option<Payload>);

/// What a master that was of no help did; the greater is the better thing to tell the client.
#[derive(Debug)]
enum Trouble {
    Silent(MasterId, Failure),
    Reply(Box<Answer>),
    Refused(Box<Answer>),
    Gone(Box<Answer>),
    /// Other content than the held one, from another master than that came from.
    Other(Box<Answer>),
}

impl Trouble {
    /// Who did it, and the status of its answer where it gave one.
    fn told(&self, project: &Project) -> Option<Told> {
        let (master, status) = match self {
            Self::Silent(master, Failure::Status(status)) => {
                (*master, StatusCode::from_u16(*status).ok())
            }
            Self::Silent(master, _) => (*master, None),
            Self::Reply(answer)
            | Self::Refused(answer)
            | Self::Gone(answer)
            | Self::Other(answer) => (answer.master, Some(answer.parts.status)),
        };
        Told::by(project, master, status)
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Silent(..) => 0,
            Self::Reply(_) => 1,
            Self::Refused(_) => 2,
            Self::Gone(_) => 3,
            Self::Other(_) => 4,
        }
    }
}

/// Asks until something is known.
/// `flight`: where who waits is told.
pub(crate) async fn fetch(edge: &Arc<Edge>, ask: Ask, flight: &Flight) -> Answered {
    let memo = edge.memos.get(&ask.key);
    let range = first_range(u64::from(edge.block_bytes), &ask.request);
    let mut question =
        Question { conditional: ask.held.is_some(), range: range.filter(|_| !memo.no_ranges) };
    let mut tried: Vec<MasterId> = Vec::new();
    let mut worst: Option<Trouble> = None;
    // Besides each master once, at most two repetitions in another form.
    let mut rounds = ask.project.sources.attempts_max().saturating_add(2);
    while let Some(master) = next_master(&ask, &tried, &memo.distrusted, worst.as_ref()) {
        rounds = match rounds.checked_sub(1) {
            Some(left) => left,
            None => break,
        };
        let answer = match hedge::put(edge, &ask, &question, master, &tried).await {
            Ok(answer) => {
                tried.push(answer.master);
                answer
            }
            Err(why) => {
                tried.push(master);
                ask.project.sources.handle_failed(master, why, clock::now());
                note(&mut worst, Trouble::Silent(master, why));
                continue;
            }
        };
        if is_purged(edge, &ask) {
            return (Outcome::Again, None);
        }
        // It may have been the spare one.
        let (master, status) = (answer.master, answer.parts.status);
        if !question.is_answered_by(&answer.reply()) {
            let why = Failure::Protocol;
            ask.project.sources.handle_failed(master, why, clock::now());
            note(&mut worst, Trouble::Silent(master, why));
            continue;
        }
        match meaning(status) {
            // The name of another master for what is held, or other content.
            Meaning::NotModified | Meaning::Good if home::differs(&ask, &answer) => {
                ask.project.sources.handle_ok(master);
                match home::judge(edge, &ask, &answer) {
                    Elsewhere::Confirms(head) => {
                        return confirmed(edge, &ask, head, answer);
                    }
                    Elsewhere::IsAnother if status == StatusCode::NOT_MODIFIED => {
                        question.conditional = false;
                        tried.pop();
                    }
                    Elsewhere::IsAnother => note(&mut worst, Trouble::Other(Box::new(answer))),
                    Elsewhere::Replaces => {
                        return accept(edge, &ask, &question, answer, flight).await;
                    }
                }
            }
            Meaning::NotModified => match confirm(edge, &ask, &answer) {
                Some(answered) => return answered,
                None => {
                    ask.project.sources.handle_ok(master);
                    question.conditional = false;
                    tried.pop();
                }
            },
            Meaning::Changed if question.range.is_some() => {
                // The range lies outside: the whole tells what there is.
                ask.project.sources.handle_ok(master);
                question.range = None;
                tried.pop();
            }
            // Some origins refuse what they do not have: S3 without the right to list.
            Meaning::Refused if status == StatusCode::FORBIDDEN => {
                ask.project.sources.handle_ok(master);
                note(&mut worst, Trouble::Refused(Box::new(answer)));
            }
            Meaning::Good | Meaning::Refused => {
                ask.project.sources.handle_ok(master);
                return accept(edge, &ask, &question, answer, flight).await;
            }
            // Kept or not, another master may have it already: one that lags hides nothing.
            Meaning::Gone => {
                ask.project.sources.handle_ok(master);
                note_error(edge, &ask, &answer);
                note(&mut worst, Trouble::Gone(Box::new(answer)));
            }
            Meaning::Transient | Meaning::Changed => {
                let why = Failure::Status(status.as_u16());
                ask.project.sources.handle_failed(master, why, clock::now());
                note_error(edge, &ask, &answer);
                note(&mut worst, Trouble::Reply(Box::new(answer)));
            }
        }
    }
    if is_purged(edge, &ask) {
        return (Outcome::Again, None);
    }
    match worst {
        // Nothing that may be served stale takes part in a quarrel of masters.
        Some(Trouble::Other(answer)) if !ask.stale_on_error => {
            accept(edge, &ask, &question, *answer, flight).await
        }
        Some(Trouble::Refused(answer)) => accept(edge, &ask, &question, *answer, flight).await,
        // All masters were asked: an error that says how long it lasts is kept.
        Some(Trouble::Gone(answer) | Trouble::Reply(answer)) if is_kept(&ask, &answer) => {
            accept(edge, &ask, &question, *answer, flight).await
        }
        worst => no_help(edge, &ask, worst),
    }
}

/// Whether what is held was purged since it was looked at. No answer may confirm it then: a question
/// that had to wait for its turn is asked after the purge, under the validator of before.
fn is_purged(edge: &Edge, ask: &Ask) -> bool {
    ask.held.as_ref().is_some_and(|held| edge.verdict(held) == Verdict::Gone)
}

/// Each master once; one that is being skipped only while there is nothing to tell the client; one
/// whose content was not what it announced, when no other is left.
fn next_master(
    ask: &Ask,
    tried: &[MasterId],
    distrusted: &[MasterId],
    worst: Option<&Trouble>,
) -> Option<MasterId> {
    let (now, home) = (clock::now(), home::of(ask));
    let trusted = ask.project.sources.choose(now, &ask.key, home, &[tried, distrusted].concat());
    let trusted = trusted.filter(|c| !tried.contains(&c.master) && !distrusted.contains(&c.master));
    let choice = trusted.or_else(|| ask.project.sources.choose(now, &ask.key, home, tried))?;
    let told = worst.is_some_and(|t| t.rank() > 0);
    let is_useless = tried.contains(&choice.master) || (told && choice.skipped);
    (!is_useless).then_some(choice.master)
}

fn note(worst: &mut Option<Trouble>, trouble: Trouble) {
    if worst.as_ref().is_none_or(|w| w.rank() <= trouble.rank()) {
        *worst = Some(trouble);
    }
}

/// Books an error answer against the key, unless it is one that can be kept.
fn note_error(edge: &Edge, ask: &Ask, answer: &Answer) {
    let (now, status) = (clock::now(), answer.parts.status);
    // Not either what may be an answer to this client's marks: it says nothing to others.
    let is_own = status == StatusCode::LOOP_DETECTED && ask.headers.contains_key(CDN_LOOP);
    if is_own || is_kept(ask, answer) {
        return;
    }
    edge.memos.update(&ask.key, |memo| {
        if ask.held.is_none() {
            memo.errors.handle_error(now, status, &ask.policy);
        } else if let Some(master) = ask.project.sources.get(answer.master)
            && meaning(status) == Meaning::Gone
        {
            memo.removal.handle_gone(now, master.name());
        }
    });
}

/// Who gave an answer, of the sources of the project, and its status.
fn told(project: &Project, answer: &Answer) -> Option<Told> {
    Told::by(project, answer.master, Some(answer.parts.status))
}

/// A 304: what is held is right. `None` when it speaks of something else.
fn confirm(edge: &Edge, ask: &Ask, answer: &Answer) -> Option<Answered> {
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
fn confirmed(edge: &Arc<Edge>, ask: &Ask, head: StoredHead, answer: Answer) -> Answered {
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

/// The held representation under a newer head.
fn renewed(edge: &Edge, held: &Object, head: StoredHead) -> Arc<Object> {
    let kept = edge.store(&held.key).map(|store| store.set_head(&held.rep, head.to_bytes()));
    if let Some(Err(error)) = kept {
        tracing::warn!(%error, "a confirmed head is not stored; it will be asked for again");
    }
    Arc::new(held.with_head(head))
}

fn is_kept(ask: &Ask, answer: &Answer) -> bool {
    let status = answer.parts.status;
    let fits = ask.held.as_ref().is_none_or(|held| may_replace(held.head.status, status));
    fits && storable(&ask.request, &answer.reply(), &ask.policy).is_ok()
}

/// An answer with something to give.
async fn accept(
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
    let payload = if partial || is_for_client {
        Payload::Pass(why)
    } else {
        Payload::Reply(Box::new(answer), why.as_str())
    };
    (Outcome::Alone, Some(payload))
}

/// No master gave anything: what is held, or what went wrong.
fn no_help(edge: &Edge, ask: &Ask, worst: Option<Trouble>) -> Answered {
    let now = clock::now();
    if let Some(held) = &ask.held {
        let gone = matches!(worst, Some(Trouble::Gone(_)));
        let removed =
            gone && edge.memos.get(&ask.key).removal.is_confirmed(ask.project.sources.healthy());
        if removed {
            edge.discard(held);
            edge.memos.clear(&ask.key);
        } else if gone || ask.stale_on_error {
            let is_other = matches!(worst, Some(Trouble::Other(_)));
            let ms = if gone || is_other { RETRY_GONE_MS } else { RETRY_MS };
            edge.memos.update(&ask.key, |memo| memo.set_troubled(now, ms));
            let told = worst.as_ref().and_then(|worst| worst.told(&ask.project));
            return (Outcome::Ready(Arc::clone(held), How::StaleOnError, told), None);
        }
    }
    let payload = match worst {
        Some(
            Trouble::Gone(answer)
            | Trouble::Refused(answer)
            | Trouble::Reply(answer)
            | Trouble::Other(answer),
        ) => Payload::Reply(answer, "error"),
        Some(Trouble::Silent(master, why)) => {
            let status = if why.is_timeout() {
                StatusCode::GATEWAY_TIMEOUT
            } else {
                StatusCode::BAD_GATEWAY
            };
            if ask.held.is_none() {
                edge.memos.update(&ask.key, |memo| {
                    memo.errors.handle_error(now, status, &ask.policy);
                });
            }
            Payload::Failed(why, Some(master))
        }
        None => Payload::Failed(Failure::Connect, None),
    };
    (Outcome::Alone, Some(payload))
}
