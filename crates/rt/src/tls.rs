//! TLS towards clients: the host's certificates, chosen by the name that a client asks for.
//!
//! [`Certificates::load`] reads what `[[tls.certificate]]` names ([`load`] a file, [`names`] which
//! one answers for which name); [`Certificates::server_config`] is what a listener speaks TLS with,
//! and [`handshakes`] count what came of it.
//! All configs of a host share the certificates and the keys of [`tickets`].
//!
//! Those that the publisher of node maps orders lie in a folder of their own and come by [`fetch`].
//!
//! Certificates are re-read when their files change ([`Certificates::keep`], by [`watch`]) and on
//! request ([`Certificates::reload`]): all of them or none, so that a broken file leaves what was
//! there. Connections that are open go on with what they began with.
//!
//! TLS 1.2 and 1.3 by rustls on ring. No early data: whether a request may be replayed is not ours to
//! judge (RFC 8470).

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::metrics::{Counter, Metrics, tls as metric};
use crate::{Shutdown, clock};

pub mod fetch;
mod handshakes;
mod load;
mod names;
mod tickets;
mod watch;

pub use handshakes::Handshakes;
pub use load::{Certificate, CertificateFiles, LoadError, is_open_to_others};
use names::ByName;
pub use tickets::NoEntropy;
use tickets::Tickets;
use watch::{Stamps, Watch};

/// Name of the file in the state directory with the keys of tickets.
const TICKETS_FILE: &str = "tls-tickets";

/// Why a host cannot speak TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A certificate cannot be used.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// No keys can be made.
    #[error(transparent)]
    NoEntropy(#[from] NoEntropy),
    /// The library refuses.
    #[error("TLS cannot be set up")]
    Setup(#[source] rustls::Error),
}

/// The certificates of a host; a clone for each listener.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// What all configs have in common.
    base: Arc<ServerConfig>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    files: Vec<CertificateFiles>,
    /// Where fetched ones lie, if there may be any.
    folder: Option<PathBuf>,
    current: ArcSwap<Set>,
    /// The files as they were when they were read last, whatever came of it.
    tried: Mutex<Stamps>,
    tickets: Arc<Tickets>,
    metrics: Metrics,
    reloads: [Counter; 2],
    unknown_names: Counter,
    handshakes: Handshakes,
}

/// The certificates at one time.
#[derive(Debug)]
struct Set {
    certificates: Vec<Certificate>,
    by_name: ByName,
}

impl Set {
    /// All of `files`, then what of the folder can be used: what others sent keeps nothing from its use.
    fn load(files: &[CertificateFiles], folder: Option<&Path>) -> Result<Self, LoadError> {
        let mut certificates =
            files.iter().map(Certificate::load).collect::<Result<Vec<_>, _>>()?;
        for files in fetch::files_in(folder) {
            match Certificate::load(&files) {
                Ok(certificate) => certificates.push(certificate),
                Err(error) => tracing::warn!(%error, "a fetched certificate is left out"),
            }
        }
        Ok(Self { by_name: ByName::new(&certificates), certificates })
    }
}

impl Certificates {
    /// Reads all of `files`; the first is also shown to clients that name no host. The keys of
    /// tickets lie in `state_dir`; with `fetches` also certificates that come by [`fetch`].
    pub fn load(
        files: &[CertificateFiles],
        fetches: bool,
        state_dir: &Path,
        metrics: &Metrics,
    ) -> Result<Self, TlsError> {
        let folder = fetches.then(|| state_dir.join(fetch::FOLDER));
        let tried = Stamps::of(files);
        let set = Set::load(files, folder.as_deref())?;
        let tickets = Arc::new(Tickets::open(&state_dir.join(TICKETS_FILE), clock::now())?);
        let shared = Arc::new(Shared {
            files: files.to_vec(),
            folder,
            current: ArcSwap::from_pointee(set),
            tried: Mutex::new(tried),
            tickets: Arc::clone(&tickets),
            metrics: metrics.clone(),
            reloads: ["good", "failed"].map(|word| metrics.counter(&metric::RELOADS, &[word])),
            unknown_names: metrics.counter(&metric::UNKNOWN_NAMES, &[]),
            handshakes: Handshakes::new(metrics),
        });
        shared.show_expiry(&[]);
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().map_err(TlsError::Setup)?;
        let resolver = Arc::clone(&shared) as Arc<dyn ResolvesServerCert>;
        let mut base = builder.with_no_client_auth().with_cert_resolver(resolver);
        // What a client needs to come back is in its ticket alone.
        base.session_storage = Arc::new(NoServerSessionStorage {});
        base.ticketer = tickets;
        Ok(Self { base: Arc::new(base), shared })
    }

    /// What a listener speaks TLS with; `alpn` are the protocols it has, the best first.
    pub fn server_config(&self, alpn: &[&[u8]]) -> Arc<ServerConfig> {
        let mut config = ServerConfig::clone(&self.base);
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        Arc::new(config)
    }

    /// Reads the files again, and shows what is in them from now on. Blocks.
    ///
    /// # Errors
    /// When one of them cannot be used: then everything stays as it was.
    pub fn reload(&self) -> Result<(), LoadError> {
        self.shared.reload(Stamps::of(&self.shared.files))
    }

    /// Re-reads the files when they change, and renews the keys of tickets, until the process
    /// yields or drains.
    pub async fn keep(self, shutdown: Shutdown) {
        let mut watch = Watch::default();
        while watch.pause(&shutdown).await {
            let shared = Arc::clone(&self.shared);
            let look = tokio::task::spawn_blocking(move || {
                watch.look(&shared);
                shared.tickets.rotate_if_due(clock::now());
                watch
            });
            let Ok(back) = look.await else {
                tracing::error!("certificates are not watched any more: a fault of this program");
                return;
            };
            watch = back;
        }
    }

    /// Where listeners count their handshakes.
    pub fn handshakes(&self) -> &Handshakes {
        &self.shared.handshakes
    }

    /// What `/status` shows of handshakes.
    pub fn handshakes_status(&self) -> serde_json::Value {
        self.shared.handshakes.status()
    }

    /// What `/status` shows: each certificate with its names and dates.
    pub fn status(&self) -> serde_json::Value {
        let set = self.shared.current.load();
        set.certificates.iter().map(Certificate::status).collect()
    }
}

impl Shared {
    fn reload(&self, stamps: Stamps) -> Result<(), LoadError> {
        *self.tried.lock().unwrap_or_else(PoisonError::into_inner) = stamps;
        let [good, failed] = &self.reloads;
        let set = Set::load(&self.files, self.folder.as_deref()).inspect_err(|_| failed.inc())?;
        good.inc();
        let before = self.current.swap(Arc::new(set));
        self.show_expiry(&before.certificates);
        Ok(())
    }

    /// The dates as metrics; those of names that are gone become 0.
    fn show_expiry(&self, before: &[Certificate]) {
        let gauge = |certificate: &Certificate| {
            self.metrics.gauge(&metric::EXPIRY, &[certificate.first_name()])
        };
        before.iter().for_each(|gone| gauge(gone).set(0));
        // Of several with one name the first to expire counts, so it is set last.
        let set = self.current.load();
        let mut all: Vec<&Certificate> = set.certificates.iter().collect();
        all.sort_by_key(|certificate| std::cmp::Reverse(certificate.not_after_s));
        all.into_iter().for_each(|certificate| gauge(certificate).set(certificate.not_after_s));
    }
}

impl ResolvesServerCert for Shared {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let set = self.current.load();
        let found = set.by_name.choose(hello.server_name(), hello.signature_schemes()).cloned();
        if found.is_none() {
            self.unknown_names.inc();
            tracing::debug!(name = hello.server_name(), "no certificate has this name");
        }
        found
    }
}

#[cfg(test)]
mod tests;
