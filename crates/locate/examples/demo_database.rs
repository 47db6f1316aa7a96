//! Makes the shipped demo database: joins a country and an ASN database into one file with both,
//! in the nested schema that all readers know.
//!
//! ```text
//! cargo run -p locate --features testing --example demo_database COUNTRY.mmdb ASN.mmdb OUT.mmdb
//! ```
//!
//! The same inputs give the same bytes.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::ExitCode;

use ipnet::{IpNet, Ipv4Subnets, Ipv6Subnets};
use locate::mmdb_write::Writer;
use locate::testing::record;
use locate::{Evidence, Locator};

/// 2026-06-17: the date of the data, not of its packing.
const BUILD_S: u64 = 1_781_654_400;

/// Stands in the file itself, where every reader of the format shows it.
const DESCRIPTION: &str = "DEMO DATA of 2026-06-17 with errors known to its publisher: for trying \
    Cacheboy out, tests and benchmarks, not for steering real clients. Country and AS number by \
    network, joined from ip-location-db geo-whois-asn-country (CC0-1.0; sources CC-BY-4.0, \
    nro.net) and ip-location-db asn (CC-BY-4.0: routeviews.org, db-ip.com, nro.net); see \
    README.md beside this file";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [country, asn, out] = arguments.as_slice() else {
        eprintln!("usage: demo_database COUNTRY.mmdb ASN.mmdb OUT.mmdb");
        return ExitCode::from(2);
    };
    let bytes = match Locator::open(Some(Path::new(country)), Some(Path::new(asn))) {
        Ok(locator) => join(&locator),
        Err(error) => {
            eprintln!("demo_database: {error}");
            return ExitCode::FAILURE;
        }
    };
    if let Err(error) = std::fs::write(out, &bytes) {
        eprintln!("demo_database: cannot write {out}: {error}");
        return ExitCode::FAILURE;
    }
    println!("{out}: {} bytes", bytes.len());
    ExitCode::SUCCESS
}

fn join(locator: &Locator) -> Vec<u8> {
    let mut writer = Writer::new("Cacheboy-Demo-Country-ASN", DESCRIPTION, BUILD_S);
    let mut insert = |network: IpNet, evidence: Evidence| {
        let as_name = evidence.asn.and_then(|asn| locator.as_name(asn));
        writer.insert(network, &record(evidence, as_name));
    };
    for (first, last, evidence) in locator.ranges_v4().filter(|range| is_known(range.2)) {
        for net in Ipv4Subnets::new(Ipv4Addr::from_bits(first), Ipv4Addr::from_bits(last), 0) {
            insert(net.into(), evidence);
        }
    }
    for (first, last, evidence) in locator.ranges_v6().filter(|range| is_known(range.2)) {
        for net in Ipv6Subnets::new(Ipv6Addr::from_bits(first), Ipv6Addr::from_bits(last), 0) {
            insert(net.into(), evidence);
        }
    }
    writer.finish()
}

fn is_known(evidence: Evidence) -> bool {
    evidence != Evidence::default()
}
