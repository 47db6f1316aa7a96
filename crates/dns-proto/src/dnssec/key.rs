//! One key of a zone.

use std::fmt;

use model::HostName;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair};

use crate::wire::wire_name;

/// Bytes of a signature, whichever the algorithm (RFC 6605 section 4, RFC 8080 section 4).
pub(crate) const SIGNATURE_BYTES: usize = 64;
/// Flags of a key that a DS record points at: zone key, secure entry point (RFC 4034 section 2.1.1).
pub(crate) const FLAGS: u16 = 257;
/// RFC 4034 section 2.1.2.
const PROTOCOL: u8 = 3;
/// SHA-256, the digest that every validator knows (RFC 8624 section 3.3).
const DIGEST_SHA256: u8 = 2;

/// An algorithm that is signed with: the two that RFC 8624 section 3.1 recommends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// ECDSA on P-256 with SHA-256 (RFC 6605).
    EcdsaP256Sha256,
    /// Ed25519 (RFC 8080).
    Ed25519,
}

impl Algorithm {
    /// Number in DNSKEY, DS and RRSIG records.
    pub fn number(self) -> u8 {
        match self {
            Self::EcdsaP256Sha256 => 13,
            Self::Ed25519 => 15,
        }
    }

    /// The algorithm of this number.
    pub(crate) fn of(number: u8) -> Option<Self> {
        [Self::EcdsaP256Sha256, Self::Ed25519].into_iter().find(|known| known.number() == number)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::EcdsaP256Sha256 => "ECDSAP256SHA256",
            Self::Ed25519 => "ED25519",
        })
    }
}

pub(crate) enum Pair {
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

/// A private key and what is published of it. Shows nothing that is secret.
pub struct Key {
    pair: Pair,
    dnskey: Vec<u8>,
    tag: u16,
}

impl Key {
    pub(crate) fn new(pair: Pair, public: &[u8]) -> Self {
        let algorithm = match pair {
            Pair::Ecdsa(_) => Algorithm::EcdsaP256Sha256,
            Pair::Ed25519(_) => Algorithm::Ed25519,
        };
        let mut dnskey = FLAGS.to_be_bytes().to_vec();
        dnskey.extend([PROTOCOL, algorithm.number()]);
        dnskey.extend_from_slice(public);
        let tag = tag(&dnskey);
        Self { pair, dnskey, tag }
    }

    /// A new private key as PKCS #8; `None` when the system has no random numbers to give.
    pub fn generate(algorithm: Algorithm, random: &SystemRandom) -> Option<Vec<u8>> {
        let random: &dyn SecureRandom = random;
        let document = match algorithm {
            Algorithm::EcdsaP256Sha256 => {
                EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, random)
            }
            Algorithm::Ed25519 => Ed25519KeyPair::generate_pkcs8(random),
        };
        Some(document.ok()?.as_ref().to_vec())
    }

    /// What it signs with.
    pub fn algorithm(&self) -> Algorithm {
        match self.pair {
            Pair::Ecdsa(_) => Algorithm::EcdsaP256Sha256,
            Pair::Ed25519(_) => Algorithm::Ed25519,
        }
    }

    /// Short name of the key in records (RFC 4034 appendix B); not unique.
    pub fn tag(&self) -> u16 {
        self.tag
    }

    /// Data of the DNSKEY record (RFC 4034 section 2.1).
    pub fn dnskey(&self) -> &[u8] {
        &self.dnskey
    }

    /// Data of the DS record that the parent of `zone` publishes (RFC 4034 section 5.1, RFC 4509).
    pub fn ds(&self, zone: &HostName) -> Vec<u8> {
        let mut ds = self.tag.to_be_bytes().to_vec();
        ds.extend([self.algorithm().number(), DIGEST_SHA256]);
        ds.extend_from_slice(
            digest(&SHA256, &[&wire_name(zone), &self.dnskey[..]].concat()).as_ref(),
        );
        ds
    }

    /// A number that no other key has, by all likelihood: the begin of its public half.
    pub(crate) fn id(&self) -> u64 {
        let public = self.dnskey.get(4..).and_then(|public| public.first_chunk());
        public.map_or(0, |begin| u64::from_be_bytes(*begin))
    }

    /// Signs `message`; `None` when the system has no random numbers to give.
    pub(crate) fn sign(
        &self,
        message: &[u8],
        random: &SystemRandom,
    ) -> Option<[u8; SIGNATURE_BYTES]> {
        let signature = match &self.pair {
            Pair::Ecdsa(pair) => pair.sign(random, message).ok()?,
            Pair::Ed25519(pair) => pair.sign(message),
        };
        signature.as_ref().try_into().ok()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.algorithm(), self.tag)
    }
}

/// RFC 4034 appendix B.
fn tag(dnskey: &[u8]) -> u16 {
    let words = dnskey.chunks(2).map(|pair| {
        let high = pair.first().copied().map_or(0, u32::from);
        high << 8 | pair.get(1).copied().map_or(0, u32::from)
    });
    let sum = words.fold(0u32, u32::wrapping_add);
    let folded = sum.wrapping_add(sum >> 16) & u32::from(u16::MAX);
    u16::try_from(folded).unwrap_or(0)
}
