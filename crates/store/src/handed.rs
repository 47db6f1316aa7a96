//! Tests of a store that changes hands: nothing is lost, nothing is written any more, and whatever the
//! next one does, the former reads what was stored or nothing.
#![allow(clippy::indexing_slicing)]

use std::sync::Arc;

use bytes::Bytes;
use model::{ByteCount, Dice};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::testing::{FaultDisk, Faults};
use crate::{Held, Key, OpenError, Params, Representation, Store, WriteError};

const BLOCK: u32 = 4096;

struct Bench {
    _folder: TempDir,
    disk: Arc<FaultDisk>,
    params: Params,
}

impl Bench {
    fn new(units: u64) -> Self {
        let folder = TempDir::new().unwrap();
        let disk = Arc::new(FaultDisk::new(folder.path(), Dice::seeded(1)));
        let params = Params {
            capacity: ByteCount(units * u64::from(BLOCK)),
            block_bytes: BLOCK,
            memory: Params::MEMORY,
            open_files: Params::OPEN_FILES,
        };
        Self { _folder: folder, disk, params }
    }

    fn try_open(&self) -> Result<Store, OpenError> {
        Store::open(self.disk.clone(), self.params)
    }

    fn open(&self) -> Store {
        self.try_open().unwrap()
    }
}

fn key(n: u8) -> Key {
    Key([n; 16])
}

/// The bytes of a block of the version with this seed.
fn content(seed: u8, block: u32, len: u32) -> Vec<u8> {
    (0..len).map(|at| seed.wrapping_mul(37) ^ (at.wrapping_add(block * 101) % 251) as u8).collect()
}

/// A version of a key, `held` of whose blocks are there.
fn fill(
    store: &Store,
    n: u8,
    seed: u8,
    length: u32,
    held: impl Fn(u32) -> bool,
) -> Result<Arc<Representation>, WriteError> {
    let rep = store.create(key(n), Bytes::from(vec![seed]), u64::from(length))?;
    for block in (0..rep.blocks()).filter(|block| held(*block)) {
        rep.write_block(block, &content(seed, block, rep.block_len(block)))?;
    }
    Ok(rep)
}

fn right(rep: &Representation, block: u32) -> Vec<u8> {
    content(rep.head()[0], block, rep.block_len(block))
}

#[test]
fn what_was_stored_is_there_for_the_next_and_read_on_here() {
    let bench = Bench::new(256);
    let store = bench.open();
    let large = fill(&store, 1, 1, 5 * BLOCK, |block| block != 3).unwrap();
    let small = fill(&store, 2, 2, 1000, |_| true).unwrap();
    assert!(matches!(bench.try_open(), Err(OpenError::InUse)));
    assert!(large.extent(0, u64::MAX).is_some() && !store.is_handed_over());
    store.hand_over();
    assert!(store.is_handed_over() && large.is_handed_over());

    let next = bench.open();
    for rep in [&large, &small] {
        let found = next.load(rep.key()).unwrap();
        assert_eq!((found.head(), found.missing()), (rep.head(), rep.missing()));
        assert!(rep.extent(0, u64::MAX).is_none(), "nobody is to read it unchecked");
        for block in 0..rep.blocks() {
            let expected = rep.has(block).then(|| right(rep, block));
            assert_eq!(rep.read_checked(block).map(Vec::from), expected, "block {block}");
        }
    }
    assert_eq!(large.read_checked(5), None);
    assert_eq!(small.read_checked(1), None);
}

/// The process that gives it away must not take a refusal for a broken disk, or grow with what it
/// can never write down.
#[test]
fn nothing_is_written_after_the_hand_over() {
    let bench = Bench::new(256);
    let store = bench.open();
    let large = fill(&store, 1, 1, 5 * BLOCK, |block| block != 3).unwrap();
    drop(fill(&store, 2, 2, 1000, |_| true).unwrap());
    store.flush();
    assert!(matches!(store.look_up(&key(2)), Held::OnDisk));
    store.hand_over();
    // The next change would be the last.
    bench.disk.die_after(1);
    let error = large.write_block(3, &content(1, 3, BLOCK)).unwrap_err();
    assert!(matches!(error, WriteError::HandedOver), "{error}");
    for length in [0, 100, 3 * BLOCK] {
        let error = fill(&store, 3, 3, length, |_| true).unwrap_err();
        assert!(matches!(error, WriteError::HandedOver), "{error}");
    }
    store.set_head(&large, Bytes::from_static(b"\x01newer")).unwrap();
    store.flush();
    store.scrub(u64::MAX);
    store.hand_over();
    // What is not in memory is the business of the next.
    assert!(matches!(store.look_up(&key(2)), Held::Absent));
    assert!(store.load(&key(2)).is_none());
    assert!(matches!(store.look_up(&key(1)), Held::Ready(_)));
    assert!(store.remove(&key(1)) && matches!(store.look_up(&key(1)), Held::Absent));
    assert_eq!(large.read_checked(0).map(Vec::from), Some(content(1, 0, BLOCK)));
    drop((large, store));
    assert!(!bench.disk.is_dead(), "something was written");
    bench.disk.die_after(u64::MAX);
    let next = bench.open();
    assert_eq!(next.load(&key(1)).unwrap().head(), Bytes::from_static(b"\x01"));
    assert!(next.load(&key(2)).is_some());
}

#[test]
fn a_refusal_of_the_gate_is_no_fault_of_the_disk() {
    let bench = Bench::new(256);
    let store = bench.open();
    let large = fill(&store, 1, 1, 5 * BLOCK, |block| block != 3).unwrap();
    store.hand_over();
    bench.disk.set_faults(Faults::READ_ONLY);
    assert!(large.write_block(3, &content(1, 3, BLOCK)).is_err());
    assert!(fill(&store, 3, 3, 100, |_| true).is_err());
    store.remove(&key(1));
    store.flush();
    let usage = store.usage();
    assert_eq!((usage.write_errors, usage.device_errors, usage.folder_errors), (0, 0, 0));
}

/// What is sent without being read first is sent before the folder is unlocked, or not at all.
#[test]
fn the_hand_over_waits_for_who_sends_and_refuses_who_comes_later() {
    let bench = Bench::new(256);
    let store = Arc::new(bench.open());
    let rep = fill(&store, 1, 1, 5 * BLOCK, |block| block != 3).unwrap();
    assert_eq!(rep.while_held(0, u64::from(BLOCK), || 7), Some(7));
    assert_eq!(rep.while_held(3 * u64::from(BLOCK), 1, || 7), None, "not held");
    let (began, begins) = std::sync::mpsc::channel();
    let (leave, leaves) = std::sync::mpsc::channel::<()>();
    let sender = {
        let rep = Arc::clone(&rep);
        std::thread::spawn(move || {
            rep.while_held(0, 1, || {
                began.send(()).unwrap();
                leaves.recv().unwrap();
                rep.shared.tenure.is_gone()
            })
        })
    };
    begins.recv().unwrap();
    let giver = {
        let store = Arc::clone(&store);
        std::thread::spawn(move || store.hand_over())
    };
    assert!(matches!(bench.try_open(), Err(OpenError::InUse)));
    leave.send(()).unwrap();
    assert_eq!(sender.join().unwrap(), Some(false), "gone while it was being sent");
    giver.join().unwrap();
    assert_eq!(rep.while_held(0, 1, || 7), None);
    assert!(!rep.still_holds(0, 1));
    drop(bench.open());
}

/// A hole where a block was reads as zeros, without any error.
#[test]
fn a_block_that_the_next_store_gave_back_is_a_miss() {
    let bench = Bench::new(40);
    let store = bench.open();
    let giant = fill(&store, 1, 1, 12 * BLOCK, |_| true).unwrap();
    store.hand_over();
    let next = bench.open();
    let used = next.load(&key(1)).unwrap();
    assert!((0..12).all(|block| used.verify(block)));
    drop((used.extent(0, 1), used));
    for n in 2..8 {
        drop(fill(&next, n, n, 5 * BLOCK, |_| true).unwrap());
        if next.usage().trimmed_bytes > 0 {
            break;
        }
    }
    assert!(next.usage().trimmed_bytes >= 11 * u64::from(BLOCK), "{:?}", next.usage());
    assert_eq!(giant.read_checked(0).map(Vec::from), Some(content(1, 0, BLOCK)));
    assert!((1..12).all(|block| giant.has(block) && giant.read_checked(block).is_none()));
    assert_eq!(giant.missing(), vec![1..12]);
}

#[derive(Clone, Debug)]
enum Op {
    Fill(u8, u32, u32),
    Write(u8, u32),
    Get(u8),
    Use(u8, u32),
    Remove(u8),
    Flush,
    FlipHeads(u8),
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0..6u8;
    let length = prop_oneof![1..1500u32, BLOCK..3 * BLOCK, 9 * BLOCK..16 * BLOCK];
    prop_oneof![
        6 => (key(), length, prop_oneof![any::<u32>(), Just(u32::MAX)]).prop_map(|(n, len, held)| Op::Fill(n, len, held)),
        4 => (key(), 0..16u32).prop_map(|(n, block)| Op::Write(n, block)),
        2 => key().prop_map(Op::Get),
        2 => (key(), 0..16u32).prop_map(|(n, block)| Op::Use(n, block)),
        1 => key().prop_map(Op::Remove),
        3 => Just(Op::Flush),
        1 => key().prop_map(Op::FlipHeads),
    ]
}

fn play(store: &Store, op: &Op, seeds: &mut u8) {
    match *op {
        Op::Fill(n, length, held) => {
            *seeds = seeds.wrapping_add(1);
            drop(fill(store, n, *seeds, length, |block| held >> (block % 32) & 1 == 1));
        }
        Op::Write(n, block) => {
            if let Some(rep) = store.load(&key(n)).filter(|rep| block < rep.blocks()) {
                let _ = rep.write_block(block, &right(&rep, block));
            }
        }
        Op::Get(n) => drop(store.load(&key(n))),
        Op::Use(n, block) => {
            if let Some(rep) = store.load(&key(n)).filter(|rep| rep.verify(block)) {
                drop(rep.extent(u64::from(block) * u64::from(BLOCK), 1));
            }
        }
        Op::Remove(n) => drop(store.remove(&key(n))),
        Op::Flush => store.flush(),
        Op::FlipHeads(n) => {
            if let Some(rep) = store.load(&key(n)) {
                store.set_head(&rep, Bytes::from(vec![rep.head()[0], 1])).unwrap();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// The next store evicts, trims, replaces, fills on: the former one's readers get the bytes that
    /// were stored, or a miss.
    #[test]
    fn whatever_the_next_store_does_the_former_reads_what_was_stored_or_nothing(
        before in prop::collection::vec(op(), 1..40),
        after in prop::collection::vec(op(), 1..60),
        units in prop_oneof![24u64..60, Just(4096)],
    ) {
        let bench = Bench::new(units);
        let store = bench.open();
        let mut seeds = 0;
        before.iter().for_each(|op| play(&store, op, &mut seeds));
        let held: Vec<_> = (0..6).filter_map(|n| store.load(&key(n))).collect();
        store.hand_over();
        let next = bench.open();
        if units == 4096 {
            for rep in &held {
                let found = next.load(rep.key());
                let blocks = found.map_or(0, |f| (0..f.blocks()).filter(|b| f.verify(*b)).count());
                let had = (0..rep.blocks()).filter(|block| rep.has(*block)).count();
                prop_assert_eq!(blocks, had, "{:?}", rep);
            }
        }
        for op in &after {
            play(&next, op, &mut seeds);
            // The former process goes on as it does.
            store.flush();
            for rep in &held {
                for block in 0..rep.blocks() {
                    let had = rep.has(block);
                    match rep.read_checked(block) {
                        Some(bytes) => {
                            prop_assert!(had);
                            prop_assert_eq!(Vec::from(bytes), right(rep, block));
                        }
                        None => prop_assert!(!rep.has(block)),
                    }
                }
            }
            prop_assert!(next.usage().bytes <= bench.params.capacity.0);
        }
        prop_assert_eq!(next.usage().corrupt_blocks, 0, "the former one has written");
        drop((held, store));
    }
}
