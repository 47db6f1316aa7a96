//! What became of a query, for counting.

use std::fmt;

/// What [`crate::answer`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The reply is to be sent.
    Answered(Answered),
    /// There is no reply.
    Dropped(Dropped),
}

/// A reply in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// What was answered.
    pub sort: Sort,
    /// Whether the query brought a client subnet.
    pub subnet: bool,
    /// Whether the answer did not fit and was cut (TC).
    pub truncated: bool,
}

/// Sorts of answers, each with its own word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Steered: the first pool with a node that serves.
    Steered,
    /// Steered, but earlier pools had no node that serves.
    Spilled,
    /// Steered by the project's `all_down` policy.
    AllDown,
    /// Fixed data.
    Fixed,
    /// One HINFO record for a query for everything (RFC 8482).
    MinimalAny,
    /// The name has nothing of that type.
    NoData,
    /// No such name.
    NxDomain,
    /// Outside our zones, a transfer, or another class.
    Refused,
    /// Not a well-formed query.
    FormErr,
    /// Another opcode or an obsolete type.
    NotImp,
    /// EDNS version above 0.
    BadVers,
    /// The project wants SERVFAIL when all its nodes are down.
    ServFail,
    /// There is no node map yet.
    NotReady,
}

impl Sort {
    /// All sorts, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::Steered,
        Self::Spilled,
        Self::AllDown,
        Self::Fixed,
        Self::MinimalAny,
        Self::NoData,
        Self::NxDomain,
        Self::Refused,
        Self::FormErr,
        Self::NotImp,
        Self::BadVers,
        Self::ServFail,
        Self::NotReady,
    ];

    /// The word, stable for logs and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Steered => "steered",
            Self::Spilled => "spilled",
            Self::AllDown => "all-down",
            Self::Fixed => "fixed",
            Self::MinimalAny => "minimal-any",
            Self::NoData => "nodata",
            Self::NxDomain => "nxdomain",
            Self::Refused => "refused",
            Self::FormErr => "formerr",
            Self::NotImp => "notimp",
            Self::BadVers => "badvers",
            Self::ServFail => "servfail",
            Self::NotReady => "not-ready",
        }
    }

    /// The response code, extended bits included (RFC 6895 section 2.3).
    pub fn rcode(self) -> u16 {
        match self {
            Self::Steered
            | Self::Spilled
            | Self::AllDown
            | Self::Fixed
            | Self::MinimalAny
            | Self::NoData => 0,
            Self::FormErr => 1,
            Self::ServFail | Self::NotReady => 2,
            Self::NxDomain => 3,
            Self::NotImp => 4,
            Self::Refused => 5,
            Self::BadVers => 16,
        }
    }
}

impl fmt::Display for Sort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Why a message gets no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// Shorter than a header: there is no ID to answer to.
    Short,
    /// Itself a response: answering could make two servers talk for ever.
    Response,
}

impl Dropped {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Short, Self::Response];

    /// The word, stable for logs and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Response => "response",
        }
    }
}
