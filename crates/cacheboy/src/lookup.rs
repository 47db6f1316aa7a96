//! `cacheboy lookup`: what is known of an address.

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::LookupArgs;
use crate::out::say;
use crate::{geo, roles};

/// Prints location, network and the prefix they hold for.
pub(crate) fn run(args: &LookupArgs) -> Result<ExitCode> {
    let config = args.config.as_deref().map(roles::load).transpose()?;
    let locator = geo::locator(config.as_ref(), &args.databases)?;
    let location = locator.locate(args.address);
    let as_name = location.asn.and_then(|asn| locator.as_name(asn));
    if args.json {
        let document = serde_json::json!({
            "format": 1, "address": args.address, "location": location, "as_name": as_name,
        });
        say!("{document:#}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "unknown".into());
    say!("address    {}", args.address)?;
    say!("prefix     {}", location.prefix)?;
    say!("country    {}", or_unknown(location.country.map(|c| c.to_string())))?;
    say!("continent  {}", or_unknown(location.continent.map(|c| c.to_string())))?;
    let name = as_name.map(|name| format!(" {name}")).unwrap_or_default();
    say!("network    {}", or_unknown(location.asn.map(|asn| format!("{asn}{name}"))))?;
    Ok(ExitCode::SUCCESS)
}
