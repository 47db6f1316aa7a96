//! From when to when a signature holds.
//!
//! Time is cut into turns of a quarter of the validity. A signature is made in the turn that runs
//! and given until the turn ends, so that what is given holds for at least three quarters more. All
//! servers of a zone, and all threads, agree on the times without speaking to each other. Where
//! turns begin differs from record set to record set, so that not all end at once.

/// Before the turn's begin, seconds: validators whose clock is behind take the signature too.
const BACKDATED_S: u64 = 3600;

/// The times of a signature; unix time, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// The turn's begin.
    pub(crate) begin_s: u64,
    /// The turn's end.
    pub(crate) end_s: u64,
    pub(crate) expiration_s: u64,
}

impl Window {
    /// The window at `now_s` of signatures that hold `validity_s`; `spread` is any number that is
    /// the record set's own.
    pub(crate) fn at(now_s: u64, validity_s: u32, spread: u64) -> Self {
        let turn_s = u64::from(validity_s / 4).max(1);
        // The remainder by something that is never zero.
        let into = |s: u64| s.checked_rem(turn_s).unwrap_or(0);
        let shift = into(spread);
        let begin_s = now_s.saturating_sub(into(now_s.saturating_add(shift)));
        let end_s = begin_s.saturating_add(turn_s);
        Self { begin_s, end_s, expiration_s: begin_s.saturating_add(validity_s.into()) }
    }

    /// Expiration and inception as the record has them (RFC 4034 section 3.1.5: they wrap).
    pub(crate) fn wire(self) -> [[u8; 4]; 2] {
        [self.expiration_s, self.begin_s.saturating_sub(BACKDATED_S)].map(|s| {
            let [_, _, _, _, low @ ..] = s.to_be_bytes();
            low
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEEK_S: u32 = 7 * 86_400;

    #[test]
    fn what_is_given_holds_for_three_quarters_of_the_validity() {
        for spread in [0, 1, 150_000, u64::MAX] {
            for now_s in (1_800_000_000..1_800_000_000 + 400_000).step_by(977) {
                let window = Window::at(now_s, WEEK_S, spread);
                assert!(window.begin_s <= now_s && now_s < window.end_s);
                assert_eq!(window.end_s - window.begin_s, u64::from(WEEK_S) / 4);
                assert!(window.expiration_s - now_s > u64::from(WEEK_S) * 3 / 4);
                assert_eq!(window.expiration_s - window.begin_s, u64::from(WEEK_S));
            }
        }
    }

    #[test]
    fn all_agree_within_a_turn_and_the_next_follows_at_once() {
        let first = Window::at(1_800_000_000, WEEK_S, 77);
        assert_eq!(Window::at(first.begin_s, WEEK_S, 77), first);
        assert_eq!(Window::at(first.end_s - 1, WEEK_S, 77), first);
        assert_eq!(Window::at(first.end_s, WEEK_S, 77).begin_s, first.end_s);
        assert_ne!(Window::at(1_800_000_000, WEEK_S, 78).begin_s, first.begin_s);
    }

    #[test]
    fn times_wrap_as_serial_numbers_do() {
        let window = Window { begin_s: 3600 + (1 << 32), end_s: 0, expiration_s: (1 << 32) + 7 };
        assert_eq!(window.wire(), [[0, 0, 0, 7], [0; 4]]);
    }
}
