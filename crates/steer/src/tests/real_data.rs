//! The shipped demo database steered by a map like the sample's.

use std::path::Path;
use std::sync::LazyLock;

use ipnet::IpNet;
use locate::Locator;
use model::Dice;

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

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let file = Path::new(SHIPPED);
    let locator = Locator::open(Some(file), Some(file)).unwrap();
    let map = steering_map(MAP);
    let maps = BTreeMap::from([(name("default"), map.clone())]);
    let table = ClassTable::compile(&locator, &maps).unwrap();
    World { locator, table, map }
});

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
