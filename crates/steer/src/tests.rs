//! S1, S2, S5 and the shares, as tables and as properties; and the shipped database.

mod chosen;
mod compared;
mod explained;
mod guarded;
mod planned;
mod real_data;
mod redirects;
mod routed;
mod scopes;
mod shared;
mod walks;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use locate::Evidence;
use model::{Asn, CountryCode, Family, Name, NodeState, State};
use nodemap::{AdminMap, AllDown, Node, NodeMap, NodeStates, Project, SteeringMap};

fn name(s: &str) -> Name {
    s.parse().unwrap()
}

fn names(list: &str) -> Vec<Name> {
    list.split_whitespace().map(name).collect()
}

/// AS number (0 is none) and country (empty is none) with the continent that follows.
fn evidence(asn: u32, country: &str) -> Evidence {
    let country: Option<CountryCode> = country.parse().ok();
    let continent = country.and_then(CountryCode::continent);
    Evidence { asn: Asn::new(asn), country, continent }
}

/// A steering map from lines such as `default = world`, `asn 7545 = waix world`.
fn steering_map(lines: &str) -> SteeringMap {
    let mut map = SteeringMap::default();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (entry, pools) = line.split_once('=').unwrap();
        let pools = names(pools);
        match entry.trim().split_once(' ') {
            None => map.default = pools,
            Some(("asn", n)) => _ = map.asn.insert(n.parse().unwrap(), pools),
            Some(("country", c)) => _ = map.country.insert(c.parse().unwrap(), pools),
            Some(("continent", c)) => _ = map.continent.insert(c.parse().unwrap(), pools),
            Some(other) => panic!("{other:?}"),
        }
    }
    map
}

/// A node map from `POOL: NODE=WEIGHT ...` lines and `NODE V4STATE V6STATE` lines. A state is
/// `up`, `unknown`, `drained`, `down` or `down@SECOND`; `-` is a family without addresses.
fn node_map(pools: &str, nodes: &str) -> NodeMap {
    let mut admin = AdminMap::default();
    for line in pools.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (pool, members) = line.split_once(':').unwrap();
        let member = |m: &str| m.split_once('=').map(|(n, w)| (name(n), w.parse().unwrap()));
        admin.pools.insert(name(pool), members.split_whitespace().filter_map(member).collect());
    }
    let mut states = BTreeMap::new();
    for (i, line) in nodes.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate() {
        let [node, v4, v6] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let i = u8::try_from(i + 1).unwrap();
        let mut addresses: Vec<IpAddr> = Vec::new();
        if v4 != "-" {
            addresses.push(Ipv4Addr::new(192, 0, 2, i).into());
        }
        if v6 != "-" {
            addresses.push(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, i.into()).into());
        }
        admin.nodes.insert(
            name(node),
            Node { site: name("site"), addresses, ..nodemap::testing::node(&[]) },
        );
        states.insert(name(node), NodeStates { v4: state(v4), v6: state(v6) });
    }
    NodeMap::new(7, "test", admin, states)
}

fn state(word: &str) -> Option<NodeState> {
    let (word, since) = word.split_once('@').unwrap_or((word, "100"));
    let state = match word {
        "up" => State::Up,
        "down" => State::Down,
        "unknown" => State::Unknown,
        "drained" => State::Drained,
        "-" => return None,
        other => panic!("{other}"),
    };
    let since_s: u64 = since.parse().unwrap();
    Some(NodeState::new(state, "a test", since_s * 1000))
}

/// Clients that get these pools, and all their nodes.
fn audience(pools: &[Name]) -> crate::Audience {
    crate::Audience { pools: pools.to_vec(), refused: BTreeSet::new() }
}

/// An admin map with nothing but steering maps.
fn ruled(maps: &BTreeMap<Name, SteeringMap>) -> AdminMap {
    AdminMap { maps: maps.clone(), ..AdminMap::default() }
}

fn project(map: &str, all_down: AllDown) -> Project {
    Project {
        name: "videolan.cdn.example".parse().unwrap(),
        hosts: Vec::new(),
        map: name(map),
        all_down,
        masters: BTreeMap::new(),
        ..nodemap::testing::project()
    }
}

/// The pools of `map` for `evidence`, straight from the words: ASN, country, continent, default.
fn slow_pools(map: &SteeringMap, evidence: Evidence) -> &[Name] {
    if let Some(asn) = evidence.asn
        && let Some(pools) = map.asn.get(&asn)
    {
        return pools;
    }
    if let Some(country) = evidence.country
        && let Some(pools) = map.country.get(&country)
    {
        return pools;
    }
    if let Some(continent) = evidence.continent
        && let Some(pools) = map.continent.get(&continent)
    {
        return pools;
    }
    &map.default
}

/// Nodes and weights that a walk includes, as `a=1 b=2`.
fn included(walk: &crate::walk::Walk) -> String {
    let nodes: Vec<String> =
        walk.included().map(|node| format!("{}={}", node.node, node.weight)).collect();
    nodes.join(" ")
}

const BOTH: [Family; 2] = Family::ALL;
