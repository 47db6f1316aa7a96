//! The snapshots of a group: the newest, and those that clients are in the middle of.

use std::collections::{BTreeMap, VecDeque};

use http::StatusCode;
use model::Now;

use super::bindings::RUN_MAX_MS;

/// Snapshots kept for clients that began with them.
const KEPT_MAX: usize = 16;

/// What a member was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held<V> {
    /// Content.
    Content(V),
    /// The masters do not have it.
    Missing(StatusCode),
    /// Something that cannot be kept, and why: each request gets its own.
    Apart(&'static str),
}

/// Members by target.
pub(crate) type Versions<V> = BTreeMap<String, Held<V>>;

/// What all members were at one instant.
#[derive(Debug)]
pub(crate) struct Snapshot<V> {
    pub(crate) number: u64,
    /// The tick it belongs to.
    pub(crate) epoch: u64,
    pub(crate) members: Versions<V>,
    /// When another took its place; `None`: it is the newest.
    replaced_ns: Option<u64>,
}

/// The newest, and former ones.
#[derive(Debug)]
pub(crate) struct Snapshots<V> {
    /// The newest last.
    kept: VecDeque<Snapshot<V>>,
    switches: u64,
}

impl<V> Default for Snapshots<V> {
    fn default() -> Self {
        Self { kept: VecDeque::new(), switches: 0 }
    }
}

impl<V> Snapshots<V> {
    /// How many are kept.
    pub(crate) fn kept(&self) -> usize {
        self.kept.len()
    }

    /// How often one took another's place.
    pub(crate) fn switches(&self) -> u64 {
        self.switches
    }

    pub(crate) fn newest(&self) -> Option<&Snapshot<V>> {
        self.kept.back()
    }

    pub(crate) fn newest_mut(&mut self) -> Option<&mut Snapshot<V>> {
        self.kept.back_mut()
    }

    /// The one with this number, while it is kept.
    pub(crate) fn get(&self, number: u64) -> Option<&Snapshot<V>> {
        self.kept.iter().find(|s| s.number == number)
    }

    /// The newest is right, and these are all of its members.
    pub(crate) fn extend(&mut self, epoch: u64, versions: Versions<V>) {
        match self.kept.back_mut() {
            Some(newest) => newest.members = versions,
            None => self.push(epoch, versions),
        }
    }

    /// These are right in this epoch: the newest snapshot is confirmed, or, `true`, another takes its
    /// place.
    pub(crate) fn put(&mut self, now: Now, epoch: u64, versions: Versions<V>) -> bool
    where
        V: PartialEq,
    {
        let Some(newest) = self.kept.back_mut() else {
            self.push(epoch, versions);
            return false;
        };
        if newest.members.iter().all(|(name, held)| versions.get(name) == Some(held)) {
            newest.epoch = epoch;
            newest.members = versions;
            return false;
        }
        newest.replaced_ns = Some(now.mono_ns);
        self.switches = self.switches.saturating_add(1);
        self.push(epoch, versions);
        self.drop_replaced(now);
        true
    }

    fn push(&mut self, epoch: u64, members: Versions<V>) {
        let number = self.switches.saturating_add(1);
        self.kept.push_back(Snapshot { number, epoch, members, replaced_ns: None });
    }

    /// Lets go of those that no client can be in the middle of.
    pub(crate) fn drop_replaced(&mut self, now: Now) {
        // A client may have joined its address's run just before that was over.
        let long_ns = RUN_MAX_MS.saturating_mul(2_000_000);
        let is_over = |s: &Snapshot<V>| {
            s.replaced_ns.is_some_and(|at_ns| now.mono_ns.saturating_sub(at_ns) > long_ns)
        };
        while self.kept.len() > KEPT_MAX || self.kept.front().is_some_and(is_over) {
            self.kept.pop_front();
        }
    }
}

/// How many members are content.
pub(crate) fn contents<V>(versions: &Versions<V>) -> usize {
    versions.values().filter(|held| matches!(held, Held::Content(_))).count()
}

/// Whether every content was seen just so before. What is missing counts only where it was there, or
/// is to come: it has no bytes that could contradict others.
pub(crate) fn agree<V: PartialEq>(versions: &Versions<V>, seen: &Versions<V>) -> bool {
    versions.iter().all(|(name, held)| match (held, seen.get(name)) {
        (Held::Content(_), before) => before == Some(held),
        (_, Some(Held::Content(_))) => false,
        _ => true,
    })
}
