//! The names of all zones and what each holds (RFC 1034 section 4.3.2).
//!
//! Made of the node map's zones, hosts, texts and projects and of zone files by `build`, kept in
//! one `table`. It knows nothing of where clients are and of the states of nodes: it is made anew
//! when maps or zone files change, not when a node goes down.
//!
//! Most questions take one look; only a miss walks up the name. Empty non-terminals are in the
//! table, so the first name found above is the closest encloser (RFC 4592 section 3.3.1).

mod build;
mod left_out;
mod table;

pub use left_out::{LeftOut, Why};

use std::sync::Arc;

use nodemap::AdminMap;

use crate::dnssec::{Keyring, ZoneKeys};
use crate::records::{SERIAL_FROM_END, data_of};
use crate::reply::Records;
use crate::wire::{ancestry, rtype};
use crate::zonefile::ZoneFile;
use table::{Entry, Kind, Set, Table};

/// What of `files` would not be answered beside the zones and projects of `map`, in the order of files
/// and lines.
pub fn left_out(map: &AdminMap, files: &[Arc<ZoneFile>]) -> Vec<LeftOut> {
    Names::build(map, None, files, &Keyring::default()).left_out
}

/// See the module. Immutable.
#[derive(Debug, Default)]
pub(crate) struct Names {
    table: Table,
    zones: Vec<Zone>,
    steered: Vec<Steered>,
    left_out: Vec<LeftOut>,
}

/// A project's name.
#[derive(Debug)]
pub(crate) struct Steered {
    /// Its place among the projects of the node map.
    pub(crate) project: u16,
    pub(crate) ttl_s: u32,
    /// Whether client subnets count.
    pub(crate) ecs: bool,
    /// The data of its HTTPS record up to the addresses, if it has one.
    pub(crate) service: Option<Box<[u8]>>,
}

impl Steered {
    /// The types that steering answers.
    fn types(&self) -> impl Iterator<Item = u16> + use<> {
        let service = self.service.as_ref().map(|_| [rtype::SVCB, rtype::HTTPS]);
        [rtype::A, rtype::AAAA].into_iter().chain(service.into_iter().flatten())
    }
}

/// One zone.
#[derive(Debug)]
pub(crate) struct Zone {
    /// Which of the zones it is.
    pub(crate) number: usize,
    /// Length of the apex name in wire form.
    pub(crate) apex_bytes: usize,
    /// The zone of ours that it lies in.
    parent: Option<u32>,
    /// Its SOA record is the node map's: the serial is the generation.
    pub(crate) follows_map: bool,
    /// The SOA record as negative answers carry it: its TTL is the least of its own and the
    /// negative one (RFC 2308 section 3). The owner is a pointer to be written.
    negative_soa: Vec<u8>,
    /// What signs its answers.
    keys: Option<Arc<ZoneKeys>>,
}

/// Where a question leads.
#[derive(Clone, Copy)]
pub(crate) struct Found<'a> {
    pub(crate) zone: &'a Zone,
    pub(crate) what: What<'a>,
    /// It is a wildcard that stands for the name.
    wild: bool,
}

impl Found<'_> {
    /// Whether the name is not in the table: whoever asks may have made it up.
    pub(crate) fn is_made_up(&self) -> bool {
        self.wild || matches!(self.what, What::Nothing)
    }
}

/// See [`Found`].
#[derive(Clone, Copy)]
pub(crate) enum What<'a> {
    /// The name, or the wildcard that stands for it.
    Name(Holding<'a>),
    /// Other servers have it; the name of this length, at the end of the question's, is where
    /// their zone begins.
    Cut(Holding<'a>, usize),
    /// The zone has no such name.
    Nothing,
}

/// A name and what it holds.
#[derive(Clone, Copy)]
pub(crate) struct Holding<'a> {
    names: &'a Names,
    entry: &'a Entry,
}

impl Names {
    /// Looks `name` (wire form, lower case) up; `None` outside all zones.
    pub(crate) fn find(&self, name: &[u8], qtype: u16) -> Option<Found<'_>> {
        let Some(entry) = self.table.get(name) else { return self.find_above(name) };
        let zone = self.zone(entry.zone)?;
        match entry.kind {
            Kind::Own => {
                let at_apex = qtype == rtype::DS && name.len() == zone.apex_bytes;
                match zone.parent.filter(|_| at_apex).and_then(|parent| self.zone(parent)) {
                    Some(parent) => Some(self.parent_side(name, entry, parent)),
                    None => {
                        Some(Found { zone, what: What::Name(self.holding(entry)), wild: false })
                    }
                }
            }
            Kind::Cut if qtype == rtype::DS => {
                Some(Found { zone, what: What::Name(self.holding(entry)), wild: false })
            }
            Kind::Cut => {
                let what = What::Cut(self.holding(entry), name.len());
                Some(Found { zone, what, wild: false })
            }
            Kind::Below => self.find_above(name),
        }
    }

    /// The DS set of a zone is its parent's (RFC 4035 section 3.1.4.1), or that of whoever has the
    /// name from the parent.
    fn parent_side<'a>(&'a self, apex: &[u8], entry: &'a Entry, parent: &'a Zone) -> Found<'a> {
        let between = ancestry(apex).skip(1).take_while(|name| name.len() > parent.apex_bytes);
        let mut cuts = between.filter_map(|name| Some((name, self.table.get(name)?)));
        let what = match cuts.find(|(_, above)| above.kind == Kind::Cut) {
            Some((name, cut)) => What::Cut(self.holding(cut), name.len()),
            None => What::Name(self.holding(entry)),
        };
        Found { zone: parent, what, wild: false }
    }

    /// Looks up a name that no zone has as its own.
    fn find_above(&self, name: &[u8]) -> Option<Found<'_>> {
        let mut encloser = None;
        for above in ancestry(name).skip(1) {
            let Some(entry) = self.table.get(above) else { continue };
            match entry.kind {
                Kind::Below => {}
                Kind::Cut => {
                    let zone = self.zone(entry.zone)?;
                    let what = What::Cut(self.holding(entry), above.len());
                    return Some(Found { zone, what, wild: false });
                }
                Kind::Own => {
                    encloser = Some((above, entry));
                    break;
                }
            }
        }
        let (above, entry) = encloser?;
        let zone = self.zone(entry.zone)?;
        let wildcard = entry.wild.then(|| self.wildcard(above)).flatten();
        let what = wildcard.map_or(What::Nothing, |entry| What::Name(self.holding(entry)));
        Some(Found { zone, what, wild: wildcard.is_some() })
    }

    fn wildcard(&self, encloser: &[u8]) -> Option<&Entry> {
        let mut name = [0u8; crate::wire::NAME_BYTES_MAX];
        let length = encloser.len().saturating_add(2);
        let (star, rest) = name.get_mut(..length)?.split_at_mut_checked(2)?;
        star.copy_from_slice(b"\x01*");
        rest.copy_from_slice(encloser);
        self.table.get(name.get(..length)?)
    }

    /// What `name` itself holds, wherever it lies: for the addresses of name servers.
    pub(crate) fn exact(&self, name: &[u8]) -> Option<Holding<'_>> {
        self.table.get(name).map(|entry| self.holding(entry))
    }

    /// Whether `apex` is a zone whose answers are signed.
    pub(crate) fn signs(&self, apex: &[u8]) -> bool {
        let zone = self.table.get(apex).and_then(|entry| self.zone(entry.zone));
        zone.is_some_and(|zone| zone.is_signed() && zone.apex_bytes == apex.len())
    }

    /// The keys that sign the set of `rtype` at `owner`: those of the zone that is authoritative for
    /// it, if it has some.
    pub(crate) fn keys_of(&self, owner: &[u8], rtype: u16) -> Option<&ZoneKeys> {
        let found = self.find(owner, rtype)?;
        match found.what {
            What::Name(_) | What::Nothing => found.zone.keys.as_deref(),
            // Of what stands at a cut only DS and NSEC are the parent's (RFC 4035 section 2.2).
            What::Cut(_, bytes) if rtype == rtype::NSEC && bytes == owner.len() => {
                found.zone.keys.as_deref()
            }
            What::Cut(..) => None,
        }
    }

    fn zone(&self, index: u32) -> Option<&Zone> {
        self.zones.get(index as usize)
    }

    fn holding<'a>(&'a self, entry: &'a Entry) -> Holding<'a> {
        Holding { names: self, entry }
    }

    /// Number of names, empty non-terminals included.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Number of zones.
    pub(crate) fn zones(&self) -> usize {
        self.zones.len()
    }

    /// Bytes of memory that the names take.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    /// What of the zone files is not answered.
    pub(crate) fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }
}

impl Zone {
    /// The SOA record of a negative answer; see [`Zone::follows_map`].
    pub(crate) fn negative_soa(&self) -> Records<'_> {
        Records { bytes: &self.negative_soa, count: 1 }
    }

    /// TTL of what says that something is not there, seconds (RFC 9077 section 3).
    pub(crate) fn negative_ttl_s(&self) -> u32 {
        let ttl = self.negative_soa.get(6..).and_then(|rest| rest.first_chunk::<4>());
        ttl.map_or(0, |ttl| u32::from_be_bytes(*ttl))
    }

    /// Whether its answers are signed.
    pub(crate) fn is_signed(&self) -> bool {
        self.keys.is_some()
    }
}

impl<'a> Holding<'a> {
    /// Whether the name exists only because of names below it.
    pub(crate) fn is_empty(&self) -> bool {
        self.entry.steered.is_none() && self.sets().is_empty()
    }

    fn sets(&self) -> &'a [Set] {
        self.names.table.sets(self.entry)
    }

    /// Whether a zone begins here, one of ours or not.
    pub(crate) fn has_cut(&self) -> bool {
        self.entry.kind == Kind::Cut || self.sets().iter().any(|set| set.rtype == rtype::SOA)
    }

    /// The types that there are, as the NSEC record of a signed zone lists them: in order, with its own
    /// and that of its signature. `parental`: as the parent of a zone that begins here sees it.
    pub(crate) fn types(&self, parental: bool) -> Vec<u16> {
        let steered = self.steered().map(Steered::types);
        let is_cut = parental || self.entry.kind == Kind::Cut;
        let sets = self.sets().iter().map(|set| set.rtype).filter(|rtype| match *rtype {
            // RFC 4035 section 2.3; addresses at a cut are glue.
            rtype::DS => is_cut,
            rtype::NS => true,
            _ => !is_cut,
        });
        let own = [rtype::RRSIG, rtype::NSEC];
        let mut types: Vec<u16> = sets.chain(steered.into_iter().flatten()).chain(own).collect();
        types.sort_unstable();
        types.dedup();
        types
    }

    /// The records of one type.
    pub(crate) fn set(&self, rtype: u16) -> Option<Records<'a>> {
        let set = self.sets().iter().find(|set| set.rtype == rtype)?;
        Some(self.names.table.records(set))
    }

    /// What steers A and AAAA of this name.
    pub(crate) fn steered(&self) -> Option<&'a Steered> {
        self.names.steered.get(self.entry.steered? as usize)
    }

    /// Its CNAME record, and the name in it.
    pub(crate) fn alias(&self) -> Option<(Records<'a>, &'a [u8])> {
        if !self.entry.alias {
            return None;
        }
        let records = self.set(rtype::CNAME)?;
        let (_, target) = data_of(records).next()?;
        Some((records, target))
    }
}

/// Writes `serial` into a SOA record that ends `out`.
pub(crate) fn write_serial(out: &mut [u8], serial: u32) {
    let at = out.len().saturating_sub(SERIAL_FROM_END);
    if let Some(place) = out.get_mut(at..).and_then(|end| end.first_chunk_mut::<4>()) {
        *place = serial.to_be_bytes();
    }
}
