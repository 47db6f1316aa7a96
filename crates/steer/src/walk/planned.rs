//! The walk where the node map has a plan for the clients: several pools may answer, each with its share.
//!
//! 1. A pool that the plan names is judged with the weights of the plan; a member without one there is
//!    left out.
//! 2. The share of a pool in which nobody serves goes on to the next that the plan names, that of the last
//!    ones back to the last that answers. Inside a pool the others take over by their weights.
//! 3. Where none of them answers the plan counts for nothing: the walk is the ordinary one (S1).

use model::{Family, Name};
use nodemap::published::SHARE_PPM;

use super::{Excluded, Ground, NodeStep, Outcome, PoolStep, Verdict, Walk};
use crate::table::Audience;

/// The walk by the plan for these clients; `None` where there is none, or nobody of it serves.
pub(super) fn walk(ground: Ground<'_>, audience: &Audience, family: Family) -> Option<Walk> {
    let plan = &ground.map.plan;
    let list = plan.find(&audience.pools, &audience.refused, family)?;
    let mut tiers = list.tiers.iter().peekable();
    let pools = audience.pools.iter().map(|pool| {
        let tier = tiers.next_if(|tier| tier.pool == *pool);
        let split = tier.and_then(|tier| Some((tier.share_ppm, plan.splits.get(tier.split)?)));
        let Some((share_ppm, split)) = split else { return PoolStep::judge(ground, pool, family) };
        let weight = |node: &Name| split.get(node).copied();
        PoolStep { planned_ppm: Some(share_ppm), ..PoolStep::weighed(ground, pool, family, weight) }
    });
    let mut walk = Walk { family, verdict: Verdict::Pool, pool: None, pools: pools.collect() };
    walk.pass_on()?;
    let mut answering = walk.pools.iter().filter(|step| step.outcome == Outcome::Answers);
    walk.pool = match (answering.next(), answering.next()) {
        (Some(only), None) => Some(only.pool.clone()),
        _ => None,
    };
    let is_first = walk.pools.first().is_some_and(|step| step.outcome == Outcome::Answers);
    walk.verdict = if is_first { Verdict::Pool } else { Verdict::Spilled };
    walk.share_out_by_plan();
    Some(walk)
}

impl Walk {
    /// Whether it went by a plan.
    pub(crate) fn is_planned(&self) -> bool {
        self.pools.iter().any(|step| step.planned_ppm.is_some())
    }

    /// Shares of pools in which nobody serves go on; `None` when there is nowhere to go.
    fn pass_on(&mut self) -> Option<()> {
        let last = self.pools.iter().rposition(|s| s.planned_ppm.is_some() && s.answers())?;
        let mut carried: u32 = 0;
        for (at, step) in self.pools.iter_mut().enumerate() {
            match step.planned_ppm {
                Some(share) if step.answers() => {
                    step.planned_ppm = Some(share.saturating_add(carried));
                    step.outcome = Outcome::Answers;
                    carried = 0;
                }
                Some(share) => {
                    carried = carried.saturating_add(share);
                    step.planned_ppm = Some(0);
                    step.outcome = Outcome::Spilled;
                }
                None if at < last => step.not_planned(),
                None => step.not_reached(),
            }
        }
        if let Some(step) = self.pools.get_mut(last) {
            step.planned_ppm = step.planned_ppm.map(|share| share.saturating_add(carried));
        }
        Some(())
    }

    fn share_out_by_plan(&mut self) {
        for step in self.pools.iter_mut().filter(|step| step.outcome == Outcome::Answers) {
            let share = f64::from(step.planned_ppm.unwrap_or_default()) / f64::from(SHARE_PPM);
            let answering = |node: &&NodeStep| node.excluded.is_none();
            let weights = step.nodes.iter().filter(answering);
            let total: u64 = weights.map(|node| u64::from(node.effective())).sum();
            for node in step.nodes.iter_mut().filter(|node| node.excluded.is_none()) {
                node.share = share * f64::from(node.effective()) / total as f64;
            }
        }
    }
}

impl PoolStep {
    /// Judges every member with the weight that the plan gives it.
    fn weighed(
        ground: Ground<'_>,
        pool: &Name,
        family: Family,
        weight_of: impl Fn(&Name) -> Option<u32>,
    ) -> Self {
        let mut step = Self::judge(ground, pool, family);
        for node in step.nodes.iter_mut().filter(|node| node.weight > 0) {
            match weight_of(&node.node) {
                Some(weight) => node.weight = weight,
                None => node.excluded = node.excluded.or(Some(Excluded::Unplanned)),
            }
        }
        step
    }

    /// The plan gives it nothing, and others behind it something.
    fn not_planned(&mut self) {
        self.outcome = Outcome::Unplanned;
        for node in &mut self.nodes {
            node.excluded = node.excluded.or(Some(Excluded::Unplanned));
        }
    }
}
