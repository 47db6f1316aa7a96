//! What may be wrong with an attribute without ending the session (RFC 7606).

use std::fmt;

/// What is done about it; the later one is the stronger (RFC 7606 section 3 h). The strongest, a
/// reset, is an error of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Remedy {
    /// The attribute is as if it were not there.
    Discard,
    /// The prefixes of the message are as if they were withdrawn.
    Withdraw,
}

impl Remedy {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Discard, Self::Withdraw];

    /// The word for logs and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Discard => "discard",
            Self::Withdraw => "withdraw",
        }
    }
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum What {
    /// It says that it is optional or transitive and is not, or the other way round.
    Flags,
    /// It has a length that it cannot have.
    Length,
    /// It says what cannot be.
    Value,
    /// It comes again.
    Repeated,
    /// It is mandatory, and not there.
    Missing,
    /// It ends beyond the attributes of the message, which are cut there.
    Overrun,
    /// The path has a set of ASes (RFC 9774).
    AsSet,
}

impl What {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Flags,
        Self::Length,
        Self::Value,
        Self::Repeated,
        Self::Missing,
        Self::Overrun,
        Self::AsSet,
    ];

    /// The word for logs and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Flags => "flags",
            Self::Length => "length",
            Self::Value => "value",
            Self::Repeated => "repeated",
            Self::Missing => "missing",
            Self::Overrun => "overrun",
            Self::AsSet => "as-set",
        }
    }
}

/// One fault of one attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The type code of the attribute.
    pub attribute: u8,
    /// What is wrong with it.
    pub what: What,
    /// What was done about it.
    pub remedy: Remedy,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, remedy) = (self.what.word(), self.remedy.word());
        write!(f, "attribute {}: {what}, {remedy}", self.attribute)
    }
}
