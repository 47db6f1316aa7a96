//! Who notes of each query what is asked of some only: the line of the log, and by which evidence its
//! client was steered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use dns_proto::Outcome;
use model::Dice;

use crate::query_log::{Entry, QueryLog};

/// One in so many answers that depend on who asks is looked at for what decided. The class table does
/// not say: a class is what gets the same answers for whatever reason, and classes by reason would make
/// scopes longer. It is the location again, and costs a tenth of an answer.
const EVIDENCE_OF_ONE_IN: u64 = 64;

/// That of one answering thread or connection.
pub(crate) struct Scribe {
    log: Option<Arc<QueryLog>>,
    dice: Dice,
    shard: usize,
}

impl Scribe {
    pub(crate) fn new(log: Option<&Arc<QueryLog>>) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Self { log: log.cloned(), dice: rt::clock::dice(), shard: NEXT.fetch_add(1, Relaxed) }
    }

    /// A query has got what it gets.
    pub(crate) fn note(&mut self, entry: &Entry<'_>) {
        if let Outcome::Answered(answered) = entry.outcome
            && let Some(led) = &answered.led
            && self.dice.below(EVIDENCE_OF_ONE_IN) == 0
            && let Some(by) = entry.published.evidence(led)
        {
            entry.published.meters.add_evidence(led, &by);
        }
        if let Some(log) = &self.log
            && self.dice.below(log.sample()) == 0
        {
            log.note(self.shard, entry);
        }
    }
}
