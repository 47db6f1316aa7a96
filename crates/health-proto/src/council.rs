//! The checkers together: who is believed, what the majority says, and who publishes (H1).
//!
//! - **Who counts.** A checker has a vote for as long as its observations are fresh and it does not
//!   suspect itself. It has none on what it has not asked lately.
//! - **Quorum.** A node is down, or unfit, or a master bad, when more than half of the votes say so.
//!   One checker alone is its own quorum.
//! - **Who publishes.** The first of the list that is there and does not suspect itself. One that has
//!   been silent for `takeover_ms` is passed over. Who was restarted, or saw nothing for a while, waits
//!   for the word of the others for up to `stale_ms`, and then until it knows enough not to publish worse
//!   than who does it now.

use std::collections::BTreeMap;

use model::{Name, Now};

use crate::observe::{Observations, Subject, Verdict, View};
use crate::probe::Evidence;
use crate::setup::CouncilSetup;

const NS_PER_MS: u64 = 1_000_000;

/// Who publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// This checker.
    Publisher,
    /// Another one, or nobody yet; this one watches and is ready.
    Standby {
        /// Who it waits for.
        of: Option<Name>,
    },
}

impl Role {
    /// Whether this checker publishes.
    pub fn publishes(&self) -> bool {
        *self == Self::Publisher
    }
}

/// How this checker is itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Me {
    /// It suspects itself.
    pub(crate) isolated: bool,
    /// It has asked everybody since it began.
    pub(crate) informed: bool,
    /// It publishes now.
    pub(crate) publishes: bool,
}

/// What another checker said last.
#[derive(Debug)]
struct Heard {
    /// When it reached us.
    mono_ns: u64,
    /// When it was written, by the other's clock.
    at_ms: u64,
    isolated: bool,
    publishing: bool,
    views: BTreeMap<Subject, View>,
}

/// One vote.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vote<'a> {
    pub(crate) verdict: Verdict,
    pub(crate) reason: &'a str,
    pub(crate) evidence: Option<&'a Evidence>,
}

/// What the council says of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// `Unknown` when nobody has a vote.
    pub(crate) verdict: Verdict,
    pub(crate) reason: String,
    pub(crate) evidence: Option<Evidence>,
}

/// See the module's page.
#[derive(Debug)]
pub(crate) struct Council {
    setup: CouncilSetup,
    me: Name,
    started_ns: u64,
    heard: BTreeMap<Name, Heard>,
}

impl Council {
    pub(crate) fn new(setup: CouncilSetup, me: Name, now: Now) -> Self {
        Self { setup, me, started_ns: now.mono_ns, heard: BTreeMap::new() }
    }

    /// Begins anew after a time in which this checker saw nothing: what the others said before says
    /// nothing of now.
    pub(crate) fn restart(&mut self, now: Now) {
        self.started_ns = now.mono_ns;
        self.heard.clear();
    }

    /// When it began.
    pub(crate) fn started_ns(&self) -> u64 {
        self.started_ns
    }

    /// Takes what another checker published. Refused: strangers, ourselves, and what is not newer than
    /// what that checker said before. Whose signature it had is the caller's business.
    pub(crate) fn hear(&mut self, now: Now, seen: Observations) -> bool {
        let known = self.others().any(|other| *other == seen.checker);
        let newer = self.heard.get(&seen.checker).is_none_or(|before| before.at_ms < seen.at_ms);
        if !known || !newer {
            return false;
        }
        let views = seen.views.into_iter().map(|view| (view.subject.clone(), view));
        let heard = Heard {
            mono_ns: now.mono_ns,
            at_ms: seen.at_ms,
            isolated: seen.isolated,
            publishing: seen.publishing,
            views: views.collect(),
        };
        self.heard.insert(seen.checker, heard);
        true
    }

    /// The other checkers.
    pub(crate) fn others(&self) -> impl Iterator<Item = &Name> {
        self.setup.checkers.iter().filter(|name| **name != self.me)
    }

    /// Whether what `checker` said counts now.
    pub(crate) fn counts(&self, checker: &Name, now: Now) -> bool {
        self.heard.get(checker).is_some_and(|heard| !heard.isolated && self.is_fresh(heard, now))
    }

    /// How long ago another checker was heard of, milliseconds, and whether it suspects itself.
    pub(crate) fn heard_of(&self, checker: &Name, now: Now) -> Option<(u64, bool)> {
        let heard = self.heard.get(checker)?;
        Some((now.mono_ns.saturating_sub(heard.mono_ns) / NS_PER_MS, heard.isolated))
    }

    fn is_fresh(&self, heard: &Heard, now: Now) -> bool {
        within(heard.mono_ns, self.setup.stale_ms, now)
    }

    /// Whether there are others, and none has been heard of lately. Right after the start nobody can
    /// have been.
    pub(crate) fn is_deaf(&self, now: Now) -> bool {
        let any = self.others().next().is_some();
        let heard = self.heard.values().any(|heard| self.is_fresh(heard, now));
        any && !heard && !self.is_young(now)
    }

    /// Whether this checker began so lately that others may only not have spoken yet.
    pub(crate) fn is_young(&self, now: Now) -> bool {
        within(self.started_ns, self.setup.stale_ms, now)
    }

    /// What more than half of the votes say of `subject`.
    pub(crate) fn decide(&self, now: Now, subject: &Subject, own: Option<Vote<'_>>) -> Decision {
        let peers = self.heard.iter().filter(|(_, h)| !h.isolated && self.is_fresh(h, now));
        let peers = peers.filter_map(|(name, heard)| {
            let View { verdict, reason, evidence, .. } = heard.views.get(subject)?;
            Some((Some(name), Vote { verdict: *verdict, reason, evidence: evidence.as_ref() }))
        });
        let votes: Vec<(Option<&Name>, Vote<'_>)> = own
            .into_iter()
            .map(|vote| (None, vote))
            .chain(peers)
            .filter(|(_, vote)| vote.verdict != Verdict::Unknown)
            .collect();
        let all = votes.len();
        let at_least =
            |least: Verdict| votes.iter().filter(|(_, vote)| vote.verdict >= least).count();
        let majority = |count: usize| count.saturating_mul(2) > all;
        let verdict = match all {
            0 => Verdict::Unknown,
            _ if majority(at_least(Verdict::Fail)) => Verdict::Fail,
            _ if majority(at_least(Verdict::Differs)) => Verdict::Differs,
            _ => Verdict::Pass,
        };
        // Our own evidence first, because people ask us.
        let Some((who, vote)) = votes.iter().find(|(_, vote)| vote.verdict == verdict) else {
            return Decision { verdict, reason: String::new(), evidence: None };
        };
        let mut reason = match who {
            Some(name) if vote.reason.is_empty() => format!("{name}: {verdict}"),
            Some(name) => format!("{name}: {}", vote.reason),
            None => vote.reason.to_owned(),
        };
        if all > 1 && verdict != Verdict::Pass {
            let agree = at_least(verdict);
            reason.push_str(&format!(" (say {agree} of {all} checkers)"));
        }
        Decision { verdict, reason, evidence: vote.evidence.cloned() }
    }

    /// Who publishes now, when this checker is as `me` says.
    pub(crate) fn role(&self, now: Now, me: Me) -> Role {
        let is_there = |name: &Name| {
            let there = |h: &Heard| !h.isolated && within(h.mono_ns, self.setup.takeover_ms, now);
            self.heard.get(name).is_some_and(there)
        };
        let mut before = self.setup.checkers.iter().take_while(|name| **name != self.me);
        // Who publishes goes on until the one before it does.
        let waits = |name: &Name| {
            me.publishes && !self.heard.get(name).is_some_and(|heard| heard.publishing)
        };
        if let Some(first) = before.find(|name| is_there(name) && !waits(name)) {
            return Role::Standby { of: Some(first.clone()) };
        }
        if me.isolated
            && let Some(other) = self.others().find(|name| is_there(name))
        {
            return Role::Standby { of: Some(other.clone()) };
        }
        let missing = self.others().find(|name| !self.heard.contains_key(*name));
        if let Some(missing) = missing.filter(|_| self.is_young(now)) {
            // It may only not have spoken yet.
            return Role::Standby { of: Some(missing.clone()) };
        }
        let settled = !within(self.started_ns, self.setup.takeover_ms, now);
        let publishing = |(name, heard): &(&Name, &Heard)| heard.publishing && is_there(name);
        if let Some((other, _)) = self.heard.iter().find(publishing)
            && !me.informed
            && !settled
        {
            return Role::Standby { of: Some(other.clone()) };
        }
        Role::Publisher
    }
}

fn within(then_ns: u64, ms: u64, now: Now) -> bool {
    now.mono_ns <= then_ns.saturating_add(ms.saturating_mul(NS_PER_MS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{START, name};
    use model::Family;

    fn subject() -> Subject {
        Subject::Node { node: name("n"), family: Family::V4 }
    }

    fn said(checker: &str, at_ms: u64, verdict: Verdict) -> Observations {
        let reason = if verdict == Verdict::Pass { "" } else { "connect refused" };
        let view = View { subject: subject(), verdict, reason: reason.into(), evidence: None };
        Observations {
            format: crate::observe::FORMAT,
            checker: name(checker),
            at_ms,
            isolated: false,
            generation: 0,
            publishing: false,
            outside: BTreeMap::new(),
            views: vec![view],
        }
    }

    fn council(me: &str) -> Council {
        let checkers = ["a", "b", "c"].map(name).into();
        let setup = CouncilSetup { checkers, stale_ms: 10_000, takeover_ms: 20_000 };
        Council::new(setup, name(me), START)
    }

    fn me(isolated: bool, informed: bool) -> Me {
        Me { isolated, informed, publishes: false }
    }

    fn own(verdict: Verdict) -> Option<Vote<'static>> {
        Some(Vote { verdict, reason: "no answer", evidence: None })
    }

    #[test]
    fn more_than_half_of_those_that_count_decide() {
        use Verdict::{Fail, Pass, Unknown};
        // own, b, c -> together
        for (mine, b, c, together) in [
            (Fail, None, None, Fail),
            (Pass, None, None, Pass),
            (Unknown, None, None, Unknown),
            (Fail, Some(Pass), None, Pass),
            (Fail, Some(Fail), None, Fail),
            (Fail, Some(Fail), Some(Pass), Fail),
            (Pass, Some(Fail), Some(Fail), Fail),
            (Fail, Some(Pass), Some(Pass), Pass),
            (Unknown, Some(Fail), Some(Unknown), Fail),
            (Fail, Some(Unknown), Some(Unknown), Fail),
        ] {
            let mut council = council("a");
            for (who, verdict) in [("b", b), ("c", c)] {
                let seen = verdict.map(|verdict| said(who, 1, verdict));
                assert!(seen.is_none_or(|seen| council.hear(START, seen)));
            }
            let decision = council.decide(START, &subject(), own(mine));
            assert_eq!(decision.verdict, together, "{mine} {b:?} {c:?}");
        }
    }

    #[test]
    fn the_reason_says_who_says_so() {
        let mut council = council("a");
        council.hear(START, said("b", 1, Verdict::Fail));
        council.hear(START, said("c", 1, Verdict::Fail));
        let reason = |vote| council.decide(START, &subject(), vote).reason;
        assert_eq!(reason(own(Verdict::Fail)), "no answer (say 3 of 3 checkers)");
        assert_eq!(reason(own(Verdict::Pass)), "b: connect refused (say 2 of 3 checkers)");
        assert_eq!(reason(None), "b: connect refused (say 2 of 2 checkers)");
    }

    #[test]
    fn the_stale_the_isolated_the_unknown_and_the_repeated_do_not_count() {
        let mut council = council("a");
        let verdict = |council: &Council, now| council.decide(now, &subject(), None).verdict;
        assert!(!council.hear(START, said("stranger", 1, Verdict::Fail)));
        assert!(!council.hear(START, said("a", 1, Verdict::Fail)));
        assert!(council.hear(START, said("b", 5, Verdict::Fail)));
        assert!(!council.hear(START.plus_ms(9_000), said("b", 5, Verdict::Fail)));
        assert_eq!(verdict(&council, START.plus_ms(10_000)), Verdict::Fail);
        assert_eq!(verdict(&council, START.plus_ms(10_001)), Verdict::Unknown);
        assert!(council.is_deaf(START.plus_ms(10_001)));
        let isolated = Observations { isolated: true, ..said("b", 6, Verdict::Fail) };
        assert!(council.hear(START.plus_ms(20_000), isolated));
        assert_eq!(verdict(&council, START.plus_ms(20_000)), Verdict::Unknown);
        assert!(!council.is_deaf(START.plus_ms(20_000)));
    }

    #[test]
    fn the_first_that_is_there_publishes() {
        let of = |name_of: &str| Role::Standby { of: Some(name(name_of)) };
        let mut b = council("b");
        // Whoever comes first may only not have spoken yet.
        assert_eq!(b.role(START, me(false, true)), of("a"));
        assert_eq!(b.role(START.plus_ms(10_000), me(false, true)), of("a"));
        assert_eq!(b.role(START.plus_ms(10_001), me(false, true)), Role::Publisher);
        b.hear(START.plus_ms(21_000), said("a", 1, Verdict::Pass));
        assert_eq!(b.role(START.plus_ms(41_000), me(false, true)), of("a"));
        assert_eq!(b.role(START.plus_ms(41_001), me(false, true)), Role::Publisher);
        // It is back: the two meet when it publishes, not before.
        b.hear(START.plus_ms(41_500), said("a", 2, Verdict::Pass));
        let publishing = Me { publishes: true, ..me(false, true) };
        assert_eq!(b.role(START.plus_ms(41_500), publishing), Role::Publisher);
        let again = Observations { publishing: true, ..said("a", 3, Verdict::Pass) };
        b.hear(START.plus_ms(41_600), again);
        assert_eq!(b.role(START.plus_ms(41_600), publishing), of("a"));
        // One that suspects itself steps aside, and so do we when we do.
        let isolated = Observations { isolated: true, ..said("a", 4, Verdict::Pass) };
        b.hear(START.plus_ms(42_000), isolated);
        assert_eq!(b.role(START.plus_ms(42_000), me(false, true)), Role::Publisher);
        b.hear(START.plus_ms(42_000), said("c", 2, Verdict::Pass));
        assert_eq!(b.role(START.plus_ms(42_000), me(true, true)), of("c"));
        assert_eq!(
            b.role(START.plus_ms(62_001), me(true, true)),
            Role::Publisher,
            "nobody else is there"
        );
    }

    #[test]
    fn who_was_restarted_waits_until_it_knows_enough() {
        let mut a = council("a");
        let waits = Role::Standby { of: Some(name("b")) };
        assert_eq!(a.role(START, me(false, false)), waits, "b may be about to speak");
        a.hear(START, said("b", 1, Verdict::Pass));
        a.hear(START, said("c", 1, Verdict::Pass));
        assert_eq!(a.role(START, me(false, false)), Role::Publisher, "nobody else does");
        let publishing = Observations { publishing: true, ..said("b", 2, Verdict::Pass) };
        a.hear(START, publishing);
        assert_eq!(a.role(START, me(false, false)), Role::Standby { of: Some(name("b")) });
        assert_eq!(a.role(START, me(false, true)), Role::Publisher);
        a.restart(START.plus_ms(60_000));
        assert_eq!(a.role(START.plus_ms(60_000), me(false, true)), waits);
        let alone = Council::new(CouncilSetup::default(), name("a"), START);
        assert_eq!(alone.role(START, me(true, false)), Role::Publisher);
    }
}
