//! What a full table costs: reads a file of UPDATE messages and takes them into a table, as one peer and
//! then as another, with the decisions and a walk over all in between.
//!
//! `cargo run --release -p bgp-proto --example table -- FEED`, FEED as `bgpfeed.py gen` of the benchmarks
//! makes it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a measurement"
)]

use std::time::Instant;

use bgp_proto::{Families, Kind, PeerId, Rib, Rules, Update, frame};

const RULES: Rules = Rules {
    four_octet_as: true,
    internal: false,
    families: Families::ALL,
    extended_next_hop: false,
};

/// Resident memory of this process, MiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<usize>().unwrap() / 1024
}

fn take(rib: &mut Rib, peer: PeerId, mut bytes: &[u8]) -> usize {
    let mut messages = 0;
    while let Some(frame) = frame::first(bytes, false).unwrap() {
        if frame.kind == Kind::Update {
            rib.apply(peer, Update::parse(frame.body, &RULES).unwrap());
        }
        messages += 1;
        bytes = &bytes[frame.length..];
    }
    messages
}

fn main() {
    let path = std::env::args().nth(1).expect("a file of messages");
    let feed = std::fs::read(path).unwrap();
    let mut rib = Rib::new([1, 2]);
    let view = rib.add_view("all").unwrap();
    let peers: Vec<PeerId> = (0..2).map(|_| rib.add_peer(view, false).unwrap()).collect();
    println!("with the feed in memory: {} MiB", resident());
    for peer in peers {
        let before = resident();
        let start = Instant::now();
        let messages = take(&mut rib, peer, &feed);
        println!(
            "{messages} messages in {:?}, {:?} routes",
            start.elapsed(),
            rib.peer_counts(peer)
        );
        let start = Instant::now();
        rib.commit();
        println!("decided in {:?}", start.elapsed());
        let start = Instant::now();
        let lengths: usize = rib.export(view).map(|(_, carried)| carried.as_path.length()).sum();
        println!("walked in {:?}, {lengths} hops, {} sets", start.elapsed(), rib.attribute_sets());
        println!("{} MiB more, {} in all", resident() - before, resident());
        // A little churn: the same messages again, of which the first thousand.
        let end = feed.len() / 355;
        rib.clear(peer, model::Family::V6);
        let start = Instant::now();
        rib.commit();
        println!("200,000 routes gone: decided in {:?}", start.elapsed());
        take(&mut rib, peer, &feed);
        rib.commit();
        let start = Instant::now();
        let messages = take_some(&mut rib, peer, &feed, end);
        rib.commit();
        println!("{messages} messages that change nothing, and deciding: {:?}", start.elapsed());
    }
}

/// Messages up to about so many bytes.
fn take_some(rib: &mut Rib, peer: PeerId, feed: &[u8], end: usize) -> usize {
    let mut whole = 0;
    while let Some(frame) = frame::first(&feed[whole..end], false).unwrap() {
        whole += frame.length;
    }
    take(rib, peer, &feed[..whole])
}
