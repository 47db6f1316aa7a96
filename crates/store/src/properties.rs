//! Random lists of operations against a model: crashes at any point, and the ceiling.
#![allow(clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use model::{ByteCount, Dice};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::testing::{Crash, FaultDisk, Faults};
use crate::{Extent, Key, Params, Representation, Store};

const BLOCK: u32 = 4096;
const KEYS: u8 = 4;

#[derive(Clone, Debug)]
enum Op {
    /// A new version with so many bytes.
    Create(u8, u32),
    Write(u8, u32),
    SetHead(u8),
    Remove(u8),
    Get(u8),
    /// Keep an extent of the key, or let the oldest kept one go.
    Pin(u8),
    Unpin,
    Flush,
    Faults(u8),
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0..KEYS;
    prop_oneof![
        2 => (key(), prop_oneof![Just(0), 1..3 * BLOCK, 3 * BLOCK..8 * BLOCK])
            .prop_map(|(key, length)| Op::Create(key, length)),
        10 => (key(), 0..8u32).prop_map(|(key, block)| Op::Write(key, block)),
        1 => key().prop_map(Op::SetHead),
        1 => key().prop_map(Op::Remove),
        1 => key().prop_map(Op::Get),
        2 => key().prop_map(Op::Pin),
        1 => Just(Op::Unpin),
        3 => Just(Op::Flush),
    ]
}

fn op_with_faults() -> impl Strategy<Value = Op> {
    prop_oneof![20 => op(), 1 => (0..4u8).prop_map(Op::Faults)]
}

fn key(n: u8) -> Key {
    Key([n; 16])
}

/// The bytes of one block of one version; any two differ in every sector.
fn content(version: u32, block: u32, len: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len as usize);
    while bytes.len() < len as usize {
        let mix = version.wrapping_mul(0x9e37_79b1) ^ block.wrapping_mul(0x85eb_ca6b);
        bytes.extend_from_slice(&mix.wrapping_add(bytes.len() as u32).to_le_bytes());
    }
    bytes.truncate(len as usize);
    bytes
}

/// What a version is known to have had when a flush was finished.
#[derive(Clone, Debug)]
struct Flushed {
    version: u32,
    head: u32,
    blocks: BTreeSet<u32>,
}

#[derive(Default)]
struct Model {
    next_version: u32,
    /// Length by version.
    lengths: BTreeMap<u32, u32>,
    /// What a key holds: version, head revision.
    now: BTreeMap<u8, (u32, u32)>,
    flushed: BTreeMap<u8, Flushed>,
    /// Versions that a restart may show, after a kill and after power loss.
    may_kill: BTreeMap<u8, BTreeSet<u32>>,
    may_lose: BTreeMap<u8, BTreeSet<u32>>,
}

fn head(version: u32, revision: u32) -> Bytes {
    Bytes::from([version.to_le_bytes(), revision.to_le_bytes()].concat())
}

fn read_head(rep: &Representation) -> (u32, u32) {
    let head = rep.head();
    let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
    (number(0), number(4))
}

struct Run {
    _folder: TempDir,
    disk: Arc<FaultDisk>,
    capacity: u64,
    store: Option<Store>,
    model: Model,
    pins: Vec<(u32, Extent)>,
}

impl Run {
    fn new(capacity: u64, seed: u64) -> Self {
        let folder = TempDir::new().unwrap();
        let disk = Arc::new(FaultDisk::new(folder.path(), Dice::seeded(seed)));
        let model = Model::default();
        let mut run =
            Self { _folder: folder, disk, capacity, store: None, model, pins: Vec::new() };
        run.reopen();
        run
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn reopen(&mut self) {
        let params = Params {
            capacity: ByteCount(self.capacity),
            block_bytes: BLOCK,
            memory: Params::MEMORY,
            open_files: Params::OPEN_FILES,
        };
        self.store = Some(Store::open(self.disk.clone(), params).unwrap());
    }

    fn crash(&mut self, crash: Crash) {
        self.pins.clear();
        self.store = None;
        self.disk.crash(crash).unwrap();
        self.reopen();
    }

    /// Does one operation; the model learns what is certain only if the process has survived it.
    fn step(&mut self, op: &Op) {
        match *op {
            Op::Create(n, length) => self.create(n, length),
            Op::Write(n, block) => {
                let Some(rep) = self.store().load(&key(n)) else { return };
                let len = rep.block_len(block);
                if len > 0 {
                    let _ = rep.write_block(block, &content(read_head(&rep).0, block, len));
                }
            }
            Op::SetHead(n) => {
                let Some(rep) = self.store().load(&key(n)) else { return };
                let (version, revision) = read_head(&rep);
                self.store().set_head(&rep, head(version, revision + 1)).unwrap();
                self.model.now.insert(n, (version, revision + 1));
            }
            Op::Remove(n) => {
                self.model.flushed.remove(&n);
                self.model.now.remove(&n);
                self.store().remove(&key(n));
                if !self.disk.is_dead() {
                    self.model.may_kill.remove(&n);
                }
            }
            Op::Get(n) => drop(self.store().load(&key(n))),
            Op::Pin(n) => {
                let rep = self.store().load(&key(n));
                let extent = rep.and_then(|rep| {
                    let first = (0..rep.blocks()).find(|block| rep.verify(*block))?;
                    rep.extent(u64::from(first) * u64::from(BLOCK), u64::MAX)
                });
                if let Some(extent) = extent {
                    self.pins.push((read_head(&extent.representation).0, extent));
                }
            }
            Op::Unpin => drop((!self.pins.is_empty()).then(|| self.pins.remove(0))),
            Op::Flush => self.flush(),
            Op::Faults(n) => self.disk.set_faults(
                [Faults::default(), Faults::READ_ONLY, Faults::FULL, Faults::BROKEN]
                    [usize::from(n)],
            ),
        }
    }

    fn create(&mut self, n: u8, length: u32) {
        let version = self.model.next_version;
        self.model.next_version += 1;
        self.model.lengths.insert(version, length);
        self.model.flushed.remove(&n);
        self.model.may_kill.entry(n).or_default().insert(version);
        self.model.may_lose.entry(n).or_default().insert(version);
        if self.store().create(key(n), head(version, 0), u64::from(length)).is_ok() {
            self.model.now.insert(n, (version, 0));
            if !self.disk.is_dead() {
                self.model.may_kill.insert(n, [version].into());
            }
        }
    }

    fn flush(&mut self) {
        self.store().flush();
        if self.disk.is_dead() {
            return;
        }
        self.model.may_lose.clear();
        for n in 0..KEYS {
            let Some(rep) = self.store().load(&key(n)) else { continue };
            let (version, head) = read_head(&rep);
            let blocks: BTreeSet<u32> = (0..rep.blocks()).filter(|block| rep.has(*block)).collect();
            self.model.may_lose.insert(n, [version].into());
            if !blocks.is_empty() || rep.blocks() == 0 {
                self.model.flushed.insert(n, Flushed { version, head, blocks });
            }
        }
    }

    /// Whatever a key shows is one version, each block it gives is that version's.
    fn check_bytes(&self, n: u8, crash: Option<Crash>) {
        let Some(rep) = self.store().load(&key(n)) else { return };
        let (version, _) = read_head(&rep);
        assert_eq!(u64::from(self.model.lengths[&version]), rep.length());
        for block in 0..rep.blocks() {
            let (had, good) = (rep.has(block), rep.verify(block));
            if crash == Some(Crash::Kill) {
                assert_eq!(had, good, "a kill alone damages nothing");
            }
            assert_eq!(good, rep.has(block));
            if good {
                let start = u64::from(block) * u64::from(BLOCK);
                let len = rep.block_len(block);
                let extent = rep.extent(start, u64::from(len)).unwrap();
                assert_eq!(read(&extent), content(version, block, len), "version {version}");
            }
        }
    }

    /// After a restart: only what may be there, and all that must be.
    fn check_restart(&mut self, crash: Crash) {
        let may = match crash {
            Crash::Kill => &self.model.may_kill,
            Crash::PowerLoss => &self.model.may_lose,
        };
        for n in 0..KEYS {
            if let Some(rep) = self.store().load(&key(n)) {
                let (version, _) = read_head(&rep);
                assert!(
                    may.get(&n).is_some_and(|may| may.contains(&version)),
                    "version {version} of {n} has come back, {may:?} may"
                );
            }
            if let Some(flushed) = self.model.flushed.get(&n) {
                let rep = self
                    .store()
                    .load(&key(n))
                    .unwrap_or_else(|| panic!("version {} of {n} was flushed", flushed.version));
                let (version, head) = read_head(&rep);
                assert_eq!(version, flushed.version);
                assert!(head >= flushed.head);
                for block in &flushed.blocks {
                    assert!(rep.verify(*block), "block {block} of {n} was flushed");
                }
            }
            self.check_bytes(n, Some(crash));
        }
        // The next life begins with what is there now.
        for n in 0..KEYS {
            let version = self.store().load(&key(n)).map(|rep| read_head(&rep).0);
            self.model.may_kill.insert(n, version.into_iter().collect());
            self.model.may_lose.entry(n).or_default().extend(version);
        }
    }

    fn check_ceiling(&self) {
        let usage = self.store().usage();
        let allocated = self.disk.allocated_bytes().unwrap();
        assert!(usage.bytes <= self.capacity, "{usage:?}");
        assert!(allocated <= usage.bytes, "{allocated} bytes on disk, {usage:?}");
    }

    fn check_pins(&self) {
        for (version, extent) in &self.pins {
            let mut expected = Vec::new();
            let first = (extent.offset / u64::from(BLOCK)) as u32;
            for block in first.. {
                if expected.len() as u64 >= extent.len {
                    break;
                }
                let len = extent.representation.block_len(block);
                expected.extend(content(*version, block, len));
            }
            assert_eq!(read(extent), expected);
        }
    }
}

fn read(extent: &Extent) -> Vec<u8> {
    let mut bytes = vec![0; extent.len as usize];
    extent.file.read_exact_at(&mut bytes, extent.offset).unwrap();
    bytes
}

/// A short story, ended at each of its operations in turn, with several throws of the dice for what
/// a power loss leaves. Random lists reach the narrow windows of a flush too seldom.
#[test]
fn every_instant_of_a_flush() {
    let story = [
        Op::Create(0, 3 * BLOCK),
        Op::Write(0, 0),
        Op::Create(1, 0),
        Op::Flush,
        Op::Write(0, 2),
        Op::SetHead(0),
        Op::SetHead(1),
        Op::Create(2, 5000),
        Op::Write(2, 1),
        Op::Flush,
        Op::Remove(1),
        Op::Create(0, 100),
        Op::Write(0, 0),
        Op::Flush,
    ];
    for crash in [Crash::Kill, Crash::PowerLoss] {
        for seed in 0..12 {
            for life in 1.. {
                let mut run = Run::new(1 << 30, seed);
                run.disk.die_after(life);
                for op in &story {
                    run.step(op);
                    if run.disk.is_dead() {
                        break;
                    }
                }
                let told_to_the_end = !run.disk.is_dead();
                run.crash(crash);
                run.check_restart(crash);
                if told_to_the_end {
                    assert!(life > 30, "the story has shrunk to {life} operations");
                    break;
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Two lives, each ended at any instant, inside an operation included.
    #[test]
    fn after_a_crash_everything_is_right_or_absent(
        lives in prop::collection::vec(
            (prop::collection::vec(op(), 1..40), 1u64..120,
             prop_oneof![Just(Crash::Kill), Just(Crash::PowerLoss)]),
            1..3,
        ),
        seed in any::<u64>(),
    ) {
        let mut run = Run::new(1 << 30, seed);
        for (ops, life, crash) in lives {
            run.disk.die_after(life);
            for op in &ops {
                run.step(op);
                if run.disk.is_dead() {
                    break;
                }
            }
            run.crash(crash);
            run.check_restart(crash);
        }
    }

    /// A store that is always full: what the file system has allocated never passes the ceiling,
    /// nothing in use is taken away, and whatever is given out is right.
    #[test]
    fn the_ceiling_holds_and_pins_hold(
        ops in prop::collection::vec(op_with_faults(), 1..120),
        units in 12u64..40,
        seed in any::<u64>(),
    ) {
        let mut run = Run::new(units * u64::from(BLOCK), seed);
        for op in &ops {
            run.step(op);
            run.check_ceiling();
            run.check_pins();
        }
        run.disk.set_faults(Faults::default());
        for n in 0..KEYS {
            run.check_bytes(n, None);
        }
        run.pins.clear();
        for n in 0..KEYS {
            run.store().remove(&key(n));
        }
        run.store().flush();
        // The marker and the log, and the last segment.
        let left = run.store().usage().bytes;
        prop_assert!(left <= 8 * u64::from(BLOCK), "{left} bytes are not given back");
        prop_assert!(run.disk.allocated_bytes().unwrap() <= left);
    }
}
