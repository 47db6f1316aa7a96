//! `cacheboy explain`: where a client would be sent, and why.

use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use config::HostConfig;
use model::{Family, Name, NodeState, State};
use nodemap::{AdminMap, AllDown, HostPattern, NodeMap, NodeStates, Project};
use serde_json::json;
use steer::redirect::{self, Circumstances, Visit};
use steer::{ClassTable, Steering};

use crate::cli::ExplainArgs;
use crate::out::say;
use crate::{geo, roles};

mod records;

/// Prints every step from the address to the nodes.
pub(crate) fn run(args: &ExplainArgs) -> Result<ExitCode> {
    say!("{}", explanation(args)?.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

fn explanation(args: &ExplainArgs) -> Result<String> {
    let config = args.config.as_deref().map(roles::load).transpose()?;
    let map = match (&config, &args.maps) {
        (Some(config), _) => running_map(config)?,
        (None, Some(dir)) => unprobed(roles::accepted(nodemap::admin::load_dir(dir))?),
        (None, None) => bail!("neither --config nor --maps"),
    };
    if let Some(node) = args.at.as_ref().filter(|node| !map.map.nodes.contains_key(*node)) {
        let nodes: Vec<&str> = map.map.nodes.keys().map(Name::as_str).collect();
        bail!("{node} is no node: the map has {}", nodes.join(", "))
    }
    let meant = meaning(&map.map, &args.name);
    if meant.is_err()
        && let Some(records) = records::find(&map.map, config.as_ref(), &args.name)
    {
        return Ok(records::shown(&args.name, &records, args.json));
    }
    let (project, is_fixed) = match meant? {
        Meaning::Project(project) => (project, false),
        Meaning::Node { project, .. } if args.at.is_some() => (project, true),
        Meaning::Node { project, node } => {
            return Ok(fixed_name(&map, &args.name, &project, &node, args.json));
        }
    };
    let locator = geo::locator(config.as_ref(), &args.databases)?;
    let table = Arc::new(ClassTable::compile(&locator, &map.map, rt::clock::now().wall_ms)?);
    let steering = Steering::new(table, Arc::new(map))?;
    let mut explanation = steering
        .explain(&project, args.client, &locator)
        .with_context(|| format!("no project {project}"))?;
    if let Some(node) = &args.at {
        let is_located = redirect::is_located(&explanation.location);
        let visit = Visit::new(&steering, &project, args.client, is_located, node);
        let avoid: Vec<&str> = args.avoid.iter().map(String::as_str).collect();
        let with = Circumstances { avoid: &avoid, is_fixed, is_spent: false };
        explanation.at = Some(steering.at_node(&visit, &with));
    }
    if args.json {
        Ok(format!("{}\n", serde_json::to_string_pretty(&explanation)?))
    } else {
        Ok(explanation.to_string())
    }
}

/// The node map that a host last took over, or published.
pub(crate) fn running_map(config: &HostConfig) -> Result<NodeMap> {
    let state_dir = &config.host.state_dir;
    let mut paths = Vec::new();
    if config.edge.is_some() || config.dns.is_some() {
        paths.push(rt::follow::last_good_path(state_dir));
    }
    if config.health.is_some() {
        paths.push(health::published_path(state_dir));
    }
    let Some((path, bytes)) = first_there(&paths) else {
        let shown: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        match shown.as_slice() {
            [] => bail!(
                "a host that is neither edge, dns nor health has no node map: take another's config"
            ),
            shown => bail!(
                "there is no {}: has this host followed or published a node map yet?",
                shown.join(" nor ")
            ),
        }
    };
    let bytes = bytes.with_context(|| format!("cannot read {}", path.display()))?;
    NodeMap::parse(&bytes).with_context(|| format!("cannot use {}", path.display()))
}

/// The first of the files that is there.
fn first_there(paths: &[PathBuf]) -> Option<(&Path, io::Result<Vec<u8>>)> {
    paths.iter().find_map(|path| {
        let read = rt::file::read_bounded(path, rt::follow::NODE_MAP_BYTES_MAX as u64);
        let gone = read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        (!gone).then_some((path.as_path(), read))
    })
}

/// Admin maps as if health had just started.
pub(crate) fn unprobed(map: AdminMap) -> NodeMap {
    let states = map.nodes.iter().map(|(name, node)| {
        let state = || match &node.drain {
            Some(why) => NodeState::new(State::Drained, why.clone(), 0),
            None => NodeState::unprobed(0),
        };
        let mut states = NodeStates::default();
        for family in Family::ALL {
            if node.addresses_of(family).next().is_some() {
                *states.get_mut(family) = Some(state());
            }
        }
        (name.clone(), states)
    });
    let states = states.collect();
    NodeMap::new(0, "admin maps", map, states)
}

/// What a name stands for.
enum Meaning {
    /// Steered by the map of this project.
    Project(Name),
    /// `NODE.NAME`: fixed.
    Node { project: Name, node: Name },
}

/// What `name` means: a project's steered name, one of its hosts or its short name, or a node below
/// a steered name.
fn meaning(map: &AdminMap, name: &str) -> Result<Meaning> {
    let wanted = name.trim_end_matches('.').to_ascii_lowercase();
    let is_meant = |(short, project): &(&Name, &Project)| {
        let host_is =
            |host: &HostPattern| matches!(host, HostPattern::Exact(h) if h.as_str() == wanted);
        project.name.as_str() == wanted
            || short.as_str() == wanted
            || project.hosts.iter().any(host_is)
    };
    if let Some((short, _)) = map.projects.iter().find(is_meant) {
        return Ok(Meaning::Project(short.clone()));
    }
    let below = map.projects.iter().find_map(|(short, project)| {
        let node = wanted.strip_suffix(project.name.as_str())?.strip_suffix('.')?;
        Some((short, project, node))
    });
    let Some((short, project, label)) = below else {
        let known: Vec<_> = map.projects.values().map(|p| p.name.as_str()).collect();
        bail!("no project has the name {name}: the map has {}", known.join(", "))
    };
    let Some(node) = map.nodes.keys().find(|node| node.as_str() == label) else {
        let nodes: Vec<&str> = map.nodes.keys().map(Name::as_str).collect();
        bail!("{label} is no node, so {name} does not exist: the map has {}", nodes.join(", "))
    };
    if !serves(map, project, node) {
        bail!("node {node} is in no pool that {short} uses, so {name} does not exist")
    }
    Ok(Meaning::Node { project: short.clone(), node: node.clone() })
}

/// Whether clients of `project` may ever be sent to `node`; only then `NODE.NAME` exists.
fn serves(map: &AdminMap, project: &Project, node: &Name) -> bool {
    let lists = map.maps.get(&project.map).into_iter().flat_map(|rules| rules.lists());
    let last = match &project.all_down {
        AllDown::Pool(pool) => Some(pool),
        _ => None,
    };
    let mut pools = lists.flatten().chain(last);
    pools.any(|pool| map.pools.get(pool).is_some_and(|members| members.contains_key(node)))
}

/// What is answered for `NODE.NAME`: the node, whoever asks and however it is.
fn fixed_name(map: &NodeMap, asked: &str, project: &Name, node: &Name, as_json: bool) -> String {
    let ttl_s = map.map.projects.get(project).map_or(0, |project| project.ttl_s);
    let addresses: Vec<IpAddr> =
        map.map.nodes.get(node).map(|node| node.addresses.clone()).unwrap_or_default();
    let states = map.states.get(node);
    if as_json {
        let document = json!({
            "format": 1, "generation": map.generation, "name": asked, "project": project,
            "node": node, "ttl_s": ttl_s, "addresses": addresses, "states": states,
        });
        return format!("{document:#}\n");
    }
    let mut out = format!(
        "{asked} is the fixed name of node {node} in project {project}\n\
         every client gets its addresses, in whatever state it is; answers live {ttl_s} s\n\n"
    );
    for address in addresses {
        let family = Family::of(address);
        let record = if family == Family::V4 { "A" } else { "AAAA" };
        let state = states.and_then(|states| states.get(family));
        let state = state.map(|s| format!("  ({}: {})", s.state, s.reason)).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{record:<4}  {address}{state}");
    }
    out
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    const MAPS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/maps");

    fn explain(arguments: &[&str]) -> Result<String> {
        let cli = Cli::try_parse_from([&["cacheboy", "explain"], arguments].concat()).unwrap();
        let Command::Explain(args) = cli.command else { panic!("not an explain") };
        explanation(&args)
    }

    #[test]
    fn maps_alone_have_no_times_and_show_who_is_drained() {
        let dir = tempfile::tempdir().unwrap();
        for file in fs::read_dir(MAPS).unwrap() {
            let file = file.unwrap();
            let text = fs::read_to_string(file.path()).unwrap();
            let drained =
                text.replace("[node.mirror1-us]", "[node.mirror1-us]\ndrain = \"new disks\"");
            fs::write(dir.path().join(file.file_name()), drained).unwrap();
        }
        let maps = dir.path().to_str().unwrap();
        let text = explain(&["24.0.0.0/13", "videolan", "--maps", maps]).unwrap();
        assert!(text.starts_with("client    24.0.0.0\n"), "{text}");
        assert!(!text.contains("1970") && !text.contains("generation 0"), "{text}");
        assert!(text.contains("(unknown: not probed yet)"), "{text}");
        let drained = text.lines().find(|line| line.contains("mirror1-us")).unwrap();
        assert!(drained.contains("excluded: drained") && drained.ends_with("(drained: new disks)"));
    }

    #[test]
    fn what_an_edge_does_with_a_client_is_told_beside() {
        let ask = |name: &str, node: &str, more: &[&str]| {
            explain(&[&["24.0.0.0", name, "--maps", MAPS, "--at", node], more].concat())
        };
        let text = ask("videolan", "mirror1-au", &[]).unwrap();
        let end = "\n\nat mirror1-au\n  the client is missteered: it belongs to pool america\n  serves: off\n";
        assert!(text.ends_with(end), "{text}");
        let text = ask("mirror1-us.videolan.cdn.example", "mirror1-us", &["--json"]).unwrap();
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["at"]["missteered"], serde_json::Value::Null);
        assert_eq!(
            (&document["at"]["served"], &document["at"]["redirect"]),
            (&"off".into(), &serde_json::Value::Null)
        );
        let error = ask("videolan", "mirror9", &[]).unwrap_err().to_string();
        assert!(error.starts_with("mirror9 is no node: the map has mirror1-au, "), "{error}");
    }

    #[test]
    fn the_fixed_name_of_a_node_is_understood() {
        let ask = |name: &str, more: &[&str]| {
            explain(&[&["192.0.2.1", name, "--maps", MAPS], more].concat())
        };
        let text = ask("Mirror1-AU.videolan.cdn.example.", &[]).unwrap();
        assert_eq!(
            text,
            "Mirror1-AU.videolan.cdn.example. is the fixed name of node mirror1-au in project videolan\n\
             every client gets its addresses, in whatever state it is; answers live 60 s\n\n\
             A     127.77.0.11  (unknown: not probed yet)\n\
             AAAA  2001:db8:77::11  (unknown: not probed yet)\n"
        );
        let text = ask("mirror1-au.videolan.cdn.example", &["--json"]).unwrap();
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["addresses"][0], "127.77.0.11");
        for (name, expected) in [
            ("mirror9.videolan.cdn.example", "mirror9 is no node, so mirror9.videolan"),
            ("a.mirror1-au.videolan.cdn.example", "a.mirror1-au is no node"),
            ("mirror1-au.example", "no project has the name mirror1-au.example: the map has "),
        ] {
            let error = ask(name, &[]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let mut map = nodemap::admin::load_dir(Path::new(MAPS)).unwrap();
        map.pools
            .values_mut()
            .for_each(|pool| pool.retain(|node, _| node.as_str() != "mirror1-au"));
        let error = meaning(&map, "mirror1-au.videolan.cdn.example").err().unwrap().to_string();
        assert!(error.contains("in no pool that videolan uses"), "{error}");
    }

    #[test]
    fn a_health_host_is_asked_for_the_map_that_it_publishes() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("h.toml");
        let role = |role: &str| {
            let text = format!("[host]\nname = \"h\"\nstate_dir = \"state\"\n{role}");
            fs::write(&config, text).unwrap();
            explain(&["192.0.2.1", "videolan", "--config", config.to_str().unwrap()])
        };
        let health = "[health]\nlisten = [\"127.0.0.1:81\"]\nmaps = \"maps\"\n";
        let dns = "[follow]\nnode_map = [\"file:m\"]\n[dns]\nlisten = [\"127.0.0.1:53\"]\n";
        let master = "[master]\nlisten = [\"127.0.0.1:80\"]\ntree = \"tree\"\n";
        let error = role(health).unwrap_err().to_string();
        assert!(error.contains("state/node-map.json: has this host followed or "), "{error}");
        let error = role(master).unwrap_err().to_string();
        assert!(error.contains("has no node map"), "{error}");

        let mut map = unprobed(nodemap::admin::load_dir(Path::new(MAPS)).unwrap());
        map.generation = 7;
        let state = dir.path().join("state");
        fs::create_dir(&state).unwrap();
        fs::write(health::published_path(&state), map.to_json()).unwrap();
        assert!(role(health).unwrap().contains("node map  generation 7\n"));
        assert!(role(dns).is_err());
        // What the host serves from goes before what it publishes.
        let both = format!("{dns}{health}");
        assert!(role(&both).unwrap().contains("generation 7\n"));
        map.generation = 8;
        fs::write(rt::follow::last_good_path(&state), map.to_json()).unwrap();
        assert!(role(&both).unwrap().contains("generation 8\n"));
        assert!(role(health).unwrap().contains("generation 7\n"));
    }
}
