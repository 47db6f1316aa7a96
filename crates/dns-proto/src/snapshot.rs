//! Node map and steering -> names and what they hold.
//!
//! Built off the query path and swapped whole. One table holds the names of all zones, empty
//! non-terminals included, so that most questions take one look; only a miss walks up the name to
//! find the zone (RFC 1034 section 4.3.2, RFC 4592 section 2.2.2).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use model::{HostName, Name};
use nodemap::{AdminMap, AllDown, Project, SteeringMap};
use steer::Steering;

use crate::records::{RecordSet, negative_soa};
use crate::reply::Records;
use crate::wire::{ancestry, child, wire_name};

/// TTL of the answer to queries for everything, seconds.
const MINIMAL_ANY_TTL_S: u32 = 3600;

/// Everything that answers come from. Immutable.
#[derive(Debug)]
pub struct Snapshot {
    names: HashMap<Vec<u8>, Entry>,
    zones: Vec<Zone>,
    steering: Option<Arc<Steering>>,
    minimal_any: RecordSet,
    generation: u64,
}

/// What one name holds.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Index into the zones.
    zone: usize,
    /// Makes A and AAAA of this name steered.
    pub(crate) steered: Option<Steered>,
    sets: Vec<RecordSet>,
}

/// A project's name.
#[derive(Debug)]
pub(crate) struct Steered {
    pub(crate) project: Name,
    pub(crate) ttl_s: u32,
}

/// One zone, as negative answers need it.
#[derive(Debug)]
pub(crate) struct Zone {
    /// Length of the apex name in wire form.
    pub(crate) apex_bytes: usize,
    /// The SOA record without its owner.
    pub(crate) negative_soa: Vec<u8>,
}

/// Where a question leads.
pub(crate) struct Found<'a> {
    pub(crate) zone: &'a Zone,
    /// `None`: the zone has no such name.
    pub(crate) entry: Option<&'a Entry>,
}

impl Entry {
    /// Whether the name exists only because of names below it.
    pub(crate) fn is_empty(&self) -> bool {
        self.steered.is_none() && self.sets.is_empty()
    }

    pub(crate) fn set(&self, rtype: u16) -> Option<&RecordSet> {
        self.sets.iter().find(|set| set.rtype == rtype)
    }
}

impl Snapshot {
    /// The snapshot of a host that has no node map yet: everything is SERVFAIL with "Not Ready".
    pub fn not_ready() -> Self {
        Self {
            names: HashMap::new(),
            zones: Vec::new(),
            steering: None,
            minimal_any: RecordSet::minimal_any(MINIMAL_ANY_TTL_S),
            generation: 0,
        }
    }

    /// The names of the node map that `steering` was made of.
    pub fn build(steering: Arc<Steering>) -> Self {
        let generation = steering.map().generation;
        let mut builder = Builder::new(&steering.map().map, serial(generation));
        builder.add_zone_data();
        builder.add_projects();
        builder.add_empty_non_terminals();
        let Builder { names, zones, .. } = builder;
        Self { names, zones, steering: Some(steering), generation, ..Self::not_ready() }
    }

    /// Generation of the node map; 0 when there is none.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Number of names, empty non-terminals included.
    pub fn names(&self) -> usize {
        self.names.len()
    }

    /// Number of zones.
    pub fn zones(&self) -> usize {
        self.zones.len()
    }

    /// The steering; `None` without a node map.
    pub fn steering(&self) -> Option<&Steering> {
        self.steering.as_deref()
    }

    pub(crate) fn minimal_any(&self) -> Records<'_> {
        self.minimal_any.answer()
    }

    /// Looks `name` (wire form, lower case) up; `None` outside all zones.
    pub(crate) fn find(&self, name: &[u8]) -> Option<Found<'_>> {
        let mut exact = true;
        for name in ancestry(name) {
            if let Some(entry) = self.names.get(name) {
                let zone = self.zones.get(entry.zone)?;
                return Some(Found { zone, entry: exact.then_some(entry) });
            }
            exact = false;
        }
        None
    }
}

/// SOA serial: the generation in seconds. Wraps as serials do (RFC 1982).
fn serial(generation: u64) -> u32 {
    let wrapped = (generation / 1000) & u64::from(u32::MAX);
    u32::try_from(wrapped).unwrap_or(0)
}

struct Builder<'a> {
    map: &'a AdminMap,
    serial: u32,
    /// Longest first, so that the first zone that holds a name is the closest.
    apexes: Vec<&'a HostName>,
    zones: Vec<Zone>,
    names: HashMap<Vec<u8>, Entry>,
}

impl<'a> Builder<'a> {
    fn new(map: &'a AdminMap, serial: u32) -> Self {
        let mut apexes: Vec<&HostName> = map.zones.keys().collect();
        apexes.sort_by_key(|apex| std::cmp::Reverse(apex.as_str().len()));
        let zones = apexes.iter().filter_map(|apex| {
            let zone = map.zones.get(*apex)?;
            let apex_bytes = wire_name(apex).len();
            Some(Zone { apex_bytes, negative_soa: negative_soa(zone, serial) })
        });
        Self { map, serial, zones: zones.collect(), apexes, names: HashMap::new() }
    }

    /// SOA, NS, hosts and texts.
    fn add_zone_data(&mut self) {
        for (apex, zone) in &self.map.zones {
            self.add(apex, [RecordSet::authority(zone, self.serial)]);
            self.add(apex, [RecordSet::name_servers(apex, zone)]);
            for (host, addresses) in &zone.hosts {
                self.add(host, RecordSet::addresses(addresses, zone.ttl_s));
            }
            for (name, texts) in &zone.txt {
                self.add(name, [RecordSet::texts(texts, zone.ttl_s)]);
            }
        }
    }

    /// The steered names and, below each, its nodes.
    fn add_projects(&mut self) {
        for (name, project) in &self.map.projects {
            let wire = wire_name(&project.name);
            let Some(zone) = self.zone_of(&project.name) else { continue };
            for node in self.nodes_of(project) {
                let addresses = self.map.nodes.get(&node).map(|node| node.addresses.as_slice());
                if let (Some(wire), Some(addresses)) = (child(&node, &wire), addresses) {
                    let sets = RecordSet::addresses(addresses, project.ttl_s);
                    add_sets(self.names.entry(wire).or_insert_with(|| Entry::new(zone)), sets);
                }
            }
            let entry = self.names.entry(wire).or_insert_with(|| Entry::new(zone));
            entry.steered = Some(Steered { project: name.clone(), ttl_s: project.ttl_s });
        }
    }

    /// Every node that clients of `project` may ever be sent to.
    fn nodes_of(&self, project: &Project) -> BTreeSet<Name> {
        let pools = self.map.maps.get(&project.map).into_iter().flat_map(pools_of);
        let last = match &project.all_down {
            AllDown::Pool(pool) => Some(pool),
            _ => None,
        };
        let members = pools.chain(last).filter_map(|pool| self.map.pools.get(pool));
        members.flat_map(|members| members.keys().cloned()).collect()
    }

    /// Gives every name between a name and its zone an entry (RFC 8020: such a name exists).
    fn add_empty_non_terminals(&mut self) {
        let filled: Vec<(Vec<u8>, usize)> =
            self.names.iter().map(|(name, entry)| (name.clone(), entry.zone)).collect();
        for (name, zone) in filled {
            let apex_bytes = self.zones.get(zone).map_or(usize::MAX, |zone| zone.apex_bytes);
            for above in ancestry(&name).skip(1).take_while(|above| above.len() > apex_bytes) {
                self.names.entry(above.to_vec()).or_insert_with(|| Entry::new(zone));
            }
        }
    }

    fn add(&mut self, name: &HostName, sets: impl IntoIterator<Item = RecordSet>) {
        if let Some(zone) = self.zone_of(name) {
            add_sets(self.names.entry(wire_name(name)).or_insert_with(|| Entry::new(zone)), sets);
        }
    }

    /// The closest zone that holds `name`. Maps are checked for names outside all zones before
    /// they get here; such a name is left out.
    fn zone_of(&self, name: &HostName) -> Option<usize> {
        self.apexes.iter().position(|apex| name.is_in(apex))
    }
}

impl Entry {
    fn new(zone: usize) -> Self {
        Self { zone, steered: None, sets: Vec::new() }
    }
}

/// Adds the sets of types that the entry does not have yet.
fn add_sets(entry: &mut Entry, sets: impl IntoIterator<Item = RecordSet>) {
    for set in sets {
        if entry.set(set.rtype).is_none() {
            entry.sets.push(set);
        }
    }
}

/// Every pool that `map` names.
fn pools_of(map: &SteeringMap) -> impl Iterator<Item = &Name> {
    let lists = map.continent.values().chain(map.country.values()).chain(map.asn.values());
    map.default.iter().chain(lists.flatten())
}
