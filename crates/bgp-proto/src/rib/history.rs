//! What changed in a view lately, for followers that have been shown an earlier version.

use std::collections::VecDeque;

use ipnet::IpNet;

/// Changes that are remembered of a view: some ten seconds of the worst churn, 5 MiB.
pub(super) const CHANGES_MAX: usize = 1 << 18;

/// The last changes of a view.
#[derive(Debug, Default)]
pub(super) struct History {
    version: u64,
    /// The oldest version that changes are known since.
    from: u64,
    /// Changes of each version, the oldest first; the last ones made the view what it is.
    steps: VecDeque<Vec<IpNet>>,
    /// All of them.
    total: usize,
}

impl History {
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Another version, if anything changed.
    pub(super) fn add(&mut self, prefixes: Vec<IpNet>) {
        if prefixes.is_empty() {
            return;
        }
        self.version = self.version.saturating_add(1);
        self.total = self.total.saturating_add(prefixes.len());
        self.steps.push_back(prefixes);
        while self.total > CHANGES_MAX {
            let Some(oldest) = self.steps.pop_front() else { break };
            self.total = self.total.saturating_sub(oldest.len());
            self.from = self.from.saturating_add(1);
        }
    }

    /// The prefixes that changed since, in order and each once; `None` when that is not known.
    pub(super) fn since(&self, version: u64) -> Option<Vec<IpNet>> {
        if version > self.version {
            return None;
        }
        let skipped = usize::try_from(version.checked_sub(self.from)?).ok()?;
        let mut prefixes: Vec<IpNet> = self.steps.iter().skip(skipped).flatten().copied().collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        Some(prefixes)
    }
}
