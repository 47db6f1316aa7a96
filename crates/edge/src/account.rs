//! The books: every answer and connection that has ended, as lines of access logs and in sums.
//!
//! What serves only ever adds to a [`Shard`] of its own thread, in memory, under a lock that nobody
//! else wants but for a moment. A thread of its own takes the shards ten times a second, writes the
//! lines ([`rt::log_file`]) and adds the sums to the metrics ([`tables`]). Lines of a shard that has
//! [`PIECE_BYTES`] of them are taken at once: what is written while it is still in the CPU's caches
//! costs a quarter. A disk that is slow, full or broken costs lines, which are counted, and never a
//! client's time; `kill -9` costs what came since the shards were last taken.
//!
//! Memory: a shard (there are as many as CPUs, 64 at most) holds at most [`LINES_BYTES_MAX`] for each
//! log and [`SUMS_MAX`] sums, once more while they are written; the tables grow with the number of
//! projects, countries and autonomous systems, never with that of clients.

mod sums;
mod tables;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use rt::Metrics;
use rt::log_file::{Figures, Lines, LogFile};
use rt::metrics::edge as metric;
use rt::signals::Reopen;
use serde_json::Value;
use usage::{ConnectionRecord, Record, write};

use self::sums::Sums;
use self::tables::Tables;
use crate::params::LogParams;
use crate::project::Project;

/// How often the shards are taken, milliseconds.
const TAKE_EVERY_MS: u64 = 100;
/// Bytes of lines of one log that are taken from a shard before that.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes of lines that one shard holds for one log; further lines are lost.
const LINES_BYTES_MAX: usize = 4 << 20;
/// Sums that one shard holds: with more they are added to the tables before their time.
const SUMS_MAX: usize = 16_384;
/// There are no more shards than this.
const SHARDS_MAX: usize = 64;

/// The books of an edge.
#[derive(Debug)]
pub(crate) struct Account {
    logs: Vec<LogParams>,
    shards: Vec<Shard>,
    tables: Mutex<Tables>,
    figures: Vec<Arc<Figures>>,
    reopen: Reopen,
    /// The thread that writes, once there is one.
    writer: OnceLock<Thread>,
    is_closing: AtomicBool,
}

/// What came in on some threads since it was last taken. On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    /// By log.
    lines: Vec<Lines>,
    sums: Sums,
}

impl Account {
    pub(crate) fn new(logs: &[LogParams], metrics: &Metrics, reopen: &Reopen) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let pending = || Shard(Mutex::new(Pending::of(logs.len())));
        Self {
            logs: logs.to_vec(),
            shards: (0..threads.min(SHARDS_MAX)).map(|_| pending()).collect(),
            tables: Mutex::new(Tables::new(metrics)),
            figures: logs.iter().map(|log| Arc::new(figures(log, metrics))).collect(),
            reopen: reopen.clone(),
            writer: OnceLock::new(),
            is_closing: AtomicBool::new(false),
        }
    }

    /// Whether anybody wants lines.
    pub(crate) fn has_logs(&self) -> bool {
        !self.logs.is_empty()
    }

    /// An answer has ended.
    pub(crate) fn note_answer(&self, record: &Record<'_>, project: Option<&Arc<Project>>) {
        let Some(mut pending) = self.shard() else { return };
        self.lines(&mut pending, |log, out| write::access(log.format, log.addresses, record, out));
        pending.sums.note_answer(record, project);
        if pending.sums.len() >= SUMS_MAX {
            self.tables().add(&mut pending.sums);
        }
    }

    /// A connection has ended.
    pub(crate) fn note_connection(&self, record: &ConnectionRecord<'_>) {
        let Some(mut pending) = self.shard() else { return };
        self.lines(&mut pending, |log, out| {
            write::connection(log.format, log.addresses, record, out);
        });
        pending.sums.note_connection(record);
    }

    fn lines(&self, pending: &mut Pending, put: impl Fn(&LogParams, &mut Vec<u8>)) {
        let mut is_piece = false;
        for (log, lines) in self.logs.iter().zip(&mut pending.lines) {
            let before = lines.bytes.len();
            if before >= LINES_BYTES_MAX {
                lines.lost = lines.lost.saturating_add(1);
                continue;
            }
            put(log, &mut lines.bytes);
            let after = lines.bytes.len();
            lines.count = lines.count.saturating_add(u64::from(after > before));
            is_piece |= before < PIECE_BYTES && after >= PIECE_BYTES;
        }
        if is_piece && let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    /// That of this thread.
    fn shard(&self) -> Option<MutexGuard<'_, Pending>> {
        let nth = number_of_thread().checked_rem(self.shards.len())?;
        Some(self.shards.get(nth)?.lock())
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to write what comes in.
    pub(crate) fn start(self: &Arc<Self>) -> Writer {
        let account = Arc::clone(self);
        let thread = std::thread::Builder::new().name("account".into());
        let thread = thread.spawn(move || account.run());
        let thread = thread
            .inspect_err(|error| tracing::error!(%error, "no thread: nothing is logged or summed"));
        Writer { account: Arc::clone(self), thread: thread.ok() }
    }

    fn run(&self) {
        // There is one such thread.
        let _ = self.writer.set(std::thread::current());
        let mut files: Vec<LogFile> =
            self.figures.iter().map(|figures| LogFile::new(Arc::clone(figures))).collect();
        let mut spare = Pending::of(self.logs.len());
        let mut take_at_ns = 0;
        loop {
            let is_last = self.is_closing.load(Relaxed);
            let now = rt::clock::now();
            files.iter_mut().for_each(|file| file.look(now, self.reopen.asked()));
            let takes_all = is_last || now.mono_ns >= take_at_ns;
            for shard in &self.shards {
                shard.take(&mut spare, takes_all);
                for (file, lines) in files.iter_mut().zip(&mut spare.lines) {
                    file.write(now, lines);
                    lines.clear();
                }
                if takes_all {
                    self.tables().add(&mut spare.sums);
                }
            }
            if takes_all {
                self.tables().show(now);
                take_at_ns = now.plus_ms(TAKE_EVERY_MS).mono_ns;
            }
            if is_last {
                return;
            }
            let wait_ns = take_at_ns.saturating_sub(rt::clock::now().mono_ns);
            std::thread::park_timeout(Duration::from_nanos(wait_ns));
        }
    }

    /// The logs in `/status`.
    pub(crate) fn status(&self) -> Value {
        self.figures.iter().map(|figures| figures.status()).collect()
    }

    /// The sums in `/status`.
    pub(crate) fn largest(&self) -> Value {
        self.tables().status()
    }
}

impl Shard {
    /// Puts what is pending in the place of `empty`: all of it, or only the lines of logs that have
    /// so many that they are not to wait.
    fn take(&self, empty: &mut Pending, takes_all: bool) {
        let mut pending = self.lock();
        if takes_all {
            return std::mem::swap(&mut *pending, empty);
        }
        for (lines, empty) in pending.lines.iter_mut().zip(&mut empty.lines) {
            if lines.bytes.len() >= PIECE_BYTES {
                std::mem::swap(lines, empty);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    fn of(logs: usize) -> Self {
        Self { lines: (0..logs).map(|_| Lines::default()).collect(), sums: Sums::default() }
    }
}

/// What is known of a log beside its file.
fn figures(log: &LogParams, metrics: &Metrics) -> Figures {
    let path = log.path.to_string_lossy();
    let [lines, lost] =
        [&metric::LOG_LINES, &metric::LOG_LOST].map(|m| metrics.counter(m, &[&path]));
    Figures::new(log.path.clone(), lines, lost)
}

/// Threads are numbered as they come.
fn number_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: Cell<Option<usize>> = const { Cell::new(None) });
    NUMBER.with(|number| {
        let nth = number.get().unwrap_or_else(|| NEXT.fetch_add(1, Relaxed));
        number.set(Some(nth));
        nth
    })
}

/// The thread that writes.
#[derive(Debug)]
pub(crate) struct Writer {
    account: Arc<Account>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Writes what has come in by now, and ends. Blocks.
    pub(crate) fn close(self) {
        self.account.is_closing.store(true, Relaxed);
        if let Some(thread) = self.thread {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("the thread that writes the logs ended by a fault of this program");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv6Addr};

    use usage::write::{Addresses, Format};
    use usage::{Outcome, Way};

    use super::*;

    /// An answer to a client of whom nothing is known.
    pub(super) fn record() -> Record<'static> {
        Record {
            ended_ms: 1_000,
            elapsed_ms: 1,
            client: IpAddr::V6(Ipv6Addr::LOCALHOST),
            asn: None,
            country: None,
            node: "edge1",
            project: "",
            method: "GET",
            scheme: "http",
            protocol: "HTTP/1.1",
            host: "a.example",
            target: "/b",
            status: 200,
            bytes: 3,
            is_aborted: false,
            outcome: Outcome::Hit,
            upstream: "",
            is_from_parent: false,
            content_type: "",
            range: "",
            user_agent: "",
            missteered: None,
            limit: "",
        }
    }

    fn connection() -> ConnectionRecord<'static> {
        let Record { ended_ms, client, asn, country, node, .. } = record();
        let way = Way {
            acked_bytes: 10,
            sent_segments: 2,
            retransmitted_segments: 1,
            min_rtt_us: 50,
            delivery_rate: 0,
        };
        ConnectionRecord { ended_ms, client, asn, country, node, way }
    }

    fn book(logs: &[LogParams]) -> (Arc<Account>, Metrics) {
        let metrics = Metrics::new();
        (Arc::new(Account::new(logs, &metrics, &Reopen::default())), metrics)
    }

    #[test]
    fn answers_and_connections_of_many_threads_are_in_each_log_and_in_the_sums() {
        let dir = tempfile::tempdir().unwrap();
        let log = |name: &str, format| LogParams {
            format,
            addresses: Addresses::Whole,
            ..LogParams::new(dir.path().join(name))
        };
        let logs = [log("squid", Format::Squid), log("json", Format::Json)];
        let (account, metrics) = book(&logs);
        let writer = account.start();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        account.note_answer(&record(), None);
                    }
                    account.note_connection(&connection());
                });
            }
        });
        writer.close();
        let lines = |log: &LogParams| std::fs::read_to_string(&log.path).unwrap().lines().count();
        assert_eq!(logs.each_ref().map(lines), [40_000, 40_004]);
        let text = metrics.render();
        for sample in [
            "cacheboy_edge_project_requests_total{project=\"none\",result=\"hit\"} 40000\n",
            "cacheboy_edge_project_sent_bytes_total{project=\"none\",result=\"hit\"} 120000\n",
            "cacheboy_edge_country_requests_total{country=\"unknown\"} 40000\n",
            "cacheboy_edge_asn_sent_bytes_total{asn=\"unknown\"} 120000\n",
            "cacheboy_edge_way_connections_total{asn=\"unknown\"} 4\n",
            "cacheboy_edge_way_min_rtt_microseconds_total{asn=\"unknown\"} 200\n",
            "cacheboy_edge_way_rated_connections_total{asn=\"unknown\"} 0\n",
        ] {
            assert!(text.contains(sample), "{sample}{text}");
        }
        assert_eq!(account.status()[1]["lines"], 40_004);
        assert_eq!(account.status()[1]["lost_lines"], 0);
    }

    /// Lines that are many are written while they are in the CPU's caches; all else waits its time.
    #[test]
    fn many_lines_are_taken_before_their_time_and_few_are_not() {
        let (account, _) = book(&[LogParams::new("a".into()), LogParams::new("b".into())]);
        let mut taken = Pending::of(2);
        let put = |lines: u64| (0..lines).for_each(|_| account.note_answer(&record(), None));
        let counts = |pending: &Pending| [pending.lines[0].count, pending.lines[1].count];
        let shard = number_of_thread() % account.shards.len();
        put(10);
        account.shards[shard].take(&mut taken, false);
        assert_eq!((counts(&taken), taken.sums.len()), ([0, 0], 0));
        put(1_000);
        account.shards[shard].take(&mut taken, false);
        assert_eq!((counts(&taken), taken.sums.len()), ([1_010, 1_010], 0));
        taken.lines.iter_mut().for_each(Lines::clear);
        put(1);
        account.shards[shard].take(&mut taken, true);
        assert_eq!((counts(&taken), taken.sums.len()), ([1, 1], 1));
    }

    /// Nobody takes the shards: what has no room is counted.
    #[test]
    fn memory_is_bounded_whatever_comes_in() {
        let dir = tempfile::tempdir().unwrap();
        let (account, metrics) = book(&[LogParams::new(dir.path().join("log"))]);
        let mut line = Vec::new();
        write::access(Format::Squid, Addresses::Truncated, &record(), &mut line);
        let room = u64::try_from(LINES_BYTES_MAX.div_ceil(line.len())).unwrap();
        for n in 0..1_000_000u32 {
            let client = IpAddr::V4(n.into());
            let asn = model::Asn::new(n % 50_000);
            account.note_answer(&Record { client, asn, ..record() }, None);
            let pending = account.shard().unwrap();
            assert!(pending.sums.len() < SUMS_MAX);
            assert!(pending.lines[0].bytes.len() < LINES_BYTES_MAX + 1024);
        }
        account.start().close();
        let lines = account.status()[0]["lines"].as_u64().unwrap();
        assert!(lines <= room && lines > room / 2, "{lines} of {room}");
        assert_eq!(account.status()[0]["lost_lines"], 1_000_000 - lines);
        assert_eq!(account.largest()["seen"], 49_999);
        let text = metrics.render();
        assert!(
            text.contains("cacheboy_edge_country_requests_total{country=\"unknown\"} 1000000\n")
        );
        assert!(text.lines().count() < 6_000, "{}", text.lines().count());
    }
}
