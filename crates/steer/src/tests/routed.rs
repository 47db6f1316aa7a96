//! Steering by live routes: rules, views, origins; and a slow reference straight from the words.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use locate::{Evidence, Locator, Routes, testing};
use model::route::{Attributes, Communities, Hop, Origin, RouteTable};
use model::{Asn, Name};
use nodemap::{NodeMap, RouteRule, SteeringMap};
use proptest::prelude::*;

use super::{evidence, name, names, node_map, project, ruled, slow_pools, steering_map};
use crate::{ClassTable, DecidedBy, Steering, Step};

/// A route: next hop (the last octet), path, communities.
type Spoken = (u8, &'static str, &'static [&'static str]);

fn attributes((hop, path, communities): Spoken) -> Arc<Attributes> {
    let communities = communities.iter().map(|tag| tag.parse().unwrap());
    Arc::new(Attributes {
        next_hop: Ipv4Addr::new(192, 0, 2, hop).into(),
        origin: Origin::Igp,
        as_path: path.parse().unwrap(),
        med: None,
        local_pref: None,
        communities: Communities::new(communities, [], []),
    })
}

fn table<'a>(routes: impl IntoIterator<Item = &'a (IpNet, Spoken)>) -> RouteTable {
    let change = |(net, spoken): &(IpNet, Spoken)| (net.trunc(), Some(attributes(*spoken)));
    RouteTable::default().with_changes(routes.into_iter().map(change))
}

fn with_views(locator: &Locator, views: &[(&str, Vec<(IpNet, Spoken)>)]) -> Locator {
    let views = views.iter().map(|(view, routes)| (name(view), Arc::new(table(routes))));
    locator.with_routes(Arc::new(Routes::new(views.collect())))
}

fn rule(lines: &str) -> RouteRule {
    let (conditions, pools) = lines.split_once('=').unwrap();
    let mut rule = RouteRule { pools: names(pools), ..RouteRule::default() };
    for condition in conditions.split(',') {
        let (key, value) = condition.trim().split_once(' ').unwrap();
        match key {
            "view" => rule.view = value.parse().ok(),
            "next_hop" => rule.next_hop = value.parse().ok(),
            "community" => rule.community = value.parse().ok(),
            "neighbour" => rule.neighbour = value.parse().ok(),
            "origin" => rule.origin = value.parse().ok(),
            "as_path" => rule.as_path = value.parse().ok(),
            other => panic!("{other}"),
        }
    }
    rule
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// A node map with pools a, b, c, w of a node each, and this steering map.
fn mapped(map: SteeringMap) -> NodeMap {
    let pools = "a: na=1\nb: nb=1\nc: nc=1\nw: nw=1";
    let mut published = node_map(pools, "na up up\nnb up up\nnc up up\nnw up up");
    published.map.maps.insert(name("default"), map);
    published.map.projects.insert(name("v"), project("default", nodemap::AllDown::default()));
    published
}

#[test]
fn the_evidence_is_taken_in_its_order_and_explained() {
    let mut map = steering_map("default = w\nasn 7 = b\ncountry AU = c");
    map.rules = vec![rule("view one, next_hop 192.0.2.9 = a"), rule("as_path 5 * 6 = b a")];
    let databases =
        [(net("10.0.0.0/8"), evidence(7, "AU")), (net("11.0.0.0/8"), evidence(0, "AU"))];
    let locator = with_views(
        &testing::locator(&databases).unwrap(),
        &[
            (
                "one",
                vec![(net("10.1.0.0/16"), (9, "1 2", &[])), (net("10.2.0.0/16"), (8, "1 2", &[]))],
            ),
            (
                "two",
                vec![
                    (net("10.2.0.0/16"), (7, "5 6", &[])),
                    (net("10.3.0.0/16"), (7, "5 5 9 6", &["65000:1"])),
                    (net("11.1.0.0/16"), (7, "5 7", &[])),
                    (net("12.0.0.0/8"), (7, "5 {7 8}", &[])),
                ],
            ),
        ],
    );
    let table = Arc::new(ClassTable::compile(&locator, &mapped(map.clone()).map, 0).unwrap());
    let steering = Steering::new(table, Arc::new(mapped(map))).unwrap();
    for (address, decided, pools, scope) in [
        ("10.1.0.1", DecidedBy::Rule(1), "a", "10.1.0.0/16"),
        // The believed route is that of view one, whose path the second rule does not match; and its
        // origin, AS 2, has no list.
        ("10.2.0.1", DecidedBy::Country("AU".parse().unwrap()), "c", "10.2.0.0/16"),
        ("10.3.0.1", DecidedBy::Rule(2), "b a", "10.3.0.0/16"),
        // No route: the database has the AS number.
        ("10.4.0.1", DecidedBy::Asn(Asn::new(7).unwrap()), "b", "10.4.0.0/14"),
        // A route: its origin.
        ("11.1.0.1", DecidedBy::Asn(Asn::new(7).unwrap()), "b", "11.1.0.0/16"),
        ("11.2.0.1", DecidedBy::Country("AU".parse().unwrap()), "c", "11.2.0.0/15"),
        ("12.0.0.1", DecidedBy::Default, "w", "12.0.0.0/6"),
    ] {
        let said = steering.explain(&name("v"), address.parse().unwrap(), &locator).unwrap();
        assert_eq!((said.decided_by, said.pools), (decided, names(pools)), "{address}");
        assert_eq!(said.scope, net(scope), "{address}");
    }
    let said = steering.explain(&name("v"), "10.3.0.1".parse().unwrap(), &locator).unwrap();
    let text = said.to_string();
    for line in [
        "location  10.3.0.0/16: AS6, country AU, continent OC\n",
        "route     two: 10.3.0.0/16 by 192.0.2.7, path 5 5 9 6, communities 65000:1\n",
        "map       default: rule 2 -> b, a\n",
        "rule      as_path \"5 * 6\"\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    let json = serde_json::to_value(&said).unwrap();
    assert_eq!(json["decided_by"]["rule"], 2);
    assert_eq!(json["routes"][0]["as_path"], "5 5 9 6");
    assert_eq!(json["route_rule"]["as_path"], "5 * 6");
}

#[test]
fn an_as_number_is_that_of_the_view_that_the_map_believes() {
    let mut map = steering_map("default = w\nasn 1 = a\nasn 2 = b\nasn 3 = c");
    let databases = [(net("10.0.0.0/8"), evidence(3, ""))];
    let views = [
        ("one", vec![(net("10.0.0.0/8"), (9, "1", &[][..]))]),
        ("two", vec![(net("10.0.0.0/9"), (9, "2", &[][..]))]),
    ];
    let locator = with_views(&testing::locator(&databases).unwrap(), &views);
    for (believes, low, high) in [
        ("", "a", "a"),
        ("one two", "a", "a"),
        ("two one", "b", "a"),
        ("two", "b", "c"),
        ("x", "c", "c"),
    ] {
        map.views = names(believes);
        let published = mapped(map.clone());
        let table = Arc::new(ClassTable::compile(&locator, &published.map, 0).unwrap());
        let steering = Steering::new(Arc::clone(&table), Arc::new(published)).unwrap();
        for (address, pool) in [("10.0.0.1", low), ("10.128.0.1", high)] {
            let address = address.parse().unwrap();
            let said = steering.explain(&name("v"), address, &locator).unwrap();
            let asn = Asn::new(["a", "b", "c"].iter().position(|p| *p == pool).unwrap() as u32 + 1);
            assert_eq!(said.decided_by, DecidedBy::Asn(asn.unwrap()), "{believes}");
            assert_eq!(table.pools("default", table.lookup(address).class).unwrap(), names(pool));
        }
    }
}

#[test]
fn s3_a_change_of_routes_goes_in_steps_of_the_limit() {
    let mut map = steering_map("default = w");
    map.rules = vec![rule("origin 1 = a"), rule("origin 2 = b")];
    let published = mapped(map);
    let plain = testing::locator(&[(net("10.0.0.0/8"), evidence(9, ""))]).unwrap();
    let routes = |origins: &[(&str, &'static str)]| {
        let routes = origins.iter().map(|(at, path)| (net(at), (1, *path, &[][..]))).collect();
        with_views(&plain, &[("one", routes)])
    };
    let compile = |locator: &Locator| ClassTable::compile(locator, &published.map, 0).unwrap();
    let table_of = |locator: &Locator| Arc::clone(locator.routes().table(0).unwrap());
    let old = routes(&[("10.0.0.0/9", "1"), ("10.128.0.0/9", "7"), ("2001:db8::/32", "1")]);
    // Half of IPv4 moves, all of IPv6: in steps of a quarter.
    let new = routes(&[("10.0.0.0/9", "2"), ("10.128.0.0/9", "8"), ("2001:db8::/32", "2")]);
    let target = compile(&new);
    let mut in_use = old.clone();
    let mut shares = Vec::new();
    loop {
        let step = Step::between(&compile(&in_use), &target, 0.25);
        shares.push(step.moved.map(|share| (share * 1000.0).round() / 1000.0));
        if step.is_whole() {
            break;
        }
        let (next, now) = (table_of(&new), table_of(&in_use));
        let blend = next.blend(&now, step.frontier_v4, step.frontier_v6);
        let blend = BTreeMap::from([(name("one"), Arc::new(blend))]);
        let blended = plain.with_routes(Arc::new(Routes::new(blend)));
        // No step moves more than it may.
        let went = Step::between(&compile(&in_use), &compile(&blended), 1.0);
        assert!(went.moved.iter().all(|share| *share <= 0.25), "{:?}", went.moved);
        assert!(went.is_whole());
        in_use = blended;
    }
    assert_eq!(shares, [[0.5, 1.0], [0.25, 0.75], [0.0, 0.5], [0.0, 0.25]]);
    // Nothing that maps do not look at is a move.
    let other = routes(&[("10.0.0.0/9", "1"), ("10.128.0.0/9", "8"), ("2001:db8::/32", "1")]);
    let step = Step::between(&compile(&old), &compile(&other), 0.01);
    assert_eq!((step.moved, step.is_whole()), ([0.0, 0.0], true));
    // Routes that go, with nothing known behind them.
    let step = Step::between(&compile(&old), &compile(&routes(&[])), 0.2);
    assert_eq!(step.moved, [0.5, 1.0]);
}

const PATHS: [&str; 6] = ["1", "1 2", "2 1 1", "3 {1 2}", "", "4 2 3"];
const TAGS: [&[&str]; 3] = [&[], &["1:1"], &["1:1", "1:2"]];

fn any_routes() -> impl Strategy<Value = Vec<(IpNet, Spoken)>> {
    // Crowded, so that they lie inside each other and beside networks of databases.
    let v4 = (0..8u32, 0..=32u8).prop_map(|(n, length)| {
        IpNet::new(Ipv4Addr::from_bits(n << 29 | n).into(), length).unwrap()
    });
    let v6 = (0..8u128, 0..=128u8).prop_map(|(n, length)| {
        IpNet::new(Ipv6Addr::from_bits(n << 125 | n).into(), length).unwrap()
    });
    let spoken = (0..3u8, prop::sample::select(&PATHS[..]), prop::sample::select(&TAGS[..]));
    prop::collection::vec((prop_oneof![v4, v6], spoken), 0..15)
}

fn any_rules() -> impl Strategy<Value = Vec<RouteRule>> {
    let option = |texts: &'static [&'static str]| prop::sample::select(texts);
    let rule = (
        option(&["", "", "one", "two", "gone"]),
        option(&["", "", "", "192.0.2.1"]),
        option(&["", "", "1:1", "1:2"]),
        option(&["", "", "", "1", "2"]),
        option(&["", "", "", "1", "2", "3"]),
        option(&["", "", "1 2", "^ 2", "? $", "^ 3 ? $", "1,2 * 3"]),
        option(&["a", "b", "a b", "c"]),
    );
    let rule =
        rule.prop_map(|(view, next_hop, community, neighbour, origin, as_path, pools)| RouteRule {
            view: view.parse().ok(),
            next_hop: next_hop.parse().ok(),
            community: community.parse().ok(),
            neighbour: neighbour.parse().ok(),
            origin: origin.parse().ok(),
            as_path: as_path.parse().ok(),
            pools: names(pools),
        });
    prop::collection::vec(rule, 0..5)
}

/// What a map says of an address: the pools, straight from the words.
fn slow<'a>(
    databases: &[(IpNet, Evidence)],
    views: &[(&str, Vec<(IpNet, Spoken)>)],
    map: &'a SteeringMap,
    address: IpAddr,
) -> &'a [Name] {
    let address = address.to_canonical();
    let inside = databases.iter().filter(|(net, _)| net.contains(&address));
    let known = inside.max_by_key(|(net, _)| net.prefix_len()).map(|(_, e)| *e).unwrap_or_default();
    let best = |view: &Name| {
        let (_, routes) = views.iter().find(|(name, _)| *name == view.as_str())?;
        // Of equal prefixes the last, as `max_by_key` has it.
        let inside = routes.iter().filter(|(net, _)| net.contains(&address));
        inside.max_by_key(|(net, _)| net.prefix_len()).map(|(_, spoken)| attributes(*spoken))
    };
    let all: Vec<Name> = views.iter().map(|(view, _)| name(view)).collect();
    let believed = if map.views.is_empty() { &all } else { &map.views };
    let route = believed.iter().find_map(best);
    for rule in &map.rules {
        let seen = rule.view.as_ref().map_or_else(|| route.clone(), best);
        let Some(seen) = seen else { continue };
        let path = &seen.as_path;
        let hops: Vec<Hop> = path.hops().collect();
        if rule.next_hop.is_none_or(|hop| hop == seen.next_hop)
            && rule.community.is_none_or(|tag| seen.communities.has(tag))
            && rule.neighbour.is_none_or(|asn| path.neighbour() == Some(asn))
            && rule.origin.is_none_or(|asn| path.origin() == Some(asn))
            && rule.as_path.as_ref().is_none_or(|pattern| pattern.matches(&hops))
        {
            return &rule.pools;
        }
    }
    let asn = route.and_then(|route| route.as_path.origin()).or(known.asn);
    slow_pools(map, Evidence { asn, ..known })
}

fn edges<'a>(networks: impl Iterator<Item = &'a IpNet>) -> Vec<IpAddr> {
    let (mut v4, mut v6) = (vec![0, u32::MAX], vec![0, u128::MAX]);
    for net in networks {
        match net.trunc() {
            IpNet::V4(net) => {
                let (a, b) = (net.network().to_bits(), net.broadcast().to_bits());
                v4.extend([a, a.wrapping_sub(1), b, b.wrapping_add(1)]);
            }
            IpNet::V6(net) => {
                let (a, b) = (net.network().to_bits(), net.broadcast().to_bits());
                v6.extend([a, a.wrapping_sub(1), b, b.wrapping_add(1)]);
            }
        }
    }
    v6.extend(v4.iter().map(|n| 0xffff << 32 | u128::from(*n)));
    let v4 = v4.into_iter().map(|n| Ipv4Addr::from_bits(n).into());
    v4.chain(v6.into_iter().map(|n| Ipv6Addr::from_bits(n).into())).collect()
}

proptest! {
    #[test]
    fn s2_classes_and_scopes_are_true_with_routes(
        placed in any_routes(),
        one in any_routes(),
        two in any_routes(),
        rules in prop::collection::vec(any_rules(), 2),
        believes in prop::sample::select(&["", "one", "two one", "gone two"][..]),
    ) {
        // Databases of the same shape, but not around ::/96, which is where they keep IPv4.
        let is_apart = |(net, _): &&(IpNet, Spoken)| match net.trunc() {
            IpNet::V4(_) => true,
            IpNet::V6(net) => net.addr().to_bits() >> 127 == 1,
        };
        let databases: Vec<_> = placed.iter().filter(is_apart).map(|(net, (n, ..))| {
            (net.trunc(), evidence(u32::from(*n), ["", "AU", "NZ"][usize::from(*n)]))
        }).collect();
        let views = [("one", one), ("two", two)];
        let locator = with_views(&testing::locator(&databases).unwrap(), &views);
        let mut maps = BTreeMap::new();
        for (at, rules) in rules.into_iter().enumerate() {
            let mut map = steering_map("default = w\nasn 1 = a\nasn 2 = b\ncountry AU = c");
            map.rules = rules;
            map.views = if at == 0 { names(believes) } else { Vec::new() };
            maps.insert(name(["x", "y"][at]), map);
        }
        let table = ClassTable::compile(&locator, &ruled(&maps), 0).unwrap();
        let routed = views.iter().flat_map(|(_, routes)| routes.iter().map(|(net, _)| net));
        let edges = edges(databases.iter().map(|(net, _)| net).chain(routed));
        let said = |address| {
            maps.values().map(|map| slow(&databases, &views, map, address)).collect::<Vec<_>>()
        };
        let expected: Vec<_> = edges.iter().map(|at| (*at, said(*at))).collect();
        for (address, expected_here) in &expected {
            let hit = table.lookup(*address);
            let found: Vec<_> =
                maps.keys().map(|map| table.pools(map.as_str(), hit.class).unwrap()).collect();
            prop_assert_eq!(&found, expected_here, "{}", address);
            // What is said can change only at edges: all of them inside a block stand for it.
            let same = |net: IpNet| {
                let inside = expected.iter().filter(|(at, _)| net.contains(at));
                inside.map(|(_, said)| said).all(|said| said == expected_here)
                    && [net.network(), net.broadcast()].iter().all(|at| said(*at) == *expected_here)
            };
            let scope = IpNet::new(*address, hit.scope).unwrap().trunc();
            prop_assert!(same(scope), "{} is not true for {}", scope, address);
            if let Some(wider) = scope.supernet() {
                prop_assert!(!same(wider), "{} for {} could be {}", scope, address, wider);
            }
        }
    }
}
