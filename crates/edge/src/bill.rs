//! The sponsor's bill: what the node has sent and received this month, and what it may send now.
//!
//! Each second a look: the bytes since the last one go into the month ([`month`]), which says what the
//! terms of the node allow; that becomes the rate of a shaper that all responses share, and of what is
//! read of sources. Each sample, and at the end, the month is written down ([`file`]). It needs nobody
//! else: the terms are in the last node map, the bytes are counted here or by the kernel ([`meter`]).
//!
//! The month goes to a successor when the process yields; from then on nothing is written here, and the
//! last terms hold on.

mod file;
mod meter;
mod month;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::time::utc;
use model::{Now, Rate};
use nodemap::Bill as Terms;
use rt::metrics::{Gauge, edge as metric};
use rt::{Metrics, clock};
use serde_json::{Value, json};
use serve::pace::{Pace, Shaper};

use crate::state::Edge;
use file::Keep;
use meter::Meter;
use month::{Allowed, Month, Sample, Standing, Used};

/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The commit counts as spent for so many looks after somebody last waited for what is left of it: those
/// who are sent on wait no more, and must not be the reason that the next ones stay.
const SPENT_LOOKS: u32 = 60;

/// The bill of this node.
#[derive(Debug)]
pub(crate) struct Bill {
    state: Mutex<State>,
    /// What all responses share while there are terms that may limit them.
    sending: Shaper,
    has_terms: AtomicBool,
    /// Looks for which the commit still counts as spent.
    spent_looks: AtomicU32,
    shown: Shown,
}

#[derive(Debug)]
struct State {
    terms: Option<Terms>,
    month: Month,
    standing: Standing,
    /// In the last second.
    last: Sample,
    meter: Meter,
    keep: Keep,
    /// The sample in which it was written last.
    written: usize,
    /// A successor has it.
    is_handed_over: bool,
}

impl Bill {
    /// The bill as it was left. Blocks. `interface`: whose counters are asked.
    pub(crate) fn open(state_dir: &Path, interface: Option<&str>, metrics: &Metrics) -> Self {
        let now_s = clock::now().wall_s();
        let keep = Keep::of(state_dir);
        let mut month = keep.read().unwrap_or_else(|| Month::beginning(now_s));
        month.turn(now_s);
        let state = State {
            terms: None,
            written: month.slot(now_s),
            month,
            standing: Standing { used: Used::Flat, allowed: None },
            last: Sample::default(),
            meter: Meter::new(interface),
            keep,
            is_handed_over: false,
        };
        let sending = Shaper::new(Rate(0));
        sending.lift();
        Self {
            state: Mutex::new(state),
            sending,
            has_terms: AtomicBool::new(false),
            spent_looks: AtomicU32::new(0),
            shown: Shown::new(metrics),
        }
    }

    /// What the node map says now.
    pub(crate) fn adopt(&self, terms: Option<Terms>) {
        let may_limit = matches!(terms, Some(Terms::P95(_) | Terms::Monthly(_)));
        self.state().terms = terms;
        self.has_terms.store(may_limit, Relaxed);
    }

    /// The commit is used up, and clients wait for what is left of it or did within the last minute.
    pub(crate) fn is_spent(&self) -> bool {
        self.spent_looks.load(Relaxed) > 0
    }

    /// What a response is paced by.
    pub(crate) fn pace(&self, pace: &mut Pace) {
        if self.has_terms.load(Relaxed) {
            pace.add(&self.sending);
        }
    }

    /// Counts what came since the last look; gives what may be sent, and be read of sources. `received`
    /// and `sent`: what the edge has, in all. Blocks now and then.
    fn look(&self, received: u64, sent: u64, now: Now) -> Option<Allowed> {
        let mut state = self.state();
        let now_s = now.wall_s();
        let (more, is_blind) = state.meter.look(received, sent);
        if is_blind {
            self.shown.blind.inc();
        }
        state.last = more;
        state.month.add(more, now_s);
        let terms = state.terms.unwrap_or(Terms::Flat);
        state.standing = state.month.standing(terms, now_s);
        let allowed = state.standing.allowed;
        match allowed {
            Some(allowed) => self.sending.set_rate(allowed.sent),
            None => self.sending.lift(),
        }
        let waits = self.sending.shaped().waiting > 0;
        let before = self.spent_looks.load(Relaxed);
        self.spent_looks.store(spent_looks(before, allowed.is_some(), waits), Relaxed);
        let slot = state.month.slot(now_s);
        if slot != state.written {
            self.shown.p95.set(gauge(state.month.p95(now_s).0));
            state.written = slot;
            if let Err(error) = state.write() {
                tracing::error!(%error, "what the month has used cannot be written down");
            }
        }
        self.shown.show(&state);
        allowed
    }

    /// Writes the month down, and never again.
    pub(crate) fn close(&self) -> io::Result<()> {
        let mut state = self.state();
        let written = state.write();
        state.is_handed_over = true;
        written
    }

    /// `/status`.
    pub(crate) fn status(&self) -> Value {
        let state = self.state();
        let Standing { used, allowed } = state.standing;
        let (spent, free, bytes) = match used {
            Used::Flat => (None, None, None),
            Used::Samples { spent, free } => (Some(spent), Some(free), None),
            Used::Bytes(bytes) => (None, None, Some(bytes)),
        };
        json!({
            "billing": state.terms.map(Terms::word),
            "commit": state.terms.and_then(Terms::commit),
            "month_since": utc(state.month.known_from_s().saturating_mul(1000)),
            "p95_bits_per_second": state.month.p95(clock::now().wall_s()).0,
            "samples_spent": spent,
            "samples_free": free,
            "used_bytes": bytes,
            "allowed_bits_per_second": allowed.map(|allowed| allowed.sent.0),
            "waiting": self.sending.shaped().waiting,
            "spent": self.is_spent(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn write(&self) -> io::Result<()> {
        if self.is_handed_over { Ok(()) } else { self.keep.write(&self.month) }
    }
}

/// For how many looks more the commit counts as spent.
fn spent_looks(before: u32, is_limited: bool, waits: bool) -> u32 {
    match (is_limited, waits) {
        (false, _) => 0,
        (true, true) => SPENT_LOOKS,
        (true, false) => before.saturating_sub(1),
    }
}

/// Looks each second, to the end of the edge.
pub(crate) async fn watch(edge: Arc<Edge>) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let edge = Arc::clone(&edge);
        let look = move || {
            let intake = &edge.upstream.intake;
            let allowed = edge.bill.look(intake.booked(), edge.counters.sent.get(), clock::now());
            intake.set_rate(allowed.map(|allowed| allowed.received));
            edge.caps.show();
        };
        if tokio::task::spawn_blocking(look).await.is_err() {
            tracing::warn!("a look at the bill was interrupted");
        }
    }
}

/// The bill as metrics.
#[derive(Debug)]
struct Shown {
    /// Received and sent.
    rates: [Gauge; 2],
    p95: Gauge,
    spent: Gauge,
    free: Gauge,
    used: Gauge,
    is_limited: Gauge,
    allowed: Gauge,
    blind: rt::metrics::Counter,
}

impl Shown {
    fn new(metrics: &Metrics) -> Self {
        Self {
            rates: ["received", "sent"].map(|way| metrics.gauge(&metric::BILL_RATE, &[way])),
            p95: metrics.gauge(&metric::BILL_P95, &[]),
            spent: metrics.gauge(&metric::BILL_SPENT, &[]),
            free: metrics.gauge(&metric::BILL_FREE, &[]),
            used: metrics.gauge(&metric::BILL_USED, &[]),
            is_limited: metrics.gauge(&metric::BILL_LIMITED, &[]),
            allowed: metrics.gauge(&metric::BILL_ALLOWED, &[]),
            blind: metrics.counter(&metric::BILL_BLIND, &[]),
        }
    }

    fn show(&self, state: &State) {
        let [received, sent] = &self.rates;
        received.set(gauge(state.last.received.saturating_mul(8)));
        sent.set(gauge(state.last.sent.saturating_mul(8)));
        let (spent, free, used) = match state.standing.used {
            Used::Flat => (0, 0, 0),
            Used::Samples { spent, free } => (spent, free, 0),
            Used::Bytes(bytes) => (0, 0, bytes),
        };
        self.spent.set(gauge(spent));
        self.free.set(gauge(free));
        self.used.set(gauge(used));
        self.is_limited.set(i64::from(state.standing.allowed.is_some()));
        self.allowed.set(gauge(state.standing.allowed.map_or(0, |allowed| allowed.sent.0)));
    }
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "these are tests")]
mod tests {
    use super::*;

    const MBIT: u64 = 1_000_000;

    fn at(slot: u64, second: u64) -> Now {
        let start_s = 1_793_491_200; // 2026-11-01
        let wall_s = start_s + slot * month::SAMPLE_S + second;
        Now { mono_ns: 0, wall_ms: wall_s * 1000 }
    }

    fn open(folder: &Path) -> Bill {
        let bill = Bill::open(folder, None, &Metrics::new());
        // The clock of the machine is not that of the tests.
        bill.state().month = Month::beginning(at(0, 0).wall_s());
        bill
    }

    #[test]
    fn who_is_sent_on_does_not_end_the_sending_on() {
        let mut looks = spent_looks(0, true, false);
        assert_eq!(looks, 0, "nobody waits for what is left");
        looks = spent_looks(looks, true, true);
        for _ in 1..SPENT_LOOKS {
            looks = spent_looks(looks, true, false);
            assert!(looks > 0, "all of them went elsewhere");
        }
        assert_eq!(spent_looks(looks, true, false), 0, "a minute later it is tried again");
        assert_eq!(spent_looks(looks, false, true), 0, "the terms allow it again");
    }

    #[test]
    fn the_terms_limit_and_the_month_outlives_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let bill = open(folder.path());
        let mut pace = Pace::default();
        bill.pace(&mut pace);
        assert!(pace.is_empty(), "no terms");
        assert_eq!(bill.look(0, 0, at(0, 1)), None);
        bill.adopt(Some(Terms::Monthly(model::ByteCount(1_000_000_000))));
        bill.pace(&mut pace);
        assert!(!pace.is_empty());
        assert_eq!(bill.look(0, 1_000_000, at(0, 2)), None, "a day's share is free");
        let rate = bill.look(900_000_000, 1_000_000, at(1, 2)).unwrap().sent;
        assert_eq!(
            rate,
            Rate(89_000_000 * 8 / (30 * 86_400 - 302) / 2),
            "the other half is to be read"
        );
        let shaped = bill.sending.shaped();
        assert_eq!((shaped.rate, shaped.waiting, bill.is_spent()), (Some(rate), 0, false));
        // A look in another sample has written it; what came after is written at the end.
        assert_eq!(bill.look(900_000_000, 1_000_010, at(1, 3)), bill.state().standing.allowed);
        let after_kill = Keep::of(folder.path()).read().unwrap();
        let sums = |month: &Month| month.samples.iter().map(|s| s.received + s.sent).sum::<u64>();
        assert_eq!(sums(&after_kill), 901_000_000);
        bill.close().unwrap();
        assert_eq!(sums(&Keep::of(folder.path()).read().unwrap()), 901_000_010);
        bill.look(0, 2_000_000, at(9, 0));
        assert_eq!(sums(&Keep::of(folder.path()).read().unwrap()), 901_000_010, "a successor's");
        bill.adopt(Some(Terms::P95(Rate(MBIT))));
        assert_eq!(bill.look(0, 2_000_000, at(9, 1)), None, "few samples were above it");
    }
}
