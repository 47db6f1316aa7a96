//! What the edge role is told by its config.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use model::{ByteCount, Rate};
use rt::listen::Listen;
use rt::signals::Pace;
pub use usage::write::{Addresses, Format};

/// `[edge]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Where clients are served, at least one.
    pub listen: Vec<Listen>,
    /// Disks, at least one; each object lives on one of them.
    pub stores: Vec<StoreParams>,
    /// How long a master may take.
    pub timeouts: Timeouts,
    /// Memory for blocks that are being filled; at least two blocks.
    pub fill_memory: ByteCount,
    /// Memory for what the stores hold, shared among them.
    pub store_memory: ByteCount,
    /// PEM file with certificates of authorities that masters may have theirs from, beside those
    /// that the system trusts.
    pub upstream_ca: Option<PathBuf>,
    /// Access logs.
    pub logs: Vec<LogParams>,
    /// The network interface that the bill is counted on (`[edge.bill] interface`); `None`: the edge
    /// counts what it sends and receives itself.
    pub bill_interface: Option<String>,
    /// How the process leaves when it is told to (`drain_notice_s`, `drain_deadline_s`).
    pub pace: Pace,
    /// What clients may take of the edge.
    pub limits: LimitParams,
}

/// `[edge.limits]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitParams {
    /// Connections of clients at once; as many as the process's open files allow when not given.
    pub connections: Option<u32>,
    /// Bytes of the head of a request.
    pub head_bytes: ByteCount,
    /// How long the head of a request may take (see [`serve::Limits::head_timeout`]).
    pub head_timeout: Duration,
    /// Requests of one client that are answered at once; any number when not given.
    pub requests_per_client: Option<u32>,
    /// Networks whose clients may take what they want.
    pub exempt: Vec<IpNet>,
    /// Full copies of one object that a network may have in a day before it is paced; any number when
    /// not given.
    pub copies_per_day: Option<u32>,
    /// What all responses to such a network then share.
    pub copies_rate: Rate,
}

/// Default of [`LimitParams::copies_rate`].
pub const COPIES_RATE_DEFAULT: Rate = Rate(1_000_000);

impl Default for LimitParams {
    fn default() -> Self {
        let serve::Limits { head_bytes_max, head_timeout, .. } = serve::Limits::default();
        let head_bytes = ByteCount(u64::try_from(head_bytes_max).unwrap_or(u64::MAX));
        Self {
            connections: None,
            head_bytes,
            head_timeout,
            requests_per_client: None,
            exempt: Vec::new(),
            copies_per_day: None,
            copies_rate: COPIES_RATE_DEFAULT,
        }
    }
}

impl LimitParams {
    /// Those of listeners, in a process whose open files allow for `connections` of clients.
    pub(crate) fn of_listeners(&self, connections: usize) -> serve::Limits {
        let wanted = self.connections.map(|wanted| usize::try_from(wanted).unwrap_or(usize::MAX));
        serve::Limits {
            // Where the process may open few files, clients wait to be accepted rather than that
            // others find none left for their masters.
            connections_max: wanted.map_or(connections, |wanted| wanted.min(connections)),
            head_bytes_max: usize::try_from(self.head_bytes.0).unwrap_or(usize::MAX),
            head_timeout: self.head_timeout,
        }
    }
}

/// `[[edge.log]]`: one access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogParams {
    /// A regular file, made when it is not there, in a folder that is.
    pub path: PathBuf,
    /// How its lines look.
    pub format: Format,
    /// How much of clients' addresses they have.
    pub addresses: Addresses,
}

impl LogParams {
    /// One with the defaults.
    pub fn new(path: PathBuf) -> Self {
        Self { path, format: Format::default(), addresses: Addresses::default() }
    }
}

/// `[[edge.store]]`: one disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreParams {
    /// Folder, made when it is not there.
    pub path: PathBuf,
    /// Bytes it may take: a hard ceiling.
    pub size: ByteCount,
    /// Bytes of a block of new objects: a multiple of 4096.
    pub block_bytes: u32,
}

/// Limits of patience with masters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection (`connect_timeout_ms`).
    pub connect: Duration,
    /// From the request to the head of the answer (`first_byte_timeout_ms`).
    pub first_byte: Duration,
    /// Between two pieces of a body (`between_bytes_timeout_ms`).
    pub between_bytes: Duration,
}

/// Default of [`StoreParams::block_bytes`].
pub const BLOCK_BYTES_DEFAULT: u32 = store::Params::BLOCK_BYTES;
/// Default of [`Params::fill_memory`].
pub const FILL_MEMORY_DEFAULT: ByteCount = ByteCount(256 << 20);
/// Default of [`Params::store_memory`].
pub const STORE_MEMORY_DEFAULT: ByteCount = store::Params::MEMORY;

/// Default of [`Params::pace`]: health notices within the notice with its own defaults, and a slow
/// client has the time for a large image.
pub const PACE_DEFAULT: Pace =
    Pace { notice: Duration::from_secs(30), deadline: Duration::from_secs(6 * 60 * 60) };

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            first_byte: Duration::from_secs(15),
            between_bytes: Duration::from_secs(15),
        }
    }
}

impl Params {
    /// Default patience and memory.
    pub fn new(listen: Vec<Listen>, stores: Vec<StoreParams>) -> Self {
        let timeouts = Timeouts::default();
        let (fill_memory, store_memory) = (FILL_MEMORY_DEFAULT, STORE_MEMORY_DEFAULT);
        let (pace, limits) = (PACE_DEFAULT, LimitParams::default());
        Self {
            listen,
            stores,
            timeouts,
            fill_memory,
            store_memory,
            upstream_ca: None,
            logs: Vec::new(),
            bill_interface: None,
            pace,
            limits,
        }
    }
}
