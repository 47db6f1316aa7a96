//! The table of routes: what each peer announces, and the best of it in each view.
//!
//! # Shape
//! A prefix is kept once, whoever announces it, and has a number; a peer is an array by that number of
//! which attributes it announces (`rib/table.rs`), equal attributes being kept once (`rib/sets.rs`).
//! So another peer costs four octets a route, and its attributes where they are its own.
//!
//! # Order of use
//! [`Rib::add_view`] and [`Rib::add_peer`] at start; [`Rib::apply`] with each message of a peer, and
//! [`Rib::mark_stale`], [`Rib::sweep`], [`Rib::clear`] as its session says; and from time to time
//! [`Rib::commit`], which decides anew for what has changed (`rib/decide.rs`). What readers are given,
//! [`Rib::export`], [`Rib::changes_since`] and [`Rib::version`], is as of the last commit.
//!
//! # The seam to readers
//! `views()` names the views; `export(view)` has the best route of each prefix in prefix order, IPv4
//! before IPv6; `version(view)` grows with every commit that changes it; `changes_since(view, version)`
//! has the prefixes that are another than at that version, with what they are now, for a bounded while
//! (`rib/history.rs`).
//!
//! # Invariants
//! - A view shows a prefix exactly when a peer of it announces the prefix.
//! - Memory is that of the routes held; nothing is kept of prefixes and attributes that nobody
//!   announces any more beyond the next commit, but for one in 16 places.

mod decide;
mod history;
mod sets;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use model::route::Attributes;
use model::{Asn, Family};

use crate::update::Update;
use history::History;
use sets::{SetId, Sets};
use table::{Table, V4, V6};

/// A peer of a [`Rib`], by the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(u16);

/// A view of a [`Rib`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ViewId(u16);

/// How many peers and views there may be.
pub const PEERS_MAX: usize = 1024;

/// A prefix that is another than before: what it carries now, `None` when it is gone.
pub type Change = (IpNet, Option<Arc<Attributes>>);

/// What a message changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Prefixes that it announced.
    pub announced: u32,
    /// Prefixes that it withdrew, malformed announcements included.
    pub withdrawn: u32,
}

#[derive(Debug)]
struct Peer {
    /// Of our own AS.
    internal: bool,
    /// Routes by family.
    counts: [u32; 2],
}

#[derive(Debug)]
struct View {
    name: String,
    peers: Vec<PeerId>,
    history: History,
    /// Best routes by family, as of the last commit.
    counts: [u32; 2],
}

/// The table. See the module.
#[derive(Debug)]
pub struct Rib {
    v4: Table<V4>,
    v6: Table<V6>,
    sets: Sets,
    peers: Vec<Peer>,
    views: Vec<View>,
}

fn place(family: Family) -> usize {
    usize::from(family == Family::V6)
}

impl Rib {
    /// An empty one. `key` is a secret of this process: it decides where prefixes stand in hash
    /// tables, so that no peer can choose prefixes that stand in each other's way.
    pub fn new(key: [u64; 2]) -> Self {
        let (v4, v6) = (Table::new(key), Table::new(key));
        Self { v4, v6, sets: Sets::new(key), peers: Vec::new(), views: Vec::new() }
    }

    /// The view of this name, made where there is none; `None` when there are too many.
    pub fn add_view(&mut self, name: &str) -> Option<ViewId> {
        if let Some((view, _)) = self.views().find(|(_, known)| *known == name) {
            return Some(view);
        }
        let view = u16::try_from(self.views.len()).ok().filter(|n| usize::from(*n) < PEERS_MAX)?;
        let (peers, history) = (Vec::new(), History::default());
        self.views.push(View { name: name.to_owned(), peers, history, counts: [0; 2] });
        self.v4.add_view();
        self.v6.add_view();
        Some(ViewId(view))
    }

    /// Another peer, whose routes are in `view`; of our own AS if `internal`. `None` when there are too
    /// many.
    pub fn add_peer(&mut self, view: ViewId, internal: bool) -> Option<PeerId> {
        let peer = u16::try_from(self.peers.len()).ok().filter(|n| usize::from(*n) < PEERS_MAX)?;
        self.views.get_mut(usize::from(view.0))?.peers.push(PeerId(peer));
        self.peers.push(Peer { internal, counts: [0; 2] });
        self.v4.add_peer();
        self.v6.add_peer();
        Some(PeerId(peer))
    }

    /// Takes over what a message of a peer says.
    pub fn apply(&mut self, peer: PeerId, update: Update<'_>) -> Applied {
        let mut applied = Applied::default();
        for prefix in update.withdrawn.into_iter().flat_map(|nlri| nlri.prefixes()) {
            self.withdraw(peer, prefix);
            applied.withdrawn = applied.withdrawn.saturating_add(1);
        }
        for announced in update.announced.into_iter().flatten() {
            let set = announced.attributes.map(|attributes| self.sets.intern(attributes));
            for prefix in announced.nlri.prefixes() {
                self.put(peer, prefix, set);
                let count =
                    if set.is_some() { &mut applied.announced } else { &mut applied.withdrawn };
                *count = count.saturating_add(1);
            }
        }
        applied
    }

    /// A peer announces one prefix.
    pub fn announce(&mut self, peer: PeerId, prefix: IpNet, attributes: Attributes) {
        let set = self.sets.intern(attributes);
        self.put(peer, prefix, Some(set));
    }

    /// A peer withdraws one prefix.
    pub fn withdraw(&mut self, peer: PeerId, prefix: IpNet) {
        self.put(peer, prefix, None);
    }

    fn put(&mut self, peer: PeerId, prefix: IpNet, set: Option<SetId>) {
        let old = match prefix.trunc() {
            IpNet::V4(net) => self.v4.put(peer, V4::of(net), set),
            IpNet::V6(net) => self.v6.put(peer, V6::of(net), set),
        };
        if let Some(set) = set {
            self.sets.hold(set);
        }
        if let Some(old) = old {
            self.sets.let_go(old);
        }
        let family = Family::of(prefix.addr());
        let count =
            self.peers.get_mut(usize::from(peer.0)).and_then(|p| p.counts.get_mut(place(family)));
        if let Some(count) = count {
            *count = match (old, set) {
                (None, Some(_)) => count.saturating_add(1),
                (Some(_), None) => count.saturating_sub(1),
                _ => *count,
            };
        }
    }

    /// Marks what a peer announces in a family: until it is announced again, [`Rib::sweep`] removes it.
    pub fn mark_stale(&mut self, peer: PeerId, family: Family) {
        match family {
            Family::V4 => self.v4.mark_stale(peer),
            Family::V6 => self.v6.mark_stale(peer),
        }
    }

    /// Withdraws what is still marked.
    pub fn sweep(&mut self, peer: PeerId, family: Family) {
        self.remove(peer, family, true);
    }

    /// Withdraws everything.
    pub fn clear(&mut self, peer: PeerId, family: Family) {
        self.remove(peer, family, false);
    }

    fn remove(&mut self, peer: PeerId, family: Family, only_stale: bool) {
        let sets = &mut self.sets;
        let mut gone = 0u32;
        let let_go = |set| {
            sets.let_go(set);
            gone = gone.saturating_add(1);
        };
        match family {
            Family::V4 => self.v4.remove(peer, only_stale, let_go),
            Family::V6 => self.v6.remove(peer, only_stale, let_go),
        }
        let peer = self.peers.get_mut(usize::from(peer.0));
        if let Some(count) = peer.and_then(|peer| peer.counts.get_mut(place(family))) {
            *count = count.saturating_sub(gone);
        }
    }

    /// Decides anew for every prefix that changed, and lets go of what nobody announces any more. True
    /// when a view is another than before.
    pub fn commit(&mut self) -> bool {
        let mut changes: Vec<Vec<IpNet>> = self.views.iter().map(|_| Vec::new()).collect();
        let decider = decide::Decider { sets: &self.sets, peers: &self.peers, views: &self.views };
        let v4 = self.v4.commit(&decider, &mut changes);
        let v6 = self.v6.commit(&decider, &mut changes);
        self.sets.drop_idle();
        let mut changed = false;
        for (at, (view, prefixes)) in self.views.iter_mut().zip(changes).enumerate() {
            let now = |counts: &[u32]| counts.get(at).copied().unwrap_or(0);
            view.counts = [now(&v4), now(&v6)];
            changed |= !prefixes.is_empty();
            view.history.add(prefixes);
        }
        changed
    }

    /// Whether a commit would do anything.
    pub fn is_dirty(&self) -> bool {
        self.v4.is_dirty() || self.v6.is_dirty()
    }

    /// The views and their names.
    pub fn views(&self) -> impl Iterator<Item = (ViewId, &str)> {
        (0..).map(ViewId).zip(self.views.iter().map(|view| view.name.as_str()))
    }

    /// How often the view has changed.
    pub fn version(&self, view: ViewId) -> u64 {
        self.views.get(usize::from(view.0)).map_or(0, |view| view.history.version())
    }

    /// Routes of the view by family, IPv4 first.
    pub fn view_counts(&self, view: ViewId) -> [u32; 2] {
        self.views.get(usize::from(view.0)).map_or([0; 2], |view| view.counts)
    }

    /// Routes of the peer by family, IPv4 first.
    pub fn peer_counts(&self, peer: PeerId) -> [u32; 2] {
        self.peers.get(usize::from(peer.0)).map_or([0; 2], |peer| peer.counts)
    }

    /// Different attributes that are held.
    pub fn attribute_sets(&self) -> usize {
        self.sets.len()
    }

    /// The best route of each prefix of a view: in prefix order, IPv4 before IPv6.
    pub fn export(&self, view: ViewId) -> impl Iterator<Item = (IpNet, &Arc<Attributes>)> {
        let best = self.v4.best(view).chain(self.v6.best(view));
        best.filter_map(|(prefix, set)| Some((prefix, self.sets.get(set)?)))
    }

    /// The prefixes of a view that are another than at that version, each once; `None` when that is too
    /// long ago, or was never: then all of [`Rib::export`] is to be had instead.
    pub fn changes_since(&self, view: ViewId, version: u64) -> Option<Vec<Change>> {
        let history = &self.views.get(usize::from(view.0))?.history;
        let prefixes = history.since(version)?;
        Some(
            prefixes.into_iter().map(|prefix| (prefix, self.best(view, prefix).cloned())).collect(),
        )
    }

    /// The best route of a prefix in a view, as of the last commit.
    pub fn best(&self, view: ViewId, prefix: IpNet) -> Option<&Arc<Attributes>> {
        let set = match prefix.trunc() {
            IpNet::V4(net) => self.v4.best_of(view, V4::of(net)),
            IpNet::V6(net) => self.v6.best_of(view, V6::of(net)),
        };
        self.sets.get(set?)
    }

    /// What a peer announces, in prefix order, IPv4 before IPv6, beyond `after`; what came since the
    /// last commit may be missing.
    pub fn heard(
        &self,
        peer: PeerId,
        after: Option<IpNet>,
    ) -> impl Iterator<Item = (IpNet, &Arc<Attributes>)> {
        let (from_v4, from_v6) = match after.map(|net| net.trunc()) {
            None => (Some(None), None),
            Some(IpNet::V4(net)) => (Some(Some(V4::of(net))), None),
            Some(IpNet::V6(net)) => (None, Some(V6::of(net))),
        };
        let v4 = from_v4.into_iter().flat_map(move |after| self.v4.heard(peer, after));
        let heard = v4.chain(self.v6.heard(peer, from_v6));
        heard.filter_map(|(prefix, set)| Some((prefix, self.sets.get(set)?)))
    }

    /// Routes of a peer by origin AS (`None`: unknown) and family.
    pub fn origins(&self, peer: PeerId) -> BTreeMap<Option<Asn>, [u32; 2]> {
        let mut by_set = vec![[0u32; 2]; self.sets.bound()];
        let mut count = |set: SetId, family| {
            let counts: Option<&mut [u32; 2]> = by_set.get_mut(set.index());
            if let Some(count) = counts.and_then(|counts| counts.get_mut(place(family))) {
                *count = count.saturating_add(1);
            }
        };
        self.v4.sets_of(peer).for_each(|set| count(set, Family::V4));
        self.v6.sets_of(peer).for_each(|set| count(set, Family::V6));
        let mut origins = BTreeMap::<_, [u32; 2]>::new();
        for (set, counts) in self.sets.all().zip(by_set).filter(|(_, counts)| *counts != [0; 2]) {
            let sum = origins.entry(set.and_then(|set| set.as_path.origin())).or_default();
            for (sum, count) in sum.iter_mut().zip(counts) {
                *sum = sum.saturating_add(count);
            }
        }
        origins
    }

    /// Who announces the longest prefix with `address` that anybody of the view announces, and what it
    /// carries: now, without waiting for a commit.
    pub fn lookup(&self, view: ViewId, address: IpAddr) -> Vec<(IpNet, PeerId, &Arc<Attributes>)> {
        let bits = Family::of(address).bits();
        let nets = (0..=bits).rev().filter_map(|bits| IpNet::new(address, bits).ok());
        let peers =
            self.views.get(usize::from(view.0)).map_or(&[][..], |view| view.peers.as_slice());
        for net in nets.map(|net| net.trunc()) {
            let of = |peer: PeerId| {
                let set = match net {
                    IpNet::V4(net) => self.v4.route(peer, V4::of(net)),
                    IpNet::V6(net) => self.v6.route(peer, V6::of(net)),
                };
                Some((net, peer, self.sets.get(set?)?))
            };
            let found: Vec<_> = peers.iter().filter_map(|peer| of(*peer)).collect();
            if !found.is_empty() {
                return found;
            }
        }
        Vec::new()
    }
}
