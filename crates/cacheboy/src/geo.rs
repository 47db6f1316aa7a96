//! Which location databases the one-off commands look into.

use std::path::Path;

use anyhow::Result;
use locate::Locator;

use crate::cli::DatabaseArgs;

/// Country and AS data that ships with the program: right for a demo, wrong for production.
pub(crate) static DEMO_DATABASE: &[u8] = include_bytes!("../../../maps/geo/demo-2026-06-17.mmdb");

/// What is said wherever the demo data decides.
const WARNING: &str = "using the built-in demo data, which contains errors: set [location] in the \
     config file, or --country and --asn";

/// The databases of a config file, else those named, else the built-in ones, with a warning.
pub(crate) fn locator(
    config: Option<&config::HostConfig>,
    named: &DatabaseArgs,
) -> Result<Locator> {
    let (country, asn) = match config {
        Some(config) => (config.location.country.as_deref(), config.location.asn.as_deref()),
        None => (named.country.as_deref(), named.asn.as_deref()),
    };
    if country.is_some() || asn.is_some() {
        return Ok(Locator::open(country, asn)?);
    }
    eprintln!("cacheboy: {WARNING}");
    let both = locate::Provides { country: true, asn: true };
    Ok(Locator::from_bytes(Path::new("built-in demo data"), DEMO_DATABASE.to_vec(), both)?)
}
