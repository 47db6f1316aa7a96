//! What a node is known by, and how far it is trusted.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How far a node is trusted: `trust` of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trust {
    /// It gets the certificates of the projects that it serves, with their keys.
    #[default]
    Full,
    /// It never gets any.
    Guest,
}

impl Trust {
    /// The word of the maps.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Guest => "guest",
        }
    }

    #[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
    pub(super) fn is_full(&self) -> bool {
        *self == Self::Full
    }
}

/// How a digest begins in text.
const PREFIX: &str = "sha256:";

/// SHA-256 of a public key (the `SubjectPublicKeyInfo` of RFC 5280), in text `sha256:` and 64 hexadecimal
/// digits: what one host knows another by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyDigest(pub [u8; 32]);

/// Not the digest of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write it as `cacheboy cert identity` prints it: sha256: and 64 hexadecimal digits")]
pub struct KeyDigestError;

impl FromStr for KeyDigest {
    type Err = KeyDigestError;

    fn from_str(text: &str) -> Result<Self, KeyDigestError> {
        let digits = text.strip_prefix(PREFIX).ok_or(KeyDigestError)?;
        if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(KeyDigestError);
        }
        let mut digest = [0; 32];
        for (place, byte) in digest.iter_mut().enumerate() {
            let two = place.saturating_mul(2)..place.saturating_mul(2).saturating_add(2);
            let two = digits.get(two).ok_or(KeyDigestError)?;
            *byte = u8::from_str_radix(two, 16).map_err(|_| KeyDigestError)?;
        }
        Ok(Self(digest))
    }
}

impl TryFrom<String> for KeyDigest {
    type Error = KeyDigestError;

    fn try_from(text: String) -> Result<Self, KeyDigestError> {
        text.parse()
    }
}

impl From<KeyDigest> for String {
    fn from(digest: KeyDigest) -> Self {
        digest.to_string()
    }
}

impl fmt::Display for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_read_as_they_are_written() {
        let digest = KeyDigest(std::array::from_fn(|at| u8::try_from(at * 8).unwrap()));
        let text = digest.to_string();
        assert!(text.starts_with("sha256:000810"), "{text}");
        assert_eq!(text.parse(), Ok(digest));
        assert_eq!(text.to_uppercase().replace("SHA256", "sha256").parse(), Ok(digest));
        for wrong in ["", "sha256:", &text[7..], &text[..70], &format!("{text}0"), "sha256:\u{e4}"]
        {
            assert_eq!(wrong.parse::<KeyDigest>(), Err(KeyDigestError), "{wrong}");
        }
    }
}
