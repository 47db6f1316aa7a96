//! Masters that disagree: one of them is the home of a representation, the one that it came from.
//!
//! Its home confirms it and fills it, as long as that is good. Another master may confirm it under
//! another name ([`http_cache::confirmed_elsewhere`]); other content from there replaces it only when
//! its home has been away for longer than a grace. So origins whose tags differ never take turns, and
//! clients can resume by the name that they know.

use std::sync::atomic::Ordering::Relaxed;

use fill::MasterId;
use http::header::{ETAG, LAST_MODIFIED};
use http::{HeaderMap, StatusCode};
use http_cache::{
    Reply, StoredHead, confirmed_elsewhere, names_another, range_headers_elsewhere,
    revalidation_headers, revalidation_headers_elsewhere, same_representation,
};
use rt::clock;

use crate::fetch::Ask;
use crate::state::{Edge, Object};
use crate::upstream::Answer;

/// How long other content of other masters must have been all that can be had before it replaces
/// what is held, milliseconds.
const GRACE_MS: u64 = 60_000;

/// What another master than the home of what is held says of it.
pub(crate) enum Elsewhere {
    /// It is the same content; what is held with what is new about it.
    Confirms(StoredHead),
    /// It is other content, and what is held stays.
    IsAnother,
    /// It is other content, or nothing that was content before, and takes the place of what is held.
    Replaces,
}

impl Object {
    /// The master that it came from; `None` when that is not known, or is no master any more.
    pub(crate) fn home(&self) -> Option<MasterId> {
        let name = self.head.master.as_ref()?;
        self.project.sources.iter().find(|(_, m)| m.name() == name).map(|(id, _)| id)
    }

    /// Whether it is content that came from another master than this one.
    pub(crate) fn is_from_another(&self, master: MasterId) -> bool {
        self.head.has_ranges() && self.home().is_some_and(|home| home != master)
    }
}

/// The home of what is to be confirmed.
pub(crate) fn of(ask: &Ask) -> Option<MasterId> {
    ask.held.as_ref()?.home()
}

/// Whether an answer is one of another master than the home of what is held, and names it otherwise
/// or brings what is called otherwise.
pub(crate) fn differs(ask: &Ask, answer: &Answer) -> bool {
    let Some(held) = ask.held.as_ref().filter(|_| is_elsewhere(ask, answer.master)) else {
        return false;
    };
    let reply = answer.reply();
    match reply.status {
        StatusCode::NOT_MODIFIED => names_another(&held.head, reply.headers),
        _ => !same_representation(&held.head, held.rep.length(), &reply),
    }
}

/// Whether what is held is content that came from another master.
fn is_elsewhere(ask: &Ask, master: MasterId) -> bool {
    ask.held.as_ref().is_some_and(|held| held.is_from_another(master))
}

/// Preconditions of a request to a master for parts of an object, each to be tried when the one before
/// it fails. `usual`: those of its home.
pub(crate) fn conditions(object: &Object, usual: HeaderMap, master: MasterId) -> Vec<HeaderMap> {
    let by_date = range_headers_elsewhere(&object.head).filter(|_| object.is_from_another(master));
    match (by_date, object.project.sources.get(master)) {
        (Some(by_date), Some(m)) if m.names_otherwise.load(Relaxed) => vec![by_date],
        (Some(by_date), _) => vec![usual, by_date],
        (None, _) => vec![usual],
    }
}

/// Whether a reply of a master brings bytes of the object, by the name that it has or by another.
pub(crate) fn is_part(edge: &Edge, object: &Object, master: MasterId, reply: &Reply<'_>) -> bool {
    let length = object.rep.length();
    if same_representation(&object.head, length, reply) {
        return true;
    }
    let is_part = object.is_from_another(master)
        && confirmed_elsewhere(&object.head, length, reply).is_some();
    if is_part {
        note_disagreement(edge, object, master, reply.headers);
        note_name(object, master);
    }
    is_part
}

/// The master has names of its own.
fn note_name(object: &Object, master: MasterId) {
    if let Some(endpoint) = object.project.sources.get(master) {
        endpoint.names_otherwise.store(true, Relaxed);
    }
}

/// Fields that make a question about what is held a conditional one. A master that names content in a
/// way of its own is asked by date: a tag says nothing to it.
pub(crate) fn revalidation(ask: &Ask, held: &Object, master: MasterId) -> HeaderMap {
    let names = ask.project.sources.get(master).filter(|m| m.names_otherwise.load(Relaxed));
    let by_date = names
        .filter(|_| is_elsewhere(ask, master))
        .and_then(|_| revalidation_headers_elsewhere(&held.head));
    by_date.unwrap_or_else(|| revalidation_headers(&held.head))
}

/// What an answer that [`differs`] means for what is held. Counted and, not too often, logged.
pub(crate) fn judge(edge: &Edge, ask: &Ask, answer: &Answer) -> Elsewhere {
    let Some(held) = &ask.held else { return Elsewhere::Replaces };
    note_disagreement(edge, held, answer.master, &answer.parts.headers);
    if let Some(head) = confirmed_elsewhere(&held.head, held.rep.length(), &answer.reply()) {
        note_name(held, answer.master);
        return Elsewhere::Confirms(head);
    }
    let now = clock::now();
    let is_due = answer.parts.status != StatusCode::NOT_MODIFIED
        && edge.memos.update(&ask.key, |memo| memo.is_another_for(now, GRACE_MS));
    if is_due { Elsewhere::Replaces } else { Elsewhere::IsAnother }
}

/// Tells operators that two masters do not name the same representation.
pub(crate) fn note_disagreement(edge: &Edge, held: &Object, master: MasterId, headers: &HeaderMap) {
    let project = &held.project;
    let Some(endpoint) = project.sources.get(master) else { return };
    endpoint.disagreements.inc();
    let kind = format!("masters-disagree {}", endpoint.name());
    if let Some(more) = edge.complaints.due(&project.name, &kind, clock::now()) {
        let (validator, other) = (shown(&held.head.headers), shown(headers));
        let home = held.head.master.as_ref().map_or("-", |name| name.as_str());
        let (project, target) = (project.name.as_str(), held.target.as_str());
        let master = endpoint.name().as_str();
        tracing::warn!(
            project,
            target,
            home,
            validator,
            master,
            other,
            more,
            "masters disagree: what is held keeps its validator"
        );
    }
}

/// A validator for people.
fn shown(headers: &HeaderMap) -> String {
    let value = headers.get(ETAG).or_else(|| headers.get(LAST_MODIFIED));
    value.map_or_else(|| "-".to_owned(), |v| String::from_utf8_lossy(v.as_bytes()).into_owned())
}
