//! Hash tables of slots: where in an array the entry of a key is.
//!
//! Open addressing with linear probing; eight bytes a place: the slot, and half of the hash, so that
//! neither probing nor growing looks at entries that are others. Many small tables instead of one
//! large: each grows by itself, so that no growth stops anybody for long.
#![warn(clippy::arithmetic_side_effects)]

/// Tables; the hash's topmost bits choose one.
const TABLES: usize = 64;
const TABLE_BITS: u32 = TABLES.trailing_zeros();
const PLACES_MIN: usize = 8;

/// The tables. Every call is given the hash of a key.
#[derive(Debug)]
pub(crate) struct Tables(Box<[Table]>);

#[derive(Debug, Default)]
struct Table {
    /// A power of two of them, or none.
    places: Box<[Place]>,
    used: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    hash: u32,
    slot: u32,
}

const EMPTY: Place = Place { hash: 0, slot: u32::MAX };

impl Default for Tables {
    fn default() -> Self {
        Self((0..TABLES).map(|_| Table::default()).collect())
    }
}

impl Tables {
    /// The slot with this hash that `is_it` says yes to.
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let table = self.0.get(table_of(hash))?;
        let place = table.places.get(table.place_of(low(hash), is_it)?)?;
        Some(place.slot)
    }

    /// Adds a slot that is not in yet.
    pub(crate) fn insert(&mut self, hash: u64, slot: u32) {
        if let Some(table) = self.0.get_mut(table_of(hash)) {
            // At most three quarters full.
            if table.used >= table.places.len().saturating_mul(3).div_euclid(4) {
                table.grow();
            }
            table.put(Place { hash: low(hash), slot });
        }
    }

    /// Takes a slot out.
    pub(crate) fn remove(&mut self, hash: u64, slot: u32) {
        if let Some(table) = self.0.get_mut(table_of(hash))
            && let Some(place) = table.place_of(low(hash), |other| other == slot)
        {
            table.vacate(place);
        }
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let places = |table: &Table| table.places.len().saturating_mul(size_of::<Place>());
        self.0.iter().map(places).fold(0, usize::saturating_add)
    }
}

fn table_of(hash: u64) -> usize {
    usize::try_from(hash.unbounded_shr(u64::BITS.saturating_sub(TABLE_BITS))).unwrap_or(0)
}

fn low(hash: u64) -> u32 {
    u32::try_from(hash & u64::from(u32::MAX)).unwrap_or(0)
}

impl Table {
    fn mask(&self) -> usize {
        self.places.len().saturating_sub(1)
    }

    fn home(&self, hash: u32) -> usize {
        usize::try_from(hash).unwrap_or(0) & self.mask()
    }

    fn after(&self, place: usize) -> usize {
        place.wrapping_add(1) & self.mask()
    }

    fn place_of(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<usize> {
        let mut place = self.home(hash);
        loop {
            match *self.places.get(place)? {
                EMPTY => return None,
                found if found.hash == hash && is_it(found.slot) => return Some(place),
                _ => place = self.after(place),
            }
        }
    }

    fn put(&mut self, new: Place) {
        let mut place = self.home(new.hash);
        // There is always an empty place: see `Tables::insert`.
        while self.places.get(place).is_some_and(|found| *found != EMPTY) {
            place = self.after(place);
        }
        if let Some(found) = self.places.get_mut(place) {
            *found = new;
            self.used = self.used.saturating_add(1);
        }
    }

    /// Empties a place and moves up what had to make way for it.
    fn vacate(&mut self, place: usize) {
        let mut hole = place;
        let mut next = self.after(hole);
        while let Some(moved) = self.places.get(next).copied().filter(|place| *place != EMPTY) {
            // How far it is from its home, against how far from the hole.
            let far = next.wrapping_sub(self.home(moved.hash)) & self.mask();
            if far >= next.wrapping_sub(hole) & self.mask() {
                if let Some(found) = self.places.get_mut(hole) {
                    *found = moved;
                }
                hole = next;
            }
            next = self.after(next);
        }
        if let Some(found) = self.places.get_mut(hole) {
            *found = EMPTY;
            self.used = self.used.saturating_sub(1);
        }
    }

    fn grow(&mut self) {
        let len = self.places.len().saturating_mul(2).max(PLACES_MIN);
        let places = std::mem::replace(&mut self.places, vec![EMPTY; len].into_boxed_slice());
        self.used = 0;
        for place in places.into_iter().filter(|place| *place != EMPTY) {
            self.put(place);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Against a map, with hashes that collide a lot.
        #[test]
        fn finds_what_is_in_and_nothing_else(
            steps in prop::collection::vec((0u32..60, any::<bool>()), 1..400),
            spread in 1u64..20,
        ) {
            let hash = |slot: u32| u64::from(slot) % spread * 0x0400_0000_0000_0003;
            let (mut tables, mut model) = (Tables::default(), BTreeMap::new());
            for (slot, put) in steps {
                if put && model.insert(slot, ()).is_none() {
                    tables.insert(hash(slot), slot);
                } else if !put && model.remove(&slot).is_some() {
                    tables.remove(hash(slot), slot);
                }
                for slot in 0..60 {
                    let found = tables.find(hash(slot), |other| other == slot);
                    prop_assert_eq!(found.is_some(), model.contains_key(&slot));
                }
            }
        }
    }
}
