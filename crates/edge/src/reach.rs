//! How far an edge goes for a project beyond what its clients ask: second questions when a master
//! lets a client wait, and the completion of whole objects.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fill::{Allowance, Chosen, Hedges, MasterId};
use model::{Name, Now};
use rt::Metrics;
use rt::metrics::{Counter, edge};
use store::Key;
use tokio::sync::Semaphore;

use crate::project::Project;

/// How long a blocked client waits for a master of which too little is known, milliseconds.
const PATIENCE_MS: u64 = 1000;
/// It waits so long at least, milliseconds.
const PATIENCE_MS_MIN: u64 = 50;
/// Bytes a second that completion takes of one master.
const COMPLETION_BYTES_PER_S: u64 = 32 << 20;
/// Answers of one master at once that completion began.
const COMPLETIONS_MAX: usize = 4;

/// The budgets of one project.
#[derive(Debug)]
pub(crate) struct Reach {
    hedges: Mutex<Hedges>,
    masters: Mutex<HashMap<MasterId, Spare>>,
    pub(crate) hedges_asked: Counter,
    pub(crate) hedges_won: Counter,
    /// Those that the budget did not allow.
    hedges_refused: Counter,
}

/// What completion may take of one master.
#[derive(Debug)]
struct Spare {
    bytes: Allowance,
    answers: Arc<Semaphore>,
}

impl Reach {
    pub(crate) fn new(project: &Name, metrics: &Metrics) -> Self {
        let hedges = |word| metrics.counter(&edge::HEDGES, &[project.as_str(), word]);
        Self {
            hedges: Mutex::default(),
            masters: Mutex::default(),
            hedges_asked: hedges("asked"),
            hedges_won: hedges("won"),
            hedges_refused: hedges("refused"),
        }
    }

    fn with_spare<T>(&self, master: MasterId, with: impl FnOnce(&mut Spare) -> T) -> T {
        let mut masters = self.masters.lock().unwrap_or_else(PoisonError::into_inner);
        with(masters.entry(master).or_insert_with(|| Spare {
            bytes: Allowance::new(COMPLETION_BYTES_PER_S),
            answers: Arc::new(Semaphore::new(COMPLETIONS_MAX)),
        }))
    }

    /// Takes bytes of a master for completion, or says after how many nanoseconds to ask again.
    pub(crate) fn take_spare(&self, master: MasterId, bytes: u64, now: Now) -> Result<(), u64> {
        self.with_spare(master, |spare| spare.bytes.take(bytes, now))
    }

    /// Permits for answers of a master that completion begins.
    pub(crate) fn completions(&self, master: MasterId) -> Arc<Semaphore> {
        self.with_spare(master, |spare| Arc::clone(&spare.answers))
    }

    fn hedges(&self) -> MutexGuard<'_, Hedges> {
        self.hedges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Project {
    /// Whom to ask for a part of an object, given those already tried, and how long a client that
    /// needs it waits before another is asked.
    pub(crate) fn chosen(
        &self,
        now: Now,
        object: &Key,
        prefer: Option<MasterId>,
        tried: &[MasterId],
    ) -> Option<Chosen> {
        let master = self.sources.choose(now, object, prefer, tried)?.master;
        self.note_fill();
        Some(Chosen { master, patience_ns: self.patience_ms(master).saturating_mul(1_000_000) })
    }

    /// A master is being asked for something.
    pub(crate) fn note_fill(&self) {
        self.reach.hedges().handle_fill();
    }

    /// How long a client waits for an answer of the master to begin before another is asked,
    /// milliseconds.
    pub(crate) fn patience_ms(&self, master: MasterId) -> u64 {
        self.sources.p99_first_byte_ms(master).unwrap_or(PATIENCE_MS).max(PATIENCE_MS_MIN)
    }

    /// A good one to ask too, given those that are asked or were tried, if the budget allows it.
    pub(crate) fn rival(
        &self,
        now: Now,
        object: &Key,
        prefer: Option<MasterId>,
        tried: &[MasterId],
    ) -> Option<MasterId> {
        let choice = self.sources.choose(now, object, prefer, tried)?;
        if choice.skipped || tried.contains(&choice.master) {
            return None;
        }
        let taken = self.reach.hedges().take();
        if taken { &self.reach.hedges_asked } else { &self.reach.hedges_refused }.inc();
        taken.then_some(choice.master)
    }
}
