//! Who is to be asked: every address of every node, every address for each project it may be reached
//! by, masters, our own DNS nodes, and what stands outside.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use model::{HostName, Name};
use nodemap::{AdminMap, AllDown, Master};

use crate::observe::Subject;
use crate::probe::{Expect, HttpQuestion, Method, Place, Question, Scheme, Target};
use crate::setup::{MasterCheck, Page, Setup, Timing};

/// How a target is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) timing: Timing,
    pub(crate) place: Place,
    pub(crate) question: Question,
}

/// What the state of a target is part of; `None` of those that are watched for people alone.
pub(crate) fn subject_of(target: &Target) -> Option<Subject> {
    let family = target.family();
    match target {
        Target::Node { node, .. } => Some(Subject::Node { node: node.clone(), family: family? }),
        Target::Project { project, node, .. } => {
            Some(Subject::Project { project: project.clone(), node: node.clone(), family: family? })
        }
        Target::Master { project, master, .. } => {
            Some(Subject::Master { project: project.clone(), master: master.clone() })
        }
        Target::Redirector { .. } | Target::Outside { .. } => None,
    }
}

/// All of them. Checks of projects that the map does not have are left out.
pub(crate) fn targets(map: &AdminMap, setup: &Setup) -> BTreeMap<Target, Ask> {
    let mut all = BTreeMap::new();
    let params = &setup.params;
    let of_nodes = Timing {
        interval_ms: params.interval_ms,
        timeout_ms: params.timeout_ms,
        ..Timing::default()
    };
    for (name, node) in &map.nodes {
        for address in &node.addresses {
            let ask = Ask {
                timing: of_nodes,
                place: Place::Address(SocketAddr::new(*address, setup.page.port)),
                question: page_question(&setup.page, *address),
            };
            all.insert(Target::Node { node: name.clone(), address: *address }, ask);
        }
    }
    add_checks(&mut all, map, setup);
    add_masters(&mut all, map, setup);
    let ask = |other: &crate::setup::Other| Ask {
        timing: other.timing,
        place: other.place.clone(),
        question: other.question.clone(),
    };
    for (name, other) in &setup.redirectors {
        all.insert(Target::Redirector { name: name.clone() }, ask(other));
    }
    for (name, other) in &setup.outside {
        all.insert(Target::Outside { name: name.clone() }, ask(other));
    }
    all
}

fn add_checks(all: &mut BTreeMap<Target, Ask>, map: &AdminMap, setup: &Setup) {
    for (project, checks) in &setup.checks {
        for (name, node) in nodes_of(map, project)
            .into_iter()
            .filter_map(|name| map.nodes.get(name).map(|node| (name, node)))
        {
            for (address, check) in
                node.addresses.iter().flat_map(|a| checks.iter().map(move |check| (a, check)))
            {
                let target = Target::Project {
                    project: project.clone(),
                    node: name.clone(),
                    address: *address,
                    check: check.name.clone(),
                };
                let ask = Ask {
                    timing: check.timing,
                    place: Place::Address(SocketAddr::new(*address, check.port)),
                    question: check.question.clone(),
                };
                all.insert(target, ask);
            }
        }
    }
}

fn add_masters(all: &mut BTreeMap<Target, Ask>, map: &AdminMap, setup: &Setup) {
    for (project, checks) in &setup.masters {
        let masters = map.projects.get(project).into_iter().flat_map(|of| &of.masters);
        for (name, master) in masters {
            for check in checks {
                // What is no URL was never let into a map.
                let Some(ask) = master_ask(master, check) else { continue };
                let target = Target::Master {
                    project: project.clone(),
                    master: name.clone(),
                    check: check.name.clone(),
                };
                all.insert(target, ask);
            }
        }
    }
}

/// The nodes that clients of `project` can be sent to at all.
pub(crate) fn nodes_of<'a>(map: &'a AdminMap, project: &Name) -> BTreeSet<&'a Name> {
    let Some(of) = map.projects.get(project) else { return BTreeSet::new() };
    let lists = map.maps.get(&of.map).into_iter().flat_map(|steering| steering.lists().flatten());
    let last = match &of.all_down {
        AllDown::Pool(pool) => Some(pool),
        AllDown::LastGood | AllDown::All | AllDown::NoData | AllDown::ServFail => None,
    };
    let pools = lists.chain(last).filter_map(|pool| map.pools.get(pool)).flatten();
    pools.filter(|(_, weight)| **weight > 0).map(|(node, _)| node).collect()
}

fn master_ask(master: &Master, check: &MasterCheck) -> Option<Ask> {
    let (scheme, rest) = master.url.split_once("://")?;
    let scheme = if scheme == "https" { Scheme::Https } else { Scheme::Http };
    let (authority, prefix) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (host, port) = split(authority);
    let port = match (port, scheme) {
        (Some(port), _) => port,
        (None, Scheme::Http) => 80,
        (None, Scheme::Https) => 443,
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let place = match bare.parse::<IpAddr>() {
        Ok(address) => Place::Address(SocketAddr::new(address, port)),
        Err(_) => Place::Name { host: bare.parse().ok()?, port },
    };
    let named = master.host.as_deref().unwrap_or(authority);
    let sni: Option<HostName> = match bare_name(split(named).0) {
        Some(name) if scheme == Scheme::Https => Some(name),
        Some(_) | None => None,
    };
    let question = Question::Http(HttpQuestion {
        scheme,
        method: check.method,
        host: named.to_owned(),
        sni,
        path: format!("{}{}", prefix.trim_end_matches('/'), check.path),
        range: None,
        hash: check.hash,
        expect: check.expect.clone(),
    });
    Some(Ask { timing: check.timing, place, question })
}

/// Host and port of an authority without user.
fn split(authority: &str) -> (&str, Option<u16>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
        Some(_) | None => (authority, None),
    }
}

/// A name that is no address.
fn bare_name(host: &str) -> Option<HostName> {
    let is_address = host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    if is_address { None } else { host.parse().ok() }
}

/// The question for the health page of a node at `address`. `Host` is the address as it is in the map:
/// the page is the node's own and belongs to no project.
fn page_question(page: &Page, address: IpAddr) -> Question {
    let host = match (address, page.port) {
        (IpAddr::V4(a), 80) => a.to_string(),
        (IpAddr::V6(a), 80) => format!("[{a}]"),
        (_, port) => SocketAddr::new(address, port).to_string(),
    };
    Question::Http(HttpQuestion {
        scheme: Scheme::Http,
        method: Method::Get,
        host,
        sni: None,
        path: page.path.clone(),
        range: None,
        hash: false,
        expect: Expect::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::Compare;

    #[test]
    fn a_master_is_asked_where_its_url_is() {
        let check = MasterCheck {
            name: "index".parse().unwrap(),
            timing: Timing::default(),
            path: "/SUMS".into(),
            method: Method::Head,
            hash: false,
            expect: Expect::default(),
            compare: Compare::Content,
        };
        // URL and host -> place, host, name in TLS, path
        for (url, host, expected) in [
            ("http://192.0.2.80:8080", None, "192.0.2.80:8080 192.0.2.80:8080 - /SUMS"),
            ("http://[2001:db8::1]/vlc", None, "[2001:db8::1]:80 [2001:db8::1] - /vlc/SUMS"),
            ("https://m1.example/vlc/", None, "m1.example:443 m1.example m1.example /vlc/SUMS"),
            (
                "https://m1.example:8443",
                Some("d.example"),
                "m1.example:8443 d.example d.example /SUMS",
            ),
            (
                "https://192.0.2.80",
                Some("d.example:444"),
                "192.0.2.80:443 d.example:444 d.example /SUMS",
            ),
        ] {
            let mut master = nodemap::testing::master(url);
            master.host = host.map(str::to_owned);
            let ask = master_ask(&master, &check).unwrap();
            let place = match ask.place {
                Place::Address(at) => at.to_string(),
                Place::Name { host, port } => format!("{host}:{port}"),
            };
            let Question::Http(asked) = ask.question else { panic!("{url}") };
            let sni = asked.sni.map_or("-".to_owned(), |name| name.to_string());
            assert_eq!(format!("{place} {} {sni} {}", asked.host, asked.path), expected, "{url}");
        }
    }

    #[test]
    fn only_nodes_that_a_project_can_use_are_asked_for_it() {
        let mut map = nodemap::testing::admin_map(&[("a", &["192.0.2.1"]), ("b", &["192.0.2.2"])]);
        map.pools.get_mut("all").unwrap().insert("b".parse().unwrap(), 0);
        let nodes = |project: &str| nodes_of(&map, &project.parse().unwrap()).len();
        assert_eq!((nodes("x"), nodes("nobody")), (1, 0));
    }
}
