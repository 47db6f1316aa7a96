//! Maps and zone files -> the table of names.
//!
//! The node map first, then the files: what it says wins (see `left_out`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use model::HostName;
use nodemap::{Acme, AdminMap};

use super::left_out::{LeftOut, Why};
use super::table::{Draft, Kind, Table};
use super::{Names, Steered, Zone};
use crate::dnssec::Keyring;
use crate::records::{RecordSet, service_data};
use crate::wire::{ancestry, child, rtype, text_of, wire_name};
use crate::zonefile::{FileSet, ZoneFile};

/// TTL of what authorities of certificates ask for, seconds: each order has a text of its own.
const CHALLENGE_TTL_S: u32 = 5;

impl Names {
    /// The names of `map` and of `files`, signed by the keys of `keyring`, with the texts of `acme`.
    pub(crate) fn build(
        map: &AdminMap,
        acme: Option<&Acme>,
        files: &[Arc<ZoneFile>],
        keyring: &Keyring,
    ) -> Self {
        let mut builder = Builder::new(map, files);
        builder.add_challenges(acme);
        builder.add_zone_data();
        builder.add_projects();
        builder.add_files(files);
        builder.add_keys(keyring);
        builder.add_empty_non_terminals();
        builder.mark_what_lies_below();
        builder.finish()
    }
}

struct Builder<'a> {
    map: &'a AdminMap,
    /// Apex in wire form -> index of the zone.
    apexes: HashMap<Vec<u8>, u32>,
    zones: Vec<Zone>,
    steered: Vec<Steered>,
    names: HashMap<Vec<u8>, Holder>,
    left_out: Vec<LeftOut>,
}

/// A name in the making.
struct Holder {
    zone: u32,
    kind: Kind,
    wild: bool,
    steered: Option<u32>,
    sets: Vec<RecordSet>,
}

impl Holder {
    fn new(zone: u32) -> Self {
        Self { zone, kind: Kind::Own, wild: false, steered: None, sets: Vec::new() }
    }

    fn has(&self, rtype: u16) -> bool {
        self.sets.iter().any(|set| set.rtype == rtype)
    }

    /// Adds the sets of types that are not there yet.
    fn add(&mut self, sets: impl IntoIterator<Item = RecordSet>) {
        for set in sets {
            if !self.has(set.rtype) {
                self.sets.push(set);
            }
        }
    }
}

impl<'a> Builder<'a> {
    fn new(map: &'a AdminMap, files: &[Arc<ZoneFile>]) -> Self {
        let mut zones = Vec::new();
        let mut apexes = HashMap::new();
        let of_map = map.zones.iter().map(|(apex, zone)| {
            (wire_name(apex), true, RecordSet::authority(zone), zone.soa.negative_ttl_s)
        });
        let of_files = files.iter().filter_map(|file| {
            let soa = file.soa()?;
            let data = soa.data().next()?;
            let minimum = data.last_chunk::<4>().map_or(0, |last| u32::from_be_bytes(*last));
            Some((wire_name(file.apex()), false, soa.clone(), minimum))
        });
        for (apex, follows_map, soa, negative_ttl_s) in of_map.chain(of_files) {
            let Ok(index) = u32::try_from(zones.len()) else { break };
            if apexes.contains_key(&apex) {
                continue;
            }
            let negative_ttl_s = soa.ttl_s.min(negative_ttl_s);
            zones.push(Zone {
                number: zones.len(),
                apex_bytes: apex.len(),
                parent: None,
                follows_map,
                negative_soa: soa.with_ttl(negative_ttl_s).rendered(),
                keys: None,
            });
            apexes.insert(apex, index);
        }
        for (apex, index) in &apexes {
            let parent = closest(&apexes, apex.get(label_bytes(apex)..).unwrap_or_default());
            if let Some(zone) = zones.get_mut(*index as usize) {
                zone.parent = parent;
            }
        }
        Self {
            map,
            apexes,
            zones,
            steered: Vec::new(),
            names: HashMap::new(),
            left_out: Vec::new(),
        }
    }

    /// What authorities of certificates ask for. It comes before the texts of maps, which are what is
    /// answered at other times.
    fn add_challenges(&mut self, acme: Option<&Acme>) {
        for (name, texts) in acme.iter().flat_map(|acme| &acme.texts) {
            self.add(name, [RecordSet::texts(texts, CHALLENGE_TTL_S)]);
        }
    }

    /// SOA, NS, hosts and texts.
    fn add_zone_data(&mut self) {
        for (apex, zone) in &self.map.zones {
            self.add(apex, [RecordSet::authority(zone), RecordSet::name_servers(zone)]);
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
        // What is beyond has no plans either.
        for (number, project) in (0..=u16::MAX).zip(self.map.projects.values()) {
            let wire = wire_name(&project.name);
            let Some(zone) = closest(&self.apexes, &wire) else { continue };
            for node in self.map.nodes_of(project) {
                let addresses = self.map.nodes.get(node).map(|node| node.addresses.as_slice());
                if let (Some(wire), Some(addresses)) = (child(node, &wire), addresses) {
                    let sets = RecordSet::addresses(addresses, project.ttl_s);
                    self.names.entry(wire).or_insert_with(|| Holder::new(zone)).add(sets);
                }
            }
            let index = u32::try_from(self.steered.len()).ok();
            self.steered.push(Steered {
                project: number,
                ttl_s: project.ttl_s,
                ecs: project.ecs,
                service: project.https_record.then(|| service_data(project.http3)),
            });
            self.names.entry(wire).or_insert_with(|| Holder::new(zone)).steered = index;
        }
    }

    /// Adds what fits of every file.
    fn add_files(&mut self, files: &[Arc<ZoneFile>]) {
        let mut held = HashSet::new();
        for name in self.names.keys() {
            held.extend(ancestry(name).map(<[u8]>::to_vec));
        }
        for file in files {
            let Some(zone) = self.apexes.get(&wire_name(file.apex())).copied() else {
                let set = format!("{} SOA", file.apex());
                let file = file.path().to_owned();
                self.left_out.push(LeftOut { file, line: 0, set, why: Why::NoSoa });
                continue;
            };
            for set in file.sets() {
                if let Err(why) = self.add_set(zone, set, &held) {
                    let file = file.path().to_owned();
                    let name = format!("{} {}", text_of(&set.owner), rtype::word(set.set.rtype));
                    self.left_out.push(LeftOut { file, line: set.line, set: name, why });
                }
            }
        }
        self.left_out.sort();
    }

    /// Adds `set` to the zone of its file, if the node map and the other zones let it.
    fn add_set(&mut self, zone: u32, set: &FileSet, held: &HashSet<Vec<u8>>) -> Result<(), Why> {
        use rtype::{A, AAAA, CNAME, DS, HTTPS, NS, SOA, SVCB};
        let rtype = set.set.rtype;
        let home = closest(&self.apexes, &set.owner).unwrap_or(zone);
        let at_apex = self.apexes.contains_key(&*set.owner);
        if home != zone {
            return match (at_apex, rtype) {
                // The parent's side of a zone that is ours, too. Its DS set stands at the name.
                (true, NS) | (_, A | AAAA) => Ok(()),
                (true, DS) => {
                    let holder = || Holder::new(home);
                    let holder = self.names.entry(set.owner.to_vec()).or_insert_with(holder);
                    holder.add([set.set.clone()]);
                    Ok(())
                }
                _ => Err(Why::OtherZone),
            };
        }
        let of_map = self.zones.get(zone as usize).is_some_and(|zone| zone.follows_map);
        if at_apex && of_map && matches!(rtype, SOA | NS) {
            return Err(Why::OfNodeMap);
        }
        if rtype == NS && !at_apex && held.contains(&*set.owner) {
            return Err(Why::Delegates);
        }
        let holder = self.names.entry(set.owner.to_vec()).or_insert_with(|| Holder::new(zone));
        if holder.steered.is_some() && matches!(rtype, A | AAAA | CNAME | HTTPS | SVCB) {
            return Err(Why::Steered);
        }
        if rtype == CNAME && !holder.sets.is_empty() {
            return Err(Why::Alias);
        }
        if holder.has(rtype) {
            return Err(Why::Taken);
        }
        if rtype == NS && !at_apex {
            holder.kind = Kind::Cut;
        }
        holder.sets.push(set.set.clone());
        Ok(())
    }

    /// Gives zones their keys, and what is published of them the TTL of the zone's SOA record.
    fn add_keys(&mut self, keyring: &Keyring) {
        for (apex, keys) in keyring.zones() {
            let wire = wire_name(apex);
            let zone = self.apexes.get(&wire).and_then(|zone| self.zones.get_mut(*zone as usize));
            let (Some(zone), Some(holder)) = (zone, self.names.get_mut(&wire)) else { continue };
            zone.keys = Some(Arc::clone(keys));
            let ttl_s = holder.sets.iter().find(|set| set.rtype == rtype::SOA).map(|set| set.ttl_s);
            let published = [
                (rtype::DNSKEY, keys.dnskeys()),
                (rtype::CDS, keys.cdss(apex)),
                (rtype::CDNSKEY, keys.cdnskeys()),
            ];
            let published = published.into_iter().filter(|(_, data)| !data.is_empty());
            holder.add(
                published
                    .map(|(rtype, data)| RecordSet::new(rtype, ttl_s.unwrap_or_default(), data)),
            );
        }
    }

    /// Gives every name between a name and its zone an entry (RFC 8020: such a name exists).
    fn add_empty_non_terminals(&mut self) {
        let filled = self.names.iter().map(|(name, holder)| (name.clone(), holder.zone));
        // A zone of ours is there in the one that it lies in, too.
        let inner = self.apexes.iter().filter_map(|(apex, index)| {
            Some((apex.clone(), self.zones.get(*index as usize)?.parent?))
        });
        let filled: Vec<(Vec<u8>, u32)> = filled.chain(inner).collect();
        for (name, zone) in filled {
            let apex = self.zones.get(zone as usize).map_or(usize::MAX, |zone| zone.apex_bytes);
            for above in ancestry(&name).skip(1).take_while(|above| above.len() > apex) {
                if self.names.contains_key(above) {
                    // Its own turn gives those above it theirs.
                    break;
                }
                self.names.insert(above.to_vec(), Holder::new(zone));
            }
        }
    }

    /// Marks what lies below a cut, and what has a wildcard below it.
    fn mark_what_lies_below(&mut self) {
        let mut below = Vec::new();
        let mut wild = Vec::new();
        for (name, holder) in &self.names {
            let apex = self.zones.get(holder.zone as usize).map_or(0, |zone| zone.apex_bytes);
            let mut above = ancestry(name).skip(1).take_while(|above| above.len() > apex);
            if above.any(|above| self.names.get(above).is_some_and(|h| h.kind == Kind::Cut)) {
                below.push(name.clone());
            }
            if let Some(encloser) = name.strip_prefix(b"\x01*") {
                wild.push(encloser.to_vec());
            }
        }
        for name in below {
            if let Some(holder) = self.names.get_mut(&name) {
                holder.kind = Kind::Below;
            }
        }
        for name in wild {
            if let Some(holder) = self.names.get_mut(&name) {
                holder.wild = true;
            }
        }
    }

    fn finish(self) -> Names {
        let Self { zones, steered, names, left_out, .. } = self;
        let drafts = names.iter().map(|(name, holder)| {
            let sets = holder.sets.iter().map(|set| (set.rtype, set.count(), set.rendered()));
            let Holder { zone, kind, wild, steered, .. } = *holder;
            (name.as_slice(), Draft { zone, steered, kind, wild, sets: sets.collect() })
        });
        // Files and maps have far less than 4 GiB: their sizes are bounded where they are read.
        let table = Table::build(drafts).unwrap_or_default();
        Names { table, zones, steered, left_out }
    }

    fn add(&mut self, name: &HostName, sets: impl IntoIterator<Item = RecordSet>) {
        let wire = wire_name(name);
        // Maps are checked for names outside all zones before they get here.
        if let Some(zone) = closest(&self.apexes, &wire) {
            self.names.entry(wire).or_insert_with(|| Holder::new(zone)).add(sets);
        }
    }
}

/// The closest zone that holds `name`.
fn closest(apexes: &HashMap<Vec<u8>, u32>, name: &[u8]) -> Option<u32> {
    ancestry(name).find_map(|name| apexes.get(name).copied())
}

/// Bytes of the first label of `name` with its length.
fn label_bytes(name: &[u8]) -> usize {
    name.first().map_or(0, |label| usize::from(*label).saturating_add(1))
}
