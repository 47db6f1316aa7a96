//! What a role is handed at start.

use std::path::PathBuf;

use model::Name;

use crate::admin::StatusBoard;
use crate::tls::Certificates;
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
    /// Ends the process.
    pub shutdown: Shutdown,
}
