//! What is counted on the query path: plain numbers during a batch, then added to the metrics.

use dns_proto::{Dropped, Outcome, Sort};
use rt::Metrics;
use rt::metrics::{Counter, dns as metric};

/// Handles of one transport.
#[derive(Clone)]
pub(crate) struct Counters {
    /// By number of the sort.
    answers: Vec<Counter>,
    /// By number of the reason.
    dropped: Vec<Counter>,
    subnets: Counter,
    truncated: Counter,
}

/// What happened since the last [`Tally::flush`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    answers: [u32; Sort::ALL.len()],
    dropped: [u32; Dropped::ALL.len()],
    subnets: u32,
    truncated: u32,
}

impl Counters {
    pub(crate) fn new(metrics: &Metrics, transport: &str) -> Self {
        let answer = |sort: Sort| metrics.counter(&metric::ANSWERS, &[transport, sort.word()]);
        let dropped = |why: Dropped| metrics.counter(&metric::DROPPED, &[transport, why.word()]);
        Self {
            answers: Sort::ALL.map(answer).to_vec(),
            dropped: Dropped::ALL.map(dropped).to_vec(),
            subnets: metrics.counter(&metric::CLIENT_SUBNETS, &[transport]),
            truncated: metrics.counter(&metric::TRUNCATED, &[transport]),
        }
    }
}

impl Tally {
    pub(crate) fn add(&mut self, outcome: Outcome) {
        let count = match outcome {
            Outcome::Answered(answered) => {
                add(&mut self.subnets, answered.subnet);
                add(&mut self.truncated, answered.truncated);
                self.answers.get_mut(answered.sort as usize)
            }
            Outcome::Dropped(why) => self.dropped.get_mut(why as usize),
        };
        if let Some(count) = count {
            add(count, true);
        }
    }

    /// Adds everything to `counters` and begins anew.
    pub(crate) fn flush(&mut self, counters: &Counters) {
        let Self { answers, dropped, subnets, truncated } = std::mem::take(self);
        let singles = [(&counters.subnets, subnets), (&counters.truncated, truncated)];
        let all = counters.answers.iter().zip(answers);
        for (counter, n) in all.chain(counters.dropped.iter().zip(dropped)).chain(singles) {
            if n > 0 {
                counter.inc_by(n.into());
            }
        }
    }
}

fn add(count: &mut u32, happened: bool) {
    *count = count.saturating_add(happened.into());
}
