//! Routes of a peer that is away for a moment: RFC 4724 from the side of the one who stays, and the
//! same marks for refreshes (RFC 7313).

use model::{Family, Now};

use super::shared::after_s;
use super::{Agreed, TableChange};
use crate::open::Families;

/// How long the end of what a peer sends anew is waited for.
const STALE_MAX_S: u64 = 360;

/// What ends the wait for a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// The peer is away.
    Return,
    /// It has come back, and tells its routes anew.
    EndOfRib,
    /// It tells them again because somebody asked.
    EndOfRefresh,
}

/// Which routes are stale, and until when.
#[derive(Debug, Default)]
pub(super) struct Restart {
    /// By family: what is waited for, and how long (monotonic nanoseconds).
    waits: [Option<(Wait, u64)>; 2],
}

impl Restart {
    fn wait(&mut self, family: Family) -> &mut Option<(Wait, u64)> {
        let [v4, v6] = &mut self.waits;
        if family == Family::V4 { v4 } else { v6 }
    }

    /// The session is over: what is to be done with its routes.
    pub(super) fn down(&mut self, now: Now, agreed: &Agreed, keep: bool) -> Vec<TableChange> {
        let said = agreed.graceful.filter(|said| keep && said.restart_s > 0);
        let kept = said.map_or(Families::default(), |said| said.families);
        let mut changes = Vec::new();
        for family in agreed.rules.families.each() {
            let wait = self.wait(family);
            if !kept.has(family) {
                *wait = None;
                changes.push(TableChange::Clear(family));
                continue;
            }
            // What was stale before is not kept for a second time.
            changes.extend(wait.map(|_| TableChange::Sweep(family)));
            changes.push(TableChange::MarkStale(family));
            let until = after_s(now, said.map_or(0, |said| u64::from(said.restart_s)));
            *wait = Some((Wait::Return, until));
        }
        changes
    }

    /// The peer is there: what it could not go on with is gone.
    pub(super) fn up(&mut self, now: Now, agreed: &Agreed) -> Vec<TableChange> {
        let said = agreed.graceful.unwrap_or_default();
        let kept = said.families.and(said.forwarding).and(agreed.rules.families);
        let mut changes = Vec::new();
        for family in Family::ALL {
            let wait = self.wait(family);
            if wait.is_none() {
                continue;
            }
            if kept.has(family) {
                *wait = Some((Wait::EndOfRib, after_s(now, STALE_MAX_S)));
            } else {
                *wait = None;
                changes.push(TableChange::Clear(family));
            }
        }
        changes
    }

    /// All routes of the family have been told.
    pub(super) fn end_of_rib(&mut self, family: Family) -> Option<TableChange> {
        let wait = self.wait(family);
        wait.take_if(|(wait, _)| *wait == Wait::EndOfRib).map(|_| TableChange::Sweep(family))
    }

    /// They will be told again. While they are told for the first time anyway, that says nothing new.
    pub(super) fn begin_refresh(&mut self, now: Now, family: Family) -> TableChange {
        *self.wait(family) = Some((Wait::EndOfRefresh, after_s(now, STALE_MAX_S)));
        TableChange::MarkStale(family)
    }

    /// They have been told again.
    pub(super) fn end_refresh(&mut self, family: Family) -> Option<TableChange> {
        let wait = self.wait(family);
        wait.take_if(|(wait, _)| *wait == Wait::EndOfRefresh).map(|_| TableChange::Sweep(family))
    }

    /// Nothing is waited for any more.
    pub(super) fn give_up(&mut self) -> Vec<TableChange> {
        let waiting = Family::ALL.into_iter().filter(|family| self.wait(*family).take().is_some());
        waiting.map(TableChange::Clear).collect()
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        self.waits.iter().flatten().map(|(_, until)| *until).min()
    }

    /// What was waited for long enough is gone.
    pub(super) fn handle_timeout(&mut self, now: Now) -> Vec<TableChange> {
        let mut changes = Vec::new();
        for family in Family::ALL {
            let wait = self.wait(family);
            match wait.take_if(|(_, until)| *until <= now.mono_ns) {
                Some((Wait::Return, _)) => changes.push(TableChange::Clear(family)),
                Some(_) => changes.push(TableChange::Sweep(family)),
                None => {}
            }
        }
        changes
    }
}
