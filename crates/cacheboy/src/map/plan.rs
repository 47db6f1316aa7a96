//! `cacheboy map plan`: weights by capacities, preferences and what clients ask for, and what is expected of
//! them.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use model::Family;
use nodemap::NodeMap;
use nodemap::published::SHARE_PPM;
use serde_json::json;
use steer::Steering;
use steer::diff::{Diff, Differ};
use steer::planning::{Demand, Group, Load, Planning, plan};

use super::{node_map, steered};
use crate::cli::MapPlanArgs;
use crate::out::say;
use crate::{geo, roles};

/// Largest report of demand that is read: 200,000 rows have less.
const USAGE_BYTES_MAX: u64 = 128 << 20;

/// Prints the plan; fails where there is too little room.
pub(super) fn run(args: &MapPlanArgs) -> Result<ExitCode> {
    let (text, planning) = planned(args)?;
    say!("{}", text.trim_end())?;
    // Not for the sake of a bit.
    let has_room = planning.above_capacity_bits_per_s < 1.0;
    Ok(if has_room { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn planned(args: &MapPlanArgs) -> Result<(String, Planning)> {
    let usage = args.usage.as_deref().map(read).transpose()?;
    let config = args.config.as_deref().map(roles::load).transpose()?;
    let locator = geo::locator(config.as_ref(), &args.databases)?;
    let mut map = node_map(&args.maps)?;
    if let Some(current) = &args.current {
        go_on_from(&mut map, node_map(current)?);
    }
    let before = steered(map, &locator)?;
    let (map, table) = (before.map(), before.table());
    let demand = usage.map(|usage| Demand::of(&usage, &map.map, table, &locator));
    let planning = plan(map, &demand.unwrap_or_default());
    let planned = NodeMap { plan: planning.plan.clone(), ..NodeMap::clone(map) };
    let after = Steering::new(Arc::clone(table), Arc::new(planned))?;
    let moves = Differ::new(&before, &after, &locator).diff(0);
    let text = match args.json {
        true => {
            let mut document = serde_json::to_value(&planning)?;
            if let Some(fields) = document.as_object_mut() {
                fields.insert("clients".to_owned(), json!(moved(&moves)));
            }
            format!("{document:#}\n")
        }
        false => shown(&planning, &moves, args.usage.is_some()),
    };
    Ok((text, planning))
}

fn read(path: &Path) -> Result<usage::demand::Demand> {
    let document = rt::file::read_bounded(path, USAGE_BYTES_MAX);
    let document = document.with_context(|| format!("cannot read {}", path.display()))?;
    let usage = usage::demand::Demand::parse(&document);
    usage.with_context(|| format!("cannot use {}", path.display()))
}

/// `map` with the states and the plan of `current`. What people drained since stays drained, and what is
/// new was not probed.
fn go_on_from(map: &mut NodeMap, mut current: NodeMap) {
    for (name, states) in &mut map.states {
        let is_drained = map.map.nodes.get(name).is_some_and(|node| node.drain.is_some());
        let Some(known) = current.states.get_mut(name).filter(|_| !is_drained) else { continue };
        for family in Family::ALL {
            let state = states.get_mut(family);
            if state.is_some() {
                *state = known.get_mut(family).take().or_else(|| state.take());
            }
        }
    }
    map.plan = current.plan;
}

/// By project and family: which part of all addresses is expected to get other nodes, from 0 to 1.
fn moved(moves: &Diff) -> Vec<serde_json::Value> {
    let parts = moves.projects.iter();
    let part = parts.map(|part| {
        let (clients, _) = part.moved_between_nodes.shares(part.all);
        json!({ "project": part.project, "family": part.family, "moved": clients })
    });
    part.collect()
}

/// The plan for people.
fn shown(planning: &Planning, moves: &Diff, has_usage: bool) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_all(&mut out, planning, moves, has_usage);
    out
}

fn write_all(
    out: &mut String,
    planning: &Planning,
    moves: &Diff,
    has_usage: bool,
) -> std::fmt::Result {
    if !has_usage {
        writeln!(out, "nobody said what clients ask for (--usage): the weights of the maps hold")?;
    }
    writeln!(out, "{:<32} {:>12} Mbit/s", "demand", mega(planning.demand_bits_per_s))?;
    writeln!(
        out,
        "{:<32} {:>12} Mbit/s",
        "  to other nodes than now",
        mega(planning.moved_bits_per_s)
    )?;
    for (what, rate) in [
        ("  above what is paid for", planning.above_commit_bits_per_s),
        ("  above capacities", planning.above_capacity_bits_per_s),
        ("  for whom no node serves", planning.unplanned_bits_per_s),
    ] {
        if rate >= 1.0 {
            writeln!(out, "{what:<32} {:>12} Mbit/s", mega(rate))?;
        }
    }
    write_loads(out, "node", &planning.nodes)?;
    write_loads(out, "site", &planning.sites)?;
    write_spills(out, planning)?;
    write_weights(out, planning)?;
    writeln!(out, "\nclients that get other nodes")?;
    for part in &moves.projects {
        let (clients, _) = part.moved_between_nodes.shares(part.all);
        let who = format!("{} {}", part.project, part.family);
        writeln!(out, "  {who:<30} {:>10.2} %", clients * 100.0)?;
    }
    Ok(())
}

fn write_loads(out: &mut String, what: &str, loads: &[Load]) -> std::fmt::Result {
    let title = format!("{what} (Mbit/s)");
    writeln!(
        out,
        "\n{title:<32} {:>12} {:>12} {:>12} {:>12}",
        "capacity", "paid for", "before", "after"
    )?;
    for load in loads {
        let limit = |limit: Option<f64>| limit.map_or_else(|| "-".to_owned(), mega);
        let (capacity, paid) = (limit(load.capacity_bits_per_s), limit(load.commit_bits_per_s));
        let (before, after) = (mega(load.before_bits_per_s), mega(load.after_bits_per_s));
        writeln!(
            out,
            "  {:<30} {capacity:>12} {paid:>12} {before:>12} {after:>12}",
            load.name.as_str()
        )?;
    }
    Ok(())
}

fn write_spills(out: &mut String, planning: &Planning) -> std::fmt::Result {
    if planning.spills.is_empty() {
        return writeln!(out, "\nnobody spills");
    }
    writeln!(out, "\nwho spills")?;
    for spill in &planning.spills {
        let full: Vec<&str> = spill.full.iter().map(|name| name.as_str()).collect();
        let pools =
            spill.pools.iter().map(|(pool, share)| format!("{pool} {:.1} %", share * 100.0));
        let pools = pools.collect::<Vec<_>>().join(", ");
        writeln!(out, "  {}: {} Mbit/s", who(&spill.group), mega(spill.demand_bits_per_s))?;
        writeln!(out, "    get {pools}; full: {}", full.join(", "))?;
    }
    Ok(())
}

fn write_weights(out: &mut String, planning: &Planning) -> std::fmt::Result {
    if planning.plan.is_empty() {
        return writeln!(out, "\nthe weights of the maps hold");
    }
    writeln!(out, "\nplan")?;
    for list in &planning.plan.lists {
        let (pools, refused) = (list.pools.clone(), list.refused.clone());
        writeln!(out, "  {}", who(&Group { pools, refused, family: list.family }))?;
        for tier in &list.tiers {
            let share = f64::from(tier.share_ppm) / f64::from(SHARE_PPM);
            write!(out, "    {} {:.1} %:", tier.pool, share * 100.0)?;
            let split = planning.plan.splits.get(tier.split);
            let total: u64 =
                split.iter().flat_map(|split| split.values()).map(|w| u64::from(*w)).sum();
            for (node, weight) in split.into_iter().flatten() {
                write!(out, " {node} {:.1} %", f64::from(*weight) / total as f64 * 100.0)?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}

/// A group by its family, its pools and the limited nodes that do not serve it.
fn who(group: &Group) -> String {
    let pools: Vec<&str> = group.pools.iter().map(|name| name.as_str()).collect();
    let mut who = format!("{} {}", group.family, pools.join(", "));
    if !group.refused.is_empty() {
        let refused: Vec<&str> = group.refused.iter().map(|name| name.as_str()).collect();
        let _ = write!(who, " without {}", refused.join(", "));
    }
    who
}

/// Millions, with one digit behind the point.
fn mega(bits_per_s: f64) -> String {
    format!("{:.1}", bits_per_s / 1e6)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::cli::DatabaseArgs;

    const MAPS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/maps");

    /// New Zealand asks for 1.5 Gbit/s of the one node near it, which has 1; a project is gone.
    const USAGE: &str = r#"{ "format": 1, "report": "demand", "first_ms": 0, "last_ms": 86400000, "rows": [
        { "project": "videolan", "country": "NZ", "asn": null, "family": "v4",
          "bytes": 1, "requests": 1, "peak_bits_per_s": 1500000000 },
        { "project": "gone", "country": "NZ", "asn": null, "family": "v4",
          "bytes": 1, "requests": 1, "peak_bits_per_s": 7000000 } ],
        "others": { "bytes": 0, "requests": 0 }, "total": { "bytes": 2, "requests": 2 } }"#;

    fn args(usage: Option<PathBuf>, current: Option<PathBuf>) -> MapPlanArgs {
        let databases = DatabaseArgs { country: None, asn: None };
        MapPlanArgs { maps: MAPS.into(), usage, current, config: None, databases, json: false }
    }

    #[test]
    fn what_the_node_nearby_has_no_room_for_goes_on_and_stays_there() {
        let dir = tempfile::tempdir().unwrap();
        let usage = dir.path().join("demand.json");
        fs::write(&usage, USAGE).unwrap();
        let (text, planning) = planned(&args(Some(usage.clone()), None)).unwrap();
        for part in [
            "demand                                 1500.0 Mbit/s\n",
            "  for whom no node serves                 7.0 Mbit/s\n",
            "  mirror1-au                           1000.0            -       1500.0        999.0\n",
            "  v4 oceania, world: 1500.0 Mbit/s\n    get oceania 66.6 %, world 33.4 %; full: mirror1-au\n",
            "  v4 oceania, world\n    oceania 66.6 %: mirror1-au 100.0 %\n    world 33.4 %: mirror1-de 5",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(planning.above_capacity_bits_per_s, 0.0);
        // What is planned is what a node map can have, and from there nobody moves.
        let current = dir.path().join("node-map.json");
        let map = NodeMap { plan: planning.plan, ..node_map(MAPS.as_ref()).unwrap() };
        fs::write(&current, map.to_json()).unwrap();
        let (text, planning) = planned(&args(Some(usage), Some(current))).unwrap();
        assert!(planning.moved_bits_per_s < 1e6, "{text}");
        assert!(text.contains("  videolan v4                          0.00 %\n"), "{text}");
    }

    #[test]
    fn without_usage_the_weights_of_the_maps_hold() {
        let (text, planning) = planned(&args(None, None)).unwrap();
        assert!(planning.plan.is_empty());
        assert!(text.starts_with("nobody said what clients ask for (--usage)"), "{text}");
        assert!(text.contains("\nthe weights of the maps hold\n"), "{text}");
    }

    #[test]
    fn what_is_no_report_of_demand_is_refused_by_name() {
        let path = Path::new(MAPS).join("nodes.toml");
        let error = planned(&args(Some(path.clone()), None)).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot use {}", path.display()));
    }
}
