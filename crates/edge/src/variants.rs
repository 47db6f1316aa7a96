//! Where an answer is kept that depends on fields of the request: the record of its target's variants,
//! read before it is written, one writer at a time.

use std::sync::{Arc, PoisonError};

use http_cache::{NoCache, Place, StoredHead, Variants, varying};
use rt::clock;
use store::{Held, Key};

use crate::fetch::Ask;
use crate::question::Question;
use crate::state::Edge;
use crate::upstream::Answer;

/// Where an answer belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// It is kept under this key.
    Under(Key),
    /// It is another client's: this one is asked for again, now that it is known what it depends on.
    AskAgain,
}

/// Settles where the answer to a question is kept, and notes it in the record of its target.
pub(crate) async fn settle(
    edge: &Arc<Edge>,
    ask: &Ask,
    question: &Question,
    answer: &Answer,
) -> Result<Settled, NoCache> {
    let reply = answer.reply();
    if varying(reply.headers)?.is_empty() {
        return Ok(Settled::Under(ask.base));
    }
    let sent = question.head(edge, ask, answer.master).map_err(|_| NoCache::Vary)?;
    let (edge, base) = (Arc::clone(edge), ask.base);
    let (client, reply) = (ask.headers.clone(), reply.headers.clone());
    let noting = tokio::task::spawn_blocking(move || {
        let _one_writer = edge.records.lock().unwrap_or_else(PoisonError::into_inner);
        let store = edge.store(&base).ok_or(NoCache::Disk)?;
        let former = store.load(&base);
        let known = former.as_ref().and_then(|rep| Variants::from_bytes(&rep.head()));
        let place = Place::of(&base.0, known.as_ref(), (&client, &sent), &reply, clock::now())?;
        let Place::Variant { mut record, key, suits } = place else {
            return Ok(Settled::Under(base));
        };
        if suits && !record.admit(key, |key| is_held(&edge, Key(*key))) {
            return Err(NoCache::VaryMany);
        }
        let written = match former.filter(|_| known.as_ref().is_some_and(|k| k.is_kin(&record))) {
            Some(_) if known.as_ref() == Some(&record) => Ok(()),
            Some(rep) => store.set_head(&rep, record.to_bytes()),
            None => store.create(base, record.to_bytes(), 0).map(|_| ()),
        };
        written.map_err(|_| NoCache::Disk)?;
        Ok(if suits { Settled::Under(Key(key)) } else { Settled::AskAgain })
    });
    noting.await.unwrap_or(Err(NoCache::Disk))
}

fn is_held(edge: &Edge, key: Key) -> bool {
    edge.store(&key).is_some_and(|store| !matches!(store.look_up(&key), Held::Absent))
}

/// Whether a representation that was confirmed under a newer head still belongs where it stands: what
/// stood there for everybody may depend on the request now.
pub(crate) fn stays(ask: &Ask, head: &StoredHead) -> bool {
    ask.key != ask.base || varying(&head.headers).is_ok_and(|names| names.is_empty())
}
