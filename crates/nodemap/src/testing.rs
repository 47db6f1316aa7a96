//! Small whole maps for tests: every reader takes them.

#![allow(clippy::unwrap_used)] // what is written here parses

use std::collections::BTreeMap;
use std::net::IpAddr;

use model::{Completion, Family, Name, NodeState, Query, State};

use crate::admin::{
    AdminMap, AllDown, HostPattern, Master, Node, Project, ProjectTls, Site, Soa, SteeringMap,
    Trust, Zone, schema,
};
use crate::published::{NodeMap, NodeStates};

/// An admin map of these nodes (name and addresses), and around them one of each kind: the site
/// `here`, the pool `all`, the steering map `default`, the zone `cdn.example` and the project `x`.
pub fn admin_map(nodes: &[(&str, &[&str])]) -> AdminMap {
    let map = SteeringMap { default: vec![name("all")], ..SteeringMap::default() };
    let zone = Zone {
        ns: vec!["ns1.dns.example".parse().unwrap()],
        soa: Soa { contact: "noc.cdn.example".parse().unwrap(), negative_ttl_s: 60 },
        ttl_s: 3600,
        hosts: BTreeMap::new(),
        txt: BTreeMap::new(),
    };
    AdminMap {
        sites: [(name("here"), Site::default())].into(),
        nodes: nodes.iter().map(|(n, addresses)| (name(n), node(addresses))).collect(),
        pools: [(name("all"), nodes.iter().map(|(n, _)| (name(n), 1)).collect())].into(),
        maps: [(name("default"), map)].into(),
        zones: [("cdn.example".parse().unwrap(), zone)].into(),
        projects: [(name("x"), project())].into(),
    }
}

/// A node of the site `here` with nothing but these addresses.
pub fn node(addresses: &[&str]) -> Node {
    Node {
        site: name("here"),
        country: None,
        asn: None,
        addresses: addresses.iter().map(|a| a.parse::<IpAddr>().unwrap()).collect(),
        port: schema::NODE_PORT,
        admin: None,
        capacity: None,
        bill: None,
        caps: Vec::new(),
        serve: None,
        sponsor: None,
        identity: None,
        trust: Trust::default(),
        drain: None,
    }
}

/// A master with nothing but this URL.
pub fn master(url: impl Into<String>) -> Master {
    Master { url: url.into(), host: None, requests_max: None, rate: None }
}

/// A project with one master, and of all the rest what holds when nothing is written.
pub fn project() -> Project {
    Project {
        name: "x.cdn.example".parse().unwrap(),
        hosts: vec![HostPattern::Exact("x.example".parse().unwrap())],
        map: name("default"),
        ttl_s: schema::PROJECT_TTL_S,
        all_down: AllDown::default(),
        answers: schema::ANSWERS,
        answers_elsewhere: 0,
        sticky: false,
        ecs: true,
        tls: ProjectTls::default(),
        https_record: false,
        max_share: None,
        masters: [(name("m1"), master("http://192.0.2.80:8080"))].into(),
        completion: Completion::default(),
        query: Query::default(),
        stale_while_revalidate_s: 0,
        reload_min_age_s: schema::RELOAD_MIN_AGE_S,
        request_fields: Vec::new(),
        unsafe_methods: false,
        http3: false,
        redirect: false,
        redirect_above: schema::REDIRECT_ABOVE,
        alternates: false,
        parents: None,
        paths: Vec::new(),
    }
}

/// A node map with this generation and one node, `n` at 192.0.2.1, which is up.
pub fn node_map(generation: u64) -> NodeMap {
    published(generation, admin_map(&[("n", &["192.0.2.1"])]))
}

/// The node map of `map` in which every node is up.
pub fn published(generation: u64, map: AdminMap) -> NodeMap {
    let up = || NodeState::new(State::Up, "probe ok", 1);
    let state = |node: &Node, family| node.addresses_of(family).next().map(|_| up());
    let states = map.nodes.iter().map(|(name, node)| {
        let v4 = state(node, Family::V4);
        (name.clone(), NodeStates { v4, v6: state(node, Family::V6) })
    });
    let states = states.collect();
    NodeMap::new(generation, "health1", map, states)
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}
