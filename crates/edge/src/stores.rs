//! The disks: each object lives on the one its key chooses, by rendezvous hashing weighted with their
//! sizes, so that a disk that goes takes only its own objects with it.
//!
//! A disk that cannot be opened, or whose device refuses second after second, is dropped: its keys
//! choose among the rest, and it is tried again now and then. The last one that is open stays, because
//! what it holds may still be read; without any the edge passes everything on. A store whose folder is
//! gone is opened anew at once, which makes the folder.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use model::ByteCount;
use rt::Metrics;
use rt::metrics::{Counter, Gauge, edge};
use serve::Files;
use serve::disk::FsDisk;
use store::{Held, Key, Store};

use crate::counters::raise;
use crate::lane::Lane;
use crate::params::StoreParams;

/// Flushes in a row with errors of the device after which it is dropped.
const BAD_FLUSHES_MAX: u32 = 5;
/// Flushes after which a dropped disk is tried again.
const RETRY_FLUSHES: u32 = 60;
/// How often a store that is in use is tried again at the start, and after what time each.
const IN_USE_TRIES: u32 = 20;
const IN_USE_PAUSE: Duration = Duration::from_millis(100);
/// Bytes that each flush has verified: a terabyte in three days.
const SCRUB_BYTES: u64 = 4 << 20;

type DiskOf = Box<dyn Fn(&Path) -> Arc<dyn store::Disk> + Send + Sync>;

/// One disk.
struct Disk {
    params: StoreParams,
    memory: ByteCount,
    /// Body files it may keep open.
    open_files: usize,
    /// Its place in the choice of keys.
    seed: u64,
    store: ArcSwapOption<Store>,
    lane: Arc<Lane>,
    watch: Mutex<Watch>,
    gauges: [Gauge; 4],
    counters: [Counter; 3],
}

/// What was seen of a disk from flush to flush.
#[derive(Debug, Default)]
struct Watch {
    device_errors: u64,
    folder_errors: u64,
    bad_flushes: u32,
    /// Why it is dropped.
    failed: Option<String>,
    /// Flushes since it was last tried.
    waited: u32,
    /// Totals of the stores that were open before on it.
    before: [u64; 3],
}

/// All disks, at least one.
pub(crate) struct Stores {
    disks: Vec<Disk>,
    disk_of: DiskOf,
    /// Held by who flushes: who has flushed for the last time knows that nobody is at it any more.
    /// Whether the disks are another process's.
    working: Mutex<bool>,
}

/// Why the stores cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum StoresError {
    /// The config names none.
    #[error("no store: add [[edge.store]] with path and size")]
    None,
    /// One cannot be used as it is set up, whatever the disk does.
    #[error("cannot open the store {path}: see the cause, or give another path")]
    Open {
        /// Its folder.
        path: PathBuf,
        /// Why.
        source: store::OpenError,
    },
}

impl Stores {
    /// Looks whether [`Self::open`] would refuse, touching nothing. Blocks.
    pub(crate) fn look(params: &[StoreParams]) -> Result<(), StoresError> {
        params.iter().try_for_each(|StoreParams { path, .. }| {
            match Store::look(&FsDisk::new(path)) {
                Err(source) if !is_of_the_disk(&source) => {
                    Err(StoresError::Open { path: path.clone(), source })
                }
                _ => Ok(()),
            }
        })
    }

    /// Opens all; blocks while each recovers what it holds. One whose disk fails is dropped.
    pub(crate) fn open(
        params: &[StoreParams],
        memory: ByteCount,
        disk_of: impl Fn(&Path) -> Arc<dyn store::Disk> + Send + Sync + 'static,
        metrics: &Metrics,
    ) -> Result<Self, StoresError> {
        let count = u64::try_from(params.len()).unwrap_or(u64::MAX);
        let share = ByteCount(memory.0.checked_div(count).ok_or(StoresError::None)?);
        let files =
            Files::of_process().stores.checked_div(params.len()).ok_or(StoresError::None)?;
        let disk_of: DiskOf = Box::new(disk_of);
        let disks = params.iter().map(|p| Disk::new(p.clone(), share, files, metrics)).collect();
        let stores = Self { disks, disk_of, working: Mutex::new(false) };
        stores.disks.iter().try_for_each(|disk| disk.begin(&stores.disk_of))?;
        Ok(stores)
    }

    /// The store of a key; `None`: no disk is left.
    pub(crate) fn of(&self, key: &Key) -> Option<Arc<Store>> {
        self.chosen(key).map(|(_, store)| store)
    }

    /// Where work on the small objects of that store is done.
    pub(crate) fn lane(&self, key: &Key) -> Option<&Arc<Lane>> {
        self.chosen(key).map(|(disk, _)| &disk.lane)
    }

    fn chosen(&self, key: &Key) -> Option<(&Disk, Arc<Store>)> {
        if let [only] = self.disks.as_slice() {
            return Some((only, only.store.load_full()?));
        }
        let open = self.disks.iter().filter_map(|disk| Some((disk, disk.store.load_full()?)));
        let scored = open.map(|(disk, store)| (disk.score(key), (disk, store)));
        scored.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, chosen)| chosen)
    }

    /// What the disk of a key has of it.
    pub(crate) fn look_up(&self, key: &Key) -> Held {
        if let [only] = self.disks.as_slice() {
            return only.store.load().as_ref().map_or(Held::Absent, |store| store.look_up(key));
        }
        self.of(key).map_or(Held::Absent, |store| store.look_up(key))
    }

    /// Makes everything durable, for the last time. Blocks.
    pub(crate) fn flush(&self) {
        let _working = self.working.lock().unwrap_or_else(PoisonError::into_inner);
        self.disks.iter().filter_map(|disk| disk.store.load_full()).for_each(|store| store.flush());
    }

    /// Makes everything durable and leaves the disks to another process. Blocks.
    pub(crate) fn hand_over(&self) {
        let mut is_given = self.working.lock().unwrap_or_else(PoisonError::into_inner);
        *is_given = true;
        let stores = self.disks.iter().filter_map(|disk| disk.store.load_full());
        stores.for_each(|store| store.hand_over());
    }

    /// Makes everything durable, verifies a little, looks after the disks and shows the figures. To
    /// be called each second. Blocks.
    pub(crate) fn tend(&self) {
        let is_given = self.working.lock().unwrap_or_else(PoisonError::into_inner);
        for disk in &self.disks {
            if *is_given {
                // Not even one that had failed is opened: it is another's to try.
                disk.show();
                continue;
            }
            match disk.store.load_full() {
                Some(store) => {
                    store.flush();
                    store.scrub(SCRUB_BYTES);
                    let open = self.disks.iter().filter(|disk| disk.store.load().is_some());
                    disk.look_after(store, open.count() <= 1, &self.disk_of);
                }
                None => disk.try_again(&self.disk_of),
            }
            disk.show();
        }
    }

    /// For `/status`.
    pub(crate) fn status(&self) -> serde_json::Value {
        self.disks.iter().map(Disk::status).collect()
    }
}

impl std::fmt::Debug for Stores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let paths = self.disks.iter().map(|disk| &disk.params.path);
        f.debug_list().entries(paths).finish()
    }
}

impl Disk {
    fn new(params: StoreParams, memory: ByteCount, files: usize, metrics: &Metrics) -> Self {
        let label = params.path.display().to_string();
        let gauges =
            [&edge::STORE_OBJECTS, &edge::STORE_BYTES, &edge::STORE_CAPACITY, &edge::STORE_FAILED]
                .map(|metric| metrics.gauge(metric, &[&label]));
        let counters = [&edge::STORE_EVICTIONS, &edge::STORE_CORRUPT, &edge::STORE_WRITE_ERRORS]
            .map(|metric| metrics.counter(metric, &[&label]));
        let seed = label.bytes().fold(0, |seed, byte| mix(seed ^ u64::from(byte)));
        let (store, watch) = (ArcSwapOption::empty(), Mutex::default());
        let lane = Arc::default();
        let open_files = files.min(store::Params::OPEN_FILES);
        Self { params, memory, open_files, seed, store, lane, watch, gauges, counters }
    }

    fn watch(&self) -> std::sync::MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens its store at a start; a disk that fails is dropped.
    fn begin(&self, disk_of: &DiskOf) -> Result<(), StoresError> {
        match self.open_patiently(disk_of) {
            Ok(()) => Ok(()),
            Err(source) if is_of_the_disk(&source) => {
                self.drop_out(chain(&source));
                Ok(())
            }
            Err(source) => {
                let path = self.params.path.clone();
                Err(StoresError::Open { path, source })
            }
        }
    }

    /// The same at the start, when the former process, or a fill of it, may be about to let go.
    fn open_patiently(&self, disk_of: &DiskOf) -> Result<(), store::OpenError> {
        for _ in 0..IN_USE_TRIES {
            match self.open(disk_of) {
                Err(store::OpenError::InUse) => std::thread::sleep(IN_USE_PAUSE),
                result => return result,
            }
        }
        self.open(disk_of)
    }

    fn open(&self, disk_of: &DiskOf) -> Result<(), store::OpenError> {
        let StoreParams { path, size, block_bytes } = self.params.clone();
        let (memory, open_files) = (self.memory, self.open_files);
        let settings = store::Params { capacity: size, block_bytes, memory, open_files };
        let store = Store::open(disk_of(&path), settings)?;
        let label = path.display().to_string();
        if let Some(version) = store.emptied_version() {
            tracing::warn!(store = label, version, "a store of an old format was emptied");
        }
        let usage = store.usage();
        tracing::info!(
            store = label,
            objects = usage.objects,
            bytes = usage.bytes,
            capacity = usage.capacity,
            "a store is open"
        );
        {
            let mut watch = self.watch();
            *watch = Watch { before: watch.before, ..Watch::default() };
        }
        self.store.store(Some(Arc::new(store)));
        self.show();
        Ok(())
    }

    /// The higher, the more a key wants to be here: `size / -ln(u)` of a uniform `u` for each key and
    /// disk gives each its share by size.
    #[allow(clippy::cast_precision_loss)] // the last bits decide nothing
    fn score(&self, key: &Key) -> f64 {
        let Key([a, b, c, d, e, f, g, h, ..]) = *key;
        let hash = mix(self.seed ^ u64::from_le_bytes([a, b, c, d, e, f, g, h]));
        let uniform = ((hash >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        self.params.size.0 as f64 / -uniform.ln()
    }

    /// Its store goes; its keys choose among the others.
    fn drop_out(&self, why: String) {
        let path = &self.params.path;
        tracing::error!(store = %path.display(), why, "a store is dropped; it is tried again later");
        let store = self.store.swap(None);
        let mut watch = self.watch();
        if let Some(store) = store {
            let totals = totals(&store.usage());
            for (sum, total) in watch.before.iter_mut().zip(totals) {
                *sum = sum.saturating_add(total);
            }
        }
        watch.failed = Some(why);
        watch.waited = 0;
        drop(watch);
        self.show();
    }

    fn try_again(&self, disk_of: &DiskOf) {
        {
            let mut watch = self.watch();
            watch.waited = watch.waited.saturating_add(1);
            if watch.waited < RETRY_FLUSHES {
                return;
            }
            watch.waited = 0;
        }
        if let Err(error) = self.open(disk_of) {
            self.watch().failed = Some(chain(&error));
        }
    }

    /// Judges an open store by what the last flush met.
    fn look_after(&self, store: Arc<Store>, is_last: bool, disk_of: &DiskOf) {
        let usage = store.usage();
        let (is_bad, is_gone) = {
            let mut watch = self.watch();
            let is_gone = watch.folder_errors < usage.folder_errors;
            let has_failed = watch.device_errors < usage.device_errors;
            watch.folder_errors = usage.folder_errors;
            watch.device_errors = usage.device_errors;
            watch.bad_flushes = if has_failed { watch.bad_flushes.saturating_add(1) } else { 0 };
            (watch.bad_flushes >= BAD_FLUSHES_MAX && !is_last, is_gone)
        };
        let has = |name: &str| self.params.path.join(name).exists();
        if is_gone && !(has("format") && has("data")) {
            self.drop_out("its folder is gone".to_owned());
            // Its lock goes with it.
            drop(store);
            if let Err(error) = self.open(disk_of) {
                self.watch().failed = Some(chain(&error));
            }
        } else if is_bad {
            self.drop_out("its device refuses".to_owned());
        }
    }

    fn show(&self) {
        let (before, failed) = {
            let watch = self.watch();
            (watch.before, i64::from(watch.failed.is_some()))
        };
        let usage = self.store.load().as_ref().map(|store| store.usage()).unwrap_or_default();
        let figure = |figure: u64| i64::try_from(figure).unwrap_or(i64::MAX);
        let figures =
            [figure(usage.objects), figure(usage.bytes), figure(self.params.size.0), failed];
        for (gauge, figure) in self.gauges.iter().zip(figures) {
            gauge.set(figure);
        }
        for (counter, (total, before)) in
            self.counters.iter().zip(totals(&usage).into_iter().zip(before))
        {
            raise(counter, total.saturating_add(before));
        }
    }

    fn status(&self) -> serde_json::Value {
        let failed = self.watch().failed.clone();
        let store = self.store.load_full();
        let usage = store.as_ref().map(|store| store.usage()).unwrap_or_default();
        let scrubbed = store.as_ref().map(|store| store.scrubbed()).unwrap_or_default();
        serde_json::json!({
            "path": self.params.path, "failed": failed,
            "objects": usage.objects, "bytes": usage.bytes, "capacity_bytes": self.params.size.0,
            "index_bytes": usage.index_bytes, "memory_bytes": usage.memory_bytes,
            "evictions": usage.evictions, "trimmed_bytes": usage.trimmed_bytes,
            "corrupt_blocks": usage.corrupt_blocks, "write_errors": usage.write_errors,
            "scrub": {
                "rounds": scrubbed.rounds, "permille": scrubbed.permille, "bytes": scrubbed.bytes,
            },
        })
    }
}

/// What is counted of a store, in the order of the counters.
fn totals(usage: &store::Usage) -> [u64; 3] {
    [usage.evictions, usage.corrupt_blocks, usage.write_errors]
}

/// Whether a disk may be to blame, and not the config.
fn is_of_the_disk(error: &store::OpenError) -> bool {
    matches!(error, store::OpenError::Prepare { .. } | store::OpenError::Read { .. })
}

fn chain(error: &store::OpenError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Spreads a number over all bits (the finaliser of SplitMix64).
fn mix(number: u64) -> u64 {
    let a = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let b = (a ^ (a >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let c = (b ^ (b >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    c ^ (c >> 31)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use model::Dice;
    use store::testing::{FaultDisk, Faults};

    use super::*;

    fn params(folder: &Path, gib: u64) -> StoreParams {
        StoreParams { path: folder.to_owned(), size: ByteCount(gib << 30), block_bytes: 4096 }
    }

    fn key(n: u64) -> Key {
        let [low, high] = [mix(n), mix(mix(n))].map(u64::to_le_bytes);
        Key([low, high].concat().try_into().unwrap())
    }

    #[test]
    fn a_dropped_disk_moves_only_its_own_keys_and_sizes_count() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "b", "c"].map(|name| folder.path().join(name));
        let params: Vec<_> =
            paths.iter().zip([1, 1, 2]).map(|(path, gib)| params(path, gib)).collect();
        let disk_of =
            |path: &Path| Arc::new(serve::disk::FsDisk::new(path)) as Arc<dyn store::Disk>;
        let stores = Stores::open(&params, ByteCount(1 << 20), disk_of, &Metrics::new()).unwrap();
        let open: Vec<_> = stores.disks.iter().map(|d| d.store.load_full().unwrap()).collect();
        let which = |key: &Key| {
            let chosen = stores.of(key).unwrap();
            open.iter().position(|store| Arc::ptr_eq(store, &chosen)).unwrap()
        };
        let before: Vec<usize> = (0..4000).map(|n| which(&key(n))).collect();
        let shares = [0, 1, 2].map(|disk| before.iter().filter(|d| **d == disk).count());
        for (share, wanted) in shares.into_iter().zip([1000, 1000, 2000]) {
            assert!(share.abs_diff(wanted) < 150, "{shares:?}");
        }
        stores.disks[1].drop_out("a test".to_owned());
        for (n, before) in before.into_iter().enumerate() {
            let now = which(&key(n as u64));
            assert!(now != 1 && (before == 1 || now == before), "{n}: {before} {now}");
        }
        assert_eq!(stores.status()[1]["failed"], "a test");
        stores.disks.iter().for_each(|disk| disk.drop_out("all".to_owned()));
        assert!(stores.of(&key(1)).is_none());
    }

    /// A restart does not fail because what ends last holds the store for a moment longer.
    #[test]
    fn a_store_that_is_about_to_be_let_go_of_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let params = [params(folder.path(), 1)];
        let disk_of =
            |path: &Path| Arc::new(serve::disk::FsDisk::new(path)) as Arc<dyn store::Disk>;
        let open = |disk_of| Stores::open(&params, ByteCount(1 << 20), disk_of, &Metrics::new());
        let former = open(Box::new(disk_of) as DiskOf).unwrap();
        let former = Mutex::new((0, Some(former)));
        let second = open(Box::new(move |path: &Path| {
            let mut former = former.lock().unwrap();
            former.0 += 1;
            if former.0 == 2 {
                former.1 = None;
            }
            disk_of(path)
        }));
        assert!(second.is_ok());
    }

    #[test]
    fn a_disk_that_fails_is_dropped_and_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| folder.path().join(name));
        let disks = paths.clone().map(|path| Arc::new(FaultDisk::new(path, Dice::seeded(1))));
        let (by_path, given) = (paths.clone(), disks.clone());
        let disk_of = move |path: &Path| {
            let at = by_path.iter().position(|p| p == path).unwrap();
            Arc::clone(&given[at]) as Arc<dyn store::Disk>
        };
        paths.iter().for_each(|path| std::fs::create_dir(path).unwrap());
        disks[1].set_faults(Faults::BROKEN);
        let params = [params(&paths[0], 1), params(&paths[1], 1)];
        let metrics = Metrics::new();
        let stores = Stores::open(&params, ByteCount(1 << 20), disk_of, &metrics).unwrap();
        assert!(stores.status()[1]["failed"].as_str().unwrap().contains("Input/output error"));
        let failed = |folder: usize| {
            let line =
                format!("cacheboy_edge_store_failed{{store=\"{}\"}} 1", paths[folder].display());
            metrics.render().contains(&line)
        };
        assert!(failed(1) && !failed(0));
        disks[1].set_faults(Faults::default());
        (0..RETRY_FLUSHES).for_each(|_| stores.tend());
        assert!(!failed(1) && stores.status()[1]["failed"].is_null());

        // While it runs: second after second, and not the last one.
        for at in [0, 1] {
            disks[at].set_faults(Faults::READ_ONLY);
        }
        for n in 0..u64::from(BAD_FLUSHES_MAX) {
            for store in stores.disks.iter().filter_map(|disk| disk.store.load_full()) {
                assert!(store.create(key(n), bytes::Bytes::new(), 5000).is_err());
            }
            assert!(!failed(0) && !failed(1));
            stores.tend();
        }
        assert!(failed(0) && !failed(1), "{}", stores.status());
    }

    #[test]
    fn without_any_disk_there_is_no_store_and_no_refusal_to_start() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Arc::new(FaultDisk::new(folder.path(), Dice::seeded(1)));
        disk.set_faults(Faults::BROKEN);
        let disk_of = move |_: &Path| Arc::clone(&disk) as Arc<dyn store::Disk>;
        let params = [params(folder.path(), 1)];
        let stores = Stores::open(&params, ByteCount(1 << 20), disk_of, &Metrics::new()).unwrap();
        assert!(stores.of(&key(1)).is_none());
    }

    #[test]
    fn a_folder_that_vanishes_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let disk_of =
            |path: &Path| Arc::new(serve::disk::FsDisk::new(path)) as Arc<dyn store::Disk>;
        let params = [params(&path, 1)];
        let stores = Stores::open(&params, ByteCount(1 << 20), disk_of, &Metrics::new()).unwrap();
        std::fs::remove_dir_all(&path).unwrap();
        let create = || stores.of(&key(1)).unwrap().create(key(1), bytes::Bytes::new(), 5000);
        assert!(create().is_err());
        stores.tend();
        create().unwrap();
        assert!(path.join("format").exists());
    }
}
