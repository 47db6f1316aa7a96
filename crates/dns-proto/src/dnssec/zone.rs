//! The keys of a zone and what each of them does.
//!
//! A rollover in three steps, each of which may be as long apart as the TTLs in caches ask for
//! (RFC 7583 section 3.3.2): the next key is `published` and the parent takes its DS; it becomes
//! `active` and the old one `withdrawn`, so that the parent drops the old DS; the old one goes.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use model::HostName;

use super::key::{Algorithm, Key};
use crate::wire::wire_name;

/// Keys of a zone at most: two are a rollover, more make answers for the key set too long for UDP.
const KEYS_MAX: usize = 4;

/// CDS and CDNSKEY that ask the parent to drop all DS records (RFC 8078 section 4).
const DELETE_CDS: [u8; 5] = [0, 0, 0, 0, 0];
const DELETE_CDNSKEY: [u8; 5] = [0, 0, 3, 0, 0];

/// What a key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Duty {
    /// Signs.
    Active,
    /// Stands in the key set, and the parent shall have its DS: the next one.
    Published,
    /// Stands in the key set, and the parent shall drop its DS: the last one.
    Withdrawn,
}

impl Duty {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Active, Self::Published, Self::Withdrawn];

    /// The word, stable for configuration and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Published => "published",
            Self::Withdrawn => "withdrawn",
        }
    }
}

impl fmt::Display for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// What the zone tells its parent about DS records (RFC 7344, RFC 8078).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cds {
    /// Nothing: people do.
    #[default]
    Off,
    /// That it shall have those of all keys that are not withdrawn.
    Publish,
    /// That it shall drop all: the zone goes back to being unsigned.
    Delete,
}

/// Why keys are no keys of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneKeysError {
    /// None signs.
    #[error("none of its keys is active: name one that signs")]
    NoneActive,
    /// More than a rollover takes.
    #[error("it has more than {KEYS_MAX} keys")]
    TooMany,
    /// Two keys look alike in DS and RRSIG records.
    #[error("two of its keys have the tag {0}: make another one in place of the newer")]
    SameTag(u16),
}

/// The keys of one zone.
#[derive(Debug)]
pub struct ZoneKeys {
    apex: Vec<u8>,
    listed: Vec<Listed>,
    cds: Cds,
    validity_s: u32,
}

/// A key and its part in the zone.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) key: Key,
    pub(crate) duty: Duty,
    signs: bool,
}

impl ZoneKeys {
    /// The keys of `zone`, whose signatures hold `validity_s`.
    ///
    /// # Errors
    /// When they cannot stand together.
    pub fn new(
        zone: &HostName,
        keys: Vec<(Key, Duty)>,
        cds: Cds,
        validity_s: u32,
    ) -> Result<Self, ZoneKeysError> {
        if keys.len() > KEYS_MAX {
            return Err(ZoneKeysError::TooMany);
        }
        if keys.iter().all(|(_, duty)| *duty != Duty::Active) {
            return Err(ZoneKeysError::NoneActive);
        }
        let mut listed: Vec<Listed> = Vec::new();
        for (key, duty) in keys {
            let is_same = |other: &&Listed| {
                (other.key.tag(), other.key.algorithm()) == (key.tag(), key.algorithm())
            };
            if listed.iter().find(is_same).is_some() {
                return Err(ZoneKeysError::SameTag(key.tag()));
            }
            listed.push(Listed { key, duty, signs: duty == Duty::Active });
        }
        // The best duty first; a zone signs with every algorithm of its key set (RFC 6840 section
        // 5.11), so that the first key of an algorithm without an active one signs as well. It makes
        // a rollover to another algorithm the same three steps.
        listed.sort_by_key(|listed| listed.duty);
        let mut signed: Vec<Algorithm> = Vec::new();
        for listed in &mut listed {
            let algorithm = listed.key.algorithm();
            listed.signs |= !signed.contains(&algorithm);
            signed.push(algorithm);
        }
        Ok(Self { apex: wire_name(zone), listed, cds, validity_s })
    }

    /// Name of the zone in wire form.
    pub(crate) fn apex(&self) -> &[u8] {
        &self.apex
    }

    /// How long signatures hold, seconds.
    pub(crate) fn validity_s(&self) -> u32 {
        self.validity_s
    }

    /// The keys that sign.
    pub(crate) fn signing(&self) -> impl Iterator<Item = &Key> {
        self.listed.iter().filter(|listed| listed.signs).map(|listed| &listed.key)
    }

    /// All keys, those that are active first.
    pub fn keys(&self) -> impl Iterator<Item = (&Key, Duty)> {
        self.listed.iter().map(|listed| (&listed.key, listed.duty))
    }

    /// Data of the DNSKEY set.
    pub(crate) fn dnskeys(&self) -> Vec<Vec<u8>> {
        self.listed.iter().map(|listed| listed.key.dnskey().to_vec()).collect()
    }

    /// Data of the CDNSKEY set; empty when nothing is said.
    pub(crate) fn cdnskeys(&self) -> Vec<Vec<u8>> {
        self.to_parent(&DELETE_CDNSKEY, |key| key.dnskey().to_vec())
    }

    /// Data of the CDS set; empty when nothing is said.
    pub(crate) fn cdss(&self, zone: &HostName) -> Vec<Vec<u8>> {
        self.to_parent(&DELETE_CDS, |key| key.ds(zone))
    }

    fn to_parent(&self, delete: &[u8], of: impl Fn(&Key) -> Vec<u8>) -> Vec<Vec<u8>> {
        let kept = self.listed.iter().filter(|listed| listed.duty != Duty::Withdrawn);
        match self.cds {
            Cds::Off => Vec::new(),
            Cds::Publish => kept.map(|listed| of(&listed.key)).collect(),
            Cds::Delete => vec![delete.to_vec()],
        }
    }
}

/// The keys of all zones that have some.
#[derive(Clone, Debug, Default)]
pub struct Keyring {
    zones: HashMap<HostName, Arc<ZoneKeys>>,
}

impl Keyring {
    /// The keys of `zone`, from here on.
    pub fn add(&mut self, zone: HostName, keys: ZoneKeys) {
        self.zones.insert(zone, Arc::new(keys));
    }

    /// The keys of `zone`.
    pub fn of(&self, zone: &HostName) -> Option<&Arc<ZoneKeys>> {
        self.zones.get(zone)
    }

    /// All zones that have keys.
    pub fn zones(&self) -> impl Iterator<Item = (&HostName, &Arc<ZoneKeys>)> {
        self.zones.iter()
    }
}
