//! Finding out whether bad sources are good again, so that no client pays for it.

use std::sync::Arc;

use fill::{Failure, MasterId};
use http::{HeaderMap, Method};
use http_cache::hygiene::fill_request;
use http_cache::{Selecting, Target};
use rt::clock;

use crate::handler::HEALTH_PATH;
use crate::project::Project;
use crate::state::Edge;
use crate::upstream::Call;
use crate::upstream::turns::Urgency;

/// Begins the probes that are due.
pub(crate) fn begin_due(edge: &Arc<Edge>) {
    for project in edge.projects.load().by_name.values() {
        while let Some(source) = project.sources.probe_due(clock::now()) {
            tokio::spawn(probe(Arc::clone(edge), Arc::clone(project), source));
        }
    }
}

/// Asks a master for the head of what it was last asked for, a parent whether it is healthy. Any
/// answer that is no failure of the machine will do.
async fn probe(edge: Arc<Edge>, project: Arc<Project>, source: MasterId) {
    let Some(endpoint) = project.sources.get(source) else { return };
    let last = if endpoint.is_parent() {
        Target::parse(HEALTH_PATH.as_bytes()).ok()
    } else {
        endpoint.last_asked().or_else(|| Target::parse(b"/").ok())
    };
    let Some(target) = last else { return };
    let none = HeaderMap::new();
    let headers = fill_request(&none, &edge.me, &Selecting::default(), &none);
    let call = Call::new(&project, source, &Method::HEAD, &target, headers);
    match edge.upstream.ask(Call { urgency: Urgency::Ahead, ..call }).await {
        Ok(answer) if !answer.parts.status.is_server_error() => project.sources.handle_ok(source),
        Ok(answer) => {
            let why = Failure::Status(answer.parts.status.as_u16());
            project.sources.handle_failed(source, why, clock::now());
        }
        Err(why) => project.sources.handle_failed(source, why, clock::now()),
    }
}
