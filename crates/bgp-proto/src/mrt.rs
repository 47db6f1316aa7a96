//! Files of routes in the MRT format (RFC 6396): dumps of tables (TABLE_DUMP_V2, and its entries with
//! path identifiers, RFC 8050) and recorded messages (BGP4MP, BGP4MP_ET).
//!
//! What a record carries is read as an UPDATE message is, with the same error handling (RFC 7606). Types
//! that say nothing of unicast routes are stepped over.
//!
//! Invariants: one record is in memory at a time, of at most [`RECORD_BYTES_MAX`]; whatever the bytes
//! are, reading ends with events or an error.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use model::Family;
use model::route::Attributes;

use crate::frame::{self, Kind};
use crate::open::Families;
use crate::update::{Rules, Update};
use crate::wire::Reader;

/// Longest record read, octets. Those of large collectors have some 100 KiB.
pub const RECORD_BYTES_MAX: usize = 4 << 20;

/// Types of records.
mod kind {
    pub(super) const TABLE_DUMP: u16 = 12;
    pub(super) const TABLE_DUMP_V2: u16 = 13;
    pub(super) const BGP4MP: u16 = 16;
    pub(super) const BGP4MP_ET: u16 = 17;
}

/// `MP_REACH_NLRI`, which a dump shortens to the next hop (RFC 6396 section 4.3.4).
const MP_REACH: u8 = 14;
/// The attribute's length has two octets.
const EXTENDED_LENGTH: u8 = 0x10;
/// The state of a session that is up.
const ESTABLISHED: u16 = 6;

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// In a dump: who has which route to a prefix. Malformed ones are left out.
    Table(IpNet, Vec<(IpAddr, Attributes)>),
    /// A peer told what a prefix carries now, or that it is gone.
    Told(IpAddr, IpNet, Option<Arc<Attributes>>),
    /// The session with a peer ended, and its routes with it.
    Down(IpAddr),
}

/// Why a file cannot be read on. Records are numbered from 1.
#[derive(Debug, thiserror::Error)]
pub enum MrtError {
    /// Its bytes cannot be had.
    #[error("record {0} cannot be read")]
    Io(u64, #[source] io::Error),
    /// It ends inside a record.
    #[error("the file ends inside record {0}: fetch it again")]
    Truncated(u64),
    /// It is no MRT file, or one that nobody would make.
    #[error("record {0} has {1} octets, more than {RECORD_BYTES_MAX}: is it an MRT file?")]
    TooLong(u64, u32),
    /// A record is not as RFC 6396 has it.
    #[error("record {0} is malformed: {1}")]
    Malformed(u64, &'static str),
    /// The type that TABLE_DUMP_V2 replaced in 2011.
    #[error("record {0} is of type TABLE_DUMP: only TABLE_DUMP_V2 and BGP4MP are read")]
    Old(u64),
}

/// Reads a file, record by record.
#[derive(Debug)]
pub struct Records<R> {
    from: R,
    number: u64,
    record: Vec<u8>,
    /// The peers of a dump.
    peers: Option<Vec<IpAddr>>,
    /// An UPDATE message made of an entry of a dump.
    message: Vec<u8>,
}

impl<R: Read> Records<R> {
    /// Of an MRT file without compression.
    pub fn new(from: R) -> Self {
        Self { from, number: 0, record: Vec::new(), peers: None, message: Vec::new() }
    }

    /// The events of the next record, perhaps none, into `out`, which is emptied first. False at the end
    /// of the file.
    ///
    /// # Errors
    /// When nothing more can be read.
    pub fn next(&mut self, out: &mut Vec<Event>) -> Result<bool, MrtError> {
        out.clear();
        self.number = self.number.saturating_add(1);
        let Some((kind, subtype)) = self.read_record()? else { return Ok(false) };
        let record = std::mem::take(&mut self.record);
        let number = self.number;
        let malformed = |what| MrtError::Malformed(number, what);
        let read = match kind {
            kind::TABLE_DUMP => return Err(MrtError::Old(number)),
            kind::TABLE_DUMP_V2 => self.table_dump(subtype, &record, out),
            kind::BGP4MP => messages(subtype, Reader(&record), out),
            kind::BGP4MP_ET => {
                // Microseconds come first.
                let rest = record.get(4..).ok_or(malformed("it ends inside its time"))?;
                messages(subtype, Reader(rest), out)
            }
            _ => Ok(()),
        };
        self.record = record;
        read.map_err(malformed)?;
        Ok(true)
    }

    /// Reads the next record; gives its type and subtype.
    fn read_record(&mut self) -> Result<Option<(u16, u16)>, MrtError> {
        let number = self.number;
        let mut header = [0; 12];
        match read_all(&mut self.from, &mut header) {
            Ok(0) => return Ok(None),
            Ok(read) if read == header.len() => {}
            Ok(_) => return Err(MrtError::Truncated(number)),
            Err(error) => return Err(MrtError::Io(number, error)),
        }
        let mut reader = Reader(&header);
        let fields = (reader.u32(), reader.u16(), reader.u16(), reader.u32());
        let (Some(_time), Some(kind), Some(subtype), Some(length)) = fields else {
            return Err(MrtError::Truncated(number));
        };
        let bytes = usize::try_from(length).ok().filter(|bytes| *bytes <= RECORD_BYTES_MAX);
        self.record.resize(bytes.ok_or(MrtError::TooLong(number, length))?, 0);
        match read_all(&mut self.from, &mut self.record) {
            Ok(read) if read == self.record.len() => Ok(Some((kind, subtype))),
            Ok(_) => Err(MrtError::Truncated(number)),
            Err(error) => Err(MrtError::Io(number, error)),
        }
    }

    fn table_dump(
        &mut self,
        subtype: u16,
        record: &[u8],
        out: &mut Vec<Event>,
    ) -> Result<(), &'static str> {
        let (family, has_path_id) = match subtype {
            1 => {
                self.peers =
                    Some(peer_index(Reader(record)).ok_or("the list of peers is cut off")?);
                return Ok(());
            }
            2 => (Family::V4, false),
            4 => (Family::V6, false),
            8 => (Family::V4, true),
            10 => (Family::V6, true),
            _ => return Ok(()),
        };
        let peers = self.peers.as_ref().ok_or("it comes before the list of peers")?;
        let cut = "it is cut off";
        let mut reader = Reader(record);
        let _sequence = reader.u32().ok_or(cut)?;
        let (bits, nlri) = nlri(&mut reader, family).ok_or("its prefix is none")?;
        let count = reader.u16().ok_or(cut)?;
        let mut prefix = None;
        let mut entries = Vec::new();
        for _ in 0..count {
            let peer = reader.u16().and_then(|at| peers.get(usize::from(at)));
            let peer = *peer.ok_or("an entry is of a peer that is not in the list")?;
            let _originated = reader.u32().ok_or(cut)?;
            if has_path_id {
                let _path = reader.u32().ok_or(cut)?;
            }
            let attributes = reader.part_u16().ok_or(cut)?;
            compose(&mut self.message, family, (bits, nlri), attributes).ok_or(cut)?;
            // Whose AS the routes came to is not said: what both kinds of neighbours tell is read.
            let Ok(update) = Update::parse(&self.message, &rules(true)) else { continue };
            for announced in update.announced.into_iter().flatten() {
                prefix = announced.nlri.prefixes().next().or(prefix);
                entries.extend(announced.attributes.map(|attributes| (peer, attributes)));
            }
        }
        out.extend(prefix.map(|prefix| Event::Table(prefix, entries)));
        Ok(())
    }
}

/// Reads until `into` is full or the end has come; how much.
fn read_all(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0usize;
    while let Some(room) = into.get_mut(filled..).filter(|room| !room.is_empty()) {
        match from.read(room) {
            Ok(0) => break,
            Ok(read) => filled = filled.saturating_add(read),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn rules(four_octet_as: bool) -> Rules {
    Rules { four_octet_as, internal: true, families: Families::ALL, extended_next_hop: true }
}

fn address(reader: &mut Reader<'_>, is_v6: bool) -> Option<IpAddr> {
    match is_v6 {
        false => reader.array::<4>().map(|octets| Ipv4Addr::from(octets).into()),
        true => reader.array::<16>().map(|octets| Ipv6Addr::from(octets).into()),
    }
}

/// RFC 6396 section 4.3.1.
fn peer_index(mut reader: Reader<'_>) -> Option<Vec<IpAddr>> {
    let _collector = reader.u32()?;
    let _view = reader.part_u16()?;
    let count = reader.u16()?;
    let peer = |_| {
        let kind = reader.u8()?;
        let _identifier = reader.u32()?;
        let peer = address(&mut reader, kind & 1 != 0)?;
        reader.take(if kind & 2 != 0 { 4 } else { 2 })?;
        Some(peer)
    };
    (0..count).map(peer).collect()
}

/// Length in bits and octets of a prefix.
fn nlri<'a>(reader: &mut Reader<'a>, family: Family) -> Option<(u8, &'a [u8])> {
    let bits = reader.u8().filter(|bits| *bits <= family.bits())?;
    Some((bits, reader.take(usize::from(bits.div_ceil(8)))?))
}

/// Makes the body of an UPDATE message of an entry of a dump, whose attributes have a next hop where a
/// message has more.
fn compose(
    out: &mut Vec<u8>,
    family: Family,
    (bits, octets): (u8, &[u8]),
    attributes: &[u8],
) -> Option<()> {
    out.clear();
    out.extend([0, 0, 0, 0]);
    let mut reader = Reader(attributes);
    let mut is_reached = false;
    while !reader.is_empty() {
        let begin = reader;
        let (flags, code) = (reader.u8()?, reader.u8()?);
        let value =
            if flags & EXTENDED_LENGTH != 0 { reader.part_u16() } else { reader.part_u8() }?;
        if code != MP_REACH {
            let whole = begin.0.len().checked_sub(reader.0.len())?;
            out.push(
                flags & EXTENDED_LENGTH | usual_flags(code).unwrap_or(flags & !EXTENDED_LENGTH),
            );
            out.extend_from_slice(begin.0.get(1..whole)?);
            continue;
        }
        is_reached = true;
        // Some write all of it: the next hop stands behind the families then.
        let shortened = value.split_first().filter(|(n, rest)| usize::from(**n) == rest.len());
        let next_hop = match shortened {
            Some((_, next_hop)) => next_hop,
            None => Reader(value.get(3..)?).part_u8()?,
        };
        let length =
            u16::try_from(next_hop.len().checked_add(octets.len())?.checked_add(6)?).ok()?;
        out.extend([flags | EXTENDED_LENGTH, MP_REACH]);
        out.extend(length.to_be_bytes());
        let afi = if family == Family::V4 { 1 } else { 2 };
        out.extend([0, afi, 1, u8::try_from(next_hop.len()).ok()?]);
        out.extend_from_slice(next_hop);
        out.extend([0, bits]);
        out.extend_from_slice(octets);
    }
    let length = u16::try_from(out.len().checked_sub(4)?).ok()?;
    out.get_mut(2..4)?.copy_from_slice(&length.to_be_bytes());
    if !is_reached && family == Family::V4 {
        out.push(bits);
        out.extend_from_slice(octets);
    }
    Some(())
}

/// The flags that an attribute has in a message. Collectors keep what attributes mean, not how they came:
/// BIRD writes some without flags.
fn usual_flags(code: u8) -> Option<u8> {
    const OPTIONAL: u8 = 0x80;
    const TRANSITIVE: u8 = 0x40;
    match code {
        1..=3 | 5 | 6 => Some(TRANSITIVE),
        4 | 9 | 10 => Some(OPTIONAL),
        7 | 8 | 16..=18 | 25 | 32 => Some(OPTIONAL | TRANSITIVE),
        _ => None,
    }
}

/// RFC 6396 section 4.4.
fn messages(
    subtype: u16,
    mut reader: Reader<'_>,
    out: &mut Vec<Event>,
) -> Result<(), &'static str> {
    let cut = "it is cut off";
    let (is_state, four_octet_as) = match subtype {
        0 => (true, false),
        1 => (false, false),
        4 => (false, true),
        5 => (true, true),
        _ => return Ok(()),
    };
    // Both AS numbers, and the interface.
    reader.take(if four_octet_as { 10 } else { 6 }).ok_or(cut)?;
    let is_v6 = match reader.u16().ok_or(cut)? {
        1 => false,
        2 => true,
        _ => return Err("its addresses are of no family"),
    };
    let peer = address(&mut reader, is_v6).ok_or(cut)?;
    address(&mut reader, is_v6).ok_or(cut)?;
    if is_state {
        let (old, new) = (reader.u16().ok_or(cut)?, reader.u16().ok_or(cut)?);
        if old == ESTABLISHED && new != ESTABLISHED {
            out.push(Event::Down(peer));
        }
        return Ok(());
    }
    // What nobody could send in a session says nothing of routes.
    let Ok(message) = frame::first(reader.0, true) else { return Ok(()) };
    let message = message.ok_or(cut)?;
    if message.kind != Kind::Update {
        return Ok(());
    }
    // A message for which the collector ended the session: its state change follows.
    let Ok(update) = Update::parse(message.body, &rules(four_octet_as)) else { return Ok(()) };
    for prefix in update.withdrawn.into_iter().flat_map(|nlri| nlri.prefixes()) {
        out.push(Event::Told(peer, prefix, None));
    }
    for announced in update.announced.into_iter().flatten() {
        // Thousands of prefixes may share what they carry.
        let attributes = announced.attributes.map(Arc::new);
        for prefix in announced.nlri.prefixes() {
            out.push(Event::Told(peer, prefix, attributes.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
