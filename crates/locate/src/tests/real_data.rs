//! The shipped demo database: what a person can look up elsewhere.

use std::net::IpAddr;
use std::sync::LazyLock;

use super::*;
use crate::Locator;

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../maps/geo/demo-2026-06-17.mmdb");

static LOCATOR: LazyLock<Locator> = LazyLock::new(|| {
    let file = Path::new(SHIPPED);
    Locator::open(Some(file), Some(file)).unwrap()
});

#[test]
fn known_networks_of_many_countries() {
    for (address, prefix, asn, country) in [
        ("27.32.1.1", "27.32.0.0/15", 7545, "AU"),
        ("203.59.1.1", "203.59.0.0/23", 4739, "AU"),
        ("202.12.29.205", "202.12.29.0/24", 4608, "AU"),
        ("130.89.148.12", "130.89.0.0/16", 1133, "NL"),
        ("193.0.6.139", "193.0.0.0/21", 3333, "NL"),
        ("212.27.48.10", "212.27.32.0/19", 12322, "FR"),
        ("195.113.144.1", "195.113.0.0/16", 2852, "CZ"),
        ("8.8.8.8", "8.8.8.0/24", 15169, "US"),
        ("133.1.138.1", "133.1.0.0/16", 4730, "JP"),
        ("200.3.14.10", "200.3.12.0/22", 28001, "UY"),
        ("196.216.2.1", "196.216.2.0/23", 33764, "ZA"),
        ("192.0.2.1", "192.0.2.0/24", 0, ""),
        ("2001:67c:2e8::1", "2001:67c:2e8::/48", 3333, "NL"),
        ("2a01:e00::1", "2a01:e00::/30", 12322, "FR"),
        ("2001:1284::1", "2001:1284::/32", 14868, "BR"),
        ("240f::1", "240f::/23", 2516, "JP"),
    ] {
        let found = LOCATOR.locate(address.parse().unwrap());
        let e = evidence(asn, country);
        assert_eq!(
            (found.asn, found.country, found.continent),
            (e.asn, e.country, e.continent),
            "{address}"
        );
        assert_eq!(found.prefix.to_string(), prefix, "{address}");
        let mapped: IpAddr = match address.parse().unwrap() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().into(),
            v6 => v6,
        };
        assert_eq!(LOCATOR.locate(mapped), found, "{mapped}");
    }
    assert_eq!(LOCATOR.as_name(Asn::new(7545).unwrap()), Some("TPG Internet Pty Ltd"));
}

#[test]
fn it_says_that_it_is_demo_data() {
    let [info] = LOCATOR.describe() else { panic!("one file, read once") };
    assert!(info.description.starts_with("DEMO DATA of 2026-06-17 with errors known"));
    assert_eq!(info.build_s, 1_781_654_400);
    assert!(info.networks > 1_500_000, "{}", info.networks);
    let bytes = std::fs::metadata(SHIPPED).unwrap().len();
    assert!(bytes <= 20_000_000, "{bytes} bytes: more than a repository should carry");
}

#[test]
fn it_knows_most_of_the_world() {
    let (mut asns, mut countries) =
        (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
    let mut known: u64 = 0;
    for (first, last, evidence) in LOCATOR.ranges_v4() {
        asns.extend(evidence.asn);
        countries.extend(evidence.country);
        if evidence.country.is_some() {
            known += u64::from(last - first) + 1;
        }
    }
    // 32-bit AS numbers among them: a reader that cuts them to 16 bits would find none.
    assert!(asns.last().is_some_and(|asn| asn.get() > 200_000), "{:?}", asns.last());
    assert!(asns.len() > 60_000 && countries.len() > 230, "{} {}", asns.len(), countries.len());
    // The unicast space that is given out is some 86 % of all.
    assert!(known > 3_600_000_000, "{known}");
}
