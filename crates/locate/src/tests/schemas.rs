//! One record in every schema; and records that say nothing.

use std::net::IpAddr;

use super::*;
use crate::Locator;

fn both(record: Value) -> Locator {
    let file = file("Test", &[("192.0.2.0/24", record), ("198.51.100.0/24", filler())]);
    Locator::open(path(&file), path(&file)).unwrap()
}

/// Something a database of both kinds must have, so that it is not refused.
fn filler() -> Value {
    map(&[("country_code", text("US")), ("asn", Value::U32(64_511))])
}

#[test]
fn all_schemas_say_the_same() {
    let names = || map(&[("en", text("Australia")), ("de", text("Australien"))]);
    let number = ("autonomous_system_number", Value::U32(4_200_000_001));
    let records = [
        // GeoLite2 and DB-IP
        map(&[
            ("country", map(&[("iso_code", text("AU")), ("names", names())])),
            ("continent", map(&[("names", names()), ("code", text("OC"))])),
            ("traits", map(&[("is_anycast", Value::U16(1))])),
            number.clone(),
        ]),
        // IPinfo Lite
        map(&[
            ("country", text("Australia")),
            ("country_code", text("AU")),
            ("continent", text("Oceania")),
            ("continent_code", text("OC")),
            ("asn", text("AS4200000001")),
        ]),
        // IPinfo country and ASN
        map(&[
            ("country", text("AU")),
            ("country_name", text("Australia")),
            ("continent", text("OC")),
            ("asn", text("AS4200000001")),
        ]),
        // ip-location-db
        map(&[("country_code", text("AU")), number]),
        // The same after a name that is no code came second
        map(&[
            ("country_code", text("AU")),
            ("country", text("Australia")),
            ("asn", Value::U64(4_200_000_001)),
        ]),
    ];
    for record in records {
        let location = both(record.clone()).locate("192.0.2.7".parse().unwrap());
        let found = (location.asn, location.country, location.continent);
        let e = evidence(4_200_000_001, "AU");
        assert_eq!(found, (e.asn, e.country, e.continent), "{record:?}");
    }
}

#[test]
fn what_is_no_value_is_unknown() {
    for record in [
        map(&[]),
        map(&[("country_code", text("-")), ("asn", Value::U32(0))]),
        map(&[("country_code", text("au")), ("asn", text("none"))]),
        map(&[("country", map(&[])), ("asn", Value::U64(1 << 32))]),
        map(&[("country", Value::Array(vec![text("AU")])), ("asn", Value::Array(vec![]))]),
        map(&[("country", Value::U16(7)), ("continent", text("Oceania"))]),
    ] {
        let location = both(record.clone()).locate("192.0.2.7".parse().unwrap());
        let found = (location.asn, location.country, location.continent);
        assert_eq!(found, (None, None, None), "{record:?}");
    }
}

#[test]
fn small_numbers_written_as_uint16_count_too() {
    let location = both(map(&[("autonomous_system_number", Value::U16(7545))]))
        .locate("192.0.2.7".parse().unwrap());
    assert_eq!(location.asn, Asn::new(7545));
}

#[test]
fn the_continent_of_the_database_goes_before_that_of_the_country() {
    let record = map(&[
        ("country", map(&[("iso_code", text("RU"))])),
        ("continent", map(&[("code", text("AS"))])),
    ]);
    let location = both(record).locate("192.0.2.7".parse().unwrap());
    assert_eq!(location.continent, Some(model::Continent::As));
    assert_eq!(location.country, "RU".parse().ok());
}

#[test]
fn names_of_as_numbers() {
    let named = |asn, name: &str| {
        map(&[
            ("autonomous_system_number", Value::U32(asn)),
            ("autonomous_system_organization", text(name)),
        ])
    };
    let file = file(
        "Test-ASN",
        &[
            ("192.0.2.0/25", named(64_500, "Example Net")),
            ("192.0.2.128/25", named(64_500, "Another Name")),
            ("198.51.100.0/24", named(64_496, "Zürich Network")),
            ("203.0.113.0/24", map(&[("asn", Value::U32(64_499))])),
        ],
    );
    let locator = Locator::open(None, path(&file)).unwrap();
    let name = |asn| locator.as_name(Asn::new(asn).unwrap());
    assert_eq!(name(64_500), Some("Example Net"));
    assert_eq!(name(64_496), Some("Zürich Network"));
    assert_eq!((name(64_499), name(64_501), name(1)), (None, None, None));
    let address: IpAddr = "198.51.100.1".parse().unwrap();
    assert_eq!(locator.locate(address).asn, Asn::new(64_496));
}
