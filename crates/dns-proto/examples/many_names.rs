//! What many names cost: 1,000 projects on 20 nodes and 100,000 records of zone files.
//!
//! `cargo run --release -p dns-proto --example many_names` prints the time to read the file and to make
//! names of all, their memory, and the time of an answer (one thread, no sockets).
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use dns_proto::{Asker, Desk, Manners, Snapshot, Transport, answer, zonefile};
use locate::Locator;
use model::{Dice, Now};
use nodemap::NodeMap;
use steer::{ClassTable, Steering};

const PROJECTS: usize = 1_000;
const RECORDS: usize = 100_000;
const ANSWERS: usize = 1_000_000;

fn node_map() -> NodeMap {
    let mut text = String::from("[site.s]\n");
    let mut pool = String::new();
    for node in 0..20 {
        writeln!(text, "[node.n{node}]\nsite = \"s\"").unwrap();
        writeln!(text, "addresses = [\"203.0.113.{node}\", \"2001:db8::{node}\"]").unwrap();
        write!(pool, "n{node} = 100, ").unwrap();
    }
    writeln!(text, "[pool]\nall = {{ {} }}", pool.trim_end_matches(", ")).unwrap();
    text += "[map.default]\ndefault = [\"all\"]\n[zone.\"cdn.example\"]\nns = [\"ns1.other.example\"]\n";
    text += "soa = { contact = \"noc.other.example\" }\n";
    for project in 0..PROJECTS {
        writeln!(text, "[project.p{project}]\nname = \"p{project}.cdn.example\"").unwrap();
        writeln!(text, "hosts = [\"p{project}.example\"]\nmap = \"default\"").unwrap();
        writeln!(text, "master = {{ m1 = {{ url = \"http://m1.example/p{project}\" }} }}").unwrap();
    }
    let map = nodemap::admin::load(&[(PathBuf::from("maps.toml"), text)]).unwrap();
    let states = map.nodes.keys().map(|node| (node.clone(), Default::default())).collect();
    NodeMap::new(1_764_547_200_000, "example", map, states)
}

fn zone_text() -> String {
    let mut text =
        String::from("$TTL 300\n@ SOA ns1 noc 1 7200 1800 1209600 60\n NS ns1\nns1 A 192.0.2.1\n");
    for record in 0..RECORDS {
        let (high, low) = (record / 250 % 250, record % 250);
        writeln!(text, "host{record} A 198.18.{high}.{low}").unwrap();
    }
    text
}

fn query(name: &str, rtype: u8) -> Vec<u8> {
    let mut bytes = vec![0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(label.bytes());
    }
    bytes.extend([0, 0, rtype, 0, 1]);
    bytes
}

/// Nanoseconds of an answer to each of `queries` in turn.
fn answer_ns(snapshot: &Snapshot, queries: &[Vec<u8>]) -> u128 {
    let now = Now::default();
    let asker = Asker { peer: [192, 0, 2, 1].into(), transport: Transport::Udp, now };
    let mut desk = Desk::new(Dice::seeded(1), Manners::default());
    let mut out = Vec::with_capacity(1232);
    let start = Instant::now();
    for query in queries.iter().cycle().take(ANSWERS) {
        answer(snapshot, query, &asker, &mut desk, &mut out);
    }
    start.elapsed().as_nanos() / ANSWERS as u128
}

fn main() {
    let map = node_map();
    let locator = Locator::open(None, None).unwrap();
    let table = ClassTable::compile(&locator, &map.map, 0).unwrap();
    let steering = Arc::new(Steering::new(Arc::new(table), Arc::new(map)).unwrap());
    let text = zone_text();
    let start = Instant::now();
    let apex = "static.example".parse().unwrap();
    let file = zonefile::parse(Path::new("static.example.zone"), &apex, text.as_bytes()).unwrap();
    println!("zone file: {} records read in {:?}", file.records(), start.elapsed());
    let files: Arc<[_]> = [Arc::new(file)].into();
    let start = Instant::now();
    let keyring = Arc::default();
    let snapshot =
        Snapshot::build(Arc::clone(&steering), Arc::clone(&files), Arc::clone(&keyring), None);
    let (names, bytes) = (snapshot.names(), snapshot.names_bytes());
    println!("names: {names} made in {:?}, {bytes} bytes, {} each", start.elapsed(), bytes / names);
    let start = Instant::now();
    let again = Snapshot::build(steering, files, keyring, Some(&snapshot));
    println!("the same names in a new snapshot: {:?}", start.elapsed());
    drop(again);
    let queries = |make: &dyn Fn(usize) -> String, rtype| -> Vec<Vec<u8>> {
        (0..4096).map(|i| query(&make(i * 7919), rtype)).collect()
    };
    for (what, queries) in [
        ("steered A", queries(&|i| format!("p{}.cdn.example", i % PROJECTS), 1)),
        ("HTTPS (no data)", queries(&|i| format!("p{}.cdn.example", i % PROJECTS), 65)),
        ("static A", queries(&|i| format!("host{}.static.example", i % RECORDS), 1)),
        ("NXDOMAIN", queries(&|i| format!("nothing{i}.cdn.example"), 1)),
        ("NXDOMAIN, deep", queries(&|i| format!("a.b.c.nothing{i}.static.example"), 1)),
        ("REFUSED", queries(&|i| format!("nothing{i}.example"), 1)),
    ] {
        println!("{what}: {} ns", answer_ns(&snapshot, &queries));
    }
}
