//! What changed, when and why: the events that a shell writes down and tells people.

use std::collections::VecDeque;
use std::fmt;

use model::{Family, Name};
use serde::{Deserialize, Serialize};

use crate::probe::Evidence;

/// Events that are kept until somebody takes them; beyond that the oldest are dropped and counted.
pub const EVENTS_MAX: usize = 4096;

/// What an event is about. Prints as one stable word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// The state of a node in a family.
    Node,
    /// Whether a node is fit for a project in a family.
    Fitness,
    /// The state of a master.
    Master,
    /// An alarm was raised or went away.
    Alarm,
    /// Who publishes.
    Publisher,
}

impl What {
    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Fitness => "fitness",
            Self::Master => "master",
            Self::Alarm => "alarm",
            Self::Publisher => "publisher",
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Something changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, Unix time in milliseconds.
    pub at_ms: u64,
    /// What it is about.
    pub what: What,
    /// The node, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Name>,
    /// The family, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<Family>,
    /// The project, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Name>,
    /// The master, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<Name>,
    /// The word before; empty when there was none.
    pub from: String,
    /// The word now; empty of an alarm that went away.
    pub to: String,
    /// Why, in words for people.
    pub reason: String,
    /// Of the last probe that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
}

/// Events that nobody has taken yet, at most [`EVENTS_MAX`].
#[derive(Debug, Default)]
pub struct Events {
    kept: VecDeque<Event>,
    dropped: u64,
}

impl Events {
    /// One more.
    pub fn push(&mut self, event: Event) {
        if self.kept.len() >= EVENTS_MAX {
            self.kept.pop_front();
            self.dropped = self.dropped.saturating_add(1);
        }
        self.kept.push_back(event);
    }

    /// All of them, and how many were dropped since the last time.
    pub fn take(&mut self) -> (Vec<Event>, u64) {
        (self.kept.drain(..).collect(), std::mem::take(&mut self.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_bounded_and_the_newest_are_kept() {
        let mut events = Events::default();
        let event = |at_ms| Event {
            at_ms,
            what: What::Alarm,
            node: None,
            family: None,
            project: None,
            master: None,
            from: String::new(),
            to: "panic".into(),
            reason: "a test".into(),
            evidence: None,
        };
        (0..EVENTS_MAX as u64 + 3).for_each(|at_ms| events.push(event(at_ms)));
        let (kept, dropped) = events.take();
        assert_eq!((kept.len(), kept[0].at_ms, dropped), (EVENTS_MAX, 3, 3));
        assert_eq!(events.take(), (vec![], 0));
    }
}
