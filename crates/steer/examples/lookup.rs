//! Measures the class table on a real database: time to open and compile, memory, nanoseconds a
//! lookup.
//!
//! ```text
//! cargo run --release -p steer --example lookup [COUNTRY.mmdb [ASN.mmdb]]
//! ```
//!
//! Addresses are random: the worst case for caches, as in the measurements that the budgets come
//! from. Two figures: independent lookups, which overlap their cache misses (throughput), and
//! lookups that each wait for the answer before (latency).
#![allow(clippy::disallowed_methods)] // a stop-watch is what this program is for

use std::collections::BTreeMap;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Instant;

use ipnet::IpNet;
use locate::Locator;
use model::{Asn, Continent, CountryCode, Name};
use nodemap::{AdminMap, Override, SteeringMap};
use steer::ClassTable;

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../maps/geo/demo-2026-06-17.mmdb");

/// Enough not to stay in any cache.
const ADDRESSES: usize = 1 << 21;

/// Lookups timed at once, about a millisecond.
const STRETCH: usize = 1 << 14;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let country = arguments.first().map_or(SHIPPED, String::as_str);
    let asn = arguments.get(1).map_or(country, String::as_str);

    let start = Instant::now();
    let locator = Locator::open(Some(Path::new(country)), Some(Path::new(asn)))?;
    println!("open              {:8.0} ms", start.elapsed().as_secs_f64() * 1e3);
    println!("locator memory    {:8.1} MiB", mib(locator.memory_bytes()));

    let rules = [
        ("by country", by_country()?),
        ("by ASN too", by_asn(&locator)?),
        ("with a full routing table", full_table(&locator)?),
    ];
    for (title, maps) in rules {
        let start = Instant::now();
        let map = AdminMap { maps, ..AdminMap::default() };
        let table = ClassTable::compile(&locator, &map, 0)?;
        let compiled = start.elapsed();
        println!("\nmap {title}: {} classes", table.classes());
        println!("compile           {:8.0} ms", compiled.as_secs_f64() * 1e3);
        let (v4, v6) = table.ranges();
        println!("ranges            {v4:8} IPv4, {v6} IPv6");
        println!("table memory      {:8.1} MiB", mib(table.memory_bytes()));
        measure("IPv4", &table, &addresses(random_v4));
        measure("IPv6", &table, &addresses(random_v6));
    }
    Ok(())
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

/// Eleven pools by continent and country.
fn by_country() -> Result<BTreeMap<Name, SteeringMap>, Box<dyn std::error::Error>> {
    let pool = |name: String| -> Result<Vec<Name>, model::name::NameError> {
        Ok(vec![name.parse()?, "world".parse()?])
    };
    let mut map = SteeringMap { default: vec!["world".parse()?], ..SteeringMap::default() };
    for continent in Continent::ALL {
        map.continent.insert(continent, pool(continent.as_str().to_lowercase())?);
    }
    for country in ["AU", "JP", "BR", "US"] {
        map.country.insert(country.parse::<CountryCode>()?, pool(country.to_lowercase())?);
    }
    Ok(BTreeMap::from([("default".parse()?, map)]))
}

/// The same, and a pool of its own for each of 500 networks.
fn by_asn(locator: &Locator) -> Result<BTreeMap<Name, SteeringMap>, Box<dyn std::error::Error>> {
    let mut maps = by_country()?;
    let mut sizes: BTreeMap<Asn, u64> = BTreeMap::new();
    for (first, last, evidence) in locator.ranges_v4() {
        if let Some(asn) = evidence.asn {
            *sizes.entry(asn).or_default() += u64::from(last - first) + 1;
        }
    }
    let mut largest: Vec<(u64, Asn)> = sizes.into_iter().map(|(asn, size)| (size, asn)).collect();
    largest.sort_unstable_by(|a, b| b.cmp(a));
    for map in maps.values_mut() {
        for (_, asn) in largest.iter().take(500) {
            map.asn.insert(*asn, vec![format!("as{}", asn.get()).parse()?, "world".parse()?]);
        }
    }
    Ok(maps)
}

/// The same, and an override for each of a million IPv4 and 200,000 IPv6 prefixes, of the lengths that
/// routing tables have, to one of 64 lists: what rules by route will be to the table.
fn full_table(
    locator: &Locator,
) -> Result<BTreeMap<Name, SteeringMap>, Box<dyn std::error::Error>> {
    let mut maps = by_asn(locator)?;
    let mut state = 0x2545_f491_4f6c_dd1d;
    let lists: Vec<Vec<Name>> = (0..64)
        .map(|n| Ok(vec![format!("route{n}").parse()?, "world".parse()?]))
        .collect::<Result<_, model::name::NameError>>()?;
    let mut rules = BTreeMap::new();
    let v4 = [(24, 60), (23, 10), (22, 12), (21, 5), (20, 5), (19, 3), (18, 1), (17, 1), (16, 3)];
    let v6 = [(48, 50), (32, 15), (44, 12), (40, 9), (36, 6), (46, 4), (29, 4)];
    for (count, lengths, random) in
        [(1_000_000, &v4[..], random_v4 as fn(&mut u64) -> IpAddr), (1_200_000, &v6[..], random_v6)]
    {
        while rules.len() < count {
            let address = random(&mut state);
            let mut at = xorshift(&mut state) % 100;
            let length = lengths.iter().find(|(_, share)| {
                let found = at < *share;
                at = at.saturating_sub(*share);
                found
            });
            let prefix = IpNet::new(address, length.map_or(24, |(length, _)| *length))?.trunc();
            rules.insert(prefix, lists[(xorshift(&mut state) % 64) as usize].clone());
        }
    }
    let rule = |(prefix, pools)| Override {
        prefix,
        pools,
        owner: String::new(),
        reason: String::new(),
        expires_ms: None,
    };
    let rules: Vec<Override> = rules.into_iter().map(rule).collect();
    maps.values_mut().for_each(|map| map.overrides.clone_from(&rules));
    Ok(maps)
}

fn addresses(random: impl Fn(&mut u64) -> IpAddr) -> Vec<IpAddr> {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    (0..ADDRESSES).map(|_| random(&mut state)).collect()
}

fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn random_v4(state: &mut u64) -> IpAddr {
    Ipv4Addr::from_bits((xorshift(state) >> 32) as u32).into()
}

/// In the blocks that the registries give out.
fn random_v6(state: &mut u64) -> IpAddr {
    let block = [0x2001u128, 0x2400, 0x2600, 0x2800, 0x2a00, 0x2a02, 0x2a0e, 0x2c0f];
    let high = block[(xorshift(state) % 8) as usize] << 112;
    let rest = u128::from(xorshift(state)) << 48 | u128::from(xorshift(state) >> 16);
    Ipv6Addr::from_bits(high | rest & ((1 << 112) - 1)).into()
}

/// Medians over many short stretches, so that other work on the machine does not count.
fn measure(what: &str, table: &ClassTable, addresses: &[IpAddr]) {
    let (mut independent, mut dependent) = (Vec::new(), Vec::new());
    for stretch in addresses.chunks(STRETCH) {
        let start = Instant::now();
        let mut sum = 0u64;
        for address in stretch {
            let hit = table.lookup(*address);
            sum += u64::from(hit.scope) + u64::from(hit.class.get());
        }
        independent.push(start.elapsed().as_secs_f64() * 1e9 / STRETCH as f64);
        black_box(sum);
    }
    for stretch in addresses.chunks(STRETCH) {
        let start = Instant::now();
        let mut at = 0usize;
        for i in 0..STRETCH {
            let address = stretch[(i + at) % STRETCH];
            at = usize::from(table.lookup(address).scope & 1);
        }
        dependent.push(start.elapsed().as_secs_f64() * 1e9 / STRETCH as f64);
        black_box(at);
    }
    let (independent, dependent) = (median(independent), median(dependent));
    println!("{what} lookup       {independent:8.1} ns, each after the other {dependent:.1} ns");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
