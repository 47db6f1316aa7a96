//! What became of a query, for counting.

use std::fmt;
use std::net::IpAddr;

use steer::{ANSWERS_MAX, Choice, Plan};

use crate::limit::Kind;

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
    /// The scope that was, or would be, announced with a client subnet.
    pub scope: u8,
    /// Cut, or BADCOOKIE, because the network has had its share of such answers.
    pub limited: Option<Kind>,
    /// Of an answer that depends on who asks.
    pub led: Option<Led>,
}

/// Where an answer that depends on who asks leads. Numbers are places in the tables of the node map
/// that the snapshot is of, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Led {
    /// The project.
    pub project: u16,
    /// The pool that answers, when one alone does.
    pub pool: Option<u16>,
    /// Whose location decided: the first address of the client's network, or the resolver.
    pub client: IpAddr,
    nodes: [u16; ANSWERS_MAX],
    count: u8,
}

impl Led {
    /// By `plan` to the nodes of `choice`.
    pub(crate) fn by(plan: &Plan, client: IpAddr, choice: &Choice<'_>) -> Self {
        let ((project, _), pool) = (plan.numbers, choice.pool());
        let mut led = Self { project, pool, client, nodes: [0; ANSWERS_MAX], count: 0 };
        for (place, node) in led.nodes.iter_mut().zip(choice.iter()) {
            *place = node.number;
            led.count = led.count.saturating_add(1);
        }
        led
    }

    /// The nodes, in the order in which they are given.
    pub fn nodes(&self) -> &[u16] {
        self.nodes.get(..self.count.into()).unwrap_or_default()
    }
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
    /// Other servers have the name: it is delegated to them.
    Referral,
    /// The name has nothing of that type.
    NoData,
    /// No such name.
    NxDomain,
    /// No such name, said in the compact way: NOERROR and NXNAME (RFC 9824).
    NxName,
    /// A copy of a zone.
    Transfer,
    /// That a zone changed elsewhere was heard.
    Notify,
    /// Outside our zones, a transfer, or another class.
    Refused,
    /// The signature with a key is none of ours, or a NOTIFY is about a zone that is not ours.
    NotAuth,
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
    /// A cookie, to a client that asked for nothing else.
    Cookie,
    /// The client's cookie is not, or no more, one of ours; it gets another.
    BadCookie,
}

impl Sort {
    /// All sorts, in the order of their numbers.
    pub const ALL: [Self; 20] = [
        Self::Steered,
        Self::Spilled,
        Self::AllDown,
        Self::Fixed,
        Self::MinimalAny,
        Self::Referral,
        Self::NoData,
        Self::NxDomain,
        Self::NxName,
        Self::Transfer,
        Self::Notify,
        Self::Refused,
        Self::NotAuth,
        Self::FormErr,
        Self::NotImp,
        Self::BadVers,
        Self::ServFail,
        Self::NotReady,
        Self::Cookie,
        Self::BadCookie,
    ];

    /// The word, stable for logs and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Steered => "steered",
            Self::Spilled => "spilled",
            Self::AllDown => "all-down",
            Self::Fixed => "fixed",
            Self::MinimalAny => "minimal-any",
            Self::Referral => "referral",
            Self::NoData => "nodata",
            Self::NxDomain => "nxdomain",
            Self::NxName => "nxname",
            Self::Transfer => "transfer",
            Self::Notify => "notify",
            Self::Refused => "refused",
            Self::NotAuth => "notauth",
            Self::FormErr => "formerr",
            Self::NotImp => "notimp",
            Self::BadVers => "badvers",
            Self::ServFail => "servfail",
            Self::NotReady => "not-ready",
            Self::Cookie => "cookie",
            Self::BadCookie => "badcookie",
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
            | Self::Referral
            | Self::NoData
            | Self::NxName
            | Self::Transfer
            | Self::Notify
            | Self::Cookie => 0,
            Self::FormErr => 1,
            Self::ServFail | Self::NotReady => 2,
            Self::NxDomain => 3,
            Self::NotImp => 4,
            Self::Refused => 5,
            Self::NotAuth => 9,
            Self::BadVers => 16,
            Self::BadCookie => 23,
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
    /// The network has had its share of answers of this kind.
    Limited(Kind),
}

impl Dropped {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 6] = [
        Self::Short,
        Self::Response,
        Self::Limited(Kind::Answers),
        Self::Limited(Kind::Negative),
        Self::Limited(Kind::Errors),
        Self::Limited(Kind::Refused),
    ];

    /// Its place in [`Dropped::ALL`].
    pub fn number(self) -> usize {
        match self {
            Self::Short => 0,
            Self::Response => 1,
            Self::Limited(kind) => 2usize.saturating_add(kind as usize),
        }
    }

    /// The word, stable for logs and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Response => "response",
            Self::Limited(Kind::Answers) => "limited-answers",
            Self::Limited(Kind::Negative) => "limited-negative",
            Self::Limited(Kind::Errors) => "limited-errors",
            Self::Limited(Kind::Refused) => "limited-refused",
        }
    }
}
