//! What a project wants of the edges: how much of an object is fetched, and what of a query counts.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How much of an object an edge fetches beyond what its clients ask for.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Completion {
    /// The whole once there is proof of demand: two client prefixes, or a tenth of its blocks.
    #[default]
    Popular,
    /// The whole, from the first request on.
    Complete,
    /// Only blocks that a client asked for.
    Demanded,
}

impl Completion {
    /// All of them, the default first.
    pub const ALL: [Self; 3] = [Self::Popular, Self::Complete, Self::Demanded];
}

impl fmt::Display for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Popular => "popular",
            Self::Complete => "complete",
            Self::Demanded => "demanded",
        })
    }
}

/// Not the word of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No [`Completion`].
    #[error("write popular, complete or demanded")]
    Completion,
    /// No [`Query`].
    #[error("write keep, drop or a list of parameter names")]
    Query,
}

impl FromStr for Completion {
    type Err = PolicyError;
    fn from_str(s: &str) -> Result<Self, PolicyError> {
        let found = Self::ALL.into_iter().find(|completion| completion.to_string() == s);
        found.ok_or(PolicyError::Completion)
    }
}

/// What of the query of a URL belongs to the object's name and travels to masters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum Query {
    /// All of it, as it stands.
    #[default]
    Keep,
    /// Nothing: `/a?x=1` is `/a`.
    Drop,
    /// The parameters of these names, at least one, and no others.
    Only(Vec<String>),
}

/// A [`Query`] as documents have it: a word or a list of names.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Word(String),
    Names(Vec<String>),
}

impl From<Query> for Written {
    fn from(query: Query) -> Self {
        match query {
            Query::Keep => Self::Word("keep".to_owned()),
            Query::Drop => Self::Word("drop".to_owned()),
            Query::Only(names) => Self::Names(names),
        }
    }
}

impl TryFrom<Written> for Query {
    type Error = PolicyError;
    fn try_from(written: Written) -> Result<Self, PolicyError> {
        match written {
            Written::Word(word) => word.parse(),
            Written::Names(names) if names.is_empty() => Err(PolicyError::Query),
            Written::Names(names) => Ok(Self::Only(names)),
        }
    }
}

impl FromStr for Query {
    type Err = PolicyError;
    fn from_str(s: &str) -> Result<Self, PolicyError> {
        match s {
            "keep" => Ok(Self::Keep),
            "drop" => Ok(Self::Drop),
            _ => Err(PolicyError::Query),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_is_one_word() {
        for completion in Completion::ALL {
            let word = completion.to_string();
            assert_eq!(word.parse(), Ok(completion));
            assert_eq!(serde_json::to_string(&completion).unwrap(), format!("\"{word}\""));
        }
        assert_eq!("Popular".parse::<Completion>(), Err(PolicyError::Completion));
    }

    #[test]
    fn a_query_policy_is_a_word_or_names() {
        for (text, query) in [
            ("\"keep\"", Query::Keep),
            ("\"drop\"", Query::Drop),
            ("[\"id\",\"v\"]", Query::Only(vec!["id".into(), "v".into()])),
        ] {
            assert_eq!(serde_json::from_str::<Query>(text).unwrap(), query);
            assert_eq!(serde_json::to_string(&query).unwrap(), text);
        }
        for text in ["\"all\"", "[]", "7", "[7]"] {
            assert!(serde_json::from_str::<Query>(text).is_err(), "{text}");
        }
    }
}
