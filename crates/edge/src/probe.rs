//! Finding out whether bad masters are good again, so that no client pays for it.

use std::sync::Arc;

use fill::{Failure, MasterId};
use http::{HeaderMap, Method};
use http_cache::hygiene::fill_request;
use http_cache::{Selecting, Target};
use rt::clock;

use crate::project::Project;
use crate::state::Edge;

/// Begins the probes that are due.
pub(crate) fn begin_due(edge: &Arc<Edge>) {
    for project in edge.projects.load().by_name.values() {
        while let Some(master) = project.probe_due(clock::now()) {
            tokio::spawn(probe(Arc::clone(edge), Arc::clone(project), master));
        }
    }
}

/// Asks a master for the head of what it was last asked for. Any answer that is no failure of the
/// machine will do.
async fn probe(edge: Arc<Edge>, project: Arc<Project>, master: MasterId) {
    let last = project.masters.get(master).and_then(|m| m.last_asked());
    let Some(target) = last.or_else(|| Target::parse(b"/").ok()) else { return };
    let none = HeaderMap::new();
    let headers = fill_request(&none, &edge.me, &Selecting::default(), &none);
    match edge.upstream.ask(&project, master, &Method::HEAD, &target, headers).await {
        Ok(answer) if !answer.parts.status.is_server_error() => project.handle_ok(master),
        Ok(answer) => {
            let why = Failure::Status(answer.parts.status.as_u16());
            project.handle_failed(master, why, clock::now());
        }
        Err(why) => project.handle_failed(master, why, clock::now()),
    }
}
