//! One look at one member: what the masters have now.
//!
//! It goes the way of every question ([`flight`]), so that clients that ask the usual way and the
//! group never fetch the same twice. A question that was under way before is waited for and then put
//! again: its answer may be older than the pass that looks.

use std::sync::Arc;

use fill::Failure;
use http::{HeaderMap, Method, StatusCode, Uri};
use http_cache::errors::{Meaning, meaning};
use http_cache::{Request, Target, Validator, key, validator};
use rt::clock;
use store::Key;

use super::machine::Found;
use super::snapshots::Held;
use crate::fetch::Ask;
use crate::filling::Filling;
use crate::flight::{self, How, Outcome, Payload, Seat};
use crate::project::Project;
use crate::reader::Reader;
use crate::state::{Edge, Object};

/// Largest member: snapshots keep the disk room of what they hold.
const MEMBER_BYTES_MAX: u64 = 256 << 20;
/// Questions of others that are waited for, and changes under the look.
const TRIES_MAX: u32 = 5;

/// A version of a member.
#[derive(Clone, Debug)]
pub(crate) struct Version(pub(crate) Arc<Object>);

impl PartialEq for Version {
    /// The same bytes: one representation, or one that was stored again under its strong tag.
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (&self.0, &other.0);
        let same_tag = || {
            let tag = validator(&a.head).filter(|v| matches!(v, Validator::Strong(_)));
            tag.is_some() && tag == validator(&b.head) && a.rep.length() == b.rep.length()
        };
        Arc::ptr_eq(&a.rep, &b.rep) || same_tag()
    }
}

/// Looks. With `whole` the body has come when it returns; without, it comes in behind.
pub(crate) async fn look(
    edge: &Arc<Edge>,
    project: &Arc<Project>,
    target: &Target,
    whole: bool,
) -> Found<Version> {
    for _ in 0..TRIES_MAX {
        let Some(ask) = ask(edge, project, target).await else { break };
        let flight = match flight::join(edge, ask) {
            Seat::First(flight) => flight,
            Seat::Joined(flight, _) => {
                flight.outcome().await;
                continue;
            }
            Seat::Stale => continue,
        };
        let outcome = flight.outcome().await;
        let payload = flight.payload();
        match outcome {
            Outcome::Ready(object, How::StaleOnError, told) => {
                // A removal that is not confirmed is not believed yet.
                let status = told.and_then(|told| told.status);
                let is_gone = status.is_some_and(|status| meaning(status) == Meaning::Gone);
                return if is_gone { content(object) } else { Found::Away };
            }
            Outcome::Ready(object, ..) => {
                let reader = match payload {
                    Some(Payload::Reader(reader)) => Some(reader),
                    _ => None,
                };
                let bringing = bring(Arc::clone(edge), Arc::clone(&object), reader);
                if !whole {
                    tokio::spawn(bringing);
                    return content(object);
                }
                match bringing.await {
                    Ok(()) => return content(object),
                    Err(Failure::Changed) => {}
                    Err(Failure::Disk) => return Found::Is(Held::Apart("disk")),
                    Err(_) => return Found::Away,
                }
            }
            Outcome::Alone => match payload {
                Some(Payload::Reply(answer, word)) => return replied(answer.parts.status, word),
                Some(Payload::Pass(word)) => return Found::Is(Held::Apart(word.as_str())),
                Some(Payload::Failed(..)) => return Found::Away,
                // It was too long, or broke off.
                Some(Payload::Stream(..)) => {
                    let key = Key(key(&project.name, target));
                    let passed = edge.memos.get(&key).pass(clock::now());
                    return passed.map_or(Found::Away, |w| Found::Is(Held::Apart(w.as_str())));
                }
                Some(Payload::Reader(_)) | None => {}
            },
            Outcome::Again | Outcome::Streaming => {}
        }
    }
    Found::Away
}

/// A plain GET for everything.
async fn ask(edge: &Edge, project: &Arc<Project>, target: &Target) -> Option<Ask> {
    let uri: Uri = target.as_str().parse().ok()?;
    let headers = HeaderMap::new();
    let request = Request::parse(&Method::GET, &uri, &headers).ok()?;
    let base = Key(key(&project.name, target));
    let seen = edge.find(project, target, base, &headers).await;
    Some(Ask {
        project: Arc::clone(project),
        target: target.clone(),
        base,
        key: seen.key,
        request,
        policy: project.rules(target).policy,
        headers,
        selecting: seen.selecting,
        held: seen.object.map(Arc::new),
        stale_on_error: true,
        is_doubtful: Arc::default(),
    })
}

fn content(object: Arc<Object>) -> Found<Version> {
    if object.key != Key(key(&object.project.name, &object.target)) {
        // What depends on the request cannot be the same for all clients of a group.
        return Found::Is(Held::Apart("vary"));
    }
    if object.rep.length() > MEMBER_BYTES_MAX {
        return Found::Is(Held::Apart("group-too-large"));
    }
    Found::Is(Held::Content(Version(object)))
}

/// A reply that is not kept.
fn replied(status: StatusCode, word: &'static str) -> Found<Version> {
    match meaning(status) {
        Meaning::Gone => Found::Is(Held::Missing(status)),
        Meaning::Transient | Meaning::Changed => Found::Away,
        Meaning::Good | Meaning::NotModified | Meaning::Refused => Found::Is(Held::Apart(word)),
    }
}

/// Waits until all of an object is held and has been verified. `reader`: who wants it already.
async fn bring(
    edge: Arc<Edge>,
    object: Arc<Object>,
    reader: Option<Reader>,
) -> Result<(), Failure> {
    let mut reader = reader.filter(|reader| reader.is_of(&object));
    let blocks = object.rep.blocks();
    for block in 0..blocks {
        if object.rep.verify_pending(block) {
            let rep = Arc::clone(&object.rep);
            // A failed block has become a miss, and so is one whose check did not run.
            let _ = tokio::task::spawn_blocking(move || rep.verify(block)).await;
        }
        if !object.rep.has(block) {
            let reader = reader.get_or_insert_with(|| Filling::of(&edge, &object, None).reader());
            reader.stored(block..blocks).await?;
        }
    }
    Ok(())
}
