//! The class table against a slow reference, and S2: the scope is true and minimal.

use ipnet::IpNet;
use locate::{Locator, testing};
use proptest::prelude::*;

use nodemap::{Override, Serve};

use super::*;
use crate::table::{ClassTable, Hit};

fn maps(texts: &[(&str, &str)]) -> BTreeMap<Name, SteeringMap> {
    texts.iter().map(|(n, lines)| (name(n), steering_map(lines))).collect()
}

fn table(networks: &[(&str, u32, &str)], texts: &[(&str, &str)]) -> ClassTable {
    let networks: Vec<_> =
        networks.iter().map(|(net, asn, cc)| (net.parse().unwrap(), evidence(*asn, cc))).collect();
    ClassTable::compile(&testing::locator(&networks).unwrap(), &ruled(&maps(texts)), 0).unwrap()
}

fn looked_up(table: &ClassTable, map: &str, address: &str) -> (String, u8) {
    let Hit { class, scope } = table.lookup(address.parse().unwrap());
    let pools: Vec<&str> = table.pools(map, class).unwrap().iter().map(Name::as_str).collect();
    (pools.join(" "), scope)
}

const MAP: &str = "
    default = world
    continent AS = asia world
    country AU = asia world
    country NZ = world
    asn 7545 = waix asia world
";

#[test]
fn evidence_in_order_and_scopes_as_wide_as_is_true() {
    let table = table(
        &[
            ("10.0.0.0/9", 1, "AU"),
            ("10.64.0.0/16", 7545, "AU"),
            ("10.128.0.0/9", 2, "JP"),
            ("11.0.0.0/8", 3, "NZ"),
            ("12.0.0.0/8", 7545, ""),
            ("2001:db8::/32", 7545, "NZ"),
            ("2001:db8:ffff::/48", 9, "CN"),
        ],
        &[("default", MAP)],
    );
    for (address, pools, scope) in [
        // AU by country and JP by continent have the same list: one class, cut by the AS inside.
        ("10.0.0.1", "asia world", 10),
        ("10.64.0.1", "waix asia world", 16),
        ("10.65.0.1", "asia world", 16),
        ("10.200.0.1", "asia world", 9),
        // NZ has the default's list: one class with the unknown beside it.
        ("11.1.1.1", "world", 8),
        ("9.1.1.1", "world", 7),
        ("12.1.1.1", "waix asia world", 8),
        ("192.0.2.1", "world", 1),
        ("2001:db8::1", "waix asia world", 33),
        ("2001:db8:ffff::1", "asia world", 48),
        ("2001:db9::", "world", 32),
        ("fe80::1", "world", 1),
        // IPv4-mapped: the class of the IPv4 address, the scope in IPv6 bits.
        ("::ffff:10.64.0.1", "waix asia world", 112),
        ("::ffff:192.0.2.1", "world", 97),
        // Beside the mapped block the scope ends before it.
        ("::fffe:ffff:ffff", "world", 96),
        ("::1:0:0:0", "world", 80),
    ] {
        let (found, length) = looked_up(&table, "default", address);
        assert_eq!((found.as_str(), length), (pools, scope), "{address}");
    }
    assert_eq!(table.classes(), 3);
}

#[test]
fn one_class_has_scope_zero_in_both_families() {
    let table = table(&[("10.0.0.0/8", 1, "AU")], &[("default", "default = world")]);
    for address in ["10.0.0.1", "192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1", "::"] {
        assert_eq!(looked_up(&table, "default", address), ("world".to_owned(), 0), "{address}");
    }
    let nothing =
        ClassTable::compile(&Locator::open(None, None).unwrap(), &AdminMap::default(), 0).unwrap();
    assert_eq!(nothing.lookup("192.0.2.1".parse().unwrap()).scope, 0);
}

#[test]
fn ipv4_of_one_class_may_share_its_scope_with_ipv6_around() {
    let table = table(
        &[("0.0.0.0/0", 1, "AU"), ("8000::/1", 1, "JP")],
        &[("default", "default = a\ncontinent OC = b\ncontinent AS = b")],
    );
    // IPv4 is class b throughout; the low half of IPv6 is class a but for the mapped block.
    assert_eq!(looked_up(&table, "default", "::ffff:192.0.2.1"), ("b".to_owned(), 96));
    assert_eq!(looked_up(&table, "default", "192.0.2.1"), ("b".to_owned(), 0));
    assert_eq!(looked_up(&table, "default", "::1"), ("a".to_owned(), 81));
}

#[test]
fn classes_are_joint_over_all_maps() {
    let table = table(
        &[("10.0.0.0/9", 1, "AU"), ("10.128.0.0/9", 1, "NZ")],
        &[("one", "default = w\ncontinent OC = o w"), ("two", "default = w\ncountry NZ = n w")],
    );
    // Map "one" treats both alike, "two" does not; an answer's scope must be true for both.
    assert_eq!(looked_up(&table, "one", "10.0.0.1"), ("o w".to_owned(), 9));
    assert_eq!(looked_up(&table, "one", "10.128.0.1"), ("o w".to_owned(), 9));
    assert_eq!(looked_up(&table, "two", "10.0.0.1"), ("w".to_owned(), 9));
    assert_eq!(looked_up(&table, "two", "10.128.0.1"), ("n w".to_owned(), 9));
    assert!(table.pools("three", table.lookup("10.0.0.1".parse().unwrap()).class).is_none());
}

#[test]
fn a_client_network_gets_a_scope_that_may_be_longer_than_itself() {
    let table = table(&[("10.0.0.0/20", 1, "AU"), ("10.0.16.0/20", 1, "US")], &[("default", MAP)]);
    let scope = |net: &str| table.lookup_net(net.parse().unwrap()).scope;
    assert_eq!(scope("10.0.0.0/16"), 20);
    assert_eq!(scope("10.0.3.0/24"), 20);
    // Host bits do not count: the network is asked about, not the address.
    assert_eq!(
        table.lookup_net("10.0.17.9/16".parse().unwrap()),
        table.lookup_net("10.0.0.0/16".parse().unwrap())
    );
}

#[test]
fn a_table_knows_the_maps_it_is_of() {
    let table = table(&[("10.0.0.0/9", 1, "AU")], &[("default", MAP)]);
    assert!(table.is_of(&ruled(&maps(&[("default", MAP)]))));
    assert!(!table.is_of(&ruled(&maps(&[("default", "default = world")]))));
}

#[test]
fn more_classes_than_numbers_are_an_error_not_a_wrong_answer() {
    let asns = 1..=65_536u32;
    let lists = |n: u32| names(&format!("p{} q{}", n % 300, n / 300));
    let networks: Vec<(IpNet, Evidence)> = asns
        .clone()
        .map(|n| {
            let net = IpNet::new(Ipv4Addr::from_bits(n << 8).into(), 24).unwrap();
            (net, evidence(n, "AU"))
        })
        .collect();
    let mut map = steering_map("default = world");
    map.asn = asns.map(|n| (Asn::new(n).unwrap(), lists(n))).collect();
    let compile = |map: &SteeringMap| {
        let locator = testing::locator(&networks).unwrap();
        ClassTable::compile(&locator, &ruled(&BTreeMap::from([(name("default"), map.clone())])), 0)
    };
    assert_eq!(compile(&map).unwrap_err(), crate::CompileError::TooManyClasses);
    // 65,534 lists and the default fit.
    map.asn.retain(|asn, _| asn.get() <= 65_534);
    assert_eq!(compile(&map).unwrap().classes(), 65_535);
}

#[test]
fn an_override_goes_before_all_else_and_ends_by_itself() {
    let networks = [("10.0.0.0/8".parse().unwrap(), evidence(7545, "AU"))];
    let rule = |prefix: &str, pools: &str, expires_ms| Override {
        prefix: prefix.parse().unwrap(),
        pools: names(pools),
        owner: "noc".into(),
        reason: "cable cut".into(),
        expires_ms,
    };
    let mut maps = maps(&[("default", MAP)]);
    maps.get_mut("default").unwrap().overrides = vec![
        rule("10.1.0.0/16", "asia", Some(5000)),
        rule("10.1.2.0/24", "waix asia world", None),
        rule("10.2.0.0/16", "world", Some(7000)),
        // It says what holds anyway: no scope is cut.
        rule("10.64.0.0/10", "waix asia world", None),
    ];
    let map = ruled(&maps);
    let locator = testing::locator(&networks).unwrap();
    let compile = |wall_ms| ClassTable::compile(&locator, &map, wall_ms).unwrap();
    let ask = |wall_ms, address: &str| {
        let table = compile(wall_ms);
        let (pools, scope) = looked_up(&table, "default", address);
        let rule = table.override_at("default", address.parse().unwrap());
        (pools, scope, rule.map(|rule| rule.prefix.to_string()))
    };
    let said = |pools: &str, scope, prefix: Option<&str>| {
        (pools.to_owned(), scope, prefix.map(str::to_owned))
    };
    const WAIX: &str = "waix asia world";
    assert_eq!(ask(4999, "10.1.9.9"), said("asia", 21, Some("10.1.0.0/16")));
    assert_eq!(ask(4999, "::ffff:10.1.9.9"), said("asia", 117, Some("10.1.0.0/16")));
    assert_eq!(ask(4999, "10.1.2.3"), said(WAIX, 24, Some("10.1.2.0/24")));
    assert_eq!(ask(4999, "10.2.0.1"), said("world", 16, Some("10.2.0.0/16")));
    assert_eq!(ask(4999, "10.3.0.1"), said(WAIX, 16, None));
    assert_eq!(ask(4999, "10.65.0.1"), said(WAIX, 10, Some("10.64.0.0/10")));
    assert_eq!(ask(5000, "10.1.9.9"), said(WAIX, 15, None));
    assert_eq!(ask(7000, "10.1.9.9"), said(WAIX, 8, None));
    assert_eq!(
        [0, 5000, 7000].map(|at| compile(at).holds_until_ms()),
        [Some(5000), Some(7000), None]
    );
}

#[test]
fn a_node_for_some_splits_only_the_classes_that_could_reach_it() {
    let networks = [
        ("10.0.0.0/9", evidence(1, "NZ")),
        ("10.128.0.0/9", evidence(2, "NZ")),
        ("11.0.0.0/9", evidence(1, "JP")),
        ("11.128.0.0/9", evidence(2, "JP")),
    ]
    .map(|(net, evidence)| (net.parse().unwrap(), evidence));
    let locator = testing::locator(&networks).unwrap();
    let maps = maps(&[("default", "default = b\ncountry NZ = a")]);
    let table = ClassTable::compile(&locator, &with_limited_nodes(maps), 0).unwrap();
    for (address, scope, refused) in [
        ("10.1.1.1", 9, ""),
        ("10.200.1.1", 9, "x"),
        // In pool b the other node is limited: AS 2 is served.
        ("11.1.1.1", 9, "y"),
        ("11.200.1.1", 9, ""),
        ("192.0.2.1", 1, "y"),
    ] {
        let hit = table.lookup(address.parse().unwrap());
        let audience = table.audience("default", hit.class).unwrap();
        let names: Vec<&str> = audience.refused.iter().map(Name::as_str).collect();
        assert_eq!((hit.scope, names.join(" ").as_str()), (scope, refused), "{address}");
    }
    assert_eq!(table.classes(), 4);
}

/// Networks of both families that nest and touch often; none inside the IPv4-mapped block.
fn networks() -> impl Strategy<Value = Vec<(IpNet, Evidence)>> {
    let v4 = (prop_oneof![any::<u32>(), (0u32..64).prop_map(|n| n << 26), 0u32..300], 0u8..=32)
        .prop_map(|(bits, length)| IpNet::new(Ipv4Addr::from_bits(bits).into(), length).unwrap());
    let v6 = (prop_oneof![any::<u128>(), (1u128..64).prop_map(|n| n << 122)], 1u8..=128).prop_map(
        |(bits, length)| IpNet::new(Ipv6Addr::from_bits(bits | 1 << 127).into(), length).unwrap(),
    );
    let evidence = (0u32..4, prop::sample::select(vec!["", "AU", "NZ", "JP", "US"]))
        .prop_map(|(asn, country)| evidence(asn, country));
    prop::collection::vec((prop_oneof![v4, v6], evidence), 0..25)
}

/// One or two maps whose entries often have the same lists.
fn any_maps() -> impl Strategy<Value = BTreeMap<Name, SteeringMap>> {
    let list = || prop::sample::select(vec!["a", "b", "a b", "b a"]).prop_map(names);
    let entry = |what: &'static str, keys: Vec<&'static str>| {
        prop::collection::vec((prop::sample::select(keys), list()), 0..3).prop_map(move |entries| {
            let line = |(key, list): &(&str, Vec<Name>)| {
                let pools: Vec<&str> = list.iter().map(Name::as_str).collect();
                format!("{what} {key} = {}\n", pools.join(" "))
            };
            entries.iter().map(line).collect::<String>()
        })
    };
    let one = (
        list(),
        entry("asn", vec!["1", "2", "3"]),
        entry("country", vec!["AU", "NZ", "JP"]),
        entry("continent", vec!["OC", "AS", "NA"]),
    );
    let one = one.prop_map(|(default, asn, country, continent)| SteeringMap {
        default,
        ..steering_map(&format!("{asn}{country}{continent}"))
    });
    prop::collection::vec(one, 1..3)
        .prop_map(|maps| names("one two").into_iter().zip(maps).collect())
}

/// Overrides of some networks, where two never have the same prefix.
fn any_overrides() -> impl Strategy<Value = Vec<Override>> {
    let pools = prop::sample::select(vec!["a", "b", "a b", "b a"]).prop_map(names);
    (networks(), prop::collection::vec(pools, 25)).prop_map(|(mut networks, lists)| {
        networks.iter_mut().for_each(|(net, _)| *net = net.trunc());
        networks.sort_by_key(|(net, _)| *net);
        networks.dedup_by_key(|(net, _)| *net);
        let rule = |((prefix, _), pools): ((IpNet, Evidence), Vec<Name>)| {
            let (owner, reason) = ("noc".to_owned(), "a test".to_owned());
            Override { prefix, pools, owner, reason, expires_ms: None }
        };
        networks.into_iter().zip(lists).map(rule).collect()
    })
}

/// These maps, and in pool `a` a node for AS 1 alone, in `b` one for Australia and AS 2.
fn with_limited_nodes(maps: BTreeMap<Name, SteeringMap>) -> AdminMap {
    let mut map = ruled(&maps);
    let serves = |asn: u32, countries: &[&str]| Serve {
        asn: Asn::new(asn).into_iter().collect(),
        country: countries.iter().map(|c| c.parse().unwrap()).collect(),
    };
    for (pool, node, serve) in [("a", "x", serves(1, &[])), ("b", "y", serves(2, &["AU"]))] {
        let limited = Node { serve: Some(serve), ..nodemap::testing::node(&["192.0.2.1"]) };
        map.nodes.insert(name(node), limited);
        map.pools.insert(name(pool), BTreeMap::from([(name(node), 1)]));
    }
    map
}

/// What all maps say of an address, straight from the words: its pools, and the members of these that
/// do not serve it. Of the networks that hold the address the longest decides, likewise of overrides;
/// and an IPv4-mapped address is the IPv4 address.
fn slow<'a>(
    networks: &[(IpNet, Evidence)],
    map: &'a AdminMap,
    address: IpAddr,
) -> Vec<(&'a [Name], Vec<&'a Name>)> {
    let address = address.to_canonical();
    let inside = networks.iter().filter(|(net, _)| net.contains(&address));
    let evidence = inside.max_by_key(|(net, _)| net.prefix_len()).map(|(_, e)| *e);
    let evidence = evidence.unwrap_or_default();
    let of_map = |rules: &'a SteeringMap| {
        let holding = rules.overrides.iter().filter(|rule| rule.prefix.contains(&address));
        let rule = holding.max_by_key(|rule| rule.prefix.prefix_len());
        let pools = rule.map_or_else(|| slow_pools(rules, evidence), |rule| &rule.pools);
        let refuses = |(name, node): &(&'a Name, &'a Node)| {
            let Some(serve) = &node.serve else { return false };
            let serves = serve.asn.iter().any(|asn| evidence.asn == Some(*asn))
                || serve.country.iter().any(|country| evidence.country == Some(*country));
            let is_member =
                |pool: &Name| map.pools.get(pool).is_some_and(|p| p.contains_key(*name));
            !serves && pools.iter().any(is_member)
        };
        (pools, map.nodes.iter().filter(refuses).map(|(name, _)| name).collect())
    };
    map.maps.values().map(of_map).collect()
}

/// Every address at which what is known can change, and the one before; in both families, and as
/// IPv4-mapped.
fn edges(networks: &[(IpNet, Evidence)]) -> Vec<IpAddr> {
    let mut v4 = vec![0, u32::MAX];
    let mut v6 = vec![0, u128::MAX, 0xffff << 32, (0xffff << 32) - 1, 1 << 48, (1 << 48) - 1];
    for (net, _) in networks {
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
    fn s2_the_scope_is_true_and_minimal(
        networks in networks(),
        mut maps in any_maps(),
        overrides in any_overrides(),
        has_limited_nodes in any::<bool>(),
        random in prop::collection::vec((any::<u32>(), any::<u128>()), 8),
    ) {
        let prefixes = overrides.iter().map(|rule| (rule.prefix, Evidence::default()));
        let edges = edges(&networks.iter().cloned().chain(prefixes).collect::<Vec<_>>());
        maps.get_mut("one").unwrap().overrides = overrides;
        let map = if has_limited_nodes { with_limited_nodes(maps) } else { ruled(&maps) };
        let table = ClassTable::compile(&testing::locator(&networks).unwrap(), &map, 0).unwrap();
        let random = random.iter()
            .flat_map(|(a, b)| [Ipv4Addr::from_bits(*a).into(), Ipv6Addr::from_bits(*b).into()]);
        for address in edges.iter().copied().chain(random) {
            let Hit { class, scope } = table.lookup(address);
            let expected = slow(&networks, &map, address);
            let said = |name: &Name| {
                let audience = table.audience(name.as_str(), class).unwrap();
                (audience.pools.as_slice(), audience.refused.iter().collect::<Vec<_>>())
            };
            let found: Vec<_> = map.maps.keys().map(said).collect();
            prop_assert_eq!(&found, &expected, "class of {}", address);

            // What is said can change only at edges: all of them inside a block stand for it.
            let same = |net: IpNet| {
                [net.network(), net.broadcast()].iter().chain(&edges)
                    .filter(|at| net.contains(*at))
                    .all(|at| slow(&networks, &map, *at) == expected)
            };
            let scope = IpNet::new(address, scope).unwrap().trunc();
            prop_assert!(same(scope), "{} is not true for {}", scope, address);
            if let Some(wider) = scope.supernet() {
                prop_assert!(!same(wider), "{} for {} could be {}", scope, address, wider);
            }
            // Every address inside gives the same answer by the table itself, too.
            for at in edges.iter().filter(|at| scope.contains(*at)) {
                prop_assert_eq!(table.lookup(*at).class, class);
            }
            // And so for a client network, whatever its length.
            let net = IpNet::new(address, scope.prefix_len() / 2).unwrap();
            prop_assert_eq!(table.lookup_net(net), table.lookup(net.network()));
        }
    }
}
