//! Certificates of projects with `tls = "acme"`: ordered here, once for every name (RFC 8555).
//!
//! `health_proto::acme` says which and when. One after the other: publish what hosts must answer the
//! authority, wait until they have it, order (`acme/order.rs`) over our own bounded requests
//! (`acme/http.rs`), keep the outcome (`acme/keep.rs`). Only the checker that publishes orders: nobody
//! else's node map says what hosts answer.
//!
//! Keys and the account are secrets: they are written to files that only this user may read, and stand
//! in no log, no error and no page.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use health_proto::acme::{Order, Orders, challenge_names, wanted};
use http::StatusCode;
use model::time::utc;
use model::{Dice, HostName, Name, Now};
use nodemap::Acme;
use rt::identity::{Identity, IdentityError};
use rt::listen::ListenError;
use rt::metrics::health as metric;
use rt::{Context, Metrics, Phase, Shutdown, clock};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::Error;
use crate::aside::aside;
use crate::desk::Desk;
use crate::probe::{CaError, Tls};

mod hand_out;
mod http_client;
mod keep;
mod order;

use hand_out::Giver;
pub use hand_out::HandOutParams;
use keep::Keep;
use order::{Desired, Failed, Issued, Registrar};

/// Longest time between two looks at what is wanted.
const LOOK: Duration = Duration::from_secs(60);
/// How long hosts are waited for that do not have what they are to answer yet.
const HOSTS_WAIT: Duration = Duration::from_secs(10);
/// Readers whose publisher was started anew have come back by then; of those that have not, nobody knows
/// that they must be waited for.
const READERS_BACK: Duration = Duration::from_secs(3);
/// How often that is looked at.
const HOSTS_POLL: Duration = Duration::from_millis(100);
/// From the moment when DNS servers have a node map to that when they answer by it, and some more.
const DNS_WAIT: Duration = Duration::from_secs(1);
/// Longest time that one order may take.
const ORDER_WAIT: Duration = Duration::from_secs(600);

/// `[health.acme]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeParams {
    /// URL of the authority's directory; `https`.
    pub directory: http::Uri,
    /// Whom the authority writes to, such as `mailto:noc@cdn.example`.
    pub contact: Vec<String>,
    /// How the authority sees that names are ours.
    pub challenge: Challenge,
    /// PEM file of authorities that the directory's own certificate may be from besides those that the
    /// system trusts.
    pub ca: Option<PathBuf>,
    /// Where nodes fetch certificates; `None`: nowhere.
    pub hand_out: Option<HandOutParams>,
}

/// How an authority sees that a name is ours (RFC 8555 section 8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Challenge {
    /// It asks an edge over HTTP.
    #[default]
    Http01,
    /// It asks for a TXT record.
    Dns01,
}

impl Challenge {
    /// The word of the config, and of the RFC.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http01 => "http-01",
            Self::Dns01 => "dns-01",
        }
    }
}

/// What is known of orders, for those who look and ask.
#[derive(Debug)]
pub(crate) struct Book {
    params: AcmeParams,
    keep: Keep,
    orders: Mutex<Orders>,
    /// Somebody wants a certificate ordered now.
    wake: Notify,
}

impl Book {
    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `acme` in `/status`.
    pub(crate) fn show(&self) -> Value {
        let now = clock::now();
        let moment = |ms: u64| if ms == 0 { Value::Null } else { json!(utc(ms)) };
        let of = |(name, order): (&str, &Order)| {
            json!({
                "name": name,
                "project": order.project,
                "state": word(order, now),
                "not_after": order.held.map(|held| utc(held.until_ms)),
                "next_order": moment(order.next_ms),
                "refusals": order.refusals,
                "why": order.why,
            })
        };
        json!({
            "directory": self.params.directory.to_string(),
            "challenge": self.params.challenge.as_str(),
            "certificates": self.orders().iter().map(of).collect::<Vec<_>>(),
        })
    }

    /// `/cert/reissue` of the admin listener: `{ "name": NAME }`, or `{ "node": NODE }` for all that this
    /// node has got.
    fn reissue(&self, body: &Bytes) -> (StatusCode, Value) {
        #[derive(serde::Deserialize)]
        struct Wish {
            name: Option<String>,
            node: Option<Name>,
        }
        let refuse = |code, words: String| (code, json!({ "format": 1, "error": words }));
        let wish = serde_json::from_slice(body);
        let (names, problem) = match wish {
            Ok(Wish { name: Some(name), node: None }) => {
                let problem = format!(
                    "no certificate is ordered for {name} here: is it a host of a project with \
                     tls = \"acme\"?"
                );
                (vec![name.to_ascii_lowercase()], problem)
            }
            Ok(Wish { name: None, node: Some(node) }) => {
                (self.keep.given_to(&node), format!("{node} has got no certificate that is in use"))
            }
            _ => {
                let words = "send { \"name\": \"HOST\" } or { \"node\": \"NODE\" }";
                return refuse(StatusCode::BAD_REQUEST, words.into());
            }
        };
        let mut orders = self.orders();
        let names: Vec<String> = names.into_iter().filter(|name| orders.order_now(name)).collect();
        drop(orders);
        if names.is_empty() {
            return refuse(StatusCode::NOT_FOUND, problem);
        }
        tracing::info!(names = names.join(", "), "certificates are ordered anew on request");
        self.wake.notify_one();
        (StatusCode::OK, json!({ "format": 1, "names": names }))
    }
}

/// The stable word for how a name stands.
fn word(order: &Order, now: Now) -> &'static str {
    match order.held {
        None => "none",
        Some(held) if held.until_ms <= now.wall_ms => "expired",
        Some(_) if order.next_ms <= now.wall_ms || order.refusals > 0 => "due",
        Some(_) => "good",
    }
}

/// Why certificates cannot be ordered here.
#[derive(Debug, thiserror::Error)]
pub enum AcmeError {
    /// The authorities cannot be used.
    #[error("ca: {0}")]
    Ca(CaError),
    /// The folder of what is kept cannot be made.
    #[error("{0} cannot be used")]
    Folder(PathBuf, #[source] std::io::Error),
    /// An address cannot be bound.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// There is no key by which nodes know this host.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// It cannot be used.
    #[error("TLS cannot be spoken")]
    Tls(#[source] rustls::Error),
}

/// Orders certificates.
pub(crate) struct Orderer {
    book: Arc<Book>,
    desk: Arc<Desk>,
    giver: Option<Giver>,
    registrar: Registrar,
    wanted: BTreeMap<String, Name>,
    dice: Dice,
    metrics: Metrics,
    shutdown: Shutdown,
}

impl fmt::Debug for Orderer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Orderer").finish_non_exhaustive()
    }
}

impl Orderer {
    /// Whoever orders what `params` say, if anybody is to.
    ///
    /// # Errors
    /// What stands in the way.
    pub(crate) async fn of(
        params: Option<AcmeParams>,
        desk: &Arc<Desk>,
        context: &Context,
    ) -> Result<Option<Self>, Error> {
        let Some(params) = params else { return Ok(None) };
        let (desk, context) = (Arc::clone(desk), context.clone());
        let (hand_out, state_dir) = (params.hand_out.clone(), context.state_dir.clone());
        let made = aside(move || {
            let identity = hand_out.is_some().then(|| Identity::open(&state_dir)).transpose();
            (Self::new(params, desk, &context), identity, hand_out, context)
        });
        let (orderer, identity, hand_out, context) = made.await.map_err(Error::Thread)?;
        let mut orderer = orderer.map_err(Error::Acme)?;
        let identity = identity.map_err(|error| Error::Acme(error.into()))?;
        if let (Some(params), Some(identity)) = (hand_out, identity) {
            orderer.hand_out(params, &identity, &context).map_err(Error::Acme)?;
        }
        Ok(Some(orderer))
    }

    /// Opens the listeners where nodes fetch certificates, and tells nodes of them: those that have none yet
    /// need not wait for the next order.
    fn hand_out(
        &mut self,
        params: HandOutParams,
        identity: &Identity,
        context: &Context,
    ) -> Result<(), AcmeError> {
        let giver = Giver::bind(params, identity, &self.desk, &self.book, context)?;
        self.registrar.set_hand_out(giver.hand_out(clock::now().wall_ms));
        self.registrar.tell(&self.desk);
        self.giver = Some(giver);
        Ok(())
    }

    /// Reads the authorities, and hangs up what is shown and may be asked. Blocks.
    fn new(params: AcmeParams, desk: Arc<Desk>, context: &Context) -> Result<Self, AcmeError> {
        let tls = Arc::new(Tls::new(params.ca.as_deref()).map_err(AcmeError::Ca)?);
        let keep = Keep::open(&context.state_dir, &params.directory)
            .map_err(|(folder, error)| AcmeError::Folder(folder, error))?;
        let registrar = Registrar::new(&params, tls, keep.account_file());
        let book = Arc::new(Book { params, keep, orders: Mutex::default(), wake: Notify::new() });
        // It is set here alone, once.
        let _ = desk.orders.set(Arc::clone(&book));
        let asked = Arc::clone(&book);
        context.status.on_post("/cert/reissue", move |body| {
            let answer = asked.reissue(&body);
            async move { answer }
        });
        Ok(Self {
            book,
            desk,
            giver: None,
            registrar,
            wanted: BTreeMap::new(),
            dice: clock::dice(),
            metrics: context.metrics.clone(),
            shutdown: context.shutdown.clone(),
        })
    }

    /// Orders what is due until nothing is published any more; an order under way is dropped then.
    pub(crate) async fn run(mut self) {
        let shutdown = self.shutdown.clone();
        let giving = self.giver.as_mut().map(Giver::start);
        tokio::select! {
            () = self.order_all() => {}
            () = shutdown.reached(Phase::Yielded) => {}
        }
        if let Some(giving) = giving {
            giving.join_all().await;
        }
    }

    async fn order_all(&mut self) {
        let mut published = self.desk.subscribe();
        self.look().await;
        tokio::time::sleep(READERS_BACK).await;
        loop {
            self.look().await;
            let now = clock::now();
            let due = self.book.orders().due(now.wall_ms).map(str::to_owned);
            let publishes = self.desk.checker().role().publishes();
            if let Some(name) = due.filter(|_| publishes) {
                self.order(&name).await;
                continue;
            }
            let next_ms = self.book.orders().next_ms().unwrap_or(u64::MAX);
            let left = Duration::from_millis(next_ms.saturating_sub(now.wall_ms));
            let pause = if publishes { left.min(LOOK) } else { LOOK };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.book.wake.notified() => {}
                // The sender lives as long as the desk.
                Ok(()) = published.changed() => {}
            }
        }
    }

    /// Takes over which names the maps want now, and what is on disk of new ones.
    async fn look(&mut self) {
        let wildcards = self.book.params.challenge == Challenge::Dns01;
        let wanted = wanted(self.desk.checker().map(), wildcards);
        if wanted != self.wanted {
            let new = wanted.keys().filter(|name| !self.wanted.contains_key(*name));
            let new: Vec<String> = new.cloned().collect();
            let gone = self.wanted.keys().filter(|name| !wanted.contains_key(*name));
            for name in gone {
                self.metrics.gauge(&metric::ACME_EXPIRY, &[name]).set(0);
            }
            self.book.orders().set(wanted.clone());
            self.wanted = wanted;
            let keep = self.book.keep.clone();
            let read = aside(move || keep.load_all(&new)).await.unwrap_or_default();
            for issued in read {
                self.book.orders().hold(&issued.name, issued.validity, &mut self.dice);
            }
        }
        self.count();
    }

    /// Brings one certificate, or notes why there is none.
    async fn order(&mut self, name: &str) {
        tracing::info!(name, "ordering a certificate");
        let ordering = tokio::time::timeout(ORDER_WAIT, self.try_order(name));
        let late = || Failed::Other("it takes too long".to_owned());
        let outcome = ordering.await.unwrap_or_else(|_| Err(late()));
        let count = |word| self.metrics.counter(&metric::ACME_ORDERS, &[word]).inc();
        match outcome {
            Ok(issued) => {
                count("issued");
                let until = utc(issued.validity.until_ms);
                tracing::info!(name, until, "a certificate was issued");
                self.book.orders().hold(name, issued.validity, &mut self.dice);
                if let Some(giver) = &self.giver {
                    self.registrar.set_hand_out(giver.hand_out(clock::now().wall_ms));
                }
            }
            Err(failed) => {
                count(failed.word());
                let why = failed.to_string();
                tracing::error!(name, why, "no certificate was issued");
                let wall_ms = clock::now().wall_ms;
                self.book.orders().failed(name, why, wall_ms, &mut self.dice);
            }
        }
        self.registrar.tell(&self.desk);
    }

    async fn try_order(&mut self, name: &str) -> Result<Issued, Failed> {
        let desired = Desired {
            name: name.to_owned(),
            challenge: self.book.params.challenge,
            text_names: self.text_names(name),
        };
        let pem = self.registrar.order(&desired, &self.desk).await?;
        let (keep, name) = (self.book.keep.clone(), desired.name);
        let kept = aside(move || keep.put(&name, &pem)).await;
        kept.map_err(|error| Failed::Other(error.to_string()))?.map_err(Failed::Other)
    }

    /// Where the text of a challenge over DNS belongs.
    fn text_names(&self, name: &str) -> Vec<HostName> {
        let checker = self.desk.checker();
        let project = self.wanted.get(name).and_then(|of| checker.map().projects.get(of));
        project.map(|project| challenge_names(checker.map(), project, name)).unwrap_or_default()
    }

    /// The names by state, and when each certificate expires.
    fn count(&self) {
        let (now, orders) = (clock::now(), self.book.orders());
        for state in ["good", "due", "expired", "none"] {
            let count = orders.iter().filter(|(_, order)| word(order, now) == state).count();
            let gauge = self.metrics.gauge(&metric::ACME_CERTIFICATES, &[state]);
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        for (name, order) in orders.iter() {
            let until_s = order.held.map_or(0, |held| held.until_ms / 1000);
            let gauge = self.metrics.gauge(&metric::ACME_EXPIRY, &[name]);
            gauge.set(i64::try_from(until_s).unwrap_or(i64::MAX));
        }
    }
}

/// Has hosts answer as `acme` says, and waits until those that are there have it.
async fn publish(desk: &Desk, acme: Acme) -> Result<(), Failed> {
    let mut published = desk.subscribe();
    desk.checker().handle_acme(clock::now(), Some(acme.clone()));
    desk.told.notify_one();
    let is_out = published.wait_for(|p| p.acme.as_ref() == Some(&acme));
    let generation = match tokio::time::timeout(HOSTS_WAIT, is_out).await {
        Ok(Ok(published)) => published.generation,
        _ => {
            return Err(Failed::Other(
                "no node map is published: is another checker in charge?".into(),
            ));
        }
    };
    let all_have_it = async {
        while desk.checker().is_awaited(clock::now(), generation) {
            tokio::time::sleep(HOSTS_POLL).await;
        }
    };
    if tokio::time::timeout(HOSTS_WAIT, all_have_it).await.is_err() {
        tracing::warn!(generation, "some hosts do not have the node map with the order yet");
    }
    if !acme.texts.is_empty() {
        tokio::time::sleep(DNS_WAIT).await;
    }
    Ok(())
}
