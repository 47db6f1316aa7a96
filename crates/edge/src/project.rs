//! The projects of the node map as the edge needs them: by host, with their masters.
//!
//! Swapped whole when the node map changes; requests and fills keep the project they began with. A
//! project whose masters did not change keeps what is known of their health.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fill::{Choice, Failure, MasterId, Masters, Shown};
use http::HeaderValue;
use http::header::HeaderName;
use http_cache::Target;
use model::{Name, Now, Query};
use nodemap::{HostPattern, NodeMap};
use rt::Metrics;
use rt::metrics::{Counter, edge};
use tokio::sync::Semaphore;

use crate::reach::Reach;
use crate::rules::{PathRules, Rules};

/// One master.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) name: Name,
    /// `http://host[:port][/prefix]` without a final slash.
    pub(crate) base: String,
    /// `Host` sent; `None`: that of the URL.
    pub(crate) host: Option<HeaderValue>,
    pub(crate) requests: Counter,
    pub(crate) bytes: Counter,
    /// Answers with another name for something held than its own master has.
    pub(crate) disagreements: Counter,
    /// It was found to name content in a way of its own.
    pub(crate) names_otherwise: AtomicBool,
    /// What it was last asked for: its probes ask for that.
    pub(crate) last: Mutex<Option<Target>>,
}

impl Endpoint {
    /// It is being asked for a target.
    pub(crate) fn note_asked(&self, target: &Target) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(target.clone());
    }

    /// What it was last asked for.
    pub(crate) fn last_asked(&self) -> Option<Target> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One project.
#[derive(Debug)]
pub(crate) struct Project {
    pub(crate) name: Name,
    pub(crate) masters: Vec<Endpoint>,
    /// Fields of clients that fills carry too; nothing is keyed on them.
    pub(crate) request_fields: Vec<HeaderName>,
    /// Permits for its share of the block buffers.
    pub(crate) buffers: Arc<Semaphore>,
    /// How far edges go beyond what clients ask.
    pub(crate) reach: Reach,
    definition: nodemap::Project,
    rules: Rules,
    /// Outlives changes of the map that leave the masters as they are.
    standing: Arc<Mutex<Standing>>,
    metrics: Metrics,
}

/// What is known of the masters' health.
#[derive(Debug)]
struct Standing {
    masters: Masters,
    /// Those that were logged as bad and not yet as good again.
    bad: BTreeSet<MasterId>,
}

impl Project {
    fn new(
        name: &Name,
        definition: &nodemap::Project,
        metrics: &Metrics,
        buffers: Arc<Semaphore>,
        before: Option<&Self>,
    ) -> Self {
        let masters: Vec<_> = definition
            .masters
            .iter()
            .map(|(master, m)| {
                let labels = [name.as_str(), master.as_str()];
                Endpoint {
                    name: master.clone(),
                    base: m.url.trim_end_matches('/').to_owned(),
                    host: m.host.as_deref().and_then(|h| HeaderValue::from_str(h).ok()),
                    requests: metrics.counter(&edge::UPSTREAM_REQUESTS, &labels),
                    bytes: metrics.counter(&edge::UPSTREAM_BYTES, &labels),
                    disagreements: metrics.counter(&edge::MASTERS_DISAGREE, &labels),
                    names_otherwise: AtomicBool::new(false),
                    last: Mutex::default(),
                }
            })
            .collect();
        let same = before.filter(|p| p.definition.masters == definition.masters);
        let made = || Standing { masters: Masters::new(masters.len()), bad: BTreeSet::new() };
        let standing =
            same.map_or_else(|| Arc::new(Mutex::new(made())), |p| Arc::clone(&p.standing));
        Self {
            name: name.clone(),
            standing,
            masters,
            request_fields: definition
                .request_fields
                .iter()
                .filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
                .collect(),
            buffers,
            reach: Reach::new(name, metrics),
            rules: Rules::new(definition),
            definition: definition.clone(),
            metrics: metrics.clone(),
        }
    }

    /// What holds for a target.
    pub(crate) fn rules(&self, target: &Target) -> &PathRules {
        self.rules.of(target)
    }

    /// What of a query counts here.
    pub(crate) fn query(&self) -> &Query {
        &self.rules.query
    }

    /// What of a target counts here.
    pub(crate) fn reduce(&self, target: Target) -> Target {
        target.reduced(&self.rules.query)
    }

    /// Whether methods other than GET and HEAD are passed on.
    pub(crate) fn passes_methods(&self) -> bool {
        self.rules.passes_methods
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Within how many milliseconds 99 of 100 answers of the master begin, once that is known.
    pub(crate) fn p99_first_byte_ms(&self, master: MasterId) -> Option<u64> {
        self.standing().masters.p99_first_byte_ms(master)
    }

    /// Whom to ask, given those already tried.
    /// `prefer` is asked first while it is good.
    pub(crate) fn choose(
        &self,
        now: Now,
        prefer: Option<MasterId>,
        tried: &[MasterId],
    ) -> Option<Choice> {
        let others = (0..self.masters.len()).filter(|id| Some(*id) != prefer);
        let order: Vec<_> = prefer.into_iter().chain(others).collect();
        self.standing().masters.choose(now, &order, tried, |_| false)
    }

    /// What is known of a master.
    pub(crate) fn shown(&self, master: MasterId, now: Now) -> Shown {
        self.standing().masters.show(master, now)
    }

    /// A bad master that is to be probed now.
    pub(crate) fn probe_due(&self, now: Now) -> Option<MasterId> {
        self.standing().masters.probe_due(now)
    }

    /// An answer of the master began after so many milliseconds.
    pub(crate) fn handle_first_byte(&self, master: MasterId, ms: u64) {
        self.standing().masters.handle_first_byte(master, ms);
    }

    /// The master answered. Logged when it was bad before.
    pub(crate) fn handle_ok(&self, master: MasterId) {
        let mut standing = self.standing();
        standing.masters.handle_ok(master);
        let is_change = standing.bad.remove(&master);
        drop(standing);
        if is_change {
            let (project, master) = (self.name.as_str(), self.master_name(master));
            tracing::info!(project, master, "a master is good again");
        }
    }

    /// The master failed: counted, and perhaps skipped for a while. Logged when it was good before.
    pub(crate) fn handle_failed(&self, master: MasterId, why: Failure, now: Now) {
        let mut standing = self.standing();
        standing.masters.handle_failed(master, why, now);
        let is_change = standing.masters.is_bad(master) && standing.bad.insert(master);
        drop(standing);
        if is_change {
            let (project, name) = (self.name.as_str(), self.master_name(master));
            let url = self.masters.get(master).map_or("-", |m| m.base.as_str());
            let code = if let Failure::Status(code) = why { Some(code) } else { None };
            let why = why.to_string();
            tracing::warn!(
                project,
                master = name,
                url,
                why,
                code,
                "a master is bad: others are asked first until it answers well"
            );
        }
        let labels = [self.name.as_str(), self.master_name(master), &why.to_string()];
        self.metrics.counter(&edge::UPSTREAM_ERRORS, &labels).inc();
        tracing::debug!(project = labels[0], master = labels[1], kind = labels[2], "master failed");
    }

    /// The group that a target belongs to, and the seconds between two ticks of its grid.
    pub(crate) fn group_of(&self, target: &Target) -> Option<(&Name, u32)> {
        let rules = self.rules(target);
        Some((rules.group.as_ref()?, u32::try_from(rules.policy.ttl_s?).ok()?))
    }

    /// The master's name; `None` when it does not exist.
    pub(crate) fn name_of(&self, master: MasterId) -> Option<Name> {
        self.masters.get(master).map(|m| m.name.clone())
    }

    /// The master's name for people; `-` when it does not exist.
    pub(crate) fn master_name(&self, master: MasterId) -> &str {
        self.masters.get(master).map_or("-", |m| m.name.as_str())
    }

    /// The names of the masters that are not bad.
    pub(crate) fn healthy(&self) -> Vec<&Name> {
        let standing = self.standing();
        let names = self.masters.iter().enumerate();
        names.filter(|(id, _)| !standing.masters.is_bad(*id)).map(|(_, m)| &m.name).collect()
    }
}

/// All projects of one node map.
#[derive(Debug, Default)]
pub(crate) struct Projects {
    pub(crate) generation: u64,
    pub(crate) by_name: HashMap<Name, Arc<Project>>,
    by_host: HashMap<String, Arc<Project>>,
    any: Option<Arc<Project>>,
}

impl Projects {
    /// The projects of `map`; unchanged ones are taken over from `before`. `buffers`: block buffers
    /// that one of several projects may use.
    pub(crate) fn new(map: &NodeMap, before: &Self, metrics: &Metrics, buffers: usize) -> Self {
        let mut projects = Self { generation: map.generation, ..Self::default() };
        for (name, definition) in &map.map.projects {
            let known = before.by_name.get(name);
            let kept = known.filter(|p| p.definition == *definition);
            let project = kept.cloned().unwrap_or_else(|| {
                let made = || Arc::new(Semaphore::new(buffers));
                let buffers = known.map_or_else(made, |p| Arc::clone(&p.buffers));
                let before = known.map(AsRef::as_ref);
                Arc::new(Project::new(name, definition, metrics, buffers, before))
            });
            for host in &definition.hosts {
                match host {
                    HostPattern::Exact(host) => {
                        projects.by_host.insert(host.as_str().to_owned(), Arc::clone(&project));
                    }
                    HostPattern::Any => projects.any = Some(Arc::clone(&project)),
                }
            }
            projects.by_name.insert(name.clone(), project);
        }
        projects
    }

    /// The project that accepts `host` (as in a `Host` field, with or without a port).
    pub(crate) fn of_host(&self, host: &str) -> Option<&Arc<Project>> {
        let name = without_port(host).to_ascii_lowercase();
        self.by_host.get(name.strip_suffix('.').unwrap_or(&name)).or(self.any.as_ref())
    }
}

/// A `Host` value without its port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::{Debug, Write};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata};

    use super::*;

    /// Keeps the lines that are logged.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            write!(self.0, " {}={value:?}", field.name()).unwrap();
        }
    }

    impl tracing::Subscriber for Lines {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() <= tracing::Level::INFO
        }
        fn event(&self, event: &Event<'_>) {
            let mut line = Line(event.metadata().level().to_string());
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn a_master_that_turns_bad_or_good_is_one_line_each() {
        let master = nodemap::testing::master("http://m1.example/");
        let definition = nodemap::Project {
            masters: [("m1".parse().unwrap(), master)].into(),
            ..nodemap::testing::project()
        };
        let project = Project::new(
            &"p".parse().unwrap(),
            &definition,
            &Metrics::new(),
            Arc::new(Semaphore::new(1)),
            None,
        );
        let lines = Lines::default();
        let t = Now::default();
        tracing::subscriber::with_default(lines.clone(), || {
            project.handle_ok(0);
            project.handle_failed(0, Failure::Status(404), t);
            for failure in [Failure::Status(503), Failure::Connect, Failure::Connect] {
                project.handle_failed(0, failure, t);
            }
            // Probed, and still bad.
            project.handle_failed(0, Failure::Connect, t.plus_ms(1_000_000));
            project.handle_ok(0);
            project.handle_ok(0);
            project.handle_failed(0, Failure::ConnectTimeout, t);
        });
        let bad = |why, code| {
            format!(
                "WARN message=a master is bad: others are asked first until it answers well \
                 project=\"p\" master=\"m1\" url=\"http://m1.example\" why=\"{why}\"{code}"
            )
        };
        let good = "INFO message=a master is good again project=\"p\" master=\"m1\"".to_owned();
        assert_eq!(
            *lines.0.lock().unwrap(),
            [bad("status", " code=503"), good, bad("connect-timeout", "")]
        );
    }

    #[test]
    fn ports_are_not_part_of_a_host() {
        for (host, name) in [
            ("a.example", "a.example"),
            ("a.example:8080", "a.example"),
            ("[2001:db8::1]:80", "[2001:db8::1]"),
            ("127.0.0.1:1", "127.0.0.1"),
            (":80", ":80"),
        ] {
            assert_eq!(without_port(host), name);
        }
    }
}
