//! One MaxMind-format file, read whole: its networks in the order of their addresses, with their records.
//!
//! The file is read into memory rather than mapped: mapping needs `unsafe`, and a file that is
//! changed in place would change under the reader. Networks go straight to whoever joins
//! them (`locator`): kept by themselves they would be a multiple of what is made of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use maxminddb::{MaxMindDbError, Reader, Within, WithinOptions};
use model::{Asn, CountryCode};
use serde::Serialize;

use crate::locator::Evidence;
use crate::record::Record;
use crate::runs::Bits;

/// Most networks a database may have. The largest on the market have some ten million; a damaged
/// search tree can pretend to have any number.
const NETWORKS_MAX: usize = 64_000_000;

/// Why a database was refused.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file cannot be read.
    #[error("cannot read {}: check its name and its permissions", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not in MaxMind format.
    #[error("{} is not a MaxMind-format database (*.mmdb): fetch or unpack it again", file.display())]
    Format {
        /// The file.
        file: PathBuf,
        /// What the reader said.
        source: MaxMindDbError,
    },
    /// The file begins well but is damaged inside.
    #[error("{} is damaged: fetch it again", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What the reader said.
        source: MaxMindDbError,
    },
    /// More networks than any real database has.
    #[error("{} claims more than {NETWORKS_MAX} networks, so it is damaged: fetch it again", file.display())]
    TooManyNetworks {
        /// The file.
        file: PathBuf,
    },
    /// No record has a country or continent.
    #[error(
        "{} ({kind}) holds no country in any record: name a country database",
        file.display()
    )]
    NoCountry {
        /// The file.
        file: PathBuf,
        /// Database type, as the file says.
        kind: String,
    },
    /// No record has an AS number.
    #[error(
        "{} ({kind}) holds no AS number in any record: name an ASN database",
        file.display()
    )]
    NoAsn {
        /// The file.
        file: PathBuf,
        /// Database type, as the file says.
        kind: String,
    },
}

/// What a database is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Provides {
    /// Country and continent.
    pub country: bool,
    /// AS number and name.
    pub asn: bool,
}

/// A database as status pages show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DatabaseInfo {
    /// The file.
    pub file: PathBuf,
    /// What it is used for.
    pub provides: Provides,
    /// Database type, as the file says: for example `GeoLite2-Country`.
    pub kind: String,
    /// Description in English, as the file says, or the first there is.
    pub description: String,
    /// When it was built, Unix time in seconds.
    pub build_s: u64,
    /// Number of networks with data, IPv4 and IPv6 together.
    pub networks: usize,
}

/// What is no file, such as a pipe or a device, might never end.
pub(crate) fn read_file(file: &Path) -> std::io::Result<Vec<u8>> {
    if !std::fs::metadata(file)?.is_file() {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file"));
    }
    std::fs::read(file)
}

/// Whether the names of ASes are kept: people want them, and nobody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    Kept,
    Dropped,
}

/// A database that is being read: of its networks none is kept, of its records each once.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) info: DatabaseInfo,
    reader: Reader<Vec<u8>>,
    pub(crate) records: Records,
    /// It has an IPv4 part: networks of its own below `::/96`.
    has_v4_part: bool,
}

/// The records of a database that were decoded.
#[derive(Debug, Default)]
pub(crate) struct Records {
    all: Vec<Evidence>,
    /// Offset in the file -> place in `all`.
    seen: HashMap<usize, u32>,
    /// Names of ASes, in the order of their addresses; `None` where nobody wants them.
    pub(crate) names: Option<Vec<(Asn, Box<str>)>>,
}

impl Records {
    /// Keeps what counts of a record; gives its place.
    fn add(&mut self, offset: usize, record: Record) -> u32 {
        let place = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let implied = record.country.and_then(CountryCode::continent);
        let Record { country, continent, asn, as_name } = record;
        self.all.push(Evidence { asn, country, continent: continent.or(implied) });
        self.seen.insert(offset, place);
        if let (Some(names), Some(asn), Some(name)) = (&mut self.names, asn, as_name) {
            names.push((asn, name));
        }
        place
    }
}

impl Database {
    pub(crate) fn open(file: &Path, provides: Provides, names: Naming) -> Result<Self, OpenError> {
        let bytes =
            read_file(file).map_err(|source| OpenError::Read { file: file.to_owned(), source })?;
        Self::read(file, bytes, provides, names)
    }

    pub(crate) fn read(
        file: &Path,
        bytes: Vec<u8>,
        provides: Provides,
        names: Naming,
    ) -> Result<Self, OpenError> {
        let reader = Reader::from_source(bytes)
            .map_err(|source| OpenError::Format { file: file.to_owned(), source })?;
        let metadata = reader.metadata();
        let description = metadata.description.get("en");
        let description = description.or_else(|| metadata.description.values().next());
        let info = DatabaseInfo {
            file: file.to_owned(),
            provides,
            kind: metadata.database_type.clone(),
            description: description.cloned().unwrap_or_default(),
            build_s: metadata.build_epoch,
            networks: 0,
        };
        let names = (names == Naming::Kept).then(Vec::new);
        let records = Records { names, ..Records::default() };
        Ok(Self { info, reader, records, has_v4_part: true })
    }

    /// Its IPv4 networks. To be walked before those of IPv6.
    pub(crate) fn v4(&mut self) -> Result<Walk<'_, u32>, OpenError> {
        self.walk("0.0.0.0/0", WithinOptions::default())
    }

    /// Its IPv6 networks, without what only repeats IPv4.
    pub(crate) fn v6(&mut self) -> Result<Walk<'_, u128>, OpenError> {
        if self.reader.metadata().ip_version != 6 {
            return Ok(Walk::nothing(self));
        }
        // By default the reader leaves out what only repeats the IPv4 part at other places. Where a
        // single record takes the place of that part, it would leave out all its networks.
        let options = match self.has_v4_part {
            true => WithinOptions::default(),
            false => WithinOptions::default().include_aliased_networks(),
        };
        self.walk("::/0", options)
    }

    fn walk<K>(&mut self, within: &str, options: WithinOptions) -> Result<Walk<'_, K>, OpenError> {
        let damaged = |source| OpenError::Damaged { file: self.info.file.clone(), source };
        let within = within.parse().map_err(MaxMindDbError::InvalidNetwork).map_err(damaged)?;
        let networks = self.reader.within(within, options).map_err(damaged)?;
        let Self { info, records, has_v4_part, .. } = self;
        Ok(Walk { networks: Some(networks), info, records, has_v4_part, now: None })
    }

    /// Refuses a database that holds nothing of what it was named for: most likely two files were
    /// swapped, and every client would silently be steered by default. To be asked for when it is read.
    pub(crate) fn check_provides(&self) -> Result<(), OpenError> {
        let (file, kind) = (self.info.file.clone(), self.info.kind.clone());
        let mut records = self.records.all.iter();
        if self.info.provides.country
            && !records.clone().any(|r| r.country.is_some() || r.continent.is_some())
        {
            return Err(OpenError::NoCountry { file, kind });
        }
        if self.info.provides.asn && !records.any(|r| r.asn.is_some()) {
            return Err(OpenError::NoAsn { file, kind });
        }
        Ok(())
    }
}

/// The networks of one family of a database, from the lowest address up.
pub(crate) struct Walk<'a, K> {
    networks: Option<Within<'a, Vec<u8>>>,
    info: &'a mut DatabaseInfo,
    records: &'a mut Records,
    has_v4_part: &'a mut bool,
    /// The network that was met last: first and last address, and its record.
    now: Option<(K, K, u32)>,
}

/// An address family, as networks of databases are of it.
pub(crate) trait Networks: Bits {
    /// The first and the last address of a network; `None` where it is of the other family. Notes in
    /// `has_v4_part` when it turns out that a database has no such part.
    fn span(address: IpAddr, length: u8, has_v4_part: &mut bool) -> Option<(Self, Self)>;
}

impl Networks for u32 {
    fn span(address: IpAddr, length: u8, has_v4_part: &mut bool) -> Option<(Self, Self)> {
        let (first, length) = match address {
            IpAddr::V4(v4) => (v4.to_bits(), u32::from(length)),
            // One IPv6 record spans all of IPv4.
            IpAddr::V6(_) => {
                *has_v4_part = false;
                (0, 0)
            }
        };
        let hosts = Self::MAX.checked_shr(length).unwrap_or(0);
        Some((first & !hosts, first | hosts))
    }
}

impl Networks for u128 {
    fn span(address: IpAddr, length: u8, _: &mut bool) -> Option<(Self, Self)> {
        // Databases keep IPv4 at ::/96: the walk gives its networks as IPv4, or as one network when a
        // single record holds for all of them.
        let IpAddr::V6(v6) = address else { return None };
        let first = v6.to_bits();
        let hosts = Self::MAX.checked_shr(u32::from(length)).unwrap_or(0);
        let is_own = first > Self::from(u32::MAX) || length < 96;
        is_own.then_some((first & !hosts, first | hosts))
    }
}

impl<'a, K: Networks> Walk<'a, K> {
    /// Of a database that has no networks of this family.
    fn nothing(database: &'a mut Database) -> Self {
        let Database { info, records, has_v4_part, .. } = database;
        Self { networks: None, info, records, has_v4_part, now: None }
    }

    /// The place of the record that holds for `at`, and the last address for which it does. To be asked
    /// for ascending addresses.
    ///
    /// # Errors
    /// When the database is damaged there.
    pub(crate) fn step(&mut self, at: K) -> Result<(Option<u32>, K), OpenError> {
        while self.now.is_none_or(|(_, last, _)| last < at) {
            self.now = self.advance()?;
            if self.now.is_none() {
                return Ok((None, K::MAX));
            }
        }
        Ok(match self.now {
            Some((first, last, record)) if first <= at => (Some(record), last),
            Some((first, ..)) => (None, first.before().unwrap_or(K::MAX)),
            None => (None, K::MAX),
        })
    }

    /// The record at a place.
    pub(crate) fn record(&self, place: u32) -> Option<&Evidence> {
        self.records.all.get(place as usize)
    }

    /// The next network with data.
    fn advance(&mut self) -> Result<Option<(K, K, u32)>, OpenError> {
        let file = &self.info.file;
        let damaged = |source| OpenError::Damaged { file: file.clone(), source };
        for result in self.networks.iter_mut().flatten() {
            let result = result.map_err(damaged)?;
            let network = result.network().map_err(damaged)?;
            let Some(offset) = result.offset() else { continue };
            let record = match self.records.seen.get(&offset) {
                Some(record) => *record,
                None => {
                    let record = result.decode().map_err(damaged)?.unwrap_or_default();
                    self.records.add(offset, record)
                }
            };
            let span = K::span(network.ip(), network.prefix(), self.has_v4_part);
            let Some((first, last)) = span else { continue };
            self.info.networks = self.info.networks.saturating_add(1);
            if self.info.networks > NETWORKS_MAX {
                return Err(OpenError::TooManyNetworks { file: file.clone() });
            }
            return Ok(Some((first, last, record)));
        }
        self.networks = None;
        Ok(None)
    }
}
