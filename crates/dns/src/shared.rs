//! What all parts of the role share: the snapshot, and what `/status` shows beside it.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use dns_proto::Snapshot;
use rt::Context;
use rt::metrics::{Gauge, dns as metric};
use rt::steering::{self, Watched};
use serde_json::{Value, json};

pub(crate) struct Shared {
    snapshot: ArcSwap<Snapshot>,
    generation: Gauge,
    classes: Gauge,
}

impl Shared {
    pub(crate) fn new(context: &Context) -> Self {
        let metrics = &context.metrics;
        Self {
            snapshot: ArcSwap::from_pointee(Snapshot::not_ready()),
            generation: metrics.gauge(&metric::SNAPSHOT_GENERATION, &[]),
            classes: metrics.gauge(&metric::CLASSES, &[]),
        }
    }

    /// What to answer from. Let go of it after each batch: it keeps a replaced snapshot alive.
    pub(crate) fn snapshot(&self) -> arc_swap::Guard<Arc<Snapshot>> {
        self.snapshot.load()
    }

    /// Answers come from `snapshot` from here on. Needs a tokio runtime.
    pub(crate) fn publish(&self, snapshot: Snapshot) {
        self.generation.set(i64::try_from(snapshot.generation()).unwrap_or(i64::MAX));
        let classes = snapshot.steering().map_or(0, |steering| steering.table().classes());
        self.classes.set(i64::try_from(classes).unwrap_or(i64::MAX));
        steering::retire(self.snapshot.swap(Arc::new(snapshot)));
    }

    /// For `/status`.
    pub(crate) fn status(
        &self,
        watched: &Watched,
        listen: &[SocketAddr],
        udp_threads: usize,
    ) -> Value {
        let snapshot = self.snapshot.load_full();
        let table = snapshot.steering().map(|steering| steering.table());
        let (ranges_v4, ranges_v6) = table.map_or((0, 0), |table| table.ranges());
        json!({
            "ready": table.is_some(),
            "generation": snapshot.generation(),
            "zones": snapshot.zones(),
            "names": snapshot.names(),
            "classes": table.map_or(0, |table| table.classes()),
            "ranges": { "v4": ranges_v4, "v6": ranges_v6 },
            "table_bytes": table.map_or(0, |table| table.memory_bytes()),
            "databases": watched.databases(),
            "errors": watched.errors(),
            "listen": listen,
            "udp_threads": udp_threads,
        })
    }
}
