//! Hit ratios of the store against policies over whole objects, on made traces.
//!
//! ```text
//! cargo run --release -p store --example traces -- FOLDER [REQUESTS]
//! ```
//!
//! The folder must be empty and is best in memory (`/dev/shm/...`): the store writes what it is filled
//! with. The others are simulated by bytes, without its metadata and segments. A hit has all bytes that
//! are asked for; byte hits count those that are there. How the traces are made: `trace.rs`.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../support/folder.rs"]
mod folder;
mod policy;
mod trace;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use folder::Folder;
use model::ByteCount;
use policy::{Lru, Policy, S3Fifo, Sieve};
use store::{Key, Params, Store};
use trace::Ask;

const CAPACITY: u64 = 192 << 20;
const BLOCK: u32 = 128 << 10;
/// Requests between two flushes.
const FLUSH_EVERY: usize = 500;

/// What a run has come to.
#[derive(Default)]
struct Score {
    asks: u64,
    hits: u64,
    bytes: u64,
    hit_bytes: u64,
}

impl Score {
    fn add(&mut self, bytes: u64, hit_bytes: u64) {
        self.asks += 1;
        self.hits += u64::from(bytes == hit_bytes);
        self.bytes += bytes;
        self.hit_bytes += hit_bytes;
    }

    fn print(&self, trace: &str, policy: &str) {
        let ratio = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        println!(
            "| {trace} | {policy} | {:.3} | {:.3} |",
            ratio(self.hits, self.asks),
            ratio(self.hit_bytes, self.bytes)
        );
    }
}

fn simulate(trace: &[Ask], policy: &mut dyn Policy) -> Score {
    let mut score = Score::default();
    for ask in trace {
        let bytes = ask.to - ask.from;
        let hit = policy.ask(ask.object, ask.size);
        score.add(bytes, if hit { bytes } else { 0 });
    }
    score
}

fn run_store(folder: &Path, trace: &[Ask]) -> Score {
    let _ = std::fs::remove_dir_all(folder);
    let params = Params {
        capacity: ByteCount(CAPACITY),
        block_bytes: BLOCK,
        memory: ByteCount(64 << 20),
        open_files: Params::OPEN_FILES,
    };
    let store = Store::open(Arc::new(Folder(folder.to_owned())), params).unwrap();
    let block = vec![7; BLOCK as usize];
    let mut score = Score::default();
    for (n, ask) in trace.iter().enumerate() {
        let mut key = [0; 16];
        let mixed = u64::from(ask.object).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        key[..8].copy_from_slice(&mixed.to_le_bytes());
        key[8..].copy_from_slice(&mixed.rotate_left(17).to_le_bytes());
        let key = Key(key);
        let rep = match store.load(&key) {
            Some(rep) => rep,
            None => store.create(key, Bytes::from_static(&[0; 200]), ask.size).unwrap(),
        };
        let blocks = ask.from / u64::from(BLOCK)..ask.to.div_ceil(u64::from(BLOCK));
        let mut held = 0;
        for at in blocks {
            let at = at as u32;
            let start = u64::from(at) * u64::from(BLOCK);
            let end = start + u64::from(rep.block_len(at));
            if rep.has(at) && rep.verify(at) {
                held += end.min(ask.to) - start.max(ask.from);
            } else {
                let _ = rep.write_block(at, &block[..rep.block_len(at) as usize]);
            }
            drop(rep.extent(start, u64::from(BLOCK)));
        }
        score.add(ask.to - ask.from, held);
        drop(rep);
        if n % FLUSH_EVERY == 0 {
            store.flush();
        }
    }
    score
}

fn main() {
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(args.next().expect("FOLDER")).join("traces");
    let requests: usize = args.next().map_or(200_000, |n| n.parse().expect("a number"));
    println!("| trace | policy | hit ratio | byte hit ratio |\n|---|---|---|---|");
    for (name, trace) in [
        ("Zipf 0.8", trace::zipf(0.8, requests)),
        ("Zipf 1.0", trace::zipf(1.0, requests)),
        ("scan", trace::scan(requests)),
        ("release day", trace::release_day(requests)),
    ] {
        simulate(&trace, &mut Lru::new(CAPACITY)).print(name, "LRU");
        simulate(&trace, &mut Sieve::new(CAPACITY)).print(name, "SIEVE");
        simulate(&trace, &mut S3Fifo::new(CAPACITY)).print(name, "S3-FIFO");
        run_store(&folder, &trace).print(name, "store");
    }
    let _ = std::fs::remove_dir_all(folder);
}
