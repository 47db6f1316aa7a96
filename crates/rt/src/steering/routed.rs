//! New routes on their way into use: at most once a second, and in steps where they move many (S3).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use locate::{Locator, Routes};
use model::Name;
use nodemap::NodeMap;
use steer::{ClassTable, Step};
use tokio::time::Instant;

use super::SteeringError;
use super::update::Loaded;
use crate::clock;
use crate::routes::{FollowingRoutes, Tables};

/// Shortest time from one change of routes to the next.
const APART: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 1000 });
/// Beyond that, so many times what the last one took: a routing table that never rests takes a fifth of
/// a processor at most.
const REST: u32 = 4;
/// Time from one step of a large change to the next.
const STEP: Duration = Duration::from_millis(if cfg!(test) { 20 } else { 10_000 });

/// The routes that are followed, and when they are looked at next.
#[derive(Debug)]
pub(super) struct Routed {
    following: FollowingRoutes,
    limit: f64,
    /// Whether a part of the newest waits for its step.
    waits: bool,
    begun: Instant,
    not_before: Instant,
}

impl Routed {
    pub(super) fn new(following: FollowingRoutes, percent: u32) -> Self {
        let (limit, now) = (f64::from(percent) / 100.0, Instant::now());
        Self { following, limit, waits: false, begun: now, not_before: now }
    }

    /// The newest tables, on which work begins.
    pub(super) fn newest(&mut self) -> Arc<Tables> {
        self.begun = Instant::now();
        // Tried again when they change, also where they cannot be used.
        self.waits = false;
        self.not_before = Instant::now() + APART;
        Arc::clone(&self.following.borrow_and_update())
    }

    /// The share of clients that may move at once.
    pub(super) fn limit(&self) -> f64 {
        self.limit
    }

    /// The work is done; more of it waits, or not.
    pub(super) fn stepped(&mut self, waits: bool) {
        self.waits = waits;
        let rest = self.begun.elapsed() * REST;
        self.not_before = Instant::now() + if waits { rest.max(STEP) } else { rest.max(APART) };
    }
}

/// Waits until routes are to be taken into use; while other work is under way, or without routes, for
/// ever.
pub(super) async fn due(routes: &mut Option<Routed>, is_idle: bool) {
    let Some(routes) = routes.as_mut().filter(|_| is_idle) else {
        return std::future::pending().await;
    };
    if !routes.waits {
        let newer = routes.following.has_changed();
        if newer.is_err() {
            return std::future::pending().await;
        }
        if newer.is_ok_and(|newer| !newer) && routes.following.changed().await.is_err() {
            return std::future::pending().await;
        }
        // Seen, but not taken yet: this wait may be broken off.
        routes.following.mark_changed();
    }
    tokio::time::sleep_until(routes.not_before).await;
}

/// The tables of the routes in use.
pub(super) fn tables_of(routes: &Routes) -> Arc<Tables> {
    let views = routes.views().iter().enumerate();
    let table = |(at, view): (usize, &Name)| Some((view.clone(), Arc::clone(routes.table(at)?)));
    Arc::new(views.filter_map(table).collect())
}

/// As much of `tables` over the databases of `locator` as may go at once, where `table` is what is in
/// use; and of IPv4 and IPv6 clients the share that waits.
pub(super) fn step(
    locator: &Locator,
    table: Option<&ClassTable>,
    tables: &Tables,
    map: Option<&NodeMap>,
    limit: f64,
) -> Result<(Loaded, [f64; 2]), SteeringError> {
    let target = Arc::new(locator.with_routes(Arc::new(Routes::new(tables.clone()))));
    let Some(map) = map else {
        return Ok((Loaded { locator: target, table: None }, [0.0; 2]));
    };
    let compile = |locator: &Locator| {
        ClassTable::compile(locator, &map.map, clock::now().wall_ms).map(Arc::new)
    };
    let new = compile(&target)?;
    let step = table.filter(|table| table.is_of(&map.map));
    let step = step.map(|table| Step::between(table, &new, limit)).unwrap_or_default();
    if step.is_whole() {
        return Ok((Loaded { locator: target, table: Some(new) }, [0.0; 2]));
    }
    let blended = blend(tables, &tables_of(locator.routes()), &step);
    let locator = Arc::new(locator.with_routes(Arc::new(Routes::new(blended))));
    let waiting = step.moved.map(|moved| (moved - limit).max(0.0));
    Ok((Loaded { table: Some(compile(&locator)?), locator }, waiting))
}

/// The new tables below the frontiers, the old ones above.
fn blend(new: &Tables, old: &Tables, step: &Step) -> Tables {
    let views: BTreeSet<&Name> = new.keys().chain(old.keys()).collect();
    let blend = |view: &Name| {
        let of = |tables: &Tables| tables.get(view).cloned().unwrap_or_default();
        let table = of(new).blend(&of(old), step.frontier_v4, step.frontier_v6);
        (view.clone(), Arc::new(table))
    };
    views.into_iter().map(blend).collect()
}
