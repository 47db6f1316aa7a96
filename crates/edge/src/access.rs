//! One request in the books, from its head to the last byte of its answer.
//!
//! [`Access`] goes with the request until it is answered; then an [`Entry`] goes with the body, is
//! told of every byte that leaves, and is complete when it is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fill::MasterId;
use http::Response;
use serve::{Body, Tally};
use usage::Outcome;

use crate::project::Project;
use crate::state::Edge;

/// The answer to a request, and what is to be known of it.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) response: Response<Body>,
    pub(crate) outcome: Outcome,
    /// Who was asked, of the sources of the project.
    #[expect(dead_code, reason = "for the access log")]
    pub(crate) upstream: Option<MasterId>,
    #[expect(dead_code, reason = "for the access log")]
    /// The word of the limit that holds it back or refused it; empty when none does.
    pub(crate) limit: &'static str,
}

impl Answered {
    /// One that nobody was asked for and no limit holds back.
    pub(crate) fn new(response: Response<Body>, outcome: Outcome) -> Self {
        Self { response, outcome, upstream: None, limit: "" }
    }

    /// This source was asked.
    pub(crate) fn from(self, upstream: MasterId) -> Self {
        Self { upstream: Some(upstream), ..self }
    }
}

/// A request that is not answered yet.
#[derive(Debug)]
pub(crate) struct Access<'a> {
    edge: &'a Arc<Edge>,
    /// Whose content it asks for, once that is known.
    pub(crate) project: Option<Arc<Project>>,
}

impl<'a> Access<'a> {
    pub(crate) fn begin(edge: &'a Arc<Edge>) -> Self {
        Self { edge, project: None }
    }

    /// It is answered: the entry goes with the body.
    pub(crate) fn end(self, answered: Answered) -> Response<Body> {
        let Answered { response, outcome, .. } = answered;
        self.edge.counters.count(outcome);
        let entry = Entry { edge: Arc::clone(self.edge), sent: AtomicU64::new(0) };
        response.map(|body| body.with_tally(Arc::new(entry)))
    }
}

/// An answer on its way.
#[derive(Debug)]
struct Entry {
    edge: Arc<Edge>,
    sent: AtomicU64,
}

impl Tally for Entry {
    fn sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Relaxed);
        self.edge.counters.sent.inc_by(bytes);
    }

    fn is_whole_at(&self, _: u64) {}
}
