//! `cacheboy cert`: certificates that the publisher orders, for people.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rt::admin::{AdminAddress, post};
use rt::identity::Identity;
use serde_json::{Value, json};

use crate::cli::{CertArgs, CertCommand};
use crate::out::say;
use crate::{roles, status};

/// How long the publisher may take to note it.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Does what is asked.
pub(crate) async fn run(args: CertArgs) -> Result<ExitCode> {
    match args.command {
        CertCommand::Status { health, config, json } => {
            let status = status::ask(&health, config.as_deref()).await?;
            show(&status["acme"], json)
        }
        CertCommand::Reissue { name: Some(name), config, .. } => {
            reissue(&config, &json!({ "name": name })).await
        }
        CertCommand::Reissue { node, config, .. } => {
            reissue(&config, &json!({ "node": node })).await
        }
        CertCommand::Identity { config } => identity(&config),
    }
}

fn show(acme: &Value, json: bool) -> Result<ExitCode> {
    let Some(certificates) = acme["certificates"].as_array() else {
        bail!("this checker orders no certificates: add [health.acme] to its config");
    };
    if json {
        say!("{acme:#}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    say!("{:<40} STATE    {:<21} {:<21} WHY", "NAME", "UNTIL", "NEXT ORDER")?;
    for one in certificates {
        let (name, state, why) = (text(&one["name"]), text(&one["state"]), text(&one["why"]));
        let (until, next) = (text(&one["not_after"]), text(&one["next_order"]));
        say!("{name:<40} {state:<8} {until:<21} {next:<21} {why}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What the maps must say of the host with this config.
fn identity(config: &Path) -> Result<ExitCode> {
    let host = roles::load(config)?.host;
    std::fs::create_dir_all(&host.state_dir)
        .with_context(|| format!("cannot make {}", host.state_dir.display()))?;
    let identity = Identity::open(&host.state_dir)?;
    say!("[node.{}]", host.name)?;
    say!("identity = \"{}\"", identity.digest())?;
    Ok(ExitCode::SUCCESS)
}

/// Has the publisher of the host with this config order anew.
async fn reissue(config: &Path, wish: &Value) -> Result<ExitCode> {
    let config = roles::load(config)?;
    let Some(admin) = config.admin.map(AdminAddress::from) else {
        bail!("this host's config has no [admin]: add it, and start the checker again");
    };
    let reply = post(&admin, "/cert/reissue", wish, TIMEOUT).await;
    let reply = reply.with_context(|| format!("nothing is ordered: {admin} does not answer"))?;
    let answer: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    if !reply.status.is_success() {
        let why = answer["error"].as_str().unwrap_or("is it a checker with [health.acme]?");
        bail!("nothing is ordered: {why}");
    }
    for name in answer["names"].as_array().into_iter().flatten() {
        say!(
            "{} is ordered anew; `cacheboy cert status` shows what comes of it",
            name.as_str().unwrap_or("?")
        )?;
    }
    Ok(ExitCode::SUCCESS)
}
