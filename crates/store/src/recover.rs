//! Opening a store: what the last process left is sorted into representations and rubbish.
//!
//! For each key the metadata with the highest id that is whole and has its body wins; everything
//! else with a name of ours is removed. Nothing is read but metadata: blocks are verified at
//! their first use.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{Disk, Lock};
use crate::meta::{self, Meta, VERSION};
use crate::names::{MARKER, Part, Place, folder_path};
use crate::representation::{Found, Representation, map_bytes};
use crate::shared::{Remains, Shared, units};
use crate::store::{Params, Store};

/// Bytes of a metadata file at most that is looked at: a body of four thousand million blocks
/// would have more, none that fits a disk has.
const META_BYTES_MAX: u64 = 256 * 1024 * 1024;
const MARKER_BYTES_MAX: u64 = 64;

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
    /// Opens the store on `disk`, making it if there is none, and recovers what it holds; what is
    /// doubtful is dropped. Blocks.
    pub fn open(disk: Arc<dyn Disk>, params: Params) -> Result<Self, OpenError> {
        if meta::block_count(0, params.block_bytes).is_none() {
            return Err(OpenError::BlockBytes(params.block_bytes));
        }
        let lock = prepare(&*disk)?;
        let shared = Arc::new(Shared::new(disk, lock, params.capacity.0));
        shared.charge(meta::UNIT_BYTES); // the marker
        let mut found = Vec::new();
        let mut last_id = 0;
        for folder in 0..=u8::MAX {
            for (place, parts) in survey(&*shared.disk, folder)? {
                // The last process may have ended between a rename and the next sync.
                shared.note_renamed();
                last_id = last_id.max(place.id);
                match read(&*shared.disk, place, &parts) {
                    Some(meta) => found.push((meta, parts)),
                    None => sweep(&shared, place, &parts),
                }
            }
        }
        admit(&shared, found);
        // The ceiling may be lower than at the last start. A disk that refuses is counted.
        let _ = shared.clear_remains();
        let _ = shared.shrink();
        Ok(Self::with_next_id(shared, params.block_bytes, last_id.saturating_add(1)))
    }
}

/// Makes the folders and the marker of a new store; checks the marker of an old one. Nothing is
/// written before the folder is known to be ours alone.
fn prepare(disk: &dyn Disk) -> Result<Lock, OpenError> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |source| OpenError::Prepare { path, source }
    };
    disk.create_dir(Path::new("")).map_err(failed(Path::new(".")))?;
    let marker = Path::new(MARKER);
    let is_new = match read_file(disk, marker, MARKER_BYTES_MAX) {
        Ok(bytes) => match meta::read_marker(&bytes) {
            Ok(VERSION) => false,
            Ok(newer) => return Err(OpenError::Newer(newer)),
            Err(_) => return Err(OpenError::NotAStore),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(source) => return Err(OpenError::Read { path: MARKER.to_owned(), source }),
    };
    let lock = disk.lock().map_err(failed(Path::new("lock")))?.ok_or(OpenError::InUse)?;
    if is_new {
        write_marker(disk).map_err(failed(marker))?;
    }
    for folder in 0..=u8::MAX {
        let path = folder_path(folder);
        disk.create_dir(&path).map_err(failed(&path))?;
    }
    Ok(lock)
}

fn write_marker(disk: &dyn Disk) -> io::Result<()> {
    let temp = format!("{MARKER}.t");
    let file = disk.create(Path::new(&temp))?;
    disk.write_all_at(&file, &meta::marker(), 0)?;
    disk.sync(&file)?;
    disk.rename(Path::new(&temp), Path::new(MARKER))
}

/// What files a folder has, by representation, with their allocated bytes.
fn survey(disk: &dyn Disk, folder: u8) -> Result<BTreeMap<Place, BTreeMap<Part, u64>>, OpenError> {
    let path = folder_path(folder);
    let entries = disk
        .list(&path)
        .map_err(|source| OpenError::Read { path: path.display().to_string(), source })?;
    let mut places: BTreeMap<Place, BTreeMap<Part, u64>> = BTreeMap::new();
    for entry in entries {
        if let Some((place, part)) = Place::parse(folder, &entry.name) {
            places.entry(place).or_default().insert(part, entry.allocated_bytes);
        }
    }
    Ok(places)
}

fn read(disk: &dyn Disk, place: Place, parts: &BTreeMap<Part, u64>) -> Option<Meta> {
    if !parts.contains_key(&Part::Body) || !parts.contains_key(&Part::Meta) {
        return None;
    }
    let bytes = read_file(disk, &place.path(Part::Meta), META_BYTES_MAX).ok()?;
    Meta::decode(place, &bytes).ok()
}

fn read_file(disk: &dyn Disk, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = disk.open_read(path)?;
    let len = file.metadata()?.len();
    if len > bytes_max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match disk.read_at(&file, rest, u64::try_from(done).unwrap_or(u64::MAX)) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(got) => done = done.saturating_add(got),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// Makes the newest of each key visible, in order of creation; the others become rubbish.
fn admit(shared: &Arc<Shared>, mut found: Vec<(Meta, BTreeMap<Part, u64>)>) {
    found.sort_by_key(|(meta, _)| meta.place.id);
    let newest: HashMap<_, _> = found.iter().map(|(m, _)| (m.place.key, m.place.id)).collect();
    for (meta, parts) in found {
        if newest.get(&meta.place.key) != Some(&meta.place.id) {
            sweep(shared, meta.place, &parts);
            continue;
        }
        drop_temp(shared, meta.place, &parts);
        let allocated = |part| units(parts.get(&part).copied().unwrap_or(0));
        // A file system that has not allocated yet may say less than it will use.
        let body_bytes = allocated(Part::Body).max(body_bytes(&meta));
        let meta_bytes = allocated(Part::Meta).max(units(1));
        shared.charge(body_bytes.saturating_add(meta_bytes));
        let found = Found { meta, body_bytes, meta_bytes };
        let rep = Representation::recovered(Arc::clone(shared), found);
        shared.index_mut().insert(rep);
    }
}

/// Bytes that the held blocks of a body occupy.
fn body_bytes(meta: &Meta) -> u64 {
    let block = u64::from(meta.block_bytes);
    let held = (0u64..).zip(&meta.blocks).filter(|(_, crc)| crc.is_some());
    let bytes =
        held.map(|(at, _)| units(meta.length.saturating_sub(at.saturating_mul(block)).min(block)));
    let count = u32::try_from(meta.blocks.len()).unwrap_or(u32::MAX);
    bytes.sum::<u64>().saturating_add(map_bytes(count))
}

/// Leaves the files of a place that holds nothing usable to be removed.
fn sweep(shared: &Shared, place: Place, parts: &BTreeMap<Part, u64>) {
    drop_temp(shared, place, parts);
    let bytes = |part| parts.get(&part).map_or(0, |allocated| units((*allocated).max(1)));
    let remains = Remains {
        place,
        meta_bytes: bytes(Part::Meta),
        temp_bytes: 0,
        body_bytes: bytes(Part::Body),
    };
    shared.charge(remains.meta_bytes.saturating_add(remains.body_bytes));
    shared.leave_remains(remains);
}

fn drop_temp(shared: &Shared, place: Place, parts: &BTreeMap<Part, u64>) {
    let Some(allocated) = parts.get(&Part::MetaTemp) else { return };
    if let Err(error) = shared.remove_file(place, Part::MetaTemp) {
        shared.refused("remove a file", error);
        shared.charge(units(*allocated));
    }
}
