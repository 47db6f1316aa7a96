//! Key -> visible representation, and the order of eviction: both in one structure, so that they
//! cannot disagree.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use crate::names::{Key, Place};
use crate::representation::Representation;
use crate::sieve::{Fate, Sieve};

#[derive(Default)]
pub(crate) struct Index {
    slots: HashMap<Key, u32, BuildHasherDefault<KeyHasher>>,
    sieve: Sieve<Arc<Representation>>,
}

impl Index {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Representation>> {
        self.sieve.get(*self.slots.get(key)?)
    }

    /// Makes `rep` the visible one of its key, the newest of all; the former one is returned.
    pub(crate) fn insert(&mut self, rep: Arc<Representation>) -> Option<Arc<Representation>> {
        let key = *rep.key();
        let former = self.remove(&key);
        if let Some(slot) = self.sieve.insert(rep) {
            self.slots.insert(key, slot);
        }
        former
    }

    pub(crate) fn remove(&mut self, key: &Key) -> Option<Arc<Representation>> {
        let slot = self.slots.remove(key)?;
        self.sieve.remove(slot)
    }

    /// Removes exactly this representation; `None` when it is not the visible one.
    pub(crate) fn remove_place(&mut self, place: Place) -> Option<Arc<Representation>> {
        self.get(&place.key).filter(|rep| rep.place() == place)?;
        self.remove(&place.key)
    }

    /// Takes out the next representation to evict. One that is referenced anywhere else is
    /// pinned: whoever holds the only lock on the index holds the only way to a new reference.
    pub(crate) fn take_victim(&mut self) -> Option<Arc<Representation>> {
        let slot = self.sieve.victim(|rep| {
            if Arc::strong_count(rep) > 1 {
                Fate::Pinned
            } else if rep.take_visited() {
                Fate::Spare
            } else {
                Fate::Evict
            }
        })?;
        let rep = self.sieve.remove(slot)?;
        self.slots.remove(rep.key());
        Some(rep)
    }

    /// Forgets everything: the way to let go of representations when the store is dropped.
    pub(crate) fn clear(&mut self) -> Vec<Arc<Representation>> {
        self.slots.clear();
        self.sieve.drain()
    }
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
