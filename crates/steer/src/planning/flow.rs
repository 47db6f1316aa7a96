//! Minimum-cost flow.
//!
//! Primal-dual: Dijkstra over reduced costs finds how dear the cheapest path from source to sink is, then
//! all paths of that cost are filled at once (Dinic), until no path is left. Exact in whole numbers; the
//! number of rounds is that of different path costs, not of paths (Ford and Fulkerson 1962; Ahuja, Magnanti
//! and Orlin, "Network Flows", section 9.8).
//!
//! Vertices and arcs are numbers that this module gave out. Costs must not be below zero.

#![allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "numbers of vertices and arcs come from this module; capacities and costs are below LIMIT"
)]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// More than any capacity, and more than any path costs: sums of two do not overflow.
pub(crate) const LIMIT: i64 = i64::MAX / 4;

/// Vertices and arcs with what may still flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Network {
    /// By vertex: its arcs.
    leaving: Vec<Vec<usize>>,
    /// Each with the one that takes back what it carries behind it: `arc ^ 1`.
    arcs: Vec<Arc>,
}

#[derive(Clone, Copy, Debug)]
struct Arc {
    to: usize,
    left: i64,
    cost: i64,
}

impl Network {
    /// Another vertex.
    pub(crate) fn vertex(&mut self) -> usize {
        self.leaving.push(Vec::new());
        self.leaving.len() - 1
    }

    /// Another arc, on which up to `capacity` may flow at `cost` each.
    pub(crate) fn arc(&mut self, from: usize, to: usize, capacity: i64, cost: i64) -> usize {
        let number = self.arcs.len();
        self.arcs.push(Arc { to, left: capacity.clamp(0, LIMIT), cost: cost.clamp(0, LIMIT) });
        self.arcs.push(Arc { to: from, left: 0, cost: -cost.clamp(0, LIMIT) });
        self.leaving[from].push(number);
        self.leaving[to].push(number + 1);
        number
    }

    /// What flows on an arc.
    pub(crate) fn flow(&self, arc: usize) -> i64 {
        self.arcs[arc ^ 1].left
    }

    /// Lets `amount` of what an arc still takes flow. The caller keeps what comes and goes at each vertex
    /// equal, and the costs least.
    pub(crate) fn preset(&mut self, arc: usize, amount: i64) {
        let amount = amount.clamp(0, self.arcs[arc].left);
        self.arcs[arc].left -= amount;
        self.arcs[arc ^ 1].left += amount;
    }

    /// Sends as much as possible from `source` to `sink`, as cheaply as that can be; how much more flows.
    pub(crate) fn fill(&mut self, source: usize, sink: usize) -> i64 {
        let mut potential = vec![0; self.leaving.len()];
        let mut sent = 0;
        while let Some(distances) = self.distances(source, sink, &potential) {
            for (potential, distance) in potential.iter_mut().zip(&distances) {
                // Who is further than the sink stays as far as the sink: no cheaper path leads there.
                *potential += (*distance).min(distances[sink]);
            }
            while let Some(level) = self.levels(source, sink, &potential) {
                let mut next = vec![0; self.leaving.len()];
                while let amount @ 1.. = self.push(source, sink, &potential, &level, &mut next) {
                    sent = amount.saturating_add(sent);
                }
            }
        }
        sent
    }

    /// What an arc costs beyond the potentials of its ends.
    fn reduced(&self, from: usize, arc: usize, potential: &[i64]) -> i64 {
        self.arcs[arc].cost + potential[from] - potential[self.arcs[arc].to]
    }

    /// By vertex: what the cheapest path there costs beyond the potentials, if one leads to the sink.
    fn distances(&self, source: usize, sink: usize, potential: &[i64]) -> Option<Vec<i64>> {
        let mut distance = vec![LIMIT; self.leaving.len()];
        distance[source] = 0;
        let mut queue = BinaryHeap::from([Reverse((0, source))]);
        while let Some(Reverse((far, at))) = queue.pop() {
            if far > distance[at] {
                continue;
            }
            if at == sink {
                return Some(distance);
            }
            for arc in &self.leaving[at] {
                let Arc { to, left, .. } = self.arcs[*arc];
                let there = far + self.reduced(at, *arc, potential);
                if left > 0 && there < distance[to] {
                    distance[to] = there;
                    queue.push(Reverse((there, to)));
                }
            }
        }
        None
    }

    /// By vertex: how many arcs that cost nothing more lead there at least, if they lead to the sink.
    fn levels(&self, source: usize, sink: usize, potential: &[i64]) -> Option<Vec<usize>> {
        let mut level = vec![usize::MAX; self.leaving.len()];
        level[source] = 0;
        let mut queue = VecDeque::from([source]);
        while let Some(at) = queue.pop_front() {
            for arc in &self.leaving[at] {
                let Arc { to, left, .. } = self.arcs[*arc];
                let is_free = left > 0 && self.reduced(at, *arc, potential) == 0;
                if is_free && level[to] == usize::MAX {
                    level[to] = level[at] + 1;
                    queue.push_back(to);
                }
            }
        }
        (level[sink] != usize::MAX).then_some(level)
    }

    /// Fills one path through ascending levels; `next` says which arcs of each vertex lead nowhere any
    /// more.
    fn push(
        &mut self,
        source: usize,
        sink: usize,
        potential: &[i64],
        level: &[usize],
        next: &mut [usize],
    ) -> i64 {
        let mut path: Vec<usize> = Vec::new();
        let mut at = source;
        while at != sink {
            match self.leaving[at].get(next[at]).copied() {
                Some(arc) => {
                    let Arc { to, left, .. } = self.arcs[arc];
                    let leads = left > 0
                        && level[to] == level[at] + 1
                        && self.reduced(at, arc, potential) == 0;
                    if leads {
                        path.push(arc);
                        at = to;
                    } else {
                        next[at] += 1;
                    }
                }
                None => {
                    // A dead end: back, and past the arc that led here.
                    let Some(arc) = path.pop() else { return 0 };
                    at = self.arcs[arc ^ 1].to;
                    next[at] += 1;
                }
            }
        }
        let amount = path.iter().map(|arc| self.arcs[*arc].left).min().unwrap_or(0);
        path.iter().for_each(|arc| self.preset(*arc, amount));
        amount
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ways, the cheap one narrow; then a way that takes back what went first.
    #[test]
    fn what_is_cheap_is_filled_first_and_taken_back_where_that_is_cheaper() {
        let mut net = Network::default();
        let [s, a, b, t] = [(); 4].map(|()| net.vertex());
        let sa = net.arc(s, a, 10, 1);
        let sb = net.arc(s, b, 10, 5);
        let ab = net.arc(a, b, 10, 0);
        let at = net.arc(a, t, 4, 4);
        let bt = net.arc(b, t, 10, 1);
        assert_eq!(net.fill(s, t), 14);
        let flows = [sa, sb, ab, at, bt].map(|arc| net.flow(arc));
        assert_eq!(flows, [10, 4, 6, 4, 10]);
        assert_eq!(net.fill(s, t), 0);
    }

    #[test]
    fn what_was_preset_is_moved_where_more_can_flow_so() {
        let mut net = Network::default();
        let [s, a, b, c, t] = [(); 5].map(|()| net.vertex());
        let (sa, sb) = (net.arc(s, a, 1, 0), net.arc(s, b, 1, 0));
        let (ac, at, bc, ct) =
            (net.arc(a, c, 1, 0), net.arc(a, t, 1, 0), net.arc(b, c, 1, 0), net.arc(c, t, 1, 0));
        // `a` took the only way that `b` has.
        [sa, ac, ct].into_iter().for_each(|arc| net.preset(arc, 1));
        assert_eq!(net.fill(s, t), 1);
        assert_eq!([sa, sb, ac, at, bc, ct].map(|arc| net.flow(arc)), [1, 1, 0, 1, 1, 1]);
    }
}
