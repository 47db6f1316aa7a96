//! Purges: what was held before a moment is not used after it.
//!
//! A purge costs the same whatever is held: it is a note of a scope and a moment. Every look-up asks
//! [`Purges::verdict`] whether an object was asked for before it; what is not looked up is not touched.
//! While there is no purge that costs one atomic load.
//!
//! # Order
//! The moment that counts is when an object was asked for, not when it came: a question in flight
//! brings what was there before the purge. The wall clock tells it, since it must hold across a
//! restart, but it may be set back. So a purge's place in the order is above every stamp that was
//! given before ([`Purges::stamp`]), and what is asked for afterwards is stamped above it, whatever
//! the clock says. What is stamped later than both the clock and that is of a clock that was wrong: it
//! counts as older.
//!
//! # Durability
//! The list is written to the state folder before a purge is acknowledged. [`table`] has the list,
//! [`file`] its bytes, [`desk`] what the admin listener is asked and says.

mod desk;
mod file;
mod table;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use model::Name;
use rt::metrics::{Counter, Gauge, edge as metric};
use rt::{Metrics, clock};

pub(crate) use desk::answer;
pub use file::FileError;
use table::Table;
pub(crate) use table::{Mark, Mode, Scope};

/// What purges say of something held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing.
    Keep,
    /// It is confirmed before it is used again.
    Stale,
    /// It is not used again.
    Gone,
}

/// Why a purge is not in the list.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PurgeError {
    /// The list is full.
    #[error(
        "there are {} purges already: purge a prefix or a whole project, which takes the place of \
         all that lie in it",
        table::PURGES_MAX
    )]
    Full,
    /// In effect, but only until the next start.
    #[error("in effect, but forgotten at a restart")]
    Unwritten(#[source] FileError),
}

/// All purges of this edge.
#[derive(Debug)]
pub(crate) struct Purges {
    /// Whether there is any: all that a look-up reads when there is none.
    any: AtomicBool,
    table: ArcSwap<Table>,
    /// The latest moment that anything was stamped with, unix milliseconds.
    latest_ms: AtomicU64,
    /// Above every purge: the least stamp of what is asked for now.
    floor_ms: AtomicU64,
    /// Held while the list changes.
    changing: Mutex<()>,
    file: PathBuf,
    active: Gauge,
    confirmed: Counter,
    dropped: Counter,
}

impl Purges {
    /// The purges that were kept in `state_dir`.
    pub(crate) fn open(state_dir: &Path, metrics: &Metrics) -> Result<Self, FileError> {
        let file = file::path(state_dir);
        let (table, latest_ms) = file::load(&file)?;
        let purges = Self {
            any: AtomicBool::new(!table.is_empty()),
            latest_ms: AtomicU64::new(latest_ms),
            floor_ms: AtomicU64::new(table.newest_ms().map_or(0, |ms| ms.saturating_add(1))),
            table: ArcSwap::from_pointee(table),
            changing: Mutex::new(()),
            file,
            active: metrics.gauge(&metric::PURGES, &[]),
            confirmed: metrics.counter(&metric::PURGED, &[Mode::Soft.as_str()]),
            dropped: metrics.counter(&metric::PURGED, &[Mode::Hard.as_str()]),
        };
        purges.show();
        Ok(purges)
    }

    fn show(&self) {
        self.active.set(i64::try_from(self.count()).unwrap_or(i64::MAX));
    }

    /// Purges in effect.
    pub(crate) fn count(&self) -> usize {
        self.table.load().len()
    }

    /// When the latest was asked for, unix milliseconds by the clock of then.
    pub(crate) fn newest_at_ms(&self) -> Option<u64> {
        self.table.load().newest_at_ms()
    }

    /// What becomes of an object that was asked for, or confirmed, at `asked_ms`.
    pub(crate) fn verdict(&self, project: &Name, target: &str, asked_ms: u64) -> Verdict {
        if !self.any.load(Ordering::Acquire) {
            return Verdict::Keep;
        }
        let table = self.table.load();
        // After the table: a floor that is newer than it only trusts more.
        let trusted_ms = clock::now().wall_ms.max(self.floor_ms.load(Ordering::Acquire));
        table.verdict(project, target, asked_ms, trusted_ms)
    }

    /// Whether anything that was noted of a key before purge number `born` went out is void.
    pub(crate) fn voids_note(&self, project: &Name, target: &str, born: u64) -> bool {
        self.any.load(Ordering::Acquire) && self.table.load().has_since(project, target, born)
    }

    /// Counts objects that were dropped when they were looked up.
    pub(crate) fn dropped(&self) -> Counter {
        self.dropped.clone()
    }

    /// An object is being confirmed because of a purge.
    pub(crate) fn note_confirming(&self) {
        self.confirmed.inc();
    }

    /// The stamp of a question that is asked now: above every purge.
    pub(crate) fn stamp(&self, wall_ms: u64) -> u64 {
        let stamp = wall_ms.max(self.floor_ms.load(Ordering::Acquire));
        self.latest_ms.fetch_max(stamp, Ordering::AcqRel);
        stamp
    }

    /// Adds a purge as number `seq` and writes the list. Blocks on the disk.
    pub(crate) fn add(
        &self,
        project: &Name,
        scope: &Scope,
        mode: Mode,
        seq: u64,
    ) -> Result<Mark, PurgeError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let at_ms = clock::now().wall_ms;
        let order_ms = self.stamp(at_ms).max(self.latest_ms.load(Ordering::Acquire));
        let mark = Mark { at_ms, order_ms, seq };
        let table = self.table.load().with(project, scope, mode, mark).ok_or(PurgeError::Full)?;
        let written = file::save(&self.file, &table, order_ms);
        // From here on questions are stamped above it; then it is looked at.
        self.floor_ms.fetch_max(order_ms.saturating_add(1), Ordering::AcqRel);
        self.table.store(Arc::new(table));
        self.any.store(true, Ordering::Release);
        self.show();
        written.map(|()| mark).map_err(PurgeError::Unwritten)
    }

    /// Keeps the latest stamp for the next start, whose clock may be behind. Blocks on the disk.
    pub(crate) fn close(&self) -> Result<(), FileError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        file::save(&self.file, &self.table.load(), self.latest_ms.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &Path) -> Purges {
        Purges::open(dir, &Metrics::new()).unwrap()
    }

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_asked_afterwards_is_newer_whatever_the_clock_says() {
        let dir = tempfile::tempdir().unwrap();
        let purges = open(dir.path());
        // The clock was an hour ahead, and has been set right since.
        let ahead = purges.stamp(clock::now().wall_ms + 3_600_000);
        let url = Scope::Url("/a".into());
        let mark = purges.add(&name("p"), &url, Mode::Hard, 1).unwrap();
        assert!(mark.order_ms >= ahead);
        let verdict = |asked_ms| purges.verdict(&name("p"), "/a", asked_ms);
        assert_eq!(verdict(ahead), Verdict::Gone);
        assert_eq!(verdict(clock::now().wall_ms), Verdict::Gone);
        let later = purges.stamp(clock::now().wall_ms);
        assert_eq!(verdict(later), Verdict::Keep);
        // Of a clock that was wrong before this process could see it.
        assert_eq!(verdict(later + 86_400_000), Verdict::Gone);
        purges.close().unwrap();

        let again = open(dir.path());
        assert_eq!(again.count(), 1);
        assert_eq!(again.verdict(&name("p"), "/a", ahead), Verdict::Gone);
        assert_eq!(again.verdict(&name("p"), "/a", later), Verdict::Keep);
        assert!(again.stamp(0) > mark.order_ms);
    }

    #[test]
    fn a_list_that_cannot_be_written_is_in_effect_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let purges = open(dir.path());
        std::fs::create_dir(dir.path().join("edge-purges.json")).unwrap();
        let result = purges.add(&name("p"), &Scope::Project, Mode::Soft, 1);
        assert!(matches!(result, Err(PurgeError::Unwritten(_))), "{result:?}");
        assert_eq!(purges.verdict(&name("p"), "/a", 1), Verdict::Stale);
    }
}
