//! Finding a representation: in memory at once, or on the disk.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::disk::Disk;
use crate::file_body::{FileBody, Found, held_bytes};
use crate::index::Spot;
use crate::meta::{Meta, UNIT_BYTES};
use crate::names::{Key, Part, Place};
use crate::packed::{PackedBody, Seat, read_record};
use crate::record::{FIXED_BYTES, Record};
use crate::representation::{Body, Representation};
use crate::shared::{Shared, lock, units};
use crate::store::Store;

/// Bytes of a metadata file at most that is looked at: a body of four thousand million blocks
/// would have more, none that fits a disk has.
const META_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// How often one may move under the hands of who loads it.
const MOVES_MAX: usize = 8;

/// What a store has of a key.
#[derive(Clone, Debug)]
pub enum Held {
    /// Nothing.
    Absent,
    /// A representation, marked as asked for.
    Ready(Arc<Representation>),
    /// Something that is not in memory: [`Store::load`] it off the worker threads.
    OnDisk,
}

/// Why something the index knows cannot be had.
enum Trouble {
    /// It is not there any more, or not what was stored.
    Lost { corrupt: bool },
    /// The disk does not answer.
    Disk(io::Error),
}

impl Store {
    /// What is visible of a key. Never touches the disk.
    pub fn look_up(&self, key: &Key) -> Held {
        if let Some(rep) = self.shared.live.get(key) {
            rep.visit();
            return Held::Ready(rep);
        }
        match self.shared.index().get(key) {
            Some(_) if self.shared.is_writing() => Held::OnDisk,
            _ => Held::Absent,
        }
    }

    /// The visible representation of a key, brought into memory for who asks for it next and spared
    /// by eviction until then; what cannot be read is a miss. Blocks.
    pub fn load(&self, key: &Key) -> Option<Arc<Representation>> {
        let rep = self.shared.load(key)?;
        rep.touch();
        if self.shared.live.is_over() {
            self.shared.trim_memory();
        }
        Some(rep)
    }
}

impl Shared {
    /// The visible representation of a key, brought into memory if need be. Blocks.
    pub(crate) fn load(self: &Arc<Self>, key: &Key) -> Option<Arc<Representation>> {
        if let Some(rep) = self.live.get(key) {
            return Some(rep);
        }
        let Key([.., stripe]) = *key;
        let stripes = self.loading.len();
        let stripe = usize::from(stripe).checked_rem(stripes).unwrap_or(0);
        let _loading = lock(self.loading.get(stripe)?);
        if self.tenure.is_gone() {
            return None;
        }
        for _ in 0..MOVES_MAX {
            if let Some(rep) = self.live.get(key) {
                return Some(rep);
            }
            let (place, spot) = self.index().get(key)?;
            let rep = match self.read_from_disk(place, spot) {
                Ok(rep) => rep,
                Err(Trouble::Disk(error)) => {
                    self.note_device(&error);
                    return None;
                }
                Err(Trouble::Lost { corrupt }) => {
                    if self.forget_lost(place, spot, corrupt) {
                        return None;
                    }
                    continue;
                }
            };
            let index = self.index();
            if index.spot(place) == Some(spot) {
                self.live.insert(&rep);
                drop(index);
                self.note_newcomer(&rep);
                self.count_units(&rep, spot);
                return Some(rep);
            }
        }
        None
    }

    fn read_from_disk(
        self: &Arc<Self>,
        place: Place,
        spot: Spot,
    ) -> Result<Arc<Representation>, Trouble> {
        match spot {
            // Those are in memory; it has just gone.
            Spot::Filling => Err(Trouble::Lost { corrupt: false }),
            Spot::File { units } => self.read_file(place, units),
            Spot::Packed { segment, offset, len } => self.read_packed(place, segment, offset, len),
        }
    }

    fn read_file(
        self: &Arc<Self>,
        place: Place,
        counted: u32,
    ) -> Result<Arc<Representation>, Trouble> {
        let path = place.path(Part::Meta);
        let read = || read_file(&*self.disk, &path, META_BYTES_MAX);
        let bytes = self.with_file_to_spare(read).map_err(trouble)?;
        let meta = Meta::decode(place, &bytes).map_err(|_| Trouble::Lost { corrupt: true })?;
        let meta_bytes = units(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let counted = u64::from(counted).saturating_mul(UNIT_BYTES);
        let body_bytes = counted.saturating_sub(meta_bytes).max(held_bytes(&meta));
        let verified = self.index().is_verified(place);
        let body = FileBody::found(&Found { meta: &meta, body_bytes, meta_bytes, verified });
        let (shared, body) = (Arc::clone(self), Body::File(body));
        Ok(Representation::new(shared, place, meta.length, meta.block_bytes, meta.head, body))
    }

    fn read_packed(
        self: &Arc<Self>,
        place: Place,
        segment: u32,
        offset: u32,
        len: u32,
    ) -> Result<Arc<Representation>, Trouble> {
        let lost = Trouble::Lost { corrupt: false };
        let segment = self.segments.get(segment).ok_or(lost)?;
        let bytes = read_record(self, &segment, offset, len).map_err(trouble)?;
        let record = Record::decode(place, &bytes).map_err(|_| Trouble::Lost { corrupt: true })?;
        let body_at = FIXED_BYTES.saturating_add(record.head.len());
        let body_at = u32::try_from(body_at).unwrap_or(u32::MAX);
        // Asked for again: this is at least the second time.
        let is_hot = self.index().is_used(place);
        let memory = is_hot.then(|| Bytes::copy_from_slice(&record.body));
        let seat = Seat { segment, offset, len, body_at };
        let body = PackedBody::found(seat, record.body_crc, memory);
        let length = u64::try_from(record.body.len()).unwrap_or(u64::MAX);
        let head = Bytes::copy_from_slice(&record.head);
        let (shared, body) = (Arc::clone(self), Body::Packed(body));
        let rep = Representation::new(shared, place, length, record.block_bytes, head, body);
        if is_hot {
            rep.note_asked_before();
        }
        Ok(rep)
    }

    /// Takes what is not there any more out of the index; `false`: it has moved meanwhile.
    pub(crate) fn forget_lost(&self, place: Place, spot: Spot, corrupt: bool) -> bool {
        let mut index = self.index_mut();
        if index.spot(place) != Some(spot) {
            return false;
        }
        index.remove(place);
        self.note_gone(place, spot);
        drop(index);
        if corrupt {
            self.count_corrupt();
        }
        self.leave_file(place, spot);
        true
    }

    /// Counts what the files of a representation were found to occupy beyond what was known.
    fn count_units(&self, rep: &Representation, spot: Spot) {
        if let (Some(body), Spot::File { units }) = (rep.file_body(), spot) {
            let more = body.units().saturating_sub(units);
            if more > 0 {
                self.charge(u64::from(more).saturating_mul(UNIT_BYTES));
                self.note_units(rep, body);
            }
        }
    }
}

fn trouble(error: io::Error) -> Trouble {
    match error.kind() {
        io::ErrorKind::NotFound => Trouble::Lost { corrupt: false },
        io::ErrorKind::UnexpectedEof | io::ErrorKind::FileTooLarge => {
            Trouble::Lost { corrupt: true }
        }
        _ => Trouble::Disk(error),
    }
}

pub(crate) fn read_file(disk: &dyn Disk, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
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
