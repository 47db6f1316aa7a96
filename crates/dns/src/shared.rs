//! What all parts of the role share: the snapshot, and what `/status` shows beside it.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use dns_proto::dnssec::Keyring;
use dns_proto::{Desk, Led, LeftOut, Limited, Manners, Snapshot, Why};
use locate::Locator;
use model::Name;
use model::time::utc;
use nodemap::Finding;
use rt::metrics::{Gauge, dns as metric};
use rt::steering::{self, Watched};
use rt::{Context, Metrics, Phase, Shutdown};
use serde_json::{Value, json};
use steer::DecidedBy;

use crate::cookies::Cookies;
use crate::keys::Signing;
use crate::meters::Meters;
use crate::params::LogParams;
use crate::proxy::Proxies;
use crate::query_log::{QueryLog, Writer};
use crate::scribe::Scribe;

/// Findings, and record sets left out, that `/status` shows.
const SHOWN_MAX: usize = 20;

pub(crate) struct Shared {
    published: ArcSwap<Published>,
    metrics: Metrics,
    /// As desks begin; the cookies' keys change later.
    manners: Manners,
    cookies: Option<Cookies>,
    proxies: Proxies,
    /// `None`: queries are not logged.
    log: Option<Arc<QueryLog>>,
    zones: ArcSwap<ZonesShown>,
    zones_refused: Gauge,
    /// By number of the reason.
    left_out: [Gauge; Why::ALL.len()],
    names: Gauge,
    generation: Gauge,
    classes: Gauge,
    /// `None`: no zone is signed.
    pub(crate) signing: Option<Signing>,
    keyring: Arc<Keyring>,
    unserved: Gauge,
}

/// What answers come from, and what counts them.
pub(crate) struct Published {
    pub(crate) snapshot: Snapshot,
    pub(crate) meters: Meters,
    /// What numbers in outcomes stand for; empty without a log.
    pub(crate) names: Names,
    /// The one that the class table of the snapshot was compiled from; `None` before there is a map.
    pub(crate) locator: Option<Arc<Locator>>,
}

/// Names in the order of the node map's tables.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) projects: Vec<Name>,
    pub(crate) pools: Vec<Name>,
    pub(crate) nodes: Vec<Name>,
}

impl Names {
    fn of(snapshot: &Snapshot) -> Self {
        let Some(steering) = snapshot.steering() else { return Self::default() };
        let map = &steering.map().map;
        Self {
            projects: map.projects.keys().cloned().collect(),
            pools: map.pools.keys().cloned().collect(),
            nodes: map.nodes.keys().cloned().collect(),
        }
    }
}

impl Published {
    /// Which entry of the map decided for an answer.
    pub(crate) fn evidence(&self, led: &Led) -> Option<DecidedBy> {
        let locator = self.locator.as_deref()?;
        self.snapshot.steering()?.decided_by(led.project, led.client, locator)
    }
}

impl Shared {
    pub(crate) fn new(
        manners: Manners,
        cookies: Option<Cookies>,
        proxies: Proxies,
        signing: Option<Signing>,
        log: Option<LogParams>,
        context: &Context,
    ) -> Self {
        let metrics = &context.metrics;
        Self {
            published: ArcSwap::from_pointee(Published {
                snapshot: Snapshot::not_ready(),
                meters: Meters::default(),
                names: Names::default(),
                locator: None,
            }),
            log: log.map(|params| Arc::new(QueryLog::new(params, context))),
            metrics: metrics.clone(),
            zones: ArcSwap::default(),
            zones_refused: metrics.gauge(&metric::ZONE_FINDINGS, &[]),
            left_out: Why::ALL.map(|why| metrics.gauge(&metric::ZONE_SETS_LEFT_OUT, &[why.word()])),
            names: metrics.gauge(&metric::NAMES, &[]),
            manners,
            cookies,
            proxies,
            generation: metrics.gauge(&metric::SNAPSHOT_GENERATION, &[]),
            classes: metrics.gauge(&metric::CLASSES, &[]),
            unserved: metrics.gauge(&metric::SIGNED_ZONES_UNSERVED, &[]),
            keyring: signing.as_ref().map(|s| Arc::clone(&s.keyring)).unwrap_or_default(),
            signing,
        }
    }

    /// The keys of signed zones: always the same value, by which a snapshot knows that nothing
    /// changed.
    pub(crate) fn keyring(&self) -> Arc<Keyring> {
        Arc::clone(&self.keyring)
    }

    /// What to answer from. Let go of it after each batch: it keeps a replaced snapshot alive.
    pub(crate) fn published(&self) -> arc_swap::Guard<Arc<Published>> {
        self.published.load()
    }

    /// Who puts the PROXY header before what it sends.
    pub(crate) fn proxies(&self) -> &Proxies {
        &self.proxies
    }

    /// A desk for one thread or connection.
    pub(crate) fn desk(&self) -> Desk {
        let desk = Desk::new(rt::clock::dice(), self.manners.clone());
        match &self.signing {
            Some(signing) => desk.with_pen(signing.pen()),
            None => desk,
        }
    }

    /// Who notes what that thread or connection answers.
    pub(crate) fn scribe(&self) -> Scribe {
        Scribe::new(self.log.as_ref())
    }

    /// Begins to write the log of queries, if there is one.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start_log(&self) -> std::io::Result<Option<Writer>> {
        self.log.as_ref().map(QueryLog::start).transpose()
    }

    /// Brings the desk up to date, before each batch.
    pub(crate) fn freshen(&self, desk: &mut Desk) {
        desk.manners.cookies = self.cookies.as_ref().map(Cookies::keys);
    }

    /// Follows the secrets of cookies until shutdown.
    pub(crate) async fn keep_cookies(&self, shutdown: &Shutdown) {
        match &self.cookies {
            Some(cookies) => cookies.keep(shutdown).await,
            None => shutdown.reached(Phase::Draining).await,
        }
    }

    /// Answers come from `snapshot` from here on; its class table was compiled from `locator`. Needs a
    /// tokio runtime.
    pub(crate) fn publish(&self, snapshot: Snapshot, locator: Arc<Locator>) {
        self.generation.set(i64::try_from(snapshot.generation()).unwrap_or(i64::MAX));
        let classes = snapshot.steering().map_or(0, |steering| steering.table().classes());
        self.classes.set(i64::try_from(classes).unwrap_or(i64::MAX));
        self.names.set(i64::try_from(snapshot.names()).unwrap_or(i64::MAX));
        for (why, gauge) in Why::ALL.into_iter().zip(&self.left_out) {
            let count = snapshot.left_out().iter().filter(|set| set.why == why).count();
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        if !same_left_out(&self.published.load().snapshot, &snapshot) {
            for set in snapshot.left_out() {
                tracing::warn!(why = %set.why, "left out of a zone file: {}", set.finding());
            }
        }
        if let Some(signing) = &self.signing {
            self.show_unserved(signing, &snapshot);
        }
        let meters = Meters::of(&snapshot, &self.metrics);
        let names = self.log.as_ref().map(|_| Names::of(&snapshot)).unwrap_or_default();
        let published = Published { snapshot, meters, names, locator: Some(locator) };
        steering::retire(self.published.swap(Arc::new(published)));
    }

    /// Says which zones have keys and are not there, when that has changed: mostly one is misspelt, and
    /// the zone that was meant goes out unsigned.
    fn show_unserved(&self, signing: &Signing, snapshot: &Snapshot) {
        let unserved: Vec<_> = signing.unserved(snapshot).collect();
        self.unserved.set(i64::try_from(unserved.len()).unwrap_or(i64::MAX));
        let before = self.published.load();
        for zone in unserved {
            if before.snapshot.signs(zone) || before.snapshot.steering().is_none() {
                tracing::error!(%zone, "[[dns.sign]] has keys of a zone that is neither in the maps nor in a zone file: nothing is signed by them");
            }
        }
    }

    /// What `/status` says of the zone files from here on.
    pub(crate) fn show_zones(&self, zones: ZonesShown) {
        self.zones_refused.set(i64::try_from(zones.findings.len()).unwrap_or(i64::MAX));
        self.zones.store(Arc::new(zones));
    }

    /// For `/status`.
    pub(crate) fn status(
        &self,
        watched: &Watched,
        listen: &[SocketAddr],
        udp_threads: usize,
    ) -> Value {
        let published = self.published.load_full();
        let snapshot = &published.snapshot;
        let zones = self.zones.load();
        let table = snapshot.steering().map(|steering| steering.table());
        let (ranges_v4, ranges_v6) = table.map_or((0, 0), |table| table.ranges());
        json!({
            "ready": table.is_some(),
            "generation": snapshot.generation(),
            "zones": snapshot.zones(),
            "names": snapshot.names(),
            "names_bytes": snapshot.names_bytes(),
            "zone_files": zones.files,
            "zone_findings": shown(zones.findings.iter()),
            "left_out": shown(snapshot.left_out().iter().map(LeftOut::finding)),
            "classes": table.map_or(0, |table| table.classes()),
            "ranges": { "v4": ranges_v4, "v6": ranges_v6 },
            "table_bytes": table.map_or(0, |table| table.memory_bytes()),
            "limited": self.limited(),
            "log": self.log.as_ref().map(|log| log.status()),
            "cookie_secret_error": self.cookies.as_ref().and_then(Cookies::error),
            "databases": watched.databases(),
            "errors": watched.errors(),
            "signing": self.signing.as_ref().map(|signing| signing.status(snapshot)),
            "listen": listen,
            "udp_threads": udp_threads,
        })
    }

    /// The networks that were limited most.
    fn limited(&self) -> Vec<Value> {
        let top = self.manners.limiter.iter().flat_map(|limiter| limiter.top());
        let shown = |limited: Limited| {
            let last = utc(limited.last_ms);
            json!({ "network": limited.network, "answers": limited.answers, "last": last })
        };
        top.map(shown).collect()
    }
}

/// What there is to say of the zone files.
#[derive(Debug, Default)]
pub(crate) struct ZonesShown {
    /// Number of files in use.
    pub(crate) files: usize,
    /// Why newer content is not in use.
    pub(crate) findings: Vec<Finding>,
}

fn shown(what: impl Iterator<Item = impl ToString>) -> Vec<String> {
    what.take(SHOWN_MAX).map(|one| one.to_string()).collect()
}

fn same_left_out(old: &Snapshot, new: &Snapshot) -> bool {
    old.left_out() == new.left_out()
}
