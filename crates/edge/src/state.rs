//! What all requests of an edge share, and the object that a request is about.

use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderValue};
use http_cache::vary::{favourite_language, is_in_language};
use http_cache::{Identity, ReadyHead, Selecting, StoredHead, Target, range_headers};
use model::Name;
use rt::steering::Watched;
use rt::{Shutdown, clock};
use store::{Held, Key, Representation, Store, WriteError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use crate::account::Account;
use crate::audience::Audience;
use crate::bill::Bill;
use crate::caps::Caps;
use crate::check::Checks;
use crate::complaints::Complaints;
use crate::counters::Counters;
use crate::drain::Drain;
use crate::filling::Fillings;
use crate::flight::Flights;
use crate::group::Groups;
use crate::guard::Guard;
use crate::hand_over::Successor;
use crate::memo::{Memo, Memos};
use crate::project::{Project, Projects};
use crate::purge::{Purges, Verdict};
use crate::reading::Reading;
use crate::stores::Stores;
use crate::upstream::Upstream;

/// How often one request has something loaded that then has gone again.
const LOADS_MAX: usize = 4;

/// The edge.
#[derive(Debug)]
pub(crate) struct Edge {
    pub(crate) me: Identity,
    /// Of its node.
    pub(crate) name: Name,
    pub(crate) projects: ArcSwap<Projects>,
    /// Where clients belong.
    pub(crate) steering: Watched,
    pub(crate) stores: Stores,
    pub(crate) successor: Successor,
    pub(crate) upstream: Upstream,
    pub(crate) memos: Memos,
    pub(crate) purges: Purges,
    pub(crate) drain: Drain,
    pub(crate) flights: Flights,
    /// Held by who writes the record of a target's variants.
    pub(crate) records: Mutex<()>,
    pub(crate) fillings: Fillings,
    pub(crate) groups: Groups,
    /// One permit for each block buffer: what bounds their memory.
    pub(crate) buffers: Arc<Semaphore>,
    /// Of these, at most so many for one project while there are others.
    pub(crate) buffers_share: usize,
    pub(crate) block_bytes: u32,
    pub(crate) counters: Counters,
    pub(crate) account: Arc<Account>,
    pub(crate) complaints: Complaints,
    /// What one client may take.
    pub(crate) guard: Guard,
    pub(crate) audience: Audience,
    pub(crate) caps: Caps,
    pub(crate) bill: Bill,
    pub(crate) checks: Checks,
    /// What clients over HTTPS are told of HTTP/3, where it is spoken.
    pub(crate) http3_offer: Option<HeaderValue>,
    pub(crate) shutdown: Shutdown,
}

/// What there is for one request.
#[derive(Debug)]
pub(crate) struct Found {
    /// Where its answer stands, or would.
    pub(crate) key: Key,
    /// Those of its fields that masters are told.
    pub(crate) selecting: Selecting,
    pub(crate) object: Option<Object>,
}

/// Something of a key is held and has to be loaded first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnDisk(Key);

/// The right to one block buffer.
#[derive(Debug)]
pub(crate) struct BufferPermit {
    _of_project: Option<OwnedSemaphorePermit>,
    _of_all: OwnedSemaphorePermit,
}

/// A representation with all that is needed to serve and fill it.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) project: Arc<Project>,
    pub(crate) target: Target,
    /// Where it stands.
    pub(crate) key: Key,
    /// Fields of its clients that fills carry: those that chose it, and those the project names.
    pub(crate) selecting: Selecting,
    pub(crate) rep: Arc<Representation>,
    pub(crate) head: Arc<ReadyHead>,
}

impl Edge {
    /// Waits for a block buffer. A project whose masters are slow waits for its own, so that others
    /// always have some.
    pub(crate) async fn buffer(&self, project: &Project) -> Option<BufferPermit> {
        let is_alone = self.projects.load().by_name.len() <= 1;
        let of_project = if is_alone {
            None
        } else {
            Some(Arc::clone(&project.buffers).acquire_owned().await.ok()?)
        };
        let of_all = Arc::clone(&self.buffers).acquire_owned().await.ok()?;
        Some(BufferPermit { _of_project: of_project, _of_all: of_all })
    }

    /// A block buffer, if there is one now.
    pub(crate) fn try_buffer(&self, project: &Project) -> Option<BufferPermit> {
        let of_project = Arc::clone(&project.buffers).try_acquire_owned().ok()?;
        let of_all = Arc::clone(&self.buffers).try_acquire_owned().ok()?;
        Some(BufferPermit { _of_project: Some(of_project), _of_all: of_all })
    }

    /// A block buffer for completion, when there are plenty: it is the first to go without.
    pub(crate) fn spare_buffer(&self, project: &Project) -> Option<BufferPermit> {
        let enough = |free: &Arc<Semaphore>, most: usize| {
            let plenty = free.available_permits() > most.div_euclid(2);
            plenty.then(|| Arc::clone(free).try_acquire_owned().ok())?
        };
        let is_alone = self.projects.load().by_name.len() <= 1;
        let of_project =
            if is_alone { None } else { Some(enough(&project.buffers, self.buffers_share)?) };
        let of_all = enough(&self.buffers, self.buffers_share)?;
        Some(BufferPermit { _of_project: of_project, _of_all: of_all })
    }

    /// Something of a project could not be stored: that costs hits, so operators should know.
    pub(crate) fn note_unstored(&self, project: &Project, target: &Target, error: &WriteError) {
        if matches!(error, WriteError::HandedOver) {
            return;
        }
        if let Some(more) = self.complaints.due(&project.name, "disk", clock::now()) {
            let (error, target): (&dyn std::error::Error, _) = (error, target.as_str());
            let project = project.name.as_str();
            tracing::warn!(
                project,
                target,
                error,
                more,
                "not stored; clients get it past the store"
            );
        }
    }

    /// What purges say of an object.
    pub(crate) fn verdict(&self, object: &Object) -> Verdict {
        let (project, target) = (&object.project.name, object.target.as_str());
        self.purges.verdict(project, target, object.head.request_ms)
    }

    /// What is known of a key beside what is held.
    pub(crate) fn memo(&self, project: &Project, target: &Target, key: &Key) -> Memo {
        let memo = self.memos.get(key);
        if !self.purges.voids_note(&project.name, target.as_str(), memo.born()) {
            return memo;
        }
        self.memos.clear(key);
        Memo::default()
    }

    /// Takes an object out, off the workers, and counts it.
    fn drop_purged(&self, object: Object) {
        let Some(store) = self.store(&object.key) else { return };
        let dropped = self.purges.dropped();
        drop(tokio::task::spawn_blocking(move || {
            if store.discard(&object.rep) {
                dropped.inc();
            }
        }));
    }

    /// What is held for a request with these fields, read from the disk off the workers if need be. A
    /// miss is also what was purged, what cannot be read, and what can never be finished: parts of it
    /// cannot be joined to further ones, and the answer that filled it has ended.
    pub(crate) async fn find(
        &self,
        project: &Arc<Project>,
        target: &Target,
        base: Key,
        client: &HeaderMap,
    ) -> Found {
        let (mut unreadable, mut loads) = (Vec::new(), 0usize);
        loop {
            let key = match self.find_among(&unreadable, project, target, base, client) {
                Ok(found) => return found,
                Err(OnDisk(key)) => key,
            };
            let store = self.store(&key);
            let load = move || store.is_some_and(|store| store.load(&key).is_some());
            let loaded = tokio::task::spawn_blocking(load).await;
            loads = loads.saturating_add(1);
            // One that was read and has gone again, time after time, is as good as unread.
            if !loaded.unwrap_or(false) || loads >= LOADS_MAX {
                unreadable.push(key);
            }
        }
    }

    /// The same for who must not wait: as far as it is in memory.
    pub(crate) fn find_now(
        &self,
        project: &Arc<Project>,
        target: &Target,
        base: Key,
        client: &HeaderMap,
    ) -> Result<Found, OnDisk> {
        self.find_among(&[], project, target, base, client)
    }

    fn find_among(
        &self,
        unreadable: &[Key],
        project: &Arc<Project>,
        target: &Target,
        base: Key,
        client: &HeaderMap,
    ) -> Result<Found, OnDisk> {
        let get = |key: Key| match self.stores.look_up(&key) {
            Held::Ready(rep) => Ok(Some(rep)),
            Held::OnDisk if !unreadable.contains(&key) => Err(OnDisk(key)),
            Held::OnDisk | Held::Absent => Ok(None),
        };
        let mut rep = get(base)?;
        let mut reading = rep.as_deref().map(Reading::of);
        let (mut key, carried) = (base, &project.request_fields);
        let selecting = match reading.as_deref().and_then(Reading::record) {
            None => Selecting::of(carried, client),
            Some(record) => {
                key = Key(record.key(&base.0, client));
                rep = get(key)?;
                if rep.is_none()
                    && let Some(language) = favourite_language(client)
                {
                    for other in record.by_language() {
                        let found = get(Key(*other))?;
                        if found.as_deref().is_some_and(|rep| is_spoken(rep, &language)) {
                            (key, rep) = (Key(*other), found);
                            break;
                        }
                    }
                }
                let selecting = Selecting::of(carried.iter().chain(record.names()), client);
                reading = rep.as_deref().map(Reading::of);
                selecting
            }
        };
        let right = rep.filter(|rep| !self.checks.is_wrong(rep));
        let object = right.zip(reading).and_then(|(rep, reading)| {
            let head = Arc::clone(reading.head()?);
            let (project, target) = (Arc::clone(project), target.clone());
            let selecting = selecting.clone();
            let object = Object { project, target, key, selecting, rep, head };
            if self.verdict(&object) == Verdict::Gone {
                self.drop_purged(object);
                return None;
            }
            let usable = object.rep.is_complete()
                || object.conditions().is_some()
                || self.fillings.is_filling(&object);
            usable.then_some(object)
        });
        Ok(Found { key, selecting, object })
    }

    /// The disk of a key; `None` when all have failed.
    pub(crate) fn store(&self, key: &Key) -> Option<Arc<Store>> {
        self.stores.of(key)
    }

    /// Does work that takes the time of a key's disk, off the workers. `None`: it ended by a defect, or
    /// the process ends.
    pub(crate) async fn at_disk<T: Send + 'static>(
        &self,
        key: &Key,
        is_small: bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        match self.stores.lane(key).filter(|_| is_small) {
            Some(lane) => lane.run(work).await,
            None => tokio::task::spawn_blocking(work).await.ok(),
        }
    }

    /// What is held of a target, or comes in for it now, is not used for requests from here on. With
    /// the record of its variants these go too.
    pub(crate) async fn invalidate(&self, base: &Key) {
        self.flights.doubt(base);
        let (store, key) = (self.store(base), *base);
        let remove = move || store.is_some_and(|store| store.remove(&key));
        // Should the task not run, the process ends.
        let _ = tokio::task::spawn_blocking(remove).await;
        self.memos.clear(base);
    }

    /// Makes a representation invisible, off the workers.
    pub(crate) fn discard(&self, object: &Object) {
        drop(self.discarding(&object.key, Arc::clone(&object.rep)));
    }

    /// The same, to be waited for; whether it was visible.
    pub(crate) fn discarding(&self, key: &Key, rep: Arc<Representation>) -> JoinHandle<bool> {
        let store = self.store(key);
        tokio::task::spawn_blocking(move || store.is_some_and(|store| store.discard(&rep)))
    }
}

fn is_spoken(rep: &Representation, language: &[u8]) -> bool {
    Reading::of(rep).head().is_some_and(|head| is_in_language(&head.headers, language))
}

impl Object {
    /// Preconditions of requests for further parts; `None`: parts of two answers must not be
    /// joined, so that only one answer can fill it.
    pub(crate) fn conditions(&self) -> Option<HeaderMap> {
        range_headers(&self.head).filter(|_| self.head.has_ranges())
    }

    /// Whether it has the same head as another.
    pub(crate) fn has_head_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.head, &other.head) || **self.head == **other.head
    }

    /// The same representation under a newer head.
    pub(crate) fn with_head(&self, head: StoredHead) -> Self {
        let head = Arc::new(ReadyHead::new(head, self.rep.length()));
        Self {
            project: Arc::clone(&self.project),
            target: self.target.clone(),
            key: self.key,
            selecting: self.selecting.clone(),
            rep: Arc::clone(&self.rep),
            head,
        }
    }
}
