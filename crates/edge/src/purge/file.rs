//! The list of purges on disk: `edge-purges.json` in the state folder, whole or absent.
//!
//! `docs/formats/purges.md` has the format.

use std::io;
use std::path::{Path, PathBuf};

use model::Name;
use serde::{Deserialize, Serialize};

use super::table::{Mark, Mode, Scope, Table};

/// The version of the file that is written and read.
const FORMAT: u32 = 1;
/// Larger than any list that was written.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Why the list cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// The system refused to read it.
    #[error("cannot read the list of purges {0}")]
    Read(PathBuf, #[source] io::Error),
    /// It is damaged.
    #[error("the list of purges {0} is damaged")]
    Damaged(PathBuf, #[source] serde_json::Error),
    /// Written by a newer Cacheboy.
    #[error("the list of purges {0} has format {1}, this program reads {FORMAT}")]
    Newer(PathBuf, u32),
    /// The system refused to write it.
    #[error("cannot write the list of purges {0}: check its folder and its disk")]
    Write(PathBuf, #[source] io::Error),
}

#[derive(Serialize, Deserialize)]
struct Head {
    format: u32,
}

#[derive(Serialize, Deserialize)]
struct Document {
    format: u32,
    latest_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lost_ms: Option<u64>,
    purges: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    project: Name,
    #[serde(flatten)]
    scope: Scope,
    mode: Mode,
    at_ms: u64,
    order_ms: u64,
}

/// Where the list lies.
pub(super) fn path(state_dir: &Path) -> PathBuf {
    state_dir.join("edge-purges.json")
}

/// The list and the latest stamp that its edge knew of; nothing when there is no file.
pub(super) fn load(path: &Path) -> Result<(Table, u64), FileError> {
    let bytes = match rt::file::read_bounded(path, FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Table::default(), 0)),
        Err(error) => return Err(FileError::Read(path.to_owned(), error)),
    };
    let damaged = |error| FileError::Damaged(path.to_owned(), error);
    let head: Head = serde_json::from_slice(&bytes).map_err(damaged)?;
    if head.format > FORMAT {
        return Err(FileError::Newer(path.to_owned(), head.format));
    }
    let mut document: Document = serde_json::from_slice(&bytes).map_err(damaged)?;
    document.purges.sort_by_key(|line| line.order_ms);
    let mut table = Table::after_loss(document.lost_ms);
    for Line { project, scope, mode, at_ms, order_ms } in document.purges {
        table.put(&project, &scope, mode, Mark { at_ms, order_ms, seq: 0 });
    }
    Ok((table, document.latest_ms))
}

/// Puts a list that cannot be read out of the way, for people to look at.
pub(super) fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = path.with_extension("json.unread");
    std::fs::rename(path, &aside)?;
    Ok(aside)
}

/// Writes the list and the latest stamp.
pub(super) fn save(path: &Path, table: &Table, latest_ms: u64) -> Result<(), FileError> {
    let line = |(project, scope, mode, mark): (&Name, Scope, Mode, Mark)| Line {
        project: project.clone(),
        scope,
        mode,
        at_ms: mark.at_ms,
        order_ms: mark.order_ms,
    };
    let purges = table.all().map(line).collect();
    let document = Document { format: FORMAT, latest_ms, lost_ms: table.lost_ms(), purges };
    let written = serde_json::to_vec_pretty(&document).map_err(io::Error::other);
    written
        .and_then(|bytes| rt::file::write_atomic(path, &bytes))
        .map_err(|error| FileError::Write(path.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::purge::Verdict;

    #[test]
    fn the_file_is_as_documented_and_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path());
        assert!(load(&path).unwrap().0.is_empty());
        let document = r#"{
  "format": 1,
  "latest_ms": 1796040000123,
  "purges": [
    {
      "project": "videolan",
      "scope": "project",
      "mode": "soft",
      "at_ms": 1796040000001,
      "order_ms": 1796040000001
    },
    {
      "project": "videolan",
      "scope": "prefix",
      "target": "/vlc/",
      "mode": "hard",
      "at_ms": 1796040000002,
      "order_ms": 1796040000003
    },
    {
      "project": "videolan",
      "scope": "url",
      "target": "/a?b",
      "mode": "soft",
      "at_ms": 1796040000004,
      "order_ms": 1796040000004
    }
  ]
}"#;
        std::fs::write(&path, document).unwrap();
        let (table, latest_ms) = load(&path).unwrap();
        let verdict = |target, at: u64| {
            table.verdict(&"videolan".parse().unwrap(), target, 1_796_040_000_000 + at, u64::MAX)
        };
        assert_eq!(verdict("/vlc/x", 3), Verdict::Gone);
        assert_eq!(verdict("/vlc/x", 4), Verdict::Keep);
        assert_eq!(verdict("/a?b", 4), Verdict::Stale);
        assert_eq!(verdict("/b", 1), Verdict::Stale);
        save(&path, &table, latest_ms).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), document);
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_an_empty_list() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path());
        for (text, words) in [
            ("", "is damaged"),
            ("{}", "is damaged"),
            ("{\"format\": 1}", "is damaged"),
            ("{\"format\": 2}", "has format 2"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = load(&path).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(matches!(load(&path), Err(FileError::Read(..))));
    }
}
