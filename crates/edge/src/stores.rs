//! The disks: each object lives on the one its key chooses.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rt::Metrics;
use rt::metrics::{Counter, Gauge, edge};
use store::{Key, Store};

use crate::counters::raise;
use crate::params::StoreParams;

/// One disk.
#[derive(Debug)]
struct Disk {
    path: PathBuf,
    store: Arc<Store>,
    gauges: [Gauge; 3],
    counters: [Counter; 3],
}

/// All disks, at least one.
#[derive(Debug)]
pub(crate) struct Stores {
    first: Disk,
    others: Vec<Disk>,
}

/// Why the stores cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum StoresError {
    /// The config names none.
    #[error("no store: add [[edge.store]] with path and size")]
    None,
    /// One cannot be opened.
    #[error("cannot open the store {path}: see the cause, or give another path")]
    Open {
        /// Its folder.
        path: PathBuf,
        /// Why.
        source: store::OpenError,
    },
}

impl Stores {
    /// Opens all; blocks while each recovers what it holds.
    pub(crate) fn open(
        params: &[StoreParams],
        disk_of: impl Fn(&Path) -> Arc<dyn store::Disk>,
        metrics: &Metrics,
    ) -> Result<Self, StoresError> {
        let open = |p: &StoreParams| Disk::open(p, disk_of(&p.path), metrics);
        let mut disks = params.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        if disks.is_empty() {
            return Err(StoresError::None);
        }
        let first = disks.remove(0);
        Ok(Self { first, others: disks })
    }

    fn all(&self) -> impl Iterator<Item = &Disk> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// The store of a key.
    pub(crate) fn of(&self, key: &Key) -> &Arc<Store> {
        let (Key(bytes), count) = (key, self.others.len().saturating_add(1));
        let sum =
            bytes.iter().fold(0usize, |sum, b| sum.wrapping_mul(31).wrapping_add((*b).into()));
        let index = sum.checked_rem(count).unwrap_or(0);
        let other = index.checked_sub(1).and_then(|i| self.others.get(i));
        &other.unwrap_or(&self.first).store
    }

    /// Makes everything durable and shows the figures. Blocks.
    pub(crate) fn flush(&self) {
        for disk in self.all() {
            disk.store.flush();
            disk.show();
        }
    }

    /// For `/status`.
    pub(crate) fn status(&self) -> serde_json::Value {
        let one = |disk: &Disk| {
            let usage = disk.store.usage();
            serde_json::json!({
                "path": disk.path, "objects": usage.objects, "bytes": usage.bytes,
                "capacity_bytes": usage.capacity, "evictions": usage.evictions,
                "corrupt_blocks": usage.corrupt_blocks, "write_errors": usage.write_errors,
            })
        };
        self.all().map(one).collect()
    }
}

impl Disk {
    fn open(
        params: &StoreParams,
        disk: Arc<dyn store::Disk>,
        metrics: &Metrics,
    ) -> Result<Self, StoresError> {
        let StoreParams { path, size, block_bytes } = params.clone();
        let settings = store::Params { capacity: size, block_bytes, memory: store::Params::MEMORY };
        let store = Store::open(disk, settings)
            .map_err(|source| StoresError::Open { path: path.clone(), source })?;
        let label = path.display().to_string();
        if let Some(version) = store.emptied_version() {
            tracing::warn!(store = label, version, "a store of an old format was emptied");
        }
        let gauges = [&edge::STORE_OBJECTS, &edge::STORE_BYTES, &edge::STORE_CAPACITY]
            .map(|metric| metrics.gauge(metric, &[&label]));
        let counters = [&edge::STORE_EVICTIONS, &edge::STORE_CORRUPT, &edge::STORE_WRITE_ERRORS]
            .map(|metric| metrics.counter(metric, &[&label]));
        let disk = Self { path, store: Arc::new(store), gauges, counters };
        disk.show();
        let usage = disk.store.usage();
        tracing::info!(
            store = label,
            objects = usage.objects,
            bytes = usage.bytes,
            capacity = usage.capacity,
            "a store is open"
        );
        Ok(disk)
    }

    fn show(&self) {
        let u = self.store.usage();
        for (gauge, figure) in self.gauges.iter().zip([u.objects, u.bytes, u.capacity]) {
            gauge.set(i64::try_from(figure).unwrap_or(i64::MAX));
        }
        let totals = [u.evictions, u.corrupt_blocks, u.write_errors];
        for (counter, total) in self.counters.iter().zip(totals) {
            raise(counter, total);
        }
    }
}
