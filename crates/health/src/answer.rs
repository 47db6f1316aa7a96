//! `/node-map` and `/status` over HTTP.
//!
//! `/node-map` is JSON with the generation as its `ETag`. `?wait=SECONDS` together with an
//! `If-None-Match` that names the current generation holds the answer until there is another one,
//! or the time is over (304). `Cacheboy-Reader` and `Cacheboy-Generation` tell who polls and what it
//! runs (invariant H2). Its signature is in `Cacheboy-Signature`, and as a file of minisign at
//! `/node-map.minisig`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use model::Name;
use nodemap::signature::SecretKey;
use rt::metrics::{Gauge, health as metric};
use rt::{Context, Metrics, Phase, Shutdown, clock, follow};
use serde_json::{Value, json};
use serve::{Body, Client, Handler, Limits, RequestBody};
use tokio::sync::watch;

use crate::aside::aside;
use crate::desk::{Desk, Published};

/// Longest time a poll is held, seconds.
const WAIT_S_MAX: u64 = 60;
/// How long a reader with a newer map than ours waits for the one that is published for its sake.
const OVERTAKE_WAIT: Duration = Duration::from_secs(2);

/// Connections at once on one listener.
pub(crate) const CONNECTIONS_MAX: usize = 4096;
/// How long a request's head may take, and how long a connection may be idle, at least; at most it
/// is twice this.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(3);

/// Each reader holds a connection while it waits, and asks at once when it has one: who does not
/// makes room soon.
pub(crate) fn limits() -> Limits {
    Limits { connections_max: CONNECTIONS_MAX, head_timeout: HEAD_TIMEOUT, ..Limits::default() }
}

/// Answers requests.
pub(crate) struct Answerer {
    desk: Arc<Desk>,
    key: Option<Arc<SecretKey>>,
    metrics: Metrics,
    readers: Gauge,
    shutdown: Shutdown,
}

impl Handler for Answerer {
    type Visitor = Client;

    fn greet(&self, client: Client) -> Client {
        client
    }

    async fn handle(&self, request: Request<RequestBody>, _: &Client) -> Response<Body> {
        let (head, _) = request.into_parts();
        let (status, headers, body) =
            self.answer(&head.method, head.uri.path(), head.uri.query(), &head.headers).await;
        self.metrics.counter(&metric::REQUESTS, &[status.as_str()]).inc();
        let mut response = Response::new(Body::bytes(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }
}

type Answer = (StatusCode, HeaderMap, Bytes);

impl Answerer {
    pub(crate) fn new(desk: Arc<Desk>, key: Option<Arc<SecretKey>>, context: &Context) -> Self {
        Self {
            desk,
            key,
            metrics: context.metrics.clone(),
            readers: context.metrics.gauge(&metric::READERS, &[]),
            shutdown: context.shutdown.clone(),
        }
    }

    async fn answer(
        &self,
        method: &Method,
        path: &str,
        query: Option<&str>,
        headers: &HeaderMap,
    ) -> Answer {
        match path {
            "/node-map" | "/node-map.minisig" | "/status"
                if *method != Method::GET && *method != Method::HEAD =>
            {
                let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
                answer.1.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
                answer
            }
            "/node-map" => self.node_map(query, headers).await,
            "/node-map.minisig" => match &self.desk.subscribe().borrow().signature {
                Some(signature) => plain(StatusCode::OK, signature.to_string().into()),
                None => text(
                    StatusCode::NOT_FOUND,
                    "node maps are not signed here: set key in [health]\n",
                ),
            },
            "/observations" => self.observations(),
            "/status" => document(format!("{:#}\n", self.desk.show()).into()),
            _ => text(
                StatusCode::NOT_FOUND,
                "there is /node-map, /node-map.minisig, /observations and /status\n",
            ),
        }
    }

    /// What this checker has seen, for the others.
    fn observations(&self) -> Answer {
        let seen = self.desk.checker().observations(clock::now()).to_json();
        let line = self.key.as_ref().map(|key| key.sign(&seen, "").signature.to_string());
        let mut answer = document(seen.into());
        if let Some(line) = line.and_then(|line| HeaderValue::from_str(&line).ok()) {
            answer.1.insert(follow::SIGNATURE, line);
        }
        answer
    }

    async fn node_map(&self, query: Option<&str>, headers: &HeaderMap) -> Answer {
        let mut published = self.desk.subscribe();
        self.note_reader(headers, &mut published).await;
        let known = |p: &Published| names(headers, p.generation);
        let wait = Duration::from_secs(wait_s(query));
        let fresh = async {
            // The desk outlives this answer, so the channel cannot close under the wait.
            published.wait_for(|p| !known(p)).await.ok().map(|p| p.clone())
        };
        let found = tokio::select! {
            // The answer first, whatever else is ready.
            biased;
            found = fresh => found,
            () = tokio::time::sleep(wait) => None,
            () = self.shutdown.reached(Phase::Draining) => None,
        };
        let current = || self.desk.subscribe().borrow().generation;
        let generation = found.as_ref().map_or_else(current, |p| p.generation);
        let mut answer = match found {
            Some(published) if published.generation == 0 => {
                let words = "this checker stands by and has published nothing: ask the publisher\n";
                return text(StatusCode::SERVICE_UNAVAILABLE, words);
            }
            Some(published) => signed(published),
            None => (StatusCode::NOT_MODIFIED, HeaderMap::new(), Bytes::new()),
        };
        if let Ok(tag) = HeaderValue::from_str(&format!("\"{generation}\"")) {
            answer.1.insert(header::ETAG, tag);
        }
        answer
    }

    /// Tells the machine who polls. A reader that is ahead of us would refuse what we have: it
    /// waits for the map that is published for its sake.
    async fn note_reader(&self, headers: &HeaderMap, published: &mut watch::Receiver<Published>) {
        let Some(name) = parsed::<Name>(headers, &follow::READER) else { return };
        let Some(generation) = parsed::<u64>(headers, &follow::GENERATION) else { return };
        let overtake = {
            let mut checker = self.desk.checker();
            let overtake = checker.handle_reader(clock::now(), name, generation);
            self.readers.set(i64::try_from(checker.readers()).unwrap_or(i64::MAX));
            overtake
        };
        if overtake {
            self.desk.told.notify_one();
            let newer = published.wait_for(|p| p.generation > generation);
            // In vain only while the disk or the machine is stuck; then the old map is the answer.
            let _ = tokio::time::timeout(OVERTAKE_WAIT, newer).await;
        }
    }
}

/// `/rollback` of the admin listener: `{ "generation": N }`.
pub(crate) async fn roll_back(desk: Arc<Desk>, body: Bytes) -> (StatusCode, Value) {
    #[derive(serde::Deserialize)]
    struct Order {
        generation: u64,
    }
    let refuse = |code, words: String| (code, json!({ "format": 1, "error": words }));
    let Ok(Order { generation }) = serde_json::from_slice(&body) else {
        return refuse(StatusCode::BAD_REQUEST, "send { \"generation\": NUMBER }".into());
    };
    match aside(move || desk.roll_back(generation)).await {
        Ok(Ok(changes)) => (
            StatusCode::OK,
            json!({ "format": 1, "rolled_back_to": generation, "changes": changes }),
        ),
        Ok(Err(error)) => refuse(StatusCode::CONFLICT, error.to_string()),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// `/maps/confirm` of the admin listener: `{ "id": ID }`, as `/status` shows it.
pub(crate) fn confirm(desk: &Desk, body: &[u8]) -> (StatusCode, Value) {
    #[derive(serde::Deserialize)]
    struct Order {
        id: String,
    }
    let refuse = |code, words: String| (code, json!({ "format": 1, "error": words }));
    let Ok(Order { id }) = serde_json::from_slice(body) else {
        return refuse(StatusCode::BAD_REQUEST, "send { \"id\": ID }".into());
    };
    match desk.confirm(&id) {
        Ok(changes) => (StatusCode::OK, json!({ "format": 1, "changes": changes })),
        Err(error) => refuse(StatusCode::CONFLICT, error.to_string()),
    }
}

fn parsed<T: std::str::FromStr>(headers: &HeaderMap, name: &header::HeaderName) -> Option<T> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// Whether an `If-None-Match` names `generation` (RFC 9110 section 13.1.2; weak comparison). Several
/// lines are one list (section 5.3).
fn names(headers: &HeaderMap, generation: u64) -> bool {
    let tag = format!("\"{generation}\"");
    let lines = headers.get_all(header::IF_NONE_MATCH).into_iter();
    lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(',').map(str::trim))
        .any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag)
}

/// `wait=SECONDS` of a query, within bounds; 0 without, or with what is no number.
fn wait_s(query: Option<&str>) -> u64 {
    let pairs = query.unwrap_or_default().split('&');
    let wait = pairs.filter_map(|pair| pair.strip_prefix("wait=")).next_back().unwrap_or_default();
    if wait.is_empty() || !wait.bytes().all(|byte| byte.is_ascii_digit()) {
        return 0;
    }
    // A number that is too large to be read is larger than the bound.
    wait.parse().map_or(WAIT_S_MAX, |wait: u64| wait.min(WAIT_S_MAX))
}

fn document(body: Bytes) -> Answer {
    let headers = HeaderMap::from_iter([
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        // Any cache may carry it, none may give it out unasked.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ]);
    (StatusCode::OK, headers, body)
}

/// A node map with the signature of its bytes.
fn signed(published: Published) -> Answer {
    let mut answer = document(published.document);
    let line = published.signature.map(|file| file.signature.to_string());
    if let Some(line) = line.and_then(|line| HeaderValue::from_str(&line).ok()) {
        answer.1.insert(follow::SIGNATURE, line);
    }
    answer
}

fn text(status: StatusCode, body: &'static str) -> Answer {
    plain(status, Bytes::from_static(body.as_bytes()))
}

fn plain(status: StatusCode, body: Bytes) -> Answer {
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    (status, HeaderMap::from_iter([(header::CONTENT_TYPE, kind)]), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entity_tags_are_compared_as_a_list() {
        let cases: [(&[&'static str], bool); 12] = [
            (&[], false),
            (&["\"7\""], true),
            (&["W/\"7\""], true),
            (&["\"6\", \"7\""], true),
            (&["*"], true),
            (&["\"77\""], false),
            (&["7"], false),
            (&[""], false),
            (&["\"6\"", "\"7\""], true),
            (&["\"7\"", "\"6\""], true),
            (&["\"5\"", "\"6\", W/\"7\""], true),
            (&["\"5\"", "\"6\""], false),
        ];
        for (lines, expected) in cases {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::IF_NONE_MATCH, HeaderValue::from_static(line));
            }
            assert_eq!(names(&headers, 7), expected, "{headers:?}");
        }
    }

    #[test]
    fn the_page_says_what_a_listener_bears() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/health.md");
        let page = std::fs::read_to_string(page).unwrap();
        let bounds = limits();
        let seconds = bounds.head_timeout.as_secs();
        assert!(page.contains(&format!("{} connections", bounds.connections_max)));
        assert!(page.contains(&format!("{seconds} to {} seconds", 2 * seconds)));
    }

    #[test]
    fn waits_are_bounded() {
        for (query, expected) in [
            (None, 0),
            (Some("wait=30"), 30),
            (Some("a=1&wait=5"), 5),
            (Some("wait=61"), 60),
            (Some("wait=18446744073709551615"), 60),
            (Some("wait=18446744073709551616"), 60),
            (Some("wait=99999999999999999999"), 60),
            (Some("wait=6O"), 0),
            (Some("wait=+5"), 0),
            (Some("wait=-1"), 0),
            (Some("wait="), 0),
            (Some("await=9"), 0),
        ] {
            assert_eq!(wait_s(query), expected, "{query:?}");
        }
    }
}
