//! Messages that are signed with a key both ends have (TSIG, RFC 8945).
//!
//! Order of use: [`Signature::read`] finds the record at the end of a message, [`Signature::judge`] says
//! whether it is good, and [`Chain`] signs what is answered: the first message with the MAC of the query
//! before it, each further one with that of the message before (section 5.3.1).
//!
//! HMAC with SHA-256, SHA-384 and SHA-512, whole: truncated MACs (section 5.2.2.1) are refused, and so is
//! MD5, which nobody should trust, and SHA-1, which nobody needs any more.

mod key;

use std::sync::Arc;

use ring::hmac;

pub use key::{KeyFileError, TsigKey};

use crate::wire::{HEADER_BYTES, LowerName, Reader, rtype};

/// Class ANY, which the record has (section 4.2).
const CLASS_ANY: u16 = 255;
/// How far apart the clocks of both ends may be, seconds, as the RFC recommends it (section 10).
const FUDGE_S: u16 = 300;
/// Place of the number of additional records in the header.
const ADDITIONAL_AT: usize = 10;
/// Longest MAC.
const MAC_BYTES_MAX: usize = 64;

/// What is wrong with a signature (section 5.2): the number goes into the answer's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The MAC is not that of the message.
    Signature = 16,
    /// We have no such key.
    Key = 17,
    /// It was not made now, or our clock is wrong.
    Time = 18,
}

/// The TSIG record of a message.
pub(crate) struct Signature<'a> {
    /// The message without it, as it was signed but for two fields of its header.
    before: &'a [u8],
    pub(crate) key: LowerName,
    pub(crate) algorithm: LowerName,
    time_s: u64,
    fudge_s: u16,
    mac: &'a [u8],
    original_id: u16,
    /// Error and other data, as they stand in it.
    rest: &'a [u8],
}

impl<'a> Signature<'a> {
    /// The record that begins at `at` and ends the message; `None` when it is malformed.
    pub(crate) fn read(message: &'a [u8], at: usize) -> Option<Self> {
        let (before, record) = message.split_at_checked(at)?;
        let mut reader = Reader::new(record);
        let key = LowerName::read(&mut reader)?;
        let head = [reader.u16()?, reader.u16()?, reader.u16()?, reader.u16()?];
        let length = usize::from(reader.u16()?);
        if head != [rtype::TSIG, CLASS_ANY, 0, 0] || reader.left() != length {
            return None;
        }
        let algorithm = LowerName::read(&mut reader)?;
        let [high, middle, low] = [reader.u16()?, reader.u16()?, reader.u16()?].map(u64::from);
        let fudge_s = reader.u16()?;
        let mac_bytes = reader.u16()?;
        let mac = reader.take(mac_bytes.into())?;
        let original_id = reader.u16()?;
        let (mut error, rest) = (reader, reader.take(reader.left())?);
        let (_, other) = (error.u16()?, error.u16()?);
        let time_s = high << 32 | middle << 16 | low;
        (error.left() == usize::from(other)).then_some(Self {
            before,
            key,
            algorithm,
            time_s,
            fudge_s,
            mac,
            original_id,
            rest,
        })
    }

    /// The message without the record.
    pub(crate) fn unsigned(&self) -> Vec<u8> {
        let mut message = self.before.to_vec();
        add_to_additional(&mut message, u16::MAX);
        message
    }

    /// Whether `key` made it, at about `now_s` (unix time).
    pub(crate) fn judge(&self, key: &TsigKey, now_s: u64) -> Result<(), Fault> {
        let mut signed = self.unsigned();
        let id = signed.iter_mut().zip(self.original_id.to_be_bytes());
        id.for_each(|(to, from)| *to = from);
        let variables = Variables { time_s: self.time_s, fudge_s: self.fudge_s, rest: self.rest };
        variables.put(key, &mut signed);
        // In constant time: how much of it is right is nobody's business.
        hmac::verify(&key.key, &signed, self.mac).map_err(|_| Fault::Signature)?;
        match self.time_s.abs_diff(now_s) <= self.fudge_s.into() {
            true => Ok(()),
            false => Err(Fault::Time),
        }
    }

    /// Appends the record that says what is wrong with it, to the reply that has nothing else to say.
    /// Only what is wrong with the time is signed.
    pub(crate) fn answer_fault(
        &self,
        fault: Fault,
        key: Option<&TsigKey>,
        now_s: u64,
        reply: &mut Vec<u8>,
    ) {
        let other: &[u8] = match fault {
            Fault::Time => &time(now_s),
            Fault::Signature | Fault::Key => &[],
        };
        let rest = rest_of(fault as u16, other);
        let variables = Variables { time_s: self.time_s, fudge_s: FUDGE_S, rest: &rest };
        let mac = key.filter(|_| fault == Fault::Time).map(|key| {
            let mut signed = with_length(self.mac);
            signed.extend_from_slice(reply);
            variables.put(key, &mut signed);
            hmac::sign(&key.key, &signed)
        });
        let mac = mac.as_ref().map_or(&[][..], AsRef::as_ref);
        let names = (self.key.as_bytes(), self.algorithm.as_bytes());
        append(names, &variables, mac, reply);
    }
}

impl TsigKey {
    /// Its algorithm in wire form.
    pub(crate) fn algorithm_name(&self) -> &'static [u8] {
        self.algorithm.name()
    }
}

/// What is signed beside a message (section 4.3.3).
struct Variables<'a> {
    time_s: u64,
    fudge_s: u16,
    /// Error and other data.
    rest: &'a [u8],
}

impl Variables<'_> {
    fn put(&self, key: &TsigKey, signed: &mut Vec<u8>) {
        signed.extend_from_slice(&key.name);
        signed.extend(CLASS_ANY.to_be_bytes());
        signed.extend([0; 4]);
        signed.extend_from_slice(key.algorithm.name());
        self.put_timers(signed);
        signed.extend_from_slice(self.rest);
    }

    fn put_timers(&self, signed: &mut Vec<u8>) {
        signed.extend(time(self.time_s));
        signed.extend(self.fudge_s.to_be_bytes());
    }
}

/// Signs the answers to one message.
#[derive(Debug)]
pub(crate) struct Chain {
    key: Arc<TsigKey>,
    /// The MAC before.
    mac: Vec<u8>,
    is_first: bool,
}

impl Chain {
    /// To the message that `signature`, which is good, is of.
    pub(crate) fn new(key: Arc<TsigKey>, signature: &Signature<'_>) -> Self {
        Self { key, mac: signature.mac.to_vec(), is_first: true }
    }

    /// Bytes of the record that [`Chain::sign`] appends.
    pub(crate) fn record_bytes(key: &TsigKey) -> usize {
        // The record's head behind its name, times and lengths.
        let fixed = 10usize.saturating_add(16);
        let names = key.name.len().saturating_add(key.algorithm.name().len());
        names.saturating_add(fixed).saturating_add(MAC_BYTES_MAX)
    }

    /// Appends the record to the next message, which is complete.
    pub(crate) fn sign(&mut self, now_s: u64, message: &mut Vec<u8>) {
        let rest = rest_of(0, &[]);
        let variables = Variables { time_s: now_s, fudge_s: FUDGE_S, rest: &rest };
        let mut signed = with_length(&self.mac);
        signed.extend_from_slice(message);
        match std::mem::take(&mut self.is_first) {
            true => variables.put(&self.key, &mut signed),
            false => variables.put_timers(&mut signed),
        }
        self.mac = hmac::sign(&self.key.key, &signed).as_ref().to_vec();
        append((&self.key.name, self.key.algorithm.name()), &variables, &self.mac, message);
    }
}

/// Error and other data.
fn rest_of(error: u16, other: &[u8]) -> Vec<u8> {
    let length = u16::try_from(other.len()).unwrap_or(0);
    [&error.to_be_bytes()[..], &length.to_be_bytes(), other].concat()
}

/// A MAC as it stands before what is signed after it.
fn with_length(mac: &[u8]) -> Vec<u8> {
    let length = u16::try_from(mac.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&length[..], mac].concat()
}

/// 48 bits of unix time.
fn time(time_s: u64) -> [u8; 6] {
    let [_, _, bytes @ ..] = time_s.to_be_bytes();
    bytes
}

/// Appends the record.
fn append(
    (key, algorithm): (&[u8], &[u8]),
    variables: &Variables<'_>,
    mac: &[u8],
    message: &mut Vec<u8>,
) {
    let id = message.get(..2).unwrap_or_default().to_vec();
    let mac_bytes = u16::try_from(mac.len()).unwrap_or(u16::MAX).to_be_bytes();
    let fudge = variables.fudge_s.to_be_bytes();
    let data: [&[u8]; 7] =
        [algorithm, &time(variables.time_s), &fudge, &mac_bytes, mac, &id, variables.rest];
    let data = data.concat();
    message.extend_from_slice(key);
    message.extend([rtype::TSIG, CLASS_ANY, 0, 0].map(u16::to_be_bytes).as_flattened());
    message.extend(u16::try_from(data.len()).unwrap_or(u16::MAX).to_be_bytes());
    message.extend_from_slice(&data);
    add_to_additional(message, 1);
}

/// Changes the number of additional records in the header; `u16::MAX` takes one away.
fn add_to_additional(message: &mut [u8], more: u16) {
    if let Some(place) = message.get_mut(ADDITIONAL_AT..HEADER_BYTES)
        && let [high, low] = place
    {
        [*high, *low] = u16::from_be_bytes([*high, *low]).wrapping_add(more).to_be_bytes();
    }
}

#[cfg(test)]
pub(crate) mod tests;
