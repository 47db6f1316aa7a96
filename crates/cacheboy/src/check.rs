//! `cacheboy check`: everything that can be known to be wrong before it is live.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use locate::Locator;
use nodemap::{Finding, NodeMap};

use crate::cli::CheckArgs;

/// Checks each path, prints all findings, and exits 1 when there is one.
pub(crate) fn run(args: &CheckArgs) -> Result<ExitCode> {
    let mut clean = true;
    for path in &args.paths {
        match check(path) {
            Ok(summary) => println!("{}: ok: {summary}", path.display()),
            Err(findings) => {
                clean = false;
                for finding in findings {
                    println!("{finding}");
                }
            }
        }
    }
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check(path: &Path) -> Result<String, Vec<Finding>> {
    if path.is_dir() {
        return nodemap::admin::load_dir(path).map(|map| summary(&map));
    }
    match path.extension().and_then(|e| e.to_str()) {
        Some("toml") => check_config(path),
        Some("json") => check_node_map(path).map_err(|error| vec![whole_file(path, &error)]),
        Some("mmdb") => check_database(path).map_err(|error| vec![whole_file(path, &error)]),
        _ => Err(vec![Finding {
            file: path.to_owned(),
            line: 0,
            key: String::new(),
            problem: "not a folder and none of *.toml, *.json, *.mmdb".into(),
            remedy: "name a map folder, a host's config file, a node map or a database".into(),
        }]),
    }
}

/// A config file, and what it points to.
fn check_config(path: &Path) -> Result<String, Vec<Finding>> {
    let config = config::load(path)?;
    let mut findings = Vec::new();
    let location = &config.location;
    if let Err(error) = Locator::open(location.country.as_deref(), location.asn.as_deref()) {
        findings.push(whole_file(path, &error.into()));
    }
    if let Some(health) = &config.health
        && let Err(in_maps) = nodemap::admin::load_dir(&health.maps)
    {
        findings.extend(in_maps);
    }
    if !findings.is_empty() {
        return Err(findings);
    }
    let roles = [
        ("edge", config.edge.is_some()),
        ("dns", config.dns.is_some()),
        ("health", config.health.is_some()),
        ("master", config.master.is_some()),
    ];
    let roles: Vec<_> = roles.iter().filter(|(_, has)| *has).map(|(role, _)| *role).collect();
    Ok(format!("host {} with {}", config.host.name, roles.join(", ")))
}

fn check_node_map(path: &Path) -> Result<String> {
    let bytes = rt::file::read_bounded(path, rt::follow::NODE_MAP_BYTES_MAX as u64)?;
    let map = NodeMap::parse(&bytes)?;
    Ok(format!("generation {} by {}, {}", map.generation, map.publisher, summary(&map.map)))
}

fn check_database(path: &Path) -> Result<String> {
    let both = Locator::open(Some(path), Some(path));
    let opened = match both {
        Ok(locator) => locator,
        Err(_) => match Locator::open(Some(path), None) {
            Ok(locator) => locator,
            Err(_) => Locator::open(None, Some(path))?,
        },
    };
    match opened.describe() {
        [] => bail!("nothing in it"),
        [info, ..] => {
            Ok(format!("{}, {} networks: {}", info.kind, info.networks, info.description))
        }
    }
}

fn whole_file(path: &Path, error: &anyhow::Error) -> Finding {
    Finding {
        file: path.to_owned(),
        line: 0,
        key: String::new(),
        problem: "cannot be used".into(),
        remedy: format!("{error:#}"),
    }
}

fn summary(map: &nodemap::AdminMap) -> String {
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    [
        count(map.sites.len(), "site"),
        count(map.nodes.len(), "node"),
        count(map.pools.len(), "pool"),
        count(map.maps.len(), "map"),
        count(map.zones.len(), "zone"),
        count(map.projects.len(), "project"),
    ]
    .join(", ")
}
