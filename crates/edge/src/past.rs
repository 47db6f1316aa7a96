//! Past the store: a transfer goes on with bytes straight from a master when its blocks cannot be
//! stored (no space, a broken disk, everything in use). A full disk costs hits, never a download.
//!
//! Each such client has a request of its own, at its own pace, on the same conditions as a fill: the
//! bytes must be of the very representation that its answer began with (E1). Where parts of two
//! answers must not be joined, one client takes over the answer that was coming in; the others of
//! that object are broken off.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use fill::{Failure, MasterId};
use rt::clock;

use crate::filling::Filling;
use crate::pour;
use crate::upstream::Lent;
use crate::upstream::turns::Urgency;

/// An answer that was to be stored and could not be, from its first byte that is not held on.
#[derive(Debug)]
pub(crate) struct Rest {
    /// Where it goes on in the representation.
    pub(crate) at: u64,
    /// What was read already.
    pub(crate) ready: VecDeque<Bytes>,
    pub(crate) body: Lent,
    pub(crate) master: MasterId,
}

/// One client's way past the store, to the end of a range.
#[derive(Debug)]
pub(crate) struct Past {
    filling: Arc<Filling>,
    /// What comes in now.
    coming: Option<Rest>,
    /// Masters that failed since the last bytes.
    tried: Vec<MasterId>,
}

impl Past {
    /// For a client that has everything before `at` and cannot have the rest from the store for the
    /// reason given; that reason when there is no way.
    pub(crate) fn begin(filling: &Arc<Filling>, at: u64, why: Failure) -> Result<Self, Failure> {
        let coming = match filling.conditions {
            Some(_) if why == Failure::Disk => None,
            Some(_) => return Err(why),
            None => Some(filling.take_rest(at).ok_or(why)?),
        };
        filling.edge.counters.past_store.inc();
        Ok(Self { filling: Arc::clone(filling), coming, tried: Vec::new() })
    }

    /// The next bytes of `range`, at least one.
    pub(crate) async fn next(&mut self, range: Range<u64>) -> Result<Bytes, Failure> {
        loop {
            let (master, why) = match &mut self.coming {
                Some(rest) => match rest.next(&range).await {
                    Ok(bytes) => {
                        self.tried.clear();
                        return Ok(bytes);
                    }
                    Err(why) => (rest.master, why),
                },
                None => {
                    let master = self.master()?;
                    let asked = pour::ask(&self.filling, master, &range, Urgency::Blocked).await;
                    let sources = &self.filling.object.project.sources;
                    if sources.get(master).is_some_and(|source| source.is_successor()) {
                        self.filling.edge.note_successor(&asked);
                    }
                    match asked {
                        Ok((body, at)) => {
                            let (ready, body) = (VecDeque::new(), Lent::new(body));
                            self.coming = Some(Rest { at, ready, body, master });
                            continue;
                        }
                        Err(why) => (master, why),
                    }
                }
            };
            if why == Failure::Client {
                // It came back too late: others have its place.
                return Err(why);
            }
            self.filling.object.project.sources.handle_failed(master, why, clock::now());
            self.coming = None;
            self.tried.push(master);
            if self.filling.conditions.is_none() || self.master().is_err() {
                return Err(why);
            }
        }
    }

    /// Whom to ask next.
    fn master(&self) -> Result<MasterId, Failure> {
        let chosen = || {
            let choice = {
                let object = &self.filling.object;
                let sources = &object.project.sources;
                sources.choose(clock::now(), &object.key, object.home(), &self.tried)
            };
            choice.map(|choice| choice.master)
        };
        let successor = self.filling.edge.successor(&self.filling.object.project);
        let successor = successor.filter(|master| !self.tried.contains(master));
        let master = successor.or(self.filling.only).or_else(chosen);
        master.filter(|master| !self.tried.contains(master)).ok_or(Failure::Connect)
    }
}

impl Rest {
    /// The next bytes of `range`; an answer that ends before its end is truncated.
    async fn next(&mut self, range: &Range<u64>) -> Result<Bytes, Failure> {
        loop {
            let mut bytes = match self.ready.pop_front() {
                Some(bytes) => bytes,
                None => self.body.next().await?.ok_or(Failure::Truncated)?,
            };
            let skip = clamp(range.start.saturating_sub(self.at)).min(bytes.len());
            let before = bytes.split_to(skip);
            self.at = self.at.saturating_add(length(&before));
            if bytes.is_empty() {
                continue;
            }
            let end = clamp(range.end.saturating_sub(self.at)).min(bytes.len());
            let part = bytes.split_to(end);
            self.at = self.at.saturating_add(length(&part));
            if !bytes.is_empty() {
                self.ready.push_front(bytes);
            }
            return Ok(part);
        }
    }
}

fn clamp(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn length(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
