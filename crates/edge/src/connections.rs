//! What the connections of clients did, as metrics and in `/status`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rt::metrics::{Counter, Gauge, Metric, Metrics, edge as metric};
use serde_json::{Map, Value};
use serve::{Counters as Connections, Goaway, Shed};

use crate::counters::raise;

/// Gives one of the totals.
type Total = fn(&Connections) -> &AtomicU64;

/// What is counted: its metric, its word in `/status`, and where the count is.
const COUNTED: [(&Metric, &str, Total); 16] = [
    (&metric::ACCEPTED, "accepted", |c| &c.accepted),
    (&metric::CONNECTIONS_FULL, "full", |c| &c.full),
    (&metric::BROKEN_OFF, "broken_off", |c| &c.broken_off),
    (&metric::MALFORMED, "malformed", |c| &c.malformed),
    (&metric::TIMEOUTS, "timed_out", |c| &c.timeouts),
    (&metric::STALLED, "stalled", |c| &c.stalled),
    (&metric::CUT, "cut", |c| &c.cut),
    (&metric::H2_CONNECTIONS, "http2_connections", |c| &c.h2_connections),
    (&metric::H2_REQUESTS, "http2_requests", |c| &c.h2_requests),
    (&metric::H2_RESETS, "http2_resets", |c| &c.h2_resets),
    (&metric::H3_CONNECTIONS, "http3_connections", |c| &c.h3_connections),
    (&metric::H3_REQUESTS, "http3_requests", |c| &c.h3_requests),
    (&metric::H3_RESETS, "http3_resets", |c| &c.h3_resets),
    (&metric::H3_RETRIES, "http3_retries", |c| &c.h3_retries),
    (&metric::H3_REFUSED, "http3_refused", |c| &c.h3_refused),
    (&metric::H3_HANDSHAKES_FAILED, "http3_handshakes_failed", |c| &c.h3_handshakes_failed),
];

/// The metrics, raised to the totals now and then.
pub(crate) struct ConnectionMetrics {
    open: Gauge,
    counters: Vec<(Counter, Total)>,
    goaways: [(Counter, Goaway); Goaway::ALL.len()],
    shed: [(Counter, Shed); Shed::ALL.len()],
}

impl ConnectionMetrics {
    pub(crate) fn new(metrics: &Metrics, connections_max: usize) -> Self {
        let most = metrics.gauge(&metric::CONNECTIONS_MAX, &[]);
        most.set(i64::try_from(connections_max).unwrap_or(i64::MAX));
        let counter = |(metric, _, total)| (metrics.counter(metric, &[]), total);
        Self {
            open: metrics.gauge(&metric::CONNECTIONS, &[]),
            counters: COUNTED.into_iter().map(counter).collect(),
            goaways: Goaway::ALL
                .map(|why| (metrics.counter(&metric::H2_GOAWAYS, &[why.word()]), why)),
            shed: Shed::ALL.map(|why| (metrics.counter(&metric::SHED, &[why.word()]), why)),
        }
    }

    pub(crate) fn show(&self, connections: &Connections) {
        let open = connections.open.load(Relaxed);
        self.open.set(i64::try_from(open).unwrap_or(i64::MAX));
        for (counter, total) in &self.counters {
            raise(counter, total(connections).load(Relaxed));
        }
        for (counter, why) in &self.goaways {
            raise(counter, connections.goaways(*why));
        }
        for (counter, why) in &self.shed {
            raise(counter, connections.shed(*why));
        }
    }
}

/// The same for `/status`.
pub(crate) fn status(connections: &Connections) -> Value {
    let counted = COUNTED.iter().map(|(_, word, total)| (*word, total(connections).load(Relaxed)));
    let mut all: Map<String, Value> =
        counted.map(|(word, count)| (word.to_owned(), count.into())).collect();
    let goaways = Goaway::ALL.map(|why| (why.word().to_owned(), connections.goaways(why).into()));
    all.insert("http2_goaways".to_owned(), goaways.into_iter().collect::<Map<_, _>>().into());
    let shed = Shed::ALL.map(|why| (why.word().to_owned(), connections.shed(why).into()));
    all.insert("shed".to_owned(), shed.into_iter().collect::<Map<_, _>>().into());
    all.into()
}
