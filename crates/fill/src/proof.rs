//! Proof of demand: whether the whole of an object is worth fetching.
//!
//! Counted are blocks that clients came to, not what was brought ahead of them: a client that asks
//! for everything and reads nothing proves nothing.

use model::Completion;

/// The whole is completed once clients came to this share of the blocks: one in so many.
const SHARE: u32 = 10;
/// But to so many at least: one block of a small object proves nothing.
const BLOCKS_MIN: u32 = 2;

/// What is known of the demand for one representation.
#[derive(Debug)]
pub(crate) struct Proof {
    /// A bit for each block that a client came to, or that was held before.
    touched: Vec<u64>,
    count: u32,
    blocks: u32,
    policy: Completion,
    /// Whether the whole is to be had.
    pub(crate) due: bool,
}

impl Proof {
    /// `held`: the blocks that are there already.
    pub(crate) fn new(blocks: u32, policy: Completion, held: &dyn Fn(u32) -> bool) -> Self {
        let words = match policy {
            Completion::Popular => usize::try_from(blocks.div_ceil(u64::BITS)).unwrap_or(0),
            Completion::Complete | Completion::Demanded => 0,
        };
        let due = policy == Completion::Complete;
        let mut proof = Self { touched: vec![0; words], count: 0, blocks, policy, due };
        if policy == Completion::Popular {
            (0..blocks).filter(|block| held(*block)).for_each(|block| proof.mark(block));
        }
        proof
    }

    /// A client came to this block. Whether the whole is due from now on.
    pub(crate) fn touch(&mut self, block: u32) -> bool {
        if self.due || self.policy != Completion::Popular {
            return false;
        }
        self.mark(block);
        let share = self.count.saturating_mul(SHARE) >= self.blocks;
        self.due = share && self.count >= BLOCKS_MIN;
        self.due
    }

    /// Clients of different networks asked for it. Whether the whole is due from now on.
    pub(crate) fn note_popular(&mut self) -> bool {
        let now = !self.due && self.policy == Completion::Popular;
        self.due |= now;
        now
    }

    fn mark(&mut self, block: u32) {
        let word = usize::try_from(block.div_euclid(u64::BITS)).unwrap_or(usize::MAX);
        let bit = 1u64 << block.rem_euclid(u64::BITS);
        if let Some(word) = self.touched.get_mut(word)
            && *word & bit == 0
            && block < self.blocks
        {
            *word |= bit;
            self.count = self.count.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_the_blocks_proves_demand_each_counted_once() {
        let mut proof = Proof::new(100, Completion::Popular, &|block| block < 5);
        for _ in 0..20 {
            assert!(!proof.touch(3) && !proof.touch(77), "the same again");
        }
        assert!(!proof.touch(65) && !proof.touch(66) && !proof.touch(99), "nine");
        assert!(proof.touch(64) && proof.due, "ten");
        assert!(!proof.touch(63), "said once");
    }

    #[test]
    fn policies() {
        for (policy, touch, popular, due) in [
            (Completion::Popular, false, true, true),
            (Completion::Popular, false, false, false),
            (Completion::Popular, true, false, true),
            (Completion::Complete, false, false, true),
            (Completion::Demanded, true, true, false),
        ] {
            let mut proof = Proof::new(2, policy, &|_| false);
            if touch {
                assert!(!proof.touch(0) && !proof.touch(0));
                proof.touch(1);
            }
            if popular {
                proof.note_popular();
            }
            assert_eq!(proof.due, due, "{policy} {touch} {popular}");
        }
    }
}
