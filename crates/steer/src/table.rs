//! The class table: address -> class and scope.
//!
//! A class is a set of addresses that every steering map treats alike: the tuple of the pool lists
//! the maps give. Two entries of a map with the same list make one class, so that scopes are as
//! wide as is true.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use ipnet::IpNet;
use locate::runs::{Bits, Run, Runs, prefix_len};
use locate::{Evidence, Locator};
use model::{Asn, Continent, CountryCode, Name};
use nodemap::SteeringMap;

/// First address and last address of the IPv4-mapped block `::ffff:0:0/96`.
const MAPPED: (u128, u128) = (0xffff_0000_0000, 0xffff_ffff_ffff);

/// Stands in the IPv6 runs for the IPv4-mapped block when IPv4 has more than one class: equal to no
/// class, so that no scope reaches across the block.
const MIXED: ClassId = ClassId(u16::MAX);

/// Most classes a table can tell apart; `MIXED` takes one number.
const CLASSES_MAX: usize = u16::MAX as usize;

/// A class of one [`ClassTable`]; means nothing to another table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(u16);

impl ClassId {
    /// The number, from 0 without gaps.
    pub fn get(self) -> u16 {
        self.0
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
}

/// Address -> class and scope for all steering maps together. Made whole, then only read; share it
/// behind an `Arc`. Health and weights do not touch it.
#[derive(Debug)]
pub struct ClassTable {
    v4: Runs<u32, ClassId>,
    v6: Runs<u128, ClassId>,
    /// What it was compiled from.
    maps: BTreeMap<Name, SteeringMap>,
    lists: BTreeMap<Name, MapLists>,
    classes: usize,
}

/// The pool lists of one map.
#[derive(Debug)]
pub(crate) struct MapLists {
    /// The different ones.
    pub(crate) distinct: Vec<Vec<Name>>,
    /// By class: index into `distinct`.
    of_class: Vec<u32>,
}

impl MapLists {
    /// Index into `distinct` of the list that holds for `class`.
    pub(crate) fn index_of(&self, class: ClassId) -> Option<usize> {
        self.of_class.get(usize::from(class.0)).map(|i| *i as usize)
    }
}

impl ClassTable {
    /// Joins what `maps` say of every address that `locator` can tell apart.
    ///
    /// # Errors
    /// When there are more classes than the table can number.
    pub fn compile(
        locator: &Locator,
        maps: &BTreeMap<Name, SteeringMap>,
    ) -> Result<Self, CompileError> {
        let mut compiler = Compiler::new(maps);
        let v4 =
            compiler.runs(locator.ranges_v4().map(|(first, _, evidence)| (first, evidence)))?;
        let v6 =
            compiler.runs(locator.ranges_v6().map(|(first, _, evidence)| (first, evidence)))?;
        let v6 = with_mapped(&v6, &v4);
        let classes = compiler.by_lists.len();
        let lists = compiler.finish();
        Ok(Self { v4, v6, maps: maps.clone(), lists, classes })
    }

    /// The class of `address` and the shortest prefix of that class around it (S2).
    pub fn lookup(&self, address: IpAddr) -> Hit {
        match address {
            IpAddr::V4(v4) => hit(v4.to_bits(), self.v4.find(v4.to_bits())),
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
        let lists = self.lists.get(map)?;
        lists.distinct.get(lists.index_of(class)?).map(Vec::as_slice)
    }

    /// Whether this table was compiled from `maps`: if not, a changed node map needs a new table.
    pub fn is_of(&self, maps: &BTreeMap<Name, SteeringMap>) -> bool {
        self.maps == *maps
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

    pub(crate) fn lists_of(&self, map: &Name) -> Option<&MapLists> {
        self.lists.get(map)
    }

    fn lookup_v6(&self, address: u128) -> Hit {
        if (MAPPED.0..=MAPPED.1).contains(&address) {
            // The low 32 bits are the IPv4 address.
            let v4 = address as u32;
            let inner = hit(v4, self.v4.find(v4));
            if inner.scope > 0 {
                return Hit { scope: inner.scope.saturating_add(96), ..inner };
            }
            // All of IPv4 is one class, which then stands in the IPv6 runs too.
        }
        hit(address, self.v6.find(address))
    }
}

fn hit<K: Bits>(address: K, run: Option<Run<K, ClassId>>) -> Hit {
    match run {
        Some(run) => Hit { class: run.value, scope: prefix_len(address, run.first, run.last) },
        // Never: runs cover the whole space.
        None => Hit { class: ClassId(0), scope: 0 },
    }
}

/// The IPv6 runs with the IPv4-mapped block cut out, or filled when IPv4 is of one class.
fn with_mapped(v6: &Runs<u128, ClassId>, v4: &Runs<u32, ClassId>) -> Runs<u128, ClassId> {
    let mapped = match (v4.len(), v4.find(0)) {
        (1, Some(run)) => run.value,
        _ => MIXED,
    };
    let (below, above): (Vec<_>, Vec<_>) =
        v6.iter().map(|run| (run.first, run.value)).partition(|(first, _)| *first < MAPPED.0);
    let after = MAPPED.1.after().and_then(|after| Some((after, v6.find(after)?.value)));
    let above = above.into_iter().filter(|(first, _)| *first > MAPPED.1);
    Runs::from_ascending(below.into_iter().chain([(MAPPED.0, mapped)]).chain(after).chain(above))
}

/// One map, ready to be asked for any evidence: entry -> index of its pool list.
struct MapIndex<'a> {
    distinct: Vec<&'a [Name]>,
    default: u32,
    continent: HashMap<Continent, u32>,
    country: HashMap<CountryCode, u32>,
    asn: HashMap<Asn, u32>,
}

impl<'a> MapIndex<'a> {
    fn new(map: &'a SteeringMap) -> Self {
        let mut distinct: Vec<&[Name]> = Vec::new();
        let mut numbers: HashMap<&'a [Name], u32> = HashMap::new();
        let mut number = |list: &'a Vec<Name>| {
            *numbers.entry(list).or_insert_with(|| {
                distinct.push(list);
                u32::try_from(distinct.len().saturating_sub(1)).unwrap_or(u32::MAX)
            })
        };
        let default = number(&map.default);
        let continent = map.continent.iter().map(|(k, list)| (*k, number(list))).collect();
        let country = map.country.iter().map(|(k, list)| (*k, number(list))).collect();
        let asn = map.asn.iter().map(|(k, list)| (*k, number(list))).collect();
        Self { distinct, default, continent, country, asn }
    }

    /// The list for `evidence`: ASN before country before continent before default.
    fn list_for(&self, evidence: Evidence) -> u32 {
        let asn = evidence.asn.and_then(|asn| self.asn.get(&asn));
        let country = || evidence.country.and_then(|country| self.country.get(&country));
        let continent = || evidence.continent.and_then(|continent| self.continent.get(&continent));
        asn.or_else(country).or_else(continent).copied().unwrap_or(self.default)
    }
}

struct Compiler<'a> {
    names: Vec<&'a Name>,
    maps: Vec<MapIndex<'a>>,
    by_lists: HashMap<Vec<u32>, ClassId>,
    by_evidence: HashMap<Evidence, ClassId>,
}

impl<'a> Compiler<'a> {
    fn new(maps: &'a BTreeMap<Name, SteeringMap>) -> Self {
        Self {
            names: maps.keys().collect(),
            maps: maps.values().map(MapIndex::new).collect(),
            by_lists: HashMap::new(),
            by_evidence: HashMap::new(),
        }
    }

    fn runs<K: Bits>(
        &mut self,
        ranges: impl Iterator<Item = (K, Evidence)>,
    ) -> Result<Runs<K, ClassId>, CompileError> {
        let mut failed = None;
        let runs = Runs::from_ascending(ranges.map_while(|(first, evidence)| {
            self.class_of(evidence).map(|class| (first, class)).map_err(|e| failed = Some(e)).ok()
        }));
        failed.map_or(Ok(runs), Err)
    }

    fn class_of(&mut self, evidence: Evidence) -> Result<ClassId, CompileError> {
        if let Some(class) = self.by_evidence.get(&evidence) {
            return Ok(*class);
        }
        let lists: Vec<u32> = self.maps.iter().map(|map| map.list_for(evidence)).collect();
        let next = self.by_lists.len();
        let class = match self.by_lists.get(&lists) {
            Some(class) => *class,
            None if next < CLASSES_MAX => {
                let class = ClassId(u16::try_from(next).unwrap_or(u16::MAX));
                self.by_lists.insert(lists, class);
                class
            }
            None => return Err(CompileError::TooManyClasses),
        };
        self.by_evidence.insert(evidence, class);
        Ok(class)
    }

    fn finish(self) -> BTreeMap<Name, MapLists> {
        let mut tuples: Vec<(ClassId, Vec<u32>)> =
            self.by_lists.into_iter().map(|(lists, class)| (class, lists)).collect();
        tuples.sort_unstable_by_key(|(class, _)| *class);
        let of_map =
            |i: usize| tuples.iter().map(|(_, lists)| lists.get(i).copied().unwrap_or(0)).collect();
        self.names
            .into_iter()
            .zip(self.maps)
            .enumerate()
            .map(|(i, (name, map))| {
                let distinct = map.distinct.into_iter().map(<[Name]>::to_vec).collect();
                (name.clone(), MapLists { distinct, of_class: of_map(i) })
            })
            .collect()
    }
}
