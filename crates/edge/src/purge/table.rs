//! The list of purges: what covers a target, and what a wider one makes needless.

use std::collections::BTreeMap;
use std::iter;
use std::ops::Bound;

use model::Name;
use serde::{Deserialize, Serialize};

use super::Verdict;

/// Purges in the list at most: each change copies and writes it whole.
pub(crate) const PURGES_MAX: usize = 10_000;
/// Bytes of their targets together at most.
const TARGET_BYTES_MAX: usize = 4 << 20;

/// What a purge is about, within a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scope", content = "target", rename_all = "lowercase")]
pub(crate) enum Scope {
    /// One normalised target, with all its variants.
    Url(String),
    /// All targets that begin with this.
    Prefix(String),
    /// Everything.
    Project,
}

impl Scope {
    /// The stable word.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Url(_) => "url",
            Self::Prefix(_) => "prefix",
            Self::Project => "project",
        }
    }

    /// The target or prefix, if it has one.
    pub(crate) fn target(&self) -> Option<&str> {
        match self {
            Self::Url(target) | Self::Prefix(target) => Some(target),
            Self::Project => None,
        }
    }
}

/// What becomes of what a purge covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// It is confirmed before it is used again.
    Soft,
    /// It is not used again.
    Hard,
}

impl Mode {
    /// The stable word.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Soft => "soft",
            Self::Hard => "hard",
        }
    }
}

/// When a purge was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// By the clock of then, for people; unix milliseconds.
    pub(crate) at_ms: u64,
    /// Its place among the stamps of objects.
    pub(crate) order_ms: u64,
    /// Its number in this process, from 1; 0: before this start.
    pub(crate) seq: u64,
}

/// The latest purges of one scope.
#[derive(Clone, Debug, Default)]
struct Marks {
    soft: Option<Mark>,
    hard: Option<Mark>,
}

impl Marks {
    /// What is older than a purge of `mode` that covers it is needless.
    fn forget(&mut self, mode: Mode) {
        self.soft = None;
        if mode == Mode::Hard {
            self.hard = None;
        }
    }

    fn add(&mut self, mode: Mode, mark: Mark) {
        self.forget(mode);
        match mode {
            Mode::Soft => self.soft = Some(mark),
            Mode::Hard => self.hard = Some(mark),
        }
    }

    fn each(&self) -> impl Iterator<Item = (Mode, Mark)> {
        let soft = self.soft.map(|mark| (Mode::Soft, mark));
        soft.into_iter().chain(self.hard.map(|mark| (Mode::Hard, mark)))
    }
}

#[derive(Clone, Debug, Default)]
struct OfProject {
    whole: Marks,
    prefixes: BTreeMap<String, Marks>,
    urls: BTreeMap<String, Marks>,
}

impl OfProject {
    /// Takes out what a purge of `mode` of all targets below `prefix` makes needless.
    fn forget(&mut self, prefix: &str, mode: Mode) {
        for marks in [&mut self.prefixes, &mut self.urls] {
            marks.retain(|target, marks| {
                if target.starts_with(prefix) {
                    marks.forget(mode);
                }
                marks.each().next().is_some()
            });
        }
    }

    /// Makes `latest` a purge of the whole, and takes out what that makes needless.
    fn fold(&mut self, mode: Mode, latest: Mark) {
        let is_younger = |mark: &Mark| mark.order_ms > latest.order_ms;
        let clean = |marks: &mut Marks| {
            marks.soft = marks.soft.filter(is_younger);
            if mode == Mode::Hard {
                marks.hard = marks.hard.filter(is_younger);
            }
            marks.each().next().is_some()
        };
        self.prefixes.retain(|_, marks| clean(marks));
        self.urls.retain(|_, marks| clean(marks));
        clean(&mut self.whole);
        match mode {
            Mode::Soft => self.whole.soft.get_or_insert(latest),
            Mode::Hard => self.whole.hard.get_or_insert(latest),
        };
    }

    /// All marks that cover `target`.
    fn covering<'a>(&'a self, target: &'a str) -> impl Iterator<Item = &'a Marks> {
        let whole = iter::once(&self.whole);
        whole.chain(self.prefixes_of(target)).chain(self.urls.get(target))
    }

    /// Marks of the prefixes of `target`, longest first: each step looks for the greatest known
    /// prefix that is not above what may still match, which shortens that.
    fn prefixes_of<'a>(&'a self, target: &'a str) -> impl Iterator<Item = &'a Marks> {
        let mut bound = Some(target);
        iter::from_fn(move || {
            loop {
                let below = (Bound::Unbounded, Bound::Included(bound?));
                let (prefix, marks) = self.prefixes.range::<str, _>(below).next_back()?;
                if target.starts_with(prefix.as_str()) {
                    bound = prefix.len().checked_sub(1).and_then(|end| target.get(..end));
                    return Some(marks);
                }
                let same = target.bytes().zip(prefix.bytes()).take_while(|(a, b)| a == b).count();
                bound = target.get(..same);
            }
        })
    }

    fn all(&self) -> impl Iterator<Item = (Scope, &Marks)> {
        let whole = iter::once((Scope::Project, &self.whole));
        let prefixes = self.prefixes.iter().map(|(p, marks)| (Scope::Prefix(p.clone()), marks));
        let urls = self.urls.iter().map(|(url, marks)| (Scope::Url(url.clone()), marks));
        whole.chain(prefixes).chain(urls)
    }
}

/// All purges. Never changed: a new one makes a new list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    of: BTreeMap<Name, OfProject>,
    /// An earlier list was lost: whatever was asked for at this moment or before may have been purged.
    lost_ms: Option<u64>,
}

impl Table {
    /// An empty list after one that was lost at `lost_ms`, if one was.
    pub(crate) fn after_loss(lost_ms: Option<u64>) -> Self {
        Self { lost_ms, ..Self::default() }
    }

    /// When an earlier list was lost.
    pub(crate) fn lost_ms(&self) -> Option<u64> {
        self.lost_ms
    }

    /// Every purge.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Name, Scope, Mode, Mark)> {
        self.of.iter().flat_map(|(project, of)| {
            of.all().flat_map(move |(scope, marks)| {
                marks.each().map(move |(mode, mark)| (project, scope.clone(), mode, mark))
            })
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lost_ms.is_none() && self.all().next().is_none()
    }

    pub(crate) fn len(&self) -> usize {
        self.all().count()
    }

    /// The highest place in the order.
    pub(crate) fn newest_ms(&self) -> Option<u64> {
        self.all().map(|(_, _, _, mark)| mark.order_ms).chain(self.lost_ms).max()
    }

    /// When the latest was asked for.
    pub(crate) fn newest_at_ms(&self) -> Option<u64> {
        self.all().max_by_key(|(_, _, _, mark)| mark.order_ms).map(|(_, _, _, mark)| mark.at_ms)
    }

    /// The list with a purge that is later than all others; `None` when there is no room for it.
    pub(crate) fn with(
        &self,
        project: &Name,
        scope: &Scope,
        mode: Mode,
        mark: Mark,
    ) -> Option<Self> {
        let mut next = self.clone();
        next.put(project, scope, mode, mark);
        let bytes = |(_, scope, _, _): (_, Scope, _, _)| scope.target().map_or(0, str::len);
        let fits =
            next.len() <= PURGES_MAX && next.all().map(bytes).sum::<usize>() <= TARGET_BYTES_MAX;
        fits.then_some(next)
    }

    /// The list with all of a mode up to `before_ms` as one purge of the whole project, which is as
    /// old as the latest of them: of the project that has most purges. What was confirmed since is as
    /// it was; what was not, may be purged without need, and never too little. `None`: there are none.
    pub(crate) fn folded(&self, mode: Mode, before_ms: u64) -> Option<(Self, Name)> {
        let size = |of: &OfProject| of.prefixes.len().saturating_add(of.urls.len());
        let (project, of) = self.of.iter().max_by_key(|(_, of)| size(of))?;
        let marks = of.prefixes.values().chain(of.urls.values()).flat_map(Marks::each);
        let old = marks.filter(|(m, mark)| *m == mode && mark.order_ms <= before_ms);
        let latest = old.map(|(_, mark)| mark).max_by_key(|mark| mark.order_ms)?;
        let mut next = self.clone();
        next.of.get_mut(project)?.fold(mode, latest);
        Some((next, project.clone()))
    }

    /// Adds one that is not older than what it covers.
    pub(crate) fn put(&mut self, project: &Name, scope: &Scope, mode: Mode, mark: Mark) {
        let of = self.of.entry(project.clone()).or_default();
        let marks = match scope {
            Scope::Project => {
                of.forget("", mode);
                &mut of.whole
            }
            Scope::Prefix(prefix) => {
                of.forget(prefix, mode);
                of.prefixes.entry(prefix.clone()).or_default()
            }
            Scope::Url(target) => of.urls.entry(target.clone()).or_default(),
        };
        marks.add(mode, mark);
    }

    /// What becomes of an object that was asked for at `asked_ms`. Later than `trusted_ms` nothing
    /// can have been asked for: such a stamp is of a wrong clock, and the object older.
    pub(crate) fn verdict(
        &self,
        project: &Name,
        target: &str,
        asked_ms: u64,
        trusted_ms: u64,
    ) -> Verdict {
        let is_older = |order_ms| asked_ms <= order_ms || asked_ms > trusted_ms;
        if self.lost_ms.is_some_and(is_older) {
            return Verdict::Gone;
        }
        let Some(of) = self.of.get(project) else { return Verdict::Keep };
        let mut verdict = Verdict::Keep;
        for (mode, mark) in of.covering(target).flat_map(Marks::each) {
            if is_older(mark.order_ms) {
                match mode {
                    Mode::Hard => return Verdict::Gone,
                    Mode::Soft => verdict = Verdict::Stale,
                }
            }
        }
        verdict
    }

    /// Whether a purge with a number above `seq` covers `target`.
    pub(crate) fn has_since(&self, project: &Name, target: &str, seq: u64) -> bool {
        let marks = self.of.get(project).into_iter().flat_map(|of| of.covering(target));
        marks.flat_map(Marks::each).any(|(_, mark)| mark.seq > seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Dice;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn mark(at: u64) -> Mark {
        Mark { at_ms: at, order_ms: at, seq: at }
    }

    fn covers(scope: &Scope, target: &str) -> bool {
        match scope {
            Scope::Url(url) => url == target,
            Scope::Prefix(prefix) => target.starts_with(prefix.as_str()),
            Scope::Project => true,
        }
    }

    /// The list against all purges ever asked for, one by one.
    #[test]
    fn the_list_says_what_all_purges_say_together() {
        let mut dice = Dice::seeded(11);
        let mut target = |longest: u64| {
            let length = dice.below(longest);
            let letter = |dice: &mut Dice| match dice.below(3) {
                0 => 'a',
                1 => 'b',
                _ => '/',
            };
            let text: String = (0..length).map(|_| letter(&mut dice)).collect();
            (format!("/{text}"), dice.below(1 << 20))
        };
        for _ in 0..60 {
            let (mut table, mut all) = (Table::default(), Vec::new());
            for at in 1..40u64 {
                let (text, roll) = target(4);
                let scope = match roll % 12 {
                    0 => Scope::Project,
                    1..5 => Scope::Prefix(text),
                    _ => Scope::Url(text),
                };
                let mode = if roll & 16 == 0 { Mode::Soft } else { Mode::Hard };
                table = table.with(&name("p"), &scope, mode, mark(at)).unwrap();
                all.push((scope, mode, at));
                assert!(table.len() <= all.len());
                for _ in 0..20 {
                    let (text, roll) = target(6);
                    let asked = roll % (at + 1);
                    let hits = |wanted| {
                        all.iter()
                            .any(|(s, m, at)| *m == wanted && covers(s, &text) && asked <= *at)
                    };
                    let slow = match (hits(Mode::Hard), hits(Mode::Soft)) {
                        (true, _) => Verdict::Gone,
                        (_, true) => Verdict::Stale,
                        _ => Verdict::Keep,
                    };
                    let found = table.verdict(&name("p"), &text, asked, u64::MAX);
                    assert_eq!(found, slow, "{text} {asked} {all:?}");
                    let since = all.iter().any(|(s, _, at)| covers(s, &text) && *at > asked);
                    assert_eq!(table.has_since(&name("p"), &text, asked), since);
                    assert_eq!(table.verdict(&name("q"), &text, 0, u64::MAX), Verdict::Keep);
                }
            }
        }
    }

    #[test]
    fn a_wider_purge_takes_the_place_of_narrower_ones() {
        let mut table = Table::default();
        let mut add = |scope: Scope, mode, at| {
            table = table.with(&name("p"), &scope, mode, mark(at)).unwrap();
            table.len()
        };
        assert_eq!(add(Scope::Url("/a/1".into()), Mode::Hard, 1), 1);
        assert_eq!(add(Scope::Url("/a/1".into()), Mode::Soft, 2), 2);
        assert_eq!(add(Scope::Url("/b".into()), Mode::Soft, 3), 3);
        assert_eq!(add(Scope::Prefix("/a/".into()), Mode::Soft, 4), 3, "the hard one still counts");
        assert_eq!(add(Scope::Prefix("/a".into()), Mode::Hard, 5), 2);
        assert_eq!(add(Scope::Project, Mode::Soft, 6), 2);
        assert_eq!(add(Scope::Project, Mode::Hard, 7), 1);
    }

    #[test]
    fn there_is_an_end_to_it() {
        let mut table = Table::default();
        for n in 0..PURGES_MAX as u64 {
            table.put(&name("p"), &Scope::Url(format!("/{n}")), Mode::Hard, mark(n));
        }
        let more = Scope::Url("/more".into());
        assert!(table.with(&name("p"), &more, Mode::Hard, mark(1 << 40)).is_none());
        let again = Scope::Url("/7".into());
        assert!(table.with(&name("p"), &again, Mode::Hard, mark(1 << 40)).is_some());
        let wider = table.with(&name("p"), &Scope::Prefix("/9".into()), Mode::Hard, mark(1 << 40));
        assert!(wider.unwrap().with(&name("p"), &more, Mode::Hard, mark(1 << 41)).is_some());
        let long = Scope::Url("/".repeat(TARGET_BYTES_MAX + 1));
        assert!(Table::default().with(&name("p"), &long, Mode::Hard, mark(1)).is_none());
    }

    #[test]
    fn old_purges_fold_into_one_that_is_no_younger_than_they_are() {
        let mut table = Table::default();
        for n in 1..=20u64 {
            let mode = if n % 2 == 0 { Mode::Soft } else { Mode::Hard };
            table.put(&name("p"), &Scope::Url(format!("/{n}")), mode, mark(n));
        }
        table.put(&name("q"), &Scope::Url("/a".into()), Mode::Hard, mark(3));
        let verdict = |table: &Table, url: &str, at| table.verdict(&name("p"), url, at, u64::MAX);
        let (soft, project) = table.folded(Mode::Soft, 11).unwrap();
        assert_eq!((project, soft.len()), (name("p"), 21 - 5 + 1));
        assert_eq!(verdict(&soft, "/other", 10), Verdict::Stale);
        assert_eq!(verdict(&soft, "/other", 11), Verdict::Keep, "asked for since");
        assert_eq!(verdict(&soft, "/9", 9), Verdict::Gone, "hard ones stay what they are");
        assert_eq!(verdict(&soft, "/12", 12), Verdict::Stale, "younger ones stay");
        let (hard, _) = soft.folded(Mode::Hard, 11).unwrap();
        // One for all, those above 11, and the one of the other project.
        assert_eq!(hard.len(), 1 + 9 + 1);
        assert_eq!(verdict(&hard, "/other", 11), Verdict::Gone);
        assert_eq!(verdict(&hard, "/other", 12), Verdict::Keep);
        assert_eq!(hard.verdict(&name("q"), "/b", 0, u64::MAX), Verdict::Keep);
        assert!(hard.folded(Mode::Hard, 11).is_none());
    }
}
