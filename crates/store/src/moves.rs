//! Packed objects on their way from one record to another.
//!
//! A new record (another head, another segment) is not durable when the index already points to it.
//! Until it is, the log keeps saying where the old one is, and the old one's segment stays. So a power
//! loss finds one of the two whole, whatever it leaves of what was written last:
//!
//! 1. the new record is written and the index points to it;
//! 2. it is synced, then the log says so ([`Shared::confirm_moves`]);
//! 3. that is synced, then the old segment is free to go ([`Shared::end_moves`]).

use std::collections::HashMap;
use std::sync::Mutex;

use crate::entry::Change;
use crate::index::Spot;
use crate::names::Place;
use crate::shared::{Shared, lock};

/// Where the records were that the log still points to.
#[derive(Default)]
pub(crate) struct Moves(Mutex<HashMap<Place, Spot>>);

/// Where objects are whose records are about to be synced.
pub(crate) type Arrivals = Vec<(Place, Spot)>;

/// Segments that objects have left, once for each.
pub(crate) type Departures = Vec<u32>;

impl Moves {
    /// Where the log has to say that an object is.
    pub(crate) fn durable(&self, place: Place, now: Spot) -> Spot {
        lock(&self.0).get(&place).copied().unwrap_or(now)
    }
}

impl Shared {
    /// An object has moved. To be called while the index is locked.
    pub(crate) fn note_moved(&self, place: Place, former: Spot) {
        let Spot::Packed { segment, .. } = former else { return };
        let mut moves = lock(&self.moves.0);
        if let std::collections::hash_map::Entry::Vacant(entry) = moves.entry(place) {
            entry.insert(former);
            if let Some(segment) = self.segments.get(segment) {
                segment.note_left(1);
            }
        }
    }

    /// What the sync that is about to begin makes durable.
    pub(crate) fn arrivals(&self) -> Arrivals {
        let index = self.index();
        let moves = lock(&self.moves.0);
        moves.keys().map(|place| (*place, index.spot(*place).unwrap_or(Spot::Filling))).collect()
    }

    /// That sync was a success: lets the log say where the objects are. They have left their segments
    /// when that is durable too.
    pub(crate) fn confirm_moves(&self, arrivals: Arrivals) -> Departures {
        let index = self.index();
        let mut moves = lock(&self.moves.0);
        let mut departures = Departures::new();
        for (place, spot) in arrivals {
            let now = index.spot(place);
            let former = match now {
                // It has moved on: this is where the log points to now.
                Some(now) if now != spot && spot != Spot::Filling => {
                    if let Spot::Packed { segment, .. } = spot
                        && let Some(segment) = self.segments.get(segment)
                    {
                        segment.note_left(1);
                    }
                    moves.insert(place, spot)
                }
                _ => moves.remove(&place),
            };
            if now.is_some() && spot != Spot::Filling {
                self.note(Change::At(place, spot));
            }
            if let Some(Spot::Packed { segment, .. }) = former {
                departures.push(segment);
            }
        }
        departures
    }

    /// The log is durable as it is now.
    pub(crate) fn end_moves(&self, departures: Departures) {
        for segment in departures.into_iter().filter_map(|number| self.segments.get(number)) {
            segment.note_left(-1);
        }
    }
}
