//! What must hold between the entries of a map: names that are used exist, nothing is given twice,
//! nothing can never take effect, and the DNS names do not collide.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::{Asn, Continent, CountryCode, HostName, Name, Query};

use super::load::entry;
use super::{AdminMap, AllDown, HostPattern, Project, Zone, routing, sponsor, steering};
use crate::toml_read::{KeyPath, join};
use crate::words::{clip, guess, list};

/// Steps of a path that name an entry: its kind and its name.
pub(crate) const ENTRY_DEPTH: usize = 2;

/// One thing that does not hold, before it has a file and a line.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) path: KeyPath,
    pub(crate) problem: String,
    pub(crate) remedy: String,
}

/// Everything that does not hold. `broken` are entries (dotted keys) that are defined but not in
/// the map, because they could not be read.
pub(crate) fn check(map: &AdminMap, broken: &BTreeSet<String>) -> Vec<Fault> {
    let mut faults = references(map, broken);
    unused(map, broken, &mut faults);
    pools(map, &mut faults);
    addresses(map, &mut faults);
    countries(map, &mut faults);
    zones(map, &mut faults);
    project_hosts(map, &mut faults);
    project_names(map, broken, &mut faults);
    masters(map, &mut faults);
    paths(map, &mut faults);
    admin_listeners(map, &mut faults);
    sponsor::check(map, &mut faults);
    steering::check(map, &mut faults);
    routing::check(map, &mut faults);
    faults
}

/// What a map cannot do without, and does: nobody would be served. Such a hole is most often a file
/// that is missing while several are being replaced. A kind with an entry that could not be read is
/// none: it has that entry's faults.
pub(crate) fn holes(
    map: &AdminMap,
    broken: &BTreeSet<String>,
) -> impl Iterator<Item = (String, String)> {
    [
        ("node", map.nodes.is_empty(), "[node.NAME]"),
        ("zone", map.zones.is_empty(), "[zone.\"NAME\"]"),
        ("project", map.projects.is_empty(), "[project.NAME]"),
    ]
    .into_iter()
    .filter(|(kind, empty, _)| {
        let begun = |key: &String| key.split_once('.').is_some_and(|(of, _)| of == *kind);
        *empty && !broken.iter().any(begun)
    })
    .map(|(kind, _, header)| {
        (
            format!("no file here has a {kind}, so nobody would be served"),
            format!("put the file back that has it, or define {header}"),
        )
    })
}

pub(super) fn push(
    faults: &mut Vec<Fault>,
    path: KeyPath,
    problem: String,
    remedy: impl Into<String>,
) {
    faults.push(Fault { path, problem, remedy: remedy.into() });
}

/// Names that are used and not defined.
pub(crate) fn references(map: &AdminMap, broken: &BTreeSet<String>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let sites = Known::new("site", map.sites.keys(), broken);
    let nodes = Known::new("node", map.nodes.keys(), broken);
    let pools = Known::new("pool", map.pools.keys(), broken);
    let maps = Known::new("map", map.maps.keys(), broken);
    let projects = Known::new("project", map.projects.keys(), broken);
    for (name, node) in &map.nodes {
        sites.require(&node.site, || entry("node", name).key("site"), &mut faults);
        for (at, cap) in node.caps.iter().enumerate() {
            for (nth, project) in cap.projects.iter().enumerate() {
                let path = || entry("node", name).key("cap").index(at).key("projects").index(nth);
                projects.require(project, path, &mut faults);
            }
        }
    }
    for (name, pool) in &map.pools {
        for node in pool.keys() {
            nodes.require(node, || entry("pool", name).key(node), &mut faults);
        }
    }
    for (name, evidence, list) in pool_lists(map) {
        for (at, pool) in list.iter().enumerate() {
            pools.require(pool, || evidence.path(name).index(at), &mut faults);
        }
    }
    for (name, project) in &map.projects {
        maps.require(&project.map, || entry("project", name).key("map"), &mut faults);
        if let AllDown::Pool(pool) = &project.all_down {
            pools.require(pool, || entry("project", name).key("all_down"), &mut faults);
        }
        if let Some(pool) = &project.parents {
            pools.require(pool, || entry("project", name).key("parents"), &mut faults);
        }
    }
    faults
}

/// The names of one kind.
struct Known<'a> {
    kind: &'static str,
    names: BTreeSet<&'a str>,
    broken: &'a BTreeSet<String>,
}

impl<'a> Known<'a> {
    fn new(
        kind: &'static str,
        names: impl Iterator<Item = &'a Name>,
        broken: &'a BTreeSet<String>,
    ) -> Self {
        Self { kind, names: names.map(Name::as_str).collect(), broken }
    }

    fn require(&self, name: &Name, path: impl Fn() -> KeyPath, faults: &mut Vec<Fault>) {
        let kind = self.kind;
        if self.names.contains(name.as_str()) || self.broken.contains(&join(kind, name.as_str())) {
            return;
        }
        let names: Vec<&str> = self.names.iter().copied().collect();
        let remedy = if names.is_empty() {
            format!("define [{kind}.{name}]; there is no {kind} yet")
        } else {
            let guess = guess(name.as_str(), &names);
            format!("{guess}define [{kind}.{name}] or take one of: {}", list(&names))
        };
        push(faults, path(), format!("there is no {kind} {name}"), remedy);
    }
}

/// Which list of pools of which map.
#[derive(Clone, Copy)]
enum Evidence {
    Default,
    Continent(Continent),
    Country(CountryCode),
    Asn(Asn),
    /// The one at this place.
    Override(usize),
    /// The one at this place.
    Rule(usize),
}

impl Evidence {
    fn path(self, map: &Name) -> KeyPath {
        let path = entry("map", map);
        match self {
            Self::Default => path.key("default"),
            Self::Continent(continent) => path.key("continent").key(continent),
            Self::Country(country) => path.key("country").key(country),
            Self::Asn(asn) => path.key("asn").key(asn.get()),
            Self::Override(at) => path.key("override").index(at).key("pools"),
            Self::Rule(at) => path.key("rule").index(at).key("pools"),
        }
    }
}

/// Every list of pools of every map.
fn pool_lists(map: &AdminMap) -> impl Iterator<Item = (&Name, Evidence, &Vec<Name>)> {
    map.maps.iter().flat_map(|(name, rules)| {
        let default = std::iter::once((Evidence::Default, &rules.default));
        let continent = rules.continent.iter().map(|(k, v)| (Evidence::Continent(*k), v));
        let country = rules.country.iter().map(|(k, v)| (Evidence::Country(*k), v));
        let asn = rules.asn.iter().map(|(k, v)| (Evidence::Asn(*k), v));
        let overrides = rules.overrides.iter().enumerate();
        let overrides = overrides.map(|(at, rule)| (Evidence::Override(at), &rule.pools));
        let routes = rules.rules.iter().enumerate();
        let routes = routes.map(|(at, rule)| (Evidence::Rule(at), &rule.pools));
        let all = default.chain(continent).chain(country).chain(asn).chain(overrides).chain(routes);
        all.map(move |(evidence, list)| (name, evidence, list))
    })
}

/// What can never take effect.
fn unused(map: &AdminMap, broken: &BTreeSet<String>, faults: &mut Vec<Fault>) {
    for (name, evidence, list) in pool_lists(map) {
        for (at, pool) in list.iter().enumerate() {
            if list.iter().take(at).any(|earlier| earlier == pool) {
                let problem =
                    format!("pool {pool} is in this list already, so it is never reached here");
                let path = evidence.path(name).index(at);
                push(faults, path, problem, "take it out, or name another pool");
            }
        }
    }
    // An entry that could not be read may be the one that uses them.
    if !broken.is_empty() {
        return;
    }
    let used: BTreeSet<&Name> = map.projects.values().map(|p| &p.map).collect();
    for name in map.maps.keys().filter(|name| !used.contains(name)) {
        let remedy = format!("set map = \"{name}\" in a project, or take it out");
        push(faults, entry("map", name), "no project uses this map".to_owned(), remedy);
    }
    let mut used: BTreeSet<&Name> = pool_lists(map).flat_map(|(_, _, list)| list).collect();
    used.extend(map.projects.values().filter_map(|project| match &project.all_down {
        AllDown::Pool(pool) => Some(pool),
        _ => None,
    }));
    used.extend(map.projects.values().filter_map(|project| project.parents.as_ref()));
    for name in map.pools.keys().filter(|name| !used.contains(name)) {
        let remedy = format!("put \"{name}\" into a list of a map, or take it out");
        push(faults, entry("pool", name), "no map uses this pool".to_owned(), remedy);
    }
}

fn pools(map: &AdminMap, faults: &mut Vec<Fault>) {
    for (name, pool) in &map.pools {
        if !pool.is_empty() && pool.values().all(|weight| *weight == 0) {
            let problem = "its weights sum to zero, so it never gives a node".to_owned();
            push(faults, entry("pool", name), problem, "give at least one node a weight from 1 up");
        }
    }
}

fn addresses(map: &AdminMap, faults: &mut Vec<Fault>) {
    let mut owners: BTreeMap<IpAddr, &Name> = BTreeMap::new();
    for (name, node) in &map.nodes {
        for (at, address) in node.addresses.iter().enumerate() {
            let path = entry("node", name).key("addresses").index(at);
            if let Some((problem, remedy)) = useless(*address) {
                push(faults, path, format!("{address} {problem}"), remedy);
            } else if let Some(owner) = owners.insert(*address, name) {
                let problem = format!("{address} is already an address of node {owner}");
                push(faults, path, problem, "give every address to one node, once");
            }
        }
    }
    for (apex, zone) in &map.zones {
        for (host, addresses) in &zone.hosts {
            for (at, address) in addresses.iter().enumerate() {
                let path = entry("zone", apex).key("host").key(host).index(at);
                if let Some((problem, remedy)) = useless(*address) {
                    push(faults, path, format!("{address} {problem}"), remedy);
                } else if addresses.iter().take(at).any(|a| a == address) {
                    push(faults, path, format!("{address} is there twice"), "take one out");
                }
            }
        }
    }
}

/// Why no client could connect to `address`, and what to write instead.
fn useless(address: IpAddr) -> Option<(&'static str, String)> {
    let wanted = || "write the address that clients connect to".to_owned();
    match address {
        a if a.is_unspecified() => Some(("is no address of a machine", wanted())),
        a if a.is_multicast() => Some(("is a multicast address", wanted())),
        IpAddr::V4(a) if a.is_broadcast() => Some(("is the broadcast address", wanted())),
        IpAddr::V6(a) => {
            let v4 = a.to_ipv4_mapped()?;
            Some(("is an IPv4 address in the clothes of IPv6", format!("write \"{v4}\"")))
        }
        IpAddr::V4(_) => None,
    }
}

fn countries(map: &AdminMap, faults: &mut Vec<Fault>) {
    let of_nodes = map
        .nodes
        .iter()
        .filter_map(|(name, node)| Some((entry("node", name).key("country"), node.country?)));
    let of_maps = map.maps.iter().flat_map(|(name, rules)| {
        rules.country.keys().map(move |c| (entry("map", name).key("country").key(c), *c))
    });
    let of_caps = map.nodes.iter().flat_map(|(name, node)| {
        node.caps.iter().enumerate().flat_map(move |(at, cap)| {
            let path =
                move |nth| entry("node", name).key("cap").index(at).key("countries").index(nth);
            cap.countries.iter().enumerate().map(move |(nth, c)| (path(nth), *c))
        })
    });
    let of_serve = map.nodes.iter().flat_map(|(name, node)| {
        let path = move |nth| entry("node", name).key("serve").key("country").index(nth);
        let countries = node.serve.iter().flat_map(|serve| &serve.country);
        countries.enumerate().map(move |(nth, c)| (path(nth), *c))
    });
    let all = of_nodes.chain(of_maps).chain(of_caps).chain(of_serve);
    for (path, country) in all.filter(|(_, c)| c.continent().is_none()) {
        push(faults, path, format!("no country has the code {country}"), country_remedy(country));
    }
}

fn country_remedy(country: CountryCode) -> &'static str {
    match country.as_str() {
        "UK" => "the United Kingdom is GB",
        "EL" => "Greece is GR",
        _ => "write an ISO 3166-1 alpha-2 code in capitals",
    }
}

fn zones(map: &AdminMap, faults: &mut Vec<Fault>) {
    for (apex, zone) in &map.zones {
        let path = entry("zone", apex);
        for (at, server) in zone.ns.iter().enumerate() {
            let path = path.clone().key("ns").index(at);
            if zone.ns.iter().take(at).any(|s| s == server) {
                push(faults, path, format!("{server} is there twice"), "take one out");
            } else if let Some((home, place)) = zone_of(map, server)
                && !place.hosts.contains_key(server)
            {
                let problem = format!("{server} lies in our zone {home} and has no address there");
                let remedy =
                    format!("add [zone.\"{home}\".host] with \"{server}\" = [\"ADDRESS\"]");
                push(faults, path, problem, remedy);
            }
        }
        for (name, texts) in &zone.txt {
            for (at, text) in texts.iter().enumerate() {
                if texts.iter().take(at).any(|earlier| earlier == text) {
                    let path = path.clone().key("txt").key(name).index(at);
                    let problem = format!("{:?} is there twice", clip(text));
                    push(faults, path, problem, "take one out: each text is a record of its own");
                }
            }
        }
        let named = zone.hosts.keys().map(|name| ("host", name));
        for (kind, name) in named.chain(zone.txt.keys().map(|name| ("txt", name))) {
            let path = path.clone().key(kind).key(name);
            match zone_of(map, name) {
                Some((home, _)) if home == apex => {}
                Some((home, _)) if name.is_in(apex) => {
                    let problem = format!("{name} lies in the zone {home} below this one");
                    push(faults, path, problem, format!("move it to [zone.\"{home}\".{kind}]"));
                }
                _ => {
                    let problem = format!("{name} does not lie in the zone {apex}");
                    push(faults, path, problem, format!("write the whole name: \"NAME.{apex}\""));
                }
            }
        }
    }
}

/// The zone that `name` belongs to: the deepest that holds it.
pub(crate) fn zone_of<'a>(map: &'a AdminMap, name: &HostName) -> Option<(&'a HostName, &'a Zone)> {
    let holding = map.zones.iter().filter(|(apex, _)| name.is_in(apex));
    holding.max_by_key(|(apex, _)| apex.as_str().len())
}

fn project_hosts(map: &AdminMap, faults: &mut Vec<Fault>) {
    let mut owners: BTreeMap<&HostPattern, &Name> = BTreeMap::new();
    let steered: BTreeMap<&HostName, &Name> =
        map.projects.iter().map(|(name, project)| (&project.name, name)).collect();
    for (name, project) in &map.projects {
        for (at, host) in project.hosts.iter().enumerate() {
            let owner = owners.insert(host, name);
            let path = || entry("project", name).key("hosts").index(at);
            let (problem, remedy) = match (host, owner) {
                (host, Some(owner)) if owner == name => {
                    (format!("{:?} is there twice", String::from(host.clone())), "take one out")
                }
                (HostPattern::Exact(host), Some(owner)) => (
                    format!("{host} is already a host of project {owner}"),
                    "give every host to one project",
                ),
                (HostPattern::Any, Some(owner)) => (
                    format!("project {owner} already takes all hosts"),
                    "name the hosts of at least one of the two",
                ),
                (HostPattern::Exact(host), None) => match steered.get(host) {
                    Some(other) if *other != name => (
                        format!("{host} is the name of project {other}"),
                        "leave it to that project",
                    ),
                    _ => continue,
                },
                (HostPattern::Any, None) => continue,
            };
            push(faults, path(), problem, remedy);
        }
    }
}

/// Steered names and the names of nodes below them: each means one thing.
fn project_names(map: &AdminMap, broken: &BTreeSet<String>, faults: &mut Vec<Fault>) {
    let mut owners: BTreeMap<&HostName, &Name> = BTreeMap::new();
    let fixed = fixed_names(map);
    for (name, project) in &map.projects {
        let path = || entry("project", name).key("name");
        let steered = &project.name;
        if let Some(owner) = owners.insert(steered, name) {
            let problem = format!("{steered} is already the name of project {owner}");
            push(faults, path(), problem, "give every project a name of its own");
            continue;
        }
        if zone_of(map, steered).is_none() && !broken.iter().any(|key| key.starts_with("zone.")) {
            push(
                faults,
                path(),
                format!("{steered} lies in none of our zones"),
                zone_remedy(map, steered),
            );
        }
        if let Some(what) = fixed.get(steered) {
            let problem = format!("{steered} is {what}, so it cannot be steered");
            push(faults, path(), problem, "take another name for the project");
        }
        for (other_name, other) in &map.projects {
            if let Some(node) = node_above(map, steered, other) {
                let problem = format!(
                    "{steered} collides with {node}.{}, the name of node {node} in project {other_name}",
                    other.name
                );
                push(faults, path(), problem, "rename the project or the node");
            }
        }
        let apexes = map.zones.keys().map(|apex| (apex, "the top of a zone"));
        let fixed = fixed.iter().map(|(name, what)| (*name, what.as_str()));
        for (fixed, what) in fixed.chain(apexes) {
            if let Some(node) = node_above(map, fixed, project) {
                let problem =
                    format!("{fixed} is {what}, and also the name of node {node} in this project");
                push(faults, path(), problem, "rename the project, the node or the fixed name");
            }
        }
        node_names_fit(map, name, project, faults);
    }
}

fn zone_remedy(map: &AdminMap, steered: &HostName) -> String {
    let zones: Vec<&str> = map.zones.keys().map(HostName::as_str).collect();
    let parent = steered.as_str().split_once('.').map_or(steered.as_str(), |(_, parent)| parent);
    match zones.first() {
        None => format!("define [zone.\"{parent}\"]; there is no zone yet"),
        Some(_) => format!("define [zone.\"{parent}\"] or take a name in one of: {}", list(&zones)),
    }
}

/// The names that zones give addresses, and as what.
fn fixed_names(map: &AdminMap) -> BTreeMap<&HostName, String> {
    let mut names = BTreeMap::new();
    for (apex, zone) in &map.zones {
        let all = zone.hosts.keys().map(|n| (n, "a host"));
        let all = all.chain(zone.ns.iter().map(|n| (n, "a name server")));
        for (name, what) in all {
            names.insert(name, format!("{what} of zone {apex}"));
        }
    }
    names
}

/// The node whose name in `project` is `name` or stands above it.
fn node_above<'a>(map: &'a AdminMap, name: &HostName, project: &Project) -> Option<&'a Name> {
    if *name == project.name || !name.is_in(&project.name) {
        return None;
    }
    let below = name.as_str().strip_suffix(project.name.as_str())?.strip_suffix('.')?;
    let label = below.rsplit('.').next()?;
    map.nodes.get_key_value(label).map(|(node, _)| node)
}

/// `NODE.NAME` is a DNS name for every node that clients of `project` can get.
fn node_names_fit(map: &AdminMap, name: &Name, project: &Project, faults: &mut Vec<Fault>) {
    let longest = map.nodes.keys().max_by_key(|node| node.as_str().len());
    if let Some(node) = longest
        && format!("{node}.{}", project.name).parse::<HostName>().is_err()
    {
        let problem =
            format!("with node {node} before it, it is longer than a DNS name may be (253)");
        let path = entry("project", name).key("name");
        push(faults, path, problem, "take a shorter name for the project or the node");
    }
}

fn masters(map: &AdminMap, faults: &mut Vec<Fault>) {
    for (name, project) in &map.projects {
        let mut seen = BTreeMap::new();
        for (master, details) in &project.masters {
            if let Some(other) = seen.insert((&details.url, &details.host), master) {
                let path = entry("project", name).key("master").key(master).key("url");
                let problem = format!("is the same as master {other}");
                push(
                    faults,
                    path,
                    problem,
                    "take one out: trying the same master twice gains nothing",
                );
            }
        }
    }
}

/// What can never take effect among the paths of a project, and groups that cannot be kept together.
fn paths(map: &AdminMap, faults: &mut Vec<Fault>) {
    for (name, project) in &map.projects {
        let mut groups: BTreeMap<&Name, u32> = BTreeMap::new();
        for (at, policy) in project.paths.iter().enumerate() {
            let path = || entry("project", name).key("path").index(at);
            let mut earlier = project.paths.iter().take(at);
            if let Some(other) = earlier.find(|p| p.glob == policy.glob || p.glob.is_all()) {
                let problem =
                    format!("is never reached: {:?} stands before it", other.glob.as_str());
                let remedy = "put it further up, or take it out; the first that matches decides";
                push(faults, path().key("glob"), problem, remedy);
            }
            let (Some(group), Some(ttl_s)) = (&policy.group, policy.ttl_s) else { continue };
            let known = *groups.entry(group).or_insert(ttl_s);
            if known != ttl_s {
                let problem = format!("group {group} has ttl_s = {known} further up");
                let remedy = "give all paths of a group the same: they are confirmed together";
                push(faults, path().key("ttl_s"), problem, remedy);
            }
        }
        for (at, field) in project.request_fields.iter().enumerate() {
            if project.request_fields.iter().take(at).any(|earlier| earlier == field) {
                let path = entry("project", name).key("request_fields").index(at);
                push(faults, path, format!("{field} is there twice"), "take one out");
            }
        }
        if let Query::Only(names) = &project.query {
            for (at, parameter) in names.iter().enumerate() {
                if names.iter().take(at).any(|earlier| earlier == parameter) {
                    let path = entry("project", name).key("query").index(at);
                    push(
                        faults,
                        path,
                        format!("{:?} is there twice", clip(parameter)),
                        "take one out",
                    );
                }
            }
        }
    }
}

fn admin_listeners(map: &AdminMap, faults: &mut Vec<Fault>) {
    let mut owners: BTreeMap<&str, &Name> = BTreeMap::new();
    for (name, node) in &map.nodes {
        let Some(admin) = &node.admin else { continue };
        if let Some(owner) = owners.insert(admin, name) {
            let problem = format!("{admin} is already the admin listener of node {owner}");
            let remedy = "give every node its own: one of the two would never be told anything";
            push(faults, entry("node", name).key("admin"), problem, remedy);
        }
    }
}
