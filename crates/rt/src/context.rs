//! What a role is handed at start.

use std::path::PathBuf;

use model::Name;

use crate::admin::StatusBoard;
use crate::alive::Alive;
use crate::handover::Sockets;
use crate::routes::LocalRoutes;
use crate::signals::Reopen;
use crate::tls::Certificates;
use crate::yielding::Yielding;
use crate::{Metrics, Shutdown};

/// The host around a role: its name, its place on disk, and the shared instruments.
#[derive(Clone, Debug)]
pub struct Context {
    /// `[host] name`.
    pub name: Name,
    /// `[host] state_dir`: exists and is writable.
    pub state_dir: PathBuf,
    /// Counters and gauges of the process.
    pub metrics: Metrics,
    /// Where a role hangs what `/status` shows of it.
    pub status: StatusBoard,
    /// What TLS listeners show; `None` where no listener speaks TLS.
    pub certificates: Option<Certificates>,
    /// How far the end of the process has come.
    pub shutdown: Shutdown,
    /// The listening sockets, handed from process to process.
    pub sockets: Sockets,
    /// Who must give signs of life.
    pub alive: Alive,
    /// When files that logs are written to are to be opened anew.
    pub reopen: Reopen,
    /// Where the `bgp` role hangs its table for the others.
    pub local_routes: LocalRoutes,
    /// What is done before a successor has what is on disk.
    pub yielding: Yielding,
}

impl Context {
    /// The context of a process that begins, without certificates.
    pub fn new(name: Name, state_dir: PathBuf) -> Self {
        Self {
            name,
            state_dir,
            metrics: Metrics::new(),
            status: StatusBoard::default(),
            certificates: None,
            shutdown: Shutdown::default(),
            sockets: Sockets::default(),
            alive: Alive::default(),
            reopen: Reopen::default(),
            local_routes: LocalRoutes::default(),
            yielding: Yielding::default(),
        }
    }

    /// `part` is done when the process yields to a successor; see [`Yielding::on_yield`].
    pub fn on_yield(&self, what: &'static str, part: impl Future<Output = ()> + Send + 'static) {
        self.yielding.on_yield(what, part);
    }
}
