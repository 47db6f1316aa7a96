//! What is counted by project, pool and node: as many counters as the node map has of them, resolved
//! when a snapshot is published, so that a query finds its own by number.

use dns_proto::{Answered, Led, Snapshot, Sort};
use rt::Metrics;
use rt::metrics::{Counter, Metric, dns as metric};
use steer::DecidedBy;

/// What projects' answers are counted as.
const SORTS: [Sort; 5] =
    [Sort::Steered, Sort::Spilled, Sort::AllDown, Sort::NoData, Sort::ServFail];

/// Counters in the order of the node map's tables.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    projects: Vec<[Counter; SORTS.len()]>,
    /// By project and kind.
    evidence: Vec<[Counter; DecidedBy::WORDS.len()]>,
    pools: Vec<Counter>,
    nodes: Vec<Counter>,
}

impl Meters {
    pub(crate) fn of(snapshot: &Snapshot, metrics: &Metrics) -> Self {
        let Some(steering) = snapshot.steering() else { return Self::default() };
        let map = &steering.map().map;
        let counter = |of: &Metric, label: &str| metrics.counter(of, &[label]);
        let projects = map.projects.keys().map(|project| {
            SORTS.map(|sort| {
                metrics.counter(&metric::PROJECT_ANSWERS, &[project.as_str(), sort.word()])
            })
        });
        let evidence = map.projects.keys().map(|project| {
            DecidedBy::WORDS
                .map(|word| metrics.counter(&metric::EVIDENCE_SAMPLES, &[project.as_str(), word]))
        });
        Self {
            projects: projects.collect(),
            evidence: evidence.collect(),
            pools: map
                .pools
                .keys()
                .map(|pool| counter(&metric::POOL_ANSWERS, pool.as_str()))
                .collect(),
            nodes: map
                .nodes
                .keys()
                .map(|node| counter(&metric::NODE_ANSWERS, node.as_str()))
                .collect(),
        }
    }

    /// Counts by which evidence an answer was steered.
    pub(crate) fn add_evidence(&self, led: &Led, by: &DecidedBy) {
        let of_project = self.evidence.get(usize::from(led.project));
        if let Some(counter) = of_project.and_then(|all| all.get(by.number())) {
            counter.inc();
        }
    }

    /// Counts a reply that was given whole.
    pub(crate) fn add(&self, answered: &Answered) {
        let Some(led) = answered.led.filter(|_| answered.limited.is_none()) else { return };
        let of_project = self.projects.get(usize::from(led.project));
        let sort = SORTS.iter().position(|sort| *sort == answered.sort);
        if let Some(counter) = of_project.zip(sort).and_then(|(all, at)| all.get(at)) {
            counter.inc();
        }
        if let Some(counter) = led.pool.and_then(|pool| self.pools.get(usize::from(pool))) {
            counter.inc();
        }
        let nodes = led.nodes().iter().filter_map(|node| self.nodes.get(usize::from(*node)));
        nodes.for_each(Counter::inc);
    }
}
