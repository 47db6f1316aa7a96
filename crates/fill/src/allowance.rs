//! Bytes a second that completion may take of one master.

use model::Now;

const SECOND_NS: u64 = 1_000_000_000;

/// So many bytes a second, and as many saved up at most.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    bytes_per_s: u64,
    /// When all that was taken is earned.
    earned_at_ns: u64,
}

impl Allowance {
    /// `bytes_per_s`: at least 1.
    pub fn new(bytes_per_s: u64) -> Self {
        Self { bytes_per_s: bytes_per_s.max(1), earned_at_ns: 0 }
    }

    /// Takes so many bytes, or says after how many nanoseconds to ask again.
    pub fn take(&mut self, bytes: u64, now: Now) -> Result<(), u64> {
        let ahead_ns = self.earned_at_ns.saturating_sub(now.mono_ns);
        if let Some(wait_ns) = ahead_ns.checked_sub(SECOND_NS).filter(|wait| *wait > 0) {
            return Err(wait_ns);
        }
        let cost_ns = u128::from(bytes)
            .saturating_mul(u128::from(SECOND_NS))
            .checked_div(u128::from(self.bytes_per_s));
        let cost_ns = cost_ns.and_then(|cost| u64::try_from(cost).ok()).unwrap_or(u64::MAX);
        self.earned_at_ns = self.earned_at_ns.max(now.mono_ns).saturating_add(cost_ns);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_saved_up_and_the_rest_waits() {
        let (mut allowance, t) = (Allowance::new(1000), Now::default());
        assert_eq!(allowance.take(600, t), Ok(()));
        assert_eq!(allowance.take(600, t), Ok(()));
        assert_eq!(allowance.take(1, t), Err(200_000_000));
        assert_eq!(allowance.take(1, t.plus_ms(199)), Err(1_000_000));
        assert_eq!(allowance.take(5000, t.plus_ms(200)), Ok(()), "never less than one block");
        assert_eq!(allowance.take(1, t.plus_ms(5199)), Err(1_000_000));
        assert_eq!(allowance.take(1, t.plus_ms(100_000)), Ok(()));
        assert_eq!(Allowance::new(0).take(u64::MAX, t), Ok(()));
    }
}
