//! `cacheboy explain`: where a client would be sent, and why.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use model::{Family, Name, NodeState};
use nodemap::{HostPattern, NodeMap, NodeStates};
use steer::{ClassTable, Steering};

use crate::cli::ExplainArgs;
use crate::{geo, roles};

/// Prints every step from the address to the nodes.
pub(crate) fn run(args: &ExplainArgs) -> Result<ExitCode> {
    let config = args.config.as_deref().map(roles::load).transpose()?;
    let map = match (&config, &args.maps) {
        (Some(config), _) => running_map(config)?,
        (None, Some(dir)) => unprobed(roles::accepted(nodemap::admin::load_dir(dir))?),
        (None, None) => bail!("neither --config nor --maps"),
    };
    let project = project(&map, &args.name)?;
    let locator = geo::locator(config.as_ref(), &args.databases)?;
    let table = Arc::new(ClassTable::compile(&locator, &map.map.maps)?);
    let steering = Steering::new(table, Arc::new(map))?;
    let explanation = steering
        .explain(&project, args.client, &locator)
        .with_context(|| format!("no project {project}"))?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&explanation)?);
    } else {
        print!("{explanation}");
    }
    Ok(ExitCode::SUCCESS)
}

/// The node map that a host last took over.
fn running_map(config: &config::HostConfig) -> Result<NodeMap> {
    let path = rt::follow::last_good_path(&config.host.state_dir);
    let bytes = rt::file::read_bounded(&path, rt::follow::NODE_MAP_BYTES_MAX as u64);
    let bytes = bytes.with_context(|| {
        format!("cannot read {}: has this host followed a node map yet?", path.display())
    })?;
    NodeMap::parse(&bytes).with_context(|| format!("cannot use {}", path.display()))
}

/// Admin maps as if health had just started.
fn unprobed(map: nodemap::AdminMap) -> NodeMap {
    let states = map.nodes.iter().map(|(name, node)| {
        let mut states = NodeStates::default();
        for family in Family::ALL {
            if node.addresses_of(family).next().is_some() {
                *states.get_mut(family) = Some(NodeState::unprobed(0));
            }
        }
        (name.clone(), states)
    });
    let (generation, publisher) = (0, "admin maps".to_owned());
    let states = states.collect();
    NodeMap { format: nodemap::published::FORMAT, generation, publisher, map, states }
}

/// The project that `name` means: its steered name, one of its hosts, or its short name.
fn project(map: &NodeMap, name: &str) -> Result<Name> {
    let wanted = name.trim_end_matches('.').to_ascii_lowercase();
    let is_meant = |(short, project): &(&Name, &nodemap::Project)| {
        let host_is =
            |host: &HostPattern| matches!(host, HostPattern::Exact(h) if h.as_str() == wanted);
        project.name.as_str() == wanted
            || short.as_str() == wanted
            || project.hosts.iter().any(host_is)
    };
    match map.map.projects.iter().find(is_meant) {
        Some((short, _)) => Ok(short.clone()),
        None => {
            let known: Vec<_> = map.map.projects.values().map(|p| p.name.as_str()).collect();
            bail!("no project has the name {name}: the map has {}", known.join(", "))
        }
    }
}
