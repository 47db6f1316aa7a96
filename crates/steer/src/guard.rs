//! The guard of a project's answers: how much of them one node, or one site, gets (`max_share`).
//!
//! Counts the nodes given, all families together, over a sliding window of virtual time: eight slices,
//! of which the oldest falls away as a new one begins, so that between seven and eight of them count.
//! Who would be above its share by one more is passed over, and the answer spills to the others of its
//! pool, then to the pools behind it. Answering beats the cap: where nobody has room it is as if there
//! were none. Below [`COUNTED_MIN`] nodes in the window shares mean nothing, and nobody is passed over.
//!
//! One guard is shared by all threads that answer. A count is one line of memory; the threads of one
//! host take turns on it, which only a project with a guard pays for. Each DNS server counts its own
//! answers: they see the same mix of clients where they are asked alike.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use model::{Name, Now};
use nodemap::{AdminMap, MaxShare};

use crate::plan::Candidate;

/// Slices of a window.
const SLICES: usize = 8;
/// Share of a window that a slice is, as a shift: an eighth.
const SLICE_SHIFT: u32 = SLICES.ilog2();
/// Nodes given within the window below which nobody is passed over.
pub const COUNTED_MIN: u64 = 100;

/// The guard of one project.
#[derive(Debug)]
pub struct Guard {
    limit: MaxShare,
    slice_ns: u64,
    total: Arc<Meter>,
    nodes: Meters,
    sites: Meters,
    events: Arc<Events>,
}

/// By name.
#[derive(Debug, Default)]
struct Meters {
    numbers: HashMap<Name, usize>,
    meters: Vec<Arc<Meter>>,
}

/// What a guard did since it was last asked.
#[derive(Debug, Default)]
struct Events {
    spilled: AtomicU64,
    overruled: AtomicU64,
}

/// Where a candidate is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    node: usize,
    site: usize,
}

/// Counts over the last slices: in each the number of the slice above, the count below.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Meter([AtomicU64; SLICES]);

/// Names and their shares, from 0 to 1.
pub type Shares<'a> = Vec<(&'a Name, f64)>;

/// What a guard did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Answers in which somebody was passed over.
    pub spilled: u64,
    /// Answers given as if there were no guard, because nobody had room.
    pub overruled: u64,
}

impl Guard {
    /// A guard over the nodes of `map`; it goes on with what `old` has counted.
    pub(crate) fn new(limit: MaxShare, map: &AdminMap, old: Option<&Self>) -> Self {
        // Slices of another length cannot be gone on with.
        let old = old.filter(|old| old.limit.window_s == limit.window_s);
        let window_ns = u64::from(limit.window_s).saturating_mul(1_000_000_000);
        Self {
            limit,
            slice_ns: (window_ns >> SLICE_SHIFT).max(1),
            total: old.map(|old| Arc::clone(&old.total)).unwrap_or_default(),
            nodes: Meters::new(map.nodes.keys(), old.map(|old| &old.nodes)),
            sites: Meters::new(map.sites.keys(), old.map(|old| &old.sites)),
            events: old.map(|old| Arc::clone(&old.events)).unwrap_or_default(),
        }
    }

    /// Where a node of a site is counted.
    pub(crate) fn places(&self, node: &Name, site: Option<&Name>) -> Places {
        let of = |meters: &Meters, name: &Name| meters.numbers.get(name).copied();
        Places {
            node: of(&self.nodes, node).unwrap_or(usize::MAX),
            site: site.and_then(|site| of(&self.sites, site)).unwrap_or(usize::MAX),
        }
    }

    /// The guard at one moment.
    pub(crate) fn turn(&self, now: Now) -> Turn<'_> {
        let slice = now.mono_ns.checked_div(self.slice_ns).unwrap_or(0);
        // Numbers are compared modulo 2^32.
        let slice = (slice & u64::from(u32::MAX)) as u32;
        Turn { guard: self, slice, total: self.total.sum(slice) }
    }

    /// The limit it keeps.
    pub fn limit(&self) -> MaxShare {
        self.limit
    }

    /// What it did since this was asked last.
    pub fn take_done(&self) -> Done {
        Done {
            spilled: self.events.spilled.swap(0, Relaxed),
            overruled: self.events.overruled.swap(0, Relaxed),
        }
    }

    /// The share of the nodes given within the window that each node got that got any, from 0 to 1, and
    /// likewise each site; in the order of their names.
    pub fn shares(&self, now: Now) -> (Shares<'_>, Shares<'_>) {
        let turn = self.turn(now);
        let of = |meters| turn.shares_of(meters);
        (of(&self.nodes), of(&self.sites))
    }
}

impl Meters {
    /// One for each name; those that `old` has are gone on with.
    fn new<'a>(names: impl Iterator<Item = &'a Name>, old: Option<&Self>) -> Self {
        let mut meters = Self::default();
        for (at, name) in names.enumerate() {
            let known = old.and_then(|old| old.meters.get(*old.numbers.get(name)?));
            meters.meters.push(known.map(Arc::clone).unwrap_or_default());
            meters.numbers.insert(name.clone(), at);
        }
        meters
    }

    fn sum(&self, at: usize, slice: u32) -> u64 {
        self.meters.get(at).map_or(0, |meter| meter.sum(slice))
    }

    fn add(&self, at: usize, slice: u32) {
        self.meters.get(at).into_iter().for_each(|meter| meter.add(slice));
    }
}

impl Meter {
    /// What was counted in the window that ends with `slice`.
    fn sum(&self, slice: u32) -> u64 {
        let counts = self.0.iter().map(|place| {
            let (number, count) = parts(place.load(Relaxed));
            if (slice.wrapping_sub(number) as usize) < SLICES { u64::from(count) } else { 0 }
        });
        counts.sum()
    }

    /// Counts one in `slice`.
    fn add(&self, slice: u32) {
        let Some(place) = self.0.get(slice as usize % SLICES) else { return };
        let seen = place.load(Relaxed);
        if parts(seen).0 == slice {
            place.fetch_add(1, Relaxed);
            return;
        }
        // The first of a slice takes the place; who loses the race counts in what the other began.
        let begun = u64::from(slice) << 32 | 1;
        if let Err(other) = place.compare_exchange(seen, begun, Relaxed, Relaxed)
            && parts(other).0 == slice
        {
            place.fetch_add(1, Relaxed);
        }
    }
}

/// The number of a slice and its count.
fn parts(place: u64) -> (u32, u32) {
    ((place >> 32) as u32, (place & u64::from(u32::MAX)) as u32)
}

/// A guard at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn<'a> {
    guard: &'a Guard,
    slice: u32,
    /// Nodes given within the window.
    total: u64,
}

impl Turn<'_> {
    /// Whether a node may get one more.
    pub(crate) fn has_room(&self, node: &Candidate) -> bool {
        let MaxShare { nodes, sites, .. } = self.guard.limit;
        let fits = |percent: Option<u32>, meters: &Meters, at: usize| {
            let Some(percent) = percent else { return true };
            let with_it = meters.sum(at, self.slice).saturating_add(1);
            let total = self.total.saturating_add(1);
            with_it.saturating_mul(100) <= total.saturating_mul(u64::from(percent))
        };
        self.total < COUNTED_MIN
            || (fits(nodes, &self.guard.nodes, node.places.node)
                && fits(sites, &self.guard.sites, node.places.site))
    }

    /// Counts what was given.
    pub(crate) fn count<'a>(&self, given: impl Iterator<Item = &'a Candidate>) {
        for node in given {
            self.guard.total.add(self.slice);
            self.guard.nodes.add(node.places.node, self.slice);
            self.guard.sites.add(node.places.site, self.slice);
        }
    }

    /// Somebody was passed over.
    pub(crate) fn spilled(&self) {
        self.guard.events.spilled.fetch_add(1, Relaxed);
    }

    /// Nobody had room.
    pub(crate) fn overruled(&self) {
        self.guard.events.overruled.fetch_add(1, Relaxed);
    }

    fn shares_of<'a>(&self, meters: &'a Meters) -> Shares<'a> {
        let share = |(name, at): (&'a Name, &usize)| {
            let count = meters.sum(*at, self.slice);
            (count > 0).then(|| (name, count as f64 / self.total.max(1) as f64))
        };
        let mut shares: Vec<_> = meters.numbers.iter().filter_map(share).collect();
        shares.sort_unstable_by_key(|(name, _)| *name);
        shares
    }
}
