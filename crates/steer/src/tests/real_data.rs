//! The shipped demo database steered by a map like the sample's.

use std::path::Path;
use std::sync::LazyLock;

use ipnet::IpNet;
use locate::Locator;
use model::Dice;
use nodemap::{Override, Serve};

use super::*;
use crate::{ClassTable, Hit};

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../maps/geo/demo-2026-06-17.mmdb");

const MAP: &str = "
    default = world
    continent AF = europe world
    continent AS = asia world
    continent EU = europe world
    continent OC = oceania asia world
    country JP = japan asia world
    country NL = europe world
    asn 7545 = waix oceania world
    asn 3333 = ripe europe world
";

struct World {
    locator: Locator,
    table: ClassTable,
    map: SteeringMap,
}

/// The same map with overrides in two hundred places, in layers, and a node of two pools that
/// serves few.
struct Ruled {
    map: AdminMap,
    table: ClassTable,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let file = Path::new(SHIPPED);
    let locator = Locator::open(Some(file), Some(file)).unwrap();
    let map = steering_map(MAP);
    let maps = BTreeMap::from([(name("default"), map.clone())]);
    let table = ClassTable::compile(&locator, &ruled(&maps), 0).unwrap();
    World { locator, table, map }
});

static RULED: LazyLock<Ruled> = LazyLock::new(|| {
    let mut rules = WORLD.map.clone();
    let lists = ["world", "europe world", "oceania asia world", "lab"].map(names);
    let mut prefixes = std::collections::BTreeSet::new();
    let mut dice = Dice::seeded(9);
    for address in addresses(4, 200) {
        let longest = if address.is_ipv4() { 24 } else { 48 };
        for _ in 0..2 {
            let length = 8 + u8::try_from(dice.below(longest - 7)).unwrap();
            prefixes.insert(IpNet::new(address, length).unwrap().trunc());
        }
    }
    rules.overrides = prefixes
        .into_iter()
        .map(|prefix| Override {
            prefix,
            pools: lists[usize::try_from(dice.below(4)).unwrap()].clone(),
            owner: "noc".into(),
            reason: "a test".into(),
            // A fifth has expired.
            expires_ms: (dice.below(5) == 0).then_some(1000),
        })
        .collect();
    let mut map = ruled(&BTreeMap::from([(name("default"), rules)]));
    let serve = Serve {
        asn: [7922, 3320, 4713].iter().filter_map(|n| Asn::new(*n)).collect(),
        country: vec!["NZ".parse().unwrap(), "BR".parse().unwrap()],
    };
    let limited = Node { serve: Some(serve), ..nodemap::testing::node(&["192.0.2.1"]) };
    map.nodes.insert(name("few"), limited);
    for pool in ["europe", "oceania"] {
        map.pools.insert(name(pool), BTreeMap::from([(name("few"), 1)]));
    }
    let table = ClassTable::compile(&WORLD.locator, &map, 1000).unwrap();
    Ruled { map, table }
});

/// What the rules say of an address, from their words alone: its pools, and whether the node in them that
/// serves few does not serve it.
fn by_the_words(address: IpAddr) -> (Vec<Name>, bool) {
    let location = WORLD.locator.locate(address);
    let evidence =
        Evidence { asn: location.asn, country: location.country, continent: location.continent };
    let rules = &RULED.map.maps[&name("default")];
    let holding = rules.overrides.iter().filter(|rule| rule.expires_ms.is_none());
    let holding = holding.filter(|rule| rule.prefix.contains(&address));
    let pools = match holding.max_by_key(|rule| rule.prefix.prefix_len()) {
        Some(rule) => rule.pools.clone(),
        None => slow_pools(rules, evidence).to_vec(),
    };
    let has_node = pools.iter().any(|pool| ["europe", "oceania"].contains(&pool.as_str()));
    let is_served = evidence.asn.is_some_and(|asn| [7922, 3320, 4713].contains(&asn.get()))
        || evidence.country.is_some_and(|country| ["NZ", "BR"].contains(&country.as_str()));
    (pools, has_node && !is_served)
}

#[test]
fn answers_for_any_prefix_agree_with_the_words_of_overrides_and_limits() {
    let table = &RULED.table;
    let mut dice = Dice::seeded(6);
    let mut by_rule = 0;
    for address in addresses(5, 100_000) {
        // A client network as resolvers send them.
        let length = if address.is_ipv4() { 8 + dice.below(17) } else { 24 + dice.below(33) };
        let network = IpNet::new(address, u8::try_from(length).unwrap()).unwrap().trunc();
        let Hit { class, scope } = table.lookup_net(network);
        let audience = table.audience("default", class).unwrap();
        let said = (audience.pools.clone(), !audience.refused.is_empty());
        assert_eq!(said, by_the_words(network.network()), "{network}");
        by_rule += usize::from(table.override_at("default", network.network()).is_some());
        // True at the ends of the scope, and one bit shorter not all of one class.
        let net = IpNet::new(network.network(), scope).unwrap().trunc();
        for at in [net.network(), net.broadcast()] {
            assert_eq!(by_the_words(at), said, "{at} in {net}");
        }
        if let Some(wider) = net.supernet() {
            let other = wider.subnets(scope).unwrap().find(|half| *half != net).unwrap();
            let inside = table.lookup(other.network());
            let is_whole = inside.class == class && inside.scope <= scope;
            assert!(!is_whole, "{network}: {net} could be {wider}");
        }
    }
    assert!(by_rule > 5_000, "{by_rule}");
}

fn pools(address: IpAddr) -> String {
    let class = WORLD.table.lookup(address).class;
    let pools = WORLD.table.pools("default", class).unwrap();
    pools.iter().map(Name::as_str).collect::<Vec<_>>().join(" ")
}

#[test]
fn known_networks_of_many_countries() {
    for (address, expected) in [
        ("27.32.1.1", "waix oceania world"),
        ("203.59.1.1", "oceania asia world"),
        ("202.12.29.205", "oceania asia world"),
        ("130.89.148.12", "europe world"),
        ("193.0.6.139", "ripe europe world"),
        ("212.27.48.10", "europe world"),
        ("195.113.144.1", "europe world"),
        ("133.1.138.1", "japan asia world"),
        ("101.0.0.1", "asia world"),
        ("8.8.8.8", "world"),
        ("200.3.14.10", "world"),
        ("196.216.2.1", "europe world"),
        ("10.0.0.1", "world"),
        ("2001:67c:2e8::1", "ripe europe world"),
        ("2a01:e00::1", "europe world"),
        ("2001:1284::1", "world"),
        ("240f::1", "japan asia world"),
        ("::ffff:133.1.138.1", "japan asia world"),
    ] {
        assert_eq!(pools(address.parse().unwrap()), expected, "{address}");
    }
    assert_eq!(WORLD.table.classes(), 7);
}

/// Addresses as clients have them: IPv4 anywhere, IPv6 in global unicast space.
fn addresses(seed: u64, count: usize) -> impl Iterator<Item = IpAddr> {
    let mut dice = Dice::seeded(seed);
    (0..count).map(move |i| {
        let mut bits = || u128::from(dice.below(1 << 32));
        if i % 2 == 0 {
            return Ipv4Addr::from_bits(bits() as u32).into();
        }
        let high = [0x2001, 0x2400, 0x2600, 0x2800, 0x2a00, 0x2c00][i / 2 % 6];
        let low = bits() << 64 | bits();
        Ipv6Addr::from_bits(high << 112 | bits() << 80 & !(0xffff << 112) | low).into()
    })
}

#[test]
fn classes_agree_with_the_words_of_the_map() {
    for address in addresses(1, 200_000) {
        let location = WORLD.locator.locate(address);
        let evidence = Evidence {
            asn: location.asn,
            country: location.country,
            continent: location.continent,
        };
        let class = WORLD.table.lookup(address).class;
        let found = WORLD.table.pools("default", class).unwrap();
        assert_eq!(found, slow_pools(&WORLD.map, evidence), "{address}");
    }
}

#[test]
fn s2_holds_at_the_edges_and_inside_of_every_scope() {
    let mut dice = Dice::seeded(3);
    let (mut sum, mut count) = (0u64, 0u64);
    for address in addresses(2, 100_000) {
        let Hit { class, scope } = WORLD.table.lookup(address);
        let net = IpNet::new(address, scope).unwrap().trunc();
        let offset = dice.below(1 << 62);
        let inside: IpAddr = match net {
            IpNet::V4(net) => {
                let hosts = net.broadcast().to_bits() - net.network().to_bits();
                Ipv4Addr::from_bits(net.network().to_bits() | offset as u32 & hosts).into()
            }
            IpNet::V6(net) => {
                let hosts = net.broadcast().to_bits() - net.network().to_bits();
                let offset = u128::from(offset) << 66 | u128::from(offset);
                Ipv6Addr::from_bits(net.network().to_bits() | offset & hosts).into()
            }
        };
        for at in [net.network(), net.broadcast(), inside] {
            assert_eq!(WORLD.table.lookup(at), Hit { class, scope }, "{at} in {net}");
        }
        if address.is_ipv4() {
            (sum, count) = (sum + u64::from(scope), count + 1);
        }
    }
    // Not longer than gdnsd's 13.5 on the same data.
    let mean = sum as f64 / count as f64;
    assert!(mean < 13.5, "mean IPv4 scope {mean}");
}
