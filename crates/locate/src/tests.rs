//! The locator against a slow reference, every schema it reads, and what it refuses.

mod damaged;
mod joined;
mod names;
mod real_data;
mod routed;
mod schemas;

use std::io::Write;
use std::path::Path;

use model::{Asn, CountryCode};
use tempfile::NamedTempFile;

use crate::Evidence;
use crate::mmdb_write::{Value, Writer};

/// AS number (0 is none) and country (empty is none) with the continent that follows.
fn evidence(asn: u32, country: &str) -> Evidence {
    let country: Option<CountryCode> = country.parse().ok();
    let continent = country.and_then(CountryCode::continent);
    Evidence { asn: Asn::new(asn), country, continent }
}

/// A database file with these records.
fn file(kind: &str, networks: &[(&str, Value)]) -> NamedTempFile {
    let mut writer = Writer::new(kind, "a test", 1_781_654_400);
    for (network, record) in networks {
        writer.insert(network.parse().unwrap(), record);
    }
    file_of(&writer.finish())
}

fn file_of(bytes: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn text(s: &str) -> Value {
    Value::Text(s.to_owned())
}

fn map(fields: &[(&'static str, Value)]) -> Value {
    Value::Map(fields.to_vec())
}

fn path(file: &NamedTempFile) -> Option<&Path> {
    Some(file.path())
}
