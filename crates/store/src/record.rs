//! A packed object: head and body of a small representation as one record of a segment file.
//!
//! Layout, rules and test vectors: `docs/formats/store.md`. Everything is little-endian.
#![warn(clippy::arithmetic_side_effects)]

use bytes::Bytes;

use crate::meta::{Broken, HEAD_BYTES_MAX, take};
use crate::names::{Key, Place};

/// First bytes of a record.
pub(crate) const RECORD_MAGIC: [u8; 8] = *b"CBpack\r\n";
/// Bytes of head and body at most for an object to be packed when it is created.
pub(crate) const PACKED_BYTES_MAX: u64 = 64 * 1024;
/// Bytes before the head.
pub(crate) const FIXED_BYTES: usize = 52;

/// A packed object as it is written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) place: Place,
    pub(crate) block_bytes: u32,
    pub(crate) head: Bytes,
    pub(crate) body: Bytes,
    /// CRC32C of the body.
    pub(crate) body_crc: u32,
}

/// The bytes of a record.
pub(crate) fn encode(
    place: Place,
    block_bytes: u32,
    head: &[u8],
    body: &[u8],
    crc: u32,
) -> Vec<u8> {
    let len = FIXED_BYTES.saturating_add(head.len()).saturating_add(body.len());
    let mut out = Vec::with_capacity(len);
    out.extend_from_slice(&RECORD_MAGIC);
    out.extend_from_slice(&place.key.0);
    out.extend_from_slice(&place.id.to_le_bytes());
    out.extend_from_slice(&block_bytes.to_le_bytes());
    // Both fit: heads and packed bodies are bounded.
    out.extend_from_slice(&u32::try_from(head.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&crc.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&out), head);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(head);
    out.extend_from_slice(body);
    out
}

impl Record {
    /// The record found where that of `place` should be, or which rule it breaks. Head and body
    /// share the memory of `bytes`.
    pub(crate) fn decode(place: Place, bytes: &Bytes) -> Result<Self, Broken> {
        let mut rest: &[u8] = bytes;
        if take::<8>(&mut rest)? != RECORD_MAGIC {
            return Err(Broken::Magic);
        }
        let key = Key(take(&mut rest)?);
        let id = u64::from_le_bytes(take(&mut rest)?);
        if (Place { key, id }) != place {
            return Err(Broken::Place);
        }
        let block_bytes = u32::from_le_bytes(take(&mut rest)?);
        let mut number = || take(&mut rest).map(u32::from_le_bytes);
        let (head_len, body_len, body_crc, crc) = (number()?, number()?, number()?, number()?);
        let size = |len| usize::try_from(len).map_err(|_| Broken::Length);
        let (head_len, body_len) = (size(head_len)?, size(body_len)?);
        let body_at = FIXED_BYTES.checked_add(head_len).ok_or(Broken::Length)?;
        let end = body_at.checked_add(body_len).ok_or(Broken::Length)?;
        if head_len > HEAD_BYTES_MAX || end != bytes.len() {
            return Err(Broken::Length);
        }
        let covered = bytes.get(..FIXED_BYTES.saturating_sub(4)).ok_or(Broken::Length)?;
        let (head, body) = (bytes.slice(FIXED_BYTES..body_at), bytes.slice(body_at..end));
        let is_whole = crc32c::crc32c_append(crc32c::crc32c(covered), &head) == crc
            && crc32c::crc32c(&body) == body_crc;
        if !is_whole {
            return Err(Broken::Checksum);
        }
        if crate::meta::block_count(1, block_bytes).is_none()
            || body_len > usize::try_from(block_bytes).unwrap_or(0)
        {
            return Err(Broken::Blocks);
        }
        Ok(Self { place, block_bytes, head, body, body_crc })
    }
}

/// Bytes of a record with a head and a body of these lengths.
pub(crate) fn record_bytes(head_len: usize, body_len: u64) -> u64 {
    let fixed = FIXED_BYTES.saturating_add(head_len);
    u64::try_from(fixed).unwrap_or(u64::MAX).saturating_add(body_len)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
    use super::*;

    const PLACE: Place = Place { key: Key(*b"0123456789abcdef"), id: 7 };

    fn example() -> Vec<u8> {
        encode(PLACE, 4096, b"HEAD", b"body bytes", crc32c::crc32c(b"body bytes"))
    }

    /// The vector of `docs/formats/store.md`.
    #[test]
    fn test_vector() {
        let hex = example().iter().map(|b| format!("{b:02x}")).collect::<String>();
        let page = include_str!("../../../docs/formats/store.md");
        let joined: String = page.split_whitespace().collect();
        assert!(joined.contains(&hex), "{hex}");
    }

    #[test]
    fn decodes_what_it_encodes_and_refuses_any_damage() {
        let good = example();
        let record = Record::decode(PLACE, &Bytes::from(good.clone())).unwrap();
        assert_eq!((&record.head[..], &record.body[..]), (&b"HEAD"[..], &b"body bytes"[..]));
        assert_eq!(record.block_bytes, 4096);
        assert_eq!(record_bytes(4, 10), good.len() as u64);
        for at in 0..good.len() {
            let cut = Bytes::copy_from_slice(&good[..at]);
            assert!(Record::decode(PLACE, &cut).is_err(), "cut at {at}");
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            assert!(Record::decode(PLACE, &Bytes::from(bad)).is_err(), "flipped at {at}");
        }
        let other = Place { id: 8, ..PLACE };
        assert_eq!(Record::decode(other, &Bytes::from(good)), Err(Broken::Place));
    }
}
