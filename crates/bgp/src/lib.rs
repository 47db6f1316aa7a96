//! The bgp role: hears the routes of routers, and tells them to whoever asks.
//!
//! # A tour in flow order
//! 1. [`Bgp::bind`] opens the listeners; [`Bgp::serve`] runs.
//! 2. `accept`: connections of peers, to whom they belong.
//! 3. `link`: one connection: its socket, what was read and is to be sent.
//! 4. `peer`: one peer: the session machine of `bgp-proto` and what it asks for.
//! 5. `desk`: what all share: the table of routes, and what is shown of each peer.
//! 6. `commit`: decides anew, at most once a second.
//! 7. `answer`: routes and status over HTTP.
//!
//! Beside sessions, `mrt` reads files of routes into the same table.
//!
//! # Invariants
//! - B1: nothing is announced; what is sent comes from `bgp-proto`, which can compose no announcement.
//! - All sessions share one thread: whatever routers send takes at most one processor.
//! - Bounded: connections a peer (two, and four that wait), bytes of a message, routes a peer.
//! - A connection is of the peer that has its address; any other is closed.
//!
//! Does not know what routes are for.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use model::{Asn, Name};
use rt::listen::ListenError;
use rt::{Context, clock, file, listen};
use tokio::net::TcpListener;

mod accept;
mod answer;
mod commit;
mod desk;
mod link;
mod mrt;
mod peer;

pub use bgp_proto::session::HOLD_S;
use desk::Desk;

/// The port of BGP.
pub const PORT: u16 = 179;
/// Routes that a peer may announce unless the config says otherwise: twice today's full tables.
pub const PREFIXES_MAX: [u32; 2] = [2_000_000, 500_000];
/// Peers of one collector.
pub const PEERS_MAX: usize = 256;
/// Files of one collector.
pub const FILES_MAX: usize = 64;
/// A key for signing segments is not longer (`TCP_MD5SIG`).
pub const KEY_BYTES_MAX: usize = 80;

/// `[bgp]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Where peers may connect; perhaps nowhere.
    pub listen: Vec<SocketAddr>,
    /// Where routes and status are served over HTTP; perhaps nowhere.
    pub publish: Vec<SocketAddr>,
    /// Our AS.
    pub asn: Asn,
    /// Our BGP identifier.
    pub identifier: Ipv4Addr,
    /// The hold time that we offer, in seconds.
    pub hold_s: u16,
    /// `[[bgp.peer]]`.
    pub peers: Vec<PeerParams>,
    /// `[[bgp.mrt]]`.
    pub files: Vec<MrtParams>,
}

/// One `[[bgp.mrt]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MrtParams {
    /// What it is called in logs, metrics and requests: no peer has the same name.
    pub name: Name,
    /// The file, as it is or compressed by gzip or bzip2.
    pub file: PathBuf,
    /// The view that its routes are in.
    pub view: Name,
    /// Only the routes of this peer of the collector that wrote it.
    pub from: Option<IpAddr>,
}

/// One `[[bgp.peer]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerParams {
    /// What it is called in logs, metrics and requests.
    pub name: Name,
    /// Its address.
    pub address: IpAddr,
    /// Its port, where we connect.
    pub port: u16,
    /// Its AS.
    pub asn: Asn,
    /// The view that its routes are in.
    pub view: Name,
    /// We wait for it to connect.
    pub passive: bool,
    /// The address that we connect from; the system's choice where it is none.
    pub local_address: Option<IpAddr>,
    /// A file with the key that both sides sign with (RFC 2385).
    pub md5_file: Option<PathBuf>,
    /// It is at most so many hops away, and what comes from further is dropped (RFC 5082).
    pub hops: Option<u8>,
    /// Routes that it may announce, IPv4 first.
    pub max_prefixes: [u32; 2],
}

/// Why the role could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address could not be bound.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A bound listener does not say its address.
    #[error("cannot learn the address of a listener")]
    Address(#[source] io::Error),
    /// The key of a peer cannot be read.
    #[error("bgp peer {0}: md5_file {1} cannot be read: is it there, and may this user read it?")]
    Key(Name, PathBuf, #[source] io::Error),
    /// The key of a peer cannot be used.
    #[error("bgp peer {0}: md5_file {1} is no key: write 1 to 80 bytes, on one line")]
    KeyLength(Name, PathBuf),
    /// The kernel does not sign.
    #[error(
        "bgp peer {0}: this kernel does not sign TCP segments: take md5_file away, or use another"
    )]
    Sign(Name, #[source] io::Error),
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    Random,
    /// There are too many peers.
    #[error("there are more peers than {}: divide them among several hosts", PEERS_MAX)]
    Peers,
    /// The sessions cannot be run.
    #[error("cannot start the thread of the sessions")]
    Thread(#[source] io::Error),
}

/// The role with its listeners open.
#[derive(Debug)]
pub struct Bgp {
    listeners: Vec<TcpListener>,
    publish: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    desk: Arc<Desk>,
    keys: BTreeMap<Name, Vec<u8>>,
    context: Context,
}

impl Bgp {
    /// Opens the listeners. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// What stands in the way of starting.
    pub fn bind(params: Params, context: Context) -> Result<Self, Error> {
        let keys = read_keys(&params.peers)?;
        let mut listeners = Vec::new();
        for address in &params.listen {
            let listener = listen::tcp(&context.sockets, *address)?;
            let of_family =
                params.peers.iter().filter(|peer| peer.address.is_ipv4() == address.is_ipv4());
            for peer in of_family {
                let Some(key) = keys.get(&peer.name) else { continue };
                sys::socket::sign_segments(&listener, peer.address, key)
                    .map_err(|source| Error::Sign(peer.name.clone(), source))?;
            }
            listeners.push(listener);
        }
        let publish: Result<Vec<_>, _> =
            params.publish.iter().map(|address| listen::tcp(&context.sockets, *address)).collect();
        let publish = publish?;
        let all = listeners.iter().chain(&publish).map(TcpListener::local_addr);
        let addresses = all.collect::<Result<_, _>>().map_err(Error::Address)?;
        let desk = Arc::new(
            Desk::new(params, secret().ok_or(Error::Random)?, &context).ok_or(Error::Peers)?,
        );
        let shown = Arc::clone(&desk);
        context.status.set("bgp", move || shown.show());
        let asked = Arc::clone(&desk);
        context.status.on_post("/bgp/refresh", move |body| {
            std::future::ready(answer::refresh(&asked, &body))
        });
        Ok(Self { listeners, publish, addresses, desk, keys, context })
    }

    /// The addresses listened on: of BGP, then of HTTP, in the order of the parameters.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Serves until the context's shutdown.
    ///
    /// # Errors
    /// When the thread of the sessions cannot be started.
    pub async fn serve(self) -> Result<(), Error> {
        let Self { listeners, publish, desk, keys, context, .. } = self;
        // A listener is of the runtime that made it, and is given to that of the sessions.
        let listeners: Result<Vec<_>, _> =
            listeners.into_iter().map(TcpListener::into_std).collect();
        let listeners = listeners.map_err(Error::Address)?;
        let (sessions, shutdown) = (Arc::clone(&desk), context.shutdown.clone());
        let thread = std::thread::Builder::new().name("bgp".to_owned());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Error::Thread)?;
        let (ended, end) = tokio::sync::oneshot::channel::<()>();
        let work = move || {
            runtime.block_on(accept::sessions(listeners, keys, sessions, shutdown));
            drop(ended);
        };
        let thread = thread.spawn(work).map_err(Error::Thread)?;
        for at in 0..desk.files.len() {
            tokio::spawn(mrt::follow(Arc::clone(&desk), at, context.shutdown.clone()));
        }
        let answerer = Arc::new(answer::Answerer::new(desk, &context));
        let followed = Arc::clone(&answerer);
        context.local_routes.publish(move |have| {
            let followed = Arc::clone(&followed);
            async move { followed.follow(&have).await }
        });
        let publish = publish.into_iter().map(Into::into).collect();
        serve::http(publish, answerer, answer::limits(), Arc::default(), context.shutdown.clone())
            .await;
        // The sender is dropped, never used.
        let _ = end.await;
        if thread.join().is_err() {
            tracing::error!("the thread of the sessions ended by a defect");
        }
        Ok(())
    }
}

/// The keys of the peers that have one.
fn read_keys(peers: &[PeerParams]) -> Result<BTreeMap<Name, Vec<u8>>, Error> {
    let mut keys = BTreeMap::new();
    for peer in peers {
        let Some(path) = &peer.md5_file else { continue };
        let read = file::read_bounded(path, 4096);
        let text = read.map_err(|source| Error::Key(peer.name.clone(), path.clone(), source))?;
        let key = text.trim_ascii();
        if key.is_empty() || key.len() > KEY_BYTES_MAX || key.contains(&b'\n') {
            return Err(Error::KeyLength(peer.name.clone(), path.clone()));
        }
        keys.insert(peer.name.clone(), key.to_vec());
    }
    Ok(keys)
}

/// A secret for hash tables.
fn secret() -> Option<[u64; 2]> {
    let bytes = clock::secret::<16>()?;
    let (high, low) = bytes.split_at_checked(8)?;
    Some([u64::from_ne_bytes(high.try_into().ok()?), u64::from_ne_bytes(low.try_into().ok()?)])
}
