//! Handles of the edge's metrics, resolved once.

use fill::Reason;
use rt::Metrics;
use rt::metrics::{Counter, Gauge, edge};
use usage::Outcome;

use crate::refusal::Refusal;

#[derive(Debug)]
pub(crate) struct Counters {
    /// In the order of [`Outcome::ALL`].
    requests: Vec<Counter>,
    /// By the word of the refusal.
    refused: Vec<(&'static str, Counter)>,
    pub(crate) sent: Counter,
    pub(crate) fills: Counter,
    filled: [Counter; 3],
    /// Digests compared: good, mismatch, unread, skipped.
    pub(crate) digests: [Counter; 4],
    pub(crate) past_store: Counter,
    pub(crate) in_flight: Gauge,
}

impl Counters {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let of = |word: &str| metrics.counter(&edge::REQUESTS, &[word]);
        Self {
            requests: Outcome::ALL.iter().map(|outcome| of(outcome.word())).collect(),
            refused: Refusal::WORDS
                .iter()
                .map(|word| (*word, metrics.counter(&edge::REFUSED, &[word])))
                .collect(),
            sent: metrics.counter(&edge::SENT, &[]),
            fills: metrics.counter(&edge::FILLS, &[]),
            filled: ["demand", "ahead", "completion"]
                .map(|word| metrics.counter(&edge::FILLED, &[word])),
            digests: ["good", "mismatch", "unread", "skipped"]
                .map(|word| metrics.counter(&edge::DIGESTS, &[word])),
            past_store: metrics.counter(&edge::PAST_STORE, &[]),
            in_flight: metrics.gauge(&edge::IN_FLIGHT, &[]),
        }
    }

    pub(crate) fn count(&self, outcome: Outcome) {
        // The table is in the order of the variants.
        if let Some(counter) = self.requests.get(outcome as usize) {
            counter.inc();
        }
    }

    /// A request was refused for this reason.
    pub(crate) fn count_refused(&self, word: &str) {
        if let Some((_, counter)) = self.refused.iter().find(|(w, _)| *w == word) {
            counter.inc();
        }
    }

    /// Every reason of refusals with its count, for `/status`.
    pub(crate) fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.refused.iter().map(|(word, counter)| (*word, counter.get()))
    }

    /// Bytes of a block were stored.
    pub(crate) fn count_filled(&self, reason: Reason, bytes: u64) {
        let [demand, ahead, completion] = &self.filled;
        let counter = match reason {
            Reason::Demand => demand,
            Reason::Ahead => ahead,
            Reason::Completion => completion,
        };
        counter.inc_by(bytes);
    }

    /// Every result with its count, for `/status`.
    pub(crate) fn results(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counted = Outcome::ALL.iter().zip(&self.requests);
        counted.map(|(outcome, counter)| (outcome.word(), counter.get()))
    }
}

/// Brings a counter to a total that is counted elsewhere.
pub(crate) fn raise(counter: &Counter, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
}
