//! Opening a store: the index comes from its log, and nothing else is read.
//!
//! What the log says and the disk does not have turns out at its first use; what the disk has and the
//! log does not say is swept up later (`sweep`), or at once when the log cannot be trusted. Only the
//! list of segments is looked at: what was in one that is gone is dropped.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{Disk, Lock};
use crate::entry::{self, Change, ENTRY_BYTES};
use crate::index::{Index, Spot};
use crate::load::read_file;
use crate::log::{Log, LogFile, begin};
use crate::meta::{self, UNIT_BYTES, VERSION};
use crate::names::{
    LOG, LOG_TEMP, MARKER, Place, SEGMENTS, folder_path, parse_segment, segment_path,
};
use crate::segments::Segment;
use crate::shared::{Shared, units};
use crate::store::{Params, Store};

const MARKER_BYTES_MAX: u64 = 64;
/// Records read at a time.
const CHUNK_RECORDS: usize = 1 << 14;
/// Ids that a damaged log has promised at most without us knowing.
const IDS_LOST: u64 = 1 << 40;
/// Bytes behind the last good record that a process killed while it wrote may have left. More is
/// damage.
const TORN_BYTES_MAX: u64 = 1 << 20;

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The block size of the parameters is out of range.
    #[error("a block of {0} bytes is not possible: use a multiple of 4096, at most 64 MiB")]
    BlockBytes(u32),
    /// The folder cannot be prepared.
    #[error("cannot make the folder {path} of the store; check its owner and the disk")]
    Prepare {
        /// The folder or file, relative to the store.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The folder cannot be read.
    #[error("cannot read {path} of the store; check its owner and the disk")]
    Read {
        /// The folder or file, relative to the store.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// Another store is open on the folder.
    #[error(
        "another process uses this folder: stop it, or give each process a folder of its own \
         (two on one would overwrite each other's files)"
    )]
    InUse,
    /// The folder has a `format` file that is none of ours.
    #[error("the folder holds something else than a store; choose an empty one")]
    NotAStore,
    /// A newer release made it.
    #[error("the store has format {0}, this release knows {VERSION}; upgrade, or empty the folder")]
    Newer(u32),
}

impl Store {
    /// Whether a store can be opened on `disk` as far as that can be seen without touching it, while
    /// another process may have it open. Blocks.
    ///
    /// # Errors
    /// When it is of a newer release, something else, or cannot be read.
    pub fn look(disk: &dyn Disk) -> Result<(), OpenError> {
        version_of(disk).map(drop)
    }

    /// Opens the store on `disk`, making it if there is none, and recovers what it holds; what is
    /// doubtful is dropped. Blocks.
    pub fn open(disk: Arc<dyn Disk>, params: Params) -> Result<Self, OpenError> {
        if meta::block_count(0, params.block_bytes).is_none() {
            return Err(OpenError::BlockBytes(params.block_bytes));
        }
        let prepared = prepare(&*disk)?;
        let mut index = Index::default();
        let read = read_log(&*disk, &mut index)?;
        let is_trusted = read.is_trusted && prepared.former.is_none();
        let first_id = read.first_id.max(1);
        let reserved = units(read.file.len).saturating_add(UNIT_BYTES);
        let log = Log::new(LogFile { reserved, ..read.file }, first_id);
        log.note_id(first_id);
        let shared = Arc::new(Shared::new(disk, prepared.lock, params, log));
        // The marker, and the log.
        shared.charge(meta::UNIT_BYTES.saturating_add(reserved));
        settle(&shared, index)?;
        if is_trusted {
            shared.begin_sweep(first_id);
        } else {
            shared.begin_sweep(u64::MAX);
            shared.sweep_all();
        }
        // The last process may have ended between a rename and the next sync.
        shared.note_changed();
        // The ceiling may be lower than at the last start. A disk that refuses is counted.
        let _ = shared.shrink();
        Ok(Self::with_next_id(shared, params.block_bytes, first_id, prepared.former))
    }
}

/// A folder that is ours.
struct Prepared {
    lock: Lock,
    /// The version of what was in it and had to go.
    former: Option<u32>,
}

/// Makes the folders and the marker of a new store; checks the marker of an old one, and empties it
/// when it is of a former version. Nothing is written before the folder is known to be ours alone.
fn prepare(disk: &dyn Disk) -> Result<Prepared, OpenError> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |source| OpenError::Prepare { path, source }
    };
    disk.create_dir(Path::new("")).map_err(failed(Path::new(".")))?;
    let marker = Path::new(MARKER);
    let version = version_of(disk)?;
    let lock = disk.lock().map_err(failed(Path::new("lock")))?.ok_or(OpenError::InUse)?;
    let segments = Path::new(SEGMENTS);
    disk.create_dir(segments).map_err(failed(segments))?;
    for folder in 0..=u8::MAX {
        let path = folder_path(folder);
        disk.create_dir(&path).map_err(failed(&path))?;
    }
    let former = version.filter(|version| *version < VERSION);
    if former.is_some() {
        empty(disk)?;
    }
    if version != Some(VERSION) {
        replace(disk, marker, &meta::marker()).map_err(failed(marker))?;
    }
    Ok(Prepared { lock, former })
}

/// The version of the store in the folder; `None`: there is none yet.
fn version_of(disk: &dyn Disk) -> Result<Option<u32>, OpenError> {
    match read_file(disk, Path::new(MARKER), MARKER_BYTES_MAX) {
        Ok(bytes) => match meta::read_marker(&bytes) {
            Ok(version) if version <= VERSION => Ok(Some(version)),
            Ok(newer) => Err(OpenError::Newer(newer)),
            Err(_) => Err(OpenError::NotAStore),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(OpenError::Read { path: MARKER.to_owned(), source }),
    }
}

/// Writes a file whole, beside what is there.
fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<File> {
    let temp = path.with_extension("t");
    let file = disk.create(&temp)?;
    disk.write_all_at(&file, bytes, 0)?;
    disk.sync(&file)?;
    disk.rename(&temp, path)?;
    Ok(file)
}

/// Removes all objects: a cache is rebuilt, never reinterpreted.
fn empty(disk: &dyn Disk) -> Result<(), OpenError> {
    // Segments that no log names are removed when the index is settled.
    match disk.remove(Path::new(LOG)) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(OpenError::Prepare { path: LOG.to_owned(), source });
        }
        _ => {}
    }
    for folder in 0..=u8::MAX {
        let path = folder_path(folder);
        for name in list(disk, &path)?.into_iter().map(|entry| entry.name) {
            if Place::parse(folder, &name).is_some() {
                let path = path.join(name);
                let text = path.display().to_string();
                disk.remove(&path).map_err(|source| OpenError::Prepare { path: text, source })?;
            }
        }
    }
    Ok(())
}

fn list(disk: &dyn Disk, path: &Path) -> Result<Vec<crate::Entry>, OpenError> {
    let failed = |source| OpenError::Read { path: path.display().to_string(), source };
    disk.list(path).map_err(failed)
}

/// What the log says besides the index.
struct ReadLog {
    file: LogFile,
    first_id: u64,
    /// It is whole but perhaps for its very end.
    is_trusted: bool,
}

fn read_log(disk: &dyn Disk, index: &mut Index) -> Result<ReadLog, OpenError> {
    let path = Path::new(LOG);
    let failed = |source| OpenError::Read { path: LOG.to_owned(), source };
    let replayed = match disk.open_write(path) {
        Ok(file) => replay(disk, file, index).map_err(failed)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(source) => return Err(failed(source)),
    };
    // Best effort: one that stays is overwritten by the next.
    let _ = disk.remove(Path::new(LOG_TEMP));
    if let Some(read) = replayed {
        return Ok(read);
    }
    let (bytes, crc) = begin(&[]);
    let file = replace(disk, path, &bytes)
        .map_err(|source| OpenError::Prepare { path: LOG.to_owned(), source })?;
    let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let file = LogFile { file: Some(file), len, crc, ..LogFile::default() };
    Ok(ReadLog { file, first_id: 0, is_trusted: false })
}

/// Does again what the log says, up to the first record that is not whole. `None`: it is no log.
fn replay(disk: &dyn Disk, file: File, index: &mut Index) -> io::Result<Option<ReadLog>> {
    let size = file.metadata()?.len();
    let mut chunk = vec![0; CHUNK_RECORDS.saturating_mul(ENTRY_BYTES)];
    let (mut len, mut crc, mut first_id) = (0u64, 0, 0);
    'reading: loop {
        let got = read_full(disk, &file, &mut chunk, len)?;
        let (records, _) = chunk.get(..got).unwrap_or_default().as_chunks::<ENTRY_BYTES>();
        if records.is_empty() {
            break;
        }
        for record in records {
            let Some(next) = entry::check(record, crc) else { break 'reading };
            if len == 0 {
                if !entry::is_header(record) {
                    return Ok(None);
                }
            } else {
                let Ok(change) = Change::decode(record) else { break 'reading };
                first_id = first_id.max(apply(index, change));
            }
            crc = next;
            len = len.saturating_add(u64::try_from(ENTRY_BYTES).unwrap_or(0));
        }
    }
    if len == 0 {
        return Ok(None);
    }
    let torn = size.saturating_sub(len);
    if torn > 0 {
        // What is cut off may have promised ids: all of the past stays below the new ones.
        first_id = first_id.saturating_add(IDS_LOST);
    }
    // What is behind is never taken for ours; it only takes room.
    let is_bad = torn > 0 && disk.set_len(&file, len).is_err();
    let file = LogFile { file: Some(file), len, crc, is_bad, ..LogFile::default() };
    Ok(Some(ReadLog { file, first_id, is_trusted: torn <= TORN_BYTES_MAX }))
}

fn read_full(disk: &dyn Disk, file: &File, out: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let at = offset.saturating_add(u64::try_from(done).unwrap_or(u64::MAX));
        match disk.read_at(file, rest, at) {
            Ok(0) => break,
            Ok(got) => done = done.saturating_add(got),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Does one change; gives the id from which on ids may be new.
fn apply(index: &mut Index, change: Change) -> u64 {
    match change {
        Change::At(place, spot) => {
            index.restore(place, spot);
            place.id.saturating_add(1)
        }
        Change::Gone(place) => {
            index.remove(place);
            place.id.saturating_add(1)
        }
        Change::Ids(id) => id,
    }
}

/// Puts the index in order, with the segments that are there.
fn settle(shared: &Arc<Shared>, mut index: Index) -> Result<(), OpenError> {
    let entries = list(&*shared.disk, Path::new(SEGMENTS))?;
    let found: Vec<(u32, u64)> = entries
        .into_iter()
        .filter_map(|entry| Some((parse_segment(&entry.name)?, entry.allocated_bytes)))
        .collect();
    let numbers: Vec<u32> = found.iter().map(|(number, _)| *number).collect();
    index.settle(&numbers);
    let next = numbers.iter().max().map_or(0, |number| number.saturating_add(1));
    let mut file_units = 0u64;
    for slot in 0..index.slots() {
        if let Some((_, Spot::File { units })) = index.at(slot) {
            file_units = file_units.saturating_add(units.into());
        }
    }
    shared.charge(file_units.saturating_mul(UNIT_BYTES));
    let mut segments = Vec::new();
    for (number, allocated) in found {
        // A file system that has not allocated yet may say less than it will use.
        let end = index.end_of(number);
        if end == 0 && shared.disk.remove(&segment_path(number)).is_ok() {
            index.remove_segment(number);
            continue;
        }
        let reserved = units(allocated.max(end));
        shared.charge(reserved);
        segments.push(Segment::new(number, reserved));
    }
    shared.segments.restore(segments, next);
    index.forget_spared();
    *shared.index_mut() = index;
    Ok(())
}
