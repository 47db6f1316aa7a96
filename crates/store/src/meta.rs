//! The metadata file of a representation and the marker of a store: bytes to values and back.
//!
//! Layout, rules and test vectors: `docs/formats/store.md`. Everything is little-endian. What does
//! not fit in every detail is refused as a whole; the caller then drops the representation.
#![warn(clippy::arithmetic_side_effects)]

use bytes::Bytes;

use crate::names::{Key, Place};

/// First bytes of a metadata file.
pub(crate) const META_MAGIC: [u8; 8] = *b"CBrepr\r\n";
/// First bytes of the marker file.
pub(crate) const MARKER_MAGIC: [u8; 8] = *b"CBstor\r\n";
/// Version of both formats.
pub(crate) const VERSION: u32 = 2;
/// Bytes of a head at most.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Allocation unit that block sizes are multiples of and that room is counted in.
pub(crate) const UNIT_BYTES: u64 = 4096;
/// Bytes of a block at most.
pub(crate) const BLOCK_BYTES_MAX: u32 = 64 * 1024 * 1024;

const FIXED_BYTES: usize = 56;
const CRC_BYTES: usize = 4;

/// A representation as it is written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) place: Place,
    pub(crate) block_bytes: u32,
    pub(crate) length: u64,
    pub(crate) head: Bytes,
    /// CRC32C of each block that is held.
    pub(crate) blocks: Vec<Option<u32>>,
}

/// Number of blocks of a body; `None` when they are too many or `block_bytes` is out of range.
pub(crate) fn block_count(length: u64, block_bytes: u32) -> Option<u32> {
    let in_range = block_bytes > 0
        && block_bytes <= BLOCK_BYTES_MAX
        && u64::from(block_bytes).is_multiple_of(UNIT_BYTES);
    if !in_range {
        return None;
    }
    u32::try_from(length.div_ceil(u64::from(block_bytes))).ok()
}

/// Bytes of a metadata file with a head and so many blocks.
pub(crate) fn image_bytes(head_len: usize, blocks: usize) -> u64 {
    let bytes = FIXED_BYTES
        .saturating_add(head_len)
        .saturating_add(blocks.div_ceil(8))
        .saturating_add(blocks.saturating_mul(CRC_BYTES))
        .saturating_add(CRC_BYTES);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

impl Meta {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let count = self.blocks.len();
        let bytes = image_bytes(self.head.len(), count);
        let mut out = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
        out.extend_from_slice(&META_MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.block_bytes.to_le_bytes());
        out.extend_from_slice(&self.place.key.0);
        out.extend_from_slice(&self.place.id.to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        // Both fit: heads are bounded by HEAD_BYTES_MAX, counts come from `block_count`.
        out.extend_from_slice(&u32::try_from(self.head.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&self.head);
        for eight in self.blocks.chunks(8) {
            let byte =
                eight.iter().rev().fold(0, |byte, held| byte << 1 | u8::from(held.is_some()));
            out.push(byte);
        }
        for crc in &self.blocks {
            out.extend_from_slice(&crc.unwrap_or(0).to_le_bytes());
        }
        seal(&mut out);
        out
    }

    /// The value of a metadata file found at `place`, or which rule it breaks.
    pub(crate) fn decode(place: Place, bytes: &[u8]) -> Result<Self, Broken> {
        let mut rest = unseal(bytes)?;
        if take::<8>(&mut rest)? != META_MAGIC {
            return Err(Broken::Magic);
        }
        if u32::from_le_bytes(take(&mut rest)?) != VERSION {
            return Err(Broken::Version);
        }
        let block_bytes = u32::from_le_bytes(take(&mut rest)?);
        let key = Key(take(&mut rest)?);
        let id = u64::from_le_bytes(take(&mut rest)?);
        if (Place { key, id }) != place {
            return Err(Broken::Place);
        }
        let length = u64::from_le_bytes(take(&mut rest)?);
        let head_len = usize::try_from(u32::from_le_bytes(take(&mut rest)?)).unwrap_or(usize::MAX);
        let count = u32::from_le_bytes(take(&mut rest)?);
        if block_count(length, block_bytes) != Some(count) {
            return Err(Broken::Blocks);
        }
        let (head, rest) = rest
            .split_at_checked(head_len)
            .filter(|_| head_len <= HEAD_BYTES_MAX)
            .ok_or(Broken::Length)?;
        let count = usize::try_from(count).map_err(|_| Broken::Blocks)?;
        let (bitmap, crcs) = rest.split_at_checked(count.div_ceil(8)).ok_or(Broken::Length)?;
        if crcs.len() != count.saturating_mul(CRC_BYTES) {
            return Err(Broken::Length);
        }
        let bits = bitmap.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1));
        let (crcs, _) = crcs.as_chunks::<CRC_BYTES>();
        let blocks =
            crcs.iter().zip(bits).map(|(crc, held)| held.then(|| u32::from_le_bytes(*crc)));
        Ok(Self {
            place,
            block_bytes,
            length,
            head: Bytes::copy_from_slice(head),
            blocks: blocks.collect(),
        })
    }
}

/// The marker file of this version.
pub(crate) fn marker() -> Vec<u8> {
    let mut out = MARKER_MAGIC.to_vec();
    out.extend_from_slice(&VERSION.to_le_bytes());
    seal(&mut out);
    out
}

/// The version a marker file names.
pub(crate) fn read_marker(bytes: &[u8]) -> Result<u32, Broken> {
    let mut rest = unseal(bytes)?;
    if take::<8>(&mut rest)? != MARKER_MAGIC {
        return Err(Broken::Magic);
    }
    Ok(u32::from_le_bytes(take(&mut rest)?))
}

/// The rule of the format that a file breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    #[error("its checksum is wrong")]
    Checksum,
    #[error("it does not start with the magic bytes")]
    Magic,
    #[error("its version is not {VERSION}")]
    Version,
    #[error("its key or id is not that of its name")]
    Place,
    #[error("its number of blocks does not fit its length")]
    Blocks,
    #[error("it is too short or too long")]
    Length,
}

pub(crate) fn seal(out: &mut Vec<u8>) {
    let crc = crc32c::crc32c(out);
    out.extend_from_slice(&crc.to_le_bytes());
}

fn unseal(bytes: &[u8]) -> Result<&[u8], Broken> {
    let (content, crc) = bytes.split_last_chunk::<CRC_BYTES>().ok_or(Broken::Length)?;
    if crc32c::crc32c(content) == u32::from_le_bytes(*crc) {
        Ok(content)
    } else {
        Err(Broken::Checksum)
    }
}

pub(crate) fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Broken> {
    let (field, after) = rest.split_first_chunk::<N>().ok_or(Broken::Length)?;
    *rest = after;
    Ok(*field)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
    use super::*;

    fn example() -> Meta {
        Meta {
            place: Place { key: Key(*b"0123456789abcdef"), id: 7 },
            block_bytes: 4096,
            length: 9 * 4096 + 1,
            head: Bytes::from_static(b"HEAD"),
            blocks: vec![
                Some(0x11223344),
                None,
                Some(0),
                None,
                None,
                None,
                None,
                Some(3),
                None,
                Some(0xffffffff),
            ],
        }
    }

    /// The vectors of `docs/formats/store.md`.
    #[test]
    fn test_vectors() {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let page = include_str!("../../../docs/formats/store.md");
        assert_eq!(hex(&marker()), "434273746f720d0a020000005c84fcb1");
        assert!(page.contains(&hex(&marker())));
        let joined: String = page.split_whitespace().collect();
        assert!(joined.contains(&hex(&example().encode())), "{}", hex(&example().encode()));
    }

    #[test]
    fn decodes_what_it_encodes() {
        let meta = example();
        assert_eq!(Meta::decode(meta.place, &meta.encode()), Ok(meta.clone()));
        let empty = Meta { length: 0, head: Bytes::new(), blocks: vec![], ..meta };
        assert_eq!(Meta::decode(empty.place, &empty.encode()), Ok(empty.clone()));
        assert_eq!(read_marker(&marker()), Ok(VERSION));
    }

    #[test]
    fn any_damage_is_refused() {
        let meta = example();
        let good = meta.encode();
        for at in 0..good.len() {
            assert!(Meta::decode(meta.place, &good[..at]).is_err(), "cut at {at}");
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            assert!(Meta::decode(meta.place, &bad).is_err(), "flipped at {at}");
        }
    }

    /// Wrong fields under a right checksum: what another program or version might write.
    #[test]
    fn each_rule_has_its_word() {
        let patched = |at: usize, with: &[u8]| {
            let mut bytes = example().encode();
            bytes.truncate(bytes.len() - CRC_BYTES);
            bytes[at..at + with.len()].copy_from_slice(with);
            seal(&mut bytes);
            Meta::decode(example().place, &bytes)
        };
        assert_eq!(patched(0, b"X"), Err(Broken::Magic));
        assert_eq!(patched(8, &1u32.to_le_bytes()), Err(Broken::Version));
        assert_eq!(patched(12, &0u32.to_le_bytes()), Err(Broken::Blocks));
        assert_eq!(patched(12, &4095u32.to_le_bytes()), Err(Broken::Blocks));
        assert_eq!(patched(16, b"X"), Err(Broken::Place));
        assert_eq!(patched(32, &8u64.to_le_bytes()), Err(Broken::Place));
        assert_eq!(patched(40, &u64::MAX.to_le_bytes()), Err(Broken::Blocks));
        assert_eq!(patched(48, &u32::MAX.to_le_bytes()), Err(Broken::Length));
        assert_eq!(patched(48, &3u32.to_le_bytes()), Err(Broken::Length));
        assert_eq!(patched(52, &9u32.to_le_bytes()), Err(Broken::Blocks));
    }
}
