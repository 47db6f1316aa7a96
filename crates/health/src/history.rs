//! The last node maps on disk, for people who look back and for those who go back.
//!
//! In the state directory, `node-maps/GENERATION.edit.json` is a map whose admin part was new, and
//! `GENERATION.state.json` one in which only states were. Of each kind the last [`KEPT`] are there, so
//! that nodes which come and go all night push no edit out.
//!
//! **Going back** publishes the admin part of an old map under a new generation, until the maps folder
//! is edited again: that is, until it says something else than what it said when somebody went back,
//! which `rollback.json` remembers over restarts.

use std::io;
use std::path::{Path, PathBuf};

use nodemap::{AdminMap, NodeMap};
use rt::{file, follow};
use serde::{Deserialize, Serialize};

use crate::desk::Published;

/// Maps of each kind that are kept.
pub const KEPT: usize = 32;
/// Version of `rollback.json`.
const FORMAT: u32 = 1;
/// Bytes of a kept rollback: its map, and what it set aside.
const BYTES_MAX: u64 = (follow::NODE_MAP_BYTES_MAX as u64).saturating_mul(2);

/// A node map that was published.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kept {
    /// Its generation.
    pub generation: u64,
    /// Whether its admin part was new.
    pub edited: bool,
}

impl Kept {
    fn name(&self) -> String {
        let kind = if self.edited { "edit" } else { "state" };
        format!("{}.{kind}.json", self.generation)
    }

    fn of(name: &str) -> Option<Self> {
        let (generation, kind) = name.strip_suffix(".json")?.split_once('.')?;
        let edited = match kind {
            "edit" => true,
            "state" => false,
            _ => return None,
        };
        Some(Self { generation: generation.parse().ok()?, edited })
    }
}

fn folder(state_dir: &Path) -> PathBuf {
    state_dir.join("node-maps")
}

/// The maps that are kept, the oldest first.
///
/// # Errors
/// The folder is there and cannot be read.
pub fn kept(state_dir: &Path) -> io::Result<Vec<Kept>> {
    let entries = match std::fs::read_dir(folder(state_dir)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut all: Vec<Kept> = names.filter_map(|name| Kept::of(&name)).collect();
    all.sort();
    Ok(all)
}

/// The document of a map that is kept.
///
/// # Errors
/// It is not there, or cannot be read.
pub fn document(state_dir: &Path, generation: u64) -> io::Result<Vec<u8>> {
    let all = kept(state_dir)?;
    let found = all.iter().find(|kept| kept.generation == generation);
    let found = found.ok_or(io::ErrorKind::NotFound)?;
    file::read_bounded(&folder(state_dir).join(found.name()), follow::NODE_MAP_BYTES_MAX as u64)
}

/// Keeps one more, and removes the oldest of its kind beyond [`KEPT`].
pub(crate) fn keep(state_dir: &Path, published: &Published) -> io::Result<()> {
    let Published { generation, edited, document, .. } = published;
    let new = Kept { generation: *generation, edited: *edited };
    std::fs::create_dir_all(folder(state_dir))?;
    file::write_atomic(&folder(state_dir).join(new.name()), document)?;
    let of_kind = kept(state_dir)?.into_iter().filter(|kept| kept.edited == *edited);
    let of_kind: Vec<Kept> = of_kind.collect();
    let beyond = of_kind.len().saturating_sub(KEPT);
    of_kind
        .iter()
        .take(beyond)
        .try_for_each(|old| std::fs::remove_file(folder(state_dir).join(old.name())))
}

/// That somebody went back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rollback {
    format: u32,
    /// To the map of this generation.
    pub(crate) generation: u64,
    /// Its admin part, in use.
    pub(crate) map: AdminMap,
    /// What the maps folder says meanwhile; what it says otherwise is an edit.
    pub(crate) aside: AdminMap,
}

/// Why one cannot go back.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RollbackError {
    #[error("generation {0} is not kept here: `cacheboy map show` lists those that are")]
    Unknown(u64),
    #[error("the map of generation {0} cannot be used: {1}")]
    Map(u64, nodemap::published::ParseError),
    #[error("it cannot be remembered for the next start: {0}")]
    Write(io::Error),
}

impl Rollback {
    /// Reads the map to go back to, and remembers for the next start that it is in use while the
    /// folder says `aside`.
    pub(crate) fn to(
        state_dir: &Path,
        generation: u64,
        aside: AdminMap,
    ) -> Result<Self, RollbackError> {
        let document =
            document(state_dir, generation).map_err(|_| RollbackError::Unknown(generation))?;
        let map = NodeMap::parse(&document).map_err(|why| RollbackError::Map(generation, why))?;
        let rollback = Self { format: FORMAT, generation, map: map.map, aside };
        let text = serde_json::to_vec(&rollback).unwrap_or_default();
        file::write_atomic(&path(state_dir), &text).map_err(RollbackError::Write)?;
        Ok(rollback)
    }

    /// That of the last run, if there is one.
    pub(crate) fn load(state_dir: &Path) -> Option<Self> {
        let bytes = file::read_bounded(&path(state_dir), BYTES_MAX);
        let read = serde_json::from_slice::<Self>(&bytes.ok()?);
        match read {
            Ok(rollback) if rollback.format == FORMAT => Some(rollback),
            _ => {
                tracing::warn!("rollback.json is unreadable: the maps folder holds");
                None
            }
        }
    }

    /// Ends it: the maps folder holds again.
    pub(crate) fn end(state_dir: &Path) {
        // A file that stays behind counts only while the folder says what it said then.
        let _ = std::fs::remove_file(path(state_dir));
    }
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join("rollback.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(generation: u64, edited: bool) -> Published {
        let document = nodemap::testing::node_map(generation).to_json().into();
        Published { generation, edited, document, acme: None, signature: None }
    }

    #[test]
    fn of_each_kind_the_last_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(kept(dir.path()).unwrap(), []);
        keep(dir.path(), &published(1, true)).unwrap();
        let last = KEPT as u64 + 5;
        (2..=last).for_each(|generation| keep(dir.path(), &published(generation, false)).unwrap());
        let all = kept(dir.path()).unwrap();
        assert_eq!(all.len(), KEPT + 1);
        assert_eq!(all[0], Kept { generation: 1, edited: true });
        assert_eq!(all[1].generation, last + 1 - KEPT as u64);
        assert_eq!(document(dir.path(), 1).unwrap(), published(1, true).document);
        assert_eq!(document(dir.path(), 2).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn going_back_is_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let aside = nodemap::testing::admin_map(&[("b", &["192.0.2.2"])]);
        let unknown = Rollback::to(dir.path(), 7, aside.clone()).unwrap_err();
        assert!(matches!(unknown, RollbackError::Unknown(7)), "{unknown}");
        keep(dir.path(), &published(7, true)).unwrap();
        let rollback = Rollback::to(dir.path(), 7, aside.clone()).unwrap();
        assert_eq!((rollback.generation, &rollback.aside), (7, &aside));
        assert_eq!(rollback.map, nodemap::testing::node_map(7).map);
        assert_eq!(Rollback::load(dir.path()), Some(rollback));
        Rollback::end(dir.path());
        assert_eq!(Rollback::load(dir.path()), None);
    }
}
