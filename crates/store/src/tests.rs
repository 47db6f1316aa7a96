//! What a store does, case by case. Crashes and random orders are in `properties`.
#![allow(clippy::indexing_slicing, clippy::single_range_in_vec_init)]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use model::{ByteCount, Dice};
use tempfile::TempDir;

use crate::names::{Part, Place};
use crate::testing::{Crash, EIO, FaultDisk, Faults};
use crate::{Extent, Key, OpenError, Params, Representation, Store, WriteError};

const BLOCK: usize = 4096;
const A: Key = Key([0xaa; 16]);
const B: Key = Key([0xbb; 16]);
const C: Key = Key([0xcc; 16]);

struct Bench {
    _folder: TempDir,
    root: PathBuf,
    disk: Arc<FaultDisk>,
    capacity: u64,
    open_files: usize,
}

impl Bench {
    fn new(capacity_units: u64) -> Self {
        let folder = TempDir::new().unwrap();
        let root = folder.path().to_owned();
        let disk = Arc::new(FaultDisk::new(&root, Dice::seeded(1)));
        let open_files = Params::OPEN_FILES;
        Self { _folder: folder, root, disk, capacity: capacity_units * 4096, open_files }
    }

    fn try_open(&self) -> Result<Store, OpenError> {
        let params = Params {
            capacity: ByteCount(self.capacity),
            block_bytes: BLOCK as u32,
            memory: Params::MEMORY,
            open_files: self.open_files,
        };
        Store::open(self.disk.clone(), params)
    }

    fn open(&self) -> Store {
        self.try_open().unwrap()
    }

    /// Bytes of a store without objects: the marker, the log and what is reserved ahead for it.
    fn empty_bytes(&self) -> u64 {
        3 * 4096
    }

    /// Names of all files in the data folders.
    fn files(&self) -> Vec<String> {
        let mut names = Vec::new();
        for folder in fs::read_dir(self.root.join("data")).unwrap() {
            for file in fs::read_dir(folder.unwrap().path()).unwrap() {
                names.push(file.unwrap().file_name().into_string().unwrap());
            }
        }
        names.sort();
        names
    }
}

/// `len` bytes that differ from block to block and from `seed` to `seed`.
fn body(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| seed.wrapping_add((at / BLOCK) as u8).wrapping_mul(31) ^ at as u8).collect()
}

fn fill(store: &Store, key: Key, body: &[u8]) -> Arc<Representation> {
    let rep = store.create(key, Bytes::from_static(b"head"), body.len() as u64).unwrap();
    for (block, bytes) in (0..).zip(body.chunks(BLOCK)) {
        rep.write_block(block, bytes).unwrap();
    }
    rep
}

/// Lets the sweep come to every folder.
fn swept(store: &Store) {
    (0..16).for_each(|_| store.flush());
}

fn read(extent: &Extent) -> Vec<u8> {
    let mut bytes = vec![0; extent.len as usize];
    extent.file.read_exact_at(&mut bytes, extent.offset).unwrap();
    bytes
}

fn verified(rep: &Arc<Representation>) -> Vec<u8> {
    assert!((0..rep.blocks()).all(|block| rep.verify(block)));
    rep.extent(0, u64::MAX).map(|extent| read(&extent)).unwrap_or_default()
}

#[test]
fn blocks_come_in_any_order_and_leave_as_the_longest_run() {
    let bench = Bench::new(100);
    let store = bench.open();
    let body = body(1, 3 * BLOCK + 100);
    assert!(store.load(&A).is_none());
    let rep = store.create(A, Bytes::from_static(b"head"), body.len() as u64).unwrap();
    assert_eq!((rep.blocks(), rep.block_bytes(), rep.length()), (4, 4096, 12388));
    assert_eq!([0, 2, 3, 4].map(|block| rep.block_len(block)), [4096, 4096, 100, 0]);
    assert_eq!(rep.missing(), vec![0..4]);
    assert!(rep.extent(0, 1).is_none());

    rep.write_block(3, &body[3 * BLOCK..]).unwrap();
    rep.write_block(1, &body[BLOCK..2 * BLOCK]).unwrap();
    assert_eq!(rep.missing(), [0..1, 2..3]);
    assert!(rep.has(1) && !rep.has(2) && !rep.has(4) && !rep.verify_pending(1));
    let extent = rep.extent(4096 + 10, u64::MAX).unwrap();
    assert_eq!((extent.offset, extent.len), (4106, 4086));
    assert_eq!(read(&extent), body[4106..8192]);
    assert!(rep.extent(4095, u64::MAX).is_none());
    assert!(rep.extent(4096, 0).is_none());
    assert!(rep.extent(12388, 1).is_none());
    assert!(rep.extent(u64::MAX, u64::MAX).is_none());

    rep.write_block(2, &body[2 * BLOCK..3 * BLOCK]).unwrap();
    let extent = rep.extent(5000, 5000).unwrap();
    assert_eq!((extent.offset, extent.len), (5000, 5000));
    assert_eq!(rep.extent(5000, u64::MAX).unwrap().len, 12388 - 5000);
    assert!(!rep.is_complete());
    rep.write_block(0, &body[..BLOCK]).unwrap();
    assert!(rep.is_complete() && rep.missing().is_empty());
    assert_eq!(read(&rep.extent(0, u64::MAX).unwrap()), body);
    assert!(Arc::ptr_eq(&store.load(&A).unwrap(), &rep));
    assert_eq!(rep.head(), "head");
}

#[test]
fn a_block_of_the_wrong_length_or_with_other_bytes_is_refused() {
    let bench = Bench::new(100);
    let store = bench.open();
    let rep = fill(&store, A, &body(1, BLOCK + 5));
    for (block, len, expected) in [(0, 4095, 4096), (0, 4097, 4096), (1, 4096, 5), (2, 0, 0)] {
        match rep.write_block(block, &vec![0; len]) {
            Err(WriteError::WrongLength { expected: got, .. }) => assert_eq!(got, expected),
            other => panic!("{other:?}"),
        }
    }
    rep.write_block(1, &body(1, BLOCK + 5)[BLOCK..]).unwrap();
    assert!(matches!(rep.write_block(1, b"other"), Err(WriteError::Differs { block: 1 })));
    assert_eq!(verified(&rep), body(1, BLOCK + 5));
}

#[test]
fn what_was_flushed_is_there_after_a_crash_and_waits_for_its_checksum() {
    for crash in [Crash::Kill, Crash::PowerLoss] {
        let bench = Bench::new(100);
        let store = bench.open();
        let rep = fill(&store, A, &body(1, 2 * BLOCK + 1));
        store.set_head(&rep, Bytes::from_static(b"newer head")).unwrap();
        let empty = store.create(B, Bytes::new(), 0).unwrap();
        assert!(empty.is_complete() && empty.extent(0, 1).is_none());
        store.flush();
        let unflushed = fill(&store, C, &body(3, BLOCK));
        drop((rep, empty, unflushed, store));
        bench.disk.crash(crash).unwrap();

        let store = bench.open();
        let rep = store.load(&A).unwrap();
        assert_eq!(rep.head(), "newer head");
        assert!(rep.is_complete() && rep.verify_pending(2));
        assert!(rep.extent(0, 1).is_none());
        assert_eq!(verified(&rep), body(1, 2 * BLOCK + 1));
        assert!(!rep.verify_pending(2));
        assert_eq!(store.load(&B).unwrap().length(), 0);
        assert!(store.load(&C).is_none());
        assert_eq!(store.usage().objects, 2);
        swept(&store);
        assert_eq!(bench.files().len(), 2, "the empty one is packed");
    }
}

#[test]
fn a_flipped_bit_is_a_miss_and_can_be_filled_again() {
    let bench = Bench::new(100);
    let store = bench.open();
    fill(&store, A, &body(1, 3 * BLOCK));
    store.flush();
    drop(store);
    let path = Place { key: A, id: 1 }.path(Part::Body);
    bench.disk.flip_bit(&path, BLOCK as u64 + 17).unwrap();

    let store = bench.open();
    let rep = store.load(&A).unwrap();
    let bytes = store.usage().bytes;
    assert_eq!([0, 1, 2].map(|block| rep.verify(block)), [true, false, true]);
    assert_eq!(store.usage().corrupt_blocks, 1);
    assert_eq!(rep.missing(), vec![1..2]);
    assert_eq!(rep.extent(0, u64::MAX).unwrap().len, BLOCK as u64);
    rep.write_block(1, &body(1, 3 * BLOCK)[BLOCK..2 * BLOCK]).unwrap();
    assert_eq!(verified(&rep), body(1, 3 * BLOCK));
    assert_eq!(store.usage().bytes, bytes, "its room was reserved already");
}

#[test]
fn a_truncated_body_is_a_miss_and_a_vanished_one_too() {
    let bench = Bench::new(100);
    let store = bench.open();
    fill(&store, A, &body(1, 2 * BLOCK));
    fill(&store, B, &body(2, 2 * BLOCK));
    store.flush();
    drop(store);
    let path = |key, id| bench.root.join(Place { key, id }.path(Part::Body));
    fs::File::options().write(true).open(path(A, 1)).unwrap().set_len(5000).unwrap();
    let store = bench.open();
    let rep = store.load(&A).unwrap();
    assert_eq!([0, 1].map(|block| rep.verify(block)), [true, false]);
    // It is removed under the running store, and made anew.
    let rep = store.load(&B).unwrap();
    let bytes = store.usage().bytes;
    fs::remove_file(path(B, 2)).unwrap();
    assert!(!rep.verify(0));
    assert_eq!(rep.missing(), vec![0..2]);
    for (block, bytes) in (0..).zip(body(2, 2 * BLOCK).chunks(BLOCK)) {
        rep.write_block(block, bytes).unwrap();
    }
    assert_eq!(verified(&rep), body(2, 2 * BLOCK));
    assert_eq!(store.usage().bytes, bytes, "its room was reserved already");
}

#[test]
fn a_block_in_doubt_that_is_filled_before_its_first_use_is_good() {
    let bench = Bench::new(100);
    let store = bench.open();
    fill(&store, A, &body(1, 2 * BLOCK));
    store.flush();
    drop(store);
    bench.disk.flip_bit(&Place { key: A, id: 1 }.path(Part::Body), 0).unwrap();
    let store = bench.open();
    let rep = store.load(&A).unwrap();
    assert!(matches!(rep.write_block(0, &[1; BLOCK]), Err(WriteError::Differs { block: 0 })));
    rep.write_block(0, &body(1, BLOCK)).unwrap();
    assert!(!rep.verify_pending(0));
    assert_eq!(verified(&rep), body(1, 2 * BLOCK));
}

#[test]
fn a_replaced_representation_is_finished_by_those_who_hold_it() {
    let bench = Bench::new(100);
    let store = bench.open();
    let old = fill(&store, A, &body(1, 2 * BLOCK));
    store.flush();
    let both = store.usage().bytes + 2 * 4096;
    let new = fill(&store, A, &body(2, 2 * BLOCK));
    assert!(Arc::ptr_eq(&store.load(&A).unwrap(), &new));
    assert_eq!(store.usage().objects, 1);
    store.flush();
    assert_eq!(verified(&old), body(1, 2 * BLOCK), "still readable");
    assert_eq!(store.usage().bytes, both, "and counted");
    // A late head or block of the old one does not bring it back.
    store.set_head(&old, Bytes::from_static(b"late")).unwrap();
    assert!(!store.discard(&old), "no longer the visible one");
    let extent = old.extent(0, 1).unwrap();
    drop(old);
    store.flush();
    assert_eq!(read(&extent)[0], body(1, 1)[0]);
    drop(extent);
    store.flush();
    assert_eq!(store.usage().bytes, bench.empty_bytes() + 3 * 4096);
    assert_eq!(
        bench.files(),
        ["aa".repeat(16) + ".0000000000000002", "aa".repeat(16) + ".0000000000000002.m"]
    );
    drop((new, store));
    assert_eq!(verified(&bench.open().load(&A).unwrap()), body(2, 2 * BLOCK));
}

#[test]
fn removed_is_removed_also_after_a_kill() {
    let bench = Bench::new(100);
    let store = bench.open();
    let rep = fill(&store, A, &body(1, 2 * BLOCK));
    fill(&store, B, &body(2, 2 * BLOCK));
    store.flush();
    assert!(store.remove(&A));
    assert!(!store.remove(&A));
    assert!(store.discard(&store.load(&B).unwrap()));
    assert_eq!(store.usage().objects, 0);
    assert_eq!(verified(&rep), body(1, 2 * BLOCK));
    drop((rep, store));
    let store = bench.open();
    assert!(store.load(&A).is_none() && store.load(&B).is_none());
    swept(&store);
    assert_eq!(bench.files(), Vec::<String>::new(), "and the bodies are swept up");
    assert_eq!(store.usage().bytes, bench.empty_bytes());
}

#[test]
fn a_removal_in_the_middle_of_a_flush_is_not_undone_by_it() {
    let bench = Bench::new(100);
    let store = bench.open();
    let rep = fill(&store, A, &body(1, 2 * BLOCK));
    let file = rep.file_body().unwrap();
    store.shared.charge(4096);
    file.add_temp(4096);
    let image = rep.take_dirty(file).0.encode();
    fs::write(bench.root.join(rep.place().path(Part::MetaTemp)), image).unwrap();
    assert!(store.remove(&A));
    assert!(!rep.publish(file).unwrap());
    drop(rep);
    store.flush();
    assert_eq!(bench.files(), Vec::<String>::new());
    assert_eq!(store.usage().bytes, bench.empty_bytes());
}

#[test]
fn eviction_spares_what_was_asked_for_and_what_is_in_use() {
    // What every store has, and room for three bodies and their metadata.
    let bench = Bench::new(5 + 3 * 3);
    let store = bench.open();
    for key in [A, B, C] {
        fill(&store, key, &body(key.0[0], 2 * BLOCK));
        store.flush();
    }
    let pinned = store.load(&B).unwrap().extent(0, 1).unwrap();
    store.load(&A).unwrap();
    let d = Key([0xdd; 16]);
    fill(&store, d, &body(4, 2 * BLOCK));
    store.flush();
    assert!(store.load(&C).is_none(), "the only one neither asked for nor in use");
    assert_eq!(store.usage().evictions, 1);
    let rest = [A, B, d].map(|key| store.load(&key).unwrap());
    // All in use: nothing can be stored, everything can be read.
    let rep = store.create(C, Bytes::new(), 2 * BLOCK as u64).unwrap();
    let error = (0..2).map(|block| rep.write_block(block, &body(5, BLOCK))).find_map(Result::err);
    assert!(matches!(error, Some(WriteError::NoRoom)), "{error:?}");
    assert_eq!(read(&pinned), body(0xbb, 1));
    assert!(rest.iter().all(|rep| rep.extent(0, 1).is_some()));
    drop((rest, pinned));
    (0..2).for_each(|block| rep.write_block(block, &body(5, BLOCK)).unwrap());
    assert!(bench.disk.allocated_bytes().unwrap() <= bench.capacity);
}

#[test]
fn too_large_things_are_refused_before_anything_is_evicted() {
    let bench = Bench::new(20);
    let store = bench.open();
    fill(&store, A, &body(1, BLOCK));
    let error = store.create(B, Bytes::new(), 20 * 4096 + 1).unwrap_err();
    assert_eq!(error.to_string(), "81921 bytes do not fit into a store of 81920");
    let head = Bytes::from(vec![0; 65537]);
    let error = store.create(B, head.clone(), 1).unwrap_err();
    assert_eq!(error.to_string(), "a head of 65537 bytes is too large to be stored");
    let rep = store.load(&A).unwrap();
    assert!(matches!(store.set_head(&rep, head), Err(WriteError::HeadTooLarge { bytes: 65537 })));
    assert_eq!(rep.head(), "head");
    assert_eq!(store.usage().evictions, 0);
}

#[test]
fn a_disk_that_refuses_stops_writes_and_nothing_else() {
    for faults in [Faults::READ_ONLY, Faults::FULL] {
        let bench = Bench::new(40);
        let store = bench.open();
        let held = fill(&store, A, &body(1, 2 * BLOCK));
        store.flush();
        let rep = store.create(B, Bytes::new(), 20_000).unwrap();
        bench.disk.set_faults(faults);
        assert!(matches!(rep.write_block(0, &[7; BLOCK]), Err(WriteError::Disk { .. })));
        assert!(!rep.has(0));
        assert!(matches!(store.create(C, Bytes::new(), 5000), Err(WriteError::Disk { .. })));
        store.set_head(&held, Bytes::from_static(b"newer")).unwrap();
        for _ in 0..100 {
            store.flush();
        }
        assert_eq!(read(&held.extent(0, u64::MAX).unwrap()), body(1, 2 * BLOCK));
        assert!(store.load(&A).is_some());
        let usage = store.usage();
        assert!(usage.write_errors >= 3 && usage.bytes <= 39 * 4096, "{usage:?}");

        bench.disk.set_faults(Faults::default());
        rep.write_block(0, &[7; BLOCK]).unwrap();
        store.flush();
        drop((held, rep, store));
        let store = bench.open();
        assert_eq!(store.load(&A).unwrap().head(), "newer", "what could not be flushed is flushed");
        assert!(store.load(&B).unwrap().verify(0));
        assert!(bench.files().iter().all(|name| !name.ends_with(".t")));
    }
}

/// Nothing can be unlinked, so nothing may be forgotten for room that never comes.
#[test]
fn a_read_only_disk_that_is_full_keeps_what_it_holds() {
    let bench = Bench::new(14);
    let store = bench.open();
    for key in [A, B, C] {
        fill(&store, key, &body(key.0[0], 2 * BLOCK));
        store.flush();
    }
    let d = store.create(Key([0xdd; 16]), Bytes::new(), 10_000).unwrap();
    d.write_block(0, &[7; BLOCK]).unwrap();
    bench.disk.set_faults(Faults::READ_ONLY);
    for _ in 0..10 {
        assert!(matches!(d.write_block(1, &[7; BLOCK]), Err(WriteError::Disk { .. })));
    }
    for key in [A, B, C] {
        assert_eq!(verified(&store.load(&key).unwrap()), body(key.0[0], 2 * BLOCK));
    }
    assert_eq!(store.usage().evictions, 0);
}

#[test]
fn a_body_that_could_not_be_made_durable_is_forgotten() {
    let bench = Bench::new(100);
    let store = bench.open();
    let rep = fill(&store, A, &body(1, 2 * BLOCK));
    bench.disk.set_faults(Faults { syncs: Some(EIO), ..Faults::default() });
    store.flush();
    assert!(store.load(&A).is_none());
    assert!(!rep.has(0), "nor does anybody go on with it");
    bench.disk.set_faults(Faults::default());
    drop(rep);
    store.flush();
    assert_eq!(store.usage().bytes, bench.empty_bytes());
}

#[test]
fn a_broken_disk_turns_unverified_blocks_into_misses() {
    let bench = Bench::new(100);
    let store = bench.open();
    fill(&store, A, &body(1, 2 * BLOCK));
    store.flush();
    drop(store);
    let store = bench.open();
    let rep = store.load(&A).unwrap();
    bench.disk.set_faults(Faults::BROKEN);
    assert!(!rep.verify(0));
    assert!(rep.extent(0, 1).is_none());
    store.flush();
    assert_eq!(store.usage().corrupt_blocks, 1);
    assert!(matches!(bench.try_open(), Err(OpenError::Read { .. })));
}

#[test]
fn a_smaller_ceiling_is_kept_from_the_start() {
    let mut bench = Bench::new(100);
    let store = bench.open();
    for n in 0..10 {
        fill(&store, Key([n; 16]), &body(n, 2 * BLOCK));
    }
    store.flush();
    drop(store);
    bench.capacity = 17 * 4096;
    let store = bench.open();
    assert!(bench.disk.allocated_bytes().unwrap() <= bench.capacity);
    // Three units for the store itself, one kept free, three for each object.
    assert_eq!((store.usage().objects, store.usage().bytes), (4, 15 * 4096));
    let kept = |n| store.load(&Key([n; 16])).is_some();
    assert!((0..6).all(|n| !kept(n)) && (6..10).all(kept), "the oldest went");
}

#[test]
fn rubbish_is_swept_up_and_strangers_are_left_alone() {
    let bench = Bench::new(100);
    let store = bench.open();
    fill(&store, A, &body(1, 2 * BLOCK));
    store.flush();
    drop(store);
    let put = |path: &Path, bytes: &[u8]| {
        let path = bench.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    let (a2, a3) = (Place { key: A, id: 2 }, Place { key: A, id: 3 });
    put(&a2.path(Part::Body), b"no metadata");
    put(&a3.path(Part::Meta), b"no body");
    put(&a3.path(Part::MetaTemp), b"cut off");
    let b = Place { key: B, id: 4 };
    put(&b.path(Part::Body), b"x");
    put(
        &b.path(Part::Meta),
        &fs::read(bench.root.join(Place { key: A, id: 1 }.path(Part::Meta))).unwrap(),
    );
    put(Path::new("data/aa/README"), b"mine");
    put(Path::new("data/notes"), b"mine too");

    let store = bench.open();
    swept(&store);
    assert_eq!(verified(&store.load(&A).unwrap()), body(1, 2 * BLOCK));
    assert!(store.load(&B).is_none(), "another one's metadata under its name");
    let name = "aa".repeat(16) + ".0000000000000001";
    let mine = bench.root.join("data/notes");
    assert!(mine.exists());
    fs::remove_file(mine).unwrap();
    assert_eq!(bench.files(), ["README".to_owned(), name.clone(), name + ".m"]);
    assert_eq!(
        store.create(B, Bytes::new(), 1).unwrap().place().id,
        (1 << 20) + 1,
        "ids are not used again"
    );
}

#[test]
fn what_is_to_come_first_comes_before_anybody_finds_it() {
    let bench = Bench::new(100);
    let store = bench.open();
    let old = fill(&store, A, &body(1, BLOCK));
    let first = |new: &Arc<Representation>| {
        (new.length(), store.load(&A).is_some_and(|found| Arc::ptr_eq(&found, &old)))
    };
    let (new, done) = store.create_with(A, Bytes::new(), 5, first).unwrap();
    assert_eq!(done, (5, true));
    assert!(Arc::ptr_eq(&store.load(&A).unwrap(), &new));
    let refused = store.create_with(B, Bytes::new(), u64::MAX, |_| panic!("not made"));
    assert!(matches!(refused, Err(WriteError::TooLarge { .. })));
}

#[test]
fn a_second_store_on_a_disk_is_refused_and_disturbs_nothing() {
    let bench = Bench::new(100);
    let store = bench.open();
    let rep = fill(&store, A, &body(1, BLOCK));
    assert!(matches!(bench.try_open(), Err(OpenError::InUse)));
    assert_eq!(verified(&rep), body(1, BLOCK));
    drop(store);
    assert!(matches!(bench.try_open(), Err(OpenError::InUse)), "its files are still in use");
    drop(rep);
    bench.open();
}

/// What a second store used to do: its first body got the name of ours, and made a hole of it.
#[test]
fn a_body_is_never_made_over_one_that_is_there() {
    let bench = Bench::new(100);
    let store = bench.open();
    let held = fill(&store, A, &body(1, 2 * BLOCK));
    let next = bench.root.join(Place { key: A, id: 2 }.path(Part::Body));
    fs::write(&next, b"somebody's").unwrap();
    assert!(matches!(store.create(A, Bytes::new(), 5000), Err(WriteError::Disk { .. })));
    assert_eq!(fs::read(next).unwrap(), b"somebody's");
    assert_eq!(read(&held.extent(0, u64::MAX).unwrap()), body(1, 2 * BLOCK));
    assert_eq!(store.create(A, Bytes::new(), 5000).unwrap().place().id, 3);
}

#[test]
fn a_block_lost_under_an_extent_is_told_to_who_reads_it() {
    let bench = Bench::new(100);
    let store = bench.open();
    let rep = fill(&store, A, &body(1, 3 * BLOCK));
    let extent = rep.extent(0, u64::MAX).unwrap();
    let block = BLOCK as u64;
    assert!(rep.still_holds(0, 3 * block) && rep.still_holds(block + 1, 7));
    assert!(!rep.still_holds(0, 0));
    rep.doubt(block + 5, 1);
    let held = [0, 1, 2].map(|at| rep.still_holds(at * block, block));
    assert_eq!(held, [true, false, true]);
    assert!(rep.verify_pending(1) && rep.verify(1), "it was good after all");
    assert!(rep.still_holds(0, 3 * block));
    // The kernel could not write the pages: it may have put a hole in their place.
    bench.disk.set_faults(Faults { syncs: Some(EIO), ..Faults::default() });
    store.flush();
    assert!(!extent.representation.still_holds(0, 1));
}

#[test]
fn what_is_no_store_or_a_newer_one_is_refused_untouched() {
    let bench = Bench::new(100);
    drop(bench.open());
    let marker = bench.root.join("format");
    let good = fs::read(&marker).unwrap();
    fs::write(&marker, b"mysql").unwrap();
    assert!(matches!(bench.try_open(), Err(OpenError::NotAStore)));
    let mut newer = good[..8].to_vec();
    newer.extend_from_slice(&3u32.to_le_bytes());
    newer.extend_from_slice(&crc32c::crc32c(&newer).to_le_bytes());
    fs::write(&marker, newer).unwrap();
    assert!(matches!(bench.try_open(), Err(OpenError::Newer(3))));
    fs::write(&marker, good).unwrap();
    bench.open();
    for block_bytes in [0, 1, 4095, 4097, 128 * 1024 * 1024] {
        let params = Params {
            capacity: ByteCount(1 << 20),
            block_bytes,
            memory: Params::MEMORY,
            open_files: Params::OPEN_FILES,
        };
        let error = Store::open(bench.disk.clone(), params).unwrap_err();
        assert!(matches!(error, OpenError::BlockBytes(_)), "{block_bytes}");
    }
}

/// Another thread sees that a block is held, and flushes at once.
#[test]
fn what_is_seen_to_be_held_is_in_the_next_flush() {
    for round in 0..400 {
        let bench = Bench::new(100);
        let store = bench.open();
        let rep = store.create(A, Bytes::new(), 2 * BLOCK as u64).unwrap();
        rep.write_block(0, &[1; BLOCK]).unwrap();
        store.flush();
        std::thread::scope(|scope| {
            scope.spawn(|| rep.write_block(1, &[2; BLOCK]).unwrap());
            while !rep.has(1) {
                std::hint::spin_loop();
            }
            store.flush();
            let path = Place { key: A, id: 1 }.path(Part::Meta);
            let meta = fs::read(bench.root.join(path)).unwrap();
            let meta = crate::meta::Meta::decode(Place { key: A, id: 1 }, &meta).unwrap();
            assert!(meta.blocks.iter().all(Option::is_some), "in round {round}");
        });
    }
}

#[test]
fn more_files_than_are_kept_open_can_be_used() {
    let mut bench = Bench::new(20_000);
    bench.open_files = 20;
    let mut store = bench.open();
    let body = |n: u8| body(n, 2 * BLOCK);
    (0..200).for_each(|n| drop(fill(&store, Key([n; 16]), &body(n))));
    // Others open files too, so the names tell.
    let open_bodies = || {
        let links = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let names = links.filter_map(|link| fs::read_link(link.path()).ok());
        names.filter(|name| name.starts_with(bench.root.join("data"))).count()
    };
    assert!(open_bodies() <= 20, "{}", open_bodies());
    for _ in 0..2 {
        for n in 0..200 {
            assert_eq!(verified(&store.load(&Key([n; 16])).unwrap()), body(n));
        }
        assert!(open_bodies() <= 20, "{}", open_bodies());
        store.flush();
        drop(store);
        store = bench.open();
    }
}
