//! What the tasks of this role share: the checker machine, what was last published, and what is
//! known of the maps folder.
//!
//! The lock is held for the time of one step of the machine, never while waiting.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use health_proto::guard::TooFar;
use health_proto::{Alarm, Checker, Overview};
use model::{Family, Name, State};
use nodemap::signature::{SecretKey, SignatureFile};
use nodemap::{Acme, AdminMap, Finding, NodeMap};
use rt::metrics::{Counter, Gauge, health as metric};
use rt::{Context, Metrics, clock};
use serde::Serialize;
use tokio::sync::{Notify, watch};

use crate::acme::Book;
use crate::history::{Rollback, RollbackError};
use crate::maps::Found;

/// Changes of an edit that are written to the log.
const CHANGES_SHOWN: usize = 20;

/// A node map as it goes out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Published {
    pub(crate) generation: u64,
    /// Whether its admin part is another than that of the map before.
    pub(crate) edited: bool,
    pub(crate) document: Bytes,
    /// What it has hosts answer authorities of certificates.
    pub(crate) acme: Option<Acme>,
    /// Of exactly these bytes; `None` without a key.
    pub(crate) signature: Option<Arc<SignatureFile>>,
}

impl Published {
    /// The document of `map`, which comes after `last`, signed if there is a key.
    pub(crate) fn of(map: &NodeMap, last: Option<&NodeMap>, key: Option<&SecretKey>) -> Self {
        let document = Bytes::from(map.to_json());
        let comment = format!("generation:{} publisher:{}", map.generation, map.publisher);
        let signature = key.map(|key| Arc::new(key.sign(&document, &comment)));
        let edited = last.is_none_or(|last| last.map != map.map);
        let acme = map.acme.clone();
        Self { generation: map.generation, edited, document, acme, signature }
    }
}

/// What is known of the maps folder.
#[derive(Clone, Debug, Serialize)]
struct MapsView {
    folder: PathBuf,
    /// Unix time in milliseconds when the maps in use were read; absent while those of the last
    /// run are used.
    #[serde(skip_serializing_if = "Option::is_none")]
    loaded_ms: Option<u64>,
    /// Somebody went back to the map of this generation, which is in use until the folder is edited.
    #[serde(skip_serializing_if = "Option::is_none")]
    rolled_back_to: Option<u64>,
    /// What is wrong in the folder now. The maps in use are the last that had no findings.
    findings: Vec<String>,
    /// An edit that moves so many that somebody has to confirm it.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<HeldView>,
}

/// An edit that waits, for people.
#[derive(Clone, Debug, Serialize)]
struct HeldView {
    /// What confirms it, and nothing else.
    id: String,
    /// What it would move of the clients of the project that it moves most of, percent.
    percent: u32,
    /// What may move without a word.
    percent_max: u32,
    /// What it changes, the first of it.
    changes: Vec<String>,
}

/// An edit that waits.
#[derive(Debug)]
struct Held {
    id: String,
    map: AdminMap,
}

impl Held {
    fn new(map: AdminMap) -> Self {
        let mut hasher = DefaultHasher::new();
        // It prints all that is in it.
        format!("{map:?}").hash(&mut hasher);
        Self { id: format!("{:016x}", hasher.finish()), map }
    }
}

/// Nothing, or something else, waits under this name.
#[derive(Debug, thiserror::Error)]
#[error("no edit {0} waits: `cacheboy map confirm` without it shows what does")]
pub(crate) struct NotHeld(String);

/// `/status` of this role.
#[derive(Serialize)]
struct StatusView<'a> {
    format: u32,
    publisher: &'a Name,
    maps: MapsView,
    /// What is ordered of an authority of certificates; absent where nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    acme: Option<serde_json::Value>,
    #[serde(flatten)]
    checker: Overview,
}

/// The folder's own maps beside those in use.
#[derive(Debug)]
pub(crate) struct Aside {
    /// What the folder said last without findings.
    folder: AdminMap,
    rollback: Option<Rollback>,
    held: Option<Held>,
}

impl Aside {
    /// At the start: the maps to use, where those of the folder, or else of the last run, are `map`.
    pub(crate) fn at_start(map: AdminMap, rollback: Option<Rollback>) -> (AdminMap, Self) {
        match rollback.filter(|rollback| rollback.aside == map || rollback.map == map) {
            Some(rollback) => {
                let (map, folder) = (rollback.map.clone(), rollback.aside.clone());
                (map, Self { folder, rollback: Some(rollback), held: None })
            }
            None => (map.clone(), Self { folder: map, rollback: None, held: None }),
        }
    }
}

/// The desk that all tasks sit around.
#[derive(Debug)]
pub(crate) struct Desk {
    publisher: Name,
    checker: Mutex<Checker>,
    maps: Mutex<MapsView>,
    aside: Mutex<Aside>,
    state_dir: PathBuf,
    /// What is known of orders of certificates, where they are made.
    pub(crate) orders: OnceLock<Arc<Book>>,
    /// The checker was told something: the driver must ask it what to do.
    pub(crate) told: Notify,
    published: watch::Sender<Published>,
    metrics: Metrics,
    generation: Gauge,
    publications: Counter,
}

impl Desk {
    pub(crate) fn new(
        checker: Checker,
        first: Published,
        folder: &Path,
        findings: &[Finding],
        aside: Aside,
        context: &Context,
    ) -> Self {
        let maps = MapsView {
            folder: folder.to_owned(),
            loaded_ms: None,
            rolled_back_to: aside.rollback.as_ref().map(|rollback| rollback.generation),
            findings: Vec::new(),
            held: None,
        };
        let desk = Self {
            publisher: context.name.clone(),
            checker: Mutex::new(checker),
            maps: Mutex::new(maps),
            aside: Mutex::new(aside),
            state_dir: context.state_dir.clone(),
            orders: OnceLock::new(),
            told: Notify::new(),
            published: watch::Sender::new(Published::default()),
            generation: context.metrics.gauge(&metric::GENERATION, &[]),
            publications: context.metrics.counter(&metric::PUBLISHED, &[]),
            metrics: context.metrics.clone(),
        };
        desk.note_maps(findings);
        if first.generation > 0 {
            desk.publish(first);
        }
        desk
    }

    /// The machine.
    pub(crate) fn checker(&self) -> MutexGuard<'_, Checker> {
        self.checker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The map that an edit is judged beside: the published one, or, of a checker that stands by, as if
    /// all of its nodes were up.
    pub(crate) fn beside(&self) -> NodeMap {
        let document = self.published.borrow().document.clone();
        NodeMap::parse(&document).unwrap_or_else(|_| {
            let map = self.checker().map().clone();
            NodeMap::new(0, self.publisher.to_string(), map, BTreeMap::new())
        })
    }

    /// What is published, now and when it changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Published> {
        self.published.subscribe()
    }

    /// Hands `published` to everyone who waits for it.
    pub(crate) fn publish(&self, published: Published) {
        self.generation.set(i64::try_from(published.generation).unwrap_or(i64::MAX));
        self.publications.inc();
        self.published.send_replace(published);
        self.count_states();
    }

    /// Takes what the maps folder has after an edit; `verdict` says whether that may be used at once.
    pub(crate) fn take_maps(&self, found: Found, verdict: Result<(), TooFar>) {
        match found {
            Ok(map) => {
                self.note_maps(&[]);
                if !self.is_edit(&map) {
                    return;
                }
                match verdict {
                    Ok(()) => self.use_maps(map),
                    Err(far) => self.hold(map, far),
                }
            }
            Err(findings) => {
                // What waited is not what the folder says any more.
                self.drop_held();
                self.note_maps(&findings);
            }
        }
    }

    /// The maps in use are these from here on.
    fn use_maps(&self, map: AdminMap) {
        let changes = nodemap::admin::diff(self.checker().map(), &map);
        tracing::info!(changes = changes.len(), "maps read: {}", in_words(&changes));
        self.drop_held();
        self.checker().handle_map(clock::now(), map);
        self.told.notify_one();
    }

    /// An edit waits until somebody confirms it, or it is edited again.
    pub(crate) fn hold(&self, map: AdminMap, far: TooFar) {
        let changes = nodemap::admin::diff(self.checker().map(), &map);
        let TooFar { percent, percent_max } = far;
        let held = Held::new(map);
        tracing::error!(
            id = held.id,
            percent,
            percent_max,
            "an edit of the maps moves too many at once, those before stay until it is confirmed \
             (cacheboy map confirm): {}",
            in_words(&changes)
        );
        let shown = changes.into_iter().take(CHANGES_SHOWN).collect();
        let view = HeldView { id: held.id.clone(), percent, percent_max, changes: shown };
        self.aside.lock().unwrap_or_else(PoisonError::into_inner).held = Some(held);
        self.maps.lock().unwrap_or_else(PoisonError::into_inner).held = Some(view);
        self.metrics.gauge(&metric::MAPS_HELD, &[]).set(percent.into());
        self.checker().raise(clock::now(), Alarm::MoveRefused { percent, percent_max });
        self.told.notify_one();
    }

    /// Nothing waits any more.
    fn drop_held(&self) {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner).held = None;
        self.maps.lock().unwrap_or_else(PoisonError::into_inner).held = None;
        self.metrics.gauge(&metric::MAPS_HELD, &[]).set(0);
        let refused = Alarm::MoveRefused { percent: 0, percent_max: 0 };
        self.checker().lower(clock::now(), refused.word(), &refused.about());
    }

    /// Uses the edit that waits under this name.
    pub(crate) fn confirm(&self, id: &str) -> Result<usize, NotHeld> {
        let taken = {
            let mut aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
            aside.held.take_if(|held| held.id == id)
        };
        let Some(Held { map, .. }) = taken else { return Err(NotHeld(id.to_owned())) };
        let changes = nodemap::admin::diff(self.checker().map(), &map).len();
        tracing::warn!(id, changes, "an edit that moves many was confirmed");
        self.use_maps(map);
        Ok(changes)
    }

    /// Notes what the folder says. Tells whether that is to be used: not while somebody has gone back
    /// and it says what it said then.
    fn is_edit(&self, map: &AdminMap) -> bool {
        let mut aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
        aside.folder.clone_from(map);
        if aside.rollback.as_ref().is_some_and(|rollback| rollback.aside == *map) {
            return false;
        }
        if aside.rollback.take().is_some() {
            Rollback::end(&self.state_dir);
            tracing::info!("the maps were edited: they hold again, and not those of the rollback");
            self.maps.lock().unwrap_or_else(PoisonError::into_inner).rolled_back_to = None;
        }
        true
    }

    /// Publishes the admin part of the map of `generation` anew, until the folder is edited. Gives how
    /// many changes that is. Waits for the disk.
    pub(crate) fn roll_back(&self, generation: u64) -> Result<usize, RollbackError> {
        let mut aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
        let rollback = Rollback::to(&self.state_dir, generation, aside.folder.clone())?;
        let changes = nodemap::admin::diff(self.checker().map(), &rollback.map);
        tracing::warn!(generation, changes = changes.len(), "rolled back: {}", in_words(&changes));
        self.checker().handle_map(clock::now(), rollback.map.clone());
        aside.rollback = Some(rollback);
        drop(aside);
        self.drop_held();
        self.maps.lock().unwrap_or_else(PoisonError::into_inner).rolled_back_to = Some(generation);
        self.told.notify_one();
        Ok(changes.len())
    }

    /// Notes how reading the folder went: without findings, its maps are in use.
    fn note_maps(&self, findings: &[Finding]) {
        let mut view = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        view.findings = findings.iter().map(Finding::to_string).collect();
        if findings.is_empty() {
            view.loaded_ms = Some(clock::now().wall_ms);
        } else {
            let text = crate::lines(findings);
            tracing::error!(findings = findings.len(), "maps refused, those before stay:{text}");
        }
        let gauge = |metric, value| self.metrics.gauge(metric, &[]).set(value);
        let loaded_s = view.loaded_ms.unwrap_or_default() / 1000;
        gauge(&metric::MAPS_LOADED, i64::try_from(loaded_s).unwrap_or(i64::MAX));
        gauge(&metric::MAPS_FINDINGS, i64::try_from(findings.len()).unwrap_or(i64::MAX));
    }

    /// `/status`.
    pub(crate) fn show(&self) -> serde_json::Value {
        let view = StatusView {
            format: 1,
            publisher: &self.publisher,
            maps: self.maps.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            acme: self.orders.get().map(|book| book.show()),
            checker: self.checker().overview(clock::now()),
        };
        // All keys are strings, so this cannot fail.
        serde_json::to_value(view).unwrap_or_default()
    }

    /// Counts the nodes by state for the metrics.
    fn count_states(&self) {
        let overview = self.checker().overview(clock::now());
        for family in Family::ALL {
            for state in [State::Up, State::Down, State::Unknown, State::Drained] {
                let of_family = overview.nodes.values().filter_map(|views| views.get(&family));
                let count = of_family.filter(|view| view.state == state).count();
                let labels = [&*family.to_string(), &*state.to_string()];
                let gauge = self.metrics.gauge(&metric::NODES, &labels);
                gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
    }
}

/// The changes of an edit for one line of the log.
fn in_words(changes: &[String]) -> String {
    if changes.is_empty() {
        return "what they say is the same as before".to_owned();
    }
    let shown: Vec<&str> = changes.iter().take(CHANGES_SHOWN).map(String::as_str).collect();
    match changes.len().saturating_sub(shown.len()) {
        0 => shown.join("; "),
        more => format!("{}; and {more} more", shown.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_reads_as_a_sentence_whatever_it_changes() {
        let changes: Vec<String> = (0..23).map(|i| format!("site.s{i} added")).collect();
        assert_eq!(in_words(&[]), "what they say is the same as before");
        assert_eq!(in_words(&changes[..2]), "site.s0 added; site.s1 added");
        let long = in_words(&changes);
        assert!(long.ends_with("site.s19 added; and 3 more"), "{long}");
    }
}
