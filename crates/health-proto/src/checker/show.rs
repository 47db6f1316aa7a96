//! What the machine tells: to people, and to the other checkers.

use std::collections::BTreeMap;

use model::{Name, Now, State};

use super::{Checker, NS_PER_MS};
use crate::count::Tracked;
use crate::observe::{self, Observations, Subject, Verdict, View};
use crate::overview::{
    AddressView, CheckerView, FamilyView, OtherView, Overview, ReaderView, UnfitView,
};
use crate::probe::Target;

impl Checker {
    /// What this checker has seen, for the others.
    pub fn observations(&self, now: Now) -> Observations {
        let views = self.watched.iter().map(|(subject, watched)| {
            let vote = self.vote(subject, watched, now);
            let tells = matches!(vote.verdict, Verdict::Fail | Verdict::Differs);
            View {
                subject: subject.clone(),
                verdict: vote.verdict,
                reason: if tells { vote.reason.to_owned() } else { String::new() },
                evidence: vote.evidence.filter(|_| tells).cloned(),
            }
        });
        let outside = self.schedule.iter().filter_map(|(target, tracked)| match target {
            Target::Outside { name } if tracked.last.is_some() => {
                Some((name.clone(), tracked.fails == 0))
            }
            _ => None,
        });
        Observations {
            format: observe::FORMAT,
            checker: self.publisher.clone(),
            at_ms: now.wall_ms,
            isolated: self.isolated.is_some(),
            generation: self.generation.last(),
            publishing: self.role.publishes(),
            outside: outside.collect(),
            views: views.collect(),
        }
    }

    /// What is known of everything, for people.
    pub fn overview(&self, now: Now) -> Overview {
        let mut nodes: BTreeMap<Name, BTreeMap<_, FamilyView>> = BTreeMap::new();
        let mut unfit: BTreeMap<Name, Vec<UnfitView>> = BTreeMap::new();
        let mut masters: BTreeMap<Name, BTreeMap<_, _>> = BTreeMap::new();
        for (subject, standing) in &self.standing {
            match subject {
                Subject::Node { node, family } => {
                    let published = self.published_state(node, *family, &standing.state);
                    let view = FamilyView {
                        state: published.state,
                        reason: published.reason,
                        since_ms: published.since_ms,
                        permille: published.permille,
                        addresses: self.addresses(subject, now),
                    };
                    nodes.entry(node.clone()).or_default().insert(*family, view);
                }
                Subject::Project { project, node, family }
                    if standing.state.state == State::Down =>
                {
                    unfit.entry(project.clone()).or_default().push(UnfitView {
                        node: node.clone(),
                        family: *family,
                        reason: standing.state.reason.clone(),
                        since_ms: standing.state.since_ms,
                    });
                }
                Subject::Project { .. } => {}
                Subject::Master { project, master } => {
                    let known = masters.entry(project.clone()).or_default();
                    known.insert(master.clone(), standing.of_master());
                }
            }
        }
        Overview {
            generation: self.generation.last(),
            published_ms: self.published_ms,
            publishing: self.role.publishes(),
            holding: self.holding,
            isolated: self.isolated.clone(),
            alarms: self.alarm_views(),
            probes_in_flight: self.schedule.in_flight(),
            nodes,
            unfit,
            masters,
            others: self.others(now),
            checkers: self.checkers(now),
            readers: self.readers_seen(now),
            readers_left_out: self.generation.left_out(),
        }
    }

    fn addresses(&self, subject: &Subject, now: Now) -> Vec<AddressView> {
        let members = self.watched.get(subject).into_iter().flat_map(|watched| &watched.members);
        let views = members.filter_map(|member| {
            let Target::Node { address, .. } = member else { return None };
            let tracked = self.schedule.get(member)?;
            Some(AddressView {
                address: *address,
                state: tracked.state,
                passes: tracked.passes,
                fails: tracked.fails,
                last_result: last_result(tracked),
                last_probe_age_ms: tracked.last.as_ref().map(|(_, at)| age_ms(now, *at)),
                next_probe_ms: match tracked.asked {
                    Some(_) => 0,
                    None => tracked.due_ns.saturating_sub(now.mono_ns) / NS_PER_MS,
                },
            })
        });
        views.collect()
    }

    fn others(&self, now: Now) -> Vec<OtherView> {
        let views = self.schedule.iter().filter_map(|(target, tracked)| {
            let name = match target {
                Target::Redirector { name } | Target::Outside { name } => name,
                _ => return None,
            };
            Some(OtherView {
                kind: target.kind(),
                name: name.clone(),
                state: tracked.state,
                last_result: last_result(tracked),
                last_probe_age_ms: tracked.last.as_ref().map(|(_, at)| age_ms(now, *at)),
            })
        });
        views.collect()
    }

    fn checkers(&self, now: Now) -> BTreeMap<Name, CheckerView> {
        let views = self.council.others().map(|name| {
            let heard = self.council.heard_of(name, now);
            let view = CheckerView {
                counts: self.council.counts(name, now),
                last_heard_age_ms: heard.map(|(age_ms, _)| age_ms),
                isolated: heard.is_some_and(|(_, isolated)| isolated),
            };
            (name.clone(), view)
        });
        views.collect()
    }

    fn readers_seen(&self, now: Now) -> BTreeMap<Name, ReaderView> {
        let readers = self.generation.readers().iter().map(|(name, reader)| {
            let view = ReaderView {
                generation: reader.generation,
                last_poll_age_ms: age_ms(now, reader.polled),
                ahead: reader.ahead,
            };
            (name.clone(), view)
        });
        readers.collect()
    }
}

fn age_ms(now: Now, then: Now) -> u64 {
    now.mono_ns.saturating_sub(then.mono_ns) / NS_PER_MS
}

fn last_result(tracked: &Tracked) -> Option<String> {
    let (result, _) = tracked.last.as_ref()?;
    Some(match result {
        Ok(passed) => passed.to_string(),
        Err(failed) => failed.to_string(),
    })
}
