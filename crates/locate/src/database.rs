//! One MaxMind-format file, read whole: its networks as ascending spans of decoded records.
//!
//! The file is read into memory rather than mapped: mapping needs `unsafe`, and a file that is
//! changed in place would change under the reader. After decoding the bytes are dropped.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use maxminddb::{MaxMindDbError, Reader, WithinOptions};
use serde::Serialize;

use crate::record::Record;

/// Most networks a database may have. The largest on the market have some ten million; a damaged
/// search tree can pretend to have any number.
const NETWORKS_MAX: usize = 64_000_000;

/// Why a database was refused.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file cannot be read.
    #[error("cannot read {}: check [location] in the config file and the file's permissions", file.display())]
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
        "{} ({kind}) holds no country in any record: set [location] country to a country database",
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
        "{} ({kind}) holds no AS number in any record: set [location] asn to an ASN database",
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

/// Consecutive addresses with one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span<K> {
    pub(crate) first: K,
    pub(crate) last: K,
    /// Index into [`Database::records`].
    pub(crate) record: u32,
}

/// What is no file, such as a pipe or a device, might never end.
fn read_file(file: &Path) -> std::io::Result<Vec<u8>> {
    if !std::fs::metadata(file)?.is_file() {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file"));
    }
    std::fs::read(file)
}

/// A whole database, decoded.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) info: DatabaseInfo,
    /// Ascending and disjoint.
    pub(crate) v4: Vec<Span<u32>>,
    /// Ascending and disjoint; without what only repeats IPv4.
    pub(crate) v6: Vec<Span<u128>>,
    pub(crate) records: Vec<Record>,
}

impl Database {
    pub(crate) fn open(file: &Path, provides: Provides) -> Result<Self, OpenError> {
        let bytes =
            read_file(file).map_err(|source| OpenError::Read { file: file.to_owned(), source })?;
        Self::read(file, bytes, provides)
    }

    pub(crate) fn read(file: &Path, bytes: Vec<u8>, provides: Provides) -> Result<Self, OpenError> {
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
        let mut database = Self { info, v4: Vec::new(), v6: Vec::new(), records: Vec::new() };
        let mut seen = HashMap::new();
        let has_v4_part = database.read_v4(&reader, &mut seen)?;
        if reader.metadata().ip_version == 6 {
            database.read_v6(&reader, &mut seen, has_v4_part)?;
        }
        database.info.networks = database.v4.len().saturating_add(database.v6.len());
        database.check_provides()?;
        Ok(database)
    }

    /// Gives whether the tree has an IPv4 part: networks of its own below `::/96`.
    fn read_v4(
        &mut self,
        reader: &Reader<Vec<u8>>,
        seen: &mut HashMap<usize, u32>,
    ) -> Result<bool, OpenError> {
        let mut spans = Vec::new();
        let mut has_v4_part = true;
        self.walk(
            reader,
            "0.0.0.0/0",
            seen,
            WithinOptions::default(),
            |address, length, record| {
                let (first, length) = match address {
                    IpAddr::V4(v4) => (v4.to_bits(), u32::from(length)),
                    // One IPv6 record spans all of IPv4.
                    IpAddr::V6(_) => {
                        has_v4_part = false;
                        (0, 0)
                    }
                };
                let hosts = u32::MAX.checked_shr(length).unwrap_or(0);
                spans.push(Span { first: first & !hosts, last: first | hosts, record });
                spans.len()
            },
        )?;
        self.v4 = spans;
        Ok(has_v4_part)
    }

    fn read_v6(
        &mut self,
        reader: &Reader<Vec<u8>>,
        seen: &mut HashMap<usize, u32>,
        has_v4_part: bool,
    ) -> Result<(), OpenError> {
        let mut spans = Vec::new();
        // By default the reader leaves out what only repeats the IPv4 part at other places. Where a
        // single record takes the place of that part, it would leave out all its networks.
        let options = match has_v4_part {
            true => WithinOptions::default(),
            false => WithinOptions::default().include_aliased_networks(),
        };
        self.walk(reader, "::/0", seen, options, |address, length, record| {
            // Databases keep IPv4 at ::/96: the walk gives its networks as IPv4, or as one network
            // when a single record holds for all of them.
            let IpAddr::V6(v6) = address else { return spans.len() };
            let first = v6.to_bits();
            if first > u128::from(u32::MAX) || length < 96 {
                let hosts = u128::MAX.checked_shr(u32::from(length)).unwrap_or(0);
                spans.push(Span { first: first & !hosts, last: first | hosts, record });
            }
            spans.len()
        })?;
        self.v6 = spans;
        Ok(())
    }

    /// Calls `found` with address, prefix length and record of every network with data inside
    /// `within`, in order. `seen` maps offsets in the file to records decoded before.
    fn walk(
        &mut self,
        reader: &Reader<Vec<u8>>,
        within: &str,
        seen: &mut HashMap<usize, u32>,
        options: WithinOptions,
        mut found: impl FnMut(IpAddr, u8, u32) -> usize,
    ) -> Result<(), OpenError> {
        let file = self.info.file.clone();
        let damaged = |source| OpenError::Damaged { file: file.clone(), source };
        let within = within.parse().map_err(MaxMindDbError::InvalidNetwork).map_err(damaged)?;
        for result in reader.within(within, options).map_err(damaged)? {
            let result = result.map_err(damaged)?;
            let network = result.network().map_err(damaged)?;
            let Some(offset) = result.offset() else { continue };
            let record = match seen.get(&offset) {
                Some(record) => *record,
                None => {
                    let record: Record = result.decode().map_err(damaged)?.unwrap_or_default();
                    let id = u32::try_from(self.records.len()).unwrap_or(u32::MAX);
                    self.records.push(record);
                    seen.insert(offset, id);
                    id
                }
            };
            if found(network.ip(), network.prefix(), record) > NETWORKS_MAX {
                return Err(OpenError::TooManyNetworks { file: file.clone() });
            }
        }
        Ok(())
    }

    /// Refuses a database that holds nothing of what it was named for: most likely two files were
    /// swapped, and every client would silently be steered by default.
    fn check_provides(&self) -> Result<(), OpenError> {
        let (file, kind) = (self.info.file.clone(), self.info.kind.clone());
        if self.info.provides.country
            && !self.records.iter().any(|r| r.country.is_some() || r.continent.is_some())
        {
            return Err(OpenError::NoCountry { file, kind });
        }
        if self.info.provides.asn && !self.records.iter().any(|r| r.asn.is_some()) {
            return Err(OpenError::NoAsn { file, kind });
        }
        Ok(())
    }
}
