//! `cacheboy map`: node maps, for people. Here is `map diff`: which clients would move from which
//! pools and nodes to which; `map plan` is in `plan`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use locate::Locator;
use model::{Family, Name};
use nodemap::NodeMap;
use serde_json::json;
use steer::diff::{Amount, Diff, Differ, Part};
use steer::{ClassTable, Steering};
use usage::read::{Access, Line};

use crate::cli::{MapArgs, MapCommand, MapDiffArgs};
use crate::out::say;
use crate::report::count::{Hosts, address};
use crate::report::files::{self, Count};
use crate::{explain, geo, report, roles};

mod beside;
mod confirm;
mod history;
mod keygen;
mod plan;

/// Does what is asked of node maps.
pub(crate) fn run(args: &MapArgs) -> Result<ExitCode> {
    match &args.command {
        MapCommand::Diff(args) => diff(args),
        MapCommand::Plan(args) => plan::run(args),
        MapCommand::Confirm { id, config } => {
            let (config, id) = (config.clone(), id.clone());
            crate::on_runtime(async move { confirm::run(&config, id).await })
        }
        MapCommand::Keygen { file } => keygen::run(file),
        MapCommand::Show { generation, config } => history::show(config, *generation),
        MapCommand::Rollback { generation, config } => {
            let (config, generation) = (config.clone(), *generation);
            crate::on_runtime(async move { history::roll_back(&config, generation).await })
        }
    }
}

/// Prints the difference.
fn diff(args: &MapDiffArgs) -> Result<ExitCode> {
    let (text, code) = difference(args)?;
    say!("{}", text.trim_end())?;
    Ok(code)
}

fn difference(args: &MapDiffArgs) -> Result<(String, ExitCode)> {
    let config = args.config.as_deref().map(roles::load).transpose()?;
    let after = geo::locator(config.as_ref(), &args.databases)?;
    let other = match (&args.old_country, &args.old_asn) {
        (None, None) => None,
        (country, asn) => {
            let named = geo::files(config.as_ref(), &args.databases);
            let country = country.as_deref().or(named.0);
            Some(Locator::open(country, asn.as_deref().or(named.1))?)
        }
    };
    let old = steering(&args.old, other.as_ref().unwrap_or(&after))?;
    let new = steering(&args.new, &after)?;
    let mut differ = Differ::new(&old, &new, &after);
    let mut code = ExitCode::SUCCESS;
    if !args.usage.is_empty() {
        let hosts = Hosts::new(&new.map().map);
        let (counted, read) = files::read(&args.usage, || Sent::new(&hosts))?;
        for ((project, client), bytes) in counted.into_iter().flat_map(|sent| sent.bytes) {
            differ.sent(&project, client, bytes);
        }
        code = report::complain(&read);
    }
    let diff = differ.diff(args.top);
    let beside = beside::changes(&old.map().map, &new.map().map)?;
    let text = match args.json {
        true => {
            let mut document = serde_json::to_value(&diff)?;
            if let Some(fields) = document.as_object_mut() {
                fields.insert("beside".to_owned(), json!(beside));
            }
            format!("{document:#}\n")
        }
        false => table(&diff, &after, !args.usage.is_empty()) + &beside::shown(&beside),
    };
    Ok((text, code))
}

/// What the map at `path` does with clients now.
fn steering(path: &Path, locator: &Locator) -> Result<Steering> {
    steered(node_map(path)?, locator)
}

/// What `map` does with clients now.
fn steered(map: NodeMap, locator: &Locator) -> Result<Steering> {
    let table = ClassTable::compile(locator, &map.map, rt::clock::now().wall_ms)?;
    Ok(Steering::new(Arc::new(table), Arc::new(map))?)
}

/// The node map at `path`; a folder of admin maps as if nobody had looked at its nodes.
fn node_map(path: &Path) -> Result<NodeMap> {
    if path.is_dir() {
        return Ok(explain::unprobed(roles::accepted(nodemap::admin::load_dir(path))?));
    }
    let document = rt::file::read_bounded(path, rt::follow::NODE_MAP_BYTES_MAX as u64);
    let document = document.with_context(|| format!("cannot read {}", path.display()))?;
    NodeMap::parse(&document).with_context(|| format!("cannot use {}", path.display()))
}

/// Bytes by project and client.
struct Sent<'a> {
    hosts: &'a Hosts,
    bytes: HashMap<(Name, IpAddr), u64>,
    /// Room for a host.
    buffer: Vec<u8>,
}

impl<'a> Sent<'a> {
    fn new(hosts: &'a Hosts) -> Self {
        Self { hosts, bytes: HashMap::new(), buffer: Vec::new() }
    }

    fn add(&mut self, access: &Access<'_>) -> Option<()> {
        let project = match &access.project {
            Some(project) => project,
            None => self.hosts.project(&access.host, &mut self.buffer),
        };
        let project = std::str::from_utf8(project).ok()?.parse().ok()?;
        let sum = self.bytes.entry((project, address(&access.client)?)).or_default();
        *sum = sum.saturating_add(access.bytes);
        Some(())
    }
}

impl Count for Sent<'_> {
    fn count(&mut self, line: &Line<'_>) {
        if let Line::Access(access) = line
            && !access.is_health
        {
            // What is of no project, or of a client without an address, moves nowhere.
            let _ = self.add(access);
        }
    }
}

/// The difference for people.
fn table(diff: &Diff, locator: &Locator, has_bytes: bool) -> String {
    let mut out = String::new();
    for part in &diff.projects {
        // Writing to a string cannot fail.
        let _ = write_part(&mut out, part, locator, has_bytes);
    }
    for project in &diff.not_compared {
        let _ = writeln!(out, "{project}: only one of the two maps has it");
    }
    out
}

fn write_part(
    out: &mut String,
    part: &Part,
    locator: &Locator,
    has_bytes: bool,
) -> std::fmt::Result {
    let what = match part.family {
        Family::V4 => "IPv4 addresses",
        Family::V6 => "IPv6 networks (/48)",
    };
    let row = |out: &mut String, name: &str, amount: Amount| {
        let (clients, bytes) = amount.shares(part.all);
        write!(out, "  {name:<32} {:>22.0} {:>6.2} %", amount.clients, clients * 100.0)?;
        if has_bytes {
            write!(out, " {:>14.1} MByte {:>6.2} %", amount.bytes / 1e6, bytes * 100.0)?;
        }
        writeln!(out)
    };
    writeln!(out, "{}: {what}", part.project)?;
    row(out, "all", part.all)?;
    row(out, "move between pools", part.moved)?;
    for pools in &part.pools {
        let (from, to) = &pools.key;
        row(out, &format!("  {from} -> {to}"), pools.amount)?;
    }
    if !part.countries.is_empty() {
        writeln!(out, "  of these the largest countries and networks")?;
    }
    for country in &part.countries {
        let name = country.key.map_or("unknown".to_owned(), |country| country.to_string());
        row(out, &format!("  {name}"), country.amount)?;
    }
    for asn in &part.asns {
        let name = match asn.key {
            Some(number) => {
                let name = locator.as_name(number).unwrap_or_default();
                format!("{number} {name}").chars().take(30).collect()
            }
            None => "AS unknown".to_owned(),
        };
        row(out, &format!("  {}", name.trim_end()), asn.amount)?;
    }
    row(out, "move between nodes", part.moved_between_nodes)?;
    for node in part.nodes.iter().filter(|node| node.before != node.after) {
        row(out, &format!("  {} before", node.node), node.before)?;
        row(out, &format!("  {} after", node.node), node.after)?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    const MAPS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/maps");

    fn diff(arguments: &[&str]) -> String {
        let cli = Cli::try_parse_from([&["cacheboy", "map", "diff"], arguments].concat()).unwrap();
        let Command::Map(args) = cli.command else { panic!("not a map") };
        let MapCommand::Diff(args) = args.command else { panic!("not a difference") };
        difference(&args).unwrap().0
    }

    /// The maps of the demo where these texts are replaced.
    fn changed(from: &str, to: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in fs::read_dir(MAPS).unwrap() {
            let file = file.unwrap();
            let text = fs::read_to_string(file.path()).unwrap();
            fs::write(dir.path().join(file.file_name()), text.replace(from, to)).unwrap();
        }
        dir
    }

    #[test]
    fn one_override_moves_its_clients_and_their_bytes() {
        let dir = changed(
            "[map.default]\n",
            "[map.default]\noverride = [{ prefix = \"24.0.0.0/13\", pools = [\"oceania\"], owner = \"noc\", reason = \"a test\" }]\n",
        );
        let log = dir.path().join("log");
        let line = |client: &str, bytes: u64| {
            format!(
                "1796083200.000 1 {client} TCP_HIT/200 {bytes} GET http://videolan.cdn.example/a - NONE/- - 1\n"
            )
        };
        fs::write(&log, line("24.1.0.0", 3_000_000) + &line("193.0.6.0", 1_000_000)).unwrap();
        let (maps, log) = (dir.path().to_str().unwrap(), log.to_str().unwrap());
        let text = diff(&[MAPS, maps, "--usage", log]);
        for part in [
            "videolan: IPv4 addresses\n",
            "    america -> oceania                             524288   0.01 %            3.0 MByte  75.00 %\n",
            "videolan: IPv6 networks (/48)\n  all                                     281474976710656 100.00 %",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let json: serde_json::Value =
            serde_json::from_str(&diff(&[MAPS, maps, "--json", "--top", "1"])).unwrap();
        assert_eq!(json["projects"][0]["moved"]["clients"], 524_288.0);
        assert_eq!(json["projects"][0]["countries"][0]["key"], "US");
        assert_eq!(json["projects"][1]["moved"]["clients"], 0.0);
        let same = diff(&[MAPS, MAPS]);
        assert!(
            same.contains("  move between nodes                                    0   0.00 %\n"),
            "{same}"
        );
    }
}
