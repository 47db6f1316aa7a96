//! Who asks, how and when; and what an answering thread keeps between queries.

use std::net::IpAddr;

use model::{Dice, Now};

use crate::dnssec::{Pen, Signed};
use crate::manners::Manners;
use crate::transfer::Transfer;

/// How the query came; decides how long the answer may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// 512 bytes, or what EDNS says up to [`crate::UDP_BYTES_MAX`].
    Udp,
    /// 65,535 bytes.
    Tcp,
}

/// Who sent a message.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// The resolver that asks, as the nearest proxy that is believed tells it.
    pub peer: IpAddr,
    /// How the message came.
    pub transport: Transport,
    /// When it came; one reading serves a batch.
    pub now: Now,
}

/// What one answering thread, or one connection, keeps between queries. Handles of things that
/// threads share are cheap to hold here; nothing in it may wait.
#[derive(Debug)]
pub struct Desk {
    pub(crate) dice: Dice,
    /// How those who ask are treated; may change between two queries.
    pub manners: Manners,
    pub(crate) pen: Option<Pen>,
    /// The copy of a zone that is being given.
    pub(crate) transfer: Option<Transfer>,
}

impl Desk {
    /// A desk that throws `dice` and signs nothing.
    pub fn new(dice: Dice, manners: Manners) -> Self {
        Self { dice, manners, pen: None, transfer: None }
    }

    /// The same desk with something to sign with.
    pub fn with_pen(self, pen: Pen) -> Self {
        Self { pen: Some(pen), ..self }
    }

    /// The next message of a copy of a zone that began with the last answer (RFC 5936); tells whether there
    /// was one. To be asked for over TCP, before the next query is answered.
    pub fn go_on(&mut self, now: Now, out: &mut Vec<u8>) -> bool {
        let now_s = now.wall_ms / 1000;
        let goes_on = self.transfer.as_mut().is_some_and(|transfer| transfer.write(now_s, out));
        if !goes_on {
            self.transfer = None;
        }
        goes_on
    }

    /// What was signed since this was last asked.
    pub fn take_signed(&mut self) -> Signed {
        self.pen.as_mut().map(Pen::take_signed).unwrap_or_default()
    }
}
