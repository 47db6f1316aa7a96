//! The one loop that feeds the checker machine and does what it asks: sends probes, publishes maps.

use std::future;
use std::sync::Arc;
use std::time::Duration;

use health_proto::generation::Disbelieved;
use health_proto::{Checker, Probe, ProbeResult};
use model::time::utc;
use model::{Family, Name, NodeState};
use nodemap::NodeMap;
use nodemap::signature::SecretKey;
use rt::metrics::{Gauge, health as metric};
use rt::{Context, Metrics, Phase, Shutdown, clock};
use tokio::task::JoinSet;

use crate::desk::{Desk, Published};
use crate::events::EventLog;
use crate::keep::Keeper;
use crate::probe::Prober;

/// Runs the machine.
pub(crate) struct Driver {
    desk: Arc<Desk>,
    prober: Arc<Prober>,
    keeper: Keeper,
    probes: JoinSet<(Probe, ProbeResult)>,
    metrics: Metrics,
    running: Gauge,
    holding: Gauge,
    /// The last map, to log what changed.
    last: Option<NodeMap>,
    key: Option<Arc<SecretKey>>,
    events: EventLog,
}

impl Driver {
    pub(crate) fn new(
        desk: Arc<Desk>,
        prober: Arc<Prober>,
        keeper: Keeper,
        first: Option<NodeMap>,
        key: Option<Arc<SecretKey>>,
        events: EventLog,
        context: &Context,
    ) -> Self {
        Self {
            desk,
            prober,
            keeper,
            probes: JoinSet::new(),
            running: context.metrics.gauge(&metric::PROBES_RUNNING, &[]),
            holding: context.metrics.gauge(&metric::HOLDING, &[]),
            metrics: context.metrics.clone(),
            last: first,
            key,
            events,
        }
    }

    /// Runs until nothing is published any more; probes under way are dropped then.
    pub(crate) async fn run(mut self, shutdown: &Shutdown) {
        loop {
            let pause = self.act().await;
            tokio::select! {
                Some(ended) = self.probes.join_next() => {
                    // A probe task neither panics nor is aborted while the loop runs.
                    if let Ok((probe, result)) = ended {
                        self.take_result(&probe, result);
                    }
                }
                () = self.desk.told.notified() => {}
                () = wait(pause) => {}
                () = shutdown.reached(Phase::Yielded) => return,
            }
        }
    }

    /// Does all that is due. Gives how long nothing more will be, unless something happens.
    async fn act(&mut self) -> Option<Duration> {
        let now = clock::now();
        let (due, map, (events, lost)) = {
            let mut checker = self.desk.checker();
            let (due, map) = (checker.poll_due(now), checker.poll_publish(now));
            log_disbelieved(&mut checker);
            (due, map, checker.take_events())
        };
        if lost > 0 {
            tracing::error!(lost, "more events at once than are kept");
        }
        self.events.write(events);
        for probe in due {
            let prober = self.prober.clone();
            self.probes.spawn(async move {
                let result = prober.probe(&probe).await;
                (probe, result)
            });
        }
        self.running.set(i64::try_from(self.probes.len()).unwrap_or(i64::MAX));
        if let Some(map) = map {
            log_changes(self.last.as_ref(), &map);
            let published = Published::of(&map, self.last.as_ref(), self.key.as_deref());
            self.last = Some(map);
            self.keeper.keep(published.clone()).await;
            self.desk.publish(published);
        }
        let next_ns = self.desk.checker().poll_timeout()?;
        Some(Duration::from_nanos(next_ns.saturating_sub(clock::now().mono_ns)))
    }

    fn take_result(&mut self, probe: &Probe, result: ProbeResult) {
        let word = result.as_ref().map_or_else(|failed| failed.failure.word(), |_| "passed");
        self.metrics.counter(&metric::PROBES, &[word]).inc();
        if let Err(failed) = &result {
            tracing::debug!(target = %probe.target, failure = %failed, "probe failed");
        }
        let mut checker = self.desk.checker();
        checker.handle_result(clock::now(), probe.id, result);
        self.holding.set(i64::from(checker.is_holding()));
    }
}

/// Says when generations ran ahead of the clock and are given up.
pub(crate) fn log_disbelieved(checker: &mut Checker) {
    if let Some(Disbelieved { generation, clock_ms }) = checker.take_disbelieved() {
        tracing::error!(
            generation,
            of = utc(generation),
            clock = utc(clock_ms),
            "the last node map is from more than a day after what this host's clock says, so readers \
             refused it: going on from the clock; check the clock, and which readers /status shows \
             as ahead"
        );
    }
}

async fn wait(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => future::pending().await,
    }
}

/// One line for each node and family whose state is another than before.
fn log_changes(last: Option<&NodeMap>, map: &NodeMap) {
    let generation = map.generation;
    for (node, family, new) in states(map) {
        let old = last.and_then(|last| last.states.get(node)).and_then(|s| s.get(family));
        if old.is_none_or(|old| old.state != new.state) {
            let was = old.map_or_else(|| "new".to_owned(), |old| old.state.to_string());
            let (state, reason) = (new.state, &new.reason);
            tracing::info!(%node, %family, was, %state, reason, generation, "state changed");
        }
    }
}

fn states(map: &NodeMap) -> impl Iterator<Item = (&Name, Family, &NodeState)> {
    map.states.iter().flat_map(|(node, states)| {
        Family::ALL
            .into_iter()
            .filter_map(move |family| states.get(family).map(|state| (node, family, state)))
    })
}
