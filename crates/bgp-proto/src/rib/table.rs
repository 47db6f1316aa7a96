//! The routes of one family: prefixes with numbers, and by number what each peer announces and what is
//! best in each view.

use std::fmt::Debug;
use std::hash::Hasher;
use std::net::{Ipv4Addr, Ipv6Addr};

use hashbrown::HashTable;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use siphasher::sip::SipHasher13;

use super::decide::Decider;
use super::history::CHANGES_MAX;
use super::sets::SetId;
use super::{PeerId, ViewId};

/// Says of a route that it is to be announced again, or else will be swept.
const STALE: u32 = 1 << 31;
/// Prefixes that nobody announces keep their places until they are one in so many of all.
const DEAD_SHARE: usize = 16;

/// A prefix as a small number that is ordered as prefixes are: by address, then by length.
pub(super) trait Key: Copy + Ord + Debug {
    fn hash(self, hasher: &mut SipHasher13);
    fn net(self) -> IpNet;
}

/// An IPv4 prefix: the address, then its length in the lowest octet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct V4(u64);

impl V4 {
    /// `net`, whose bits beyond its length are cleared.
    pub(super) fn of(net: Ipv4Net) -> Self {
        Self(u64::from(net.addr().to_bits()) << 8 | u64::from(net.prefix_len()))
    }
}

impl Key for V4 {
    fn hash(self, hasher: &mut SipHasher13) {
        hasher.write_u64(self.0);
    }

    fn net(self) -> IpNet {
        let address = Ipv4Addr::from((self.0 >> 8) as u32);
        // Its length came from a prefix, so this is one.
        Ipv4Net::new(address, self.0 as u8).unwrap_or_default().into()
    }
}

/// An IPv6 prefix: the halves of its address, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct V6 {
    high: u64,
    low: u64,
    bits: u8,
}

impl V6 {
    /// `net`, whose bits beyond its length are cleared.
    pub(super) fn of(net: Ipv6Net) -> Self {
        let address = net.addr().to_bits();
        Self { high: (address >> 64) as u64, low: address as u64, bits: net.prefix_len() }
    }
}

impl Key for V6 {
    fn hash(self, hasher: &mut SipHasher13) {
        hasher.write_u64(self.high);
        hasher.write_u64(self.low);
        hasher.write_u8(self.bits);
    }

    fn net(self) -> IpNet {
        let address = Ipv6Addr::from(u128::from(self.high) << 64 | u128::from(self.low));
        Ipv6Net::new(address, self.bits).unwrap_or_default().into()
    }
}

/// The number of a prefix in its table.
type Id = u32;

/// See the module.
#[derive(Debug)]
pub(super) struct Table<K> {
    key: [u64; 2],
    keys: Vec<K>,
    ids: HashTable<Id>,
    /// By peer, by prefix: the set of attributes and perhaps [`STALE`]; 0 where it announces nothing.
    /// Shorter than `keys` where nothing follows.
    routes: Vec<Vec<u32>>,
    /// By view, by prefix: the best set as of the last commit; 0 for none. As long as `keys`.
    best: Vec<Vec<u32>>,
    /// Best routes by view.
    counts: Vec<u32>,
    /// Every prefix of the last commit, in order.
    order: Vec<Id>,
    /// Prefixes that are not in `order` yet.
    fresh: Vec<Id>,
    /// Prefixes that nobody announced when they were put here; they may be announced again.
    dead: Vec<Id>,
    /// Places of `keys` that are not in use.
    free: Vec<Id>,
    /// Prefixes that changed since the last commit, each once: `is_dirty` has a bit for each.
    dirty: Vec<Id>,
    is_dirty: Vec<u64>,
}

impl<K: Key> Table<K> {
    pub(super) fn new(key: [u64; 2]) -> Self {
        Self {
            key,
            keys: Vec::new(),
            ids: HashTable::new(),
            routes: Vec::new(),
            best: Vec::new(),
            counts: Vec::new(),
            order: Vec::new(),
            fresh: Vec::new(),
            dead: Vec::new(),
            free: Vec::new(),
            dirty: Vec::new(),
            is_dirty: Vec::new(),
        }
    }

    pub(super) fn add_peer(&mut self) {
        self.routes.push(Vec::new());
    }

    pub(super) fn add_view(&mut self) {
        self.best.push(vec![0; self.keys.len()]);
        self.counts.push(0);
    }

    pub(super) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Places for prefixes, in use or not.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.keys.len()
    }

    fn find(&self, key: K) -> Option<Id> {
        let hashed = hash(self.key, key);
        self.ids.find(hashed, |id| self.keys.get(*id as usize) == Some(&key)).copied()
    }

    /// The number of a prefix, a new one where it has none.
    fn number(&mut self, key: K) -> Id {
        let hashed = hash(self.key, key);
        let keys = &self.keys;
        if let Some(id) = self.ids.find(hashed, |id| keys.get(*id as usize) == Some(&key)) {
            return *id;
        }
        // There are not 2^32 different prefixes in memory.
        let id = self.free.pop().unwrap_or(self.keys.len() as Id);
        match self.keys.get_mut(id as usize) {
            Some(place) => *place = key,
            None => {
                self.keys.push(key);
                self.best.iter_mut().for_each(|best| best.push(0));
            }
        }
        let (secret, keys) = (self.key, &self.keys);
        let again = |id: &Id| keys.get(*id as usize).map_or(0, |key| hash(secret, *key));
        self.ids.insert_unique(hashed, id, again);
        self.fresh.push(id);
        id
    }

    /// Sets what a peer announces for a prefix; gives what it was.
    pub(super) fn put(&mut self, peer: PeerId, key: K, set: Option<SetId>) -> Option<SetId> {
        let id = match set {
            Some(_) => self.number(key),
            None => self.find(key)?,
        };
        let all = self.keys.len();
        let routes = self.routes.get_mut(usize::from(peer.0))?;
        if routes.len() <= id as usize {
            set?;
            // By as much as the prefixes have grown, or their vector would.
            routes.resize(all, 0);
        }
        let route = routes.get_mut(id as usize)?;
        let (old, new) = (*route, set.map_or(0, SetId::get));
        *route = new;
        if old & !STALE != new {
            mark(&mut self.dirty, &mut self.is_dirty, id);
        }
        SetId::of(old & !STALE)
    }

    /// What a peer announces for a prefix.
    pub(super) fn route(&self, peer: PeerId, key: K) -> Option<SetId> {
        let id = self.find(key)?;
        SetId::of(self.routes.get(usize::from(peer.0))?.get(id as usize)? & !STALE)
    }

    pub(super) fn mark_stale(&mut self, peer: PeerId) {
        let routes = self.routes.get_mut(usize::from(peer.0));
        for route in routes.into_iter().flatten().filter(|route| **route != 0) {
            *route |= STALE;
        }
    }

    /// Removes what a peer announces, or only what is stale of it, and tells each set.
    pub(super) fn remove(&mut self, peer: PeerId, only_stale: bool, mut gone: impl FnMut(SetId)) {
        let Some(routes) = self.routes.get_mut(usize::from(peer.0)) else { return };
        for (id, route) in (0..).zip(routes.iter_mut()) {
            if *route == 0 || only_stale && *route & STALE == 0 {
                continue;
            }
            if let Some(set) = SetId::of(*route & !STALE) {
                gone(set);
            }
            *route = 0;
            mark(&mut self.dirty, &mut self.is_dirty, id);
        }
        if !only_stale {
            *routes = Vec::new();
        }
    }

    /// Decides for every prefix that changed and adds it to the changes of each view in which that
    /// makes a difference. Gives the best routes by view.
    pub(super) fn commit(&mut self, decider: &Decider<'_>, changes: &mut [Vec<IpNet>]) -> Vec<u32> {
        for id in std::mem::take(&mut self.dirty) {
            if let Some(word) = self.is_dirty.get_mut(id as usize / 64) {
                *word &= !(1 << (id % 64));
            }
            let Some(key) = self.keys.get(id as usize) else { continue };
            let views = self.best.iter_mut().zip(&mut self.counts).zip(changes.iter_mut());
            for (view, ((best, count), changes)) in (0..).map(ViewId).zip(views) {
                let Some(best) = best.get_mut(id as usize) else { continue };
                let routes = &self.routes;
                let now = decider.best(view, |peer| {
                    let route = routes.get(usize::from(peer.0))?.get(id as usize)?;
                    SetId::of(route & !STALE)
                });
                let (old, now) = (*best, now.map_or(0, SetId::get));
                if old == now {
                    continue;
                }
                *best = now;
                *count = match (old, now) {
                    (0, _) => count.saturating_add(1),
                    (_, 0) => count.saturating_sub(1),
                    _ => *count,
                };
                // More than that are not remembered anyway.
                if changes.len() <= CHANGES_MAX {
                    changes.push(key.net());
                }
            }
            if self.routes.iter().all(|routes| routes.get(id as usize).is_none_or(|r| *r == 0)) {
                self.dead.push(id);
            }
        }
        self.put_in_order();
        self.counts.clone()
    }

    /// Takes up new prefixes into the order, and gives away the places of dead ones.
    fn put_in_order(&mut self) {
        if self.fresh.is_empty() && self.dead.len() <= self.keys.len() / DEAD_SHARE {
            return;
        }
        let mut gone = std::mem::take(&mut self.dead);
        gone.sort_unstable();
        gone.dedup();
        gone.retain(|id| self.routes.iter().all(|r| r.get(*id as usize).is_none_or(|r| *r == 0)));
        if !gone.is_empty() {
            let is_gone = |id: &Id| gone.binary_search(id).is_ok();
            self.order.retain(|id| !is_gone(id));
            self.fresh.retain(|id| !is_gone(id));
        }
        for id in &gone {
            let Some(key) = self.keys.get(*id as usize) else { continue };
            if let Ok(entry) = self.ids.find_entry(hash(self.key, *key), |other| other == id) {
                entry.remove();
            }
        }
        self.free.extend(gone);
        let keys = &self.keys;
        let keyed = |id: Id| keys.get(id as usize).map(|key| (*key, id));
        let mut fresh: Vec<_> =
            std::mem::take(&mut self.fresh).into_iter().filter_map(keyed).collect();
        fresh.sort_unstable();
        merge(&mut self.order, fresh, |id| keys.get(id as usize).copied());
    }

    /// The best route of each prefix in a view, in order.
    pub(super) fn best(&self, view: ViewId) -> impl Iterator<Item = (IpNet, SetId)> {
        let best = self.best.get(usize::from(view.0));
        self.ordered(best, 0)
    }

    /// The best route of a prefix in a view.
    pub(super) fn best_of(&self, view: ViewId, key: K) -> Option<SetId> {
        let id = self.find(key)?;
        SetId::of(*self.best.get(usize::from(view.0))?.get(id as usize)?)
    }

    /// What a peer announces beyond a prefix, in order.
    pub(super) fn heard(
        &self,
        peer: PeerId,
        after: Option<K>,
    ) -> impl Iterator<Item = (IpNet, SetId)> {
        let key_of = |id: &Id| self.keys.get(*id as usize).copied();
        let from =
            after.map_or(0, |after| self.order.partition_point(|id| key_of(id) <= Some(after)));
        self.ordered(self.routes.get(usize::from(peer.0)), from)
    }

    /// All sets of a peer, once for each route that carries it.
    pub(super) fn sets_of(&self, peer: PeerId) -> impl Iterator<Item = SetId> {
        let routes = self.routes.get(usize::from(peer.0)).into_iter().flatten();
        routes.filter_map(|route| SetId::of(route & !STALE))
    }

    /// What an array by prefix has, in the order of prefixes from the place `from` on.
    fn ordered<'a>(
        &'a self,
        values: Option<&'a Vec<u32>>,
        from: usize,
    ) -> impl Iterator<Item = (IpNet, SetId)> + 'a {
        let values = values.map_or(&[][..], Vec::as_slice);
        self.order.get(from..).unwrap_or_default().iter().filter_map(move |id| {
            let set = SetId::of(values.get(*id as usize)? & !STALE)?;
            Some((self.keys.get(*id as usize)?.net(), set))
        })
    }
}

fn hash<K: Key>(secret: [u64; 2], key: K) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(secret[0], secret[1]);
    key.hash(&mut hasher);
    hasher.finish()
}

/// Notes that a prefix changed.
fn mark(dirty: &mut Vec<Id>, is_dirty: &mut Vec<u64>, id: Id) {
    let (word, bit) = (id as usize / 64, 1 << (id % 64));
    if is_dirty.len() <= word {
        is_dirty.resize(word.saturating_add(1), 0);
    }
    if let Some(word) = is_dirty.get_mut(word)
        && *word & bit == 0
    {
        *word |= bit;
        dirty.push(id);
    }
}

/// Takes up `fresh`, which is in order, into `order`, from behind, so that nothing is copied aside.
fn merge<K: Ord>(order: &mut Vec<Id>, mut fresh: Vec<(K, Id)>, key_of: impl Fn(Id) -> Option<K>) {
    let mut old = order.len();
    let mut at = old.saturating_add(fresh.len());
    order.resize(at, 0);
    while let Some((key, id)) = fresh.last() {
        let before = old.checked_sub(1).and_then(|last| order.get(last).copied());
        let next = match before {
            Some(before) if key_of(before).as_ref() > Some(key) => {
                old = old.saturating_sub(1);
                before
            }
            _ => {
                let id = *id;
                fresh.pop();
                id
            }
        };
        at = at.saturating_sub(1);
        if let Some(place) = order.get_mut(at) {
            *place = next;
        }
    }
}
