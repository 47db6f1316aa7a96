//! Everything that answers come from, as one value that is swapped whole.
//!
//! Built off the query path. Names change seldom and states of nodes all the time, so a snapshot
//! takes the names of the one before it when maps and zone files are the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::HostName;
use nodemap::Acme;
use steer::Steering;

use crate::dnssec::Keyring;
use crate::names::{LeftOut, Names};
use crate::records::RecordSet;
use crate::reply::Records;
use crate::wire::{rtype, wire_name};
use crate::zonefile::ZoneFile;

/// What of it is in the names.
fn texts(acme: Option<&Acme>) -> Option<&BTreeMap<HostName, Vec<String>>> {
    acme.map(|acme| &acme.texts).filter(|texts| !texts.is_empty())
}

/// TTL of the answer to queries for everything, seconds.
const MINIMAL_ANY_TTL_S: u32 = 3600;

/// See the module. Immutable.
#[derive(Debug)]
pub struct Snapshot {
    names: Arc<Names>,
    files: Arc<[Arc<ZoneFile>]>,
    keyring: Arc<Keyring>,
    steering: Option<Arc<Steering>>,
    minimal_any: Vec<u8>,
    generation: u64,
}

impl Snapshot {
    /// The snapshot of a host that has no node map yet: everything is SERVFAIL with "Not Ready".
    pub fn not_ready() -> Self {
        Self {
            names: Arc::default(),
            files: Arc::default(),
            keyring: Arc::default(),
            steering: None,
            minimal_any: RecordSet::minimal_any(MINIMAL_ANY_TTL_S).rendered(),
            generation: 0,
        }
    }

    /// The names of the node map that `steering` was made of, and of the zone files; the zones of
    /// `keyring` are signed. `last` is the snapshot before, to take from it what is the same.
    pub fn build(
        steering: Arc<Steering>,
        files: Arc<[Arc<ZoneFile>]>,
        keyring: Arc<Keyring>,
        last: Option<&Self>,
    ) -> Self {
        let (map, acme) = (&steering.map().map, steering.map().acme.as_ref());
        let same = last.filter(|last| {
            let of_last = last.steering.as_deref().map(|steering| steering.map());
            let same_map =
                of_last.is_some_and(|of| of.map == *map && texts(of.acme.as_ref()) == texts(acme));
            let same_files = Arc::ptr_eq(&last.files, &files);
            same_files && Arc::ptr_eq(&last.keyring, &keyring) && same_map
        });
        let names = match same {
            Some(last) => Arc::clone(&last.names),
            None => Arc::new(Names::build(map, acme, &files, &keyring)),
        };
        let generation = steering.map().generation;
        Self { names, files, keyring, steering: Some(steering), generation, ..Self::not_ready() }
    }

    /// Generation of the node map; 0 when there is none.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Number of names, empty non-terminals included.
    pub fn names(&self) -> usize {
        self.names.len()
    }

    /// Bytes that the names take.
    pub fn names_bytes(&self) -> usize {
        self.names.memory_bytes()
    }

    /// Number of zones.
    pub fn zones(&self) -> usize {
        self.names.zones()
    }

    /// Whether answers from `zone` are signed: there are keys for it, and there is such a zone.
    pub fn signs(&self, zone: &HostName) -> bool {
        self.names.signs(&wire_name(zone))
    }

    /// What of the zone files is not answered, in the order of files and lines.
    pub fn left_out(&self) -> &[LeftOut] {
        self.names.left_out()
    }

    /// The file that all of the zone `apex` (wire form) is in, as it is answered: `None` when the zone has
    /// names of the node map, or is signed as it is answered.
    pub(crate) fn static_file(&self, apex: &[u8]) -> Option<&Arc<ZoneFile>> {
        let zone = self.names.find(apex, rtype::SOA)?.zone;
        let is_static = zone.apex_bytes == apex.len() && !zone.follows_map && !zone.is_signed();
        self.files.iter().find(|file| is_static && wire_name(file.apex()) == apex)
    }

    /// The steering; `None` without a node map.
    pub fn steering(&self) -> Option<&Steering> {
        self.steering.as_deref()
    }

    pub(crate) fn table(&self) -> &Names {
        &self.names
    }

    pub(crate) fn minimal_any(&self) -> Records<'_> {
        Records { bytes: &self.minimal_any, count: 1 }
    }

    /// Serial of the zones of the node map: its generation in seconds. Wraps as serials do
    /// (RFC 1982).
    pub(crate) fn serial(&self) -> u32 {
        let wrapped = (self.generation / 1000) & u64::from(u32::MAX);
        u32::try_from(wrapped).unwrap_or(0)
    }
}
