//! Drained by a person on the node itself: the health page says `draining` for a while, so that health
//! takes the node out of answers, and everybody who comes is served all the same.
//!
//! It is kept in the state folder, so that neither a restart nor a hand-over ends it, and ends by itself
//! when its time is over, if it was given one. Nobody else is needed for any of it. [`desk`] has what the
//! admin listener is asked and says.
//!
//! The file, `edge-drain.json`: `format` (1), `since_ms`, `until_ms` (or null), `reason`; there while the
//! node is drained. One that cannot be read is put aside, and the node is not drained.

mod desk;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use model::Now;
use model::time::utc;
use rt::metrics::{Gauge, edge as metric};
use rt::{Metrics, clock};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::state::Edge;
pub(crate) use desk::{answer_drain, answer_undrain};

/// The version of the file that is written and read.
const FORMAT: u32 = 1;
/// Larger than any that was written.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// That, since when, how long and why the node is drained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Drained {
    format: u32,
    /// Since when, milliseconds since 1970 UTC.
    since_ms: u64,
    /// When it ends by itself; `None`: when a person ends it.
    until_ms: Option<u64>,
    /// In words of that person.
    reason: String,
}

impl Drained {
    fn is_over(&self, now: Now) -> bool {
        self.until_ms.is_some_and(|until| until <= now.wall_ms)
    }

    /// For `/status` and receipts.
    pub(crate) fn shown(&self) -> Value {
        json!({
            "since": utc(self.since_ms), "until": self.until_ms.map(utc), "reason": self.reason,
        })
    }
}

/// Why a node is not drained as it should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DrainError {
    /// Another process has taken over.
    #[error(
        "handed-over: another process has taken over from this one; ask that, at the same admin \
         address"
    )]
    HandedOver,
    /// In effect, but only until the next start.
    #[error("in effect, but forgotten at a restart: cannot write {0}")]
    Unwritten(PathBuf, #[source] io::Error),
}

/// Whether this edge is drained.
#[derive(Debug)]
pub(crate) struct Drain {
    drained: ArcSwapOption<Drained>,
    /// Held while it changes; whether the file is another process's to write.
    changing: Mutex<bool>,
    file: PathBuf,
    shown: Gauge,
}

impl Drain {
    /// As it was left in `state_dir`. Blocks on the disk.
    pub(crate) fn open(state_dir: &Path, metrics: &Metrics) -> Self {
        let file = state_dir.join("edge-drain.json");
        let drained = load(&file).unwrap_or_else(|error| {
            let aside = file.with_extension("json.unread");
            let moved = std::fs::rename(&file, &aside).is_ok();
            let aside = if moved { aside.display().to_string() } else { String::new() };
            tracing::error!(
                %error, file = %file.display(), aside,
                "whether this node was drained cannot be read: it is not; drain it again if it should be"
            );
            None
        });
        if let Some(drained) = &drained {
            let until = drained.until_ms.map(utc);
            tracing::warn!(reason = drained.reason, until, "this node is drained");
        }
        let shown = metrics.gauge(&metric::DRAINED, &[]);
        shown.set(i64::from(drained.is_some()));
        let drained = ArcSwapOption::from_pointee(drained);
        Self { drained, changing: Mutex::default(), file, shown }
    }

    /// Why it is drained, while it is.
    pub(crate) fn now(&self, now: Now) -> Option<Arc<Drained>> {
        self.drained.load_full().filter(|drained| !drained.is_over(now))
    }

    /// Drains it, or drains it longer and for another reason. Blocks on the disk.
    fn drain(
        &self,
        now: Now,
        for_ms: Option<u64>,
        reason: String,
    ) -> Result<Arc<Drained>, DrainError> {
        let is_given = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_given {
            return Err(DrainError::HandedOver);
        }
        let since_ms = self.now(now).map_or(now.wall_ms, |drained| drained.since_ms);
        let until_ms = for_ms.map(|ms| now.wall_ms.saturating_add(ms));
        let drained = Arc::new(Drained { format: FORMAT, since_ms, until_ms, reason });
        self.drained.store(Some(Arc::clone(&drained)));
        self.shown.set(1);
        let bytes = serde_json::to_vec_pretty(&*drained).map_err(io::Error::other);
        bytes
            .and_then(|bytes| rt::file::write_atomic(&self.file, &bytes))
            .map(|()| drained)
            .map_err(|error| DrainError::Unwritten(self.file.clone(), error))
    }

    /// Ends it: what it was, if it was drained. Blocks on the disk.
    fn undrain(&self) -> Result<Option<Arc<Drained>>, DrainError> {
        let is_given = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_given {
            return Err(DrainError::HandedOver);
        }
        let was = self.drained.swap(None);
        self.shown.set(0);
        match std::fs::remove_file(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(DrainError::Unwritten(self.file.clone(), error))
            }
            _ => Ok(was),
        }
    }

    /// Ends it when its time is over. Blocks on the disk.
    pub(crate) fn tend(&self, now: Now) {
        let drained = self.drained.load_full();
        if drained.is_none_or(|drained| !drained.is_over(now)) {
            return;
        }
        match self.undrain() {
            Ok(_) => tracing::info!("the time for which this node was drained is over"),
            // It is the other process's to end.
            Err(DrainError::HandedOver) => {}
            Err(error) => {
                tracing::warn!(%error, "the time for which this node was drained is over")
            }
        }
    }

    /// The file is another process's from now on.
    pub(crate) fn hand_over(&self) {
        *self.changing.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }
}

impl Edge {
    /// Whether it is told not to be sent any more clients: what the health page says.
    pub(crate) fn is_draining(&self) -> bool {
        self.shutdown.is_leaving() || self.drain.now(clock::now()).is_some()
    }
}

fn load(file: &Path) -> io::Result<Option<Drained>> {
    let bytes = match rt::file::read_bounded(file, FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let drained: Drained = serde_json::from_slice(&bytes)?;
    if drained.format > FORMAT {
        let words = format!("it has format {}, this program reads {FORMAT}", drained.format);
        return Err(io::Error::other(words));
    }
    Ok(Some(drained))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const NOW: Now = Now { mono_ns: 0, wall_ms: 1_796_040_000_000 };

    fn open(dir: &Path) -> Drain {
        Drain::open(dir, &Metrics::default())
    }

    #[test]
    fn it_outlives_a_restart_and_ends_when_its_time_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("edge-drain.json");
        let drain = open(dir.path());
        assert_eq!(drain.now(NOW), None);
        drain.drain(NOW, None, "new disk".to_owned()).unwrap();
        let later = NOW.plus_ms(1000);
        drain.drain(later, Some(5000), "new \"disk\"".to_owned()).unwrap();
        let document = r#"{
  "format": 1,
  "since_ms": 1796040000000,
  "until_ms": 1796040006000,
  "reason": "new \"disk\""
}"#;
        assert_eq!(fs::read_to_string(&file).unwrap(), document);
        drop(drain);
        let drain = open(dir.path());
        assert_eq!(drain.shown.get(), 1);
        assert!(drain.now(later.plus_ms(4999)).is_some());
        drain.tend(later.plus_ms(4999));
        assert!(file.exists());
        assert_eq!(drain.now(later.plus_ms(5000)), None, "before anybody has tended it");
        drain.tend(later.plus_ms(5000));
        assert_eq!((file.exists(), drain.shown.get()), (false, 0));
        assert_eq!(open(dir.path()).now(NOW), None);
    }

    #[test]
    fn it_is_ended_by_hand_and_by_nobody_who_has_handed_over() {
        let dir = tempfile::tempdir().unwrap();
        let (former, file) = (open(dir.path()), dir.path().join("edge-drain.json"));
        assert_eq!(former.undrain().unwrap(), None);
        former.drain(NOW, Some(1), String::new()).unwrap();
        former.hand_over();
        former.tend(NOW.plus_ms(1));
        assert!(matches!(former.undrain(), Err(DrainError::HandedOver)));
        let again = former.drain(NOW, None, String::new());
        assert!(matches!(again, Err(DrainError::HandedOver)));
        assert!(file.exists());
        let next = open(dir.path());
        assert!(next.undrain().unwrap().is_some());
        assert_eq!((file.exists(), next.now(NOW)), (false, None));
    }

    #[test]
    fn what_cannot_be_read_is_put_aside_and_what_cannot_be_written_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let (file, aside) =
            (dir.path().join("edge-drain.json"), dir.path().join("edge-drain.json.unread"));
        let newer = r#"{"format":2,"since_ms":1,"until_ms":null,"reason":""}"#;
        for damaged in ["", "{", newer] {
            fs::write(&file, damaged).unwrap();
            assert_eq!(open(dir.path()).now(NOW), None);
            assert_eq!(
                (file.exists(), fs::read_to_string(&aside).unwrap()),
                (false, damaged.into())
            );
        }
        let drain = open(&dir.path().join("none"));
        let done = drain.drain(NOW, None, String::new());
        assert!(matches!(done, Err(DrainError::Unwritten(..))));
        assert!(drain.now(NOW).is_some(), "it is in effect all the same");
    }
}
