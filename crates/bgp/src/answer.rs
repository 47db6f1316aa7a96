//! Routes and status over HTTP.
//!
//! `/status`; `/heard?peer=NAME[&after=PREFIX][&limit=N]`: what a peer announces, a page at a time;
//! `/origins?peer=NAME`: how many routes of which AS; `/lookup?address=IP`: the routes of every view to
//! the longest prefix with the address. `/routes[?have=CURSOR&wait=S]`: the document by which other hosts
//! follow the table (`bgp_proto::feed`); with a cursor that has everything it is held for up to `wait`
//! seconds, and then 304.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bgp_proto::feed;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use ipnet::IpNet;
use model::route::Attributes;
use rt::metrics::bgp as metric;
use rt::{Context, Metrics, Phase, Shutdown, clock};
use serde_json::{Value, json};
use serve::{Body, Client, Handler, Limits, RequestBody};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::desk::Desk;

/// Connections at once on one listener.
const CONNECTIONS_MAX: usize = 1024;
/// Routes of a page, unless fewer are asked for.
const PAGE_MAX: usize = 1000;
/// Longest time a poll for routes is held, seconds.
const WAIT_S_MAX: u64 = 60;
/// Bytes of a document of routes from which on it needs a place.
const LARGE: usize = 1 << 20;
/// Large documents that may be in memory at once, while slow followers read them: a full table is some
/// ten megabytes.
const LARGE_MAX: usize = 8;

/// Of the HTTP listeners.
pub(crate) fn limits() -> Limits {
    Limits { connections_max: CONNECTIONS_MAX, ..Limits::default() }
}

/// Answers requests.
pub(crate) struct Answerer {
    desk: Arc<Desk>,
    metrics: Metrics,
    shutdown: Shutdown,
    /// Of this run: versions of an earlier one say nothing.
    epoch: u64,
    /// Of who reads the table: one at a time, in the order they came, so that however many ask, the
    /// sessions wait for one of them at most.
    turn: Arc<Semaphore>,
    /// The document that was given last, for all others who ask for the same; held while the next one
    /// is made.
    last: tokio::sync::Mutex<Option<Given>>,
    /// For large documents in memory.
    places: Arc<Semaphore>,
}

/// A document of routes that was given.
struct Given {
    /// To followers with this cursor.
    have: String,
    /// What they have by it.
    now: String,
    document: Bytes,
}

/// A large document, and its place.
struct Large {
    document: Vec<u8>,
    _place: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Large {
    fn as_ref(&self) -> &[u8] {
        &self.document
    }
}

type Answer = (StatusCode, Value);

fn bad(why: &str) -> Answer {
    (StatusCode::BAD_REQUEST, json!({ "error": why }))
}

impl Handler for Answerer {
    type Visitor = Client;

    fn greet(&self, client: Client) -> Client {
        client
    }

    async fn handle(&self, request: Request<RequestBody>, _: &Client) -> Response<Body> {
        let (head, _) = request.into_parts();
        let (desk, path) = (Arc::clone(&self.desk), head.uri.path().to_owned());
        let query = head.uri.query().unwrap_or_default().to_owned();
        let is_read = head.method == Method::GET || head.method == Method::HEAD;
        if is_read && path == "/routes" {
            return self.routes(&query).await;
        }
        // It may wait for the table, and walks all of it perhaps.
        let answer = move || {
            if is_read {
                answer(&desk, &path, &query)
            } else {
                (StatusCode::METHOD_NOT_ALLOWED, json!({ "error": "use GET" }))
            }
        };
        let broken = (StatusCode::SERVICE_UNAVAILABLE, json!({ "error": "a defect" }));
        let (status, mut value) = self.in_turn(answer).await.unwrap_or(broken);
        self.metrics.counter(&metric::REQUESTS, &[status.as_str()]).inc();
        if let Some(object) = value.as_object_mut() {
            object.insert("format".to_owned(), 1.into());
        }
        let mut response = Response::new(Body::bytes(Bytes::from(format!("{value:#}\n"))));
        *response.status_mut() = status;
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }
}

impl Answerer {
    pub(crate) fn new(desk: Arc<Desk>, context: &Context) -> Self {
        Self {
            desk,
            metrics: context.metrics.clone(),
            shutdown: context.shutdown.clone(),
            epoch: clock::now().wall_ms.max(1),
            turn: Arc::new(Semaphore::new(1)),
            last: tokio::sync::Mutex::new(None),
            places: Arc::new(Semaphore::new(LARGE_MAX)),
        }
    }

    /// Reads the table; `None` after a defect.
    async fn in_turn<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        // Nobody closes the semaphore. The turn lasts as long as the work, also when nobody waits for it any
        // more.
        let turn = Arc::clone(&self.turn).acquire_owned().await.ok()?;
        let work = move || {
            let _turn = turn;
            read()
        };
        tokio::task::spawn_blocking(work).await.ok()
    }

    /// The answer to a follower.
    async fn routes(&self, query: &str) -> Response<Body> {
        let have = value(query, "have").unwrap_or_default();
        let wait = value(query, "wait").and_then(|s| s.parse().ok()).unwrap_or(0);
        let (status, body) = self.poll(&have, wait).await;
        self.metrics.counter(&metric::REQUESTS, &[status.as_str()]).inc();
        let mut response = Response::new(Body::bytes(body));
        *response.status_mut() = status;
        let kind = HeaderValue::from_static("application/octet-stream");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }

    /// For a follower in this process: what it does not have, as soon as there is anything.
    pub(crate) async fn follow(&self, have: &str) -> Option<Bytes> {
        let (status, document) = self.poll(have, WAIT_S_MAX).await;
        (status == StatusCode::OK).then_some(document)
    }

    /// What a follower with this cursor does not have, as soon as there is anything; 304 after so many
    /// seconds.
    async fn poll(&self, have: &str, wait_s: u64) -> (StatusCode, Bytes) {
        let until = tokio::time::sleep(Duration::from_secs(WAIT_S_MAX.min(wait_s)));
        tokio::pin!(until);
        let mut news = self.desk.news.subscribe();
        loop {
            news.mark_unchanged();
            match self.document(have).await {
                Some(Some(document)) => return (StatusCode::OK, document),
                None => return (StatusCode::SERVICE_UNAVAILABLE, Bytes::new()),
                Some(None) => {}
            }
            tokio::select! {
                // The desk outlives this answer, so the channel cannot close.
                _ = news.changed() => {}
                () = &mut until => return (StatusCode::NOT_MODIFIED, Bytes::new()),
                () = self.shutdown.reached(Phase::Draining) => {
                    return (StatusCode::NOT_MODIFIED, Bytes::new());
                }
            }
        }
    }

    /// What a follower with this cursor does not have: `Some(None)` if that is nothing, `None` after a
    /// defect.
    async fn document(&self, have: &str) -> Option<Option<Bytes>> {
        let (desk, epoch) = (Arc::clone(&self.desk), self.epoch);
        let now = move || feed::cursor(&desk.rib(), epoch, |view| desk.is_up(view));
        let mut last = self.last.lock().await;
        let now = self.in_turn(now).await?;
        if let Some(last) = last.as_ref().filter(|last| last.have == have && last.now == now) {
            return Some(Some(last.document.clone()));
        }
        let (desk, asked) = (Arc::clone(&self.desk), have.to_owned());
        let write = move || {
            let (rib, up) = (desk.rib(), |view: &str| desk.is_up(view));
            let document = feed::document(&rib, epoch, Some(&asked), up)?;
            Some((feed::cursor(&rib, epoch, up), document))
        };
        let Some((now, document)) = self.in_turn(write).await? else { return Some(None) };
        let document = if document.len() > LARGE {
            // What was given last need not be kept for that: it has a place too.
            *last = None;
            let place = Arc::clone(&self.places).acquire_owned().await.ok()?;
            Bytes::from_owner(Large { document, _place: place })
        } else {
            Bytes::from(document)
        };
        *last = Some(Given { have: have.to_owned(), now, document: document.clone() });
        Some(Some(document))
    }
}

/// What the admin listener answers to `{"peer": NAME}`, whose peer is asked for all of its routes again.
pub(crate) fn refresh(desk: &Desk, body: &[u8]) -> Answer {
    let asked: Option<Value> = serde_json::from_slice(body).ok();
    let name = asked.as_ref().and_then(|asked| asked.get("peer")?.as_str()).unwrap_or_default();
    let Some(peer) = desk.peers.iter().find(|peer| peer.params.name.as_str() == name) else {
        return bad("post {\"peer\": NAME}, which names a peer of this collector");
    };
    match peer.ask_again() {
        Ok(()) => (StatusCode::OK, json!({ "asked": name })),
        Err(why) => (StatusCode::CONFLICT, json!({ "error": format!("{name}: {why}") })),
    }
}

fn answer(desk: &Desk, path: &str, query: &str) -> Answer {
    match path {
        "/status" => (StatusCode::OK, desk.show()),
        "/heard" => heard(desk, query),
        "/origins" => origins(desk, query),
        "/lookup" => lookup(desk, query),
        _ => {
            let error =
                "there is /status, /heard?peer=, /origins?peer=, /lookup?address= and /routes";
            (StatusCode::NOT_FOUND, json!({ "error": error }))
        }
    }
}

/// The value of a key of a query. A `/` may be written as `%2F`, which some clients do.
fn value(query: &str, key: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let value = pairs.find(|(name, _)| *name == key)?.1;
    Some(value.replace("%2F", "/").replace("%2f", "/").replace("%3A", ":").replace("%3a", ":"))
}

fn heard(desk: &Desk, query: &str) -> Answer {
    let peer = value(query, "peer").unwrap_or_default();
    let Some(id) = desk.source(&peer) else {
        return bad("peer= names no peer or file of this collector");
    };
    let after = match value(query, "after").map(|text| text.parse::<IpNet>()) {
        None => None,
        Some(Ok(after)) => Some(after),
        Some(Err(_)) => return bad("after= is no prefix such as 192.0.2.0/24"),
    };
    let limit = match value(query, "limit").map(|text| text.parse::<usize>()) {
        None => PAGE_MAX,
        Some(Ok(limit)) => limit.min(PAGE_MAX),
        Some(Err(_)) => return bad("limit= is no number"),
    };
    let rib = desk.rib();
    let mut all = rib.heard(id, after);
    let page: Vec<(IpNet, Arc<Attributes>)> =
        all.by_ref().take(limit).map(|(prefix, carried)| (prefix, Arc::clone(carried))).collect();
    let more = all.next().is_some();
    drop(all);
    drop(rib);
    let next = page.last().filter(|_| more).map(|(prefix, _)| prefix);
    let routes: Vec<Value> = page.iter().map(|(prefix, carried)| route(*prefix, carried)).collect();
    (StatusCode::OK, json!({ "peer": peer, "routes": routes, "next_after": next }))
}

fn route(prefix: IpNet, carried: &Attributes) -> Value {
    json!({ "prefix": prefix, "attributes": carried })
}

fn origins(desk: &Desk, query: &str) -> Answer {
    let peer = value(query, "peer").unwrap_or_default();
    let Some(id) = desk.source(&peer) else {
        return bad("peer= names no peer or file of this collector");
    };
    let origins = desk.rib().origins(id);
    let rows: Vec<Value> = origins
        .iter()
        .map(|(asn, [v4, v6])| json!({ "asn": asn, "routes": { "v4": v4, "v6": v6 } }))
        .collect();
    (StatusCode::OK, json!({ "peer": peer, "origins": rows }))
}

fn lookup(desk: &Desk, query: &str) -> Answer {
    let Some(Ok(address)) = value(query, "address").map(|text| text.parse::<IpAddr>()) else {
        return bad("address= is no IP address");
    };
    // Sessions wait while the table is held: it is let go of before anything is written.
    let rib = desk.rib();
    let found: Vec<_> = desk
        .views
        .iter()
        .map(|(name, view)| {
            let routes = rib.lookup(*view, address).into_iter().map(|(prefix, id, carried)| {
                (prefix, id, rib.best(*view, prefix) == Some(carried), Arc::clone(carried))
            });
            (name, routes.collect::<Vec<_>>())
        })
        .collect();
    drop(rib);
    let views: serde_json::Map<String, Value> = found
        .into_iter()
        .map(|(name, routes)| {
            let rows: Vec<Value> = routes
                .iter()
                .map(|(prefix, id, best, carried)| {
                    let peer = desk.name_of(*id);
                    json!({ "prefix": prefix, "peer": peer, "best": best, "attributes": carried })
                })
                .collect();
            (name.to_string(), rows.into())
        })
        .collect();
    (StatusCode::OK, json!({ "address": address.to_string(), "views": views }))
}
