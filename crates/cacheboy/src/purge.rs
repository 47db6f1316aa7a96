//! `cacheboy purge`: takes content out of use on every edge, with a receipt of each.
//!
//! Phases: which nodes there are, and where their admin listeners are reached -> all of them at once,
//! but parents before the edges that fill from them, which would else get old content again -> one
//! line a node.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::CommandFactory;
use clap::error::ErrorKind;
use model::{ByteCount, Name};
use nodemap::{AdminMap, HostPattern};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::cli::{Cli, PurgeArgs};
use crate::nodes::Node;
use crate::out::say;
use crate::{explain, roles};

/// Hosts that are named to somebody who named one that is none.
const HOSTS_SHOWN: usize = 20;

/// What became of one node: its receipt, or why there is none.
type Done = (Node, Result<Value, String>);

/// Asks every node and prints what it said.
pub(crate) async fn run(args: PurgeArgs) -> Result<ExitCode> {
    let body = match body(&args) {
        Ok(body) => body,
        Err(why) => Cli::command().error(ErrorKind::ValueValidation, why).exit(),
    };
    let (first, rest) = nodes(&args)?;
    let (mut documents, mut failed) = (Vec::new(), 0u32);
    let total = first.len().saturating_add(rest.len());
    for wave in [first, rest] {
        let mut asking: JoinSet<Done> = JoinSet::new();
        for node in wave {
            let body = body.clone();
            asking.spawn(async move {
                let receipt = node.post("/purge", &body).await;
                (node, receipt)
            });
        }
        while let Some(done) = asking.join_next().await {
            let (node, receipt) = done.context("a node was not asked to the end")?;
            failed = failed.saturating_add(u32::from(receipt.is_err()));
            if args.json {
                documents.push(document(&node, receipt));
            } else {
                say!("{}", line(&node, receipt))?;
            }
        }
    }
    if args.json {
        documents.sort_by_key(|one| one["node"].to_string());
        let all = json!({ "format": 1, "nodes": total, "failed": failed, "receipts": documents });
        say!("{all:#}")?;
    }
    if failed > 0 {
        eprintln!("cacheboy: {failed} of {total} nodes did not purge: run it again when they can");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// What is posted to every node, or what is wrong with the command line.
fn body(args: &PurgeArgs) -> Result<Value, String> {
    let PurgeArgs { target, project, soft, dry_run, .. } = args;
    let mut body = json!({ "soft": soft, "dry_run": dry_run });
    match (target, project) {
        (Some(path), Some(project)) if path.starts_with('/') => {
            body["project"] = json!(project);
            body["path"] = json!(path);
        }
        (Some(url), Some(_)) => {
            return Err(format!("{url} is no path: write /PATH, or leave --project out"));
        }
        (None, Some(project)) => body["project"] = json!(project),
        (Some(url), None) if host_of(url).is_some() => body["url"] = json!(url),
        (url, None) => {
            let url = url.as_deref().unwrap_or_default();
            let remedy = "write http://HOST/PATH, with / for the path of the root, or add --project \
                          NAME to a path";
            return Err(format!("{url:?} is no URL with host and path: {remedy}"));
        }
    }
    Ok(body)
}

/// The host of `http://HOST[:PORT]/...`, in lower case.
fn host_of(url: &str) -> Option<String> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))?;
    let (authority, _) = rest.split_once('/')?;
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    };
    (!host.is_empty()).then(|| host.trim_end_matches('.').to_ascii_lowercase())
}

/// The nodes to ask, those first that others fill from.
fn nodes(args: &PurgeArgs) -> Result<(Vec<Node>, Vec<Node>)> {
    let (map, own) = match (&args.config, &args.maps) {
        (Some(config), _) => {
            let config = roles::load(config)?;
            let map = explain::running_map(&config)?.map;
            let own = config.edge.is_some().then_some((config.host.name, config.admin));
            (map, own)
        }
        (None, Some(dir)) => (roles::accepted(nodemap::admin::load_dir(dir))?, None),
        (None, None) => {
            return Ok((Vec::new(), args.node.iter().map(Node::at).collect()));
        }
    };
    let parents = parents(&map, &project_of(&map, args)?);
    let nodes = map.nodes.iter().map(|(name, node)| Node::of_map(name, node, own.as_ref()));
    Ok(nodes.partition(|node| node.name.as_ref().is_some_and(|name| parents.contains(name))))
}

/// The project that is meant; it is in the map, or nobody needs to be asked.
fn project_of(map: &AdminMap, args: &PurgeArgs) -> Result<Name> {
    let known = || map.projects.keys().map(Name::as_str).collect::<Vec<_>>().join(", ");
    if let Some(name) = &args.project {
        if !map.projects.contains_key(name) {
            bail!("there is no project {name}: the projects are {}", known());
        }
        return Ok(name.clone());
    }
    let host = args.target.as_deref().and_then(host_of).unwrap_or_default();
    let exact =
        |pattern: &HostPattern| matches!(pattern, HostPattern::Exact(h) if h.as_str() == host);
    let any = |pattern: &HostPattern| *pattern == HostPattern::Any;
    let with = |wanted: &dyn Fn(&HostPattern) -> bool| {
        map.projects.iter().find(|(_, project)| project.hosts.iter().any(wanted))
    };
    match with(&exact).or_else(|| with(&any)) {
        Some((name, _)) => Ok(name.clone()),
        None => {
            let hosts = map.projects.values().flat_map(|project| &project.hosts);
            let hosts: Vec<_> = hosts.take(HOSTS_SHOWN).cloned().map(String::from).collect();
            bail!("no project has the host {host}: hosts are {}", hosts.join(", "))
        }
    }
}

/// The nodes that edges fill the project from.
fn parents(map: &AdminMap, project: &Name) -> BTreeSet<Name> {
    let pool = map.projects.get(project).and_then(|project| project.parents.as_ref());
    let pool = pool.and_then(|pool| map.pools.get(pool));
    pool.into_iter().flat_map(|nodes| nodes.keys().cloned()).collect()
}

fn document(node: &Node, receipt: Result<Value, String>) -> Value {
    receipt.unwrap_or_else(|error| json!({ "node": node.shown(), "error": error }))
}

/// A receipt for people.
fn line(node: &Node, receipt: Result<Value, String>) -> String {
    let receipt = match receipt {
        Ok(receipt) => receipt,
        Err(error) => return format!("{}: FAILED: {error}", node.shown()),
    };
    let word = |key: &str| receipt[key].as_str().unwrap_or_default();
    let name = node.name.as_ref().map_or_else(|| word("node").to_owned(), Name::to_string);
    let verb = if receipt["dry_run"] == true { "would purge" } else { "purged" };
    let target = word("target");
    let what = match word("scope") {
        "project" => format!("all of {}", word("project")),
        "prefix" => format!("{target}* of {}", word("project")),
        _ => format!("{target} of {}", word("project")),
    };
    let held = match (word("scope"), &receipt["held"]) {
        ("url", Value::Null) => "; held nothing".to_owned(),
        ("url", held) => {
            let bytes = ByteCount(held["bytes"].as_u64().unwrap_or_default());
            let part = if held["complete"] == true { "" } else { "a part of " };
            let age_s = held["confirmed_s_ago"].as_u64().unwrap_or_default();
            format!("; held {part}{bytes}, confirmed {age_s} s ago")
        }
        _ => "; objects are looked at when they are asked for".to_owned(),
    };
    format!("{name}: {verb} {what}, {}, at {}{held}", word("mode"), word("at"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> AdminMap {
        let mut map = nodemap::testing::admin_map(&[
            ("edge1", &["192.0.2.1"]),
            ("edge2", &["192.0.2.2"]),
            ("top", &["192.0.2.3"]),
        ]);
        map.nodes.get_mut("edge1").unwrap().admin = Some("http://127.0.0.1:9101".into());
        map.pools.insert("tops".parse().unwrap(), [("top".parse().unwrap(), 1)].into());
        map.projects.get_mut("x").unwrap().parents = Some("tops".parse().unwrap());
        map
    }

    #[test]
    fn the_host_of_a_url_names_the_project() {
        for (url, host) in [
            ("http://X.example/a", Some("x.example")),
            ("https://x.example.:8443/", Some("x.example")),
            ("http://x.example", None),
            ("http:///a", None),
            ("/a", None),
        ] {
            assert_eq!(host_of(url).as_deref(), host, "{url}");
        }
        let args = |target: Option<&str>, project: Option<&str>| PurgeArgs {
            target: target.map(str::to_owned),
            project: project.map(|p| p.parse().unwrap()),
            soft: false,
            dry_run: false,
            config: None,
            maps: None,
            node: Vec::new(),
            json: false,
        };
        let found = |target, project| {
            project_of(&map(), &args(target, project)).map_err(|error| error.to_string())
        };
        assert_eq!(found(Some("http://x.example/a"), None).unwrap().as_str(), "x");
        assert_eq!(found(None, Some("x")).unwrap().as_str(), "x");
        let stranger = found(Some("http://y.example/a"), None).unwrap_err();
        assert_eq!(stranger, "no project has the host y.example: hosts are x.example");
        assert!(found(None, Some("y")).unwrap_err().contains("the projects are x"));
        assert_eq!(parents(&map(), &"x".parse().unwrap()).len(), 1);
    }

    #[test]
    fn a_receipt_is_one_line() {
        let node = || Node { name: Some("edge1".parse().unwrap()), admin: Err(String::new()) };
        let receipt = json!({
            "node": "edge1", "project": "x", "scope": "url", "target": "/a", "mode": "hard",
            "dry_run": false, "at": "2026-11-30 12:00:00Z",
            "held": { "bytes": 2048, "complete": true, "confirmed_s_ago": 7 },
        });
        assert_eq!(
            line(&node(), Ok(receipt)),
            "edge1: purged /a of x, hard, at 2026-11-30 12:00:00Z; held 2 KiB, confirmed 7 s ago"
        );
        assert_eq!(line(&node(), Err("no answer".into())), "edge1: FAILED: no answer");
    }
}
