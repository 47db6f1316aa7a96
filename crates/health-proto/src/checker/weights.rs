//! What is left of each node's weight: load, warming up, silence; and panic, in which nothing takes any.

use std::collections::BTreeMap;

use model::{Family, Name, Now, PERMILLE, State};

use super::{Checker, NS_PER_MS};
use crate::observe::Subject;
use crate::standing::{Standing, intervals_ns};

/// Weights are published in steps of this many thousandths, so that maps are not rewritten for nothing.
const STEP: u32 = 25;
/// With what a node that came back begins, thousandths.
const FIRST: u32 = 100;
/// What is left to a node of which nobody has heard for long, thousandths.
const SILENT: u32 = 500;

impl Checker {
    /// What is left of the weight of a node in a family as it was weighed last, thousandths.
    pub(super) fn permille_of(&self, node: &Name, family: Family) -> u32 {
        self.permille.get(&(node.clone(), family)).copied().unwrap_or(PERMILLE)
    }

    /// Lets weights move with time; makes a map due when they moved, not more often than the guard
    /// allows.
    pub(super) fn move_weights(&mut self, now: Now) {
        let rewrite_ns = self.setup.guards.rewrite_ms.saturating_mul(NS_PER_MS);
        if now.mono_ns < self.weighed_ns.saturating_add(rewrite_ns) || self.isolated.is_some() {
            return;
        }
        if self.weigh(now) {
            self.publish_ns = Some(self.publish_ns.map_or(now.mono_ns, |at| at.min(now.mono_ns)));
        }
    }

    /// Weighs all nodes; says whether any weight is another now.
    pub(super) fn weigh(&mut self, now: Now) -> bool {
        if self.isolated.is_some() {
            return false;
        }
        self.weighed_ns = now.mono_ns;
        self.panic = self.panic_percent();
        let suspended = self.panic.is_some();
        self.loads.step(now, &self.map, &self.setup.load, suspended);
        let mut weighed = BTreeMap::new();
        for (subject, standing) in &self.standing {
            let Subject::Node { node, family } = subject else { continue };
            let permille = if suspended { PERMILLE } else { self.left(node, standing, now) };
            if permille < PERMILLE {
                weighed.insert((node.clone(), *family), permille);
            }
        }
        let moved = weighed != self.permille;
        self.permille = weighed;
        moved
    }

    fn left(&self, node: &Name, standing: &Standing, now: Now) -> u32 {
        let warm = self.warmth(standing, now);
        let silent = if standing.decayed { SILENT } else { PERMILLE };
        let parts = [self.loads.permille(node), warm, silent];
        let left = parts.into_iter().fold(u64::from(PERMILLE), |left, part| {
            left.saturating_mul(part.into()).checked_div(PERMILLE.into()).unwrap_or(0)
        });
        // Rounded up: nobody loses all.
        let left = u32::try_from(left).unwrap_or(PERMILLE).max(1);
        left.div_ceil(STEP).saturating_mul(STEP).min(PERMILLE)
    }

    /// How much of its weight a node that came back has again.
    fn warmth(&self, standing: &Standing, now: Now) -> u32 {
        let whole_ns = intervals_ns(&self.setup, self.setup.load.slow_start_intervals);
        let Some(back_ns) = standing.back_ns else { return PERMILLE };
        let since_ns = now.mono_ns.saturating_sub(back_ns);
        if since_ns >= whole_ns {
            return PERMILLE;
        }
        let rest = u128::from(PERMILLE.saturating_sub(FIRST));
        let gained = rest.saturating_mul(u128::from(since_ns)).checked_div(u128::from(whole_ns));
        let gained = gained.and_then(|gained| u32::try_from(gained).ok()).unwrap_or(0);
        FIRST.saturating_add(gained)
    }

    /// What is up of the network's weight, percent, if that is too little for load and planner to move
    /// anything (S3). A node counts with its capacity, one without with the mean of the others.
    fn panic_percent(&self) -> Option<u32> {
        let known = self.map.nodes.values().filter_map(|node| node.capacity).map(|rate| rate.0);
        let (count, sum) = known.fold((0u64, 0u64), |(count, sum), rate| {
            (count.saturating_add(1), sum.saturating_add(rate))
        });
        let mean = sum.checked_div(count).unwrap_or(1).max(1);
        let (mut all, mut up) = (0u128, 0u128);
        for (subject, standing) in &self.standing {
            let Subject::Node { node, .. } = subject else { continue };
            if self.drained.contains_key(node) {
                continue;
            }
            let capacity = self.map.nodes.get(node).and_then(|node| node.capacity);
            let weight = u128::from(capacity.map_or(mean, |rate| rate.0));
            all = all.saturating_add(weight);
            if standing.state.state != State::Down {
                up = up.saturating_add(weight);
            }
        }
        let percent = up.saturating_mul(100).checked_div(all)?;
        let percent = u32::try_from(percent).unwrap_or(100);
        (percent < self.setup.guards.panic_percent).then_some(percent)
    }
}
