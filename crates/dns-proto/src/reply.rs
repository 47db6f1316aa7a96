//! The answer's bytes, within the size that the transport carries.
//!
//! Order of use: [`Reply::new`], the sections in their order ([`Reply::answer`],
//! [`Reply::authority`], [`Reply::additional`]), then [`Reply::finish`].
//!
//! An answer or authority that does not fit empties the reply and sets TC; additional records that
//! do not fit are left out silently (RFC 2181 section 9). The OPT record always fits: its room is
//! kept from the start.

use crate::query::Head;
use crate::wire::{HEADER_BYTES, QUESTION_NAME, UDP_BYTES_MAX, option, rtype};

/// Records ready to copy, and how many they are.
#[derive(Clone, Copy)]
pub(crate) struct Records<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) count: u16,
}

/// An extended error for the OPT record (RFC 8914).
#[derive(Clone, Copy)]
pub(crate) struct ExtendedError {
    pub(crate) code: u16,
    pub(crate) text: &'static str,
}

/// A reply in the making.
pub(crate) struct Reply<'a, 'o> {
    head: &'a Head<'a>,
    out: &'o mut Vec<u8>,
    /// Where the bytes of records must end.
    limit: usize,
    error: Option<ExtendedError>,
    counts: [u16; 3],
    truncated: bool,
}

impl<'a, 'o> Reply<'a, 'o> {
    /// Begins a reply of at most `bytes_max` bytes in `out`, which is emptied first.
    pub(crate) fn new(
        head: &'a Head<'a>,
        bytes_max: u16,
        error: Option<ExtendedError>,
        out: &'o mut Vec<u8>,
    ) -> Self {
        out.clear();
        out.extend([0; HEADER_BYTES]);
        out.extend_from_slice(head.question);
        let limit = usize::from(bytes_max).saturating_sub(opt_bytes(head, error));
        Self { head, out, limit, error, counts: [0; 3], truncated: false }
    }

    /// Adds to the answer section.
    pub(crate) fn answer(&mut self, records: Records<'_>) {
        self.must_fit(0, records);
    }

    /// Adds the records that `write` appends, and counts them as it says.
    pub(crate) fn answer_with(&mut self, write: impl FnOnce(&mut Vec<u8>) -> u16) {
        let count = write(self.out);
        if self.out.len() <= self.limit {
            self.count(0, count);
        } else {
            self.truncate();
        }
    }

    /// Adds one record to the authority section. Its owner is the question's name without the
    /// first `above` bytes; `tail` is everything behind the owner.
    pub(crate) fn authority(&mut self, above: u16, tail: &[u8]) {
        let length = tail.len().saturating_add(2);
        if self.fits(length) {
            self.out.extend(QUESTION_NAME.saturating_add(above).to_be_bytes());
            self.out.extend_from_slice(tail);
            self.count(1, 1);
        } else {
            self.truncate();
        }
    }

    /// Adds to the additional section if there is room.
    pub(crate) fn additional(&mut self, records: Records<'_>) {
        if !self.truncated && self.fits(records.bytes.len()) {
            self.out.extend_from_slice(records.bytes);
            self.count(2, records.count);
        }
    }

    /// Writes the OPT record and the header. `scope` goes with a client subnet, if the query had
    /// one. Tells whether the reply was truncated.
    pub(crate) fn finish(mut self, rcode: u16, authoritative: bool, scope: u8) -> bool {
        if let Some(edns) = &self.head.edns {
            let options = opt_bytes(self.head, self.error).saturating_sub(OPT_FIXED_BYTES);
            self.out.push(0);
            self.out.extend(rtype::OPT.to_be_bytes());
            self.out.extend(UDP_BYTES_MAX.to_be_bytes());
            let extended = u8::try_from(rcode >> 4).unwrap_or(u8::MAX);
            self.out.extend([extended, 0, if edns.dnssec_ok { 0x80 } else { 0 }, 0]);
            self.out.extend(u16::try_from(options).unwrap_or(u16::MAX).to_be_bytes());
            if let Some(subnet) = &edns.subnet {
                subnet.write(scope, self.out);
            }
            if let Some(error) = self.error {
                let length = error.text.len().saturating_add(2);
                self.out.extend(option::EXTENDED_ERROR.to_be_bytes());
                self.out.extend(u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
                self.out.extend(error.code.to_be_bytes());
                self.out.extend_from_slice(error.text.as_bytes());
            }
            self.count(2, 1);
        }
        self.write_header(rcode, authoritative);
        self.truncated
    }

    fn write_header(&mut self, rcode: u16, authoritative: bool) {
        let head = self.head;
        let [id_high, id_low] = head.id.to_be_bytes();
        let flags = 0x80
            | (head.opcode & 0xf) << 3
            | if authoritative { 0x04 } else { 0 }
            | if self.truncated { 0x02 } else { 0 }
            | u8::from(head.recursion_desired);
        let code = u8::try_from(rcode & 0xf).unwrap_or(0);
        let questions = u8::from(!head.question.is_empty());
        let [answers, authorities, additional] = self.counts.map(u16::to_be_bytes);
        let header =
            [[id_high, id_low], [flags, code], [0, questions], answers, authorities, additional];
        self.out.iter_mut().zip(header.as_flattened()).for_each(|(to, from)| *to = *from);
    }

    fn must_fit(&mut self, section: usize, records: Records<'_>) {
        if self.fits(records.bytes.len()) {
            self.out.extend_from_slice(records.bytes);
            self.count(section, records.count);
        } else {
            self.truncate();
        }
    }

    fn fits(&self, more: usize) -> bool {
        !self.truncated && self.out.len().saturating_add(more) <= self.limit
    }

    fn truncate(&mut self) {
        self.truncated = true;
        self.counts = [0; 3];
        self.out.truncate(HEADER_BYTES.saturating_add(self.head.question.len()));
    }

    fn count(&mut self, section: usize, more: u16) {
        if let Some(count) = self.counts.get_mut(section) {
            *count = count.saturating_add(more);
        }
    }
}

/// Root name, type, class, TTL and data length of an OPT record.
const OPT_FIXED_BYTES: usize = 11;

/// Length of the OPT record that [`Reply::finish`] will write.
fn opt_bytes(head: &Head<'_>, error: Option<ExtendedError>) -> usize {
    let Some(edns) = &head.edns else { return 0 };
    let subnet = edns.subnet.map_or(0, |subnet| subnet.length());
    let error = error.map_or(0, |error| error.text.len().saturating_add(6));
    OPT_FIXED_BYTES.saturating_add(subnet).saturating_add(error)
}
