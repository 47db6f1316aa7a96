//! Two databases joined: borders, prefixes, IPv4-mapped addresses; and a slow reference.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use model::{Continent, Location};
use proptest::prelude::*;

use super::*;
use crate::{Locator, OpenError, testing};

fn located(locator: &Locator, address: &str) -> (String, u32, String) {
    let Location { prefix, asn, country, .. } = locator.locate(address.parse().unwrap());
    let country = country.map(|c| c.to_string()).unwrap_or_default();
    (prefix.to_string(), asn.map_or(0, Asn::get), country)
}

#[test]
fn borders_of_both_databases_count() {
    let country = |code| map(&[("country_code", text(code))]);
    let asn = |n| map(&[("asn", Value::U32(n))]);
    let countries = file(
        "Country",
        &[
            ("10.0.0.0/8", country("AU")),
            ("10.128.0.0/10", country("NZ")),
            ("2001:db8::/32", country("JP")),
        ],
    );
    let asns = file(
        "ASN",
        &[("10.0.0.0/9", asn(1)), ("10.192.0.0/16", asn(2)), ("2001:db8:8000::/33", asn(3))],
    );
    let locator = Locator::open(path(&countries), path(&asns)).unwrap();
    for (address, prefix, asn, country) in [
        ("10.0.0.0", "10.0.0.0/9", 1, "AU"),
        ("10.127.255.255", "10.0.0.0/9", 1, "AU"),
        ("10.128.0.1", "10.128.0.0/10", 0, "NZ"),
        ("10.192.1.1", "10.192.0.0/16", 2, "AU"),
        ("10.193.0.0", "10.193.0.0/16", 0, "AU"),
        ("10.255.0.1", "10.224.0.0/11", 0, "AU"),
        ("9.255.255.255", "8.0.0.0/7", 0, ""),
        ("11.0.0.0", "11.0.0.0/8", 0, ""),
        ("255.255.255.255", "128.0.0.0/1", 0, ""),
        ("2001:db8::1", "2001:db8::/33", 0, "JP"),
        ("2001:db8:8000::1", "2001:db8:8000::/33", 3, "JP"),
        ("ffff::", "8000::/1", 0, ""),
        // IPv4-mapped is IPv4; 6to4 and IPv4-compatible are not.
        ("::ffff:10.128.0.1", "10.128.0.0/10", 0, "NZ"),
        ("2002:a80:1::1", "2002::/15", 0, ""),
        ("::10.128.0.1", "::/3", 0, ""),
    ] {
        assert_eq!(
            located(&locator, address),
            (prefix.to_owned(), asn, country.to_owned()),
            "{address}"
        );
    }
    let [countries, asns] = locator.describe() else { panic!("two databases") };
    assert_eq!((countries.kind.as_str(), countries.networks), ("Country", 4));
    assert_eq!((asns.provides.country, asns.provides.asn), (false, true));
    assert_eq!((asns.build_s, asns.description.as_str()), (1_781_654_400, "a test"));
}

#[test]
fn one_file_may_be_both_and_none_is_allowed() {
    let record = map(&[("country_code", text("AU")), ("asn", Value::U32(7))]);
    let file = file("Both", &[("0.0.0.0/0", record)]);
    let locator = Locator::open(path(&file), path(&file)).unwrap();
    assert_eq!(located(&locator, "192.0.2.1"), ("0.0.0.0/0".to_owned(), 7, "AU".to_owned()));
    assert_eq!(located(&locator, "::1"), ("::/0".to_owned(), 0, String::new()));
    assert_eq!(locator.describe().len(), 1);
    // Only one of its two sides.
    let locator = Locator::open(path(&file), None).unwrap();
    assert_eq!(located(&locator, "192.0.2.1").1, 0);

    let locator = Locator::open(None, None).unwrap();
    assert_eq!(located(&locator, "192.0.2.1"), ("0.0.0.0/0".to_owned(), 0, String::new()));
    assert_eq!(located(&locator, "2001:db8::"), ("::/0".to_owned(), 0, String::new()));
    assert!(locator.describe().is_empty());
}

#[test]
fn a_record_above_the_ipv4_part_holds_for_ipv4_too() {
    let e = Evidence { continent: Some(Continent::Eu), ..evidence(9, "DE") };
    let locator = testing::locator(&[("::/0".parse().unwrap(), e)]).unwrap();
    assert_eq!(located(&locator, "192.0.2.1"), ("0.0.0.0/0".to_owned(), 9, "DE".to_owned()));
    assert_eq!(located(&locator, "2001:db8::"), ("::/0".to_owned(), 9, "DE".to_owned()));
}

#[test]
fn swapped_files_are_refused() {
    let countries = file("Country", &[("10.0.0.0/8", map(&[("country_code", text("AU"))]))]);
    let asns = file("ASN", &[("10.0.0.0/8", map(&[("asn", Value::U32(1))]))]);
    let error = Locator::open(path(&asns), path(&countries)).unwrap_err();
    assert!(matches!(error, OpenError::NoCountry { .. }), "{error}");
    let error = Locator::open(None, path(&countries)).unwrap_err();
    assert!(matches!(error, OpenError::NoAsn { .. }), "{error}");
    assert_eq!(
        error.to_string(),
        format!(
            "{} (Country) holds no AS number in any record: name an ASN database",
            countries.path().display()
        )
    );
}

/// Networks of both families that nest and touch often.
fn networks() -> impl Strategy<Value = Vec<(IpNet, Evidence)>> {
    let v4 = (prop_oneof![any::<u32>(), (0u32..64).prop_map(|n| n << 26), 0u32..300], 0u8..=32)
        .prop_map(|(bits, length)| IpNet::new(Ipv4Addr::from_bits(bits).into(), length).unwrap());
    // Not inside ::/96, which is where databases keep IPv4.
    let v6 = (prop_oneof![any::<u128>(), (1u128..64).prop_map(|n| n << 122)], 1u8..=128).prop_map(
        |(bits, length)| IpNet::new(Ipv6Addr::from_bits(bits | 1 << 127).into(), length).unwrap(),
    );
    let evidence = (0u32..4, prop::sample::select(vec!["", "AU", "NZ", "JP"]))
        .prop_map(|(asn, country)| evidence(asn, country));
    prop::collection::vec((prop_oneof![v4, v6], evidence), 0..30)
}

/// Straight from the words: of the networks that hold the address the longest, of equals the last.
fn slow(networks: &[(IpNet, Evidence)], address: IpAddr) -> Evidence {
    let inside = networks.iter().filter(|(net, _)| net.contains(&address));
    inside.max_by_key(|(net, _)| net.prefix_len()).map(|(_, e)| *e).unwrap_or_default()
}

/// First and last addresses of the networks, and the ones just outside.
fn edges(networks: &[(IpNet, Evidence)]) -> Vec<IpAddr> {
    let around = |net: &IpNet| match net.trunc() {
        IpNet::V4(net) => {
            let (a, b) = (net.network().to_bits(), net.broadcast().to_bits());
            [a, a.wrapping_sub(1), b, b.wrapping_add(1)].map(|n| Ipv4Addr::from_bits(n).into())
        }
        IpNet::V6(net) => {
            let (a, b) = (net.network().to_bits(), net.broadcast().to_bits());
            [a, a.wrapping_sub(1), b, b.wrapping_add(1)].map(|n| Ipv6Addr::from_bits(n).into())
        }
    };
    networks.iter().flat_map(|(net, _)| around(net)).collect()
}

proptest! {
    #[test]
    fn locate_agrees_with_the_slow_reference(
        networks in networks(),
        random in prop::collection::vec(any::<u32>(), 10),
    ) {
        let locator = testing::locator(&networks).unwrap();
        let edges = edges(&networks);
        let random = random.into_iter().map(|n| IpAddr::from(Ipv4Addr::from_bits(n)));
        for address in edges.iter().copied().chain(random) {
            let found = locator.locate(address);
            let expected = slow(&networks, address);
            let Location { prefix, asn, country, continent } = found;
            prop_assert_eq!(Evidence { asn, country, continent }, expected, "{}", address);
            // The prefix is true at every edge inside it, and a bit shorter would not be.
            let same = |net: IpNet| {
                [net.network(), net.broadcast()].iter().chain(&edges)
                    .filter(|edge| net.contains(*edge))
                    .all(|edge| slow(&networks, *edge) == expected)
            };
            prop_assert!(prefix.contains(&address) && same(prefix), "{} in {}", address, prefix);
            if let Some(wider) = prefix.supernet() {
                prop_assert!(!same(wider), "{} could be {}", prefix, wider);
            }
        }
    }
}
