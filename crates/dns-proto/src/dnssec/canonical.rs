//! Records of a message in the form that is signed (RFC 4034 section 6).
//!
//! Names are written out and in lower case; the records of a set stand in the order of their data,
//! each once. [`SetReader::read`] takes one set at a time from a message that we have made.

use crate::wire::{NAME_BYTES_MAX, rtype};

/// One record set of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) rtype: u16,
    pub(crate) ttl_s: u32,
    /// Length of the owner as the message has it, at the set's begin.
    pub(crate) owner_bytes: usize,
    /// Where the next set begins.
    pub(crate) end: usize,
}

/// Where a record of a message has its parts.
struct Record {
    rtype: u16,
    ttl_s: u32,
    data: usize,
    end: usize,
}

/// Reads sets one after the other, and keeps its memory.
#[derive(Debug, Default)]
pub(crate) struct SetReader {
    /// Owner of the set, written out, in lower case.
    pub(crate) owner: Vec<u8>,
    /// The set's records, one after the other, as they are signed.
    pub(crate) records: Vec<u8>,
    /// Data of the records in the order of the message.
    data: Vec<u8>,
    /// Where in `data` each record's is.
    parts: Vec<(usize, usize)>,
    next_owner: Vec<u8>,
}

impl SetReader {
    /// Reads the set whose first record begins at `at`: it and those behind it of the same owner and
    /// type. `None` when that is no record.
    pub(crate) fn read(&mut self, message: &[u8], at: usize) -> Option<Set> {
        self.data.clear();
        self.parts.clear();
        self.owner.clear();
        let behind_owner = read_name(message, at, &mut self.owner)?;
        let first = read_record(message, behind_owner)?;
        self.push_data(message, &first)?;
        let mut end = first.end;
        while end < message.len() {
            self.next_owner.clear();
            let behind = read_name(message, end, &mut self.next_owner)?;
            let record = read_record(message, behind)?;
            if record.rtype != first.rtype || self.next_owner != self.owner {
                break;
            }
            self.push_data(message, &record)?;
            end = record.end;
        }
        self.write_records(&first);
        let owner_bytes = behind_owner.checked_sub(at)?;
        Some(Set { rtype: first.rtype, ttl_s: first.ttl_s, owner_bytes, end })
    }

    fn push_data(&mut self, message: &[u8], record: &Record) -> Option<()> {
        let from = self.data.len();
        push_canonical(message, record, &mut self.data)?;
        self.parts.push((from, self.data.len()));
        Some(())
    }

    fn write_records(&mut self, first: &Record) {
        let Self { owner, records, data, parts, .. } = self;
        let of = |part: &(usize, usize)| data.get(part.0..part.1).unwrap_or_default();
        if parts.len() > 1 {
            parts.sort_unstable_by(|a, b| of(a).cmp(of(b)));
            parts.dedup_by(|a, b| of(a) == of(b));
        }
        records.clear();
        for part in parts.iter() {
            let data = of(part);
            records.extend_from_slice(owner);
            records.extend_from_slice(&first.rtype.to_be_bytes());
            records.extend_from_slice(&[0, 1]);
            records.extend_from_slice(&first.ttl_s.to_be_bytes());
            records.extend_from_slice(&u16::try_from(data.len()).unwrap_or(u16::MAX).to_be_bytes());
            records.extend_from_slice(data);
        }
    }
}

/// Labels of `name`, the root and a first `*` not counted (RFC 4034 section 3.1.3).
pub(crate) fn labels(name: &[u8]) -> u8 {
    let mut count = 0u8;
    let mut rest = name;
    while let Some((length, behind)) = rest.split_first().filter(|(length, _)| **length != 0) {
        count = count.saturating_add(1);
        rest = behind.get(usize::from(*length)..).unwrap_or_default();
    }
    count.saturating_sub(u8::from(name.starts_with(b"\x01*")))
}

/// The record whose type stands at `at`.
fn read_record(message: &[u8], at: usize) -> Option<Record> {
    let fixed = message.get(at..)?.first_chunk::<10>()?;
    let [type_high, type_low, _, _, t0, t1, t2, t3, length_high, length_low] = *fixed;
    let data = at.checked_add(10)?;
    let end = data.checked_add(u16::from_be_bytes([length_high, length_low]).into())?;
    let rtype = u16::from_be_bytes([type_high, type_low]);
    let ttl_s = u32::from_be_bytes([t0, t1, t2, t3]);
    (end <= message.len()).then_some(Record { rtype, ttl_s, data, end })
}

/// Appends the name at `at`, its pointers followed, in lower case; returns where it ends.
fn read_name(message: &[u8], at: usize, out: &mut Vec<u8>) -> Option<usize> {
    let begin = out.len();
    let mut at = at;
    let mut end = None;
    loop {
        let (length, rest) = message.get(at..)?.split_first()?;
        match *length {
            0 => {
                out.push(0);
                return end.or_else(|| at.checked_add(1));
            }
            pointer if pointer & 0xc0 == 0xc0 => {
                let low = rest.first()?;
                let to = usize::from(u16::from_be_bytes([pointer & 0x3f, *low]));
                end = end.or_else(|| at.checked_add(2));
                // Only back: so there is an end.
                at = Some(to).filter(|to| *to < at)?;
            }
            reserved if reserved & 0xc0 != 0 => return None,
            label => {
                out.push(label);
                out.extend(rest.get(..label.into())?.iter().map(u8::to_ascii_lowercase));
                at = at.checked_add(usize::from(label))?.checked_add(1)?;
                if out.len().saturating_sub(begin) >= NAME_BYTES_MAX {
                    return None;
                }
            }
        }
    }
}

/// A part of a record's data.
#[derive(Clone, Copy)]
enum Part {
    Bytes(usize),
    /// A string with its length in front.
    String,
    Name,
}

/// What stands in the data of `rtype` up to its last name; RFC 4034 section 6.2 has the types whose
/// names are in lower case, as RFC 6840 section 5.1 corrects it.
fn parts(rtype: u16) -> &'static [Part] {
    use Part::{Bytes, Name, String};
    match rtype {
        rtype::NS | rtype::CNAME | rtype::PTR | rtype::DNAME => &[Name],
        // MD, MF, MB, MG, MR
        3 | 4 | 7 | 8 | 9 => &[Name],
        // SOA, MINFO, RP
        rtype::SOA | 14 | 17 => &[Name, Name],
        // MX, AFSDB, RT, KX
        rtype::MX | 18 | 21 | 36 => &[Bytes(2), Name],
        // PX
        26 => &[Bytes(2), Name, Name],
        rtype::SRV => &[Bytes(6), Name],
        rtype::NAPTR => &[Bytes(4), String, String, String, Name],
        _ => &[],
    }
}

/// Appends the data of `record` as it is signed.
fn push_canonical(message: &[u8], record: &Record, out: &mut Vec<u8>) -> Option<()> {
    let mut at = record.data;
    for part in parts(record.rtype) {
        let bytes = match part {
            Part::Name => {
                at = read_name(message, at, out)?;
                continue;
            }
            Part::Bytes(bytes) => *bytes,
            Part::String => usize::from(*message.get(at)?).checked_add(1)?,
        };
        let end = at.checked_add(bytes)?;
        out.extend_from_slice(message.get(at..end)?);
        at = end;
    }
    out.extend_from_slice(message.get(at..record.end)?);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A question for `\3wWw\7example\0` and records behind it.
    fn message(records: &[&[u8]]) -> (Vec<u8>, usize) {
        let mut message = vec![0; 12];
        message.extend(b"\x03wWw\x07Example\0\0\x01\0\x01");
        let at = message.len();
        message.extend(records.concat());
        (message, at)
    }

    const WWW: &[u8] = b"\x03www\x07example\0";

    #[test]
    fn names_are_whole_and_lower_and_data_in_order_once() {
        let (message, at) = message(&[
            b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x09",
            b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01",
            b"\x03www\xc0\x10\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x09",
            b"\xc0\x10\0\x0f\0\x01\0\0\0\x3c\0\x08\0\x0a\x03MaI\xc0\x10",
        ]);
        let mut reader = SetReader::default();
        let set = reader.read(&message, at).unwrap();
        assert_eq!((set.rtype, set.ttl_s, set.owner_bytes), (1, 60, 2));
        let tail = b"\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02".as_slice();
        let expected = [WWW, tail, b"\x01", WWW, tail, b"\x09"].concat();
        assert_eq!((&reader.owner[..], &reader.records), (WWW, &expected));

        let set = reader.read(&message, set.end).unwrap();
        assert_eq!((set.rtype, set.end), (15, message.len()));
        let expected =
            [&b"\x07example\0\0\x0f\0\x01\0\0\0\x3c\0\x0f\0\x0a"[..], b"\x03mai\x07example\0"];
        assert_eq!(reader.records, expected.concat());
    }

    #[test]
    fn data_with_names_is_in_lower_case_where_the_rfc_says_so() {
        let mut reader = SetReader::default();
        let mut canonical = |rtype: u8, data: &[u8]| {
            let length = u8::try_from(data.len()).unwrap();
            let fixed = [0xc0, 0x0c, 0, rtype, 0, 1, 0, 0, 0, 60, 0, length];
            let (message, at) = message(&[&fixed, data]);
            reader.read(&message, at).unwrap();
            reader.records[WWW.len() + 10..].to_vec()
        };
        assert_eq!(canonical(33, b"\0\x01\0\x02PA\x01B\0"), b"\0\x01\0\x02PA\x01b\0"[..]);
        assert_eq!(
            canonical(35, b"\0\x01\0\x02\x01U\x03E2U\x02!A\x01R\0"),
            b"\0\x01\0\x02\x01U\x03E2U\x02!A\x01r\0"[..]
        );
        assert_eq!(canonical(6, b"\x01N\0\x01C\0abcdABCD"), b"\x01n\0\x01c\0abcdABCD"[..]);
        // TXT, and NSEC since RFC 6840.
        assert_eq!(canonical(16, b"\x01A"), b"\x01A"[..]);
        assert_eq!(canonical(47, b"\x01A\0\0\x01\x40"), b"\x01A\0\0\x01\x40"[..]);
    }

    #[test]
    fn labels_are_counted_without_root_and_wildcard() {
        assert_eq!(labels(b"\0"), 0);
        assert_eq!(labels(WWW), 2);
        assert_eq!(labels(b"\x01*\x07example\0"), 1);
        assert_eq!(labels(b"\x02*a\x07example\0"), 2);
    }

    #[test]
    fn what_is_no_record_is_not_read() {
        let mut reader = SetReader::default();
        let whole = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x09";
        for length in 0..whole.len() {
            let (message, at) = message(&[&whole[..length]]);
            assert_eq!(reader.read(&message, at), None, "{length}");
        }
        // A pointer to itself, and one ahead.
        for pointer in [b"\xc0\x1d", b"\xc0\x20"] {
            let (message, at) = message(&[pointer, &whole[2..]]);
            assert_eq!((at, reader.read(&message, at)), (0x1d, None));
        }
    }
}
