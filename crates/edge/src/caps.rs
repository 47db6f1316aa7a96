//! The caps of this node: what it sends at most to some of its clients (`[[node.NAME.cap]]`).
//!
//! A cap has a shaper as long as it is in the node map, whatever else changes there. A request finds
//! its caps once, when its answer is ready.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use http::Request;
use model::{Asn, CountryCode, Name};
use nodemap::Cap;
use rt::Metrics;
use rt::metrics::{Counter, Gauge, edge as metric};
use serde_json::{Value, json};
use serve::pace::{Pace, Shaper};

use crate::host::host_of;
use crate::state::Edge;
use crate::visitor::Visitor;

/// The caps in the order of the map.
#[derive(Debug)]
pub(crate) struct Caps {
    now: ArcSwap<Vec<Arc<Capped>>>,
    metrics: Metrics,
}

#[derive(Debug)]
struct Capped {
    cap: Cap,
    shaper: Shaper,
    /// What of its bytes the metrics have.
    shown_bytes: AtomicU64,
}

impl Caps {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        Self { now: ArcSwap::default(), metrics: metrics.clone() }
    }

    /// Takes over what the node map says. A cap for the same clients goes on with its shaper.
    pub(crate) fn adopt(&self, caps: &[Cap]) {
        let before = self.now.load();
        let adopt = |cap: &Cap| {
            let known = before.iter().find(|known| known.cap.is_for_same(cap));
            let shaper = known.map_or_else(|| Shaper::new(cap.rate), |known| known.shaper.clone());
            shaper.set_rate(cap.rate);
            let shown_bytes = known.map_or(0, |known| known.shown_bytes.load(Relaxed));
            Arc::new(Capped { cap: cap.clone(), shaper, shown_bytes: shown_bytes.into() })
        };
        let adopted: Vec<_> = caps.iter().map(adopt).collect();
        for gone in adopted.len()..before.len() {
            let (rate, waiting, _) = self.shown(gone);
            rate.set(0);
            waiting.set(0);
        }
        self.now.store(Arc::new(adopted));
    }

    fn are_none(&self) -> bool {
        self.now.load().is_empty()
    }

    /// What a response of a project to such a client is paced by; whether it is anything.
    fn pace(
        &self,
        project: &Name,
        asn: Option<Asn>,
        country: Option<CountryCode>,
        pace: &mut Pace,
    ) -> bool {
        let now = self.now.load();
        let mut holding = now.iter().filter(|c| c.cap.holds_for(project, asn, country)).peekable();
        let has_cap = holding.peek().is_some();
        holding.for_each(|capped| pace.add(&capped.shaper));
        has_cap
    }

    /// Brings the metrics up to date.
    pub(crate) fn show(&self) {
        for (at, capped) in self.now.load().iter().enumerate() {
            let shaped = capped.shaper.shaped();
            let (rate, waiting, bytes) = self.shown(at);
            rate.set(i64::try_from(shaped.rate.map_or(0, |rate| rate.0)).unwrap_or(i64::MAX));
            waiting.set(i64::try_from(shaped.waiting).unwrap_or(i64::MAX));
            let before = capped.shown_bytes.fetch_max(shaped.granted_bytes, Relaxed);
            bytes.inc_by(shaped.granted_bytes.saturating_sub(before));
        }
    }

    /// By its number in the map, from 1 on.
    fn shown(&self, at: usize) -> (Gauge, Gauge, Counter) {
        let number = at.saturating_add(1).to_string();
        let labels = [number.as_str()];
        (
            self.metrics.gauge(&metric::CAP_RATE, &labels),
            self.metrics.gauge(&metric::CAP_WAITING, &labels),
            self.metrics.counter(&metric::CAP_BYTES, &labels),
        )
    }

    /// `/status`.
    pub(crate) fn status(&self) -> Value {
        let show = |capped: &Arc<Capped>| {
            let shaped = capped.shaper.shaped();
            json!({
                "for": capped.cap.name(),
                "rate": capped.cap.rate.to_string(),
                "waiting": shaped.waiting,
                "granted_bytes": shaped.granted_bytes,
            })
        };
        self.now.load().iter().map(show).collect()
    }
}

impl Edge {
    /// What the response to a request is paced by, the bill and the caps that hold for it, and the
    /// word for that.
    pub(crate) fn pace_of<T>(
        &self,
        request: &Request<T>,
        visitor: &Visitor,
    ) -> (Pace, &'static str) {
        let mut pace = Pace::default();
        self.bill.pace(&mut pace);
        let is_paced_by_bill = !pace.is_empty() && self.bill.is_spent();
        let mut has_cap = false;
        if !self.caps.are_none() {
            let host = host_of(request.version(), request.uri(), request.headers());
            let projects = self.projects.load();
            if let Some(project) = host.and_then(|host| projects.of_host(host)) {
                has_cap = self.caps.pace(&project.name, visitor.asn, visitor.country, &mut pace);
            }
        }
        let word = if is_paced_by_bill { "bill" } else { "paced" };
        (pace, if is_paced_by_bill || has_cap { word } else { "" })
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "these are tests")]
mod tests {
    use model::Rate;

    use super::*;

    fn cap(rate: u64, projects: &[&str], asns: &[&str]) -> Cap {
        Cap {
            rate: Rate(rate),
            projects: projects.iter().map(|name| name.parse().unwrap()).collect(),
            asns: asns.iter().map(|asn| asn.parse().unwrap()).collect(),
            countries: Vec::new(),
        }
    }

    #[test]
    fn a_request_has_the_caps_that_hold_for_it_and_they_outlive_a_new_map() {
        let caps = Caps::new(&Metrics::new());
        caps.adopt(&[cap(1_000_000, &["x"], &[]), cap(2_000_000, &[], &["AS7545"])]);
        let paces = |project: &str, asn: &str| {
            let mut pace = Pace::default();
            caps.pace(&project.parse().unwrap(), asn.parse().ok(), None, &mut pace);
            !pace.is_empty()
        };
        assert!(paces("x", "") && paces("y", "7545") && !paces("y", "1") && !paces("y", ""));
        let shaper = caps.now.load()[1].shaper.clone();
        caps.adopt(&[cap(5_000_000, &[], &["AS7545"])]);
        assert!(!paces("x", ""), "its cap is gone");
        assert_eq!(shaper.shaped().rate, Some(Rate(5_000_000)), "the same shaper, another rate");
        let shown = caps.status();
        assert_eq!((&shown[0]["for"], &shown[0]["rate"]), (&json!("AS7545"), &json!("5 Mbit/s")));
    }
}
