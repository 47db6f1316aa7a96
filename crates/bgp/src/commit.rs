//! Decides anew for what has changed, at most once a second, and tells those who wait.

use std::sync::Arc;
use std::time::Duration;

use model::Family;
use rt::metrics::bgp as metric;
use rt::{Phase, Shutdown, clock};

use crate::desk::Desk;

const PERIOD: Duration = Duration::from_secs(1);

/// Runs until the process yields.
pub(crate) async fn run(desk: Arc<Desk>, shutdown: Shutdown) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(PERIOD) => once(&desk),
            () = shutdown.reached(Phase::Yielded) => return,
        }
    }
}

fn once(desk: &Desk) {
    let mut rib = desk.rib();
    if !rib.is_dirty() {
        return;
    }
    let before = clock::now().mono_ns;
    let changed = rib.commit();
    let micros = clock::now().mono_ns.saturating_sub(before) / 1000;
    let metrics = &desk.metrics;
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    metrics.gauge(&metric::COMMIT_MICROSECONDS, &[]).set(number(micros));
    metrics.gauge(&metric::ATTRIBUTE_SETS, &[]).set(number(rib.attribute_sets() as u64));
    for (view, name) in rib.views() {
        for (family, count) in Family::ALL.iter().zip(rib.view_counts(view)) {
            let gauge = metrics.gauge(&metric::VIEW_ROUTES, &[name, &family.to_string()]);
            gauge.set(count.into());
        }
        metrics.gauge(&metric::VIEW_VERSION, &[name]).set(number(rib.version(view)));
    }
    drop(rib);
    if changed {
        desk.tell();
    }
}
