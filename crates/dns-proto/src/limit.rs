//! How many answers of a sort a network gets over UDP, where nobody knows whether the sender of a
//! query is who it says it is: a forged flood shall not be turned on somebody else by us.
//!
//! Each network (IPv4 /24, IPv6 /56) has tokens for each kind of answer, for negative ones in each
//! zone. When they are used up, most answers are dropped; each [`Rates::slip`]th is cut to its
//! header and question with TC set, so that a real client comes by TCP, or is BADCOOKIE where the
//! client speaks cookies, so that it comes back with one. Over TCP, with a cookie of ours, and from
//! this host, nobody is limited.
//!
//! The state is one table of fixed size ([`Limiter::BYTES`]) that all threads share without locks.
//! A place holds the moment at which the tokens of its network would be complete again (the generic
//! cell rate algorithm: one number is the whole state), a fingerprint, and the count of limited
//! answers. Two networks share tokens only when 20 bits of a keyed hash agree beside their set; a
//! set that is full forgets the network that is nearest to complete. Whoever is forgotten begins
//! anew: the table errs towards answering.

use std::hash::Hasher as _;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use ipnet::IpNet;
use model::Now;
use siphasher::sip::SipHasher13;

use crate::outcome::Sort;

mod place;

use place::Place;

/// Prefix lengths of what counts as one network.
const NETWORK_V4: u8 = 24;
const NETWORK_V6: u8 = 56;
/// Sets of places; a power of two.
const SETS: usize = 8192;
const SET_MASK: u64 = SETS as u64 - 1;
/// Places of a set: those of one line of the processor's cache.
const WAYS: usize = 8;
/// Networks that are remembered for people.
const TOP: usize = 16;
/// Tries to write a place that other threads write too; after them the answer is let through.
const TRIES: usize = 4;

/// Kinds of answers that have tokens of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// With data.
    Answers,
    /// No such name, or nothing of that type; in each zone for itself.
    Negative,
    /// Malformed, not implemented, failures, cookies alone.
    Errors,
    /// Refused.
    Refused,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Answers, Self::Negative, Self::Errors, Self::Refused];

    /// The kind that answers of `sort` are of.
    pub fn of(sort: Sort) -> Self {
        match sort {
            Sort::Steered
            | Sort::Spilled
            | Sort::AllDown
            | Sort::Fixed
            | Sort::Referral
            | Sort::MinimalAny
            | Sort::Transfer
            | Sort::Notify => Self::Answers,
            Sort::NoData | Sort::NxDomain | Sort::NxName => Self::Negative,
            Sort::Refused => Self::Refused,
            Sort::FormErr
            | Sort::NotAuth
            | Sort::NotImp
            | Sort::BadVers
            | Sort::ServFail
            | Sort::NotReady
            | Sort::Cookie
            | Sort::BadCookie => Self::Errors,
        }
    }

    /// The word, stable for metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Answers => "answers",
            Self::Negative => "negative",
            Self::Errors => "errors",
            Self::Refused => "refused",
        }
    }
}

/// What networks may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Answers a second, by number of the kind; 0: any number.
    pub per_second: [u32; Kind::ALL.len()],
    /// Each how manieth limited answer is cut instead of dropped; 0: none, 1: all.
    pub slip: u8,
    /// Networks that are never limited.
    pub exempt: Vec<IpNet>,
}

/// Most that [`Rates::slip`] may be.
pub const SLIP_MAX: u8 = place::COUNT_MAX;
/// Most that a rate may be: what the clock of the table can tell apart.
pub const PER_SECOND_MAX: u32 = 100_000;

impl Default for Rates {
    /// Far more than resolvers ask of one name server, far less than is worth forging queries for:
    /// 1,000 answers of 100 bytes are 0.8 Mbit/s.
    fn default() -> Self {
        Self { per_second: [1000, 200, 100, 100], slip: 2, exempt: Vec::new() }
    }
}

/// What may be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Granted {
    Whole,
    /// Only that there is an answer.
    Cut,
    Nothing,
}

/// One line of the processor's cache, so that a look-up is one access to memory.
#[repr(align(64))]
#[derive(Debug, Default)]
struct Set([AtomicU64; WAYS]);

/// The table, and the networks that were limited most.
#[derive(Debug)]
pub struct Limiter {
    rates: Rates,
    sets: Box<[Set]>,
    seed: [u8; 16],
    top: Mutex<Vec<Limited>>,
}

/// A network that was limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limited {
    /// The network.
    pub network: IpNet,
    /// Answers that it did not get whole, at most: those of a network that it took the place of
    /// are among them.
    pub answers: u64,
    /// When it was limited last, unix time in milliseconds.
    pub last_ms: u64,
}

impl Limiter {
    /// Size of the table.
    pub const BYTES: usize = SETS * size_of::<Set>();

    /// A limiter whose table nobody can fill on purpose who does not know `seed`.
    pub fn new(rates: Rates, seed: [u8; 16]) -> Self {
        let sets = (0..SETS).map(|_| Set::default()).collect();
        Self { rates, sets, seed, top: Mutex::default() }
    }

    /// What they may have.
    pub fn rates(&self) -> &Rates {
        &self.rates
    }

    /// The networks that were limited most, the first most of all.
    pub fn top(&self) -> Vec<Limited> {
        let mut top = self.top.lock().unwrap_or_else(PoisonError::into_inner).clone();
        top.sort_by_key(|limited| std::cmp::Reverse(limited.answers));
        top
    }

    /// Takes a token for an answer of `kind` to `peer`; negative ones count in `zone`.
    pub(crate) fn take(&self, peer: IpAddr, kind: Kind, zone: usize, now: Now) -> Granted {
        let rate = self.rates.per_second.get(kind as usize).copied().unwrap_or(0);
        // This host's queries have one network: their threads would wait for each other at its place.
        if rate == 0 || peer.to_canonical().is_loopback() {
            return Granted::Whole;
        }
        let network = network_of(peer);
        let hash = self.hash(network, kind, if kind == Kind::Negative { zone } else { 0 });
        let Some(count) = self.spend(hash, rate, now) else { return Granted::Whole };
        let peer = peer.to_canonical();
        if self.rates.exempt.iter().any(|net| net.contains(&peer)) {
            return Granted::Whole;
        }
        self.note(network, now);
        if self.rates.slip > 0 && count == 0 { Granted::Cut } else { Granted::Nothing }
    }

    fn hash(&self, network: IpNet, kind: Kind, zone: usize) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.seed);
        match network.addr() {
            IpAddr::V4(v4) => hasher.write(&v4.octets()),
            IpAddr::V6(v6) => hasher.write(&v6.octets()),
        }
        hasher.write_u64((zone as u64) << 8 | kind as u64);
        hasher.finish()
    }

    /// Takes a token; without one, the count of limited answers from 0 on.
    fn spend(&self, hash: u64, rate: u32, now: Now) -> Option<u8> {
        let set = self.sets.get(usize::try_from(hash & SET_MASK).ok()?)?;
        let slip = self.rates.slip.max(1);
        for _ in 0..TRIES {
            let mut oldest: Option<(&AtomicU64, u64, u64)> = None;
            let mut own = None;
            for cell in &set.0 {
                let value = cell.load(Ordering::Relaxed);
                if Place(value).is_of(hash) {
                    own = Some((cell, value));
                    break;
                }
                let ahead = Place(value).ahead(now);
                if oldest.is_none_or(|(_, _, least)| ahead < least) {
                    oldest = Some((cell, value, ahead));
                }
            }
            let (cell, before, place) = match (own, oldest) {
                (Some((cell, value)), _) => (cell, value, Place(value)),
                (None, Some((cell, value, _))) => (cell, value, Place::new(hash, now)),
                (None, None) => return None,
            };
            let (after, limited) = place.spend(rate, slip, now);
            let wrote =
                cell.compare_exchange_weak(before, after.0, Ordering::Relaxed, Ordering::Relaxed);
            if wrote.is_ok() {
                return limited;
            }
        }
        None
    }

    /// Counts a limited answer for people (the algorithm "space saving": whoever is new takes the
    /// place, and the count, of the least). Nobody waits for it.
    fn note(&self, network: IpNet, now: Now) {
        let Ok(mut top) = self.top.try_lock() else { return };
        let new = Limited { network, answers: 0, last_ms: 0 };
        let at = match top.iter().position(|limited| limited.network == network) {
            Some(at) => at,
            None if top.len() < TOP => {
                top.push(new);
                top.len().saturating_sub(1)
            }
            None => {
                let least = top.iter().enumerate().min_by_key(|(_, limited)| limited.answers);
                let Some((at, answers)) = least.map(|(at, least)| (at, least.answers)) else {
                    return;
                };
                if let Some(place) = top.get_mut(at) {
                    *place = Limited { answers, ..new };
                }
                at
            }
        };
        if let Some(limited) = top.get_mut(at) {
            limited.answers = limited.answers.saturating_add(1);
            limited.last_ms = now.wall_ms;
        }
    }
}

/// The network that `peer` is counted by.
fn network_of(peer: IpAddr) -> IpNet {
    let peer = peer.to_canonical();
    let length = if peer.is_ipv4() { NETWORK_V4 } else { NETWORK_V6 };
    IpNet::new(peer, length).map_or_else(|_| peer.into(), |net| net.trunc())
}

#[cfg(test)]
mod tests;
