//! What nodes say of their load, and what of their weight it leaves them (H1): a report can only lower
//! the weight of the node that gave it.
//!
//! From `from_permille` of its capacity on a node loses weight, down to `floor_permille` when it is full;
//! the busiest of its line, processors and disks counts. Weights move by at most `step_per_s`, both
//! ways, so that clients do not swing between nodes. A node that says nothing has its whole weight.

use std::collections::BTreeMap;

use model::{Name, Now, PERMILLE};
use nodemap::AdminMap;
use serde::{Deserialize, Serialize};

use crate::setup::LoadSetup;

const NS_PER_MS: u64 = 1_000_000;
/// Weights are counted in thousandths of a permille, so that slow steps are not lost.
const FINE: u64 = 1000;

/// How busy a node is, as it says itself. It is believed only where it makes the node get less (H1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadReport {
    /// What it sends now, bits per second, over the last minute or so.
    pub used_bps: u64,
    /// What it may send, bits per second; 0: it knows of no limit. The map's capacity holds if that is
    /// less.
    #[serde(default)]
    pub cap_bps: u64,
    /// Processor time in use, thousandths of all.
    #[serde(default)]
    pub cpu_permille: u32,
    /// How busy its disks are, thousandths of the time.
    #[serde(default)]
    pub disk_permille: u32,
    /// Bytes served from the cache, thousandths; for people.
    #[serde(default)]
    pub hit_permille: u32,
}

impl LoadReport {
    /// What it may send by its own word and the map's, bits per second; 0 if neither says.
    pub fn capacity(&self, of_map: Option<u64>) -> u64 {
        match (self.cap_bps, of_map.unwrap_or(0)) {
            (0, of_map) => of_map,
            (own, 0) => own,
            (own, of_map) => own.min(of_map),
        }
    }

    /// How busy it is, thousandths; more than 1000 when it sends more than it may.
    pub fn busy_permille(&self, of_map: Option<u64>) -> u32 {
        let thousandfold = u128::from(self.used_bps).saturating_mul(1000);
        let line = thousandfold.checked_div(u128::from(self.capacity(of_map))).unwrap_or(0);
        let line = u32::try_from(line).unwrap_or(u32::MAX);
        line.max(self.cpu_permille).max(self.disk_permille)
    }
}

impl LoadSetup {
    /// What is left of the weight of a node that is so busy, thousandths.
    pub fn target(&self, busy_permille: u32) -> u32 {
        let from = self.from_permille.min(PERMILLE);
        let over = busy_permille.min(PERMILLE).saturating_sub(from);
        let range = PERMILLE.saturating_sub(from);
        let floor = self.floor_permille.clamp(1, PERMILLE);
        let lost = PERMILLE.saturating_sub(floor).saturating_mul(over).checked_div(range);
        PERMILLE.saturating_sub(lost.unwrap_or(0)).max(floor)
    }
}

/// The reports of all nodes and what they leave.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    nodes: BTreeMap<Name, Load>,
    stepped_ns: u64,
}

#[derive(Debug)]
struct Load {
    report: LoadReport,
    heard_ns: u64,
    /// What is left of the weight, in [`FINE`] parts of a permille.
    left: u64,
}

impl Loads {
    pub(crate) fn hear(&mut self, now: Now, node: Name, report: LoadReport) {
        let whole = u64::from(PERMILLE).saturating_mul(FINE);
        let left = self.nodes.get(&node).map_or(whole, |load| load.left);
        self.nodes.insert(node, Load { report, heard_ns: now.mono_ns, left });
    }

    /// Lets weights move until now. Who left the map is forgotten. `suspended`: nobody loses anything.
    pub(crate) fn step(&mut self, now: Now, map: &AdminMap, setup: &LoadSetup, suspended: bool) {
        let passed_ms = now.mono_ns.saturating_sub(self.stepped_ns) / NS_PER_MS;
        if passed_ms == 0 {
            return;
        }
        self.stepped_ns = now.mono_ns;
        // Permille a second are thousandths of a permille a millisecond.
        let step = u64::from(setup.step_per_s).saturating_mul(passed_ms);
        let stale_ns = setup.stale_ms.saturating_mul(NS_PER_MS);
        self.nodes.retain(|name, load| {
            let Some(node) = map.nodes.get(name) else { return false };
            let fresh = now.mono_ns <= load.heard_ns.saturating_add(stale_ns);
            let of_map = node.capacity.map(|rate| rate.0);
            let target = match fresh && !suspended {
                true => setup.target(load.report.busy_permille(of_map)),
                false => PERMILLE,
            };
            let target = u64::from(target).saturating_mul(FINE);
            load.left = if suspended {
                target
            } else {
                target.clamp(load.left.saturating_sub(step), load.left.saturating_add(step))
            };
            fresh || load.left < target
        });
    }

    /// What its own report leaves a node of its weight, thousandths.
    pub(crate) fn permille(&self, node: &Name) -> u32 {
        let left = self.nodes.get(node).map(|load| load.left / FINE);
        left.and_then(|left| u32::try_from(left).ok()).unwrap_or(PERMILLE)
    }

    pub(crate) fn report(&self, node: &Name) -> Option<&LoadReport> {
        self.nodes.get(node).map(|load| &load.report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{START, name};

    #[test]
    fn a_node_loses_weight_from_four_fifths_of_its_capacity_on() {
        let setup = LoadSetup::default();
        for (busy, left) in [
            (0, 1000),
            (800, 1000),
            (850, 775),
            (900, 550),
            (1000, 100),
            (5000, 100),
            (u32::MAX, 100),
        ] {
            assert_eq!(setup.target(busy), left, "{busy}");
        }
        let all = LoadSetup { from_permille: 1000, floor_permille: 0, ..setup };
        assert_eq!(all.target(u32::MAX), 1000);
    }

    #[test]
    fn the_busiest_part_counts_and_the_smaller_capacity_holds() {
        let report = LoadReport { used_bps: 500, cap_bps: 1000, ..LoadReport::default() };
        assert_eq!(report.busy_permille(None), 500);
        assert_eq!(report.busy_permille(Some(2000)), 500);
        assert_eq!(report.busy_permille(Some(250)), 2000);
        assert_eq!(LoadReport { cap_bps: 0, ..report }.busy_permille(None), 0);
        assert_eq!(LoadReport { cpu_permille: 900, ..report }.busy_permille(None), 900);
        assert_eq!(LoadReport { used_bps: u64::MAX, ..report }.busy_permille(Some(1)), u32::MAX);
    }

    #[test]
    fn weights_move_slowly_and_come_back_when_a_node_falls_silent() {
        let map = nodemap::testing::admin_map(&[("a", &["192.0.2.1"])]);
        let setup = LoadSetup { step_per_s: 20, stale_ms: 10_000, ..LoadSetup::default() };
        let (mut loads, a) = (Loads::default(), name("a"));
        loads.step(START, &map, &setup, false);
        let full = LoadReport { used_bps: 10, cap_bps: 10, ..LoadReport::default() };
        loads.hear(START, a.clone(), full);
        let at = |loads: &mut Loads, ms| {
            loads.step(START.plus_ms(ms), &map, &setup, false);
            loads.permille(&name("a"))
        };
        assert_eq!([100, 1000, 10_000].map(|ms| at(&mut loads, ms)), [998, 980, 800]);
        assert_eq!([10_001, 15_000, 20_001].map(|ms| at(&mut loads, ms)), [800, 900, 1000]);
        // Panic gives everything back at once.
        loads.hear(START.plus_ms(20_001), a.clone(), full);
        assert_eq!(at(&mut loads, 30_001), 800);
        loads.step(START.plus_ms(30_002), &map, &setup, true);
        assert_eq!(loads.permille(&a), 1000);
        // What never existed has no say, and is not remembered.
        loads.hear(START.plus_ms(30_002), name("stranger"), full);
        loads.step(START.plus_ms(30_003), &map, &setup, false);
        assert!(loads.report(&name("stranger")).is_none());
    }
}
