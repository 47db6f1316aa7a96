//! Signs what stands in a message.

use std::hash::Hasher as _;
use std::sync::Arc;

use model::Now;
use ring::rand::SystemRandom;
use siphasher::sip128::{Hasher128 as _, SipHasher13};

use super::budget::Budget;
use super::cache::{Cache, SLOT_BYTES, Tag, Until};
use super::canonical::{Set, SetReader, labels};
use super::key::{Key, SIGNATURE_BYTES};
use super::window::Window;
use super::zone::ZoneKeys;
use crate::asker::Transport;
use crate::wire::{CLASS_IN, QUESTION_NAME, rtype};

/// Rows of the cache of sets that are asked for again and again: 32,768 signatures.
const LASTING_ROWS: usize = 8192;
/// Rows of the cache for names that clients think up: 4096 signatures.
const PASSING_ROWS: usize = 1024;
/// Signatures a second, over each transport, for names that clients think up: a twentieth of one core.
const PASSING_PER_S: u32 = 2000;
/// An RRSIG record's fixed part of data (RFC 4034 section 3.1).
const FIXED_BYTES: usize = 18;

/// What all threads share: signatures made already, and how many more may be made.
#[derive(Debug)]
pub struct Signer {
    /// Of sets that are few.
    lasting: Cache,
    /// Of sets that clients make up by asking. Apart, so that they never push the others out.
    passing: Cache,
    budget_udp: Budget,
    budget_tcp: Budget,
    hash_key: [u8; 16],
    random: SystemRandom,
}

impl Signer {
    /// A signer that has signed nothing yet; nobody else may know `hash_key`.
    pub fn new(hash_key: [u8; 16], random: SystemRandom) -> Self {
        Self::with_budget(hash_key, random, PASSING_PER_S)
    }

    /// The same with `per_s` signatures a second for names that clients think up.
    pub(crate) fn with_budget(hash_key: [u8; 16], random: SystemRandom, per_s: u32) -> Self {
        Self {
            lasting: Cache::new(LASTING_ROWS),
            passing: Cache::new(PASSING_ROWS),
            budget_udp: Budget::per_second(per_s),
            budget_tcp: Budget::per_second(per_s),
            hash_key,
            random,
        }
    }

    /// Memory that it takes, whatever happens.
    pub fn memory_bytes() -> usize {
        LASTING_ROWS.saturating_add(PASSING_ROWS).saturating_mul(4).saturating_mul(SLOT_BYTES)
    }

    /// When the first of the signatures that are still given expires; unix time, seconds.
    pub fn soonest_expiry_s(&self, now: Now) -> Option<u64> {
        let now_s = seconds(now.wall_s());
        let soonest = [&self.lasting, &self.passing].map(|cache| cache.soonest_s(now_s));
        soonest.into_iter().flatten().min().map(u64::from)
    }

    /// Two keyed hashes of a set: one for finding its signature, one for its place in time.
    fn hash(&self, zone: &ZoneKeys, key: &Key, records: &[u8]) -> [u64; 2] {
        let mut hasher = SipHasher13::new_with_key(&self.hash_key);
        // Zones of different length: parent and child may have records of the same name.
        hasher.write_usize(zone.apex().len());
        hasher.write_u64(key.id());
        hasher.write(records);
        let hash = hasher.finish128();
        [hash.h1, hash.h2]
    }
}

/// What a pen did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signed {
    /// Signatures made.
    pub made: u32,
    /// Signatures that were there already.
    pub found: u32,
    /// Signatures not made because too many were in this second.
    pub refused: u32,
}

/// Too many signatures were made in this second for names that clients think up, or the system
/// gives no random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhausted;

/// How a section is signed.
#[derive(Clone, Copy)]
pub(crate) struct Order {
    pub(crate) now: Now,
    pub(crate) transport: Transport,
    /// Whether the question's name is one that clients may make up: it is not there, or a wildcard
    /// stands for it.
    pub(crate) name_made_up: bool,
}

/// What one thread signs with.
#[derive(Debug)]
pub struct Pen {
    signer: Arc<Signer>,
    reader: SetReader,
    to_sign: Vec<u8>,
    signed: Signed,
}

impl Pen {
    /// A pen that shares the signatures of `signer`.
    pub fn new(signer: Arc<Signer>) -> Self {
        let (reader, to_sign) = (SetReader::default(), Vec::new());
        Self { signer, reader, to_sign, signed: Signed::default() }
    }

    /// What it did since it was last asked.
    pub fn take_signed(&mut self) -> Signed {
        std::mem::take(&mut self.signed)
    }

    /// Appends to `message` an RRSIG record for each key and record set that stands in it from
    /// `from` on; `keys_of` gives the keys for an owner (wire form, lower case) and a type. Returns
    /// the number of records.
    pub(crate) fn sign<'k>(
        &mut self,
        message: &mut Vec<u8>,
        from: usize,
        order: Order,
        keys_of: impl Fn(&[u8], u16) -> Option<&'k ZoneKeys>,
    ) -> Result<u16, Exhausted> {
        let end = message.len();
        let mut count = 0u16;
        let mut at = from;
        // Sets end before the first of the records that are appended here: those have other types.
        while at < end {
            let Some(set) = self.reader.read(message, at) else { break };
            if let Some(keys) = keys_of(&self.reader.owner, set.rtype) {
                for key in keys.signing() {
                    self.push_rrsig(message, at, set, (keys, key), order)?;
                    count = count.saturating_add(1);
                }
            }
            at = set.end;
        }
        Ok(count)
    }

    /// Appends the RRSIG record by `key` for `set`, which begins at `at` and is in the reader.
    fn push_rrsig(
        &mut self,
        message: &mut Vec<u8>,
        at: usize,
        set: Set,
        (zone, key): (&ZoneKeys, &Key),
        order: Order,
    ) -> Result<(), Exhausted> {
        let [high, low] = self.signer.hash(zone, key, &self.reader.records);
        let window = Window::at(order.now.wall_s(), zone.validity_s(), low);
        self.to_sign.clear();
        push_fixed(set, &self.reader.owner, key, window, &mut self.to_sign);
        self.to_sign.extend_from_slice(zone.apex());

        let owner_end = at.saturating_add(set.owner_bytes);
        let is_question = message.get(at..owner_end) == Some(&QUESTION_NAME.to_be_bytes());
        message.extend_from_within(at..owner_end);
        message.extend_from_slice(&rtype::RRSIG.to_be_bytes());
        message.extend_from_slice(&CLASS_IN.to_be_bytes());
        message.extend_from_slice(&set.ttl_s.to_be_bytes());
        let length = self.to_sign.len().saturating_add(SIGNATURE_BYTES);
        message.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
        message.extend_from_slice(&self.to_sign);

        // The key as well as the turn is in the tag: the same records are signed anew in each.
        let tag = Tag([high, low ^ window.begin_s]);
        message.extend_from_slice(&self.signature(
            key,
            tag,
            window,
            order.name_made_up && is_question,
            order,
        )?);
        Ok(())
    }

    /// The signature of what `to_sign` begins with and the reader holds; `passing` of what a client
    /// has made up.
    fn signature(
        &mut self,
        key: &Key,
        tag: Tag,
        window: Window,
        passing: bool,
        order: Order,
    ) -> Result<[u8; SIGNATURE_BYTES], Exhausted> {
        let Self { signer, reader, to_sign, signed } = self;
        let cache = if passing { &signer.passing } else { &signer.lasting };
        if let Some(signature) = cache.get(tag) {
            signed.found = signed.found.saturating_add(1);
            return Ok(signature);
        }
        let budget = match order.transport {
            Transport::Udp => &signer.budget_udp,
            Transport::Tcp => &signer.budget_tcp,
        };
        if passing && !budget.take(order.now.mono_ns) {
            signed.refused = signed.refused.saturating_add(1);
            return Err(Exhausted);
        }
        to_sign.extend_from_slice(&reader.records);
        let signature = key.sign(to_sign, &signer.random).ok_or(Exhausted)?;
        signed.made = signed.made.saturating_add(1);
        let until = Until { given_s: seconds(window.end_s), holds_s: seconds(window.expiration_s) };
        cache.put(tag, &signature, until, seconds(order.now.wall_s()));
        Ok(signature)
    }
}

/// The data of an RRSIG record up to the signer's name (RFC 4034 section 3.1).
pub(crate) fn push_fixed(set: Set, owner: &[u8], key: &Key, window: Window, out: &mut Vec<u8>) {
    out.reserve(FIXED_BYTES);
    out.extend_from_slice(&set.rtype.to_be_bytes());
    out.extend_from_slice(&[key.algorithm().number(), labels(owner)]);
    out.extend_from_slice(&set.ttl_s.to_be_bytes());
    out.extend_from_slice(window.wire().as_flattened());
    out.extend_from_slice(&key.tag().to_be_bytes());
}

/// Good until 2106.
fn seconds(s: u64) -> u32 {
    u32::try_from(s).unwrap_or(u32::MAX)
}
