//! A question about one key: a first fetch, or a revalidation of what is held.
//!
//! Phases: ask masters in turn until one gives a usable answer -> confirm what is held (304), or
//! take what is coming in ([`crate::accept`]) -> when no master helped: serve stale, or say what went
//! wrong.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fill::{Failure, MasterId};
use http::{HeaderMap, StatusCode};
use http_cache::errors::{Meaning, meaning};
use http_cache::hygiene::CDN_LOOP;
use http_cache::{Policy, Request, Selecting, Target};
use rt::clock;
use store::Key;

use crate::accept::{accept, confirm, confirmed, is_kept};
use crate::flight::{Flight, How, Outcome, Payload, Told};
use crate::hedge;
use crate::home::{self, Elsewhere};
use crate::project::Project;
use crate::purge::Verdict;
use crate::question::{Question, first_range};
use crate::state::{Edge, Object};
use crate::upstream::Answer;

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

/// What came of a question: for all who wait, and for who began it.
pub(crate) type Answered = (Outcome, Option<Payload>);

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
    let mut search = Search::new(edge, &ask, flight);
    // Besides each master once, at most two repetitions in another form.
    let mut rounds = ask.project.sources.attempts_max().saturating_add(2);
    while let Some(master) = search.next_master() {
        rounds = match rounds.checked_sub(1) {
            Some(left) => left,
            None => break,
        };
        let Some(answer) = search.put(master).await else { continue };
        if is_purged(edge, &ask) {
            return (Outcome::Again, None);
        }
        if let Some(answered) = search.heed(answer).await {
            return answered;
        }
    }
    if is_purged(edge, &ask) {
        return (Outcome::Again, None);
    }
    search.end().await
}

/// Masters in turn, until one is of help.
struct Search<'a> {
    edge: &'a Arc<Edge>,
    ask: &'a Ask,
    flight: &'a Flight,
    /// As it is put to the next master.
    question: Question,
    /// Who was asked it.
    tried: Vec<MasterId>,
    /// Whose content was not what they announced.
    distrusted: Vec<MasterId>,
    /// Of what the others did, the best to tell the client.
    worst: Option<Trouble>,
}

impl<'a> Search<'a> {
    fn new(edge: &'a Arc<Edge>, ask: &'a Ask, flight: &'a Flight) -> Self {
        let memo = edge.memos.get(&ask.key);
        let range = first_range(u64::from(edge.block_bytes), &ask.request);
        let range = range.filter(|_| !memo.no_ranges);
        let question = Question { conditional: ask.held.is_some(), range };
        let distrusted = memo.distrusted;
        Self { edge, ask, flight, question, tried: Vec::new(), distrusted, worst: None }
    }

    /// Each master once; one that is being skipped only while there is nothing to tell the client; one
    /// whose content was not what it announced, when no other is left.
    fn next_master(&self) -> Option<MasterId> {
        let Self { ask, tried, distrusted, .. } = self;
        let (now, home) = (clock::now(), home::of(ask));
        let choose = |but: &[MasterId]| ask.project.sources.choose(now, &ask.key, home, but);
        let trusted = choose(&[&tried[..], distrusted].concat());
        let trusted =
            trusted.filter(|c| !tried.contains(&c.master) && !distrusted.contains(&c.master));
        let choice = trusted.or_else(|| choose(tried))?;
        let told = self.worst.as_ref().is_some_and(|t| t.rank() > 0);
        let is_useless = tried.contains(&choice.master) || (told && choice.skipped);
        (!is_useless).then_some(choice.master)
    }

    /// Asks a master, and perhaps another. `None` when no answer came.
    async fn put(&mut self, master: MasterId) -> Option<Answer> {
        match hedge::put(self.edge, self.ask, &self.question, master, &self.tried).await {
            Ok(answer) => {
                self.tried.push(answer.master);
                Some(answer)
            }
            Err(why) => {
                self.tried.push(master);
                self.failed(master, why);
                self.note(Trouble::Silent(master, why));
                None
            }
        }
    }

    /// What an answer is good for. `None`: the search goes on.
    async fn heed(&mut self, answer: Answer) -> Option<Answered> {
        let (edge, ask) = (self.edge, self.ask);
        // It may have been the spare one.
        let (master, status) = (answer.master, answer.parts.status);
        if !self.question.is_answered_by(&answer.reply()) {
            self.failed(master, Failure::Protocol);
            self.note(Trouble::Silent(master, Failure::Protocol));
            return None;
        }
        match meaning(status) {
            // The name of another master for what is held, or other content.
            Meaning::NotModified | Meaning::Good if home::differs(ask, &answer) => {
                self.ok(master);
                match home::judge(edge, ask, &answer) {
                    Elsewhere::Confirms(head) => return Some(confirmed(edge, ask, head, answer)),
                    Elsewhere::IsAnother if status == StatusCode::NOT_MODIFIED => {
                        self.again(|question| question.conditional = false);
                    }
                    Elsewhere::IsAnother => self.note(Trouble::Other(Box::new(answer))),
                    Elsewhere::Replaces => return Some(self.accept(answer).await),
                }
            }
            Meaning::NotModified => match confirm(edge, ask, &answer) {
                Some(answered) => return Some(answered),
                None => {
                    self.ok(master);
                    self.again(|question| question.conditional = false);
                }
            },
            Meaning::Changed if self.question.range.is_some() => {
                // The range lies outside: the whole tells what there is.
                self.ok(master);
                self.again(|question| question.range = None);
            }
            // Some origins refuse what they do not have: S3 without the right to list.
            Meaning::Refused if status == StatusCode::FORBIDDEN => {
                self.ok(master);
                self.note(Trouble::Refused(Box::new(answer)));
            }
            Meaning::Good | Meaning::Refused => {
                self.ok(master);
                return Some(self.accept(answer).await);
            }
            // Kept or not, another master may have it already: one that lags hides nothing.
            Meaning::Gone => {
                self.ok(master);
                note_error(edge, ask, &answer);
                self.note(Trouble::Gone(Box::new(answer)));
            }
            Meaning::Transient | Meaning::Changed => {
                self.failed(master, Failure::Status(status.as_u16()));
                note_error(edge, ask, &answer);
                self.note(Trouble::Reply(Box::new(answer)));
            }
        }
        None
    }

    /// No master helped.
    async fn end(mut self) -> Answered {
        match self.worst.take() {
            // Nothing that may be served stale takes part in a quarrel of masters.
            Some(Trouble::Other(answer)) if !self.ask.stale_on_error => self.accept(*answer).await,
            Some(Trouble::Refused(answer)) => self.accept(*answer).await,
            // All masters were asked: an error that says how long it lasts is kept.
            Some(Trouble::Gone(answer) | Trouble::Reply(answer)) if is_kept(self.ask, &answer) => {
                self.accept(*answer).await
            }
            worst => no_help(self.edge, self.ask, worst),
        }
    }

    async fn accept(&self, answer: Answer) -> Answered {
        accept(self.edge, self.ask, &self.question, answer, self.flight).await
    }

    /// Puts the question to the same master once more, in another form.
    fn again(&mut self, change: impl FnOnce(&mut Question)) {
        change(&mut self.question);
        self.tried.pop();
    }

    fn ok(&self, master: MasterId) {
        self.ask.project.sources.handle_ok(master);
    }

    fn failed(&self, master: MasterId, why: Failure) {
        self.ask.project.sources.handle_failed(master, why, clock::now());
    }

    fn note(&mut self, trouble: Trouble) {
        if self.worst.as_ref().is_none_or(|worst| worst.rank() <= trouble.rank()) {
            self.worst = Some(trouble);
        }
    }
}

/// Whether what is held was purged since it was looked at. No answer may confirm it then: a question
/// that had to wait for its turn is asked after the purge, under the validator of before.
fn is_purged(edge: &Edge, ask: &Ask) -> bool {
    ask.held.as_ref().is_some_and(|held| edge.verdict(held) == Verdict::Gone)
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
