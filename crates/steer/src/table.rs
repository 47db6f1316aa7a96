//! The class table: address -> class and scope.
//!
//! A class is a set of addresses that every steering map treats alike: the tuple of what the maps give,
//! each an [`Audience`]. Two entries of a map with the same list make one class, so that scopes are as
//! wide as is true.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use locate::Locator;
use locate::runs::Bits;
use model::Name;
use nodemap::{AdminMap, Override};

use crate::compile::{CLASSES_MAX, Compiler};
use crate::rules::Rules;
use crate::trie::{TooLarge, Trie};

/// First address and last address of the IPv4-mapped block `::ffff:0:0/96`.
const MAPPED: (u128, u128) = (0xffff_0000_0000, 0xffff_ffff_ffff);

/// Stands in the IPv6 runs for the IPv4-mapped block when IPv4 has more than one class: equal to no
/// class, so that no scope reaches across the block.
const MIXED: ClassId = ClassId(u16::MAX);

/// Leading bits of the first table for IPv4: 4 MiB, so that most addresses need nothing else.
const FIRST_BITS_V4: u8 = 20;
/// With more ranges than location databases give, such as those of a routing table: 64 MiB, since
/// nearly every smaller block would have borders in it.
const FIRST_BITS_ROUTED: u8 = 24;
const RANGES_ROUTED: usize = 700_000;
/// For IPv6: blocks given to registries are /12 to /23.
const FIRST_BITS_V6: u8 = 16;

/// A class of one [`ClassTable`]; means nothing to another table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(u16);

impl ClassId {
    /// The number, from 0 without gaps.
    pub fn get(self) -> u16 {
        self.0
    }

    pub(crate) fn of(number: u16) -> Self {
        Self(number)
    }
}

/// What the table says of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Its class.
    pub class: ClassId,
    /// Length of the shortest prefix around the address inside which all have that class; in the
    /// address's own family, also for IPv4-mapped addresses.
    pub scope: u8,
}

/// Why the maps could not be compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The maps tell more sets of addresses apart than the table can number.
    #[error(
        "the steering maps tell more than {CLASSES_MAX} classes of addresses apart: \
         give fewer different pool lists by ASN and country, or fewer maps"
    )]
    TooManyClasses,
    /// More ranges of addresses than the table can hold.
    #[error("there are too many different ranges of addresses: take smaller location databases")]
    TooManyRanges,
}

/// Address -> class and scope for all steering maps together. Made whole, then only read; share it
/// behind an `Arc`. Health and weights do not touch it.
#[derive(Debug)]
pub struct ClassTable {
    v4: Trie<u32>,
    v6: Trie<u128>,
    /// What it was compiled from, and when.
    rules: Rules,
    wall_ms: u64,
    audiences: BTreeMap<Name, MapAudiences>,
    classes: usize,
    /// Addresses of whom anything is known.
    known: [f64; 2],
}

/// What one map says of the addresses of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audience {
    /// Its pools, in order.
    pub pools: Vec<Name>,
    /// The nodes that could be reached by them, and do not serve such clients.
    pub refused: BTreeSet<Name>,
}

/// The audiences of one map.
#[derive(Debug)]
pub(crate) struct MapAudiences {
    /// The different ones.
    pub(crate) distinct: Vec<Audience>,
    /// By class: index into `distinct`.
    pub(crate) of_class: Arc<[u32]>,
}

impl MapAudiences {
    /// Index into `distinct` of the audience that clients of `class` are.
    pub(crate) fn index_of(&self, class: ClassId) -> Option<usize> {
        self.of_class.get(usize::from(class.0)).map(|i| *i as usize)
    }

    pub(crate) fn get(&self, class: ClassId) -> Option<&Audience> {
        self.distinct.get(self.index_of(class)?)
    }
}

impl From<TooLarge> for CompileError {
    fn from(_: TooLarge) -> Self {
        Self::TooManyRanges
    }
}

impl ClassTable {
    /// Joins what the maps and nodes of `map` say at `wall_ms` (unix milliseconds) of every address that
    /// `locator` can tell apart.
    ///
    /// # Errors
    /// When there are more classes, or ranges of addresses, than the table can number.
    pub fn compile(locator: &Locator, map: &AdminMap, wall_ms: u64) -> Result<Self, CompileError> {
        let rules = Rules::of(map);
        let mut compiler = Compiler::new(&rules, locator.routes(), wall_ms);
        // Runs are freed before the next ones are made: they are as large as what is made of them.
        let v4_runs = compiler.v4(locator)?;
        let is_routed = v4_runs.len() > RANGES_ROUTED;
        let first_bits = if is_routed { FIRST_BITS_ROUTED } else { FIRST_BITS_V4 };
        let mapped = match v4_runs.as_slice() {
            [(_, only)] => *only,
            _ => MIXED,
        };
        let v4 = Trie::build(first_bits, v4_runs)?;
        let mut v6_runs = compiler.v6(locator)?;
        put_mapped(&mut v6_runs, mapped);
        let known = compiler.known();
        let (classes, audiences) = compiler.finish();
        let v6 = Trie::build(FIRST_BITS_V6, v6_runs)?;
        Ok(Self { v4, v6, rules, wall_ms, audiences, classes, known })
    }

    /// The class of `address` and the shortest prefix of that class around it (S2).
    pub fn lookup(&self, address: IpAddr) -> Hit {
        match address {
            IpAddr::V4(v4) => self.v4.find(v4.to_bits()),
            IpAddr::V6(v6) => self.lookup_v6(v6.to_bits()),
        }
    }

    /// The class for a client network, as EDNS Client Subnet gives it: that of the network's first
    /// address. The scope may be longer than the network (RFC 7871 section 7.2.1); it is always
    /// true for every address inside it.
    ///
    /// A network of length 0 carries no client (RFC 7871 section 7.1.2): look the resolver up instead.
    pub fn lookup_net(&self, network: IpNet) -> Hit {
        self.lookup(network.network())
    }

    /// The ordered pools that `map` gives to `class`.
    pub fn pools(&self, map: &str, class: ClassId) -> Option<&[Name]> {
        self.audience(map, class).map(|audience| audience.pools.as_slice())
    }

    /// What `map` says of clients of `class`.
    pub fn audience(&self, map: &str, class: ClassId) -> Option<&Audience> {
        self.audiences.get(map)?.get(class)
    }

    /// Whether this table was compiled from the rules of `map`: if not, a changed node map needs a new
    /// table.
    pub fn is_of(&self, map: &AdminMap) -> bool {
        self.rules == Rules::of(map)
    }

    /// Until when it holds, unix milliseconds: then an override expires, and a table compiled from the
    /// same map is another one. `None`: for ever.
    pub fn holds_until_ms(&self) -> Option<u64> {
        let rules = self.rules.maps().values().flat_map(|map| &map.overrides);
        rules.filter(|rule| rule.holds_at(self.wall_ms)).filter_map(|rule| rule.expires_ms).min()
    }

    /// The override of `map` that decides for an address.
    pub fn override_at(&self, map: &str, address: IpAddr) -> Option<&Override> {
        self.rules.maps().get(map)?.override_at(address, self.wall_ms)
    }

    /// All of IPv4, ascending from address zero: where each range of one class begins.
    pub fn ranges_v4(&self) -> impl Iterator<Item = (u32, ClassId)> + '_ {
        self.v4.runs()
    }

    /// The same of IPv6, where the IPv4-mapped block is one range of a class of its own, unless all of
    /// IPv4 is of one.
    pub fn ranges_v6(&self) -> impl Iterator<Item = (u128, ClassId)> + '_ {
        self.v6.runs()
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Number of address ranges, IPv4 and IPv6.
    pub fn ranges(&self) -> (usize, usize) {
        (self.v4.len(), self.v6.len())
    }

    /// Bytes of memory held by the address ranges.
    pub fn memory_bytes(&self) -> usize {
        self.v4.memory_bytes().saturating_add(self.v6.memory_bytes())
    }

    /// How many IPv4 and IPv6 addresses there are of which a database or a route says anything.
    pub(crate) fn known(&self) -> [f64; 2] {
        self.known
    }

    /// The names of the maps.
    pub(crate) fn maps(&self) -> impl Iterator<Item = &str> {
        self.audiences.keys().map(Name::as_str)
    }

    pub(crate) fn audiences_of(&self, map: &Name) -> Option<&MapAudiences> {
        self.audiences.get(map)
    }

    fn lookup_v6(&self, address: u128) -> Hit {
        if (MAPPED.0..=MAPPED.1).contains(&address) {
            // The low 32 bits are the IPv4 address.
            let inner = self.v4.find(address as u32);
            if inner.scope > 0 {
                return Hit { scope: inner.scope.saturating_add(96), ..inner };
            }
            // All of IPv4 is one class, which then stands in the IPv6 runs too.
        }
        self.v6.find(address)
    }
}

/// Puts the IPv4-mapped block into the IPv6 runs, as a run of the class `mapped`.
fn put_mapped(v6: &mut Vec<(u128, ClassId)>, mapped: ClassId) {
    let from = v6.partition_point(|(first, _)| *first < MAPPED.0);
    let to = v6.partition_point(|(first, _)| *first <= MAPPED.1);
    let behind = to.checked_sub(1).and_then(|last| v6.get(last)).map(|(_, class)| *class);
    let after = MAPPED.1.after().zip(behind);
    // Where the IPv6 runs begin anew right behind the block, that is the run behind it.
    let after = after.filter(|(after, _)| v6.get(to).is_none_or(|(first, _)| first != after));
    v6.splice(from..to, std::iter::once((MAPPED.0, mapped)).chain(after));
}
