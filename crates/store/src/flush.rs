//! Making what was stored durable, in rounds:
//!
//! 1. metadata of all that has changed is written under temporary names; what has none in place
//!    yet gets it at once, and packed objects with a new head get a new record; then the changes of
//!    the index are appended to its log, so that a kill from here on costs nothing;
//! 2. everything is synced in one call, which a thousand small objects need as badly as one large;
//! 3. metadata that replaces older is put in place, and that is synced too.
//!
//! So metadata that was durable is only ever replaced by durable metadata whose blocks are durable.
//! Power loss between 1 and 2 can leave new metadata without its blocks: their checksums tell.
//!
//! A flush can take long (a slow disk has to take all of it), so it pins nothing: what it writes down
//! can be evicted under its hands like anything else that nobody reads.
//!
//! A failed sync leaves all blocks written since the last one in doubt (the kernel drops pages it
//! could not write): their representations are discarded. What else fails is tried again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::entry::Change;
use crate::file_body::FileBody;
use crate::index::Spot;
use crate::live::Taken;
use crate::names::{Part, Place};
use crate::representation::{Body, Representation};
use crate::shared::{CREATE, Shared, lock, units};
use crate::store::Store;

/// A representation with its own file whose metadata is on its way. Not held on to: it may be evicted
/// meanwhile, and its files are then gone or go with it.
struct Written {
    place: Place,
    /// Whether it has blocks that are not durable.
    new_blocks: bool,
    /// Whether its temporary metadata waits to be put in place.
    waits: bool,
}

impl Store {
    /// Makes everything stored before the call durable, takes away the files of what is no longer
    /// used, and lets go of memory. To be called each second. Blocks.
    pub fn flush(&self) {
        let _flushing = lock(&self.shared.flushing);
        if self.shared.is_writing() {
            self.shared.flush();
        }
    }
}

impl Shared {
    /// The same for who holds `flushing`. Blocks.
    pub(crate) fn flush(&self) {
        // A refusal is counted where it happens; there is nobody else to tell.
        let _ = self.clear_remains();
        let dirty = self.take_dirty();
        let mut written: Vec<Written> =
            dirty.into_iter().filter_map(|place| write_one(self, place)).collect();
        let _ = self.make_log_room();
        let _ = self.write_log();
        let arrivals = self.arrivals();
        if !sync(self, &written) {
            return;
        }
        let departures = self.confirm_moves(arrivals);
        for Written { place, .. } in written.iter_mut().filter(|written| written.waits) {
            refer(self, *place, |rep, body| put_in_place(self, rep, body));
        }
        let is_whole = matches!(self.write_log(), Ok(true));
        if sync(self, &[]) {
            if is_whole {
                self.end_moves(departures);
            }
            self.tend_log();
            self.sweep_some();
        }
        self.let_newcomers_go();
        self.trim_memory();
    }
}

/// Does something with a visible representation that has its own file, unless it is gone.
fn refer(shared: &Shared, place: Place, with: impl FnOnce(&Arc<Representation>, &FileBody)) {
    let _referring = lock(&shared.referring);
    if let Some(rep) = shared.live.of(place)
        && let Some(body) = rep.file_body()
    {
        with(&rep, body);
    }
}

/// Writes the metadata of one representation if it is still visible. When the disk refuses, it
/// is marked again and still returned: its blocks take part in the sync.
fn write_one(shared: &Shared, place: Place) -> Option<Written> {
    let _referring = lock(&shared.referring);
    let rep = shared.live.of(place)?;
    let body = match &rep.body {
        Body::File(body) => body,
        Body::Packed(body) => {
            rep.clear_dirty();
            if rep.repack(body).is_err() {
                rep.mark_dirty();
            }
            return None;
        }
    };
    let (meta, new_blocks) = rep.take_dirty(body);
    let mut written = Written { place, new_blocks, waits: false };
    let image = meta.encode();
    let more = body.temp_wanted(units(u64::try_from(image.len()).unwrap_or(u64::MAX)));
    if shared.reserve_referring(more).is_err() {
        rep.mark_dirty();
        return Some(written);
    }
    body.add_temp(more);
    if write_temp(shared, &rep, body, &image, more) {
        if body.is_published() {
            written.waits = true;
        } else {
            put_in_place(shared, &rep, body);
        }
    }
    Some(written)
}

/// Writes a temporary metadata file, for which room is reserved. `false`: refused, and to be tried
/// again.
fn write_temp(
    shared: &Shared,
    rep: &Representation,
    body: &FileBody,
    image: &[u8],
    reserved: u64,
) -> bool {
    let path = rep.place().path(Part::MetaTemp);
    let file = match shared.with_file_to_spare(|| shared.disk.create(&path)) {
        Ok(file) => file,
        Err(error) => {
            shared.refused(CREATE, error);
            shared.release(body.take_temp(reserved));
            rep.mark_dirty();
            return false;
        }
    };
    let written = shared.disk.write_all_at(&file, image, 0);
    written.map_err(|error| try_again(shared, rep, body, error)).is_ok()
}

fn put_in_place(shared: &Shared, rep: &Representation, body: &FileBody) {
    match rep.publish(body) {
        Ok(true) => shared.note_units(rep, body),
        Ok(false) => drop_temp(shared, rep, body),
        Err(error) => try_again(shared, rep, body, error),
    }
}

fn try_again(shared: &Shared, rep: &Representation, body: &FileBody, error: io::Error) {
    shared.refused("write metadata", error);
    drop_temp(shared, rep, body);
    rep.mark_dirty();
}

fn drop_temp(shared: &Shared, rep: &Representation, body: &FileBody) {
    match shared.remove_file(rep.place(), Part::MetaTemp) {
        Ok(()) => shared.release(body.take_temp(u64::MAX)),
        Err(error) => {
            // It stays counted; the next attempt overwrites it.
            shared.refused("remove a file", error);
        }
    }
}

impl Shared {
    /// Writes down in the index what the files of a representation are counted with.
    pub(crate) fn note_units(&self, rep: &Representation, body: &FileBody) {
        let spot = Spot::File { units: body.units() };
        let mut index = self.index_mut();
        if index.move_to(rep.place(), spot) {
            self.note(Change::At(rep.place(), spot));
        }
    }

    /// Writes metadata down and puts it in place at once, with room that is kept for making room.
    pub(crate) fn write_meta_now(
        &self,
        rep: &Representation,
        body: &FileBody,
        blocks: Vec<Option<u32>>,
    ) -> bool {
        let image = rep.meta(blocks).encode();
        let more = body.temp_wanted(units(u64::try_from(image.len()).unwrap_or(u64::MAX)));
        if !self.reserve_spare(more) {
            return false;
        }
        body.add_temp(more);
        if !write_temp(self, rep, body, &image, more) {
            return false;
        }
        put_in_place(self, rep, body);
        !rep.is_dirty()
    }

    /// Makes what was moved durable outside a flush, so that its old segments may go. What has
    /// failed is left to the next flush.
    pub(crate) fn settle_moves(&self) -> bool {
        let arrivals = self.arrivals();
        if !self.sync_or_tell() {
            return false;
        }
        let departures = self.confirm_moves(arrivals);
        if !matches!(self.write_whole_log(), Ok(true)) || !self.sync_or_tell() {
            return false;
        }
        self.end_moves(departures);
        true
    }

    fn sync_or_tell(&self) -> bool {
        let synced = self.disk.sync_all();
        if let Err(error) = synced {
            self.refused("make files durable", error);
            self.sync_failed.store(true, Relaxed);
            self.note_changed();
            return false;
        }
        true
    }

    /// Lets go of packed objects that were asked for once: most never are again, and their record is
    /// read as soon as anything else of the disk. Who was asked for twice stays while there is memory.
    fn let_newcomers_go(&self) {
        let mut newcomers = self.take_newcomers();
        newcomers.retain(|place| {
            // It may go while it is neither in use nor knows something that the disk does not.
            let verdict = self
                .live
                .inspect(*place, |rep, in_use| (rep.is_hot(), !in_use && rep.can_be_loaded()));
            match verdict {
                None | Some((true, _)) => false,
                Some((false, true)) => {
                    self.leave_memory(*place);
                    false
                }
                Some((false, false)) => true,
            }
        });
        self.keep_newcomers(newcomers);
    }

    /// Lets go of one unless it is in use.
    pub(crate) fn leave_memory(&self, place: Place) {
        let mut index = self.index_mut();
        let Taken::Idle(rep) = self.live.take_idle(place) else { return };
        if rep.can_be_loaded() {
            index.note(place, rep.is_used(), rep.is_verified());
        } else {
            // It has changed while it was looked at.
            drop(self.live.insert(&rep));
        }
    }

    /// Lets go of what nobody asked for lately when the memory is used up.
    pub(crate) fn trim_memory(&self) {
        let trimmed = self.live.trim();
        if !trimmed.left.is_empty() {
            let mut index = self.index_mut();
            for (place, used, verified) in trimmed.left {
                index.note(place, used, verified);
            }
        }
        for place in trimmed.lost {
            self.drop_idle(place);
        }
    }
}

/// Makes everything durable if anything has changed; `false`: what was in doubt is gone.
fn sync(shared: &Shared, written: &[Written]) -> bool {
    let has_failed = shared.sync_failed.swap(false, Relaxed);
    if !shared.take_changed() && written.is_empty() && !has_failed {
        return true;
    }
    let packed = shared.take_unsynced();
    let synced = shared.disk.sync_all();
    if synced.is_ok() && !has_failed {
        return true;
    }
    if let Err(error) = synced {
        shared.refused("make files durable", error);
    }
    shared.note_changed();
    shared.log.doubt();
    for place in packed.into_iter().chain(shared.take_unsynced()) {
        lose(shared, place);
    }
    for Written { place, new_blocks, waits } in written {
        refer(shared, *place, |rep, body| {
            if *waits {
                drop_temp(shared, rep, body);
            }
            if !*new_blocks && !body.is_unsynced() {
                rep.mark_dirty();
            }
        });
        if *new_blocks {
            lose(shared, *place);
        }
    }
    // Blocks written while this flush ran may be among the lost ones.
    for place in shared.take_dirty() {
        match shared.live.of(place) {
            Some(rep) if rep.file_body().is_some_and(FileBody::is_unsynced) => lose(shared, place),
            Some(_) => shared.note_dirty(place),
            None => {}
        }
    }
    false
}

fn lose(shared: &Shared, place: Place) {
    let _referring = lock(&shared.referring);
    let rep = shared.live.of(place);
    shared.discard(place);
    if let Some(rep) = rep {
        rep.lose_all();
    }
}
