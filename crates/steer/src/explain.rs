//! Why a client is sent where it is: every step, for people and as JSON.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use locate::Locator;
use model::{Asn, Continent, CountryCode, Family, HostName, Location, Name};
use nodemap::SteeringMap;
use serde::Serialize;

use crate::redirect::AtNode;
use crate::steering::Steering;
use crate::walk::{NodeStep, PoolStep, Walk, walk};

/// Version of the JSON document.
const FORMAT: u32 = 1;

/// The map entry that gave the pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DecidedBy {
    /// The list for this AS.
    Asn(Asn),
    /// The list for this country.
    Country(CountryCode),
    /// The list for this continent.
    Continent(Continent),
    /// The default list.
    Default,
}

impl DecidedBy {
    /// The entry of `map` that decides for `location`: ASN before country before continent before
    /// default, as in the class table.
    fn of(map: &SteeringMap, location: &Location) -> Self {
        let asn = location.asn.filter(|asn| map.asn.contains_key(asn));
        let country = || location.country.filter(|country| map.country.contains_key(country));
        let continent =
            || location.continent.filter(|continent| map.continent.contains_key(continent));
        asn.map(Self::Asn)
            .or_else(|| country().map(Self::Country))
            .or_else(|| continent().map(Self::Continent))
            .unwrap_or(Self::Default)
    }
}

impl fmt::Display for DecidedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asn(asn) => write!(f, "asn {}", asn.get()),
            Self::Country(country) => write!(f, "country {country}"),
            Self::Continent(continent) => write!(f, "continent {continent}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// Every step of steering one client for one project. Prints as text for people; serialises as a
/// JSON document for programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// Version of this document.
    pub format: u32,
    /// Generation of the node map that answered.
    pub generation: u64,
    /// The client.
    pub address: IpAddr,
    /// The project.
    pub project: Name,
    /// Its steered name.
    pub name: HostName,
    /// What is known of the client.
    pub location: Location,
    /// Name of the client's AS.
    pub as_name: Option<String>,
    /// The project's steering map.
    pub map: Name,
    /// Its entry that decided.
    pub decided_by: DecidedBy,
    /// The pools of that entry, in order.
    pub pools: Vec<Name>,
    /// The client's class: a number of this table only.
    pub class: u16,
    /// The network that the answer holds for, as announced to the resolver.
    pub scope: IpNet,
    /// TTL of the project's answers, seconds.
    pub ttl_s: u32,
    /// The walk through the pools for IPv4 and IPv6.
    pub walks: [Walk; 2],
    /// What the edge of a node does with the client, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<AtNode>,
}

impl Explanation {
    pub(crate) fn new(
        steering: &Steering,
        name: &Name,
        address: IpAddr,
        locator: &Locator,
    ) -> Option<Self> {
        let map = steering.map();
        let project = map.map.projects.get(name)?;
        let location = locator.locate(address);
        let decided_by = DecidedBy::of(map.map.maps.get(&project.map)?, &location);
        let hit = steering.table().lookup(address);
        let pools = steering.table().pools(project.map.as_str(), hit.class)?;
        let walks = Family::ALL.map(|family| walk(map, pools, family, &project.all_down));
        Some(Self {
            format: FORMAT,
            generation: map.generation,
            address,
            project: name.clone(),
            name: project.name.clone(),
            as_name: location.asn.and_then(|asn| locator.as_name(asn)).map(str::to_owned),
            location,
            map: project.map.clone(),
            decided_by,
            pools: pools.to_vec(),
            class: hit.class.get(),
            scope: IpNet::new(address, hit.scope).unwrap_or(address.into()).trunc(),
            ttl_s: project.ttl_s,
            walks,
            at: None,
        })
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "client    {}", self.address)?;
        writeln!(f, "project   {} ({}), answers live {} s", self.project, self.name, self.ttl_s)?;
        write!(f, "location  {}:", self.location.prefix)?;
        match (self.location.asn, &self.as_name) {
            (Some(asn), Some(name)) => write!(f, " {asn} ({name})")?,
            (Some(asn), None) => write!(f, " {asn}")?,
            (None, _) => write!(f, " AS unknown")?,
        }
        match self.location.country {
            Some(country) => write!(f, ", country {country}")?,
            None => write!(f, ", country unknown")?,
        }
        match self.location.continent {
            Some(continent) => writeln!(f, ", continent {continent}")?,
            None => writeln!(f, ", continent unknown")?,
        }
        let pools: Vec<&str> = self.pools.iter().map(Name::as_str).collect();
        writeln!(f, "map       {}: {} -> {}", self.map, self.decided_by, pools.join(", "))?;
        writeln!(f, "class     {}, the same for all of {}", self.class, self.scope)?;
        match self.generation {
            0 => writeln!(f, "node map  none: the maps as they are written, no node probed yet")?,
            generation => writeln!(f, "node map  generation {generation}")?,
        }
        self.walks.iter().try_for_each(|walk| write_walk(f, walk))?;
        self.at.iter().try_for_each(|at| write!(f, "\n{at}"))
    }
}

fn write_walk(f: &mut fmt::Formatter<'_>, walk: &Walk) -> fmt::Result {
    let kind = match walk.family {
        Family::V4 => "A (IPv4)",
        Family::V6 => "AAAA (IPv6)",
    };
    writeln!(f)?;
    match &walk.pool {
        Some(pool) => writeln!(f, "{kind}: {} {pool}", walk.verdict)?,
        None => writeln!(f, "{kind}: {}", walk.verdict)?,
    }
    walk.pools.iter().try_for_each(|step| write_pool(f, step))
}

fn write_pool(f: &mut fmt::Formatter<'_>, step: &PoolStep) -> fmt::Result {
    writeln!(f, "  pool {}: {}", step.pool, step.outcome)?;
    let width = step.nodes.iter().map(|node| node.node.as_str().len()).max().unwrap_or(0);
    step.nodes.iter().try_for_each(|node| write_node(f, node, width))
}

fn write_node(f: &mut fmt::Formatter<'_>, node: &NodeStep, width: usize) -> fmt::Result {
    write!(f, "    {:width$}  weight {:<5}", node.node, node.weight)?;
    match node.excluded {
        None => write!(f, "  {:5.1} %", node.share * 100.0)?,
        Some(excluded) => write!(f, "  excluded: {excluded}")?,
    }
    for address in &node.addresses {
        write!(f, "  {address}")?;
    }
    match &node.state {
        // Of maps that were never published.
        Some(state) if state.since_ms == 0 => writeln!(f, "  ({}: {})", state.state, state.reason),
        Some(state) => {
            writeln!(
                f,
                "  ({} since {}: {})",
                state.state,
                model::time::utc(state.since_ms),
                state.reason
            )
        }
        None => writeln!(f),
    }
}
