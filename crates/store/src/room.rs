//! That there is room whenever nobody uses what takes it, whatever a flush is doing meanwhile.
#![allow(clippy::indexing_slicing)]

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use model::{ByteCount, Dice};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::testing::FaultDisk;
use crate::{Disk, Entry, Key, Lock, Params, Store, WriteError};

const BLOCK: u64 = 4096;

/// A disk on which something happens while a flush waits for the sync.
struct Hooked {
    disk: FaultDisk,
    during_sync: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Disk for Hooked {
    fn sync_all(&self) -> io::Result<()> {
        let happens = self.during_sync.lock().unwrap().take();
        if let Some(happens) = happens {
            happens();
        }
        self.disk.sync_all()
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }
    fn lock(&self) -> io::Result<Option<Lock>> {
        self.disk.lock()
    }
    fn create(&self, path: &Path) -> io::Result<File> {
        self.disk.create(path)
    }
    fn create_new(&self, path: &Path) -> io::Result<File> {
        self.disk.create_new(path)
    }
    fn open_read(&self, path: &Path) -> io::Result<File> {
        self.disk.open_read(path)
    }
    fn open_write(&self, path: &Path) -> io::Result<File> {
        self.disk.open_write(path)
    }
    fn read_at(&self, file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.read_at(file, buffer, offset)
    }
    fn write_all_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.write_all_at(file, bytes, offset)
    }
    fn set_len(&self, file: &File, len: u64) -> io::Result<()> {
        self.disk.set_len(file, len)
    }
    fn punch(&self, file: &File, offset: u64, len: u64) -> io::Result<()> {
        self.disk.punch(file, offset, len)
    }
    fn sync(&self, file: &File) -> io::Result<()> {
        self.disk.sync(file)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.disk.list(path)
    }
}

struct Bench {
    _folder: TempDir,
    disk: Arc<Hooked>,
    store: Arc<Store>,
}

fn bench(capacity_units: u64) -> Bench {
    let folder = TempDir::new().unwrap();
    let disk = FaultDisk::new(folder.path(), Dice::seeded(1));
    let disk = Arc::new(Hooked { disk, during_sync: Mutex::default() });
    let params = Params {
        capacity: ByteCount(capacity_units * BLOCK),
        block_bytes: BLOCK as u32,
        memory: Params::MEMORY,
        open_files: Params::OPEN_FILES,
    };
    let store = Arc::new(Store::open(Arc::clone(&disk) as Arc<dyn Disk>, params).unwrap());
    Bench { _folder: folder, disk, store }
}

fn key(n: u8) -> Key {
    Key([n; 16])
}

/// Creates and fills an object of so many blocks and lets go of it.
fn fill(store: &Store, n: u8, blocks: u32) -> Result<(), WriteError> {
    let rep = store.create(key(n), Bytes::from_static(b"head"), u64::from(blocks) * BLOCK)?;
    (0..blocks).try_for_each(|block| rep.write_block(block, &[n; BLOCK as usize]))
}

/// All the store has was written since the last flush, and a flush is at it: that is no use.
#[test]
fn what_is_being_flushed_makes_room() {
    let bench = bench(4 + 3 * 4);
    for n in 0..3 {
        fill(&bench.store, n, 3).unwrap();
    }
    let (store, came) = (Arc::clone(&bench.store), Arc::new(OnceLock::new()));
    let result = Arc::clone(&came);
    *bench.disk.during_sync.lock().unwrap() = Some(Box::new(move || {
        result.set((3..6).try_for_each(|n| fill(&store, n, 3))).unwrap();
    }));
    bench.store.flush();
    assert!(matches!(came.get(), Some(Ok(()))), "{came:?}");
    bench.store.flush();
    assert!((0..3).all(|n| bench.store.load(&key(n)).is_none()), "the oldest made room");
    assert!(bench.store.load(&key(5)).is_some_and(|rep| rep.is_complete()));
    assert!(bench.disk.disk.allocated_bytes().unwrap() <= bench.store.usage().bytes);
}

/// A flush without a pause beside fills without a pause: no instant of it keeps anything.
#[test]
fn no_instant_of_a_flush_is_in_the_way() {
    let bench = bench(8 + 5 + 2);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                bench.store.flush();
            }
        });
        let filled = (0..3000u32).try_for_each(|n| fill(&bench.store, n as u8, 1 + n % 4));
        over.store(true, Relaxed);
        filled.unwrap();
    });
}

#[test]
fn the_largest_object_that_is_taken_fits_with_all_its_records() {
    for capacity in 14..50u64 {
        let bench = bench(capacity);
        let largest = (0..=capacity as u32).rev().find(|blocks| {
            match bench.store.create(key(1), Bytes::new(), u64::from(*blocks) * BLOCK) {
                Ok(_) => true,
                Err(error) => {
                    assert!(matches!(error, WriteError::TooLarge { .. }), "{error}");
                    false
                }
            }
        });
        let largest = largest.unwrap();
        assert!(u64::from(largest) + 12 >= capacity, "{largest} of {capacity}");
        fill(&bench.store, 2, largest).unwrap();
        bench.store.flush();
        bench.store.load(&key(2)).unwrap().mark_dirty();
        bench.store.flush();
        assert_eq!(bench.store.usage().write_errors, 0);
        assert!(bench.store.usage().bytes <= capacity * BLOCK);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// With nothing in use, what may be created can be filled: between flushes, inside them, over
    /// itself, after removals.
    #[test]
    fn with_nothing_in_use_there_is_always_room(
        steps in prop::collection::vec((0u8..12, 0u32..12, 0u8..4, any::<bool>()), 1..60),
        capacity in 12u64..30,
    ) {
        let bench = bench(capacity);
        for (n, blocks, kind, visits) in steps {
            if visits {
                drop(bench.store.load(&key(n)));
            }
            let fills = move |store: &Store| match fill(store, n, blocks) {
                Ok(()) | Err(WriteError::TooLarge { .. }) => {}
                Err(error) => panic!("{blocks} blocks: {error}"),
            };
            match kind {
                0 => bench.store.flush(),
                1 => drop(bench.store.remove(&key(n))),
                2 => {
                    let store = Arc::clone(&bench.store);
                    *bench.disk.during_sync.lock().unwrap() = Some(Box::new(move || fills(&store)));
                    bench.store.flush();
                    bench.disk.during_sync.lock().unwrap().take();
                }
                _ => fills(&bench.store),
            }
            prop_assert!(bench.store.usage().bytes <= capacity * BLOCK);
        }
    }
}
