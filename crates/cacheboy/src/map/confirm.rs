//! `cacheboy map confirm`: the edit of the maps that waits since it would move many clients at once.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rt::admin::{AdminAddress, get, post};
use serde_json::{Value, json};

use crate::out::say;
use crate::roles;

/// How long the publisher may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Shows what waits, and ends with 1 if anything does; with its name lets it in.
pub(super) async fn run(config: &Path, id: Option<String>) -> Result<ExitCode> {
    let file = config;
    let config = roles::load(config)?;
    let Some(admin) = config.admin.map(AdminAddress::from) else {
        bail!("this host's config has no [admin]: add it, and start the checker again");
    };
    let silent = || format!("{admin} does not answer: does the checker run?");
    let Some(id) = id else {
        let reply = get(&admin, "/status", TIMEOUT).await.with_context(silent)?;
        let status: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let Some(maps) = status["health"].get("maps") else {
            bail!("{admin} is not the admin listener of a checker");
        };
        let held = &maps["held"];
        let Some(id) = held["id"].as_str() else {
            say!("no edit waits")?;
            return Ok(ExitCode::SUCCESS);
        };
        let (percent, most) = (&held["percent"], &held["percent_max"]);
        say!("it moves {percent} % of the clients of a project; {most} % may go without a word")?;
        for change in held["changes"].as_array().map_or(&[][..], Vec::as_slice) {
            say!("  {}", change.as_str().unwrap_or_default())?;
        }
        say!("to let it in: cacheboy map confirm {id} --config {}", file.display())?;
        return Ok(ExitCode::FAILURE);
    };
    let reply = post(&admin, "/maps/confirm", &json!({ "id": id }), TIMEOUT).await;
    let reply = reply.with_context(silent)?;
    let answer: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    if !reply.status.is_success() {
        let why = answer["error"].as_str().unwrap_or("is it the admin listener of a checker?");
        bail!("nothing was confirmed: {why}");
    }
    say!("confirmed: {} changes are published", answer["changes"])?;
    Ok(ExitCode::SUCCESS)
}
