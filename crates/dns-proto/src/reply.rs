//! The answer's bytes, within the size that the transport carries.
//!
//! Order of use: [`Reply::new`], the sections in their order ([`Reply::answer`],
//! [`Reply::authority`], [`Reply::additional`]), [`Reply::close`], then [`Reply::finish`].
//!
//! With a [`Sealer`] each section is signed when the next one begins, and the last one by
//! [`Reply::close`].
//!
//! An answer or authority that does not fit empties the reply and sets TC; additional records that
//! do not fit are left out silently (RFC 2181 section 9). The OPT record always fits: its room is
//! kept from the start.

use crate::dnssec::{Exhausted, Sealer};
use crate::names::write_serial;
use crate::options::{ExtendedError, Extras};
use crate::query::Head;
use crate::records::set_owner;
use crate::wire::{HEADER_BYTES, QUESTION_NAME, UDP_BYTES_MAX, rtype};

/// Records ready to copy, and how many they are.
#[derive(Clone, Copy)]
pub(crate) struct Records<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) count: u16,
}

/// A reply in the making.
pub(crate) struct Reply<'a, 'o> {
    head: &'a Head<'a>,
    out: &'o mut Vec<u8>,
    /// Where the bytes of records must end.
    limit: usize,
    extras: Extras<'a>,
    counts: [u16; 3],
    truncated: bool,
    /// Number of the section that is being written, and where it begins.
    section: (usize, usize),
    sealer: Option<Sealer<'a>>,
    exhausted: bool,
}

/// Numbers of the sections.
const ANSWER: usize = 0;
const AUTHORITY: usize = 1;
const ADDITIONAL: usize = 2;

impl<'a, 'o> Reply<'a, 'o> {
    /// Begins a reply of at most `bytes_max` bytes in `out`, which is emptied first.
    pub(crate) fn new(
        head: &'a Head<'a>,
        bytes_max: u16,
        extras: Extras<'a>,
        out: &'o mut Vec<u8>,
    ) -> Self {
        out.clear();
        out.extend([0; HEADER_BYTES]);
        out.extend_from_slice(head.question);
        let limit = usize::from(bytes_max).saturating_sub(opt_bytes(head, &extras));
        let (counts, section) = ([0; 3], (ANSWER, out.len()));
        let (truncated, sealer, exhausted) = (false, None, false);
        Self { head, out, limit, extras, counts, truncated, section, sealer, exhausted }
    }

    /// Has every section signed by `sealer`.
    pub(crate) fn seal_with(&mut self, sealer: Sealer<'a>) {
        self.sealer = Some(sealer);
    }

    /// Whether it is signed.
    pub(crate) fn is_sealed(&self) -> bool {
        self.sealer.is_some()
    }

    /// Adds to the answer section under `owner`, a pointer. Tells where the records begin.
    pub(crate) fn answer(&mut self, owner: u16, records: Records<'_>) -> usize {
        self.must_fit(ANSWER, owner, records)
    }

    /// Adds the records that `write` appends, and counts them as it says.
    pub(crate) fn answer_with(&mut self, write: impl FnOnce(&mut Vec<u8>) -> u16) {
        self.write(ANSWER, write);
    }

    /// Adds to the authority section, as [`Reply::answer_with`] does.
    pub(crate) fn authority_with(&mut self, write: impl FnOnce(&mut Vec<u8>) -> u16) {
        self.write(AUTHORITY, write);
    }

    /// Adds to the authority section, as [`Reply::answer`] does.
    pub(crate) fn authority(&mut self, owner: u16, records: Records<'_>) -> usize {
        self.must_fit(AUTHORITY, owner, records)
    }

    /// Adds to the additional section. What does not fit is left out, or truncates the reply when
    /// it is `needed`.
    pub(crate) fn additional(&mut self, owner: u16, records: Records<'_>, needed: bool) {
        if needed || self.fits(records.bytes.len()) {
            self.must_fit(ADDITIONAL, owner, records);
        }
    }

    /// Writes the serial into the SOA record that was added last.
    pub(crate) fn serial(&mut self, serial: u32) {
        if !self.truncated {
            write_serial(self.out, serial);
        }
    }

    /// Says why there are no records, if there is room; an error that came first stays.
    pub(crate) fn explain(&mut self, error: ExtendedError) {
        let before = self.extras.length();
        let extras = Extras { error: self.extras.error.or(Some(error)), ..self.extras };
        let more = extras.length().saturating_sub(before);
        if self.fits(more) {
            self.limit = self.limit.saturating_sub(more);
            self.extras = extras;
        }
    }

    /// Takes all records out; `truncated`: as if they had not fitted.
    pub(crate) fn cut(&mut self, truncated: bool) {
        self.truncate();
        self.truncated = truncated;
    }

    /// There is no reply.
    pub(crate) fn abandon(self) {
        self.out.clear();
    }

    /// Ends the last section.
    ///
    /// # Errors
    /// When signatures are wanted that cannot be made now; the reply is then empty.
    pub(crate) fn close(&mut self) -> Result<(), Exhausted> {
        self.seal();
        if self.exhausted { Err(Exhausted) } else { Ok(()) }
    }

    /// Writes the OPT record and the header. `scope` goes with a client subnet, if the query had
    /// one. Tells whether the reply was truncated.
    pub(crate) fn finish(mut self, rcode: u16, authoritative: bool, scope: u8) -> bool {
        if let Some(edns) = &self.head.edns {
            let options = opt_bytes(self.head, &self.extras).saturating_sub(OPT_FIXED_BYTES);
            self.out.push(0);
            self.out.extend(rtype::OPT.to_be_bytes());
            self.out.extend(UDP_BYTES_MAX.to_be_bytes());
            let extended = u8::try_from(rcode >> 4).unwrap_or(u8::MAX);
            let compact = edns.compact_ok && self.sealer.is_some();
            let flags = u8::from(edns.dnssec_ok) << 7 | u8::from(compact) << 6;
            self.out.extend([extended, 0, flags, 0]);
            self.out.extend(u16::try_from(options).unwrap_or(u16::MAX).to_be_bytes());
            if let Some(subnet) = &edns.subnet {
                subnet.write(scope, self.out);
            }
            self.extras.write(self.out);
            self.count(ADDITIONAL, 1);
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

    /// Signs the section that is being written, which ends here.
    fn seal(&mut self) {
        let (section, begin) = self.section;
        let end = self.out.len();
        let Some(sealer) = self.sealer.as_mut().filter(|_| !self.truncated && begin < end) else {
            return;
        };
        match sealer.seal(self.out, begin) {
            Ok(count) if self.out.len() <= self.limit => self.count(section, count),
            // Additional records may do without (RFC 4035 section 3.1.1).
            Ok(_) if section == ADDITIONAL => self.out.truncate(end),
            Ok(_) => self.truncate(),
            Err(Exhausted) => {
                self.exhausted = true;
                self.truncate();
            }
        }
    }

    fn enter(&mut self, section: usize) {
        if self.section.0 != section {
            self.seal();
            self.section = (section, self.out.len());
        }
    }

    fn write(&mut self, section: usize, write: impl FnOnce(&mut Vec<u8>) -> u16) {
        self.enter(section);
        if self.truncated {
            return;
        }
        let count = write(self.out);
        if self.out.len() <= self.limit {
            self.count(section, count);
        } else {
            self.truncate();
        }
    }

    fn must_fit(&mut self, section: usize, owner: u16, records: Records<'_>) -> usize {
        self.enter(section);
        let start = self.out.len();
        if self.fits(records.bytes.len()) {
            self.out.extend_from_slice(records.bytes);
            if owner != QUESTION_NAME {
                set_owner(self.out.get_mut(start..).unwrap_or_default(), owner);
            }
            self.count(section, records.count);
        } else {
            self.truncate();
        }
        start
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
fn opt_bytes(head: &Head<'_>, extras: &Extras<'_>) -> usize {
    let Some(edns) = &head.edns else { return 0 };
    let subnet = edns.subnet.map_or(0, |subnet| subnet.length());
    OPT_FIXED_BYTES.saturating_add(subnet).saturating_add(extras.length())
}
