//! OpenSent: a connection, over which we have said who we are.

use model::Now;

use super::agreed::Timers;
use super::open_confirm::OpenConfirm;
use super::shared::{Shared, after_s};
use super::{Action, Conn, End, State, Way};
use crate::frame::{self, Frame, Kind};
use crate::notification::{Code, Notification};
use crate::open::Open;

/// How long the OPEN of the peer is waited for: RFC 4271 suggests four minutes, which a silent host
/// should not have.
const PATIENCE_S: u64 = 60;

#[derive(Debug)]
pub(super) struct OpenSent {
    pub(super) conn: Conn,
    pub(super) way: Way,
    pub(super) until_ns: u64,
}

impl OpenSent {
    pub(super) fn begin(shared: &mut Shared, now: Now, conn: Conn, way: Way) -> State {
        let open = shared.open().compose();
        shared.act(Action::Send(conn, open));
        State::OpenSent(Self { conn, way, until_ns: after_s(now, PATIENCE_S) })
    }

    pub(super) fn handle(self, shared: &mut Shared, now: Now, frame: Frame<'_>) -> State {
        let theirs = match frame.kind {
            Kind::Open => Open::parse(frame.body),
            Kind::Notification => {
                shared.ended(now, self.conn, false, End::Told(Notification::parse(frame.body)));
                return shared.retry(now);
            }
            _ => Err(Notification::new(Code::UnexpectedInOpenSent)),
        };
        match theirs.and_then(|theirs| shared.agree(&theirs)) {
            Err(notification) => shared.fail(now, self.conn, notification),
            Ok(agreed) => {
                shared.act(Action::Send(self.conn, frame::keepalive()));
                let timers = Timers::begin(now, agreed.hold_s);
                State::OpenConfirm(OpenConfirm { conn: self.conn, way: self.way, agreed, timers })
            }
        }
    }

    pub(super) fn handle_timeout(self, shared: &mut Shared, now: Now) -> State {
        shared.fail(now, self.conn, Notification::new(Code::HoldTimerExpired))
    }
}
