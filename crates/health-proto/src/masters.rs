//! Masters compared with each other: they hold the same tree, so who answers otherwise is wrong.
//!
//! By content: what more than half of those that answered agree on is right, and the others are
//! quarantined. By the marker of releases: who is behind the newest by more than the tolerance is
//! quarantined, unless more than half agree on an older one; then it is the newest. A marker from the
//! future proves nothing. Where neither tells who is right, nobody is quarantined and a person is told.

use std::collections::BTreeMap;

use model::{Name, Now};

use crate::probe::Seen;
use crate::setup::Compare;

/// What masters answered to one check.
#[derive(Debug)]
pub(crate) struct Answers<'a> {
    pub(crate) check: &'a Name,
    pub(crate) compare: Compare,
    pub(crate) seen: Vec<(&'a Name, &'a Seen)>,
}

/// What the comparison of a project's masters brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Judgement {
    /// Master -> how it differs.
    pub(crate) quarantined: BTreeMap<Name, String>,
    /// Nobody knows who is right.
    pub(crate) disagree: Option<String>,
}

/// Judges the masters of one project.
pub(crate) fn judge(answers: &[Answers<'_>], now: Now) -> Judgement {
    let mut judgement = Judgement::default();
    // Markers first: who is behind is not asked for its content.
    for of in answers {
        if let Compare::Marker { behind_ms } = of.compare {
            by_marker(of, behind_ms, now, &mut judgement);
        }
    }
    for of in answers.iter().filter(|of| of.compare == Compare::Content) {
        by_content(of, &mut judgement);
    }
    judgement
}

fn by_marker(of: &Answers<'_>, behind_ms: u64, now: Now, judgement: &mut Judgement) {
    let dated = of.seen.iter().filter_map(|(master, seen)| Some((*master, seen.modified_ms?)));
    let dated: Vec<(&Name, u64)> = dated.collect();
    let latest_ms = now.wall_ms.saturating_add(behind_ms);
    let near = |a: u64, b: u64| a.abs_diff(b) <= behind_ms;
    let agree = |at: u64| dated.iter().filter(|(_, other)| near(at, *other)).count();
    let right =
        dated.iter().map(|(_, at)| *at).filter(|at| agree(*at).saturating_mul(2) > dated.len());
    let newest = dated.iter().map(|(_, at)| *at).filter(|at| *at <= latest_ms).max();
    let Some(right) = right.max().or(newest) else { return };
    for (master, at) in dated.iter().filter(|(_, at)| !near(*at, right)) {
        let apart_s = at.abs_diff(right) / 1000;
        let how = if *at < right { "behind" } else { "ahead of" };
        let why = format!("its {} is {apart_s} s {how} that of the others", of.check);
        judgement.quarantined.entry((*master).clone()).or_insert(why);
    }
}

fn by_content(of: &Answers<'_>, judgement: &mut Judgement) {
    let counted = |master: &Name| !judgement.quarantined.contains_key(master);
    let prints = of.seen.iter().filter(|(master, _)| counted(master));
    let prints: Vec<(&Name, String)> =
        prints.filter_map(|(master, seen)| Some((*master, print(seen)?))).collect();
    let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, print) in &prints {
        let count = groups.entry(print).or_default();
        *count = count.saturating_add(1);
    }
    if groups.len() < 2 {
        return;
    }
    let majority = groups.iter().find(|(_, count)| count.saturating_mul(2) > prints.len());
    match majority {
        Some((right, count)) => {
            for (master, print) in prints.iter().filter(|(_, print)| print != right) {
                let why = format!("its {} is {print}; {count} others have {right}", of.check);
                judgement.quarantined.insert((*master).clone(), why);
            }
        }
        None => {
            let each = prints.iter().map(|(master, print)| format!("{master} has {print}"));
            let why = format!("{}: {}", of.check, each.collect::<Vec<_>>().join(", "));
            judgement.disagree.get_or_insert(why);
        }
    }
}

/// What content is told apart by; `None` if nothing was seen of it.
fn print(seen: &Seen) -> Option<String> {
    let which = match (&seen.sha256, &seen.etag) {
        (Some(hash), _) => Some(format!("SHA-256 {hash}")),
        (None, Some(etag)) => Some(format!("ETag {etag}")),
        (None, None) => None,
    };
    match (seen.length, which) {
        (Some(length), Some(which)) => Some(format!("{length} bytes, {which}")),
        (Some(length), None) => Some(format!("{length} bytes")),
        (None, which) => which,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{START, name};

    const HOUR_MS: u64 = 3_600_000;

    /// Masters `m1`, `m2`, ... with these tags and ages of their marker in hours (negative: of the
    /// future); tells who is quarantined and whether they disagree.
    fn judged(masters: &[(&str, i64)]) -> String {
        let names: Vec<Name> = (1..=masters.len()).map(|i| name(&format!("m{i}"))).collect();
        let seen = |(etag, hours): &(&str, i64)| Seen {
            length: Some(5),
            etag: Some((*etag).to_owned()),
            modified_ms: START.wall_ms.checked_add_signed(-hours * HOUR_MS as i64),
            ..Seen::default()
        };
        let seen: Vec<Seen> = masters.iter().map(seen).collect();
        let (file, marker) = (name("file"), name("marker"));
        let all = || names.iter().zip(&seen).collect::<Vec<_>>();
        let answers = [
            Answers { check: &file, compare: Compare::Content, seen: all() },
            Answers {
                check: &marker,
                compare: Compare::Marker { behind_ms: HOUR_MS },
                seen: all(),
            },
        ];
        let judgement = judge(&answers, START);
        let out: Vec<&str> = judgement.quarantined.keys().map(Name::as_str).collect();
        format!("{}{}", out.join(" "), judgement.disagree.map_or("", |_| " disagree"))
    }

    #[test]
    fn the_minority_and_the_one_behind_are_quarantined() {
        for (masters, expected) in [
            (&[("a", 0), ("a", 0), ("a", 0)][..], ""),
            (&[("a", 0), ("b", 0), ("a", 0)], "m2"),
            // Two, and no marker tells: nobody is.
            (&[("a", 0), ("b", 0)], " disagree"),
            // Two, and one is behind.
            (&[("a", 0), ("b", 3)], "m2"),
            (&[("a", 3), ("b", 0)], "m1"),
            // Within the tolerance a release is on its way.
            (&[("a", 0), ("b", 1)], " disagree"),
            // A marker from the future proves nothing.
            (&[("a", 0), ("b", -5)], "m2"),
            // More than half are behind one: it is the one.
            (&[("a", 9), ("a", 9), ("b", 0)], "m3"),
            (&[("a", 0), ("b", 9), ("b", 20), ("a", 0), ("a", 0)], "m2 m3"),
            (&[("a", 0)], ""),
            (&[], ""),
        ] {
            assert_eq!(judged(masters), expected, "{masters:?}");
        }
    }

    #[test]
    fn the_one_that_differs_is_named_with_what_it_has() {
        let (a, b, c, check) = (name("a"), name("b"), name("c"), name("index"));
        let seen = |length| Seen { length: Some(length), ..Seen::default() };
        let (five, six) = (seen(5), seen(6));
        let answers = Answers {
            check: &check,
            compare: Compare::Content,
            seen: vec![(&a, &five), (&b, &six), (&c, &five)],
        };
        let judgement = judge(&[answers], START);
        assert_eq!(judgement.quarantined[&b], "its index is 6 bytes; 2 others have 5 bytes");
    }
}
