//! The sources of a project: its masters and, where the project has parents and this edge is none of
//! them, those. Who is asked next, and what is known of their health.
//!
//! A [`MasterId`] is a place in one table: masters first, in their order, then parents. Parents are
//! asked before masters, in the order of the object ([`fill::parents`]): two at most for one request,
//! and none after one that could not get the object either.
//!
//! A master that the checker has quarantined, since it answers otherwise than the others, is not asked at
//! all, whatever happens to those: a file that cannot be had now is better than a wrong one. Only where
//! all are quarantined nobody knows better, and they are asked as ever.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use fill::parents::{self, Parent, seed_of};
use fill::{Choice, Failure, MasterId, Masters, Shown};
use http::HeaderValue;
use model::{Family, Name, Now};
use nodemap::{HostPattern, MasterWord, NodeMap};
use rt::Metrics;
use rt::metrics::{Counter, edge};
use store::Key;

use crate::upstream::destination::{Destination, Place};
use crate::upstream::endpoint::{Definition, Endpoint, Kind, REQUESTS_MAX_DEFAULT};

/// The name of the process that took the stores over, in metrics and logs.
const SUCCESSOR: &str = "successor";
/// Parents asked for one request.
const PARENTS_MAX: usize = 2;

/// A parent as the node map has it.
#[derive(Clone, Debug)]
struct Ancestor {
    definition: Definition,
    weight: u32,
    /// It stands at the site of this edge.
    is_near: bool,
    /// Clients may be sent there.
    is_up: bool,
}

/// The sources of a project as the node map has them.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    masters: Vec<Definition>,
    /// By master: it is quarantined.
    quarantined: Vec<bool>,
    parents: Vec<Ancestor>,
}

impl Layout {
    /// The sources that the edge `me` has for a project.
    pub(crate) fn of(map: &NodeMap, (of, project): (&Name, &nodemap::Project), me: &Name) -> Self {
        let states = map.masters.get(of);
        let word = |master: &Name| states.and_then(|masters| masters.get(master)).map(|m| m.state);
        let quarantined = project.masters.keys();
        let quarantined = quarantined.map(|name| word(name) == Some(MasterWord::Quarantined));
        let masters = project.masters.iter().map(|(name, master)| Definition {
            name: name.clone(),
            kind: Kind::Master,
            destination: Destination::of_url(&master.url, master.host.as_deref()),
            requests_max: master.requests_max.unwrap_or(REQUESTS_MAX_DEFAULT),
            rate: master.rate,
        });
        let pool = project.parents.as_ref().and_then(|pool| map.map.pools.get(pool));
        let pool = pool.filter(|pool| !pool.contains_key(me));
        let parents = pool.into_iter().flatten();
        let parents =
            parents.filter_map(|(name, weight)| ancestor(map, project, me, name, *weight));
        Self {
            masters: masters.collect(),
            quarantined: quarantined.collect(),
            parents: parents.collect(),
        }
    }

    fn definitions(&self) -> impl Iterator<Item = &Definition> {
        self.masters.iter().chain(self.parents.iter().map(|p| &p.definition))
    }
}

fn ancestor(
    map: &NodeMap,
    project: &nodemap::Project,
    me: &Name,
    name: &Name,
    weight: u32,
) -> Option<Ancestor> {
    let node = map.map.nodes.get(name)?;
    let addresses = node.addresses.iter().map(|ip| SocketAddr::new(*ip, node.port)).collect();
    let destination = by_node(name.as_str(), addresses, project)?;
    let states = map.states.get(name);
    let serves = |family| states.and_then(|s| s.get(family)).is_some_and(|s| s.state.serves());
    Some(Ancestor {
        definition: Definition {
            name: name.clone(),
            kind: Kind::Parent,
            destination: Some(destination),
            requests_max: u32::MAX,
            rate: None,
        },
        weight,
        is_near: map.map.nodes.get(me).is_some_and(|me| me.site == node.site),
        // One that nobody has probed yet may well be up.
        is_up: states.is_none() || serves(Family::V4) || serves(Family::V6),
    })
}

/// A node of this network that is asked for content of a project.
fn by_node(
    name: &str,
    addresses: Vec<SocketAddr>,
    project: &nodemap::Project,
) -> Option<Destination> {
    let host = project.hosts.iter().find_map(|host| match host {
        HostPattern::Exact(host) => Some(host),
        HostPattern::Any => None,
    });
    let host = host.unwrap_or(&project.name);
    Some(Destination {
        url: format!("http://{name}"),
        place: Place::Addresses(addresses),
        host: HeaderValue::from_str(host.as_str()).ok()?,
        tls: None,
        prefix: String::new(),
    })
}

/// What is asked of a parent by hashing.
#[derive(Debug)]
struct Ranked {
    seed: u64,
    weight: u32,
    is_near: bool,
    is_up: AtomicBool,
}

/// What is known of the sources' health.
#[derive(Debug)]
struct Standing {
    masters: Masters,
    /// Those that were logged as bad and not yet as good again.
    bad: BTreeSet<MasterId>,
}

/// The sources of a project.
#[derive(Debug)]
pub(crate) struct Sources {
    project: Name,
    endpoints: Vec<Arc<Endpoint>>,
    /// The process that took the stores over from this one; its place is after all others.
    successor: OnceLock<Arc<Endpoint>>,
    /// The first so many are masters.
    masters: usize,
    /// By master: it is quarantined.
    quarantined: Vec<AtomicBool>,
    parents: Vec<Ranked>,
    /// No parent could be asked, and that was logged.
    is_bypassing: AtomicBool,
    bypasses: Counter,
    /// Outlives changes of the map that leave all sources as they are.
    standing: Arc<Mutex<Standing>>,
    metrics: Metrics,
}

impl Sources {
    /// The sources of a project; what did not change is taken over from `before`.
    pub(crate) fn new(
        project: &Name,
        layout: &Layout,
        before: Option<&Self>,
        metrics: &Metrics,
    ) -> Self {
        let endpoints: Vec<_> = layout
            .definitions()
            .map(|definition| {
                let known = before.iter().flat_map(|b| &b.endpoints);
                let kept = known.into_iter().find(|e| e.definition == *definition);
                kept.map_or_else(|| Endpoint::new(project, definition.clone(), metrics), Arc::clone)
            })
            .collect();
        let ranked = layout.parents.iter().map(|p| Ranked {
            seed: seed_of(p.definition.name.as_str()),
            weight: p.weight,
            is_near: p.is_near,
            is_up: AtomicBool::new(p.is_up),
        });
        let made = || Standing { masters: Masters::new(endpoints.len()), bad: BTreeSet::new() };
        let same = before.filter(|b| b.has(layout));
        let sources = Self {
            project: project.clone(),
            masters: layout.masters.len(),
            quarantined: layout.quarantined.iter().map(|_| AtomicBool::new(false)).collect(),
            parents: ranked.collect(),
            is_bypassing: AtomicBool::new(false),
            bypasses: metrics.counter(&edge::PARENT_BYPASSES, &[project.as_str()]),
            standing: same
                .map_or_else(|| Arc::new(Mutex::new(made())), |b| Arc::clone(&b.standing)),
            metrics: metrics.clone(),
            successor: OnceLock::new(),
            endpoints,
        };
        sources.handle_states(layout);
        sources
    }

    fn has(&self, layout: &Layout) -> bool {
        self.endpoints.iter().map(|e| &e.definition).eq(layout.definitions())
    }

    /// Whether they are those of a layout, whatever the states of parents.
    pub(crate) fn is_of(&self, layout: &Layout) -> bool {
        let here = self.parents.iter().map(|p| (p.weight, p.is_near));
        self.has(layout) && here.eq(layout.parents.iter().map(|p| (p.weight, p.is_near)))
    }

    /// Takes over which parents are up, and which masters are quarantined.
    pub(crate) fn handle_states(&self, layout: &Layout) {
        for (id, (flag, now)) in self.quarantined.iter().zip(&layout.quarantined).enumerate() {
            if flag.swap(*now, Relaxed) != *now {
                let (project, master) = (self.project.as_str(), self.name_of(id));
                match now {
                    true => tracing::warn!(project, master, "a master is quarantined: not asked"),
                    false => tracing::info!(project, master, "a master is quarantined no more"),
                }
            }
        }
        for (parent, now) in self.parents.iter().zip(&layout.parents) {
            parent.is_up.store(now.is_up, Relaxed);
        }
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of them.
    pub(crate) fn get(&self, source: MasterId) -> Option<&Arc<Endpoint>> {
        self.endpoints
            .get(source)
            .or_else(|| self.successor.get().filter(|_| source == self.endpoints.len()))
    }

    /// The process that took the stores over, at this address.
    pub(crate) fn successor(
        &self,
        address: SocketAddr,
        project: &nodemap::Project,
    ) -> Option<MasterId> {
        let destination = by_node(SUCCESSOR, vec![address], project)?;
        self.successor.get_or_init(|| {
            let definition = Definition {
                name: SUCCESSOR.parse().unwrap_or_else(|_| self.project.clone()),
                kind: Kind::Successor,
                destination: Some(destination),
                requests_max: u32::MAX,
                rate: None,
            };
            Endpoint::new(&self.project, definition, &self.metrics)
        });
        Some(self.endpoints.len())
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (MasterId, &Arc<Endpoint>)> {
        self.endpoints.iter().enumerate()
    }

    /// How many are asked for one thing at most.
    pub(crate) fn attempts_max(&self) -> usize {
        self.masters.saturating_add(self.parents.len().min(PARENTS_MAX))
    }

    /// Whom to ask for an object, given those already tried; `prefer` first while it is good: whom
    /// the representation came from.
    pub(crate) fn choose(
        &self,
        now: Now,
        object: &Key,
        prefer: Option<MasterId>,
        tried: &[MasterId],
    ) -> Option<Choice> {
        let standing = self.standing();
        let answered = tried.iter().any(|t| *t >= self.masters && !standing.masters.is_bad(*t));
        let mut order = Vec::new();
        if !answered {
            order = self.parents_of(object, tried, &standing.masters);
        }
        order.extend(self.trusted());
        if let Some(at) = order.iter().position(|id| Some(*id) == prefer) {
            order.get_mut(..=at).unwrap_or_default().rotate_right(1);
        }
        let choice = standing.masters.choose(now, &order, tried, |id| self.is_full(id))?;
        drop(standing);
        self.note_way(choice.master, answered);
        Some(choice)
    }

    /// Another master for what is to be asked of `source`, when that is slow to connect. Parents
    /// have none: masters are to be spared.
    pub(crate) fn spare(&self, now: Now, source: MasterId, tried: &[MasterId]) -> Option<MasterId> {
        if source >= self.masters {
            return None;
        }
        let others = self.trusted().into_iter();
        let others: Vec<_> = others.filter(|id| *id != source && !tried.contains(id)).collect();
        let standing = self.standing();
        let choice = standing.masters.choose(now, &others, &[], |id| self.is_full(id))?;
        (!choice.skipped).then_some(choice.master)
    }

    /// The masters that may be asked, in their order.
    fn trusted(&self) -> Vec<MasterId> {
        let flags = self.quarantined.iter().enumerate();
        let trusted: Vec<_> = flags.filter(|(_, q)| !q.load(Relaxed)).map(|(id, _)| id).collect();
        if trusted.is_empty() { (0..self.masters).collect() } else { trusted }
    }

    /// Whether a source has as many requests as it may.
    fn is_full(&self, source: MasterId) -> bool {
        self.get(source).is_some_and(|e| e.turns.is_full())
    }

    /// The parents to ask for an object.
    fn parents_of(&self, object: &Key, tried: &[MasterId], known: &Masters) -> Vec<MasterId> {
        let failed = tried.iter().filter(|t| **t >= self.masters).count();
        if failed >= PARENTS_MAX {
            return Vec::new();
        }
        let id = |at: usize| at.saturating_add(self.masters);
        let good: Vec<_> = (self.parents.iter().enumerate())
            .filter(|(at, p)| {
                let id = id(*at);
                p.is_up.load(Relaxed) && !known.is_bad(id) && !tried.contains(&id)
            })
            .collect();
        let load = |at| self.endpoints.get(id(at)).map_or(0, |e| e.turns.taken());
        let candidates: Vec<_> = good
            .iter()
            .map(|(at, p)| Parent {
                seed: p.seed,
                weight: p.weight,
                is_near: p.is_near,
                load: load(*at),
            })
            .collect();
        let [a, b, c, d, e, f, g, h, ..] = object.0;
        let order = parents::order(u64::from_le_bytes([a, b, c, d, e, f, g, h]), &candidates);
        order.into_iter().filter_map(|n| good.get(n).map(|(at, _)| id(*at))).collect()
    }

    /// Logs, once, that parents are passed by, and that they are not any more. `answered`: a parent
    /// did answer, and a master is to confirm that.
    fn note_way(&self, source: MasterId, answered: bool) {
        if self.parents.is_empty() || answered {
            return;
        }
        let project = self.project.as_str();
        let is_bypass = source < self.masters;
        if self.is_bypassing.swap(is_bypass, Relaxed) != is_bypass {
            if is_bypass {
                tracing::warn!(project, "no parent can be asked: masters are");
            } else {
                tracing::info!(project, "parents are asked again");
            }
        }
    }

    /// A request goes to this source.
    pub(crate) fn handle_asked(&self, source: MasterId) {
        if !self.parents.is_empty() && source < self.masters {
            self.bypasses.inc();
        }
    }

    /// Within how many milliseconds 99 of 100 answers begin, once that is known.
    pub(crate) fn p99_first_byte_ms(&self, source: MasterId) -> Option<u64> {
        self.standing().masters.p99_first_byte_ms(source)
    }

    /// What is known of a source.
    pub(crate) fn shown(&self, source: MasterId, now: Now) -> Shown {
        self.standing().masters.show(source, now)
    }

    /// A bad one that is to be probed now.
    pub(crate) fn probe_due(&self, now: Now) -> Option<MasterId> {
        self.standing().masters.probe_due(now)
    }

    /// An answer began after so many milliseconds.
    pub(crate) fn handle_first_byte(&self, source: MasterId, ms: u64) {
        self.standing().masters.handle_first_byte(source, ms);
    }

    /// The source answered. Logged when it was bad before.
    pub(crate) fn handle_ok(&self, source: MasterId) {
        let mut standing = self.standing();
        standing.masters.handle_ok(source);
        let is_change = standing.bad.remove(&source);
        drop(standing);
        if is_change {
            let (project, master) = (self.project.as_str(), self.name_of(source));
            tracing::info!(project, master, "a master is good again");
        }
    }

    /// The source failed: counted, and perhaps asked last for a while. Logged when it was good
    /// before.
    pub(crate) fn handle_failed(&self, source: MasterId, why: Failure, now: Now) {
        let mut standing = self.standing();
        standing.masters.handle_failed(source, why, now);
        let is_change = standing.masters.is_bad(source) && standing.bad.insert(source);
        drop(standing);
        let (project, name) = (self.project.as_str(), self.name_of(source));
        let word = why.to_string();
        if is_change {
            let url = self.get(source).map_or("-", |m| m.url());
            let code = if let Failure::Status(code) = why { Some(code) } else { None };
            let is_connecting =
                matches!(why, Failure::Connect | Failure::Tls | Failure::TlsCertificate);
            let error = self.get(source).filter(|_| is_connecting).and_then(|m| m.trouble());
            tracing::warn!(
                project,
                master = name,
                url,
                why = word,
                code,
                error,
                "a master is bad: others are asked first until it answers well"
            );
        }
        self.metrics.counter(&edge::UPSTREAM_ERRORS, &[project, name, &word]).inc();
        tracing::debug!(project, master = name, kind = word, "master failed");
    }

    /// Its name for people; `-` when it does not exist.
    pub(crate) fn name_of(&self, source: MasterId) -> &str {
        self.get(source).map_or("-", |m| m.name().as_str())
    }

    /// The names of the masters that are asked and not bad.
    pub(crate) fn healthy(&self) -> Vec<&Name> {
        let standing = self.standing();
        let good = self.trusted().into_iter().filter(|id| !standing.masters.is_bad(*id));
        good.filter_map(|id| self.endpoints.get(id).map(|master| master.name())).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::{Debug, Write};

    use nodemap::MasterState;
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
        let map = nodemap::testing::node_map(1);
        let (name, me) = ("p".parse().unwrap(), "edge1".parse().unwrap());
        let layout = Layout::of(&map, (&name, &definition), &me);
        let project = Sources::new(&name, &layout, None, &Metrics::new());
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
            project.handle_ok(0);
            project.get(0).unwrap().handle_attempt(Some("m1.example has no address".to_owned()));
            project.handle_failed(0, Failure::Connect, t);
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
            [
                bad("status", " code=503"),
                good.clone(),
                bad("connect-timeout", ""),
                good,
                bad("connect", " error=\"m1.example has no address\"")
            ]
        );
    }

    /// Names and words of masters, all of which are asked until nobody is left.
    fn asked(words: [MasterWord; 3], failed: &[MasterId]) -> Vec<MasterId> {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let master = || nodemap::testing::master("http://m.example/");
        let names = ["m1", "m2", "m3"].map(name);
        let definition = nodemap::Project {
            masters: names.iter().map(|name| (name.clone(), master())).collect(),
            ..nodemap::testing::project()
        };
        let state = |state| MasterState { state, reason: "test".into(), since_ms: 0 };
        let mut map = nodemap::testing::node_map(1);
        let of = |words: [MasterWord; 3]| names.iter().cloned().zip(words.map(state)).collect();
        map.masters.insert(name("p"), of([MasterWord::Good; 3]));
        let layout = |map: &NodeMap| Layout::of(map, (&name("p"), &definition), &name("edge1"));
        let sources = Sources::new(&name("p"), &layout(&map), None, &Metrics::new());
        map.masters.insert(name("p"), of(words));
        assert!(sources.is_of(&layout(&map)), "words alone make no new sources");
        sources.handle_states(&layout(&map));
        let now = Now::default();
        for id in failed {
            (0..9).for_each(|_| sources.handle_failed(*id, Failure::Connect, now));
        }
        let mut tried = Vec::new();
        // Then it begins anew.
        while let Some(choice) = sources.choose(now, &Key([7; 16]), Some(0), &tried)
            && !tried.contains(&choice.master)
        {
            tried.push(choice.master);
        }
        let spare = sources.spare(now, 2, &[]);
        assert!(spare.is_none_or(|spare| tried.contains(&spare)));
        tried
    }

    #[test]
    fn a_quarantined_master_is_not_asked_while_another_is_there() {
        use MasterWord::{Down, Good, Quarantined};
        assert_eq!(asked([Good, Good, Good], &[]), [0, 1, 2]);
        assert_eq!(asked([Quarantined, Good, Good], &[]), [1, 2]);
        assert_eq!(
            asked([Quarantined, Good, Down], &[1]),
            [2, 1],
            "rather nothing than wrong bytes"
        );
        assert_eq!(asked([Quarantined; 3], &[]), [0, 1, 2], "nobody knows better");
    }
}
