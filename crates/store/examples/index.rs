//! What an object costs: memory of the index and bytes on disk, and how long a start takes from the
//! opening to the first hit, after a clean stop and after a kill.
//!
//! ```text
//! cargo run --release -p store --example index -- FOLDER OBJECTS [small|large]
//! ```
//!
//! `small` (the default) packs bodies of 100 bytes; `large` gives each object its own file. The folder
//! must be empty; it is left as it is. A kill is a store that is forgotten in the middle of its work, a
//! second after its last flush: what the disk holds then is what a killed process leaves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

#[path = "support/folder.rs"]
mod folder;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use folder::Folder;
use model::ByteCount;
use store::{Key, Params, Store};

const HEAD: &[u8] = &[b'h'; 300];

fn key(n: u64) -> Key {
    let mix = |n: u64| {
        n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    let (a, b) = (mix(n).to_le_bytes(), mix(n ^ 0x5555).to_le_bytes());
    Key([a, b].concat().try_into().unwrap())
}

/// Bytes of memory of this process that are in use now.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn main() {
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(args.next().expect("FOLDER"));
    let objects: u64 = args.next().expect("OBJECTS").parse().expect("a number");
    let length: u64 = if args.next().as_deref() == Some("large") { 100_000 } else { 100 };
    // Hardly any memory besides the index.
    let memory = ByteCount(8 << 20);
    let params = Params {
        capacity: ByteCount(1 << 44),
        block_bytes: Params::BLOCK_BYTES,
        memory,
        open_files: Params::OPEN_FILES,
    };
    let open = || Store::open(Arc::new(Folder(folder.clone())), params).unwrap();

    let store = open();
    let begun = Instant::now();
    let body = vec![b'b'; usize::try_from(length).unwrap()];
    for n in 0..objects {
        let rep = store.create(key(n), Bytes::from_static(HEAD), length).unwrap();
        rep.write_block(0, &body).unwrap();
        if n % 50_000 == 49_999 {
            drop(rep);
            store.flush();
        }
    }
    store.flush();
    let filled_s = begun.elapsed().as_secs_f64();
    println!("{objects} objects of {length} bytes filled in {filled_s:.1} s");
    println!("{:.1} bytes on disk each", store.usage().bytes as f64 / objects as f64);
    drop(store);

    for how in ["a clean stop", "a kill"] {
        let before = resident();
        let begun = Instant::now();
        let store = open();
        let opened_s = begun.elapsed().as_secs_f64();
        let rep = store.load(&key(objects / 2)).expect("held");
        assert!(rep.verify(0), "good");
        drop(rep);
        let hit_s = begun.elapsed().as_secs_f64();
        let usage = store.usage();
        assert_eq!(usage.objects, objects + u64::from(how == "a kill") * 1000);
        println!("after {how}: open in {opened_s:.3} s, first hit after {hit_s:.3} s");
        println!(
            "  index: {:.1} bytes an object by its own count, {:.1} resident",
            usage.index_bytes as f64 / usage.objects as f64,
            (resident().saturating_sub(before)) as f64 / usage.objects as f64
        );
        if how == "a clean stop" {
            for n in 0..2000 {
                let rep = store.create(key(objects + n), Bytes::from_static(HEAD), length).unwrap();
                rep.write_block(0, &body).unwrap();
                if n == 999 {
                    drop(rep);
                    store.flush();
                }
            }
            std::mem::forget(store);
        }
    }
}
