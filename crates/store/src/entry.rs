//! The records of the index log: bytes to values and back.
//!
//! Layout, rules and test vectors: `docs/formats/store.md`. Everything is little-endian. Each record's
//! checksum goes on from that of the record before: what is left of an older log behind the end of
//! a newer one can never be taken for its continuation.
#![warn(clippy::arithmetic_side_effects)]

use crate::index::Spot;
use crate::meta::{Broken, VERSION, take};
use crate::names::{Key, Place};

/// First bytes of the log.
pub(crate) const LOG_MAGIC: [u8; 8] = *b"CBindx\r\n";
/// Bytes of a record, the first one of the file included.
pub(crate) const ENTRY_BYTES: usize = 48;

/// One change of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The object of a key is this one, and it is here now.
    At(Place, Spot),
    /// This one is gone, unless the key has another by now.
    Gone(Place),
    /// No id below this one will be given again.
    Ids(u64),
}

const PACKED: u8 = 1;
const FILE: u8 = 2;
const GONE: u8 = 3;
const IDS: u8 = 4;

/// The first record, and the checksum that the next one goes on from.
pub(crate) fn header() -> ([u8; ENTRY_BYTES], u32) {
    let mut out = [0; ENTRY_BYTES];
    write(&mut out, 0, &LOG_MAGIC);
    write(&mut out, 8, &VERSION.to_le_bytes());
    (out, 0)
}

/// Fills in the checksum of a record; gives it.
pub(crate) fn seal(record: &mut [u8; ENTRY_BYTES], before: u32) -> u32 {
    let [content @ .., _, _, _, _] = &*record;
    let crc = crc32c::crc32c_append(before, content);
    write(record, 44, &crc.to_le_bytes());
    crc
}

/// The checksum of a record if it is the right one after `before`.
pub(crate) fn check(record: &[u8; ENTRY_BYTES], before: u32) -> Option<u32> {
    let [content @ .., a, b, c, d] = record;
    let crc = crc32c::crc32c_append(before, content);
    (crc == u32::from_le_bytes([*a, *b, *c, *d])).then_some(crc)
}

/// Whether a first record, whose checksum is right, begins a log of this version.
pub(crate) fn is_header(record: &[u8; ENTRY_BYTES]) -> bool {
    let (expected, _) = header();
    let content = |record: &[u8; ENTRY_BYTES]| {
        let [content @ .., _, _, _, _] = *record;
        content
    };
    content(record) == content(&expected)
}

impl Change {
    /// The record without its checksum.
    pub(crate) fn encode(&self) -> [u8; ENTRY_BYTES] {
        let nowhere = Place { key: Key([0; 16]), id: 0 };
        let (kind, place, segment, offset, len) = match *self {
            Self::At(place, Spot::Packed { segment, offset, len }) => {
                (PACKED, place, segment, offset, len)
            }
            Self::At(place, Spot::File { units }) => (FILE, place, 0, 0, units),
            // What is in memory alone is as good as gone.
            Self::At(place, Spot::Filling) | Self::Gone(place) => (GONE, place, 0, 0, 0),
            Self::Ids(id) => (IDS, Place { id, ..nowhere }, 0, 0, 0),
        };
        let mut out = [0; ENTRY_BYTES];
        write(&mut out, 0, &[kind]);
        write(&mut out, 4, &segment.to_le_bytes());
        write(&mut out, 8, &place.key.0);
        write(&mut out, 24, &place.id.to_le_bytes());
        write(&mut out, 32, &offset.to_le_bytes());
        write(&mut out, 36, &len.to_le_bytes());
        out
    }

    /// The value of a record whose checksum is right.
    pub(crate) fn decode(record: &[u8; ENTRY_BYTES]) -> Result<Self, Broken> {
        let mut rest: &[u8] = record;
        let [kind, ..] = take::<4>(&mut rest)?;
        let segment = u32::from_le_bytes(take(&mut rest)?);
        let key = Key(take(&mut rest)?);
        let id = u64::from_le_bytes(take(&mut rest)?);
        let offset = u32::from_le_bytes(take(&mut rest)?);
        let len = u32::from_le_bytes(take(&mut rest)?);
        let place = Place { key, id };
        match kind {
            PACKED => Ok(Self::At(place, Spot::Packed { segment, offset, len })),
            FILE => Ok(Self::At(place, Spot::File { units: len })),
            GONE => Ok(Self::Gone(place)),
            IDS => Ok(Self::Ids(id)),
            _ => Err(Broken::Version),
        }
    }
}

fn write(out: &mut [u8; ENTRY_BYTES], at: usize, bytes: &[u8]) {
    let end = at.saturating_add(bytes.len());
    if let Some(field) = out.get_mut(at..end) {
        field.copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
    use super::*;

    const PLACE: Place = Place { key: Key(*b"0123456789abcdef"), id: 7 };
    const CHANGES: [Change; 4] = [
        Change::Ids(4096),
        Change::At(PLACE, Spot::Packed { segment: 3, offset: 8192, len: 1000 }),
        Change::At(Place { id: 8, ..PLACE }, Spot::File { units: 12 }),
        Change::Gone(Place { id: 8, ..PLACE }),
    ];

    fn log() -> Vec<u8> {
        let (mut record, mut crc) = header();
        crc = seal(&mut record, crc);
        let mut out = record.to_vec();
        for change in CHANGES {
            let mut record = change.encode();
            crc = seal(&mut record, crc);
            out.extend_from_slice(&record);
        }
        out
    }

    fn read(log: &[u8]) -> Vec<Change> {
        let (records, _) = log.as_chunks::<ENTRY_BYTES>();
        let Some((first, rest)) = records.split_first() else { return vec![] };
        let Some(mut crc) = check(first, 0).filter(|_| is_header(first)) else { return vec![] };
        let mut changes = Vec::new();
        for record in rest {
            let Some(next) = check(record, crc) else { break };
            crc = next;
            changes.push(Change::decode(record).unwrap());
        }
        changes
    }

    /// The vector of `docs/formats/store.md`.
    #[test]
    fn test_vector() {
        let hex = log().iter().map(|b| format!("{b:02x}")).collect::<String>();
        let page = include_str!("../../../docs/formats/store.md");
        let joined: String = page.split_whitespace().collect();
        assert!(joined.contains(&hex), "{hex}");
    }

    #[test]
    fn reads_what_it_writes_up_to_the_first_damage() {
        let good = log();
        assert_eq!(read(&good), CHANGES);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            let whole = (at / ENTRY_BYTES).saturating_sub(1);
            let expected: &[Change] = if at < ENTRY_BYTES { &[] } else { &CHANGES[..whole] };
            assert_eq!(read(&bad), expected, "flipped at {at}");
        }
    }

    #[test]
    fn records_of_an_older_log_never_go_on_a_newer_one() {
        let older = log();
        let mut newer = older[..2 * ENTRY_BYTES].to_vec();
        let mut record = Change::Ids(9).encode();
        let [.., a, b, c, d] = newer[..] else { panic!() };
        seal(&mut record, u32::from_le_bytes([a, b, c, d]));
        newer.extend_from_slice(&record);
        newer.extend_from_slice(&older[3 * ENTRY_BYTES..]);
        assert_eq!(read(&newer), [CHANGES[0], Change::Ids(9)]);
    }
}
