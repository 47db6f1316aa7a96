//! The form of a question to masters: conditional or not, and for which bytes.
//!
//! The first question asks for no more than its client needs: for a range, the blocks that it
//! touches, so that the tail of a cold object takes one round trip.

use std::fmt;

use fill::{Failure, MasterId};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_cache::hygiene::fill_request;
use http_cache::range::Spec;
use http_cache::{ContentRange, Reply, Request};
use rt::clock;

use crate::fetch::Ask;
use crate::home;
use crate::state::Edge;
use crate::upstream::{Answer, Call};

/// Larger offsets than any object has are not sent upstream, where they may not be understood.
const OFFSET_MAX: u64 = 1 << 62;

/// The form in which masters are asked.
#[derive(Debug)]
pub(crate) struct Question {
    /// With the preconditions of a revalidation.
    pub(crate) conditional: bool,
    /// What is asked for; `None`: everything.
    pub(crate) range: Option<Part>,
}

impl Question {
    /// The head with which a master is asked.
    pub(crate) fn head(
        &self,
        edge: &Edge,
        ask: &Ask,
        master: MasterId,
    ) -> Result<HeaderMap, Failure> {
        let mut extra = HeaderMap::new();
        if let Some(held) = ask.held.as_ref().filter(|_| self.conditional) {
            extra = home::revalidation(ask, held, master);
        }
        if let Some(range) = &self.range {
            let range = HeaderValue::try_from(range.to_string()).map_err(|_| Failure::Protocol)?;
            extra.insert(header::RANGE, range);
        }
        Ok(fill_request(&ask.headers, &edge.me, &ask.selecting, &extra))
    }

    /// Asks one master, or another that was not `tried` when that one is slow to connect.
    pub(crate) async fn put(
        &self,
        edge: &Edge,
        ask: &Ask,
        master: MasterId,
        tried: &[MasterId],
    ) -> Result<Answer, Failure> {
        let headers = self.head(edge, ask, master)?;
        let stamp = edge.purges.stamp(clock::now().wall_ms);
        let spare = ask.project.sources.spare(clock::now(), master, tried);
        let call = Call::new(&ask.project, master, &Method::GET, &ask.target, headers);
        let mut answer = edge.upstream.ask(Call { spare, ..call }).await?;
        answer.asked.wall_ms = answer.asked.wall_ms.max(stamp);
        Ok(answer)
    }

    /// Whether an answer is one to this question at all: a 304 only where it was conditional, a 206
    /// only with a range that begins where it was asked to, and a body that is this range. Another comes from a broken master.
    pub(crate) fn is_answered_by(&self, reply: &Reply<'_>) -> bool {
        match reply.status {
            StatusCode::NOT_MODIFIED => self.conditional,
            StatusCode::PARTIAL_CONTENT if !reply.fits_its_range() => false,
            StatusCode::PARTIAL_CONTENT => match ContentRange::of(reply.headers) {
                Some(ContentRange::Part { first, last, complete }) => {
                    self.range.is_some_and(|asked| asked.is_begun_by(first, last, complete))
                }
                _ => false,
            },
            _ => true,
        }
    }
}

/// A part asked for by `Range`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// From a byte on, to a byte or the end.
    From(u64, Option<u64>),
    /// So many last bytes.
    Suffix(u64),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::From(first, Some(last)) => write!(f, "bytes={first}-{last}"),
            Self::From(first, None) => write!(f, "bytes={first}-"),
            Self::Suffix(bytes) => write!(f, "bytes=-{bytes}"),
        }
    }
}

impl Part {
    /// Whether the bytes `first..=last` of `complete` have the first one asked for. They may be
    /// fewer than asked for (RFC 9110 section 15.3.7): further ones are asked for then.
    fn is_begun_by(self, first: u64, last: u64, complete: Option<u64>) -> bool {
        let asked = match (self, complete) {
            (Self::From(asked, _), _) => asked,
            (Self::Suffix(bytes), Some(complete)) => complete.saturating_sub(bytes),
            // Nobody can tell.
            (Self::Suffix(_), None) => first,
        };
        (first..=last).contains(&asked)
    }
}

/// What a first question asks for: the blocks of the client's first range; for a HEAD the first
/// block; `None`: everything.
pub(crate) fn first_range(block: u64, request: &Request) -> Option<Part> {
    if request.head {
        return Some(Part::From(0, Some(block.saturating_sub(1))));
    }
    let aligned = |at: u64| at.checked_div(block).unwrap_or(0).saturating_mul(block);
    match *request.range.as_ref()?.specs().first()? {
        Spec::From { first, last: Some(last) } if last < OFFSET_MAX => {
            let end = aligned(last).saturating_add(block).saturating_sub(1);
            Some(Part::From(aligned(first), Some(end)))
        }
        Spec::From { first, .. } => {
            let start = aligned(first);
            (start > 0).then_some(Part::From(start, None))
        }
        // Up to one block more, so that the suffix's first block comes whole.
        Spec::Suffix(suffix) => Some(Part::Suffix(suffix.saturating_add(block.saturating_sub(1)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_question_asks_for_the_blocks_of_its_client() {
        for (method, range, expected) in [
            (Method::GET, "", None),
            (Method::GET, "bytes=x", None),
            (Method::GET, "bytes=0-0", Some("bytes=0-99")),
            (Method::GET, "bytes=99-100", Some("bytes=0-199")),
            (Method::GET, "bytes=250-299", Some("bytes=200-299")),
            (Method::GET, "bytes=0-", None),
            (Method::GET, "bytes=250-", Some("bytes=200-")),
            (Method::GET, "bytes=-1", Some("bytes=-100")),
            (Method::GET, "bytes=-100", Some("bytes=-199")),
            (Method::GET, "bytes=10-19,500-599", Some("bytes=0-99")),
            (Method::GET, "bytes=0-18446744073709551615", None),
            (Method::HEAD, "bytes=250-299", Some("bytes=0-99")),
        ] {
            let mut headers = HeaderMap::new();
            if let Ok(value) = HeaderValue::try_from(range)
                && !range.is_empty()
            {
                headers.insert(header::RANGE, value);
            }
            let request = Request::parse(&method, &"/a".parse().unwrap(), &headers).unwrap();
            let asked = first_range(100, &request).map(|part| part.to_string());
            assert_eq!(asked.as_deref(), expected, "{method} {range}");
        }
    }

    #[test]
    fn a_partial_answer_begins_where_it_was_asked_to() {
        let (some, end) = (Part::From(100, Some(199)), Part::From(100, None));
        for (asked, first, last, complete, want) in [
            (some, 100, 199, Some(1000), true),
            (some, 100, 150, Some(151), true),
            (some, 0, 999, Some(1000), true),
            (some, 100, 199, None, true),
            (some, 101, 199, Some(1000), false),
            (some, 0, 99, Some(1000), false),
            (some, 200, 299, Some(1000), false),
            (end, 100, 999, Some(1000), true),
            (end, 0, 50, Some(1000), false),
            (Part::Suffix(100), 900, 999, Some(1000), true),
            (Part::Suffix(100), 0, 49, Some(50), true),
            (Part::Suffix(100), 0, 99, Some(1000), false),
            (Part::Suffix(100), 7, 9, None, true),
        ] {
            let got = asked.is_begun_by(first, last, complete);
            assert_eq!(got, want, "{asked} {first}-{last}/{complete:?}");
        }
    }
}
