//! All metrics of Cacheboy: defined once in the tables of this module, registered at start, shown
//! at `/metrics`. `docs/metrics.md` is printed from the same tables.
//!
//! Resolve a handle once ([`Metrics::counter`], [`Metrics::gauge`]) and keep it: resolving looks up
//! labels, counting is one atomic addition.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::{GenericCounter, GenericCounterVec};
use prometheus::{IntGaugeVec, Opts, Registry, TextEncoder};

pub use striped::Striped;

pub mod bgp;
pub mod dns;
pub mod edge;
pub mod health;
pub mod host;
pub mod master;
mod striped;
pub mod tls;

/// A counter with its labels resolved.
pub type Counter = GenericCounter<Striped>;
type CounterVec = GenericCounterVec<Striped>;
/// A gauge with its labels resolved.
pub type Gauge = prometheus::IntGauge;

/// What a metric counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// One metric. The name is `cacheboy_ROLE_THING_UNIT[_total]`.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Name in the exposition.
    pub name: &'static str,
    /// Counter or gauge.
    pub kind: Kind,
    /// Label names; their values must come from a bounded set.
    pub labels: &'static [&'static str],
    /// One line for people, with the unit and the values of labels.
    pub help: &'static str,
}

/// Defines metrics and the list of them:
/// `metrics! { NAME: Counter "cacheboy_..." ["label"] "help"; ... }`.
macro_rules! metrics {
    ($($id:ident: $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $id: $crate::metrics::Metric = $crate::metrics::Metric {
                name: $name,
                kind: $crate::metrics::Kind::$kind,
                labels: &[$($label),*],
                help: $help,
            };
        )*
        /// Every metric of this table.
        pub const ALL: &[$crate::metrics::Metric] = &[$($id),*];
    };
}
pub(crate) use metrics;

/// The table of every host, then that of each role, in the order of the manual.
const TABLES: [&[Metric]; 7] =
    [host::ALL, tls::ALL, dns::ALL, edge::ALL, health::ALL, master::ALL, bgp::ALL];

/// Every metric of every role, in the order of the manual.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    TABLES.into_iter().flatten()
}

/// The registry of this process.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    counters: HashMap<&'static str, CounterVec>,
    gauges: HashMap<&'static str, IntGaugeVec>,
    /// Tables whose metrics are in the registry, by the first metric's name.
    shown: Mutex<HashSet<&'static str>>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Makes every metric of the tables. A role's are shown from the moment one of them is
    /// resolved: a host shows nothing of roles it does not play, and everything, at 0, of those it
    /// does.
    #[allow(clippy::expect_used, reason = "the tables are constant and a test makes them all")]
    pub fn new() -> Self {
        let mut counters = HashMap::new();
        let mut gauges = HashMap::new();
        for metric in all() {
            let options = Opts::new(metric.name, metric.help);
            match metric.kind {
                Kind::Counter => {
                    let family = CounterVec::new(options, metric.labels).expect("a sound table");
                    counters.insert(metric.name, family);
                }
                Kind::Gauge => {
                    let family = IntGaugeVec::new(options, metric.labels).expect("a sound table");
                    gauges.insert(metric.name, family);
                }
            }
        }
        let (registry, shown) = (Registry::new(), Mutex::default());
        Self(Arc::new(Inner { registry, counters, gauges, shown }))
    }

    /// Puts the table that `metric` stands in into the registry.
    #[allow(clippy::expect_used, reason = "the tables are constant and a test shows them all")]
    fn show_table_of(&self, metric: &Metric) {
        let has = |table: &&[Metric]| table.iter().any(|other| other.name == metric.name);
        let Some(table) = TABLES.into_iter().find(has) else { return };
        let Some(first) = table.first() else { return };
        if !self.0.shown.lock().unwrap_or_else(PoisonError::into_inner).insert(first.name) {
            return;
        }
        for metric in table {
            if let Some(family) = self.0.counters.get(metric.name) {
                self.0.registry.register(Box::new(family.clone())).expect("unique names");
                if metric.labels.is_empty() {
                    family.with_label_values::<&str>(&[]);
                }
            }
            if let Some(family) = self.0.gauges.get(metric.name) {
                self.0.registry.register(Box::new(family.clone())).expect("unique names");
                if metric.labels.is_empty() {
                    family.with_label_values::<&str>(&[]);
                }
            }
        }
    }

    /// The counter `metric` with these label values.
    ///
    /// Panics when `metric` is no counter of the tables or has another number of labels: a mistake
    /// in code that the first call shows.
    #[allow(clippy::expect_used, reason = "a mistake in code, not in input")]
    pub fn counter(&self, metric: &Metric, labels: &[&str]) -> Counter {
        self.show_table_of(metric);
        self.0.counters.get(metric.name).expect("a counter of the tables").with_label_values(labels)
    }

    /// The gauge `metric` with these label values. Panics as [`Metrics::counter`] does.
    #[allow(clippy::expect_used, reason = "a mistake in code, not in input")]
    pub fn gauge(&self, metric: &Metric, labels: &[&str]) -> Gauge {
        self.show_table_of(metric);
        self.0.gauges.get(metric.name).expect("a gauge of the tables").with_label_values(labels)
    }

    /// Prometheus text exposition, version 0.0.4.
    pub fn render(&self) -> String {
        // Encoding into a string fails only for families without a name, which the tables have.
        TextEncoder::new().encode_to_string(&self.0.registry.gather()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_shows_the_metrics_of_its_roles_and_no_others() {
        let metrics = Metrics::new();
        assert_eq!(metrics.render(), "");
        metrics.gauge(&host::NODE_MAP_GENERATION, &[]).set(7);
        let text = metrics.render();
        assert!(text.contains("cacheboy_host_node_map_generation 7\n"), "{text}");
        assert!(text.contains("cacheboy_host_node_map_confirmed_timestamp_seconds 0\n"), "{text}");
        assert!(!text.contains("cacheboy_master_"), "{text}");
    }

    #[test]
    fn the_tables_register_and_follow_the_naming_rule() {
        let metrics = Metrics::new();
        for table in TABLES {
            table.first().iter().for_each(|first| metrics.show_table_of(first));
        }
        for metric in all() {
            let rest = metric.name.strip_prefix("cacheboy_").unwrap();
            let role = rest.split('_').next().unwrap();
            assert!(
                ["host", "dns", "edge", "health", "master", "bgp"].contains(&role),
                "{}",
                metric.name
            );
            assert_eq!(
                metric.name.ends_with("_total"),
                metric.kind == Kind::Counter,
                "{}",
                metric.name
            );
            assert!(metric.help.ends_with('.'), "{}", metric.name);
        }
    }
}
