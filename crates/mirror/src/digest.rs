//! The name of a content: SHA-256 over the whole file, and the header fields made from it.
//!
//! Equal content has an equal name on every master; nothing else goes in.

use std::fmt;

use model::base64;
use sha2::{Digest, Sha256};

use crate::path::hex_digit;

/// SHA-256 of a file's whole content. Prints as 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentDigest([u8; 32]);

impl ContentDigest {
    /// The digest of `content` held in memory.
    pub fn of(content: &[u8]) -> Self {
        let mut hasher = ContentHasher::default();
        hasher.update(content);
        hasher.finish().0
    }

    /// The strong validator: the digest's first 128 bits in quotes (RFC 9110 section 8.8.3).
    ///
    /// Half of the digest is enough to tell any two contents apart by accident or design, and
    /// keeps the field short on every response.
    pub fn etag(&self) -> String {
        let hex = self.to_string();
        format!("\"{}\"", hex.get(..32).unwrap_or(&hex))
    }

    /// The value of `Repr-Digest` (RFC 9530 section 3): `sha-256=:BASE64:`.
    pub fn repr_digest(&self) -> String {
        format!("sha-256=:{}:", base64::encode(&self.0))
    }

    /// Reads 64 hexadecimal digits.
    pub fn from_hex(hex: &str) -> Option<Self> {
        let mut digits = hex.bytes().map(hex_digit);
        let mut bytes = [0; 32];
        for byte in &mut bytes {
            let (high, low) = (digits.next()??, digits.next()??);
            *byte = high << 4 | low;
        }
        digits.next().is_none().then_some(Self(bytes))
    }
}

impl fmt::Display for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Digest of a content that is read piece by piece.
#[derive(Clone, Debug, Default)]
pub struct ContentHasher {
    sha256: Sha256,
    bytes: u64,
}

impl ContentHasher {
    /// Takes the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.sha256.update(piece);
        self.bytes = self.bytes.saturating_add(piece.len() as u64);
    }

    /// The digest of all pieces, and how many bytes they were.
    pub fn finish(self) -> (ContentDigest, u64) {
        (ContentDigest(self.sha256.finalize().into()), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        // Digest of "abc" from FIPS 180-4; the fields as RFC 9530 and RFC 9110 spell them.
        let digest = ContentDigest::of(b"abc");
        let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), hex);
        assert_eq!(digest.etag(), "\"ba7816bf8f01cfea414140de5dae2223\"");
        assert_eq!(digest.repr_digest(), "sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:");
        assert_eq!(ContentDigest::from_hex(hex), Some(digest));
    }

    #[test]
    fn pieces_make_the_same_digest_as_the_whole() {
        let mut hasher = ContentHasher::default();
        hasher.update(b"a");
        hasher.update(b"");
        hasher.update(b"bc");
        assert_eq!(hasher.finish(), (ContentDigest::of(b"abc"), 3));
    }

    #[test]
    fn only_64_hexadecimal_digits_are_a_digest() {
        let hex = ContentDigest::of(b"").to_string();
        assert!(ContentDigest::from_hex(&hex).is_some());
        for bad in ["", &hex[..62], &format!("{hex}0"), &hex.replace('e', "g")] {
            assert_eq!(ContentDigest::from_hex(bad), None, "{bad}");
        }
    }
}
