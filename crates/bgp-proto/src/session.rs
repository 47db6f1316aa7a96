//! The session with one peer: RFC 4271 section 8, with collisions (6.8), graceful restarts of the peer
//! (RFC 4724) and refreshes that say where they begin and end (RFC 7313).
//!
//! A machine without sockets. **Getters**: [`Session::state`], [`Session::agreed`], [`Session::last_end`].
//! **What the world did**: [`Session::handle_connected`], [`Session::handle_connect_failed`],
//! [`Session::handle_bytes`], [`Session::handle_closed`], [`Session::handle_timeout`],
//! [`Session::handle_counts`]. **Commands**: [`Session::start`], [`Session::stop`],
//! [`Session::refresh`]. **What to do next**: [`Session::poll_action`], [`Session::poll_timeout`].
//!
//! Each state is a file in `session/`. A session has one state; while two connections to the peer are
//! open, because both sides opened one or the peer has come back before its old connection was seen to
//! be gone, it has two until one is dropped.
//!
//! # Invariants
//! - Nothing is sent but OPEN, KEEPALIVE, NOTIFICATION and ROUTE-REFRESH (B1).
//! - The routes of a peer are told of between `Up` and `Ended` only, and all are cleared, or kept as
//!   stale for a bounded while, when the session ends.
//! - At most two connections are open; any other that is reported is closed.

mod active;
mod agreed;
mod connect;
mod established;
mod idle;
mod open_confirm;
mod open_sent;
mod restart;
mod shared;
#[cfg(test)]
mod tests;

use std::mem;
use std::net::Ipv4Addr;

use model::{Asn, Family, Now};

use crate::frame::{self, Kind};
use crate::notification::{Code, Notification};
use crate::open::Families;
use crate::refresh::Refresh;
use crate::update::Update;

use active::Active;
pub use agreed::Agreed;
use connect::Connect;
use established::Established;
use idle::Idle;
use open_confirm::OpenConfirm;
use open_sent::OpenSent;
use shared::Shared;

/// The hold time that we offer unless the config says another one, in seconds.
pub const HOLD_S: u16 = 90;

/// What a session is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Our AS.
    pub local_as: Asn,
    /// Our BGP identifier.
    pub identifier: Ipv4Addr,
    /// The AS that the peer must be of.
    pub peer_as: Asn,
    /// We wait for the peer to connect.
    pub passive: bool,
    /// The hold time that we offer, in seconds: 0, or at least 3.
    pub hold_s: u16,
    /// Which routes we take.
    pub families: Families,
    /// Routes that the peer may announce, IPv4 first.
    pub max_prefixes: [u32; 2],
}

/// A connection, by a number that its owner gives it and never gives again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conn(pub u64);

/// Who opened a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// We did.
    Out,
    /// The peer did.
    In,
}

/// What is to be done with all routes of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableChange {
    /// Mark those of this family: see [`crate::Rib::mark_stale`].
    MarkStale(Family),
    /// Withdraw those that are still marked.
    Sweep(Family),
    /// Withdraw all.
    Clear(Family),
}

/// What a message means for the table.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // one at a time, on the stack
pub enum News<'a> {
    /// Routes come and go.
    Update(Update<'a>),
    /// All routes are concerned.
    Table(TableChange),
}

/// Why a connection to the peer is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It broke, or the peer closed it without a word.
    Closed,
    /// The peer said why.
    Told(Notification),
    /// We did.
    Ours(Notification),
    /// The peer came back with another connection.
    Replaced,
}

/// What the owner of the sockets is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open a connection, and say what came of it.
    Connect,
    /// Give up opening one.
    CancelConnect,
    /// Send these bytes.
    Send(Conn, Vec<u8>),
    /// Close it once everything was sent; nothing is to be told of it any more.
    Close(Conn),
    /// Change the table.
    Table(TableChange),
    /// The session is established.
    Up,
    /// A connection that had come as far as an OPEN is over; `established` if routes came over it.
    Ended {
        /// Whether `Up` was said before.
        established: bool,
        /// Why.
        end: End,
    },
}

/// The states of RFC 4271 section 8.2.2.
#[derive(Debug)]
enum State {
    Idle(Idle),
    Connect(Connect),
    Active(Active),
    OpenSent(OpenSent),
    OpenConfirm(OpenConfirm),
    Established(Established),
}

impl State {
    fn conn(&self) -> Option<Conn> {
        match self {
            Self::Idle(_) | Self::Connect(_) | Self::Active(_) => None,
            Self::OpenSent(state) => Some(state.conn),
            Self::OpenConfirm(state) => Some(state.conn),
            Self::Established(state) => Some(state.conn),
        }
    }

    fn deadline(&self) -> Option<u64> {
        match self {
            Self::Idle(state) => state.until_ns,
            Self::Connect(state) => Some(state.until_ns),
            Self::Active(state) => state.retry_ns,
            Self::OpenSent(state) => Some(state.until_ns),
            Self::OpenConfirm(state) => state.timers.deadline(),
            Self::Established(state) => state.timers.deadline(),
        }
    }

    fn handle_timeout(self, shared: &mut Shared, now: Now) -> Self {
        match self {
            Self::Idle(state) => state.handle_timeout(shared, now),
            Self::Connect(state) => state.handle_timeout(shared, now),
            Self::Active(state) => state.handle_timeout(shared, now),
            Self::OpenSent(state) => state.handle_timeout(shared, now),
            Self::OpenConfirm(state) => state.handle_timeout(shared, now),
            Self::Established(state) => state.handle_timeout(shared, now),
        }
    }

    /// Ends its connection with a word to the peer.
    fn end(self, shared: &mut Shared, now: Now, notification: Notification) -> Self {
        match self {
            Self::Connect(_) => {
                shared.act(Action::CancelConnect);
                Self::Idle(Idle::stopped())
            }
            Self::OpenSent(state) => shared.fail(now, state.conn, notification),
            Self::OpenConfirm(state) => shared.fail(now, state.conn, notification),
            Self::Established(state) => state.fail(shared, now, notification),
            other => other,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Session {
    shared: Shared,
    main: State,
    /// A second connection, in OpenSent or OpenConfirm.
    rival: Option<State>,
}

impl Session {
    /// One that is stopped.
    pub fn new(params: Params) -> Self {
        Self { shared: Shared::new(params), main: State::Idle(Idle::stopped()), rival: None }
    }

    /// The word of its state, as RFC 4271 has it.
    pub fn state(&self) -> &'static str {
        match self.main {
            State::Idle(_) => "idle",
            State::Connect(_) => "connect",
            State::Active(_) => "active",
            State::OpenSent(_) => "open-sent",
            State::OpenConfirm(_) => "open-confirm",
            State::Established(_) => "established",
        }
    }

    /// What was agreed on with the peer; `None` unless the session is established.
    pub fn agreed(&self) -> Option<&Agreed> {
        match &self.main {
            State::Established(state) => Some(&state.agreed),
            _ => None,
        }
    }

    /// Why the last connection ended, and when (unix milliseconds).
    pub fn last_end(&self) -> Option<&(End, u64)> {
        self.shared.last_end.as_ref()
    }

    /// Begins.
    pub fn start(&mut self, now: Now) {
        if let State::Idle(idle) = &self.main
            && idle.until_ns.is_none()
        {
            self.main = idle::begin(&mut self.shared, now);
        }
    }

    /// Ends all connections and begins none, until it is started again.
    pub fn stop(&mut self, now: Now, code: Code) {
        let main = mem::replace(&mut self.main, State::Idle(Idle::stopped()));
        for state in self.rival.take().into_iter().chain([main]) {
            state.end(&mut self.shared, now, Notification::new(code));
        }
        self.shared.give_up_restart();
        self.main = State::Idle(Idle::stopped());
    }

    /// Asks the peer for all routes again; false where it cannot.
    pub fn refresh(&mut self) -> bool {
        let State::Established(state) = &self.main else { return false };
        if state.agreed.route_refresh {
            for family in state.agreed.rules.families.each() {
                let message = Refresh::Request.compose(family);
                self.shared.act(Action::Send(state.conn, message));
            }
        }
        state.agreed.route_refresh
    }

    /// A connection is open.
    pub fn handle_connected(&mut self, now: Now, conn: Conn, way: Way) {
        let free = self.rival.is_none();
        let opened = match &self.main {
            State::Connect(_) if way == Way::Out => true,
            State::Active(_) => true,
            // A peer that restarts may be back before its old connection is seen to be gone.
            State::Established(state) if free && state.agreed.graceful.is_some() => false,
            State::Connect(_) | State::OpenSent(_) | State::OpenConfirm(_) if free => false,
            State::Established(_) => {
                let rejected = Notification::new(Code::Rejected).compose();
                self.shared.act(Action::Send(conn, rejected));
                return self.shared.act(Action::Close(conn));
            }
            _ => return self.shared.act(Action::Close(conn)),
        };
        let state = OpenSent::begin(&mut self.shared, now, conn, way);
        if opened { self.main = state } else { self.rival = Some(state) }
    }

    /// A connection could not be opened.
    pub fn handle_connect_failed(&mut self, now: Now) {
        if let State::Connect(_) = self.main {
            self.main = self.shared.retry(now);
        }
    }

    /// A connection was closed by the other side, or broke.
    pub fn handle_closed(&mut self, now: Now, conn: Conn) {
        self.step(conn, |state, shared| match state {
            State::Established(state) => state.closed(shared, now),
            State::OpenSent(_) | State::OpenConfirm(_) => {
                shared.ended(now, conn, false, End::Closed);
                shared.retry(now)
            }
            other => other,
        });
    }

    /// Bytes came over a connection. Gives how many of them were used; the rest is the beginning of a
    /// message, and to be brought again with what follows.
    pub fn handle_bytes(
        &mut self,
        now: Now,
        conn: Conn,
        bytes: &[u8],
        mut news: impl FnMut(News<'_>),
    ) -> usize {
        let mut used = 0usize;
        while let Some(rest) = bytes.get(used..).filter(|rest| !rest.is_empty()) {
            let main_is = self.main.conn() == Some(conn);
            let extended = match &self.main {
                State::Established(state) if main_is => state.agreed.extended_message,
                _ => false,
            };
            let frame = match frame::first(rest, extended) {
                _ if !main_is && self.rival.as_ref().and_then(State::conn) != Some(conn) => {
                    return bytes.len();
                }
                Ok(None) => break,
                Ok(Some(frame)) => frame,
                Err(notification) => {
                    self.step(conn, |state, shared| state.end(shared, now, notification));
                    return bytes.len();
                }
            };
            used = used.saturating_add(frame.length);
            self.shared.received(frame.kind);
            match &mut self.main {
                // Most messages are routes, and change nothing of the state.
                State::Established(state) if main_is && frame.kind == Kind::Update => {
                    let Err(notification) =
                        state.update(&mut self.shared, now, frame.body, &mut news)
                    else {
                        continue;
                    };
                    self.step(conn, |state, shared| state.end(shared, now, notification));
                }
                _ => {
                    self.step(conn, |state, shared| match state {
                        State::OpenSent(state) => state.handle(shared, now, frame),
                        State::OpenConfirm(state) => state.handle(shared, now, frame),
                        State::Established(state) => state.handle(shared, now, frame, &mut news),
                        other => other,
                    });
                    self.settle(now);
                }
            }
        }
        used
    }

    /// So many routes of the peer are in the table now, IPv4 first.
    pub fn handle_counts(&mut self, now: Now, counts: [u32; 2]) {
        let State::Established(state) = &self.main else { return };
        let (conn, limits) = (state.conn, self.shared.params.max_prefixes);
        let over = Family::ALL.into_iter().zip(counts).zip(limits).find(|((_, n), max)| n > max);
        if let Some(((family, _), max)) = over {
            let (afi, safi) = crate::open::numbers(family);
            let data = [&afi.to_be_bytes()[..], &[safi], &max.to_be_bytes()].concat();
            let told = Notification::with(Code::MaxPrefixes, &data);
            self.step(conn, |state, shared| state.end(shared, now, told));
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Now) {
        let due = |at: Option<u64>| at.is_some_and(|at| at <= now.mono_ns);
        if due(self.rival.as_ref().and_then(State::deadline)) {
            let rival = self.rival.take();
            let rival = rival.map(|state| state.handle_timeout(&mut self.shared, now));
            self.rival = rival.filter(|state| state.conn().is_some());
        }
        // The first connection last: the second may take its place, and must not be due then.
        if due(self.main.deadline()) {
            let main = mem::replace(&mut self.main, State::Idle(Idle::stopped()));
            self.main = main.handle_timeout(&mut self.shared, now);
            self.promote();
        }
        self.shared.handle_timeout(now);
    }

    /// When [`Session::handle_timeout`] is to be called at the latest (monotonic nanoseconds).
    pub fn poll_timeout(&self) -> Option<u64> {
        let rival = self.rival.as_ref().and_then(State::deadline);
        [self.main.deadline(), rival, self.shared.deadline()].into_iter().flatten().min()
    }

    /// The next thing to do, in order.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.shared.actions.pop_front()
    }

    /// Messages received, by kind.
    pub fn received(&self) -> [(Kind, u64); 5] {
        self.shared.counts()
    }

    /// Lets the state that has a connection go on.
    fn step(&mut self, conn: Conn, next: impl FnOnce(State, &mut Shared) -> State) {
        if self.main.conn() == Some(conn) {
            let main = mem::replace(&mut self.main, State::Idle(Idle::stopped()));
            self.main = next(main, &mut self.shared);
            self.promote();
        } else if let Some(rival) = self.rival.take_if(|rival| rival.conn() == Some(conn)) {
            let rival = next(rival, &mut self.shared);
            self.rival = Some(rival).filter(|state| state.conn().is_some());
        }
    }

    /// Where the first connection is gone and there is a second, that one is the first.
    fn promote(&mut self) {
        if self.main.conn().is_none()
            && !matches!(self.main, State::Connect(_))
            && let Some(rival) = self.rival.take()
        {
            self.main = rival;
        }
    }

    /// Drops one of two connections as soon as it is known which (RFC 4271 section 6.8).
    fn settle(&mut self, now: Now) {
        let Some(rival) = self.rival.take() else { return };
        let main = mem::replace(&mut self.main, State::Idle(Idle::stopped()));
        let collision = Notification::new(Code::Collision);
        let shared = &mut self.shared;
        (self.main, self.rival) = match (main, rival) {
            // RFC 4724 section 4.2: the new connection says that the old one is gone.
            (State::Established(old), State::OpenConfirm(new)) => {
                old.replaced(shared, now);
                (State::OpenConfirm(new), None)
            }
            (State::OpenConfirm(main), State::OpenConfirm(rival)) => {
                let (kept, dropped) = if rival.outlives(&main, &shared.params) {
                    (rival, main)
                } else {
                    (main, rival)
                };
                shared.drop_conn(now, dropped.conn, false, collision);
                (State::OpenConfirm(kept), None)
            }
            (main, rival @ State::Established(_)) => {
                match main {
                    State::Connect(_) => shared.act(Action::CancelConnect),
                    State::OpenSent(main) => shared.drop_conn(now, main.conn, false, collision),
                    _ => {}
                }
                (rival, None)
            }
            (main, rival) => (main, Some(rival)),
        };
    }
}
