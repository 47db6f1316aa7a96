//! The projects of the node map as the edge needs them: by host, with their sources.
//!
//! Swapped whole when the node map changes; requests and fills keep the project they began with. A
//! source that did not change keeps its connections, and when none did, what is known of their health
//! is kept too.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use fill::MasterId;
use http::header::HeaderName;
use http_cache::Target;
use model::{Name, Query};
use nodemap::{HostPattern, NodeMap};
use rt::Metrics;
use tokio::sync::Semaphore;

use crate::reach::Reach;
use crate::rules::{PathRules, Rules};
use crate::sources::{Layout, Sources};

/// One project.
#[derive(Debug)]
pub(crate) struct Project {
    pub(crate) name: Name,
    /// Whom its content is asked of.
    pub(crate) sources: Sources,
    /// Fields of clients that fills carry too; nothing is keyed on them.
    pub(crate) request_fields: Vec<HeaderName>,
    /// Permits for its share of the block buffers.
    pub(crate) buffers: Arc<Semaphore>,
    /// How far edges go beyond what clients ask.
    pub(crate) reach: Reach,
    definition: nodemap::Project,
    rules: Rules,
}

impl Project {
    fn new(
        name: &Name,
        definition: &nodemap::Project,
        sources: Sources,
        buffers: Arc<Semaphore>,
        metrics: &Metrics,
    ) -> Self {
        Self {
            name: name.clone(),
            sources,
            request_fields: definition
                .request_fields
                .iter()
                .filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
                .collect(),
            buffers,
            reach: Reach::new(name, metrics),
            rules: Rules::new(definition),
            definition: definition.clone(),
        }
    }

    /// What holds for a target.
    pub(crate) fn rules(&self, target: &Target) -> &Arc<PathRules> {
        self.rules.of(target)
    }

    /// The process that took the stores over, as a source after all others.
    pub(crate) fn successor(&self, address: SocketAddr) -> Option<MasterId> {
        self.sources.successor(address, &self.definition)
    }

    /// What of a query counts here.
    pub(crate) fn query(&self) -> &Query {
        &self.rules.query
    }

    /// What of a target counts here.
    pub(crate) fn reduce(&self, target: Target) -> Target {
        target.reduced(&self.rules.query)
    }

    /// Whether methods other than GET and HEAD are passed on.
    pub(crate) fn passes_methods(&self) -> bool {
        self.rules.passes_methods
    }

    /// Whether clients are told of HTTP/3.
    pub(crate) fn offers_http3(&self) -> bool {
        self.definition.http3
    }
}

/// All projects of one node map.
#[derive(Debug, Default)]
pub(crate) struct Projects {
    pub(crate) generation: u64,
    pub(crate) by_name: HashMap<Name, Arc<Project>>,
    by_host: HashMap<String, Arc<Project>>,
    any: Option<Arc<Project>>,
}

impl Projects {
    /// The projects of `map` as the edge `me` has them; unchanged ones are taken over from `before`.
    /// `buffers`: block buffers that one of several projects may use.
    pub(crate) fn new(
        map: &NodeMap,
        before: &Self,
        me: &Name,
        metrics: &Metrics,
        buffers: usize,
    ) -> Self {
        let mut projects = Self { generation: map.generation, ..Self::default() };
        for (name, definition) in &map.map.projects {
            let layout = Layout::of(map, definition, me);
            let known = before.by_name.get(name);
            let kept = known.filter(|p| p.definition == *definition && p.sources.is_of(&layout));
            let project = kept.cloned().unwrap_or_else(|| {
                let made = || Arc::new(Semaphore::new(buffers));
                let buffers = known.map_or_else(made, |p| Arc::clone(&p.buffers));
                let before = known.map(|p| &p.sources);
                let sources = Sources::new(name, &layout, before, metrics);
                Arc::new(Project::new(name, definition, sources, buffers, metrics))
            });
            project.sources.handle_states(&layout);
            for host in &definition.hosts {
                match host {
                    HostPattern::Exact(host) => {
                        projects.by_host.insert(host.as_str().to_owned(), Arc::clone(&project));
                    }
                    HostPattern::Any => projects.any = Some(Arc::clone(&project)),
                }
            }
            projects.by_name.insert(name.clone(), project);
        }
        projects
    }

    /// The project that accepts `host` (as in a `Host` field, with or without a port).
    pub(crate) fn of_host(&self, host: &str) -> Option<&Arc<Project>> {
        let name = without_port(host);
        let name = name.strip_suffix('.').unwrap_or(name);
        let found = match name.bytes().any(|b| b.is_ascii_uppercase()) {
            false => self.by_host.get(name),
            true => self.by_host.get(&name.to_ascii_lowercase()),
        };
        found.or(self.any.as_ref())
    }
}

/// A `Host` value without its port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_not_part_of_a_host() {
        for (host, name) in [
            ("a.example", "a.example"),
            ("a.example:8080", "a.example"),
            ("[2001:db8::1]:80", "[2001:db8::1]"),
            ("127.0.0.1:1", "127.0.0.1"),
            (":80", ":80"),
        ] {
            assert_eq!(without_port(host), name);
        }
    }
}
