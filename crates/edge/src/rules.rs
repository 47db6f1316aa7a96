//! What a project says of its objects: which part of a query counts, how long they are fresh, how
//! much of them is fetched, which of them belong together.

use std::sync::Arc;

use http_cache::{Policy, Target};
use model::{Completion, Name, Query};
use nodemap::Glob;

/// What holds for one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathRules {
    /// Lifetimes and reloads.
    pub(crate) policy: Policy,
    /// How much of an object is fetched beyond what clients ask for.
    pub(crate) completion: Completion,
    /// The group of objects that are confirmed together.
    group: Option<Name>,
}

impl PathRules {
    /// The group that its objects belong to, and the seconds between two ticks of its grid.
    pub(crate) fn group(&self) -> Option<(&Name, u32)> {
        Some((self.group.as_ref()?, u32::try_from(self.policy.ttl_s?).ok()?))
    }
}

/// The rules of one project.
#[derive(Debug)]
pub(crate) struct Rules {
    /// What of a query counts.
    pub(crate) query: Query,
    /// Whether other methods than GET and HEAD are passed on.
    pub(crate) passes_methods: bool,
    /// In their order: the first that matches holds.
    paths: Vec<(Glob, Arc<PathRules>)>,
    /// For all other paths.
    others: Arc<PathRules>,
}

impl Rules {
    pub(crate) fn new(project: &nodemap::Project) -> Self {
        let others = PathRules {
            policy: Policy {
                reload_min_age_s: project.reload_min_age_s.into(),
                stale_while_revalidate_s: project.stale_while_revalidate_s.into(),
                ..Policy::default()
            },
            completion: project.completion,
            group: None,
        };
        let paths = project.paths.iter().map(|path| {
            let rules = PathRules {
                policy: Policy {
                    ttl_s: path.ttl_s.map(u64::from),
                    negative_ttl_s: path.negative_ttl_s.map(u64::from),
                    ..others.policy
                },
                completion: path.completion.unwrap_or(others.completion),
                group: path.group.clone(),
            };
            (path.glob.clone(), Arc::new(rules))
        });
        Self {
            query: project.query.clone(),
            passes_methods: project.unsafe_methods,
            paths: paths.collect(),
            others: Arc::new(others),
        }
    }

    /// The rules of a target: by its path as it stands in the key, never by its query.
    pub(crate) fn of(&self, target: &Target) -> &Arc<PathRules> {
        let path = target.path();
        let found = self.paths.iter().find(|(glob, _)| glob.is_match(path));
        found.map_or(&self.others, |(_, rules)| rules)
    }
}
