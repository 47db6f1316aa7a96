//! Small objects: packed, evicted by segment, in memory when asked for often; and what is not in
//! memory at all.
#![allow(clippy::indexing_slicing)]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use model::{ByteCount, Dice};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::names::segment_path;
use crate::testing::{Crash, EIO, FaultDisk, Faults};
use crate::{Extent, Held, Key, Params, Reading, Representation, Store};

const BLOCK: u64 = 4096;

struct Bench {
    _folder: TempDir,
    root: PathBuf,
    disk: Arc<FaultDisk>,
    params: Params,
}

impl Bench {
    fn new(capacity_units: u64) -> Self {
        Self::with_memory(capacity_units, Params::MEMORY)
    }

    fn with_memory(capacity_units: u64, memory: ByteCount) -> Self {
        let folder = TempDir::new().unwrap();
        let root = folder.path().to_owned();
        let disk = Arc::new(FaultDisk::new(&root, Dice::seeded(1)));
        let capacity = ByteCount(capacity_units * BLOCK);
        let params =
            Params { capacity, block_bytes: BLOCK as u32, memory, open_files: Params::OPEN_FILES };
        Self { _folder: folder, root, disk, params }
    }

    fn open(&self) -> Store {
        Store::open(self.disk.clone(), self.params).unwrap()
    }
}

fn key(n: u32) -> Key {
    let mut key = [0; 16];
    key[..4].copy_from_slice(&n.wrapping_mul(0x9e37_79b1).to_le_bytes());
    key[12..].copy_from_slice(&n.to_be_bytes());
    Key(key)
}

fn body(n: u32, len: usize) -> Vec<u8> {
    (0..len).map(|at| (n as u8).wrapping_mul(31) ^ at as u8).collect()
}

fn fill(store: &Store, n: u32, len: usize) -> Arc<Representation> {
    let head = Bytes::from(format!("head {n}"));
    let rep = store.create(key(n), head, len as u64).unwrap();
    for (block, bytes) in (0..).zip(body(n, len).chunks(BLOCK as usize)) {
        rep.write_block(block, bytes).unwrap();
    }
    rep
}

fn read(extent: &Extent) -> Vec<u8> {
    let mut bytes = vec![0; extent.len as usize];
    extent.file.read_exact_at(&mut bytes, extent.offset).unwrap();
    bytes
}

fn whole(rep: &Arc<Representation>) -> Vec<u8> {
    assert!((0..rep.blocks()).all(|block| rep.verify(block)));
    rep.extent(0, u64::MAX).map(|extent| read(&extent)).unwrap_or_default()
}

#[test]
fn small_objects_share_a_file_and_come_back() {
    for crash in [Crash::Kill, Crash::PowerLoss] {
        let bench = Bench::new(4096);
        let store = bench.open();
        for n in 0..200 {
            assert_eq!(whole(&fill(&store, n, 100)), body(n, 100));
        }
        store.flush();
        let bytes = store.usage().bytes;
        assert!(bytes <= 200 * 180 + 8 * BLOCK, "{bytes}: no unit for each");
        assert_eq!(fs::read_dir(bench.root.join("segments")).unwrap().count(), 1);
        drop(store);
        bench.disk.crash(crash).unwrap();
        let store = bench.open();
        assert_eq!(store.usage().objects, 200);
        for n in 0..200 {
            assert!(matches!(store.look_up(&key(n)), Held::OnDisk));
            let rep = store.load(&key(n)).unwrap();
            assert_eq!((rep.head(), rep.length()), (Bytes::from(format!("head {n}")), 100));
            let extent = rep.extent(10, 20).unwrap();
            assert_eq!((extent.at, extent.len), (10, 20));
            assert_eq!(read(&extent), body(n, 100)[10..30]);
            assert!(
                matches!(store.look_up(&key(n)), Held::Ready(found) if Arc::ptr_eq(&found, &rep))
            );
        }
        assert!(matches!(store.look_up(&key(200)), Held::Absent));
    }
}

#[test]
fn a_block_that_comes_before_anybody_can_find_it_is_kept() {
    let bench = Bench::new(256);
    let store = bench.open();
    for n in [1, 2] {
        let len = [0, 100, 5000][n as usize];
        let bytes = body(n, len);
        let first = |rep: &Arc<Representation>| {
            for (block, bytes) in (0..).zip(bytes.chunks(BLOCK as usize)) {
                rep.write_block(block, bytes).unwrap();
            }
        };
        store.create_with(key(n), Bytes::new(), len as u64, first).unwrap();
    }
    store.flush();
    drop(store);
    let store = bench.open();
    assert_eq!(whole(&store.load(&key(1)).unwrap()), body(1, 100));
    assert_eq!(whole(&store.load(&key(2)).unwrap()), body(2, 5000));
}

#[test]
fn a_new_head_of_a_small_object_is_flushed_and_its_body_stays() {
    let bench = Bench::new(256);
    let store = bench.open();
    let rep = fill(&store, 1, 1000);
    store.flush();
    store.set_head(&rep, Bytes::from_static(b"newer")).unwrap();
    store.flush();
    assert_eq!(whole(&rep), body(1, 1000));
    drop((rep, store));
    let rep = bench.open().load(&key(1)).unwrap();
    assert_eq!((rep.head(), whole(&rep)), (Bytes::from_static(b"newer"), body(1, 1000)));
}

#[test]
fn the_second_use_brings_a_small_body_into_memory_and_no_large_one() {
    let bench = Bench::new(256);
    let store = bench.open();
    drop(fill(&store, 1, 1000));
    fill(&store, 2, 2 * BLOCK as usize);
    let look = |n| match store.look_up(&key(n)) {
        Held::Ready(rep) => rep,
        other => panic!("{other:?}"),
    };
    assert!(!look(1).wants_memory(), "asked for once");
    let before = store.usage().memory_bytes;
    let rep = look(1);
    assert!(rep.wants_memory() && rep.memory().is_none());
    rep.load_memory();
    assert_eq!(rep.memory().unwrap(), body(1, 1000));
    assert!(!rep.wants_memory());
    assert_eq!(store.usage().memory_bytes, before + 1000);
    let large = [look(2), look(2)];
    assert!(!large[1].wants_memory());
    store.remove(&key(1));
    assert!(store.usage().memory_bytes < before);
    assert_eq!(rep.memory().unwrap(), body(1, 1000), "who holds it reads on");
}

/// A hundred thousand of them must not cost a hundred thousand heads in memory.
#[test]
fn small_objects_asked_for_once_leave_memory_with_the_next_flush() {
    let bench = Bench::new(4096);
    let store = bench.open();
    let kept = fill(&store, 0, 1000);
    let one = store.usage().memory_bytes;
    (1..1000).for_each(|n| drop(fill(&store, n, 1000)));
    store.flush();
    assert_eq!(store.usage().memory_bytes, one, "only what is in use");
    // One that is found again on the disk goes again; one that is asked for twice stays.
    let find = |n| {
        if matches!(store.look_up(&key(n)), Held::OnDisk) {
            store.load(&key(n)).unwrap();
        }
        match store.look_up(&key(n)) {
            Held::Ready(rep) => rep.memory(),
            other => panic!("{n}: {other:?}"),
        }
    };
    for n in 1..1000 {
        assert_eq!(find(n), None, "asked for once");
    }
    drop(kept);
    store.flush();
    assert_eq!(store.usage().memory_bytes, 0);
    for n in 1..10 {
        assert_eq!(find(n).unwrap(), body(n, 1000), "asked for twice");
    }
    store.flush();
    assert_eq!(store.usage().memory_bytes, 9 * (one + 1000));
    assert!(matches!(store.look_up(&key(1)), Held::Ready(_)));
}

/// What a user of the store makes of a head: here its own bytes, backwards.
#[derive(Debug, PartialEq)]
struct Backwards(Vec<u8>);

impl Reading for Backwards {
    fn memory_bytes(&self) -> usize {
        700
    }
}

#[test]
fn what_was_made_of_a_head_is_kept_beside_it_while_it_is_asked_for_often() {
    let bench = Bench::new(4096);
    let store = bench.open();
    let rep = fill(&store, 1, 1000);
    let before = store.usage().memory_bytes;
    let made = std::cell::Cell::new(0);
    let read = || {
        rep.read_head(|bytes| {
            made.set(made.get() + 1);
            Backwards(bytes.iter().rev().copied().collect())
        })
    };
    store.look_up(&key(1));
    assert_eq!((read(), made.get()), (Arc::new(Backwards(b"1 daeh".to_vec())), 1));
    assert_eq!((store.usage().memory_bytes, made.get()), (before, 1), "asked for once");
    store.look_up(&key(1));
    assert!(Arc::ptr_eq(&read(), &read()));
    assert_eq!((store.usage().memory_bytes, made.get()), (before + 700, 2));
    store.set_head(&rep, Bytes::from_static(b"new")).unwrap();
    assert_eq!(store.usage().memory_bytes, before, "it goes with the head it was made of");
    assert_eq!((read(), made.get()), (Arc::new(Backwards(b"wen".to_vec())), 3));
    assert_eq!(store.usage().memory_bytes, before + 700);
    store.remove(&key(1));
    assert!(store.usage().memory_bytes < before);

    let bench = Bench::with_memory(4096, ByteCount(before + 699));
    let store = bench.open();
    let rep = fill(&store, 1, 1000);
    (0..2).for_each(|_| drop(store.look_up(&key(1))));
    assert!(!Arc::ptr_eq(&reading(&rep), &reading(&rep)), "there is no memory for it");
    assert!(!rep.wants_memory(), "nor for the body, which nobody tries to bring");
    assert_eq!(store.usage().memory_bytes, before);
}

fn reading(rep: &Representation) -> Arc<Backwards> {
    rep.read_head(|bytes| Backwards(bytes.to_vec()))
}

#[test]
fn memory_is_bounded_and_what_leaves_it_is_loaded_again() {
    let bench = Bench::with_memory(4096, ByteCount(40_000));
    let store = bench.open();
    let kept = fill(&store, 0, 500);
    for n in 1..1000 {
        fill(&store, n, if n % 50 == 0 { 5000 } else { 500 });
        if n % 10 == 0 {
            store.flush();
        }
    }
    store.flush();
    assert!(store.usage().memory_bytes <= 40_000, "{:?}", store.usage());
    assert_eq!(store.usage().objects, 1000);
    for n in 0..1000 {
        let rep = store.load(&key(n)).unwrap();
        assert_eq!(whole(&rep), body(n, if n > 0 && n % 50 == 0 { 5000 } else { 500 }));
        assert!(n > 0 || Arc::ptr_eq(&rep, &kept), "never two of one place");
    }
    assert!(store.usage().memory_bytes <= 40_000 + 2000);
}

#[test]
fn a_segment_goes_as_a_whole_and_what_was_used_of_it_stays() {
    let bench = Bench::new(256);
    let store = bench.open();
    for n in 0..4000 {
        fill(&store, n, 1000);
        // Some are asked for all the time.
        for hot in (0..n.min(20)).step_by(4) {
            assert!(store.load(&key(hot)).is_some(), "{hot} went at {n}");
        }
        if n % 100 == 0 {
            store.flush();
        }
        assert!(store.usage().bytes <= 256 * BLOCK);
        assert!(n % 64 > 0 || bench.disk.allocated_bytes().unwrap() <= store.usage().bytes);
    }
    let usage = store.usage();
    assert!(usage.objects > 500, "room is used: {usage:?}");
    assert_eq!(usage.objects + usage.evictions, 4000);
    store.flush();
    drop(store);
    let store = bench.open();
    assert_eq!(store.usage().objects, usage.objects);
    for hot in (0..20).step_by(4) {
        assert_eq!(whole(&store.load(&key(hot)).unwrap()), body(hot, 1000));
    }
}

#[test]
fn what_is_read_from_an_evicted_segment_is_read_to_the_end() {
    let bench = Bench::new(64);
    let store = bench.open();
    let rep = fill(&store, 0, 3000);
    let extent = rep.extent(0, u64::MAX).unwrap();
    for n in 1..300 {
        fill(&store, n, 3000);
    }
    assert_eq!(read(&extent), body(0, 3000));
    assert!(rep.still_holds(0, 3000));
    assert!(store.usage().bytes <= 64 * BLOCK);
    assert!(bench.disk.allocated_bytes().unwrap() <= store.usage().bytes);
}

#[test]
fn a_damaged_record_is_a_miss_and_can_be_filled_again() {
    let bench = Bench::new(256);
    let store = bench.open();
    drop((fill(&store, 1, 100), fill(&store, 2, 100)));
    store.flush();
    drop(store);
    bench.disk.flip_bit(&segment_path(0), 80).unwrap();
    let store = bench.open();
    assert!(store.load(&key(1)).is_none());
    assert_eq!(whole(&store.load(&key(2)).unwrap()), body(2, 100));
    assert_eq!((store.usage().corrupt_blocks, store.usage().objects), (1, 1));
    assert_eq!(whole(&fill(&store, 1, 100)), body(1, 100));
}

#[test]
fn the_scrub_finds_what_has_gone_bad_while_it_is_running() {
    let bench = Bench::new(1024);
    let store = bench.open();
    let large = fill(&store, 1, 3 * BLOCK as usize);
    drop(fill(&store, 2, 100));
    let small = fill(&store, 3, 100);
    drop(fill(&store, 4, 3 * BLOCK as usize));
    store.flush();
    // Records have 58 bytes before the body.
    bench.disk.flip_bit(&segment_path(0), 60).unwrap();
    bench.disk.flip_bit(&segment_path(0), 158 + 60).unwrap();
    let path = large.place().path(crate::names::Part::Body);
    bench.disk.flip_bit(&path, BLOCK + 5).unwrap();
    let mut calls = 0;
    while store.scrubbed().rounds == 0 {
        store.scrub(1000);
        calls += 1;
    }
    assert!(calls > 3, "a little at a time");
    assert_eq!(store.usage().corrupt_blocks, 3);
    assert_eq!(large.missing(), vec![1..2]);
    assert!(store.load(&key(2)).is_none());
    assert!(!small.has(0));
    assert_eq!(whole(&store.load(&key(4)).unwrap()), body(4, 3 * BLOCK as usize));
    assert_eq!(store.scrubbed().bytes, 6 * BLOCK + 2 * 158);
    // It reads from the disk, not from what it knows: nothing more is bad, nothing is lost.
    while store.scrubbed().rounds < 2 {
        store.scrub(u64::MAX);
    }
    assert_eq!(store.usage().corrupt_blocks, 3);
}

#[test]
fn a_giant_loses_only_what_nobody_uses() {
    let bench = Bench::new(64);
    let store = bench.open();
    drop(fill(&store, 1, 30 * BLOCK as usize));
    store.flush();
    let rep = store.load(&key(1)).unwrap();
    drop(rep.extent(3 * BLOCK, 2 * BLOCK).unwrap());
    drop(rep);
    for n in 2..6 {
        fill(&store, n, 8 * BLOCK as usize);
    }
    let rep = store.load(&key(1)).unwrap();
    assert_eq!(rep.missing(), [0..3, 5..30]);
    let used = &body(1, 30 * BLOCK as usize)[3 * BLOCK as usize..5 * BLOCK as usize];
    assert_eq!(read(&rep.extent(3 * BLOCK, u64::MAX).unwrap()), used);
    let usage = store.usage();
    assert_eq!((usage.evictions, usage.trimmed_bytes), (0, 28 * BLOCK));
    assert!(bench.disk.allocated_bytes().unwrap() <= usage.bytes);
    // A kill right now leaves metadata that names no hole.
    drop((rep, store));
    let store = bench.open();
    let rep = store.load(&key(1)).unwrap();
    assert!(rep.verify(3) && rep.verify(4));
    assert_eq!((rep.missing(), store.usage().corrupt_blocks), (vec![0..3, 5..30], 0));
    rep.write_block(0, &body(1, BLOCK as usize)).unwrap();
    assert!(rep.verify(0));
}

#[test]
fn where_no_holes_can_be_made_a_giant_goes_as_a_whole() {
    let mut bench = Bench::new(64);
    bench.disk = Arc::new(FaultDisk::new(&bench.root, Dice::seeded(1)).without_holes());
    let store = bench.open();
    drop(fill(&store, 1, 30 * BLOCK as usize));
    drop(store.load(&key(1)).unwrap().extent(0, 1));
    for n in 2..8 {
        fill(&store, n, 8 * BLOCK as usize);
    }
    assert!(matches!(store.look_up(&key(1)), Held::Absent));
    assert!(bench.disk.allocated_bytes().unwrap() <= store.usage().bytes);
}

#[test]
fn a_giant_in_use_is_not_touched() {
    let bench = Bench::new(64);
    let store = bench.open();
    let rep = fill(&store, 1, 30 * BLOCK as usize);
    drop(rep.extent(0, 1).unwrap());
    for n in 2..10 {
        fill(&store, n, 8 * BLOCK as usize);
    }
    assert!(rep.is_complete());
    assert_eq!(whole(&rep), body(1, 30 * BLOCK as usize));
}

#[test]
fn small_objects_that_could_not_be_made_durable_are_forgotten() {
    let bench = Bench::new(256);
    let store = bench.open();
    drop(fill(&store, 1, 100));
    store.flush();
    let rep = fill(&store, 2, 100);
    bench.disk.set_faults(Faults { syncs: Some(EIO), ..Faults::default() });
    store.flush();
    bench.disk.set_faults(Faults::default());
    assert!(!rep.has(0));
    assert!(matches!(store.look_up(&key(2)), Held::Absent));
    assert_eq!(whole(&store.load(&key(1)).unwrap()), body(1, 100));
    drop(rep);
    // Writes the log anew, and makes that durable.
    store.flush();
    store.flush();
    drop(store);
    bench.disk.crash(Crash::PowerLoss).unwrap();
    let store = bench.open();
    assert_eq!(whole(&store.load(&key(1)).unwrap()), body(1, 100));
    assert_eq!(store.usage().objects, 1);
}

#[test]
fn a_store_of_version_one_is_emptied() {
    let bench = Bench::new(256);
    let old = bench.root.join("data/aa").join("aa".repeat(16) + ".0000000000000001");
    fs::create_dir_all(old.parent().unwrap()).unwrap();
    fs::write(&old, b"body").unwrap();
    fs::write(bench.root.join("data/aa/README"), b"mine").unwrap();
    let mut marker = b"CBstor\r\n\x01\0\0\0".to_vec();
    marker.extend_from_slice(&crc32c::crc32c(&marker).to_le_bytes());
    fs::write(bench.root.join("format"), marker).unwrap();
    let store = bench.open();
    assert_eq!((store.emptied_version(), store.usage().objects), (Some(1), 0));
    assert!(!old.exists() && bench.root.join("data/aa/README").exists());
    drop(store);
    assert_eq!(bench.open().emptied_version(), None);
}

#[test]
fn a_lost_log_leaves_nothing_that_nobody_counts() {
    for damage in [true, false] {
        let bench = Bench::new(256);
        let store = bench.open();
        for n in 0..5 {
            fill(&store, n, 3 * BLOCK as usize);
            fill(&store, 10 + n, 1000);
        }
        store.flush();
        drop(store);
        match damage {
            true => bench.disk.flip_bit(std::path::Path::new("index"), 3).unwrap(),
            false => fs::remove_file(bench.root.join("index")).unwrap(),
        }
        let store = bench.open();
        assert_eq!(store.usage().objects, 0);
        assert_eq!(bench.disk.allocated_bytes().unwrap(), 2 * BLOCK, "the marker and the log");
        assert_eq!(whole(&fill(&store, 1, 1000)), body(1, 1000));
    }
}

/// A log that is cut may have promised ids: what they were given to is not mistaken for new, and is
/// taken away by the first flush while there are few files.
#[test]
fn what_a_cut_log_does_not_name_any_more_goes_with_the_first_flush() {
    let bench = Bench::new(256);
    let store = bench.open();
    (0..20).for_each(|n| drop(fill(&store, n, 2 * BLOCK as usize)));
    store.flush();
    drop(store);
    // The first record after that of the log itself promises ids.
    bench.disk.flip_bit(std::path::Path::new("index"), 48 + 24).unwrap();
    let store = bench.open();
    assert_eq!(store.usage().objects, 0);
    assert!(bench.disk.allocated_bytes().unwrap() > 40 * BLOCK);
    drop(fill(&store, 30, 2 * BLOCK as usize));
    store.flush();
    assert_eq!(bench.disk.allocated_bytes().unwrap(), (2 + 2 + 1) * BLOCK, "one object is left");
    assert_eq!(whole(&store.load(&key(30)).unwrap()), body(30, 2 * BLOCK as usize));
}

/// Each process is killed before its first flush has come to every folder.
#[test]
fn a_sweep_that_never_ends_comes_to_every_folder() {
    let bench = Bench::new(256);
    drop(bench.open());
    let folders: Vec<_> = (0..=255u8).map(|n| bench.root.join(format!("data/{n:02x}"))).collect();
    let orphan = |folder: &PathBuf| {
        let name = folder.file_name().unwrap().to_str().unwrap().repeat(16);
        folder.join(format!("{name}.{:016x}", 0))
    };
    for folder in &folders {
        fs::create_dir_all(folder).unwrap();
        fs::write(orphan(folder), [7; 10]).unwrap();
    }
    for _ in 0..16 {
        let store = bench.open();
        store.shared.sweep_folders(1);
        let _ = store.shared.write_log();
    }
    assert_eq!(folders.iter().filter(|folder| orphan(folder).exists()).count(), 0);
}

#[test]
fn the_log_is_written_anew_when_most_of_it_is_dead() {
    let bench = Bench::new(256);
    let store = bench.open();
    let len = || fs::metadata(bench.root.join("index")).unwrap().len();
    for round in 0..100 {
        for n in 0..10 {
            fill(&store, n, 100 + round);
        }
        store.flush();
        // A sixty-fourth of the store may be dead.
        assert!(len() <= 48 * (2 + 2 * 10 + 341 + 20), "{} bytes in round {round}", len());
    }
    drop(store);
    let store = bench.open();
    assert_eq!(store.usage().objects, 10);
    assert_eq!(whole(&store.load(&key(3)).unwrap()), body(3, 199));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Small and large objects, hits, new heads, removals and flushes in a store that is always full
    /// and has hardly any memory, ended by a crash: bytes are exact, what is held twice is one.
    #[test]
    fn everything_is_exact_while_segments_are_rewritten(
        steps in prop::collection::vec((0u8..8, 0u32..24, 1usize..9000), 1..150),
        memory in 2000u64..30_000,
        lives in 1u64..400,
        power in any::<bool>(),
    ) {
        let bench = Bench::with_memory(48, ByteCount(memory));
        let store = bench.open();
        bench.disk.die_after(lives);
        for (kind, n, len) in steps {
            match kind {
                0..3 => {
                    let head = Bytes::from(len.to_le_bytes().to_vec());
                    let Ok(rep) = store.create(key(n), head, len as u64) else { continue };
                    for (block, bytes) in (0..).zip(body(n ^ len as u32, len).chunks(4096)) {
                        let _ = rep.write_block(block, bytes);
                    }
                }
                3..6 => check(&store, n),
                6 => store.flush(),
                _ => {
                    if let Some(rep) = store.load(&key(n)) {
                        store.set_head(&rep, rep.head()).unwrap();
                    }
                }
            }
            if bench.disk.is_dead() { break; }
            prop_assert!(store.usage().bytes <= 48 * BLOCK);
        }
        drop(store);
        bench.disk.crash(if power { Crash::PowerLoss } else { Crash::Kill }).unwrap();
        let store = bench.open();
        (0..24).for_each(|n| check(&store, n));
        prop_assert!(bench.disk.allocated_bytes().unwrap() <= 48 * BLOCK);
    }
}

/// What is held of an object is what was written.
fn check(store: &Store, n: u32) {
    let Some(rep) = store.load(&key(n)) else { return };
    assert!(Arc::ptr_eq(&rep, &store.load(&key(n)).unwrap()));
    let len = usize::from_le_bytes(rep.head()[..8].try_into().unwrap());
    assert_eq!(rep.length(), len as u64);
    let expected = body(n ^ len as u32, len);
    for block in (0..rep.blocks()).filter(|block| rep.verify(*block)) {
        let start = u64::from(block) * BLOCK;
        let extent = rep.extent(start, rep.block_len(block).into()).unwrap();
        assert_eq!(read(&extent), expected[start as usize..][..extent.len as usize]);
    }
    if rep.wants_memory() {
        rep.load_memory();
    }
    if let Some(memory) = rep.memory() {
        assert_eq!(memory, expected);
    }
}
