//! From a plan to the nodes of one answer.
//!
//! `answers` nodes of the pool that answers, each once, the first chosen by weight and each further one
//! by weight among those left; behind them `answers_elsewhere` nodes of the pools further on, in their
//! order. Chosen by dice, or, where the project is sticky, by weighted rendezvous hashing (Schindelhauer
//! and Schomaker, 2005): each node gets the score -ln(u) / weight, with u in (0, 1) from the hash of the
//! announced network and the node's name, and the lowest scores are taken. So every address inside the
//! scope gets the same (S2), the chances are those of the weights, and a node that comes or goes moves
//! only the networks that it gains or loses.
//!
//! Where a plan of the node map has several pools answer, one of them is chosen first, by its share: the
//! nodes of the answer are its own, as long as it has enough.
//!
//! Allocates nothing.

use std::net::IpAddr;

use model::{Dice, Now};
use nodemap::published::SHARE_PPM;

use crate::guard::Turn;
use crate::plan::{Candidate, Plan, Tier};

/// Most nodes in one answer.
pub const ANSWERS_MAX: usize = 8;

/// Who is answered, and when.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// An address of the client's network.
    pub address: IpAddr,
    /// Length of the network for which the answer holds: [`crate::Hit::scope`] of the address.
    pub scope: u8,
    /// The moment.
    pub now: Now,
}

/// The nodes of one answer, in the order in which they are given.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice<'a> {
    nodes: [Option<&'a Candidate>; ANSWERS_MAX],
    len: usize,
    /// The place, among the pools of the node map, of the one that answers.
    pool: Option<u16>,
}

impl<'a> Choice<'a> {
    /// The nodes, at most [`ANSWERS_MAX`]; each once.
    pub fn iter(&self) -> impl Iterator<Item = &'a Candidate> + '_ {
        self.nodes.iter().take(self.len).filter_map(|node| *node)
    }

    /// The node that the weights chose.
    pub fn first(&self) -> Option<&'a Candidate> {
        self.iter().next()
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none: only where the plan has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The place of the pool that answers among those of the node map, when one alone does.
    pub fn pool(&self) -> Option<u16> {
        self.pool
    }

    fn push(&mut self, node: &'a Candidate) {
        if let Some(place) = self.nodes.get_mut(self.len) {
            *place = Some(node);
            self.len = self.len.saturating_add(1);
        }
    }

    fn has(&self, node: &Candidate) -> bool {
        // A node may be in several pools.
        self.iter().any(|chosen| chosen.hash == node.hash)
    }
}

impl Plan {
    /// The nodes of one answer by the project's policy. Without candidates it is empty.
    ///
    /// Where the project has a guard, it counts them.
    pub fn choose(&self, dice: &mut Dice, client: &Client) -> Choice<'_> {
        let mut method = match self.policy.sticky {
            true => Method::Sticky(network_hash(client.address, client.scope)),
            false => Method::Dice(dice),
        };
        let Some(guard) = &self.guard else { return self.fill(&mut method, &mut Gate::Open) };
        let turn = guard.turn(client.now);
        let mut gate = Gate::Guarded { turn, has_passed_over: false };
        let mut choice = self.fill(&mut method, &mut gate);
        if choice.is_empty() && !self.candidates.is_empty() {
            turn.overruled();
            choice = self.fill(&mut method, &mut Gate::Open);
        } else if matches!(gate, Gate::Guarded { has_passed_over: true, .. }) {
            turn.spilled();
        }
        turn.count(choice.iter());
        choice
    }

    fn fill(&self, method: &mut Method<'_>, gate: &mut Gate<'_>) -> Choice<'_> {
        let mut choice = Choice::default();
        let (own, number) = if self.tiers.is_empty() {
            (self.candidates.as_slice(), self.numbers.1)
        } else {
            let at = method.tier(&self.tiers);
            (self.of_tier(at), self.tiers.get(at).and_then(|tier| tier.number))
        };
        choice.pool = number;
        let wanted = self.policy.answers.min(own.len());
        method.fill(&mut choice, own, wanted, gate);
        // What the guard took away here, and what the project wants of further pools.
        let places = wanted.saturating_add(self.policy.elsewhere);
        for at in 0..self.tiers.len() {
            let left = places.saturating_sub(choice.len);
            method.fill(&mut choice, self.of_tier(at), left, gate);
        }
        for pool in &self.further {
            let left = places.saturating_sub(choice.len);
            method.fill(&mut choice, pool, left, gate);
        }
        choice
    }
}

/// Who may be chosen.
enum Gate<'a> {
    /// Everybody.
    Open,
    /// Who has room.
    Guarded { turn: Turn<'a>, has_passed_over: bool },
}

impl Gate<'_> {
    fn has_room(&self, node: &Candidate) -> bool {
        match self {
            Self::Open => true,
            Self::Guarded { turn, .. } => turn.has_room(node),
        }
    }

    /// Whether a node that was chosen may be given.
    fn lets(&mut self, node: &Candidate) -> bool {
        match self {
            Self::Open => true,
            Self::Guarded { turn, has_passed_over } => {
                let has_room = turn.has_room(node);
                *has_passed_over |= !has_room;
                has_room
            }
        }
    }
}

/// How nodes are chosen.
enum Method<'d> {
    Dice(&'d mut Dice),
    /// By the hash of the client's network.
    Sticky(u64),
}

impl Method<'_> {
    /// Adds up to `count` of `candidates`.
    fn fill<'a>(
        &mut self,
        choice: &mut Choice<'a>,
        candidates: &'a [Candidate],
        count: usize,
        gate: &mut Gate<'_>,
    ) {
        for _ in 0..count.min(candidates.len()) {
            let free = candidates.iter().filter(|node| !choice.has(node));
            let chosen = match self.one(candidates.len(), free.clone()) {
                Some(node) if gate.lets(node) => Some(node),
                None => None,
                // It has no room: chosen anew among those that have some, the chances are the same as
                // if it had never been there.
                Some(_) => self.one(candidates.len(), free.filter(|node| gate.has_room(node))),
            };
            match chosen {
                Some(node) => choice.push(node),
                None => return,
            }
        }
    }

    /// One of several pools that answer: its place.
    fn tier(&mut self, tiers: &[Tier]) -> usize {
        let at = match self {
            Self::Dice(dice) => dice.below(u64::from(SHARE_PPM)),
            // Apart from what chooses nodes inside: else each pool would see a part of the scores only.
            Self::Sticky(network) => {
                let hash = mix(network.rotate_left(32));
                hash.checked_rem(u64::from(SHARE_PPM)).unwrap_or_default()
            }
        };
        let chosen = tiers.iter().position(|tier| at < u64::from(tier.until_ppm));
        chosen.unwrap_or(tiers.len().saturating_sub(1))
    }

    /// One of `free`, which are of `count` candidates.
    fn one<'a>(
        &mut self,
        count: usize,
        mut free: impl Iterator<Item = &'a Candidate> + Clone,
    ) -> Option<&'a Candidate> {
        match self {
            _ if count == 1 => free.next(),
            Self::Dice(dice) => {
                let at = dice.pick(free.clone().map(|node| node.weight))?;
                free.nth(at)
            }
            Self::Sticky(network) => {
                let scored = free.map(|node| (score(*network, node), node));
                scored.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, node)| node)
            }
        }
    }
}

/// Exponentially distributed with the rate of the node's weight: the least of several is each one's
/// with the chance of its weight.
fn score(network: u64, node: &Candidate) -> f64 {
    const STEPS: f64 = (1u64 << 53) as f64;
    // Neither 0 nor 1.
    let u = ((mix(network ^ node.hash) >> 11) as f64 + 0.5) / STEPS;
    -u.ln() / f64::from(node.weight)
}

/// The same for every address of one network, whatever host asks.
fn network_hash(address: IpAddr, scope: u8) -> u64 {
    let (address, scope, family) = match (address, address.to_canonical()) {
        (IpAddr::V4(v4), _) => (u128::from(v4.to_bits()) << 96, scope, 4),
        // An IPv4-mapped network is that IPv4 network.
        (IpAddr::V6(_), IpAddr::V4(v4)) if scope >= 96 => {
            (u128::from(v4.to_bits()) << 96, scope.saturating_sub(96), 4)
        }
        (IpAddr::V6(v6), _) => (v6.to_bits(), scope, 6),
    };
    let hosts = u128::MAX.checked_shr(u32::from(scope)).unwrap_or(0);
    let network = address & !hosts;
    let (high, low) = ((network >> 64) as u64, network as u64);
    mix(mix(mix(high) ^ low) ^ (u64::from(scope) << 8 | family))
}

/// FNV-1a, mixed: the same on every host and in every version.
pub(crate) fn stable_hash(bytes: &[u8]) -> u64 {
    let fnv = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mix(fnv)
}

/// The finaliser of SplitMix64: every bit of the result depends on every bit of `x`.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
