//! Attributes, each different set of them once, with a number.

use std::hash::{Hash, Hasher};
use std::num::NonZeroU32;
use std::sync::Arc;

use hashbrown::HashTable;
use model::route::Attributes;
use siphasher::sip::SipHasher13;

/// The number of a set: 1 to 2^31 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SetId(NonZeroU32);

impl SetId {
    /// As it stands in tables.
    pub(super) fn get(self) -> u32 {
        self.0.get()
    }

    /// From a table; `None` for 0, which says that there is none.
    pub(super) fn of(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(Self)
    }

    /// Its place among all.
    pub(super) fn index(self) -> usize {
        (self.0.get() as usize).saturating_sub(1)
    }
}

#[derive(Debug, Default)]
struct Slot {
    attributes: Option<Arc<Attributes>>,
    /// How many routes carry it.
    routes: u32,
}

/// All sets.
#[derive(Debug)]
pub(super) struct Sets {
    key: [u64; 2],
    slots: Vec<Slot>,
    ids: HashTable<SetId>,
    free: Vec<SetId>,
    /// Sets that no route carried when they were put here; each may be here several times, or be
    /// carried again.
    idle: Vec<SetId>,
}

fn hash(key: [u64; 2], attributes: &Attributes) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(key[0], key[1]);
    attributes.hash(&mut hasher);
    hasher.finish()
}

impl Sets {
    pub(super) fn new(key: [u64; 2]) -> Self {
        let (slots, free, idle) = (Vec::new(), Vec::new(), Vec::new());
        Self { key, slots, ids: HashTable::new(), free, idle }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Above all places.
    pub(super) fn bound(&self) -> usize {
        self.slots.len()
    }

    /// By place.
    pub(super) fn all(&self) -> impl Iterator<Item = Option<&Attributes>> {
        self.slots.iter().map(|slot| slot.attributes.as_deref())
    }

    pub(super) fn get(&self, id: SetId) -> Option<&Arc<Attributes>> {
        self.slots.get(id.index())?.attributes.as_ref()
    }

    /// The number of these attributes. It is good until the next [`Sets::drop_idle`], unless a route
    /// holds it.
    pub(super) fn intern(&mut self, attributes: Attributes) -> SetId {
        let key = self.key;
        let hashed = hash(key, &attributes);
        let slots = &self.slots;
        let stored = |id: &SetId| slots.get(id.index()).and_then(|slot| slot.attributes.as_deref());
        if let Some(id) = self.ids.find(hashed, |id| stored(id) == Some(&attributes)) {
            return *id;
        }
        let next = u32::try_from(self.slots.len()).unwrap_or(u32::MAX).saturating_add(1);
        let id = self.free.pop().or_else(|| SetId::of(next)).unwrap_or(SetId(NonZeroU32::MIN));
        if id.index() == self.slots.len() {
            self.slots.push(Slot::default());
        }
        if let Some(slot) = self.slots.get_mut(id.index()) {
            *slot = Slot { attributes: Some(Arc::new(attributes)), routes: 0 };
        }
        let slots = &self.slots;
        let stored = |id: &SetId| slots.get(id.index()).and_then(|slot| slot.attributes.as_deref());
        self.ids.insert_unique(hashed, id, |id| stored(id).map_or(0, |set| hash(key, set)));
        self.idle.push(id);
        id
    }

    /// One more route carries it.
    pub(super) fn hold(&mut self, id: SetId) {
        if let Some(slot) = self.slots.get_mut(id.index()) {
            slot.routes = slot.routes.saturating_add(1);
        }
    }

    /// One route less carries it.
    pub(super) fn let_go(&mut self, id: SetId) {
        let Some(slot) = self.slots.get_mut(id.index()) else { return };
        slot.routes = slot.routes.saturating_sub(1);
        if slot.routes == 0 {
            self.idle.push(id);
        }
    }

    /// Forgets the sets that no route carries.
    pub(super) fn drop_idle(&mut self) {
        for id in std::mem::take(&mut self.idle) {
            let Some(slot) = self.slots.get_mut(id.index()).filter(|slot| slot.routes == 0) else {
                continue;
            };
            let Some(attributes) = slot.attributes.take() else { continue };
            let hashed = hash(self.key, &attributes);
            if let Ok(entry) = self.ids.find_entry(hashed, |other| *other == id) {
                entry.remove();
            }
            self.free.push(id);
        }
    }
}
