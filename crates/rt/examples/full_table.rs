//! Measures what a full routing table costs a host that follows it: the document, the tables, the class
//! table, a delta, lookups, memory.
//!
//! ```text
//! cargo run --release -p rt --example full_table
//! ```
//!
//! 1,000,000 IPv4 and 200,000 IPv6 routes with 350,000 different attributes, made by chance, the same in
//! each run; the databases are the shipped ones.
#![allow(clippy::disallowed_methods)] // a stop-watch is what this program is for

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bgp_proto::feed::{self, Feed, Followed};
use bgp_proto::{PeerId, Rib};
use ipnet::IpNet;
use locate::{Locator, Routes};
use model::route::{AsPath, Attributes, Communities, Community, Origin};
use model::{Asn, Dice, Name};
use nodemap::{AdminMap, RouteRule, SteeringMap};
use steer::{ClassTable, Step};

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../maps/geo/demo-2026-06-17.mmdb");
const ROUTES_V4: usize = 1_000_000;
const ROUTES_V6: usize = 200_000;
const SETS: u32 = 350_000;
const LOOKUPS: usize = 1 << 21;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut dice = Dice::seeded(1);
    let mut rib = Rib::new([1, 2]);
    let view = rib.add_view("one").ok_or("no view")?;
    let peer = rib.add_peer(view, false).ok_or("no peer")?;
    fill(&mut rib, peer, &mut dice);
    rib.commit();

    let document = timed("write the whole", || feed::document(&rib, 1, None, |_| true));
    let document = document.ok_or("no document")?;
    println!("document              {:8.1} MiB", mib(document.len()));
    let mut followed = Followed::default();
    let whole = timed("read the whole", || Feed::read(&document))?;
    timed("make its table", || followed.apply(whole))?;
    drop(document);
    let before = followed.cursor();
    for n in 0..10_000u32 {
        rib.announce(peer, net_v4(&mut dice), attributes(n, &mut dice));
    }
    rib.commit();
    let old = table(&followed)?;
    let delta =
        timed("write a delta of 10,000", || feed::document(&rib, 1, Some(&before), |_| true));
    let delta = delta.ok_or("no delta")?;
    timed("read and apply it", || {
        followed.apply(Feed::read(&delta).unwrap_or_else(|_| unreachable!()))
    })?;
    let new = table(&followed)?;
    drop(rib);

    let databases = Locator::open(Some(Path::new(SHIPPED)), Some(Path::new(SHIPPED)))?;
    let name: Name = "one".parse()?;
    let routed =
        |table| databases.with_routes(Arc::new(Routes::new([(name.clone(), table)].into())));
    let before = timed("lay the table flat", || routed(old));
    let after = routed(new);
    println!("locator memory        {:8.1} MiB without attributes", mib(after.memory_bytes()));
    let map = map()?;
    let one = timed("compile", || ClassTable::compile(&before, &map, 0))?;
    let two = ClassTable::compile(&after, &map, 0)?;
    let step = timed("compare two tables", || Step::between(&one, &two, 1.0));
    println!("moved                 {:8.4} of IPv4, {:.4} of IPv6", step.moved[0], step.moved[1]);
    println!("classes               {:8}", two.classes());
    let (v4, v6) = two.ranges();
    println!("ranges                {v4:8} IPv4, {v6} IPv6, {:.1} MiB", mib(two.memory_bytes()));

    let addresses: Vec<IpAddr> =
        (0..LOOKUPS).map(|_| Ipv4Addr::from_bits(dice.below(u64::MAX) as u32).into()).collect();
    per_lookup("class of an IPv4 address", &addresses, |at| u64::from(two.lookup(at).scope));
    // Global unicast: 2000::/3.
    let v6: Vec<IpAddr> = (0..LOOKUPS)
        .map(|_| {
            let high = dice.below(1 << 61) | 1 << 61;
            Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(dice.below(u64::MAX))).into()
        })
        .collect();
    per_lookup("class of an IPv6 address", &v6, |at| u64::from(two.lookup(at).scope));
    per_lookup("location of an IPv4 address", &addresses, |at| {
        u64::from(after.locate(at).asn.map_or(0, Asn::get))
    });
    let status = std::fs::read_to_string("/proc/self/status")?;
    status.lines().filter(|line| line.starts_with("VmRSS")).for_each(|line| println!("{line}"));
    Ok(())
}

fn table(followed: &Followed) -> Result<Arc<model::route::RouteTable>, &'static str> {
    followed.views().values().next().map(|of| Arc::clone(&of.table)).ok_or("no view")
}

fn fill(rib: &mut Rib, peer: PeerId, dice: &mut Dice) {
    let sets: Vec<Attributes> = (0..SETS).map(|n| attributes(n, dice)).collect();
    let mut seen = BTreeSet::new();
    while seen.len() < ROUTES_V4 {
        seen.insert(net_v4(dice));
    }
    while seen.len() < ROUTES_V4 + ROUTES_V6 {
        let length = if dice.below(2) == 0 { 48 } else { 32 + dice.below(16) as u8 };
        let bits = 0x2000 << 112
            | u128::from(dice.below(u64::MAX)) << 61
            | u128::from(dice.below(u64::MAX));
        seen.insert(
            IpNet::new(Ipv6Addr::from_bits(bits).into(), length).unwrap_or_default().trunc(),
        );
    }
    for net in seen {
        let set = sets.get(dice.below(u64::from(SETS)) as usize);
        set.into_iter().for_each(|set| rib.announce(peer, net, set.clone()));
    }
}

/// Most are /24, some wider, as in the real table.
fn net_v4(dice: &mut Dice) -> IpNet {
    let length = if dice.below(10) < 6 { 24 } else { 16 + dice.below(8) as u8 };
    let bits = (1 << 24) + (dice.below(u64::MAX) as u32) % (223 << 24);
    IpNet::new(Ipv4Addr::from_bits(bits).into(), length).unwrap_or_default().trunc()
}

fn attributes(n: u32, dice: &mut Dice) -> Attributes {
    let origin = 1 + n % 75_000;
    let path = [64500, 1 + dice.below(60) as u32, 1 + dice.below(5000) as u32, origin];
    let communities: Vec<_> = (0..4).map(|_| Community(dice.below(u64::MAX) as u32)).collect();
    Attributes {
        next_hop: Ipv4Addr::new(192, 0, 2, dice.below(8) as u8).into(),
        origin: Origin::Igp,
        as_path: AsPath::sequence(&path),
        med: None,
        local_pref: None,
        communities: Communities::new(communities, [], []),
    }
}

/// Twenty rules and a thousand ASes.
fn map() -> Result<AdminMap, Box<dyn std::error::Error>> {
    let pools: Vec<Name> =
        ["a", "b", "c", "w"].iter().map(|p| p.parse()).collect::<Result<_, _>>()?;
    let pool = |n: usize| pools.get(n % pools.len()).cloned().into_iter().collect::<Vec<_>>();
    let hop = |n: usize| RouteRule {
        next_hop: (n < 3).then(|| Ipv4Addr::new(192, 0, 2, n as u8).into()),
        as_path: (n >= 3)
            .then(|| format!("^ 64500 {n} * {} $", 1 + n * 100).parse().ok())
            .flatten(),
        pools: pool(n),
        ..RouteRule::default()
    };
    let asn = (1..1000u32).filter_map(|n| Some((Asn::new(n * 7)?, pool(n as usize))));
    let map = SteeringMap {
        default: pool(3),
        asn: asn.collect(),
        rules: (0..20).map(hop).collect(),
        ..SteeringMap::default()
    };
    Ok(AdminMap { maps: BTreeMap::from([("default".parse()?, map)]), ..AdminMap::default() })
}

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = work();
    println!("{what:<28} {:8.0} ms", begun.elapsed().as_secs_f64() * 1e3);
    result
}

fn per_lookup(what: &str, addresses: &[IpAddr], look: impl Fn(IpAddr) -> u64) {
    let begun = Instant::now();
    let sum = addresses.iter().fold(0u64, |sum, at| sum.wrapping_add(look(*at)));
    black_box(sum);
    println!("{what:<28} {:8.1} ns", begun.elapsed().as_nanos() as f64 / addresses.len() as f64);
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
