//! Signatures of node maps: Ed25519 in the files of minisign.
//!
//! A publisher signs the exact bytes of a document with its [`SecretKey`]; readers hold some
//! [`PublicKey`]s and take a document that one of them has signed ([`TrustedKeys`]). Keys and
//! signature files are those of minisign: either program makes them for the other. We write pure Ed25519
//! (RFC 8032, minisign's `Ed`), which any tool can check against the bytes themselves, and also
//! read the form that signs their BLAKE2b-512 hash (`ED`).
//!
//! What a signature does not say is when it was made: an old document stays well signed. Whoever
//! reads holds the generation against the one it has (invariant H2).
//!
//! Secret keys are not encrypted, since a publisher starts without a person: their file must be its
//! owner's alone.

use std::fmt;
use std::str::FromStr;

use blake2::{Blake2b512, Digest};
use model::base64;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

/// Bytes of a key's seed.
pub const SEED_BYTES: usize = 32;
/// Bytes of the number that tells keys apart.
pub const ID_BYTES: usize = 8;
/// Longest file of a key or a signature that is read, bytes.
pub const FILE_BYTES_MAX: u64 = 8192;

/// Of keys, and of signatures of the bytes themselves.
const PLAIN: [u8; 2] = *b"Ed";
/// Of signatures of the hash of the bytes.
const HASHED: [u8; 2] = *b"ED";
const UNTRUSTED: &str = "untrusted comment: ";
const TRUSTED: &str = "trusted comment: ";

/// The number that minisign gives a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId([u8; ID_BYTES]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016X}", u64::from_le_bytes(self.0))
    }
}

/// What a text should have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Not a public key.
    #[error("no public key of minisign: write the line of base64 that begins with RW")]
    PublicKey,
    /// Not a secret key.
    #[error("no secret key of minisign: make one with `cacheboy map keygen`")]
    SecretKey,
    /// A secret key that a password protects.
    #[error(
        "the secret key is encrypted, and a publisher starts without a person: make one with \
         `cacheboy map keygen` or `minisign -G -W`"
    )]
    Encrypted,
    /// Not a signature.
    #[error("no signature of minisign")]
    Signature,
}

/// Why a document is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// There is no signature at all.
    #[error("it is not signed: is `key` set in [health] of its publisher?")]
    Unsigned,
    /// Signed by somebody else.
    #[error("it is signed with key {0}, which is not among the trusted keys")]
    Unknown(KeyId),
    /// The bytes are not those that were signed.
    #[error("the signature of key {0} is not one of this document")]
    Wrong(KeyId),
}

/// A key that documents are checked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    id: KeyId,
    point: [u8; 32],
}

impl PublicKey {
    /// Its number.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// The two lines of its file.
    pub fn to_file(&self) -> String {
        format!("{UNTRUSTED}minisign public key {}\n{self}\n", self.id)
    }

    fn signed(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.point).verify(message, signature).is_ok()
    }
}

impl FromStr for PublicKey {
    type Err = ReadError;
    /// The line of base64, or a whole file.
    fn from_str(text: &str) -> Result<Self, ReadError> {
        let read = || {
            let bytes = base64::decode(last_line(text)?)?;
            let (algorithm, rest) = bytes.split_first_chunk::<2>()?;
            let (id, point) = rest.split_first_chunk::<ID_BYTES>()?;
            let point = point.try_into().ok().filter(|_| *algorithm == PLAIN)?;
            Some(Self { id: KeyId(*id), point })
        };
        read().ok_or(ReadError::PublicKey)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base64::encode(&[&PLAIN[..], &self.id.0, &self.point].concat()))
    }
}

/// A key that documents are signed with. Never shown.
pub struct SecretKey {
    id: KeyId,
    seed: [u8; SEED_BYTES],
    pair: Ed25519KeyPair,
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey({})", self.id)
    }
}

impl SecretKey {
    /// The key of `seed`, which nobody must be able to guess; `id` tells it from others.
    ///
    /// # Errors
    /// The seed makes no key, which no seed does.
    pub fn new(seed: [u8; SEED_BYTES], id: [u8; ID_BYTES]) -> Result<Self, ReadError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| ReadError::SecretKey)?;
        Ok(Self { id: KeyId(id), seed, pair })
    }

    /// Reads the file of a secret key.
    ///
    /// # Errors
    /// It is none, or encrypted.
    pub fn from_file(text: &str) -> Result<Self, ReadError> {
        let parts = || {
            let bytes = base64::decode(last_line(text)?)?;
            let (algorithm, rest) = bytes.split_first_chunk::<2>()?;
            let (derivation, rest) = rest.split_first_chunk::<2>()?;
            let (_hash, rest) = rest.split_first_chunk::<2>()?;
            // Salt and limits of the derivation, which an unencrypted key does not use.
            let (_, rest) = rest.split_first_chunk::<48>()?;
            let (id, rest) = rest.split_first_chunk::<ID_BYTES>()?;
            let (seed, rest) = rest.split_first_chunk::<SEED_BYTES>()?;
            // The checksum after it tells a wrong password.
            let (point, _) = rest.split_first_chunk::<32>()?;
            (*algorithm == PLAIN).then_some((*derivation, *id, *seed, *point))
        };
        let (derivation, id, seed, point) = parts().ok_or(ReadError::SecretKey)?;
        if derivation != [0; 2] {
            return Err(ReadError::Encrypted);
        }
        let key = Self::new(seed, id)?;
        (key.public_key().point == point).then_some(key).ok_or(ReadError::SecretKey)
    }

    /// Its file, as minisign writes keys without a password.
    pub fn to_file(&self) -> String {
        let point = self.public_key().point;
        let bytes =
            [&PLAIN[..], &[0; 2], b"B2", &[0; 48], &self.id.0, &self.seed, &point, &[0; 32]];
        let line = base64::encode(&bytes.concat());
        format!("{UNTRUSTED}secret key of Cacheboy {}, not encrypted\n{line}\n", self.id)
    }

    /// What others check its signatures with.
    pub fn public_key(&self) -> PublicKey {
        let mut point = [0; 32];
        point.copy_from_slice(self.pair.public_key().as_ref());
        PublicKey { id: self.id, point }
    }

    /// Signs a document. `comment` is one line that is signed with it.
    pub fn sign(&self, document: &[u8], comment: &str) -> SignatureFile {
        let signature = Signature { hashed: false, id: self.id, bytes: self.raw(document) };
        let comment: String = comment.chars().filter(|c| !c.is_control()).collect();
        let whole = self.raw(&[&signature.bytes, comment.as_bytes()].concat());
        SignatureFile { signature, comment, whole }
    }

    fn raw(&self, message: &[u8]) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes.copy_from_slice(self.pair.sign(message).as_ref());
        bytes
    }
}

/// A signature of a document, as it travels in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    hashed: bool,
    id: KeyId,
    bytes: [u8; 64],
}

impl Signature {
    /// Which key made it, by its own word.
    pub fn id(&self) -> KeyId {
        self.id
    }
}

impl FromStr for Signature {
    type Err = ReadError;
    fn from_str(line: &str) -> Result<Self, ReadError> {
        let read = || {
            let all = base64::decode(line)?;
            let (algorithm, rest) = all.split_first_chunk::<2>()?;
            let (id, bytes) = rest.split_first_chunk::<ID_BYTES>()?;
            let hashed = match *algorithm {
                PLAIN => false,
                HASHED => true,
                _ => return None,
            };
            Some(Self { hashed, id: KeyId(*id), bytes: bytes.try_into().ok()? })
        };
        read().ok_or(ReadError::Signature)
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let algorithm = if self.hashed { HASHED } else { PLAIN };
        f.write_str(&base64::encode(&[&algorithm[..], &self.id.0, &self.bytes].concat()))
    }
}

/// A signature as a file beside the document: with a comment, which is signed too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureFile {
    /// Of the document.
    pub signature: Signature,
    /// One line.
    pub comment: String,
    whole: [u8; 64],
}

impl FromStr for SignatureFile {
    type Err = ReadError;
    /// Reads the first four lines.
    fn from_str(text: &str) -> Result<Self, ReadError> {
        let read = || {
            let mut lines = text.lines();
            lines.next().filter(|line| line.starts_with(UNTRUSTED))?;
            let signature = lines.next()?.parse().ok()?;
            let comment = lines.next()?.strip_prefix(TRUSTED)?.to_owned();
            let whole = base64::decode(lines.next()?)?.try_into().ok()?;
            Some(Self { signature, comment, whole })
        };
        read().ok_or(ReadError::Signature)
    }
}

impl fmt::Display for SignatureFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { signature, comment, whole } = self;
        writeln!(f, "{UNTRUSTED}signature of a node map, key {}", signature.id)?;
        writeln!(f, "{signature}\n{TRUSTED}{comment}\n{}", base64::encode(whole))
    }
}

/// The keys whose documents are taken; without any, all are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedKeys(pub Vec<PublicKey>);

impl TrustedKeys {
    /// Whether signatures are asked for.
    pub fn are_needed(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether `document` is to be believed: always without trusted keys, else when one of them has
    /// signed it.
    ///
    /// # Errors
    /// Why not.
    pub fn verify(
        &self,
        document: &[u8],
        signature: Option<&Signature>,
    ) -> Result<(), VerifyError> {
        if !self.are_needed() {
            return Ok(());
        }
        let signature = signature.ok_or(VerifyError::Unsigned)?;
        let mut known = self.0.iter().filter(|key| key.id == signature.id).peekable();
        if known.peek().is_none() {
            return Err(VerifyError::Unknown(signature.id));
        }
        let hash = signature.hashed.then(|| Blake2b512::digest(document));
        let message = hash.as_ref().map_or(document, |hash| hash.as_slice());
        let good = known.any(|key| key.signed(message, &signature.bytes));
        good.then_some(()).ok_or(VerifyError::Wrong(signature.id))
    }

    /// The same for a signature with its comment.
    ///
    /// # Errors
    /// Why not.
    pub fn verify_file(&self, document: &[u8], file: &SignatureFile) -> Result<(), VerifyError> {
        self.verify(document, Some(&file.signature))?;
        let id = file.signature.id;
        let message = [&file.signature.bytes, file.comment.as_bytes()].concat();
        let good = self.0.iter().any(|key| key.id == id && key.signed(&message, &file.whole));
        (good || !self.are_needed()).then_some(()).ok_or(VerifyError::Wrong(id))
    }
}

/// The line of base64: the last one with anything in it.
fn last_line(text: &str) -> Option<&str> {
    text.lines().map(str::trim).rfind(|line| !line.is_empty())
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)] // of bytes written here
mod tests {
    use super::*;

    fn key(seed: u8) -> SecretKey {
        SecretKey::new([seed; SEED_BYTES], [seed; ID_BYTES]).unwrap()
    }

    #[test]
    fn the_signature_is_that_of_rfc_8032() {
        // Section 7.1, test 2.
        let seed = [
            0x4c, 0xcd, 0x08, 0x9b, 0x28, 0xff, 0x96, 0xda, 0x9d, 0xb6, 0xc3, 0x46, 0xec, 0x11,
            0x4e, 0x0f, 0x5b, 0x8a, 0x31, 0x9f, 0x35, 0xab, 0xa6, 0x24, 0xda, 0x8c, 0xf6, 0xed,
            0x4f, 0xb8, 0xa6, 0xfb,
        ];
        let signed = SecretKey::new(seed, [0; 8]).unwrap().sign(&[0x72], "");
        assert_eq!(signed.signature.bytes[..4], [0x92, 0xa0, 0x09, 0xa9]);
        assert_eq!(signed.signature.bytes[60..], [0x12, 0xbb, 0x0c, 0x00][..]);
    }

    #[test]
    fn what_is_written_is_read() {
        let secret = key(1);
        let again = SecretKey::from_file(&secret.to_file()).unwrap();
        assert_eq!(again.public_key(), secret.public_key());
        let public = secret.public_key();
        assert_eq!(public.to_string().parse(), Ok(public.clone()));
        assert_eq!(public.to_file().parse(), Ok(public.clone()));
        assert!(public.to_string().starts_with("RW"), "{public}");
        let signed = secret.sign(b"map", "generation:7\nforged");
        assert_eq!(signed.comment, "generation:7forged");
        assert_eq!(signed.to_string().parse(), Ok(signed.clone()));
        assert_eq!(signed.signature.to_string().parse(), Ok(signed.signature.clone()));
    }

    #[test]
    fn only_the_bytes_that_a_trusted_key_signed_are_believed() {
        let trusted = TrustedKeys(vec![key(1).public_key(), key(2).public_key()]);
        let signed = key(2).sign(b"map", "generation:7");
        let verify = |document: &[u8], signature| trusted.verify(document, signature);
        assert_eq!(verify(b"map", Some(&signed.signature)), Ok(()));
        assert_eq!(trusted.verify_file(b"map", &signed), Ok(()));
        let id = signed.signature.id;
        assert_eq!(verify(b"mop", Some(&signed.signature)), Err(VerifyError::Wrong(id)));
        assert_eq!(verify(b"map", None), Err(VerifyError::Unsigned));
        let other = key(3).sign(b"map", "");
        let unknown = Err(VerifyError::Unknown(other.signature.id));
        assert_eq!(verify(b"map", Some(&other.signature)), unknown);
        // Of another key that gives itself the number of a trusted one.
        let posing = SecretKey::new([3; SEED_BYTES], [2; ID_BYTES]).unwrap().sign(b"map", "");
        assert_eq!(verify(b"map", Some(&posing.signature)), Err(VerifyError::Wrong(id)));
        let forged = SignatureFile { comment: "generation:8".into(), ..signed };
        assert_eq!(trusted.verify_file(b"map", &forged), Err(VerifyError::Wrong(id)));
        assert_eq!(TrustedKeys::default().verify(b"map", None), Ok(()));
    }

    #[test]
    fn what_is_no_key_or_signature_is_refused() {
        for text in ["", "x", "RW", "untrusted comment: x\n", &key(1).to_file()] {
            assert_eq!(text.parse::<PublicKey>(), Err(ReadError::PublicKey), "{text}");
            assert_eq!(text.parse::<Signature>(), Err(ReadError::Signature), "{text}");
            assert_eq!(text.parse::<SignatureFile>(), Err(ReadError::Signature), "{text}");
        }
        let file = key(1).to_file();
        let line = last_line(&file).unwrap();
        let mut bytes = base64::decode(line).unwrap();
        let read = |bytes: &[u8]| SecretKey::from_file(&base64::encode(bytes)).map(|k| k.id);
        assert!(read(&bytes).is_ok());
        bytes[2..4].copy_from_slice(b"Sc");
        assert_eq!(read(&bytes), Err(ReadError::Encrypted));
        bytes[2..4].copy_from_slice(&[0; 2]);
        for at in [0, 70, 100, 125] {
            let mut broken = bytes.clone();
            broken[at] ^= 1;
            assert_eq!(read(&broken), Err(ReadError::SecretKey), "byte {at}");
        }
    }
}
