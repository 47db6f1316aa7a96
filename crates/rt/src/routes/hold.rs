//! What becomes of routes whose sessions have gone (B2): they stay for a while, since most sessions come
//! back; then the view has none, whatever the publisher still shows.

use std::collections::BTreeMap;
use std::sync::Arc;

use bgp_proto::feed::FollowedView;
use model::route::RouteTable;
use model::{Name, Now};

use super::Tables;

/// Remembers since when views are without a session.
#[derive(Debug)]
pub(super) struct Hold {
    hold_ns: u64,
    views: BTreeMap<Name, Held>,
}

#[derive(Debug)]
struct Held {
    /// Of the time when a session was up; after the hold the empty one.
    table: Arc<RouteTable>,
    /// By the monotonic clock; `None` while a session is up.
    down_since_ns: Option<u64>,
}

impl Hold {
    pub(super) fn new(hold_s: u64) -> Self {
        Self { hold_ns: hold_s.saturating_mul(1_000_000_000), views: BTreeMap::new() }
    }

    /// The tables to go by at `now`, and when, by the monotonic clock, the next hold ends. Views that
    /// were taken out of the publisher's config go at once.
    pub(super) fn tables(
        &mut self,
        views: &BTreeMap<Name, FollowedView>,
        now: Now,
    ) -> (Tables, Option<u64>) {
        self.views.retain(|view, _| views.contains_key(view));
        let (mut tables, mut next) = (Tables::new(), None::<u64>);
        for (view, of) in views {
            let held = self
                .views
                .entry(view.clone())
                .or_insert_with(|| Held { table: Arc::clone(&of.table), down_since_ns: None });
            if of.up {
                *held = Held { table: Arc::clone(&of.table), down_since_ns: None };
            } else {
                let since_ns = *held.down_since_ns.get_or_insert(now.mono_ns);
                let end_ns = since_ns.saturating_add(self.hold_ns);
                if now.mono_ns < end_ns {
                    next = Some(next.map_or(end_ns, |next| next.min(end_ns)));
                } else if !held.table.is_empty() {
                    held.table = Arc::default();
                }
            }
            tables.insert(view.clone(), Arc::clone(&held.table));
        }
        (tables, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn at(s: u64) -> Now {
        Now { mono_ns: s * S, wall_ms: 0 }
    }

    fn view(up: bool, table: &Arc<RouteTable>) -> BTreeMap<Name, FollowedView> {
        let of = FollowedView { version: 1, up, table: Arc::clone(table) };
        [("one".parse().unwrap(), of)].into()
    }

    #[test]
    fn routes_stay_for_the_hold_and_no_longer() {
        let net = "10.0.0.0/8".parse().unwrap();
        let full = Arc::new(locate::testing::routes([(net, "1 2")]));
        let empty = Arc::new(RouteTable::default());
        let mut hold = Hold::new(60);
        let mut look = |up, table, s| {
            let (tables, next) = hold.tables(&view(up, table), at(s));
            (tables.values().map(|table| table.len().0).sum::<usize>(), next.map(|ns| ns / S))
        };
        assert_eq!(look(true, &full, 100), (1, None));
        // The session goes, and with it the collector's routes: they stay, until it is back.
        assert_eq!(look(false, &empty, 110), (1, Some(170)));
        assert_eq!(look(false, &empty, 169), (1, Some(170)));
        assert_eq!(look(true, &full, 169), (1, None));
        // A withdrawal by a session that is up is none of this.
        assert_eq!(look(true, &empty, 170), (0, None));
        assert_eq!(look(true, &full, 171), (1, None));
        // Gone for good: none, even where the collector keeps them.
        assert_eq!(look(false, &full, 200), (1, Some(260)));
        assert_eq!(look(false, &full, 260), (0, None));
        assert_eq!(look(false, &full, 900), (0, None));
        assert_eq!(look(true, &full, 901), (1, None));
        // Those of the last run, whose session may have gone meanwhile, are held from the start on.
        let (tables, next) = Hold::new(60).tables(&view(false, &full), at(5));
        assert_eq!((tables.len(), next), (1, Some(65 * S)));
        assert!(Hold::new(60).tables(&BTreeMap::new(), at(5)).0.is_empty());
    }
}
