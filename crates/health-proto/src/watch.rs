//! What this checker itself thinks of a subject: the worst of the targets that it is made of.

use model::{Family, Name, NodeState, Now, State};

use crate::count::Tracked;
use crate::probe::{Evidence, Target};
use crate::schedule::Schedule;

/// What stands before the reason of a state that no probe of this run has confirmed.
pub(crate) const UNCONFIRMED: &str = "unconfirmed: ";

/// A subject as the probes of this checker see it, with the targets that decide.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) state: NodeState,
    /// Of the last failure that decided.
    pub(crate) evidence: Option<Evidence>,
    /// Whether a probe of this run has spoken for it.
    pub(crate) is_confirmed: bool,
    /// The target whose evidence the reason tells.
    pub(crate) speaker: Option<Target>,
    pub(crate) members: Vec<Target>,
}

impl Watched {
    pub(crate) fn unprobed(now: Now) -> Self {
        Self {
            state: NodeState::unprobed(now.wall_ms),
            evidence: None,
            is_confirmed: false,
            speaker: None,
            members: Vec::new(),
        }
    }

    /// Draws the state from the targets: the worst one speaks, and goes on speaking for as long as none
    /// is worse, so that the reason does not wander. Says whether state or reason changed.
    pub(crate) fn refresh(&mut self, schedule: &Schedule, now: Now) -> bool {
        // Of equally bad ones, a confirmed failure is the better evidence, and everything must be
        // confirmed to call the subject up or unknown without reserve.
        let rank = |t: &Tracked| match t.state {
            State::Down => (0, !t.confirmed),
            State::Drained => (1, t.confirmed),
            State::Unknown => (2, t.confirmed),
            State::Up => (3, t.confirmed),
        };
        let members = self.members.iter().filter_map(|m| schedule.get(m).map(|t| (m, t)));
        let worst = members.min_by_key(|(member, tracked)| {
            (rank(tracked), self.speaker.as_ref() != Some(*member))
        });
        let Some((speaker, worst)) = worst else { return false };
        let reason = match told_apart(speaker) {
            Some(which) if self.members.len() > 1 && worst.confirmed => {
                format!("{which}: {}", worst.reason)
            }
            Some(_) | None => worst.reason.clone(),
        };
        let newly_confirmed = worst.confirmed && !self.is_confirmed;
        let changed = if self.state.state != worst.state {
            self.state = NodeState::new(worst.state, reason, now.wall_ms);
            true
        } else if newly_confirmed || self.speaker.as_ref().is_some_and(|before| before != speaker) {
            self.state.reason = reason;
            true
        } else {
            false
        };
        self.is_confirmed = worst.confirmed;
        self.evidence.clone_from(&worst.evidence);
        self.speaker = Some(speaker.clone());
        changed
    }
}

/// What tells a target from the others of its subject.
fn told_apart(target: &Target) -> Option<String> {
    match target {
        Target::Node { address, .. } => Some(address.to_string()),
        Target::Project { address, check, .. } => Some(format!("{check} at {address}")),
        Target::Master { check, .. } => Some(check.to_string()),
        Target::Redirector { .. } | Target::Outside { .. } => None,
    }
}

/// The node and family of a target for its health page.
pub(crate) fn node_and_family(target: &Target) -> Option<(&Name, Family)> {
    match target {
        Target::Node { node, .. } => Some((node, target.family()?)),
        _ => None,
    }
}
