//! The dns role: the answers of `dns-proto` over UDP and TCP, from a snapshot that is swapped
//! whole.
//!
//! # A tour in flow order
//! 1. [`Dns::bind`] builds the first snapshot and opens the sockets; [`Dns::serve`] runs until
//!    shutdown.
//! 2. `udp`: one thread and one socket (SO_REUSEPORT) each; a batch in, a batch out.
//! 3. `tcp`: connections with pipelining, bounded in number, memory and patience.
//! 4. `update`: a new view of `rt::steering`, or new zone files -> a new snapshot, built beside the query
//!    path; `zones` reads the files.
//! 5. `cookies`: the secrets of cookies; `proxy`: who asked a proxy; `keys`: key files -> what signs the
//!    answers of a zone; `transfers`: who may copy zones.
//! 6. `counters`, `meters` and `status`: what is counted and shown; `scribe`: what is asked of some
//!    queries only; `query_log`: their lines.
//!
//! # Invariants
//! - S4: a reload loses and delays no query. Queries load the snapshot without a lock; snapshots
//!   are built, and the old ones freed, by other threads than theirs.
//! - Memory is bounded: fixed buffers per UDP thread, a bounded number of
//!   TCP connections with a few KiB of input and about 128 KiB of output at most.
//!
//! Knows nothing of the wire format and of how nodes are chosen.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;

use dns_proto::{Limiter, Manners};
use rt::listen::ListenError;
use rt::steering::Watched;
use rt::{Context, Phase};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

mod cookies;
mod counters;
mod keys;
mod meters;
mod params;
mod proxy;
mod query_log;
mod scribe;
mod shared;
mod tcp;
mod transfers;
mod udp;
mod update;
mod zones;

use cookies::Cookies;
use keys::Signing;

pub use cookies::CookieError;
pub use dns_proto::dnssec::{Cds, Duty};
pub use dns_proto::{PER_SECOND_MAX, Rates, TEXT_BYTES_MAX};
pub use keys::{KeyFile, KeysError, SignParams, VALIDITY_S_DEFAULT, load_key};
pub use params::{LogParams, Params};
use proxy::Proxies;
use shared::Shared;
pub use transfers::{TransferParams, TransfersError, load_transfers};
use update::{StartError, Updater};
pub use zones::ZoneFolder;

/// UDP threads for each address when the configuration names no number: one a core, at most.
const UDP_THREADS_DEFAULT_MAX: usize = 8;
/// How often a port of the system's choice is tried to be free for UDP and TCP alike.
const PORT_ATTEMPTS: usize = 16;

/// Why the role could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address could not be bound.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A zone cannot be signed.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// Zones cannot be given to others.
    #[error(transparent)]
    Transfers(#[from] TransfersError),
    /// A socket option or address is not to be had.
    #[error("cannot set up a socket")]
    Socket(#[source] io::Error),
    /// Cookies cannot be made.
    #[error("cookies cannot be made")]
    Cookies(#[from] CookieError),
    /// The system has no random bytes to give.
    #[error("the system gives no random bytes")]
    Random,
    /// The system gives no thread.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// A zone file cannot be used.
    #[error("{0}")]
    Zones(String),
    /// A part of the role ended by a defect.
    #[error("a part of the role broke down: please report it with the log")]
    Defect,
}

impl From<StartError> for Error {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Defect => Self::Defect,
            StartError::Zones(findings) => {
                let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
                Self::Zones(lines.join("\n"))
            }
        }
    }
}

/// A DNS server whose sockets are open.
pub struct Dns {
    udp: Vec<UdpSocket>,
    tcp: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    watched: Watched,
    updater: Updater,
    shared: Arc<Shared>,
    context: Context,
}

impl Dns {
    /// Builds the first snapshot if a node map is known, and opens the sockets. Needs a tokio
    /// runtime.
    pub async fn bind(params: Params, watched: Watched, context: Context) -> Result<Self, Error> {
        let threads = udp_threads(params.udp_threads);
        let signing = Signing::load(&params.sign, &context)?;
        let cookies = Cookies::load(
            params.cookie_secret_file.as_deref(),
            &context.state_dir,
            rt::clock::now(),
        )?;
        let seed = rt::clock::secret().ok_or(Error::Random)?;
        let limiter = Arc::new(Limiter::new(params.rates.clone(), seed));
        let manners = Manners {
            cookies: Some(cookies.keys()),
            nsid: params.nsid.as_deref().map(Into::into),
            version: params.version.as_deref().map(Into::into),
            limiter: Some(limiter),
            transfers: Some(Arc::new(load_transfers(&params.transfers)?)),
            tcp_idle_ds: 0,
        };
        let proxies = Proxies::new(params.proxy_from);
        let shared = Shared::new(manners, Some(cookies), proxies, signing, params.log, &context);
        let shared = Arc::new(shared);
        // Before the sockets are open: a server that starts with a last good map never says that
        // it has none.
        let zone_files = params.zone_files.as_deref();
        let updater = Updater::start(watched.clone(), Arc::clone(&shared), zone_files).await?;
        let mut bound = Self {
            udp: Vec::new(),
            tcp: Vec::new(),
            addresses: Vec::new(),
            watched,
            updater,
            shared,
            context,
        };
        for address in params.listen {
            bound.listen(address, threads)?;
        }
        let (shared, addresses) = (Arc::clone(&bound.shared), bound.addresses.clone());
        let watched = bound.watched.clone();
        bound.context.status.set("dns", move || shared.status(&watched, &addresses, threads));
        Ok(bound)
    }

    /// Opens the UDP sockets and the TCP listener of one address.
    fn listen(&mut self, address: SocketAddr, threads: usize) -> Result<(), Error> {
        let mut attempts = PORT_ATTEMPTS;
        let (udp, tcp, bound) = loop {
            attempts = attempts.saturating_sub(1);
            let udp = rt::listen::udp_shared(&self.context.sockets, address, threads)?;
            let first = udp.first().map_or(Ok(address), UdpSocket::local_addr);
            let bound = first.map_err(Error::Socket)?;
            match rt::listen::tcp(&self.context.sockets, bound) {
                Ok(tcp) => break (udp, tcp, bound),
                // The system chose a port that is free for UDP only: let it choose again.
                Err(ListenError::InUse { .. }) if address.port() == 0 && attempts > 0 => {}
                Err(error) => return Err(error.into()),
            }
        };
        for socket in &udp {
            udp::prepare(socket, bound).map_err(Error::Socket)?;
        }
        self.udp.extend(udp);
        self.tcp.push(tcp);
        self.addresses.push(bound);
        Ok(())
    }

    /// The addresses listened on, with the ports that port 0 was given.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Answers until shutdown; what was asked before is still answered.
    pub async fn serve(self) -> Result<(), Error> {
        let Self { udp, tcp, addresses, updater, shared, context, .. } = self;
        let log = shared.start_log().map_err(Error::Thread)?;
        tracing::info!(?addresses, udp_sockets = udp.len(), "dns answers");
        let (sender, mut ended) = mpsc::channel(udp.len().max(1));
        let mut threads = Vec::new();
        for (i, socket) in udp.into_iter().enumerate() {
            let worker = udp::Worker::new(socket, Arc::clone(&shared), &context);
            let ending = Ending(sender.clone());
            let spawned = thread::Builder::new().name(format!("dns-udp-{i}")).spawn(move || {
                let _ending = ending;
                worker.run();
            });
            threads.push(spawned.map_err(Error::Thread)?);
        }
        drop(sender);
        let mut tasks = JoinSet::new();
        let server =
            Arc::new(tcp::Server::new(tcp::Limits::default(), Arc::clone(&shared), &context));
        for listener in tcp {
            tasks.spawn(Arc::clone(&server).listen(listener));
        }
        let (keeping, shutdown) = (Arc::clone(&shared), context.shutdown.clone());
        tasks.spawn(async move { keeping.keep_cookies(&shutdown).await });
        let watching = context.shutdown.clone();
        tasks.spawn(updater.run(context.shutdown.clone()));
        tasks.spawn(async move {
            match &shared.signing {
                Some(signing) => signing.watch(watching).await,
                None => watching.reached(Phase::Draining).await,
            }
        });
        let early = tokio::select! {
            () = context.shutdown.reached(Phase::Draining) => false,
            _ = tasks.join_next() => !context.shutdown.has_reached(Phase::Draining),
            _ = ended.recv() => !context.shutdown.has_reached(Phase::Draining),
        };
        if early {
            // A part broke down: the rest ends with it.
            context.shutdown.end_soon();
        }
        while ended.recv().await.is_some() {}
        let threads_sound = threads.into_iter().all(|thread| thread.join().is_ok());
        while tasks.join_next().await.is_some() {}
        // What was answered last is in it.
        drop(log);
        if early || !threads_sound { Err(Error::Defect) } else { Ok(()) }
    }
}

/// Says that a thread has ended, in whatever way.
struct Ending(mpsc::Sender<()>);

impl Drop for Ending {
    fn drop(&mut self) {
        // There is room for every thread.
        let _ = self.0.try_send(());
    }
}

/// Threads, and sockets, of each address.
pub fn udp_threads(configured: Option<u32>) -> usize {
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    match configured.and_then(|n| usize::try_from(n).ok()) {
        Some(n) => n.max(1),
        None => cores().min(UDP_THREADS_DEFAULT_MAX),
    }
}

#[cfg(test)]
mod tests;
