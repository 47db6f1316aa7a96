//! Names alone: the same that a locator has, and no further than they are needed.

use std::collections::HashSet;

use super::*;
use crate::{Locator, Names, OpenError};

fn asn(number: u32, name: &str) -> Value {
    map(&[("asn", Value::U32(number)), ("as_name", text(name))])
}

fn wanted(numbers: &[u32]) -> HashSet<Asn> {
    numbers.iter().filter_map(|number| Asn::new(*number)).collect()
}

#[test]
fn names_are_those_of_a_locator() {
    let file = file(
        "ASN",
        &[
            ("10.0.0.0/8", asn(7, "first in address order")),
            ("11.0.0.0/8", asn(7, "second")),
            ("12.0.0.0/8", asn(8, "eight")),
            ("13.0.0.0/8", map(&[("asn", Value::U32(9))])),
            ("2001:db8::/32", asn(10, "in IPv6 alone")),
        ],
    );
    let names = Names::open(file.path()).unwrap();
    let locator = Locator::open(None, path(&file)).unwrap();
    let found = names.find(&wanted(&[7, 8, 9, 10, 11])).unwrap();
    for number in 7..=11 {
        let asn = Asn::new(number).unwrap();
        assert_eq!(found.get(&asn).map(String::as_str), locator.as_name(asn), "{number}");
    }
    assert_eq!(found.len(), 3);
    assert_eq!(names.find(&wanted(&[8])).unwrap().len(), 1);
    assert!(names.find(&wanted(&[])).unwrap().is_empty());
}

#[test]
fn what_holds_no_numbers_is_refused() {
    let countries = file("Country", &[("10.0.0.0/8", map(&[("country_code", text("AU"))]))]);
    let error = Names::open(countries.path()).unwrap().find(&wanted(&[1])).unwrap_err();
    assert!(matches!(error, OpenError::NoAsn { .. }), "{error}");
    let error = Names::open(file_of(b"nothing").path()).unwrap_err();
    assert!(matches!(error, OpenError::Format { .. }), "{error}");
}
