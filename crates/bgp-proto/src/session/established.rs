//! Established: routes come.

use model::Now;

use super::agreed::{Agreed, Timers};
use super::shared::Shared;
use super::{Action, Conn, End, News, State};
use crate::frame::{self, Frame, Kind};
use crate::notification::{Code, Notification};
use crate::refresh::Refresh;
use crate::update::Update;

#[derive(Debug)]
pub(super) struct Established {
    pub(super) conn: Conn,
    pub(super) agreed: Agreed,
    pub(super) timers: Timers,
}

impl State {
    /// Says that the session is established.
    pub(super) fn begun(self, shared: &mut Shared, now: Now) -> Self {
        if let Self::Established(state) = &self {
            shared.up(now, &state.agreed);
        }
        self
    }
}

impl Established {
    /// An UPDATE.
    pub(super) fn update(
        &mut self,
        shared: &mut Shared,
        now: Now,
        body: &[u8],
        news: &mut impl FnMut(News<'_>),
    ) -> Result<(), Notification> {
        self.timers.heard(now);
        let update = Update::parse(body, &self.agreed.rules)?;
        let ended = update.end_of_rib;
        news(News::Update(update));
        if let Some(swept) = ended.and_then(|family| shared.restart().end_of_rib(family)) {
            news(News::Table(swept));
        }
        Ok(())
    }

    /// Any other message.
    pub(super) fn handle(
        mut self,
        shared: &mut Shared,
        now: Now,
        frame: Frame<'_>,
        news: &mut impl FnMut(News<'_>),
    ) -> State {
        self.timers.heard(now);
        match frame.kind {
            Kind::Keepalive => State::Established(self),
            Kind::Refresh => match Refresh::parse(frame.body) {
                Ok(said) => {
                    if let Some((said, family)) = said {
                        self.refresh(shared, now, said, family, news);
                    }
                    State::Established(self)
                }
                // Only who knows of refreshes with ends knows of this error.
                Err(_) if !self.agreed.enhanced_refresh => State::Established(self),
                Err(notification) => self.fail(shared, now, notification),
            },
            Kind::Notification => {
                let told = End::Told(Notification::parse(frame.body));
                shared.down(now, &self.agreed, false);
                shared.ended(now, self.conn, true, told);
                shared.retry(now)
            }
            Kind::Open | Kind::Update => {
                self.fail(shared, now, Notification::new(Code::UnexpectedInEstablished))
            }
        }
    }

    fn refresh(
        &self,
        shared: &mut Shared,
        now: Now,
        said: Refresh,
        family: model::Family,
        news: &mut impl FnMut(News<'_>),
    ) {
        let enhanced = self.agreed.enhanced_refresh;
        match said {
            _ if !self.agreed.rules.families.has(family) => {}
            // All our routes are none (B1).
            Refresh::Request if enhanced => {
                for answer in [Refresh::Begin, Refresh::End] {
                    shared.act(Action::Send(self.conn, answer.compose(family)));
                }
            }
            Refresh::Begin if enhanced => {
                news(News::Table(shared.restart().begin_refresh(now, family)));
            }
            Refresh::End if enhanced => {
                if let Some(swept) = shared.restart().end_refresh(family) {
                    news(News::Table(swept));
                }
            }
            _ => {}
        }
    }

    pub(super) fn handle_timeout(mut self, shared: &mut Shared, now: Now) -> State {
        if self.timers.is_silent(now) {
            return self.fail(shared, now, Notification::new(Code::HoldTimerExpired));
        }
        if self.timers.is_to_say(now) {
            shared.act(Action::Send(self.conn, frame::keepalive()));
            self.timers.said(now);
        }
        State::Established(self)
    }

    /// The connection broke: the peer may be restarting.
    pub(super) fn closed(self, shared: &mut Shared, now: Now) -> State {
        shared.down(now, &self.agreed, true);
        shared.ended(now, self.conn, true, End::Closed);
        shared.retry(now)
    }

    /// The peer has come back with another connection.
    pub(super) fn replaced(self, shared: &mut Shared, now: Now) {
        shared.down(now, &self.agreed, true);
        shared.ended(now, self.conn, true, End::Replaced);
    }

    /// Ends it with a word to the peer.
    pub(super) fn fail(self, shared: &mut Shared, now: Now, notification: Notification) -> State {
        shared.down(now, &self.agreed, false);
        let code = notification.code;
        shared.drop_conn(now, self.conn, true, notification);
        shared.pause(now, code)
    }
}
