//! Which location databases the one-off commands look into.

use std::path::Path;

use anyhow::Result;
use locate::{Locator, Names};

use crate::cli::DatabaseArgs;

/// Country and AS data that ships with the program: right for a demo, wrong for production.
pub(crate) static DEMO_DATABASE: &[u8] = include_bytes!("../../../maps/geo/demo-2026-06-17.mmdb");

/// What stands for its file in messages.
const DEMO_NAME: &str = "built-in demo data";

/// What is said wherever the demo data decides.
const WARNING: &str = "using the built-in demo data, which contains errors: set [location] in the \
     config file, or --country and --asn";

/// The databases of a config file and the routes that its host goes by, else those named, else the built-in ones, with a warning.
pub(crate) fn locator(
    config: Option<&config::HostConfig>,
    named: &DatabaseArgs,
) -> Result<Locator> {
    let (country, asn) = files(config, named);
    let routed = config.filter(|config| config.location.routes.is_some());
    if let Some(config) = routed {
        return Ok(config.location.open_with_routes(&config.host.state_dir)?);
    }
    if country.is_some() || asn.is_some() {
        return Ok(Locator::open(country, asn)?);
    }
    eprintln!("cacheboy: {WARNING}");
    let both = locate::Provides { country: true, asn: true };
    Ok(Locator::from_bytes(Path::new(DEMO_NAME), DEMO_DATABASE.to_vec(), both)?)
}

/// The same for the names of networks alone; nothing where only countries are known.
pub(crate) fn names(
    config: Option<&config::HostConfig>,
    named: &DatabaseArgs,
) -> Result<Option<Names>> {
    match files(config, named) {
        (_, Some(asn)) => Ok(Some(Names::open(asn)?)),
        (Some(_), None) => Ok(None),
        (None, None) => {
            eprintln!("cacheboy: {WARNING}");
            Ok(Some(Names::from_bytes(Path::new(DEMO_NAME), DEMO_DATABASE.into())?))
        }
    }
}

/// The files for country and AS number.
pub(crate) fn files<'a>(
    config: Option<&'a config::HostConfig>,
    named: &'a DatabaseArgs,
) -> (Option<&'a Path>, Option<&'a Path>) {
    match config {
        Some(config) => (config.location.country.as_deref(), config.location.asn.as_deref()),
        None => (named.country.as_deref(), named.asn.as_deref()),
    }
}
