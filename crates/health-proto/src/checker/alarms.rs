//! Which alarms hold.

use std::collections::BTreeMap;

use model::{Name, Now, State};

use super::Checker;
use crate::alarm::{Alarm, AlarmView};
use crate::event::{Event, What};
use crate::observe::Subject;
use crate::probe::{Question, Target};

/// Falls within the flap window from which on a person is told.
const FLAPS: u32 = 3;
const DAY_MS: u64 = 86_400_000;
/// Days that a certificate must have left where the question does not say.
const DAYS_MIN: u32 = 7;

impl Checker {
    /// Looks which alarms hold now; what begins and what ends is an event.
    pub(super) fn refresh_alarms(&mut self, now: Now) {
        let found = self.find_alarms(now);
        let mut before = std::mem::take(&mut self.alarms);
        for alarm in found.into_iter().chain(self.raised.values().cloned()) {
            let key = (alarm.word(), alarm.about());
            let since_ms = match before.remove(&key) {
                Some((_, since_ms)) => since_ms,
                None => {
                    self.events.push(Event {
                        to: key.0.to_owned(),
                        reason: alarm.to_string(),
                        ..Event::new(now, What::Alarm)
                    });
                    now.wall_ms
                }
            };
            self.alarms.insert(key, (alarm, since_ms));
        }
        for ((word, _), (alarm, _)) in before {
            self.events.push(Event {
                from: word.to_owned(),
                reason: format!("no more: {alarm}"),
                ..Event::new(now, What::Alarm)
            });
        }
    }

    /// For people, the most urgent first.
    pub(super) fn alarm_views(&self) -> Vec<AlarmView> {
        let views = self.alarms.iter().map(|((word, about), (alarm, since_ms))| AlarmView {
            alarm: word,
            about: about.clone(),
            severity: alarm.severity(),
            text: alarm.to_string(),
            since_ms: *since_ms,
        });
        let mut views: Vec<AlarmView> = views.collect();
        views.sort_by_key(|view| std::cmp::Reverse(view.severity));
        views
    }

    fn find_alarms(&self, now: Now) -> Vec<Alarm> {
        let mut alarms = Vec::new();
        alarms.extend(self.holding.then_some(Alarm::Holding));
        alarms.extend(self.isolated.clone().map(|why| Alarm::Isolated { why }));
        alarms.extend(self.panic.map(|up_percent| Alarm::Panic { up_percent }));
        let stretch_permille = self.schedule.stretch_permille();
        alarms.extend((stretch_permille > 1000).then_some(Alarm::Budget { stretch_permille }));
        alarms.extend(self.nobody_has_room());
        for checker in self.council.others() {
            let away = !self.council.is_young(now) && !self.council.counts(checker, now);
            alarms.extend(away.then(|| Alarm::CheckerAway { checker: checker.clone() }));
        }
        for (project, why) in &self.disagreeing {
            alarms.push(Alarm::MastersDisagree { project: project.clone(), why: why.clone() });
        }
        self.alarms_of_subjects(now, &mut alarms);
        self.alarms_of_targets(now, &mut alarms);
        alarms
    }

    fn alarms_of_subjects(&self, now: Now, alarms: &mut Vec<Alarm>) {
        for (subject, standing) in &self.standing {
            let is_bad = standing.state.state == State::Down;
            match subject {
                Subject::Node { node, family } => {
                    let falls = standing.falls(now, &self.setup);
                    let (node, family) = (node.clone(), *family);
                    let flaps = falls >= FLAPS;
                    alarms.extend(flaps.then_some(Alarm::Flapping { node, family, falls }));
                }
                Subject::Master { project, master } if is_bad => {
                    let (project, master) = (project.clone(), master.clone());
                    let why = standing.state.reason.clone();
                    alarms.push(match standing.differs {
                        true => Alarm::MasterQuarantined { project, master, why },
                        false => Alarm::MasterDown { project, master, why },
                    });
                }
                Subject::Master { .. } | Subject::Project { .. } => {}
            }
        }
    }

    fn alarms_of_targets(&self, now: Now, alarms: &mut Vec<Alarm>) {
        // A certificate is seen on many targets: one alarm for each place that shows it.
        let mut ending: BTreeMap<String, u64> = BTreeMap::new();
        for (target, tracked) in self.schedule.iter() {
            let Some((result, _)) = &tracked.last else { continue };
            match (target, result) {
                (Target::Redirector { name }, Err(failed)) if tracked.state == State::Down => {
                    let why = failed.to_string();
                    alarms.push(Alarm::RedirectorFails { redirector: name.clone(), why });
                }
                // When all fail it is not they.
                (Target::Outside { name }, Err(failed))
                    if tracked.state == State::Down && self.isolated.is_none() =>
                {
                    let why = failed.to_string();
                    alarms.push(Alarm::OutsideFails { canary: name.clone(), why });
                }
                _ => {}
            }
            let end_ms = result.as_ref().ok().and_then(|passed| passed.seen.certificate_end_ms);
            let Some(end_ms) = end_ms else { continue };
            let days = end_ms.saturating_sub(now.wall_ms) / DAY_MS;
            if days < u64::from(self.days_min(target)) {
                ending.insert(certificate_of(target), days);
            }
        }
        alarms.extend(
            ending.into_iter().map(|(target, days)| Alarm::CertificateEnds { target, days }),
        );
    }

    /// Days that a certificate must have left.
    fn days_min(&self, target: &Target) -> u32 {
        match self.schedule.question(target) {
            Some(Question::Tls { days_min, .. }) => *days_min,
            _ => DAYS_MIN,
        }
    }

    /// Demand above what all that serve can send, by their own reports, where all have given one.
    fn nobody_has_room(&self) -> Option<Alarm> {
        let (mut used, mut capacity) = (0u128, 0u128);
        let serving = self.standing.iter().filter_map(|(subject, standing)| match subject {
            Subject::Node { node, .. } if standing.state.state != State::Down => Some(node),
            _ => None,
        });
        let serving: std::collections::BTreeSet<&Name> =
            serving.filter(|node| !self.drained.contains_key(*node)).collect();
        for name in serving {
            let of_map = self.map.nodes.get(name).and_then(|node| node.capacity);
            let report = self.loads.report(name)?;
            let of_node = report.capacity(of_map.map(|rate| rate.0));
            if of_node == 0 {
                return None;
            }
            used = used.saturating_add(u128::from(report.used_bps));
            capacity = capacity.saturating_add(u128::from(of_node));
        }
        let percent = used.saturating_mul(100).checked_div(capacity)?;
        let percent = u32::try_from(percent).unwrap_or(u32::MAX);
        (percent >= 100).then_some(Alarm::NobodyHasRoom { percent })
    }
}

/// Where a certificate was seen, without the address, since all addresses of a node show the same.
fn certificate_of(target: &Target) -> String {
    match target {
        Target::Project { project, node, .. } => format!("project {project} at node {node}"),
        Target::Master { project, master, .. } => format!("master {project}/{master}"),
        other => other.to_string(),
    }
}
