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
pub(crate) use file::FileError;
use table::Table;
pub(crate) use table::{Mark, Mode, Scope};

/// A full list folds purges that are older than this, milliseconds: a day.
const FOLD_AFTER_MS: u64 = 86_400_000;

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
        "there are {} purges of the last day already: purge a prefix or a whole project, which takes \
         the place of all that lie in it",
        table::PURGES_MAX
    )]
    Full,
    /// Another process has the stores now.
    #[error(
        "handed-over: another process has taken over from this one; ask that, at the same admin \
         address"
    )]
    HandedOver,
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
    /// Held while the list changes; whether it is another process's to write.
    changing: Mutex<bool>,
    file: PathBuf,
    active: Gauge,
    confirmed: Counter,
    dropped: Counter,
}

impl Purges {
    /// The purges that were kept in `state_dir`.
    pub(crate) fn open(state_dir: &Path, metrics: &Metrics) -> Self {
        let file = file::path(state_dir);
        let (table, latest_ms) = file::load(&file).unwrap_or_else(|error| lost(&file, &error));
        let purges = Self {
            any: AtomicBool::new(!table.is_empty()),
            latest_ms: AtomicU64::new(latest_ms),
            floor_ms: AtomicU64::new(table.newest_ms().map_or(0, |ms| ms.saturating_add(1))),
            table: ArcSwap::from_pointee(table),
            changing: Mutex::new(false),
            file,
            active: metrics.gauge(&metric::PURGES, &[]),
            confirmed: metrics.counter(&metric::PURGED, &[Mode::Soft.as_str()]),
            dropped: metrics.counter(&metric::PURGED, &[Mode::Hard.as_str()]),
        };
        purges.show();
        purges
    }

    fn show(&self) {
        self.active.set(i64::try_from(self.count()).unwrap_or(i64::MAX));
    }

    /// Purges in effect.
    pub(crate) fn count(&self) -> usize {
        self.table.load().len()
    }

    /// When the list was lost, unix milliseconds: what was asked for before is not used.
    pub(crate) fn lost_ms(&self) -> Option<u64> {
        self.table.load().lost_ms()
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
        let is_given = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_given {
            return Err(PurgeError::HandedOver);
        }
        let at_ms = clock::now().wall_ms;
        let order_ms = self.stamp(at_ms).max(self.latest_ms.load(Ordering::Acquire));
        let mark = Mark { at_ms, order_ms, seq };
        let table = with_room(&self.table.load(), project, scope, mode, mark);
        let table = table.ok_or(PurgeError::Full)?;
        // From here on questions are stamped above it; then it is looked at.
        self.floor_ms.fetch_max(order_ms.saturating_add(1), Ordering::AcqRel);
        let table = Arc::new(table);
        self.table.store(Arc::clone(&table));
        self.any.store(true, Ordering::Release);
        self.show();
        // The disk takes its time, in which what is to go would be confirmed.
        let written = file::save(&self.file, &table, order_ms);
        written.map(|()| mark).map_err(PurgeError::Unwritten)
    }

    /// Keeps the latest stamp for the next start, whose clock may be behind. Blocks on the disk.
    pub(crate) fn close(&self) -> Result<(), FileError> {
        let is_given = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_given { Ok(()) } else { self.save() }
    }

    /// Keeps the latest stamp for the next process; this one takes no purges any more. Blocks on the
    /// disk.
    pub(crate) fn hand_over(&self) -> Result<(), FileError> {
        let mut is_given = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *is_given, true) { Ok(()) } else { self.save() }
    }

    fn save(&self) -> Result<(), FileError> {
        file::save(&self.file, &self.table.load(), self.latest_ms.load(Ordering::Acquire))
    }
}

/// The list after one that cannot be read. What was purged by that must not come back, and nobody
/// knows what it was, so nothing is used that was asked for before: a cache is rebuilt, never guessed.
fn lost(file: &Path, error: &FileError) -> (Table, u64) {
    let now_ms = clock::now().wall_ms;
    let table = Table::after_loss(Some(now_ms));
    let error: &dyn std::error::Error = error;
    let aside = file::set_aside(file);
    let aside = aside.map_or_else(|error| error.to_string(), |path| path.display().to_string());
    tracing::error!(
        error,
        aside,
        "the list of purges is lost: all that is held counts as purged and is fetched again when it \
         is asked for"
    );
    if let Err(error) = file::save(file, &table, now_ms) {
        tracing::warn!(%error, "the list of purges cannot be written");
    }
    (table, now_ms)
}

/// The list with one more. When it is full, old ones of the project that has most are folded into one
/// first: soft ones, which costs little; else hard ones too.
fn with_room(
    table: &Table,
    project: &Name,
    scope: &Scope,
    mode: Mode,
    mark: Mark,
) -> Option<Table> {
    if let Some(next) = table.with(project, scope, mode, mark) {
        return Some(next);
    }
    let before_ms = mark.order_ms.saturating_sub(FOLD_AFTER_MS);
    let mut table = table.clone();
    for folding in [Mode::Soft, Mode::Hard] {
        let Some((folded, of)) = table.folded(folding, before_ms) else { continue };
        let (of, mode_of) = (of.as_str(), folding.as_str());
        tracing::warn!(
            project = of,
            mode = mode_of,
            "the list of purges is full: those older than a day count for all of the project that was \
             not confirmed since"
        );
        if let Some(next) = folded.with(project, scope, mode, mark) {
            return Some(next);
        }
        table = folded;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &Path) -> Purges {
        Purges::open(dir, &Metrics::new())
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

    #[test]
    fn a_list_that_is_lost_is_taken_for_one_that_had_everything() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("edge-purges.json");
        std::fs::write(&file, "{\"format\": 1,").unwrap();
        let purges = open(dir.path());
        let lost_ms = purges.lost_ms().unwrap();
        let verdict = |purges: &Purges, asked_ms| purges.verdict(&name("p"), "/a", asked_ms);
        assert_eq!((purges.count(), verdict(&purges, lost_ms)), (0, Verdict::Gone));
        let later = purges.stamp(0);
        assert_eq!(verdict(&purges, later), Verdict::Keep);
        // What was there is kept for people, and the loss is remembered.
        assert_eq!(std::fs::read(file.with_extension("json.unread")).unwrap(), b"{\"format\": 1,");
        let again = open(dir.path());
        assert_eq!((again.lost_ms(), verdict(&again, lost_ms)), (Some(lost_ms), Verdict::Gone));
        assert!(again.stamp(0) > lost_ms);
        again.add(&name("p"), &Scope::Project, Mode::Soft, 1).unwrap();
        assert_eq!(open(dir.path()).lost_ms(), Some(lost_ms));
    }

    #[test]
    fn a_full_list_folds_what_is_older_than_a_day() {
        let (day, now) = (FOLD_AFTER_MS, 10 * FOLD_AFTER_MS);
        let mark = |at| Mark { at_ms: at, order_ms: at, seq: 0 };
        let url = |n: u64| Scope::Url(format!("/{n}"));
        let mut table = Table::default();
        for n in 0..table::PURGES_MAX as u64 {
            let at = if n < 10 { n } else { now - n };
            table.put(&name("p"), &url(n), Mode::Hard, mark(at));
        }
        let add = |table: &Table, now| {
            with_room(table, &name("p"), &Scope::Url("/new".into()), Mode::Hard, mark(now))
        };
        let next = add(&table, now).unwrap();
        assert_eq!(next.len(), table::PURGES_MAX - 10 + 2);
        assert_eq!(next.verdict(&name("p"), "/9", 9, u64::MAX), Verdict::Gone);
        assert!(add(&table, 0).is_none(), "all are of the last day");
        assert_eq!(add(&table, now + day).unwrap().len(), 2);
    }
}
