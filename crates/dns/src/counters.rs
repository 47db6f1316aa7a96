//! What is counted on the query path: plain numbers during a batch, then added to the metrics.

use dns_proto::dnssec::Signed;
use dns_proto::{Dropped, Kind, Outcome, Sort};
use rt::Metrics;
use rt::metrics::{Counter, dns as metric};

use crate::meters::Meters;

/// Handles of one transport.
#[derive(Clone)]
pub(crate) struct Counters {
    /// By number of the sort.
    answers: Vec<Counter>,
    /// By number of the reason.
    dropped: Vec<Counter>,
    subnets: Counter,
    truncated: Counter,
    /// By number of the kind.
    cut: Vec<Counter>,
    /// Made, found, refused.
    signatures: [Counter; 3],
}

/// What happened in a batch.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    answers: [u32; Sort::ALL.len()],
    dropped: [u32; Dropped::ALL.len()],
    subnets: u32,
    truncated: u32,
    cut: [u32; Kind::ALL.len()],
    /// What the pen did.
    pub(crate) signed: Signed,
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
            cut: Kind::ALL.map(|kind| metrics.counter(&metric::CUT, &[kind.word()])).to_vec(),
            signatures: ["made", "found", "refused"]
                .map(|result| metrics.counter(&metric::SIGNATURES, &[transport, result])),
        }
    }
}

impl Tally {
    pub(crate) fn add(&mut self, outcome: &Outcome, meters: &Meters) {
        let count = match outcome {
            Outcome::Answered(answered) => {
                meters.add(answered);
                add(&mut self.subnets, answered.subnet);
                add(&mut self.truncated, answered.truncated);
                if let Some(kind) = answered.limited
                    && let Some(cut) = self.cut.get_mut(kind as usize)
                {
                    add(cut, true);
                }
                self.answers.get_mut(answered.sort as usize)
            }
            Outcome::Dropped(why) => self.dropped.get_mut(why.number()),
        };
        if let Some(count) = count {
            add(count, true);
        }
    }

    /// Adds everything to `counters`.
    pub(crate) fn flush(self, counters: &Counters) {
        let Self { answers, dropped, subnets, truncated, cut, signed } = self;
        pour(&counters.answers, &answers);
        pour(&counters.dropped, &dropped);
        pour(&counters.cut, &cut);
        pour(&counters.signatures, &[signed.made, signed.found, signed.refused]);
        pour([&counters.subnets, &counters.truncated], &[subnets, truncated]);
    }
}

fn pour<'a>(counters: impl IntoIterator<Item = &'a Counter>, counts: &[u32]) {
    for (counter, n) in counters.into_iter().zip(counts) {
        if *n > 0 {
            counter.inc_by((*n).into());
        }
    }
}

fn add(count: &mut u32, happened: bool) {
    *count = count.saturating_add(happened.into());
}
