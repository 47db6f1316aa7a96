//! Whether what masters send is what they announce.
//!
//! Two places: each block before it is stored ([`block`]: the seam for whatever is known of single
//! blocks), and the whole once it is held, against the `Repr-Digest` of its master (RFC 9530
//! section 3), read back from the store off the workers and at a bounded pace. A representation that
//! is not what was announced is taken out of the store, open transfers of it are broken off, and
//! its masters are asked last for this object.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use fill::{Failure, MasterId};
use http_cache::{StoredHead, repr_sha256};
use mirror::digest::{ContentDigest, ContentHasher};
use rt::clock;
use store::{Extent, Representation};
use tokio::sync::Semaphore;

use crate::filling::Filling;
use crate::state::{Edge, Object};

/// Representations that wait to be compared, at most: each keeps its bytes on the disk.
const WAITING_MAX: usize = 1000;
/// Bytes read at a time, and the pause after them.
const READ_BYTES: u64 = 4 << 20;
const READ_PAUSE: Duration = Duration::from_millis(10);

/// The comparisons of an edge, one after the other.
#[derive(Debug)]
pub(crate) struct Checks {
    waiting: Arc<Semaphore>,
    turn: Semaphore,
    /// Representations found wrong that somebody still has.
    wrong: Mutex<Vec<Weak<Representation>>>,
    /// Their number: mostly 0, and then nobody takes the lock.
    wrong_count: AtomicUsize,
}

impl Default for Checks {
    fn default() -> Self {
        Self {
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
            turn: Semaphore::new(1),
            wrong: Mutex::default(),
            wrong_count: AtomicUsize::new(0),
        }
    }
}

impl Checks {
    /// Whether transfers of it are to be broken off.
    pub(crate) fn is_wrong(&self, rep: &Arc<Representation>) -> bool {
        self.wrong_count.load(Relaxed) > 0
            && self
                .wrong
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .iter()
                .any(|wrong| wrong.as_ptr() == Arc::as_ptr(rep))
    }

    fn note_wrong(&self, rep: &Arc<Representation>) {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        wrong.retain(|known| known.strong_count() > 0);
        wrong.push(Arc::downgrade(rep));
        self.wrong_count.store(wrong.len(), Relaxed);
    }
}

/// The SHA-256 that its master announced for the whole, as our own masters write it.
fn announced(head: &StoredHead) -> Option<String> {
    repr_sha256(&head.headers).map(|digest| format!("sha-256=:{digest}:"))
}

/// Whether these bytes may be stored as a block of the object. Takes time: off the workers.
pub(crate) fn block(object: &Object, block: u32, bytes: &[u8]) -> Result<(), Failure> {
    if u32::try_from(bytes.len()) != Ok(object.rep.block_len(block)) {
        return Err(Failure::Protocol);
    }
    match announced(&object.head) {
        Some(digest)
            if object.rep.blocks() == 1 && ContentDigest::of(bytes).repr_digest() != digest =>
        {
            Err(Failure::DigestMismatch)
        }
        _ => Ok(()),
    }
}

/// Compares the whole behind, if all of it is held now. What is one block was compared before.
pub(crate) fn begin(filling: &Arc<Filling>) {
    let object = &filling.object;
    if object.rep.blocks() < 2 || announced(&object.head).is_none() || !object.rep.is_complete() {
        return;
    }
    let (edge, object) = (Arc::clone(&filling.edge), Arc::clone(object));
    let [good, mismatch, unread, skipped] = edge.counters.digests.clone();
    let Ok(waiting) = Arc::clone(&edge.checks.waiting).try_acquire_owned() else {
        skipped.inc();
        return;
    };
    let from = filling.brought_by();
    tokio::spawn(async move {
        let Ok(_turn) = edge.checks.turn.acquire().await else { return };
        match digest(&object).await {
            None => unread.inc(),
            Some(digest) if announced(&object.head) == Some(digest.repr_digest()) => {
                good.inc();
            }
            Some(_) => {
                mismatch.inc();
                refute(&edge, &object, &from);
            }
        }
        drop(waiting);
    });
}

/// The object is not what its masters announced.
pub(crate) fn refute(edge: &Edge, object: &Object, from: &[MasterId]) {
    let project = &object.project;
    edge.checks.note_wrong(&object.rep);
    edge.discard(object);
    edge.memos.update(&object.key, |memo| memo.distrust(from));
    let (now, why) = (clock::now(), Failure::DigestMismatch);
    for master in from {
        project.sources.handle_failed(*master, why, now);
    }
    if let Some(more) = edge.complaints.due(&project.name, &why.to_string(), now) {
        let masters: Vec<_> = from.iter().map(|m| project.sources.name_of(*m)).collect();
        let (project, target) = (project.name.as_str(), object.target.as_str());
        let masters = masters.join(" ");
        tracing::warn!(
            project,
            target,
            masters,
            more,
            "digest-mismatch: content is not what its master announced, and is not kept"
        );
    }
}

/// The digest of all bytes as the store has them; `None` when they cannot be read.
async fn digest(object: &Arc<Object>) -> Option<ContentDigest> {
    let (mut hasher, mut at) = (ContentHasher::default(), 0);
    while at < object.rep.length() {
        let extent = object.rep.extent(at, READ_BYTES)?;
        at = at.saturating_add(extent.len);
        hasher = tokio::task::spawn_blocking(move || read(hasher, &extent)).await.ok()??;
        tokio::time::sleep(READ_PAUSE).await;
    }
    Some(hasher.finish().0)
}

fn read(mut hasher: ContentHasher, extent: &Extent) -> Option<ContentHasher> {
    let mut bytes = vec![0; usize::try_from(extent.len).ok()?];
    extent.file.read_exact_at(&mut bytes, extent.offset).ok()?;
    if !extent.representation.still_holds(extent.at, extent.len) {
        return None;
    }
    hasher.update(&bytes);
    Some(hasher)
}
