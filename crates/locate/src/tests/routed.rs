//! Routes over databases: origins, prefixes, views; and a slow reference.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use model::Asn;
use model::route::RouteTable;
use proptest::prelude::*;

use crate::{Evidence, Locator, Routes, testing};

/// Networks of a database by AS number, and routes of views `a` and `b` by AS path.
fn locator(networks: &[(&str, u32)], views: &[&[(&str, &str)]]) -> Locator {
    let networks: Vec<_> = networks
        .iter()
        .map(|(net, asn)| {
            let evidence = Evidence { asn: Asn::new(*asn), ..Evidence::default() };
            (net.parse().unwrap(), evidence)
        })
        .collect();
    let views = ["a", "b"].into_iter().zip(views).map(|(view, routes)| {
        let routes = routes.iter().map(|(net, path)| (net.parse().unwrap(), *path));
        (view.parse().unwrap(), Arc::new(testing::routes(routes)))
    });
    let routes = Routes::new(views.collect());
    testing::locator(&networks).unwrap().with_routes(Arc::new(routes))
}

#[test]
fn the_origin_of_a_route_goes_before_the_database() {
    let locator = locator(
        &[("10.0.0.0/8", 1), ("2001:db8::/32", 1)],
        &[
            &[("10.1.0.0/16", "9 2"), ("10.1.8.0/24", "9 {3 4}"), ("2001:db8:1::/48", "9 5")],
            &[("10.1.8.0/23", "8 6"), ("10.2.0.0/16", "8 7"), ("0.0.0.0/0", "8 10")],
        ],
    );
    for (address, prefix, asn) in [
        ("10.0.0.1", "10.0.0.0/16", 10),
        ("10.1.0.1", "10.1.0.0/21", 2),
        // The first view that has a route decides; a set of several is no origin, so the database does.
        ("10.1.8.1", "10.1.8.0/24", 1),
        // Here it has the one of its /16: the other view's longer one does not count.
        ("10.1.9.1", "10.1.9.0/24", 2),
        ("10.2.0.1", "10.2.0.0/16", 7),
        ("11.0.0.1", "11.0.0.0/8", 10),
        ("2001:db8:1::1", "2001:db8:1::/48", 5),
        ("2001:db8:2::1", "2001:db8:2::/47", 1),
        ("::ffff:10.2.0.1", "10.2.0.0/16", 7),
    ] {
        let location = locator.locate(address.parse().unwrap());
        let found = (location.prefix.to_string(), location.asn.map_or(0, Asn::get));
        assert_eq!(found, (prefix.to_owned(), asn), "{address}");
    }
    let heard = locator.routes().find("10.1.9.1".parse().unwrap());
    let shown: Vec<_> = heard.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        ["a: 10.1.0.0/16 by 192.0.2.1, path 9 2", "b: 10.1.8.0/23 by 192.0.2.1, path 8 6"]
    );
    assert_eq!(locator.database_asn("10.2.0.1".parse().unwrap()), Asn::new(1));
    assert_eq!(locator.routes().views().len(), 2);
}

fn networks() -> impl Strategy<Value = Vec<(IpNet, u32)>> {
    // Crowded, so that they lie inside each other.
    let v4 = (any::<u16>(), 0..=24u8).prop_map(|(bits, length)| {
        IpNet::new(Ipv4Addr::from_bits(u32::from(bits) << 16 & 0xf0ff_0000).into(), length).unwrap()
    });
    let v6 = (any::<u16>(), 0..=48u8).prop_map(|(bits, length)| {
        IpNet::new(Ipv6Addr::from_bits(u128::from(bits) << 112).into(), length).unwrap()
    });
    prop::collection::vec((prop_oneof![v4, v6], 0..4u32), 0..20)
}

fn is_apart(net: IpNet) -> bool {
    match net.trunc() {
        IpNet::V4(_) => true,
        IpNet::V6(net) => net.addr().to_bits() >> 127 == 1,
    }
}

proptest! {
    #[test]
    fn every_range_agrees_with_the_words(
        database in networks(),
        views in prop::collection::vec(networks(), 0..3),
        random in prop::collection::vec((any::<u32>(), any::<u128>()), 8),
    ) {
        // Not around ::/96, which is where databases keep IPv4.
        let database: Vec<_> = database.into_iter().filter(|(net, _)| is_apart(*net)).collect();
        let networks: Vec<_> = database.iter()
            .map(|(net, asn)| (*net, Evidence { asn: Asn::new(*asn), ..Evidence::default() })).collect();
        let tables: Vec<RouteTable> = views.iter().map(|view| {
            // 0 stands for a path that ends in no single AS.
            let path = |asn| if asn == 0 { "9 {1 2}" } else { ["9 1", "9 2", "9 3"][asn as usize - 1] };
            testing::routes(view.iter().map(|(net, asn)| (net.trunc(), path(*asn))))
        }).collect();
        let named = tables.into_iter().zip(["a", "b"])
            .map(|(table, name)| (name.parse().unwrap(), Arc::new(table)));
        let routes = Arc::new(Routes::new(named.collect()));
        let locator = testing::locator(&networks).unwrap().with_routes(Arc::clone(&routes));
        let slow = |address: IpAddr| {
            let heard = views.iter().map(|view| {
                let mut by_net = BTreeMap::new();
                by_net.extend(view.iter().map(|(net, asn)| (net.trunc(), *asn)));
                let holding = by_net.into_iter().filter(|(net, _)| net.contains(&address));
                holding.max_by_key(|(net, _)| net.prefix_len())
            });
            let heard: Vec<_> = heard.collect();
            let holding = database.iter().filter(|(net, _)| net.trunc().contains(&address));
            let by_database = holding.max_by_key(|(net, _)| net.prefix_len()).map_or(0, |(_, n)| *n);
            let origin = heard.iter().find_map(|heard| *heard).map_or(0, |(_, origin)| origin);
            (if origin == 0 { by_database } else { origin }, heard)
        };
        let addresses = random.iter().flat_map(|(a, b)| {
            [IpAddr::from(Ipv4Addr::from_bits(a & 0xf0ff_ffff)), Ipv6Addr::from_bits(*b).into()]
        });
        for address in addresses {
            let location = locator.locate(address);
            let (asn, heard) = slow(address);
            prop_assert_eq!(location.asn.map_or(0, Asn::get), asn, "{}", address);
            let found: Vec<_> = routes.find(address).into_iter().map(|heard| heard.prefix).collect();
            let expected: Vec<_> = heard.iter().flatten().map(|(net, _)| *net).collect();
            prop_assert_eq!(found, expected);
            for at in [location.prefix.network(), location.prefix.broadcast()] {
                prop_assert_eq!(slow(at), (asn, heard.clone()), "{} of {}", at, location.prefix);
            }
        }
        let mut next = Some(0);
        for (first, last, evidence) in locator.ranges_v4() {
            prop_assert_eq!(next, Some(first));
            for at in [first, last] {
                let asn = slow(Ipv4Addr::from_bits(at).into()).0;
                prop_assert_eq!(evidence.asn.map_or(0, Asn::get), asn);
            }
            next = last.checked_add(1);
        }
        prop_assert_eq!(next, None);
    }
}
