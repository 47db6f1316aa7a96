//! Who sent a query, as far as its reply goes: how long it may be, which options it has, whether it is
//! given at all; and replies that have nothing to do with any zone.

use crate::asker::{Asker, Transport};
use crate::cookie::Judged;
use crate::limit::{Granted, Kind};
use crate::manners::Manners;
use crate::options::{ExtendedError, Extras};
use crate::outcome::{Answered, Dropped, Led, Outcome, Sort};
use crate::query::{Head, Query};
use crate::reply::{Records, Reply};
use crate::wire::{
    CLASS_CHAOS, QUESTION_NAME, TCP_BYTES_MAX, UDP_BYTES_MAX, UDP_BYTES_PLAIN, rtype,
};

/// The sender of a message that was understood at least in part.
pub(crate) struct Caller<'a> {
    pub(crate) head: &'a Head<'a>,
    pub(crate) asker: &'a Asker,
    manners: &'a Manners,
    cookie: Option<Judged>,
    /// Bytes kept free behind a reply.
    reserved: u16,
}

impl<'a> Caller<'a> {
    pub(crate) fn new(head: &'a Head<'a>, asker: &'a Asker, manners: &'a Manners) -> Self {
        let given = head.edns.as_ref().and_then(|edns| edns.cookie);
        let cookie = manners.cookies.as_ref().zip(given);
        let cookie = cookie.map(|(keys, given)| keys.judge(given, asker.peer, asker.now));
        Self { head, asker, manners, cookie, reserved: 0 }
    }

    /// The same, whose replies leave room for so many bytes.
    pub(crate) fn reserving(self, bytes: usize) -> Self {
        Self { reserved: u16::try_from(bytes).unwrap_or(u16::MAX), ..self }
    }

    /// Begins the reply.
    pub(crate) fn reply<'o>(&self, out: &'o mut Vec<u8>) -> Reply<'a, 'o> {
        let bytes_max = match (self.asker.transport, &self.head.edns) {
            (Transport::Tcp, _) => TCP_BYTES_MAX,
            (Transport::Udp, Some(edns)) => edns.udp_bytes.min(UDP_BYTES_MAX),
            (Transport::Udp, None) => UDP_BYTES_PLAIN,
        };
        let bytes_max = bytes_max.saturating_sub(self.reserved);
        Reply::new(self.head, bytes_max, self.extras(), out)
    }

    fn extras(&self) -> Extras<'a> {
        let edns = self.head.edns.as_ref();
        let nsid = self.manners.nsid.as_deref().filter(|_| edns.is_some_and(|edns| edns.nsid));
        // Over UDP the option means nothing and is ignored (RFC 7828 section 3.3.1).
        let is_kept = self.asker.transport == Transport::Tcp;
        let wants = is_kept && edns.is_some_and(|edns| edns.keepalive);
        Extras {
            error: None,
            cookie: self.cookie.map(|judged| judged.bytes),
            nsid: nsid.map(str::as_bytes),
            keepalive_ds: wants.then_some(self.manners.tcp_idle_ds),
        }
    }

    /// A reply that is only its code, and maybe why.
    pub(crate) fn without_data(
        &self,
        sort: Sort,
        error: Option<ExtendedError>,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let mut reply = self.reply(out);
        if let Some(error) = error {
            reply.explain(error);
        }
        self.finish(reply, self.admit(sort, 0), Made::without_zone(sort))
    }

    /// The reply to a message without a question that has a cookie: whether that is one of ours
    /// (RFC 7873 section 5.4).
    pub(crate) fn cookie_alone(&self, out: &mut Vec<u8>) -> Outcome {
        let has_server =
            self.head.edns.is_some_and(|edns| edns.cookie.is_some_and(|c| c.has_server()));
        let sort = match &self.cookie {
            None => Sort::FormErr,
            Some(judged) if has_server && !judged.known => Sort::BadCookie,
            Some(_) => Sort::Cookie,
        };
        self.without_data(sort, None, out)
    }

    /// The reply to a query in class CHAOS (RFC 4892): what the server says of itself, or nothing.
    pub(crate) fn chaos(&self, query: &Query<'_>, out: &mut Vec<u8>) -> Outcome {
        let text = match query.name.as_bytes() {
            b"\x07version\x04bind\0" | b"\x07version\x06server\0" => &self.manners.version,
            b"\x02id\x06server\0" | b"\x08hostname\x04bind\0" => &self.manners.nsid,
            _ => &None,
        };
        let Some(text) = text.as_deref().filter(|_| query.qtype == rtype::TXT) else {
            return self.without_data(Sort::Refused, None, out);
        };
        let mut record = Vec::new();
        record
            .extend([QUESTION_NAME, rtype::TXT, CLASS_CHAOS].map(u16::to_be_bytes).as_flattened());
        record.extend(0u32.to_be_bytes());
        let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
        record.extend([0, length.saturating_add(1), length]);
        record.extend(text.bytes().take(length.into()));
        let mut reply = self.reply(out);
        reply.answer(QUESTION_NAME, Records { bytes: &record, count: 1 });
        self.finish(reply, self.admit(Sort::Fixed, 0), Made::without_zone(Sort::Fixed))
    }

    /// Whether a reply of `sort` may be given, as far as its sender's network has not had its share;
    /// `zone` is where a negative one is counted. To be asked once for each reply, before what costs
    /// much is done for it.
    pub(crate) fn admit(&self, sort: Sort, zone: usize) -> Admission {
        let proved = self.cookie.is_some_and(|judged| judged.known);
        let limiter = self.manners.limiter.as_ref();
        let Some(limiter) = limiter.filter(|_| self.asker.transport == Transport::Udp && !proved)
        else {
            return Admission::Granted;
        };
        let kind = Kind::of(sort);
        match limiter.take(self.asker.peer, kind, zone, self.asker.now) {
            Granted::Whole => Admission::Granted,
            Granted::Cut => Admission::Cut(kind),
            Granted::Nothing => Admission::Denied(kind),
        }
    }

    /// Completes `reply` as it was admitted.
    pub(crate) fn finish(
        &self,
        mut reply: Reply<'_, '_>,
        admission: Admission,
        made: Made,
    ) -> Outcome {
        let Made { mut sort, authoritative, scope, led } = made;
        let limited = match admission {
            Admission::Granted => None,
            Admission::Denied(kind) => {
                reply.abandon();
                return Outcome::Dropped(Dropped::Limited(kind));
            }
            // With the cookie that this reply brings it comes back, over UDP.
            Admission::Cut(kind) if self.cookie.is_some() => {
                reply.cut(false);
                sort = Sort::BadCookie;
                Some(kind)
            }
            Admission::Cut(kind) => {
                reply.cut(true);
                Some(kind)
            }
        };
        let authoritative = authoritative && sort != Sort::BadCookie;
        let truncated = reply.finish(sort.rcode(), authoritative, scope);
        let subnet = self.head.edns.is_some_and(|edns| edns.subnet.is_some());
        Outcome::Answered(Answered { sort, subnet, truncated, scope, limited, led })
    }
}

/// What a sender may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The reply.
    Granted,
    /// Only that there is one.
    Cut(Kind),
    /// Nothing.
    Denied(Kind),
}

/// What a reply says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) sort: Sort,
    pub(crate) authoritative: bool,
    /// Of a steered answer; else 0.
    pub(crate) scope: u8,
    pub(crate) led: Option<Led>,
}

impl Made {
    /// One that no zone has a part in.
    fn without_zone(sort: Sort) -> Self {
        Self { sort, authoritative: sort == Sort::Fixed, scope: 0, led: None }
    }
}
