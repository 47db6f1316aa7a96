//! [`Followed`]: what a follower has.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Name;
use model::route::RouteTable;

use super::{Feed, Part, Writer};

/// A delta on something else than what is here: the whole is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the changes are on other routes than those that are here: ask for the whole")]
pub struct Gap;

/// The routes of all views, as of the last document that was applied.
#[derive(Clone, Debug, Default)]
pub struct Followed {
    epoch: u64,
    views: BTreeMap<Name, FollowedView>,
}

/// One view.
#[derive(Clone, Debug)]
pub struct FollowedView {
    /// Of the publisher's run.
    pub version: u64,
    /// Whether a session of it is up.
    pub up: bool,
    /// Its routes.
    pub table: Arc<RouteTable>,
}

impl Followed {
    /// What is kept for the next start: tables that are no publisher's versions any more, so that the
    /// whole is asked for.
    pub fn kept(views: impl IntoIterator<Item = (Name, bool, Arc<RouteTable>)>) -> Self {
        let view = |(view, up, table)| (view, FollowedView { version: 0, up, table });
        Self { epoch: 0, views: views.into_iter().map(view).collect() }
    }

    /// Takes over what a document says; tables that it does not change stay the same ones.
    ///
    /// # Errors
    /// When it has changes on something else: then nothing is taken over.
    pub fn apply(&mut self, feed: Feed) -> Result<(), Gap> {
        let same = feed.epoch == self.epoch;
        let mut views = BTreeMap::new();
        for Part { view, up, from, version, changes } in feed.views {
            let old = self.views.get(&view);
            let table = match from {
                None => {
                    let routes = changes.iter();
                    let routes = routes.filter_map(|(net, what)| Some((*net, what.as_ref()?)));
                    Arc::new(RouteTable::from_ascending(routes))
                }
                Some(from) => {
                    let old = old.filter(|old| same && old.version == from).ok_or(Gap)?;
                    match changes.is_empty() {
                        true => Arc::clone(&old.table),
                        false => Arc::new(old.table.with_changes(changes)),
                    }
                }
            };
            views.insert(view, FollowedView { version, up, table });
        }
        *self = Self { epoch: feed.epoch, views };
        Ok(())
    }

    /// What to tell the publisher: what is here.
    pub fn cursor(&self) -> String {
        let mut text = self.epoch.to_string();
        for (view, of) in &self.views {
            super::push_view(&mut text, view.as_str(), of.version, of.up);
        }
        text
    }

    /// The views, by name.
    pub fn views(&self) -> &BTreeMap<Name, FollowedView> {
        &self.views
    }

    /// A document of all that is here, for the disk.
    pub fn document(&self) -> Vec<u8> {
        let mut writer = Writer::new(self.epoch);
        for (view, of) in &self.views {
            let rows = of.table.iter().map(|(prefix, what)| (prefix, Some(what)));
            writer.rows(view.as_str(), of.up, None, of.version, rows);
        }
        writer.finish()
    }
}
