//! A TSIG key, and its file: the form that `tsig-keygen` writes and BIND, NSD (through its own words) and
//! Knot know: `key "NAME" { algorithm hmac-sha256; secret "BASE64"; };`.

use std::fmt;

use model::{HostName, base64};
use ring::hmac;

use crate::wire::wire_name;

/// Fewest bytes of a secret: less can be tried out.
const SECRET_BYTES_MIN: usize = 16;

/// A key that two ends have.
pub struct TsigKey {
    /// In wire form, lower case.
    pub(crate) name: Box<[u8]>,
    pub(super) algorithm: Algorithm,
    pub(super) key: hmac::Key,
}

/// See the module above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Sha256,
    Sha384,
    Sha512,
}

/// Why there is no key in a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFileError {
    /// Not the form of key files.
    #[error(
        "it is no key: write key \"NAME\" {{ algorithm hmac-sha256; secret \"BASE64\"; }}; as tsig-keygen does"
    )]
    Form,
    /// A name that is none.
    #[error("{0:?} is no name of a key: write one like transfer.example")]
    Name(String),
    /// Another algorithm.
    #[error(
        "its algorithm is {0:?}: make one with tsig-keygen -a hmac-sha256 (or -sha384, -sha512)"
    )]
    Algorithm(String),
    /// Not base64, or too short.
    #[error(
        "its secret is not base64 of {SECRET_BYTES_MIN} bytes or more: make one with tsig-keygen"
    )]
    Secret,
}

impl Algorithm {
    const ALL: [Self; 3] = [Self::Sha256, Self::Sha384, Self::Sha512];

    /// In wire form.
    pub(super) fn name(self) -> &'static [u8] {
        match self {
            Self::Sha256 => b"\x0bhmac-sha256\0",
            Self::Sha384 => b"\x0bhmac-sha384\0",
            Self::Sha512 => b"\x0bhmac-sha512\0",
        }
    }

    fn of(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let is = |algorithm: &Self| algorithm.name().get(1..12) == Some(text.as_bytes());
        Self::ALL.into_iter().find(is)
    }

    fn hmac(self) -> hmac::Algorithm {
        match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha384 => hmac::HMAC_SHA384,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }
}

impl TsigKey {
    /// Reads the text of a key file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(text: &str) -> Result<Self, KeyFileError> {
        let words = words(text);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ["key", name, "{", inside @ .., "}", ";"] = words.as_slice() else {
            return Err(KeyFileError::Form);
        };
        let (mut algorithm, mut secret) = (None, None);
        for statement in inside.chunks(3) {
            match statement {
                ["algorithm", value, ";"] => algorithm = Some(*value),
                ["secret", value, ";"] => secret = Some(*value),
                _ => return Err(KeyFileError::Form),
            }
        }
        let (Some(algorithm), Some(secret)) = (algorithm, secret) else {
            return Err(KeyFileError::Form);
        };
        let host = name.trim_end_matches('.').parse::<HostName>();
        let host = host.map_err(|_| KeyFileError::Name((*name).to_owned()))?;
        let known = Algorithm::of(algorithm);
        let algorithm = known.ok_or_else(|| KeyFileError::Algorithm(algorithm.to_owned()))?;
        let secret = base64::decode(secret).filter(|secret| secret.len() >= SECRET_BYTES_MIN);
        let secret = secret.ok_or(KeyFileError::Secret)?;
        let key = hmac::Key::new(algorithm.hmac(), &secret);
        Ok(Self { name: wire_name(&host).into(), algorithm, key })
    }
}

/// Without its secret.
impl fmt::Debug for TsigKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TsigKey").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

/// The words of a key file, without quotes and comments; braces and semicolons are words of their own.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut word = String::new();
        let mut end = |word: &mut String| {
            if !word.is_empty() {
                words.push(std::mem::take(word));
            }
        };
        for letter in line.chars() {
            match letter {
                '{' | '}' | ';' => {
                    end(&mut word);
                    end(&mut letter.to_string());
                }
                '"' => {}
                letter if letter.is_whitespace() => end(&mut word),
                letter => word.push(letter),
            }
        }
        end(&mut word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_tsig_keygen_is_read_and_other_things_are_refused() {
        let good = "# of ns2\nkey \"Transfer.Example.\" {\n\talgorithm HMAC-SHA256;\n\tsecret \
                    \"bXkgc2VjcmV0IGhhcyBieXRlcw/+\";\n};\n";
        let key = TsigKey::read(good).unwrap();
        assert_eq!(
            (&*key.name, key.algorithm),
            (&b"\x08transfer\x07example\0"[..], Algorithm::Sha256)
        );
        let error = |from: &str, to: &str| TsigKey::read(&good.replace(from, to)).unwrap_err();
        assert_eq!(error("key ", "kex "), KeyFileError::Form);
        assert_eq!(error("};", "}"), KeyFileError::Form);
        assert_eq!(error("algorithm", "algorithms"), KeyFileError::Form);
        assert_eq!(error("SHA256", "MD5"), KeyFileError::Algorithm("HMAC-MD5".into()));
        assert_eq!(error("Transfer.Example.", "a..b"), KeyFileError::Name("a..b".into()));
        assert_eq!(error("bXkgc2VjcmV0IGhhcyBieXRlcw/+", "bXkg"), KeyFileError::Secret);
        assert_eq!(error("bXkg", "bXk"), KeyFileError::Secret);
        assert!(!format!("{key:?}").contains("secret"), "{key:?}");
    }
}
