//! `cacheboy geoip`: the location databases of a running DNS server or edge.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use model::time::utc;
use rt::admin::{AdminAddress, get, post};
use serde_json::{Value, json};

use crate::cli::{GeoipArgs, GeoipCommand};
use crate::out::say;
use crate::roles;

/// How long the host may take.
const TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) async fn run(args: GeoipArgs) -> Result<ExitCode> {
    match args.command {
        GeoipCommand::Info { config, json } => info(&config, json).await,
        GeoipCommand::Confirm { config } => confirm(&config).await,
    }
}

fn admin(config: &Path) -> Result<AdminAddress> {
    let Some(admin) = roles::load(config)?.admin else {
        bail!("this host's config has no [admin]: add it, and start the host again");
    };
    Ok(admin.into())
}

/// Shows what is in use; 1 where something newer is not.
async fn info(config: &Path, json: bool) -> Result<ExitCode> {
    let admin = admin(config)?;
    let reply = get(&admin, "/status", TIMEOUT).await;
    let reply = reply.with_context(|| format!("{admin} does not answer: does the host run?"))?;
    let status: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let Some(steering) = status.get("steering") else {
        bail!("{admin} steers nobody: it is neither a DNS server nor an edge");
    };
    let (databases, error) = (&steering["databases"], &steering["errors"]["location"]);
    if json {
        let held = &steering["databases_held_percent"];
        let shown =
            json!({ "format": 1, "databases": databases, "held_percent": held, "error": error });
        say!("{shown:#}")?;
    } else {
        let databases = databases.as_array().map_or(&[][..], Vec::as_slice);
        if databases.is_empty() {
            say!("no databases: every client is steered by the default of its map")?;
        }
        for database in databases {
            let text = |key: &str| database[key].as_str().unwrap_or_default();
            let built = utc(database["build_s"].as_u64().unwrap_or(0).saturating_mul(1000));
            let networks = database["networks"].as_u64().unwrap_or(0);
            say!("{}", text("file"))?;
            say!("    {}, built {built}, {networks} networks", text("kind"))?;
        }
        if let Some(error) = error.as_str() {
            say!("not in use: {error}")?;
        }
    }
    Ok(if error.is_null() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Lets in what is held.
async fn confirm(config: &Path) -> Result<ExitCode> {
    let admin = admin(config)?;
    let reply = post(&admin, "/location/confirm", &json!({}), TIMEOUT).await;
    let reply = reply.with_context(|| format!("{admin} does not answer: does the host run?"))?;
    let answer: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    if !reply.status.is_success() {
        let why = answer["error"].as_str().unwrap_or("is it that of a DNS server or an edge?");
        bail!("nothing was confirmed: {why}");
    }
    say!("confirmed: {} % of all known addresses are answered otherwise", answer["percent"])?;
    Ok(ExitCode::SUCCESS)
}
