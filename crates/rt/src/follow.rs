//! Following the node map: the last good file at once, then the publisher by long poll.
//!
//! Invariants (H2): a reader never goes back to an older generation, refuses one more than a day
//! ahead of its clock, keeps the last good map on disk and serves from it whatever happens to the
//! publisher. A map that does not parse changes nothing.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use model::{Name, Now};
use nodemap::NodeMap;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::client::{self, Get};
use crate::metrics::host;
use crate::{Context, Metrics, Phase, clock, file};

/// Largest node map read, in bytes.
pub const NODE_MAP_BYTES_MAX: usize = 64 << 20;
/// Name of the reader, sent with each poll.
pub const READER: HeaderName = HeaderName::from_static("cacheboy-reader");
/// Generation the reader runs, sent with each poll.
pub const GENERATION: HeaderName = HeaderName::from_static("cacheboy-generation");
/// How far ahead of our clock a generation may be, milliseconds.
pub const AHEAD_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// How long the publisher may hold a poll.
const WAIT_S: u64 = 30;
/// Wait after a round in which no source answered.
const RETRY: Duration = Duration::from_millis(500);
/// How often a file is looked at.
const FILE_POLL: Duration = Duration::from_millis(100);
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
}

/// The node map as it changes: `None` until a first one is known.
pub type Following = watch::Receiver<Option<Arc<NodeMap>>>;

/// Starts to follow; the task ends with the context's shutdown.
///
/// The last good map is read before this returns, so that a role that starts while every publisher
/// is away has it at once.
pub fn start(params: FollowParams, context: &Context) -> Following {
    let last_good = last_good_path(&context.state_dir);
    let first = load_last_good(&last_good);
    let (sender, receiver) = watch::channel(first);
    let may_write = Arc::new(Mutex::new(true));
    let pen = Arc::clone(&may_write);
    context.on_yield("last good node map", async move {
        // Waits for a write under way, on a thread that may.
        let taken = spawn_blocking(move || *lock(&pen) = false);
        let _ = taken.await;
    });
    let mut follower = Follower {
        name: context.name.clone(),
        metrics: context.metrics.clone(),
        last_good,
        may_write,
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

fn lock(flag: &Mutex<bool>) -> MutexGuard<'_, bool> {
    flag.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file that holds the last map taken over.
pub fn last_good_path(state_dir: &Path) -> PathBuf {
    state_dir.join("node-map.last-good.json")
}

fn load_last_good(path: &Path) -> Option<Arc<NodeMap>> {
    let bytes = file::read_bounded(path, NODE_MAP_BYTES_MAX as u64).ok()?;
    match NodeMap::parse(&bytes) {
        Ok(map) if is_ahead(map.generation) => {
            tracing::warn!(
                generation = map.generation,
                "the last good node map is more than a day \
                ahead of this host's clock and is not used: check the clock"
            );
            None
        }
        Ok(map) => {
            tracing::info!(generation = map.generation, "node map from the last run");
            Some(Arc::new(map))
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the last good node map is unreadable");
            None
        }
    }
}

struct Follower {
    name: Name,
    metrics: Metrics,
    last_good: PathBuf,
    /// False once the file is a successor's.
    may_write: Arc<Mutex<bool>>,
    sender: watch::Sender<Option<Arc<NodeMap>>>,
    /// The last error logged: the same one again and again is counted, not logged.
    error_shown: String,
    /// The file that was read last.
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
        let bytes = match source {
            Source::Http(url) => self.poll_http(url).await?,
            Source::File(path) => self.poll_file(path)?,
        };
        let newer = bytes.map_or(Ok(false), |bytes| self.accept(&bytes))?;
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

    async fn poll_http(&self, url: &Uri) -> Result<Option<Vec<u8>>, PollError> {
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
            StatusCode::OK => Ok(Some(reply.body.into())),
            StatusCode::NOT_MODIFIED => Ok(None),
            other => Err(PollError::Status(StatusError(other))),
        }
    }

    /// The content of a file that is not the one read last.
    fn poll_file(&mut self, path: &Path) -> Result<Option<Vec<u8>>, PollError> {
        let stamp = FileStamp::of(path).map_err(PollError::Read)?;
        if self.file_read == Some(stamp) {
            return Ok(None);
        }
        let bytes = file::read_bounded(path, NODE_MAP_BYTES_MAX as u64).map_err(PollError::Read)?;
        self.file_read = Some(stamp);
        Ok(Some(bytes))
    }

    /// Takes a newer map over, and puts it on disk before anybody acts on it; tells whether it did.
    fn accept(&mut self, bytes: &[u8]) -> Result<bool, PollError> {
        let map = NodeMap::parse(bytes).map_err(PollError::Invalid)?;
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
        self.keep(bytes);
        tracing::info!(generation = offered, publisher = map.publisher, "new node map");
        self.sender.send_replace(Some(Arc::new(map)));
        self.show_generation();
        Ok(true)
    }

    fn keep(&self, bytes: &[u8]) {
        let may_write = lock(&self.may_write);
        if *may_write && let Err(error) = file::write_atomic(&self.last_good, bytes) {
            tracing::warn!(path = %self.last_good.display(), %error,
                "cannot keep the node map for the next start");
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    fn document(generation: u64) -> Vec<u8> {
        nodemap::testing::node_map(generation).to_json()
    }

    fn context(state_dir: &Path) -> Context {
        Context::new("dns1".parse().unwrap(), state_dir.to_owned())
    }

    /// A publisher that answers each poll with the next reply it is given; gives the heads it saw.
    async fn publisher() -> (Uri, mpsc::Sender<Vec<u8>>, mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/node-map", listener.local_addr().unwrap()).parse().unwrap();
        let (replies, mut next) = mpsc::channel::<Vec<u8>>(8);
        let (saw, heads) = mpsc::channel(8);
        tokio::spawn(async move {
            while let Some(reply) = next.recv().await {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                saw.send(String::from_utf8(head).unwrap()).await.unwrap();
                stream.write_all(&reply).await.unwrap();
            }
        });
        (url, replies, heads)
    }

    fn ok(body: &[u8]) -> Vec<u8> {
        let mut reply =
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
        reply.extend_from_slice(body);
        reply
    }

    async fn generation(following: &mut Following, wanted: u64) {
        let is = |map: &Option<Arc<NodeMap>>| map.as_ref().is_some_and(|m| m.generation == wanted);
        following.wait_for(is).await.unwrap();
    }

    #[tokio::test]
    async fn follows_newer_maps_refuses_others_and_starts_from_the_last_good() {
        let dir = tempfile::tempdir().unwrap();
        let context = context(dir.path());
        let (url, replies, mut heads) = publisher().await;
        let params = FollowParams { node_map: vec![Source::Http(url)] };
        let mut following = start(params.clone(), &context);
        assert!(following.borrow().is_none());

        replies.send(ok(&document(5))).await.unwrap();
        generation(&mut following, 5).await;
        let head = heads.recv().await.unwrap();
        assert!(head.starts_with("GET /node-map?wait=30 "), "{head}");
        assert!(head.contains("cacheboy-reader: dns1\r\n"), "{head}");
        assert!(head.contains("cacheboy-generation: 0\r\n"), "{head}");

        let ahead = clock::now().wall_ms + AHEAD_MS_MAX + 60_000;
        for refused in [ok(&document(4)), ok(b"{}"), ok(&document(ahead)), ok(&document(6))] {
            replies.send(refused).await.unwrap();
        }
        generation(&mut following, 6).await;
        let errors = |reason| context.metrics.counter(&host::NODE_MAP_ERRORS, &[reason]).get();
        assert_eq!((errors("older"), errors("invalid"), errors("ahead")), (1, 1, 1));
        context.shutdown.end_soon();

        let again = start(params, &self::context(dir.path()));
        assert_eq!(again.borrow().as_ref().unwrap().generation, 6);
    }

    #[test]
    fn a_source_that_does_not_hold_polls_is_asked_once_a_second() {
        let http = Source::Http("http://a.example".parse().unwrap());
        let ms = Duration::from_millis;
        assert_eq!(pause(&http, ms(3)), ms(997));
        assert_eq!(pause(&http, ms(30_000)), ms(0), "it held the poll");
        assert_eq!(pause(&Source::File("map.json".into()), ms(1)), ms(99));
    }

    #[test]
    fn a_file_is_read_again_only_when_it_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("map.json");
        file::write_atomic(&path, &document(1)).unwrap();
        let mut follower = Follower {
            name: "dns1".parse().unwrap(),
            metrics: Metrics::new(),
            last_good: dir.path().join("last.json"),
            may_write: Arc::new(Mutex::new(true)),
            sender: watch::Sender::new(None),
            error_shown: String::new(),
            file_read: None,
        };
        assert!(follower.poll_file(&path).unwrap().is_some());
        assert!(follower.poll_file(&path).unwrap().is_none());
        file::write_atomic(&path, &document(1)).unwrap();
        assert!(follower.poll_file(&path).unwrap().is_some(), "replaced");
    }

    #[test]
    fn a_last_good_map_from_the_future_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let ahead = clock::now().wall_ms + 2 * AHEAD_MS_MAX;
        file::write_atomic(&last_good_path(dir.path()), &document(ahead)).unwrap();
        assert!(load_last_good(&last_good_path(dir.path())).is_none());
        file::write_atomic(&last_good_path(dir.path()), &document(7)).unwrap();
        assert_eq!(load_last_good(&last_good_path(dir.path())).unwrap().generation, 7);
    }

    #[tokio::test]
    async fn follows_a_file_that_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("map.json");
        file::write_atomic(&path, &document(1)).unwrap();
        let context = context(dir.path());
        let mut following =
            start(FollowParams { node_map: vec![Source::File(path.clone())] }, &context);
        generation(&mut following, 1).await;
        file::write_atomic(&path, &document(2)).unwrap();
        generation(&mut following, 2).await;
        context.shutdown.end_soon();
    }
}
