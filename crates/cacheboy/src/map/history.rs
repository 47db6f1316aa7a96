//! `cacheboy map show` and `map rollback`: the maps that the publisher of this host has published.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use model::time::utc;
use nodemap::NodeMap;
use rt::admin::{AdminAddress, post};
use serde_json::{Value, json};

use crate::out::say;
use crate::roles;

/// How long the publisher may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Lists the maps that are kept, or prints one.
pub(super) fn show(config: &Path, generation: Option<u64>) -> Result<ExitCode> {
    let state_dir = roles::load(config)?.host.state_dir;
    let unreadable = || format!("cannot read the maps in {}", state_dir.display());
    if let Some(generation) = generation {
        let document = health::history::document(&state_dir, generation).with_context(|| {
            format!(
                "generation {generation} is not kept here: `cacheboy map show` lists those that are"
            )
        })?;
        say!("{}", String::from_utf8_lossy(&document).trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let kept = health::history::kept(&state_dir).with_context(unreadable)?;
    if kept.is_empty() {
        bail!("no node map is kept in {}: is this the host of the publisher?", state_dir.display());
    }
    say!("{:<16} {:<21} WHAT", "GENERATION", "PUBLISHED")?;
    for map in kept {
        let document = health::history::document(&state_dir, map.generation);
        let read = document.ok().and_then(|document| NodeMap::parse(&document).ok());
        let sizes = match read.map(|read| read.map) {
            Some(map) => format!("{} nodes, {} projects", map.nodes.len(), map.projects.len()),
            None => "unreadable".to_owned(),
        };
        let what = if map.edited { "edit" } else { "states" };
        say!("{:<16} {:<21} {what}: {sizes}", map.generation, utc(map.generation))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Has the publisher go back.
pub(super) async fn roll_back(config: &Path, generation: u64) -> Result<ExitCode> {
    let config = roles::load(config)?;
    let Some(admin) = config.admin.map(AdminAddress::from) else {
        bail!("this host's config has no [admin]: add it, and start the checker again");
    };
    let reply = post(&admin, "/rollback", &json!({ "generation": generation }), TIMEOUT).await;
    let reply = reply.with_context(|| format!("nobody went back: {admin} does not answer"))?;
    let answer: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    if !reply.status.is_success() {
        let why = answer["error"].as_str().unwrap_or("is it the admin listener of a checker?");
        bail!("nobody went back: {why}");
    }
    let changes = &answer["changes"];
    say!("rolled back to {generation}, {changes} changes; it holds until the maps are edited")?;
    Ok(ExitCode::SUCCESS)
}
