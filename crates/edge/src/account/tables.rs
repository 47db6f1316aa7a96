//! The sums of all shards as metrics, with a bounded number of series.
//!
//! Of projects and countries all are shown. Of autonomous systems a table has every one; as series of
//! their own at most [`SHOWN_MAX`] are shown, the largest, and never hidden again, because a counter
//! that vanishes is read as a restart. What came for the others is shown under `other`; a system that
//! is shown later begins at 0 there and then, so that all series together are always the whole.

use std::collections::HashMap;

use model::{Asn, CountryCode, Name, Now};
use rt::Metrics;
use rt::metrics::{Counter, Metric, edge as metric};
use serde_json::{Value, json};
use usage::Outcome;

use super::sums::{Sum, Sums, Ways};

/// Series of autonomous systems beside `other`.
const SHOWN_MAX: usize = 256;
/// So many more of the largest are shown at a time, and how often: one that is large later finds room.
const SHOWN_AT_ONCE: usize = 16;
const SHOW_EVERY_MS: u64 = 60_000;
/// So many of the largest are in `/status`.
const LARGEST: usize = 10;
/// What is measured of connections, in the order of [`Ways::fields`].
const WAYS: [&Metric; 7] = [
    &metric::WAY_CONNECTIONS,
    &metric::WAY_ACKED,
    &metric::WAY_SENT,
    &metric::WAY_RETRANSMITTED,
    &metric::WAY_MIN_RTT,
    &metric::WAY_RATED,
    &metric::WAY_RATE,
];

/// The tables.
#[derive(Debug)]
pub(super) struct Tables {
    metrics: Metrics,
    /// Every one that was seen, bounded by those of the database.
    systems: HashMap<Asn, System>,
    others: Series,
    unknown: Option<Series>,
    shown: usize,
    show_at_ns: u64,
}

#[derive(Debug, Default)]
struct System {
    sum: Sum,
    series: Option<Series>,
}

/// The counters of one label.
#[derive(Clone, Debug)]
struct Series {
    requests: Counter,
    bytes: Counter,
    ways: [Counter; WAYS.len()],
}

impl Series {
    fn new(metrics: &Metrics, label: &str) -> Self {
        Self {
            requests: metrics.counter(&metric::ASN_REQUESTS, &[label]),
            bytes: metrics.counter(&metric::ASN_SENT, &[label]),
            ways: WAYS.map(|way| metrics.counter(way, &[label])),
        }
    }

    fn add(&self, sum: Sum) {
        self.requests.inc_by(sum.requests);
        self.bytes.inc_by(sum.bytes);
    }
}

impl Tables {
    pub(super) fn new(metrics: &Metrics) -> Self {
        Self {
            metrics: metrics.clone(),
            systems: HashMap::new(),
            others: Series::new(metrics, "other"),
            unknown: None,
            shown: 0,
            show_at_ns: 0,
        }
    }

    /// Adds sums, and empties them.
    pub(super) fn add(&mut self, sums: &mut Sums) {
        let mut projects: HashMap<(Option<Name>, Outcome), Sum> = HashMap::new();
        let mut countries: HashMap<Option<CountryCode>, Sum> = HashMap::new();
        for answers in sums.take_answers() {
            let project = answers.project.map(|project| project.name.clone());
            projects.entry((project, answers.outcome)).or_default().add(answers.sum);
            countries.entry(answers.country).or_default().add(answers.sum);
            if let Some(asn) = answers.asn {
                self.systems.entry(asn).or_default().sum.add(answers.sum);
            }
            self.series(answers.asn).add(answers.sum);
        }
        for ((project, outcome), sum) in projects {
            let project = project.as_ref().map_or("none", Name::as_str);
            let labels = [project, outcome.word()];
            self.metrics.counter(&metric::PROJECT_REQUESTS, &labels).inc_by(sum.requests);
            self.metrics.counter(&metric::PROJECT_SENT, &labels).inc_by(sum.bytes);
        }
        for (country, sum) in countries {
            let labels = [country.as_ref().map_or("unknown", CountryCode::as_str)];
            self.metrics.counter(&metric::COUNTRY_REQUESTS, &labels).inc_by(sum.requests);
            self.metrics.counter(&metric::COUNTRY_SENT, &labels).inc_by(sum.bytes);
        }
        for (asn, ways) in sums.take_connections() {
            self.add_ways(asn, ways);
        }
    }

    fn add_ways(&mut self, asn: Option<Asn>, ways: Ways) {
        for (counter, more) in self.series(asn).ways.iter().zip(ways.fields()) {
            counter.inc_by(more);
        }
    }

    /// Where what comes for a system is shown.
    fn series(&mut self, asn: Option<Asn>) -> &Series {
        match asn {
            None => self.unknown.get_or_insert_with(|| Series::new(&self.metrics, "unknown")),
            Some(asn) => {
                let system = self.systems.get(&asn);
                system.and_then(|system| system.series.as_ref()).unwrap_or(&self.others)
            }
        }
    }

    /// Shows more systems when it is time to.
    pub(super) fn show(&mut self, now: Now) {
        if now.mono_ns < self.show_at_ns || self.shown >= SHOWN_MAX {
            return;
        }
        let mut hidden: Vec<(u64, Asn)> = self
            .systems
            .iter()
            .filter(|(_, system)| system.series.is_none())
            .map(|(asn, system)| (system.sum.bytes, *asn))
            .collect();
        if hidden.is_empty() {
            return;
        }
        self.show_at_ns = now.plus_ms(SHOW_EVERY_MS).mono_ns;
        hidden.sort_unstable_by(|a, b| b.cmp(a));
        let most = SHOWN_AT_ONCE.min(SHOWN_MAX.saturating_sub(self.shown));
        for (_, asn) in hidden.into_iter().take(most) {
            if let Some(system) = self.systems.get_mut(&asn) {
                system.series = Some(Series::new(&self.metrics, &asn.get().to_string()));
                self.shown = self.shown.saturating_add(1);
            }
        }
    }

    /// In `/status`: how many systems there are, and the largest.
    pub(super) fn status(&self) -> Value {
        let mut all: Vec<(Sum, Asn)> = self.systems.iter().map(|(asn, s)| (s.sum, *asn)).collect();
        all.sort_unstable_by_key(|(sum, asn)| (std::cmp::Reverse(sum.bytes), *asn));
        let largest = all.iter().take(LARGEST).map(
            |(sum, asn)| json!({ "asn": asn.get(), "requests": sum.requests, "bytes": sum.bytes }),
        );
        json!({ "seen": all.len(), "largest": largest.collect::<Value>() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::sums;

    fn answers(tables: &mut Tables, asn: u32, bytes: u64) {
        let mut sums = sums::Sums::default();
        let record = usage::Record {
            asn: Asn::new(asn),
            country: "AU".parse().ok(),
            bytes,
            ..crate::account::tests::record()
        };
        sums.note_answer(&record, None);
        tables.add(&mut sums);
    }

    #[test]
    fn series_of_systems_are_bounded_and_together_the_whole() {
        let metrics = Metrics::new();
        let mut tables = Tables::new(&metrics);
        let mut now = Now { mono_ns: 1, wall_ms: 1 };
        let mut whole = 0;
        for round in 0..40u64 {
            for asn in 1..=1000 {
                answers(&mut tables, asn, u64::from(asn));
                whole += u64::from(asn);
            }
            tables.show(now);
            now = now.plus_ms(SHOW_EVERY_MS);
            let shown = (round + 1) * 16;
            assert_eq!(tables.shown, usize::try_from(shown.min(256)).unwrap());
        }
        answers(&mut tables, 0, 7);
        let text = metrics.render();
        let series: Vec<(&str, u64)> = text
            .lines()
            .filter_map(|line| line.strip_prefix("cacheboy_edge_asn_sent_bytes_total{asn=\""))
            .filter_map(|rest| rest.split_once("\"} "))
            .map(|(label, value)| (label, value.parse().unwrap()))
            .collect();
        assert_eq!(series.len(), 258, "256, other and unknown");
        assert_eq!(series.iter().map(|(_, bytes)| bytes).sum::<u64>(), whole + 7);
        // The largest from its second round on.
        assert!(series.contains(&("1000", 39 * 1000)), "{series:?}");
        assert!(!series.iter().any(|(label, _)| *label == "1"));
        assert_eq!(tables.status()["seen"], 1000);
        assert_eq!(tables.status()["largest"][0]["asn"], 1000);
        assert!(text.contains("cacheboy_edge_country_requests_total{country=\"AU\"} 40001\n"));
    }
}
