//! What edges and DNS servers answer authorities that check who has a name (ACME, RFC 8555).
//!
//! Nothing of it is secret. A challenge over HTTP (section 8.3) is answered with its own token and the
//! thumbprint of the account's key, so edges need not know tokens: only who has that key can use the
//! answer. A challenge over DNS (section 8.4) has a text of its own for each order.

use std::collections::BTreeMap;

use model::HostName;
use serde::{Deserialize, Serialize};

use crate::AdminMap;
use crate::admin::{KeyDigest, zone_of};

/// Names with texts at once.
const NAMES_MAX: usize = 1000;
/// Texts of one name.
const TEXTS_MAX: usize = 100;
/// Bytes of a SHA-256 in base64url without padding.
const DIGEST_BYTES: usize = 43;
/// Longest token that is answered, bytes: authorities send 22 to 86.
const TOKEN_BYTES_MAX: usize = 128;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acme {
    /// Thumbprint of the key of the account that orders (RFC 7638), base64url; `None` until it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thumbprint: Option<String>,
    /// Names in our zones, and the TXT records that they have for the time of an order.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub texts: BTreeMap<HostName, Vec<String>>,
    /// Where nodes fetch certificates; `None`: nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand_out: Option<HandOut>,
}

/// Where nodes fetch certificates with their keys, over TLS in which both ends prove their keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandOut {
    /// `HOST:PORT`.
    pub address: String,
    /// Whose key is there.
    pub identity: KeyDigest,
    /// When the last certificate was issued, Unix time in milliseconds: another number is a reason to fetch.
    pub issued_ms: u64,
}

impl Acme {
    /// What is answered to a challenge over HTTP with `token`; `None` when it is none that an
    /// authority could have made, so that nobody has other things echoed.
    pub fn key_authorization(&self, token: &str) -> Option<String> {
        let is_token = (1..=TOKEN_BYTES_MAX).contains(&token.len()) && is_base64url(token);
        let thumbprint = self.thumbprint.as_ref().filter(|_| is_token)?;
        Some(format!("{token}.{thumbprint}"))
    }

    /// What of it cannot be.
    pub(super) fn wrong_for(&self, map: &AdminMap) -> Option<String> {
        let is_digest = |text: &str| text.len() == DIGEST_BYTES && is_base64url(text);
        if !self.thumbprint.iter().all(|text| is_digest(text)) {
            return Some("acme.thumbprint is no SHA-256 in base64url".to_owned());
        }
        if self.texts.len() > NAMES_MAX {
            return Some(format!("acme.texts has more than {NAMES_MAX} names"));
        }
        self.texts.iter().find_map(|(name, texts)| {
            let why = if zone_of(map, name).is_none() {
                "lies in no zone"
            } else if texts.len() > TEXTS_MAX {
                "has too many texts"
            } else if !texts.iter().all(|text| is_digest(text)) {
                "has a text that is no SHA-256 in base64url"
            } else {
                return None;
            };
            Some(format!("acme.texts.{name} {why}"))
        })
    }
}

fn is_base64url(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeMap;
    use crate::published::ParseError;
    use crate::testing::node_map;

    const DIGEST: &str = "LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0";

    fn acme(texts: &[(&str, &[&str])]) -> Acme {
        let of = |(name, texts): &(&str, &[&str])| {
            let texts = texts.iter().map(|&text| text.to_owned()).collect();
            (name.parse().unwrap(), texts)
        };
        let texts = texts.iter().map(of).collect();
        Acme { thumbprint: Some(DIGEST.into()), texts, hand_out: None }
    }

    #[test]
    fn only_tokens_are_answered() {
        let long = "a".repeat(TOKEN_BYTES_MAX);
        let of = |token: &str| acme(&[]).key_authorization(token);
        assert_eq!(of("evaGxfADs6pSRb2LAv9IZ"), Some(format!("evaGxfADs6pSRb2LAv9IZ.{DIGEST}")));
        assert_eq!(of(&long), Some(format!("{long}.{DIGEST}")));
        for token in ["", "a/b", "<script>", "a.b", "a%20b", "\u{e4}", &format!("{long}a")] {
            assert_eq!(of(token), None, "{token}");
        }
    }

    #[test]
    fn a_map_with_texts_that_cannot_be_is_refused() {
        let mut map = node_map(7);
        for (acme, expected) in [
            (acme(&[]), None),
            (acme(&[("_acme-challenge.cdn.example", &[DIGEST])]), None),
            (Acme { thumbprint: Some("x".into()), ..acme(&[]) }, Some("acme.thumbprint is no")),
            (acme(&[("a.else.example", &[DIGEST])]), Some("acme.texts.a.else.example lies in no")),
            (acme(&[("a.cdn.example", &["x"])]), Some("acme.texts.a.cdn.example has a text")),
            (acme(&[("a.cdn.example", &[DIGEST; 101])]), Some("has too many texts")),
        ] {
            map.acme = Some(acme.clone());
            match (NodeMap::parse(&map.to_json()), expected) {
                (Ok(read), None) => assert_eq!(read.acme, Some(acme)),
                (Err(ParseError::Inconsistent(why)), Some(expected)) => {
                    assert!(why.contains(expected), "{why}");
                }
                (other, _) => panic!("{acme:?}: {other:?}"),
            }
        }
    }
}
