//! Warnings at a bounded rate: the first of its kind is logged at once, the next after a minute at
//! the earliest, with the number of those in between. Metrics count them all.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use model::{Name, Now};

/// How long further complaints of a kind are only counted, milliseconds.
const QUIET_MS: u64 = 60_000;
/// Kinds remembered; far more than projects and kinds of failures make.
const KINDS_MAX: usize = 10_000;

#[derive(Debug, Default)]
struct Kind {
    quiet_until_ns: u64,
    unsaid: u64,
}

/// What was complained of lately.
#[derive(Debug, Default)]
pub(crate) struct Complaints(Mutex<HashMap<(Name, String), Kind>>);

impl Complaints {
    /// Whether a complaint of this kind about a project is to be logged now, and how many were not
    /// since the last one that was.
    pub(crate) fn due(&self, project: &Name, kind: &str, now: Now) -> Option<u64> {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kinds.len() >= KINDS_MAX {
            kinds.clear();
        }
        let known = kinds.entry((project.clone(), kind.to_owned())).or_default();
        if known.quiet_until_ns > now.mono_ns {
            known.unsaid = known.unsaid.saturating_add(1);
            return None;
        }
        known.quiet_until_ns = now.plus_ms(QUIET_MS).mono_ns;
        Some(std::mem::take(&mut known.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_kind_in_a_minute_is_said_and_the_others_are_counted() {
        let complaints = Complaints::default();
        let (a, b): (Name, Name) = ("a".parse().unwrap(), "b".parse().unwrap());
        let t = Now::default();
        for (project, kind, at_ms, want) in [
            (&a, "connect", 0, Some(0)),
            (&a, "connect", 1, None),
            (&a, "status", 1, Some(0)),
            (&b, "connect", 2, Some(0)),
            (&a, "connect", 59_999, None),
            (&a, "connect", 60_000, Some(2)),
            (&a, "connect", 60_001, None),
            (&a, "connect", 200_000, Some(1)),
        ] {
            let got = complaints.due(project, kind, t.plus_ms(at_ms));
            assert_eq!(got, want, "{project} {kind} {at_ms}");
        }
    }
}
