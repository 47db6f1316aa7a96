//! Names of autonomous systems out of a database of which nothing else is wanted: reports need a few
//! names, not where each address is.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use maxminddb::{MaxMindDbError, Reader, WithinOptions};
use model::Asn;

use crate::database::{OpenError, read_file};
use crate::record::Record;

/// A database, opened for its names.
#[derive(Debug)]
pub struct Names {
    file: PathBuf,
    reader: Reader<Cow<'static, [u8]>>,
}

impl Names {
    /// Opens a database of AS numbers.
    ///
    /// # Errors
    /// A file that cannot be read, or is not in MaxMind format.
    pub fn open(file: &Path) -> Result<Self, OpenError> {
        let bytes =
            read_file(file).map_err(|source| OpenError::Read { file: file.to_owned(), source })?;
        Self::from_bytes(file, bytes.into())
    }

    /// The same of bytes in memory; `name` stands for the file in messages.
    ///
    /// # Errors
    /// Bytes that are not in MaxMind format.
    pub fn from_bytes(name: &Path, bytes: Cow<'static, [u8]>) -> Result<Self, OpenError> {
        let file = name.to_owned();
        match Reader::from_source(bytes) {
            Ok(reader) => Ok(Self { file, reader }),
            Err(source) => Err(OpenError::Format { file, source }),
        }
    }

    /// The names of these numbers, as far as it has them: of several the first in address order. Reads no
    /// further than to the last of them.
    ///
    /// # Errors
    /// A database that is damaged as far as it is read, or holds no AS number in any record.
    pub fn find(&self, wanted: &HashSet<Asn>) -> Result<HashMap<Asn, String>, OpenError> {
        let mut found = HashMap::new();
        let (mut has_asn, mut seen) = (false, HashSet::new());
        let damaged = |source| OpenError::Damaged { file: self.file.clone(), source };
        let is_v6 = self.reader.metadata().ip_version == 6;
        let all = if is_v6 { "::/0" } else { "0.0.0.0/0" };
        let all = all.parse().map_err(MaxMindDbError::InvalidNetwork).map_err(damaged)?;
        for network in self.reader.within(all, WithinOptions::default()).map_err(damaged)? {
            if found.len() == wanted.len() {
                return Ok(found);
            }
            let network = network.map_err(damaged)?;
            // Neighbours share records.
            if !network.offset().is_some_and(|offset| seen.insert(offset)) {
                continue;
            }
            let record: Record = network.decode().map_err(damaged)?.unwrap_or_default();
            has_asn |= record.asn.is_some();
            if let (Some(asn), Some(name)) = (record.asn, record.as_name)
                && wanted.contains(&asn)
            {
                found.entry(asn).or_insert_with(|| name.into());
            }
        }
        if has_asn {
            return Ok(found);
        }
        let kind = self.reader.metadata().database_type.clone();
        Err(OpenError::NoAsn { file: self.file.clone(), kind })
    }
}
