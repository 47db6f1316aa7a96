//! Making what was stored durable: body, then metadata under a temporary name, then the rename,
//! then the folder. At no instant does metadata name a block whose bytes are not on the disk.
//!
//! A failed sync of a body leaves its blocks in doubt (the kernel may drop pages it could not
//! write): the representation is discarded. Whatever else fails is tried again at the next flush.

use std::fs::File;
use std::io;
use std::sync::Arc;

use crate::names::{Part, folder_path};
use crate::representation::Representation;
use crate::shared::{Shared, lock, units};
use crate::store::Store;

impl Store {
    /// Makes everything stored before the call durable, and takes away the files of what is no
    /// longer used. To be called each second. Blocks.
    pub fn flush(&self) {
        let shared = &self.shared;
        let _flushing = lock(&shared.flushing);
        // A refusal is counted where it happens; there is nobody else to tell.
        let _ = shared.clear_remains();
        for place in shared.take_dirty() {
            let rep = shared.index().get(&place.key).filter(|rep| rep.place() == place).cloned();
            if let Some(rep) = rep {
                flush_one(shared, &rep);
            }
        }
        for folder in shared.take_touched() {
            if let Err(error) = shared.disk.sync_dir(&folder_path(folder)) {
                shared.refused("make names durable", error);
                shared.touch(folder);
            }
        }
    }
}

fn flush_one(shared: &Shared, rep: &Arc<Representation>) {
    let image = rep.take_dirty().encode();
    if let Err(error) = rep.sync_body() {
        shared.refused("make a body durable", error);
        shared.discard(rep.place());
        rep.lose_all();
        return;
    }
    let bytes = units(u64::try_from(image.len()).unwrap_or(u64::MAX));
    let Ok(reserved) = rep.reserve_temp(bytes) else {
        rep.mark_dirty();
        return;
    };
    let place = rep.place();
    let file = shared.with_file_to_spare(|| shared.disk.create(&place.path(Part::MetaTemp)));
    let file = match file {
        Ok(file) => file,
        Err(error) => {
            shared.refused("create a file", error);
            rep.release_temp(reserved);
            rep.mark_dirty();
            return;
        }
    };
    let published = write_and_publish(shared, rep, &file, &image);
    if matches!(published, Ok(true)) {
        return;
    }
    if let Err(error) = published {
        shared.refused("write metadata", error);
        rep.mark_dirty();
    }
    match shared.remove_file(place, Part::MetaTemp) {
        Ok(()) => rep.release_temp(u64::MAX),
        Err(error) => {
            // It stays counted; the next attempt overwrites it.
            shared.refused("remove a file", error);
        }
    }
}

fn write_and_publish(
    shared: &Shared,
    rep: &Representation,
    file: &File,
    image: &[u8],
) -> io::Result<bool> {
    shared.disk.write_all_at(file, image, 0)?;
    shared.disk.sync(file)?;
    rep.publish()
}
