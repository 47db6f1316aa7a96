//! What an edit of the maps would move (S3), by the location databases of this host.
//!
//! The maps in use and the edited ones are held against each other as they would answer now: with the
//! states that are published, and with the drains of the edit on both sides, since taking a node out and
//! putting it back are orders of a person, and are never held.

use std::sync::Arc;

use health_proto::guard::{TooFar, judge_move};
use health_proto::setup::GuardSetup;
use locate::Locator;
use model::{Family, NodeState, State};
use nodemap::{AdminMap, NodeMap};
use rt::clock;
use rt::steering::LocationParams;
use steer::diff::Differ;
use steer::{ClassTable, Steering};

/// What it judges by.
#[derive(Clone, Debug)]
pub(crate) struct Judge {
    pub(crate) location: LocationParams,
    pub(crate) setup: GuardSetup,
}

impl Judge {
    /// Whether the admin map of `last`, which is published, may become `edited` at once. Blocks, for as
    /// long as databases are read and compiled.
    pub(crate) fn judge(&self, last: &NodeMap, edited: &AdminMap) -> Result<(), TooFar> {
        if last.map == *edited {
            return Ok(());
        }
        let locator = self.location.open().or_else(|error| {
            tracing::warn!(%error, "edits are judged without databases: by what all clients get alike");
            LocationParams::default().open()
        });
        let Some(locator) = locator.ok() else { return Ok(()) };
        let (mut old, mut new) = (last.clone(), last.clone());
        // What the planner made of the maps before is none of the edit's.
        (old.plan, new.plan) = Default::default();
        new.map = edited.clone();
        even_out(&mut old, &mut new);
        match (steering(old, &locator), steering(new, &locator)) {
            (Some(old), Some(new)) => {
                judge_move(&Differ::new(&old, &new, &locator).diff(0), &self.setup)
            }
            // Such maps are refused by who reads them; nobody moves.
            _ => Ok(()),
        }
    }
}

/// Gives the nodes of both the states that the edit is judged with.
fn even_out(old: &mut NodeMap, new: &mut NodeMap) {
    new.states.retain(|name, _| new.map.nodes.contains_key(name));
    for (name, node) in &new.map.nodes {
        for family in Family::ALL {
            let has_any = node.addresses_of(family).next().is_some();
            let before = old.states.get(name).and_then(|states| states.get(family)).cloned();
            let state = match (&node.drain, before) {
                _ if !has_any => None,
                (Some(reason), _) => Some(NodeState::new(State::Drained, &**reason, 0)),
                (None, Some(before)) if before.state != State::Drained => Some(before),
                (None, _) => Some(NodeState::new(State::Up, "as if it were", 0)),
            };
            if old.map.nodes.contains_key(name) {
                let of_old = old.states.entry(name.clone()).or_default();
                of_old.get_mut(family).clone_from(&state);
            }
            *new.states.entry(name.clone()).or_default().get_mut(family) = state;
        }
    }
    new.unfit.retain(|project, _| new.map.projects.contains_key(project));
    new.masters.retain(|project, _| new.map.projects.contains_key(project));
}

fn steering(map: NodeMap, locator: &Locator) -> Option<Steering> {
    let table = ClassTable::compile(locator, &map.map, clock::now().wall_ms).ok()?;
    Steering::new(Arc::new(table), Arc::new(map)).ok()
}
