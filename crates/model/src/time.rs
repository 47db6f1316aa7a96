//! Time and dice as arguments: nothing below the shells reads a clock or rolls dice by itself.

const DAY_S: u64 = 86_400;

/// One reading of both clocks, taken by a shell and handed down.
///
/// Invariant: `mono_ns` never goes back between two readings of one process; `wall_ms` may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Monotonic nanoseconds since an arbitrary start: for durations and deadlines.
    pub mono_ns: u64,
    /// Unix time in milliseconds, UTC: for what is written down or compared with other machines.
    pub wall_ms: u64,
}

impl Now {
    /// This reading moved `ms` milliseconds on, both clocks alike. For tests and virtual clocks.
    pub fn plus_ms(self, ms: u64) -> Self {
        Self {
            mono_ns: self.mono_ns.saturating_add(ms.saturating_mul(1_000_000)),
            wall_ms: self.wall_ms.saturating_add(ms),
        }
    }

    /// Unix time in whole seconds.
    pub fn wall_s(self) -> u64 {
        self.wall_ms / 1000
    }
}

/// Unix milliseconds as `2026-11-30 12:00:00Z`, by the civil calendar in 400-year eras.
pub fn utc(ms: u64) -> String {
    let seconds = ms / 1000;
    let (days, second) = (seconds / DAY_S, seconds % DAY_S);
    let (year, month, day) = civil(days);
    let (hour, minute) = (second / 3600, second % 3600 / 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02}Z", second % 60)
}

/// The first second of the month (UTC) that a moment lies in, and the first one after it; unix time.
pub fn month_of(now_s: u64) -> (u64, u64) {
    let today = now_s / DAY_S;
    let first = today.saturating_sub(civil(today).2.saturating_sub(1));
    let is_first = |day: &u64| civil(*day).2 == 1;
    let next = (28..=31).map(|days| first.saturating_add(days)).find(is_first);
    // Every month has at most 31 days.
    let next = next.unwrap_or(first.saturating_add(31));
    (first.saturating_mul(DAY_S), next.saturating_mul(DAY_S))
}

/// Year, month and day of a day counted from 1970-01-01 (H. Hinnant, "chrono-compatible low-level
/// date algorithms": years begin in March, so that the leap day is the last).
#[allow(clippy::arithmetic_side_effects)] // days come from u64 milliseconds: nothing here overflows
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// Unix milliseconds of a moment in UTC as people write it: `2026-11-30`, with `12:00` or `12:00:00`
/// after a space or `T`, with or without `Z` at its end; so all that [`utc`] prints until 9999.
pub fn parse_utc(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] =
        numbers(time, ':', [2, 2, 2]).or_else(|| numbers(&format!("{time}:00"), ':', [2, 2, 2]))?;
    let days = day_number(year, month, day)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1000)
}

/// Three numbers of so many digits.
fn numbers(text: &str, between: char, lengths: [usize; 3]) -> Option<[u64; 3]> {
    let parts: Vec<&str> = text.split(between).collect();
    let parts: [&str; 3] = parts.try_into().ok()?;
    let mut found = [0; 3];
    for ((part, length), number) in parts.iter().zip(lengths).zip(&mut found) {
        let is_number = part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit());
        *number = is_number.then(|| part.parse().ok())??;
    }
    Some(found)
}

/// The day counted from 1970-01-01 that has this date, if there is one (as [`civil`], the other way
/// round).
#[allow(clippy::arithmetic_side_effects)] // four digits of a year from 1970 on: nothing here overflows
fn day_number(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (from_march, of_era) = ((month + 9) % 12, year - u64::from(month <= 2));
    let (era, year_of_era) = (of_era / 400, of_era % 400);
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    let days = era * 146_097 + of_era - 719_468;
    (civil(days) == (year, month, day)).then_some(days)
}

/// A seeded source of randomness: the same seed gives the same throws.
#[derive(Clone, Debug)]
pub struct Dice(fastrand::Rng);

impl Dice {
    /// Dice that throw the sequence of `seed`.
    pub fn seeded(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// A number below `n`; 0 when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.0.u64(0..n) }
    }

    /// An index chosen with chances proportional to `weights`; `None` when they sum to zero.
    pub fn pick(&mut self, weights: impl Iterator<Item = u32> + Clone) -> Option<usize> {
        let total: u64 = weights.clone().map(u64::from).sum();
        let mut left = self.below(total);
        for (i, w) in weights.enumerate() {
            let w = u64::from(w);
            if left < w {
                return Some(i);
            }
            left -= w;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_time_prints_by_the_calendar() {
        for (ms, expected) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_399_999, "2000-02-28 23:59:59Z"),
            (951_782_400_000, "2000-02-29 00:00:00Z"),
            (4_107_542_400_000, "2100-03-01 00:00:00Z"),
            (u64::MAX, "584556019-04-03 14:25:51Z"),
        ] {
            assert_eq!(utc(ms), expected, "{ms}");
        }
    }

    #[test]
    fn unix_time_is_read_by_the_calendar() {
        for (text, ms) in [
            ("1970-01-01", Some(0)),
            ("2000-02-28T23:59:59Z", Some(951_782_399_000)),
            ("2000-02-29 00:00", Some(951_782_400_000)),
            ("2100-03-01", Some(4_107_542_400_000)),
            ("2100-02-29", None),
            ("2026-04-31", None),
            ("1969-12-31", None),
            ("2026-11-30T24:00", None),
            ("2026-11-30T1:00", None),
            ("2026-11-30T", None),
            ("2026-11-30T01:00:00:00", None),
            ("26-11-30", None),
            ("2026-11", None),
            ("2026-11-30-1", None),
            ("today", None),
            ("", None),
        ] {
            assert_eq!(parse_utc(text), ms, "{text}");
        }
        for day in (0..2_932_897).step_by(37) {
            let ms = day * 86_400_000 + 3_661_000;
            assert_eq!(parse_utc(&utc(ms)), Some(ms));
        }
    }

    #[test]
    fn a_month_begins_and_ends_by_the_calendar() {
        for (now_s, first, next) in [
            (1_796_083_199, "2026-11-01 00:00:00Z", "2026-12-01 00:00:00Z"),
            (1_796_083_200, "2026-12-01 00:00:00Z", "2027-01-01 00:00:00Z"),
            (1_833_000_000, "2028-02-01 00:00:00Z", "2028-03-01 00:00:00Z"),
            (4_107_542_399, "2100-02-01 00:00:00Z", "2100-03-01 00:00:00Z"),
            (0, "1970-01-01 00:00:00Z", "1970-02-01 00:00:00Z"),
        ] {
            let (first_s, next_s) = month_of(now_s);
            assert_eq!((utc(first_s * 1000), utc(next_s * 1000)), (first.into(), next.into()));
        }
        let (first_s, next_s) = month_of(u64::MAX);
        assert!(first_s < next_s);
    }

    #[test]
    fn pick_never_takes_weight_zero_and_follows_the_shares() {
        let mut dice = Dice::seeded(7);
        let weights = [0, 30, 0, 10];
        let mut hits = [0u32; 4];
        for _ in 0..40_000 {
            hits[dice.pick(weights.iter().copied()).unwrap()] += 1;
        }
        assert_eq!((hits[0], hits[2]), (0, 0));
        // Three standard deviations of a binomial with p = 0.75 and n = 40,000 are about 260.
        assert!(hits[1].abs_diff(30_000) < 260, "{hits:?}");
        assert_eq!(dice.pick([0u32, 0].iter().copied()), None);
        assert_eq!(dice.pick([].iter().copied()), None);
    }
}
