//! `cacheboy lookup`: what is known of an address.

use std::process::ExitCode;

use anyhow::Result;
use nodemap::NodeMap;
use steer::Lookup;

use crate::cli::LookupArgs;
use crate::out::say;
use crate::{geo, roles};

/// Prints location, network and the prefix they hold for; with a config also routes, and which entry
/// of each steering map decides.
pub(crate) fn run(args: &LookupArgs) -> Result<ExitCode> {
    let config = args.config.as_deref().map(roles::load).transpose()?;
    let locator = geo::locator(config.as_ref(), &args.databases)?;
    // A host that has followed none yet has no maps to show.
    let map = config.as_ref().and_then(|config| {
        let path = rt::follow::last_good_path(&config.host.state_dir);
        NodeMap::parse(&rt::file::read_bounded(&path, rt::follow::NODE_MAP_BYTES_MAX as u64).ok()?)
            .ok()
    });
    let map = map.as_ref().map(|map| &map.map);
    let lookup = Lookup::new(&locator, map, args.address, rt::clock::now().wall_ms);
    if args.json {
        say!("{:#}", serde_json::to_value(&lookup)?)?;
    } else {
        say!("{}", lookup.to_string().trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}
