//! Copies of zones for other servers (AXFR, RFC 5936), and who may have them.
//!
//! Only zones that are all in a zone file are given, as the file has them, to whoever signs with a key
//! that was listed for the zone (`tsig`). IXFR (RFC 1995) gets the whole zone, or, over UDP, the SOA
//! record alone, which says that it is to be had over TCP (section 4).
//!
//! A copy is made message by message: [`Transfer`] holds the file, which may be replaced meanwhile, and a
//! place in it.

use std::collections::HashMap;
use std::sync::Arc;

use model::HostName;

use crate::query::Head;
use crate::snapshot::Snapshot;
use crate::tsig::{Chain, TsigKey};
use crate::wire::{CLASS_IN, HEADER_BYTES, LowerName, rtype, wire_name};
use crate::zonefile::ZoneFile;

/// Bytes of records after which a message ends.
const MESSAGE_BYTES: usize = 16 << 10;
/// Longest data of a record that can be given.
const RECORD_BYTES_MAX: usize = 48 << 10;

/// Who may copy which zones.
#[derive(Debug, Default)]
pub struct Transfers {
    keys: HashMap<Box<[u8]>, Arc<TsigKey>>,
    /// Name of a zone -> names of keys.
    allowed: HashMap<Vec<u8>, Vec<Box<[u8]>>>,
}

impl Transfers {
    /// Whoever has `key` may copy `zone`, too. Tells whether that could be noted: two keys of one name
    /// cannot be told apart.
    #[must_use]
    pub fn allow(&mut self, zone: &HostName, key: &Arc<TsigKey>) -> bool {
        let known = self.keys.entry(key.name.clone()).or_insert_with(|| Arc::clone(key));
        self.allowed.entry(wire_name(zone)).or_default().push(key.name.clone());
        Arc::ptr_eq(known, key)
    }

    /// The key of this name and algorithm.
    pub(crate) fn key(&self, name: &LowerName, algorithm: &LowerName) -> Option<&Arc<TsigKey>> {
        let key = self.keys.get(name.as_bytes())?;
        (key.algorithm_name() == algorithm.as_bytes()).then_some(key)
    }

    fn allows(&self, zone: &[u8], key: &TsigKey) -> bool {
        self.allowed.get(zone).is_some_and(|names| names.contains(&key.name))
    }

    /// The file that whoever has `key` may have a copy of; `None`: none.
    pub(crate) fn file<'a>(
        &self,
        snapshot: &'a Snapshot,
        zone: &[u8],
        key: &TsigKey,
    ) -> Option<&'a Arc<ZoneFile>> {
        let file = snapshot.static_file(zone).filter(|_| self.allows(zone, key))?;
        let longest = file.sets().iter().flat_map(|set| set.set.data()).map(<[u8]>::len).max();
        // What does not fit into a message with its name and signature cannot be given.
        longest.is_none_or(|bytes| bytes <= RECORD_BYTES_MAX).then_some(file)
    }
}

/// A copy on its way.
#[derive(Debug)]
pub(crate) struct Transfer {
    file: Arc<ZoneFile>,
    /// The next set, and record of it; the SOA record is set aside.
    next: (usize, usize),
    stage: Stage,
    id: u16,
    question: Vec<u8>,
    chain: Chain,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing was given.
    Begin,
    /// The SOA record was given, once.
    Inside,
    /// The SOA record was given at the end, too.
    Done,
}

impl Transfer {
    /// Of `file`, to the query of `head`.
    pub(crate) fn new(file: Arc<ZoneFile>, head: &Head<'_>, chain: Chain) -> Self {
        let (next, stage) = ((0, 0), Stage::Begin);
        Self { file, next, stage, id: head.id, question: head.question.to_vec(), chain }
    }

    /// Writes the next message; tells whether there is one.
    pub(crate) fn write(&mut self, now_s: u64, out: &mut Vec<u8>) -> bool {
        out.clear();
        if self.stage == Stage::Done {
            return false;
        }
        let is_first = self.stage == Stage::Begin;
        out.extend([0; HEADER_BYTES]);
        if is_first {
            out.extend_from_slice(&self.question);
        }
        let mut count = 0u16;
        while out.len() < MESSAGE_BYTES && self.stage != Stage::Done {
            count = count.saturating_add(u16::from(self.put_next(out)));
        }
        let questions = u16::from(is_first);
        // A response, authoritative.
        let header = [self.id, 0x8400, questions, count, 0, 0].map(u16::to_be_bytes);
        out.iter_mut().zip(header.as_flattened()).for_each(|(to, from)| *to = *from);
        self.chain.sign(now_s, out);
        true
    }

    /// Appends the next record; tells whether it was one.
    fn put_next(&mut self, out: &mut Vec<u8>) -> bool {
        let sets = self.file.sets();
        let soa = sets.iter().find(|set| set.set.rtype == rtype::SOA);
        let (set, record) = match self.stage {
            Stage::Begin => {
                self.stage = Stage::Inside;
                (soa, 0)
            }
            _ => {
                let (at, record) = self.next;
                match sets.get(at) {
                    None => {
                        self.stage = Stage::Done;
                        (soa, 0)
                    }
                    Some(set) if set.set.rtype == rtype::SOA || record >= set.set.data().len() => {
                        self.next = (at.saturating_add(1), 0);
                        return false;
                    }
                    Some(set) => {
                        self.next = (at, record.saturating_add(1));
                        (Some(set), record)
                    }
                }
            }
        };
        let Some(set) = set else { return false };
        let Some(data) = set.set.data().nth(record) else { return false };
        out.extend_from_slice(&set.owner);
        out.extend([set.set.rtype, CLASS_IN].map(u16::to_be_bytes).as_flattened());
        out.extend(set.set.ttl_s.to_be_bytes());
        out.extend(u16::try_from(data.len()).unwrap_or(u16::MAX).to_be_bytes());
        out.extend_from_slice(data);
        true
    }
}

#[cfg(test)]
mod tests;
