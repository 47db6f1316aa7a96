//! One access, and one connection, as logs and counters have them.

use std::net::IpAddr;

use model::{Asn, CountryCode};

/// How a request ended, seen from the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// All of it was held and fresh.
    Hit,
    /// A part of it was held.
    Partial,
    /// It was brought from a master or parent.
    Miss,
    /// It was held, and a master confirmed it first.
    Revalidated,
    /// It was held, and not fresh.
    Stale,
    /// It went past the cache.
    Pass,
    /// An error that was remembered.
    Negative,
    /// The masters do not have it or refuse it (4xx).
    Absent,
    /// It could not be had (5xx).
    Error,
    /// The request was refused by the edge itself.
    Refused,
    /// The client was sent to another node (302).
    Redirected,
    /// A page of the edge itself: of health, or for an authority of certificates.
    Health,
}

impl Outcome {
    /// All of them, in order.
    pub const ALL: [Self; 12] = [
        Self::Hit,
        Self::Partial,
        Self::Miss,
        Self::Revalidated,
        Self::Stale,
        Self::Pass,
        Self::Negative,
        Self::Absent,
        Self::Error,
        Self::Refused,
        Self::Redirected,
        Self::Health,
    ];

    /// Its stable word, in JSON logs, metrics and reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Partial => "partial",
            Self::Miss => "miss",
            Self::Revalidated => "revalidated",
            Self::Stale => "stale",
            Self::Pass => "pass",
            Self::Negative => "negative",
            Self::Absent => "absent",
            Self::Error => "error",
            Self::Refused => "refused",
            Self::Redirected => "redirected",
            Self::Health => "health",
        }
    }
}

/// One answer that has ended. Texts of requests and answers are as they came over the wire: formats
/// escape them. Names of ours (node, project, upstream) and words have nothing to escape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// When it ended, milliseconds since 1970 UTC.
    pub ended_ms: u64,
    /// Since the head of the request was there, milliseconds.
    pub elapsed_ms: u64,
    /// The whole address of the client: formats truncate it unless they are told not to.
    pub client: IpAddr,
    /// Its origin AS.
    pub asn: Option<Asn>,
    /// Its country.
    pub country: Option<CountryCode>,
    /// The node that answered.
    pub node: &'a str,
    /// The project; empty when the request named none of ours.
    pub project: &'a str,
    /// The method.
    pub method: &'a str,
    /// `http` or `https`.
    pub scheme: &'a str,
    /// `HTTP/1.0`, `HTTP/1.1`, `HTTP/2` or `HTTP/3`.
    pub protocol: &'a str,
    /// The host that was named, with its port if it named one.
    pub host: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// Status code of the answer.
    pub status: u16,
    /// Bytes of content sent.
    pub bytes: u64,
    /// Whether less was sent than was announced.
    pub is_aborted: bool,
    /// How it ended.
    pub outcome: Outcome,
    /// The master or parent that was asked; empty when none was.
    pub upstream: &'a str,
    /// Whether that is a parent: an edge.
    pub is_from_parent: bool,
    /// Media type of the answer; empty when it has none.
    pub content_type: &'a str,
    /// The `Range` field; empty when there was none.
    pub range: &'a str,
    /// The `User-Agent` field; empty when there was none.
    pub user_agent: &'a str,
    /// The pool to which the client belongs when this node is not in it (by the steering engine, with
    /// the client's own address); empty when it is, `None` when nobody knows.
    pub missteered: Option<&'a str>,
    /// The word of the limit that held the answer back or refused it; empty when none did.
    pub limit: &'a str,
}

/// One connection that has ended and of which something was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionRecord<'a> {
    /// When it ended, milliseconds since 1970 UTC.
    pub ended_ms: u64,
    /// The whole address of the client: formats truncate it unless they are told not to.
    pub client: IpAddr,
    /// Its origin AS.
    pub asn: Option<Asn>,
    /// Its country.
    pub country: Option<CountryCode>,
    /// The node to which it was made.
    pub node: &'a str,
    /// What was measured.
    pub way: Way,
}

/// What the kernel, or QUIC, measured of the way to a client over one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Bytes that the client has acknowledged.
    pub acked_bytes: u64,
    /// Segments or packets sent.
    pub sent_segments: u64,
    /// Of these, those sent again.
    pub retransmitted_segments: u64,
    /// Shortest round trip, microseconds.
    pub min_rtt_us: u64,
    /// Newest rate at which bytes arrived, bytes per second; 0 when nothing was measured.
    pub delivery_rate: u64,
}
