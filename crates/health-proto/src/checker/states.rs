//! From results to states: holding and suspecting itself, votes, comparing masters, events.

use model::{Family, Name, Now, State};
use nodemap::{MasterState, MasterWord};

use super::{Checker, NS_PER_MS};
use crate::council::{Me, Role, Vote};
use crate::count::Tracked;
use crate::event::{Event, What};
use crate::masters::{Answers, Judgement, judge};
use crate::observe::{Subject, Verdict};
use crate::probe::Target;
use crate::standing::{Change, Standing};
use crate::targets::subject_of;
use crate::watch::{Watched, node_and_family};

/// Intervals of a target after which what it said last is no vote any more.
const VOTE_INTERVALS: u64 = 3;

impl Checker {
    /// Notes what a result says of this checker's own sight (H1).
    pub(super) fn note_sight(&mut self, now: Now, target: &Target, passed: bool) {
        match (target, passed) {
            (Target::Outside { .. }, true) => {
                let sent_ns = self.schedule.get(target).map_or(0, |tracked| tracked.sent_ns);
                self.sight_ns = self.sight_ns.max(Some(sent_ns));
            }
            (Target::Outside { .. }, false) => {}
            (_, true) => {}
            (_, false) => {
                let first = self.schedule.get(target).is_some_and(|tracked| tracked.fails == 1);
                if first {
                    self.look_outside(now);
                }
            }
        }
        self.note_isolation(now);
    }

    /// Somebody begins to fail: asks the canaries now, to know whether it is us.
    fn look_outside(&mut self, now: Now) {
        let names: Vec<Name> = self.setup.outside.keys().cloned().collect();
        for name in names {
            self.schedule.hasten(&Target::Outside { name }, now);
        }
    }

    /// Decides whether this checker suspects itself. When it does no more, all failures are counted
    /// anew: what failed meanwhile proves nothing.
    pub(super) fn note_isolation(&mut self, now: Now) {
        let outside = self.setup.outside.keys().map(|name| Target::Outside { name: name.clone() });
        let (mut asked, mut failing) = (0usize, 0usize);
        for target in outside {
            let tracked = self.schedule.get(&target);
            if tracked.is_some_and(|tracked| tracked.last.is_some()) {
                asked = asked.saturating_add(1);
            }
            if tracked.is_some_and(|tracked| tracked.fails > 0) {
                failing = failing.saturating_add(1);
            }
        }
        let blind = asked > 0 && failing == self.setup.outside.len();
        let sees = asked > failing && self.half_pass();
        let isolated = if blind {
            Some("no canary outside the network answers".to_owned())
        } else if self.council.is_deaf(now) && !sees {
            Some("no other checker has been heard of lately".to_owned())
        } else {
            None
        };
        let ended = self.isolated.is_some() && isolated.is_none();
        // Who only heard nobody saw well all the time.
        if std::mem::replace(&mut self.blind, blind) && !blind {
            for (target, tracked) in self.schedule.iter_mut() {
                if !matches!(target, Target::Outside { .. }) {
                    (tracked.fails, tracked.passes) = (0, 0);
                }
            }
            self.council.restart(now);
        }
        let changed = ended || (self.isolated.is_none() && isolated.is_some());
        self.isolated = isolated;
        if changed {
            self.take_role(now);
            self.refresh_alarms(now);
        }
    }

    /// Whether at least half of the nodes' addresses passed when they were asked last.
    fn half_pass(&self) -> bool {
        let (mut all, mut passed) = (0usize, 0usize);
        for (_, tracked) in self.schedule.iter().filter(|(t, _)| node_and_family(t).is_some()) {
            all = all.saturating_add(1);
            passed = passed.saturating_add(usize::from(tracked.passes > 0));
        }
        passed.saturating_mul(2) >= all
    }

    /// Takes the role that the council gives; a change is an event, and who begins to publish does so at
    /// once.
    pub(super) fn take_role(&mut self, now: Now) {
        let started_ns = self.council.started_ns();
        let heard_of = |tracked: &Tracked| tracked.last.as_ref().map(|(_, at)| at.mono_ns);
        let since_then = |tracked: &Tracked| heard_of(tracked).is_some_and(|at| at >= started_ns);
        let informed = self.schedule.iter().all(|(_, tracked)| since_then(tracked));
        let (isolated, publishes) = (self.isolated.is_some(), self.role.publishes());
        let role = self.council.role(now, Me { isolated, informed, publishes });
        if role == self.role {
            return;
        }
        let before = std::mem::replace(&mut self.role, role);
        if self.role.publishes() {
            self.publish_ns = Some(now.mono_ns);
        }
        let told = |role: &Role| match role {
            Role::Publisher => self.publisher.to_string(),
            Role::Standby { of } => of.as_ref().map_or_else(String::new, Name::to_string),
        };
        let event = Event {
            from: told(&before),
            to: told(&self.role),
            reason: "by the order of the checkers that are there".to_owned(),
            ..Event::new(now, What::Publisher)
        };
        self.events.push(event);
    }

    /// Draws the conclusions from a result that `target` brought.
    pub(super) fn settle_target(&mut self, now: Now, target: &Target) -> Change {
        let was_holding = self.holding;
        self.holding = self.all_failing_at_once();
        let sighted = matches!(target, Target::Outside { .. }) && self.sight_ns.is_some();
        // The end of a hold settles everyone it held back; else only this target can have moved.
        if (was_holding && !self.holding) || sighted {
            let all: Vec<Target> = self.schedule.iter().map(|(target, _)| target.clone()).collect();
            all.iter().for_each(|target| self.settle_count(target));
            return self.refresh_all(now);
        }
        self.settle_count(target);
        let Some(subject) = subject_of(target) else { return Change::Nothing };
        if let Subject::Master { project, .. } = &subject {
            return self.compare_masters(now, &project.clone());
        }
        self.refresh_one(now, &subject)
    }

    /// Lets a target fall or rise by its counters, if this checker may trust what it sees.
    fn settle_count(&mut self, target: &Target) {
        let watches_itself = !self.setup.outside.is_empty();
        let is_outside = matches!(target, Target::Outside { .. });
        let params = self.setup.params;
        let (sight_ns, isolated, holding) = (
            self.sight_ns,
            self.isolated.is_some(),
            self.holding && node_and_family(target).is_some(),
        );
        let Some(tracked) = self.schedule.get_mut(target) else { return };
        let unproved = watches_itself
            && !is_outside
            && (isolated || sight_ns.is_none_or(|sight_ns| sight_ns < tracked.failing_since_ns));
        tracked.settle(&params, holding || unproved);
    }

    fn refresh_all(&mut self, now: Now) -> Change {
        let subjects: Vec<Subject> = self.watched.keys().cloned().collect();
        let each = subjects.iter().map(|subject| self.refresh_one(now, subject));
        each.max().unwrap_or(Change::Nothing)
    }

    /// Looks at the targets of a subject again, and votes on it.
    fn refresh_one(&mut self, now: Now, subject: &Subject) -> Change {
        let Some(watched) = self.watched.get_mut(subject) else { return Change::Nothing };
        let reworded = watched.refresh(&self.schedule, now);
        self.settle_subject(now, subject, reworded)
    }

    /// Votes on everything: others may have spoken, or time has passed.
    pub(super) fn settle_all(&mut self, now: Now) -> Change {
        let subjects: Vec<Subject> = self.standing.keys().cloned().collect();
        let each = subjects.iter().map(|subject| self.settle_subject(now, subject, false));
        each.max().unwrap_or(Change::Nothing)
    }

    /// What this checker thinks of a subject. It has no vote on what it has not asked lately, nor on a
    /// state of its last run that no probe has confirmed.
    pub(super) fn vote<'a>(
        &'a self,
        subject: &Subject,
        watched: &'a Watched,
        now: Now,
    ) -> Vote<'a> {
        let state = &watched.state;
        let plain =
            |verdict| Vote { verdict, reason: &state.reason, evidence: watched.evidence.as_ref() };
        if let Subject::Master { project, master } = subject
            && let Some(how) = self.differing.get(&(project.clone(), master.clone()))
            && state.state != State::Down
        {
            return Vote { verdict: Verdict::Differs, reason: how, evidence: None };
        }
        let last = watched.speaker.as_ref().and_then(|speaker| self.schedule.get(speaker));
        let heard_ns = last.and_then(|tracked| tracked.last.as_ref()).map(|(_, at)| at.mono_ns);
        // By its own interval: some are asked rarely.
        let interval_ns = watched.speaker.as_ref().map_or(0, |of| self.schedule.interval_ns(of));
        let fresh_ns = interval_ns.saturating_mul(VOTE_INTERVALS);
        let lately = |at: u64| now.mono_ns <= at.saturating_add(fresh_ns);
        match state.state {
            _ if !watched.is_confirmed || !heard_ns.is_some_and(lately) => plain(Verdict::Unknown),
            State::Up => plain(Verdict::Pass),
            State::Down => plain(Verdict::Fail),
            State::Unknown | State::Drained => plain(Verdict::Unknown),
        }
    }

    /// Lets the published state of a subject follow the council. While this checker suspects itself,
    /// nothing changes.
    fn settle_subject(&mut self, now: Now, subject: &Subject, reworded: bool) -> Change {
        if self.isolated.is_some() {
            return Change::Nothing;
        }
        let Some(watched) = self.watched.get(subject) else { return Change::Nothing };
        let decision = self.council.decide(now, subject, Some(self.vote(subject, watched, now)));
        let Some(standing) = self.standing.get_mut(subject) else { return Change::Nothing };
        let (before, word) = (standing.state.state, standing.word(subject));
        let change = standing.step(now, decision, &self.setup, reworded);
        if change != Change::State {
            return self.published(subject, change);
        }
        let event = Event {
            from: word,
            to: standing.word(subject),
            reason: standing.state.reason.clone(),
            evidence: standing.evidence.clone(),
            ..Event::of(now, subject)
        };
        // The first look at what passes is no news of anybody but a node: others are only told of when
        // they are bad.
        let is_news = matches!(subject, Subject::Node { .. })
            || !(before == State::Unknown && standing.state.state == State::Up);
        if is_news {
            self.events.push(event);
        }
        self.published(subject, if is_news { change } else { Change::Nothing })
    }

    /// What of a change is seen in the map: nothing of drained nodes.
    fn published(&self, subject: &Subject, change: Change) -> Change {
        match subject {
            Subject::Node { node, .. } if self.drained.contains_key(node) => Change::Nothing,
            // Only those that are bad are in the map.
            Subject::Project { .. } | Subject::Master { .. } if change == Change::Words => {
                Change::Nothing
            }
            _ => change,
        }
    }

    /// Whether every address began to fail within one interval, at least half of them are still
    /// held to be up, and not all have failed often enough yet. With canaries or other checkers there
    /// are better ways to know.
    fn all_failing_at_once(&self) -> bool {
        if !self.setup.outside.is_empty() || self.council.others().next().is_some() {
            return false;
        }
        let (mut all, mut up, mut fallen) = (0usize, 0usize, 0usize);
        let (mut first, mut last) = (u64::MAX, 0);
        for (target, tracked) in self.schedule.iter() {
            let Some((node, _)) = node_and_family(target) else { continue };
            if tracked.fails == 0 {
                return false;
            }
            if self.drained.contains_key(node) {
                continue;
            }
            all = all.saturating_add(1);
            up = up.saturating_add(usize::from(tracked.state == State::Up));
            fallen = fallen.saturating_add(usize::from(tracked.has_fallen(&self.setup.params)));
            first = first.min(tracked.failing_since_ns);
            last = last.max(tracked.failing_since_ns);
        }
        // A probe that was already under way when everything ended began up to a timeout earlier.
        let params = &self.setup.params;
        let once_ms = params.interval_ms.saturating_add(params.timeout_ms);
        let stretched_ns =
            once_ms.saturating_mul(NS_PER_MS).saturating_mul(self.schedule.stretch_permille())
                / 1000;
        let at_once = last.saturating_sub(first) <= stretched_ns;
        at_once && up.saturating_mul(2) >= all && fallen < all
    }

    /// Compares the masters of a project with each other, and votes on each.
    fn compare_masters(&mut self, now: Now, project: &Name) -> Change {
        let masters: Vec<Name> = self
            .map
            .projects
            .get(project)
            .map(|of| of.masters.keys().cloned().collect())
            .unwrap_or_default();
        let checks = self.setup.masters.get(project).map_or(&[][..], Vec::as_slice);
        let mut answers = Vec::new();
        for check in checks {
            let seen = masters.iter().filter_map(|master| {
                let (project, check) = (project.clone(), check.name.clone());
                let target = Target::Master { project, master: master.clone(), check };
                let (result, _) = self.schedule.get(&target)?.last.as_ref()?;
                Some((master, &result.as_ref().ok()?.seen))
            });
            let seen = seen.collect();
            answers.push(Answers { check: &check.name, compare: check.compare, seen });
        }
        let Judgement { quarantined, disagree } = judge(&answers, now);
        self.differing.retain(|(of, _), _| of != project);
        let differing = quarantined.into_iter();
        self.differing.extend(differing.map(|(master, how)| ((project.clone(), master), how)));
        match disagree {
            Some(how) => self.disagreeing.insert(project.clone(), how),
            None => self.disagreeing.remove(project),
        };
        let each = masters.into_iter().map(|master| {
            self.refresh_one(now, &Subject::Master { project: project.clone(), master })
        });
        each.max().unwrap_or(Change::Nothing)
    }
}

impl Standing {
    /// The state of a master, as it is published.
    pub(super) fn of_master(&self) -> MasterState {
        let state = match self.state.state {
            State::Down if self.differs => MasterWord::Quarantined,
            State::Down => MasterWord::Down,
            State::Up | State::Unknown | State::Drained => MasterWord::Good,
        };
        let (reason, since_ms) = (self.state.reason.clone(), self.state.since_ms);
        MasterState { state, reason, since_ms }
    }

    /// The word of the state of what it is of.
    pub(super) fn word(&self, subject: &Subject) -> String {
        match subject {
            Subject::Node { .. } => self.state.state.to_string(),
            Subject::Project { .. } if self.state.state == State::Down => "unfit".to_owned(),
            Subject::Project { .. } => "fit".to_owned(),
            Subject::Master { .. } => self.of_master().state.to_string(),
        }
    }
}

impl Event {
    /// One without words yet.
    pub(super) fn new(now: Now, what: What) -> Self {
        Self {
            at_ms: now.wall_ms,
            what,
            node: None,
            family: None,
            project: None,
            master: None,
            from: String::new(),
            to: String::new(),
            reason: String::new(),
            evidence: None,
        }
    }

    fn of(now: Now, subject: &Subject) -> Self {
        let of = |what| Self::new(now, what);
        let some = |name: &Name| Some(name.clone());
        let family = |family: &Family| Some(*family);
        match subject {
            Subject::Node { node, family: f } => {
                Self { node: some(node), family: family(f), ..of(What::Node) }
            }
            Subject::Project { project, node, family: f } => Self {
                project: some(project),
                node: some(node),
                family: family(f),
                ..of(What::Fitness)
            },
            Subject::Master { project, master } => {
                Self { project: some(project), master: some(master), ..of(What::Master) }
            }
        }
    }
}
