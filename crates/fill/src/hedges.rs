//! How many requests may be asked of a second master: one in a hundred.

/// One fill in so many may be hedged.
const FILLS_PER_HEDGE: u32 = 100;
/// Hedges that may be saved up, and that there are at the start.
const HEDGES_MAX: u32 = 10;

/// The budget of hedges of one project.
#[derive(Clone, Copy, Debug)]
pub struct Hedges {
    /// Fills that no hedge was taken for yet.
    fills: u32,
}

impl Default for Hedges {
    fn default() -> Self {
        Self { fills: FILLS_PER_HEDGE.saturating_mul(HEDGES_MAX) }
    }
}

impl Hedges {
    /// A master is being asked for something.
    pub fn handle_fill(&mut self) {
        let most = FILLS_PER_HEDGE.saturating_mul(HEDGES_MAX);
        self.fills = self.fills.saturating_add(1).min(most);
    }

    /// Takes one hedge; whether there was one left.
    pub fn take(&mut self) -> bool {
        let left = self.fills.checked_sub(FILLS_PER_HEDGE);
        self.fills = left.unwrap_or(self.fills);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_fill_in_a_hundred_after_the_first_ten() {
        let mut hedges = Hedges::default();
        let mut taken = 0;
        for _ in 0..10_000 {
            hedges.handle_fill();
            taken += u32::from(hedges.take());
        }
        assert_eq!(taken, 10 + 100 - 1, "the first fill finds the budget full");
    }
}
