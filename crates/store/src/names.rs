//! Keys, and the names that files have because of them.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;

/// Folder of all representations, below it one folder for each first byte of a key.
pub(crate) const DATA: &str = "data";
/// Folder of the segments with packed objects.
pub(crate) const SEGMENTS: &str = "segments";
/// Name of the file that marks the folder as a store.
pub(crate) const MARKER: &str = "format";
/// Name of the index log, and of one being written.
pub(crate) const LOG: &str = "index";
pub(crate) const LOG_TEMP: &str = "index.t";

/// Name of a cached thing: 128 bits of a collision-resistant hash, made by the caller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(pub [u8; 16]);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // A key is a hash already: its first half is as good as any.
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        state.write_u64(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// One representation's identity on disk. A later representation has a higher `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) key: Key,
    pub(crate) id: u64,
}

/// What a file of a data folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// The bytes of the blocks.
    Body,
    /// Head, checksums and which blocks are held.
    Meta,
    /// A metadata file being written.
    MetaTemp,
}

impl Place {
    /// Number of the folder the files are in.
    pub(crate) fn folder(&self) -> u8 {
        let [first, ..] = self.key.0;
        first
    }

    pub(crate) fn path(&self, part: Part) -> PathBuf {
        let end = match part {
            Part::Body => "",
            Part::Meta => ".m",
            Part::MetaTemp => ".m.t",
        };
        folder_path(self.folder()).join(format!("{}.{:016x}{end}", self.key, self.id))
    }

    /// The inverse of [`Self::path`] for a file name of folder `folder`; `None` for a name that
    /// the store never makes.
    pub(crate) fn parse(folder: u8, name: &str) -> Option<(Self, Part)> {
        let mut words = name.splitn(3, '.');
        let key = hex(words.next()?, 32)?;
        let id = u64::try_from(hex(words.next()?, 16)?).ok()?;
        let part = match words.next() {
            None => Part::Body,
            Some("m") => Part::Meta,
            Some("m.t") => Part::MetaTemp,
            Some(_) => return None,
        };
        let place = Self { key: Key(key.to_be_bytes()), id };
        (place.folder() == folder).then_some((place, part))
    }
}

pub(crate) fn folder_path(folder: u8) -> PathBuf {
    PathBuf::from(DATA).join(format!("{folder:02x}"))
}

pub(crate) fn segment_path(number: u32) -> PathBuf {
    PathBuf::from(SEGMENTS).join(format!("{number:08x}"))
}

/// The inverse for a file name of the folder of segments.
pub(crate) fn parse_segment(name: &str) -> Option<u32> {
    u32::try_from(hex(name, 8)?).ok()
}

/// Exactly `digits` lower-case hexadecimal digits.
fn hex(word: &str, digits: usize) -> Option<u128> {
    let well_formed = word.len() == digits
        && word.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if well_formed { u128::from_str_radix(word, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_strangers_are_not() {
        let place = Place { key: Key([0xab; 16]), id: 0x1f };
        let name = "abababababababababababababababab.000000000000001f";
        assert_eq!(place.path(Part::Body), PathBuf::from("data/ab").join(name));
        for (part, end) in [(Part::Body, ""), (Part::Meta, ".m"), (Part::MetaTemp, ".m.t")] {
            let name = format!("{name}{end}");
            assert_eq!(place.path(part), PathBuf::from("data/ab").join(&name));
            assert_eq!(Place::parse(0xab, &name), Some((place, part)));
            assert_eq!(Place::parse(0xac, &name), None);
        }
        for name in [
            "",
            "lost+found",
            "abababababababababababababababab",
            "abababababababababababababababab.1f",
            "abababababababababababababababab.000000000000001F",
            "abababababababababababababababab.+00000000000001f",
            "abababababababababababababababab.000000000000001f.",
            "abababababababababababababababab.000000000000001f.x",
            "ABABABABABABABABABABABABABABABAB.000000000000001f",
        ] {
            assert_eq!(Place::parse(0xab, name), None, "{name}");
        }
    }
}
