//! OpenConfirm: both have said who they are; the first KEEPALIVE of the peer is waited for.

use model::Now;

use super::agreed::{Agreed, Timers};
use super::established::Established;
use super::shared::Shared;
use super::{Action, Conn, End, Params, State, Way};
use crate::frame::{self, Frame, Kind};
use crate::notification::{Code, Notification};

#[derive(Debug)]
pub(super) struct OpenConfirm {
    pub(super) conn: Conn,
    pub(super) way: Way,
    pub(super) agreed: Agreed,
    pub(super) timers: Timers,
}

impl OpenConfirm {
    /// Whether this connection is kept, of two (RFC 4271 section 6.8, RFC 6286 section 2.3): the one
    /// that was opened by the side with the higher identifier, or AS where these are equal. Of two
    /// that the same side opened the later one, which is this: the peer has given the other one up.
    pub(super) fn outlives(&self, other: &Self, params: &Params) -> bool {
        if self.way == other.way {
            return true;
        }
        let ours = (u32::from(params.identifier), params.local_as);
        let theirs = (u32::from(self.agreed.identifier), params.peer_as);
        (self.way == Way::Out) == (ours > theirs)
    }

    pub(super) fn handle(mut self, shared: &mut Shared, now: Now, frame: Frame<'_>) -> State {
        match frame.kind {
            Kind::Keepalive => {
                self.timers.heard(now);
                let (conn, timers) = (self.conn, self.timers);
                State::Established(Established { conn, agreed: self.agreed, timers })
                    .begun(shared, now)
            }
            Kind::Notification => {
                shared.ended(now, self.conn, false, End::Told(Notification::parse(frame.body)));
                shared.retry(now)
            }
            _ => shared.fail(now, self.conn, Notification::new(Code::UnexpectedInOpenConfirm)),
        }
    }

    pub(super) fn handle_timeout(mut self, shared: &mut Shared, now: Now) -> State {
        if self.timers.is_silent(now) {
            return shared.fail(now, self.conn, Notification::new(Code::HoldTimerExpired));
        }
        if self.timers.is_to_say(now) {
            shared.act(Action::Send(self.conn, frame::keepalive()));
            self.timers.said(now);
        }
        State::OpenConfirm(self)
    }
}
