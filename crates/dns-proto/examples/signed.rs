//! What signing costs: answers with and without signatures, and signatures a second.
//!
//! `cargo run --release -p dns-proto --example signed` prints the time of an answer (one thread, no
//! sockets) and of a signature by each algorithm.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use dns_proto::dnssec::{Algorithm, Cds, Duty, Key, Keyring, Pen, Signer, ZoneKeys};
use dns_proto::{Asker, Desk, Manners, Snapshot, Transport, answer};
use locate::Locator;
use model::{Dice, HostName, Now, base64};
use nodemap::NodeMap;
use ring::rand::SystemRandom;
use steer::{ClassTable, Steering};

const ANSWERS: usize = 500_000;
const SIGNATURES: usize = 2_000;
const NOW: Now = Now { mono_ns: 1_000_000_000_000, wall_ms: 1_800_000_000_000 };

fn node_map() -> NodeMap {
    let mut text = String::from("[site.s]\n");
    let nodes: Vec<String> = (1..=20).map(|node| format!("n{node}")).collect();
    for (node, at) in nodes.iter().zip(1..) {
        text += &format!("[node.{node}]\nsite = \"s\"\n");
        text += &format!("addresses = [\"203.0.113.{at}\", \"2001:db8::{at}\"]\n");
    }
    text += &format!("[pool]\nall = {{ {} = 100 }}\n", nodes.join(" = 100, "));
    text += "[map.default]\ndefault = [\"all\"]\n[zone.\"cdn.example\"]\nns = [\"ns1.other.example\"]\n\
             soa = { contact = \"noc.other.example\" }\n\
             [project.p]\nname = \"p.cdn.example\"\nhosts = [\"p.example\"]\nmap = \"default\"\n\
             master = { m1 = { url = \"http://m1.example/p\" } }\n";
    let map = nodemap::admin::load(&[(PathBuf::from("maps.toml"), text)]).unwrap();
    let states = map.nodes.keys().map(|node| (node.clone(), Default::default())).collect();
    NodeMap::new(1_764_547_200_000, "example", map, states)
}

fn snapshot(algorithm: Algorithm) -> Snapshot {
    let (zone, random): (HostName, _) = ("cdn.example".parse().unwrap(), SystemRandom::new());
    let body = base64::encode(&Key::generate(algorithm, &random).unwrap());
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n");
    let key = Key::read(&zone, &pem, None, &random).unwrap();
    let keys = ZoneKeys::new(&zone, vec![(key, Duty::Active)], Cds::Off, 604_800).unwrap();
    let mut keyring = Keyring::default();
    keyring.add(zone, keys);
    let map = node_map();
    let locator = Locator::open(None, None).unwrap();
    let table = ClassTable::compile(&locator, &map.map, 0).unwrap();
    let steering = Steering::new(Arc::new(table), Arc::new(map)).unwrap();
    Snapshot::build(Arc::new(steering), Arc::default(), keyring.into(), None)
}

/// A query for A with an OPT record.
fn query(name: &str, dnssec_ok: bool) -> Vec<u8> {
    let mut bytes = vec![0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(label.bytes());
    }
    bytes.extend([0, 0, 1, 0, 1]);
    bytes.extend([0, 0, 41, 4, 208, 0, 0, if dnssec_ok { 0x80 } else { 0 }, 0, 0, 0]);
    bytes
}

/// Nanoseconds of an answer to `count` of `queries` in turn, and the bytes of the last one.
fn answer_ns(snapshot: &Snapshot, queries: &[Vec<u8>], count: usize) -> (u128, usize) {
    let pen = Pen::new(Signer::new([1; 16], SystemRandom::new()).into());
    let mut desk = Desk::new(Dice::seeded(1), Manners::default()).with_pen(pen);
    let mut out = Vec::with_capacity(1232);
    let mut all = |count| {
        for query in queries.iter().cycle().take(count) {
            let asker = Asker { peer: [192, 0, 2, 1].into(), transport: Transport::Udp, now: NOW };
            answer(snapshot, query, &asker, &mut desk, &mut out);
        }
        out.len()
    };
    if queries.len() < count {
        // What is signed once is signed before the clock runs.
        all(1000);
    }
    let start = Instant::now();
    let bytes = all(count);
    (start.elapsed().as_nanos() / count as u128, bytes)
}

fn main() {
    for algorithm in [Algorithm::EcdsaP256Sha256, Algorithm::Ed25519] {
        let snapshot = snapshot(algorithm);
        for (what, name) in [("steered", "p.cdn.example"), ("no such name", "x.cdn.example")] {
            for dnssec_ok in [false, true] {
                let (ns, bytes) = answer_ns(&snapshot, &[query(name, dnssec_ok)], ANSWERS);
                let with = if dnssec_ok { "with" } else { "without" };
                println!("{algorithm}: {what}, {with} signatures: {ns} ns, {bytes} bytes");
            }
        }
        let names: Vec<Vec<u8>> =
            (0..SIGNATURES).map(|i| query(&format!("x{i}.cdn.example"), true)).collect();
        let (ns, _) = answer_ns(&snapshot, &names, SIGNATURES);
        println!(
            "{algorithm}: no such name, each signed anew: {ns} ns, {} a second",
            1_000_000_000 / ns
        );
    }
}
