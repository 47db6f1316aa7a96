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
use model::{HostName, Name, Query};
use nodemap::{Acme, HostPattern, NodeMap, ProjectTls};
use rt::Metrics;
use rt::metrics::{Counter, edge};
use steer::redirect::Why;
use tokio::sync::Semaphore;

use crate::host::without_port;
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
    /// Clients sent to another node, in the order of [`Why::ALL`].
    redirects: [Counter; Why::ALL.len()],
    /// Answers to clients that belong to another pool, and their bytes.
    missteered: [Counter; 2],
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
            redirects: Why::ALL
                .map(|why| metrics.counter(&edge::REDIRECTS, &[name.as_str(), why.as_str()])),
            missteered: [&edge::MISSTEERED, &edge::MISSTEERED_BYTES]
                .map(|metric| metrics.counter(metric, &[name.as_str()])),
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

    /// Whether clients may be sent to other nodes.
    pub(crate) fn redirects(&self) -> bool {
        self.definition.redirect
    }

    /// Whether other nodes count for its clients at all.
    pub(crate) fn knows_others(&self) -> bool {
        self.definition.redirect || self.definition.alternates
    }

    /// Bytes of an object from which on a client that belongs elsewhere is sent there.
    pub(crate) fn redirect_above(&self) -> u64 {
        self.definition.redirect_above.0
    }

    /// A client was sent to another node.
    pub(crate) fn count_redirect(&self, why: Why) {
        let counted = Why::ALL.iter().zip(&self.redirects).find(|(w, _)| **w == why);
        counted.into_iter().for_each(|(_, counter)| counter.inc());
    }

    /// An answer has ended whose client belongs to another pool.
    pub(crate) fn count_missteered(&self, bytes: u64) {
        let [answers, sent] = &self.missteered;
        answers.inc();
        sent.inc_by(bytes);
    }

    /// The steered name.
    pub(crate) fn steered_name(&self) -> &HostName {
        &self.definition.name
    }

    /// Whether a host that a request names is below the steered name: the name of a node.
    pub(crate) fn is_of_node(&self, host: &str) -> bool {
        let name = without_port(host);
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let steered = self.definition.name.as_str();
        name.strip_suffix(steered).is_some_and(|node| node.ends_with('.'))
    }

    /// Whether the publisher of node maps orders the certificates of its hosts.
    pub(crate) fn has_ordered_certificates(&self) -> bool {
        self.definition.tls == ProjectTls::Acme
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
    /// What authorities of certificates are answered.
    pub(crate) acme: Option<Acme>,
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
        let mut projects =
            Self { generation: map.generation, acme: map.acme.clone(), ..Self::default() };
        for (name, definition) in &map.map.projects {
            let layout = Layout::of(map, (name, definition), me);
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
            // Hosts that a person wrote come first.
            let own = format!("{me}.{}", definition.name);
            projects.by_host.entry(own).or_insert_with(|| Arc::clone(&project));
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
