//! The content tree of the demo: a few files like those of a real project, the same bytes for the
//! same path on every run.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use model::Dice;
use sha2::{Digest, Sha256};

/// A file of the tree.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Path as clients ask for it, with the leading slash.
    pub(crate) path: String,
    /// Length in bytes.
    pub(crate) bytes: u64,
    /// SHA-256 of the content.
    pub(crate) sha256: [u8; 32],
}

const MIB: usize = 1 << 20;

/// Path and length of each file; the first is the big one, the second is for clients that only
/// ask for ranges. `later/` is not asked for until a master has failed.
const FILES: [(&str, usize); 8] = [
    ("/vlc/4.0.0/vlc-4.0.0.tar.xz", 64 * MIB),
    ("/vlc/4.0.0/win64/vlc-4.0.0-win64.exe", 12 * MIB + 4321),
    ("/vlc/4.0.0/README.txt", 1234),
    ("/vlc/4.0.0/NEWS", 20_000),
    ("/vlc/4.0.0/vlc-4.0.0.tar.xz.asc", 833),
    ("/vlc/later/one-master.bin", 3 * MIB),
    ("/vlc/later/no-master.bin", 100_000),
    ("/vlc/later/again.bin", 2 * MIB + 1),
];

/// A day in seconds.
const DAY_S: u64 = 24 * 60 * 60;

/// Writes the tree to each of `roots` and returns what is in it.
///
/// Files look some weeks old, as a release has them (a file that changed a moment ago is fresh for
/// a moment only, RFC 9111 section 4.2.2), and of another day on each root: masters agree by
/// content, not by dates.
pub(crate) fn write(roots: &[&Path]) -> io::Result<Vec<Item>> {
    let mut items = Vec::new();
    for (seed, (path, length)) in FILES.into_iter().enumerate() {
        let mut dice = Dice::seeded(seed as u64 + 1);
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&dice.below(u64::MAX).to_le_bytes());
        }
        bytes.truncate(length);
        for (days, root) in (30..).zip(roots) {
            let file = root.join(path.trim_start_matches('/'));
            fs::create_dir_all(file.parent().unwrap_or(root))?;
            fs::write(&file, &bytes)?;
            let seconds = rt::clock::now().wall_s().saturating_sub(days * DAY_S);
            let modified = UNIX_EPOCH + Duration::from_secs(seconds);
            File::options().write(true).open(&file)?.set_modified(modified)?;
        }
        let sha256 = Sha256::digest(&bytes).into();
        items.push(Item { path: path.to_owned(), bytes: length as u64, sha256 });
    }
    for root in roots {
        fs::write(root.join(mirror::TREE_MARKER), "")?;
    }
    Ok(items)
}
