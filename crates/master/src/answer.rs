//! From a request to its answer.
//!
//! Phases: understand the request; find the file (or learn that the tree is lost); have its digest;
//! let `http-cache` decide on preconditions and ranges; send pieces of the open file.
//!
//! | What is the matter | Status |
//! |---|---|
//! | the tree's root or marker is not there | 503, whatever is asked for |
//! | neither GET nor HEAD | 405 |
//! | a path that cannot be meant (`..`, broken encoding) | 400 |
//! | a dotfile, a directory without index file, no such file | 404 |
//! | the disk or a permission stands in the way, the file is being written | 503 |

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Request, Response, StatusCode};
use mirror::{ContentDigest, Refused, Stamp, TreePath, media};
use rt::Metrics;
use rt::metrics::{Counter, master as metric};
use serve::{Body, Client, Handler, RequestBody};

use crate::catalogue::{Catalogue, DigestError};
use crate::scan::off_worker;
use crate::source::FileSource;
use crate::tree::{Found, LookupError, Tree};
use crate::watch::Watch;

/// Where probes ask whether this master can serve.
const HEALTH_PATH: &str = "/.well-known/cacheboy/health";
/// Seconds after which a client may try again when the tree is lost.
const RETRY_LOST_S: &str = "10";
/// The same when a file is being written.
const RETRY_BUSY_S: &str = "1";

/// Answers every request of the master.
#[derive(Debug)]
pub(crate) struct Answerer {
    pub(crate) tree: Arc<Tree>,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) metrics: Metrics,
    pub(crate) sent_bytes: Counter,
    pub(crate) broken_off: Counter,
}

/// Why a request gets no content.
#[derive(Debug, thiserror::Error)]
enum NoContent {
    #[error(transparent)]
    Request(#[from] http_cache::RequestError),
    #[error("path refused: {0}")]
    Path(Refused),
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error(transparent)]
    Digest(#[from] DigestError),
}

impl Handler for Answerer {
    type Visitor = Client;

    fn greet(&self, client: Client) -> Client {
        client
    }

    async fn handle(&self, request: Request<RequestBody>, _: &Client) -> Response<Body> {
        let response = match self.answer(&request).await {
            Ok(response) => response,
            Err(why) => refusal(&why),
        };
        self.metrics.counter(&metric::REQUESTS, &[response.status().as_str()]).inc();
        response
    }
}

impl Answerer {
    async fn answer(&self, request: &Request<RequestBody>) -> Result<Response<Body>, NoContent> {
        let now = rt::clock::now();
        let asked = http_cache::Request::parse(request.method(), request.uri(), request.headers())?;
        if request.uri().path() == HEALTH_PATH {
            self.look().await?;
            return Ok(plain(StatusCode::OK, "up\n"));
        }
        let path = match TreePath::from_request(request.uri().path()) {
            Ok(path) => path,
            Err(refused) => {
                // A lost tree is said first: no 404 without a tree.
                self.look().await?;
                return Err(NoContent::Path(refused));
            }
        };
        let Found { path, file, stamp } = self.find(path).await?;
        let file = Arc::new(file);
        let (digest, stamp) = self.catalogue.digest(&path, &file, stamp).await?;
        let fields = fields(&path, &digest, &stamp, now.wall_ms);
        let head = http_cache::StoredHead::new(StatusCode::OK, &fields, now.wall_ms, now.wall_ms);
        let plan = http_cache::respond(&asked, &head, stamp.size, now);
        let body = if plan.pieces.is_empty() {
            Body::empty()
        } else {
            let (sent, broken) = (self.sent_bytes.clone(), self.broken_off.clone());
            let length = content_length(&plan.headers);
            Body::stream(FileSource::new(file, stamp, plan.pieces, sent, broken), length)
        };
        let mut response = Response::new(body);
        *response.status_mut() = plan.status;
        *response.headers_mut() = plan.headers;
        Ok(response)
    }

    /// Finds a file, and takes down whether the tree was there.
    async fn find(&self, path: TreePath) -> Result<Found, LookupError> {
        let tree = Arc::clone(&self.tree);
        let found = off_worker(move || tree.find(&path)).await;
        self.watch.saw(match &found {
            Err(LookupError::Lost(lost)) => Err(lost),
            _ => Ok(()),
        });
        found
    }

    /// Whether the tree is there.
    async fn look(&self) -> Result<(), LookupError> {
        let tree = Arc::clone(&self.tree);
        let seen = off_worker(move || tree.open_root().map(drop)).await;
        self.watch.saw(seen.as_ref().copied());
        Ok(seen?)
    }
}

/// The fields of a file's representation.
fn fields(path: &TreePath, digest: &ContentDigest, stamp: &Stamp, wall_ms: u64) -> HeaderMap {
    let mut fields = HeaderMap::new();
    let media = media::content_type(path.file_name());
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    let mut insert = |name: header::HeaderName, value: String| {
        // Hexadecimal digits, base64 and dates are always sound values.
        if let Ok(value) = HeaderValue::try_from(value) {
            fields.insert(name, value);
        }
    };
    insert(header::ETAG, digest.etag());
    insert(header::HeaderName::from_static("repr-digest"), digest.repr_digest());
    // A date in the future would say that the clocks disagree, not when the file changed
    // (RFC 9110 section 8.8.2.1); one before 1970 cannot be said at all.
    let modified_ms = stamp.mtime_ns.checked_div(1_000_000).and_then(|ms| u64::try_from(ms).ok());
    if let Some(modified) = modified_ms
        .filter(|ms| *ms <= wall_ms)
        .and_then(|ms| UNIX_EPOCH.checked_add(Duration::from_millis(ms)))
    {
        insert(header::LAST_MODIFIED, httpdate::fmt_http_date(modified));
    }
    fields
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The answer to a request that gets no content; troubles of ours are logged.
fn refusal(why: &NoContent) -> Response<Body> {
    let (status, text, retry) = match why {
        NoContent::Request(error) => (error.status(), format!("{error}\n"), None),
        NoContent::Path(refused) => (refused_status(*refused), format!("{why}\n"), None),
        NoContent::Lookup(LookupError::NotFound) => {
            (StatusCode::NOT_FOUND, "no such file\n".into(), None)
        }
        NoContent::Lookup(LookupError::Lost(_)) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the content tree of this master is not there\n".into(),
            Some(RETRY_LOST_S),
        ),
        NoContent::Lookup(LookupError::Unreadable { .. }) | NoContent::Digest(_) => {
            tracing::warn!(why = crate::with_causes(why), "answered 503");
            (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"), Some(RETRY_BUSY_S))
        }
    };
    let mut response = plain(status, text);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    if let Some(seconds) = retry {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(seconds));
    }
    response
}

fn refused_status(refused: Refused) -> StatusCode {
    match refused {
        Refused::NotAbsolute | Refused::BadEncoding | Refused::DotSegment => {
            StatusCode::BAD_REQUEST
        }
        Refused::Dotfile | Refused::EmptySegment | Refused::TooLong => StatusCode::NOT_FOUND,
    }
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::bytes(text.into()));
    *response.status_mut() = status;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    response
}
