//! What an upstream's status means for what is held and for who waits (invariant E4 of the design).

use std::collections::BTreeMap;

use http::StatusCode;
use model::{Name, Now};

/// What a final upstream status means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Meaning {
    /// Content or a redirect: what was asked for.
    Good,
    /// 304: what is held is still right.
    NotModified,
    /// 412 or 416: the representation we asked ranges of is not there any more.
    Changed,
    /// 404 or 410: gone, once it is confirmed.
    Gone,
    /// 5xx, 408, 421, 425, 429: says nothing of the object; ask another master.
    Transient,
    /// Any other 4xx: this request is refused; what is held stays.
    Refused,
}

/// The meaning of a status.
pub fn meaning(status: StatusCode) -> Meaning {
    let _ = status;
    todo!()
}

impl Meaning {
    /// Whether another master may do better.
    pub fn try_another_master(self) -> bool {
        todo!()
    }

    /// Whether a stale representation that is held is served instead, if its directives allow.
    pub fn prefers_stale(self) -> bool {
        todo!()
    }
}

/// The errors lately seen for one key. Two equal ones in a row start a negative entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorRun {
    status: u16,
    count: u32,
    negative_until_ns: u64,
}

impl ErrorRun {
    /// Counts an error reply without explicit freshness.
    pub fn handle_error(&mut self, now: Now, status: StatusCode) {
        let _ = (now, status);
        todo!()
    }

    /// A good reply came: all is forgotten.
    pub fn handle_good(&mut self) {
        *self = Self::default();
    }

    /// The status to answer at once, without asking; `None` when upstream is to be asked.
    pub fn negative(&self, now: Now) -> Option<StatusCode> {
        let _ = now;
        todo!()
    }
}

/// What masters said of an object that is held and that one of them does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    seen: BTreeMap<Name, Sighting>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sighting {
    first_ns: u64,
    last_ns: u64,
}

impl Removal {
    /// A master said 404 or 410.
    pub fn handle_gone(&mut self, now: Now, master: &Name) {
        let _ = (now, master, &self.seen);
        todo!()
    }

    /// A master has it: all is forgotten.
    pub fn handle_present(&mut self) {
        self.seen.clear();
    }

    /// Whether the object counts as removed: every healthy master said so twice, 30 s apart.
    pub fn is_confirmed<'a>(&self, healthy: impl IntoIterator<Item = &'a Name>) -> bool {
        let _ = healthy.into_iter().next();
        todo!()
    }
}

/// Whether a new head may take the place of a held one: an error never replaces content.
pub fn may_replace(held: StatusCode, new: StatusCode) -> bool {
    let _ = (held, new);
    todo!()
}
