//! What both sides of a session can, and its timers.

use std::net::Ipv4Addr;

use model::Now;

use super::Params;
use super::shared::after_s;
use crate::open::{Families, GracefulRestart, Open};
use crate::update::Rules;

/// What was agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// How its UPDATE messages are read.
    pub rules: Rules,
    /// The BGP identifier of the peer.
    pub identifier: Ipv4Addr,
    /// The lower of both hold times, in seconds; 0: the session has none.
    pub hold_s: u16,
    /// Messages may be longer than 4096 octets.
    pub extended_message: bool,
    /// The peer can be asked for all routes.
    pub route_refresh: bool,
    /// It says where they begin and end.
    pub enhanced_refresh: bool,
    /// What it said of its restarts.
    pub graceful: Option<GracefulRestart>,
}

impl Agreed {
    /// Of what we have (`params`) and what the peer says.
    pub(super) fn of(params: &Params, theirs: &Open) -> Self {
        let said = &theirs.capabilities;
        let families = said.families.unwrap_or(Families { v4: true, v6: false });
        Self {
            rules: Rules {
                four_octet_as: said.four_octet_as.is_some(),
                internal: params.peer_as == params.local_as,
                families: families.and(params.families),
                extended_next_hop: said.extended_next_hop,
            },
            identifier: theirs.identifier,
            hold_s: theirs.hold_s.min(params.hold_s),
            extended_message: said.extended_message,
            route_refresh: said.route_refresh,
            enhanced_refresh: said.route_refresh && said.enhanced_refresh,
            graceful: said.graceful_restart.filter(|said| said.families != Families::default()),
        }
    }
}

/// The timers of a connection on which both have said who they are (RFC 4271 section 4.4). Monotonic
/// nanoseconds; none where the hold time is 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timers {
    hold_s: u16,
    /// When the peer has been silent for too long.
    hold_ns: Option<u64>,
    /// When we are to say something.
    keepalive_ns: Option<u64>,
}

impl Timers {
    pub(super) fn begin(now: Now, hold_s: u16) -> Self {
        let mut timers = Self { hold_s, hold_ns: None, keepalive_ns: None };
        timers.heard(now);
        timers.said(now);
        timers
    }

    /// The peer said something.
    pub(super) fn heard(&mut self, now: Now) {
        self.hold_ns = (self.hold_s > 0).then(|| after_s(now, u64::from(self.hold_s)));
    }

    /// We did.
    pub(super) fn said(&mut self, now: Now) {
        self.keepalive_ns = (self.hold_s > 0).then(|| after_s(now, u64::from(self.hold_s / 3)));
    }

    pub(super) fn is_silent(&self, now: Now) -> bool {
        self.hold_ns.is_some_and(|at| at <= now.mono_ns)
    }

    pub(super) fn is_to_say(&self, now: Now) -> bool {
        self.keepalive_ns.is_some_and(|at| at <= now.mono_ns)
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        self.hold_ns.into_iter().chain(self.keepalive_ns).min()
    }
}
