//! What is asked at random, and what must come.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use fastrand::Rng;
use http::{HeaderName, Method, header};

use crate::objects::Object;

/// Requests of a hundred for something that the edge has not seen.
const COLD_OF_100: u32 = 10;
/// A large object has no more versions that the edge has not seen.
const COLD_LARGE_MAX: u64 = 4;
/// What is larger is asked for whole seldom, and cold seldom.
const LARGE: u64 = 2 << 20;
/// Requests of a hundred whose client goes away before the end.
const LEAVE_OF_100: u32 = 12;
/// As many of them when the whole of a large object is asked for.
const LEAVE_LARGE_OF_100: u32 = 90;
/// Most bytes of one range.
const RANGE_MAX: u64 = 1 << 20;

/// One request.
pub(crate) struct Ask {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) fields: Vec<(HeaderName, String)>,
    /// Its own among all, where it was drawn; in its fields, too.
    pub(crate) name: String,
    pub(crate) must: Must,
    /// All of it may come where parts, or nothing, are due: no client is worse off than without asking for
    /// that. So it is while an edge hands over.
    pub(crate) may_be_whole: bool,
    pub(crate) object: Arc<Known>,
    /// After so many bytes of the body the client goes away.
    pub(crate) leave_after: Option<u64>,
    /// Bytes of bodies that came, for whoever watches.
    pub(crate) came: AtomicU64,
}

impl Ask {
    /// For the whole of an object.
    pub(crate) fn whole(object: &Arc<Known>) -> Self {
        Self {
            method: Method::GET,
            target: format!("/{}", object.object.name),
            fields: Vec::new(),
            name: String::new(),
            must: Must::Whole,
            may_be_whole: false,
            object: Arc::clone(object),
            leave_after: None,
            came: AtomicU64::new(0),
        }
    }
}

/// What must come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Must {
    /// 200 and all of it.
    Whole,
    /// 206 and exactly these bytes, in as many parts as the server likes.
    Parts(Vec<Range<u64>>),
    /// 416 with the length.
    Unsatisfiable,
    /// 304.
    NotModified,
    /// 412.
    PreconditionFailed,
    /// 404.
    Missing,
}

/// An object and what the edge said of it at first.
pub(crate) struct Known {
    pub(crate) object: Object,
    pub(crate) etag: String,
    pub(crate) modified: String,
}

/// Draws requests.
pub(crate) struct Asks {
    rng: Rng,
    /// Each object as often as its share.
    lots: Vec<Arc<Known>>,
    /// Distinguishes what this run asks for cold from what others did.
    mark: String,
    drawn: u64,
}

impl Asks {
    /// The same seed draws the same requests.
    pub(crate) fn new(seed: u64, mark: String, objects: &[Arc<Known>]) -> Self {
        let lots = objects.iter().flat_map(|known| vec![Arc::clone(known); known.object.share]);
        Self { rng: Rng::with_seed(seed), lots: lots.collect(), mark, drawn: 0 }
    }

    /// The next one.
    pub(crate) fn draw(&mut self) -> Ask {
        self.drawn += 1;
        let object = Arc::clone(&self.lots[self.rng.usize(..self.lots.len())]);
        let mut target = format!("/{}", object.object.name);
        if self.rng.u32(..100) < COLD_OF_100 {
            let large = object.object.length() > LARGE;
            let version = if large { self.drawn % COLD_LARGE_MAX } else { self.drawn };
            target.push_str(&format!("?{}-{version}", self.mark));
        }
        let name = format!("{}-{}", self.mark, self.drawn);
        let (method, mut fields, must) = self.form(&object);
        fields.push((header::USER_AGENT, name.clone()));
        if must == Must::Missing {
            target = format!("/missing-{}-{}", self.mark, self.drawn % 20);
        }
        let leave_after = self.leave_after(&method, &must, object.object.length());
        Ask { method, target, fields, name, must, leave_after, ..Ask::whole(&object) }
    }

    fn form(&mut self, known: &Known) -> (Method, Vec<(HeaderName, String)>, Must) {
        let get = |fields, must| (Method::GET, fields, must);
        let length = known.object.length();
        match self.rng.u32(..100) {
            0..25 => get(vec![], Must::Whole),
            25..60 => {
                let (range, must) = self.range(length);
                get(vec![(header::RANGE, range)], must)
            }
            60..70 => {
                let (range, must) = self.ranges(length);
                get(vec![(header::RANGE, range)], must)
            }
            70..80 => (Method::HEAD, vec![], Must::Whole),
            80..85 => {
                let (range, must) = self.range(length);
                let same = self.either(&known.etag, &known.modified);
                get(vec![(header::RANGE, range), (header::IF_RANGE, same)], must)
            }
            85..88 => {
                let (range, _) = self.range(length);
                let other = self.either("\"other\"", "Wed, 01 Jan 2014 00:00:00 GMT");
                get(vec![(header::RANGE, range), (header::IF_RANGE, other)], Must::Whole)
            }
            88..92 => {
                let list = format!("\"other\", {}", known.etag);
                get(vec![(header::IF_NONE_MATCH, list)], Must::NotModified)
            }
            92..94 => {
                get(vec![(header::IF_MODIFIED_SINCE, known.modified.clone())], Must::NotModified)
            }
            94..96 => get(vec![(header::IF_NONE_MATCH, "\"other\"".to_owned())], Must::Whole),
            96..97 => get(vec![(header::IF_MATCH, known.etag.clone())], Must::Whole),
            97..99 => {
                get(vec![(header::IF_MATCH, "\"other\"".to_owned())], Must::PreconditionFailed)
            }
            _ => get(vec![], Must::Missing),
        }
    }

    fn either(&mut self, one: &str, other: &str) -> String {
        if self.rng.bool() { one } else { other }.to_owned()
    }

    /// One range: somewhere, to the end, the last bytes, or behind the end.
    fn range(&mut self, length: u64) -> (String, Must) {
        if length == 0 {
            return ("bytes=0-".to_owned(), Must::Unsatisfiable);
        }
        let first = self.rng.u64(..length);
        let (last, part) = match self.rng.u32(..10) {
            0 => return (format!("bytes={}-", length + first), Must::Unsatisfiable),
            // The end as a client has it that does not know the length.
            1 => (u64::MAX, self.last_bytes(length)),
            2..4 => {
                let part = self.last_bytes(length);
                return (format!("bytes={}-", part.start), Must::Parts(vec![part]));
            }
            4..6 => {
                let count = self.rng.u64(1..=length.min(RANGE_MAX) + 1);
                let part = length.saturating_sub(count)..length;
                return (format!("bytes=-{count}"), Must::Parts(vec![part]));
            }
            _ => {
                let end = self.rng.u64(first..length.min(first + RANGE_MAX)) + 1;
                (end - 1, first..end)
            }
        };
        (format!("bytes={}-{last}", part.start), Must::Parts(vec![part]))
    }

    fn last_bytes(&mut self, length: u64) -> Range<u64> {
        let first = self.rng.u64(length.saturating_sub(RANGE_MAX)..length);
        first..length
    }

    /// Two to five ranges anywhere: in any order, some on top of others.
    fn ranges(&mut self, length: u64) -> (String, Must) {
        if length < 2 {
            return self.range(length);
        }
        let count = self.rng.usize(2..=5);
        let parts: Vec<_> = (0..count)
            .map(|_| {
                let first = self.rng.u64(..length);
                first..self.rng.u64(first..length.min(first + RANGE_MAX / 8)) + 1
            })
            .collect();
        let specs: Vec<_> =
            parts.iter().map(|part| format!("{}-{}", part.start, part.end - 1)).collect();
        (format!("bytes={}", specs.join(", ")), Must::Parts(parts))
    }

    fn leave_after(&mut self, method: &Method, must: &Must, length: u64) -> Option<u64> {
        let most = match must {
            Must::Whole => length,
            Must::Parts(parts) => parts.iter().map(|part| part.end - part.start).sum(),
            _ => 0,
        };
        let is_large = *must == Must::Whole && length > LARGE;
        let of_100 = if is_large { LEAVE_LARGE_OF_100 } else { LEAVE_OF_100 };
        let leaves = *method == Method::GET && most > 1 && self.rng.u32(..100) < of_100;
        // Most early, where the first blocks are; some at any place.
        let most = if self.rng.bool() { most.min(256 << 10) } else { most };
        leaves.then(|| self.rng.u64(..most))
    }
}
