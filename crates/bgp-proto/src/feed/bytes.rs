//! Numbers and bytes of a document.

/// Appends a number in groups of seven bits.
pub(super) fn put(out: &mut Vec<u8>, mut number: u128) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// What is left to be read.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(left: &'a [u8]) -> Self {
        Self { left }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.left.is_empty()
    }

    /// How many octets are left: no list can have more elements.
    pub(super) fn left(&self) -> usize {
        self.left.len()
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.left.split_first()?;
        self.left = rest;
        Some(*byte)
    }

    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.left.split_at_checked(length)?;
        self.left = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (taken, rest) = self.left.split_first_chunk::<N>()?;
        self.left = rest;
        Some(taken)
    }

    /// A number as [`put`] writes it.
    pub(super) fn number(&mut self) -> Option<u128> {
        let (mut number, mut shift) = (0u128, 0u32);
        loop {
            let byte = self.byte()?;
            let group = u128::from(byte & 0x7f);
            let placed = group.checked_shl(shift)?;
            if placed.checked_shr(shift) != Some(group) {
                return None;
            }
            number |= placed;
            if byte & 0x80 == 0 {
                return Some(number);
            }
            shift = shift.checked_add(7).filter(|shift| *shift < 128)?;
        }
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.number()?.try_into().ok()
    }
}
