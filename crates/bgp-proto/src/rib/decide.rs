//! Which of several routes to a prefix is the best: RFC 4271 section 9.1, as far as a collector can
//! follow it.
//!
//! In this order, the first that makes a difference decides: the higher `LOCAL_PREF` (100 where none is
//! said), the shorter path, the lower origin, of routes from the same neighbour AS the lower `MED` (0
//! where none is said), the peer of another AS before one of our own, the peer that the config names
//! first. There is no distance to next hops here, and no routes of our own; a path with our own AS on
//! it is as good as any, since nothing is passed on.

use model::route::Attributes;

use super::sets::{SetId, Sets};
use super::{Peer, PeerId, View, ViewId};

const LOCAL_PREF: u32 = 100;

/// Everything that decides.
pub(super) struct Decider<'a> {
    pub(super) sets: &'a Sets,
    pub(super) peers: &'a [Peer],
    pub(super) views: &'a [View],
}

impl Decider<'_> {
    /// The best of what the peers of a view announce for a prefix.
    pub(super) fn best(
        &self,
        view: ViewId,
        route: impl Fn(PeerId) -> Option<SetId>,
    ) -> Option<SetId> {
        let peers = &self.views.get(usize::from(view.0))?.peers;
        if let [only] = peers.as_slice() {
            return route(*only);
        }
        let mut best: Option<(SetId, PeerId)> = None;
        for peer in peers {
            let Some(set) = route(*peer) else { continue };
            if best.is_none_or(|best| self.is_better((set, *peer), best)) {
                best = Some((set, *peer));
            }
        }
        best.map(|(set, _)| set)
    }

    /// Whether `one` is better than `other`, whose peer stands before it.
    fn is_better(&self, one: (SetId, PeerId), other: (SetId, PeerId)) -> bool {
        let (Some(a), Some(b)) = (self.sets.get(one.0), self.sets.get(other.0)) else {
            return false;
        };
        let internal =
            |peer: PeerId| self.peers.get(usize::from(peer.0)).is_some_and(|p| p.internal);
        let ranked = |carried: &Attributes| {
            let preference = carried.local_pref.unwrap_or(LOCAL_PREF);
            (std::cmp::Reverse(preference), carried.as_path.length(), carried.origin)
        };
        let comparable = a.as_path.neighbour().is_some_and(|n| b.as_path.neighbour() == Some(n));
        let med = |carried: &Attributes| if comparable { carried.med.unwrap_or(0) } else { 0 };
        (ranked(a), med(a), internal(one.1)) < (ranked(b), med(b), internal(other.1))
    }
}
