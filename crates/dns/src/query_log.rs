//! The log of queries: one JSON object a line, of each query or of one in so many.
//!
//! Threads that answer put lines into a shard in memory, under a lock that only the writer wants beside
//! them, and for a moment. A thread of its own takes the shards ten times a second, and sooner where
//! many lines have come. A disk that is slow, full or broken costs lines, which are counted, and never a
//! client's time.
//!
//! Memory: a shard holds at most [`LINES_BYTES_MAX`], once more while it is written.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use dns_proto::{Answered, Asker, Described, Led, Outcome, Transport};
use ipnet::IpNet;
use model::Name;
use rt::log_file::{Figures, Lines, LogFile};
use rt::metrics::dns as metric;
use rt::signals::Reopen;
use rt::{Context, clock};
use serde::Serialize;
use serde_json::Value;
use steer::DecidedBy;
use usage::write::Addresses;

use crate::params::LogParams;
use crate::shared::Published;

/// How often the shards are taken.
const TAKE_EVERY: Duration = Duration::from_millis(100);
/// Bytes of lines that a shard is taken for before that.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes of lines that one shard holds; further lines are lost.
const LINES_BYTES_MAX: usize = 4 << 20;
/// Threads that answer share this many shards.
const SHARDS: usize = 8;

/// The log.
pub(crate) struct QueryLog {
    params: LogParams,
    shards: [Shard; SHARDS],
    figures: Arc<Figures>,
    reopen: Reopen,
    /// The thread that writes, once there is one.
    writer: OnceLock<Thread>,
    is_closing: AtomicBool,
}

/// On cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Shard(Mutex<Lines>);

/// One query and what became of it; `size` is that of its reply.
pub(crate) struct Entry<'a> {
    pub(crate) asker: &'a Asker,
    pub(crate) message: &'a [u8],
    pub(crate) outcome: &'a Outcome,
    pub(crate) size: usize,
    pub(crate) published: &'a Published,
}

/// A line. What is not known is left out.
#[derive(Serialize)]
struct Line<'a> {
    at_ms: u64,
    client: IpAddr,
    transport: &'static str,
    #[serde(flatten)]
    question: Question,
    #[serde(flatten)]
    led: Option<Whither<'a>>,
    answer: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rcode: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<u8>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<usize>,
}

#[derive(Serialize)]
struct Question {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    rtype: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ecs: Option<IpNet>,
}

/// Where an answer that depends on who asks leads, and why.
#[derive(Serialize)]
struct Whither<'a> {
    project: Option<&'a Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    evidence: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<&'a Name>,
    nodes: Vec<&'a Name>,
}

impl QueryLog {
    pub(crate) fn new(params: LogParams, context: &Context) -> Self {
        let path = params.path.to_string_lossy();
        let [lines, lost] = [&metric::LOG_LINES, &metric::LOG_LOST]
            .map(|metric| context.metrics.counter(metric, &[&path]));
        let figures = Arc::new(Figures::new(params.path.clone(), lines, lost));
        Self {
            params,
            shards: Default::default(),
            figures,
            reopen: context.reopen.clone(),
            writer: OnceLock::new(),
            is_closing: AtomicBool::new(false),
        }
    }

    /// One query in so many is to be noted.
    pub(crate) fn sample(&self) -> u64 {
        self.params.sample.into()
    }

    /// Writes the line of a query, in the shard of this thread or connection.
    pub(crate) fn note(&self, shard: usize, entry: &Entry<'_>) {
        let Some(shard) = self.shards.get(shard % SHARDS) else { return };
        let line = self.line(entry);
        let mut lines = shard.lock();
        let before = lines.bytes.len();
        if before >= LINES_BYTES_MAX {
            lines.lost = lines.lost.saturating_add(1);
            return;
        }
        // Writing to memory fails for nothing that a line has in it.
        if serde_json::to_writer(&mut lines.bytes, &line).is_err() {
            lines.bytes.truncate(before);
            return;
        }
        lines.bytes.push(b'\n');
        lines.count = lines.count.saturating_add(1);
        let is_piece = before < PIECE_BYTES && lines.bytes.len() >= PIECE_BYTES;
        drop(lines);
        if is_piece && let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    fn line<'a>(&self, entry: &Entry<'a>) -> Line<'a> {
        let Entry { asker, message, outcome, size, published } = *entry;
        let addresses = self.params.addresses;
        let Described { name, rtype, subnet } = Described::of(message);
        let ecs = subnet.map(|subnet| written(addresses, subnet));
        let answered = match outcome {
            Outcome::Answered(answered) => Some(answered),
            Outcome::Dropped(_) => None,
        };
        let announces = |answered: &&Answered| answered.subnet && answered.led.is_some();
        Line {
            at_ms: asker.now.wall_ms,
            client: addresses.of(asker.peer),
            transport: match asker.transport {
                Transport::Udp => "udp",
                Transport::Tcp => "tcp",
            },
            question: Question { name, rtype, ecs },
            led: answered.and_then(|answered| answered.led).map(|led| whither(&led, published)),
            answer: match outcome {
                Outcome::Answered(answered) => answered.sort.word(),
                Outcome::Dropped(why) => why.word(),
            },
            rcode: answered.map(|answered| answered.sort.rcode()),
            scope: answered.filter(announces).map(|answered| answered.scope),
            truncated: answered.is_some_and(|answered| answered.truncated),
            size: answered.map(|_| size),
        }
    }

    /// Begins to write what comes in.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn start(self: &Arc<Self>) -> std::io::Result<Writer> {
        let log = Arc::clone(self);
        let thread = thread::Builder::new().name("dns-log".into()).spawn(move || log.run())?;
        Ok(Writer { log: Arc::clone(self), thread: Some(thread) })
    }

    fn run(&self) {
        // There is one such thread.
        let _ = self.writer.set(thread::current());
        let mut file = LogFile::new(Arc::clone(&self.figures));
        let mut taken = Lines::default();
        loop {
            let is_last = self.is_closing.load(Relaxed);
            let now = clock::now();
            file.look(now, self.reopen.asked());
            for shard in &self.shards {
                std::mem::swap(&mut *shard.lock(), &mut taken);
                file.write(now, &taken);
                taken.clear();
            }
            if is_last {
                return;
            }
            thread::park_timeout(TAKE_EVERY);
        }
    }

    /// In `/status`.
    pub(crate) fn status(&self) -> Value {
        self.figures.status()
    }
}

impl Shard {
    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is written of a network: no more of it than of an address.
fn written(addresses: Addresses, network: IpNet) -> IpNet {
    let most = match (addresses, network) {
        (Addresses::Whole, network) => network.max_prefix_len(),
        (Addresses::Truncated, IpNet::V4(_)) => 24,
        (Addresses::Truncated, IpNet::V6(_)) => 48,
    };
    let length = network.prefix_len().min(most);
    IpNet::new(network.addr(), length).map_or(network, |network| network.trunc())
}

fn whither<'a>(led: &Led, published: &'a Published) -> Whither<'a> {
    let names = &published.names;
    Whither {
        project: names.projects.get(usize::from(led.project)),
        evidence: published.evidence(led).and_then(|by| DecidedBy::WORDS.get(by.number()).copied()),
        pool: led.pool.and_then(|pool| names.pools.get(usize::from(pool))),
        nodes: led.nodes().iter().filter_map(|node| names.nodes.get(usize::from(*node))).collect(),
    }
}

/// The thread that writes.
pub(crate) struct Writer {
    log: Arc<QueryLog>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Writer {
    /// Writes what has come in by now, and ends the thread. Blocks for as long as that takes.
    fn drop(&mut self) {
        self.log.is_closing.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("the thread that writes the log of queries ended by a fault");
            }
        }
    }
}
