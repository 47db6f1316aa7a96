//! Reading numbers and parts off the front of bytes; nothing here can fail but by coming to an end.

/// What is left to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    /// Whether everything was read.
    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The next `length` bytes; `None`, with nothing read, when there are fewer.
    pub(crate) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// The next bytes as an array.
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// A part with its length in one octet before it.
    pub(crate) fn part_u8(&mut self) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let length = ahead.u8()?;
        let part = ahead.take(usize::from(length))?;
        *self = ahead;
        Some(part)
    }

    /// A part with its length in two octets before it.
    pub(crate) fn part_u16(&mut self) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let length = ahead.u16()?;
        let part = ahead.take(usize::from(length))?;
        *self = ahead;
        Some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_not_whole_is_not_read() {
        let mut reader = Reader(&[0, 3, 1, 2]);
        assert_eq!(reader.part_u16(), None);
        assert_eq!(reader.part_u8(), Some(&[][..]));
        assert_eq!(reader.u16(), Some(0x0301));
        assert_eq!((reader.u16(), reader.u8()), (None, Some(2)));
        assert!(reader.is_empty());
    }
}
