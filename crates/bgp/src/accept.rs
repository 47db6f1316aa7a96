//! Connections of peers, and the tasks of all sessions, on a thread of their own.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use model::Name;
use rt::metrics::bgp as metric;
use rt::{Phase, Shutdown};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::desk::Desk;
use crate::{commit, link, peer};

/// Connections of a peer that wait to be taken.
const WAITING_MAX: usize = 4;
/// Pause after an error of the listener: out of files, say.
const PAUSE: Duration = Duration::from_millis(100);

/// Runs all sessions until the process yields.
pub(crate) async fn sessions(
    listeners: Vec<StdListener>,
    keys: BTreeMap<Name, Vec<u8>>,
    desk: Arc<Desk>,
    shutdown: Shutdown,
) {
    let mut tasks = JoinSet::new();
    let mut doors = BTreeMap::<IpAddr, (usize, mpsc::Sender<TcpStream>)>::new();
    for (at, of) in desk.peers.iter().enumerate() {
        let (door, coming) = mpsc::channel(WAITING_MAX);
        doors.insert(of.params.address, (at, door));
        let key = keys.get(&of.params.name).cloned();
        tasks.spawn(peer::run(Arc::clone(&desk), at, key, coming, shutdown.clone()));
    }
    let doors = Arc::new(doors);
    for listener in listeners {
        let (desk, doors, shutdown) = (Arc::clone(&desk), Arc::clone(&doors), shutdown.clone());
        tasks.spawn(async move {
            match TcpListener::from_std(listener) {
                Ok(listener) => accept(&listener, &desk, &doors, &shutdown).await,
                Err(error) => tracing::error!(%error, "peers cannot connect: restart"),
            }
        });
    }
    tasks.spawn(commit::run(Arc::clone(&desk), shutdown));
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a session ended by a defect: restart");
        }
    }
}

async fn accept(
    listener: &TcpListener,
    desk: &Desk,
    doors: &BTreeMap<IpAddr, (usize, mpsc::Sender<TcpStream>)>,
    shutdown: &Shutdown,
) {
    let refused = desk.metrics.counter(&metric::REFUSED, &[]);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.reached(Phase::Yielded) => return,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if error.kind() != io::ErrorKind::ConnectionAborted {
                    tracing::warn!(%error, "cannot take a connection");
                    tokio::time::sleep(PAUSE).await;
                }
                continue;
            }
        };
        let door = doors.get(&from.ip().to_canonical());
        let peer = door.and_then(|(at, door)| Some((desk.peers.get(*at)?, door)));
        let taken = peer.is_some_and(|(peer, door)| {
            link::prepare(&stream, &peer.params).is_ok() && door.try_send(stream).is_ok()
        });
        if !taken {
            tracing::debug!(%from, "a connection that nobody takes");
            refused.inc();
        }
    }
}
