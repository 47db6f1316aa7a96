//! Representations in memory: the one way to them, and the bound of what they take.
//!
//! There are never two of one place: whoever needs one that is not here loads it and puts it here
//! before anybody else can (`load`); one leaves only while nobody refers to it and all it knows is on
//! the disk. When the memory is used up, those go that were not asked for since the last walk.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::names::{Key, Place};
use crate::representation::Representation;

/// Parts with a lock each.
const SHARDS: usize = 32;
/// A walk frees this part more than was too much.
const SLACK: u64 = 32;

type Shard = HashMap<Key, Arc<Representation>, BuildHasherDefault<KeyHasher>>;

/// The representations in memory.
pub(crate) struct Live {
    shards: Box<[RwLock<Shard>]>,
    bytes: AtomicU64,
    bytes_max: u64,
    /// The shard that the next walk begins with.
    hand: AtomicUsize,
}

/// What a walk has done.
#[derive(Default)]
pub(crate) struct Trimmed {
    /// Out: whether it was used since the hand of eviction came by, and whether all it holds was
    /// verified.
    pub(crate) left: Vec<(Place, bool, bool)>,
    /// Nobody wants them, and they cannot be loaded again.
    pub(crate) lost: Vec<Place>,
}

/// What became of one that was to be taken out.
pub(crate) enum Taken {
    /// It is not in memory.
    Absent,
    /// Somebody uses it: it stays.
    InUse,
    /// Out, and in the caller's hand alone.
    Idle(Arc<Representation>),
}

impl Live {
    pub(crate) fn new(bytes_max: u64) -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
        Self { shards, bytes: AtomicU64::new(0), bytes_max, hand: AtomicUsize::new(0) }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.bytes() > self.bytes_max
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Representation>> {
        self.read(key).get(key).cloned()
    }

    pub(crate) fn of(&self, place: Place) -> Option<Arc<Representation>> {
        self.get(&place.key).filter(|rep| rep.place() == place)
    }

    /// Looks at one without being a user of it, and keeps others from becoming one meanwhile.
    /// `is_used`: whether somebody refers to it.
    pub(crate) fn inspect<T>(
        &self,
        place: Place,
        look: impl FnOnce(&Arc<Representation>, bool) -> T,
    ) -> Option<T> {
        let shard = self.write(&place.key);
        let rep = shard.get(&place.key).filter(|rep| rep.place() == place)?;
        Some(look(rep, Arc::strong_count(rep) > 1))
    }

    /// Puts one in; a former one of its key comes out.
    pub(crate) fn insert(&self, rep: &Arc<Representation>) -> Option<Arc<Representation>> {
        let former = self.write(rep.key()).insert(*rep.key(), Arc::clone(rep));
        self.bytes.fetch_add(rep.count_in(), Relaxed);
        self.count_out(former)
    }

    /// Takes exactly this one out, used or not.
    pub(crate) fn remove(&self, place: Place) -> Option<Arc<Representation>> {
        let mut shard = self.write(&place.key);
        shard.get(&place.key).filter(|rep| rep.place() == place)?;
        let rep = shard.remove(&place.key);
        drop(shard);
        self.count_out(rep)
    }

    /// Takes exactly this one out if nobody uses it.
    pub(crate) fn take_idle(&self, place: Place) -> Taken {
        let mut shard = self.write(&place.key);
        match shard.get(&place.key).filter(|rep| rep.place() == place) {
            None => Taken::Absent,
            Some(rep) if Arc::strong_count(rep) > 1 => Taken::InUse,
            Some(_) => {
                let rep = shard.remove(&place.key);
                drop(shard);
                self.count_out(rep).map_or(Taken::Absent, Taken::Idle)
            }
        }
    }

    /// Whether there is memory for so many bytes more.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.bytes().saturating_add(bytes) <= self.bytes_max
    }

    /// Counts more memory for one; `false`: it is not here any more, or there is no memory left.
    pub(crate) fn grow(&self, rep: &Representation, bytes: u64) -> bool {
        if !self.has_room(bytes) {
            return false;
        }
        let shard = self.read(rep.key());
        let is_here = is_in(&shard, rep);
        if is_here {
            rep.count_more(bytes);
            self.bytes.fetch_add(bytes, Relaxed);
        }
        is_here
    }

    /// Takes back what [`Self::grow`] counted for one.
    pub(crate) fn shrink(&self, rep: &Representation, bytes: u64) {
        let shard = self.read(rep.key());
        // One that has left was counted out with all it had.
        if is_in(&shard, rep) {
            rep.count_less(bytes);
            self.bytes.fetch_sub(bytes, Relaxed);
        }
    }

    /// Lets go of what was not asked for lately until the memory suffices. What cannot be loaded
    /// again stays, and is named.
    pub(crate) fn trim(&self) -> Trimmed {
        let mut trimmed = Trimmed::default();
        if !self.is_over() {
            return trimmed;
        }
        let goal = self.bytes_max.saturating_sub(self.bytes_max.div_euclid(SLACK));
        // The first round may find nothing but what was asked for.
        for _ in 0..SHARDS.saturating_mul(2) {
            let hand = self.hand.fetch_add(1, Relaxed).checked_rem(SHARDS).unwrap_or(0);
            let Some(shard) = self.shards.get(hand) else { break };
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            shard.retain(|_, rep| {
                let stays = self.bytes() <= goal
                    || Arc::strong_count(rep) > 1
                    || rep.is_dirty()
                    || rep.take_touched();
                if !stays {
                    self.bytes.fetch_sub(rep.count_none(), Relaxed);
                    let place = rep.place();
                    if rep.can_be_loaded() {
                        trimmed.left.push((place, rep.is_used(), rep.is_verified()));
                        return false;
                    }
                    trimmed.lost.push(place);
                }
                true
            });
            if self.bytes() <= goal {
                break;
            }
        }
        trimmed
    }

    /// Forgets everything: the way to let go of representations when the store is dropped.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            drop(std::mem::take(&mut *shard.write().unwrap_or_else(PoisonError::into_inner)));
        }
    }

    fn count_out(&self, rep: Option<Arc<Representation>>) -> Option<Arc<Representation>> {
        if let Some(rep) = &rep {
            self.bytes.fetch_sub(rep.count_none(), Relaxed);
        }
        rep
    }

    fn read(&self, key: &Key) -> RwLockReadGuard<'_, Shard> {
        self.shard(key).read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, key: &Key) -> RwLockWriteGuard<'_, Shard> {
        self.shard(key).write().unwrap_or_else(PoisonError::into_inner)
    }

    #[allow(clippy::indexing_slicing)] // the remainder is below the length
    fn shard(&self, key: &Key) -> &RwLock<Shard> {
        let Key([.., last]) = *key;
        &self.shards[usize::from(last) % SHARDS]
    }
}

/// Whether exactly this one is there.
fn is_in(shard: &Shard, rep: &Representation) -> bool {
    shard.get(rep.key()).is_some_and(|found| std::ptr::eq(Arc::as_ptr(found), rep))
}

/// Takes the one number that a [`Key`] writes.
#[derive(Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}
