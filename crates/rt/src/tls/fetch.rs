//! Certificates that the publisher of node maps orders: fetched from it, kept, and used at once.
//!
//! The node map says where they are to be had, whose key is to be there, and when the last one was
//! issued; a new one, or an edit of the maps, is a reason to fetch, and so is an hour. What came is kept
//! in `STATE_DIR/certificates`, readable by this user alone, so that a host starts with it whoever is
//! down; what this node is not to have any more is removed. Failures are tried again at growing
//! distances.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::Empty;
use model::{Dice, Name};
use nodemap::{HandOut, NodeMap};
use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Certificate, CertificateFiles, Certificates};
use crate::file::write_atomic_private;
use crate::follow::Following;
use crate::identity::Identity;
use crate::metrics::{Counter, tls as metric};
use crate::{Metrics, Phase, Shutdown, client, clock};

/// Folder in the state directory.
pub const FOLDER: &str = "certificates";
/// For everything of one fetch.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Largest answer, bytes: a thousand certificates.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Most certificates that are taken.
const CERTIFICATES_MAX: usize = 1000;
/// When nothing has changed.
const AGAIN: Duration = Duration::from_secs(3600);
/// After the first failure; each further one waits twice as long.
const RETRY: Duration = Duration::from_secs(5);
/// Longest such pause.
const RETRY_MAX: Duration = Duration::from_secs(300);

/// What the publisher answers.
#[derive(Serialize, Deserialize)]
pub struct Document {
    /// Version of the document, 1.
    pub format: u32,
    /// All that this node is to have.
    pub certificates: Vec<One>,
}

/// A certificate.
#[derive(Serialize, Deserialize)]
pub struct One {
    /// The name it was ordered for; may begin with `*.`.
    pub name: String,
    /// Key and chain in PEM.
    pub pem: String,
}

/// Why nothing was fetched. No secret is in it.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("{0} is no HOST:PORT")]
    Address(String),
    #[error("cannot connect to {0}")]
    Connect(String, #[source] io::Error),
    #[error("{0} does not prove that it is the publisher, or does not speak TLS 1.3")]
    Handshake(String, #[source] io::Error),
    #[error("TLS cannot be spoken with the identity of this host")]
    Identity(#[source] rustls::Error),
    #[error("broken answer")]
    Answer(#[source] client::GetError),
    #[error("no answer in {} s", TIMEOUT.as_secs())]
    Late,
    #[error(
        "the publisher does not know this node: add identity = \"{0}\" to it in the maps (node.NAME)"
    )]
    Stranger(nodemap::KeyDigest),
    #[error("the publisher answered {0}")]
    Status(StatusCode),
    #[error("what the publisher answered is no list of certificates of format 1")]
    Document,
    #[error("the certificate of {0} cannot be used: {1}")]
    Unusable(String, String),
    #[error("cannot keep certificates in {0}")]
    Keep(PathBuf, #[source] io::Error),
}

/// Fetches for one host.
pub struct Fetcher {
    certificates: Certificates,
    identity: Arc<Identity>,
    /// Which node this is.
    node: Name,
    folder: PathBuf,
    following: Following,
    results: [Counter; 2],
    dice: Dice,
    /// What the maps said when was last fetched.
    fetched: Option<Arc<NodeMap>>,
    failures: u32,
}

impl Fetcher {
    /// One that has fetched nothing yet.
    pub fn new(
        certificates: Certificates,
        identity: Arc<Identity>,
        node: Name,
        state_dir: &Path,
        following: Following,
        metrics: &Metrics,
    ) -> Self {
        Self {
            certificates,
            identity,
            node,
            folder: state_dir.join(FOLDER),
            following,
            results: ["good", "failed"].map(|word| metrics.counter(&metric::FETCHES, &[word])),
            dice: clock::dice(),
            fetched: None,
            failures: 0,
        }
    }

    /// Fetches whenever there is a reason, until the process yields or drains.
    pub async fn run(mut self, shutdown: Shutdown) {
        loop {
            let map = self.following.borrow_and_update().clone();
            let reason = map.filter(|map| self.is_reason(map));
            if let Some(map) = reason {
                self.fetch(map).await;
            }
            tokio::select! {
                () = tokio::time::sleep(self.pause()) => self.fetched = None,
                changed = self.following.changed() => if changed.is_err() { return },
                () = shutdown.reached(Phase::Yielded) => return,
            }
        }
    }

    /// Whether `map` says anything of certificates that the one before did not. While the publisher cannot
    /// be reached, maps are no reason: the pause is.
    fn is_reason(&self, map: &NodeMap) -> bool {
        let hand_out = |map: &NodeMap| map.acme.as_ref().and_then(|acme| acme.hand_out.clone());
        let Some(new) = hand_out(map) else { return false };
        let before = self.fetched.as_ref();
        before.is_none_or(|before| hand_out(before).as_ref() != Some(&new) || before.map != map.map)
    }

    fn pause(&mut self) -> Duration {
        let nth = self.failures.saturating_sub(1).min(16);
        let pause = match self.failures {
            0 => AGAIN,
            _ => RETRY.saturating_mul(1 << nth).min(RETRY_MAX),
        };
        let lot_ms = u64::try_from(pause.as_millis() / 5).unwrap_or(0).max(1);
        pause.saturating_add(Duration::from_millis(self.dice.below(lot_ms)))
    }

    async fn fetch(&mut self, map: Arc<NodeMap>) {
        let hand_out = map.acme.as_ref().and_then(|acme| acme.hand_out.as_ref());
        let Some(hand_out) = hand_out.cloned() else { return };
        self.fetched = Some(map);
        let [good, failed] = &self.results;
        match self.try_fetch(&hand_out).await {
            Ok(count) => {
                good.inc();
                self.failures = 0;
                tracing::info!(node = %self.node, count, "certificates were fetched");
            }
            Err(error) => {
                failed.inc();
                self.failures = self.failures.saturating_add(1);
                let error: &dyn std::error::Error = &error;
                let why = error.source().map(|why| format!(": {why}")).unwrap_or_default();
                tracing::error!("certificates cannot be fetched: {error}{why}");
            }
        }
    }

    async fn try_fetch(&self, hand_out: &HandOut) -> Result<usize, FetchError> {
        let asking = tokio::time::timeout(TIMEOUT, ask(&self.identity, hand_out));
        let document = asking.await.unwrap_or(Err(FetchError::Late))?;
        let (folder, certificates) = (self.folder.clone(), self.certificates.clone());
        let work = move || {
            let count = keep(&folder, &document)?;
            certificates
                .reload()
                .map_err(|error| FetchError::Unusable("this host".to_owned(), error.to_string()))?;
            Ok(count)
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(kept) => kept,
            Err(error) => Err(FetchError::Keep(self.folder.clone(), io::Error::other(error))),
        }
    }
}

async fn ask(identity: &Identity, hand_out: &HandOut) -> Result<Document, FetchError> {
    let address = &hand_out.address;
    let bad = || FetchError::Address(address.clone());
    let (host, _) = address.rsplit_once(':').ok_or_else(bad)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned()).map_err(|_| bad())?;
    let config = identity.client_config(hand_out.identity).map_err(FetchError::Identity)?;
    let stream = TcpStream::connect(address.as_str()).await;
    let stream = stream.map_err(|error| FetchError::Connect(address.clone(), error))?;
    let stream = TlsConnector::from(config).connect(name, stream).await;
    let stream = stream.map_err(|error| FetchError::Handshake(address.clone(), error))?;
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = http::Uri::from_static("/certificates");
    let value = HeaderValue::from_str(address).map_err(|_| bad())?;
    request.headers_mut().insert(header::HOST, value);
    let reply = client::exchange(stream, request, ANSWER_BYTES_MAX).await;
    let reply = reply.map_err(FetchError::Answer)?;
    match reply.status {
        StatusCode::OK => {}
        StatusCode::FORBIDDEN => return Err(FetchError::Stranger(identity.digest())),
        status => return Err(FetchError::Status(status)),
    }
    let document: Option<Document> = serde_json::from_slice(&reply.body).ok();
    let is_known = |document: &Document| {
        document.format == 1 && document.certificates.len() <= CERTIFICATES_MAX
    };
    document.filter(is_known).ok_or(FetchError::Document)
}

/// Keeps all of `document` and nothing else: none of it when one cannot be used.
fn keep(folder: &Path, document: &Document) -> Result<usize, FetchError> {
    let failed = |error| FetchError::Keep(folder.to_owned(), error);
    let mut stay = BTreeSet::new();
    for One { name, pem } in &document.certificates {
        let unusable = |why: String| FetchError::Unusable(name.clone(), why);
        let file = file_name(name).ok_or_else(|| unusable("that is no name of a host".into()))?;
        let path = folder.join(&file);
        let files = CertificateFiles { chain: path.clone(), key: path };
        Certificate::parse(&files, pem.as_bytes(), pem.as_bytes())
            .map_err(|error| unusable(error.to_string()))?;
        stay.insert(file);
    }
    make_folder(folder).map_err(failed)?;
    for One { name, pem } in &document.certificates {
        let Some(file) = file_name(name) else { continue };
        write_atomic_private(&folder.join(file), pem.as_bytes()).map_err(failed)?;
    }
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let is_kept = entry.file_name().to_str().is_some_and(|name| stay.contains(name));
        if !is_kept {
            fs::remove_file(entry.path()).map_err(failed)?;
        }
    }
    Ok(document.certificates.len())
}

fn make_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::create_dir_all(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
}

/// Files of the certificates that were fetched, in order; none without a folder.
pub(super) fn files_in(folder: Option<&Path>) -> Vec<CertificateFiles> {
    let entries = folder.and_then(|folder| fs::read_dir(folder).ok());
    let paths = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "pem")).collect();
    paths.sort();
    paths.into_iter().map(|path| CertificateFiles { chain: path.clone(), key: path }).collect()
}

/// The file of a name, if it is the name of a host or a wildcard: nothing else gets near the disk.
fn file_name(name: &str) -> Option<String> {
    let (star, host) = match name.strip_prefix("*.") {
        Some(host) => ("_.", host),
        None => ("", name),
    };
    let host: model::HostName = host.parse().ok()?;
    Some(format!("{star}{host}.pem"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str) -> One {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        One { name: name.into(), pem: made.signing_key.serialize_pem() + &made.cert.pem() }
    }

    #[test]
    fn the_folder_holds_what_was_said_last_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join(FOLDER);
        let names = || {
            let mut names: Vec<String> = fs::read_dir(&folder)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        let document = |certificates| Document { format: 1, certificates };
        let all = document(vec![one("a.example"), one("*.b.example")]);
        assert_eq!(keep(&folder, &all).unwrap(), 2);
        assert_eq!(names(), ["_.b.example.pem", "a.example.pem"]);
        let broken = One { name: "c.example".into(), pem: "x".into() };
        for bad in [broken, One { name: "../c".into(), ..one("c.example") }] {
            assert!(keep(&folder, &document(vec![one("d.example"), bad])).is_err());
            assert_eq!(names(), ["_.b.example.pem", "a.example.pem"], "all or nothing");
        }
        assert_eq!(keep(&folder, &document(vec![one("a.example")])).unwrap(), 1);
        assert_eq!(names(), ["a.example.pem"]);
        assert_eq!(keep(&folder, &document(vec![])).unwrap(), 0);
        assert!(names().is_empty(), "a guest keeps nothing");
    }
}
