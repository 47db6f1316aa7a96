//! What a person must look at: alarms hold for as long as their cause does.

use std::fmt;

use model::{Family, Name};
use serde::Serialize;

/// How urgent it is, as Nagios has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Clients are served as they should be, and that may end.
    Warning,
    /// Clients are served worse than they should be, or nobody watches.
    Critical,
}

/// What is wrong. Prints as a sentence; [`Alarm::word`] is stable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alarm {
    /// Everything fails at once: states are held.
    Holding,
    /// This checker sees nothing outside, or no other checker: states are frozen.
    Isolated {
        /// What it does not see.
        why: String,
    },
    /// Another checker has been silent for too long, or suspects itself.
    CheckerAway {
        /// Which.
        checker: Name,
    },
    /// More probes are wanted than the budget allows: intervals are longer than declared.
    Budget {
        /// How much longer, thousandths: 2000 is twice.
        stretch_permille: u64,
    },
    /// A master answers otherwise than the others, or is behind: it is avoided.
    MasterQuarantined {
        /// The project.
        project: Name,
        /// The master.
        master: Name,
        /// How it differs.
        why: String,
    },
    /// Masters answer differently, and nobody can tell who is right: all are asked.
    MastersDisagree {
        /// The project.
        project: Name,
        /// How.
        why: String,
    },
    /// A master is down.
    MasterDown {
        /// The project.
        project: Name,
        /// The master.
        master: Name,
        /// Why.
        why: String,
    },
    /// A certificate ends soon.
    CertificateEnds {
        /// Where it was seen.
        target: String,
        /// Whole days left.
        days: u64,
    },
    /// A DNS node of ours does not answer as it should.
    RedirectorFails {
        /// Which.
        redirector: Name,
        /// Why.
        why: String,
    },
    /// A canary outside the network fails while others answer.
    OutsideFails {
        /// Which.
        canary: Name,
        /// Why.
        why: String,
    },
    /// A node comes and goes: it stays down for longer each time.
    Flapping {
        /// The node.
        node: Name,
        /// The family.
        family: Family,
        /// Times it went down lately.
        falls: u32,
    },
    /// So little weight is up that load and planner move nothing.
    Panic {
        /// What is up of the network's weight, percent.
        up_percent: u32,
    },
    /// Demand is above what all nodes can send: it is answered all the same.
    NobodyHasRoom {
        /// What is wanted of what there is, percent.
        percent: u32,
    },
    /// An edit moves more clients than a person has confirmed: what was before holds.
    MoveRefused {
        /// What it would move, percent.
        percent: u32,
        /// What may, percent.
        percent_max: u32,
    },
}

impl Alarm {
    /// One stable word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Holding => "holding",
            Self::Isolated { .. } => "isolated",
            Self::CheckerAway { .. } => "checker-away",
            Self::Budget { .. } => "budget",
            Self::MasterQuarantined { .. } => "master-quarantined",
            Self::MastersDisagree { .. } => "masters-disagree",
            Self::MasterDown { .. } => "master-down",
            Self::CertificateEnds { .. } => "certificate-ends",
            Self::RedirectorFails { .. } => "redirector-fails",
            Self::OutsideFails { .. } => "outside-fails",
            Self::Flapping { .. } => "flapping",
            Self::Panic { .. } => "panic",
            Self::NobodyHasRoom { .. } => "nobody-has-room",
            Self::MoveRefused { .. } => "move-refused",
        }
    }

    /// How urgent it is.
    pub fn severity(&self) -> Severity {
        match self {
            Self::Holding
            | Self::Isolated { .. }
            | Self::Panic { .. }
            | Self::NobodyHasRoom { .. }
            | Self::RedirectorFails { .. } => Severity::Critical,
            Self::CheckerAway { .. }
            | Self::Budget { .. }
            | Self::MasterQuarantined { .. }
            | Self::MastersDisagree { .. }
            | Self::MasterDown { .. }
            | Self::CertificateEnds { .. }
            | Self::OutsideFails { .. }
            | Self::Flapping { .. }
            | Self::MoveRefused { .. } => Severity::Warning,
        }
    }

    /// What tells it from other alarms of its word; empty where there is only one.
    pub fn about(&self) -> String {
        match self {
            Self::CheckerAway { checker } => checker.to_string(),
            Self::MasterQuarantined { project, master, .. }
            | Self::MasterDown { project, master, .. } => format!("{project}/{master}"),
            Self::MastersDisagree { project, .. } => project.to_string(),
            Self::CertificateEnds { target, .. } => target.clone(),
            Self::RedirectorFails { redirector: name, .. }
            | Self::OutsideFails { canary: name, .. } => name.to_string(),
            Self::Flapping { node, family, .. } => format!("{node} {family}"),
            Self::Holding
            | Self::Isolated { .. }
            | Self::Budget { .. }
            | Self::Panic { .. }
            | Self::NobodyHasRoom { .. }
            | Self::MoveRefused { .. } => String::new(),
        }
    }
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Holding => write!(f, "everything fails at once: states are held for a while"),
            Self::Isolated { why } => {
                write!(f, "this checker suspects itself and changes nothing: {why}")
            }
            Self::CheckerAway { checker } => {
                write!(f, "checker {checker} says nothing that counts")
            }
            Self::Budget { stretch_permille: s } => write!(
                f,
                "probes come {}.{:03} times as rarely as declared: raise the budget or the intervals",
                s / 1000,
                s % 1000
            ),
            Self::MasterQuarantined { project, master, why } => {
                write!(f, "master {project}/{master} is avoided: {why}")
            }
            Self::MastersDisagree { project, why } => {
                write!(f, "masters of {project} disagree, and nobody knows who is right: {why}")
            }
            Self::MasterDown { project, master, why } => {
                write!(f, "master {project}/{master} is down: {why}")
            }
            Self::CertificateEnds { target, days } => {
                write!(f, "the certificate of {target} ends in {days} days")
            }
            Self::RedirectorFails { redirector, why } => {
                write!(f, "DNS node {redirector} does not answer as it should: {why}")
            }
            Self::OutsideFails { canary, why } => write!(f, "outside canary {canary} fails: {why}"),
            Self::Flapping { node, family, falls } => {
                write!(f, "node {node} {family} went down {falls} times lately")
            }
            Self::Panic { up_percent } => write!(
                f,
                "only {up_percent} % of the network's weight is up: load and planner move nothing"
            ),
            Self::NobodyHasRoom { percent } => {
                write!(f, "demand is {percent} % of what nodes can send: answered all the same")
            }
            Self::MoveRefused { percent, percent_max } => write!(
                f,
                "an edit would move {percent} % of the clients, more than {percent_max} %: it waits for \
                 a person's confirmation"
            ),
        }
    }
}

/// An alarm that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AlarmView {
    /// Its stable word.
    pub alarm: &'static str,
    /// What it is about; empty where there is only one of its word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// How urgent it is.
    pub severity: Severity,
    /// In words for people.
    pub text: String,
    /// Since when, Unix time in milliseconds.
    pub since_ms: u64,
}
