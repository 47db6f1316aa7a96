//! What one client, or one network, may take: requests answered at once ([`turns`]) and full copies of
//! one object a day ([`copies`]). Both are off unless the config turns them on: whole networks sit
//! behind one address.

pub(crate) mod copies;
pub(crate) mod turns;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http_body::Body as _;
use ipnet::IpNet;
use model::{Now, Rate};
use rt::metrics::{Counter, edge as metric};
use rt::{Metrics, clock};
use serve::pace::{Pace, Shaper};
use store::Key;

use crate::access::Answered;
use crate::params::LimitParams;
use crate::refusal::Refusal;
use copies::{COUNTED_BYTES_MIN, Copies, Pair, network};
use turns::{Turn, Turns};

/// After so many times the copies that are free a network is refused.
const REFUSED_FACTOR: u64 = 2;

/// Who has turns and copies.
#[derive(Debug)]
pub(crate) struct Guard {
    exempt: Vec<IpNet>,
    turns: Option<Arc<Turns>>,
    repeats: Option<Arc<Repeats>>,
    waited: Counter,
}

/// Networks that have one object again and again.
#[derive(Debug)]
struct Repeats {
    copies: Copies,
    /// Copies of a day that are free.
    free: u64,
    rate: Rate,
    /// What paces the networks of which something is paced now, and how many responses that is.
    shapers: Mutex<HashMap<u64, (Shaper, usize)>>,
    paced: Counter,
    forgotten: Counter,
}

/// The length of the object that a response is of, where it is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole(pub(crate) u64);

/// Part of a copy on its way to a client. What was not [delivered](Self::note_delivered) when it is
/// dropped does not count.
#[derive(Debug)]
pub(crate) struct Copying {
    repeats: Arc<Repeats>,
    pair: Pair,
    length: u64,
    /// Bytes that were to be delivered and are not.
    left: u64,
    then: Now,
    /// The network that is paced.
    paced: Option<u64>,
}

impl Guard {
    pub(crate) fn new(params: &LimitParams, metrics: &Metrics) -> Self {
        let repeats = |free: u32| {
            Arc::new(Repeats {
                copies: Copies::new(clock::dice().below(u64::MAX)),
                free: free.into(),
                rate: params.copies_rate,
                shapers: Mutex::default(),
                paced: metrics.counter(&metric::REPEATS_PACED, &[]),
                forgotten: metrics.counter(&metric::REPEATS_FORGOTTEN, &[]),
            })
        };
        Self {
            exempt: params.exempt.clone(),
            turns: params.requests_per_client.map(|at_once| Arc::new(Turns::new(at_once))),
            repeats: params.copies_per_day.map(repeats),
            waited: metrics.counter(&metric::CLIENTS_WAITED, &[]),
        }
    }

    fn is_exempt(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.exempt.iter().any(|prefix| prefix.contains(&address))
    }

    /// A turn for a request of this address; `None` when none is needed.
    ///
    /// # Errors
    /// When too many of its client wait, or it waited too long.
    pub(crate) async fn turn(&self, address: IpAddr) -> Result<Option<Box<Turn>>, Refusal> {
        match &self.turns {
            Some(turns) if !self.is_exempt(address) => {
                let turn = turns.take(address, || self.waited.inc()).await;
                turn.map(|turn| Some(Box::new(turn))).ok_or(Refusal::TooMany)
            }
            _ => Ok(None),
        }
    }

    /// Whether the network of this address may have the object once more.
    ///
    /// # Errors
    /// When it has had it too often today.
    pub(crate) fn may_have(&self, object: &Key, address: IpAddr) -> Result<(), Refusal> {
        match &self.repeats {
            Some(repeats) if !self.is_exempt(address) => {
                let pair = repeats.copies.pair(object, address);
                let had = repeats.copies.had(pair, clock::now());
                let is_too_much = had >= repeats.free.saturating_mul(REFUSED_FACTOR);
                if is_too_much { Err(Refusal::Repeat) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    /// Whether copies of an object of this length are counted.
    pub(crate) fn counts_copies_of(&self, length: u64) -> bool {
        self.counts_copies() && length >= COUNTED_BYTES_MIN
    }

    /// Whether copies are counted at all.
    pub(crate) fn counts_copies(&self) -> bool {
        self.repeats.is_some()
    }

    /// Whether requests need turns.
    pub(crate) fn has_turns(&self) -> bool {
        self.turns.is_some()
    }

    /// An answer with what is at this key goes to this address: what it brings is counted, and it is
    /// paced when the network had the object often today.
    pub(crate) fn count(&self, object: &Key, address: IpAddr, mut answered: Answered) -> Answered {
        let whole = answered.response.extensions_mut().remove::<Whole>();
        let bytes = answered.response.body().size_hint().exact().filter(|bytes| *bytes > 0);
        let (Some(repeats), Some(Whole(length)), Some(bytes)) = (&self.repeats, whole, bytes)
        else {
            return answered;
        };
        if self.is_exempt(address) {
            return answered;
        }
        let (then, pair) = (clock::now(), repeats.copies.pair(object, address));
        let counted = repeats.copies.add(pair, length, bytes, then);
        if counted.displaced {
            repeats.forgotten.inc();
        }
        let paced = (counted.copies >= repeats.free).then(|| network(address));
        if let Some(network) = paced {
            repeats.paced.inc();
            let mut pace = Pace::default();
            pace.add(&repeats.shaper(network));
            answered.response = answered.response.map(|body| body.paced(pace));
            answered.limit = Refusal::Repeat.as_str();
        }
        let repeats = Arc::clone(repeats);
        let copying = Copying { repeats, pair, length, left: bytes, then, paced };
        answered.copy = Some(Box::new(copying));
        answered
    }

    /// `/status`.
    pub(crate) fn status(&self) -> serde_json::Value {
        serde_json::json!({
            "exempt": self.exempt,
            "clients": self.turns.as_ref().map(|turns| turns.clients()),
            "waited": self.waited.get(),
            "copies_per_day": self.repeats.as_ref().map(|repeats| repeats.free),
            "paced": self.repeats.as_ref().map(|repeats| repeats.paced.get()),
            "networks_paced": self.repeats.as_ref().map(|repeats| repeats.shapers().len()),
        })
    }
}

impl Repeats {
    fn shapers(&self) -> MutexGuard<'_, HashMap<u64, (Shaper, usize)>> {
        self.shapers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What all paced responses to a network share, until [`Self::let_go`] as often.
    fn shaper(&self, network: u64) -> Shaper {
        let mut shapers = self.shapers();
        let (shaper, users) = shapers.entry(network).or_insert_with(|| (Shaper::new(self.rate), 0));
        *users = users.saturating_add(1);
        shaper.clone()
    }

    fn let_go(&self, network: u64) {
        let mut shapers = self.shapers();
        if let Some((_, users)) = shapers.get_mut(&network) {
            *users = users.saturating_sub(1);
            if *users == 0 {
                shapers.remove(&network);
            }
        }
    }
}

impl Copying {
    /// So many bytes have left.
    pub(crate) fn note_delivered(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        self.repeats.copies.give_back(self.pair, self.length, self.left, self.then);
        if let Some(network) = self.paced {
            self.repeats.let_go(network);
        }
    }
}
