//! What one checker has seen, for the others: a JSON document that each publishes.

use std::collections::BTreeMap;
use std::fmt;

use model::{Family, Name};
use serde::{Deserialize, Serialize};

use crate::probe::Evidence;

/// Version of the document.
pub const FORMAT: u32 = 1;

/// Most views of one document that are read.
pub const VIEWS_MAX: usize = 1 << 20;

/// What a state is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "lowercase")]
pub enum Subject {
    /// A node in a family.
    Node {
        /// The node.
        node: Name,
        /// The family.
        family: Family,
    },
    /// A node in a family, for clients of a project.
    Project {
        /// The project.
        project: Name,
        /// The node.
        node: Name,
        /// The family.
        family: Family,
    },
    /// A master of a project.
    Master {
        /// The project.
        project: Name,
        /// The master.
        master: Name,
    },
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node { node, family } => write!(f, "node {node} {family}"),
            Self::Project { project, node, family } => {
                write!(f, "node {node} {family} for project {project}")
            }
            Self::Master { project, master } => write!(f, "master {project}/{master}"),
        }
    }
}

/// What a checker thinks of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It has not asked yet, or not lately: it has no vote.
    Unknown,
    /// It is as it should be.
    Pass,
    /// A master that answers otherwise than the others, or is behind them.
    Differs,
    /// Its probes fail.
    Fail,
}

impl Verdict {
    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Pass => "pass",
            Self::Differs => "differs",
            Self::Fail => "fail",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a checker thinks of one subject, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Of what.
    #[serde(flatten)]
    pub subject: Subject,
    /// What.
    pub verdict: Verdict,
    /// Why, in words for people; empty of what passes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Of the last probe that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
}

/// What a checker has seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observations {
    /// Version of the document, [`FORMAT`].
    pub format: u32,
    /// Who saw it: `[host] name`. Whose key signed it is the reader's business.
    pub checker: Name,
    /// When it was written, Unix time in milliseconds. Of two of one checker the later one holds.
    pub at_ms: u64,
    /// It suspects itself: what it sees does not count.
    pub isolated: bool,
    /// The generation it published last; 0 if none.
    pub generation: u64,
    /// Whether it publishes now.
    pub publishing: bool,
    /// Outside canary -> whether it answers.
    #[serde(default)]
    pub outside: BTreeMap<Name, bool>,
    /// In the order of their subjects.
    pub views: Vec<View>,
}

/// Why a document was refused.
#[derive(Debug, thiserror::Error)]
pub enum ObservationsError {
    /// Not the JSON of observations.
    #[error("not observations of a checker")]
    Json(#[source] serde_json::Error),
    /// Written by a newer Cacheboy, or never.
    #[error("observations of format {0}, and this program reads {FORMAT}: upgrade this host")]
    Format(u32),
    /// More than can be.
    #[error("more than {VIEWS_MAX} views")]
    TooMany,
}

impl Observations {
    /// The document.
    pub fn to_json(&self) -> Vec<u8> {
        // Every key is a string and nothing else can fail; an empty document is refused by its readers.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a document.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn parse(document: &[u8]) -> Result<Self, ObservationsError> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let head: Head = serde_json::from_slice(document).map_err(ObservationsError::Json)?;
        if head.format != FORMAT {
            return Err(ObservationsError::Format(head.format));
        }
        let read: Self = serde_json::from_slice(document).map_err(ObservationsError::Json)?;
        if read.views.len() > VIEWS_MAX { Err(ObservationsError::TooMany) } else { Ok(read) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observations_are_read_as_they_are_written() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let view = |subject, verdict, reason: &str| View {
            subject,
            verdict,
            reason: reason.into(),
            evidence: (verdict == Verdict::Fail).then(|| Evidence::new(b"GET /", b"HTTP/1.1 404")),
        };
        let (project, node, master) = (name("p"), name("n"), name("m"));
        let of_node = Subject::Node { node: node.clone(), family: Family::V4 };
        let of_project = Subject::Project { project: project.clone(), node, family: Family::V6 };
        let seen = Observations {
            format: FORMAT,
            checker: name("hc1"),
            at_ms: 7,
            isolated: false,
            generation: 6,
            publishing: true,
            outside: [(name("o"), true)].into(),
            views: vec![
                view(of_node, Verdict::Pass, ""),
                view(of_project, Verdict::Fail, "status 404"),
                view(Subject::Master { project, master }, Verdict::Differs, "is behind"),
            ],
        };
        let document = seen.to_json();
        assert_eq!(Observations::parse(&document).unwrap(), seen);
        let newer = String::from_utf8(document).unwrap().replace("\"format\":1", "\"format\":2");
        let error = Observations::parse(newer.as_bytes()).unwrap_err();
        assert!(matches!(error, ObservationsError::Format(2)));
        assert!(matches!(Observations::parse(b"{}"), Err(ObservationsError::Json(_))));
    }
}
