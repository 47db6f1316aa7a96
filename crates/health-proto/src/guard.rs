//! How far one step may go (S3), as pure decisions.
//!
//! [`judge_move`]: whether an edit of the maps, or another database, moves more clients than may be
//! moved without a person's word. [`share_out`]: where the clients of a group go when what a node may
//! gain in one step is bounded. A node that is down is not among those that may be given, so it loses
//! all at once; what the others of its pool may not take spills to the next pool, in order; and when
//! nobody has room, the clients are answered all the same, and that is said.

use steer::diff::Diff;

use crate::setup::GuardSetup;

/// An edit moves more clients than may be moved without confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it would move {percent} % of the clients, more than {percent_max} %: confirm it if that is meant"
)]
pub struct TooFar {
    /// What it would move, percent, rounded up.
    pub percent: u32,
    /// What may, percent.
    pub percent_max: u32,
}

/// Judges what an edit moves. By bytes where the difference knows of any, else by clients; of the
/// projects and families the one that moves most decides.
///
/// # Errors
/// When it is too much: the maps in use stay until a person confirms.
pub fn judge_move(diff: &Diff, setup: &GuardSetup) -> Result<(), TooFar> {
    let share = |part: &steer::diff::Part| {
        let (clients, bytes) = part.moved_between_nodes.shares(part.all);
        if part.all.bytes > 0.0 { bytes } else { clients }
    };
    let most = diff.projects.iter().map(share).fold(0.0, f64::max);
    // From 0 to 1 by what it is made of.
    let percent = (most.clamp(0.0, 1.0) * 100.0).ceil() as u32;
    let percent_max = setup.moved_percent;
    if percent > percent_max { Err(TooFar { percent, percent_max }) } else { Ok(()) }
}

/// Clients that the maps treat alike, with their demand.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// What they want, bits per second.
    pub demand_bps: f64,
    /// Their pools in order: the nodes that serve, by their places in the list of rooms, and their
    /// weights above zero.
    pub pools: Vec<Vec<(usize, u32)>>,
}

/// What a node may have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Room {
    /// What it has now, bits per second.
    pub before_bps: f64,
    /// What it can send, bits per second.
    pub capacity_bps: f64,
}

impl Room {
    /// What it may have after one step, bits per second: `percent` of its capacity more, and never more
    /// than its capacity.
    pub fn after_step(self, percent: u32) -> f64 {
        let gained = self.before_bps + self.capacity_bps * f64::from(percent) / 100.0;
        gained.min(self.capacity_bps)
    }
}

/// Where groups go.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Group -> pool -> its part of the group, from 0 to 1.
    pub parts: Vec<Vec<f64>>,
    /// Node -> what it gets, bits per second.
    pub loads_bps: Vec<f64>,
    /// Demand for which nobody had room: it was answered all the same, bits per second.
    pub beyond_bps: f64,
}

/// Gives each group to its pools in order, each as much as its tightest node may take after one step of
/// `gain_percent`. Groups are served in the order given.
pub fn share_out(groups: &[Group], rooms: &[Room], gain_percent: u32) -> Outcome {
    let allowed: Vec<f64> = rooms.iter().map(|room| room.after_step(gain_percent)).collect();
    let mut outcome = Outcome { loads_bps: vec![0.0; rooms.len()], ..Outcome::default() };
    for group in groups {
        let mut left = 1.0;
        let mut parts = Vec::with_capacity(group.pools.len());
        for pool in &group.pools {
            let part = fits(pool, group.demand_bps, &allowed, &outcome.loads_bps).min(left);
            give(pool, group.demand_bps * part, &mut outcome.loads_bps);
            parts.push(part);
            left -= part;
        }
        // Rounding leaves crumbs.
        if left > 1e-9 {
            outcome.beyond_bps += group.demand_bps * left;
        }
        let first = group.pools.iter().position(|pool| !pool.is_empty());
        if let Some((at, pool)) = first.and_then(|at| Some((at, group.pools.get(at)?))) {
            give(pool, group.demand_bps * left, &mut outcome.loads_bps);
            if let Some(part) = parts.get_mut(at) {
                *part += left;
            }
        }
        outcome.parts.push(parts);
    }
    outcome
}

/// The part of `demand` that a pool can take, from 0 to 1: until its first node is full.
fn fits(pool: &[(usize, u32)], demand: f64, allowed: &[f64], loads: &[f64]) -> f64 {
    if pool.is_empty() {
        return 0.0;
    }
    let total: f64 = pool.iter().map(|(_, weight)| f64::from(*weight)).sum();
    let of_node = |(node, weight): &(usize, u32)| {
        let (allowed, load) = (allowed.get(*node), loads.get(*node));
        let room = allowed.zip(load).map_or(0.0, |(allowed, load)| (allowed - load).max(0.0));
        let wanted = demand * f64::from(*weight) / total;
        if wanted > 0.0 { room / wanted } else { 1.0 }
    };
    pool.iter().map(of_node).fold(1.0, f64::min)
}

fn give(pool: &[(usize, u32)], amount: f64, loads: &mut [f64]) {
    let total: f64 = pool.iter().map(|(_, weight)| f64::from(*weight)).sum();
    for (node, weight) in pool {
        if let Some(load) = loads.get_mut(*node) {
            *load += amount * f64::from(*weight) / total;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Family, Name};
    use steer::diff::{Amount, Part};

    fn diff(moved: (f64, f64), all: (f64, f64)) -> Diff {
        let amount = |(clients, bytes)| Amount { clients, bytes };
        let part = Part {
            project: "x".parse::<Name>().unwrap(),
            family: Family::V4,
            all: amount(all),
            moved: Amount::default(),
            pools: Vec::new(),
            moved_between_nodes: amount(moved),
            nodes: Vec::new(),
            countries: Vec::new(),
            asns: Vec::new(),
        };
        Diff { format: 1, generations: (1, 2), projects: vec![part], not_compared: Vec::new() }
    }

    #[test]
    fn an_edit_that_moves_too_many_needs_a_persons_word() {
        let setup = GuardSetup { moved_percent: 20, ..GuardSetup::default() };
        for (moved, all, refused) in [
            ((20.0, 0.0), (100.0, 0.0), None),
            ((20.1, 0.0), (100.0, 0.0), Some(21)),
            // Bytes go before clients.
            ((1.0, 50.0), (100.0, 100.0), Some(50)),
            ((90.0, 5.0), (100.0, 100.0), None),
            ((0.0, 0.0), (0.0, 0.0), None),
        ] {
            let judged = judge_move(&diff(moved, all), &setup).err().map(|far| far.percent);
            assert_eq!(judged, refused, "{moved:?} of {all:?}");
        }
    }

    fn room(before_bps: f64) -> Room {
        Room { before_bps, capacity_bps: 100.0 }
    }

    fn whole(bps: &[f64]) -> Vec<u64> {
        bps.iter().map(|bps| bps.round() as u64).collect()
    }

    #[test]
    fn what_a_survivor_may_not_gain_spills_in_order() {
        // Of three nodes of a pool one is dead; they had 60 each. The second pool has two nodes.
        let group = Group {
            demand_bps: 180.0,
            pools: vec![vec![(0, 1), (1, 1)], vec![(2, 1)], vec![(3, 1)]],
        };
        let rooms = [room(60.0), room(60.0), room(0.0), room(0.0)];
        let outcome = share_out(std::slice::from_ref(&group), &rooms, 20);
        assert_eq!(whole(&outcome.loads_bps), [80, 80, 20, 0]);
        assert_eq!(outcome.beyond_bps, 0.0);
        // A step later they are at what they had and may gain again: all is back where it belongs.
        let rooms = [room(80.0), room(80.0), room(20.0), room(0.0)];
        let outcome = share_out(&[group], &rooms, 20);
        assert_eq!(whole(&outcome.loads_bps), [90, 90, 0, 0]);
        assert_eq!(outcome.parts, [[1.0, 0.0, 0.0]]);
    }

    #[test]
    fn who_finds_no_room_is_answered_all_the_same() {
        let group = Group { demand_bps: 300.0, pools: vec![vec![], vec![(0, 1)], vec![(1, 3)]] };
        let outcome = share_out(&[group], &[room(50.0), room(90.0)], 20);
        assert_eq!(whole(&outcome.loads_bps), [200, 100]);
        assert_eq!(whole(&[outcome.beyond_bps]), [130]);
        let nobody = Group { demand_bps: 7.0, pools: Vec::new() };
        assert_eq!(share_out(&[nobody], &[], 20).beyond_bps, 7.0);
    }
}
