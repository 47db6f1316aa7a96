//! What all states of a session share: its parameters, what is to be done, how it ended last.

use std::collections::VecDeque;

use model::Now;

use super::active::Active;
use super::idle::Idle;
use super::restart::Restart;
use super::{Action, Agreed, Conn, End, Params, State, TableChange};
use crate::frame::Kind;
use crate::notification::{Code, Notification};
use crate::open::{Capabilities, Families, GracefulRestart, Open};

/// How long a connection is waited for after the last one ended, at first; twice as long each time.
const RETRY_S: u64 = 2;
/// ... at most.
const RETRY_MAX_S: u64 = 120;
/// How long a peer is left alone that announced more than it may.
const TOO_MANY_S: u64 = 600;

/// `s` seconds from now (monotonic nanoseconds).
pub(super) fn after_s(now: Now, s: u64) -> u64 {
    now.mono_ns.saturating_add(s.saturating_mul(1_000_000_000))
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) params: Params,
    pub(super) actions: VecDeque<Action>,
    pub(super) last_end: Option<(End, u64)>,
    restart: Restart,
    /// Connections in a row that ended before the session was established.
    failures: u32,
    received: [u64; 5],
}

const KINDS: [Kind; 5] =
    [Kind::Open, Kind::Update, Kind::Notification, Kind::Keepalive, Kind::Refresh];

impl Shared {
    pub(super) fn new(params: Params) -> Self {
        let (actions, restart) = (VecDeque::new(), Restart::default());
        Self { params, actions, last_end: None, restart, failures: 0, received: [0; 5] }
    }

    pub(super) fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    pub(super) fn received(&mut self, kind: Kind) {
        let counts = KINDS.iter().zip(&mut self.received);
        for (_, count) in counts.filter(|(other, _)| **other == kind) {
            *count = count.saturating_add(1);
        }
    }

    pub(super) fn counts(&self) -> [(Kind, u64); 5] {
        let [a, b, c, d, e] = KINDS;
        let [n, o, p, q, r] = self.received;
        [(a, n), (b, o), (c, p), (d, q), (e, r)]
    }

    /// What we say of ourselves.
    pub(super) fn open(&self) -> Open {
        let params = &self.params;
        Open {
            asn: params.local_as,
            hold_s: params.hold_s,
            identifier: params.identifier,
            capabilities: Capabilities {
                families: Some(params.families),
                route_refresh: true,
                enhanced_refresh: true,
                extended_next_hop: params.families.v4,
                extended_message: true,
                four_octet_as: Some(params.local_as.get()),
                // We have no routes to be kept, but keep those of the peer.
                graceful_restart: Some(GracefulRestart::default()),
            },
        }
    }

    /// How long until the next attempt.
    fn pause_s(&mut self) -> u64 {
        let doubled = RETRY_S.checked_shl(self.failures).unwrap_or(RETRY_MAX_S);
        self.failures = self.failures.saturating_add(1).min(16);
        doubled.min(RETRY_MAX_S)
    }

    /// The state after a connection that ended without our doing: the peer may come, and after a while
    /// we try.
    pub(super) fn retry(&mut self, now: Now) -> State {
        let pause = self.pause_s();
        let retry_ns = (!self.params.passive).then(|| after_s(now, pause));
        State::Active(Active { retry_ns })
    }

    /// Ends a connection with a word to the peer, which is left alone for a while.
    pub(super) fn fail(&mut self, now: Now, conn: Conn, notification: Notification) -> State {
        let code = notification.code;
        self.drop_conn(now, conn, false, notification);
        self.pause(now, code)
    }

    /// The state after a session that we ended for this reason: no connection is taken for a while.
    pub(super) fn pause(&mut self, now: Now, code: Code) -> State {
        let pause = if code == Code::MaxPrefixes { TOO_MANY_S } else { self.pause_s() };
        State::Idle(Idle { until_ns: Some(after_s(now, pause)) })
    }

    /// Ends a connection, `established` or not, with a word to the peer.
    pub(super) fn drop_conn(
        &mut self,
        now: Now,
        conn: Conn,
        established: bool,
        notification: Notification,
    ) {
        self.act(Action::Send(conn, notification.compose()));
        self.act(Action::Close(conn));
        self.ended(now, conn, established, End::Ours(notification));
    }

    /// Notes that a connection is over, which is closed if it is not by us already.
    pub(super) fn ended(&mut self, now: Now, conn: Conn, established: bool, end: End) {
        if !matches!(end, End::Ours(_)) {
            self.act(Action::Close(conn));
        }
        self.act(Action::Ended { established, end: end.clone() });
        self.last_end = Some((end, now.wall_ms));
    }

    /// The session is established.
    pub(super) fn up(&mut self, now: Now, agreed: &Agreed) {
        self.failures = 0;
        self.act(Action::Up);
        let changes = self.restart.up(now, agreed);
        self.changes(changes);
    }

    /// The routes of a session that is over: kept for a while if the peer is to come back to them.
    pub(super) fn down(&mut self, now: Now, agreed: &Agreed, keep: bool) {
        let changes = self.restart.down(now, agreed, keep);
        self.changes(changes);
    }

    pub(super) fn restart(&mut self) -> &mut Restart {
        &mut self.restart
    }

    /// The peer need not come back.
    pub(super) fn give_up_restart(&mut self) {
        let changes = self.restart.give_up();
        self.changes(changes);
    }

    fn changes(&mut self, changes: Vec<TableChange>) {
        self.actions.extend(changes.into_iter().map(Action::Table));
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        self.restart.deadline()
    }

    pub(super) fn handle_timeout(&mut self, now: Now) {
        let changes = self.restart.handle_timeout(now);
        self.changes(changes);
    }

    /// What is agreed on with a peer that says this.
    ///
    /// # Errors
    /// What to tell it when that cannot be.
    pub(super) fn agree(&self, theirs: &Open) -> Result<Agreed, Notification> {
        let params = &self.params;
        if theirs.asn != params.peer_as {
            return Err(Notification::new(Code::BadPeerAs));
        }
        // Inside an AS everybody has another one (RFC 6286 section 2.2).
        if theirs.identifier == params.identifier && params.peer_as == params.local_as {
            return Err(Notification::new(Code::BadIdentifier));
        }
        let agreed = Agreed::of(params, theirs);
        if agreed.rules.families == Families::default() {
            return Err(Notification::new(Code::UnsupportedCapability));
        }
        Ok(agreed)
    }
}
