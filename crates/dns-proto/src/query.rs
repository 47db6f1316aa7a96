//! Bytes to a query, or the reason why not.

use crate::cookie::Cookie;
use crate::outcome::{Dropped, Sort};
use crate::subnet::ClientSubnet;
use crate::wire::{HEADER_BYTES, LowerName, Reader, UDP_BYTES_PLAIN, option, rtype};

/// What a reply needs to know of a message, whether it was understood or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    pub(crate) id: u16,
    pub(crate) opcode: u8,
    pub(crate) recursion_desired: bool,
    /// The question as it came: name, type and class. Empty when it cannot be read.
    pub(crate) question: &'a [u8],
    /// The OPT record, if one was found.
    pub(crate) edns: Option<Edns>,
}

/// The OPT record of a query (RFC 6891).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edns {
    /// What the client takes over UDP, at least 512.
    pub(crate) udp_bytes: u16,
    /// DO (RFC 3225): copied back.
    pub(crate) dnssec_ok: bool,
    /// CO (RFC 9824 section 5.1): the client knows names that do not exist by their NSEC record.
    pub(crate) compact_ok: bool,
    /// The client's network.
    pub(crate) subnet: Option<ClientSubnet>,
    pub(crate) cookie: Option<Cookie>,
    /// The client asks what the server calls itself (RFC 5001).
    pub(crate) nsid: bool,
    /// The client asks how long its connection is kept (RFC 7828).
    pub(crate) keepalive: bool,
}

/// A well-formed query.
pub(crate) struct Query<'a> {
    pub(crate) head: Head<'a>,
    pub(crate) name: LowerName,
    pub(crate) qtype: u16,
    pub(crate) qclass: u16,
    /// Where its signature with a key begins (TSIG, RFC 8945), if it has one.
    pub(crate) tsig: Option<usize>,
}

/// Why a message is not a query that can be looked up.
pub(crate) enum Fault<'a> {
    /// Say nothing.
    Drop(Dropped),
    /// Say this.
    Refuse(Head<'a>, Sort),
    /// There is no question, but a cookie: the client wants one, or to know whether its own is good
    /// (RFC 7873 section 5.4).
    NoQuestion(Head<'a>),
}

/// NOTIFY (RFC 1996): its message has the form of a query.
pub(crate) const OPCODE_NOTIFY: u8 = 4;
/// Flags and opcode of the third byte.
const QR: u8 = 0x80;
const RD: u8 = 0x01;

/// Reads a message.
pub(crate) fn read(message: &[u8]) -> Result<Query<'_>, Fault<'_>> {
    let mut reader = Reader::new(message);
    let header = (|| {
        let (id, flags, _) = (reader.u16()?, reader.u8()?, reader.u8()?);
        Some((id, flags, [reader.u16()?, reader.u16()?, reader.u16()?, reader.u16()?]))
    })();
    let Some((id, flags, counts)) = header else {
        return Err(Fault::Drop(Dropped::Short));
    };
    if flags & QR != 0 {
        return Err(Fault::Drop(Dropped::Response));
    }
    let mut head = Head {
        id,
        opcode: flags >> 3 & 0xf,
        recursion_desired: flags & RD != 0,
        question: &[],
        edns: None,
    };
    let refused = |sort| Fault::Refuse(Head { edns: edns_of(message, counts), ..head }, sort);
    if head.opcode != 0 && head.opcode != OPCODE_NOTIFY {
        return Err(refused(Sort::NotImp));
    }
    let [questions, answers, authorities, additional] = counts;
    if questions == 0
        && let Some(edns) = edns_of(message, counts)
        && edns.cookie.is_some()
    {
        return Err(Fault::NoQuestion(Head { edns: Some(edns), ..head }));
    }
    if questions != 1 {
        return Err(refused(Sort::FormErr));
    }
    let Some((name, qtype, qclass)) = read_question(&mut reader) else {
        return Err(refused(Sort::FormErr));
    };
    let rest = message.len().saturating_sub(reader.left());
    head.question = message.get(HEADER_BYTES..rest).unwrap_or_default();
    let before = u32::from(answers).saturating_add(u32::from(authorities));
    match read_records(&mut reader, before, additional, &mut head.edns) {
        Ok(tsig) => {
            let tsig = tsig.map(|left| message.len().saturating_sub(left));
            Ok(Query { head, name, qtype, qclass, tsig })
        }
        Err(sort) => Err(Fault::Refuse(head, sort)),
    }
}

fn read_question(reader: &mut Reader<'_>) -> Option<(LowerName, u16, u16)> {
    Some((LowerName::read(reader)?, reader.u16()?, reader.u16()?))
}

/// The name and type of the question of a message that was refused, if they can be read.
pub(crate) fn read_question_of(head: &Head<'_>) -> Option<(LowerName, u16)> {
    let (name, qtype, _) = read_question(&mut Reader::new(head.question))?;
    Some((name, qtype))
}

/// The OPT record of a message that is refused before its records are read, if it can be found: the
/// reply must have one then (RFC 6891 section 6.1.1). The sections are those of a query, whatever the
/// opcode; each question takes at least 5 bytes, so forged counts cost nothing.
fn edns_of(message: &[u8], counts: [u16; 4]) -> Option<Edns> {
    let mut reader = Reader::new(message.get(HEADER_BYTES..)?);
    let [questions, answers, authorities, additional] = counts;
    for _ in 0..questions {
        reader.skip_name()?;
        reader.take(4)?;
    }
    let before = u32::from(answers).saturating_add(u32::from(authorities));
    let mut edns = None;
    // What else is wrong with the message does not matter any more.
    let _ = read_records(&mut reader, before, additional, &mut edns);
    edns
}

/// Walks all records behind the question: steps over `before` of them, looks for the OPT record and that
/// of a signature among the `additional` ones. Gives the number of bytes from that record on. Each takes at least 11 bytes of the message, so forged counts cost
/// nothing.
fn read_records(
    reader: &mut Reader<'_>,
    before: u32,
    additional: u16,
    edns: &mut Option<Edns>,
) -> Result<Option<usize>, Sort> {
    let mut tsig = None;
    for _ in 0..before {
        read_record(reader).ok_or(Sort::FormErr)?;
    }
    for _ in 0..additional {
        let left = reader.left();
        let record = read_record(reader).ok_or(Sort::FormErr)?;
        // Nothing stands behind a signature (RFC 8945 section 5.1).
        if tsig.is_some() {
            return Err(Sort::FormErr);
        }
        if record.rtype == rtype::TSIG {
            tsig = Some(left);
        } else if record.rtype == rtype::OPT {
            if edns.is_some() || !record.at_root {
                return Err(Sort::FormErr);
            }
            read_edns(&record, edns)?;
        }
    }
    // Bytes that no count speaks of are a broken or smuggling client.
    if reader.left() == 0 { Ok(tsig) } else { Err(Sort::FormErr) }
}

struct Record<'a> {
    at_root: bool,
    rtype: u16,
    class: u16,
    ttl: [u8; 4],
    data: &'a [u8],
}

fn read_record<'a>(reader: &mut Reader<'a>) -> Option<Record<'a>> {
    let before = reader.left();
    reader.skip_name()?;
    let at_root = before.saturating_sub(reader.left()) == 1;
    let (rtype, class) = (reader.u16()?, reader.u16()?);
    let ttl = [reader.u8()?, reader.u8()?, reader.u8()?, reader.u8()?];
    let length = reader.u16()?;
    let data = reader.take(usize::from(length))?;
    Some(Record { at_root, rtype, class, ttl, data })
}

/// Reads an OPT record into `edns`, which is set even when this fails: the reply to a bad option
/// carries an OPT record of its own. Unknown options and flags are ignored (RFC 6891 section 6.1).
fn read_edns(record: &Record<'_>, edns: &mut Option<Edns>) -> Result<(), Sort> {
    let [_, version, flags, _] = record.ttl;
    let found = edns.insert(Edns {
        udp_bytes: record.class.max(UDP_BYTES_PLAIN),
        dnssec_ok: flags & 0x80 != 0,
        compact_ok: flags & 0xc0 == 0xc0,
        subnet: None,
        cookie: None,
        nsid: false,
        keepalive: false,
    });
    // What follows in another version is not known.
    if version != 0 {
        return Err(Sort::BadVers);
    }
    let mut options = Reader::new(record.data);
    while options.left() > 0 {
        let (code, data) = read_option(&mut options).ok_or(Sort::FormErr)?;
        match code {
            option::SUBNET => {
                let subnet = ClientSubnet::read(data).ok_or(Sort::FormErr)?;
                if found.subnet.replace(subnet).is_some() {
                    // Two networks: nobody can say which is meant.
                    found.subnet = None;
                    return Err(Sort::FormErr);
                }
            }
            // All but the first are ignored (RFC 7873 section 5.2).
            option::COOKIE if found.cookie.is_none() => {
                found.cookie = Some(Cookie::read(data).ok_or(Sort::FormErr)?);
            }
            option::NSID => found.nsid = true,
            option::KEEPALIVE => found.keepalive = true,
            _ => {}
        }
    }
    Ok(())
}

fn read_option<'a>(options: &mut Reader<'a>) -> Option<(u16, &'a [u8])> {
    let (code, length) = (options.u16()?, options.u16()?);
    Some((code, options.take(usize::from(length))?))
}
