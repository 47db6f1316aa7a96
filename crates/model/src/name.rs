//! Names: of nodes, sites, pools, maps, projects and masters ([`Name`]), and DNS host names
//! ([`HostName`]).

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Why a name was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing there.
    #[error("a name cannot be empty")]
    Empty,
    /// Longer than DNS allows (RFC 1035 section 2.3.4).
    #[error("too long: a label has at most 63 characters, a host name 253")]
    TooLong,
    /// A character other than `a-z 0-9 -` (and `.` and a leading `_` in host names).
    #[error("only a-z, 0-9 and - are allowed, not at the ends with -")]
    BadCharacter,
}

/// The name of a node, site, pool, map, project or master: one DNS label in lower case
/// (RFC 1035 section 2.3.1), because node names appear in the DNS as they are.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Arc<str>);

impl FromStr for Name {
    type Err = NameError;
    fn from_str(s: &str) -> Result<Self, NameError> {
        check_label(s, false)?;
        Ok(Self(s.into()))
    }
}

/// A DNS name in lower case without the final dot, for example `videolan.cdn.example`.
///
/// Labels may begin with `_` (RFC 8552), so that service names such as `_acme-challenge` fit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostName(Arc<str>);

impl FromStr for HostName {
    type Err = NameError;
    /// Upper case is folded and one final dot is dropped; DNS names do not differ by either.
    fn from_str(s: &str) -> Result<Self, NameError> {
        let s = s.strip_suffix('.').unwrap_or(s).to_ascii_lowercase();
        if s.is_empty() {
            return Err(NameError::Empty);
        }
        if s.len() > 253 {
            return Err(NameError::TooLong);
        }
        s.split('.').try_for_each(|label| check_label(label, true))?;
        Ok(Self(s.into()))
    }
}

impl HostName {
    /// Whether this name is `zone` or lies below it.
    pub fn is_in(&self, zone: &HostName) -> bool {
        self == zone || self.0.strip_suffix(zone.as_str()).is_some_and(|left| left.ends_with('.'))
    }
}

fn check_label(s: &str, underscore: bool) -> Result<(), NameError> {
    if s.is_empty() {
        return Err(NameError::Empty);
    }
    if s.len() > 63 {
        return Err(NameError::TooLong);
    }
    let inner = if underscore { s.strip_prefix('_').unwrap_or(s) } else { s };
    let ok = !inner.is_empty()
        && inner.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !inner.starts_with('-')
        && !inner.ends_with('-');
    if ok { Ok(()) } else { Err(NameError::BadCharacter) }
}

macro_rules! string_like {
    ($t:ty) => {
        impl $t {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
        impl Borrow<str> for $t {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
        impl TryFrom<String> for $t {
            type Error = NameError;
            fn try_from(s: String) -> Result<Self, NameError> {
                s.parse()
            }
        }
        impl From<$t> for String {
            fn from(n: $t) -> Self {
                n.0.as_ref().to_owned()
            }
        }
    };
}
string_like!(Name);
string_like!(HostName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_labels() {
        assert_eq!("mirror1-au".parse::<Name>().unwrap().as_str(), "mirror1-au");
        for (bad, why) in [
            ("", NameError::Empty),
            ("-a", NameError::BadCharacter),
            ("a-", NameError::BadCharacter),
            ("A", NameError::BadCharacter),
            ("a.b", NameError::BadCharacter),
            ("_a", NameError::BadCharacter),
        ] {
            assert_eq!(bad.parse::<Name>(), Err(why), "{bad}");
        }
        assert_eq!("a".repeat(64).parse::<Name>(), Err(NameError::TooLong));
    }

    #[test]
    fn host_names_fold_case_and_know_their_zone() {
        let host: HostName = "VideoLAN.CDN.example.".parse().unwrap();
        assert_eq!(host.as_str(), "videolan.cdn.example");
        assert!(host.is_in(&"cdn.example".parse().unwrap()));
        assert!(!host.is_in(&"dn.example".parse().unwrap()));
        assert!("_acme-challenge.cdn.example".parse::<HostName>().is_ok());
        assert_eq!("a..b".parse::<HostName>(), Err(NameError::Empty));
        assert_eq!(vec!["a"; 127].join(".").len(), 253);
        assert!(vec!["a"; 127].join(".").parse::<HostName>().is_ok());
        assert_eq!(vec!["a"; 128].join(".").parse::<HostName>(), Err(NameError::TooLong));
    }
}
