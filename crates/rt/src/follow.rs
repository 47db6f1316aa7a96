//! Following the node map: the last good file at once, then the publisher by long poll.
//!
//! Invariants (H2): a reader never goes back to an older generation, refuses one more than a day
//! ahead of its clock and, when it trusts certain keys, one that none of them has signed; it keeps the
//! last good map on disk (`last_good.rs`) and serves from it whatever happens to the publisher. A map
//! that does not parse changes nothing.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use model::{Name, Now};
use nodemap::NodeMap;
use nodemap::signature::{self, Signature, SignatureFile, TrustedKeys, VerifyError};
use tokio::sync::watch;

use crate::client::{self, Get};
use crate::metrics::host;
use crate::{Context, Metrics, Phase, clock, file};

mod last_good;
#[cfg(test)]
mod tests;

use last_good::LastGood;
pub use last_good::{last_good_path, verified_last_good};

/// Largest node map read, in bytes.
pub const NODE_MAP_BYTES_MAX: usize = 64 << 20;
/// Name of the reader, sent with each poll.
pub const READER: HeaderName = HeaderName::from_static("cacheboy-reader");
/// Generation the reader runs, sent with each poll.
pub const GENERATION: HeaderName = HeaderName::from_static("cacheboy-generation");
/// Signature of the node map in an answer: minisign's line of base64 (see [`Signature`]).
pub const SIGNATURE: HeaderName = HeaderName::from_static("cacheboy-signature");
/// How far ahead of our clock a generation may be, milliseconds.
pub const AHEAD_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// How long the publisher may hold a poll.
const WAIT_S: u64 = 30;
/// Wait after a round in which no source answered.
const RETRY: Duration = Duration::from_millis(500);
/// How often a file is looked at: a change is in answers within 50 ms.
const FILE_POLL: Duration = Duration::from_millis(20);
/// Shortest time from one poll that brought nothing new to the next: a source that does not hold
/// polls, such as a plain HTTP cache, is not asked in a tight loop.
const QUIET: Duration = Duration::from_secs(1);
/// How long a source may take while there is no map at all: another one may have it.
const FIRST: Duration = Duration::from_secs(5);

/// Where a node map comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A publisher's `/node-map`, polled.
    Http(Uri),
    /// A file that something else replaces atomically.
    File(PathBuf),
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Http(url) => write!(f, "{url}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

/// `[follow]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowParams {
    /// Sources, tried in order, from the first again after each failure of all.
    pub node_map: Vec<Source>,
    /// Keys one of which must have signed a map; without any, every map is taken.
    pub keys: TrustedKeys,
}

/// The node map as it changes: `None` until a first one is known.
pub type Following = watch::Receiver<Option<Arc<NodeMap>>>;

/// Starts to follow; the task ends with the context's shutdown.
///
/// The last good map is read before this returns, so that a role that starts while every publisher
/// is away has it at once.
pub fn start(params: FollowParams, context: &Context) -> Following {
    let last_good = LastGood::new(last_good_path(&context.state_dir), context);
    let first = last_good.load(&params.keys);
    let (sender, receiver) = watch::channel(first);
    let mut follower = Follower {
        name: context.name.clone(),
        metrics: context.metrics.clone(),
        last_good,
        keys: params.keys,
        sender,
        error_shown: String::new(),
        file_read: None,
    };
    follower.show_generation();
    let shutdown = context.shutdown.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = follower.run(&params.node_map) => {}
            () = shutdown.reached(Phase::Draining) => {}
        }
    });
    receiver
}

struct Follower {
    name: Name,
    metrics: Metrics,
    last_good: LastGood,
    keys: TrustedKeys,
    sender: watch::Sender<Option<Arc<NodeMap>>>,
    /// The last error logged: the same one again and again is counted, not logged.
    error_shown: String,
    /// The file that was read last and taken.
    file_read: Option<FileStamp>,
}

/// What tells one content of a file from another, since files are replaced, not rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    length: u64,
    changed: (i64, i64),
}

impl FileStamp {
    fn of(path: &Path) -> std::io::Result<Self> {
        let about = std::fs::metadata(path)?;
        let changed = (about.ctime(), about.ctime_nsec());
        Ok(Self { inode: about.ino(), length: about.len(), changed })
    }
}

/// Whether a generation is too far ahead of this host's clock to be true.
fn is_ahead(generation: u64) -> bool {
    generation > clock::now().wall_ms.saturating_add(AHEAD_MS_MAX)
}

/// Why a poll brought nothing usable. The first word is the metric's label.
#[derive(Debug, thiserror::Error)]
enum PollError {
    #[error("fetch")]
    Fetch(#[source] client::GetError),
    #[error("fetch")]
    Read(#[source] std::io::Error),
    #[error("status")]
    Status(#[source] StatusError),
    #[error("invalid")]
    Invalid(#[source] nodemap::published::ParseError),
    #[error("signature")]
    Signature(#[source] VerifyError),
    #[error("older")]
    Older(#[source] GenerationError),
    #[error("ahead")]
    Ahead(#[source] GenerationError),
}

#[derive(Debug, thiserror::Error)]
#[error("the publisher answered {0}")]
struct StatusError(StatusCode);

#[derive(Debug, thiserror::Error)]
#[error("offered generation {offered} is refused: {why}")]
struct GenerationError {
    offered: u64,
    why: &'static str,
}

/// A document that somebody offers, and the signature that came with it.
#[derive(Debug)]
struct Offer {
    document: Bytes,
    signature: Option<Signature>,
}

impl Offer {
    fn of(reply: &client::Reply) -> Self {
        let signature = reply.headers.get(SIGNATURE).and_then(|value| value.to_str().ok());
        Self {
            document: reply.body.clone(),
            signature: signature.and_then(|line| line.parse().ok()),
        }
    }
}

/// The signature in the file `PATH.minisig`.
fn beside(path: &Path) -> Option<Signature> {
    let mut name = path.as_os_str().to_owned();
    name.push(".minisig");
    let bytes = file::read_bounded(Path::new(&name), signature::FILE_BYTES_MAX).ok()?;
    let file: SignatureFile = std::str::from_utf8(&bytes).ok()?.parse().ok()?;
    Some(file.signature)
}

impl Follower {
    async fn run(&mut self, sources: &[Source]) {
        loop {
            let mut answered = false;
            for source in sources {
                // A source that answers is asked again at once; the next one only when it fails.
                loop {
                    let begun = clock::now();
                    match self.poll(source).await {
                        Ok(true) => {}
                        Ok(false) => self.rest(source, begun).await,
                        Err(error) => {
                            self.note(source, &error);
                            break;
                        }
                    }
                    answered = true;
                }
            }
            if !answered {
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    /// One poll; tells whether it brought a newer map.
    async fn poll(&mut self, source: &Source) -> Result<bool, PollError> {
        let newer = match source {
            Source::Http(url) => match self.poll_http(url).await? {
                Some(offer) => self.accept(&offer)?,
                None => false,
            },
            Source::File(path) => self.poll_file(path)?,
        };
        self.error_shown.clear();
        let confirmed = self.metrics.gauge(&host::NODE_MAP_CONFIRMED, &[]);
        confirmed.set(i64::try_from(clock::now().wall_s()).unwrap_or(i64::MAX));
        Ok(newer)
    }

    /// Waits before a source that had nothing new is asked again.
    async fn rest(&self, source: &Source, begun: Now) {
        let took = Duration::from_nanos(clock::now().mono_ns.saturating_sub(begun.mono_ns));
        tokio::time::sleep(pause(source, took)).await;
    }

    fn generation(&self) -> u64 {
        self.sender.borrow().as_ref().map_or(0, |map| map.generation)
    }

    async fn poll_http(&self, url: &Uri) -> Result<Option<Offer>, PollError> {
        let generation = self.generation();
        let mut headers = HeaderMap::new();
        headers.insert(READER, value(self.name.as_str()));
        headers.insert(GENERATION, value(&generation.to_string()));
        headers.insert(header::IF_NONE_MATCH, value(&format!("\"{generation}\"")));
        let separator = if url.query().is_some() { '&' } else { '?' };
        let url = format!("{url}{separator}wait={WAIT_S}").parse().unwrap_or_else(|_| url.clone());
        let ask = Get {
            url,
            connect_to: None,
            headers,
            timeout: if generation == 0 { FIRST } else { Duration::from_secs(WAIT_S + 10) },
            body_bytes_max: NODE_MAP_BYTES_MAX,
        };
        let reply = client::get(ask).await.map_err(PollError::Fetch)?;
        match reply.status {
            StatusCode::OK => Ok(Some(Offer::of(&reply))),
            StatusCode::NOT_MODIFIED => Ok(None),
            other => Err(PollError::Status(StatusError(other))),
        }
    }

    /// Takes what is in a file that is not the one taken last. Its signature is in the file beside
    /// it; while one of the two is replaced they do not fit, so they are looked at again.
    fn poll_file(&mut self, path: &Path) -> Result<bool, PollError> {
        let stamp = FileStamp::of(path).map_err(PollError::Read)?;
        if self.file_read == Some(stamp) {
            return Ok(false);
        }
        let bytes = file::read_bounded(path, NODE_MAP_BYTES_MAX as u64).map_err(PollError::Read)?;
        let newer = self.accept(&Offer { document: bytes.into(), signature: beside(path) })?;
        self.file_read = Some(stamp);
        Ok(newer)
    }

    /// Takes a newer map over, and puts it on disk before anybody acts on it; tells whether it did.
    fn accept(&mut self, offer: &Offer) -> Result<bool, PollError> {
        let Offer { document, signature } = offer;
        self.keys.verify(document, signature.as_ref()).map_err(PollError::Signature)?;
        let map = NodeMap::parse(document).map_err(PollError::Invalid)?;
        let (current, offered) = (self.generation(), map.generation);
        if offered == current {
            return Ok(false);
        }
        if offered < current {
            let why = "it is older than the one in use";
            return Err(PollError::Older(GenerationError { offered, why }));
        }
        if is_ahead(offered) {
            let why = "it is more than a day ahead of this host's clock: check both clocks";
            return Err(PollError::Ahead(GenerationError { offered, why }));
        }
        self.last_good.keep(document, signature.as_ref());
        tracing::info!(generation = offered, publisher = map.publisher, "new node map");
        self.sender.send_replace(Some(Arc::new(map)));
        self.show_generation();
        Ok(true)
    }

    fn show_generation(&self) {
        let gauge = self.metrics.gauge(&host::NODE_MAP_GENERATION, &[]);
        gauge.set(i64::try_from(self.generation()).unwrap_or(i64::MAX));
    }

    fn note(&mut self, source: &Source, error: &PollError) {
        let reason = error.to_string();
        self.metrics.counter(&host::NODE_MAP_ERRORS, &[&reason]).inc();
        let mut chain = String::new();
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            if !chain.is_empty() {
                chain.push_str(": ");
            }
            chain.push_str(&error.to_string());
            cause = error.source();
        }
        let line = format!("{source} {reason} {chain}");
        if self.error_shown != line {
            tracing::warn!(
                %source,
                reason,
                error = chain,
                "node map poll failed, going on with the last good one if there is one"
            );
            self.error_shown = line;
        }
    }
}

/// The wait after a poll that took `took` and brought nothing new. A publisher that holds polls is
/// asked again at once.
fn pause(source: &Source, took: Duration) -> Duration {
    let least = match source {
        Source::Http(_) => QUIET,
        Source::File(_) => FILE_POLL,
    };
    least.saturating_sub(took)
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}
