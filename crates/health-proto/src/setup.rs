//! What a checker is told by its config, whatever wrote it: whom to ask besides the nodes, how to count,
//! whom to believe, how far one step may go.

use std::collections::BTreeMap;

use model::Name;

use crate::probe::{Expect, Method, Place, Question};

/// How nodes are asked and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// Longest time from the start of one probe of a target to the start of the next, while the budget
    /// allows it.
    pub interval_ms: u64,
    /// Longest time a whole probe may take; at most the interval.
    pub timeout_ms: u64,
    /// Passes in a row that make a down target up.
    pub rise: u32,
    /// Failures in a row that make a target down.
    pub fall: u32,
    /// Probes under way at any time, at most.
    pub in_flight_max: usize,
}

impl Default for Params {
    fn default() -> Self {
        Self { interval_ms: 10_000, timeout_ms: 2_000, rise: 2, fall: 3, in_flight_max: 256 }
    }
}

/// Which parameter was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamsError {
    /// Too quick, or so slow that a death is known only after a day.
    #[error("interval_ms must be from 100 to 3600000")]
    Interval,
    /// No time at all, or more than the interval: probes of one target would overlap.
    #[error("timeout_ms must be from 10 to interval_ms")]
    Timeout,
    /// Out of range.
    #[error("rise and fall must be from 1 to 100")]
    Counts,
    /// Nothing could be probed.
    #[error("at least one probe must be allowed at a time")]
    InFlight,
    /// Nothing could be probed.
    #[error("at least one probe must be allowed in a second")]
    Budget,
}

impl Params {
    /// Whether the machine can keep its promises with these.
    ///
    /// # Errors
    /// The first parameter with which it cannot.
    pub fn check(&self) -> Result<(), ParamsError> {
        if !(100..=3_600_000).contains(&self.interval_ms) {
            return Err(ParamsError::Interval);
        }
        if !(10..=self.interval_ms).contains(&self.timeout_ms) {
            return Err(ParamsError::Timeout);
        }
        if !(1..=100).contains(&self.rise) || !(1..=100).contains(&self.fall) {
            return Err(ParamsError::Counts);
        }
        if self.in_flight_max == 0 {
            return Err(ParamsError::InFlight);
        }
        Ok(())
    }
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// How nodes are asked for their health page; `rise`, `fall` and `in_flight_max` hold for every
    /// target.
    pub params: Params,
    /// The nodes' health page.
    pub page: Page,
    /// Probes in a second, of all kinds together. Where the intervals want more, all are stretched
    /// alike.
    pub budget_per_s: u32,
    /// Project -> what each of its nodes must serve, on each address. A project without is served by
    /// every node that is up.
    pub checks: BTreeMap<Name, Vec<Check>>,
    /// Project -> what its masters are asked for, and compared by.
    pub masters: BTreeMap<Name, Vec<MasterCheck>>,
    /// Our own DNS nodes.
    pub redirectors: BTreeMap<Name, Other>,
    /// What this checker must see to trust itself (H1).
    pub outside: BTreeMap<Name, Other>,
    /// How quickly a state may come back.
    pub damping: Damping,
    /// The other checkers.
    pub council: CouncilSetup,
    /// What a node's own report does to its weight.
    pub load: LoadSetup,
    /// How far one step may go (S3).
    pub guards: GuardSetup,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            params: Params::default(),
            page: Page::default(),
            budget_per_s: 200,
            checks: BTreeMap::new(),
            masters: BTreeMap::new(),
            redirectors: BTreeMap::new(),
            outside: BTreeMap::new(),
            damping: Damping::default(),
            council: CouncilSetup::default(),
            load: LoadSetup::default(),
            guards: GuardSetup::default(),
        }
    }
}

impl Setup {
    /// Nodes alone, asked for their health page.
    pub fn of(params: Params) -> Self {
        Self { params, ..Self::default() }
    }

    /// Whether the machine can keep its promises with these.
    ///
    /// # Errors
    /// The first parameter with which it cannot.
    pub fn check(&self) -> Result<(), ParamsError> {
        self.params.check()?;
        let others = self.redirectors.values().chain(self.outside.values()).map(|o| o.timing);
        let checks = self.checks.values().flatten().map(|check| check.timing);
        let masters = self.masters.values().flatten().map(|check| check.timing);
        for Timing { interval_ms, timeout_ms, .. } in others.chain(checks).chain(masters) {
            Params { interval_ms, timeout_ms, ..self.params }.check()?;
        }
        if self.budget_per_s == 0 {
            return Err(ParamsError::Budget);
        }
        Ok(())
    }
}

/// Where nodes say how they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Port of the nodes' HTTP service.
    pub port: u16,
    /// Path that must answer with status 200; begins with `/`.
    pub path: String,
}

impl Default for Page {
    fn default() -> Self {
        Self { port: 80, path: "/.well-known/cacheboy/health".into() }
    }
}

/// When a target is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Longest time from the start of one probe to the start of the next, while the budget allows it.
    pub interval_ms: u64,
    /// Longest time a whole probe may take; at most the interval.
    pub timeout_ms: u64,
    /// How much of the interval the dice may take off, percent, so that probes do not march in step.
    pub jitter_percent: u32,
}

impl Default for Timing {
    fn default() -> Self {
        Self { interval_ms: 10_000, timeout_ms: 2_000, jitter_percent: 10 }
    }
}

/// What a node must serve for a project: asked on each of its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its name among those of the project.
    pub name: Name,
    /// When.
    pub timing: Timing,
    /// The port; the address is the node's.
    pub port: u16,
    /// The question, with the project's own `Host` and name in TLS.
    pub question: Question,
}

/// What the masters of a project are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MasterCheck {
    /// Its name among those of the project's masters.
    pub name: Name,
    /// When.
    pub timing: Timing,
    /// Path below the master's URL, from the slash on.
    pub path: String,
    /// GET or HEAD.
    pub method: Method,
    /// Whether the body is hashed, where masters give no strong `ETag` that is the same on all of them.
    pub hash: bool,
    /// What must come.
    pub expect: Expect,
    /// What the answers are compared by.
    pub compare: Compare,
}

/// What of the masters' answers must be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Length, and hash or else `ETag`.
    Content,
    /// `Last-Modified`: a marker that is written with each release. Who is behind the newest by more
    /// than this, milliseconds, is behind.
    Marker {
        /// The tolerance, milliseconds.
        behind_ms: u64,
    },
}

/// Something that is asked where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    /// When.
    pub timing: Timing,
    /// Where.
    pub place: Place,
    /// What.
    pub question: Question,
}

/// How quickly a state may come back. All in intervals of [`Params::interval_ms`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damping {
    /// A node that went down stays so for at least so long.
    pub dwell_intervals: u32,
    /// Each time it goes down again within so long after it came back doubles that.
    pub flap_window_intervals: u32,
    /// The longest that this can get.
    pub dwell_intervals_max: u32,
    /// A node of which nobody has heard for so long becomes unknown and loses half its weight.
    pub unknown_after_intervals: u32,
}

impl Default for Damping {
    fn default() -> Self {
        Self {
            dwell_intervals: 1,
            flap_window_intervals: 60,
            dwell_intervals_max: 60,
            unknown_after_intervals: 12,
        }
    }
}

/// The other checkers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CouncilSetup {
    /// All checkers, this one too, in the order in which they publish: the first that is there does.
    /// Empty: this one is alone.
    pub checkers: Vec<Name>,
    /// What a checker said longer ago does not count, milliseconds.
    pub stale_ms: u64,
    /// A publisher that was silent for so long is replaced by the next, milliseconds; at least
    /// `stale_ms`.
    pub takeover_ms: u64,
}

impl Default for CouncilSetup {
    fn default() -> Self {
        Self { checkers: Vec::new(), stale_ms: 15_000, takeover_ms: 30_000 }
    }
}

/// What a node's own report does to its weight. It can only lower it (H1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadSetup {
    /// From this use of its capacity on a node loses weight, thousandths.
    pub from_permille: u32,
    /// What is left of the weight of a node that is full, thousandths.
    pub floor_permille: u32,
    /// Weight that is won or lost by load in a second at most, thousandths.
    pub step_per_s: u32,
    /// Time in which a node that came back gets its whole weight again, in intervals of
    /// [`Params::interval_ms`].
    pub slow_start_intervals: u32,
    /// A report older than this does not count, milliseconds.
    pub stale_ms: u64,
}

impl Default for LoadSetup {
    fn default() -> Self {
        Self {
            from_permille: 800,
            floor_permille: 100,
            step_per_s: 20,
            slow_start_intervals: 6,
            stale_ms: 60_000,
        }
    }
}

/// How far one step may go (S3). Only the withdrawal of a node that is down is not bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardSetup {
    /// Shortest time between two maps that only move weights, milliseconds.
    pub rewrite_ms: u64,
    /// What a node may gain in one step, percent of its capacity (or of its fair share where it has
    /// none).
    pub gain_percent: u32,
    /// Largest share of the clients that an edit of the maps or of a database may move, percent,
    /// without a person's confirmation.
    pub moved_percent: u32,
    /// With less than this share of the network's weight up, percent, load and planner move nothing.
    pub panic_percent: u32,
}

impl Default for GuardSetup {
    fn default() -> Self {
        Self { rewrite_ms: 1_000, gain_percent: 25, moved_percent: 50, panic_percent: 50 }
    }
}
