//! What `/status` shows of the checker.

use std::collections::BTreeMap;
use std::net::IpAddr;

use model::{Family, Name, State};
use nodemap::MasterState;
use serde::Serialize;

use crate::alarm::AlarmView;

/// Everything a person wants to see at one glance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overview {
    /// Generation of the node map published last; 0 before the first.
    pub generation: u64,
    /// Unix time in milliseconds of its publishing.
    pub published_ms: u64,
    /// Whether this checker publishes, or stands by.
    pub publishing: bool,
    /// Every address fails at once: the checker may be the one that is cut off, and holds the
    /// states until each address has failed often enough.
    pub holding: bool,
    /// Why this checker suspects itself and changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolated: Option<String>,
    /// What a person must look at, the most urgent first.
    pub alarms: Vec<AlarmView>,
    /// Probes under way.
    pub probes_in_flight: usize,
    /// Node and family -> what is known.
    pub nodes: BTreeMap<Name, BTreeMap<Family, FamilyView>>,
    /// Project -> nodes that are unfit for it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unfit: BTreeMap<Name, Vec<UnfitView>>,
    /// Project -> master -> what is known of it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub masters: BTreeMap<Name, BTreeMap<Name, MasterState>>,
    /// DNS nodes of ours, and canaries outside the network.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherView>,
    /// The other checkers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub checkers: BTreeMap<Name, CheckerView>,
    /// Who follows the node map.
    pub readers: BTreeMap<Name, ReaderView>,
    /// Polls under names for which there was no room among the readers.
    #[serde(skip_serializing_if = "is_zero")]
    pub readers_left_out: u64,
}

/// A node in one family.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FamilyView {
    /// The state as published.
    pub state: State,
    /// The evidence that decided.
    pub reason: String,
    /// Unix time in milliseconds since when.
    pub since_ms: u64,
    /// What is left of its weight, thousandths.
    pub permille: u32,
    /// What the probes say, address by address; also of a drained node.
    pub addresses: Vec<AddressView>,
}

/// One address.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AddressView {
    /// The address.
    pub address: IpAddr,
    /// Its own state.
    pub state: State,
    /// Passed probes in a row.
    pub passes: u32,
    /// Failed probes in a row.
    pub fails: u32,
    /// What the last probe brought.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_result: Option<String>,
    /// How long ago that was, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_age_ms: Option<u64>,
    /// When the next probe is due, milliseconds from now; 0 while one is under way.
    pub next_probe_ms: u64,
}

/// A node that must not get clients of a project, though it may be up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UnfitView {
    /// The node.
    pub node: Name,
    /// The family.
    pub family: Family,
    /// The evidence that decided.
    pub reason: String,
    /// Unix time in milliseconds since when.
    pub since_ms: u64,
}

/// Something that is watched besides nodes and masters.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OtherView {
    /// `redirector` or `outside`.
    pub kind: &'static str,
    /// Its name in the config.
    pub name: Name,
    /// Its state.
    pub state: State,
    /// What the last probe brought.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_result: Option<String>,
    /// How long ago that was, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_age_ms: Option<u64>,
}

/// Another checker.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckerView {
    /// Whether what it says counts now.
    pub counts: bool,
    /// How long ago it was heard of, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heard_age_ms: Option<u64>,
    /// It suspects itself.
    pub isolated: bool,
}

/// A follower of the node map.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReaderView {
    /// The generation it runs.
    pub generation: u64,
    /// How long ago it polled, milliseconds.
    pub last_poll_age_ms: u64,
    /// Its generation is a day or more ahead of our clock, so it refuses what we publish: one of
    /// the two clocks is wrong.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ahead: bool,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}
