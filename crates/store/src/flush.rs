//! Making what was stored durable, in rounds:
//!
//! 1. metadata of all that has changed is written under temporary names; what has none in place
//!    yet gets it at once, so that a kill from here on costs nothing;
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

use std::fs::File;
use std::io;
use std::sync::{Arc, Weak};

use crate::names::{Part, Place};
use crate::representation::Representation;
use crate::shared::{Shared, lock, units};
use crate::store::Store;

/// A representation whose metadata is on its way. Not held on to: it may be evicted meanwhile, and
/// its files are then gone or go with it.
struct Written {
    rep: Weak<Representation>,
    /// Whether it has blocks that are not durable.
    new_blocks: bool,
    /// Whether its temporary metadata waits to be put in place.
    waits: bool,
}

impl Store {
    /// Makes everything stored before the call durable, and takes away the files of what is no
    /// longer used. To be called each second. Blocks.
    pub fn flush(&self) {
        let shared = &self.shared;
        let _flushing = lock(&shared.flushing);
        // A refusal is counted where it happens; there is nobody else to tell.
        let _ = shared.clear_remains();
        let dirty = shared.take_dirty();
        let mut written: Vec<Written> =
            dirty.into_iter().filter_map(|place| write_one(shared, place)).collect();
        if !sync(shared, &written) {
            return;
        }
        for Written { rep, .. } in written.iter_mut().filter(|written| written.waits) {
            refer(shared, rep, |rep| put_in_place(shared, rep));
        }
        sync(shared, &[]);
    }
}

/// Does something with a representation unless it is gone.
fn refer(shared: &Shared, rep: &Weak<Representation>, with: impl FnOnce(&Representation)) {
    let _referring = lock(&shared.referring);
    if let Some(rep) = rep.upgrade() {
        with(&rep);
    }
}

/// Writes the metadata of one representation if it is still visible. When the disk refuses, it
/// is marked again and still returned: its blocks take part in the sync.
fn write_one(shared: &Shared, place: Place) -> Option<Written> {
    let _referring = lock(&shared.referring);
    let rep = shared.index().get(&place.key).filter(|rep| rep.place() == place).cloned()?;
    let (meta, new_blocks) = rep.take_dirty();
    let image = meta.encode();
    let mut written = Written { rep: Arc::downgrade(&rep), new_blocks, waits: false };
    let Ok(reserved) = rep.reserve_temp(units(u64::try_from(image.len()).unwrap_or(u64::MAX)))
    else {
        rep.mark_dirty();
        return Some(written);
    };
    let path = place.path(Part::MetaTemp);
    match shared.with_file_to_spare(|| shared.disk.create(&path)) {
        Ok(file) => {
            written.waits = write_temp(shared, &rep, &file, &image);
            if written.waits && !rep.is_published() {
                written.waits = false;
                put_in_place(shared, &rep);
            }
        }
        Err(error) => {
            shared.refused("create a file", error);
            rep.release_temp(reserved);
            rep.mark_dirty();
        }
    }
    Some(written)
}

fn write_temp(shared: &Shared, rep: &Representation, file: &File, image: &[u8]) -> bool {
    let written = shared.disk.write_all_at(file, image, 0);
    written.map_err(|error| try_again(shared, rep, error)).is_ok()
}

fn put_in_place(shared: &Shared, rep: &Representation) {
    match rep.publish() {
        Ok(true) => {}
        Ok(false) => drop_temp(shared, rep),
        Err(error) => try_again(shared, rep, error),
    }
}

fn try_again(shared: &Shared, rep: &Representation, error: io::Error) {
    shared.refused("write metadata", error);
    drop_temp(shared, rep);
    rep.mark_dirty();
}

fn drop_temp(shared: &Shared, rep: &Representation) {
    match shared.remove_file(rep.place(), Part::MetaTemp) {
        Ok(()) => rep.release_temp(u64::MAX),
        Err(error) => {
            // It stays counted; the next attempt overwrites it.
            shared.refused("remove a file", error);
        }
    }
}

/// Makes everything durable if anything has changed; `false`: what was in doubt is gone.
fn sync(shared: &Shared, written: &[Written]) -> bool {
    if !shared.take_renamed() && written.is_empty() {
        return true;
    }
    let Err(error) = shared.disk.sync_all() else { return true };
    shared.refused("make files durable", error);
    shared.note_renamed();
    for Written { rep, new_blocks, waits } in written {
        refer(shared, rep, |rep| {
            if *new_blocks || rep.is_unsynced() {
                lose(shared, rep);
            } else {
                rep.mark_dirty();
            }
            if *waits {
                drop_temp(shared, rep);
            }
        });
    }
    // Blocks written while this flush ran may be among the lost ones.
    for place in shared.take_dirty() {
        let _referring = lock(&shared.referring);
        let rep = shared.index().get(&place.key).filter(|rep| rep.place() == place).cloned();
        match rep {
            Some(rep) if rep.is_unsynced() => lose(shared, &rep),
            Some(_) => shared.note_dirty(place),
            None => {}
        }
    }
    false
}

fn lose(shared: &Shared, rep: &Representation) {
    shared.discard(rep.place());
    rep.lose_all();
}
