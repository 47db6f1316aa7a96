//! What of a zone file is not answered, because the node map or another zone says otherwise.
//!
//! A zone file is read by itself and the node map comes from elsewhere, so that the two can
//! contradict each other at any time. One rule then: what the node map says wins, and what of a
//! file contradicts it is left out, one record set at a time, and told.

use std::fmt;
use std::path::PathBuf;

use nodemap::Finding;

/// One record set of a zone file that is not answered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftOut {
    /// The file.
    pub file: PathBuf,
    /// Where the set begins, from 1.
    pub line: usize,
    /// Its name and type, for people.
    pub set: String,
    /// The reason.
    pub why: Why,
}

/// Why a record set of a zone file is left out. Prints as one stable word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// SOA or NS at the top of a zone that the node map has.
    OfNodeMap,
    /// The node map has records of this type at this name.
    Taken,
    /// The name is steered, and answers of this type come from that.
    Steered,
    /// A CNAME record where the node map has other records.
    Alias,
    /// It would give away a name of the node map, or one above it, to other servers.
    Delegates,
    /// The name lies in another zone of ours.
    OtherZone,
    /// The file has no SOA record, and the node map has no such zone.
    NoSoa,
}

impl Why {
    /// All reasons.
    pub const ALL: [Self; 7] = [
        Self::OfNodeMap,
        Self::Taken,
        Self::Steered,
        Self::Alias,
        Self::Delegates,
        Self::OtherZone,
        Self::NoSoa,
    ];

    /// The word, stable for logs and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::OfNodeMap => "of-node-map",
            Self::Taken => "taken",
            Self::Steered => "steered",
            Self::Alias => "alias",
            Self::Delegates => "delegates",
            Self::OtherZone => "other-zone",
            Self::NoSoa => "no-soa",
        }
    }

    fn problem(self) -> &'static str {
        match self {
            Self::OfNodeMap => "the node map gives the SOA and NS records of this zone",
            Self::Taken => "the node map has records of this type at this name",
            Self::Steered => "the name is steered, and its answers of this type come from that",
            Self::Alias => "the node map has records at this name, beside which no CNAME may stand",
            Self::Delegates => "the node map has a name there, which this would give away",
            Self::OtherZone => "the name lies in another zone of this server",
            Self::NoSoa => {
                "the node map has no such zone, so the file must begin with a SOA record"
            }
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::OfNodeMap => "take it out; change [zone.\"NAME\"] in the maps instead",
            Self::Taken | Self::Alias => "take it out of the file, or out of the maps",
            Self::Steered => "take it out, or give the project another name",
            Self::Delegates => "take it out, or move the name to another zone",
            Self::OtherZone => "move it to the file of that zone",
            Self::NoSoa => "add SOA and NS records, or define [zone.\"NAME\"] in the maps",
        }
    }
}

impl LeftOut {
    /// As a fault of the file.
    pub fn finding(&self) -> Finding {
        Finding {
            file: self.file.clone(),
            line: self.line,
            key: self.set.clone(),
            problem: self.why.problem().to_owned(),
            remedy: self.why.remedy().to_owned(),
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}
