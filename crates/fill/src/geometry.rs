//! How a representation of known length falls into blocks.

use std::ops::Range;

/// Length of a representation and size of its blocks. The last block may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    length: u64,
    block_bytes: u32,
}

impl Geometry {
    /// `length` bytes in blocks of `block_bytes` (at least 1).
    pub fn new(length: u64, block_bytes: u32) -> Self {
        Self { length, block_bytes: block_bytes.max(1) }
    }

    /// Bytes in all.
    pub fn length(self) -> u64 {
        self.length
    }

    /// Number of blocks; 0 for an empty representation.
    pub fn blocks(self) -> u32 {
        u32::try_from(self.length.div_ceil(u64::from(self.block_bytes))).unwrap_or(u32::MAX)
    }

    /// The block that holds the byte at `offset`.
    pub fn block_of(self, offset: u64) -> u32 {
        let block = offset.checked_div(u64::from(self.block_bytes)).unwrap_or(0);
        u32::try_from(block).unwrap_or(u32::MAX)
    }

    /// First byte of `block`, at most the length.
    pub fn start_of(self, block: u32) -> u64 {
        u64::from(block).saturating_mul(u64::from(self.block_bytes)).min(self.length)
    }

    /// The bytes of a range of blocks.
    pub fn bytes_of(self, blocks: Range<u32>) -> Range<u64> {
        self.start_of(blocks.start)..self.start_of(blocks.end)
    }

    /// Every block that has a byte of `bytes`.
    pub fn touched_by(self, bytes: Range<u64>) -> Range<u32> {
        let end = bytes.end.min(self.length);
        if bytes.start >= end {
            return 0..0;
        }
        self.block_of(bytes.start)..self.block_of(end.saturating_sub(1)).saturating_add(1)
    }

    /// The blocks that lie wholly in `bytes`.
    pub fn inside(self, bytes: Range<u64>) -> Range<u32> {
        let size = u64::from(self.block_bytes);
        let first = u32::try_from(bytes.start.div_ceil(size)).unwrap_or(u32::MAX);
        let end = if bytes.end >= self.length { self.blocks() } else { self.block_of(bytes.end) };
        first..end.max(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_bytes() {
        let g = Geometry::new(25, 10);
        assert_eq!((g.blocks(), g.block_of(0), g.block_of(9), g.block_of(24)), (3, 0, 0, 2));
        assert_eq!((g.bytes_of(0..1), g.bytes_of(2..3), g.bytes_of(1..3)), (0..10, 20..25, 10..25));
        for (bytes, touched, inside) in [
            (0..25, 0..3, 0..3),
            (0..10, 0..1, 0..1),
            (1..10, 0..1, 1..1),
            (5..25, 0..3, 1..3),
            (9..11, 0..2, 1..1),
            (20..99, 2..3, 2..3),
            (21..25, 2..3, 3..3),
            (7..7, 0..0, 1..1),
        ] {
            assert_eq!(g.touched_by(bytes.clone()), touched, "{bytes:?}");
            assert_eq!(g.inside(bytes.clone()), inside, "{bytes:?}");
        }
        assert_eq!(Geometry::new(0, 10).blocks(), 0);
        assert_eq!(Geometry::new(0, 10).inside(0..0), 0..0);
    }
}
